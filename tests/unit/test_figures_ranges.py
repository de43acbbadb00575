"""The range picture draws each format's published limits."""

import pytest

from amp_lessons.errors import LessonError
from amp_lessons.figures.ranges import format_ranges
from amp_lessons.formats import FORMATS, FP16

# Exponents of the smallest number and the smallest normal one, the largest number, significant bits (IEEE 754-2008;
# arXiv:1905.12322; arXiv:2209.05433, table 1).
PUBLISHED = [
    (-149, -126, 2.0**128, 24),
    (-24, -14, 65504, 11),
    (-133, -126, 2.0**128, 8),
    (-9, -6, 448, 4),
    (-16, -14, 57344, 3),
]


def test_bars_reach_from_limit_to_limit():
    range_axes, bits_axes = format_ranges(FORMATS).figure.axes
    bars = range_axes.patches
    assert len(bars) == 2 * len(FORMATS) and len(bits_axes.patches) == len(FORMATS)
    for row, (low, normal, high, bits) in enumerate(PUBLISHED):
        subnormal_bar, normal_bar = bars[2 * row : 2 * row + 2]
        assert (subnormal_bar.get_x(), subnormal_bar.get_x() + subnormal_bar.get_width()) == (low, normal)
        assert normal_bar.get_x() == normal
        assert 2 ** (normal_bar.get_x() + normal_bar.get_width()) == pytest.approx(high, rel=0.01)
        assert bits_axes.patches[row].get_width() == bits
        assert subnormal_bar.get_hatch() != normal_bar.get_hatch()  # told apart without colour


def test_numbers_stand_beside_the_bars():
    range_axes, bits_axes = format_ranges(FORMATS).figure.axes
    words = [text.get_text() for text in range_axes.texts]
    for fact in ("$2^{-24}$", "65,504", "3.40e+38", "3.39e+38", "448", "57,344"):
        assert fact in words
    assert [text.get_text() for text in bits_axes.texts] == ["24", "11", "8", "4", "3"]


def test_twin_says_the_same():
    text = format_ranges([FP16]).text
    assert text == ("FP16 (16 bits) has 11 significant bits from 2^-14 up to 65,504, and fewer from there down to 2^-24.")


def test_no_format_gets_a_sentence():
    with pytest.raises(LessonError, match="at least one format"):
        format_ranges([])
