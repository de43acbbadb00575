"""The two explorers of the loss scale: what their words and pictures say at points that can be worked out by hand."""

import re

import pytest
import torch

from amp_lessons.errors import LessonError
from amp_lessons.histograms import ExponentHistogram
from amp_lessons.history import StepRecord, TrainingHistory
from amp_lessons.widgets.scaler_explorer import ScalerExplorer, WindowExplorer


@pytest.fixture
def explorer() -> ScalerExplorer:
    return ScalerExplorer([1.0] * 30)  # a gradient of 1 fits scales up to 2^15


def history(*tensors: torch.Tensor) -> TrainingHistory:
    records = [StepRecord(i, 1.0, 1.0, 1.0, False, 1.0, ExponentHistogram.of(t)) for i, t in enumerate(tensors)]
    return TrainingHistory("made up", "fp32", 0, "CPU", records)


@pytest.fixture
def window() -> WindowExplorer:
    return WindowExplorer(history(*[torch.tensor([1.0, 2.0**-30, 2.0**-30, 2.0**-30, 0.0])] * 30))


def test_first_words_are_those_of_the_default_settings(explorer):
    # 2^16 overflows at once; 2^15 grows after steps 10 and 21 and is thrown back in the step after; step 29 is taken.
    assert explorer.text == (
        "Starting at 2^16, over 30 steps: the scale grew 2 times, 3 steps were skipped, first in step 0; it ends at 2^15."
    )


def test_each_control_moves_the_history(explorer):
    explorer.init_scale.value = 20
    assert "the first 5 at the start" in explorer.text
    explorer.backoff_factor.value = 1 / 16
    # 2^20 and 2^16 overflow; 2^12 grows after steps 11 and 21.
    assert "2 times, 2 steps were skipped, the first 2 at the start; it ends at 2^14" in explorer.text
    explorer.growth_factor.value = 4.0
    assert "2 times, 3 steps were skipped, the first 2 at the start; it ends at 2^12" in explorer.text
    explorer.growth_interval.value = 200
    assert "0 times, 2 steps were skipped, the first 2 at the start; it ends at 2^12" in explorer.text


def test_picture_and_twin_change_together(explorer):
    image, words = explorer._image.value, explorer._twin.value
    explorer.init_scale.value = 8
    assert explorer._image.value != image and explorer._twin.value != words
    assert explorer.text in explorer._twin.value


def test_stored_text_has_no_measured_number(explorer, window):
    for widget in (explorer, window):
        assert not re.search(r"\d", repr(widget).replace("fp16", "").replace("float32", ""))


def test_every_setting_gives_words_and_never_an_error():
    explorer = ScalerExplorer([1.0, 0.0, float("inf"), float("nan"), 1e30, 1e-30] * 5)
    for control, values in {
        explorer.init_scale: (0, 40),
        explorer.growth_interval: (1, 200),
        explorer.growth_factor: (2.0, 4.0, 16.0),
        explorer.backoff_factor: (0.5, 0.25, 0.0625),
    }.items():
        for value in values:
            control.value = value
            assert explorer.text.startswith("Starting at") and 'role="alert"' not in explorer._twin.value


def test_nothing_to_replay_is_a_sentence():
    with pytest.raises(LessonError, match="at least one step"):
        ScalerExplorer([])
    with pytest.raises(LessonError, match="train for at least one"):
        WindowExplorer(history())


def test_window_explorer_follows_the_scaler_into_the_window(window):
    assert window.text == (
        "Step 0 is skipped. Its loss scale is 2^40, outside the window of the parameter gradients: 2^6 to 2^15. Of those that "
        "are not zero, fp16 would flush 0%, keep 0% with fewer bits and turn 25.0% into inf."
    )
    window.step.value = 24
    assert window.text.startswith("Step 24 is skipped. Its loss scale is 2^16, outside")
    window.step.value = 25
    assert window.text.startswith("Step 25 is taken. Its loss scale is 2^15, inside")
    window.init_scale.value = 4
    # Grown once, after 20 clean steps: still too low for the three small gradients, which need 2^6.
    assert window.text == (
        "Step 25 is taken. Its loss scale is 2^5, outside the window of the parameter gradients: 2^6 to 2^15. Of those that "
        "are not zero, fp16 would flush 75.0%, keep 0% with fewer bits and turn 0% into inf."
    )


def test_a_scale_under_one_ends_the_story_in_words():
    explorer = ScalerExplorer([float("nan")] * 30)
    assert explorer.text.startswith("Starting at 2^16, over 17 steps: the scale grew 0 times, 17 steps were skipped")
    assert explorer.text.endswith("it ends at 2^-1. There the loss scale falls under 1: no scale helps.")
    explorer = WindowExplorer(history(*[torch.tensor([float("inf"), 1.0])] * 60))
    explorer.step.value = 50
    assert explorer.text.startswith("Step 40 is skipped. Its loss scale is 2^0") and explorer.text.endswith("no scale helps.")


def test_window_explorer_survives_steps_with_nothing_to_count():
    explorer = WindowExplorer(history(torch.zeros(3), torch.tensor([float("nan")]), torch.tensor([float("inf"), 1.0])))
    for step in range(3):
        explorer.step.value = step
        assert explorer.text.startswith(f"Step {step} is") and 'role="alert"' not in explorer._twin.value
