"""Matrix products: arithmetic per second by size and dtype, around a multiple of 8, and under measured roofs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from amp_lessons.errors import LessonError
from amp_lessons.figures.picture import Picture
from amp_lessons.figures.style import FAINT, INK, RECIPE_COLOURS, RECIPE_INKS, RECIPE_LINES, new_figure
from amp_lessons.figures.units import digits, rate_text, spread
from amp_lessons.measure.ops import CopySpeed, OpPoint
from amp_lessons.measure.peaks import Peak

_LIKE = {"float32": "fp32", "tf32": "tf32", "float16": "fp16", "bfloat16": "bf16"}
_MARKERS = {"float32": "o", "tf32": "D", "float16": "v", "bfloat16": "^"}


def matmul_throughput(points: Sequence[OpPoint], peaks: Mapping[str, Peak | None] | None = None) -> Picture:
    """FLOP/s of square products by size, one line a dtype, both axes logarithmic.

    ``peaks`` holds the unit's peak by dtype, where it is known, and is drawn as a dotted line.
    """
    figure, axes = new_figure(7.6, 3.6)
    runs = _measured(points)
    ends = {}
    for dtype, run in runs.items():
        rates = [point.flop_per_s / 1e9 for point in run]
        axes.plot([point.n for point in run], rates, marker=_MARKERS[dtype], markersize=5, linewidth=1.8, **_look(dtype))
        ends[dtype] = (run[-1].n, rates[-1])
    sizes = sorted({point.n for point in points})
    axes.set(xscale="log", yscale="log", xlabel="n of an n × n by n × n product", ylabel="GFLOP/s")
    axes.set_xlim(sizes[0] / 1.15, sizes[-1] * (sizes[-1] / sizes[0]) ** 0.15)
    axes.set_xticks(sizes if len(sizes) <= 10 else sizes[::2])
    axes.set_xticks([], minor=True)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0f}")
    axes.yaxis.set_major_formatter(lambda value, _: digits(value))
    known = {dtype: peak for dtype, peak in (peaks or {}).items() if peak is not None and dtype in runs}
    for dtype, peak in known.items():
        axes.axhline(peak.flop_per_s / 1e9, color=_look(dtype)["color"], linestyle=":", linewidth=1.2)
        axes.text(sizes[0], peak.flop_per_s / 1e9, f"peak, {dtype}", fontsize=8, va="bottom", color=RECIPE_INKS[_LIKE[dtype]])
    _name_ends(axes, ends)
    best = "; ".join(f"{dtype}: {rate_text(max(p.flop_per_s for p in run))} at best" for dtype, run in runs.items())
    shares = "; ".join(
        f"{dtype} reaches {max(p.flop_per_s for p in runs[dtype]) / peak.flop_per_s:.0%} of its peak of "
        f"{rate_text(peak.flop_per_s)} ({peak.source})"
        for dtype, peak in known.items()
    )
    text = f"Arithmetic per second of square matrix products from n = {sizes[0]} to {sizes[-1]}. {best}."
    return Picture(
        figure,
        f"{text} {shares}." if shares else text,
        caption="Arithmetic per second of square matrix products by size, one line for each dtype, as measured on this machine.",
    )


def around_multiple(points: Sequence[OpPoint]) -> Picture:
    """FLOP/s of square products for neighbouring sizes; the multiples of 8 are filled, the others hollow."""
    figure, axes = new_figure(7.6, 3.2)
    runs = _measured(points)
    ends, said = {}, []
    for dtype, run in runs.items():
        look = _look(dtype)
        axes.plot([p.n for p in run], [p.flop_per_s / 1e9 for p in run], linewidth=1, **look)
        for point in run:
            filled = point.n % 8 == 0
            axes.plot(
                [point.n], [point.flop_per_s / 1e9], marker=_MARKERS[dtype], markersize=8 if filled else 5, color=look["color"],
                markerfacecolor=look["color"] if filled else "white",
            )  # fmt: skip
        ends[dtype] = (run[-1].n, run[-1].flop_per_s / 1e9)
        eights = [p.flop_per_s for p in run if p.n % 8 == 0]
        others = [p.flop_per_s for p in run if p.n % 8]
        if eights and others:
            gain = _median(eights) / _median(others)
            said.append(f"{dtype}: multiples of 8 do {digits(gain)} times the median of the others")
    sizes = sorted({point.n for point in points})
    for n in (n for n in sizes if n % 8 == 0):
        axes.axvline(n, color=FAINT, alpha=0.4, linewidth=0.8, zorder=0)
    axes.set(xlabel="n of an n × n by n × n product (filled: a multiple of 8)", ylabel="GFLOP/s")
    axes.set_xlim(sizes[0] - 0.5, sizes[-1] + 0.16 * (sizes[-1] - sizes[0]) + 0.5)
    axes.set_xticks([n for n in sizes if n % 4 == 0])
    axes.set_ylim(0, None)
    _name_ends(axes, ends)
    return Picture(
        figure,
        f"Arithmetic per second of square products from n = {sizes[0]} to {sizes[-1]}. {'; '.join(said)}.",
        caption="Arithmetic per second of square matrix products of neighbouring sizes, multiples of 8 filled, as measured here.",
    )


def roofline(
    matmuls: Sequence[OpPoint], adds: Sequence[OpPoint], copy: CopySpeed, peaks: Mapping[str, Peak | None] | None = None
) -> Picture:
    """Arithmetic per second against arithmetic per byte moved, under roofs that were measured.

    The slope is the copy's bytes per second, each flat roof a dtype's best product here. ``peaks`` adds dotted lines.
    """
    runs = _measured(matmuls)
    figure, axes = new_figure(7.6, 4.2)
    bandwidth = copy.bytes_per_s
    left = min(p.flop_per_byte for p in [*matmuls, *adds]) / 1.8
    right = max(p.flop_per_byte for p in matmuls) * 1.5
    best = {dtype: max(point.flop_per_s for point in run) for dtype, run in runs.items()}
    top = max(best.values())
    axes.plot([left, top / bandwidth], [bandwidth * left / 1e9, top / 1e9], color=INK, linewidth=2)
    axes.annotate(
        f"memory: {rate_text(bandwidth, 'B/s')} copied", (3 * left, 3 * bandwidth * left / 1e9), xytext=(8, -8),
        textcoords="offset points", va="top", fontsize=9,
    )  # fmt: skip
    ends = {}
    for dtype, rate in best.items():
        axes.plot([rate / bandwidth, right], [rate / 1e9] * 2, linewidth=1.4, **_look(dtype))
        ends[dtype] = (right, rate / 1e9)
        _points(axes, runs[dtype], dtype, filled=True)
    for dtype, run in _by_dtype(adds).items():
        _points(axes, run, dtype, filled=False)
    for dtype, peak in (peaks or {}).items():
        if peak is not None:
            axes.axhline(peak.flop_per_s / 1e9, color=_look(dtype)["color"], linestyle=":", linewidth=1.2)
    for n in {min(p.n for p in matmuls), max(p.n for p in matmuls)}:
        point = max((p for run in runs.values() for p in run if p.n == n), key=lambda p: p.flop_per_s, default=None)
        if point is not None:
            axes.annotate(
                f"n = {n}", (point.flop_per_byte, point.flop_per_s / 1e9), xytext=(0, 9), textcoords="offset points",
                ha="center", fontsize=8,
            )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlim=(left, right * (right / left) ** 0.16))
    axes.set_ylim(0.4 * min(axes.dataLim.y0, bandwidth * left / 1e9), None)
    axes.set_xlabel("arithmetic per byte moved (FLOP/byte); hollow: a + b, filled: matrix products")
    axes.set_ylabel("GFLOP/s")
    axes.xaxis.set_major_formatter(lambda value, _: digits(value))
    axes.yaxis.set_major_formatter(lambda value, _: digits(value))
    _name_ends(axes, ends)
    measured = [p for p in [*matmuls, *adds] if p.time is not None]
    above = sum(p.flop_per_s > 1.1 * bandwidth * p.flop_per_byte for p in measured)
    text = f"Memory moves {rate_text(bandwidth, 'B/s')}. Best product: " + "; ".join(
        f"{dtype} {rate_text(rate)}, which needs {digits(rate / bandwidth)} operations per byte" for dtype, rate in best.items()
    )
    if above:
        text += f". {above} {'point lies' if above == 1 else 'points lie'} above the slope: such numbers came from a cache, which is faster than memory"
    return Picture(
        figure,
        f"{text}.",
        caption="Roofline: arithmetic per second of additions and matrix products against arithmetic per byte moved, under a "
        "slope from a measured copy and flat roofs from the best measured product of each dtype.",
    )


def _by_dtype(points: Sequence[OpPoint]) -> dict[str, list[OpPoint]]:
    runs: dict[str, list[OpPoint]] = {}
    for point in sorted(points, key=lambda p: p.n):
        if point.time is not None:
            runs.setdefault(point.dtype, []).append(point)
    return runs


def _measured(points: Sequence[OpPoint]) -> dict[str, list[OpPoint]]:
    runs = _by_dtype(points)
    if not runs:
        raise LessonError("None of these points was measured; give the measurement more time with budget_s.")
    return runs


def _look(dtype: str) -> dict:
    return {"color": RECIPE_COLOURS[_LIKE[dtype]], "linestyle": RECIPE_LINES[_LIKE[dtype]]}


def _points(axes: Axes, run: Sequence[OpPoint], dtype: str, filled: bool) -> None:
    colour = _look(dtype)["color"]
    axes.plot(
        [p.flop_per_byte for p in run], [p.flop_per_s / 1e9 for p in run], _MARKERS[dtype], color=colour, markersize=6,
        markerfacecolor=colour if filled else "none",
    )  # fmt: skip


def _name_ends(axes: Axes, ends: Mapping[str, tuple[float, float]]) -> None:
    """Each dtype's name right of its line's end, apart from the others."""
    low, high = axes.get_ylim()
    logarithmic = axes.get_yscale() == "log"
    place = math.log if logarithmic else float
    heights = spread([place(y) for _, y in ends.values()], 0.065 * (place(high) - place(low)))
    for (name, (x, _)), height in zip(ends.items(), heights):
        axes.annotate(
            name, (x, math.exp(height) if logarithmic else height), xytext=(8, 0), textcoords="offset points", va="center",
            color=RECIPE_INKS[_LIKE[name]], fontweight="bold", fontsize=9, annotation_clip=False,
        )  # fmt: skip


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
