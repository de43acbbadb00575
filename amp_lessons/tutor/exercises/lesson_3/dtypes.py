"""Exercise 3-dtypes: predict what each op of a gated layer gives under autocast."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from amp_lessons.tutor.exercise import Exercise, Hint, Wrong

STUB = """
# >>> x, w = torch.ones(4, 4), torch.ones(4, 4)
# >>> with torch.autocast("cpu", dtype=torch.float16):
# ...     gate = torch.sigmoid(x)
# ...     value = F.gelu(x @ w)
# ...     mixed = gate * value
# ...     out = mixed @ w
# ...     loss = F.l1_loss(out, x)
# >>> tuple(t.dtype for t in (gate, value, mixed, out, loss)) == tuple(dtypes)
# True
dtypes = ...
"""

ANSWER = "dtypes = (torch.float32, torch.float16, torch.float32, torch.float16, torch.float32)"

_NAMES = ("gate", "value", "mixed", "out", "loss")
_WHY = {
    "gate": "sigmoid is on neither list, so it gives back what it gets, and `x` came in as float32.",
    "value": "the matrix product gave float16, whatever went in, and gelu is on neither list: it gives back what it gets.",
    "mixed": "a plain product of float32 and float16 gives the wider of the two, as it does without autocast.",
    "out": "it is a matrix product, and those are cast to 16 bits, whatever goes in.",
    "loss": "losses are on the float32 list, whatever goes in.",
}
_SHORT = {"fp16": torch.float16, "fp32": torch.float32, "bf16": torch.bfloat16}


def examine(dtypes: Any) -> str | None:
    given = list(dtypes.values()) if isinstance(dtypes, dict) else list(dtypes) if isinstance(dtypes, (tuple, list)) else [dtypes]
    if len(given) != len(_NAMES):
        return f"It holds {len(given)} dtype{'' if len(given) == 1 else 's'}; there are five results: {', '.join(_NAMES)}."
    read = [_dtype(item) for item in given]
    if None in read:
        place = read.index(None)
        return f"The answer for `{_NAMES[place]}` is of type {type(given[place]).__name__}; write torch.float32 or torch.float16."
    right = [tensor.dtype for tensor in _run()]
    wrong = [place for place in range(len(right)) if read[place] != right[place]]
    if not wrong:
        return None
    first = wrong[0]
    told = f"{len(right) - len(wrong)} of 5 are right. `{_NAMES[first]}` is {right[first]} here, not {read[first]}: "
    return told.replace("torch.", "") + _WHY[_NAMES[first]]


def _dtype(item: Any) -> torch.dtype | None:
    if isinstance(item, str):
        item = _SHORT.get(item, getattr(torch, item.removeprefix("torch."), None))
    return item if isinstance(item, torch.dtype) else None


def _run() -> tuple[torch.Tensor, ...]:
    x, w = torch.ones(4, 4), torch.ones(4, 4)
    with torch.autocast("cpu", dtype=torch.float16):
        gate = torch.sigmoid(x)
        value = F.gelu(x @ w)
        mixed = gate * value
        out = mixed @ w
        return gate, value, mixed, out, F.l1_loss(out, x)


PRAISE = (
    "Two dtypes took turns and nobody wrote a cast: the products went to float16, the loss to float32, sigmoid and gelu gave "
    "back what they got, and float32 times float16 gave float32. CUDA gives the same five."
)

HINTS = (
    Hint("I thought that everything in a region is float16", "Only the ops on the 16-bit list are cast. Is sigmoid on a list?"),
    Hint("I cannot tell what an op on neither list gives", "Look at what goes in. Is it a result of a matrix product, or `x` itself?"),
    Hint("One op gets both dtypes", "Then it is not autocast that decides. What gave the residual `add` in the lesson's trace?"),
)

ALTERNATIVES = (
    "dtypes = [torch.float, torch.half, torch.float, torch.half, torch.float]",
    'dtypes = ("float32", "float16", "float32", "float16", "float32")',
    "low, full = torch.float16, torch.float32\ndtypes = full, low, full, low, full",
)

WRONG = (
    Wrong("takes everything in a region for float16", "dtypes = (torch.float16,) * 5", "2 of 5 are right. `gate` is float32 here"),
    Wrong(
        "takes all ops but matrix products for float32",
        "dtypes = (torch.float32, torch.float32, torch.float32, torch.float16, torch.float32)",
        "`value` is float16 here",
    ),
    Wrong(
        "lets the narrower dtype win",
        "dtypes = (torch.float32, torch.float16, torch.float16, torch.float16, torch.float32)",
        "`mixed` is float32 here",
    ),
    Wrong(
        "lets float32 inputs keep a product in float32",
        "dtypes = (torch.float32, torch.float16, torch.float32, torch.float32, torch.float32)",
        "`out` is float16 here",
    ),
    Wrong(
        "gives the loss the dtype of the output",
        "dtypes = (torch.float32, torch.float16, torch.float32, torch.float16, torch.float16)",
        "4 of 5 are right. `loss` is float32 here",
    ),
    Wrong("gives one dtype for all", "dtypes = torch.float16", "there are five results"),
    Wrong("gives the number of bits", "dtypes = (32, 16, 32, 16, 32)", "write torch.float32 or torch.float16"),
)

EXERCISE = Exercise(
    name="3-dtypes",
    title="Five dtypes",
    target="dtypes",
    stub=STUB,
    answer=ANSWER,
    lines=1,
    examine=examine,
    praise=PRAISE,
    hints=HINTS,
    alternatives=ALTERNATIVES,
    wrong=WRONG,
    setup="import torch\nimport torch.nn.functional as F",
)
