"""The instructor's edition: ``python -m amp_lessons.instructor [folder]``.

Writes the lessons with the solutions filled in, executed and with their outputs, and one page, ``exercises.md``, with every
exercise, its hints, its solution, and the wrong answers that are expected with what each is told.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from amp_lessons.errors import LessonError
from amp_lessons.lab import NOTEBOOKS
from amp_lessons.lessons import store
from amp_lessons.tutor.exercise import Exercise
from amp_lessons.tutor.exercises import exercise, lessons

FOLDER = NOTEBOOKS.parent / "instructor"
_NAME = re.compile(r'^exercise\("([^"]+)"\)\.check\(', re.M)


def lesson_path(number: int) -> Path:
    """The notebook of a lesson; raises LessonError where there is none."""
    found = sorted(NOTEBOOKS.glob(f"{number:02d}_*.ipynb"))
    if not found:
        raise LessonError(f"There is no notebook {number:02d}_….ipynb in {NOTEBOOKS}.")
    return found[0]


def exercise_cells(notebook: NotebookNode) -> Iterator[tuple[Exercise, NotebookNode, NotebookNode]]:
    """Each exercise of a notebook with its prompt's cell and its code cell."""
    for before, cell in zip(notebook.cells, notebook.cells[1:]):
        named = _NAME.search(cell.source) if cell.cell_type == "code" else None
        if named:
            yield exercise(named[1]), before, cell


def solved(notebook: NotebookNode) -> NotebookNode:
    """The notebook, changed: every stub is replaced by the solution."""
    for found, _, cell in exercise_cells(notebook):
        cell.source = found.cell(found.answer)
    return notebook


def page() -> str:
    """All exercises of the course in Markdown: prompt, stub, solution, other right answers, hints, and wrong answers with their verdicts."""
    parts = ["# The exercises of amp_lessons: for instructors"]
    for number in lessons():
        notebook = nbformat.read(lesson_path(number), as_version=4)
        title = next(line for cell in notebook.cells for line in cell.source.splitlines() if line.startswith("# "))
        parts.append(f"## Lesson {number}: {title.removeprefix('# ')}")
        parts += [_entry(found, prompt.source) for found, prompt, _ in exercise_cells(notebook)]
    return "\n\n".join(parts) + "\n"


def _entry(found: Exercise, prompt: str) -> str:
    wrong = [f"**{answer.mistake}**\n\n{_code(answer.source)}\n\n> {_quoted(found, answer.source)}" for answer in found.wrong]
    return "\n\n".join(
        [
            f"{prompt}\n\n`{found.name}`, {found.size}",
            f"#### Stub\n\n{_code(found.stub)}",
            f"#### Solution\n\n{_code(found.answer)}\n\n> {_quoted(found, found.answer)}",
            "#### Right in another way\n\n" + "\n\n".join(map(_code, found.alternatives)),
            "#### Hints\n\n" + "\n".join(f"{n}. *{hint.symptom}.* {hint.text}" for n, hint in enumerate(found.hints, start=1)),
            "#### Wrong answers, and what they are told\n\n" + "\n\n".join(wrong),
        ]
    )


def _code(source: str) -> str:
    return f"```python\n{source.strip()}\n```"


def _quoted(found: Exercise, source: str) -> str:
    verdict = found.check(found.answer_of(source), keep=False)
    return f"{verdict.status.capitalize()}. {verdict.message}".replace("\n", "\n> ")


def main(arguments: Sequence[str]) -> int:
    """Build the edition in the folder named, or in ``instructor``; gives 1 if a notebook does not run."""
    folder = Path(arguments[0]) if arguments else FOLDER
    failed = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number in lessons():
            source = lesson_path(number)
            copy = folder / source.name
            nbformat.write(solved(nbformat.read(source, as_version=4)), copy)
            store(copy)
            print(f"{copy.name}: solutions filled in and run", flush=True)
        (folder / "exercises.md").write_text(page(), encoding="utf-8")
        print(f"{folder / 'exercises.md'}: written")
    except (LessonError, OSError) as error:
        print(error, file=sys.stderr)
        failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
