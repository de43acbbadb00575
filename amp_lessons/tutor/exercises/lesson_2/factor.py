"""Exercise 2-factor: the smallest factor before the loss with which fp16 flushes nothing."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from amp_lessons.tutor.exercise import Exercise, Hint, Wrong
from amp_lessons.tutor.given import not_a_number
from amp_lessons.tutor.trial import AnswerFailed, Trial

STUB = '''
def smallest_factor(gradient):
    """The smallest of 1, 2, 4, 8, … with which fp16 flushes nothing of a gradient.

    None where even that one makes another value overflow.

    >>> smallest_factor(torch.tensor([3e-9, 0.0, -0.5])) == 16
    True
    >>> smallest_factor(torch.tensor([3e-9, 0.0, -5000.0])) is None
    True
    """
    ...
'''

ANSWER = """
def smallest_factor(gradient):
    values, factor = gradient[gradient != 0], 1
    while (values * factor).half().eq(0).any():
        factor *= 2
    return None if (values * factor).half().isinf().any() else factor
"""

_TIE = 2.0**-25
_ABOVE = torch.nextafter(torch.tensor(_TIE), torch.tensor(1.0)).item()

CASES = (
    [1e-3, -0.5],
    [3e-9, 0.5],
    [[-3e-9, 0.5], [1e-3, 0.25]],
    [3e-9, 0.0, -0.5, -0.0],
    [_TIE, 1.0],
    [2.0**-35, 1.0],
    [_ABOVE, 1.0],
    [1.5 * 2.0**-30, 1.0],
    [0.0, 0.0],
    [3e-9, 5000.0],
    [3e-9, -5000.0],
    [_TIE, 32759.0],  # twice that is above 65,504 and rounded down to it
    [_TIE, 32760.0],
    [1.0, 70000.0],
)


def examine(smallest_factor: Trial) -> str | None:
    for values in CASES:
        gradient = torch.tensor(values)
        given = _tried(smallest_factor, gradient)
        right = _right(gradient)
        if given is None:
            if right is None:
                continue
            # A function without a return gives None for the first one, which needs nothing.
            return f"For {_listed(gradient)} it returns None. {_no_overflow(gradient, right)}"
        if wrong := not_a_number(given):
            return wrong
        if float(given) != right:
            return f"For {_listed(gradient)} it returns {_written(float(given))}. {_slip(gradient, float(given), right)}"
    return None


def _tried(smallest_factor: Trial, gradient: Tensor) -> Any:
    try:
        return smallest_factor(gradient.clone())
    except AnswerFailed as failure:
        if not isinstance(failure.__cause__, ZeroDivisionError) and "verflow" not in str(failure):
            raise
        # Without an end to it the factor leaves int64's range, or float's.
        raise AnswerFailed(f"{failure} That was for {_listed(gradient)}. {_endless(gradient)}") from failure.__cause__


def _right(gradient: Tensor) -> int | None:
    exponents = range(100)
    k = next(k for k in exponents if not (gradient.bool() & ~(gradient * 2.0**k).half().bool()).any())
    return None if (gradient * 2.0**k).half().isinf().any() else 2**k


def _endless(gradient: Tensor) -> str:
    if (gradient == 0).any():
        return "Zero stays zero with any factor, and it was not flushed: leave zeros out."
    return "Do you multiply after the cast? What fp16 has flushed no factor brings back."


def _no_overflow(gradient: Tensor, right: int) -> str:
    if right == 1 and not gradient.any():
        return "There is nothing to keep, so 1 will do."
    if right == 1:
        return "Nothing is flushed there and nothing overflows, so 1 will do. Is a `return` missing?"
    largest = float(gradient.abs().max()) * right
    stored = torch.tensor(largest).half().item()
    return f"With {right} nothing is flushed, and the largest value, {largest:,.6g}, is stored as {stored:,.6g}: {_kept(largest)}."


def _kept(largest: float) -> str:
    beyond = largest > torch.finfo(torch.float16).max
    return "fp16 overflows from 65,520 up, not from 65,504" if beyond else "that is no overflow"


def _slip(gradient: Tensor, given: float, right: int | None) -> str:
    if given == 0 and right == 1:
        return "0 is the exponent of 2^0 = 1: give the power of two itself."
    if not given > 0:
        return "The factors to choose from are 1, 2, 4, 8, …"
    if math.isfinite(given) and math.frexp(given)[0] != 0.5:
        return "The factors to choose from are 1, 2, 4, 8, …; this is none of them, and would round on the way."
    sizes = gradient.abs()[gradient != 0]
    if given < 1:
        return "The factors begin at 1."
    smallest = float(sizes.min()) if len(sizes) else 0.0
    product = smallest * given
    if smallest and torch.tensor(product).half() == 0:
        tie = "a tie that goes to 0" if product == _TIE else "and fp16 makes that 0"
        return f"{_written(smallest)} times {_written(given)} is {_written(product)}, {tie}."
    if right is None:
        largest = float(sizes.max()) * given
        return f"That makes {float(sizes.max()):,.4g} into {largest:,.5g}, which is inf in fp16. Give None there."
    if given > 2**60:
        return _endless(gradient)
    return f"{_written(right)} is smaller and flushes nothing: {_kept_small(smallest, right)}"


def _kept_small(smallest: float, right: int) -> str:
    if not smallest:
        return "zeros are not lost."
    product = smallest * right
    stored = torch.tensor(product).half().item()
    rounded = " It lies above 2^-25 and is rounded up." if product < 2.0**-24 else ""
    return f"{_written(smallest)} becomes {_written(product)}, which fp16 keeps as {_written(stored)}.{rounded}"


def _listed(gradient: Tensor) -> str:
    return "[" + ", ".join(_written(value) for value in gradient.flatten().tolist()) + "]"


def _written(value: float) -> str:
    """A number as people write it: powers of two far from 1 as such."""
    if value == _ABOVE:
        return "just above 2^-25"
    mantissa, exponent = math.frexp(value)
    if mantissa == 0.5 and (exponent < -9 or exponent > 17):
        return f"2^{exponent - 1}"
    if abs(value) < 1e-3 and (mantissa * 4).is_integer() and value > 0:
        return f"{mantissa * 2:g} · 2^{exponent - 1}"
    return f"{value:.5g}"


PRAISE = (
    "You found where the window of usable factors begins, and saw that it can be empty: a gradient may hold values too small and "
    "too large for any one factor."
)

HINTS = (
    Hint("My loop does not end", "Which value of the gradient is 0 with every factor? And do you multiply before the cast, or after it?"),
    Hint("My factor is twice too small or too large", "2^-25 is flushed and the next value above it is not. Let `.half()` decide instead of a formula."),
    Hint("It says that I miss an overflow", "Once the factor is found, cast once more: is a value inf now?"),
)

_DEF = "def smallest_factor(gradient):\n"

ALTERNATIVES = (
    # By trying the factors in turn.
    """
