"""Exercise 1-fields: a bf16 number put together from its bits."""

from __future__ import annotations

from collections.abc import Callable

import torch

from amp_lessons.tutor.exercise import Exercise, Hint, Wrong
from amp_lessons.tutor.given import not_a_number
from amp_lessons.tutor.trial import Trial

STUB = '''
def bf16_value(bits):
    """The number that these 16 bits stand for in bf16, if it is a normal number.

    >>> bf16_value("0011110111001101")  # 0.1, as the lesson stored it
    0.10009765625
    >>> bf16_value("1100000001001001")
    -3.140625
    """
    ...
'''

ANSWER = """
def bf16_value(bits):
    sign = -1 if bits[0] == "1" else 1
    power = int(bits[1:9], 2) - 127
    return sign * (1 + int(bits[9:], 2) / 128) * 2**power
"""

# 1 first, the simplest there is; then one field more at a time.
NUMBERS = (1.0, 2.0, 0.25, 1.5, 0.1, -1.0, -3.140625, 2.0**-126, -(2.0**-100), torch.finfo(torch.bfloat16).max)


def examine(bf16_value: Trial) -> str | None:
    for bits in map(_bits, NUMBERS):
        given, right = bf16_value(bits), _read(bits)
        if wrong := not_a_number(given):
            return wrong
        if float(given) != right:
            fields = f"{bits[0]} {bits[1:9]} {bits[9:]}"
            return f"{fields} is {right:.9g} in bf16, and came back as {float(given):.9g}. {_reason(bf16_value, bits)}"
    return None


def _reason(bf16_value: Trial, bits: str) -> str:
    for mistake, result in MISTAKES.items():
        if all(float(bf16_value(each)) == result(each) for each in map(_bits, NUMBERS)):
            return mistake
    return f"Its fields, as whole numbers, are {bits[0]}, {int(bits[1:9], 2)} and {int(bits[9:], 2)}."


def _bits(number: float) -> str:
    return f"{torch.tensor(number).bfloat16().view(torch.int16).item() & 0xFFFF:016b}"


def _read(bits: str, bias: int = 127, steps: int = 128, hidden: int = 1, ends: int = 9) -> float:
    """The number in these bits, in bf16 or, with other arguments, as people misread it; the exponent's field ends at ``ends``."""
    sign = -1 if bits[0] == "1" else 1
    return sign * (hidden + int(bits[ends:], 2) / steps) * 2.0 ** (int(bits[1:ends], 2) - bias)


MISTAKES: dict[str, Callable[[str], float]] = {
    "15 is fp16's bias. With 8 exponent bits the bias is another number.": lambda bits: _read(bits, bias=15),
    "bf16's mantissa has 7 bits and counts steps of 1/128, not of 1/1024.": lambda bits: _read(bits, steps=1024),
    "15 and 1024 are fp16's: with 8 exponent bits the bias is another one, and 7 mantissa bits count other steps.": lambda bits: (
        _read(bits, bias=15, steps=1024)
    ),
    "These are fp16's fields: bf16 has 8 exponent bits.": lambda bits: _read(bits, bias=15, steps=1024, ends=6),
    "The mantissa counts from 1 upwards, and the 1 itself is not stored: add it.": lambda bits: _read(bits, hidden=0),
    "The bias is off by one: 1 has the exponent field 01111111.": lambda bits: _read(bits, bias=128),
    "There is no bias in it: 1 has the exponent field 01111111, and is 2^0.": lambda bits: _read(bits, bias=0),
    "The first bit is 1: minus.": lambda bits: abs(_read(bits)),
    "The sign is the wrong way round: 1 stands for minus.": lambda bits: -_read(bits),
}


PRAISE = (
    "It was tried from bf16's smallest normal number to its largest. Only the widths and the bias differ between formats: with "
    "5 exponent bits, 15 and 1024 your function would read fp16."
)

HINTS = (
    Hint(
        "I do not know the bias of bf16", "Use 0.1 from the lesson: 01111011 stands for 2^-4, the same in bf16 as in float32."
    ),
    Hint("Powers of two come back as 0", "Their mantissa is all zeros. From which number does the mantissa count upwards?"),
    Hint("Only powers of two are right", "How many steps does a mantissa of 7 bits count from one power of two to the next?"),
    Hint("I do not know how to read a field", 'int("101", 2) is 5, and a slice such as bits[1:3] takes out a field.'),
)

_HEAD = '\ndef bf16_value(bits):\n    sign = -1 if bits[0] == "1" else 1\n'

