"""Exercise 5-step: the whole AMP step, with clipping."""

from amp_lessons.tutor import loops
from amp_lessons.tutor.exercise import Exercise, Hint, Wrong
from amp_lessons.tutor.trial import Trial

STUB = '''
def amp_step(model, optimizer, scaler, inputs, targets):
    """One AMP step on the CPU: fp16 autocast, mean-squared error, gradients clipped to a norm of 1.

    >>> model = torch.nn.Linear(2, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> scaler = torch.amp.GradScaler("cpu", growth_interval=1)
    >>> before = model.weight.detach().clone()
    >>> amp_step(model, optimizer, scaler, torch.ones(4, 2), torch.zeros(4, 1))
    >>> torch.equal(model.weight, before), scaler.get_scale() == 2.0**17
    (False, True)
    """
    ...
'''

ANSWER = """
def amp_step(model, optimizer, scaler, inputs, targets):
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.mse_loss(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
"""


def examine(amp_step: Trial) -> str | None:
    right, known = EXERCISE.answer_of(ANSWER), EXERCISE.known_mistakes()
    if ordinary := loops.mistake(amp_step, right, variants=known):
        return ordinary
    overflow = loops.mistake(amp_step, right, overflow_at=1)
    return overflow and f"With a batch whose gradients overflow: {overflow}"


PRAISE = (
    "It was tried on ten batches, one with gradients that overflow: the step was skipped, the scale halved, and the weights "
    "are those of the step in this lesson."
)

HINTS = (
    Hint("I do not know where to begin", "Six things happen, in this order: forward and loss, backward, unscale, clip, step and update."),
    Hint("The clip sees a norm of many thousands", "The gradients are still multiplied by the loss scale. What divides them again?"),
    Hint("It says that unscale_ or step has been called already", "Every step must end with the call that closes it for the scaler."),
    Hint("A batch that overflows spoils the weights", "Who decides whether the optimizer steps: you, or the scaler?"),
)

_HEAD = """
def amp_step(model, optimizer, scaler, inputs, targets):
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.mse_loss(model(inputs), targets)
"""
_TAIL = """
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
"""
_CLIP = "    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"

ALTERNATIVES = (
    # Cleared first, the optimizer's own parameters clipped, the loss in one line.
    """
def amp_step(model, optimizer, scaler, inputs, targets):
    optimizer.zero_grad()
    with torch.amp.autocast(device_type="cpu", dtype=torch.float16, enabled=True):
        prediction = model(inputs)
        loss = ((prediction.float() - targets) ** 2).mean()
    scaled = scaler.scale(loss)
    scaled.backward()
    scaler.unscale_(optimizer)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    torch.nn.utils.clip_grad_norm_(parameters, max_norm=1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=False)
""",
    # The loss outside the region, the clip written by hand.
    """
def amp_step(model, optimizer, scaler, inputs, targets):
    with torch.autocast("cpu", torch.float16):
        prediction = model(inputs)
    loss = torch.nn.MSELoss()(prediction.float(), targets)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in model.parameters()]))
    for p in model.parameters():
        p.grad.mul_(torch.clamp(1.0 / (norm + 1e-6), max=1.0))
    scaler.step(optimizer)
    scaler.update()
    model.zero_grad()
    return loss.item()
""",
)

_SCALED = "    scaler.scale(loss).backward()\n"
_UNSCALE = "    scaler.unscale_(optimizer)\n"

WRONG = (
    Wrong(
        "steps the optimizer directly",
        f"{_HEAD}{_SCALED}{_UNSCALE}{_CLIP}    optimizer.step()\n    scaler.update()\n    optimizer.zero_grad()\n",
        "scaler.step(optimizer)  # not optimizer.step()",
    ),
    Wrong("clips before unscaling", f"{_HEAD}{_SCALED}{_CLIP}{_UNSCALE}{_TAIL}", "gradients that are still multiplied by the loss scale"),
    Wrong("leaves unscale_ out", f"{_HEAD}{_SCALED}{_CLIP}{_TAIL}", "gradients that are still multiplied by the loss scale"),
    Wrong(
        "forgets update",
        f"{_HEAD}{_SCALED}{_UNSCALE}{_CLIP}    scaler.step(optimizer)\n    optimizer.zero_grad()\n",
        "update() was not called since the last step",
    ),
    Wrong(
        "runs backward inside autocast",
        f"{_HEAD}        scaler.scale(loss).backward()\n{_UNSCALE}{_CLIP}{_TAIL}",
        "backward() ran inside an autocast region",
    ),
    Wrong("does not clip", f"{_HEAD}{_SCALED}{_UNSCALE}{_TAIL}", "The gradients were not clipped to a norm of 1.", by_result=True),
    Wrong(
        "does not clear the gradients",
        f"{_HEAD}{_SCALED}{_UNSCALE}{_CLIP}    scaler.step(optimizer)\n    scaler.update()\n",
        "optimizer.zero_grad()",
    ),
    Wrong(
        "halves the model",
        _HEAD.replace("    with", "    model.half()\n    with") + f"{_SCALED}{_UNSCALE}{_CLIP}{_TAIL}",
        "trains parameters in float16",
    ),
    Wrong("does not scale the loss", f"{_HEAD}    loss.backward()\n{_UNSCALE}{_CLIP}{_TAIL}", "the loss went backward without the scaler"),
    Wrong(
        "scales twice",
        f"{_HEAD}    scaler.scale(scaler.scale(loss)).backward()\n{_UNSCALE}{_CLIP}{_TAIL}",
        "The loss was scaled twice and the gradients unscaled once: the clip saw norms of many thousands.",
        by_result=True,
    ),
    Wrong(
        "divides by the scale by hand as well",
        f"{_HEAD}{_SCALED}{_UNSCALE}    for p in model.parameters():\n        p.grad /= scaler.get_scale()\n{_CLIP}{_TAIL}",
        "The gradients were divided by the loss scale twice; `unscale_` has done it already.",
        by_result=True,
    ),
    Wrong("gives no dtype", _HEAD.replace(", dtype=torch.float16", "") + f"{_SCALED}{_UNSCALE}{_CLIP}{_TAIL}", "autocast ran in bfloat16"),
    Wrong(
        "leaves autocast out",
        f"""
def amp_step(model, optimizer, scaler, inputs, targets):
    loss = F.mse_loss(model(inputs), targets)
{_SCALED}{_UNSCALE}{_CLIP}{_TAIL}""",
        "The model ran outside autocast",
    ),
)

EXERCISE = Exercise(
    name="5-step",
    title="The AMP step",
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
