"""Exercise 6-limit: whether memory or arithmetic limits a matrix product."""

from __future__ import annotations

from collections.abc import Callable
from reprlib import repr as short
from typing import Any

from amp_lessons.tutor.exercise import Exercise, Hint, Wrong
from amp_lessons.tutor.given import NOTHING
from amp_lessons.tutor.trial import Trial

STUB = '''
def limit(m, n, k, bytes_each, flop_per_s, bytes_per_s):
    """What limits an [m, k] by [k, n] product: "memory" or "arithmetic".

    >>> machine = {"flop_per_s": 100e12, "bytes_per_s": 1e12}
    >>> limit(4096, 4096, 4096, bytes_each=2, **machine)
    'arithmetic'
    >>> limit(1, 4096, 4096, bytes_each=2, **machine)  # one example at a time
    'memory'
    """
    ...
'''

ANSWER = """
def limit(m, n, k, bytes_each, flop_per_s, bytes_per_s):
    arithmetic = 2 * m * n * k / flop_per_s
    memory = (m * k + k * n + m * n) * bytes_each / bytes_per_s
    return "memory" if memory > arithmetic else "arithmetic"
"""

# m, n, k, bytes_each: a linear layer on a large and a small batch, a square product, one that makes a large result.
_SHAPES = ((64, 4096, 1024, 2), (1, 1024, 1024, 4), (1024, 1024, 1024, 4), (512, 512, 512, 2), (2048, 2048, 32, 2))
_BYTES_PER_S = 1e12
_NEAR = 1.2  # times the border, so near the border that half the arithmetic, or a matrix left out, tips it over


def examine(limit: Trial) -> str | None:
    cases = [(1, 4096, 4096, 2, 100.0), (4096, 4096, 4096, 2, 100.0)]
    for shape in _SHAPES:
        cases += [(*shape, _intensity(*shape) * side) for side in (_NEAR, 1 / _NEAR, 1 / 3)]
    answers, failed = [], None
    for *shape, balance in cases:
        given = limit(*shape, flop_per_s=balance * _BYTES_PER_S, bytes_per_s=_BYTES_PER_S)
        if wrong := _not_a_word(given):
            return wrong
        answers.append(str(given).strip().lower())
        right = _side(_intensity(*shape), balance)
        if answers[-1] != right and failed is None:
            failed = (shape, balance, right, answers[-1])
    return failed and f"{_told(*failed)} {_reason(cases, answers)}".strip()


def _intensity(m: int, n: int, k: int, bytes_each: int) -> float:
    return 2 * m * n * k / ((m * k + k * n + m * n) * bytes_each)


def _side(intensity: float, balance: float) -> str:
    return "memory" if intensity < balance else "arithmetic"


def _not_a_word(given: Any) -> str | None:
    if given is None:
        return NOTHING
    if not isinstance(given, str) or given.strip().lower() not in ("memory", "arithmetic"):
        return f'It returns `{short(given)}`; "memory" or "arithmetic" is asked for.'
    return None


def _told(shape: list[int], balance: float, right: str, given: str) -> str:
    m, n, k, bytes_each = shape
    return (
        f"A [{m}, {k}] by [{k}, {n}] product with {bytes_each} bytes a number has {_intensity(*shape):.3g} FLOP for each byte "
        f"moved, and that machine does {balance:.3g} in the time of one byte: {right} is the limit. You say {given}."
    )


_LESS_WELL_COUNTED: dict[str, Callable[[int, int, int, int], float]] = {
    "Each of the m·n·k terms is a multiplication and an addition: two operations.": lambda m, n, k, b: _intensity(m, n, k, b) / 2,
    "The result has to be written too: m·n numbers more.": lambda m, n, k, b: 2 * m * n * k / ((m * k + k * n) * b),
    "Only one of the two inputs is counted; both have to be read.": lambda m, n, k, b: 2 * m * n * k / ((k * n + m * n) * b),
    "The bytes are counted as if each number took one: is `bytes_each` used?": lambda m, n, k, b: _intensity(m, n, k, 1),
    "The bytes are counted as if each number took four: is `bytes_each` used?": lambda m, n, k, b: _intensity(m, n, k, 4),
    "Are these bits? `bytes_each` is in bytes already.": lambda m, n, k, b: _intensity(m, n, k, 8 * b),
}


