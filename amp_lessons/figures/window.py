"""The loss-scale window of measured gradients, and a scaler's walk into it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.collections import PolyCollection
from matplotlib.lines import Line2D
from matplotlib.text import Text

from amp_lessons.figures.fates import percent
from amp_lessons.figures.picture import Picture
from amp_lessons.figures.scale_history import GROWTH, ScaledStep, end_of, exponent_of, growth_mark, skip_mark
from amp_lessons.figures.style import FAINT, FATE_LINES, INK, RECIPE_COLOURS, new_figure, power_of_two
from amp_lessons.histograms import ExponentHistogram, LossScaleWindow
from amp_lessons.recipes import scale_text

_SCALE = RECIPE_COLOURS["amp"]


class WindowWalk(Picture):
    """One axis of loss scales under two panels: what each scale 2^k would do to the gradients, and where the scaler went.

    Above are the shares of the non-zero gradients that fp16 would flush, keep with fewer bits, and overflow, with the safe
    window shaded. Below, steps run downwards: the band is the window of each step in ``windows`` (one every ``every``
    steps), the line the scaler's walk. ``low`` and ``high`` are the exponents at the ends of the axis.
    """

    def __init__(
        self,
        steps: int,
        windows: Sequence[LossScaleWindow] = (),
        every: int = 1,
        low: int = -2,
        high: int = 46,
        caption: str | None = None,
    ) -> None:
        figure, (shares, walk) = new_figure(7.6, 5.4, nrows=2, sharex=True, height_ratios=(5, 4))
        self._low, self._high = low, high
        ticks = range(8 * math.ceil(low / 8), high + 1, 8)
        shares.set(xlim=(low, high), ylim=(0, 1.26), ylabel="share of the\nnon-zero gradients")
        shares.set_yticks([0, 0.5, 1], ["0%", "50%", "100%"])
        walk.set(ylim=(1.02 * steps, -0.03 * steps), ylabel="step", xlabel="loss scale")
        walk.set_xticks(ticks, [power_of_two(e) for e in ticks])
        for axes in (shares, walk):
            axes.grid(axis="x", color=FAINT, alpha=0.25, linewidth=0.6)
        _draw_band(walk, [(i * every, window) for i, window in enumerate(windows)], steps)
        self._curves = {
            "flushed": Line2D([], [], color=FATE_LINES["flushed"], linewidth=2.2),
            "subnormal": Line2D([], [], color=FATE_LINES["subnormal"], linewidth=1.4, linestyle=(0, (1, 1.2))),
            "overflow": Line2D([], [], color=FATE_LINES["overflow"], linewidth=2.2, linestyle=(0, (5, 1.5))),
        }
        self._shade = PolyCollection([], facecolor=(GROWTH, 0.18), edgecolor=GROWTH, linewidth=1)
        self._window_text = Text(0, 1.24, "", ha="center", va="top", fontsize=9.5, color=INK)
        self._here = Line2D([], [], color=_SCALE, linewidth=1.6, marker="o", markevery=[0], markersize=8, markeredgecolor=INK)
        self._scale_text = Text(0, 1.03, "", va="center", fontweight="bold", color=_SCALE)
        self._path = Line2D([], [], color=_SCALE, linewidth=1.8)
        self._growth, self._skips = growth_mark(">"), skip_mark()
        self._now = Line2D([], [], color=_SCALE, marker="o", markersize=8, markeredgecolor=INK)
        above = [self._shade, *self._curves.values(), self._here, self._window_text, self._scale_text]
        below = [self._path, self._now, self._growth, self._skips]
        for axes, artists in ((shares, above), (walk, below)):
            for artist in artists:
                axes.add_artist(artist)
        names = ["flushed to zero", "kept, fewer bits", "becomes inf", "loss scale", "grew", "overflow, step skipped"]
        named = [*self._curves.values(), self._path, self._growth, self._skips]
        figure.legend(named, names, loc="outside upper left", ncols=3, fontsize=9, frameon=False)
        super().__init__(figure, "", [*above, *below], caption)

    def show(self, histogram: ExponentHistogram, window: LossScaleWindow, records: Sequence[ScaledStep]) -> None:
        """Draw the shares and the window of one step's histogram, and the walk up to that step: the last of the records."""
        exponents = range(self._low, self._high + 1)
        counts = [histogram.fp16_counts(2.0**k) for k in exponents]
        total = max(histogram.nonzero_finite, 1)
        for fate, curve in self._curves.items():
            curve.set_data(exponents, [count[fate] / total for count in counts])
        safe = _is_safe(window)
        left, right = (window.low, window.high) if safe else (0, 0)
        self._shade.set_verts([[(left, 0), (left, 1.26), (right, 1.26), (right, 0)]] if safe else [])
        self._window_text.set_text(f"safe window {power_of_two(left)} to {power_of_two(right)}" if safe else "")
        self._window_text.set_x((left + right) / 2)
        self._show_walk(records)
        self.text = _describe(histogram, window, records)

    def _show_walk(self, records: Sequence[ScaledStep]) -> None:
        places = [(exponent_of(r.scale), step) for r in records for step in (r.step, r.step + 1)][:-1]
        self._path.set_data(*(zip(*places) if places else ([], [])))
        grown = [record for record in records[:-1] if record.grew]
        self._growth.set_data([exponent_of(r.next_scale) for r in grown], [r.step + 1 for r in grown])
        skipped = [record for record in records if record.skipped]
        self._skips.set_data([exponent_of(r.scale) for r in skipped], [r.step for r in skipped])
        now = places[-1:]
        self._now.set_data([x for x, _ in now], [y for _, y in now])
        self._here.set_data([x for x, _ in now] * 2, [0, 1] if now else [])
        k = now[0][0] if now else math.nan
        right_half = k > (self._low + self._high) / 2
        self._scale_text.set(
            x=k + (-0.5 if right_half else 0.5),
            ha="right" if right_half else "left",
            text=f"scale {power_of_two(k)}" if math.isfinite(k) else "",
        )


