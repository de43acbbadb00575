"""Exercise 7-mask: an attention mask of -1e9, which fp16 cannot hold."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from amp_lessons.tutor.exercise import Exercise, Hint, Wrong
from amp_lessons.tutor.given import not_a_tensor
from amp_lessons.tutor.trial import Trial

STUB = '''
def attend(scores, hidden):
    """Attention weights, in the scores' dtype; 0 where `hidden`.

    A row that is all hidden is padding: its weights and gradients need only be finite.

    >>> scores = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float16)
    >>> hidden = torch.tensor([[False, True], [True, True]])
    >>> weights = attend(scores, hidden)
    >>> weights[0].tolist(), weights.isfinite().all().item()
    ([1.0, 0.0], True)
    """
    scores = scores.masked_fill(hidden, -1e9)
    return torch.softmax(scores, dim=-1)
'''

ANSWER = """
def attend(scores, hidden):
    scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
    return torch.softmax(scores, dim=-1)
"""

# Each row: its scores, and which of them are hidden.
ORDINARY = (([1.0, 2.0, 0.5], [0, 1, 0]), ([-1.0, 0.0, 3.0], [0, 0, 0]), ([20.0, 1.0, -8.0], [1, 0, 0]))
LOW = (([-30000.0, 5.0, 5.0], [0, 1, 1]), ([-100.0, -30000.0, -30000.0], [1, 0, 0]))
LOWER = (([-(2.0**20), 5.0, 5.0], [0, 1, 1]),)
PADDING = (([1.0, 2.0, 3.0], [0, 0, 1]), ([0.5, 1.0, 2.0], [1, 1, 1]), ([-100.0, -200.0, -300.0], [1, 1, 1]))

CASES = (
    (torch.float16, ORDINARY),
    (torch.float16, LOW),
    (torch.float16, PADDING),
    (torch.bfloat16, (*ORDINARY, *LOWER, *PADDING)),
    (torch.float32, (*ORDINARY, *LOWER, *PADDING)),
)


def examine(attend: Trial) -> str | None:
    for dtype, rows in CASES:
        leaf = torch.tensor([scores for scores, _ in rows], dtype=dtype, requires_grad=True)
        hidden = torch.tensor([flags for _, flags in rows]).bool()
        given = attend(leaf * 1, hidden.clone())  # no leaf, so that it may be masked in place
        if wrong := not_a_tensor(given, leaf.shape, dtype):
            return f"With {_short(dtype)} scores: {wrong}"
        if torch.allclose(given.sum(dim=0).float(), torch.ones(3), atol=0.02) and len(rows) > 1:
            return "The weights add up to 1 down each column, not along each row: the softmax belongs over the last dimension, `dim=-1`."
        for scores, flags, weights in zip(leaf.detach(), hidden, given.detach()):
            if wrong := _wrong_row(scores, flags, weights):
                return f"In {_short(dtype)} {wrong}"
        if not given.requires_grad:
            return "The weights carry no gradient back to the scores: something in it detached them."
        (given.float() * torch.arange(1.0, 4.0)).sum().backward()
        for scores, flags, gradient in zip(leaf.detach(), hidden, leaf.grad):
            if not gradient.isfinite().all():
                return (
                    f"In {_short(dtype)} all weights are finite, but the gradient of the row {scores.tolist()}, "
                    f"{'all' if flags.all() else 'partly'} hidden, is {gradient.tolist()}: what covers a NaN after the softmax does not "
                    "keep it out of the backward pass. Let none arise."
                )
    return None


def _wrong_row(scores: Tensor, hidden: Tensor, weights: Tensor) -> str | None:
    row = f"the row {scores.tolist()}, hidden at {hidden.nonzero().flatten().tolist()}"
    if not weights.isfinite().all():
        text = f"{row}, gave {weights.tolist()}."
        if hidden.all():
            return (
                f"{text} Softmax subtracts the largest score, and -inf minus -inf is NaN; a sum of 0 to divide by makes NaN too. "
                "Fill with the lowest finite number of the dtype."
            )
        highest = scores[hidden].max().item()
        return (
            f"{text} Was the hidden score of {highest:g} still at work? In fp16 its exp may be inf, and beside it the other weights may be "
            "flushed to 0, with nothing left to divide by. Mask the scores before the softmax."
        )
    if hidden.all():
        return None
    if weights[hidden].any():
        most = weights[hidden].max().item()
        return f"{row}, gave a hidden place the weight {most:.2g}. What was filled in must be lower than any score; here {_lowest(scores, hidden)} is visible."
    right = torch.zeros(len(scores), dtype=torch.float64)
    right[~hidden] = torch.softmax(scores[~hidden].double(), dim=0)
    if not torch.allclose(weights.double(), right, rtol=0.02, atol=0.004):
        total = weights.double().sum().item()
        if not math.isclose(total, 1.0, abs_tol=0.02):
            return f"{row}, gave weights that add up to {total:.2g}, not to 1: hidden places must be out of the softmax's sum too."
        return f"{row}, gave {_rounded(weights)} where {_rounded(right)} is right."
    return None


def _lowest(scores: Tensor, hidden: Tensor) -> str:
    return f"{scores[~hidden].min().item():.7g}"


def _rounded(values: Tensor) -> str:
    return str([round(value, 3) for value in values.double().tolist()])


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


PRAISE = (
    "It held in float16, bfloat16 and float32, beside visible scores as low as -30000 and -2^20. Padding rows stayed finite, "
    "and so did their gradients."
)

HINTS = (
    Hint("value cannot be converted to type c10::Half without overflow", "-1e9 is beyond float16. What is the lowest number that it has, and how do you ask for it for any dtype?"),
    Hint("A padding row comes back as NaN", "What does softmax do with a row of -inf? Is there something just as good that is finite?"),
    Hint("It works in float16 and not in another dtype", "A fixed number fits one dtype. `torch.finfo` knows every dtype's limits."),
)

_DEF = "\ndef attend(scores, hidden):\n"
_SOFTMAX = "    return torch.softmax(scores, dim=-1)\n"

ALTERNATIVES = (
    # In float32 and back.
    f"{_DEF}    scores, dtype = scores.float(), scores.dtype\n    scores = scores.masked_fill(hidden, -1e9)\n    return scores.softmax(-1).to(dtype)\n",
    f"{_DEF}    lowest = torch.finfo(scores.dtype).min\n    return F.softmax(torch.where(hidden, lowest, scores), dim=-1)\n",
    f"{_DEF}    scores[hidden] = torch.finfo(scores.dtype).min\n{_SOFTMAX}",
    # Where a score was filled in, the NaN of a padding row gets no further back.
    f"{_DEF}    scores = scores.masked_fill(hidden, float('-inf'))\n    return torch.softmax(scores, dim=-1).nan_to_num(0.0)\n",
    # Padding rows are left unmasked, the others get -inf.
    f"{_DEF}    some = ~hidden.all(dim=-1, keepdim=True)\n    return scores.masked_fill(hidden & some, float('-inf')).softmax(dim=-1)\n",
)

WRONG = (
    Wrong("still fills with -1e9", f"{_DEF}    return scores.masked_fill(hidden, -1e9).softmax(-1)\n", "without overflow"),
    Wrong("fills with -inf", f"{_DEF}    scores = scores.masked_fill(hidden, float('-inf'))\n{_SOFTMAX}", "-inf minus -inf is NaN"),
    Wrong("lets where turn -1e9 into -inf", f"{_DEF}    scores = torch.where(hidden, -1e9, scores)\n{_SOFTMAX}", "-inf minus -inf is NaN"),
    Wrong(
        "adds -inf and covers the NaN",
        f"{_DEF}    mask = torch.zeros_like(scores).masked_fill(hidden, float('-inf'))\n    return torch.softmax(scores + mask, dim=-1).nan_to_num(0.0)\n",
        "does not keep it out of the backward pass",
    ),
    Wrong("fills with -1e4", f"{_DEF}    scores = scores.masked_fill(hidden, -1e4)\n{_SOFTMAX}", "gave a hidden place the weight 0.5"),
    Wrong("fills with float16's lowest in every dtype", f"{_DEF}    scores = scores.masked_fill(hidden, -65504.0)\n{_SOFTMAX}", "What was filled in must be lower than any score; here -1048576 is visible"),
    Wrong(
        "masks after the softmax and divides again",
        f"{_DEF}    weights = torch.softmax(scores, dim=-1) * ~hidden\n    return weights / weights.sum(dim=-1, keepdim=True)\n",
        "Was the hidden score of 20 still at work?",
    ),
    Wrong(
        "takes the softmax over the first dimension",
        f"{_DEF}    return scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(0)\n",
        "not along each row",
    ),
    Wrong(
        "adds the lowest number",
        f"{_DEF}    scores = scores + hidden.to(scores.dtype) * torch.finfo(scores.dtype).min\n{_SOFTMAX}",
        "-inf minus -inf is NaN",
    ),
    Wrong("fills with the smallest positive number", f"{_DEF}    scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).tiny)\n{_SOFTMAX}", "gave a hidden place the weight"),
    Wrong("masks after the softmax", f"{_DEF}    return torch.softmax(scores, dim=-1).masked_fill(hidden, 0.0)\n", "out of the softmax's sum too"),
    Wrong("stays in float32", f"{_DEF}    scores = scores.float().masked_fill(hidden, -1e9)\n{_SOFTMAX}", "it should be float16"),
    Wrong("hides the visible places", f"{_DEF}    scores = scores.masked_fill(~hidden, torch.finfo(scores.dtype).min)\n{_SOFTMAX}", "gave a hidden place the weight 1"),
    Wrong("forgets to return", f"{_DEF}    scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)\n    torch.softmax(scores, dim=-1)\n", "is the `return` missing?"),
)

EXERCISE = Exercise(
    name="7-mask",
    title="A mask that does not fit",
    target="attend",
    stub=STUB,
    answer=ANSWER,
    lines=2,
    examine=examine,
    praise=PRAISE,
    hints=HINTS,
    alternatives=ALTERNATIVES,
    wrong=WRONG,
    setup="import torch\nimport torch.nn.functional as F",
)
