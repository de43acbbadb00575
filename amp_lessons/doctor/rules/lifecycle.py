"""Rules on what surrounds the step: accumulation, schedulers, checkpoints, and the scaler's own life."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from amp_lessons.doctor.events import Iteration
from amp_lessons.doctor.report import Finding
from amp_lessons.doctor.rules.wording import at, number


def accumulation_not_divided(recent: Sequence[Iteration]) -> Finding | None:
    """Several micro-batches were added up, and none of their losses was divided by their number."""
    now = recent[-1]
    # Micro-batches go backward in one and the same place; different losses of one batch do it in different ones.
    added = [e for e in now.of("backward") if e.parameters and e.accumulated]
    places = Counter(e.path for e in added)
    if not places or not now.of("step", "scaler-step"):
        return None
    place = places.most_common(1)[0][0]
    backwards = [e for e in now.of("backward") if e.parameters and e.path == place]
    forwards = [e for e in now.of("forward") if e.training]
    count = len(backwards)
    if count < 2 or any(e.divided for e in backwards) or len(forwards) < count:
        return None
    if any(e.kind == "changed" for e in now.events):
        return None  # divided afterwards, on the gradients
    norms = [e.norm for e in backwards if e.norm is not None and math.isfinite(e.norm)]
    grown = f"; the gradient norm grew from {number(norms[0])} to {number(norms[-1])}" if len(norms) > 1 else ""
    evidence = f"{count} backward passes were added up before the step, none of a loss divided by {count}{at(backwards[-1])}{grown}"
    why = f"The gradient is {count} times that of the mean over all micro-batches, as if the learning rate were {count} times as high."
    # Two backward passes a step are also how a GAN's discriminator sums real and fake: no mistake there.
    severity = "warning" if count > 2 else "advice"
    return Finding("accumulation-not-divided", severity, evidence, why, f"loss = criterion(output, y) / {count}", 5, now.number)


def scheduler_on_skipped_step(recent: Sequence[Iteration]) -> Finding | None:
    """The learning-rate scheduler advanced although the scaler skipped the optimizer's step."""
    event = recent[-1].first("scheduler", after_skip=True)
    if event is None:
        return None
    evidence = f"{event.name}.step() ran{at(event)} in an iteration whose optimizer step was skipped"
    evidence += "; with a fused optimizer PyTorch does not warn about it" if event.fused else ""
    why = "The schedule runs ahead of the training: a step that was not taken used up some of it."
    fix = "before = scaler.get_scale(); scaler.step(optimizer); scaler.update(); scaler.get_scale() >= before and scheduler.step()"
    # Once may be the last batch of an epoch, after which the schedule is due anyway.
    severity = "warning" if sum(bool(i.first("scheduler", after_skip=True)) for i in recent) > 1 else "advice"
    return Finding("scheduler-on-skipped-step", severity, evidence, why, fix, lesson=5, step=recent[-1].number)


def scaler_not_saved(recent: Sequence[Iteration]) -> Finding | None:
    """A checkpoint has the optimizer's state and not the scaler's."""
    event = recent[-1].first("save", optimizer_state=True, scaler_state=False)
    scaler = any(i.of("scale") for i in recent)
    if event is None or not scaler or any(i.of("scaler-state") for i in recent):
        return None
    evidence = f"torch.save{at(event)} wrote an optimizer's state, and no scaler state, while a GradScaler was at work"
    why = "A resumed run starts again at a scale of 65536: skipped steps or flushed gradients until it has found its place."
    fix = "checkpoint['scaler'] = scaler.state_dict()  # and scaler.load_state_dict(...) on resume"
    return Finding("scaler-not-saved", "warning", evidence, why, fix, lesson=5, step=recent[-1].number)


def scaler_made_anew(recent: Sequence[Iteration]) -> Finding | None:
    """One optimizer is stepped by ever new scalers: made in each iteration, or in each epoch."""
    event = recent[-1].first("scaler-step", many_scalers=True)
    if event is None:
        return None
    evidence = f"optimizer {event.optimizer} was stepped by its third GradScaler within {recent[-1].number + 1} iterations{at(event)}"
    why = "Each starts at 65536 with an empty growth count, so the scale never adapts."
    fix = "scaler = torch.amp.GradScaler(device)  # once, before the loop"
    return Finding("scaler-made-anew", "warning", evidence, why, fix, lesson=4, step=recent[-1].number)


def scaler_first_argument(recent: Sequence[Iteration]) -> Finding | None:
    """The scale was given as GradScaler's first argument, which is the device."""
    event = next((e for e in recent[-1].of("scaler") if e.odd_device), None)
    if event is None:
        return None
    evidence = f"GradScaler was made{at(event)} with device={event.odd_device}; its scale is still the default"
    why = "In torch.amp.GradScaler the first argument is the device; torch.cuda.amp.GradScaler took the scale there."
    fix = f"scaler = torch.amp.GradScaler('cuda', init_scale={event.odd_device})"
    return Finding("scaler-first-argument", "error", evidence, why, fix, lesson=4, step=recent[-1].number)


def deprecated_spelling(recent: Sequence[Iteration]) -> Finding | None:
    """torch.cuda.amp or torch.cpu.amp is used."""
    event = next((e for e in recent[-1].of("scaler", "region") if e.get("deprecated")), None)
    if event is None:
        return None
    name = "GradScaler" if event.kind == "scaler" else "autocast"
    module = ".".join(event.deprecated.split(".")[:3])
    evidence = f"{module}.{name} was used{at(event)}"
    why = "It still works and prints a FutureWarning since torch 2.4; the new spelling takes the device as an argument."
    device = module.split(".")[1]
    fix = f"torch.amp.GradScaler('{device}')" if name == "GradScaler" else f"torch.autocast('{device}', dtype=torch.float16)"
    return Finding("deprecated-spelling", "advice", evidence, why, fix, lesson=4, step=recent[-1].number)


RULES = (
    accumulation_not_divided,
    scheduler_on_skipped_step,
    scaler_not_saved,
    scaler_made_anew,
    scaler_first_argument,
    deprecated_spelling,
)
