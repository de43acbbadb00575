"""Training runs: the real loop, one record a step, and a history that can be saved."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch

from amp_lessons import devices
from amp_lessons.errors import LessonError
from amp_lessons.gradients import GradientRecorder, gradients_of
from amp_lessons.histograms import ExponentHistogram
from amp_lessons.history import StepRecord, TrainingHistory
from amp_lessons.problems import Problem
from amp_lessons.recipes import Recipe, ScalerOptions, training_step


def train(
    problem: Problem,
    recipe: Recipe,
    steps: int = 300,
    *,
    seed: int = 0,
    device: str | torch.device | None = None,
    loss_weight: float | None = None,
    learning_rate: float | None = None,
    max_norm: float | None = None,
    scaler: ScalerOptions = ScalerOptions(),
    histograms: bool = True,
    activations: bool = False,
) -> TrainingRun:
    """Train the problem's model with Adam by a recipe; iterating gives one ``StepRecord`` a step.

    ``loss_weight`` and ``learning_rate`` replace the problem's own; ``max_norm`` clips the unscaled gradients.
    ``histograms`` records the parameter gradients of each step (their histogram and norm), ``activations`` those of the
    layers' outputs too; without them a step costs what the same loop written by hand does. The same
    seed on the same machine gives the same run, and the global random state is left alone.

    A run ends early, with the reason in ``history.stopped``, when the loss is no longer finite and no scaler could help,
    when the loss scale falls under 1, or when memory runs out. Raises LessonError for arguments that cannot work.
    """
    if steps < 1:
        raise LessonError(f"steps is {steps}; a run needs at least one step.")
    for name, value in {"loss_weight": loss_weight, "learning_rate": learning_rate, "max_norm": max_norm}.items():
        if value is not None and not (math.isfinite(value) and value > 0):
            raise LessonError(f"{name} is {value}; give a number above 0.")
    changes = {"loss_weight": loss_weight, "learning_rate": learning_rate}
    changes = {name: value for name, value in changes.items() if value is not None}
    return TrainingRun(
        replace(problem, **changes), recipe, steps, seed, devices.pick(device), max_norm, scaler, histograms, activations
    )


class TrainingRun:
    """A training run in progress: an iterator of records with its ``history``, ``model``, ``optimizer`` and ``scaler``."""

    def __init__(
        self,
        problem: Problem,
        recipe: Recipe,
        steps: int,
        seed: int,
        device: torch.device,
        max_norm: float | None,
        scaler: ScalerOptions,
        histograms: bool,
        activations: bool,
    ) -> None:
        self.recipe = recipe
        self.steps = steps
        self.device = device
        self.max_norm = max_norm
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed the GPUs too
            self.model = problem.make_model()
        try:
            self.problem = problem.to(device)
            self.model.to(device)
        except (RuntimeError, MemoryError) as error:
            if not _is_out_of_memory(error):
                raise
            raise LessonError(f"There is no memory left for the run on {device}; {_FREE_MEMORY}") from None
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=problem.learning_rate)
        self._scaler_options = scaler
        self.scaler = scaler.make(device, enabled=recipe.uses_scaler)
        self.history = TrainingHistory(problem.name, recipe.name, seed, devices.describe(device))
        self._batches = torch.Generator().manual_seed(seed)
        self._recorder = GradientRecorder(self.model, activations)
        self._histograms = histograms
        self._activations = activations

    def __iter__(self) -> Iterator[StepRecord]:
        return self

    def __next__(self) -> StepRecord:
        history = self.history
        if self.over:
            raise StopIteration
        try:
            with devices.one_thread(self.device):
                record = self._step()
        except KeyboardInterrupt:
            self._forget_unfinished_step()
            raise
        except (RuntimeError, MemoryError) as error:
            if not _is_out_of_memory(error):
                raise
            self._stop(f"Memory ran out in step {len(history.records)}; {_FREE_MEMORY}")
            raise StopIteration from None
        history.records.append(record)
        self._stop(self._reason_to_stop(record))
        return record

    @property
    def over(self) -> bool:
        """Whether no step is left: all are done, or the run stopped early."""
        return self.history.stopped is not None or len(self.history.records) >= self.steps

    def finish(self) -> TrainingHistory:
        """Run to the end and give the history; an interrupted kernel ends the run and keeps what there is."""
        try:
            for _ in self:
                pass
        except KeyboardInterrupt:
            self._stop(f"Interrupted after {len(self.history.records)} steps.")
        return self.history

    def _stop(self, reason: str | None) -> None:
        self.history.stopped = reason
        if self.over:
            self._recorder.close()

    def _forget_unfinished_step(self) -> None:
        """Drop what an interrupted step left behind, so that the run can go on."""
        self.optimizer.zero_grad()
        self._recorder.take_activations()
        # A scaler that was stopped between unscale_ and update refuses the next unscale_; only a new one starts clean.
        state = self.scaler.state_dict()
        self.scaler = self._scaler_options.make(self.device, enabled=self.recipe.uses_scaler)
        self.scaler.load_state_dict(state)

    def _step(self) -> StepRecord:
        seen: dict[str, object] = {}

        def read_gradients() -> None:
            gradients = gradients_of(self.model)
            seen["grad_norm"] = torch.nn.utils.get_total_norm(gradients)
            seen["histogram"] = ExponentHistogram.of(*gradients)

        batch = self.problem.batch(self._batches)
        scale = self.scaler.get_scale()
        loss = training_step(
            self.model,
            lambda: self.problem.loss(self.model, batch),
            self.optimizer,
            self.scaler,
            self.recipe.autocast(self.device),
            max_norm=self.max_norm,
            on_gradients=read_gradients if self._histograms else None,
        )
        next_scale = self.scaler.get_scale()
        return StepRecord(
            step=len(self.history.records),
            loss=loss.item(),
            scale=scale,
            next_scale=next_scale,
            skipped=next_scale < scale,  # only an overflow lowers the scale, and then the step was skipped
            grad_norm=seen["grad_norm"].item() if self._histograms else None,
            histogram=seen.get("histogram"),
            activations=self._recorder.take_activations() if self._activations else None,
        )

    def _reason_to_stop(self, record: StepRecord) -> str | None:
        if not self.recipe.uses_scaler:
            if math.isfinite(record.loss):
                return None
            return (
                f"The loss is {record.loss} in step {record.step} and no later step can mend it: look for a non-finite value "
                "in the data, an overflow in the forward pass, or too high a learning rate."
            )
        if record.next_scale >= 1:
            return None
        cause = "the loss was finite, so the gradients overflow at every scale"
        if not math.isfinite(record.loss):
            first = next(r for r in [*self.history.records, record] if not math.isfinite(r.loss))
            cause = f"the loss itself was already {first.loss} in step {first.step}"
        return (
            f"The loss scale fell under 1 in step {record.step}: {cause}. No scale mends that; look for the first "
            "non-finite value in the data or the forward pass."
        )


_FREE_MEMORY = "use a smaller batch or picture, or close other programs that hold memory on this device."


def _is_out_of_memory(error: Exception) -> bool:
    # The CPU allocator, CUDA at start-up and cuBLAS raise a plain RuntimeError: only its text tells.
    texts = ("not enough memory", "allocate memory", "out of memory", "ALLOC_FAILED")
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(text in str(error) for text in texts)
