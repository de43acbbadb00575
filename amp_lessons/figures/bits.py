"""One stored number: its bits in three fields, and its place between its neighbours."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.collections import PolyCollection
from matplotlib.text import Text

from amp_lessons.figures.picture import Picture
from amp_lessons.figures.style import FAINT, GROUND, INK, new_figure, power_of_two
from amp_lessons.formats import Bits, FloatFormat

FIELDS = ("sign", "exponent", "mantissa")
_COLOURS = {"sign": "#cc79a7", "exponent": "#e69f00", "mantissa": "#56b4e9"}
_MOST_BITS = 32
_GAP = 0.5  # between two fields, in boxes
_BOXES = (5.3, 6.3)  # the row of boxes: its lower and upper edge
_LINE = 2.0  # height of the number line
_REACH = 1.3  # how far from the stored number a mark may stand, in spacings


class BitPicture(Picture):
    """Boxes of bits above a number line of three numbers: the stored one and its neighbours, with the wanted value over it.

    The line is measured in spacings of the stored number. Dashed marks lie half way between numbers, where the rounding
    turns; an arrow points from the wanted value to the stored number.
    """

    def __init__(self) -> None:
        figure, axes = new_figure(7.6, 3.5)
        width = _MOST_BITS + 2 * _GAP
        axes.set(xlim=(-0.3, width + 0.3), ylim=(-0.7, 7.4))
        axes.axis("off")
        self._centre, self._unit = width / 2, width / 2 / (_REACH + 0.1)
        axes.plot([self._x(-_REACH), self._x(_REACH)], [_LINE, _LINE], color=INK, linewidth=1)
        self._boxes = {field: PolyCollection([], facecolor=_COLOURS[field], edgecolor=INK, linewidth=0.8) for field in FIELDS}
        self._names = {field: _text(_BOXES[1] + 0.2, "bottom") for field in FIELDS}
        self._meanings = [_text(_BOXES[0] - 0.2, "top") for _ in FIELDS]
        # The digits as markers of two lines: 32 texts would take half of the time of a picture.
        self._digits = {
            digit: axes.plot([], [], color=INK, linestyle="", marker=f"${digit}$", markersize=9, markeredgewidth=0)[0]
            for digit in "01"
        }
        (self._turns,) = axes.plot([], [], color=FAINT, linewidth=0.9, linestyle=(0, (3, 3)))
        (self._numbers,) = axes.plot([], [], "o", color=INK, markerfacecolor=GROUND, markersize=8)
        (self._arrow,) = axes.plot([], [], color=INK, linewidth=1.4)
        (self._stored,) = axes.plot([], [], "o", color="#0072b2", markersize=10)
        (self._wanted,) = axes.plot([], [], "v", color="#d55e00", markersize=10)
        (self._bracket,) = axes.plot([], [], "|-", color=INK, linewidth=0.9, markersize=9)
        self._labels = [_text(_LINE - 0.4, "top") for _ in range(3)]
        self._labels[1].set_fontweight("bold")
        self._wish = _text(_LINE + 1.45, "bottom")
        self._spacing = _text(0.05, "top")
        words = [*self._names.values(), *self._meanings, *self._labels, self._wish, self._spacing]
        for artist in (*self._boxes.values(), *words):
            axes.add_artist(artist)
        marks = [*self._digits.values(), self._turns, self._numbers, self._arrow, self._stored, self._wanted, self._bracket]
        super().__init__(figure, "", [*self._boxes.values(), *marks, *words])

    def show(
        self, format: FloatFormat, wanted: float, stored: float, neighbours: tuple[float, float], meanings: Sequence[str]
    ) -> None:
        """Draw how ``format`` stores ``wanted``, given the ``stored`` number and those below and above it.

        ``meanings`` are what the three fields stand for, written under them.
        """
        self._show_fields(format.encode(stored), meanings)
        numbers = [neighbours[0], stored, neighbours[1]]
        places = [_place(number, stored, format) for number in numbers]
        xs = [self._x(place) for place in places]
        self._show_numbers(numbers, places, xs)
        self._show_wish(format, wanted, stored)
        self._show_spacing(format, stored, numbers, xs)

    def _show_fields(self, bits: Bits, meanings: Sequence[str]) -> None:
        bottom, top = _BOXES
        left = 0.0
        places: dict[str, list[float]] = {"0": [], "1": []}
        for field, label, meaning in zip(FIELDS, self._meanings, meanings, strict=True):
            code = getattr(bits, field)
            edges = [left + place for place in range(len(code))]
            self._boxes[field].set_verts([[(x, bottom), (x, top), (x + 1, top), (x + 1, bottom)] for x in edges])
            for x, digit in zip(edges, code, strict=True):
                places[digit].append(x + 0.5)
            middle = left + len(code) / 2
            self._names[field].set_text(field if field == "sign" else f"{field} ({len(code)})")
            self._names[field].set_x(middle)
            label.set_text(meaning)
            label.set_x(middle)
            left += len(code) + _GAP
        for digit, xs in places.items():
            self._digits[digit].set_data(xs, [(bottom + top) / 2] * len(xs))

    def _show_numbers(self, numbers: list[float], places: list[float], xs: list[float]) -> None:
        shown = [x for x, number in zip(xs, numbers, strict=True) if not math.isnan(number)]
        self._numbers.set_data(shown, [_LINE] * len(shown))
        self._stored.set_data([xs[1]], [_LINE])
        line: list[tuple[float, float]] = []
        for side in (0, 2):
            if not math.isnan(numbers[side]):
                turn = self._x((places[1] + places[side]) / 2)
                line += [(turn, _LINE - 0.3), (turn, _LINE + 0.9), (math.nan, math.nan)]
        self._turns.set_data([x for x, _ in line], [y for _, y in line])
        for label, x, number, word in zip(self._labels, xs, numbers, ("below", "stored", "above"), strict=True):
            label.set_x(x)
            label.set_text("no number" if math.isnan(number) else f"{short(number)}\n{word}")

    def _show_wish(self, format: FloatFormat, wanted: float, stored: float) -> None:
        if math.isinf(stored):  # the largest number stands one spacing before inf
            place = math.copysign(1, stored) * ((abs(wanted) - format.max) / format.spacing(format.max) - 1)
        else:
            place = (wanted - stored) / format.spacing(stored)
        inside = min(max(place, -_REACH), _REACH)
        self._wanted.set_data([self._x(inside)], [_LINE + 1.15])
        self._arrow.set_data([self._x(inside), self._x(0)], [_LINE + 0.95, _LINE])
        self._wish.set_x(self._x(min(max(place, -1.1), 1.1)))
        off = "" if inside == place else ", further left" if place < 0 else ", further right"
        self._wish.set_text(f"wanted {short(wanted)}{off}")

    def _show_spacing(self, format: FloatFormat, stored: float, numbers: list[float], xs: list[float]) -> None:
        if math.isinf(stored):
            self._bracket.set_data([], [])
            self._spacing.set_text("")
            return
        outer = 2 if stored >= 0 else 0
        side = outer if math.isfinite(numbers[outer]) else 2 - outer  # at the end both sides are alike
        self._bracket.set_data([xs[1], xs[side]], [0.3, 0.3])
        self._spacing.set_x((xs[1] + xs[side]) / 2)
        self._spacing.set_text(f"spacing {power_of_two(math.log2(format.spacing(stored)))}")

    def _x(self, place: float) -> float:
        return self._centre + place * self._unit


def short(number: float) -> str:
    """A number in nine significant digits, enough to tell float32 neighbours apart."""
    return f"{number:.9g}"


def _place(number: float, stored: float, format: FloatFormat) -> float:
    """Where a number stands, in spacings of the stored one; inf, and what is no number, stand one spacing away."""
    if number == stored:
        return 0.0
    if math.isinf(stored):
        return math.copysign(1.0, -stored if math.isfinite(number) else stored)
    if not math.isfinite(number):
        return math.copysign(1.0, stored)
    return (number - stored) / format.spacing(stored)


def _text(y: float, va: str, size: float = 9.5) -> Text:
    return Text(0, y, "", ha="center", va=va, fontsize=size, color=INK)
