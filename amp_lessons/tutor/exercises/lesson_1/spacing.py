"""Exercise 1-spacing: how far apart a format's numbers are at a weight."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from amp_lessons.tutor.exercise import Exercise, Hint, Wrong
from amp_lessons.tutor.given import not_a_number
from amp_lessons.tutor.trial import Trial

STUB = '''
def spacing(weight, dtype):
    """How far the next number of the format is from this one, away from zero.

    >>> spacing(2048.0, torch.float16), spacing(2048.0, torch.bfloat16)
    (2.0, 16.0)
    >>> -3.0 - spacing(-3.0, torch.float16)
    -3.001953125
    """
    ...
'''

ANSWER = """
def spacing(weight, dtype):
    binade = 1.0
    while binade > abs(weight):
        binade /= 2
    while binade * 2 <= abs(weight):
        binade *= 2
    return torch.finfo(dtype).eps * binade
"""

WEIGHTS = (1.0, 2048.0, 1.5, 0.75, 0.1, 3.0, -3.0, -0.02, 1000.0, 2.0**-14)


def examine(spacing: Trial) -> str | None:
    for dtype in (torch.float16, torch.bfloat16):
        for weight in WEIGHTS:
            stored = torch.tensor(weight).to(dtype)
            # The next code, read as an integer, is the next number away from zero.
            following = (stored.view(torch.int16) + 1).view(dtype)
            right = (following.double() - stored.double()).abs().item()
            given = spacing(stored.item(), dtype)
            if wrong := not_a_number(given):
                return wrong
            if float(given) != right:
                name = {torch.float16: "fp16", torch.bfloat16: "bf16"}[dtype]
                next_one = (
                    f"After {stored.item():.9g} the next {name} number is {following.item():.9g}, which is {right:.4g} away"
                )
                return f"{next_one}; your function says {float(given):.4g}. {_reason(spacing, dtype, float(given) == -right)}"
    return None


def _reason(spacing: Trial, dtype: torch.dtype, negative: bool) -> str:
    if negative:
        return "A distance is positive, for a negative weight too."
    eps = torch.finfo(dtype).eps
    weights = [abs(torch.tensor(weight).to(dtype).item()) for weight in WEIGHTS]
    for mistake, result in MISTAKES.items():
        if all(float(spacing(weight, dtype)) == result(weight, eps) for weight in weights):
            return mistake
    return "Within a binade the spacing is the same everywhere, and in the next binade it doubles."


# What people compute for a positive weight, and what to tell them.
MISTAKES: dict[str, Callable[[float, float], float]] = {
    "Within a binade the spacing is the same everywhere: it does not grow with the weight.": lambda weight, eps: eps * weight,
    "`eps` is the spacing at 1. It doubles from binade to binade, and halves below 1.": lambda weight, eps: eps,
    "A binade begins at the power of two at or below the weight, which is not always the nearest one.": lambda weight, eps: (
        eps * 2.0 ** round(math.log2(weight))
    ),
    "A binade begins at the power of two at or below the weight, not at the one above.": lambda weight, eps: (
        eps * 2.0 ** math.ceil(math.log2(weight))
    ),
    "Below 1 the exponent is negative, and `int()` cuts it towards zero: round it down.": lambda weight, eps: (
        eps * 2.0 ** int(math.log2(weight))
    ),
    "That is half the spacing: as far as rounding can be off.": lambda weight, eps: eps / 2 * _binade(weight),
    "That is fp16's spacing. bf16 has three mantissa bits fewer.": lambda weight, eps: 2.0**-10 * _binade(weight),
    "That is float32's spacing: the tensor must have the dtype asked for.": lambda weight, eps: 2.0**-23 * _binade(weight),
}


def _binade(weight: float) -> float:
    return 2.0 ** math.floor(math.log2(weight))


PRAISE = (
    "It agrees with the next code in memory, in both formats and for both signs. An update away from zero by less than half "
    "of this leaves the weight as it was; in bf16 that is eight times as much as in fp16."
)

HINTS = (
    Hint(
        "I do not know where to begin",
        "torch.finfo(dtype).eps is the spacing at 1. Which power of two does your weight lie above?",
    ),
    Hint(
        "Powers of two are right, 1.5 is not", "1 and 1.5 are in one binade, so their spacing is the same: what do they share?"
    ),
    Hint("Weights below 1 are wrong", "0.75 lies above 1/2, and not above 1. Rounding towards zero is not rounding down."),
    Hint(
        "I want the exponent of a number", "Count the doublings in a loop, or look at math.log2 and math.floor, or math.frexp."
    ),
)

ALTERNATIVES = (
    """
