"""Rules on what an autocast region is wrapped around."""

from __future__ import annotations

from collections.abc import Sequence

from amp_lessons.doctor.events import Iteration
from amp_lessons.doctor.report import Finding
from amp_lessons.doctor.rules.wording import at, number, scale

_FIX = "with torch.autocast(device_type, dtype=torch.float16): loss = criterion(model(x), y)  # and nothing else"


def loop_inside_region(recent: Sequence[Iteration]) -> Finding | None:
    """One region stays open over several steps, so cached 16-bit weights are never refreshed."""
    if len(recent) < 2:
        return None
    before, now = recent[-2], recent[-1]
    steps = list(before.all("step", inside_region=True))
    forwards = [e for e in now.of("forward") if e.autocast and e.cache and e.regions == 0]
    if not steps or not forwards:
        return None
    evidence = (
        f"the optimizer stepped inside an autocast region{at(steps[-1])}, and the next forward pass ran before that region had "
        "ended: no outermost region was entered in between"
    )
    why = "autocast casts each weight once and keeps the copy until the outermost region ends, so every later forward pass uses the weights of the first."
    return Finding("loop-inside-autocast", "error", evidence, why, _FIX, lesson=3, step=now.number)


def step_inside_region(recent: Sequence[Iteration]) -> Finding | None:
    """The optimizer stepped inside an autocast region."""
    event = recent[-1].first("step", inside_autocast=True)
    if event is None:
        return None
    evidence = f"{event.name}.step() ran inside an autocast region{at(event)}"
    why = "The region's cached 16-bit copies of the weights are out of date after the step, and its arithmetic may run in 16 bits."
    return Finding("step-inside-autocast", "warning", evidence, why, _FIX, lesson=3, step=recent[-1].number)


def backward_inside_region(recent: Sequence[Iteration]) -> Finding | None:
    """backward() was called inside an autocast region."""
    event = recent[-1].first("backward", inside_autocast=True)
    if event is None:
        return None
    evidence = f"backward() ran inside an autocast region to {event.autocast}{at(event)}"
    why = "Backward ops of float32 forward ops then run in 16 bits; the PyTorch docs do not recommend it."
    return Finding("backward-inside-autocast", "warning", evidence, why, _FIX, lesson=3, step=recent[-1].number)


def penalty_on_scaled_gradients(recent: Sequence[Iteration]) -> Finding | None:
    """A gradient penalty was computed from gradients that are multiplied by the loss scale."""
    for event in recent[-1].all("penalty", used_scaled=True):
        if event.scale == 1:
            continue
        evidence = (
            f"gradients made with create_graph=True{at(event)} have a norm of {number(event.norm)}, of which the loss scale is "
            f"{scale(event.scale)}; unscaled it is {number(event.norm / event.scale)}"
        )
        why = "A penalty is not linear in the gradient, so it must see unscaled ones; the scale cannot be taken out afterwards."
        fix = "grads = [g / scaler.get_scale() for g in grads]  # before the penalty's norm"
        return Finding("penalty-on-scaled-gradients", "error", evidence, why, fix, lesson=5, step=recent[-1].number)
    return None


RULES = (loop_inside_region, step_inside_region, backward_inside_region, penalty_on_scaled_gradients)
