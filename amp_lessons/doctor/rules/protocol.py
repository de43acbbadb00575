"""Rules on the order of scaler calls: unscale, step and update, once each."""

from __future__ import annotations

import math
from collections.abc import Sequence

from amp_lessons.doctor.events import Event, Iteration
from amp_lessons.doctor.report import Finding
from amp_lessons.doctor.rules.wording import at, number, scale


def unscale_twice(recent: Sequence[Iteration]) -> Finding | None:
    """unscale_ was called again for an optimizer before update()."""
    now = recent[-1]
    event = next((e for e in now.all("unscale", repeated=True) if not e.by_step), None)
    if event is None:
        return None
    backwards = len(now.of("backward"))
    if event.after_step and backwards and not _stepped(now, event):
        return _missing_update("unscale_", event, now)
    if event.after_step:
        evidence = f"unscale_ was called{at(event)} after scaler.step of the same iteration"
        why = "Unscaling and clipping after the step come too late; PyTorch raises an error."
    else:
        evidence = f"unscale_ was called{at(event)} a second time before update(), after {backwards} backward call(s)"
        why = "A second unscale_ would divide the gradients by the scale twice, so PyTorch raises an error."
    fix = "scaler.unscale_(optimizer)  # once an update, after the last micro-batch's backward"
    return Finding("unscale-twice", "error", evidence, why, fix, lesson=5, step=now.number)


def step_twice(recent: Sequence[Iteration]) -> Finding | None:
    """scaler.step was called again for an optimizer that had stepped, with or without a backward pass in between."""
    now = recent[-1]
    event = now.first("scaler-step", repeated=True)
    if event is None:
        return None
    if event.new_backward and not _stepped(now, event):
        return _missing_update("scaler.step", event, now)
    evidence = f"scaler.step was called{at(event)} for an optimizer that had stepped in this iteration"
    why = "One backward pass pays for one step; PyTorch raises an error at the second."
    return Finding("step-twice", "error", evidence, why, "scaler.step(optimizer)  # once before scaler.update()", 4, now.number)


def _stepped(iteration: Iteration, event: Event) -> bool:
    """Whether the event's optimizer has another step in this iteration."""
    return any(e is not event and e.optimizer == event.optimizer for e in iteration.of("scaler-step"))


def _missing_update(call: str, event: Event, now: Iteration) -> Finding:
    evidence = f"{call} was reached{at(event)} with a new backward pass, but update() was not called since the last step"
    why = "Without update() the scaler keeps the last step's state: PyTorch raises an error, and the scale could never adapt."
    return Finding("missing-update", "error", evidence, why, "scaler.update()  # after scaler.step, each step", 4, now.number)


def missing_step(recent: Sequence[Iteration]) -> Finding | None:
    """Scaled backward passes, but the scaler was never asked to step."""
    now = recent[-1]
    backwards = list(now.all("backward", scaled=True))
    if len(backwards) < 16 or now.of("scaler-step", "step") or now.number > 0:
        return None  # later iterations begin after a step, and may end where the watch ends
    if all(e.divided for e in backwards) and len(backwards) < 256:
        return None  # an accumulation, and a long one
    evidence = f"{len(backwards)} scaled backward passes and no optimizer step so far"
    why = "Gradients only add up; the weights never change. An accumulation this long would be unusual."
    return Finding("missing-step", "warning", evidence, why, "scaler.step(optimizer); scaler.update()", 4, now.number)


def stepped_past_scaler(recent: Sequence[Iteration]) -> Finding | None:
    """optimizer.step() used gradients that are still multiplied by the loss scale."""
    event = next((e for e in recent[-1].all("step", scaled=True, through_scaler=False) if not e.closure), None)
    if event is None or event.scale == 1 or event.norm is None:
        return None
    evidence = f"{event.name}.step() ran{at(event)} with a gradient norm of {number(event.norm)}; "
    if math.isfinite(event.norm):
        evidence += f"unscaled it is {number(event.norm / event.scale)} (loss scale {scale(event.scale)})"
    else:
        evidence += f"scaler.step would have skipped it and lowered the loss scale from {scale(event.scale)}"
    why = (
        "The step was taken with gradients too large by the loss scale. SGD explodes; Adam hides it, since it divides by the "
        "gradient's size, until the scale changes. An overflow would not be skipped either."
    )
    return Finding(
        "optimizer-stepped-past-scaler", "error", evidence, why, "scaler.step(optimizer)  # not optimizer.step()", 4, recent[-1].number
    )


def unscaled_but_not_checked(recent: Sequence[Iteration]) -> Finding | None:
    """unscale_ was called, then optimizer.step() directly: an overflow would reach the weights."""
    event = recent[-1].first("step", unscaled_by_hand=True)
    if event is None:
        return None
    evidence = f"{event.name}.step() ran{at(event)} after scaler.unscale_, without scaler.step"
    why = "The gradients are right, but inf or NaN in them would be written into the weights: only scaler.step skips."
    return Finding(
        "optimizer-stepped-past-scaler", "error", evidence, why, "scaler.step(optimizer)  # not optimizer.step()", 4, recent[-1].number
    )


