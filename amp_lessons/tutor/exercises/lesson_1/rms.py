"""Exercise 1-rms: RMS norm of float16 rows, whose squares leave the format at both ends."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from amp_lessons.tutor.exercise import Exercise, Hint, Wrong
from amp_lessons.tutor.given import not_a_tensor
from amp_lessons.tutor.trial import Trial

STUB = '''
def rms_norm(x, eps=1e-8):
    """Each row of x, float16, over the root of (the mean of its squares + eps); float16 again.

    >>> rms_norm(torch.tensor([[1.0, 7.0], [300.0, -300.0]]).half()).tolist()
    [[0.199951171875, 1.400390625], [1.0, -1.0]]
    >>> rms_norm(torch.zeros(1, 2).half())
    tensor([[0., 0.]], dtype=torch.float16)
    """
    ...
'''

ANSWER = """
def rms_norm(x, eps=1e-8):
    wide = x.float()
    mean_square = wide.square().mean(dim=1, keepdim=True)
    return (wide / (mean_square + eps).sqrt()).half()
"""

EPS = 1e-8


def examine(rms_norm: Trial) -> str | None:
    return _wrong_formula(rms_norm) or _wrong_range(rms_norm)


def _wrong_formula(rms_norm: Trial) -> str | None:
    """The mistake seen on rows whose squares fp16 can hold, or None."""
    for shape in ((3, 5), (1, 16), (4, 1)):
        rows = (torch.randn(shape) + 2).half()
        given = rms_norm(rows.clone())
        if wrong := not_a_tensor(given, rows.shape, rows.dtype):
            return wrong
        right = _right(rows)
        if not _alike(given, right):
            row = f"The row {_row(rows[-1])} came back as {_row(given[-1])}, and should be {_row(right[-1])}."
            return f"{row} {_reason(rows.float(), given)}"
    return None


def _reason(rows: Tensor, given: Tensor) -> str:
    square = rows.square().mean(dim=1, keepdim=True)
    mistakes = {
        "The mean goes over all rows together; each row has its own.": rows / rows.square().mean().sqrt(),
        "The mean goes down the columns; a row's numbers lie along dim 1.": rows / rows.square().mean(dim=0).sqrt(),
        "That is divided by the row's norm: its squares are added up, but their mean is not taken.": F.normalize(rows),
        "The root is missing.": rows / square,
        "That is divided by the standard deviation: nothing is subtracted in an RMS norm.": rows
        / rows.std(dim=1, keepdim=True, correction=min(1, rows.shape[1] - 1)),
        "That is a layer norm: nothing is subtracted in an RMS norm.": F.layer_norm(rows, rows.shape[1:]),
        "That is multiplied where it should be divided.": rows * square.sqrt(),
        "The mean of the numbers is squared, and not the mean of their squares taken.": rows
        / rows.mean(dim=1, keepdim=True).abs(),
    }
    return next(
        (mistake for mistake, result in mistakes.items() if _alike(given, result)),
        f"The root of the mean of its squares is {square[-1].sqrt().item():.3g}.",
    )


def _wrong_range(rms_norm: Trial) -> str | None:
    """The mistake seen on rows whose squares leave fp16, or None."""
    largest = torch.finfo(torch.float16).max
    too_large = f"fp16 ends at {largest:,.0f} and makes inf of that: stay in float32 until the result."
    cases = {
        60.0: f"Its squares, 3,600, fit into fp16, but 64 of them add up to 230,400. {too_large}",
        300.0: f"300² is 90,000. {too_large}",
        1e-4: "Its squares are as small as eps. Stay in float32 until the result, and use the eps that is given.",
        0.0: "A row of zeros has nothing to be divided by but eps.",
    }
    for size, reason in cases.items():
        rows = torch.full((2, 64), size).half()
        rows[1] *= -1
        given, right = rms_norm(rows.clone()), _right(rows)
        if wrong := not_a_tensor(given, rows.shape, rows.dtype):
            return wrong
        if not _alike(given, right):
            if size == 1e-4 and _alike(given, rows.sign()):
                reason = "Its squares are as small as eps, which makes no difference here: add it to the mean square, under the root."
            return f"A row of {size:g} came back as {given[0, 0].item():.4g}, and should be {right[0, 0].item():.4g}. {reason}"
    return None


def _right(rows: Tensor) -> Tensor:
    return F.rms_norm(rows.float(), rows.shape[1:], eps=EPS).half()


def _alike(one: Tensor, other: Tensor) -> bool:
    # A few units in the last place of fp16: one rounding more, or another order of the sum, is no mistake.
    return torch.allclose(one.float(), other.float(), rtol=2.0**-9, atol=2.0**-23)


def _row(row: Tensor) -> str:
    shown = ", ".join(f"{value:.3g}" for value in row[:3].tolist())
    return f"[{shown}, ...]" if len(row) > 3 else f"[{shown}]"


PRAISE = (
    "Rows from 1e-4 to 300 came out right: in float32 neither the squares nor their sum leave the range, as they do in fp16 at "
    "both ends. PyTorch's own `F.rms_norm` gives the same for float16 rows."
)

HINTS = (
    Hint(
        "Rows of large numbers come back as 0",
        "What is 300² in fp16? Find the first operation whose result must not be 16-bit.",
    ),
    Hint("A row of zeros comes back as NaN", "What is 1e-8 in fp16? Where is eps added, and in which dtype?"),
    Hint(
        "It says that shapes do not fit",
        "The mean of each row must stay a column, so that a row is divided by its own: keepdim.",
    ),
    Hint("It returns float32", "Sixteen bits go in and come out; only what lies between is wider. When is it rounded?"),
)

_HEAD = "\ndef rms_norm(x, eps=1e-8):\n"

ALTERNATIVES = (
    f"{_HEAD}    return F.rms_norm(x, x.shape[-1:], eps=eps)\n",
    f"{_HEAD}    x = x.to(torch.float32)\n    x *= torch.rsqrt(x.pow(2).mean(-1, True) + eps)\n    return x.to(torch.float16)\n",
    # In float64, by the norm.
    """
