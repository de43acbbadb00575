"""Lesson 4's explorers: a scaler's history under other settings, and its walk into the loss-scale window."""

from __future__ import annotations

from collections.abc import Sequence

from amp_lessons.errors import LessonError
from amp_lessons.figures.scale_history import ScaleHistory
from amp_lessons.figures.window import WindowWalk
from amp_lessons.history import TrainingHistory
from amp_lessons.recipes import ScalerOptions
from amp_lessons.replay import ScalerStep, ceilings, peaks_of, replay
from amp_lessons.widgets.controls import Stepper, choice
from amp_lessons.widgets.explorer import Explorer


class ScalerExplorer(Explorer):
    """A real GradScaler's history over recorded steps, for every setting of its four numbers.

    ``peaks`` is the largest gradient magnitude of each step before scaling, as ``replay.peaks_of`` gives it.
    """

    def __init__(self, peaks: Sequence[float]) -> None:
        if not len(peaks):
            raise LessonError("There is nothing to replay: give the peak gradient of at least one step.")
        self.peaks = list(peaks)
        self.init_scale = Stepper("init scale 2^k, k =", 0, 40, value=16)
        self.growth_interval = Stepper("growth interval", 1, 200, value=10, unit="steps")
        self.growth_factor = choice("growth factor", [("2", 2.0), ("4", 4.0), ("16", 16.0)], 2.0)
        self.backoff_factor = choice("backoff factor", [("1/2", 0.5), ("1/4", 0.25), ("1/16", 0.0625)], 0.5)
        caption = (
            "Loss scale by step for the scaler's four settings, replayed over a recorded run: triangles where the scale grew, "
            "crosses where a gradient overflowed and the step was skipped, and a line for the largest scale that each step's "
            "gradients fit."
        )
        picture = ScaleHistory(len(self.peaks), ceilings(self.peaks), caption=caption)
        super().__init__([self.init_scale, self.growth_interval, self.growth_factor, self.backoff_factor], picture)

    def redraw(self) -> str:
        options = ScalerOptions(
            init_scale=2.0**self.init_scale.value,
            growth_factor=self.growth_factor.value,
            backoff_factor=self.backoff_factor.value,
            growth_interval=self.growth_interval.value,
        )
        self.picture.show(replay(self.peaks, options))
        return self.picture.text


class WindowExplorer(Explorer):
    """One step at a time, what every loss scale would do to a recorded run's gradients, and where the scaler stands.

    ``history`` is a float32 run with histograms. The scaler is a real one, replayed over the run's peaks.
    """

    def __init__(self, history: TrainingHistory) -> None:
        self.peaks = peaks_of(history)
        if not self.peaks:
            raise LessonError("This run has no steps; train for at least one.")
        self.histograms = [record.histogram for record in history.records]
        self.windows = [histogram.window() for histogram in self.histograms]
        self._options: ScalerOptions | None = None  # those that the walk was replayed for
        self._walk: list[ScalerStep] = []
        self.step = Stepper("training step", 0, len(self.peaks) - 1, value=0)
        self.init_scale = Stepper("init scale 2^k, k =", 0, 40, value=40)
        self.growth_interval = Stepper("growth interval", 1, 200, value=20, unit="steps")
        caption = (
            "Above: for every loss scale, the shares of one step's parameter gradients that fp16 would flush to zero, keep "
            "with fewer bits, or turn into inf, with the safe window shaded. Below: the window of every step and the scaler's "
            "walk into it."
        )
        picture = WindowWalk(len(self.peaks), self.windows, caption=caption)
        super().__init__([self.step, self.init_scale, self.growth_interval], picture)

    def redraw(self) -> str:
        options = ScalerOptions(2.0**self.init_scale.value, growth_interval=self.growth_interval.value)
        if options != self._options:
            self._options, self._walk = options, replay(self.peaks, options)
        steps = self._walk[: self.step.value + 1]
        # A replay that ended early has no later steps: its last one stays.
        now = steps[-1].step
        self.picture.show(self.histograms[now], self.windows[now], steps)
        return self.picture.text
