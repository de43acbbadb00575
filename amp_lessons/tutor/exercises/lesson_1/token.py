"""Exercise 1-token: what fp16 makes of a whole number that it does not hold."""

from __future__ import annotations

from typing import Any

import torch

from amp_lessons.tutor.exercise import Exercise, Hint, Wrong
from amp_lessons.tutor.given import not_a_number

STUB = """
# >>> ids = torch.tensor([4099])
# >>> ids.half().long().item() == token
# True
token = ...
"""

ANSWER = """
token = 4100
"""


def examine(token: Any) -> str | None:
    if wrong := not_a_number(token, returned=False):
        return wrong
    given, stored = float(token), torch.tensor(4099).half().item()
    if given == stored:
        return None
    if given == 4099:
        return "4099 does not come back as it was. fp16's numbers are 2 apart from 2048 on: how far apart from 4096 on?"
    if not abs(given) <= torch.finfo(torch.float16).max:  # NaN too
        return f"4099 does not overflow: fp16 goes on to {torch.finfo(torch.float16).max:,.0f}. It is stored, but not exactly."
    if torch.tensor(given).half().item() != given:
        return f"fp16 has no number {given:g} either. Its numbers are 2 apart only up to 4096, and then further."
    if abs(given - 4099) < 4:  # the neighbour on the other side
        return f"{given:g} is an fp16 number, but it is {abs(given - 4099):g} away from 4099, and the one on the other side is nearer."
    return f"{given:g} is {abs(given - 4099):g} away from 4099. fp16 has nearer ones: how far apart are they from 4096 on?"


PRAISE = (
    "fp16's numbers are 4 apart from 4096 on, and the nearest one is taken, up or down. A model that gets its ids this way "
    "looks up another token, and nothing complains: leave token ids and positions integers."
)

HINTS = (
    Hint(
        "I do not know what fp16 holds around 4099",
        "What is the spacing from 2048 on, and what happens to it at the next power of two?",
    ),
    Hint(
        "I know the two neighbours, but not which one", "A value is rounded to the nearer of the two, whichever side it is on."
    ),
)

ALTERNATIVES = (
    "token = torch.tensor(4099.0).half()",
    "token = 4096 + 4.0",
    "token = torch.tensor([4099]).half().long()",
)

WRONG = (
    Wrong("thinks that whole numbers are exact", "token = 4099", "does not come back as it was"),
    Wrong("rounds down always, as 2049 did", "token = 4096", "the one on the other side is nearer"),
    Wrong("takes the spacing of the binade below", "token = 4098", "fp16 has no number 4098 either"),
    Wrong("takes the spacing of the binade above", "token = 4104", "5 away from 4099. fp16 has nearer ones"),
    Wrong("stops at 2048", "token = 2048", "2051 away from 4099"),
    Wrong("expects an overflow", 'token = float("inf")', "does not overflow: fp16 goes on to 65,504"),
    Wrong("gives a text", 'token = "4100"', "of type str; one number is asked for"),
)

EXERCISE = Exercise(
    name="1-token",
    title="A token id in fp16",
    target="token",
    stub=STUB,
    answer=ANSWER,
    lines=1,
    examine=examine,
    praise=PRAISE,
    hints=HINTS,
    alternatives=ALTERNATIVES,
    wrong=WRONG,
)
