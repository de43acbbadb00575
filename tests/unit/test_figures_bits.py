"""The bit picture holds the bits and the neighbours that it is given, each at its place."""

import math

import numpy
import pytest

from amp_lessons.figures.bits import FIELDS, BitPicture, short
from amp_lessons.formats import BF16, FORMATS, FP8_E4M3, FP16, FP32


@pytest.fixture(scope="module")
def picture() -> BitPicture:
    return BitPicture()


def show(picture, format, wanted):
    stored = format.round(wanted)
    picture.show(format, wanted, stored, format.neighbours(stored), ["+1", "2", "1"])
    picture.png()


def drawn_bits(picture) -> str:
    """The digits from left to right."""
    places = [(x, digit) for digit, line in picture._digits.items() for x in line.get_xdata()]
    return "".join(digit for _, digit in sorted(places))


def place(picture, x) -> float:
    """A drawn position, in spacings from the stored number."""
    return (x - picture._centre) / picture._unit


def boxes(picture, field) -> list:
    return [path.vertices for path in picture._boxes[field].get_paths()]


@pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.name)
def test_each_field_has_a_box_for_each_bit_and_its_digit_in_it(picture, format):
    show(picture, format, -6.0)
    counts = [len(boxes(picture, field)) for field in FIELDS]
    assert counts == [1, format.exponent_bits, format.mantissa_bits]
    assert drawn_bits(picture) == str(format.encode(-6.0)).replace(" ", "")
    middles = [box[:, 0].min() + 0.5 for field in FIELDS for box in boxes(picture, field)]
    digits = sorted(x for line in picture._digits.values() for x in line.get_xdata())
    assert digits == pytest.approx(middles)


def test_a_narrower_format_leaves_no_boxes_behind(picture):
    show(picture, FP32, 1.0)
    show(picture, FP8_E4M3, 1.0)
    assert sum(len(boxes(picture, field)) for field in FIELDS) == 8 and len(drawn_bits(picture)) == 8


def test_neighbours_stand_a_spacing_away_and_turns_half_way(picture):
    show(picture, FP16, 2049.0)  # half way between 2048 and 2050, a tie that goes to 2048
    assert [place(picture, x) for x in picture._numbers.get_xdata()] == pytest.approx([-0.5, 0, 1])  # 2047 is half as far
    turns = [place(picture, x) for x in picture._turns.get_xdata() if not math.isnan(x)]
    assert turns == pytest.approx([-0.25, -0.25, 0.5, 0.5])
    assert place(picture, picture._wanted.get_xdata()[0]) == pytest.approx(0.5)
    assert [label.get_text().split("\n")[0] for label in picture._labels] == ["2047", "2048", "2050"]
    assert picture._spacing.get_text() == "spacing $2^{1}$"
    assert [place(picture, x) for x in picture._bracket.get_xdata()] == pytest.approx([0, 1])


def test_past_the_largest_number(picture):
    show(picture, FP16, 65520.0)
    assert [label.get_text().split("\n")[0] for label in picture._labels] == ["65504", "inf", "no number"]
    assert place(picture, picture._wanted.get_xdata()[0]) == pytest.approx(-0.5)  # half way from 65504 to 65536
    assert len(picture._numbers.get_xdata()) == 2 and picture._spacing.get_text() == ""
    show(picture, FP16, -1e6)
    assert [label.get_text().split("\n")[0] for label in picture._labels] == ["no number", "-inf", "-65504"]
    assert "further left" in picture._wish.get_text() and place(picture, picture._wanted.get_xdata()[0]) < 0


def test_e4m3_has_no_number_above_its_largest(picture):
    show(picture, FP8_E4M3, 6144.0)
    assert [label.get_text().split("\n")[0] for label in picture._labels] == ["416", "448", "no number"]
    assert "further right" in picture._wish.get_text()
    assert picture._spacing.get_text() == "spacing $2^{5}$"


def test_zero_stands_between_the_smallest_numbers(picture):
    show(picture, FP16, 2.0**-25)
    assert [place(picture, x) for x in picture._numbers.get_xdata()] == pytest.approx([-1, 0, 1])
    assert place(picture, picture._wanted.get_xdata()[0]) == pytest.approx(0.5)


def test_background_is_kept_and_a_way_back_gives_the_same_picture(picture):
    show(picture, BF16, 1.0)
    first, background = picture.png(), picture._background
    show(picture, FP32, 0.1)
    assert picture.png() != first
    show(picture, BF16, 1.0)
    assert picture.png() == first and picture._background is background


def test_float32_neighbours_are_told_apart_in_words():
    numbers = numpy.float32(0.1), numpy.nextafter(numpy.float32(0.1), numpy.float32(1))
    assert short(float(numbers[0])) != short(float(numbers[1]))
