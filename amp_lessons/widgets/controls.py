"""Controls that work by mouse and by keyboard in every front end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ipywidgets
from traitlets import Int

_WIDE = {"description_width": "initial"}


class Stepper(ipywidgets.HBox):
    """A whole number on a slider with a number box beside it; ``value`` is an int.

    The box is there for the keyboard: Notebook 7 takes the arrow keys away from a focused slider, but not from a box.
    """

    value = Int()

    def __init__(self, label: str, low: int, high: int, value: int, step: int = 1, unit: str = "") -> None:
        self.slider = ipywidgets.IntSlider(
            value=value, min=low, max=high, step=step, description=label, style=_WIDE, readout=False,
            layout={"width": "26em", "max_width": "70%"},
        )  # fmt: skip
        self.box = ipywidgets.BoundedIntText(
            value=value, min=low, max=high, step=step, layout={"width": "6em"}, tooltip=f"{label}, as a number"
        )
        self.value = value
        super().__init__([self.slider, self.box, ipywidgets.Label(unit)])
        ipywidgets.link((self.slider, "value"), (self, "value"))
        ipywidgets.link((self.box, "value"), (self, "value"))


def choice(label: str, options: Sequence[tuple[str, Any]], value: Any) -> ipywidgets.ToggleButtons:
    """A row of buttons of which one is pressed; Tab reaches them and Space presses."""
    return ipywidgets.ToggleButtons(
        options=list(options), value=value, description=label, style={**_WIDE, "button_width": "auto"},
        layout={"margin": "2px 1.5em 2px 2px", "display": "flex", "flex_flow": "row wrap", "align_items": "center"},
    )  # fmt: skip


def button(label: str, hint: str) -> ipywidgets.Button:
    """A push button whose hint is read out by a screen reader."""
    return ipywidgets.Button(description=label, tooltip=hint, layout={"width": "auto"})


def row(*controls: ipywidgets.Widget) -> ipywidgets.HBox:
    """Controls side by side; they wrap in a narrow window."""
    return ipywidgets.HBox(list(controls), layout={"flex_flow": "row wrap", "align_items": "center"})
