"""Exercise 2-average: how large an average may be before fp16 loses its gradients."""

from __future__ import annotations

from typing import Any

import torch

from amp_lessons.tutor.exercise import Exercise, Hint, Wrong
from amp_lessons.tutor.given import not_a_number

STUB = """
# >>> gradient = 2.0**-4 / 2**largest_n  # of each value, however wrong it is
# >>> torch.tensor([gradient, gradient / 2]).half() > 0  # / 2: twice as many values
# tensor([ True, False])
largest_n = ...
"""

ANSWER = "largest_n = 20"

_WEIGHT = -4  # the exponent of the loss weight


def examine(largest_n: Any) -> str | None:
    if wrong := not_a_number(largest_n, returned=False):
        return wrong
    given = float(largest_n)
    right = max(n for n in range(64) if _stored(n) > 0)
    if given == right:
        return None
    if given == 2**right:
        return f"That is how many values there are, {given:,.0f}. The answer is n, where that is 2^n."
    if not given.is_integer() or abs(given) > 100:
        return f"{given:g} cannot be n. There are 2^n values, and n is a whole number, far under 100."
    n, gradient = int(given), _WEIGHT - int(given)
    if n < 0:
        return f"2^{n} values are less than one: n is not the gradient's exponent, but that of the number of values."
    if n > right:
        lost = f"With 2^{n} values each gradient is 2^-4 / 2^{n} = 2^{gradient}, and fp16 makes {_stored(n):g} of it."
        return f"{lost} {_too_large(n - right)}"
    twice = f"With twice as many, 2^{n + 1}, each gradient is 2^{gradient - 1}, and fp16 still keeps it."
    if gradient == -14:
        return f"{twice} 2^-14 is the smallest normal number; fp16 goes on below it with fewer bits."
    return twice


def _stored(n: int) -> float:
    return torch.tensor(2.0 ** (_WEIGHT - n)).half().item()


def _too_large(excess: int) -> str:
    if excess == 1:
        return "It is half way between 0 and 2^-24, and this tie goes to 0."
    if excess in (-_WEIGHT, 1 - _WEIGHT):
        return "The loss weight of 2^-4 makes the gradients smaller too."
    if excess in (-2 * _WEIGHT, 1 - 2 * _WEIGHT):
        return "A loss weight under 1 makes the gradients smaller, so there is room for fewer values, not for more."
    return "Where is the floor?"


PRAISE = (
    "2^20 values are a picture of 1,024 by 1,024 pixels. With twice the pixels the gradients would be 2^-25, a tie that goes to "
    "0 in fp16, and no pixel could be corrected, however wrong it is."
)

HINTS = (
    Hint("I do not know how small a gradient gets", "Add the exponents: 2^-4 / 2^n is 2 to the power of which number?"),
    Hint("I know the gradient, but not the floor", "Which is the smallest number in fp16, and what becomes of half of it?"),
)

ALTERNATIVES = (
    "largest_n = torch.tensor(20)",
    "largest_n = 24 - 4.0",
    """
largest_n = 0
while torch.tensor(2.0**-4 / 2 ** (largest_n + 1)).half() > 0:
    largest_n += 1
""",
)

WRONG = (
    Wrong("thinks that a tie is kept", "largest_n = 21", "half way between 0 and 2^-24, and this tie goes to 0"),
    Wrong("forgets the loss weight", "largest_n = 24", "The loss weight of 2^-4 makes the gradients smaller too"),
    Wrong("forgets the loss weight and the tie", "largest_n = 25", "The loss weight of 2^-4 makes the gradients smaller too"),
    Wrong("takes the loss weight the wrong way", "largest_n = 24 + 4", "room for fewer values, not for more"),
    Wrong("stops at the smallest normal number", "largest_n = 14 - 4", "2^-14 is the smallest normal number"),
    Wrong("is one too careful", "largest_n = 19", "each gradient is 2^-24, and fp16 still keeps it"),
    Wrong("gives the number of values", "largest_n = 2**20", "The answer is n"),
    Wrong("gives the gradient's exponent", "largest_n = -24", "that of the number of values"),
    Wrong("gives the gradient", "largest_n = 2.0**-24", "n is a whole number"),
    Wrong("gives a text", 'largest_n = "20"', "of type str; one number is asked for"),
)

EXERCISE = Exercise(
    name="2-average",
    title="The largest average",
    target="largest_n",
    stub=STUB,
    answer=ANSWER,
    lines=1,
    examine=examine,
    praise=PRAISE,
    hints=HINTS,
    alternatives=ALTERNATIVES,
    wrong=WRONG,
)
