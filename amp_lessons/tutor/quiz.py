"""Quick checks: a question, a few answers, and feedback for each of them."""

from __future__ import annotations

import html
import string
from collections.abc import Sequence
from dataclasses import dataclass

import ipywidgets

from amp_lessons.errors import LessonError
from amp_lessons.tutor import progress

_WRAPPING = "amp-lessons-answer"
# A button cuts a long label off; an answer must be read whole, in a narrow window too.
_STYLE = f"<style>.{_WRAPPING} {{ white-space: normal; text-align: left; line-height: 1.4; padding: 6px 10px; }}</style>"


@dataclass(frozen=True)
class Answer:
    """One answer to a question and what to tell whoever chose it."""

    text: str
    feedback: str
    correct: bool = False


class Question(ipywidgets.VBox):
    """A question with one correct answer: buttons in a notebook, ``answer("B")`` anywhere else.

    Under a ``name`` a correct answer is kept in the learner's progress. Raises LessonError unless exactly one answer is correct and every answer has feedback.
    """

    def __init__(self, question: str, answers: Sequence[Answer], name: str | None = None) -> None:
        if sum(answer.correct for answer in answers) != 1 or not all(answer.feedback for answer in answers):
            raise LessonError("A question needs exactly one correct answer, and feedback for every answer.")
        self.name = name
        self.question = question
        self.answers = dict(zip(string.ascii_uppercase, answers))
        self.buttons = []
        for letter, answer in self.answers.items():
            button = ipywidgets.Button(
                description=f"{letter}. {answer.text}", layout={"width": "100%", "height": "auto", "min_height": "32px"}
            )
            button.add_class(_WRAPPING)
            button.on_click(lambda _, letter=letter: self.answer(letter))
            self.buttons.append(button)
        solved = progress.solved().get(name) if name else None
        self._feedback = ipywidgets.HTML(_status(f"Answered correctly on {solved}." if solved else ""))
        prompt = ipywidgets.HTML(f"{_STYLE}<p><strong>{html.escape(question)}</strong></p>")
        super().__init__([prompt, *self.buttons, self._feedback], layout={"max_width": "760px"})

    def answer(self, letter: str) -> str:
        """The verdict and the feedback for an answer given by its letter; raises LessonError for another letter."""
        chosen = self.answers.get(str(letter).strip().upper())
        if chosen is None:
            raise LessonError(f"There is no answer {letter!r}; choose one of {', '.join(self.answers)}.")
        verdict = "Correct." if chosen.correct else "Not quite."
        # Whatever went wrong with saving is no part of the feedback: a line of its own.
        trouble = progress.record(self.name) if chosen.correct and self.name else None
        said = f"<strong>{verdict}</strong> {html.escape(chosen.feedback)}"
        self._feedback.value = _status(f"{said}<br>{html.escape(trouble)}" if trouble else said)
        return " ".join(filter(None, [verdict, chosen.feedback, trouble]))

    def __repr__(self) -> str:
        options = [f"  {letter}. {answer.text}" for letter, answer in self.answers.items()]
        return "\n".join([self.question, *options])

    def _repr_mimebundle_(self, **kwargs: object) -> dict:
        bundle = super()._repr_mimebundle_(**kwargs)
        data = dict(bundle[0] if isinstance(bundle, tuple) else bundle)
        # What GitHub and print show, where there are no buttons: each answer unfolds its feedback.
        folded = [
            f"<details><summary>{letter}. {html.escape(answer.text)}</summary><p>"
            f"<strong>{'Correct.' if answer.correct else 'Not quite.'}</strong> {html.escape(answer.feedback)}</p></details>"
            for letter, answer in self.answers.items()
        ]
        data["text/html"] = f"<p><strong>{html.escape(self.question)}</strong></p>" + "".join(folded)
        data["text/plain"] = repr(self)
        return data


def _status(text: str) -> str:
    """A text that a screen reader speaks when it changes."""
    return f'<div role="status" style="line-height: 1.4">{text}</div>'
