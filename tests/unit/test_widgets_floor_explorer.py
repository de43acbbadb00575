"""The walk along fp16's floor says and draws what a cast to float16 does."""

import pytest
import torch

from amp_lessons.widgets.floor_explorer import FloorExplorer


@pytest.fixture
def explorer() -> FloorExplorer:
    return FloorExplorer()


def at(explorer: FloorExplorer, sixteenths: int) -> str:
    explorer.gradient.value = sixteenths
    return explorer.text


def test_picture_points_where_the_cast_goes(explorer):
    for sixteenths in range(65):
        at(explorer, sixteenths)
        stored = torch.tensor(sixteenths / 16 * 2.0**-24).half().item() / 2.0**-24
        (value_x, stored_x), _ = explorer.picture._arrow.get_data()
        assert (value_x, stored_x) == (sixteenths / 16, stored)
        assert list(explorer.picture._stored.get_xdata()) == [stored]


def test_words_at_the_border(explorer):
    assert "0.5 · 2^-24 = 2.98e-08 is flushed to 0: all of it is lost." in at(explorer, 8)
    assert "between 0 and 1 · 2^-24, and the tie goes to the even one" in explorer.text
    assert "becomes 1 · 2^-24 = 5.96e-08, a subnormal number: 77.8% too large." in at(explorer, 9)
    assert "tie" not in explorer.text


def test_ties_go_to_the_even_number(explorer):
    assert "becomes 2 · 2^-24" in at(explorer, 24) and "between 1 and 2 · 2^-24" in explorer.text
    assert "becomes 2 · 2^-24" in at(explorer, 40) and "between 2 and 3 · 2^-24" in explorer.text


def test_exact_values_and_zero_lose_nothing(explorer):
    assert "exact" in at(explorer, 48)
    assert "20.0% too small" in at(explorer, 20)
    assert "nothing is lost" in at(explorer, 0)


def test_picture_and_twin_change_together(explorer):
    before = explorer._image.value
    at(explorer, 8)
    assert explorer._image.value != before and "flushed" in explorer._twin.value
