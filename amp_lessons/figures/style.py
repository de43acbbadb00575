"""The look that all figures share: colours by recipe and by fate, fonts, and one way to open a figure.

The palette is Okabe and Ito's, chosen to be told apart with the common colour-vision deficiencies (Wong 2011, Nature
Methods 8:441). Every colour comes with a second mark, a hatch or a line style, so that no fact rests on colour alone.
On the ground, lines and outlines have a contrast of at least 3, words of at least 4.5 (WCAG 2.2, 1.4.11 and 1.4.3).
Figures have an opaque light ground: they read the same in a light and a dark JupyterLab theme.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import matplotlib
import numpy
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK = "#1f1f1f"
FAINT = "#707070"
GROUND = "#fbfbf8"

RECIPE_COLOURS = {"fp32": INK, "fp16": "#d55e00", "amp": "#0072b2", "bf16": "#009e73", "tf32": "#c96fa2"}
# Darker, for words in a recipe's colour.
RECIPE_INKS = {"fp32": INK, "fp16": "#b85000", "amp": "#0072b2", "bf16": "#007a57", "tf32": "#ac5285"}
RECIPE_LINES = {
    "fp32": "-",
    "fp16": (0, (1, 1.2)),
    "amp": (0, (5, 1.5)),
    "bf16": (0, (4, 1.5, 1, 1.5)),
    "tf32": (0, (3, 1, 1, 1, 1, 1)),
}

FATE_COLOURS = {
    "zero": "#b5b5b5",
    "flushed": "#d55e00",
    "subnormal": "#e69f00",
    "normal": "#0072b2",
    "overflow": "#cc79a7",
    "non-finite": INK,
}
# For lines and words: the fills above stand inside a dark outline, where they may be lighter.
FATE_LINES = {**FATE_COLOURS, "zero": FAINT, "subnormal": "#a87400", "overflow": "#c96fa2"}
FATE_INKS = {**FATE_LINES, "flushed": "#b85000", "subnormal": "#8a5f00", "overflow": "#ac5285"}
FATE_HATCHES = {"zero": "", "flushed": "////", "subnormal": "..", "normal": "", "overflow": "xxxx", "non-finite": "++"}

_SETTINGS = {
    "figure.facecolor": GROUND,
    "axes.facecolor": GROUND,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same figure everywhere
    "font.size": 10,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


_one_thread = threading.RLock()


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """A context in which matplotlib's settings are the course's; the learner's own settings stay as they are.

    One thread at a time is in it. JupyterLab (since 4.4, with ipykernel 7) lets a slider's message be handled in another
    thread than a cell or live training, and neither matplotlib's settings nor its layout of mathematics bear that.
    """
    with _one_thread, matplotlib.rc_context(_SETTINGS):
        yield


def new_figure(width: float = 7.6, height: float = 3.2, **grid: Any) -> tuple[Figure, Axes | numpy.ndarray]:
    """A figure of ``width`` by ``height`` inches at 100 dots an inch, and its axes; ``grid`` goes to ``subplots``.

    It does not pass through pyplot, so it is never shown or kept behind one's back.
    """
    with styled():
        figure = Figure(figsize=(width, height), dpi=100, layout="constrained")
        return figure, figure.subplots(**grid)


def power_of_two(exponent: float) -> str:
    """A power of two for an axis or a label, as mathematics: 2^16 with a raised 16."""
    return f"$2^{{{exponent:g}}}$"
