"""Formats side by side: from which to which number each reaches, and how many significant bits it has there."""

from __future__ import annotations

import math
from collections.abc import Sequence

from amp_lessons.errors import LessonError
from amp_lessons.figures.picture import Picture
from amp_lessons.figures.style import FATE_COLOURS, FATE_HATCHES, INK, new_figure, power_of_two
from amp_lessons.formats import FloatFormat

_TICKS = (-128, -64, 0, 64, 128)
_HEIGHT = 0.42


def format_ranges(formats: Sequence[FloatFormat]) -> Picture:
    """Range on the left, on a log2 axis, and significant bits on the right, one row a format, the first at the top.

    The normal numbers are a plain bar and the subnormal ones a hatched bar. Raises LessonError when there is no format.
    """
    if not formats:
        raise LessonError("There is nothing to draw; give at least one format.")
    figure, (range_axes, bits_axes) = new_figure(7.6, 0.9 + 0.55 * len(formats), ncols=2, width_ratios=[3.2, 1], sharey=True)
    for axes in (range_axes, bits_axes):
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
    range_axes.set(xlim=(-188, 188), ylim=(len(formats) - 0.45, -0.75), xlabel="positive numbers")
    range_axes.set_xticks(_TICKS, [power_of_two(e) for e in _TICKS])
    range_axes.set_yticks(range(len(formats)), [f"{format.name}\n{format.bits} bits" for format in formats])
    bits_axes.set(xlim=(0, 30), xlabel="significant bits")
    bits_axes.set_xticks([0, 8, 16, 24])
    for row, format in enumerate(formats):
        low, normal, high = (math.log2(x) for x in (format.smallest_subnormal, format.smallest_normal, format.max))
        for fate, start, stop in (("subnormal", low, normal), ("normal", normal, high)):
            range_axes.barh(
                row, stop - start, left=start, height=_HEIGHT, color=FATE_COLOURS[fate], edgecolor=INK, linewidth=0.5,
                hatch=FATE_HATCHES[fate],
            )  # fmt: skip
        range_axes.text(low - 2, row, power_of_two(low), ha="right", va="center", fontsize=9)
        range_axes.text(high + 2, row, _short(format.max), ha="left", va="center", fontsize=9)
        significant = format.mantissa_bits + 1  # the leading 1 is not stored
        bits_axes.barh(row, significant, height=_HEIGHT, color=FATE_COLOURS["normal"], edgecolor=INK, linewidth=0.5)
        bits_axes.text(significant + 0.6, row, f"{significant}", ha="left", va="center", fontsize=9)
    middle = math.log2(formats[0].smallest_normal) / 2 + math.log2(formats[0].max) / 2
    range_axes.text(middle, -0.3, "normal: full precision", ha="center", va="bottom", fontsize=8.5)
    range_axes.text(-186, -0.3, "subnormal: fewer bits", ha="left", va="bottom", fontsize=8.5)
    return Picture(figure, " ".join(_describe(format) for format in formats))


def _describe(format: FloatFormat) -> str:
    low, normal = (math.log2(x) for x in (format.smallest_subnormal, format.smallest_normal))
    return (
        f"{format.name} ({format.bits} bits) has {format.mantissa_bits + 1} significant bits from 2^{normal:g} up to "
        f"{_short(format.max)}, and fewer from there down to 2^{low:g}."
    )


def _short(largest: float) -> str:
    return f"{largest:,.0f}" if largest < 1e6 else f"{largest:.2e}"
