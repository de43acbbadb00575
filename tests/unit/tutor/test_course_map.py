"""The map of the course: what the notebooks say of themselves, and what is solved."""

import re

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from amp_lessons.lab import NOTEBOOKS
from amp_lessons.tutor import course_map, exercises, progress, questions
from amp_lessons.tutor.course_map import CourseMap, lessons

OPENING = "# When <b> & c\n\n**What you will do.** Call `step` by hand,\nand see. Then more.\n\n**How long.** About 12 minutes, or so."


@pytest.fixture
def folder(tmp_path):
    """Two lessons, a copy of one of them, a broken notebook and the start page."""

    def write(name, *cells):
        nbformat.write(new_notebook(cells=list(cells)), tmp_path / name)

    write("00_start_here.ipynb", new_markdown_cell("# Start here"))
    write("02_small.ipynb", new_markdown_cell(OPENING))
    write("02_small-Copy1.ipynb", new_markdown_cell("# A copy"))
    write("10_plain.ipynb", new_code_cell("x"))
    (tmp_path / "03_broken.ipynb").write_text("{")
    (tmp_path / "1st.ipynb").write_text("{}")
    return tmp_path


def test_every_lesson_of_the_course_has_title_minutes_and_preview():
    found = lessons()
    names = sorted(path.name for path in NOTEBOOKS.glob("[0-9]*.ipynb"))[1:]
    assert [lesson.file for lesson in found] == names
    for lesson in found:
        opening = nbformat.read(NOTEBOOKS / lesson.file, as_version=4).cells[0].source
        assert opening.startswith(f"# {lesson.title}\n") and f"bout {lesson.minutes} minutes" in opening
        assert lesson.preview.endswith(".") and lesson.preview.split()[0] in opening
    assert {name for lesson in found for name in lesson.exercises} == set(exercises.names())
    assert {name for lesson in found for name in lesson.checks} == set(questions.names())


def test_odd_notebooks_do_not_spoil_the_map(folder):
    two, three, ten = lessons(folder)
    assert (two.number, two.file, two.title, two.minutes, two.preview) == (
        2, "02_small.ipynb", "When <b> & c", 12, "Call `step` by hand, and see.",
    )  # fmt: skip
    assert (three.title, three.minutes, three.preview) == ("03_broken", None, "")
    assert (ten.number, ten.title) == (10, "10_plain")
    assert "10-" not in str(lessons()[0].checks)


def test_text_and_table_say_the_same(folder):
    solved = {"2-floor": "2026-01-01", "2-zeros": "", "9-nothing": ""}
    shown = CourseMap(folder, solved)
    total = sum(name.startswith(("2-", "3-")) for name in (*exercises.names(), *questions.names()))
    assert shown.summary == f"You have solved 2 of {total} exercises and quick checks. Go on with lesson 2."
    assert "2. When <b> & c, 12 min: " in repr(shown) and "quick checks 2 of 3" in repr(shown)
    table = shown._repr_html_()
    assert shown.summary in table and "<strong>When &lt;b&gt; &amp; c</strong>" in table and ">2 of 3</td>" in table
    assert re.findall(r'href="([^"]+)"', table) == [lesson.file for lesson in shown.lessons]
    # A screen reader names the column and the lesson of each number.
    assert table.count('scope="col"') == 5 and table.count('scope="row"') == 3


def test_summary_at_the_start_between_and_at_the_end():
    everything = dict.fromkeys((*exercises.names(), *questions.names()), "2026-01-01")
    assert CourseMap(solved={}).summary.endswith(f"0 of {len(everything)} exercises and quick checks. Begin with lesson 1.")
    first = {name: day for name, day in everything.items() if name.startswith("1-")}
    assert CourseMap(solved=first).summary.endswith("Go on with lesson 2.")
    assert CourseMap(solved=everything).summary == f"You have solved all {len(everything)} exercises and quick checks."


def test_solved_is_what_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv(progress.VARIABLE, str(tmp_path / "progress.json"))
    progress.record("1-bf16")
    assert "You have solved 1 of " in CourseMap().summary
    monkeypatch.setenv(progress.VARIABLE, "off")
    assert "You have solved 0 of " in course_map.CourseMap().summary
