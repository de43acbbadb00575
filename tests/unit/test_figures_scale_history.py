"""What the scale history draws, at points that can be said by hand."""

import numpy
import pytest

from amp_lessons.figures.scale_history import ScaleHistory, account_of, exponent_of
from amp_lessons.recipes import ScalerOptions
from amp_lessons.replay import replay

# From 2^10 with growth after 3 clean steps; the third step fits only up to 2^8: skip, then growth after step 5.
STEPS = replay([1.0, 1.0, 2.0**7, 1.0, 1.0, 1.0, 1.0], ScalerOptions(init_scale=2.0**10, growth_interval=3))


@pytest.fixture
def picture() -> ScaleHistory:
    return ScaleHistory(7, ceilings=[15, 15, 8, None, 15, 15, 15], caption="a history")


def points(line) -> list[tuple]:
    return [tuple(point) for point in line.get_xydata()]


def test_the_line_follows_the_scale_to_the_step_that_comes_next(picture):
    picture.show(STEPS)
    assert points(picture._line) == [(0, 10), (1, 10), (2, 10), (3, 9), (4, 9), (5, 9), (6, 10), (7, 10)]


def test_growth_and_skip_are_marked_where_they_happen_by_different_shapes(picture):
    picture.show(STEPS)
    assert points(picture._skips) == [(2, 10)]
    assert points(picture._growth) == [(6, 10)]
    assert picture._skips.get_marker() != picture._growth.get_marker()
    words = {text.get_text() for legend in picture.figure.legends for text in legend.get_texts()}
    assert words == {"loss scale", "grew", "overflow, step skipped", "largest scale these gradients fit"}


def test_ceilings_are_drawn_once_with_gaps(picture):
    (line,) = [line for line in picture.figure.axes[0].lines if not line.get_animated()]
    numpy.testing.assert_equal(line.get_ydata(), [15, 15, 8, numpy.nan, 15, 15, 15])


def test_a_second_history_replaces_the_first_on_the_same_background(picture):
    picture.show(STEPS)
    first = picture.png()
    background = picture._background
    picture.show([])
    assert picture.png() != first and picture._background is background
    picture.show(STEPS)
    assert picture.png() == first


def test_a_scale_of_zero_is_a_gap():
    assert numpy.isnan(exponent_of(0.0)) and exponent_of(65536.0) == 16


def test_without_ceilings_nothing_is_said_of_them():
    picture = ScaleHistory(5)
    assert len(picture.figure.legends[0].get_texts()) == 3
    picture.show(STEPS[:5])
    picture.png()


def test_the_account_counts_growth_and_skips(picture):
    picture.show(STEPS)
    assert picture.text == (
        "Starting at 2^10, over 7 steps: the scale grew 1 time, 1 step was skipped, first in step 2; it ends at 2^10."
    )
    assert account_of(replay([1.0])) == (
        "Starting at 2^16, over 1 step: the scale grew 0 times, 1 step was skipped, first in step 0; it ends at 2^15."
    )
    # 2^16 and 2^15 overflow on a gradient of 2, and 2^14 fits.
    assert "2 steps were skipped, the first 2 at the start; it ends at 2^14." in account_of(replay([2.0] * 9))
    assert "0 steps were skipped; it ends at 3." in account_of(replay([1.0], ScalerOptions(init_scale=3.0)))
    assert account_of([]) == "No step was taken yet."


def test_the_account_of_a_scaler_that_fell_under_one_says_so():
    assert account_of(replay([float("nan")] * 40)).endswith(
        "it ends at 2^-1. There the loss scale falls under 1: no scale helps."
    )
