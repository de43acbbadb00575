"""The exercises of all lessons, by name: one module an exercise, one package a lesson."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from amp_lessons.errors import LessonError
from amp_lessons.tutor.exercise import Exercise


def exercise(name: str) -> Exercise:
    """The exercise with this name, such as "5-step"; raises LessonError for one that is not there."""
    lesson = name.partition("-")[0]
    known = {found.name: found for found in of_lesson(int(lesson))} if lesson.isdecimal() else {}
    if name not in known:
        near = known or {found: None for found in names()}
        raise LessonError(f"There is no exercise {name!r}; there are {', '.join(near)}.")
    return known[name]


def names() -> tuple[str, ...]:
    """The names of all exercises, in the order of the course."""
    return tuple(found.name for lesson in lessons() for found in of_lesson(lesson))


def lessons() -> list[int]:
    """The numbers of the lessons that have exercises."""
    return sorted(int(module.name.removeprefix("lesson_")) for module in iter_modules(__path__))


@cache
def of_lesson(number: int) -> tuple[Exercise, ...]:
    """The exercises of a lesson in their order; none for a lesson without any."""
    return import_module(f"{__name__}.lesson_{number}").EXERCISES if number in lessons() else ()
