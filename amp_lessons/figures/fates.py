"""The histogram of gradient magnitudes over fp16's number line, each part marked by its fate."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.collections import PolyCollection
from matplotlib.text import Text

from amp_lessons.figures.picture import Picture
from amp_lessons.figures.style import FAINT, FATE_COLOURS, FATE_HATCHES, INK, new_figure, power_of_two
from amp_lessons.histograms import ExponentHistogram, Shares

# Borders of fp16 as exponents of two: flushed up to 2^-25, subnormal up to 2^-14, overflow from just under 2^16.
ZONES = {"flushed": (None, -25), "subnormal": (-25, -14), "normal": (-14, 16), "overflow": (16, None)}
_WORDS = {"flushed": "flushed to zero", "subnormal": "kept, fewer bits", "normal": "kept", "overflow": "becomes inf"}


class FateHistogram(Picture):
    """Bars per binade over fp16's zones; ``show`` moves them to another loss scale without drawing the axes anew.

    Heights are shares of all values, zeros included. ``low`` and ``high`` are the exponents at the ends of the axis, in
    powers of two; bars beyond them are left out of the picture, never of the shares.
    """

    def __init__(
        self,
        low: int = -44,
        high: int = 24,
        top: float = 0.2,
        xlabel: str = "magnitude of the gradient",
        caption: str | None = None,
    ) -> None:
        figure, axes = new_figure(7.6, 3.2)
        axes.set(xlim=(low, high), ylim=(0, 1.25 * top), xlabel=xlabel, ylabel="share of all values")
        axes.set_xticks(range(-40, high + 1, 8), [power_of_two(e) for e in range(-40, high + 1, 8)])
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        for fate, (start, stop) in ZONES.items():
            left, right = (low if start is None else start), (high if stop is None else stop)
            axes.axvspan(left, right, color=FATE_COLOURS[fate], alpha=0.10, linewidth=0)
            axes.text((left + right) / 2, top * 1.22, _WORDS[fate], ha="center", va="top", fontsize=8.5)
            if start is not None:
                axes.axvline(start, color=FAINT, linewidth=0.8)
        self._bars = {fate: _bars(fate) for fate in ZONES}
        self._labels = {fate: _label(left_of, top) for fate, left_of in _label_places(low, high).items()}
        # Zeros have no place on a logarithmic axis; they are told beside its name, where no bar can hide them.
        self._zeros = axes.text(0, -0.15, "", va="center", fontsize=8.5, transform=axes.transAxes, in_layout=False)
        for artist in (*self._bars.values(), *self._labels.values()):
            axes.add_artist(artist)
        super().__init__(figure, "", [*self._bars.values(), *self._labels.values(), self._zeros], caption)

    def show(self, histogram: ExponentHistogram, scale: float = 1.0) -> None:
        """Draw the histogram's values multiplied by a power-of-two scale, with the share of each fate over its zone."""
        total = max(histogram.total, 1)
        drawn: dict[int, float] = {}  # how high the bar of each binade already is
        shares = histogram.shares(scale)
        for fate, counts in histogram.fp16_binades(scale).items():
            boxes = []
            for exponent, count in counts.items():
                base = drawn.get(exponent, 0.0)
                drawn[exponent] = base + count / total
                boxes.append(bar_box(exponent, base, drawn[exponent]))
            self._bars[fate].set_verts(boxes)
            self._labels[fate].set_text(percent(getattr(shares, fate)))
        self._zeros.set_text(f"no bar: {percent(shares.zero)} are zero already" if shares.zero else "")
        self.text = describe(shares)


def percent(share: float) -> str:
    """A share as text that is never 0% or 100% by rounding alone."""
    if 0 < share < 0.001:
        return "under 0.1%"
    if 0.999 < share < 1:
        return "over 99.9%"
    return f"{share:.0%}" if share in (0, 1) else f"{share:.1%}"


def describe(shares: Shares) -> str:
    """The shares of each fate in a sentence or two."""
    words = (
        f"fp16 flushes {percent(shares.flushed)} of the values to zero, keeps {percent(shares.subnormal)} with fewer bits and "
        f"{percent(shares.normal)} in full, and turns {percent(shares.overflow)} into inf."
    )
    return words + (f" {percent(shares.zero)} were zero before." if shares.zero else "")


def bar_box(exponent: int, base: float, top: float) -> Sequence[tuple[float, float]]:
    """The corners of a binade's bar, with a little air on both sides."""
    return [(exponent + 0.06, base), (exponent + 0.06, top), (exponent + 0.94, top), (exponent + 0.94, base)]


def _bars(fate: str) -> PolyCollection:
    return PolyCollection([], facecolor=FATE_COLOURS[fate], edgecolor=INK, linewidth=0.4, hatch=FATE_HATCHES[fate])


def _label_places(low: int, high: int) -> dict[str, float]:
    return {
        fate: ((low if start is None else start) + (high if stop is None else stop)) / 2
        for fate, (start, stop) in ZONES.items()
    }


def _label(x: float, top: float) -> Text:
    return Text(x, top * 1.12, "", ha="center", va="top", fontsize=11, fontweight="bold", color=INK)
