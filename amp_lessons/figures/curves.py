"""Loss curves of several runs on one pair of axes, each labelled where it ends."""

from __future__ import annotations

import math
from collections.abc import Sequence

from amp_lessons.figures.picture import Picture
from amp_lessons.figures.style import RECIPE_COLOURS, RECIPE_INKS, RECIPE_LINES, new_figure
from amp_lessons.history import TrainingHistory


def loss_curves(histories: Sequence[TrainingHistory], caption: str, smooth: int = 10) -> Picture:
    """Loss by step on a logarithmic axis, one line a run, averaged over ``smooth`` steps to quiet the batches.

    ``caption`` is the text twin. Steps whose loss is not finite, or 0, are gaps.
    """
    figure, axes = new_figure(7.6, 3.2)
    ends = []
    for history in histories:
        losses = [loss if 0 < loss < math.inf else math.nan for loss in _running_mean(history.losses, smooth)]
        colour, line = RECIPE_COLOURS[history.recipe], RECIPE_LINES[history.recipe]
        axes.plot(losses, color=colour, linestyle=line, linewidth=1.8)
        finite = [(step, loss) for step, loss in enumerate(losses) if math.isfinite(loss)]
        if finite:
            ends.append((math.log(finite[-1][1]), finite[-1], history.recipe))
    axes.set(xlabel="step", ylabel="loss", yscale="log")
    axes.margins(x=0.02)
    _label_ends(axes, sorted(ends))
    return Picture(figure, caption)


def _running_mean(losses: Sequence[float], width: int) -> list[float]:
    return [sum(losses[max(0, i + 1 - width) : i + 1]) / min(i + 1, width) for i in range(len(losses))]


def _label_ends(axes, ends: list[tuple]) -> None:
    """Write each run's name right of its last point, moved up where names would overlap."""
    low, high = (math.log(limit) for limit in axes.get_ylim())
    previous = -math.inf
    for level, (step, loss), name in ends:
        place = max(level, previous + 0.065 * (high - low))
        previous = place
        axes.annotate(
            name, (step, loss), xytext=(1.01, (place - low) / (high - low)), textcoords="axes fraction",
            color=RECIPE_INKS[name], va="center", fontweight="bold", annotation_clip=False,
        )  # fmt: skip
