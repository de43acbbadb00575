"""Lesson 2's first explorer: one small value walks along the bottom of fp16's number line."""

from __future__ import annotations

from amp_lessons.figures.floor import FloorLine
from amp_lessons.formats import FP16, Fate
from amp_lessons.widgets.controls import Stepper
from amp_lessons.widgets.explorer import Explorer

_SIXTEENTHS = 16  # steps of the slider between two fp16 numbers: fine enough for the ties and their neighbours


class FloorExplorer(Explorer):
    """A slider over float32 values from 0 to 4 · 2^-24, and the fp16 number that each becomes."""

    def __init__(self) -> None:
        self.gradient = Stepper("value in 1/16 of 2^-24", 0, 4 * _SIXTEENTHS, value=20)
        super().__init__([self.gradient], FloorLine())

    def redraw(self) -> str:
        units = self.gradient.value / _SIXTEENTHS
        value = units * FP16.smallest_subnormal
        stored, fate = FP16.round(value), FP16.fate(value)
        kept = int(stored / FP16.smallest_subnormal)
        self.picture.show(units, kept, fate.value)
        said = f"The float32 value {units:g} · 2^-24 = {value:.3g}"
        if fate is Fate.ZERO:
            return "The value is 0, and 0 in fp16 too: nothing is lost."
        if fate is Fate.FLUSHED:
            said += " is flushed to 0: all of it is lost."
        else:
            said += f" becomes {kept} · 2^-24 = {stored:.3g}, a subnormal number: {_error(stored / value)}."
        if units % 1 == 0.5:
            said += f" It lies half way between {int(units)} and {int(units) + 1} · 2^-24, and the tie goes to the even one."
        return said


def _error(ratio: float) -> str:
    if ratio == 1:
        return "exact"
    return f"{abs(ratio - 1):.1%} too {'large' if ratio > 1 else 'small'}"
