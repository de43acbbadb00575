"""The exercises in the notebooks are those of the package, untouched, and in their order."""

import nbformat
import pytest

from amp_lessons.lab import NOTEBOOKS
from amp_lessons.tutor.exercises import lessons, of_lesson
from tests.notebooks import rules


def notebook_of(lesson):
    (path,) = NOTEBOOKS.glob(f"{lesson:02d}_*.ipynb")
    return nbformat.read(path, as_version=4)


@pytest.mark.parametrize("lesson", lessons())
def test_the_cells_hold_the_stubs(lesson):
    cells = [cell.source for cell in rules.code_cells(notebook_of(lesson)) if "exercise" in rules.tags(cell)]
    assert cells == [found.cell() for found in of_lesson(lesson)]


@pytest.mark.parametrize("lesson", lessons())
def test_each_has_a_prompt_with_its_title(lesson):
    titles = [title for level, title in rules.headings(notebook_of(lesson)) if level == 3]
    assert [found.title for found in of_lesson(lesson)] == titles[-len(of_lesson(lesson)) :]


@pytest.mark.parametrize("lesson", lessons())
def test_what_is_stored_says_not_attempted(lesson):
    for cell in rules.code_cells(notebook_of(lesson)):
        if "exercise" in rules.tags(cell):
            (text,) = [text for text in rules.compared_texts(cell) if text.startswith("Exercise")]
            assert "not attempted. It takes about" in text and "You solved it" not in text
