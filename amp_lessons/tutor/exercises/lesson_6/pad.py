"""Exercise 6-pad: a size rounded up to a multiple of 8."""

from __future__ import annotations

import operator
from typing import Any

from torch import Tensor

from amp_lessons.tutor.exercise import Exercise, Hint, Wrong
from amp_lessons.tutor.given import not_a_number
from amp_lessons.tutor.trial import Trial

STUB = '''
def padded(size, multiple=8):
    """The smallest multiple that is not below size.

    >>> padded(100)
    104
    >>> padded(50257, multiple=64)  # a vocabulary
    50304
    """
    ...
'''

ANSWER = """
def padded(size, multiple=8):
    return -(-size // multiple) * multiple
"""

_CASES = ((100, 8), (104, 8), (97, 8), (103, 8), (7, 8), (1, 8), (768, 8), (50257, 64), (50304, 64), (130, 16))


def examine(padded: Trial) -> str | None:
    for size, multiple in _CASES:
        call = f"padded({size})" if multiple == 8 else f"padded({size}, multiple={multiple})"
        given = padded(size) if multiple == 8 else padded(size, multiple=multiple)
        if wrong := not_a_number(given):
            return wrong
        if not _is_whole(given):
            return f"{call} gives {given!r}, a {type(given).__name__}. A layer's size must be an int: `nn.Linear` takes nothing else."
        if mistake := _mistake(size, multiple, operator.index(given)):
            return f"{call} gives {operator.index(given)}. {mistake}"
    return None


def _is_whole(given: Any) -> bool:
    try:
        operator.index(given)
    except TypeError:
        return False
    return not isinstance(given, Tensor) or given.ndim == 0  # operator.index takes [104] in a list's shape too


def _mistake(size: int, multiple: int, given: int) -> str | None:
    right = next(n for n in range(size, size + multiple) if n % multiple == 0)
    if given == right:
        return None
    if given == size + multiple and size == right:
        return f"{size} is a multiple of {multiple} already and needs no padding."
    if given % multiple:
        reason = " It is one of 8: is `multiple` used?" if given % 8 == 0 else ""
        return f"That is no multiple of {multiple}: {multiple} into it leaves {given % multiple}.{reason}"
    if given < size:
        return f"That is smaller than {size}: padding adds and takes nothing away, so a token or a feature would be lost."
    return f"That is a multiple of {multiple}, but {right} is one too, and smaller."


PRAISE = (
    "Sizes that fit stay as they are, all others grow by less than one multiple. 50,257 is GPT-2's vocabulary; the 47 extra rows cost "
    "little, and no token uses them."
)

HINTS = (
    Hint("I do not know how to round up", "size // multiple rounds down. What changes if you add something to size first?"),
    Hint("A size that fits already grows", "Add one less than the multiple before you divide, or look at the remainder first."),
    Hint("I get a float", "`/` always gives a float. `//` of two ints gives an int."),
)

_HEAD = "\ndef padded(size, multiple=8):\n"

ALTERNATIVES = (
    f"{_HEAD}    return (size + multiple - 1) // multiple * multiple\n",
    f"{_HEAD}    return size + -size % multiple\n",
    f"{_HEAD}    import math\n\n    return math.ceil(size / multiple) * multiple\n",
    f"{_HEAD}    while size % multiple:\n        size += 1\n    return size\n",
    f"{_HEAD}    return torch.tensor(size + multiple - 1) // multiple * multiple\n",
)

WRONG = (
    Wrong("rounds down", f"{_HEAD}    return size // multiple * multiple\n", "padding adds and takes nothing away"),
    Wrong("rounds to the nearest", f"{_HEAD}    return round(size / multiple) * multiple\n", "padding adds and takes nothing away"),
    Wrong("always adds one", f"{_HEAD}    return (size // multiple + 1) * multiple\n", "needs no padding"),
    Wrong("ignores the multiple", f"{_HEAD}    return (size + 7) // 8 * 8\n", "is `multiple` used?"),
    Wrong("adds the multiple", f"{_HEAD}    return size + multiple\n", "no multiple of 8: 8 into it leaves 4"),
    Wrong("takes a power of two", f"{_HEAD}    return max(multiple, 1 << (size - 1).bit_length())\n", "is one too, and smaller"),
    Wrong("divides with /", f"{_HEAD}    return (size + -size % multiple) / 1\n", "must be an int"),
    Wrong("gives the number of multiples", f"{_HEAD}    return -(-size // multiple)\n", "no multiple of 8"),
    Wrong("prints", f"{_HEAD}    result = -(-size // multiple) * multiple\n", "is the `return` missing?"),
)

EXERCISE = Exercise(
    name="6-pad",
    title="Pad to a multiple of 8",
    target="padded",
    stub=STUB,
    answer=ANSWER,
    lines=1,
    examine=examine,
    praise=PRAISE,
    hints=HINTS,
    alternatives=ALTERNATIVES,
    wrong=WRONG,
)
