"""The gradient histogram: which bars it draws at points that can be said by hand, and in which words."""

import pytest
import torch

from amp_lessons.figures.fates import FateHistogram, describe, percent
from amp_lessons.histograms import ExponentHistogram

# One value for each fate in fp16, and one zero: the largest flushed one, a subnormal, a normal, the first that overflows.
VALUES = torch.tensor([2.0**-25, 2.0**-24, 1.0, 65520.0, 0.0])


@pytest.fixture
def picture() -> FateHistogram:
    picture = FateHistogram(caption="bars")
    picture.show(ExponentHistogram.of(VALUES))
    return picture


def bars(picture: FateHistogram, fate: str) -> list[tuple[int, float]]:
    """The bars of a fate as (exponent, height)."""
    boxes = [path.vertices for path in picture._bars[fate].get_paths()]
    return [(int(box[:, 0].min() // 1), round(float(box[:, 1].max() - box[:, 1].min()), 6)) for box in boxes]


def test_each_value_has_its_bar_in_its_zone(picture):
    expected = {"flushed": [(-25, 0.2)], "subnormal": [(-24, 0.2)], "normal": [(0, 0.2)], "overflow": [(15, 0.2)]}
    assert {fate: bars(picture, fate) for fate in expected} == expected


def test_labels_say_the_shares_and_zeros_are_told_apart(picture):
    assert {label.get_text() for label in picture._labels.values()} == {"20.0%"}
    assert picture._zeros.get_text() == "no bar: 20.0% are zero already"


def test_scale_moves_every_bar_by_its_exponent(picture):
    picture.show(ExponentHistogram.of(VALUES), 2.0**-10)
    assert bars(picture, "flushed") == [(-35, 0.2), (-34, 0.2)]
    assert bars(picture, "subnormal") == []
    assert bars(picture, "normal") == [(-10, 0.2), (5, 0.2)]
    assert bars(picture, "overflow") == []


def test_values_of_one_binade_and_two_fates_are_stacked(picture):
    # 65504 is fp16's largest number, 65520 overflows; both lie in the binade of 2^15.
    picture.show(ExponentHistogram.of(torch.tensor([65504.0, 65504.0, 65504.0, 65520.0])))
    (normal,) = picture._bars["normal"].get_paths()
    (overflow,) = picture._bars["overflow"].get_paths()
    assert (normal.vertices[:, 1].max(), overflow.vertices[:, 1].min(), overflow.vertices[:, 1].max()) == (0.75, 0.75, 1)


def test_text_says_what_is_drawn(picture):
    assert picture.text == (
        "fp16 flushes 20.0% of the values to zero, keeps 20.0% with fewer bits and 20.0% in full, and turns 20.0% into inf. "
        "20.0% were zero before."
    )
    assert repr(picture) == "bars"


def test_empty_histogram_is_drawn_without_bars(picture):
    picture.show(ExponentHistogram())
    assert all(bars(picture, fate) == [] for fate in picture._bars)
    assert picture._zeros.get_text() == "" and "before" not in describe(ExponentHistogram().shares())
    assert picture.png().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0%"), (1, "100%"), (0.0009, "under 0.1%"), (0.001, "0.1%"), (0.5, "50.0%"), (0.9995, "over 99.9%")],
)
def test_rounding_never_hides_a_remainder(share, text):
    assert percent(share) == text
