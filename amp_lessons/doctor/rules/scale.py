"""Rules on the loss scale itself: collapsing, too low, not needed, or missing."""

from __future__ import annotations

import math
from collections.abc import Sequence

from amp_lessons.doctor.events import Iteration
from amp_lessons.doctor.report import Finding
from amp_lessons.doctor.rules.wording import at, number, scale

# Skips in a row, where something in the forward pass was not finite: each halves the scale, so eight mean a factor of 256.
COLLAPSE = 8


def scale_collapse(recent: Sequence[Iteration]) -> Finding | None:
    """Step after step is skipped, and something else than the scale is the reason."""
    update = next(iter(reversed(recent[-1].of("update"))), None)
    if update is None or not update.skipped:
        return None
    loss = next((e for i in recent for e in i.of("scale") if not math.isfinite(e.loss)), None)
    bad_input = next((e for i in recent for e in i.of("input")), None)
    overflow = next((e for i in recent for e in i.all("op", issue="overflow")), None)
    # Finite all the way forward, skips are calibration, however many, until no scale is left to try.
    cause = loss or bad_input or overflow
    enough = 3 if loss is not None else COLLAPSE
    if update.after >= 1 and (cause is None or update.skips_in_a_row < enough):
        return None
    evidence = f"{update.skips_in_a_row} skipped steps in a row; the loss scale is down to {scale(update.after)}"
    if bad_input is not None:
        evidence += f"; {bad_input.bad} of {bad_input.total} values of the model's input were not finite"
        fix = "assert torch.isfinite(x).all()  # find the bad rows where the data are made"
        why = "NaN or inf in the data gives NaN gradients at every scale: nothing is trained and the scale only falls."
    elif overflow is not None:
        evidence += f"; the first non-finite values came from {overflow.name} in {overflow.module or 'code outside the model'}{at(overflow)}"
        fix = "run that part in float32: with torch.autocast(device_type, enabled=False): ... on .float() inputs"
        why = "An overflow in the forward pass does not depend on the loss scale, so no scale can mend it."
    elif loss is not None:
        evidence += f"; the loss itself was {loss.loss}{at(loss)}"
        fix = "look at the loss, not at the scaler: raise if not math.isfinite(loss.item())"
        why = "A non-finite loss gives non-finite gradients at every scale: nothing is trained and the scale only falls."
    else:
        evidence += "; loss and inputs were finite, so gradients overflow in the backward pass"
        fix = "lower the learning rate or normalise: gradients this large are not a matter of the scale"
        why = "Gradients that overflow at every scale mean that the backward pass itself leaves fp16's range."
    return Finding("scale-collapse", "error", evidence, why, fix, lesson=4, step=recent[-1].number)


def scale_too_low(recent: Sequence[Iteration]) -> Finding | None:
    """The loss was multiplied by less than 1."""
    event = next((e for e in recent[-1].of("scale") if e.scale < 1), None)
    if event is None or any(e.skips_in_a_row >= 3 for i in recent for e in i.of("update")):
        return None  # what comes of a collapse is no mistake of its own
    evidence = f"the loss was multiplied by {scale(event.scale)}{at(event)}"
    why = "A scale under 1 flushes more gradients than no scaling, and at 2^-128 or 0 unscaling writes inf or NaN into the weights."
    fix = "scaler = torch.amp.GradScaler(device)  # starts at 65536; stop the run when get_scale() < 1"
    return Finding("scale-below-one", "error", evidence, why, fix, lesson=4, step=recent[-1].number)


def fp16_loss(recent: Sequence[Iteration]) -> Finding | None:
    """The loss tensor is float16, so its own gradient, the scale, overflows."""
    event = recent[-1].first("scale", dtype="float16")
    if event is None or event.scale < 65520 / max(event.elements, 1):
        return None
    evidence = f"the loss given to scaler.scale{at(event)} is float16; its gradient, the loss scale {scale(event.scale)}, is above 65504 and became inf"
    why = "Backward starts with the scale in the loss's own dtype. At 65536 that is inf in float16, so the step is always skipped."
    fix = "loss = criterion(output.float(), target)  # losses belong in float32"
    return Finding("fp16-loss", "warning", evidence, why, fix, lesson=4, step=recent[-1].number)