def _is_safe(window: LossScaleWindow) -> bool:
    return window.low is not None and window.low <= window.high


def _draw_band(axes, windows: Sequence[tuple[int, LossScaleWindow]], steps: int) -> None:
    """Shade the safe scales of each step; a window holds from its step to the next one."""
    known = [(step, window) for step, window in windows if _is_safe(window)]
    if known:
        numbers = [step for step, _ in known] + [steps]
        lows, highs = ([getattr(w, end) for _, w in known] for end in ("low", "high"))
        lows, highs = [*lows, lows[-1]], [*highs, highs[-1]]
        axes.fill_betweenx(numbers, lows, highs, step="post", facecolor=(GROWTH, 0.18), edgecolor=GROWTH, linewidth=1)
        axes.text(lows[-1] + 0.5, 0.98 * steps, "window of each step", ha="left", va="bottom", fontsize=9)


def _describe(histogram: ExponentHistogram, window: LossScaleWindow, records: Sequence[ScaledStep]) -> str:
    if not records:
        return f"No step was taken yet. The window of the parameter gradients: {window}."
    now = records[-1]
    place = "inside" if now.scale in window else "outside"
    text = (
        f"Step {now.step} is {'skipped' if now.skipped else 'taken'}. Its loss scale is {scale_text(now.scale)}, {place} the "
        f"window of the parameter gradients: {window}."
    )
    if math.frexp(now.scale)[0] == 0.5:  # a power of two: elsewhere the histogram has no exact shares
        counts = histogram.fp16_counts(now.scale)
        shares = {fate: percent(count / max(histogram.nonzero_finite, 1)) for fate, count in counts.items()}
        text += (
            f" Of those that are not zero, fp16 would flush {shares['flushed']}, keep {shares['subnormal']} with fewer bits "
            f"and turn {shares['overflow']} into inf."
        )
    return text + end_of(now)
