"""The number line draws the counts that it is given, over fp16's borders."""

import pytest

from amp_lessons.errors import LessonError
from amp_lessons.figures.number_line import number_line

# IEEE 754 binary16: 2^(k+24) subnormals in [2^k, 2^(k+1)), 2^10 normal numbers in each binade.
COUNTS = {k: 2 ** (k + 24) if k < -14 else 1024 for k in range(-24, 16)}


def test_every_binade_has_a_bar_as_high_as_its_count():
    (axes,) = number_line(COUNTS).figure.axes
    boxes = [path.vertices for collection in axes.collections for path in collection.get_paths()]
    assert {int(box[:, 0].min() // 1): box[:, 1].max() for box in boxes} == COUNTS


def test_borders_stand_where_fp16_has_them():
    (axes,) = number_line(COUNTS).figure.axes
    borders = [line.get_xdata()[0] for line in axes.lines]
    assert borders == [-25, -14, 16]  # flushed up to 2^-25, normal from 2^-14, inf a hair under 2^16: from 65,520
    words = " ".join(text.get_text() for text in axes.texts)
    assert "65,520" in words and "$2^{-25}$" in words and "$2^{-14}$" in words


def test_text_names_the_counts_and_borders():
    text = number_line(COUNTS).text
    for fact in ("up to 2^-25 become 0", "1 number from 2^-24", "512 from 2^-15", "1,024 each", "65,504", "65,520"):
        assert fact in text


@pytest.mark.parametrize("counts", [{}, {0: 1024}, {**COUNTS, 16: 1024}, {**COUNTS, -24: 0}])
def test_incomplete_counts_get_a_sentence(counts):
    with pytest.raises(LessonError, match="from -24 to 15"):
        number_line(counts)
