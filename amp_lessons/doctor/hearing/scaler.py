"""The scaler: made, unscaling, stepping, updating."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.amp.grad_scaler import OptState

from amp_lessons.doctor.events import dtype_name, later
from amp_lessons.doctor.hearing import heard
from amp_lessons.doctor.hearing.gradients import note_changes, note_silent_change
from amp_lessons.doctor.ledger import norm_of

if TYPE_CHECKING:
    from amp_lessons.doctor.observer import LoopObserver


@heard("after", "scaler.__init__")
def after_scaler_made(observer: LoopObserver, args: tuple, kwargs: dict, result: Any) -> None:
    note_scaler(observer, args[0])


def note_scaler(observer: LoopObserver, scaler: torch.amp.GradScaler) -> None:
    kind = type(scaler)
    observer.add(
        "scaler", deprecated=kind.__module__ if ".cuda.amp" in kind.__module__ or ".cpu.amp" in kind.__module__ else "",
        odd_device="" if isinstance(getattr(scaler, "_device", ""), str) else str(scaler._device), enabled=scaler.is_enabled(),
    )  # fmt: skip


@heard("before", "scaler.unscale_")
def before_unscale(observer: LoopObserver, args: tuple, kwargs: dict) -> None:
    scaler, optimizer = args[0], args[1] if len(args) > 1 else kwargs.get("optimizer")
    if not scaler.is_enabled() or not observer.mine(optimizer):
        return
    stage = observer.stages.get(id(optimizer), "ready")
    parameters = observer.parameters_of(optimizer)
    note_changes(observer, parameters)
    if observer.looks_closely:
        note_silent_change(observer, parameters)
    grads = [p.grad for p in parameters if p.grad is not None]
    scales = observer.ledger.scales(parameters)
    observer.add(
        "unscale",
        optimizer=observer.number_of(optimizer),
        repeated=stage != "ready",
        after_step=stage == "stepped",
        by_step=observer.inside_scaler_step,
        scale=later(scaler._scale) if scaler._scale is not None else None,
        grads_scale=scales[0] if scales else None,
        backward_scales=len({s if isinstance(s, float) else id(s) for s in scales}),
        grads=len(grads),
        dtypes=",".join(sorted({dtype_name(g.dtype) for g in grads})),
        norm=None,
        scaler=observer.scalers.number(scaler),
        **observer.ledger.parts(parameters),
    )


@heard("after", "scaler.unscale_")
def after_unscale(observer: LoopObserver, args: tuple, kwargs: dict, result: Any) -> None:
    scaler, optimizer = args[0], args[1] if len(args) > 1 else kwargs.get("optimizer")
    if not scaler.is_enabled() or not observer.mine(optimizer):
        return
    parameters = observer.parameters_of(optimizer)
    observer.stages[id(optimizer)] = "unscaled"
    observer.ledger.unscaled(parameters)
    if observer.looks_closely:
        unscale = observer.recent[-1].of("unscale")
        if unscale:
            unscale[-1].facts["norm"] = norm_of(parameters)


@heard("before", "scaler.step")
def before_scaler_step(observer: LoopObserver, args: tuple, kwargs: dict) -> None:
    scaler, optimizer = args[0], args[1] if len(args) > 1 else kwargs.get("optimizer")
    if not scaler.is_enabled() or not observer.mine(optimizer):
        return
    if observer.everything:
        observer.adopt(optimizer)
    parameters = observer.parameters_of(optimizer)
    stage = observer.stages.get(id(optimizer), "ready")
    fused = bool(getattr(optimizer, "_step_supports_amp_scaling", False))
    if fused and stage == "ready":
        note_changes(observer, parameters)
    observer.inside_scaler_step = True
    observer.examiner.pause()
    observer.add(
        "scaler-step",
        optimizer=observer.number_of(optimizer),
        repeated=stage == "stepped",
        new_backward=bool(observer.recent[-1].of("backward")),
        grads=sum(p.grad is not None for p in parameters),
        trainable=sum(p.requires_grad for p in parameters),
        inside_autocast=observer.autocast_covers(parameters),
        fused=fused,
        scaler=observer.scalers.number(scaler),
        many_scalers=observer.scalers.used_by(optimizer, scaler) >= 3,
        **observer.ledger.parts(parameters),
    )


@heard("after", "scaler.step")
def after_scaler_step(observer: LoopObserver, args: tuple, kwargs: dict, result: Any) -> None:
    scaler, optimizer = args[0], args[1] if len(args) > 1 else kwargs.get("optimizer")
    observer.inside_scaler_step = False
    if not scaler.is_enabled() or not observer.mine(optimizer):
        return
    observer.stages[id(optimizer)] = "stepped"
    observer.stepped = True
    events = observer.recent[-1].of("scaler-step")
    found = scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
    infinite = any(float(flag) > 0 for flag in found.values())  # step has waited for these already
    if events:
        events[-1].facts["skipped"] = infinite
    observer.outcomes[observer.number_of(optimizer)] = infinite
    observer.ledger.unscaled(observer.parameters_of(optimizer), used=True)


@heard("failed", "scaler.step")
def failed_scaler_step(observer: LoopObserver, args: tuple, kwargs: dict) -> None:
    observer.inside_scaler_step = False


@heard("before", "scaler.update")
def before_update(observer: LoopObserver, args: tuple, kwargs: dict) -> None:
    scaler = args[0]
    observer.pending["scale"] = None
    if scaler.is_enabled() and scaler._scale is not None:
        observer.pending["scale"] = later(scaler._scale)
        stepped = [s for s in scaler._per_optimizer_states.values() if s["stage"] is OptState.STEPPED]
        observer.pending["found"] = any(float(flag) > 0 for s in stepped for flag in s["found_inf_per_device"].values())


@heard("after", "scaler.update")
def after_update(observer: LoopObserver, args: tuple, kwargs: dict, result: Any) -> None:
    scaler = args[0]
    before = observer.pending.pop("scale", None)
    if before is None:
        return
    number = observer.scalers.number(scaler)
    # The scaler's own record is gone after update; a GAN's steps lie in different iterations.
    skipped = observer.pending.pop("found", False)
    in_a_row = observer.in_a_row[number] = observer.in_a_row.get(number, 0) + 1 if skipped else 0
    observer.skips_in_a_row = max(observer.in_a_row.values())
    observer.skips += skipped
    observer.updates += 1
    # Optimizers that still hold scaled gradients would be unscaled by another scale than theirs.
    waiting = [
        observer.number_of(o)
        for o in observer.optimizers
        if observer.stages.get(id(o), "ready") != "stepped" and observer.ledger.scales(observer.parameters_of(o))
    ]
    observer.add(
        "update", before=before, after=later(scaler._scale), skipped=skipped, skips_in_a_row=in_a_row, scaler=number,
        skips=observer.skips, updates=observer.updates, waiting=tuple(waiting), by_hand=len(args) > 1 or bool(kwargs),
    )  # fmt: skip
    observer.stages.clear()


@heard("after", "scaler.state_dict")
def after_state_dict(observer: LoopObserver, args: tuple, kwargs: dict, result: Any) -> None:
    observer.add("scaler-state")


@heard("after", "scaler.get_scale")
def after_get_scale(observer: LoopObserver, args: tuple, kwargs: dict, result: Any) -> None:
    observer.add("get-scale")
