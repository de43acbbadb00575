"""Workloads, step times, matrix products and peaks: counted by hand, kept to their budgets, honest about gaps."""

import json
import time

import pytest
import torch

from amp_lessons.devices import one_thread
from amp_lessons.errors import LessonError
from amp_lessons.measure import ops, steps
from amp_lessons.measure.clock import Timing
from amp_lessons.measure.peaks import peak_of
from amp_lessons.measure.plain import from_plain, to_plain
from amp_lessons.measure.settings import SETTINGS, settings_for
from amp_lessons.measure.steps import SpeedPoint, SpeedTable, TrainingStep, speed_table, step_times
from amp_lessons.measure.workloads import mlp, transformer

CPU = torch.device("cpu")


def test_flop_of_an_mlp_step_by_hand():
    # A product of [b, w] by [w, w] takes 2 b w^2. Forward one for each layer; backward two, but the first layer's only one.
    assert mlp(width=8, batch=4, layers=3).step_flop == (3 + 3 + 2) * 2 * 4 * 8 * 8
    assert ops.matmul_flop(2, 3, 4) == 2 * 2 * 3 * 4


def test_mlp_of_the_bench_has_about_a_million_parameters():
    model = mlp(512, 256).make_model()
    assert sum(p.numel() for p in model.parameters()) == 4 * (512 * 512 + 512)


@pytest.mark.parametrize("make", [mlp, transformer])
@pytest.mark.parametrize("setting", settings_for(CPU, without_scaler=True), ids=lambda s: s.name)
def test_steps_train(make, setting):
    step = TrainingStep(make(32, 4), setting, CPU)
    with setting.around(), one_thread(CPU):
        losses = [step().item() for _ in range(30)]
    assert losses[-1] < 0.95 * losses[0]


def test_steps_leave_the_global_random_state_alone():
    before = torch.get_rng_state()
    TrainingStep(mlp(8, 4), SETTINGS[0], CPU)
    assert mlp(8, 4, 2).step_flop and torch.equal(torch.get_rng_state(), before)


def test_step_times_give_a_point_for_each_setting():
    points = step_times(mlp(32, 16), runs=3, budget_s=5)
    assert [p.setting for p in points] == ["fp32", "amp", "bf16"]
    for point in points:
        assert point.time.low_s <= point.time.median_s <= point.time.high_s and point.why_not is None
        assert (point.workload, point.width, point.batch) == ("mlp", 32, 16)


def test_a_step_that_would_take_too_long_is_not_begun(monkeypatch):
    # As on a CPU without instructions for fp16, only more so.
    monkeypatch.setattr(steps, "_small_rate", lambda setting, device: 1.0 if setting.name == "amp" else 1e9)
    built = []
    real = steps.TrainingStep
    monkeypatch.setattr(steps, "TrainingStep", lambda w, s, d: built.append(s.name) or real(w, s, d))
    points = {p.setting: p for p in step_times(mlp(32, 16), runs=3, budget_s=1)}
    assert built == ["fp32", "bf16"]
    assert points["amp"].time is None and "too long for the time set" in points["amp"].why_not
    assert points["fp32"].time and points["bf16"].time


def test_a_table_keeps_to_its_budget_and_leaves_out_the_largest():
    start = time.perf_counter()
    table = speed_table(mlp, (16, 2048), (8, 4096), budget_s=0.5)
    assert time.perf_counter() - start < 4  # at most one step begun in time; 2048 wide they take many seconds
    assert len(table.points) == 4 * 3
    assert table.at("fp32", 16, 8).time is not None
    large = table.at("fp32", 2048, 4096)
    assert large.time is None and large.why_not
    assert table.ratio("amp", 2048, 4096) is None


def test_no_memory_is_a_gap_with_its_reason(monkeypatch):
    def no_memory(*_):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(steps, "TrainingStep", no_memory)
    assert {p.why_not for p in step_times(mlp(8, 4), budget_s=1)} == {"there was not enough memory"}


