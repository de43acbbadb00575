"""Rules on values and dtypes: 16-bit parameters, numbers that round to zero, overflow in the forward pass."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from amp_lessons.doctor.events import Event, Iteration
from amp_lessons.doctor.report import Finding
from amp_lessons.doctor.rules.wording import at, number


def sixteen_bit_parameters(recent: Sequence[Iteration]) -> Finding | None:
    """The parameters themselves are float16."""
    now = recent[-1]
    event = next((e for e in now.of("forward") if e.training and "float16" in e.parameters), None)
    if event is None or not now.of("backward"):
        return None
    evidence = f"model {event.model} trains parameters in {', '.join(event.parameters)}"
    evidence += f", under autocast to {event.autocast}" if event.autocast else ""
    why = (
        "Updates under about 1/2048 of a weight round away in fp16, and GradScaler refuses fp16 gradients (fused optimizers take "
        "them silently). Under autocast the weights stay float32 and only the operations run in 16 bits."
    )
    fix = "model = model.float()  # no .half(); let torch.autocast choose the dtypes"
    return Finding("fp16-parameters", "error", evidence, why, fix, lesson=3, step=now.number)


def optimizer_epsilon(recent: Sequence[Iteration]) -> Finding | None:
    """The optimizer's eps rounds to zero in the parameters' dtype."""
    for event in recent[-1].of("step"):
        if event.eps and "float16" in event.dtypes.split(",") and float(torch.tensor(event.eps, dtype=torch.float16)) == 0:
            evidence = f"{event.name} has eps={event.eps:g} and float16 parameters; in float16 that eps is 0"
            why = "A zero gradient then gives 0/0 = NaN, and a tiny one a huge step."
            fix = "model = model.float()  # with autocast; or eps=1e-4 if the weights must be float16"
            return Finding("optimizer-eps-rounds-to-zero", "error", evidence, why, fix, lesson=3, step=recent[-1].number)
    return None


def updates_do_not_land(recent: Sequence[Iteration]) -> Finding | None:
    """Most updates of a 16-bit parameter round back to the old value."""
    for event in recent[-1].of("landed"):
        if event.meant and event.moved / event.meant < 0.5:
            evidence = f"of {event.meant:.0f} {event.dtype} weights with a gradient, {event.meant - event.moved:.0f} were unchanged by the step"
            why = "An update smaller than half the spacing at the weight rounds away, however often it is repeated."
            fix = "keep the weights (and any moving average of them) in float32"
            return Finding("update-does-not-land", "warning", evidence, why, fix, lesson=3, step=recent[-1].number)
    return None


def average_does_not_move(recent: Sequence[Iteration]) -> Finding | None:
    """A 16-bit copy of the weights, such as a moving average, stays as it is while the weights move."""
    event = recent[-1].first("average")
    if event is None or event.moved / event.total >= 0.5:
        return None
    evidence = f"{event.total - event.moved:.0f} of {event.total:.0f} values of the {event.dtype} moving average did not move in {event.updates:.0f} iterations"
    why = "With a decay of 0.999 the average moves by a thousandth of the difference, less than half the spacing in 16 bits."
    fix = "ema = copy.deepcopy(model).float()  # moving averages belong in float32"
    return Finding("average-does-not-move", "warning", evidence, why, fix, lesson=3, step=recent[-1].number)


def epsilon_in_forward(recent: Sequence[Iteration]) -> Finding | None:
    """A small constant that guards a log, root or division rounds to zero."""
    event = recent[-1].first("op", issue="epsilon")
    if event is None:
        return None
    evidence = f"{event.name} with {event.number:g}{at(event)}{_in(event)}: in {event.dtype} that number is 0"
    why = "The guard does nothing: the log, root or division behind it can still give inf or NaN."
    fix = f"x.float() + {event.number:g}  # or a guard of 1e-6 or more in fp16"
    return Finding("epsilon-rounds-to-zero", "warning", evidence, why, fix, lesson=3, step=recent[-1].number)


_HINTS = {
    "mul": "squares overflow above 255.9: use F.rms_norm / F.layer_norm, or square x.float()",
    "pow": "squares overflow above 255.9: use F.rms_norm / F.layer_norm, or square x.float()",
    "square": "squares overflow above 255.9: use F.rms_norm / F.layer_norm, or square x.float()",
    "exp": "exp overflows above 11.09 in fp16: use torch.softmax or torch.logsumexp, which subtract the largest first",
    "sum": "sums overflow past 65504: use .mean(), or .float().sum()",
    "add": "masks: use masked_fill(mask, torch.finfo(scores.dtype).min) in place of adding -1e9",
    "masked_fill": "masks: use torch.finfo(scores.dtype).min in place of -1e9",
}


def forward_overflow(recent: Sequence[Iteration]) -> Finding | None:
    """An operation turned finite 16-bit values into inf or NaN."""
    events = list(recent[-1].all("op", issue="overflow"))
    event = next((e for e in events if not e.harmless), events[0] if events else None)
    if event is None:
        return None
    evidence = (
        f"{event.name}{at(event)}{_in(event)}: {event.bad} of {event.total} results are not finite, from finite inputs up to {number(event.largest)}"
    )
    why = f"The result is beyond what {event.dtype} holds (float16 ends at 65504). Loss scaling does not touch the forward pass."
    hint = next((text for key, text in _HINTS.items() if event.name.removeprefix("r").startswith(key)), None)
    fix = hint or "run this operation in float32: call it on .float() inputs"
    severity = "advice" if event.harmless and not _is_nonfinite(recent[-1]) else "error"
    return Finding("forward-overflow", severity, evidence, why, fix, lesson=3, step=recent[-1].number)


def nonfinite_input(recent: Sequence[Iteration]) -> Finding | None:
    """The model was given NaN or inf."""
    event = recent[-1].first("input")
    if event is None or not _is_nonfinite(recent[-1]):
        return None  # the model itself replaces them
    evidence = f"{event.bad} of {event.total} values in the model's input {event.place} were not finite"
    why = "They give NaN gradients at every loss scale; with a scaler every such step is skipped in silence."
    fix = "assert torch.isfinite(x).all()  # find the bad rows where the data are made"
    return Finding("nonfinite-input", "error", evidence, why, fix, lesson=4, step=recent[-1].number)


def raises_on_cuda(recent: Sequence[Iteration]) -> Finding | None:
    """An operation ran under CPU autocast that CUDA autocast refuses."""
    event = recent[-1].first("op", issue="cuda-raises")
    if event is None:
        return None
    evidence = f"{event.name} ran under CPU autocast{at(event)}; under CUDA autocast PyTorch raises 'unsafe to autocast'"
    why = "In fp16 sigmoid(12) is exactly 1, so the logarithm behind it overflows and its gradient is NaN."
    fix = "F.binary_cross_entropy_with_logits(logits, target)  # without the sigmoid before it"
    return Finding("raises-on-cuda", "warning", evidence, why, fix, lesson=3, step=recent[-1].number)


def other_dtype_on_cuda(recent: Sequence[Iteration]) -> Finding | None:
    """Operations that stay in 16 bits on the CPU and run in float32 on CUDA."""
    event = recent[-1].first("op", issue="cuda-dtype")
    if event is None:
        return None
    evidence = f"ran in 16 bits under CPU autocast: {event.name}; under CUDA autocast these run in float32"
    why = "CPU and CUDA autocast have different op lists, so numbers (and overflows) seen here can differ from those on a GPU."
    fix = "no change needed; write .float() before the operation to have float32 on both"
    return Finding("other-dtype-on-cuda", "advice", evidence, why, fix, lesson=3, step=recent[-1].number)


def _is_nonfinite(iteration: Iteration) -> bool:
    """Whether a loss was NaN or inf, or the step was skipped."""
    losses = [event.loss for event in iteration.of("scale", "backward") if event.loss is not None]
    return any(not math.isfinite(loss) for loss in losses) or any(event.get("skipped") for event in iteration.of("scaler-step"))


def _in(event: Event) -> str:
    return f" in {event.module}" if event.module else ""


RULES = (
    sixteen_bit_parameters,
    optimizer_epsilon,
    updates_do_not_land,
    average_does_not_move,
    epsilon_in_forward,
    forward_overflow,
    nonfinite_input,
    raises_on_cuda,
    other_dtype_on_cuda,
)
