"""Exercise 4-update: the rule by which GradScaler.update() moves the scale."""

from __future__ import annotations

import math
from reprlib import repr as short
from typing import Any

import torch

from amp_lessons.recipes import scale_text
from amp_lessons.tutor.exercise import Exercise, Hint, Wrong
from amp_lessons.tutor.given import NOTHING
from amp_lessons.tutor.trial import Trial

STUB = '''
def update(scale, tracker, found_inf, growth_interval=2000):
    """The scale and the count of clean steps after one update, with factors 2 and 0.5.

    >>> update(2.0**16, 7, found_inf=False)
    (65536.0, 8)
    >>> update(2.0**16, 7, found_inf=True)
    (32768.0, 0)
    """
    ...
'''

ANSWER = """
def update(scale, tracker, found_inf, growth_interval=2000):
    if found_inf:
        return scale * 0.5, 0
    if tracker + 1 < growth_interval:
        return scale, tracker + 1
    return min(scale * 2.0, 2.0**127), 0
"""

# First scale, growth interval, and a step a letter: "." is clean, "x" overflows. The simple ones come first.
SERIES = (
    (2.0**16, 2000, "..x.x"),
    (2.0**10, 3, "...." + "..x" + ".x" + "......"),
    (2.0**20, 2, "x..x...x.xx...."),
    (2.0**8, 1, "..x.x.."),
    (1.0, 4, "x" * 5 + "." * 9),
    (2.0**125, 2, "......." + "xx" + "......"),  # to float32's end, and again from below it
)


def examine(update: Trial) -> str | None:
    for scale, interval, steps in SERIES:
        tracker = 0
        for step in steps:
            found_inf = step == "x"
            given = update(scale, tracker, found_inf, interval)
            if wrong := _not_a_pair(given):
                return wrong
            right = _updated(scale, tracker, found_inf, interval)
            mine = tuple(float(part) for part in given)
            if mine != right:
                event = "an overflow" if found_inf else "a clean step"
                start = f"A scale of {scale_text(scale)}, {tracker} clean steps counted, growth_interval={interval}"
                came = f"{start}: {event} gave {_state(*mine)}, and the real scaler has {_state(*right)}."
                return f"{came} {_reason(scale, tracker, found_inf, mine, right)}".strip()
            scale, tracker = right
    return None


def _updated(scale: float, tracker: int, found_inf: bool, growth_interval: int) -> tuple[float, int]:
    """What a real scaler in this state has after one step and ``update``."""
    weight = torch.nn.Parameter(torch.zeros(1))
    weight.grad = torch.full((1,), math.inf if found_inf else 0.0)
    optimizer = torch.optim.SGD([weight])
    scaler = torch.amp.GradScaler("cpu", growth_interval=growth_interval)
    scaler.load_state_dict({**scaler.state_dict(), "scale": scale, "_growth_tracker": tracker})
    scaler.scale(torch.zeros(1))  # makes the tensors that the state is kept in
    scaler.step(optimizer)
    scaler.update()
    return scaler.get_scale(), scaler.state_dict()["_growth_tracker"]


def _reason(scale: float, tracker: int, found_inf: bool, given: tuple[float, float], right: tuple[float, int]) -> str:
    """The rule that was broken, in words."""
    new_scale, new_tracker = given
    if found_inf:
        if new_scale == scale:
            return "An overflow always lowers the scale: there is no interval to wait for."
        if new_scale > scale:
            return "An overflow says that the scale is too large; it has to go down."
        if new_tracker == tracker:
            return "The growth interval asks for clean steps in a row, so an overflow sets the count back."
        return "A skipped step is not a clean one, so there is nothing to count." if new_tracker == tracker + 1 else ""
    if right[0] == scale and right[1] == 0:
        if new_scale > scale:
            text = "2^128 is inf in float32, and inf times 0.5 is still inf: such a scale would never come down again."
            return f"{text} So it grows only where the result is finite."
        return "The scale stays at float32's end, but an interval is over, and the count begins again." if new_scale == scale else ""
    if right[0] > scale:
        if new_scale == scale:
            return "This clean step completes the interval, and the scale grows with it, not in the step after."
        if new_scale == right[0]:
            return "The count begins again when the scale has grown, or the next clean step would raise it too."
        return ""
    if new_scale > scale:
        return f"The interval is not complete: this is clean step {tracker + 1} in a row."
    return "A clean step adds 1 to the count." if new_scale == scale else "A clean step never lowers the scale."


def _state(scale: float, tracker: float) -> str:
    return f"({scale_text(scale) if scale > 0 else f'{scale:g}'}, {tracker:g})"


def _not_a_pair(given: Any) -> str | None:
    if given is None:
        return NOTHING
    try:
        parts = [float(part) for part in given]
    except (TypeError, ValueError):
        parts = []
    if len(parts) == 2 and not isinstance(given, str):
        return None
    return f"It returns `{short(given)}`; two numbers are asked for, the new scale and the new count: `return scale, tracker`."


