"""The quick checks of all lessons, by name: a lesson shows the question, and the answers are not beside it in the code."""

from __future__ import annotations

from amp_lessons.errors import LessonError
from amp_lessons.tutor.quiz import Answer, Question

_QUESTIONS: dict[str, tuple[str, tuple[Answer, ...]]] = {
    "5-order": (
        "Where does gradient clipping belong in the AMP step?",
        (
            Answer("Between backward() and unscale_()", "There the gradients are still multiplied by the loss scale, so the clip cuts too far."),
            Answer("Between unscale_() and step()", "The gradients have their true size, and have not been used yet.", correct=True),
            Answer("Between step() and update()", "The optimizer has already used the gradients: nothing is clipped in time."),
            Answer("Nowhere: the scaler's skip replaces it", "The skip catches inf and NaN only; clipping limits large but finite gradients."),
        ),
    ),
    "5-accumulation": (
        "You accumulate over 4 micro-batches. How often do you call scaler.update()?",
        (
            Answer("After each micro-batch", "The scale could change in between, and the sum of the parts could not be unscaled by one number."),
            Answer("Once, after the step", "All four parts share one scale, and one step is counted.", correct=True),
            Answer("Never: accumulation keeps the scale", "Without update() the next step() raises an error, and the scale could never adapt."),
        ),
    ),
    "5-resume": (
        "A run is resumed from a checkpoint without the scaler's state. Its scale had settled at 2^8. What happens?",
        (
            Answer("Nothing: the scale is saved with the model", "The model's state_dict knows nothing of the scaler."),
            Answer("It starts at 2^16 and skips steps until the scale fits again", "A new scaler begins with its defaults and an empty growth count.", correct=True),
            Answer("Loading fails", "PyTorch cannot know that something is missing: there is no message."),
        ),
    ),
}


def ask(name: str) -> Question:
    """The question with this name; raises LessonError for a name that does not exist."""
    if name not in _QUESTIONS:
        raise LessonError(f"There is no question {name!r}; the names are {', '.join(_QUESTIONS)}.")
    question, answers = _QUESTIONS[name]
    return Question(question, answers)
