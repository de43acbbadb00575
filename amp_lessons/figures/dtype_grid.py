"""Ops as rows and devices as columns: the dtype that comes out of each, in words and in colour."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.collections import PolyCollection
from matplotlib.text import Text

from amp_lessons.errors import LessonError
from amp_lessons.figures.picture import Picture
from amp_lessons.figures.style import FATE_COLOURS, INK, new_figure

ROWS = 7  # as many as the largest family of ops has
HEADS = ("op", "dtypes in", "CPU", "CUDA", "")
_LEFT = (0.0, 3.2, 5.6, 7.3, 9.0)  # where each column starts
_WIDTH = 1.6
# The words in the cells say the same; colour only makes the pattern quick to see.
_COLOURS = {
    "float32": "#a9cfe8", "float64": "#d9d9d9", "float16": "#f6cf8a", "bfloat16": "#f6cf8a",
    "error": FATE_COLOURS["overflow"],
}  # fmt: skip
_OTHER = "#ffffff"


class DtypeGrid(Picture):
    """A grid of at most seven ops; ``show`` fills it with other rows without drawing a new figure."""

    def __init__(self) -> None:
        figure, axes = new_figure(7.6, 0.42 * (ROWS + 1) + 0.1)
        axes.set(xlim=(0, 10.2), ylim=(ROWS + 0.1, -1.0))
        axes.set_axis_off()
        for left, head in zip(_LEFT, HEADS):
            axes.text(left, -0.5, head, va="center", fontweight="bold")
        self._cells = PolyCollection([], edgecolors=INK, linewidths=0.6)
        self._texts = [[Text(left + 0.1 * (2 <= k <= 3), row + 0.5, "", va="center", color=INK, fontsize=9.5)
                        for k, left in enumerate(_LEFT)] for row in range(ROWS)]  # fmt: skip
        moving = [self._cells, *(text for row in self._texts for text in row)]
        for artist in moving:
            axes.add_artist(artist)
        super().__init__(figure, "", moving)

    def show(self, rows: Sequence[tuple[str, str, str, str, str]]) -> None:
        """Fill the grid with rows of text: op, dtypes in, what the CPU gives, what CUDA gives, whether they differ.

        Raises LessonError for more rows than the grid has.
        """
        if len(rows) > ROWS:
            raise LessonError(f"The grid has room for {ROWS} ops, not for {len(rows)}.")
        boxes, colours = [], []
        for row in range(ROWS):
            cells = rows[row] if row < len(rows) else ("",) * len(HEADS)
            for k, (text, cell) in enumerate(zip(self._texts[row], cells)):
                text.set_text(cell)
                text.set_fontweight("bold" if cell in ("differ", "error") or (k in (2, 3) and "32" in cell) else "normal")
                if k in (2, 3) and cell:
                    left, top, bottom = _LEFT[k], row + 0.1, row + 0.9
                    boxes.append([(left, top), (left, bottom), (left + _WIDTH, bottom), (left + _WIDTH, top)])
                    colours.append(_COLOURS.get(cell, _OTHER))
        self._cells.set_verts(boxes)
        self._cells.set_facecolor(colours)
