"""The ruler around a weight and the two pictures of runs draw what they are given."""

import pytest

from amp_lessons.errors import LessonError
from amp_lessons.figures.updates import REACH, UpdateRuler, half_against_autocast, weight_walk

NAMES = ("low", "weight", "high")


def test_ruler_points_from_the_value_to_the_stored_number():
    ruler = UpdateRuler()
    ruler.show([-1, -0.5, 0, 1, 2], 0.75, 1, NAMES, "sum", "moved")
    (top, bottom), _ = ruler._arrow.get_data()
    assert (top, bottom) == (0.75, 1)
    assert [segment[0][0] for segment in ruler._marks.get_segments()] == [-1, -0.5, 0, 1, 2]
    assert [segment[0][0] for segment in ruler._turns.get_segments()] == [-0.75, -0.25, 0.5, 1.5]
    assert [(text.get_text(), text.get_position()[0]) for text in ruler._names] == [("low", -0.5), ("weight", 0), ("high", 1)]
    assert (ruler._label.get_text(), ruler._verdict.get_text()) == ("sum", "moved")


def test_places_beyond_the_ruler_are_drawn_at_its_ends():
    ruler = UpdateRuler()
    ruler.show([-0.5, 0, 1], -900.0, -900.0, NAMES, "", "")
    assert list(ruler._arrow.get_xdata()) == [-REACH, -REACH]
    assert abs(ruler._label.get_position()[0]) < REACH


def test_both_runs_are_drawn_and_named_at_their_ends():
    picture = weight_walk([1.0, 1.0], [1.0, 0.5])
    (axes,) = picture.figure.axes
    assert [list(line.get_ydata()) for line in axes.lines] == [[1.0, 1.0], [1.0, 0.5]]
    assert [(text.get_text(), text.xy) for text in axes.texts] == [("fp16", (1, 1.0)), ("float32", (1, 0.5))]
    assert len({line.get_linestyle() for line in axes.lines}) == 2  # told apart without colour
    assert picture.text.endswith("In 2 steps fp16 goes from 1 to 1; float32 goes from 1 to 0.5.")
    assert axes.get_yscale() == "linear" and not any(digit in repr(picture) for digit in "05")


def test_losses_are_on_a_logarithmic_axis():
    picture = half_against_autocast([1.0] * 1500, [1.0, 1e-6])
    (axes,) = picture.figure.axes
    assert axes.get_yscale() == "log"
    assert "In 1,500 steps half() goes from 1 to 1; autocast goes from 1 to 1e-06." in picture.text


@pytest.mark.parametrize("draw", [weight_walk, half_against_autocast])
@pytest.mark.parametrize("half, full", [([], [1.0]), ([1.0], [])])
def test_an_empty_run_gets_a_sentence(draw, half, full):
    with pytest.raises(LessonError, match="at least one step"):
        draw(half, full)
