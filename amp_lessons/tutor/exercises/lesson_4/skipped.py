"""Exercise 4-skipped: whether a step was skipped, seen from outside the scaler."""

from __future__ import annotations

import math

from amp_lessons.recipes import ScalerOptions, scale_text
from amp_lessons.tutor.exercise import Exercise, Hint, Wrong
from amp_lessons.tutor.exercises.lesson_4.weights import Weights
from amp_lessons.tutor.given import not_a_flag
from amp_lessons.tutor.trial import Trial

STUB = '''
def was_skipped(scaler, optimizer):
    """End an AMP step after backward: step, update, and tell whether the step was skipped.

    >>> weight = torch.nn.Parameter(torch.ones(1))
    >>> optimizer = torch.optim.SGD([weight], lr=0.5)
    >>> scaler = torch.amp.GradScaler("cpu")
    >>> scaler.scale(weight * math.inf).backward()
    >>> was_skipped(scaler, optimizer), scaler.get_scale() == 2.0**15
    (True, True)
    """
    ...
'''

ANSWER = """
def was_skipped(scaler, optimizer):
    before = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    return scaler.get_scale() < before
"""

# The options, the learning rate, and the true gradients of the steps one after the other.
RUNS = (
    (ScalerOptions(), 0.5, (0.25, 0.25, math.inf, 0.25, math.inf, math.inf, 0.25)),
    (ScalerOptions(), 0.5, (math.nan, 0.25, -math.inf)),
    (ScalerOptions(growth_interval=2), 0.5, (0.25, 0.25, 0.25, math.inf, 0.25, 0.25, math.inf)),
    (ScalerOptions(init_scale=2.0**8, growth_factor=4.0, backoff_factor=0.25, growth_interval=1), 0.5, (0.25, math.inf, 0.25)),
    (ScalerOptions(), 0.5, (0.0, 0.25, 0.0)),
    (ScalerOptions(), 1e-9, (0.25, 0.25)),
)


def examine(was_skipped: Trial) -> str | None:
    for options, lr, gradients in RUNS:
        tried, real = (Weights(options, lr=lr) for _ in range(2))
        for number, gradient in enumerate(gradients, start=1):
            scale, weights = real.scaler.get_scale(), real.values
            for either in (tried, real):
                either.scaled_backward([gradient])
            skipped = not real.end_step()
            given = was_skipped(tried.scaler, tried.optimizer)
            if wrong := _differs(tried, real, number, gradient) or not_a_flag(given):
                return wrong
            if bool(given) != skipped:
                return _reason(skipped, scale, real.scaler.get_scale(), weights != real.values, gradient, options)
    return None


def _differs(tried: Weights, real: Weights, number: int, gradient: float) -> str | None:
    """What the answer did to the weight or the scaler that step and update do not do, or left out."""
    after = f"After step {number}, with a gradient of {gradient:g},"
    if tried.taken != real.taken:
        took, right = tried.taken, real.taken
        return f"{after} the optimizer has stepped {took} times and should have {right} times. Leave it to scaler.step(optimizer)."
    mine, theirs = tried.scaler.state_dict(), real.scaler.state_dict()
    if mine == theirs:
        return None
    scales = f"the scale is {scale_text(mine['scale'])} with {mine['_growth_tracker']} clean steps counted"
    return (
        f"{after} {scales}; it should be {scale_text(theirs['scale'])} with {theirs['_growth_tracker']}. "
        "Call `scaler.update()` once after the step."
    )


def _reason(skipped: bool, scale: float, next_scale: float, moved: bool, gradient: float, options: ScalerOptions) -> str:
    came = f"With a gradient of {gradient:g} it says {'taken' if skipped else 'skipped'}"
    change = f"the scale went from {scale_text(scale)} to {scale_text(next_scale)}"
    if skipped:
        text = f"{came}, but the step was skipped: {change}."
        if options.backoff_factor != 0.5:
            return f"{text} The backoff factor is {options.backoff_factor:g} here, so look for a fall, not for a half."
        if math.isnan(gradient):
            return f"{text} A NaN is skipped like an inf, and `isinf` does not see it."
        return f"{text} Was the scale read before step and update, and compared after both?"
    if next_scale > scale:
        return f"{came}, but it was taken, and {change} since the interval was full. Only a fall tells a skipped step; the count is 0 after both."
    text = f"{came}, but it was taken, and the scale stayed at {scale_text(scale)}."
    if not moved:
        why = "a gradient of 0 moves nothing" if not gradient else "1 minus 1e-9 · 0.25 is 1 in float32"
        return f"{text} The weight stayed too, since {why}: weights do not tell."
    return f"{text} It stays in most clean steps, so that is no sign, and `scaler.step` returns None either way."


