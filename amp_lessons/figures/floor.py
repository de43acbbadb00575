"""The lowest stretch of fp16's number line, magnified: one float32 value and the fp16 number that stores it."""

from __future__ import annotations

from matplotlib.text import Text

from amp_lessons.figures.picture import Picture
from amp_lessons.figures.style import FAINT, FATE_COLOURS, INK, new_figure, power_of_two

_NUMBERS = 5  # 0 and four more; beyond them the line goes on in the same even spacing
_ABOVE, _BELOW = 1.0, 0.0  # heights of the float32 and the fp16 line


class FloorLine(Picture):
    """Two parallel lines, float32 values above and fp16's first numbers below, and an arrow from a value to its number.

    Positions are in units of 2^-24, fp16's smallest number. Dashed marks lie half way between numbers, where the rounding
    turns.
    """

    def __init__(self) -> None:
        figure, axes = new_figure(7.6, 2.3)
        axes.set(xlim=(-0.45, _NUMBERS - 0.3), ylim=(-1.0, 1.75))
        axes.set_yticks([_BELOW, _ABOVE], ["stored\nin fp16", "float32\nvalue"])
        axes.tick_params(axis="y", length=0)
        axes.set_xticks([])
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.axvspan(0, 0.5, color=FATE_COLOURS["flushed"], alpha=0.15, linewidth=0)
        axes.text(0.25, -0.95, "flushed to zero", ha="center", va="bottom", fontsize=8.5)
        axes.plot([0, _NUMBERS - 0.4], [_ABOVE, _ABOVE], color=INK, linewidth=1)
        axes.plot(range(_NUMBERS), [_BELOW] * _NUMBERS, "o", color=FAINT, markersize=6)
        for number in range(_NUMBERS):
            axes.text(number, -0.3, _unit(number), ha="center", va="top")
        for number in range(_NUMBERS - 1):
            axes.plot([number + 0.5] * 2, [0.15, 1.15], color=FAINT, linewidth=0.8, linestyle=(0, (3, 3)))
        (self._arrow,) = axes.plot([], [], color=INK, linewidth=1.6)
        (self._value,) = axes.plot([], [], "v", color=INK, markersize=10)
        (self._stored,) = axes.plot([], [], "o", markersize=11, markeredgecolor=INK)
        self._label = Text(0, _ABOVE + 0.28, "", ha="center", va="bottom", fontsize=12, color=INK)
        axes.add_artist(self._label)
        super().__init__(figure, "", [self._arrow, self._stored, self._value, self._label])

    def show(self, value: float, stored: float, fate: str) -> None:
        """Point from ``value`` to ``stored``, both in units of 2^-24; ``fate`` chooses the colour of the stored number."""
        self._arrow.set_data([value, stored], [_ABOVE, _BELOW])
        self._value.set_data([value], [_ABOVE + 0.06])
        self._stored.set_data([stored], [_BELOW])
        self._stored.set_markerfacecolor(FATE_COLOURS[fate])
        self._label.set_text(f"{value:g} · {power_of_two(-24)}")
        self._label.set_x(value)


def _unit(number: int) -> str:
    return "0" if number == 0 else power_of_two(-24) if number == 1 else f"{number} · {power_of_two(-24)}"
