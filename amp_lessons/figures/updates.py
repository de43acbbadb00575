"""Updates that land and updates that do not: fp16's numbers around a weight, and two runs side by side."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.collections import LineCollection
from matplotlib.text import Text

from amp_lessons.errors import LessonError
from amp_lessons.figures.picture import Picture
from amp_lessons.figures.style import FAINT, INK, RECIPE_COLOURS, RECIPE_INKS, RECIPE_LINES, new_figure

REACH = 3.4  # how far the ruler goes on either side of the weight, in fp16 spacings
_FULL, _HALF = 1.0, 0.0  # heights of the float32 and the fp16 line


class UpdateRuler(Picture):
    """A weight in the middle, fp16's numbers around it as a ruler, and where an updated weight lands on it.

    Positions are in units of fp16's spacing just above the weight, with the weight at 0.
    """

    def __init__(self) -> None:
        figure, axes = new_figure(7.6, 2.7)
        axes.set(xlim=(-REACH - 0.3, REACH + 0.3), ylim=(-1.3, 2.0))
        axes.set_yticks([_HALF, _FULL], ["stored\nin fp16", "updated\nin float32"])
        axes.tick_params(axis="y", length=0)
        axes.set_xticks([])
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.text(REACH + 0.3, 2.0, "dashes: half way between two fp16 numbers", ha="right", va="top", fontsize=8)
        axes.plot([-REACH, REACH], [_FULL, _FULL], color=INK, linewidth=1)
        axes.plot([-REACH, REACH], [_HALF, _HALF], color=FAINT, linewidth=1)
        self._marks = LineCollection([], colors=FAINT, linewidths=1.6)
        self._turns = LineCollection([], colors=FAINT, linewidths=0.8, linestyles=[(0, (3, 3))])
        (self._arrow,) = axes.plot([], [], color=INK, linewidth=1.6)
        (self._value,) = axes.plot([], [], color=RECIPE_COLOURS["fp32"], linestyle="none", marker="v", markersize=10)
        (self._stored,) = axes.plot([], [], color=RECIPE_COLOURS["fp16"], linestyle="none", marker="o", markersize=11)
        self._names = [Text(0, -0.3, "", ha="center", va="top", fontsize=9, color=INK) for _ in range(3)]
        self._label = Text(0, _FULL + 0.28, "", ha="center", va="bottom", fontsize=10.5, color=INK)
        self._verdict = Text(0, -1.25, "", ha="center", va="bottom", fontsize=10.5, fontweight="bold", color=INK)
        moving = [self._marks, self._turns, self._arrow, self._stored, self._value, *self._names, self._label, self._verdict]
        for artist in (self._marks, self._turns, *self._names, self._label, self._verdict):
            axes.add_artist(artist)
        super().__init__(figure, "", moving)

    def show(
        self, numbers: Sequence[float], value: float, stored: float, names: tuple[str, str, str], label: str, verdict: str
    ) -> None:
        """Point from the updated weight ``value`` to the fp16 number ``stored``, both in spacings from the weight.

        ``numbers`` are fp16's numbers on the ruler, the weight's own 0 among them, and ``names`` what to write under the
        nearest below, the weight and the nearest above. Places beyond the ruler are drawn at its ends.
        """
        numbers = sorted(numbers)
        middle = numbers.index(0)
        self._marks.set_segments([[(x, _HALF - 0.16), (x, _HALF + 0.16)] for x in numbers])
        turns = [(low + high) / 2 for low, high in zip(numbers, numbers[1:])]
        self._turns.set_segments([[(x, _HALF + 0.1), (x, _FULL + 0.15)] for x in turns])
        top, bottom = _within(value), _within(stored)
        self._arrow.set_data([top, bottom], [_FULL, _HALF])
        self._value.set_data([top], [_FULL + 0.06])
        self._stored.set_data([bottom], [_HALF])
        for text, place, name in zip(self._names, (middle - 1, middle, middle + 1), names):
            text.set_x(numbers[place])
            text.set_text(name)
        # Kept off the edges, where half of a centred label would be cut.
        self._label.set_x(max(-2.2, min(2.2, top)))
        self._label.set_text(label)
        self._verdict.set_text(verdict)


def weight_walk(half: Sequence[float], full: Sequence[float]) -> Picture:
    """One weight by step, kept in fp16 and in float32; LessonError when one of them is empty."""
    words = "A weight by step, once kept in fp16 (dotted) and once in float32 (solid)."
    return _two_runs(half, full, ("fp16", "float32"), "weight", words)


def half_against_autocast(half: Sequence[float], autocast: Sequence[float]) -> Picture:
    """Loss by step of a model in fp16 throughout and of one under autocast; LessonError when one of them is empty."""
    words = "Loss by step on a logarithmic axis, for model.half() (dotted) and under autocast with float32 weights (solid)."
    return _two_runs(half, autocast, ("half()", "autocast"), "loss", words, log=True)


def _two_runs(
    half: Sequence[float], full: Sequence[float], names: tuple[str, str], ylabel: str, caption: str, log: bool = False
) -> Picture:
    if not half or not full:
        raise LessonError("Both runs need at least one step to draw.")
    figure, axes = new_figure(7.6, 2.8)
    for values, name, recipe in ((half, names[0], "fp16"), (full, names[1], "fp32")):
        axes.plot(values, color=RECIPE_COLOURS[recipe], linestyle=RECIPE_LINES[recipe], linewidth=2)
        axes.annotate(
            name, (len(values) - 1, values[-1]), xytext=(6, 0), textcoords="offset points", color=RECIPE_INKS[recipe],
            va="center", fontweight="bold", annotation_clip=False,
        )  # fmt: skip
    axes.set(xlabel="step", ylabel=ylabel, yscale="log" if log else "linear")
    axes.margins(x=0.02)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    ways = "; ".join(f"{name} goes from {run[0]:.2g} to {run[-1]:.2g}" for name, run in zip(names, (half, full)))
    return Picture(figure, f"{caption} In {max(len(half), len(full)):,} steps {ways}.", caption=caption)


def _within(place: float) -> float:
    return max(-REACH, min(REACH, place))
