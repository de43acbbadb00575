"""Figures of lesson 6: they hold the measured numbers, name every line, and say the same in words."""

import math

import pytest

from amp_lessons.errors import LessonError
from amp_lessons.figures.memory_split import PARTS, memory_bars
from amp_lessons.figures.speedups import SpeedupCurves, speedup_curves
from amp_lessons.figures.step_times import step_time_points
from amp_lessons.figures.throughput import around_multiple, matmul_throughput, roofline
from amp_lessons.figures.units import bytes_text, digits, rate_text, seconds_text, spread
from amp_lessons.measure.clock import Timing
from amp_lessons.measure.memory import MemorySplit
from amp_lessons.measure.ops import CopySpeed, OpPoint
from amp_lessons.measure.peaks import Peak
from amp_lessons.measure.steps import SpeedPoint, SpeedTable


def timing(seconds: float) -> Timing:
    return Timing(seconds, 0.9 * seconds, 1.2 * seconds, 5)


def point(setting: str, seconds: float | None, width: int = 64, batch: int = 16) -> SpeedPoint:
    time, why_not = (timing(seconds), None) if seconds else (None, "too long")
    return SpeedPoint(setting, "mlp", width, batch, 1000, time, why_not)


def table() -> SpeedTable:
    """AMP gains with the batch and with the width; BF16 has a gap at the largest size."""
    points = []
    for width in (64, 128):
        for batch in (16, 32, 64):
            points += [point("fp32", 1.0, width, batch), point("amp", 64 * 16 / (width * batch), width, batch)]
            points.append(point("bf16", None if (width, batch) == (128, 64) else 2.0, width, batch))
    return SpeedTable("mlp", "made up", tuple(points))


def op(dtype: str, n: int, gflops: float | None, kind: str = "matmul") -> OpPoint:
    size = 4 if dtype == "float32" else 2
    flop = 2 * n**3 if kind == "matmul" else n * n
    time = timing(flop / (gflops * 1e9)) if gflops else None
    return OpPoint(kind, dtype, n, n, n if kind == "matmul" else 1, flop, 3 * n * n * size, time, None if time else "too long")


def texts(axes) -> str:
    return " | ".join(text.get_text() for text in axes.texts)


def test_quantities_as_text():
    assert (seconds_text(0.00489), seconds_text(3.1e-4), seconds_text(1.234)) == ("4.89 ms", "310 µs", "1.23 s")
    assert (bytes_text(393216), bytes_text(1052672), bytes_text(0)) == ("393 kB", "1.05 MB", "0 B")
    assert (rate_text(1.52e11), rate_text(13.5e9, "B/s")) == ("152 GFLOP/s", "13.5 GB/s")
    assert (digits(1234), digits(0.04666), digits(2), digits(100)) == ("1234", "0.0467", "2", "100")


def test_labels_are_spread_and_keep_their_order():
    assert spread([1.0, 1.0, 5.0], 0.5) == [1.0, 1.5, 5.0]
    moved = spread([3.0, 1.0, 2.9], 1.0)
    assert sorted(moved) == [1.0, 2.9, 3.9] and moved[1] == 1.0 and moved[0] == 3.9


def test_step_times_stand_where_they_were_measured():
    picture = step_time_points([point("fp32", 4e-3), point("amp", 2e-3), point("bf16", None)])
    (axes,) = picture.figure.axes
    medians = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "o"]
    spreads = [tuple(line.get_xdata()) for line in axes.lines if line.get_marker() != "o"]
    assert medians == [4.0, 2.0]
    assert spreads[1] == pytest.approx((1.8, 2.4))
    assert axes.get_xlim()[0] == 0  # an axis that begins elsewhere would overstate a difference
    assert "FP32's time ÷ this = 2" in texts(axes) and "not measured: too long" in texts(axes)
    assert "AMP: fp16 autocast + GradScaler: 2 ms (quartiles 1.8 ms to 2.4 ms), FP32's time divided by it is 2." in picture.text
    assert not any(character.isdigit() for character in repr(picture).replace("FP32", ""))  # compared between machines
    with pytest.raises(LessonError, match="no FP32 time"):
        step_time_points([point("amp", 1.0)])


def test_curves_go_through_the_measured_ratios():
    picture = SpeedupCurves(table())
    picture.show(width=128, batch=16)
    over_batch, over_width = picture._lines
    assert list(over_batch["amp"].get_xdata()) == [4, 5, 6]  # log2 of the batch
    assert list(over_batch["amp"].get_ydata()) == [1, 2, 3]  # log2 of 2, 4 and 8 times as fast
    assert list(over_width["amp"].get_ydata()) == [0, 1]
    assert math.isnan(over_batch["bf16"].get_ydata()[-1])  # not measured: a gap, not a guess
    assert list(picture._rings[0].get_xdata()) == [4, 4] and sorted(picture._rings[0].get_ydata()) == [-1, 1]
    assert [title.get_text() for title in picture._titles] == ["at width 128", "at batch 16"]
    assert {name for name, text in picture._texts[0].items() if text.get_text() == name} == {"amp", "bf16"}


