"""Exercise 7-log: from one line of a log to the patient."""

from __future__ import annotations

from typing import Any

from amp_lessons.tutor import sources
from amp_lessons.tutor.exercise import Exercise, Hint, Wrong
from amp_lessons.tutor.given import not_a_number

SETUP = "import torch\nimport torch.nn.functional as F"

_X = "x = torch.tensor(300.0, dtype=torch.float16, requires_grad=True)"

PATIENTS = {
    1: "F.binary_cross_entropy(x.sigmoid(), torch.zeros_like(x))",
    2: "x * 1e-8",
    3: "x * torch.rsqrt(x * x + 1e-6)",
    4: 'x * float("nan")',
}

_CASES = "".join(f"# ...     {number}: lambda: {code},\n" for number, code in PATIENTS.items())

STUB = f"""
# >>> {_X}
# >>> output = {{
{_CASES}# ... }}[patient]()
# >>> output.backward()
# >>> output.item(), x.grad.item()
# (0.0, 0.0)
patient = ...
"""

ANSWER = "patient = 3\n"

WHY = {
    1: "The sigmoid is exactly 1 and the logarithm of 0 is cut off at -100: a finite output, and a gradient that is NaN.",
    2: "Its gradient of 1e-8 was flushed to 0, but the output itself is a subnormal number and not 0.",
    4: "NaN in the data goes into everything: the output and the gradient.",
}


def examine(patient: Any) -> str | None:
    if wrong := not_a_number(patient, returned=False):
        return wrong
    number = float(patient)
    if number not in PATIENTS:
        return f"There is no patient {number:g} in the comment: they are numbered 1 to {len(PATIENTS)}."
    output, gradient = measured(int(number))
    if (output, gradient) == (0.0, 0.0):
        return None
    return f"Patient {number:g} has the output {output:.3g} and the gradient {gradient:.3g}. {WHY[int(number)]}"


def measured(number: int) -> tuple[float, float]:
    """The output of a patient and its gradient."""
    found = sources.run(f"{_X}\noutput = {PATIENTS[number]}\noutput.backward()\n", f"<7-log {number}>", SETUP)
    return found["output"].item(), found["x"].grad.item()


PRAISE = (
    "300 · 300 is inf in fp16, so `rsqrt` gives 0, and both the output and the gradient are multiplied by it. Nothing is NaN or inf "
    "where the scaler looks: it skips no step, and the weights below stand still."
)

HINTS = (
    Hint("I do not know where to begin", "Go through each patient by hand, from the inside out. What is the largest number in fp16?"),
    Hint("Several of them have a gradient of 0", "Then look at the output too: which is 0, and which is only very small? The smallest fp16 number is 2^-24."),
    Hint("I expect inf or NaN when something overflows", "That is where it starts. What does the next operation make of an inf: what is 1 divided by it?"),
)

WRONG = (
    Wrong("takes the cross-entropy, which is finite", "patient = 1\n", "the output 100 and the gradient nan"),
    Wrong("takes the flushed gradient", "patient = 2\n", "the output itself is a subnormal number and not 0"),
    Wrong("takes the NaN", "patient = 4\n", "the output nan and the gradient nan"),
    Wrong("gives the lesson's number", "patient = 11\n", "There is no patient 11 in the comment"),
    Wrong("gives a name", 'patient = "forward-overflow"\n', "one number is asked for"),
    Wrong("gives what it does", "patient = lambda: 3\n", "this exercise asks for a value"),
)

EXERCISE = Exercise(
    name="7-log",
    title="One line of a log",
    target="patient",
    stub=STUB,
    answer=ANSWER,
    lines=1,
    examine=examine,
    praise=PRAISE,
    hints=HINTS,
    alternatives=("patient = 3.0\n", "patient = torch.tensor(3)\n"),
    wrong=WRONG,
    setup=SETUP,
)
