"""Exercise 4-hand: a scaled step without GradScaler."""

from __future__ import annotations

import math
from collections.abc import Sequence

from amp_lessons.recipes import ScalerOptions, scale_text
from amp_lessons.tutor.exercise import Exercise, Hint, Wrong
from amp_lessons.tutor.exercises.lesson_4.weights import Weights
from amp_lessons.tutor.given import not_a_flag
from amp_lessons.tutor.trial import Trial

STUB = '''
def scaled_step(loss, optimizer, scale):
    """Backward and step with a fixed loss scale, without a GradScaler; True if the step was taken.

    >>> weight = torch.nn.Parameter(torch.ones(1))
    >>> optimizer = torch.optim.SGD([weight], lr=0.5)
    >>> scaled_step(weight.half().float().sum() / 4, optimizer, 2.0**16), weight.item()
    (True, 0.875)
    >>> scaled_step(weight.half().float().sum() / 4, optimizer, 2.0**18), weight.item()
    (False, 0.875)
    """
    ...
'''

ANSWER = """
def scaled_step(loss, optimizer, scale):
    (loss * scale).backward()
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    gradients = [p.grad for p in parameters if p.grad is not None]
    for gradient in gradients:
        gradient /= scale
    taken = all(gradient.isfinite().all() for gradient in gradients)
    if taken:
        optimizer.step()
    return taken
"""

# The scale, what the weights come with, and the two true gradients of each step. The simple ones come first.
CASES: tuple[tuple[float, dict, tuple[tuple[float, float], ...]], ...] = (
    (2.0**6, {}, ((0.25, -0.5),)),
    (2.0**20, {"lr": 2.0**24}, ((2.0**-28, 2.0**-30),)),  # fp16 flushes both unless they are scaled
    (2.0**16, {}, ((0.25, 16.0),)),
    (2.0**16, {}, ((-16.0, 0.25),)),
    (2.0**16, {}, ((0.25, math.nan),)),
    (2.0**16, {}, ((16.0, -16.0),)),
    (2.0**10, {"momentum": 0.5}, ((0.25, 0.5), (0.25, 100.0), (0.25, 0.5))),
    (2.0**8, {"unused": True}, ((0.25, 0.5), (1000.0, 0.5))),
)


def examine(scaled_step: Trial) -> str | None:
    for scale, makings, steps in CASES:
        tried, real = (Weights(ScalerOptions(scale), count=2, **makings) for _ in range(2))
        for number, gradients in enumerate(steps, start=1):
            before = real.values
            real.scaled_backward(gradients)
            taken = real.end_step(new_scale=scale)  # so that the scale stays
            loss = tried.loss(gradients)
            value = loss.item()
            given = scaled_step(loss, tried.optimizer, scale)
            start = f"Step {number}, gradients {_said(gradients[0])} and {_said(gradients[1])}, scale {scale_text(scale)}: "
            if tried.values != real.values:
                wrong = _not_moved_right(tried, real, before, gradients, scale) if taken else _not_skipped(tried, before, gradients, value)
                return start + wrong
            if wrong := not_a_flag(given):
                return wrong
            if bool(given) != taken:
                return f"{start}the step was {'taken' if taken else 'skipped'}, and it returned {bool(given)}. True stands for taken."
    return None


def _not_moved_right(tried: Weights, real: Weights, before: Sequence[float], gradients: Sequence[float], scale: float) -> str:
    """What the weights tell of a step that was to be taken."""
    if tried.values == before:
        if max(map(abs, gradients)) < 2.0**-25:
            return "no weight moved. Without the scale fp16 flushes gradients this small: run backward on the scaled loss."
        return "all gradients are finite, and no weight moved. Such a step is to be taken: call `optimizer.step()`."
    seen = [(old - new) / tried.lr for old, new in zip(before, tried.values)]
    ratios = [step / gradient for step, gradient in zip(seen, gradients)]
    scaled = [math.isclose(ratio, scale, rel_tol=0.01) for ratio in ratios]
    if all(scaled):
        return f"the optimizer saw {seen[0]:g} and {seen[1]:g}, still multiplied by the scale. Scale once, and divide each `.grad` in place before the step."
    if any(scaled):
        return f"the optimizer saw {seen[0]:g} and {seen[1]:g}. It has two parameter groups, and only one of them was unscaled."
    if all(math.isclose(ratio, 1 / scale, rel_tol=0.01) for ratio in ratios):
        return f"the optimizer saw {seen[0]:g} and {seen[1]:g}, divided by the scale but never multiplied: run backward on the scaled loss."
    return f"the weights went from {_pair(before)} to {_pair(tried.values)}; a real scaler takes them to {_pair(real.values)}."


