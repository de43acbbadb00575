"""Exercise 4-largest: the upper end of the loss-scale window."""

from __future__ import annotations

import math
from collections.abc import Sequence
from reprlib import repr as short

import torch
from torch import Tensor

from amp_lessons.recipes import scale_text
from amp_lessons.tutor.exercise import Exercise, Hint, Wrong
from amp_lessons.tutor.given import not_a_number
from amp_lessons.tutor.trial import Trial

STUB = '''
def largest_scale(gradients):
    """The largest power of two that makes no gradient inf in fp16; None if there is none.

    >>> largest_scale([torch.tensor([0.5, -1.0]), torch.tensor([[0.0]])]) == 2.0**15
    True
    >>> largest_scale([torch.tensor([1.0]), torch.tensor([1.0, math.inf])]) is None
    True
    """
    ...
'''

ANSWER = """
def largest_scale(gradients):
    peaks = [gradient.abs().max() for gradient in gradients]
    if not all(peak.isfinite() for peak in peaks):
        return None
    scale = 2.0**127
    while (max(peaks) * scale).half().isinf():
        scale /= 2
    return scale
"""

# fp16 rounds what is under 65520 to 65504; times 2^16 these fall just under that border, on it, and half way to 65504.
UNDER, BORDER, BETWEEN = 65519.99609375 / 2**16, 65520.0 / 2**16, 65512.0 / 2**16

# The simple ones first. Not all of a case's gradients are zero, for then every scale fits.
CASES = (
    [[0.5, 1.0]],
    [[0.25, 0.0], [3.0]],
    [[0.1, 0.2], [[-5.0, 1.0], [0.0, 0.5]]],
    [[65504.0 / 2**16]],
    [[BETWEEN], [0.25]],
    [[UNDER]],
    [[BORDER]],
    [[2.0**-30, 0.0], [2.0**-33]],
    [[1e-12], [-3e-12]],
    [[1e6, -3.0]],
    [[1.0, 2.0], [math.inf, 0.0]],
    [[-math.inf], [1.0]],
    [[1.0, 2.0], [math.nan, 0.5]],
    [[math.nan], [1.0]],
)


def examine(largest_scale: Trial) -> str | None:
    for case in CASES:
        gradients = [torch.tensor(values) for values in case]
        right = _largest(gradients)
        given = largest_scale([gradient.clone() for gradient in gradients])
        if given is None and right is None:
            continue
        said = ", ".join(f"{value:.6g}" for gradient in gradients for value in gradient.flatten().tolist())
        if right is None:
            text = "No scale makes that finite, so the answer is None; check every gradient for inf and for NaN first."
            return f"Of the gradients {said} it found {short(given)}. {text}"
        if given is None:
            return f"For the gradients {said} it returned nothing or None; {scale_text(right)} fits them."
        if wrong := not_a_number(given):
            return wrong
        if float(given) != right:
            return _reason(said, gradients, float(given), right)
    return None


def _largest(gradients: Sequence[Tensor]) -> float | None:
    """Found by trying: each power of two that float32 has, multiplied in float32 and rounded to fp16 by torch."""
    values = torch.cat([gradient.flatten() for gradient in gradients])
    scales = 2.0 ** torch.arange(-126, 128, dtype=torch.float32)
    fits = (values * scales[:, None]).half().isfinite().all(dim=1)
    return scales[fits].max().item() if fits.any() else None


def _reason(said: str, gradients: Sequence[Tensor], given: float, right: float) -> str:
    if given == math.log2(right):
        return f"For the gradients {said} it returned {given:g}. That is the exponent; return the scale, 2.0**{given:g}."
    values = torch.cat([gradient.flatten() for gradient in gradients])
    peak = values[values.abs().argmax()].item()
    came = f"For the gradients {said} it returned {scale_text(given) if given > 0 else f'{given:g}'}."
    if not (0 < given < math.inf and math.frexp(given)[0] == 0.5):
        return f"{came} That is no power of two."
    product = peak * given
    if given > right:
        border = " 65520 lies half way between 65504 and 65536, and the tie goes up." if abs(product) == 65520 else ""
        small = " Multiply before anything is cast to fp16, or it is flushed first." if not torch.tensor(peak).half() else ""
        minus = " Large negative gradients count too." if given == _largest([values.clamp(min=0)]) else ""
        others = " Look at every tensor, not only at the first." if given == _largest(gradients[:1]) else ""
        inf = torch.tensor(product).half().item()
        return f"{came} {peak:.6g} times that is {product:.9g}, and that is {inf} in fp16.{border}{small}{minus}{others}"
    better = peak * right
    rounds = f"{better:.9g} rounds to {torch.tensor(better).half().item():.9g}"
    border = f" {rounds}: fp16 overflows from 65520 on, not from 65504." if abs(better) > 65504 else ""
    far = " Let the search begin higher." if right > 2.0**40 else ""
    return f"{came} That fits, but {scale_text(right)} is larger and fits too.{border}{far}"


