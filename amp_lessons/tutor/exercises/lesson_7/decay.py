"""Exercise 7-decay: a weight decay that is added to scaled gradients, and so divided by the scale."""

from __future__ import annotations

from amp_lessons.tutor.exercise import Exercise, Hint, Wrong
from amp_lessons.tutor.exercises.lesson_7 import losses
from amp_lessons.tutor.trial import Trial

STUB = '''
def decayed_step(parameters, optimizer, scaler, loss):
    """An AMP step in which half of each parameter is added to its gradient.

    >>> w = torch.ones(1, requires_grad=True)
    >>> optimizer, scaler = torch.optim.SGD([w], lr=1.0), torch.amp.GradScaler("cpu")
    >>> decayed_step([w], optimizer, scaler, w.sum() * 0.0)
    >>> w.item()
    0.5
    """
    scaler.scale(loss).backward()
    for p in parameters:
        p.grad.add_(p.detach(), alpha=0.5)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
'''

ANSWER = """
def decayed_step(parameters, optimizer, scaler, loss):
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    for p in parameters:
        p.grad.add_(p.detach(), alpha=0.5)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
"""


def examine(decayed_step: Trial) -> str | None:
    right, known = EXERCISE.answer_of(ANSWER), EXERCISE.known_mistakes()
    if ordinary := losses.mistake(decayed_step, right, known):
        return ordinary
    overflow = losses.mistake(decayed_step, right, known, overflow_at=1)
    return overflow and f"With a batch whose gradients overflow: {overflow}"


PRAISE = (
    "The decay is as strong as in float32, before and after the scale halved, and a skipped step decays nothing. In the sick loop it "
    "was divided by the scale: by 2^10 in this check, by 2^16 at a scaler's start."
)

HINTS = (
    Hint("I see nothing wrong with it", "How large are the gradients when the decay is added, compared with true ones? What happens to both in `scaler.step`?"),
    Hint("A batch that overflows changes the weights", "Only the scaler knows whether the step is taken. Change gradients, and leave the weights to the step."),
    Hint("It stops with a message about unscale_ or step", "Each of `unscale_`, `step` and `update` once a step, in this order."),
)

_DEF = "\ndef decayed_step(parameters, optimizer, scaler, loss):\n"
_SCALED = "    scaler.scale(loss).backward()\n"
_UNSCALE = "    scaler.unscale_(optimizer)\n"
_FOR = "    for p in parameters:\n"
_ADD = f"{_FOR}        p.grad.add_(p.detach(), alpha=0.5)\n"
_TAIL = "    scaler.step(optimizer)\n    scaler.update()\n    optimizer.zero_grad()\n"

ALTERNATIVES = (
    # Scaled like the gradients.
    f"{_DEF}{_SCALED}{_FOR}        p.grad += 0.5 * scaler.get_scale() * p.data\n{_TAIL}",
    # In the loss: a quarter of the square has half the weight as its gradient.
    f"{_DEF}    loss = loss + 0.25 * sum((p * p).sum() for p in parameters)\n{_SCALED}{_TAIL}",
    # SGD's own.
    f"{_DEF}    for group in optimizer.param_groups:\n        group['weight_decay'] = 0.5\n{_SCALED}{_TAIL}",
    f"{_DEF}    optimizer.zero_grad()\n{_SCALED}{_UNSCALE}    with torch.no_grad():\n        for p in parameters:\n            p.grad = p.grad + p / 2\n{_TAIL}",
)

WRONG = (
    Wrong(
        "unscales after the decay",
        f"{_DEF}{_SCALED}{_ADD}{_UNSCALE}{_TAIL}",
        "The weights are those of a loop with no decay, or one that is 2^10 times too weak. What is added to scaled gradients is divided "
        "by the loss scale with them, and that is 2^10 here.",
        by_result=True,
    ),
    Wrong(
        "divides by the scale by hand",
        f"{_DEF}{_SCALED}{_FOR}        p.grad /= scaler.get_scale()\n{_ADD}{_TAIL}",
        "The gradients were divided by the loss scale twice, by hand and in `scaler.step`, and the decay once. Leave it to the scaler.",
        by_result=True,
    ),
    Wrong("steps the optimizer itself", f"{_DEF}{_SCALED}{_UNSCALE}{_ADD}    optimizer.step()\n    scaler.update()\n    optimizer.zero_grad()\n", "scaler.step(optimizer)"),
    Wrong("leaves the scaler out", f"{_DEF}    loss.backward()\n{_ADD}    optimizer.step()\n    optimizer.zero_grad()\n", "use torch.amp.GradScaler, which skips such a step"),
    Wrong(
        "decays the weights, also in a skipped step",
        f"{_DEF}{_SCALED}{_FOR}        p.data.mul_(1 - 0.5 * optimizer.param_groups[0]['lr'])\n{_TAIL}",
        "The weights decayed although the step was skipped. Put the decay into the gradients, and leave the weights to the step.",
        by_result=True,
    ),
    Wrong(
        "decays the weights after the step",
        f"{_DEF}{_SCALED}    scaler.step(optimizer)\n    scaler.update()\n"
        f"{_FOR}        p.data.sub_(p.data, alpha=0.5 * optimizer.param_groups[0]['lr'])\n    optimizer.zero_grad()\n",
        "The weights decayed after the step, and so also where it is skipped. Put the decay into the gradients.",
        by_result=True,
    ),
    Wrong(
        "unscales, and scales the decay",
        f"{_DEF}{_SCALED}{_UNSCALE}{_FOR}        p.grad.add_(p.detach(), alpha=0.5 * scaler.get_scale())\n{_TAIL}",
        "The decay is 2^10 times too strong: after `unscale_` the gradients are true ones, and what is added to them must not be scaled.",
        by_result=True,
    ),
    Wrong(
        "decays by the loss with the wrong factor",
        f"{_DEF}    loss = loss + 0.5 * sum((p * p).sum() for p in parameters)\n{_SCALED}{_TAIL}",
        "The decay is twice as strong as asked for: the gradient of p² is 2p.",
        by_result=True,
    ),
    Wrong("does not decay", f"{_DEF}{_SCALED}{_TAIL}", "with no decay, or one that is 2^10 times too weak"),
    Wrong(
        "decays the wrong way",
        f"{_DEF}{_SCALED}{_UNSCALE}{_FOR}        p.grad.sub_(p.detach(), alpha=0.5)\n{_TAIL}",
        "The decay makes the weights grow: add it to the gradients, since the step subtracts them.",
        by_result=True,
    ),
    Wrong("forgets update", f"{_DEF}{_SCALED}{_UNSCALE}{_ADD}    scaler.step(optimizer)\n    optimizer.zero_grad()\n", "update() was not called since the last step"),
    Wrong("keeps the gradients", f"{_DEF}{_SCALED}{_UNSCALE}{_ADD}    scaler.step(optimizer)\n    scaler.update()\n", "optimizer.zero_grad()"),
)

EXERCISE = Exercise(
    name="7-decay",
    title="A decay that does nothing",
    target="decayed_step",
    stub=STUB,
    answer=ANSWER,
    lines=7,
    examine=examine,
    praise=PRAISE,
    hints=HINTS,
    alternatives=ALTERNATIVES,
    wrong=WRONG,
)
