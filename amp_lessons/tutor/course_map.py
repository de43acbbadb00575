"""The map of the course: its lessons, as their notebooks name themselves, and what the learner has solved of each."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from amp_lessons.lab import NOTEBOOKS
from amp_lessons.tutor import exercises, progress, questions
from amp_lessons.tutor.verdict import as_html


@dataclass(frozen=True)
class Lesson:
    """A lesson as its first cell describes it; ``minutes`` is None where it does not say."""

    number: int
    file: str
    title: str
    minutes: int | None
    preview: str

    @property
    def exercises(self) -> tuple[str, ...]:
        """Names of its exercises."""
        return self._own(exercises.names())

    @property
    def checks(self) -> tuple[str, ...]:
        """Names of its quick checks."""
        return self._own(questions.names())

    def _own(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if name.startswith(f"{self.number}-"))


def lessons(folder: Path = NOTEBOOKS) -> list[Lesson]:
    """The lessons in a folder by their number, without the start page (0)."""
    found: dict[int, Path] = {}
    # The shortest name of a number: "02_... -Copy1.ipynb" is somebody's copy.
    for path in sorted(folder.glob("[0-9]*_*.ipynb"), key=lambda path: len(path.name)):
        number = path.name.partition("_")[0]
        if number.isdecimal() and int(number):
            found.setdefault(int(number), path)
    return [_read(number, found[number]) for number in sorted(found)]


def _read(number: int, path: Path) -> Lesson:
    try:
        opening = "".join(json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"])
    except (OSError, ValueError, LookupError, TypeError):  # a notebook that somebody broke: the others are shown all the same
        opening = ""
    title = re.search(r"^# (.+)$", opening, flags=re.M)
    minutes = re.search(r"\babout (\d+) minutes", opening, flags=re.I)
    sees = re.search(r"\*\*What you will do\.\*\*\s+(.+?[.?!])(?:\s|$)", opening, flags=re.S)
    return Lesson(
        number,
        path.name,
        title.group(1).strip() if title else path.stem,
        int(minutes.group(1)) if minutes else None,
        " ".join(sees.group(1).split()) if sees else "",
    )


class CourseMap:
    """The lessons and what is solved of them, as a table with links in a notebook and as text elsewhere.

    ``solved`` is by default what is kept now; run the cell again to see the latest.
    """

    def __init__(self, folder: Path = NOTEBOOKS, solved: Mapping[str, str] | None = None) -> None:
        self.lessons = lessons(folder)
        self.solved = set(progress.solved() if solved is None else solved)

    @property
    def summary(self) -> str:
        """How much is solved, and where to go on, in a sentence or two."""
        total = sum(len(lesson.exercises + lesson.checks) for lesson in self.lessons)
        done = sum(self._done(lesson.exercises + lesson.checks) for lesson in self.lessons)
        unfinished = [lesson for lesson in self.lessons if self._done(names := lesson.exercises + lesson.checks) < len(names)]
        if not unfinished:
            return f"You have solved all {total} exercises and quick checks."
        where = f"Go on with lesson {unfinished[0].number}." if done else f"Begin with lesson {unfinished[0].number}."
        return f"You have solved {done} of {total} exercises and quick checks. {where}"

    def __repr__(self) -> str:
        lines = [self.summary]
        for lesson in self.lessons:
            time = f", {lesson.minutes} min" if lesson.minutes else ""
            lines.append(f"{lesson.number}. {lesson.title}{time}: exercises {self._count(lesson.exercises)}, quick checks {self._count(lesson.checks)}")
            if lesson.preview:
                lines.append(f"   {lesson.preview}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        heads = "".join(f'<th scope="col" style="{_CELL}">{head}</th>' for head in ("", "lesson", "time", "exercises", "quick checks"))
        rows = "".join(map(self._row, self.lessons))
        return f"<p>{self.summary}</p><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"

    def _row(self, lesson: Lesson) -> str:
        name = f'<a href="{lesson.file}"><strong>{as_html(lesson.title)}</strong></a><br>{as_html(lesson.preview)}'
        time = f"{lesson.minutes} min" if lesson.minutes else ""
        counts = self._count(lesson.exercises), self._count(lesson.checks)
        narrow = "".join(f'<td style="{_CELL}; white-space: nowrap">{text}</td>' for text in (time, *counts))
        return f'<tr><th scope="row" style="{_CELL}">{lesson.number}</th><td style="{_CELL}; max-width: 36em">{name}</td>{narrow}</tr>'

    def _count(self, names: tuple[str, ...]) -> str:
        return f"{self._done(names)} of {len(names)}" if names else "none"

    def _done(self, names: tuple[str, ...]) -> int:
        return len(self.solved.intersection(names))


_CELL = "text-align: left; vertical-align: top; padding: 6px 12px"
