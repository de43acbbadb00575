"""Four portraits side by side, one a recipe, and the photograph that they learn: the course's signature picture."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy
from matplotlib.image import AxesImage
from matplotlib.text import Text

from amp_lessons.figures.picture import Picture
from amp_lessons.figures.style import INK, RECIPE_COLOURS, new_figure
from amp_lessons.recipes import RECIPES, scale_text
from amp_lessons.training import TrainingRun

# Two short lines a recipe: the long labels of the recipes would run into each other.
NAMES = {"fp32": ("FP32", ""), "fp16": ("fp16", "no scaler"), "amp": ("AMP", "fp16 + GradScaler"), "bf16": ("BF16", "")}
CAPTION = (
    "The photograph, and beside it what FP32, fp16 without a scaler, AMP and BF16 have learned of it, with PSNR, loss, share "
    "of zero gradients and loss scale under each."
)


class Portraits(Picture):
    """The photograph and, for each recipe, its picture with PSNR, loss, zero gradients and loss scale below.

    ``target`` is [rows, columns, 3] in [0, 1]; ``show`` brings the pictures up to date with training runs and leaves in
    ``psnr`` what each recipe has reached, in dB.
    """

    def __init__(self, target: numpy.ndarray, caption: str = CAPTION) -> None:
        figure, axes = new_figure(8.6, 3.15, ncols=1 + len(RECIPES))
        # By hand: the automatic layout does not make room for the texts under the pictures.
        for number, place in enumerate(axes):
            place.set_position([0.004 + number * 0.1992, 0.29, 0.196, 0.57])
        for place in axes:
            place.set_xticks([])
            place.set_yticks([])
            for spine in place.spines.values():
                spine.set_visible(False)
        axes[0].imshow(target)
        axes[0].set_title("photograph", loc="center", fontsize=10)
        self.psnr: dict[str, float] = {}
        self._blank = numpy.full_like(target, 0.75)
        self._images: dict[str, AxesImage] = {}
        self._texts: dict[str, Text] = {}
        for place, recipe in zip(axes[1:], RECIPES):
            colour = RECIPE_COLOURS[recipe.name]
            name, more = NAMES[recipe.name]
            place.set_title(f"{name}\n{more}" if more else name, loc="center", fontsize=10, color=colour, fontweight="bold")
            self._images[recipe.name] = place.imshow(self._blank, vmin=0, vmax=1, interpolation="nearest")
            self._texts[recipe.name] = place.text(
                0.5, -0.05, "", transform=place.transAxes, ha="center", va="top", fontsize=9.5, color=INK, linespacing=1.35
            )
        super().__init__(figure, "", [*self._images.values(), *self._texts.values()], caption)

    def show(self, runs: Sequence[TrainingRun]) -> None:
        """Draw what each run's model paints now; a recipe without a run is a grey square."""
        self.psnr = {}
        shown = {run.recipe.name: run for run in runs}
        for name, image in self._images.items():
            run = shown.get(name)
            if run is None:
                image.set_data(self._blank)
                self._texts[name].set_text("not trained yet")
            else:
                painted = run.problem.picture(run.model)
                self.psnr[name] = run.problem.psnr_of(painted)
                image.set_data(painted.numpy())
                self._texts[name].set_text("\n".join(_lines(run, self.psnr[name])))
        self.text = "\n".join(_sentence(run, self.psnr[run.recipe.name]) for run in runs) or "Nothing is trained yet."


def zero_share(run: TrainingRun) -> float | None:
    """Share of the parameter gradients that were zero in the last step; None before the first."""
    records = run.history.records
    return records[-1].histogram.shares().zero if records and records[-1].histogram else None


def _lines(run: TrainingRun, psnr: float) -> list[str]:
    records = run.history.records
    lines = [f"{psnr:.1f} dB" if math.isfinite(psnr) else "no picture: NaN"]
    if not records:
        lines += ["not trained yet"]
    else:
        lines += [f"loss {records[-1].loss:.1e}", f"zero grads {zero_share(run):.0%}"]
        lines += [f"scale {scale_text(records[-1].next_scale)}" if run.recipe.uses_scaler else "no loss scale"]
    return lines


def _sentence(run: TrainingRun, psnr: float) -> str:
    records = run.history.records
    text = f"{run.recipe.label}: {psnr:.1f} dB"
    if records:
        text += f" after {len(records)} steps, loss {records[-1].loss:.2e}, {zero_share(run):.0%} of the gradients zero"
        if run.recipe.uses_scaler:
            text += f", loss scale {scale_text(records[-1].next_scale)}, {len(run.history.skipped)} steps skipped"
    return f"{text}. {run.history.stopped}" if run.history.stopped else f"{text}."
