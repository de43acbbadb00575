"""The base of every explorer: controls, a kept picture, and the text twin that says what the picture shows."""

from __future__ import annotations

import html
from collections.abc import Sequence

import ipywidgets

from amp_lessons.figures.picture import Picture


class Explorer(ipywidgets.VBox):
    """Controls above, a picture in the middle, its text twin below.

    A subclass builds its controls and its ``Picture``, hands both to ``__init__`` and says in ``redraw`` what a change of
    the controls means: update the moving artists, and return the new text. Whatever goes wrong in there is shown in the
    twin; the controls stay alive.
    """

    def __init__(self, controls: Sequence[ipywidgets.Widget], picture: Picture) -> None:
        self.picture = picture
        self._image = ipywidgets.Image(format="png", layout={"max_width": "100%", "object_fit": "contain"})
        self._twin = ipywidgets.HTML()
        super().__init__([*controls, self._image, self._twin])
        self.refresh()
        for control in controls:
            for source in inputs_of(control):
                source.observe(self.refresh, names="value")

    def redraw(self) -> str:
        """Update the picture's moving artists from the controls; return the text twin."""
        raise NotImplementedError

    @property
    def text(self) -> str:
        """What the picture shows now, in words."""
        return self.picture.text

    def refresh(self, change: object = None) -> None:
        """Redraw the picture and its twin from the controls."""
        try:
            self.picture.text = self.redraw()
            self._image.value = self.picture.png()
            self._say(self.picture.text)
        except Exception as error:  # noqa: BLE001 - a callback's exception would otherwise be lost in the log
            self._say(f"{type(error).__name__}: {error}", alert=True)

    def _say(self, text: str, alert: bool = False) -> None:
        # The role makes a screen reader speak the new text once the slider rests.
        role = "alert" if alert else "status"
        lines = "<br>".join(html.escape(line) for line in text.splitlines())
        self._twin.value = f'<div role="{role}" style="line-height: 1.4; max-width: 760px">{lines}</div>'

    def _repr_mimebundle_(self, **kwargs: object) -> tuple[dict, dict]:
        bundle = super()._repr_mimebundle_(**kwargs)
        live = bundle[0] if isinstance(bundle, tuple) else bundle
        stored, metadata = self.picture._repr_mimebundle_()
        return {**live, **stored}, metadata

    def __repr__(self) -> str:
        return repr(self.picture)


def inputs_of(control: ipywidgets.Widget) -> list[ipywidgets.Widget]:
    """The parts of a control that carry a value; a row of controls has none itself, but its children have."""
    if control.has_trait("value"):
        return [control]
    return [source for child in getattr(control, "children", ()) for source in inputs_of(child)]
