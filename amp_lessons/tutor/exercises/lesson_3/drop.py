"""Exercise 3-drop: two forward passes around one training step, where one region for all of it sees no change."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from amp_lessons.tutor.exercise import Exercise, Hint, Wrong
from amp_lessons.tutor.exercises.lesson_3.explain import explained, short
from amp_lessons.tutor.exercises.lesson_3.models import Watched
from amp_lessons.tutor.given import not_a_number
from amp_lessons.tutor.trial import Trial

STUB = '''
def loss_drop(model, optimizer, inputs, targets):
    """Take one step; return the mean-squared error before it minus that after it.

    >>> model = nn.Linear(1, 1, bias=False)
    >>> _ = nn.init.ones_(model.weight)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
    >>> float(loss_drop(model, optimizer, torch.ones(4, 1), torch.zeros(4, 1)))
    0.75
    """
    ...
'''

ANSWER = """
def loss_drop(model, optimizer, inputs, targets):
    with torch.autocast("cpu", dtype=torch.float16):
        before = F.mse_loss(model(inputs), targets)
    before.backward()
    optimizer.step()
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        after = F.mse_loss(model(inputs), targets)
    return before.item() - after.item()
"""

_REGION = '`with torch.autocast("cpu", dtype=torch.float16):`'
_MEANINGS = {
    "same dtype": f"A forward pass ran outside autocast on a float16 batch. Each of the two belongs inside {_REGION}.",
    "does not require grad": "Was the first forward pass made under no_grad, or the loss turned into a number too early?",
    "backward through the graph a second time": "One backward is enough: the second forward pass is only looked at.",
}


def examine(loss_drop: Trial) -> str | None:
    with explained(_MEANINGS):
        return (
            _mistake(loss_drop, Watched(), "")
            or _mistake(loss_drop, Watched(lr=1.0), "With a learning rate so large that the loss rises: ")
            or _mistake(loss_drop, Watched(size=300.0, lr=1e-3, data=torch.float16), "With a batch in float16 and large errors: ")
        )


def _mistake(loss_drop: Trial, tried: Watched, when: str) -> str | None:
    reference, answer = Watched(tried.lr, tried.size, tried.data), EXERCISE.answer_of(ANSWER)
    for _ in range(2):
        start, clean = tried.weights, tried.clean
        result, right = tried.call(loss_drop), reference.call(answer)
        told = _not_one(result) or _not_in_regions(tried) or _not_the_step(tried, reference, start, clean)
        told = told or _not_the_drop(float(torch.as_tensor(result).detach()), right, tried, start)
        if told:
            return f"{when}{told[0].lower()}{told[1:]}" if when else told
    return None


def _not_one(result: Any) -> str | None:
    if isinstance(result, (tuple, list)):
        return f"It returns {len(result)} values; give one, the loss before the step minus the loss after it."
    return not_a_number(result)


def _not_in_regions(tried: Watched) -> str | None:
    changed = {parameter.dtype for parameter in tried.model.parameters()} - {torch.float32}
    if changed:
        return f"The model's weights are {short(changed.pop())} now. Leave the model as it is: autocast casts copies of its weights."
    if not tried.forward:
        return "The model was never called."
    outside = tried.forward.count(None)
    if outside:
        return f"{outside} of {len(tried.forward)} forward passes ran outside autocast, in float32. Each belongs inside {_REGION}."
    other = [dtype for dtype in tried.forward if dtype != torch.float16]
    if other:
        return f"Autocast ran in {short(other[0])}, which is the CPU's default. Give `dtype=torch.float16`."
    return None


def _not_the_step(tried: Watched, reference: Watched, start: Tensor, clean: bool) -> str | None:
    if not tried.backward:
        return "No gradient was computed: where is backward called on the first loss?"
    if torch.equal(tried.weights, start):
        return "The weights did not move between the two losses: is the optimizer's step missing, or were the gradients cleared before it?"
    # Rounding in fp16 moves a right answer that is written another way by less than this.
    if (tried.weights - reference.weights).norm() > 1e-2 * (reference.weights - start).norm():
        if not clean:
            return "The first call was right and the second took another step: the gradients of the first were still there. Clear them."
        return "The weights are not where one step on the first loss takes them."
    return None


def _not_the_drop(result: float, right: float, tried: Watched, start: Tensor) -> str | None:
    if len(tried.forward) == 1:
        return "The model was called once. The loss after the step needs a forward pass of its own, with the new weights."
    if torch.equal(tried.seen[-1], start):
        return "All forward passes ran before the optimizer stepped, on the old weights. The loss after the step comes after it."
    if result == 0 < right:
        moved = float((tried.weights - start).abs().max())
        return (
            f"The drop is exactly 0, though weights moved by up to {moved:.2g}: the second forward pass used the float16 copies of the "
            "old weights. They are kept until the outermost region ends. Open one region for each forward pass, and none around both."
        )
    if abs(result - right) <= 1e-2 * abs(right):
        if any(tried.backward):
            return "The number is right, but backward() ran inside the region. It gains nothing there: end the region after the loss."
        return None
    if not math.isfinite(result) and tried.data == torch.float16:
        return (
            f"The drop is {result}. The targets go up to {tried.targets.abs().max():,.0f}, so squared errors are over float16's 65,504, "
            "and outside the region `F.mse_loss` of float16 is computed in float16. The loss belongs inside."
        )
    if result >= 0 > right:
        return f"The loss rose by {-right:.3g}, and it returns {result:.3g}: a rise is a negative drop."
    if abs(result + right) <= 1e-2 * abs(right):
        return f"It returns {result:.3g}; the loss fell, so its drop is positive: before minus after."
    return f"It returns {result:.4g}; the mean-squared error fell by {right:.4g}."


PRAISE = (
    "Each forward pass had its own region with the loss in it, and backward and the step ran outside: the second loss saw the new "
    "weights, also when it rose, and did not overflow with a batch in float16."
)

HINTS = (
    Hint("The drop is exactly 0", "The second forward pass used the float16 copies of the old weights. When does autocast drop them?"),
    Hint("I do not know what goes inside the region", "The forward pass and its loss. There are two of each, and a training step between them."),
    Hint("The drop is nan or inf", "Some losses square errors of several hundred. Where are they computed: inside the region, or after it?"),
    Hint("The first call is right and the second is not", "What is left in `.grad` when the function returns?"),
)

ALTERNATIVES = (
    # The second pass without gradients, the gradients cleared first, a tensor returned.
    """
