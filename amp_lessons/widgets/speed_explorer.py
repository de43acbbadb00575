"""Lesson 6's explorer: how much faster or slower each recipe is than FP32, at every batch and width that was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence

from amp_lessons.errors import LessonError
from amp_lessons.figures.speedups import SpeedupCurves
from amp_lessons.figures.step_times import LABELS
from amp_lessons.figures.units import digits, seconds_text
from amp_lessons.measure.steps import SpeedPoint, SpeedTable
from amp_lessons.widgets.controls import Stepper
from amp_lessons.widgets.explorer import Explorer


class SpeedExplorer(Explorer):
    """Sliders for batch and width over a table's measured points; nothing between them is made up.

    Raises LessonError for a table whose batches or widths are not powers of two at even steps, since sliders need those.
    """

    def __init__(self, table: SpeedTable) -> None:
        self.table = table
        self.batch = _stepper("batch 2^k, k =", table.batches)
        self.width = _stepper("width 2^k, k =", table.widths)
        super().__init__([self.batch, self.width], SpeedupCurves(table))

    def redraw(self) -> str:
        width, batch = 2**self.width.value, 2**self.batch.value
        self.picture.show(width, batch)
        return describe(self.table, width, batch)


def describe(table: SpeedTable, width: int, batch: int) -> str:
    """What was measured at this width and batch, in words: times, and FP32's time divided by each recipe's."""
    reference = table.at("fp32", width, batch)
    lines = [f"Width {width}, batch {batch}, {table.workload}, on {table.device}."]
    if reference.time is None:
        return f"{lines[0]}\nFP32 was not measured: {reference.why_not}."
    lines.append(f"FP32 takes {seconds_text(reference.time.median_s)} a step.")
    lines += [_compare(reference, table.at(name, width, batch), table) for name in table.settings if name != "fp32"]
    return "\n".join(lines)


def _compare(reference: SpeedPoint, point: SpeedPoint, table: SpeedTable) -> str:
    label = LABELS[point.setting]
    times = table.ratio(point.setting, point.width, point.batch)
    if point.time is None or times is None:
        return f"{label}: not measured, {point.why_not}."
    if point.time.low_s <= reference.time.high_s and reference.time.low_s <= point.time.high_s:
        verdict = "no clear difference, the quartiles overlap"
    else:
        verdict = "faster than FP32" if times > 1 else "slower than FP32"
    return f"{label}: {seconds_text(point.time.median_s)}; FP32's time divided by it is {digits(times)}: {verdict}."


def _stepper(label: str, sizes: Sequence[int]) -> Stepper:
    exponents = [math.frexp(size)[1] - 1 for size in sizes]
    steps = {after - before for before, after in zip(exponents, exponents[1:])}
    if any(2**e != size for e, size in zip(exponents, sizes)) or len(steps) > 1:
        raise LessonError(f"The sliders need powers of two at even steps, not {', '.join(map(str, sizes))}.")
    return Stepper(label, exponents[0], exponents[-1], value=exponents[-1], step=steps.pop() if steps else 1)