def no_gradients(recent: Sequence[Iteration]) -> Finding | None:
    """No parameter of a stepping optimizer has a gradient."""
    now = recent[-1]
    event = now.first("scaler-step", grads=0) or now.first("step", grads=0, closure=False)
    if event is None:
        return _cleared_in_place(now)
    if event.kind == "step" and not now.of("backward"):
        return None  # a step for nothing, which some take to please a scheduler
    cleared = any(e.get("after_backward") for e in now.of("zero-grad"))
    reached = max((e.parameters for e in now.of("backward")), default=0)
    evidence = f"optimizer {event.optimizer} reached its step{at(event)} with no gradient in any parameter"
    if cleared:
        evidence += "; zero_grad() had run between backward() and the step"
    else:
        evidence += f"; the backward passes of this iteration gave gradients to {reached} watched parameter(s)"
    why = "The loss does not reach these parameters (detached, frozen, another model's), or their gradients were cleared too early."
    fix = "optimizer.zero_grad()  # after the step" if cleared else "step only optimizers whose parameters the loss reaches"
    severity = "error" if event.kind == "scaler-step" or cleared else "advice"  # without a scaler nothing raises or is lost
    return Finding("no-gradients", severity, evidence, why, fix, lesson=4, step=now.number)


def _cleared_in_place(now: Iteration) -> Finding | None:
    """zero_grad(set_to_none=False) between backward and the step: the step is taken with zeros."""
    cleared: dict[int, Event] = {}
    for event in now.events:
        if event.kind == "backward":
            cleared = {}
        elif event.kind == "zero-grad" and event.after_backward:
            cleared[event.optimizer] = event
        elif event.kind in ("scaler-step", "step") and event.optimizer in cleared and event.grads:
            evidence = f"zero_grad(){at(cleared[event.optimizer])} ran between backward() and the step{at(event)}: {event.grads} gradients were zeros"
            why = "The step is taken with zeros, and what backward had computed is lost; there is no error message."
            return Finding("no-gradients", "error", evidence, why, "optimizer.zero_grad()  # after the step", lesson=4, step=now.number)
    return None


def update_between_optimizers(recent: Sequence[Iteration]) -> Finding | None:
    """update() ran while another optimizer still held scaled gradients, which it then stepped with."""
    events = recent[-1].of("update", "unscale", "scaler-step", "backward")
    waiting: dict[int, float] = {}
    for event in events:
        if event.kind == "update":
            waiting = {index: event.before for index in event.waiting}
            changed = event.before != event.after
            update = event
        elif event.kind == "backward" and event.scaled:
            waiting = {}
        elif event.kind in ("unscale", "scaler-step") and event.optimizer in waiting and event.scaler == update.scaler:
            evidence = (
                f"update() ran{at(update)} while optimizer {event.optimizer} still had gradients scaled by {scale(waiting[event.optimizer])}"
                + (f"; they were then divided by {scale(update.after)}" if changed else "; the next change of scale will hit them")
            )
            why = "All gradients of an iteration must be unscaled with the scale they were made with: update() belongs after the last step."
            return Finding(
                "update-between-optimizers", "error", evidence, why, "scaler.step(opt_a); scaler.step(opt_b); scaler.update()  # once", 5,
                recent[-1].number,
            )  # fmt: skip
    return None


def scale_changed_in_accumulation(recent: Sequence[Iteration]) -> Finding | None:
    """Micro-batches with different loss scales, or scaled and unscaled ones, were added into one gradient."""
    for event in recent[-1].of("unscale", "scaler-step", "step"):
        if event.get("repeated"):
            continue  # that is a mistake of its own, and raises
        if event.mixed:
            evidence = f"optimizer {event.optimizer} used gradients{at(event)} that sum scaled and unscaled parts"
            if event.left_over:
                evidence += "; the unscaled part is left over from the step before, since they were not set to zero"
            return _mixed(evidence, recent[-1].number, "optimizer.zero_grad()  # after each step" if event.left_over else None)
        if event.first_scale != event.last_scale:
            evidence = (
                f"the gradients of optimizer {event.optimizer} hold a part scaled by {scale(event.first_scale)} and a part "
                f"scaled by {scale(event.last_scale)}{at(event)}"
            )
            return _mixed(evidence, recent[-1].number)
    return None


def _mixed(evidence: str, step: int, fix: str | None = None) -> Finding:
    why = "The sum cannot be unscaled by one number any more, so the micro-batches count with different weights."
    fix = fix or "call scaler.unscale_, scaler.step and scaler.update only after the last micro-batch"
    return Finding("scale-changed-in-accumulation", "error", evidence, why, fix, lesson=5, step=step)


RULES = (
    unscale_twice,
    step_twice,
    missing_step,
    stepped_past_scaler,
    unscaled_but_not_checked,
    no_gradients,
    update_between_optimizers,
    scale_changed_in_accumulation,
)
