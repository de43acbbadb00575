"""A figure as people get it: a PNG with a text twin, drawn once or kept and updated."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

import numpy
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from amp_lessons.figures.style import styled


class Picture:
    """A figure and the text that says what it shows.

    As the last value of a cell it appears as a picture with ``text`` as its alternative text. Where ``text`` has measured
    numbers in it, ``caption`` says the same without them: it is the cell's plain text, which is compared between machines.
    Artists in ``moving`` are drawn over a kept background, so that ``png`` after a change to them is many times quicker
    than a new figure.
    """

    def __init__(self, figure: Figure, text: str, moving: Sequence[Artist] = (), caption: str | None = None) -> None:
        self.figure = figure
        self.text = text
        self.caption = caption
        self._moving = list(moving)
        self._canvas = FigureCanvasAgg(figure)
        self._background = None
        for artist in self._moving:
            artist.set_animated(True)  # leaves them out of the background

    def png(self) -> bytes:
        """The figure as it is now."""
        if self._background is None:
            self.forget_background()
        self._canvas.restore_region(self._background)
        with styled():
            for artist in self._moving:
                self.figure.draw_artist(artist)
        return _encode(numpy.asarray(self._canvas.buffer_rgba()))

    def forget_background(self) -> None:
        """Draw everything that does not move anew; call it after a change to axes, ticks or labels."""
        with styled():
            self._canvas.draw()
        self._background = self._canvas.copy_from_bbox(self.figure.bbox)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> tuple[dict, dict]:
        data = {"image/png": base64.b64encode(self.png()).decode("ascii"), "text/plain": repr(self)}
        return data, {"image/png": {"alt": self.text}}

    def __repr__(self) -> str:
        return self.caption or self.text


def _encode(pixels: numpy.ndarray) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    # Level 1: drawing must keep up with a slider, and the picture goes no further than the browser.
    Image.fromarray(pixels[..., :3]).save(buffer, "png", compress_level=1)
    return buffer.getvalue()
