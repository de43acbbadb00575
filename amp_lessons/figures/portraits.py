"""Four portraits side by side, one a recipe, and the photograph that they learn: the course's signature picture."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy
from matplotlib.image import AxesImage
from matplotlib.text import Text

from amp_lessons.figures.picture import Picture
from amp_lessons.figures.png import PngBands
from amp_lessons.figures.style import GROUND, INK, RECIPE_COLOURS, new_figure, styled
from amp_lessons.recipes import RECIPES, scale_text
from amp_lessons.training import TrainingRun

# Two short lines a recipe: the long labels of the recipes would run into each other.
NAMES = {"fp32": ("FP32", ""), "fp16": ("fp16", "no scaler"), "amp": ("AMP", "fp16 + GradScaler"), "bf16": ("BF16", "")}
CAPTION = (
    "The photograph, and beside it what FP32, fp16 without a scaler, AMP and BF16 have learned of it, with PSNR, loss, share "
    "of zero gradients and loss scale under each."
)


# In pixels, so that pictures begin and end with a whole one and ``update`` can put them there; rows count from the top.
_WIDTH, _HEIGHT = 860, 315
_LEFT, _TOP, _SIDE, _PITCH = 4, 50, 168, 171
_LINE = 18
_LINES = [_TOP + _SIDE + 7 + number * _LINE for number in range(4)]
_GROUND = [int(GROUND[at : at + 2], 16) for at in (1, 3, 5)]
_BLANK = 191  # the grey of what is not there: no run, or NaN


class Portraits(Picture):
    """The photograph and, for each recipe, its picture with PSNR, loss, zero gradients and loss scale below.

    ``target`` is [rows, columns, 3] in [0, 1]; ``show`` brings the pictures up to date with training runs and leaves in
    ``psnr`` what each recipe has reached, in dB. ``update`` does the same for one run, many times quicker.
    """

    def __init__(self, target: numpy.ndarray, caption: str = CAPTION) -> None:
        figure, axes = new_figure(_WIDTH / 100, _HEIGHT / 100, ncols=1 + len(RECIPES))
        # By hand: the automatic layout does not make room for the texts under the pictures.
        for number, place in enumerate(axes):
            left = _LEFT + number * _PITCH
            place.set_position([left / _WIDTH, 1 - (_TOP + _SIDE) / _HEIGHT, _SIDE / _WIDTH, _SIDE / _HEIGHT])
        for place in axes:
            place.set_xticks([])
            place.set_yticks([])
            for spine in place.spines.values():
                spine.set_visible(False)
        # Its pixels as they are, since they and no others are what the networks learn.
        axes[0].imshow(_bytes(target), interpolation="nearest")
        axes[0].set_title("photograph", loc="center", fontsize=10)
        self.psnr: dict[str, float] = {}
        self._sentences: dict[str, str] = {}
        self._blank = numpy.full(target.shape, _BLANK, numpy.uint8)
        self._images: dict[str, AxesImage] = {}
        self._texts: dict[str, list[Text]] = {}
        style = {"fontsize": 9.5, "color": INK}
        for place, recipe in zip(axes[1:], RECIPES):
            colour = RECIPE_COLOURS[recipe.name]
            name, more = NAMES[recipe.name]
            place.set_title(f"{name}\n{more}" if more else name, loc="center", fontsize=10, color=colour, fontweight="bold")
            self._images[recipe.name] = place.imshow(self._blank, interpolation="nearest")
            # A text for each line, since matplotlib takes its time over every letter, and half of the lines stay.
            self._texts[recipe.name] = [
                place.text(0.5, (_TOP + _SIDE - 2 - row) / _SIDE, "", transform=place.transAxes, ha="center", va="top", **style)
                for row in _LINES
            ]
        self._bands = PngBands(_HEIGHT, _WIDTH, [_TOP, _TOP + _SIDE, *_LINES])
        moving = [*self._images.values(), *itertools.chain(*self._texts.values())]
        super().__init__(figure, "", moving, caption)

    def show(self, runs: Sequence[TrainingRun]) -> None:
        """Draw what each run's model paints now; a recipe without a run is a grey square."""
        self.psnr, self._sentences = {}, {}
        for name, image in self._images.items():
            image.set_data(self._blank)
            self._write(name, ["not trained yet"])
        for run in runs:
            self._paint(run)
            self._write(run.recipe.name, _lines(run, self.psnr[run.recipe.name]))
        self.text = "\n".join(self._sentences.values()) or "Nothing is trained yet."

    def update(self, run: TrainingRun, numbers: bool = True) -> bytes:
        """The PNG with one run's picture and, with ``numbers``, the lines below it as they are now.

        All else is as ``png`` or ``update`` drew it last: call ``png`` once before.
        """
        name = run.recipe.name
        painted = self._paint(run)
        pixels = numpy.asarray(self.figure.canvas.buffer_rgba())
        left = _LEFT + (1 + list(self._images).index(name)) * _PITCH
        # The nearest pixel for each of the figure's, as matplotlib takes it, at a twentieth of the cost.
        rows, columns = (((2 * numpy.arange(_SIDE) + 1) * size - 1) // (2 * _SIDE) for size in painted.shape[:2])
        opaque = numpy.dstack([painted, numpy.full(painted.shape[:2], 255, numpy.uint8)])
        enlarged = opaque.view(numpy.uint32)[rows[:, None], columns]  # [_SIDE, _SIDE, 1], one number a pixel
        pixels.view(numpy.uint32)[_TOP : _TOP + _SIDE, left : left + _SIDE] = enlarged
        if numbers:
            with styled():
                for line in self._write(name, _lines(run, self.psnr[name])):
                    row = _LINES[line]
                    pixels[row : row + _LINE, left : left + _PITCH, :3] = _GROUND
                    self.figure.draw_artist(self._texts[name][line])
        self.text = "\n".join(self._sentences.values())
        return self._bands.encode(pixels)

    def _write(self, name: str, lines: Sequence[str]) -> list[int]:
        """Set the lines under a picture; gives the numbers of those that are not as they were."""
        changed = []
        for number, (text, line) in enumerate(itertools.zip_longest(self._texts[name], lines, fillvalue="")):
            if text.get_text() != line:
                text.set_text(line)
                changed.append(number)
        return changed

    def _paint(self, run: TrainingRun) -> numpy.ndarray:
        """Give a run's image its pixels, and keep its PSNR and its sentence."""
        name = run.recipe.name
        picture = run.problem.picture(run.model)
        painted = _bytes(picture.numpy())
        self._images[name].set_data(painted)
        self.psnr[name] = run.problem.psnr_of(picture)
        self._sentences[name] = _sentence(run, self.psnr[name])
        return painted


def zero_share(run: TrainingRun) -> float | None:
    """Share of the parameter gradients that were zero in the last step; None before the first."""
    records = run.history.records
    return records[-1].histogram.shares().zero if records and records[-1].histogram else None


def _bytes(picture: numpy.ndarray) -> numpy.ndarray:
    """A picture in [0, 1] as uint8; NaN becomes grey."""
    return numpy.where(numpy.isnan(picture), _BLANK, numpy.rint(numpy.nan_to_num(picture) * 255)).astype(numpy.uint8)


def _lines(run: TrainingRun, psnr: float) -> list[str]:
    records = run.history.records
    lines = ["no picture: NaN" if math.isnan(psnr) else f"{psnr:.1f} dB"]
    if not records:
        lines += ["not trained yet"]
    else:
        lines += [f"loss {records[-1].loss:.1e}", f"zero grads {zero_share(run):.0%}"]
        lines += [f"scale {scale_text(records[-1].next_scale)}" if run.recipe.uses_scaler else "no loss scale"]
    return lines


def _sentence(run: TrainingRun, psnr: float) -> str:
    records = run.history.records
    text = f"{run.recipe.label}: " + ("no picture, since it holds NaN," if math.isnan(psnr) else f"{psnr:.1f} dB")
    if records:
        steps = f"{len(records)} step" + "s" * (len(records) != 1)
        text += f" after {steps}, loss {records[-1].loss:.2e}, {zero_share(run):.0%} of the gradients zero"
        if run.recipe.uses_scaler:
            text += f", loss scale {scale_text(records[-1].next_scale)}, {len(run.history.skipped)} steps skipped"
    text = text.removesuffix(",")
    return f"{text}. {run.history.stopped}" if run.history.stopped else f"{text}."
