"""FP32's time over each recipe's time, against the batch and against the width, drawn through measured points."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.text import Text

from amp_lessons.errors import LessonError
from amp_lessons.figures.picture import Picture
from amp_lessons.figures.style import FAINT, INK, RECIPE_COLOURS, RECIPE_INKS, RECIPE_LINES, new_figure
from amp_lessons.figures.units import ratio_text, spread
from amp_lessons.measure.steps import SpeedTable

_CAPTION = (
    "Two panels of measured points: FP32's step time divided by each recipe's, against the batch at one width and against the "
    "width at one batch. Above the line at 1 the recipe is faster than FP32, below it slower."
)
_MARKERS = {"tf32": "D", "fp16": "v", "amp": "s", "bf16": "^"}


class SpeedupCurves(Picture):
    """Left the ratios over the batch at one width, right over the width at one batch; a ring marks the point that both share.

    Lines only join neighbouring measured points, and a size that was not measured is a gap.
    """

    def __init__(self, table: SpeedTable, caption: str = _CAPTION) -> None:
        self._table = table
        self._names = [name for name in table.settings if name != "fp32"]
        if "fp32" not in table.settings or not self._names:
            raise LessonError("The table needs FP32 and at least one other setting to compare.")
        figure, self._axes = new_figure(7.6, 3.6, ncols=2, sharey=True)
        ratios = [table.ratio(p.setting, p.width, p.batch) for p in table.points if p.setting != "fp32"]
        logs = [math.log2(ratio) for ratio in ratios if ratio] + [0.0]
        self._low, self._high = min(logs) - 0.35, max(logs) + 0.35
        moving = []
        self._lines, self._texts, self._rings, self._titles = [], [], [], []
        for axes, sizes, name in zip(self._axes, (table.batches, table.widths), ("batch", "width")):
            _prepare(axes, sizes, name, self._low, self._high)
            lines = {
                n: Line2D(
                    [], [], color=RECIPE_COLOURS[n], linestyle=RECIPE_LINES[n], marker=_MARKERS[n], markersize=5, linewidth=1.8
                )
                for n in self._names
            }
            texts = {n: Text(0, 0, n, color=RECIPE_INKS[n], va="center", fontweight="bold", fontsize=9) for n in self._names}
            ring = Line2D([], [], color=INK, linestyle="none", marker="o", markersize=13, markerfacecolor="none", linewidth=1.2)
            axes.set_title(" ")  # makes room for the moving title
            title = Text(0, 1.03, "", transform=axes.transAxes, fontsize=10, color=INK, clip_on=False)
            for artist in (*lines.values(), *texts.values(), ring, title):
                axes.add_artist(artist)
            self._lines.append(lines)
            self._texts.append(texts)
            self._rings.append(ring)
            self._titles.append(title)
            moving += [*lines.values(), *texts.values(), ring, title]
        self._axes[0].set_ylabel("FP32's time ÷ recipe's time")
        super().__init__(figure, "", moving, caption)

    def show(self, width: int, batch: int) -> None:
        """Draw the curves through this point."""
        over_batch = [(size, width, size) for size in self._table.batches]
        over_width = [(size, size, batch) for size in self._table.widths]
        for panel, (places, here) in enumerate(((over_batch, batch), (over_width, width))):
            ends, ring = {}, ([], [])
            for name in self._names:
                ratios = [(x, self._table.ratio(name, w, b)) for x, w, b in places]
                known = [(math.log2(x), math.log2(r) if r else math.nan) for x, r in ratios]
                self._lines[panel][name].set_data(*zip(*known))
                measured = [point for point in known if not math.isnan(point[1])]
                if measured:
                    ends[name] = measured[-1]
                ring[0].extend(x for x, y in known if x == math.log2(here) and not math.isnan(y))
                ring[1].extend(y for x, y in known if x == math.log2(here) and not math.isnan(y))
            self._rings[panel].set_data(*ring)
            self._place_names(panel, ends)
        self._titles[0].set_text(f"at width {width}")
        self._titles[1].set_text(f"at batch {batch}")
        self.text = f"FP32's time divided by each recipe's, at width {width} and batch {batch} and along both axes."

    def _place_names(self, panel: int, ends: dict[str, tuple[float, float]]) -> None:
        names = list(ends)
        heights = spread([ends[name][1] for name in names], 0.07 * (self._high - self._low))
        for name, text in self._texts[panel].items():
            text.set_text(name if name in ends else "")
        for name, height in zip(names, heights):
            self._texts[panel][name].set_position((ends[name][0] + 0.15, height))


def speedup_curves(table: SpeedTable, width: int | None = None, batch: int | None = None, caption: str = _CAPTION) -> Picture:
    """The curves at one width and one batch, the largest of the table if not said."""
    picture = SpeedupCurves(table, caption)
    picture.show(width or table.widths[-1], batch or table.batches[-1])
    picture.text += " " + " ".join(
        f"Width {p.width}, batch {p.batch}, {p.setting}: {ratio_text(table.ratio(p.setting, p.width, p.batch))}."
        for p in table.points
        if p.setting != "fp32" and table.ratio(p.setting, p.width, p.batch)
    )
    return picture


def _prepare(axes: Axes, sizes: Sequence[int], name: str, low: float, high: float) -> None:
    """Axes in powers of two, drawn by hand: moving artists need a linear scale, and the labels the plain numbers."""
    places = [math.log2(size) for size in sizes]
    room = 0.12 * max(places[-1] - places[0], 1) + 0.2
    axes.set(xlim=(places[0] - 0.3, places[-1] + 2.2 * room), ylim=(low, high), xlabel=name)
    axes.set_xticks(places, [str(size) for size in sizes])
    step = max(1, math.ceil((high - low) / 8))
    ticks = [k for k in range(math.ceil(low), math.floor(high) + 1) if k % step == 0]
    axes.set_yticks(ticks, [f"{2**k}×" if k >= 0 else f"1/{2**-k}×" for k in ticks])
    axes.axhline(0, color=FAINT, linewidth=1.2)
    axes.text(places[0] - 0.25, 0.02 * (high - low), "as fast as FP32", fontsize=8, color=FAINT, va="bottom")