def scaler_not_needed(recent: Sequence[Iteration]) -> Finding | None:
    """A scaler works, but the forward pass is bf16 or float32."""
    now = recent[-1]
    forwards, scales = now.of("forward"), now.of("scale")
    if not forwards or not scales:
        return None
    if any("float16" in (e.autocast, e.output, *e.parameters, *e.entered) for e in forwards):
        return None
    used = forwards[0].autocast or ("bfloat16" if forwards[0].output == "bfloat16" else "float32")
    evidence = f"{len(forwards)} forward pass(es) in {used}, and the loss multiplied by {scale(scales[0].scale)}{at(scales[0])}"
    why = f"{used} has float32's range, so nothing is flushed that a scale could save; the scaler costs time and may skip steps."
    fix = "scaler = torch.amp.GradScaler(device, enabled=(dtype == torch.float16))"
    return Finding("scaler-not-needed", "warning", evidence, why, fix, lesson=5, step=now.number)


def fp16_without_scaler(recent: Sequence[Iteration]) -> Finding | None:
    """fp16 autocast without a scaler, and gradients at fp16's floor."""
    now = recent[-1]
    forwards = list(now.all("forward", autocast="float16"))
    backwards = now.of("backward")
    if not forwards or not backwards or any(e.scaled for e in backwards):
        return None
    histograms = [e.histogram for e in now.of("histogram")]
    if not histograms or now.of("changed"):  # a loss scaled by hand is divided out by hand
        return None
    histogram = histograms[0]
    nonzero = histogram.nonzero_finite
    why = "Gradients under 2^-25 become zero in the backward pass, and those near it lose their bits; a loss scale lifts them."
    if not nonzero:
        losses = [e.loss for e in backwards if e.loss]
        if not losses or histogram.zeros < histogram.total:
            return None
        evidence = f"no loss scale, forward in fp16: all {histogram.total} gradients are zero, for a loss of {number(losses[0])}"
        fix = "scaler = torch.amp.GradScaler(device)  # starts at a loss scale of 2^16"
        return Finding("fp16-without-scaler", "error", evidence, why, fix, lesson=2, step=now.number)
    # Under fp16 nothing below 2^-24 can be seen; a crowd just above it is what is left of what was flushed.
    floor = sum(count for exponent, count in histogram.binades().items() if -25 <= exponent <= -21) / nonzero
    subnormal = histogram.shares().subnormal * histogram.total / nonzero
    window = histogram.window()
    advised = max(window.high - 4, 0) if window.high is not None else 16
    fix = f"scaler = torch.amp.GradScaler(device)  # for these gradients a loss scale up to about 2^{advised} fits"
    evidence = (
        f"no loss scale, forward in fp16: {subnormal:.0%} of the non-zero gradients are subnormal, {floor:.1%} lie within four "
        f"binades of the floor 2^-24, and {histogram.zeros / histogram.total:.0%} of all gradients are zero"
    )
    if floor >= 0.01:
        return Finding("fp16-without-scaler", "error", evidence, why, fix, lesson=2, step=now.number)
    why = "These gradients fit into fp16, so nothing was lost here; a scaler keeps it so when they get smaller."
    return Finding("fp16-without-scaler", "advice", evidence, why, fix, lesson=2, step=now.number)


def nonfinite_loss(recent: Sequence[Iteration]) -> Finding | None:
    """A loss that is NaN or inf went backward with no scaler to skip the step."""
    now = recent[-1]
    event = next((e for e in now.all("backward", scaled=False) if e.loss is not None and not math.isfinite(e.loss)), None)
    if event is None or not now.of("step"):
        return None
    evidence = f"the loss was {event.loss}{at(event)}, and the optimizer stepped with its gradients"
    why = "NaN or inf in the gradients is written into every weight they reach, and stays there."
    fix = "look for the first non-finite value in data and forward pass; in fp16 use torch.amp.GradScaler, which skips such a step"
    return Finding("nonfinite-loss", "error", evidence, why, fix, lesson=4, step=now.number)


RULES = (nonfinite_loss, scale_collapse, scale_too_low, fp16_loss, scaler_not_needed, fp16_without_scaler)
