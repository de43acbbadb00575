"""Exercise 2-flushed: how many values of a gradient fp16 would flush."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from amp_lessons.tutor.exercise import Exercise, Hint, Wrong
from amp_lessons.tutor.given import not_a_number
from amp_lessons.tutor.trial import Trial

STUB = '''
def flushed(gradient):
    """How many values of a float32 gradient fp16 would flush to zero.

    >>> flushed(torch.tensor([0.5, -1e-9, 0.0, 1e-6]))
    1
    """
    ...
'''

ANSWER = """
def flushed(gradient):
    return int(((gradient != 0) & (gradient.half() == 0)).sum())
"""

_TIE = 2.0**-25
_ABOVE = torch.nextafter(torch.tensor(_TIE), torch.tensor(1.0)).item()

# Values, and what one who miscounts them has overlooked.
CASES = (
    ([[0.5, 1e-9, 2.0], [3.0, 1e-12, 4.0]], ""),
    ([], "An empty gradient has nothing to lose."),
    ([0.0, -0.0, 0.5, 1e-9], "0.0 and -0.0 were zero before, like those of a dead ReLU: fp16 did not flush them."),
    ([-0.5, -2.0, -3.0, -1e-9], "Size is what counts: -0.5 is kept, -1e-9 is flushed."),
    ([1e-6, -1e-6, 4e-5], "All lie under 2^-14, and fp16 keeps them with fewer bits: subnormal is not flushed."),
    ([3e-8, -4e-8, _ABOVE], "All lie above half of 2^-24, so fp16 rounds them up to 2^-24: they are crude, but not flushed."),
    ([_TIE, -_TIE, 1.0], "2^-25 is a tie, and it goes to 0."),
    ([1e-40, 1e-9], "1e-40 is a float32 number too, and not zero."),
    ([math.inf, -math.inf, math.nan, 1e-9], "inf and nan are not zero, and fp16 keeps them as they are."),
)


def examine(flushed: Trial) -> str | None:
    for values, overlooked in CASES:
        gradient = torch.tensor(values, dtype=torch.float32)
        tried = gradient.clone()
        given = flushed(tried)
        if isinstance(given, Tensor) and given.numel() == 1 and given.dtype == torch.bool:
            return f"It returns {bool(given)}, which says whether there is one; the question is how many."
        if wrong := not_a_number(given):
            return f"{wrong} Count the marks with `.sum()`." if isinstance(given, Tensor) and given.dtype == torch.bool else wrong
        right = int(((gradient != 0) & (gradient.half() == 0)).sum())
        if float(given) != right:
            return f"For {_listed(gradient)} it returns {float(given):g}; fp16 flushes {right}. {overlooked or _slip(gradient, given)}".strip()
        if not torch.equal(tried.view(torch.int32), gradient.view(torch.int32)):
            return f"The count is right, but the gradient was changed from {_listed(gradient)} to {_listed(tried)}. Only look at it."
    return None


def _slip(gradient: Tensor, given: float) -> str:
    kept = int((gradient.half() != 0).sum())
    if float(given) == kept:
        return f"{kept} is how many it keeps."
    if 0 < float(given) < 1:
        return "A count is asked for, not a share."
    return "Which of them does fp16 make 0?"


def _listed(gradient: Tensor) -> str:
    return str([_written(value) for value in gradient.flatten().tolist()]).replace("'", "")


def _written(value: float) -> str:
    power = math.frexp(value)[1] - 1
    special = {_TIE: "2^-25", _ABOVE: "just above 2^-25"}
    sign = "-" if value < 0 else ""
    return sign + special[abs(value)] if abs(value) in special else f"{value:.3g}" if value and power < 0 else f"{value:.1f}"


PRAISE = (
    "It told zeros and subnormal values from flushed ones, and got the tie right, at 2^-25 and just above it. On the gradients "
    "of a float32 run this is a forecast of what fp16 would lose."
)

HINTS = (
    Hint("I do not know where fp16 begins to flush", "You need not know: `.half()` does it. Compare before and after."),
    Hint("It counts too many", "Some values of the result were zero already. Which two things hold for a value that was flushed?"),
    Hint("It fails for values near 2^-25", "Does your border include the tie? And what becomes of values between 2^-25 and 2^-24?"),
)

_DEF = "def flushed(gradient):\n"

ALTERNATIVES = (
    # By the floor itself.
    f"{_DEF}    size = gradient.abs()\n    return ((size > 0) & (size <= 2.0**-25)).sum()",
    # By the difference of two counts.
    f"{_DEF}    return gradient.count_nonzero() - gradient.half().count_nonzero()",
    # One value at a time, with the lesson's own name for it.
    f'{_DEF}    return sum(FP16.fate(value).value == "flushed" for value in gradient.flatten().tolist())',
    f'{_DEF}    return ExponentHistogram.of(gradient).fp16_counts()["flushed"]',
    f"{_DEF}    return len(gradient[gradient.bool() & ~gradient.to(torch.float16).bool()])",
    "flushed = lambda g: (g.half().eq(0) & g.ne(0)).sum().item()",
)

WRONG = (
    Wrong("counts every zero", f"{_DEF}    return int((gradient.half() == 0).sum())", "were zero before, like those of a dead ReLU"),
    Wrong(
        "takes 2^-24 for the border",
        f"{_DEF}    size = gradient.abs()\n    return int(((size > 0) & (size < 2.0**-24)).sum())",
        "All lie above half of 2^-24",
    ),
    Wrong(
        "leaves the tie out",
        f"{_DEF}    size = gradient.abs()\n    return int(((size > 0) & (size < 2.0**-25)).sum())",
        "2^-25 is a tie, and it goes to 0",
    ),
    Wrong(
        "takes the smallest normal number for the border",
        f"{_DEF}    size = gradient.abs()\n    return int(((size > 0) & (size < torch.finfo(torch.float16).tiny)).sum())",
        "subnormal is not flushed",
    ),
    Wrong(
        "forgets negative values",
        f"{_DEF}    return int(((gradient > 0) & (gradient.half() == 0)).sum())",
        "it returns 0; fp16 flushes 1. Size is what counts",
    ),
    Wrong(
        "takes all negative values for small",
        f"{_DEF}    return int(((gradient != 0) & (gradient <= 2.0**-25)).sum())",
        "it returns 4; fp16 flushes 1. Size is what counts",
    ),
    Wrong("counts what is kept", f"{_DEF}    return int(gradient.half().count_nonzero())", "4 is how many it keeps"),
    Wrong("returns the mask", f"{_DEF}    return (gradient != 0) & (gradient.half() == 0)", "Count the marks with `.sum()`"),
    Wrong("asks whether there is one", f"{_DEF}    return ((gradient != 0) & (gradient.half() == 0)).any()", "the question is how many"),
    Wrong("returns the share", f"{_DEF}    return ((gradient != 0) & (gradient.half() == 0)).float().mean()", "not a share"),
    Wrong("changes the gradient", f"{_DEF}    size = gradient.abs_()\n    return int(((size > 0) & (size <= 2.0**-25)).sum())", "Only look at it"),
    Wrong("forgets to return", f"{_DEF}    int(((gradient != 0) & (gradient.half() == 0)).sum())", "is the `return` missing?"),
)

EXERCISE = Exercise(
    name="2-flushed",
    title="Count what fp16 would flush",
    target="flushed",
    stub=STUB,
    answer=ANSWER,
    lines=1,
    examine=examine,
    praise=PRAISE,
    hints=HINTS,
    alternatives=ALTERNATIVES,
    wrong=WRONG,
    setup="import torch\n\nfrom amp_lessons.formats import FP16\nfrom amp_lessons.gradients import ExponentHistogram",
)