def spacing(weight, dtype):
    import math

    return torch.finfo(dtype).eps * 2.0 ** math.floor(math.log2(abs(weight)))
""",
    # The next number itself.
    """
def spacing(weight, dtype):
    here = torch.tensor(abs(weight), dtype=dtype)
    return (torch.nextafter(here, torch.full_like(here, float("inf"))) - here).item()
""",
    # The next code.
    """
def spacing(weight, dtype):
    here = torch.tensor(weight).to(dtype)
    return abs((here.view(torch.int16) + 1).view(dtype) - here)
""",
    # By the exponent, in a tensor.
    """
def spacing(weight, dtype):
    mantissa, exponent = torch.frexp(torch.tensor(weight))
    return torch.ldexp(torch.tensor(torch.finfo(dtype).eps), exponent - 1)
""",
    # The course's own arithmetic.
    """
def spacing(weight, dtype):
    return {torch.float16: FP16, torch.bfloat16: BF16}[dtype].spacing(weight)
""",
)

_HEAD = "\ndef spacing(weight, dtype):\n    import math\n\n    eps = torch.finfo(dtype).eps\n"

WRONG = (
    Wrong("multiplies by the weight", f"{_HEAD}    return eps * abs(weight)\n", "the spacing is the same everywhere"),
    Wrong("gives eps everywhere", f"{_HEAD}    return eps\n", "`eps` is the spacing at 1"),
    Wrong(
        "rounds the exponent",
        f"{_HEAD}    return eps * 2.0 ** round(math.log2(abs(weight)))\n",
        "which is not always the nearest one",
    ),
    Wrong(
        "rounds the exponent up",
        f"{_HEAD}    return eps * 2.0 ** math.ceil(math.log2(abs(weight)))\n",
        "not at the one above",
    ),
    Wrong(
        "cuts the exponent towards zero",
        f"{_HEAD}    return eps * 2.0 ** int(math.log2(abs(weight)))\n",
        "`int()` cuts it towards zero",
    ),
    Wrong("forgets negative weights", f"{_HEAD}    return eps * 2.0 ** math.floor(math.log2(weight))\n", "ValueError"),
    Wrong(
        "gives a negative distance",
        f"{_HEAD}    return math.copysign(eps * 2.0 ** math.floor(math.log2(abs(weight))), weight)\n",
        "A distance is positive",
    ),
    Wrong(
        "gives half of it",
        f"{_HEAD}    return eps / 2 * 2.0 ** math.floor(math.log2(abs(weight)))\n",
        "That is half the spacing",
    ),
    Wrong(
        "knows fp16 only",
        f"{_HEAD}    return 2.0 ** (math.floor(math.log2(abs(weight))) - 10)\n",
        "That is fp16's spacing",
    ),
    Wrong(
        "looks for the next number in float32",
        """
def spacing(weight, dtype):
    here = torch.tensor(abs(weight))
    return (torch.nextafter(here, torch.tensor(float("inf"))) - here).item()
""",
        "That is float32's spacing",
    ),
)

EXERCISE = Exercise(
    name="1-spacing",
    title="The spacing at a weight",
    target="spacing",
    stub=STUB,
    answer=ANSWER,
    lines=6,
    examine=examine,
    praise=PRAISE,
    hints=HINTS,
    alternatives=ALTERNATIVES,
    wrong=WRONG,
    setup="import torch\n\nfrom amp_lessons.formats import BF16, FP16",
)
