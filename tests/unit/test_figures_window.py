"""What the window figure draws, at points that can be said by hand."""

import pytest
import torch

from amp_lessons.figures.window import WindowWalk
from amp_lessons.histograms import ExponentHistogram, LossScaleWindow
from amp_lessons.recipes import ScalerOptions
from amp_lessons.replay import replay

# One gradient of 1 and three of 2^-30: fp16 keeps the small ones from 2^6 on, the large one up to 2^15.
HISTOGRAM = ExponentHistogram.of(torch.tensor([1.0, 2.0**-30, 2.0**-30, -(2.0**-30), 0.0]))
WINDOW = HISTOGRAM.window()
STEPS = replay([1.0] * 6, ScalerOptions(init_scale=2.0**18, growth_interval=2))


@pytest.fixture
def picture() -> WindowWalk:
    picture = WindowWalk(6, [WINDOW] * 6, caption="a walk")
    picture.show(HISTOGRAM, WINDOW, STEPS)
    return picture


def height(picture: WindowWalk, fate: str, k: int) -> float:
    exponents, shares = picture._curves[fate].get_data()
    return shares[list(exponents).index(k)]


def test_shares_leave_out_zeros_and_turn_at_the_known_scales(picture):
    assert (WINDOW.low, WINDOW.high) == (6, 15)
    assert [height(picture, "flushed", k) for k in (0, 5, 6, 20)] == [0.75, 0.75, 0, 0]
    assert [height(picture, "subnormal", k) for k in (5, 6, 15, 16)] == [0, 0.75, 0.75, 0]
    assert [height(picture, "overflow", k) for k in (15, 16, 45, 46)] == [0, 0.25, 0.25, 1]


def test_safe_window_is_shaded_and_named(picture):
    corners = picture._shade.get_paths()[0].vertices[:, 0]
    assert (corners.min(), corners.max()) == (6, 15)
    assert picture._window_text.get_text() == "safe window $2^{6}$ to $2^{15}$"


def test_no_shade_where_there_is_no_window(picture):
    for window in (LossScaleWindow(None, None), LossScaleWindow(20, 10)):
        picture.show(ExponentHistogram(), window, STEPS)
        assert not picture._shade.get_paths() and picture._window_text.get_text() == ""


def test_walk_ends_at_the_last_record_and_marks_its_skip(picture):
    # 2^18, 17 and 16 overflow; 2^15 fits, and grows to 2^16 after two clean steps, which overflows again.
    assert [step.skipped for step in STEPS] == [True, True, True, False, False, True]
    assert [tuple(point) for point in picture._now.get_xydata()] == [(16, 5)]
    assert [tuple(point) for point in picture._skips.get_xydata()] == [(18, 0), (17, 1), (16, 2), (16, 5)]
    assert [tuple(point) for point in picture._growth.get_xydata()] == [(16, 5)]
    path = [tuple(point) for point in picture._path.get_xydata()]
    assert path == [(18, 0), (18, 1), (17, 1), (17, 2), (16, 2), (16, 3), (15, 3), (15, 4), (15, 4), (15, 5), (16, 5)]


def test_current_scale_is_named(picture):
    assert picture._scale_text.get_text() == "scale $2^{16}$"
    assert set(picture._here.get_xdata()) == {16}
    picture.show(HISTOGRAM, WINDOW, [])
    assert picture._scale_text.get_text() == ""
    picture.png()


def test_moving_over_one_background(picture):
    first, background = picture.png(), picture._background
    picture.show(HISTOGRAM, WINDOW, STEPS[:2])
    assert picture.png() != first and picture._background is background


def test_band_shows_only_steps_that_have_a_window():
    walk = WindowWalk(4, [WINDOW, LossScaleWindow(None, None), LossScaleWindow(9, 3), LossScaleWindow(8, 20)])
    (band,) = walk.figure.axes[1].collections[:1]
    xs = band.get_paths()[0].vertices[:, 0]
    assert (xs.min(), xs.max()) == (6, 20)
    WindowWalk(4, [LossScaleWindow(None, None)]).png()


def test_words_say_where_the_scaler_stands(picture):
    assert picture.text == (
        "Step 5 is skipped. Its loss scale is 2^16, outside the window of the parameter gradients: 2^6 to 2^15. Of those that "
        "are not zero, fp16 would flush 0%, keep 0% with fewer bits and turn 25.0% into inf."
    )
    picture.show(HISTOGRAM, WINDOW, STEPS[:4])
    assert "Step 3 is taken. Its loss scale is 2^15, inside" in picture.text
    # Shares are exact only at powers of two; at another scale none are claimed.
    picture.show(HISTOGRAM, WINDOW, replay([1.0], ScalerOptions(init_scale=1000.0)))
    assert picture.text == "Step 0 is taken. Its loss scale is 1000, inside the window of the parameter gradients: 2^6 to 2^15."
    picture.show(HISTOGRAM, WINDOW, [])
    assert picture.text == "No step was taken yet. The window of the parameter gradients: 2^6 to 2^15."
