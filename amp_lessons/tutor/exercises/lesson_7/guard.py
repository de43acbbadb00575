"""Exercise 7-guard: a guard against overflow that keeps the scaler from lowering its scale."""

from __future__ import annotations

from amp_lessons.recipes import scale_text
from amp_lessons.tutor import loops
from amp_lessons.tutor.exercise import Exercise, Hint, Wrong
from amp_lessons.tutor.exercises.lesson_7 import losses
from amp_lessons.tutor.trial import AnswerFailed, Trial

STUB = '''
def clipped_step(parameters, optimizer, scaler, loss):
    """An AMP step, clipped to a norm of 1. After an overflow training goes on.

    >>> w = torch.ones(1, requires_grad=True)
    >>> optimizer, scaler = torch.optim.SGD([w], lr=0.5), torch.amp.GradScaler("cpu")
    >>> for x in (float("inf"), 4.0): clipped_step([w], optimizer, scaler, w.sum() * x)
    >>> round(w.item(), 3), scaler.get_scale() == 2.0**15
    (0.5, True)
    """
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    if nn.utils.clip_grad_norm_(parameters, 1.0).isfinite():
        scaler.step(optimizer)
        scaler.update()
    optimizer.zero_grad()
'''

ANSWER = """
def clipped_step(parameters, optimizer, scaler, loss):
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(parameters, 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
"""


def examine(clipped_step: Trial) -> str | None:
    right, known = EXERCISE.answer_of(ANSWER), EXERCISE.known_mistakes()
    if ordinary := losses.mistake(clipped_step, right, known):
        return ordinary
    for overflow_at, where in ((1, "second"), (0, "first")):
        if wrong := losses.mistake(clipped_step, right, known, overflow_at=overflow_at):
            return f"With an overflow in the {where} step: {_after_overflow(clipped_step) or wrong}"
    return None


def _after_overflow(clipped_step: Trial) -> str | None:
    """What one step with an overflow left undone."""
    loop = loops.Loop.make(steps=1, overflow_at=0)
    before = loop.scaler.get_scale()
    try:
        losses.step(clipped_step)(loop.model, loop.optimizer, loop.scaler, *loop.batches[0])
    except AnswerFailed:  # what is wrong has been said already
        return None
    if loop.scaler.get_scale() == before:
        return (
            f"the scale stayed at {scale_text(before)}, since `update` was not called. So the next step overflows again, or its "
            "`unscale_` raises that it has already been called since the last update()."
        )
    if any(p.grad is not None and not p.grad.isfinite().all() for p in loop.model.parameters()):
        return "inf or NaN stayed in the gradients, and the next backward adds to them. Call `optimizer.zero_grad()` after a skipped step too."
    return None


PRAISE = (
    "After an overflow the step was skipped, the scale halved, and training went on. The scaler needs no guard of yours: `step` "
    "looks for inf and NaN itself, and `update` must hear of every step, of the skipped ones most of all."
)

HINTS = (
    Hint("unscale_() has already been called", "Which call opens the way for the next `unscale_`? Is it made after an overflow?"),
    Hint("The scale does not fall after an overflow", "Who lowers it, and is that line reached then?"),
    Hint("Inf or NaN gets into the weights or stays in the gradients", "Is the optimizer stepped through the scaler, and are the gradients cleared in every case?"),
)

_DEF = "\ndef clipped_step(parameters, optimizer, scaler, loss):\n"
_SCALED = "    scaler.scale(loss).backward()\n"
_UNSCALE = "    scaler.unscale_(optimizer)\n"
_CLIP = "    nn.utils.clip_grad_norm_(parameters, 1.0)\n"
_GUARD = "    if nn.utils.clip_grad_norm_(parameters, 1.0).isfinite():\n"
_TAIL = "    scaler.step(optimizer)\n    scaler.update()\n    optimizer.zero_grad()\n"