def _not_skipped(tried: Weights, before: Sequence[float], gradients: Sequence[float], loss: float) -> str:
    """What the weights tell of a step that was to be skipped."""
    came = f"the weights went from {_pair(before)} to {_pair(tried.values)}, in a step that was to be skipped."
    if all(map(math.isfinite, tried.values)):
        if tried.momentum:
            return f"{came} Momentum moves weights by itself, also where every gradient is 0: do not call `optimizer.step()` at all."
        return f"{came} A step is skipped as a whole: one bad gradient, and no weight moves."
    if any(map(math.isnan, gradients)):
        return f"{came} NaN is not finite, and not inf either. Ask of every gradient whether it is finite."
    return f"{came} The loss was {loss:g}, as harmless as any; it is the gradients that overflow. Look at every one of them."


def _said(gradient: float) -> str:
    return scale_text(gradient) if 0 < gradient < 1e-4 else f"{gradient:g}"


def _pair(values: Sequence[float]) -> str:
    return f"({values[0]:.6g}, {values[1]:.6g})"


PRAISE = (
    "Weight for weight it did what a real scaler does at that scale: with an overflow in one gradient only, with NaN, under momentum, "
    "over two parameter groups. What is left of GradScaler is the rule that moves the scale."
)

HINTS = (
    Hint("I do not know where to begin", "Four things happen: a backward, a division, a question, and perhaps a step. The lesson has them one call at a time."),
    Hint("The weights jump by thousands", "Which of your lines takes the scale out again? Does it change `.grad` itself, or a copy?"),
    Hint("There are inf or NaN in the weights", "Which numbers overflow, the loss or the gradients? And does your question catch NaN as well as inf?"),
    Hint("It could not run: something about NoneType", "A parameter that the loss does not use has no gradient: its `.grad` is None."),
    Hint("The weights move although the step is skipped", "With gradients of 0, does an optimizer with momentum stand still?"),
)

ALTERNATIVES = (
    # Each parameter by itself, the question before the division.
    """
def scaled_step(loss, optimizer, scale):
    (scale * loss).backward()
    finite = True
    for group in optimizer.param_groups:
        for p in group["params"]:
            if p.grad is None:
                continue
            if not torch.isfinite(p.grad).all():
                finite = False
            p.grad = p.grad / scale
    if finite:
        optimizer.step()
    optimizer.zero_grad()
    return finite
""",
    # By a norm, which is not finite where a gradient is not.
    """
def scaled_step(loss, optimizer, scale):
    optimizer.zero_grad()
    loss.backward(gradient=torch.tensor(scale))
    grads = [p.grad for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
    torch._foreach_mul_(grads, 1 / scale)
    norm = torch.stack([grad.norm() for grad in grads]).sum()
    if torch.isinf(norm) or torch.isnan(norm):
        return torch.tensor(False)
    optimizer.step()
    return torch.tensor(True)
""",
    # The gradients asked for, and put in place by hand.
    """
def scaled_step(loss, optimizer, scale):
    parameters = [p for g in optimizer.param_groups for p in g["params"]]
    found_inf = False
    for p, grad in zip(parameters, torch.autograd.grad(loss * scale, parameters, allow_unused=True)):
        p.grad = None if grad is None else grad.div(scale)
        found_inf = found_inf or grad is not None and not math.isfinite(grad.abs().sum())
    if not found_inf:
        optimizer.step()
    return not found_inf
""",
)

_HEAD = """
def scaled_step(loss, optimizer, scale):
    (loss * scale).backward()
    grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
"""
_UNSCALE = "    for grad in grads:\n        grad /= scale\n"
_ASK = "    taken = all(grad.isfinite().all() for grad in grads)\n"
_STEP = "    if taken:\n        optimizer.step()\n    return taken\n"

