"""The button that forgets all progress, once its question is answered with yes."""

from __future__ import annotations

import html

import ipywidgets

from amp_lessons.tutor import progress
from amp_lessons.widgets.controls import button, row


class ResetPanel(ipywidgets.VBox):
    """Reset, a question, and two answers; a page without a kernel shows one sentence instead."""

    def __init__(self) -> None:
        self.reset = button("Reset my progress…", "Asks first, then forgets which exercises and quick checks you have solved")
        self.yes = button("Yes, forget it", "Forgets your progress; the old file is kept under another name")
        self.no = button("No, keep it", "Changes nothing")
        self._answers = row(self.no, self.yes)
        self._said = ipywidgets.HTML()
        self.reset.on_click(self._ask)
        self.yes.on_click(lambda _: self._close(f"{progress.reset(sure=True)} Run the map's cell again to see the change."))
        self.no.on_click(lambda _: self._close("Nothing has changed."))
        super().__init__([row(self.reset), self._said, self._answers])
        self._close("")

    def _ask(self, _: object) -> None:
        number = len(progress.solved())
        if not number:
            self._close(progress.reset())
            return
        self._say(f"Forget {progress.amount(number)}? The old file is kept beside the new one.")
        self._answers.layout.display = "flex"
        self.no.focus()  # Enter on the harmless answer

    def _close(self, text: str) -> None:
        self._answers.layout.display = "none"
        self._say(text)

    def _say(self, text: str) -> None:
        self._said.value = f'<div role="status" style="line-height: 1.4; max-width: 760px">{html.escape(text)}</div>'

    def __repr__(self) -> str:
        return "A button that resets your progress, once you are sure; without it: progress.reset(sure=True)"

    def _repr_mimebundle_(self, **kwargs: object) -> dict:
        live = super()._repr_mimebundle_(**kwargs)
        return {**(live[0] if isinstance(live, tuple) else live), "text/plain": repr(self)}
