"""The optimizer and what goes with it: steps, schedulers, checkpoints, autocast regions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from amp_lessons.doctor.events import dtype_name, later
from amp_lessons.doctor.hearing import heard
from amp_lessons.doctor.hearing.gradients import note_changes
from amp_lessons.doctor.ledger import norm_of
from amp_lessons.histograms import ExponentHistogram

if TYPE_CHECKING:
    from amp_lessons.doctor.observer import LoopObserver


@heard("after", "optimizer.__init__")
def after_optimizer_made(observer: LoopObserver, args: tuple, kwargs: dict, result: Any) -> None:
    if observer.everything:
        observer.adopt(args[0])


@heard("before", "step")
def before_step(observer: LoopObserver, args: tuple, kwargs: dict) -> None:
    optimizer = args[0]
    if not observer.mine(optimizer):
        return
    closure = len(args) > 1 and callable(args[1]) or callable(kwargs.get("closure"))
    if closure and observer.stepped:  # forward and backward come inside this step
        observer.close_iteration()
    if observer.everything:
        observer.adopt(optimizer)
    observer.examiner.pause()
    parameters = observer.parameters_of(optimizer)
    observer.ledger.track(parameters)  # add_param_group may have brought new ones
    if not observer.inside_scaler_step:
        note_changes(observer, parameters)
    scales = [] if observer.inside_scaler_step else observer.ledger.scales(parameters)
    facts: dict[str, Any] = {}
    if observer.looks_closely and not scales and not closure:
        grads = [p.grad for p in parameters if p.grad is not None and not p.grad.is_sparse and not p.grad.is_complex()]
        if grads and not getattr(optimizer, "grad_scale", None) is not None:
            observer.add("histogram", histogram=ExponentHistogram.of(*grads))
        observer.pending["watched_weight"] = _sixteen_bit_sample(optimizer)
    if scales:
        facts = {"scale": scales[0], "norm": norm_of(parameters)}
    observer.add(
        "step",
        optimizer=observer.number_of(optimizer),
        name=type(optimizer).__name__,
        through_scaler=observer.inside_scaler_step,
        scaled=bool(scales),
        unscaled_by_hand=observer.stages.get(id(optimizer)) == "unscaled" and not observer.inside_scaler_step,
        closure=closure,
        inside_autocast=observer.autocast_covers(parameters),
        inside_region=nesting() > 0,
        grads=sum(p.grad is not None for p in parameters),
        eps=float(getattr(optimizer, "defaults", {}).get("eps") or 0.0),
        dtypes=",".join(observer.dtypes_of(optimizer, lambda: (p for p in parameters if p.requires_grad))),
        **observer.ledger.parts(parameters),
        **facts,
    )


@heard("after", "step")
def after_step(observer: LoopObserver, args: tuple, kwargs: dict, result: Any) -> None:
    optimizer = args[0]
    if not observer.mine(optimizer):
        return
    observer.stepped = True
    observer.regions = 0
    parameters = observer.parameters_of(optimizer)
    if observer.inside_scaler_step:
        observer.ledger.accept(parameters)  # scaler.step's own end is still to come
    else:
        observer.ledger.unscaled(parameters, used=True)
    sample = observer.pending.pop("watched_weight", None)
    if sample is not None:
        parameter, before = sample
        moving = parameter.grad != 0
        landed = (parameter.detach() != before) & moving
        observer.add(
            "landed", dtype=dtype_name(parameter.dtype), moved=later(landed.sum().float()),
            meant=later(moving.sum().float()),
        )  # fmt: skip


@heard("before", "scheduler")
def before_scheduler(observer: LoopObserver, args: tuple, kwargs: dict) -> None:
    # A scheduler's constructor takes a first step of its own.
    optimizer = getattr(args[0], "optimizer", None)
    if optimizer is None or not observer.mine(optimizer) or not observer.stepped:
        return
    skipped = observer.outcomes.get(observer.number_of(optimizer), False)
    fused = bool(getattr(optimizer, "_step_supports_amp_scaling", False))
    observer.add("scheduler", name=type(args[0]).__name__, after_skip=skipped, fused=fused)


@heard("before", "save")
def before_save(observer: LoopObserver, args: tuple, kwargs: dict) -> None:
    saved = args[0] if args else kwargs.get("obj")
    observer.add("save", optimizer_state=_holds(saved, {"state", "param_groups"}), scaler_state=_holds(saved, {"_growth_tracker"}))


@heard("after", "region.enter")
def after_region_enter(observer: LoopObserver, args: tuple, kwargs: dict, result: Any) -> None:
    region = args[0]
    module = type(region).__module__
    observer.regions += nesting() == 1  # only the end of an outermost region clears the cached weights
    if region._enabled:
        observer.entered.add(dtype_name(region.fast_dtype))
    if ".cuda.amp" in module or ".cpu.amp" in module:
        observer.add("region", deprecated=module)


def nesting() -> int:
    """How many autocast regions the code is in, those with ``enabled=False`` counted too."""
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()


def _sixteen_bit_sample(optimizer: torch.optim.Optimizer) -> tuple[Tensor, Tensor] | None:
    """The largest 16-bit parameter with a gradient and a learning rate, and a copy of it; None if all are float32."""
    moving = [p for group in optimizer.param_groups if group.get("lr", 1.0) != 0 for p in group["params"]]
    small = [p for p in moving if p.dtype in (torch.float16, torch.bfloat16) and p.grad is not None]
    if not small:
        return None
    parameter = max(small, key=lambda p: p.numel())
    return parameter, parameter.detach().clone()


def _holds(saved: Any, keys: set[str], depth: int = 4) -> bool:
    """Whether a checkpoint has, at some level, a dict with all these keys."""
    if isinstance(saved, dict):
        return keys <= {key for key in saved if isinstance(key, str)} or any(
            _holds(value, keys, depth - 1) for value in saved.values() if depth > 0 and isinstance(value, (dict, list, tuple))
        )
    if isinstance(saved, (list, tuple)) and depth > 0:
        return any(_holds(value, keys, depth - 1) for value in saved[:100])
    return False
