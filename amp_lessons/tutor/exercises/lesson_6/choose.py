"""Exercise 6-choose: the recipe for a GPU's compute capability."""

from __future__ import annotations

from reprlib import repr as short
from typing import Any

import torch

from amp_lessons.tutor.exercise import Exercise, Hint, Wrong
from amp_lessons.tutor.given import NOTHING, not_a_flag
from amp_lessons.tutor.trial import Trial

STUB = '''
def choose(capability):
    """The 16-bit dtype for autocast, or None for float32; and whether a scaler is on.

    capability is the GPU's (major, minor), or None on a CPU.

    >>> choose((7, 5))
    (torch.float16, True)
    >>> choose((9, 0)), choose(None)
    ((torch.bfloat16, False), (None, False))
    """
    ...
'''

ANSWER = """
def choose(capability):
    if capability is None or capability < (7, 0):
        return None, False
    if capability < (8, 0):
        return torch.float16, True
    return torch.bfloat16, False
"""

# A real device of each capability, for the verdict.
_MACHINES = (
    (None, "a CPU"),
    ((6, 1), "a GTX 1080 Ti"),
    ((7, 0), "a V100"),
    ((7, 5), "a T4"),
    ((8, 0), "an A100"),
    ((8, 9), "an RTX 4090"),
    ((9, 0), "an H100"),
    ((10, 0), "a B200"),
    ((12, 0), "an RTX 5090"),
)
_RIGHT = {"float32": (None, False), "fp16": (torch.float16, True), "bf16": (torch.bfloat16, False)}
_WHY = {
    "float32": "It has no matrix units: float32, and no scaler.",
    "fp16": "It has matrix units for fp16 and none for bf16: fp16, with a scaler.",
    "bf16": "It has matrix units for bf16, and bf16 needs no scaler.",
}


def examine(choose: Trial) -> str | None:
    for capability, name in _MACHINES:
        given = choose(capability)
        machine = f"For {name}, capability {capability}" if capability else f"For {name}"
        if wrong := _not_a_pair(given):
            return f"{machine}: {wrong}"
        wanted = "float32" if capability is None or capability[0] < 7 else "fp16" if capability[0] < 8 else "bf16"
        dtype, scaler = given[0], bool(given[1])
        if dtype is torch.float32:
            dtype = None  # said another way
        if (dtype, scaler) != _RIGHT[wanted]:
            return f"{machine}, you choose {_words(dtype, scaler)}. {_reason(wanted, capability, dtype, scaler)}"
    return None


def _not_a_pair(given: Any) -> str | None:
    if given is None:
        return NOTHING.replace("It", "it", 1)
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        return f"it returns `{short(given)}`; a dtype and True or False are asked for."
    if given[0] is not None and not isinstance(given[0], torch.dtype):
        return f"the first value is `{short(given[0])}`; a torch dtype or None is asked for."
    return f"the second value is `{short(given[1])}`; True or False is asked for." if not_a_flag(given[1]) else None


def _words(dtype: torch.dtype | None, scaler: bool) -> str:
    return f"{'float32' if dtype is None else str(dtype).removeprefix('torch.')} {'with' if scaler else 'without'} a scaler"


def _reason(wanted: str, capability: tuple[int, int] | None, dtype: torch.dtype | None, scaler: bool) -> str:
    if capability is None:
        return "There 16-bit products are often slower, as the lesson measured: float32, and no scaler."
    if wanted == "fp16" and dtype is torch.float16:
        return "fp16 flushes small gradients: it needs the scaler."
    if wanted == "bf16" and dtype is torch.bfloat16:
        return "bf16 has float32's range: nothing is flushed that a scaler could save."
    if wanted == "bf16" and capability[0] >= 10:
        return f"{_WHY[wanted]} Newer GPUs have higher numbers: compare with `>=`, and not with a list."
    return _WHY[wanted]


PRAISE = (
    "From the V100 to GPUs newer than this course. A capability is a pair, and Python compares pairs from the left: (10, 0) is above "
    "(8, 0). TF32 is a switch beside this choice, and measuring your own model has the last word."
)

HINTS = (
    Hint("I do not know where the borders are", "Look at the lesson's table: which numbers stand in brackets?"),
    Hint("TypeError: '<' not supported", "A tuple cannot be compared with None or with a number: what is `capability` on a CPU?"),
    Hint("Old GPUs are right and the newest are not", "(10, 0) and (12, 0) exist. Is your test one that they pass?"),
)

_HEAD = "\ndef choose(capability):\n"
_OLD = f"{_HEAD}    if capability is None or capability < (7, 0):\n        return None, False\n"

ALTERNATIVES = (
    f"""{_HEAD}    major = capability[0] if capability else 0
    dtype = torch.bfloat16 if major >= 8 else torch.float16 if major == 7 else None
    return dtype, dtype is torch.float16
""",
    f"""{_HEAD}    if capability and capability >= (8, 0):
        return torch.bfloat16, False
    if capability and capability >= (7, 0):
        return torch.float16, True
    return [torch.float32, False]
""",
    """
choose = lambda capability: (
    (None, False) if not capability or capability[0] < 7 else (torch.float16, True) if capability[0] == 7 else (torch.bfloat16, False)
)
""",
)

WRONG = (
    Wrong("forgets the CPU", f"{_HEAD}    if capability < (8, 0):\n        return torch.float16, True\n    return torch.bfloat16, False\n", "TypeError"),
    Wrong(
        "takes fp16 on a CPU too",
        f"{_HEAD}    if capability and capability >= (8, 0):\n        return torch.bfloat16, False\n    return torch.float16, True\n",
        "often slower",
    ),
    Wrong(
        "takes fp16 on every old GPU",
        f"""{_HEAD}    if capability is None:
        return None, False
    return (torch.bfloat16, False) if capability >= (8, 0) else (torch.float16, True)
""",
        "has no matrix units",
    ),
    Wrong("leaves the scaler out", f"{_OLD}    return (torch.float16 if capability < (8, 0) else torch.bfloat16), False\n", "it needs the scaler"),
    Wrong("scales bf16 too", f"{_OLD}    return (torch.float16 if capability < (8, 0) else torch.bfloat16), True\n", "float32's range"),
    Wrong("takes bf16 everywhere", f"{_OLD}    return torch.bfloat16, False\n", "none for bf16"),
    Wrong("stays with fp16", f"{_OLD}    return torch.float16, True\n", "has matrix units for bf16"),
    Wrong(
        "lists the GPUs that it knows",
        f"{_OLD}    return (torch.bfloat16, False) if capability[0] in (8, 9) else (torch.float16, True)\n",
        "compare with `>=`",
    ),
    Wrong("gives names", f'{_HEAD}    return ("fp16", True) if capability else (None, False)\n', "a torch dtype or None"),
    Wrong("gives the dtype alone", f"{_HEAD}    return torch.float16 if capability else torch.float32\n", "a dtype and True or False"),
)

EXERCISE = Exercise(
    name="6-choose",
    title="Choose a recipe",
    target="choose",
    stub=STUB,
    answer=ANSWER,
    lines=5,
    examine=examine,
    praise=PRAISE,
    hints=HINTS,
    alternatives=ALTERNATIVES,
    wrong=WRONG,
)