def test_ratio_is_fp32_over_the_setting_and_a_table_survives_json():
    def point(name: str, seconds: float) -> SpeedPoint:
        return SpeedPoint(name, "mlp", 64, 16, 100, Timing(seconds, seconds, seconds, 3))

    table = SpeedTable("mlp", "made up", (point("fp32", 3.0), point("amp", 2.0), SpeedPoint("bf16", "mlp", 64, 16, 100, None, "no")))
    assert table.ratio("amp", 64, 16) == 1.5 and table.ratio("bf16", 64, 16) is None
    assert from_plain(SpeedTable, json.loads(json.dumps(to_plain(table), allow_nan=False))) == table
    with pytest.raises(LessonError, match="no point for 'amp' at width 65"):
        table.at("amp", 65, 16)
    with pytest.raises(TypeError, match="has no colour"):
        from_plain(SpeedTable, {**to_plain(table), "colour": "red"})


@pytest.mark.parametrize("wrong", [{"width": 0}, {"batch": 0}, {"layers": 0}])
def test_sizes_that_cannot_be_are_refused(wrong):
    with pytest.raises(LessonError, match="from 1 up"):
        mlp(**{"width": 8, "batch": 4, **wrong})
    with pytest.raises(LessonError, match="at least one width"):
        speed_table(mlp, (), (1,))


def test_matmul_points_carry_work_and_traffic():
    points = {(p.dtype, p.n): p for p in ops.matmul_speeds((32, 48), budget_s=2)}
    assert set(points) == {(d, n) for d in ("float32", "float16", "bfloat16") for n in (32, 48)}
    single, half = points["float32", 48], points["float16", 48]
    assert single.flop == half.flop == 2 * 48**3
    assert single.bytes == 2 * half.bytes == 3 * 48 * 48 * 4
    # Arithmetic intensity of a square product: n/6 in four bytes, n/3 in two.
    assert single.flop_per_byte == 48 / 6 and half.flop_per_byte == 48 / 3
    assert single.flop_per_s == single.flop / single.time.median_s


def test_an_addition_does_one_operation_for_three_numbers():
    (point,) = ops.add_speeds((64,), ("float32",), budget_s=1)
    assert point.flop_per_byte == pytest.approx(1 / 12)


def test_a_copy_counts_bytes_read_and_bytes_written():
    copy = ops.copy_speed("cpu", mebibytes=1)
    assert copy.bytes == 2 * 2**20 and copy.bytes_per_s == copy.bytes / copy.time.median_s


def test_large_products_are_left_out_in_time():
    start = time.perf_counter()
    points = ops.matmul_speeds((16, 8192), ("float32",), budget_s=0.3)
    assert time.perf_counter() - start < 2
    assert points[0].time is not None
    assert points[1].time is None and points[1].flop_per_s is None and points[1].why_not


def test_sizes_around_a_multiple_of_eight():
    assert ops.sizes_around(1024) == list(range(1016, 1033))
    with pytest.raises(LessonError, match="'float8' is not a dtype"):
        ops.matmul_speeds((8,), ("float8",))
    with pytest.raises(LessonError, match="at least one size"):
        ops.matmul_speeds(())


def test_known_peaks_are_the_data_sheets_and_unknown_ones_are_none():
    assert peak_of("NVIDIA A100-SXM4-40GB", "bfloat16").flop_per_s == 312e12
    assert peak_of("NVIDIA A100-SXM4-40GB", "tf32").flop_per_s == 156e12
    assert peak_of("Tesla V100-SXM2-16GB", "float16").flop_per_s == 125e12
    assert peak_of("Tesla T4", "float32").flop_per_s == 8.1e12
    assert "NVIDIA" in peak_of("NVIDIA H200", "float16").source
    # A Turing chip has no bf16 units; slices and laptop chips share a name but not a peak.
    for name in ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA H200 NVL", "Some GPU", ""):
        assert peak_of(name, "float16") is None
    assert peak_of("Tesla T4", "bfloat16") is None


def test_a100_peaks_are_16_to_1_as_the_pytorch_blog_says():
    fp16, fp32 = (peak_of("NVIDIA A100 80GB PCIe", dtype).flop_per_s for dtype in ("float16", "float32"))
    assert fp16 / fp32 == pytest.approx(16)


@pytest.mark.cuda
def test_points_on_cuda_come_from_events():
    assert {p.time.clock for p in step_times(mlp(64, 32), device="cuda", runs=3)} == {"cuda events"}
