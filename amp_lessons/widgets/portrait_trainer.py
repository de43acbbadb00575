"""Lesson 5's live experiment: four recipes paint the same portrait at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from amp_lessons.figures.portraits import Portraits
from amp_lessons.problems import portrait
from amp_lessons.recipes import RECIPES, ScalerOptions
from amp_lessons.training import TrainingRun, train
from amp_lessons.widgets.controls import Stepper, choice, row
from amp_lessons.widgets.trainer import LiveTrainer

_CAPTION = (
    "Live experiment: the photograph and what four recipes (FP32, fp16 without a scaler, AMP, BF16) have learned of it, with "
    "PSNR, loss, share of zero gradients and loss scale under each. Run, Stop and Reset; steppers set the loss weight, the "
    "learning rate and the scaler's options."
)


class PortraitTrainer(LiveTrainer):
    """Train the portrait by all four recipes and watch; ``runs``, of this or another picture, are those to show at first."""

    def __init__(self, runs: Sequence[TrainingRun] = (), steps: int = 300) -> None:
        self.steps = steps
        self._problem = runs[0].problem if runs else portrait()
        self._previews = 0
        self.weight = Stepper("loss weight 2^k, k =", -20, 0, value=-10)
        self.rate = choice("learning rate", [("0.001", 1e-3), ("0.005", 5e-3), ("0.02", 2e-2)], value=5e-3)
        self.init_scale = Stepper("AMP: init scale 2^k, k =", 0, 40, value=16)
        self.interval = Stepper("AMP: growth interval", 1, 2000, value=2000, unit="steps")
        self.backoff = choice("AMP: backoff factor", [("0.25", 0.25), ("0.5", 0.5), ("0.75", 0.75)], value=0.5)
        self.growth = choice("AMP: growth factor", [("1.5", 1.5), ("2", 2.0), ("4", 4.0)], value=2.0)
        controls = [row(self.weight, self.rate), row(self.init_scale, self.growth), row(self.interval, self.backoff)]
        super().__init__(controls, Portraits(self._problem.picture().numpy(), caption=_CAPTION))
        self.show(runs or self.new_runs())

    def new_runs(self) -> list[TrainingRun]:
        options = ScalerOptions(2.0**self.init_scale.value, self.growth.value, self.backoff.value, self.interval.value)
        problem = replace(self._problem, loss_weight=2.0**self.weight.value)
        return [train(problem, recipe, self.steps, learning_rate=self.rate.value, scaler=options) for recipe in RECIPES]

    def redraw(self) -> str:
        self.picture.show(self.runs)
        if any(run.history.records for run in self.runs):
            return self.picture.text
        return "Not trained yet: press Run. The pictures show what the untrained networks paint."

    def preview(self) -> bytes:
        # One recipe in turn, so that each is at most half a second old; numbers, the dearest part, go with every third.
        self._previews += 1
        return self.picture.update(self.runs[self._previews % len(self.runs)], numbers=self._previews % 3 == 0)
