"""Exercise 4-scale: where the loss scale ends after a series of clean and overflowing steps."""

from __future__ import annotations

import math
from typing import Any

from amp_lessons.recipes import ScalerOptions, scale_text
from amp_lessons.replay import replay
from amp_lessons.tutor.exercise import Exercise, Hint, Wrong
from amp_lessons.tutor.given import not_a_number

STUB = """
# >>> options = ScalerOptions(2.0**10, growth_factor=8.0, growth_interval=2)
# >>> peaks = 3 * [0.0] + 2 * [math.inf] + 5 * [0.0]
# >>> replay(peaks, options)[-1].next_scale == last_scale
# True
last_scale = ...
"""

ANSWER = "last_scale = 2.0**17"

# With these numbers each of the usual mistakes ends at a scale of its own.
OPTIONS = ScalerOptions(2.0**10, growth_factor=8.0, growth_interval=2)
PEAKS = 3 * [0.0] + 2 * [math.inf] + 5 * [0.0]

MISTAKES = {
    "keeps the count": "The count went on after the overflows; an overflow sets it back to 0.",
    "grows on": "After it grew, every further clean step raised it again; growing sets the count back to 0, and it counts anew.",
    "counts skipped steps": "The skipped steps were counted as clean ones; an overflow sets the count to 0.",
    "grows late": "It grew only in the step after the interval; the second clean step in a row raises it already.",
    "never backs off": "It never went down; each overflow multiplies it by the backoff factor, 0.5 if nothing else is given.",
    "never grows": "It never went up; two clean steps in a row are a whole growth interval here.",
    "backs off once": "Two overflows in a row count twice: each multiplies by the backoff factor.",
    "doubles": "It grew by 2 each time; the growth factor is 8 here.",
}


def examine(last_scale: Any) -> str | None:
    if wrong := not_a_number(last_scale, returned=False):
        return wrong
    given = float(last_scale)
    steps = replay(PEAKS, OPTIONS)
    right = steps[-1].next_scale
    if given == right:
        return None
    if given == math.log2(right):
        return f"{given:g} is the exponent; the scale itself is asked for."
    for mistake, words in MISTAKES.items():
        if given == _with(mistake):
            return f"It does not end at {scale_text(given)}. {words}"
    said = scale_text(given) if given > 0 else f"{given:g}"
    return f"It does not end at {said}. After the two overflows it stands at {scale_text(steps[4].next_scale)}; go on from there."


def _with(mistake: str) -> float:
    """The last scale if the rule is applied with this mistake."""
    scale, count, overflowed = OPTIONS.init_scale, 0, False
    interval = OPTIONS.growth_interval + (mistake == "grows late")
    growth = {"never grows": 1.0, "doubles": 2.0}.get(mistake, OPTIONS.growth_factor)
    for peak in PEAKS:
        again, overflowed = overflowed, math.isinf(peak)
        if overflowed and not (mistake == "never backs off" or mistake == "backs off once" and again):
            scale *= OPTIONS.backoff_factor
        if not overflowed or mistake == "counts skipped steps":
            count += 1
        elif mistake != "keeps the count":
            count = 0
        if count >= interval:
            scale, count = scale * growth, count if mistake == "grows on" else 0
    return scale


PRAISE = (
    "The real scaler ends there too. Each run of clean steps left one over: an overflow wiped the first one out, and the last still "
    "waits for its partner."
)

HINTS = (
    Hint("I do not know where to begin", "Keep two numbers, the scale and the count of clean steps, and go through the ten steps one by one."),
    Hint("I lost count at the overflows", "Three clean steps are one interval and one step more. What becomes of that step when inf comes?"),
    Hint("I get a scale that is far too small", "Read the options again: by how much does it grow, and after how many clean steps?"),
)

ALTERNATIVES = (
    "last_scale = 131072",
    "last_scale = 2.0**10 * 8 * 0.5 * 0.5 * 8 * 8",
    "last_scale = torch.tensor(2.0**17)",
    "last_scale = replay(3 * [0.0] + 2 * [math.inf] + 5 * [0.0], ScalerOptions(2.0**10, 8.0, 0.5, 2))[-1].next_scale",
)

WRONG = (
    Wrong("keeps the count across the overflows", "last_scale = 2.0**20", "The count went on after the overflows"),
    Wrong("grows at every clean step after the interval", "last_scale = 2.0**26", "growing sets the count back to 0"),
    Wrong("counts the skipped steps too", "last_scale = 2.0**23", "The skipped steps were counted as clean ones"),
    Wrong("grows one step late", "last_scale = 2.0**14", "the second clean step in a row raises it already"),
    Wrong("forgets the backoff", "last_scale = 2.0**19", "It never went down"),
    Wrong("forgets the growth", "last_scale = 2.0**8", "It never went up"),
    Wrong("takes two overflows in a row for one", "last_scale = 2.0**18", "Two overflows in a row count twice"),
    Wrong("doubles, since 2 is the default", "last_scale = 2.0**11", "the growth factor is 8 here"),
    Wrong("gives the exponent", "last_scale = 17", "17 is the exponent"),
    Wrong("gives the scale it started with", "last_scale = 2.0**10", "After the two overflows it stands at 2^11"),
    Wrong("gives it as a text", 'last_scale = "2^17"', "of type str; one number is asked for"),
)

EXERCISE = Exercise(
    name="4-scale",
    title="Where does the scale end?",
    target="last_scale",
    stub=STUB,
    answer=ANSWER,
    lines=1,
    examine=examine,
    praise=PRAISE,
    hints=HINTS,
    alternatives=ALTERNATIVES,
    wrong=WRONG,
    setup="import math\n\nimport torch\n\nfrom amp_lessons.recipes import ScalerOptions\nfrom amp_lessons.replay import replay",
)
