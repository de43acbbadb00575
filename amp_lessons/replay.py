"""What a GradScaler would do in a run that was recorded: the real scaler, fed with one number a step.

Whether a step overflows depends on its largest gradient alone, so the largest of each recorded step is enough to have the
whole scale history again for other settings, thousands of times quicker than by training. It is exact for the steps that
the recorded run took. Training with other settings takes slightly other steps, since a skipped step leaves the weights as
they were: a replay of a float32 run is a forecast for an AMP run, and a replay of an AMP run with its own settings repeats it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from amp_lessons.errors import LessonError
from amp_lessons.histograms import ExponentHistogram
from amp_lessons.history import TrainingHistory
from amp_lessons.recipes import ScalerOptions

_KEYS_PER_BINADE = 3
_BIAS = 127


@dataclass(frozen=True)
class ScalerStep:
    """One step of a replayed scaler: the scale it used, the one after ``update``, and whether the step was skipped.

    ``peak`` is the step's largest gradient magnitude before scaling.
    """

    step: int
    peak: float
    scale: float
    next_scale: float
    skipped: bool

    @property
    def grew(self) -> bool:
        """Whether ``update`` raised the loss scale after this step."""
        return self.next_scale > self.scale


def replay(peaks: Iterable[float], options: ScalerOptions = ScalerOptions()) -> list[ScalerStep]:
    """Feed a real ``torch.amp.GradScaler`` on the CPU with the largest gradient of each step.

    ``peaks`` are magnitudes before scaling; inf and NaN stand for a step that overflows at every scale. Each is multiplied
    by the loss scale, rounded to fp16 and handed over as a float32 gradient, as under autocast. The list ends early after
    the step that takes the scale under 1, where the course's training stops too. Raises LessonError for a negative peak.
    """
    scaler = options.make(torch.device("cpu"), enabled=True)
    weight = torch.zeros(1)
    optimizer = _StepCounter(weight)
    steps = []
    scale = options.init_scale
    for number, peak in enumerate(peaks):
        if peak < 0:
            raise LessonError(f"The peak of step {number} is {peak}; give magnitudes, that is numbers from 0 up.")
        before = optimizer.taken
        weight.grad = scaler.scale(torch.tensor([peak], dtype=torch.float32)).half().float()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        next_scale = scaler.get_scale()
        steps.append(ScalerStep(number, float(peak), scale, next_scale, skipped=optimizer.taken == before))
        scale = next_scale
        if scale < 1:
            break
    return steps


def peaks_of(history: TrainingHistory) -> list[float]:
    """The largest gradient magnitude of each step of a recorded run, over all histograms that it kept.

    From a run with histograms only of the parameters, that is the largest parameter gradient. Magnitudes are those before
    scaling. Each stands for the values that overflow at the same powers of two (see ``peak_of``). Raises LessonError for a
    run without histograms.
    """
    peaks = []
    for record in history.records:
        if record.histogram is None:
            raise LessonError("This run kept no gradient histograms; train with histograms=True.")
        found = [peak_of(record.histogram)]
        if record.activations is not None:
            found.append(peak_of(record.activations) / record.scale)
        peaks.append(math.nan if any(map(math.isnan, found)) else max(found))
    return peaks


def peak_of(histogram: ExponentHistogram) -> float:
    """A magnitude that overflows fp16 at just the powers of two at which the histogram's largest value does.

    It lies in the largest value's binade; inf or NaN if there is one, 0 if every value is zero.
    """
    if histogram.nans:
        return math.nan
    if histogram.infinities:
        return math.inf
    filled = histogram.counts[1:].nonzero()
    if not len(filled):
        return 0.0
    exponent, part = divmod(int(filled[-1]) + 1, _KEYS_PER_BINADE)
    # Part 0 is the power of two itself, part 2 starts at 65520 / 65536 of the next one, part 1 is between them.
    return (1.0, 1.5, 2.0 * 65520 / 65536)[part] * 2.0 ** (exponent - _BIAS)


def ceilings(peaks: Sequence[float]) -> list[int | None]:
    """For each peak the exponent of the largest power of two that does not overflow it; None where there is none."""
    found: list[int | None] = []
    for peak in peaks:
        if not (math.isfinite(peak) and peak > 0):
            found.append(None)
            continue
        fraction, exponent = math.frexp(peak)  # peak = fraction * 2^exponent, fraction in [0.5, 1)
        found.append((16 if fraction < 65520 / 65536 else 15) - exponent)
    return found


class _StepCounter(torch.optim.Optimizer):
    """An optimizer for the scaler to call or not to call; it counts the calls and changes nothing."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__([weight], {})
        self.taken = 0

    def step(self, closure: None = None) -> None:
        self.taken += 1