PRAISE = (
    "It was right where the scale stayed, where it grew, and where a step was taken that moved no weight. The optimizer's own steps "
    "were counted, and they agree."
)

HINTS = (
    Hint("I do not know what to look at", "Of all that step and update do, one thing happens after a skipped step and after no other. The table in the lesson has it."),
    Hint("Clean steps count as skipped", "What does the scale do in an ordinary clean step, and in one that completes the growth interval?"),
    Hint("Skipped steps count as taken", "When do you read the scale? Which of the two calls changes it?"),
    Hint("It says that step() has already been called", "A step ends with a call that closes it for the scaler."),
)

_HEAD = "\ndef was_skipped(scaler, optimizer):\n    before = scaler.get_scale()\n    scaler.step(optimizer)\n"

ALTERNATIVES = (
    # Whether the optimizer was called.
    """
def was_skipped(scaler, optimizer):
    calls = []
    hook = optimizer.register_step_post_hook(lambda *_: calls.append(1))
    scaler.step(optimizer)
    scaler.update()
    hook.remove()
    return len(calls) == 0
""",
    # The gradients themselves.
    """
def was_skipped(scaler, optimizer):
    scaler.unscale_(optimizer)
    finite = [p.grad.isfinite().all() for group in optimizer.param_groups for p in group["params"]]
    scaler.step(optimizer)
    scaler.update()
    return ~torch.stack(finite).all()
""",
    """
def was_skipped(scaler, optimizer):
    scale = scaler.state_dict()["scale"]
    scaler.step(optimizer)
    scaler.update()
    return bool(scaler.state_dict()["scale"] / scale < 1)
""",
)

WRONG = (
    Wrong("compares with <=", f"{_HEAD}    scaler.update()\n    return scaler.get_scale() <= before\n", "It stays in most clean steps"),
    Wrong("takes any change for a skip", f"{_HEAD}    scaler.update()\n    return scaler.get_scale() != before\n", "Only a fall tells a skipped step"),
    Wrong(
        "takes a count of 0 for a skip",
        f"{_HEAD}    scaler.update()\n    return scaler.state_dict()['_growth_tracker'] == 0\n",
        "Only a fall tells a skipped step",
    ),
    Wrong("looks for half the scale", f"{_HEAD}    scaler.update()\n    return scaler.get_scale() == before / 2\n", "The backoff factor is 0.25 here"),
    Wrong("compares before update", f"{_HEAD}    after = scaler.get_scale()\n    scaler.update()\n    return after < before\n", "and compared after both"),
    Wrong("forgets update", f"{_HEAD}    return scaler.get_scale() < before\n", "Call `scaler.update()` once after the step"),
    Wrong(
        "looks for inf only",
        """
def was_skipped(scaler, optimizer):
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    skipped = any(p.grad.isinf().any() for p in parameters)
    scaler.step(optimizer)
    scaler.update()
    return skipped
""",
        "A NaN is skipped like an inf",
    ),
    Wrong(
        "compares the weights",
        """
def was_skipped(scaler, optimizer):
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    before = [p.detach().clone() for p in parameters]
    scaler.step(optimizer)
    scaler.update()
    return all(torch.equal(p, old) for p, old in zip(parameters, before))
""",
        "weights do not tell",
    ),
    Wrong(
        "asks what step returns",
        "\ndef was_skipped(scaler, optimizer):\n    result = scaler.step(optimizer)\n    scaler.update()\n    return result is None\n",
        "`scaler.step` returns None either way",
    ),
    Wrong(
        "steps the optimizer itself",
        "\ndef was_skipped(scaler, optimizer):\n    before = scaler.get_scale()\n    scaler.unscale_(optimizer)\n    optimizer.step()\n"
        "    scaler.update()\n    return scaler.get_scale() < before\n",
        "Leave it to scaler.step(optimizer)",
    ),
    Wrong("returns the scale", f"{_HEAD}    scaler.update()\n    return scaler.get_scale()\n", "True or False is asked for"),
    Wrong("forgets to return", f"{_HEAD}    scaler.update()\n    scaler.get_scale() < before\n", "is the `return` missing?"),
)

EXERCISE = Exercise(
    name="4-skipped",
    title="Was the step skipped?",
    target="was_skipped",
    stub=STUB,
    answer=ANSWER,
    lines=4,
    examine=examine,
    praise=PRAISE,
    hints=HINTS,
    alternatives=ALTERNATIVES,
    wrong=WRONG,
    setup="import math\n\nimport torch",
)
