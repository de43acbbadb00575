"""Exercise 5-late: what a clip that comes before unscaling leaves of a gradient."""

from __future__ import annotations

import math
from typing import Any

import torch

from amp_lessons.recipes import scale_text
from amp_lessons.tutor.exercise import Exercise, Hint, Wrong
from amp_lessons.tutor.given import not_a_number

STUB = """
# >>> weight = torch.nn.Parameter(torch.ones(1))
# >>> scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
# >>> scaler.scale(weight * 8).backward()                     # the true gradient is 8
# >>> _ = torch.nn.utils.clip_grad_norm_([weight], 2.0)       # too late: still scaled
# >>> scaler.unscale_(torch.optim.SGD([weight], lr=0.1))
# >>> abs(weight.grad.item() / norm_left - 1) < 1e-4
# True
norm_left = ...
"""

ANSWER = "norm_left = 2.0**-9"

TRUE_NORM, LIMIT, SCALE = 8.0, 2.0, 2.0**10


def examine(norm_left: Any) -> str | None:
    if wrong := not_a_number(norm_left, returned=False):
        return wrong
    given, right = float(norm_left), _measured()
    if math.isclose(given, right, rel_tol=1e-3):
        return None
    named = {
        LIMIT: "2 is what the clip leaves, but of the scaled gradient. `unscale_` still divides it by the loss scale.",
        TRUE_NORM: "8 is the true norm. The clip saw 8 times the loss scale, which is far above its limit, and cut it.",
        TRUE_NORM * SCALE: "8192 is the norm that the clip saw. It cuts that to its limit, and `unscale_` divides what is left.",
        TRUE_NORM / SCALE: "That is the true norm divided by the scale: the clip would have left the scaled gradient as it was.",
        LIMIT * SCALE: "The limit was multiplied by the loss scale; `unscale_` divides.",
        math.log2(right): f"{given:g} is the exponent; the norm itself is asked for.",
        0.0: "It is small, but not 0: the gradient is float32 by now, and divided there.",
        LIMIT / TRUE_NORM: "0.25 is the factor by which a clip in time cuts. This one came too late and cut much further.",
    }
    return named.get(given, f"It is not {given:g}. The clip sees {TRUE_NORM * SCALE:g} and leaves {LIMIT:g} of it; what does `unscale_` make of that?")


def _measured() -> float:
    weight = torch.nn.Parameter(torch.ones(1))
    scaler = torch.amp.GradScaler("cpu", init_scale=SCALE)
    scaler.scale(weight * TRUE_NORM).backward()
    torch.nn.utils.clip_grad_norm_([weight], LIMIT)
    scaler.unscale_(torch.optim.SGD([weight], lr=0.1))
    return weight.grad.item()


PRAISE = f"{scale_text(LIMIT / SCALE)}, where a clip in time would have left 2: a clip that comes too late divides its own limit by the loss scale."

HINTS = (
    Hint("I do not know where to begin", "Go line by line and write down the gradient after each: backward, clip, unscale."),
    Hint("I get the limit itself", "The clip does leave a norm equal to its limit. It is not the last line that touches the gradient."),
)

ALTERNATIVES = ("norm_left = 2 / 1024", "norm_left = 0.001953125", "norm_left = torch.tensor(2.0) / 2**10")

WRONG = (
    Wrong("gives the limit", "norm_left = 2.0", "still divides it by the loss scale"),
    Wrong("gives the true norm", "norm_left = 8", "8 is the true norm"),
    Wrong("gives what the clip saw", "norm_left = 8 * 2.0**10", "the norm that the clip saw"),
    Wrong("leaves the clip out", "norm_left = 8 / 2**10", "the clip would have left the scaled gradient"),
    Wrong("multiplies", "norm_left = 2 * 2.0**10", "`unscale_` divides"),
    Wrong("gives the exponent", "norm_left = -9", "is the exponent"),
    Wrong("thinks that it is flushed", "norm_left = 0", "not 0"),
    Wrong("gives the factor of a clip in time", "norm_left = 0.25", "the factor by which a clip in time cuts"),
)

EXERCISE = Exercise(
    name="5-late",
    title="The clip that came too late",
    target="norm_left",
    stub=STUB,
    answer=ANSWER,
    lines=1,
    examine=examine,
    praise=PRAISE,
    hints=HINTS,
    alternatives=ALTERNATIVES,
    wrong=WRONG,
)
