"""The time of a training step by setting, at one size or over a table of batches and widths."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from amp_lessons import devices, recipes
from amp_lessons.errors import LessonError
from amp_lessons.measure.clock import Subject, Timing, interleaved, timed
from amp_lessons.measure.settings import Setting, settings_for
from amp_lessons.measure.workloads import Workload


class TrainingStep:
    """A training step that can be called: the workload's model with Adam, by the recipe of a setting, on one batch."""

    def __init__(self, workload: Workload, setting: Setting, device: torch.device) -> None:
        self.workload, self.setting, self.device = workload, setting, device
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            self.model = workload.make_model().to(device)
        self.batch = tuple(part.to(device) for part in workload.make_batch(torch.Generator().manual_seed(0)))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.scaler = recipes.ScalerOptions().make(device, enabled=setting.recipe.uses_scaler)

    def loss(self) -> Tensor:
        """The forward pass."""
        return self.workload.loss(self.model, *self.batch)

    def __call__(
        self, loss_of: Callable[[], Tensor] | None = None, on_gradients: Callable[[], None] | None = None
    ) -> Tensor:
        """One step of ``recipes.training_step``; the arguments look into it."""
        return recipes.training_step(
            self.model,
            loss_of or self.loss,
            self.optimizer,
            self.scaler,
            self.setting.recipe.autocast(self.device),
            on_gradients=on_gradients,
        )


@dataclass(frozen=True)
class SpeedPoint:
    """The time of one training step; ``time`` is None where it was not measured, and ``why_not`` says why.

    ``step_flop`` counts the matrix products of one forward and backward pass.
    """

    setting: str
    workload: str
    width: int
    batch: int
    step_flop: int
    time: Timing | None
    why_not: str | None = None


@dataclass(frozen=True)
class SpeedTable:
    """Measured step times of one workload over widths and batches, on one device."""

    workload: str
    device: str
    points: tuple[SpeedPoint, ...]

    @property
    def widths(self) -> list[int]:
        """The widths of the table, in order."""
        return sorted({point.width for point in self.points})

    @property
    def batches(self) -> list[int]:
        """The batches of the table, in order."""
        return sorted({point.batch for point in self.points})

    @property
    def settings(self) -> list[str]:
        """The settings of the table, as they were measured."""
        return list(dict.fromkeys(point.setting for point in self.points))

    def at(self, setting: str, width: int, batch: int) -> SpeedPoint:
        """One point; raises LessonError where the table has none."""
        for point in self.points:
            if (point.setting, point.width, point.batch) == (setting, width, batch):
                return point
        raise LessonError(f"The table has no point for {setting!r} at width {width} and batch {batch}.")

    def ratio(self, setting: str, width: int, batch: int) -> float | None:
        """FP32 time over this setting's time: above 1 the setting is faster; None where one was not measured."""
        return ratio(self.at("fp32", width, batch), self.at(setting, width, batch))


def ratio(reference: SpeedPoint, other: SpeedPoint) -> float | None:
    """The reference's median time over the other's, or None where one was not measured."""
    if reference.time is None or other.time is None:
        return None
    return reference.time.median_s / other.time.median_s


def step_times(
    workload: Workload,
    settings: Sequence[Setting] | None = None,
    device: str | torch.device | None = None,
    runs: int = 15,
    budget_s: float = 3.0,
) -> tuple[SpeedPoint, ...]:
    """Time the workload's training step by each setting, in turns, within about ``budget_s`` seconds.

    A setting whose steps would not fit is not begun: how long they would take is foretold from a small matrix product.
    """
    device = devices.pick(device)
    settings = settings_for(device) if settings is None else settings
    return _step_times(workload, settings, device, runs, budget_s, {s.name: _small_rate(s, device) for s in settings})


def speed_table(
    make: Callable[[int, int], Workload],
    widths: Sequence[int],
    batches: Sequence[int],
    settings: Sequence[Setting] | None = None,
    device: str | torch.device | None = None,
    runs: int = 9,
    budget_s: float = 8.0,
) -> SpeedTable:
    """Time ``make(width, batch)`` at every width and batch, from small to large, within about ``budget_s`` seconds.

    Each size is foretold from the one before, and what would not fit is left out with its reason. Raises LessonError
    where there are no sizes.
    """
    if not widths or not batches:
        raise LessonError("A table needs at least one width and one batch.")
    device = devices.pick(device)
    settings = settings_for(device) if settings is None else settings
    end = time.perf_counter() + budget_s
    workloads = sorted((make(width, batch) for width in widths for batch in batches), key=lambda w: w.step_flop)
    rates = {setting.name: _small_rate(setting, device) for setting in settings}
    points: list[SpeedPoint] = []
    for left, workload in zip(range(len(workloads), 0, -1), workloads):
        share = max(end - time.perf_counter(), 0.0) / left
        points += _step_times(workload, settings, device, runs, share, rates)
    return SpeedTable(workloads[0].name, devices.describe(device), tuple(points))


def _step_times(
    workload: Workload, settings: Sequence[Setting], device: torch.device, runs: int, budget_s: float, rates: dict[str, float]
) -> tuple[SpeedPoint, ...]:
    steps: dict[str, Subject] = {}
    reasons: dict[str, str] = {}
    used_s = 0.0
    for setting in settings:
        at_least_s = 2 * workload.step_flop / rates[setting.name]  # one step to warm up and one to time
        if used_s + at_least_s > budget_s:
            reasons[setting.name] = f"a step would take about {at_least_s / 2:.2g} s, too long for the time set"
            continue
        try:
            steps[setting.name] = Subject(TrainingStep(workload, setting, device), setting.around)
        except torch.OutOfMemoryError:
            reasons[setting.name] = "there was not enough memory"
        used_s += at_least_s
    times: dict[str, Timing | None] = {}
    if steps:
        try:
            times = interleaved(steps, device, runs, max(budget_s, 1e-3))
        except torch.OutOfMemoryError:
            reasons |= {name: "there was not enough memory" for name in steps}
    for name, timing in times.items():
        if timing is not None:
            rates[name] = workload.step_flop / timing.median_s
    late = "the time set was over before its turn"
    return tuple(
        SpeedPoint(
            s.name,
            workload.name,
            workload.width,
            workload.batch,
            workload.step_flop,
            times.get(s.name),
            None if times.get(s.name) else reasons.get(s.name, late),
        )
        for s in settings
    )


def _small_rate(setting: Setting, device: torch.device) -> float:
    """A cautious guess at FLOP/s, from a small product in the setting's dtype; without limit on CUDA.

    Some CPUs take 100 times longer for 16-bit products (pytorch/pytorch#146508), and a step cannot be interrupted.
    """
    if device.type == "cuda":
        torch.ones(8, 8, device=device).mm(torch.ones(8, 8, device=device))  # starts cuBLAS, which takes a while
        torch.cuda.synchronize(device)
        return float("inf")
    matrix = torch.ones(128, 128, dtype=setting.recipe.autocast_dtype or torch.float32)
    with devices.one_thread(device):
        return 2 * 128**3 / min(timed(lambda: matrix @ matrix, device).seconds for _ in range(3))
