"""The speed explorer's sliders stand on measured sizes only, and its twin says the ratio measured there."""

import pytest

from amp_lessons.errors import LessonError
from amp_lessons.measure.clock import Timing
from amp_lessons.measure.steps import SpeedPoint, SpeedTable
from amp_lessons.widgets.speed_explorer import SpeedExplorer


def point(setting: str, width: int, batch: int, seconds: float | None, half_spread: float = 0.0) -> SpeedPoint:
    time = Timing(seconds, seconds - half_spread, seconds + half_spread, 9) if seconds else None
    return SpeedPoint(setting, "mlp", width, batch, 1000, time, None if time else "a step would take about 9 s")


@pytest.fixture
def explorer() -> SpeedExplorer:
    points = []
    for width in (32, 128):
        for batch in (16, 32, 64):
            points.append(point("fp32", width, batch, 4e-3, 1e-4))
            points.append(point("amp", width, batch, 8e-3 if width == 32 else 2e-3))
            points.append(point("bf16", width, batch, None if batch == 64 else 4.05e-3, 1e-4))
    return SpeedExplorer(SpeedTable("mlp", "a made-up CPU", tuple(points)))


def test_sliders_reach_the_measured_sizes_and_no_others(explorer):
    assert (explorer.batch.slider.min, explorer.batch.slider.max, explorer.batch.slider.step) == (4, 6, 1)
    assert (explorer.width.slider.min, explorer.width.slider.max, explorer.width.slider.step) == (5, 7, 2)


def test_twin_says_times_ratio_and_verdict(explorer):
    explorer.width.value, explorer.batch.value = 7, 4
    assert explorer.text.startswith("Width 128, batch 16, mlp, on a made-up CPU.\nFP32 takes 4 ms a step.")
    assert "AMP: fp16 autocast + GradScaler: 2 ms; FP32's time divided by it is 2: faster than FP32." in explorer.text
    assert "FP32's time divided by it is 0.988: no clear difference, the quartiles overlap." in explorer.text
    explorer.width.value = 5
    assert "8 ms; FP32's time divided by it is 0.5: slower than FP32." in explorer.text


def test_what_was_not_measured_is_said_and_not_drawn(explorer):
    explorer.batch.value = 6
    assert "BF16 autocast: not measured, a step would take about 9 s." in explorer.text


def test_picture_follows_the_sliders(explorer):
    before = explorer._image.value
    explorer.width.value = 5
    assert explorer._image.value != before
    assert explorer.picture._titles[0].get_text() == "at width 32"
    assert list(explorer.picture._lines[0]["amp"].get_ydata()) == [-1, -1, -1]


def test_plain_text_is_the_same_on_every_machine(explorer):
    first = repr(explorer)
    explorer.width.value = 5
    assert repr(explorer) == first and "made-up" not in first


def test_sizes_between_which_no_slider_can_step_are_refused():
    for batches in ((16, 24), (16, 32, 128)):
        points = tuple(point(name, 32, batch, 1e-3) for batch in batches for name in ("fp32", "amp"))
        with pytest.raises(LessonError, match="powers of two at even steps"):
            SpeedExplorer(SpeedTable("mlp", "a made-up CPU", points))