ALTERNATIVES = (
    # The guard may stay where it is, as long as update runs.
    f"{_DEF}{_SCALED}{_UNSCALE}{_GUARD}        scaler.step(optimizer)\n    scaler.update()\n    optimizer.zero_grad()\n",
    f"{_DEF}    optimizer.zero_grad()\n{_SCALED}{_UNSCALE}    norm = nn.utils.clip_grad_norm_(parameters, max_norm=1.0)\n    if not torch.isfinite(norm):\n"
    "        scaler.update()\n        optimizer.zero_grad()\n        return norm\n    scaler.step(optimizer)\n    scaler.update()\n    optimizer.zero_grad()\n    return norm\n",
    # Cleared before, a clip by hand.
    f"{_DEF}    optimizer.zero_grad()\n{_SCALED}{_UNSCALE}    norm = torch.stack([p.grad.norm() for p in parameters]).norm()\n"
    f"    for p in parameters:\n        p.grad.mul_((1 / norm).clamp(max=1.0))\n    scaler.step(optimizer)\n    scaler.update()\n",
)

WRONG = (
    Wrong(
        "still keeps update behind the guard",
        f"{_DEF}{_SCALED}{_UNSCALE}    norm = nn.utils.clip_grad_norm_(parameters, 1.0)\n    if torch.isfinite(norm):\n"
        "        scaler.step(optimizer)\n        scaler.update()\n    optimizer.zero_grad()\n",
        "the scale stayed at 2^10, since `update` was not called",
    ),
    Wrong(
        "moves zero_grad behind the guard instead",
        f"{_DEF}{_SCALED}{_UNSCALE}{_GUARD}        scaler.step(optimizer)\n        optimizer.zero_grad()\n    scaler.update()\n",
        "inf or NaN stayed in the gradients",
    ),
    Wrong("takes the unscaling out", f"{_DEF}{_SCALED}{_GUARD}        scaler.step(optimizer)\n        scaler.update()\n    optimizer.zero_grad()\n", "multiplied by the loss scale"),
    Wrong("steps the optimizer itself", f"{_DEF}{_SCALED}{_UNSCALE}{_CLIP}    optimizer.step()\n    scaler.update()\n    optimizer.zero_grad()\n", "scaler.step(optimizer)"),
    Wrong(
        "lets the clip raise",
        f"{_DEF}{_SCALED}{_UNSCALE}    nn.utils.clip_grad_norm_(parameters, 1.0, error_if_nonfinite=True)\n{_TAIL}",
        "leave the option out",
    ),
    Wrong(
        "sets the scale itself",
        f"{_DEF}{_SCALED}{_UNSCALE}{_GUARD}        scaler.step(optimizer)\n        scaler.update()\n    else:\n        scaler.update(1.0)\n    optimizer.zero_grad()\n",
        "the loss scale is 1 where it should be 512",
    ),
    Wrong(
        "guards by the loss",
        f"{_DEF}    if not loss.isfinite():\n        return\n{_SCALED}{_UNSCALE}{_GUARD}        scaler.step(optimizer)\n        scaler.update()\n    optimizer.zero_grad()\n",
        "the scale stayed at 2^10, since `update` was not called",
    ),
    Wrong("updates twice", f"{_DEF}{_SCALED}{_UNSCALE}{_CLIP}    scaler.step(optimizer)\n    scaler.update()\n    scaler.update()\n    optimizer.zero_grad()\n", "No inf checks were recorded prior to update"),
    Wrong("leaves the clip out", f"{_DEF}{_SCALED}{_TAIL}", "The gradients were not clipped to a norm of 1.", by_result=True),
)

EXERCISE = Exercise(
    name="7-guard",
    title="A guard that stops the loop",
    target="clipped_step",
    stub=STUB,
    answer=ANSWER,
    lines=6,
    examine=examine,
    praise=PRAISE,
    hints=HINTS,
    alternatives=ALTERNATIVES,
    wrong=WRONG,
    setup="import torch\nfrom torch import nn",
)
