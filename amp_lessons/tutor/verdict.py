"""Verdicts: what a check says about an answer, as a word and a sentence."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amp_lessons.tutor.exercise import Exercise

NOT_ATTEMPTED = "not attempted"
CORRECT = "correct"
INCORRECT = "incorrect"
COULD_NOT_RUN = "could not run"
STATUSES = (NOT_ATTEMPTED, CORRECT, INCORRECT, COULD_NOT_RUN)


@dataclass(frozen=True)
class Verdict:
    """The result of a check: one of ``STATUSES`` and a message; ``note`` is for whatever is not about the answer."""

    exercise: Exercise
    status: str
    message: str
    note: str = ""

    @property
    def correct(self) -> bool:
        """Whether the answer was right."""
        return self.status == CORRECT

    def __str__(self) -> str:
        text = f"Exercise {self.exercise.name}: {self.status}. {self.message}"
        return f"{text}\n{self.note}" if self.note else text

    __repr__ = __str__

    def to_html(self) -> str:
        """The verdict as HTML; its status is a word, so that nothing rests on a colour, and is read out when it changes."""
        head = f"<strong>Exercise {self.exercise.name}: {self.status}.</strong> "
        paragraphs = [head + as_html(self.message), as_html(self.note)]
        body = "".join(f'<p style="margin: 4px 0">{text}</p>' for text in paragraphs if text)
        return f'<div role="status" style="line-height: 1.4; max-width: 760px">{body}</div>'

    def _repr_mimebundle_(self, **kwargs: object) -> dict:
        from amp_lessons.tutor.panel import Panel  # ipywidgets, only when shown in a notebook

        return Panel(self).bundle(**kwargs)


def as_html(text: str) -> str:
    """Plain text as HTML: lines kept, and what stands between backticks set as code."""
    pieces = html.escape(text).split("`")
    code = 'code style="white-space: pre-wrap"'
    if len(pieces) % 2 == 0:  # a backtick without its partner stays what it is
        pieces[-2:] = ["`".join(pieces[-2:])]
    marked = "".join(f"<{code}>{piece}</code>" if index % 2 else piece for index, piece in enumerate(pieces))
    return marked.replace("\n", "<br>")
