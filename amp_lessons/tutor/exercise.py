"""Exercises: a stub for the learner, and a check that names the mistake."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from amp_lessons.errors import LessonError
from amp_lessons.tutor import progress, settings, sources, verdict
from amp_lessons.tutor.trial import SECONDS, AnswerFailed, TimeIsUp, Trial, Unfinished, time_limit
from amp_lessons.tutor.verdict import Verdict


class Note(str):
    """A text that a notebook shows as it is, with its line breaks."""

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True)
class Hint:
    """Help for a learner who sees ``symptom``: the symptom is the title, ``text`` what to think about."""

    symptom: str
    text: str


@dataclass(frozen=True)
class Wrong:
    """A wrong answer that people really give, as source, and the words that the verdict on it must contain.

    ``by_result``: no call gives the mistake away, so answers are compared with what this one computes; ``message`` is then
    the whole verdict.
    """

    mistake: str
    source: str
    message: str
    by_result: bool = False


@dataclass(frozen=True)
class Exercise:
    """An exercise of a lesson; in the notebook, ``exercise(name).check(answer)``.

    ``target`` is the name that the learner defines: a function or a value. ``stub`` is what the cell holds first, with a spec
    that can be run: doctest lines in the function's docstring, or in comments above a value. ``answer`` is the source of a
    right answer and ``lines`` the size hint. ``examine`` is given the answer
    (a function comes as a ``Trial``) and returns None when it is right, or the mistake in words. ``praise`` says what a right
    answer has shown. ``alternatives`` are right answers written another way and ``wrong`` usual wrong ones: both are tests,
    and instructors can read them. ``setup`` are the imports of the lesson that the answer needs.
    """

    name: str
    title: str
    target: str
    stub: str
    answer: str
    lines: int
    examine: Callable[[Any], str | None]
    praise: str
    hints: tuple[Hint, ...]
    alternatives: tuple[str, ...]
    wrong: tuple[Wrong, ...]
    setup: str = "import torch"

    @property
    def lesson(self) -> int:
        """Number of the lesson that the exercise belongs to."""
        return int(self.name.partition("-")[0])

    @property
    def spec(self) -> str:
        """The doctest lines of the stub: they hold for a right answer."""
        return sources.commented(self.stub) if self.wants_value else (self.answer_of(self.stub).__doc__ or "")

    @property
    def wants_value(self) -> bool:
        """Whether the answer is a value, and not a function."""
        return not any(line.startswith("def ") for line in self.stub.splitlines())

    def cell(self, answer: str | None = None) -> str:
        """Source of the exercise's code cell in the notebook, with the stub or with another answer in it."""
        body = (self.stub if answer is None else answer).strip("\n")
        # Two blank lines after a function, as everywhere in Python.
        gap = "\n" if self.wants_value else "\n\n\n"
        return f'{body}{gap}exercise("{self.name}").check({self.target})'

    def check(self, answer: Any, seconds: float = SECONDS, keep: bool = True) -> Verdict:
        """The verdict on an answer: a value, or the function itself.

        Runs on the CPU with PyTorch's default settings and a fixed seed, leaves all global settings as they were, and ends
        after ``seconds``. A correct answer is kept in the learner's progress, unless ``keep`` is False. Never raises for a wrong
        answer.
        """
        if self._is_stub(answer):
            solved = progress.solved().get(self.name)
            before = f" You solved it on {solved}." if solved else ""
            return Verdict(self, verdict.NOT_ATTEMPTED, f"It takes {self.size}.{before}")
        if not self.wants_value and not callable(answer):
            fitting = f"Give `check` the function itself, `check({self.target})`, not what it returns."
            return Verdict(self, verdict.INCORRECT, fitting)
        if self.wants_value and isinstance(answer, FunctionType):
            return Verdict(self, verdict.INCORRECT, f"`{self.target}` is a function here; this exercise asks for a value.")
        trial = answer if self.wants_value else Trial(answer)
        try:
            with settings.kept(), time_limit(seconds):
                mistake = self.examine(trial)
        except AnswerFailed as failure:
            return Verdict(self, verdict.COULD_NOT_RUN, failure.explained())
        except Unfinished:
            return Verdict(self, verdict.NOT_ATTEMPTED, f"There is still a `...` in it. It takes {self.size}.")
        except TimeIsUp:
            stopped = f"It was stopped after {seconds:g} seconds. Is there a loop that does not end?"
            return Verdict(self, verdict.COULD_NOT_RUN, stopped)
        except Exception as error:  # noqa: BLE001 - an answer of an unforeseen kind; the kernel must not see a traceback
            what = f"{type(error).__name__}: {error}"
            return Verdict(self, verdict.COULD_NOT_RUN, f"The check could not use what your answer gave it ({what}).")
        if mistake is not None:
            return Verdict(self, verdict.INCORRECT, mistake)
        return Verdict(self, verdict.CORRECT, self.praise, (progress.record(self.name) if keep else None) or "")

    def hint(self, number: int | None = None) -> Note:
        """The hints' titles, each a symptom; with a number from 1, that hint. Raises LessonError for another number."""
        if number is None:
            titles = [f"{n}. {hint.symptom}" for n, hint in enumerate(self.hints, start=1)]
            return Note("\n".join([f'Which of these is yours? exercise("{self.name}").hint(1) opens the first.', *titles]))
        if number not in range(1, len(self.hints) + 1):
            raise LessonError(f"There is no hint {number!r}; this exercise has hints 1 to {len(self.hints)}.")
        hint = self.hints[number - 1]
        return Note(f"{hint.symptom}: {hint.text}")

    def solution(self) -> Note:
        """One right answer, as source."""
        return Note(self.answer.strip())

    @property
    def size(self) -> str:
        """The size hint in words."""
        return f"about {self.lines} line{'' if self.lines == 1 else 's'}"

    def known_mistakes(self) -> dict[str, Callable]:
        """The wrong answers that only their result gives away: what to tell about them, and the functions."""
        return {wrong.message: self.answer_of(wrong.source) for wrong in self.wrong if wrong.by_result}

    def _is_stub(self, answer: Any) -> bool:
        if not self.wants_value:
            return isinstance(answer, FunctionType) and sources.same_code(answer, self.answer_of(self.stub))
        parts = answer.values() if isinstance(answer, dict) else answer if isinstance(answer, (tuple, list)) else [answer]
        return any(part is ... for part in parts)

    def answer_of(self, source: str) -> Any:
        """What a cell with this source defines as the answer."""
        # A name of its own, since a traceback looks the lines up by it.
        return sources.run(source, f"<{self.name} {hash(source):x}>", self.setup)[self.target]
