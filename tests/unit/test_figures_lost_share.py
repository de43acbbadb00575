"""Forecast and measurement are drawn as given, with names at the place where they differ most."""

import pytest

from amp_lessons.errors import LessonError
from amp_lessons.figures.lost_share import lost_share_curves

EXPONENTS, FORECAST, MEASURED = [0, -8, -16], [0.01, 0.25, 1.0], [0.01, 0.5, 1.0]


def test_curves_hold_both_series():
    (axes,) = lost_share_curves(EXPONENTS, FORECAST, MEASURED).figure.axes
    measured, forecast = axes.lines
    assert list(measured.get_xdata()) == EXPONENTS and list(measured.get_ydata()) == MEASURED
    assert list(forecast.get_xdata()) == EXPONENTS and list(forecast.get_ydata()) == FORECAST


def test_weight_shrinks_to_the_right_and_names_stand_in_the_gap():
    (axes,) = lost_share_curves(EXPONENTS, FORECAST, MEASURED).figure.axes
    left, right = axes.get_xlim()
    assert left > right
    assert {text.get_text().split()[0]: text.xy for text in axes.texts} == {"measured": (-8, 0.5), "forecast": (-8, 0.25)}


def test_text_has_the_numbers_and_the_caption_has_not():
    picture = lost_share_curves(EXPONENTS, FORECAST, MEASURED)
    assert "2^-8: 25% and 50%" in picture.text
    assert not any(character.isdigit() for character in repr(picture).replace("fp16", "").replace("float32", ""))


@pytest.mark.parametrize("lengths", [(0, 0, 0), (2, 3, 3), (3, 3, 2)])
def test_series_that_do_not_fit_together_get_a_sentence(lengths):
    with pytest.raises(LessonError, match="for each exponent"):
        lost_share_curves(EXPONENTS[: lengths[0]], FORECAST[: lengths[1]], MEASURED[: lengths[2]])