def _reason(cases: list[tuple], answers: list[str]) -> str:
    """The mistake that gives all of these answers."""
    right = [_side(_intensity(*shape), balance) for *shape, balance in cases]
    if all(given != wanted for given, wanted in zip(answers, right)):
        return "All your answers are the other way round: the slower of the two is the limit."
    if len(set(answers)) == 1:
        return "You give the same answer for every shape and machine."
    for reason, intensity in _LESS_WELL_COUNTED.items():
        if answers == [_side(intensity(*shape), balance) for *shape, balance in cases]:
            return reason
    return ""


PRAISE = (
    "With a batch of 1 each weight is read and used once: memory is the limit, and 16 bits help by halving the bytes. With a "
    "large batch each weight is used many times, and only a faster unit helps."
)

HINTS = (
    Hint("I do not know what to compare", "Two times in seconds: one for all the arithmetic, one for moving all the bytes. The longer one is the limit."),
    Hint("I do not know how much arithmetic there is", "Each of the m·n results adds up k products: how many multiplications and additions?"),
    Hint("I do not know how many bytes move", "Two matrices are read and one is written. How many numbers has each?"),
)

_HEAD = "\ndef limit(m, n, k, bytes_each, flop_per_s, bytes_per_s):\n"
_BYTES = "    moved = (m * k + k * n + m * n) * bytes_each\n"
_END = '    return "memory" if moved / bytes_per_s > flop / flop_per_s else "arithmetic"\n'

ALTERNATIVES = (
    # By the intensity.
    f"""{_HEAD}    intensity = 2 * m * n * k / (bytes_each * (m * k + k * n + m * n))
    if intensity >= flop_per_s / bytes_per_s:
        return "arithmetic"
    return "memory"
""",
    # By the course's own count.
    f"{_HEAD}    flop = measure.matmul_flop(m, n, k)\n{_BYTES}{_END}",
    f"""{_HEAD}    seconds = {{
        "memory": bytes_each * sum([m * k, k * n, m * n]) / bytes_per_s,
        "arithmetic": 2.0 * m * n * k / flop_per_s,
    }}
    return max(seconds, key=seconds.get)
""",
)

WRONG = (
    Wrong("counts only the multiplications", f"{_HEAD}    flop = m * n * k\n{_BYTES}{_END}", "two operations"),
    Wrong(
        "forgets the result",
        f"{_HEAD}    flop = 2 * m * n * k\n    moved = (m * k + k * n) * bytes_each\n{_END}",
        "The result has to be written too",
    ),
    Wrong(
        "forgets the batch",
        f"{_HEAD}    flop = 2 * m * n * k\n    moved = (k * n + m * n) * bytes_each\n{_END}",
        "Only one of the two inputs is counted",
    ),
    Wrong(
        "does not use the size of a number",
        f"{_HEAD}    flop = 2 * m * n * k\n    moved = m * k + k * n + m * n\n{_END}",
        "is `bytes_each` used?",
    ),
    Wrong("thinks in float32", f"{_HEAD}    flop = 2 * m * n * k\n    moved = (m * k + k * n + m * n) * 4\n{_END}", "as if each number took four"),
    Wrong("counts bits", f"{_HEAD}    flop = 2 * m * n * k\n{_BYTES}    moved *= 8\n{_END}", "in bytes already"),
    Wrong(
        "compares the wrong way round",
        f'{_HEAD}    flop = 2 * m * n * k\n{_BYTES}    return "memory" if moved / bytes_per_s < flop / flop_per_s else "arithmetic"\n',
        "the other way round",
    ),
    Wrong(
        "forgets the machine",
        f'{_HEAD}    flop = 2 * m * n * k\n{_BYTES}    return "memory" if moved > flop else "arithmetic"\n',
        "FLOP for each byte moved",
    ),
    Wrong("says arithmetic always", f'{_HEAD}    return "arithmetic"\n', "the same answer for every shape"),
    Wrong("gives a number", f"{_HEAD}    return 2 * m * n * k / flop_per_s\n", 'or "arithmetic" is asked for'),
    Wrong("prints", f"{_HEAD}    flop = 2 * m * n * k\n", "is the `return` missing?"),
)

EXERCISE = Exercise(
    name="6-limit",
    title="Memory or arithmetic?",
    target="limit",
    stub=STUB,
    answer=ANSWER,
    lines=3,
    examine=examine,
    praise=PRAISE,
    hints=HINTS,
    alternatives=ALTERNATIVES,
    wrong=WRONG,
    setup="import torch\n\nfrom amp_lessons import measure",
)