def smallest_factor(gradient):
    for k in range(128):
        stored = (gradient * 2.0**k).half()
        if not ((gradient != 0) & (stored == 0)).any():
            return 2.0**k if stored.isfinite().all() else None
""",
    # By the limits, without a cast.
    """
def smallest_factor(gradient):
    size = gradient.abs()
    factor = torch.tensor(1.0)
    while ((size > 0) & (size * factor <= 2.0**-25)).any():
        factor *= 2
    if size.max() * factor >= 65520:
        return None
    return factor
""",
    # By a formula: the floor of the logarithm, plus one, clears the tie too.
    """
def smallest_factor(gradient):
    alive = gradient[gradient != 0].abs().double()
    k = 0 if len(alive) == 0 else max(0, int(torch.floor(-25 - torch.log2(alive.min()))) + 1)
    k -= len(alive) > 0 and k > 0 and bool(alive.min() * 2.0 ** (k - 1) > 2.0**-25)
    return 2**k if (gradient * 2**k).half().isfinite().all() else None
""",
    # By the lesson's histogram.
    """
def smallest_factor(gradient):
    histogram = ExponentHistogram.of(gradient)
    factor = 1.0
    while histogram.fp16_counts(factor)["flushed"]:
        factor *= 2
    return None if histogram.fp16_counts(factor)["overflow"] else factor
