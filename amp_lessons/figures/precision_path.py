"""The way of a forward pass through the precisions: one lane for float32, one for the 16-bit dtype."""

from __future__ import annotations

from collections.abc import Sequence

from amp_lessons.autocast_ops import Trace
from amp_lessons.errors import LessonError
from amp_lessons.figures.picture import Picture
from amp_lessons.figures.style import FAINT, INK, RECIPE_COLOURS, new_figure

_DEVICES = {"cuda": ("CUDA", RECIPE_COLOURS["amp"]), "cpu": ("CPU", RECIPE_COLOURS["fp16"])}
_LANES = {"float32": 1, "16 bits": 0}


def precision_path(traces: Sequence[Trace]) -> Picture:
    """Each trace's ops from left to right, in the lane of the dtype that comes out; ops where traces differ are ringed.

    The traces are of one model, on different device types. Raises LessonError if their ops are not the same, or if an op
    has no dtype.
    """
    runs = [[step for step in trace.steps if not step.moves_only] for trace in traces]
    names = [[step.op for step in steps] for steps in runs]
    if not names or not names[0] or any(other != names[0] for other in names):
        raise LessonError("The path needs traces of one and the same model, each with at least one op.")
    if any(step.dtype is None for steps in runs for step in steps):
        raise LessonError("A trace ends at an op that gives no dtype, so its path cannot be drawn; print the trace instead.")
    lanes = [[_lane(step.dtype.itemsize) for step in steps] for steps in runs]
    differ = [i for i, column in enumerate(zip(*lanes)) if len(set(column)) > 1]
    figure, grid = new_figure(7.6, 1.5 * len(runs) + 0.9, nrows=len(runs), sharex=True, squeeze=False)
    for axes, trace, lane in zip(grid[:, 0], traces, lanes):
        name, colour = _DEVICES[trace.device_type]
        axes.plot(lane, color=colour, linewidth=1.4, marker="o", markersize=6)
        axes.plot(
            differ,
            [lane[i] for i in differ],
            "o",
            markersize=15,
            markerfacecolor="none",
            markeredgecolor=INK,
            markeredgewidth=1.4,
        )
        axes.set_yticks(list(_LANES.values()), list(_LANES))
        axes.set_ylim(-0.45, 1.45)
        axes.set_title(f"under {name} autocast", fontsize=10, loc="left")
        axes.tick_params(axis="x", length=0)
        for level in _LANES.values():
            axes.axhline(level, color=FAINT, linewidth=0.5, zorder=0)
        axes.spines["bottom"].set_visible(False)
    grid[-1, 0].set_xticks(range(len(names[0])), names[0], rotation=55, ha="right", rotation_mode="anchor", fontsize=8.5)
    return Picture(figure, _words(traces, runs, differ))


def _lane(size: int) -> int:
    return _LANES["float32"] if size >= 4 else _LANES["16 bits"]


def _words(traces: Sequence[Trace], runs: list[list], differ: list[int]) -> str:
    lines = []
    for trace, steps in zip(traces, runs):
        way = ", ".join(f"{step.op} {step.answer.short}" for step in steps)
        lines.append(f"Under {_DEVICES[trace.device_type][0]} autocast, op by op: {way}.")
    names = ", ".join(runs[0][i].op for i in differ) or "none"
    return "\n".join([*lines, f"Ops where they differ (ringed): {names}."] if len(runs) > 1 else lines)
