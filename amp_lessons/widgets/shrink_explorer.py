"""Lesson 2's second explorer: shrink the loss and watch its gradients sink below fp16's floor."""

from __future__ import annotations

from amp_lessons.figures.fates import FateHistogram, describe, percent
from amp_lessons.histograms import ExponentHistogram
from amp_lessons.widgets.controls import Stepper
from amp_lessons.widgets.explorer import Explorer


class ShrinkExplorer(Explorer):
    """A measured float32 gradient histogram under a slider that multiplies the loss by 2^k."""

    def __init__(self, histogram: ExponentHistogram, low: int = -24, high: int = 24) -> None:
        self.histogram = histogram
        self.weight = Stepper("loss times 2^k, k =", low, high, value=0)
        caption = (
            "Histogram of gradient magnitudes over fp16's zones (flushed to zero, subnormal, normal, overflow), with the share "
            "in each zone. The slider multiplies the loss by a power of two and moves all bars together."
        )
        super().__init__([self.weight], FateHistogram(caption=caption))

    def redraw(self) -> str:
        scale = 2.0**self.weight.value
        self.picture.show(self.histogram, scale)
        shares = self.histogram.shares(scale)
        text = f"Loss times 2^{self.weight.value}: {describe(shares)}"
        if shares.flushed and not shares.subnormal + shares.normal + shares.overflow + shares.nonfinite:
            text += " Nothing is left to learn from."
        elif shares.flushed:
            lost = percent(self.histogram.flushed_share(scale))
            text += f" Of the gradients that float32 keeps above zero, that loses {lost}."
        return text
