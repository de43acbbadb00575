"""Exercise 6-even: the batch from which AMP takes less memory than FP32."""

from __future__ import annotations

from typing import Any

from amp_lessons import measure
from amp_lessons.tutor.exercise import Exercise, Hint, Wrong
from amp_lessons.tutor.given import not_a_number

STUB = """
# >>> recipes = [s for s in measure.SETTINGS if s.name in ("fp32", "amp")]
# >>> step = measure.mlp(128, break_even)
# >>> fp32, amp = (measure.memory_split(step, r, "cpu").sum_bytes for r in recipes)
# >>> amp - fp32
# 0
break_even = ...
"""

ANSWER = """
break_even = 192
"""

_WIDTH = 128
_MOST = 4096  # a larger batch would only take longer to say the same


def examine(break_even: Any) -> str | None:
    if wrong := not_a_number(break_even, returned=False):
        return wrong
    given = float(break_even)
    if not 1 <= given <= _MOST:
        return f"{given:g} is far off: with one example AMP takes more, and with {_MOST:,} it takes less. The even batch lies between."
    if given != int(given):
        return f"A batch is a whole number, and {given:g} is not one."
    fp32, amp = _splits(int(given))
    more = amp.sum_bytes - fp32.sum_bytes
    if more == 0:
        return None
    told = f"At batch {given:g} AMP takes {abs(more):,} bytes {'more' if more > 0 else 'less'} than FP32"
    copies, saved = amp.weight_copies_bytes, fp32.activations_bytes - amp.activations_bytes
    return f"{told}: {copies:,} for the copies of weights, and {saved:,} saved in the activations. {_reason(int(given))}".strip()


def _splits(batch: int) -> list[measure.MemorySplit]:
    step = measure.mlp(_WIDTH, batch)
    return [measure.memory_split(step, setting, "cpu") for setting in measure.SETTINGS if setting.name in ("fp32", "amp")]


def _reason(given: int) -> str:
    """Why somebody gives this batch."""
    fp32, amp = _splits(1)
    layer = 2 * _WIDTH**2
    halves = fp32.activations_bytes / 2
    saved = fp32.activations_bytes - amp.activations_bytes
    if given == amp.weight_copies_bytes / halves:
        return "The activations do not halve: the loss keeps its input in float32."
    if given == 4 * layer / saved:
        return "Are all four weights copied for the backward pass? The first layer's input needs no gradient."
    if given == 4 * layer / halves:
        return "The activations do not halve, and not all four copies are kept for the backward pass."
    if given == 2 * amp.weight_copies_bytes / saved:
        return "That is the batch for a width of 256."
    return ""


PRAISE = (
    "Measured: at 192 both take the same, one example more and AMP takes less. The copies grow with the square of the width and the "
    "activations with the width: twice as wide, and it breaks even at twice the batch."
)

HINTS = (
    Hint(
        "I do not know what AMP adds and what it saves",
        "The same whatever the batch: its copies of weights. For each example: a part of the activations. When are the two equal?",
    ),
    Hint(
        "I do not know the sizes",
        "measure.memory_split gives both parts, at any batch that you like. How much of the activations is saved for one example?",
    ),
    Hint(
        "I get 96 or 256",
        "Count what is kept, and not what should be: do the activations halve, and are there copies of all four weights?",
    ),
)

_MEASURE = """
recipes = [s for s in measure.SETTINGS if s.name in ("fp32", "amp")]
"""

ALTERNATIVES = (
    f"""{_MEASURE}
fp32, amp = (measure.memory_split(measure.mlp(128, 64), r, "cpu") for r in recipes)
break_even = 64 * amp.weight_copies_bytes / (fp32.activations_bytes - amp.activations_bytes)
""",
    "break_even = 3 * 128 * 128 * 2 / (128 * 4)",
    "break_even = torch.tensor([192])",
)

WRONG = (
    Wrong("halves the activations", "break_even = 96", "The activations do not halve"),
    Wrong("copies all four weights", "break_even = 256", "Are all four weights copied"),
    Wrong("does both", "break_even = 128", "not all four copies are kept"),
    Wrong("takes the lesson's width", "break_even = 384", "for a width of 256"),
    Wrong("thinks that AMP always saves", "break_even = 1", "At batch 1 AMP takes 97,792 bytes more"),
    Wrong("thinks that AMP never saves", 'break_even = float("inf")', "with 4,096 it takes less"),
    Wrong("gives a fraction", "break_even = 191.5", "A batch is a whole number"),
    Wrong("gives a text", 'break_even = "192"', "one number is asked for"),
)

EXERCISE = Exercise(
    name="6-even",
    title="Where AMP breaks even",
    target="break_even",
    stub=STUB,
    answer=ANSWER,
    lines=1,
    examine=examine,
    praise=PRAISE,
    hints=HINTS,
    alternatives=ALTERNATIVES,
    wrong=WRONG,
    setup="import torch\n\nfrom amp_lessons import measure",
)
