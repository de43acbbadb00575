"""A slider to try the keyboard on, before it matters."""

from __future__ import annotations

import ipywidgets

from amp_lessons.widgets.controls import Stepper


class PracticeSlider(ipywidgets.VBox):
    """A slider for k and a sentence with 2^k; it shows that widgets work here."""

    def __init__(self) -> None:
        self.k = Stepper("k", -24, 24, 10)
        self._said = ipywidgets.HTML()
        super().__init__([self.k, self._said])
        self.k.observe(self._say, names="value")
        self._say()

    @property
    def text(self) -> str:
        """The sentence as it reads now."""
        k = self.k.value
        return f"2^{k} = {2**k:,}" if k >= 0 else f"2^{k} = 1/{2**-k:,}"

    def _say(self, change: object = None) -> None:
        self._said.value = f'<div role="status" style="line-height: 1.4">{self.text}</div>'

    def __repr__(self) -> str:
        return f"A slider for k. {self.text}"

    def _repr_mimebundle_(self, **kwargs: object) -> dict:
        live = super()._repr_mimebundle_(**kwargs)
        return {**(live[0] if isinstance(live, tuple) else live), "text/plain": repr(self)}