def loss_drop(model, optimizer, inputs, targets):
    optimizer.zero_grad()
    with torch.amp.autocast(device_type="cpu", dtype=torch.float16):
        before = nn.MSELoss()(model(inputs), targets)
    before.backward()
    optimizer.step()
    with torch.no_grad(), torch.autocast("cpu", torch.float16):
        after = nn.MSELoss()(model(inputs), targets)
    return before.detach() - after
""",
    # A helper for the forward pass, the decorator for the region.
    """
def loss_drop(model, optimizer, inputs, targets):
    @torch.autocast("cpu", dtype=torch.float16)
    def loss():
        return F.mse_loss(model(inputs), targets)

    before = loss()
    before.backward()
    optimizer.step()
    model.zero_grad(set_to_none=False)
    return (before - loss()).item()
""",
    # The losses outside, after a cast where the outputs leave the region.
    """
def loss_drop(model, optimizer, inputs, targets):
    losses = []
    for step in range(2):
        with torch.autocast("cpu", dtype=torch.float16):
            output = model(inputs)
        losses.append(((output.float() - targets.float()) ** 2).mean())
        if step == 0:
            losses[0].backward()
            optimizer.step()
            optimizer.zero_grad()
    return losses[0].item() - losses[1].item()
""",
)

_DEF = "def loss_drop(model, optimizer, inputs, targets):\n"
_OPEN = '    with torch.autocast("cpu", dtype=torch.float16):\n'
_BEFORE = f"{_OPEN}        before = F.mse_loss(model(inputs), targets)\n"
_STEP = "    before.backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"
_AFTER = f"{_OPEN}        after = F.mse_loss(model(inputs), targets)\n"
_RETURN = "    return before.item() - after.item()"


def _inside(lines: str) -> str:
    return "".join(f"    {line}\n" for line in lines.splitlines())


WRONG = (
    Wrong(
        "puts all of it in one region",
        f"{_DEF}{_BEFORE}{_inside(_STEP)}        after = F.mse_loss(model(inputs), targets)\n{_RETURN}",
        "The drop is exactly 0",
    ),
    Wrong("nests two regions in one", f"{_DEF}{_OPEN}{_inside(_BEFORE)}{_inside(_STEP)}{_inside(_AFTER)}{_RETURN}", "none around both"),
    Wrong("runs backward inside", f"{_DEF}{_BEFORE}{_inside(_STEP)}{_AFTER}{_RETURN}", "backward() ran inside the region"),
    Wrong(
        "takes the second loss outside",
        f"{_DEF}{_BEFORE}{_STEP}    after = F.mse_loss(model(inputs), targets)\n{_RETURN}",
        "1 of 2 forward passes ran outside autocast",
    ),
    Wrong(
        "computes the losses outside",
        f"{_DEF}{_OPEN}        output = model(inputs)\n    before = F.mse_loss(output, targets)\n{_STEP}"
        f"{_OPEN}        output = model(inputs)\n    after = F.mse_loss(output, targets)\n{_RETURN}",
        "The loss belongs inside",
    ),
    Wrong("gives no dtype", f"{_DEF}{_BEFORE}{_STEP}{_AFTER}{_RETURN}".replace(", dtype=torch.float16", ""), "Autocast ran in bfloat16"),
    Wrong("halves the model", f"{_DEF}    model.half()\n{_BEFORE}{_STEP}{_AFTER}{_RETURN}", "The model's weights are float16 now"),
    Wrong("clears nothing", f"{_DEF}{_BEFORE}    before.backward()\n    optimizer.step()\n{_AFTER}{_RETURN}", "gradients of the first were still there"),
    Wrong("forgets the step", f"{_DEF}{_BEFORE}    before.backward()\n    optimizer.zero_grad()\n{_AFTER}{_RETURN}", "The weights did not move"),
    Wrong(
        "uses the old output again",
        f"{_DEF}{_OPEN}        output = model(inputs)\n        before = F.mse_loss(output, targets)\n{_STEP}"
        f"{_OPEN}        after = F.mse_loss(output, targets)\n{_RETURN}",
        "The model was called once",
    ),
    Wrong("steps after both forward passes", f"{_DEF}{_BEFORE}{_AFTER}{_STEP}{_RETURN}", "All forward passes ran before the optimizer"),
    Wrong("subtracts the other way", f"{_DEF}{_BEFORE}{_STEP}{_AFTER}    return after.item() - before.item()", "before minus after"),
    Wrong(
        "returns no negative drop",
        f"{_DEF}{_BEFORE}{_STEP}{_AFTER}    return max(0.0, before.item() - after.item())",
        "and it returns 0: a rise is a negative drop",
    ),
)

EXERCISE = Exercise(
    name="3-drop",
    title="The loss before and after a step",
    target="loss_drop",
    stub=STUB,
    answer=ANSWER,
    lines=8,
    examine=examine,
    praise=PRAISE,
    hints=HINTS,
    alternatives=ALTERNATIVES,
    wrong=WRONG,
    setup="import torch\nimport torch.nn.functional as F\nfrom torch import nn",
)