PRAISE = (
    "It agreed with a real GradScaler in every step of six series, up to float32's end. With these few lines "
    "a scale finds its window by itself."
)

HINTS = (
    Hint("I do not know where to begin", "The lesson has the rule as a table with three rows. One row is one `return`."),
    Hint("It grows too early or too late", "Is the step that you are updating for counted before you compare with the interval?"),
    Hint("It fails near 2^127", "The lesson let a scale grow 300 times. Where did it stop, and what would another doubling give?"),
)

_HEAD = "\ndef update(scale, tracker, found_inf, growth_interval=2000):\n"

ALTERNATIVES = (
    # Like PyTorch's kernel: grow only where the result is finite in float32.
    """
def update(scale, tracker, found_inf, growth_interval=2000):
    scale = torch.tensor(scale, dtype=torch.float32)
    if found_inf:
        scale, tracker = scale * 0.5, 0
    else:
        tracker += 1
        if tracker == growth_interval:
            if torch.isfinite(scale * 2.0):
                scale = scale * 2.0
            tracker = 0
    return scale.item(), tracker
""",
    # Two questions, one return.
    """
def update(scale, tracker, found_inf, growth_interval=2000):
    tracker = 0 if found_inf else (tracker + 1) % growth_interval
    if found_inf:
        scale /= 2
    elif tracker == 0 and scale < torch.finfo(torch.float32).max / 2:
        scale *= 2
    return [scale, tracker]
""",
    # By the scaler itself.
    """
def update(scale, tracker, found_inf, growth_interval=2000):
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=growth_interval)
    scaler.load_state_dict(scaler.state_dict() | {"_growth_tracker": tracker})
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight])
    scaler.scale(weight).backward()
    if found_inf:
        weight.grad.fill_(math.nan)
    scaler.step(optimizer)
    scaler.update()
    return torch.tensor([scaler.get_scale(), scaler.state_dict()["_growth_tracker"]], dtype=torch.float64)
""",
)

_OVERFLOW = "    if found_inf:\n        return scale * 0.5, 0\n"
_CLEAN = "    if tracker + 1 < growth_interval:\n        return scale, tracker + 1\n"
_GROW = "    return min(scale * 2.0, 2.0**127), 0\n"

WRONG = (
    Wrong("keeps the count at an overflow", f"{_HEAD}{_OVERFLOW.replace('0.5, 0', '0.5, tracker')}{_CLEAN}{_GROW}", "so an overflow sets the count back"),
    Wrong("counts the skipped step", f"{_HEAD}{_OVERFLOW.replace('0.5, 0', '0.5, tracker + 1')}{_CLEAN}{_GROW}", "A skipped step is not a clean one"),
    Wrong("lets the count run on when it grew", f"{_HEAD}{_OVERFLOW}{_CLEAN}{_GROW.replace(', 0', ', tracker + 1')}", "The count begins again when the scale has grown"),
    Wrong(
        "grows one step late",
        f"{_HEAD}{_OVERFLOW}    if tracker < growth_interval:\n        return scale, tracker + 1\n{_GROW}",
        "This clean step completes the interval",
    ),
    Wrong("grows with every clean step", f"{_HEAD}{_OVERFLOW}    return scale * 2.0, tracker + 1\n", "The interval is not complete: this is clean step 1"),
    Wrong("grows past float32's end", f"{_HEAD}{_OVERFLOW}{_CLEAN}    return scale * 2.0, 0\n", "2^128 is inf in float32"),
    Wrong(
        "counts on at float32's end",
        f"{_HEAD}{_OVERFLOW}    if tracker + 1 < growth_interval or scale == 2.0**127:\n        return scale, tracker + 1\n{_GROW}",
        "the count begins again",
    ),
    Wrong("raises the scale at an overflow", f"{_HEAD}{_OVERFLOW.replace('0.5', '2.0')}{_CLEAN}{_GROW}", "it has to go down"),
    Wrong("does not back off", f"{_HEAD}{_OVERFLOW.replace(' * 0.5', '')}{_CLEAN}{_GROW}", "An overflow always lowers the scale"),
    Wrong("does not count", f"{_HEAD}{_OVERFLOW}{_CLEAN.replace('scale, tracker + 1', 'scale, tracker')}{_GROW}", "A clean step adds 1 to the count"),
    Wrong("returns only the scale", f"{_HEAD}    return scale * 0.5 if found_inf else scale\n", "two numbers are asked for"),
    Wrong("forgets to return", f"{_HEAD}    if found_inf:\n        scale, tracker = scale * 0.5, 0\n", "is the `return` missing?"),
)

EXERCISE = Exercise(
    name="4-update",
    title="The rule of update",
    target="update",
    stub=STUB,
    answer=ANSWER,
    lines=5,
    examine=examine,
    praise=PRAISE,
    hints=HINTS,
    alternatives=ALTERNATIVES,
    wrong=WRONG,
    setup="import math\n\nimport torch",
)