def rms_norm(x, eps=1e-8):
    wide = x.double()
    norm = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    return (wide / torch.sqrt(norm**2 / x.shape[-1] + eps)).type_as(x)
""",
    # Row by row; a dot product keeps its sum in float32.
    """
def rms_norm(x, eps=1e-8):
    result = torch.empty_like(x)
    for number, row in enumerate(x.float()):
        result[number] = row / (torch.dot(row, row) / len(row) + eps) ** 0.5
    return result
""",
)

WRONG = (
    Wrong("stays in fp16", f"{_HEAD}    return x / (x.square().mean(dim=1, keepdim=True) + eps).sqrt()\n", "300² is 90,000"),
    Wrong(
        "goes to float32 after squaring",
        f"{_HEAD}    square = x.square().float().mean(dim=1, keepdim=True)\n    return (x.float() / (square + eps).sqrt()).half()\n",
        "stay in float32 until the result",
    ),
    Wrong(
        "rounds the sum of squares to fp16",
        f"{_HEAD}    total = x.float().square().sum(dim=1, keepdim=True).half()\n    return x / (total / x.shape[1] + eps).sqrt()\n",
        "64 of them add up to 230,400",
    ),
    Wrong(
        "rounds the mean square to fp16",
        f"{_HEAD}    return x / (x.float().square().mean(dim=1, keepdim=True).half() + eps).sqrt()\n",
        "300² is 90,000",
    ),
    Wrong(
        "sums in a loop in fp16",
        """
def rms_norm(x, eps=1e-8):
    total = torch.zeros(len(x)).half()
    for column in x.T:
        total += column * column
    return (x.float() / (total.float() / x.shape[1] + eps).sqrt()[:, None]).half()
""",
        "64 of them add up to 230,400",
    ),
    Wrong(
        "leaves the result in float32",
        f"{_HEAD}    x = x.float()\n    return x / (x.square().mean(dim=1, keepdim=True) + eps).sqrt()\n",
        "It returns float32; it should be float16",
    ),
    Wrong(
        "leaves eps out",
        f"{_HEAD}    x = x.float()\n    return (x / x.square().mean(dim=1, keepdim=True).sqrt()).half()\n",
        "which makes no difference here",
    ),
    Wrong(
        "uses an eps of its own",
        f"{_HEAD}    x = x.float()\n    return (x * torch.rsqrt(x.square().mean(1, True) + 1e-6)).half()\n",
        "use the eps that is given",
    ),
    Wrong(
        "divides by the mean size",
        f"{_HEAD}    x = x.float()\n    return (x / x.abs().mean(1, True)).half()\n",
        "The root of the mean of its squares is 1.9",
    ),
    Wrong(
        "scales by the largest number to stay in fp16",
        f"{_HEAD}    x = x / x.abs().amax(1, True)\n    return x / (x.square().mean(1, True) + eps).sqrt()\n",
        "which makes no difference here",
    ),
    Wrong(
        "adds eps after the root",
        f"{_HEAD}    x = x.float()\n    return (x / (x.square().mean(dim=1, keepdim=True).sqrt() + eps)).half()\n",
        "under the root",
    ),
    Wrong(
        "takes one mean for all rows",
        f"{_HEAD}    x = x.float()\n    return (x / (x.square().mean() + eps).sqrt()).half()\n",
        "over all rows together",
    ),
    Wrong(
        "forgets keepdim",
        f"{_HEAD}    x = x.float()\n    return (x / (x.square().mean(dim=1) + eps).sqrt()).half()\n",
        "RuntimeError: The size of tensor",
    ),
    Wrong("divides by the norm", f"{_HEAD}    return F.normalize(x.float()).half()\n", "their mean is not taken"),
    Wrong(
        "forgets the root",
        f"{_HEAD}    x = x.float()\n    return (x / (x.square().mean(1, True) + eps)).half()\n",
        "The root is missing",
    ),
    Wrong("subtracts the mean", f"{_HEAD}    return F.layer_norm(x.float(), x.shape[-1:]).half()\n", "That is a layer norm"),
)

EXERCISE = Exercise(
    name="1-rms",
    title="RMS norm in fp16",
    target="rms_norm",
    stub=STUB,
    answer=ANSWER,
    lines=3,
    examine=examine,
    praise=PRAISE,
    hints=HINTS,
    alternatives=ALTERNATIVES,
    wrong=WRONG,
    setup="import torch\nimport torch.nn.functional as F",
)
