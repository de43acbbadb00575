"""The one exception that learners meet: a sentence, not a traceback."""

from __future__ import annotations


class LessonError(Exception):
    """Something a learner or instructor can put right; its text is one clear sentence.

    IPython shows the sentence alone: it asks an exception for ``_render_traceback_`` before it prints the usual
    traceback. Outside a notebook it behaves like any other exception.
    """

    def _render_traceback_(self, *_: object) -> list[str]:
        return [f"{type(self).__name__}: {self}"]
