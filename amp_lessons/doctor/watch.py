"""The watch: a context in which a training loop is observed and afterwards has findings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from amp_lessons.doctor import patches
from amp_lessons.doctor.hearing.scaler import note_scaler
from amp_lessons.doctor.messages import cause_of
from amp_lessons.doctor.observer import LoopObserver
from amp_lessons.doctor.report import Finding, as_html, as_text, ordered
from amp_lessons.doctor.rules import judge
from amp_lessons.errors import LessonError


class Doctor:
    """What ``watch`` gives: look at ``findings``, or show the object itself for the report."""

    def __init__(
        self, models: list[nn.Module], optimizers: list[torch.optim.Optimizer], scalers: list, steps: int | None
    ) -> None:
        self._models = models
        self._scalers = scalers
        self._observer = LoopObserver(models, optimizers, judge, steps)
        self._running = False

    @property
    def findings(self) -> list[Finding]:
        """The mistakes found so far, errors first."""
        return ordered(list(self._observer.findings.values()))

    def __enter__(self) -> Doctor:
        if self._running:
            raise LessonError("This watch is already running; make another one with watch(...).")
        self._running = True
        patches.attach(self._observer)
        for scaler in self._scalers:
            note_scaler(self._observer, scaler)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        try:
            with torch.no_grad():
                self._observer.close_iteration()
        finally:
            patches.detach(self._observer)
            self._running = False
        cause = cause_of(error) if isinstance(error, Exception) else None
        if cause and hasattr(error, "add_note"):  # Python 3.11
            error.add_note(f"amp_lessons doctor: {cause}")

    def __str__(self) -> str:
        return as_text(self.findings, self._steps, self._observer.troubles)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return as_html(self.findings, self._steps, self._observer.troubles)

    @property
    def _steps(self) -> int:
        last = self._observer.recent[-1]
        return last.number + bool(last.events)


def watch(
    model: nn.Module | Sequence[nn.Module],
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
    scaler: torch.amp.GradScaler | Sequence[torch.amp.GradScaler] | None = None,
    scheduler: object = None,
    steps: int | None = None,
) -> Doctor:
    """Watch a mixed-precision training loop and name its mistakes; nothing the loop computes changes.

    Each argument may be a list; without an optimizer every one that the loop uses is watched, and schedulers are known by
    their optimizers. ``steps`` ends the watch after that many iterations and lets the loop go on. Raises LessonError when an
    argument is not what it should be.
    """
    models = _listed(model, nn.Module, "model", "an nn.Module")
    optimizers = _listed(optimizer, torch.optim.Optimizer, "optimizer", "a torch.optim.Optimizer")
    scalers = _listed(scaler, torch.amp.GradScaler, "scaler", "a torch.amp.GradScaler")
    _listed(scheduler, torch.optim.lr_scheduler.LRScheduler, "scheduler", "a learning-rate scheduler")
    if not models:
        raise LessonError("watch needs the model that is trained: watch(model, optimizer, scaler).")
    if steps is not None and steps < 1:
        raise LessonError(f"steps is {steps}; watch at least one step, or leave it out to watch all.")
    return Doctor(models, optimizers, scalers, steps)


def _listed(given: Any, kind: type, name: str, wanted: str) -> list:
    items = [] if given is None else list(given) if isinstance(given, (list, tuple)) else [given]
    for item in items:
        if not isinstance(item, kind):
            raise LessonError(f"{name} is a {type(item).__name__}; watch needs {wanted}, or a list of them.")
    return items
