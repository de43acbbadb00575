"""A replayed scaler is held against true training runs, against GradScaler's published rule, and against PyTorch's casts."""

import math

import pytest
import torch

from amp_lessons import recipes
from amp_lessons.errors import LessonError
from amp_lessons.histograms import ExponentHistogram
from amp_lessons.recipes import ScalerOptions
from amp_lessons.replay import ceilings, peak_of, peaks_of, replay
from amp_lessons.training import train

BUSY = [
    ScalerOptions(init_scale=2.0**40, growth_interval=5),
    ScalerOptions(init_scale=1.0, growth_interval=1),
    ScalerOptions(init_scale=2.0**30, growth_factor=16.0, backoff_factor=0.25, growth_interval=3),
]


def moves(records) -> list[tuple]:
    return [(record.step, record.scale, record.next_scale, record.skipped, record.grew) for record in records]


@pytest.mark.parametrize("options", BUSY, ids=str)
def test_replaying_a_run_with_its_own_settings_repeats_it(tiny, options):
    true = train(tiny, recipes.AMP, steps=60, scaler=options, activations=True).finish()
    assert true.skipped and true.grown
    assert moves(replay(peaks_of(true), options)) == moves(true.records)


@pytest.mark.parametrize("options", BUSY, ids=str)
def test_forecast_from_a_float32_run_holds_when_the_weights_stand_still(tiny, options):
    # Moves of 1e-30 leave float32 weights as they are: both runs see the same gradients, one of them through fp16.
    still = {"steps": 60, "learning_rate": 1e-30, "activations": True}
    true = train(tiny, recipes.AMP, scaler=options, **still).finish()
    forecast = replay(peaks_of(train(tiny, recipes.FP32, **still).finish()), options)
    assert true.skipped and true.grown
    assert moves(forecast) == moves(true.records)


def test_growth_waits_for_clean_steps_in_a_row():
    options = ScalerOptions(init_scale=2.0**10, growth_interval=3)
    big = 2.0**7  # 2^7 * 2^10 overflows, 2^7 * 2^8 does not
    steps = replay([1.0, 1.0, big, 1.0, 1.0, 1.0, 1.0], options)
    assert [step.skipped for step in steps] == [False, False, True, False, False, False, False]
    assert [step.grew for step in steps] == [False] * 5 + [True, False]
    assert [step.next_scale for step in steps] == [2.0**k for k in (10, 10, 9, 9, 9, 10, 10)]


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e30])
def test_sixteen_hopeless_steps_take_the_default_scale_to_one_and_the_next_ends_the_replay(bad):
    steps = replay([bad] * 40)
    assert [step.next_scale for step in steps] == [2.0**k for k in range(15, -2, -1)]
    assert all(step.skipped for step in steps)


@pytest.mark.parametrize("peak, skipped", [(65519.996, False), (65520.0, True)])
def test_edge_of_overflow_is_that_of_fp16(peak, skipped):
    assert replay([peak], ScalerOptions(init_scale=1.0))[0].skipped is skipped
    assert torch.tensor(peak).half().isinf().item() is skipped


def test_scale_stops_at_the_largest_power_of_two_in_float32():
    # PyTorch keeps a grown scale only if it is finite: pytorch/pytorch#98876.
    steps = replay([0.0] * 10, ScalerOptions(init_scale=2.0**120, growth_interval=1))
    assert [step.next_scale for step in steps] == [2.0**k for k in (121, 122, 123, 124, 125, 126, 127, 127, 127, 127)]


def test_empty_and_impossible_peaks():
    assert replay([]) == []
    with pytest.raises(LessonError, match="step 1 is -2"):
        replay([1.0, -2.0])


VALUES = [2.0**-149, 1e-40, 2.0**-25, 1e-8, 1.0, 1.0000001, 65519.996, 65520.0, 65520.004, 65536.0, 3.0e38]


@pytest.mark.parametrize("value", VALUES)
def test_peak_of_a_histogram_overflows_with_the_value_it_stands_for(value):
    value = torch.tensor(value)
    peak = torch.tensor(peak_of(ExponentHistogram.of(value, value / 2, torch.zeros(3))))
    for k in range(-120, 120):
        assert (peak * 2.0**k).half().isinf() == (value * 2.0**k).half().isinf(), k


def test_peak_of_what_has_no_finite_peak():
    assert peak_of(ExponentHistogram.of(torch.tensor([1.0, -math.inf]))) == math.inf
    assert math.isnan(peak_of(ExponentHistogram.of(torch.tensor([math.nan, math.inf, 1.0]))))
    assert peak_of(ExponentHistogram.of(torch.zeros(4))) == 0
    assert peak_of(ExponentHistogram()) == 0


def test_peaks_of_a_run_are_magnitudes_before_scaling(tiny):
    still = {"steps": 3, "learning_rate": 1e-30, "activations": True}
    plain = peaks_of(train(tiny, recipes.FP32, **still).finish())
    scaled = peaks_of(train(tiny, recipes.AMP, scaler=ScalerOptions(init_scale=2.0**12), **still).finish())
    assert scaled == pytest.approx(plain, rel=0.01)


def test_activation_gradients_count_when_they_were_recorded(tiny):
    history = train(tiny, recipes.FP32, steps=1, activations=True).finish()
    record = history.records[0]
    assert peaks_of(history) == [max(peak_of(record.histogram), peak_of(record.activations))]


def test_peaks_need_histograms(tiny):
    with pytest.raises(LessonError, match="histograms=True"):
        peaks_of(train(tiny, recipes.FP32, steps=1, histograms=False).finish())


def test_ceilings_are_the_largest_scales_that_fit():
    peaks = [1.0, 65504.0, 65519.996, 65520.0, 65536.0, 2.0**-24, 3.0, 1e-20]
    for peak, k in zip(peaks, ceilings(peaks)):
        value = torch.tensor(peak)
        assert (value * 2.0**k).half().isfinite() and (value * 2.0 ** (k + 1)).half().isinf()
    assert ceilings([0.0, math.inf, math.nan]) == [None, None, None]
