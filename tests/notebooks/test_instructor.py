"""The instructor's edition: every solution is run in its own cell of its own lesson, and the page has all that it should."""

import os

import nbformat
import pytest

from amp_lessons import instructor
from amp_lessons.lessons import store
from amp_lessons.tutor import progress
from amp_lessons.tutor.exercises import exercise, lessons, names, of_lesson
from tests.notebooks import rules


@pytest.mark.parametrize("lesson", lessons())
def test_the_solutions_run_through_the_same_cells(lesson, tmp_path):
    source = instructor.lesson_path(lesson)
    copy = tmp_path / source.name
    nbformat.write(instructor.solved(nbformat.read(source, as_version=4)), copy)
    store(copy)
    told = {
        found.name: [text for text in rules.compared_texts(cell) if text.startswith("Exercise")]
        for found, _, cell in instructor.exercise_cells(nbformat.read(copy, as_version=4))
    }
    assert told == {found.name: [f"Exercise {found.name}: correct. {found.praise}"] for found in of_lesson(lesson)}


def test_a_solution_that_is_wrong_would_be_seen(tmp_path):
    """The test above can fail: with a wrong answer in the cell, the kernel's verdict is another."""
    found = exercise("5-late")
    cells = [nbformat.v4.new_code_cell(f"{found.setup}\nfrom amp_lessons.tutor.exercises import exercise")]
    cells.append(nbformat.v4.new_code_cell(found.cell(found.wrong[0].source)))
    path = tmp_path / "wrong.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    store(path)
    (text,) = [t for t in rules.compared_texts(nbformat.read(path, as_version=4).cells[1]) if t.startswith("Exercise")]
    assert text.startswith("Exercise 5-late: incorrect.") and found.wrong[0].message in text


def test_the_page_has_every_exercise_and_keeps_no_progress(tmp_path, monkeypatch):
    monkeypatch.setenv(progress.VARIABLE, str(tmp_path / "progress.json"))
    page = instructor.page()
    for name in names():
        found = exercise(name)
        parts = [f"### {found.title}", f"`{name}`", found.stub.strip(), found.answer.strip(), *(source.strip() for source in found.alternatives)]
        parts += [hint.text for hint in found.hints] + [wrong.mistake for wrong in found.wrong]
        assert all(part in page for part in parts), name
    assert not os.path.exists(tmp_path / "progress.json")


def test_main_says_what_it_could_not_do(tmp_path, capsys):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    assert instructor.main([str(in_the_way)]) == 1
    assert "file" in capsys.readouterr().err
