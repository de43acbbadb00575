"""The loss scale of a run, step by step, with growth and skipped steps marked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from matplotlib.lines import Line2D

from amp_lessons.figures.picture import Picture
from amp_lessons.figures.style import FAINT, FATE_COLOURS, INK, RECIPE_COLOURS, new_figure, power_of_two
from amp_lessons.recipes import scale_text

GROWTH = "#009e73"


class ScaledStep(Protocol):
    """What a record must say to be drawn: a ``StepRecord`` or a ``ScalerStep`` will do."""

    step: int
    scale: float
    next_scale: float
    skipped: bool
    grew: bool


class ScaleHistory(Picture):
    """Loss scale by step on a log2 axis: triangles where it grew, crosses where a gradient overflowed and the step was skipped.

    ``steps`` is the length of the axis, ``low`` and ``high`` are the exponents at its ends. ``ceilings`` holds for each step
    the exponent of the largest scale that its gradients fit, None for a gap; that line stays. ``show`` moves the rest.
    """

    def __init__(
        self, steps: int, ceilings: Sequence[int | None] = (), low: int = -2, high: int = 46, caption: str | None = None
    ) -> None:
        figure, axes = new_figure(7.6, 3.4)
        ticks = range(8 * math.ceil(low / 8), high + 1, 8)
        axes.set(xlim=(-0.01 * steps, 1.01 * steps), ylim=(low, high), xlabel="step", ylabel="loss scale")
        axes.set_yticks(ticks, [power_of_two(e) for e in ticks])
        axes.grid(axis="y", color=FAINT, alpha=0.25, linewidth=0.6)
        if ceilings:
            heights = [math.nan if c is None else c for c in ceilings]
            axes.step(range(len(heights)), heights, where="post", color=FAINT, linewidth=1.2, linestyle=(0, (4, 1.5)))
        self._line = Line2D([], [], color=RECIPE_COLOURS["amp"], linewidth=1.8, drawstyle="steps-post")
        self._growth, self._skips = growth_mark("^"), skip_mark()
        moving = [self._line, self._growth, self._skips]
        for artist in moving:
            axes.add_line(artist)
        names = {self._line: "loss scale", self._growth: "grew", self._skips: "overflow, step skipped"}
        if ceilings:
            names[axes.lines[0]] = "largest scale these gradients fit"
        figure.legend(list(names), list(names.values()), loc="outside upper left", ncols=len(names), fontsize=9, frameon=False)
        super().__init__(figure, "", moving, caption)

    def show(self, records: Sequence[ScaledStep]) -> None:
        """Draw the scale of each record, and of the step that would come next."""
        numbers = [record.step for record in records]
        heights = [exponent_of(record.scale) for record in records]
        if records:
            numbers.append(records[-1].step + 1)
            heights.append(exponent_of(records[-1].next_scale))
        self._line.set_data(numbers, heights)
        # Growth is marked where the new scale starts, a skip at the scale that was too large.
        grown = [record for record in records if record.grew]
        self._growth.set_data([r.step + 1 for r in grown], [exponent_of(r.next_scale) for r in grown])
        skipped = [record for record in records if record.skipped]
        self._skips.set_data([r.step for r in skipped], [exponent_of(r.scale) for r in skipped])
        self.text = account_of(records)


def growth_mark(towards: str) -> Line2D:
    """Triangles for the steps after which the scale grew; ``towards`` is the matplotlib marker of their direction."""
    return Line2D([], [], color=GROWTH, linestyle="", marker=towards, markersize=7, markeredgecolor=INK, markeredgewidth=0.5)


def skip_mark() -> Line2D:
    """Crosses for the steps that overflowed and were skipped."""
    return Line2D(
        [], [], color=FATE_COLOURS["overflow"], linestyle="", marker="X", markersize=8, markeredgecolor=INK, markeredgewidth=0.6
    )


def exponent_of(scale: float) -> float:
    """Where a loss scale lies on a log2 axis; a scale of 0 lies nowhere."""
    return math.log2(scale) if scale > 0 else math.nan


def account_of(records: Sequence[ScaledStep]) -> str:
    """A sentence or two on what a scaler did: where it started, how often it grew and skipped, and where it ended."""
    if not records:
        return "No step was taken yet."
    skipped = [record.step for record in records if record.skipped]
    at_start = next((i for i, record in enumerate(records) if not record.skipped), len(records))
    which = f", the first {at_start} at the start" if at_start > 1 else f", first in step {skipped[0]}" if skipped else ""
    grown = _count(sum(record.grew for record in records), "time")
    were = "was" if len(skipped) == 1 else "were"
    return (
        f"Starting at {scale_text(records[0].scale)}, over {_count(len(records), 'step')}: the scale grew {grown}, "
        f"{_count(len(skipped), 'step')} {were} skipped{which}; it ends at {scale_text(records[-1].next_scale)}."
        f"{end_of(records[-1])}"
    )


def end_of(last: ScaledStep) -> str:
    """What to say when a scaler has come to its end, with a blank in front; nothing when it has not."""
    return " There the loss scale falls under 1: no scale helps." if last.next_scale < 1 else ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
