"""A verdict in a notebook: what the check says, and buttons that open hints and the solution."""

from __future__ import annotations

import html

import ipywidgets

from amp_lessons.tutor.verdict import Verdict, as_html
from amp_lessons.widgets.controls import button, row


class Panel(ipywidgets.VBox):
    """The live form of a verdict; its stored form, without buttons, has the hints folded."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        exercise = verdict.exercise
        self.hints = [
            button(f"Hint: {hint.symptom}", f"Opens hint {n} of {len(exercise.hints)}") for n, hint in enumerate(exercise.hints, 1)
        ]
        for control, hint in zip(self.hints, exercise.hints):
            control.on_click(lambda _, hint=hint: self._open(f"<p><strong>{as_html(hint.symptom)}</strong> {as_html(hint.text)}</p>"))
        self.solution = button("Show a solution", "Opens one right answer")
        self.solution.on_click(lambda _: self._open(f"<pre>{html.escape(exercise.solution())}</pre>"))
        self._opened = ipywidgets.HTML()
        super().__init__([ipywidgets.HTML(verdict.to_html()), row(*self.hints, self.solution), self._opened])

    def _open(self, text: str) -> None:
        self._opened.value = f'<div role="status" style="line-height: 1.4; max-width: 760px">{text}</div>'

    def bundle(self, **kwargs: object) -> dict:
        """The panel as a mime bundle: the live widget, HTML with folded hints for pages without a kernel, and plain text."""
        live = super()._repr_mimebundle_(**kwargs)
        data = dict(live[0] if isinstance(live, tuple) else live)
        folded = [
            f"<details><summary>Hint: {as_html(hint.symptom)}</summary><p>{as_html(hint.text)}</p></details>"
            for hint in self.verdict.exercise.hints
        ]
        data["text/html"] = self.verdict.to_html() + "".join(folded)
        data["text/plain"] = str(self.verdict)
        return data