def test_curves_say_all_ratios_and_need_something_to_compare():
    picture = speedup_curves(table())
    assert "Width 128, batch 64, amp: 8×." in picture.text and "Width 128, batch 64, bf16" not in picture.text
    assert picture.png().startswith(b"\x89PNG") and "8×" not in repr(picture)
    with pytest.raises(LessonError, match="at least one other"):
        SpeedupCurves(SpeedTable("mlp", "made up", (point("fp32", 1.0),)))


def test_memory_bars_are_stacked_to_the_sum():
    splits = [
        MemorySplit("fp32", "mlp", 8, 4, 100, 0, 100, 200, 600, 50),
        MemorySplit("amp", "mlp", 8, 4, 100, 50, 100, 200, 300, 50, peak_bytes=700),
    ]
    picture = memory_bars(splits)
    (axes,) = picture.figure.axes
    rows = {0: [], 1: []}
    for patch in axes.patches:
        rows[round(patch.get_y() + patch.get_height() / 2)].append((patch.get_x(), patch.get_width()))
    for split, row in zip(splits, rows.values()):
        assert sum(width for _, width in row) == pytest.approx(split.sum_bytes / 1e6)
        ends = [x + width for x, width in sorted(row)]
        assert [x for x, _ in sorted(row)][1:] == pytest.approx(ends[:-1])  # end to end, without overlap
    assert len(rows[0]) == 4 and len(rows[1]) == 5  # no copies without autocast
    legend = [text.get_text() for text in picture.figure.legends[0].get_texts()]
    assert legend == [name for name, *_ in PARTS]
    assert "together 750 B, 0.75 of FP32's; the allocator's peak was 700 B." in picture.text
    with pytest.raises(LessonError, match="no memory split"):
        memory_bars([])


def test_throughput_draws_each_dtype_and_only_known_peaks():
    points = [op("float32", 16, 10), op("float32", 32, 50), op("float16", 16, 5), op("float16", 32, None)]
    picture = matmul_throughput(points, {"float32": Peak(100e9, "a data sheet"), "float16": None})
    (axes,) = picture.figure.axes
    assert [list(line.get_ydata()) for line in axes.lines[:2]] == [pytest.approx([10, 50]), pytest.approx([5])]
    assert "peak, float32" in texts(axes) and "peak, float16" not in texts(axes)
    assert "float32 reaches 50% of its peak of 100 GFLOP/s (a data sheet)" in picture.text
    assert "peak" not in matmul_throughput(points).text
    with pytest.raises(LessonError, match="None of these points was measured"):
        matmul_throughput([op("float16", 16, None)])


def test_multiples_of_eight_are_filled_and_compared():
    points = [op("float16", n, 40 if n % 8 == 0 else 20) for n in range(120, 137)]
    picture = around_multiple(points)
    (axes,) = picture.figure.axes
    filled = [line.get_xdata()[0] for line in axes.lines if len(line.get_xdata()) == 1 and line.get_markerfacecolor() != "white"]
    assert filled == [120, 128, 136]
    assert "multiples of 8 do 2 times the median of the others" in picture.text


def test_roofs_are_the_measured_copy_and_the_best_product():
    matmuls = [op("float32", 32, 20), op("float32", 512, 100), op("float16", 512, 300)]
    picture = roofline(matmuls, [op("float32", 64, 1.0, "add")], CopySpeed(20 * 10**9, timing(1.0)))
    (axes,) = picture.figure.axes
    slope = axes.lines[0].get_xydata()
    assert slope[:, 1] == pytest.approx(20 * slope[:, 0])  # 20 GB/s times operations per byte
    assert slope[1][1] == pytest.approx(300)  # up to the highest roof
    flat = [line.get_ydata()[0] for line in axes.lines[1:] if len(line.get_xdata()) == 2 and line.get_marker() == "None"]
    assert flat == pytest.approx([100, 300])
    assert "float32 100 GFLOP/s, which needs 5 operations per byte" in picture.text
    assert "float16 300 GFLOP/s, which needs 15" in picture.text
    assert "above the slope" not in picture.text


def test_points_above_the_slope_are_explained():
    # n = 32 in float32 has 32/6 operations per byte: memory alone would allow 5.3 GFLOP/s.
    picture = roofline([op("float32", 32, 20)], [], CopySpeed(10**9, timing(1.0)))
    assert "1 point lies above the slope: such numbers came from a cache" in picture.text