PRAISE = (
    "It held on both sides of 65520, the border of fp16's inf, for gradients from 1e-12 to 1e6. This is the scale that a scaler "
    "grows to, tests, and comes back from."
)

HINTS = (
    Hint("I do not know where to begin", "Only one number of all the gradients matters. Which one, and what may a scale make of it at most?"),
    Hint("It is one power of two off", "Do not guess where fp16 ends: multiply, cast with .half(), and look whether it is inf."),
    Hint("It never ends, or says a number for inf and NaN", "Halving does not make inf or NaN finite. Ask for them before you begin; in Python, max() can miss a NaN."),
    Hint("It fails only for tiny gradients", "Where does your search begin, and in which dtype do you multiply?"),
)

_HEAD = "\ndef largest_scale(gradients):\n"
_FINITE = "    if not all(g.isfinite().all() for g in gradients):\n        return None\n"

ALTERNATIVES = (
    # Upwards, as long as the next doubling fits.
    """
def largest_scale(gradients):
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    if not torch.isfinite(flat).all():
        return
    scale = 2.0**-126
    while torch.isfinite((flat * scale * 2).to(torch.float16)).all():
        scale *= 2
    return torch.tensor(scale)
""",
    # By the exponent: peak = fraction * 2**exponent.
    """
def largest_scale(gradients):
    peak = torch.stack([gradient.abs().max() for gradient in gradients]).max().item()
    if not math.isfinite(peak):
        return None
    fraction, exponent = math.frexp(peak)
    return 2.0 ** (16 - exponent if fraction * 65536 < 65520 else 15 - exponent)
""",
    # Every power of two tried.
    """
def largest_scale(gradients):
    fits = [k for k in range(-100, 128) if all((g * 2.0**k).half().isfinite().all() for g in gradients)]
    return 2.0 ** max(fits) if fits else None
""",
)

WRONG = (
    Wrong(
        "ends fp16 at 65504",
        f"{_HEAD}{_FINITE}    peak = max(g.abs().max().item() for g in gradients)\n    return 2.0 ** math.floor(math.log2(65504 / peak))\n",
        "fp16 overflows from 65520 on, not from 65504",
    ),
    Wrong(
        "ends fp16 at 65536",
        f"{_HEAD}{_FINITE}    peak = max(g.abs().max().item() for g in gradients)\n    return 2.0 ** math.floor(math.log2(65536 / peak))\n",
        "that is inf in fp16",
    ),
    Wrong(
        "lets 65520 through",
        f"{_HEAD}{_FINITE}    peak = max(g.abs().max().item() for g in gradients)\n    return 2.0 ** math.floor(math.log2(65520 / peak))\n",
        "the tie goes up",
    ),
    Wrong(
        "forgets negative gradients",
        f"{_HEAD}{_FINITE}    peak = max(g.max() for g in gradients)\n    scale = 2.0**127\n    while (peak * scale).half().isinf():\n        scale /= 2\n    return scale\n",
        "Large negative gradients count too",
    ),
    Wrong(
        "looks only at the first tensor",
        f"{_HEAD}{_FINITE}    scale = 2.0**127\n    while (gradients[0] * scale).half().isinf().any():\n        scale /= 2\n    return scale\n",
        "not only at the first",
    ),
    Wrong(
        "casts to fp16 before it multiplies",
        f"{_HEAD}{_FINITE}    scale = 2.0**127\n    while any((g.half() * scale).isinf().any() for g in gradients):\n        scale /= 2\n    return scale\n",
        "Multiply before anything is cast to fp16",
    ),
    Wrong(
        "begins at GradScaler's first scale",
        f"{_HEAD}{_FINITE}    scale = 2.0**16\n    while any((g * scale).half().isinf().any() for g in gradients):\n        scale /= 2\n    return scale\n",
        "Let the search begin higher",
    ),
    Wrong(
        "returns the number that just fits",
        f"{_HEAD}{_FINITE}    return 65504 / max(g.abs().max().item() for g in gradients)\n",
        "That is no power of two",
    ),
    Wrong(
        "lets Python's max miss a NaN",
        f"{_HEAD}    peak = max(g.abs().max().item() for g in gradients)\n    if not math.isfinite(peak):\n        return None\n"
        "    fraction, exponent = math.frexp(peak)\n    return 2.0 ** (16 - exponent - (fraction * 65536 >= 65520))\n",
        "check every gradient for inf and for NaN",
    ),
    Wrong(
        "never ends for inf",
        f"{_HEAD}    scale = 2.0**127\n    while not all((g * scale).half().isfinite().all() for g in gradients) and scale > 0:\n        scale /= 2\n    return scale\n",
        "so the answer is None",
    ),
)

EXERCISE = Exercise(
    name="4-largest",
    title="The upper end of the window",
    target="largest_scale",
    stub=STUB,
    answer=ANSWER,
    lines=7,
    examine=examine,
    praise=PRAISE,
    hints=HINTS,
    alternatives=ALTERNATIVES,
    wrong=WRONG,
    setup="import math\n\nimport torch",
)
