"""A real run of a model under autocast with every ATen op written down, to hold a trace against."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from amp_lessons.autocast_ops.dispatch import Answer, attempt, check_question, quiet
from amp_lessons.autocast_ops.record import Step, module_paths, recording
from amp_lessons.autocast_ops.trace import Trace, check_model, ended_by_an_op
from amp_lessons.errors import LessonError


def measure(
    model: nn.Module,
    *inputs: Any,
    device_type: str = "cpu",
    autocast_dtype: torch.dtype = torch.float16,
) -> Trace:
    """Run ``model(*inputs)`` inside torch.autocast on this device and record the dtypes of every op.

    The forward pass is really computed, on copies of the buffers and with its random numbers put back, so the model is
    left as it was. The steps end at an op that raises. Raises LessonError where there is no such device, or where the
    model's own code fails.
    """
    check_model(model, inputs)
    check_question(device_type, autocast_dtype)
    if device_type == "cuda" and not torch.cuda.is_available():
        raise LessonError("There is no CUDA device here to run on; trace(model, inputs) needs none.")
    device = torch.device(device_type)
    values = {name: p.detach().to(device).requires_grad_(p.requires_grad) for name, p in model.named_parameters()}
    values |= {name: b.detach().to(device).clone() for name, b in model.named_buffers()}
    given = pytree.tree_map_only(torch.Tensor, lambda t: t.detach().to(device).clone(), inputs)
    steps: list[Step] = []
    devices = list(range(torch.cuda.device_count())) if device_type == "cuda" else []
    with quiet(), torch.random.fork_rng(devices=devices), module_paths(model) as path, torch.enable_grad():
        with ended_by_an_op(), torch.autocast(device_type, dtype=autocast_dtype), recording(steps, path, _call):
            torch.func.functional_call(model, values, given)
    return Trace(tuple(steps), device_type, autocast_dtype, measured=True)


def differences(traced: Trace, measured: Trace) -> list[str]:
    """Where a trace and a real run disagree, one line each; empty if they agree op by op.

    Views and reshapes are left out: they never change a dtype.
    """
    ours = [step for step in traced.steps if not step.moves_only]
    real = [step for step in measured.steps if not step.moves_only]
    if [step.op for step in ours] != [step.op for step in real]:
        at = next((i for i, (a, b) in enumerate(zip(ours, real)) if a.op != b.op), min(len(ours), len(real)))
        names = [steps[at].op if at < len(steps) else "the end" for steps in (ours, real)]
        return [f"op {at + 1} is {names[0]} in the trace and {names[1]} in the run"]
    return [
        f"op {at + 1}: traced {a}, measured {b}"
        for at, (a, b) in enumerate(zip(ours, real))
        if (a.inputs, a.answer.dtypes, bool(a.answer.error)) != (b.inputs, b.answer.dtypes, bool(b.answer.error))
    ]


def _call(op: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[Answer, Any]:
    return attempt(lambda: op(*args, **kwargs))
