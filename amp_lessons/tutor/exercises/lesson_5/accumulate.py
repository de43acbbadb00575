"""Exercise 5-accumulate: the whole AMP step over several micro-batches, with clipping."""

from __future__ import annotations

from torch import Tensor

from amp_lessons.tutor import loops
from amp_lessons.tutor.exercise import Exercise, Hint, Wrong
from amp_lessons.tutor.trial import Trial

STUB = '''
def amp_step(model, optimizer, scaler, batches):
    """One AMP step on the CPU for all batches together: mean-squared error, clipped to a norm of 1.

    >>> model = torch.nn.Linear(2, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> scaler = torch.amp.GradScaler("cpu", growth_interval=1)
    >>> amp_step(model, optimizer, scaler, [(torch.ones(4, 2), torch.zeros(4, 1))] * 3)
    >>> scaler.get_scale() == 2.0**17, model.weight.grad
    (True, None)
    """
    ...
'''

ANSWER = """
def amp_step(model, optimizer, scaler, batches):
    for inputs, targets in batches:
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.mse_loss(model(inputs), targets) / len(batches)
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
"""


def examine(amp_step: Trial) -> str | None:
    right, known = EXERCISE.answer_of(ANSWER), EXERCISE.known_mistakes()
    for parts in (4, 2):

        def split(batch: tuple[Tensor, Tensor], parts: int = parts) -> tuple[list]:
            return (list(zip(*(tensor.chunk(parts) for tensor in batch))),)

        # Targets this small leave the norm under the limit, so that a gradient of another size shows.
        for situation, described in (({"size": 0.2}, ""), ({"overflow_at": 1}, "With a batch whose gradients overflow: ")):
            if wrong := loops.mistake(amp_step, right, split, known, **situation):
                return described + wrong
    return None


PRAISE = (
    "Four micro-batches and two gave the step of the whole batch, and one inf in any of them skipped the step for all: they share one "
    "scale, one unscale, one step and one update."
)

HINTS = (
    Hint("I do not know what goes into the loop", "What has to happen for every micro-batch, and what only once, when all gradients have been added up?"),
    Hint("It says that unscale_ has already been called", "Which lines belong to the effective batch? Look at how far they are indented."),
    Hint("The step is too large", "Gradients of four micro-batches are added up. What would make the sum a mean again?"),
)

_DEF = "def amp_step(model, optimizer, scaler, batches):\n"
_FORWARD = (
    '    for inputs, targets in batches:\n        with torch.autocast("cpu", dtype=torch.float16):\n'
    "            loss = F.mse_loss(model(inputs), targets) / len(batches)\n"
)
_BACKWARD = "        scaler.scale(loss).backward()\n"
_UNSCALE = "    scaler.unscale_(optimizer)\n"
_CLIP = "    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
_STEP = "    scaler.step(optimizer)\n"
_UPDATE = "    scaler.update()\n"
_CLEAR = "    optimizer.zero_grad()\n"


def _inside(line: str) -> str:
    """The line moved into the loop over the micro-batches."""
    return f"    {line}"


ALTERNATIVES = (
    f"""
def amp_step(model, optimizer, scaler, batches):
    optimizer.zero_grad(set_to_none=True)
    share = 1 / len(batches)
    for x, y in batches:
        with torch.autocast(device_type="cpu", dtype=torch.float16):
            output = model(x)
        loss = torch.nn.functional.mse_loss(output.float(), y)
        scaler.scale(loss * share).backward()
{_UNSCALE}{_CLIP}{_STEP}{_UPDATE}{_CLEAR}""",
    # The division of the gradients instead of the losses: the same sum, divided once.
    f"""
def amp_step(model, optimizer, scaler, batches):
    for inputs, targets in batches:
        with torch.autocast("cpu", torch.float16):
            loss = F.mse_loss(model(inputs), targets)
        (scaler.scale(loss) / len(batches)).backward()
{_UNSCALE}{_CLIP}{_STEP}{_UPDATE}{_CLEAR}    return loss.detach()
""",
)

WRONG = (
    Wrong(
        "unscales every micro-batch",
        f"{_DEF}{_FORWARD}{_BACKWARD}{_inside(_UNSCALE)}{_CLIP}{_STEP}{_UPDATE}{_CLEAR}",
        "unscale_() has already been called",
    ),
    Wrong(
        "does not divide",
        f"{_DEF}{_FORWARD.replace(' / len(batches)', '')}{_BACKWARD}{_UNSCALE}{_CLIP}{_STEP}{_UPDATE}{_CLEAR}",
        "as if the learning rate were 4 times as high",
    ),
    Wrong(
        "steps for every micro-batch",
        f"{_DEF}{_FORWARD}{_BACKWARD}{_inside(_UNSCALE)}{_inside(_CLIP)}{_inside(_STEP)}{_inside(_UPDATE)}{_inside(_CLEAR)}",
        "The optimizer stepped for every micro-batch, each time with a part of the gradient.",
        by_result=True,
    ),
    Wrong(
        "updates for every micro-batch",
        f"{_DEF}{_FORWARD}{_BACKWARD}{_inside(_UPDATE)}{_UNSCALE}{_CLIP}{_STEP}{_CLEAR}",
        "No inf checks were recorded prior to update",
    ),
    Wrong(
        "clears in the loop",
        f"{_DEF}{_FORWARD.replace('batches:', 'batches:' + chr(10) + '        optimizer.zero_grad()', 1)}{_BACKWARD}{_UNSCALE}{_CLIP}{_STEP}"
        f"{_UPDATE}{_CLEAR}",
        "Only the last micro-batch's gradient was left: clear after the step, not in the loop.",
        by_result=True,
    ),
    Wrong(
        "clips before unscaling",
        f"{_DEF}{_FORWARD}{_BACKWARD}{_CLIP}{_UNSCALE}{_STEP}{_UPDATE}{_CLEAR}",
        "gradients that are still multiplied by the loss scale",
    ),
    Wrong("forgets to clip", f"{_DEF}{_FORWARD}{_BACKWARD}{_UNSCALE}{_STEP}{_UPDATE}{_CLEAR}", "The gradients were not clipped to a norm of 1.", by_result=True),
    Wrong(
        "forgets update",
        f"{_DEF}{_FORWARD}{_BACKWARD}{_UNSCALE}{_CLIP}{_STEP}{_CLEAR}",
        "update() was not called since the last step",
    ),
    Wrong(
        "steps the optimizer directly",
        f"{_DEF}{_FORWARD}{_BACKWARD}{_UNSCALE}{_CLIP}    optimizer.step()\n{_UPDATE}{_CLEAR}",
        "scaler.step(optimizer)  # not optimizer.step()",
    ),
    Wrong(
        "runs backward inside autocast",
        f"{_DEF}{_FORWARD}{_inside(_BACKWARD)}{_UNSCALE}{_CLIP}{_STEP}{_UPDATE}{_CLEAR}",
        "backward() ran inside an autocast region",
    ),
)

EXERCISE = Exercise(
    name="5-accumulate",
    title="The whole step, in micro-batches",
    target="amp_step",
    stub=STUB,
    answer=ANSWER,
    lines=9,
    examine=examine,
    praise=PRAISE,
    hints=HINTS,
    alternatives=ALTERNATIVES,
    wrong=WRONG,
    setup="import torch\nimport torch.nn.functional as F",
)
