"""Exercise 7-three: a whole loop with three faults, examined by the doctor."""

from __future__ import annotations

from amp_lessons.tutor import loops
from amp_lessons.tutor.exercise import Exercise, Hint, Wrong
from amp_lessons.tutor.trial import Trial

STUB = '''
def train(model, optimizer, scaler, batches):
    """Train in fp16, a step a batch, with the gradients clipped to a norm of 1.

    >>> model, x = nn.Linear(2, 1), torch.ones(4, 2)
    >>> parts = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu")
    >>> with watch(model, *parts) as doctor: train(model, *parts, [(x, x[:, :1])] * 5)
    >>> doctor.findings
    []
    """
    with torch.autocast("cpu", dtype=torch.float16):
        for inputs, targets in batches:
            scaler.scale(F.mse_loss(model(inputs), targets)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            optimizer.zero_grad()
'''

ANSWER = """
def train(model, optimizer, scaler, batches):
    for inputs, targets in batches:
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.mse_loss(model(inputs), targets)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
"""


def examine(train: Trial) -> str | None:
    right, known = EXERCISE.answer_of(ANSWER), EXERCISE.known_mistakes()
    if ordinary := loops.mistake(train, right, data=_four, variants=known):
        return ordinary
    overflow = loops.mistake(train, right, data=_four, overflow_at=1)
    return overflow and f"With batches whose gradients overflow: {overflow}"


def _four(batch: loops.Batch) -> tuple[list[loops.Batch]]:
    """One call's argument: the batch as a list of four smaller ones."""
    return (list(zip(*(part.split(4) for part in batch))),)


PRAISE = (
    "The doctor watched 40 steps, some with gradients that overflow, and found nothing; the weights are those of a healthy loop. You "
    "opened a region for each forward pass, unscaled before the clip, and closed each step with update."
)

HINTS = (
    Hint("step() has already been called", "That is one of the three, and the only one with a message. Which call closes a step?"),
    Hint("No message is left, but it still says incorrect", "Two are silent. What does the clip see? And how long does autocast keep its copies of the weights?"),
    Hint("I want to see what is left", "Run the spec's lines in a cell of their own, and look at `doctor`: it names every fault that it saw, with the line to write."),
)

_DEF = "\ndef train(model, optimizer, scaler, batches):\n"
_FOR = "    for inputs, targets in batches:\n"
_LOSS = '        with torch.autocast("cpu", dtype=torch.float16):\n            loss = F.mse_loss(model(inputs), targets)\n'
_SCALED = "        scaler.scale(loss).backward()\n"
_UNSCALE = "        scaler.unscale_(optimizer)\n"
_CLIP = "        nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
_STEP = "        scaler.step(optimizer)\n"
_UPDATE = "        scaler.update()\n"
_CLEAR = "        optimizer.zero_grad()\n"
_SICK = """    with torch.autocast("cpu", dtype=torch.float16):
        for inputs, targets in batches:
            scaler.scale(F.mse_loss(model(inputs), targets)).backward()
"""


def _indented(*lines: str) -> str:
    return "".join("    " + line for line in lines)


ALTERNATIVES = (
    # Cleared first, the loss outside the region, the region under a name.
    f"{_DEF}    region = torch.autocast('cpu', dtype=torch.float16)\n{_FOR}{_CLEAR}        with region:\n            output = model(inputs)\n"
    f"        loss = F.mse_loss(output.float(), targets)\n{_SCALED}{_UNSCALE}{_CLIP}{_STEP}{_UPDATE}",
    # A function for one batch, and the clip by hand.
    """
def train(model, optimizer, scaler, batches):
    @torch.autocast("cpu", dtype=torch.float16)
    def loss_of(inputs, targets):
        return ((model(inputs) - targets) ** 2).mean()

    losses = []
    for batch in batches:
        losses.append(loss_of(*batch))
        scaler.scale(losses[-1]).backward()
        scaler.unscale_(optimizer)
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        norm = nn.utils.get_total_norm([p.grad for p in parameters])
        nn.utils.clip_grads_with_norm_(parameters, 1.0, norm)
        scaler.step(optimizer)
        scaler.update()
        model.zero_grad()
    return losses
""",
)

WRONG = (
    Wrong("mends only the missing update", f"{_DEF}{_SICK}{_indented(_CLIP, _STEP, _UPDATE, _CLEAR)}", "multiplied by the loss scale"),
    Wrong("mends update and unscale, not the region", f"{_DEF}{_SICK}{_indented(_UNSCALE, _CLIP, _STEP, _UPDATE, _CLEAR)}", "region"),
    Wrong("mends region and unscale, not update", f"{_DEF}{_FOR}{_LOSS}{_SCALED}{_UNSCALE}{_CLIP}{_STEP}{_CLEAR}", "update() was not called since the last step"),
    Wrong("mends region and update, not the clip", f"{_DEF}{_FOR}{_LOSS}{_SCALED}{_CLIP}{_STEP}{_UPDATE}{_CLEAR}", "multiplied by the loss scale"),
    Wrong("unscales after the clip", f"{_DEF}{_FOR}{_LOSS}{_SCALED}{_CLIP}{_UNSCALE}{_STEP}{_UPDATE}{_CLEAR}", "multiplied by the loss scale"),
    Wrong("updates once, after the loop", f"{_DEF}{_FOR}{_LOSS}{_SCALED}{_UNSCALE}{_CLIP}{_STEP}{_CLEAR}    scaler.update()\n", "update() was not called since the last step"),
    Wrong(
        "keeps backward in the region",
        f"{_DEF}{_FOR}        with torch.autocast('cpu', dtype=torch.float16):\n            scaler.scale(F.mse_loss(model(inputs), targets)).backward()\n"
        f"{_UNSCALE}{_CLIP}{_STEP}{_UPDATE}{_CLEAR}",
        "backward() ran inside an autocast region",
    ),
    Wrong("takes autocast out", f"{_DEF}{_FOR}        loss = F.mse_loss(model(inputs), targets)\n{_SCALED}{_UNSCALE}{_CLIP}{_STEP}{_UPDATE}{_CLEAR}", "The model ran outside autocast"),
    Wrong("takes the clip out", f"{_DEF}{_FOR}{_LOSS}{_SCALED}{_STEP}{_UPDATE}{_CLEAR}", "The gradients were not clipped to a norm of 1.", by_result=True),
    Wrong("takes the scaler out", f"{_DEF}{_FOR}{_LOSS}        loss.backward()\n{_CLIP}        optimizer.step()\n{_CLEAR}", "use torch.amp.GradScaler, which skips such a step"),
    Wrong("clears before the step", f"{_DEF}{_FOR}{_LOSS}{_SCALED}{_UNSCALE}{_CLIP}{_CLEAR}{_STEP}{_UPDATE}", "zero_grad()"),
)

EXERCISE = Exercise(
    name="7-three",
    title="Three faults in one loop",
    target="train",
    stub=STUB,
    answer=ANSWER,
    lines=9,
    examine=examine,
    praise=PRAISE,
    hints=HINTS,
    alternatives=ALTERNATIVES,
    wrong=WRONG,
    setup="import torch\nimport torch.nn.functional as F\nfrom torch import nn\n\nfrom amp_lessons import watch",
)
