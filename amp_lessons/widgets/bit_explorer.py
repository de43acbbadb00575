"""Lesson 1's explorer: choose a value and a format, and see the bits, the stored number and its neighbours."""

from __future__ import annotations

import math

from amp_lessons.figures.bits import BitPicture, short
from amp_lessons.figures.style import power_of_two
from amp_lessons.formats import FORMATS, FP16, FloatFormat
from amp_lessons.widgets.controls import Stepper, choice
from amp_lessons.widgets.explorer import Explorer


class BitExplorer(Explorer):
    """A value of the form ± hundredths/100 · 2^exponent, stored in one of the five formats.

    It starts at 1.6 · 2^-4, which is 0.1. The exponents reach past both ends of fp16.
    """

    def __init__(self) -> None:
        self.format = choice("format", [(format.name, format) for format in FORMATS], FP16)
        self.sign = choice("sign", [("+", 1), ("-", -1)], 1)
        self.exponent = Stepper("exponent e: times 2^e", -28, 20, value=-4)
        self.hundredths = Stepper("number from 1 to 2, in hundredths", 100, 199, value=160)
        super().__init__([self.format, self.sign, self.exponent, self.hundredths], BitPicture())

    @property
    def wanted(self) -> float:
        """The value that the controls ask for."""
        return self.sign.value * self.hundredths.value / 100 * 2.0**self.exponent.value

    def redraw(self) -> str:
        format, wanted = self.format.value, self.wanted
        stored = format.round(wanted)
        sign, power, number = _fields(format, stored)
        neighbours = format.neighbours(stored)
        self.picture.show(format, wanted, stored, neighbours, [f"{sign}1", power_of_two(power) if number else "", number])
        said = f"{format.name} stores {short(wanted)} as {format.encode(stored)}. "
        if math.isinf(stored):
            return said + f"That is {stored}: the wanted value is past {short(format.max)}, the largest number."
        if stored == 0:
            return said + f"That is 0: all of the value is lost. The next number is {_power(format.smallest_subnormal)}."
        subnormal = ", a subnormal number" if abs(stored) < format.smallest_normal else ""
        said += f"That is {sign}{number} · 2^{power} = {short(stored)}{subnormal}. "
        return said + f"The spacing here is {_power(format.spacing(stored))}. {_error(format, wanted, stored)}"


def _fields(format: FloatFormat, stored: float) -> tuple[str, int, str]:
    """What the fields of a stored number say: its sign, the exponent of the power of two, and the number before it.

    That number is from 1 to 2 where the exponent field is not 0, and under 1 in a subnormal. For inf it is empty.
    """
    bits = format.encode(stored)
    field, steps = int(bits.exponent, 2), int(bits.mantissa, 2)
    number = "" if math.isinf(stored) else f"{steps / 2**format.mantissa_bits + (field > 0):.10g}"
    return "-" if bits.sign == "1" else "+", max(field, 1) - format.bias, number


def _power(value: float) -> str:
    return f"2^{math.log2(value):g}"


def _error(format: FloatFormat, wanted: float, stored: float) -> str:
    if stored == wanted:
        return "Nothing is lost."
    relative = abs(stored / wanted - 1)
    side = "large" if abs(stored) > abs(wanted) else "small"
    end = " It is the format's largest number." if abs(stored) == format.max else ""
    return f"The stored number is {100 * relative:.2g}% too {side}.{end}"