WRONG = (
    Wrong("does not unscale", f"{_HEAD}{_ASK}{_STEP}", "still multiplied by the scale"),
    Wrong("divides a copy", f"{_HEAD}    for grad in grads:\n        grad = grad / scale\n{_ASK}{_STEP}", "divide each `.grad` in place"),
    Wrong("unscales after the step", f"{_HEAD}{_ASK}    if taken:\n        optimizer.step()\n{_UNSCALE}    return taken\n", "in place before the step"),
    Wrong("scales twice", f"{_HEAD.replace('loss * scale', 'loss * scale * scale')}{_UNSCALE}{_ASK}{_STEP}", "Scale once"),
    Wrong("unscales without having scaled", f"{_HEAD.replace('(loss * scale)', 'loss')}{_UNSCALE}{_ASK}{_STEP}", "divided by the scale but never multiplied"),
    Wrong("does not scale at all", f"{_HEAD.replace('(loss * scale)', 'loss')}{_ASK}{_STEP}", "Without the scale fp16 flushes gradients this small"),
    Wrong("asks the loss", f"{_HEAD}{_UNSCALE}    taken = bool(loss.isfinite())\n{_STEP}", "it is the gradients that overflow"),
    Wrong("asks the scaled loss", f"{_HEAD}{_UNSCALE}    taken = bool((loss * scale).isfinite())\n{_STEP}", "The loss was 16.25"),
    Wrong("asks for inf only", f"{_HEAD}{_UNSCALE}    taken = not any(grad.isinf().any() for grad in grads)\n{_STEP}", "NaN is not finite, and not inf either"),
    Wrong("asks the first gradient only", f"{_HEAD}{_UNSCALE}    taken = bool(grads[0].isfinite().all())\n{_STEP}", "Look at every one of them"),
    Wrong("asks for any finite gradient", f"{_HEAD}{_UNSCALE}    taken = any(grad.isfinite().all() for grad in grads)\n{_STEP}", "Look at every one of them"),
    Wrong(
        "steps where the gradients are finite",
        f"{_HEAD}{_UNSCALE}{_ASK}    for group in optimizer.param_groups:\n        for p in group['params']:\n"
        "            if p.grad is not None and not p.grad.isfinite().all():\n                p.grad = None\n"
        "    optimizer.step()\n    return taken\n",
        "A step is skipped as a whole",
    ),
    Wrong(
        "zeroes the gradients and steps",
        f"{_HEAD}{_UNSCALE}{_ASK}    if not taken:\n        for grad in grads:\n            grad.zero_()\n    optimizer.step()\n    return taken\n",
        "Momentum moves weights by itself",
    ),
    Wrong("always steps", f"{_HEAD}{_UNSCALE}{_ASK}    optimizer.step()\n    return taken\n", "in a step that was to be skipped"),
    Wrong("never steps", f"{_HEAD}{_UNSCALE}{_ASK}    return taken\n", "call `optimizer.step()`"),
    Wrong(
        "knows one parameter group only",
        "\ndef scaled_step(loss, optimizer, scale):\n    (loss * scale).backward()\n    grads = [p.grad for p in optimizer.param_groups[0]['params']]\n"
        f"{_UNSCALE}{_ASK}{_STEP}",
        "only one of them was unscaled",
    ),
    Wrong(
        "forgets that .grad can be None",
        _HEAD.replace(" if p.grad is not None", "") + f"{_UNSCALE}{_ASK}{_STEP}",
        "'NoneType'",
    ),
    Wrong("returns whether it skipped", f"{_HEAD}{_UNSCALE}{_ASK}    if taken:\n        optimizer.step()\n    return not taken\n", "True stands for taken"),
    Wrong("forgets to return", f"{_HEAD}{_UNSCALE}{_ASK}    if taken:\n        optimizer.step()\n", "is the `return` missing?"),
)

EXERCISE = Exercise(
    name="4-hand",
    title="A scaled step by hand",
    target="scaled_step",
    stub=STUB,
    answer=ANSWER,
    lines=9,
    examine=examine,
    praise=PRAISE,
    hints=HINTS,
    alternatives=ALTERNATIVES,
    wrong=WRONG,
    setup="import math\n\nimport torch",
)
