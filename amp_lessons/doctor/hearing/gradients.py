"""Gradients between backward and step: clipped, changed, cleared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from amp_lessons.doctor.events import later
from amp_lessons.doctor.hearing import heard
from amp_lessons.doctor.ledger import norm_of

if TYPE_CHECKING:
    from amp_lessons.doctor.observer import LoopObserver


def note_changes(observer: LoopObserver, parameters: Sequence[Tensor] | None) -> None:
    """Somebody changed gradients since they were last seen, and it was no call that we know."""
    changed = observer.ledger.changed(parameters)
    if not changed:
        return
    before = observer.recent[-1].of("backward", "unscale", "clip", "changed")
    norm = norm_of(changed)
    scales = observer.ledger.scales(changed)
    observer.ledger.accept(changed)
    if isinstance(norm, float) and norm == 0:
        observer.ledger.forget(changed)  # zeroed in place
        return
    earlier = before[-1].get("norm") if before else None
    if scales and all(isinstance(value, float) and value > 0 for value in (norm, earlier, scales[0])):
        if math.isclose(norm * scales[0], earlier, rel_tol=1e-3):
            observer.ledger.unscaled(changed)  # divided by the loss scale by hand
    observer.add(
        "changed", scaled=bool(scales), scale=scales[0] if scales else None, norm=norm, before=earlier, largest=_largest(changed)
    )


def note_silent_change(observer: LoopObserver, parameters: Sequence[Tensor]) -> None:
    """A change through ``.data`` leaves the version counter alone: only the norm since the backward pass tells."""
    events = observer.recent[-1].of("backward", "clip", "changed")
    scales = observer.ledger.scales(parameters)
    if not scales or not events or events[-1].kind != "backward" or events[-1].get("norm") is None:
        return
    if events[-1].parameters != sum(p.grad is not None for p in parameters):
        return  # the norm was that of other parameters too
    norm, before = float(norm_of(parameters)), float(events[-1].norm)
    if norm < before * (1 - 1e-4):
        observer.add("changed", scaled=True, scale=scales[0], norm=norm, before=before, largest=_largest(parameters))


@heard("before", "clip")
def before_clip(observer: LoopObserver, args: tuple, kwargs: dict) -> None:
    known = _clipped(observer, args, kwargs)
    scales = observer.ledger.scales(known)
    names = ("parameters", "max_norm", "total_norm")
    given = {**dict(zip(names, args)), **kwargs}
    total = given.get("total_norm")
    observer.add(
        "clip", scaled=bool(scales), scale=scales[0] if scales else None, by="norm",
        norm=later(total.detach()) if isinstance(total, Tensor) else total, limit=float(given.get("max_norm", 0.0)),
    )  # fmt: skip


@heard("before", "clip_value")
def before_clip_value(observer: LoopObserver, args: tuple, kwargs: dict) -> None:
    known = _clipped(observer, args, kwargs)
    scales = observer.ledger.scales(known)
    limit = args[1] if len(args) > 1 else kwargs.get("clip_value", 0.0)
    observer.add(
        "clip", scaled=bool(scales), scale=scales[0] if scales else None, by="value",
        norm=_largest(known), limit=float(limit),
    )  # fmt: skip


@heard("after", "clip")
@heard("after", "clip_value")
def after_clip(observer: LoopObserver, args: tuple, kwargs: dict, result: Any) -> None:
    observer.ledger.accept(observer.ledger.parameters)


@heard("after", "zero_grad")
def after_zero_grad(observer: LoopObserver, args: tuple, kwargs: dict, result: Any) -> None:
    owner = args[0]
    is_optimizer = isinstance(owner, torch.optim.Optimizer)
    observer.ledger.forget(observer.parameters_of(owner) if is_optimizer else owner.parameters())
    observer.add(
        "zero-grad",
        optimizer=observer.number_of(owner) if is_optimizer else -1,
        after_backward=bool(observer.recent[-1].of("backward")) and not observer.stepped,
    )


def _largest(parameters: Sequence[Tensor]) -> float | Tensor | None:
    """The largest gradient magnitude among these parameters."""
    largest = [p.grad.detach().abs().max().float() for p in parameters if p.grad is not None and p.grad.numel() and not p.grad.is_sparse]
    return later(torch.stack(largest).max()) if largest else None


def _clipped(observer: LoopObserver, args: tuple, kwargs: dict) -> list[Tensor]:
    """The parameters that a clipping function was given, with foreign changes to their gradients noted first."""
    given = args[0] if args else kwargs["parameters"]
    if isinstance(given, Tensor):
        known = [given]
    elif isinstance(given, (list, tuple)):
        known = list(given)
    else:
        known = observer.ledger.parameters  # a generator would be used up by looking at it
    note_changes(observer, known)
    return known