ALTERNATIVES = (
    # The course's own arithmetic.
    "bf16_value = BF16.decode",
    # Read by PyTorch.
    """
def bf16_value(bits):
    return torch.tensor([int(bits, 2)], dtype=torch.uint16).view(torch.bfloat16).item()
""",
    # bf16 is the upper half of a float32.
    """
def bf16_value(bits):
    code = int(bits, 2) << 16
    return torch.tensor(code - (1 << 32) if bits[0] == "1" else code, dtype=torch.int32).view(torch.float32)
""",
    # Bit by bit.
    """
def bf16_value(bits):
    number = 1.0
    for place, bit in enumerate(bits[9:], start=1):
        number += int(bit) * 2**-place
    exponent = sum(int(bit) << place for place, bit in enumerate(reversed(bits[1:9])))
    return (-1) ** int(bits[0]) * number * 2.0 ** (exponent - 127)
""",
    "bf16_value = lambda bits: (1 - 2 * int(bits[0])) * int('1' + bits[-7:], 2) * 2.0 ** (int(bits[1:9], 2) - 134)",
)

WRONG = (
    Wrong(
        "keeps fp16's bias",
        f"{_HEAD}    return sign * (1 + int(bits[9:], 2) / 128) * 2 ** (int(bits[1:9], 2) - 15)\n",
        "15 is fp16's bias",
    ),
    Wrong(
        "keeps fp16's mantissa steps",
        f"{_HEAD}    return sign * (1 + int(bits[9:], 2) / 1024) * 2 ** (int(bits[1:9], 2) - 127)\n",
        "counts steps of 1/128",
    ),
    Wrong(
        "forgets the 1 that is not stored",
        f"{_HEAD}    return sign * int(bits[9:], 2) / 128 * 2 ** (int(bits[1:9], 2) - 127)\n",
        "the 1 itself is not stored",
    ),
    Wrong(
        "copies the lesson's line for fp16",
        f"{_HEAD}    return sign * (1 + int(bits[9:], 2) / 1024) * 2 ** (int(bits[1:9], 2) - 15)\n",
        "15 and 1024 are fp16's",
    ),
    Wrong(
        "leaves the bias out",
        f"{_HEAD}    return sign * (1 + int(bits[9:], 2) / 128) * 2 ** int(bits[1:9], 2)\n",
        "There is no bias in it",
    ),
    Wrong(
        "cuts one bit too few",
        f"{_HEAD}    return sign * (1 + int(bits[8:], 2) / 128) * 2.0 ** (int(bits[1:8], 2) - 127)\n",
        "Its fields, as whole numbers, are 0, 127 and 0",
    ),
    Wrong(
        "cuts the fields of fp16",
        f"{_HEAD}    return sign * (1 + int(bits[6:], 2) / 1024) * 2 ** (int(bits[1:6], 2) - 15)\n",
        "These are fp16's fields",
    ),
    Wrong(
        "takes 2^7 for the bias",
        f"{_HEAD}    return sign * (1 + int(bits[9:], 2) / 128) * 2.0 ** (int(bits[1:9], 2) - 128)\n",
        "off by one",
    ),
    Wrong(
        "forgets the sign",
        "def bf16_value(bits):\n    return (1 + int(bits[9:], 2) / 128) * 2 ** (int(bits[1:9], 2) - 127)\n",
        "The first bit is 1: minus",
    ),
    Wrong(
        "takes the sign the wrong way round",
        _HEAD.replace('-1 if bits[0] == "1" else 1', "int(bits[0]) * 2 - 1")
        + "    return sign * (1 + int(bits[9:], 2) / 128) * 2 ** (int(bits[1:9], 2) - 127)\n",
        "1 stands for minus",
    ),
    Wrong(
        "forgets to return",
        f"{_HEAD}    number = sign * (1 + int(bits[9:], 2) / 128) * 2 ** (int(bits[1:9], 2) - 127)\n",
        "is the `return` missing?",
    ),
    Wrong("does not read the bits as a number", f"{_HEAD}    return sign * 2 ** (bits[1:9] - 127)\n", "TypeError"),
)

EXERCISE = Exercise(
    name="1-fields",
    title="A number from its bits",
    target="bf16_value",
    stub=STUB,
    answer=ANSWER,
    lines=3,
    examine=examine,
    praise=PRAISE,
    hints=HINTS,
    alternatives=ALTERNATIVES,
    wrong=WRONG,
    setup="import torch\n\nfrom amp_lessons.formats import BF16",
)
