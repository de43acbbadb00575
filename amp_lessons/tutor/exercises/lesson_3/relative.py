"""Exercise 3-relative: a loss of one's own that neither overflows nor underflows in float16."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from amp_lessons.tutor.exercise import Exercise, Hint, Wrong
from amp_lessons.tutor.exercises.lesson_3.explain import short
from amp_lessons.tutor.given import NOTHING
from amp_lessons.tutor.trial import Trial

STUB = '''
def relative_error(student, teacher):
    """Squared differences, summed, over the teacher's squares, summed; in float32.

    >>> teacher = torch.full((4, 16), 300.0).half()
    >>> with torch.autocast("cpu", dtype=torch.float16):
    ...     error = relative_error(teacher / 2, teacher)
    >>> error.item(), error.dtype
    (0.25, torch.float32)
    """
    ...
'''

ANSWER = """
def relative_error(student, teacher):
    student, teacher = student.float(), teacher.float()
    return ((student - teacher) ** 2).sum() / (teacher**2).sum()
"""

_LATE = "A cast after that brings nothing back: cast the inputs first, then subtract, square and sum."
_POW = "(On CUDA, `x ** 2` would go to float32 and `x * x` would not.)"


def _situations() -> tuple[tuple[str, Tensor, Tensor, str], ...]:
    """Each as (what the teacher's features are, student, teacher, what to tell whoever gets it wrong)."""

    def full(value: float, size: int = 64) -> Tensor:
        return torch.full((4, size // 4), value, dtype=torch.float16)

    ordinary = torch.randn(4, 16).half()
    return (
        ("ordinary features", (ordinary + 0.5 * torch.randn(4, 16)).half(), ordinary, "Subtract, square and sum each side; then divide."),
        (
            "1,024 features of 8", full(4.0, 1024), full(8.0, 1024),
            f"Each square is 64, but 1,024 of them sum to 65,536: over float16's 65,504, so inf. {_LATE} (On CUDA, `sum` would run in float32.)",
        ),
        ("features of 300", full(150.0), full(300.0), f"300 squared is 90,000: over float16's 65,504, so inf. {_LATE} {_POW}"),
        (
            "features of 0.0001", full(5e-5), full(1e-4),
            f"0.0001 squared is 1e-8: less than half of float16's smallest number, so 0. {_LATE}",
        ),
        (
            "features of 40,000 and a student at -40,000", full(-4e4), full(4e4),
            f"The difference alone is 80,000: over float16's 65,504, so inf. {_LATE}",
        ),
    )  # fmt: skip


def examine(relative_error: Trial) -> str | None:
    ordinary = None
    for what, student, teacher, reason in _situations():
        student = student.clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.float16):
            error = relative_error(student, teacher)
        if mistake := _not_a_loss(error, student):
            return mistake
        right = ((student.double() - teacher.double()) ** 2).sum() / (teacher.double() ** 2).sum()
        if not torch.isclose(error.double(), right, rtol=5e-3):  # one that only rounds should meet the numbers that overflow
            told = f"For {what}, it gives {error.item():.4g}; the relative error is {right.item():.4g}."
            if slip := _usual_slip(error, student, teacher):
                return f"{told} {slip}"
            if ordinary and error.isfinite() and error != 0:  # not what float16 makes of it
                return f"{told} Is something added below the line? The teacher's squares sum to {(teacher.double() ** 2).sum():.2g}."
            return f"{told} {reason}"
        ordinary = ordinary or (error, right)
    error, right = ordinary
    if error.dtype != torch.float32:
        return f"The loss came back in {short(error.dtype)}; float32 was asked for."
    if not torch.isclose(error.double(), right, rtol=1e-5):
        return f"For ordinary features it gives {error:.6f} and float32 gives {right:.6f}: a part of it still runs in 16 bits."
    return None


def _not_a_loss(error: Any, student: Tensor) -> str | None:
    if error is None:
        return NOTHING
    if isinstance(error, (int, float)):
        return f"It returns the Python number {error:.4g}. A loss stays a tensor, or backward cannot start from it: leave `.item()` out."
    if not isinstance(error, Tensor):
        return f"It returns a {type(error).__name__}, not a loss."
    if error.numel() != 1:
        return f"It returns {error.numel()} values of the shape {list(error.shape)}; a loss is one: sum before you divide."
    if not error.requires_grad or torch.autograd.grad(error.sum(), student, retain_graph=True, allow_unused=True)[0] is None:
        return "No gradient can come back to `student`: it was cut off from the graph. Cast it with `.float()`, which keeps the graph."
    return None


def _usual_slip(error: Tensor, student: Tensor, teacher: Tensor) -> str:
    s, t = student.detach().double(), teacher.double()
    slips = {
        "That is the root of it: the squares are meant, not the norms.": ((s - t) ** 2).sum().sqrt() / (t**2).sum().sqrt(),
        "That is divided by the student's squares.": ((s - t) ** 2).sum() / (s**2).sum(),
        "That is the sum of the squared differences: divide it by the sum of the teacher's squares.": ((s - t) ** 2).sum(),
        "That is their mean: divide the sum of the squared differences by the sum of the teacher's squares.": ((s - t) ** 2).mean(),
        "That is the mean of the ratios: sum above and below first, then divide.": ((s - t) ** 2 / t**2).mean(),
    }
    return next((told for told, value in slips.items() if torch.isclose(error.detach().double(), value, rtol=1e-3)), "")


PRAISE = (
    "Cast first, squared then: it was right for features of 0.0001 and of 300, whose squares are 0 and inf in float16, for a "
    "sum over 65,504, and for a difference of 80,000."
)

HINTS = (
    Hint("The result is nan", "In float16, squares of 300 are inf and squares of 0.0001 are 0. What are inf / inf and 0 / 0?"),
    Hint("I cast to float32 and it is still nan", "What was done before the cast? An inf stays inf in float32."),
    Hint("Only -40,000 against 40,000 fails", "There is one op before the square. In which dtype does it run?"),
)

ALTERNATIVES = (
    # PyTorch's own loss casts by itself in a region, on both devices.
    """
def relative_error(student, teacher):
    return F.mse_loss(student, teacher) / F.mse_loss(torch.zeros_like(teacher), teacher)
""",
    """
def relative_error(student, teacher):
    difference = student.to(torch.float32) - teacher.to(torch.float32)
    return (difference * difference).mean() / teacher.float().square().mean()
""",
    """
def relative_error(student, teacher):
    with torch.autocast("cpu", enabled=False):
        distance = torch.linalg.vector_norm(student.float() - teacher)
        return (distance / torch.linalg.vector_norm(teacher, dtype=torch.float32)) ** 2
""",
    """
def relative_error(student, teacher):
    s, t = student.double().flatten(), teacher.double().flatten()
    return (torch.dot(s - t, s - t) / torch.dot(t, t)).float()
""",
)

_DEF = "def relative_error(student, teacher):\n"

WRONG = (
    Wrong("leaves all of it in float16", f"{_DEF}    return ((student - teacher) ** 2).sum() / (teacher ** 2).sum()", "sum to 65,536"),
    Wrong(
        "casts the result",
        f"{_DEF}    return (((student - teacher) ** 2).sum() / (teacher ** 2).sum()).float()",
        "A cast after that brings nothing back",
    ),
    Wrong(
        "sums in float32 after squaring in float16",
        f"{_DEF}    d = student - teacher\n    return (d * d).sum(dtype=torch.float32) / (teacher * teacher).sum(dtype=torch.float32)",
        "300 squared is 90,000",
    ),
    Wrong(
        "takes means to keep the sums small",
        f"{_DEF}    d = student - teacher\n    return ((d * d).mean() / (teacher * teacher).mean()).float()",
        "300 squared is 90,000",
    ),
    Wrong(
        "divides by a number first",
        f"{_DEF}    d, t = (student - teacher) / 256, teacher / 256\n    return (d * d).sum(dtype=torch.float32) / (t * t).sum(dtype=torch.float32)",
        "0.0001 squared is 1e-8",
    ),
    Wrong(
        "subtracts in float16",
        f"{_DEF}    return (student - teacher).float().square().sum() / teacher.float().square().sum()",
        "The difference alone is 80,000",
    ),
    Wrong(
        "takes bfloat16 for its range",
        f"{_DEF}    s, t = student.bfloat16(), teacher.bfloat16()\n    return (((s - t) ** 2).sum() / (t ** 2).sum()).float()",
        "a part of it still runs in 16 bits",
    ),
    Wrong(
        "adds a small number below the line",
        f"{_DEF}    s, t = student.float(), teacher.float()\n    return ((s - t) ** 2).sum() / ((t ** 2).sum() + 1e-8)",
        "The teacher's squares sum to 6.4e-07",
    ),
    Wrong("takes the item", f"{_DEF}    s, t = student.float(), teacher.float()\n    return (((s - t) ** 2).sum() / (t ** 2).sum()).item()", "leave `.item()` out"),
    Wrong(
        "takes the norms",
        f"{_DEF}    s, t = student.float(), teacher.float()\n    return (s - t).norm() / t.norm()",
        "the squares are meant, not the norms",
    ),
    Wrong(
        "forgets the teacher's squares",
        f"{_DEF}    return F.mse_loss(student.float(), teacher.float())",
        "divide the sum of the squared differences by the sum of the teacher's squares",
    ),
    Wrong(
        "stays in double precision",
        f"{_DEF}    s, t = student.double(), teacher.double()\n    return ((s - t) ** 2).sum() / (t ** 2).sum()",
        "came back in float64",
    ),
)

EXERCISE = Exercise(
    name="3-relative",
    title="A loss that survives float16",
    target="relative_error",
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
