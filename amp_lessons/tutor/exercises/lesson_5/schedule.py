"""Exercise 5-schedule: the end of a step, with a learning-rate schedule that waits where a step is skipped."""

from __future__ import annotations

from collections.abc import Callable

import torch

from amp_lessons.tutor.exercise import Exercise, Hint, Wrong
from amp_lessons.tutor.trial import Trial

STUB = '''
def end_step(scaler, optimizer, schedule):
    """End an AMP step after backward: step, update, advance the schedule unless it was skipped, clear.

    >>> weight = torch.nn.Parameter(torch.ones(1))
    >>> optimizer = torch.optim.SGD([weight], lr=1.0)
    >>> schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    >>> scaler = torch.amp.GradScaler("cpu")
    >>> for factor in (math.inf, 1.0):
    ...     scaler.scale(weight * factor).backward()
    ...     end_step(scaler, optimizer, schedule)
    >>> schedule.get_last_lr(), weight.grad
    ([0.5], None)
    """
    ...
'''

ANSWER = """
def end_step(scaler, optimizer, schedule):
    before = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    if scaler.get_scale() >= before:
        schedule.step()
    optimizer.zero_grad()
"""

INF = float("inf")
# The scaler's options, and the true gradients of the steps: clean ones, overflows, and steps in which the scale grows.
RUNS = (
    ({}, (1.0, 1.0, INF, 1.0, INF, INF, 1.0)),
    ({"growth_interval": 1}, (1.0, 1.0, INF, 1.0)),
    ({"init_scale": 2.0**8, "backoff_factor": 0.25, "growth_factor": 4.0, "growth_interval": 2}, (float("nan"), 1.0, 1.0, 1.0)),
    ({"enabled": False}, (1.0, 1.0)),
)


class Line:
    """One weight with SGD, a schedule that halves the learning rate at each step, and a real scaler."""

    def __init__(self, options: dict) -> None:
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.optimizer = torch.optim.SGD([self.weight], lr=1.0)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=1, gamma=0.5)
        self.scaler = torch.amp.GradScaler("cpu", **options)

    def backward(self, gradient: float) -> None:
        self.scaler.scale((self.weight * gradient).sum()).backward()


def examine(end_step: Trial) -> str | None:
    right = EXERCISE.answer_of(ANSWER)
    for options, gradients in RUNS:
        tried, real = Line(options), Line(options)
        for number, gradient in enumerate(gradients, start=1):
            if wrong := _after(number, gradient, tried, real, end_step, right):
                return wrong + (" The scaler is switched off in this run." if options.get("enabled") is False else "")
    return None


def _after(number: int, gradient: float, tried: Line, real: Line, end_step: Trial, right: Callable) -> str | None:
    before = real.scaler.get_scale()
    for line, end in ((tried, end_step), (real, right)):
        line.backward(gradient)
        end(line.scaler, line.optimizer, line.schedule)
    came = f"After step {number}, with a gradient of {gradient:g},"
    if torch.isfinite(real.weight).all() and not torch.isfinite(tried.weight).all():
        return f"{came} the weight is {tried.weight.item():g}: the optimizer stepped past the scaler. Call `scaler.step(optimizer)`."
    if tried.scaler.get_scale() != real.scaler.get_scale():
        return (
            f"{came} the loss scale is {tried.scaler.get_scale():g} and should be {real.scaler.get_scale():g}. Call "
            "`scaler.update()` once, after the step."
        )
    if tried.weight.grad is not None and tried.weight.grad.any():
        return f"{came} the old gradient is still there. Call `optimizer.zero_grad()` at the end."
    mine, theirs = tried.schedule.last_epoch, real.schedule.last_epoch
    if mine > theirs and real.scaler.get_scale() < before:
        return f"{came} the step was skipped, and the schedule went on all the same: the learning rate fell without a step."
    if mine > theirs:
        return f"{came} the schedule has gone on {mine} times and should have {theirs} times."
    if mine < theirs and real.scaler.get_scale() > before:
        return f"{came} the scale grew and the schedule waited. Only a scale that falls means a skipped step."
    if mine < theirs:
        return f"{came} the step was taken, and the schedule did not go on."
    if not torch.equal(tried.weight, real.weight):
        return f"{came} the weight is {tried.weight.item():g} and should be {real.weight.item():g}: the learning rate was changed too early."
    return None


