"""fp16's number line: how many numbers there are in each binade, and where the line begins and ends."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.collections import PolyCollection

from amp_lessons.errors import LessonError
from amp_lessons.figures.fates import ZONES, bar_box
from amp_lessons.figures.picture import Picture
from amp_lessons.figures.style import FAINT, FATE_COLOURS, FATE_HATCHES, INK, new_figure, power_of_two

_LOW, _HIGH = -35, 25
_TICKS = (-24, -14, -8, 0, 8, 16)
_FEWEST = 0.7  # where the logarithmic axis starts: a bar for one number must have a height


def number_line(counts: Mapping[int, int]) -> Picture:
    """Bars of how many positive fp16 numbers each binade holds, over the zones that become zero or inf.

    ``counts`` maps an exponent e, from -24 to 15, to how many numbers lie in [2^e, 2^(e+1)). Raises LessonError for another
    exponent or an empty binade.
    """
    if sorted(counts) != list(range(-24, 16)) or min(counts.values()) < 1:
        raise LessonError("The number line needs a count of 1 or more for each exponent from -24 to 15.")
    figure, axes = new_figure(7.6, 3.4)
    axes.set(xlim=(_LOW, _HIGH), xlabel="magnitude", ylabel="fp16 numbers in the binade")
    axes.set_yscale("log", base=2)
    axes.set_ylim(_FEWEST, 2**15)
    axes.set_yticks([1, 4, 16, 64, 256, 1024], ["1", "4", "16", "64", "256", "1,024"])
    axes.set_yticks([], minor=True)
    axes.set_xticks(_TICKS, [power_of_two(e) for e in _TICKS])
    for fate, (start, stop) in ZONES.items():
        left, right = (_LOW if start is None else start), (_HIGH if stop is None else stop)
        axes.axvspan(left, right, color=FATE_COLOURS[fate], alpha=0.10, linewidth=0)
        boxes = [
            bar_box(exponent, _FEWEST, count) for exponent, count in counts.items() if left <= exponent < right
        ]  # binade -25 is empty: the border at 2^-25 lies half way to the first number
        axes.add_collection(
            PolyCollection(boxes, facecolor=FATE_COLOURS[fate], edgecolor=INK, linewidth=0.4, hatch=FATE_HATCHES[fate])
        )
        axes.text((left + right) / 2, 2**14.6, fate, ha="center", va="top", fontsize=8.5, fontweight="bold")
    for x, words, side in (
        (-25, f"up to {power_of_two(-25)}\nbecomes 0 ", "right"),
        (-14, f" {power_of_two(-14)}: the smallest\n with all 11 bits", "left"),
        (16, f" {65520:,} and up\n becomes inf", "left"),
    ):
        axes.axvline(x, color=FAINT, linewidth=0.8)
        axes.text(x, 2**13.2, words, ha=side, va="top", fontsize=8.5)
    axes.annotate(
        f"{power_of_two(-24)}, the\nsmallest number", (-23.6, 1.1), xytext=(-34.5, 2**4), fontsize=8.5,
        arrowprops={"arrowstyle": "->", "color": INK},
    )  # fmt: skip
    return Picture(figure, _describe(counts))


def _describe(counts: Mapping[int, int]) -> str:
    return (
        "fp16's positive numbers by binade. Values up to 2^-25 become 0. The subnormal binades hold "
        f"{counts[-24]} number from 2^-24 and twice as many in each next one, up to {counts[-15]} from 2^-15. The normal "
        f"binades, from 2^-14 to 2^15, hold {counts[-14]:,} each. The largest number is 65,504; from 65,520 up, values "
        "become inf."
    )
