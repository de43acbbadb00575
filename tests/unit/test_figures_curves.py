"""Loss curves: the smoothing, the gaps, and a name at the end of each line."""

import math

import pytest

from amp_lessons.figures.curves import loss_curves
from amp_lessons.history import StepRecord, TrainingHistory


def history(recipe: str, losses: list[float]) -> TrainingHistory:
    records = [StepRecord(i, loss, 1.0, 1.0, False, 1.0) for i, loss in enumerate(losses)]
    return TrainingHistory("made up", recipe, 0, "CPU", records)


def test_a_line_a_run_averaged_over_the_last_steps():
    (axes,) = loss_curves([history("fp32", [4.0, 2.0, 1.0, 1.0])], "a curve", smooth=2).figure.axes
    assert list(axes.lines[0].get_ydata()) == [4.0, 3.0, 1.5, 1.0]


def test_names_end_their_lines_and_do_not_overlap():
    picture = loss_curves([history("fp32", [1.0, 1e-3]), history("fp16", [1.0, 1.01e-3])], "two curves", smooth=1)
    (axes,) = picture.figure.axes
    assert {text.get_text(): text.xy for text in axes.texts} == {"fp32": (1, 1e-3), "fp16": (1, 1.01e-3)}
    low, high = sorted(text.get_position()[1] for text in axes.texts)
    assert high - low >= 0.06


@pytest.mark.parametrize("losses", [[1.0, math.nan], [math.inf, math.inf], [0.0, 0.0], []])
def test_losses_that_cannot_be_drawn_do_not_raise(losses):
    assert loss_curves([history("fp16", losses)], "nothing").png().startswith(b"\x89PNG")


def test_caption_is_the_text():
    assert repr(loss_curves([history("amp", [1.0])], "one point")) == "one point"