PRAISE = (
    "Tried with overflows, with a scale that grows in every step, and with the scaler switched off, where get_scale() is always 1: "
    "the schedule counted the steps that were taken, and no others."
)

HINTS = (
    Hint("How do I know that a step was skipped?", "What happens to the scale then, and when does it happen? Remember it before."),
    Hint("The schedule waits although the step was taken", "The scale may also grow, or stay. Which of the three means skipped?"),
    Hint("PyTorch warns about the order of the schedule", "The schedule comes after the optimizer's step, not before."),
)

ALTERNATIVES = (
    """
def end_step(scaler, optimizer, schedule):
    scale = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    skipped = scale > scaler.get_scale()
    if not skipped:
        schedule.step()
""",
    """
def end_step(scaler, optimizer, schedule):
    taken = []
    handle = optimizer.register_step_post_hook(lambda *_: taken.append(True))
    scaler.step(optimizer)
    handle.remove()
    scaler.update()
    if taken:
        schedule.step()
    optimizer.zero_grad()
""",
)

_BODY = "def end_step(scaler, optimizer, schedule):\n    before = scaler.get_scale()\n    scaler.step(optimizer)\n"

WRONG = (
    Wrong(
        "always advances",
        "def end_step(scaler, optimizer, schedule):\n    scaler.step(optimizer)\n    scaler.update()\n    schedule.step()\n    optimizer.zero_grad()\n",
        "the learning rate fell without a step",
    ),
    Wrong(
        "waits where the scale grows",
        f"{_BODY}    scaler.update()\n    if scaler.get_scale() == before:\n        schedule.step()\n    optimizer.zero_grad()\n",
        "Only a scale that falls means a skipped step",
    ),
    Wrong(
        "asks before update, when the scale has not moved yet",
        f"{_BODY}    if scaler.get_scale() >= before:\n        schedule.step()\n    scaler.update()\n    optimizer.zero_grad()\n",
        "the learning rate fell without a step",
    ),
    Wrong(
        "advances only where the scale grows",
        f"{_BODY}    scaler.update()\n    if scaler.get_scale() > before:\n        schedule.step()\n    optimizer.zero_grad()\n",
        "the step was taken, and the schedule did not go on",
    ),
    Wrong(
        "steps the optimizer directly",
        _BODY.replace("scaler.step(optimizer)", "scaler.unscale_(optimizer)\n    optimizer.step()")
        + "    scaler.update()\n    if scaler.get_scale() >= before:\n        schedule.step()\n    optimizer.zero_grad()\n",
        "the optimizer stepped past the scaler",
    ),
    Wrong(
        "forgets update",
        f"{_BODY}    if scaler.get_scale() >= before:\n        schedule.step()\n    optimizer.zero_grad()\n",
        "scaler.update() was not called after the last scaler.step",
    ),
    Wrong("forgets to clear", f"{_BODY}    scaler.update()\n    if scaler.get_scale() >= before:\n        schedule.step()\n", "old gradient is still there"),
    Wrong(
        "reads the reason from step's result",
        "def end_step(scaler, optimizer, schedule):\n    if scaler.step(optimizer):\n        schedule.step()\n    scaler.update()\n    optimizer.zero_grad()\n",
        "the step was taken, and the schedule did not go on",
    ),
)

EXERCISE = Exercise(
    name="5-schedule",
    title="A schedule that waits",
    target="end_step",
    stub=STUB,
    answer=ANSWER,
    lines=6,
    examine=examine,
    praise=PRAISE,
    hints=HINTS,
    alternatives=ALTERNATIVES,
    wrong=WRONG,
    setup="import math\n\nimport torch",
)
