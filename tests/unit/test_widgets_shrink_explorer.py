"""The shrinking loss: shares that can be worked out by hand, at both ends of the slider."""

import pytest
import torch

from amp_lessons.histograms import ExponentHistogram
from amp_lessons.widgets.shrink_explorer import ShrinkExplorer


@pytest.fixture
def explorer() -> ShrinkExplorer:
    # A zero, one gradient of 2^-4, two of 2^-14.
    return ShrinkExplorer(ExponentHistogram.of(torch.tensor([0.0, 2.0**-4, 2.0**-14, -(2.0**-14)])))


def at(explorer: ShrinkExplorer, k: int) -> str:
    explorer.weight.value = k
    return explorer.text


def test_nothing_is_lost_at_first(explorer):
    assert explorer.text.startswith("Loss times 2^0: fp16 flushes 0% of the values to zero, keeps 0% with fewer bits and 75.0%")
    assert explorer.text.endswith("25.0% were zero before.")


def test_borders_fall_where_fp16_has_them(explorer):
    assert "flushes 0% of the values to zero, keeps 50.0% with fewer bits and 25.0% in full" in at(explorer, -10)
    # 2^-14 times 2^-11 is 2^-25: flushed. Two of the three gradients that were not zero are lost.
    assert "flushes 50.0%" in at(explorer, -11) and "loses 66.7%." in explorer.text
    assert "turns 25.0% into inf" in at(explorer, 20)  # 2^-4 becomes 2^16


def test_the_end_of_the_slider_says_that_all_is_gone(explorer):
    assert "flushes 75.0%" in at(explorer, -24) and explorer.text.endswith("Nothing is left to learn from.")


def test_picture_and_twin_change_together_and_the_stored_caption_does_not(explorer):
    picture, stored = explorer._image.value, repr(explorer)
    at(explorer, -11)
    assert explorer._image.value != picture and "2^-11" in explorer._twin.value
    assert repr(explorer) == stored


@pytest.mark.parametrize("values", [[], [0.0], [float("nan"), float("inf")]])
def test_histograms_without_gradients_do_not_raise(values):
    explorer = ShrinkExplorer(ExponentHistogram.of(torch.tensor(values)))
    for k in (-24, 0, 24):
        assert at(explorer, k).startswith(f"Loss times 2^{k}:") and 'role="status"' in explorer._twin.value
