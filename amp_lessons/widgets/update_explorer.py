"""Lesson 3's second explorer: a weight, an update, and whether the sum is a new number in fp16."""

from __future__ import annotations

from amp_lessons.figures.style import power_of_two
from amp_lessons.figures.updates import REACH, UpdateRuler
from amp_lessons.formats import FP16, FP32
from amp_lessons.widgets.controls import Stepper, choice
from amp_lessons.widgets.explorer import Explorer


class UpdateExplorer(Explorer):
    """Sliders for a weight 2^k and an update 2^-k, and a choice between adding and subtracting it."""

    def __init__(self) -> None:
        self.weight = Stepper("weight 2^k, k =", -8, 8, value=0)
        self.update = Stepper("update 2^-k, k =", 1, 24, value=13)
        self.sign = choice("the step", [("weight − update", -1), ("weight + update", 1)], -1)
        super().__init__([self.weight, self.update, self.sign], UpdateRuler())

    def redraw(self) -> str:
        sign = self.sign.value
        weight, update = 2.0**self.weight.value, 2.0**-self.update.value
        exact = weight + sign * update
        full, half = FP32.round(exact), FP16.round(exact)
        spacing = FP16.spacing(weight)
        self.picture.show(
            [(number - weight) / spacing for number in numbers_around(weight, REACH * spacing)],
            (full - weight) / spacing,
            (half - weight) / spacing,
            _names(self.weight.value),
            f"{power_of_two(self.weight.value)} {'+' if sign > 0 else '−'} {power_of_two(-self.update.value)}",
            _verdict((half - weight) / spacing, weight == half),
        )
        return (
            f"Weight 2^{self.weight.value} = {weight:.10g}, update 2^-{self.update.value}, "
            f"{'added' if sign > 0 else 'subtracted'}. {_outcome('float32', weight, full, exact)} "
            f"{_outcome('fp16', weight, half, exact)} {_nearest(self.weight.value, sign)}"
        )


def numbers_around(weight: float, reach: float) -> list[float]:
    """fp16's numbers no further than ``reach`` from an fp16 ``weight`` that is a power of two, in order."""
    below = FP16.spacing(weight) / 2  # under a power of two the numbers lie twice as close
    under = [weight - i * below for i in range(1, int(reach / below) + 1)]
    over = [weight + i * 2 * below for i in range(int(reach / (2 * below)) + 1)]
    return [*reversed(under), *over]


def _names(k: int) -> tuple[str, str, str]:
    above = k - FP16.mantissa_bits
    return f"−{power_of_two(above - 1)}", f"{power_of_two(k)}\nweight", f"+{power_of_two(above)}"


def _verdict(place: float, same: bool) -> str:
    if same:
        return "fp16: rounds back, nothing happened"
    return "fp16: a new number" if abs(place) <= REACH else "fp16: a new number, beyond this ruler"


def _outcome(name: str, weight: float, stored: float, exact: float) -> str:
    if stored == weight:
        return f"In {name} the sum rounds back to the weight: nothing happened."
    return f"In {name} it becomes {stored:.10g}{', exactly' if stored == exact else ', rounded'}."


def _nearest(k: int, sign: int) -> str:
    exponent = k - FP16.mantissa_bits - (0 if sign > 0 else 1)
    side = "above" if sign > 0 else "below"
    return f"The next fp16 number {side} is 2^{exponent} away; an update up to half of that, 2^{exponent - 1}, is lost."