""",
)

_OVERFLOW = "    return None if (gradient * factor).half().isinf().any() else factor\n"
_LOOP = f"{_DEF}    factor = 1\n    while %s:\n        factor *= 2\n{_OVERFLOW}"
_FOUND = (_LOOP % "((gradient != 0) & ((gradient * factor).half() == 0)).any()").removesuffix(_OVERFLOW)
_FORMULA = f"import math\n{_DEF}    size = gradient[gradient != 0].abs()\n    factor = max(1, %s) if len(size) else 1\n{_OVERFLOW}"
_LIFTED = _FORMULA % "2.0 ** math.ceil(math.log2(%s / float(size.min())))"

WRONG = (
    Wrong("does not leave zeros out", _LOOP % "(gradient * factor).half().eq(0).any()", "Zero stays zero with any factor"),
    Wrong(
        "does not leave zeros out, in floats",
        f"{_DEF}    k = 0\n    while (gradient * 2.0**k).half().eq(0).any():\n        k += 1\n    return 2.0**k",
        "Zero stays zero with any factor",
    ),
    Wrong(
        "does not leave zeros out, in a formula",
        (_FORMULA % "2.0 ** (math.floor(math.log2(2.0**-25 / float(size.min()))) + 1)").replace("[gradient != 0]", ""),
        "Zero stays zero with any factor",
    ),
    Wrong("casts before it multiplies", _LOOP % "(gradient[gradient != 0].half() * factor).eq(0).any()", "no factor brings back"),
    Wrong("divides the floor by the smallest", _FORMULA % "2.0**-24 / float(size.min())", "would round on the way"),
    Wrong("lifts to 2^-24, where above 2^-25 is enough", _LIFTED % "2.0**-24", "It lies above 2^-25 and is rounded up"),
    Wrong("lifts to 2^-25 only", _LIFTED % "2.0**-25", "a tie that goes to 0"),
    Wrong("lifts to the normal numbers", _LIFTED % "2.0**-14", "is smaller and flushes nothing"),
    Wrong("forgets negative values", _LOOP % "((gradient > 0) & (gradient * factor <= 2.0**-25)).any()", "and fp16 makes that 0"),
    Wrong("does not look for overflow", f"{_FOUND}    return factor", "which is inf in fp16. Give None there"),
    Wrong(
        "does not look for negative overflow",
        f"{_FOUND}    return factor if gradient.max() * factor < 65520 else None",
        "For [3e-09, -5000] it returns 16. That makes 5,000 into 80,000",
    ),
    Wrong(
        "lets everything above 65,504 overflow",
        f"{_FOUND}    return factor if (gradient * factor).abs().max() <= 65504 else None",
        "fp16 overflows from 65,520 up, not from 65,504",
    ),
    Wrong("gives the exponent", f"import math\n{_FOUND}    return int(math.log2(factor))", "give the power of two itself"),
    Wrong("forgets to return", _FOUND, "Is a `return` missing?"),
)

EXERCISE = Exercise(
    name="2-factor",
    title="The smallest factor that loses nothing",
    target="smallest_factor",
    stub=STUB,
    answer=ANSWER,
    lines=4,
    examine=examine,
    praise=PRAISE,
    hints=HINTS,
    alternatives=ALTERNATIVES,
    wrong=WRONG,
    setup="import torch\n\nfrom amp_lessons.gradients import ExponentHistogram",
)
