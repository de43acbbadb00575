"""Lesson 2's explorer: shrink the loss and watch its gradients sink below fp16's floor."""

from __future__ import annotations

from amp_lessons.figures.fates import FateHistogram
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
        k = self.weight.value
        self.picture.show(self.histogram, 2.0**k)
        shares = self.histogram.shares(2.0**k)
        return (
            f"Loss times 2^{k}: fp16 flushes {shares.flushed:.1%} of the gradients to zero, keeps {shares.subnormal:.1%} with "
            f"fewer bits and {shares.normal:.1%} in full, and overflows {shares.overflow:.1%}. "
            f"{shares.zero:.1%} were zero before."
        )
