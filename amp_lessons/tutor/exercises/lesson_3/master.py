"""Exercise 3-master: float32 master weights by hand, for a model whose own weights are float16."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from amp_lessons.tutor.exercise import Exercise, Hint, Wrong
from amp_lessons.tutor.exercises.lesson_3.explain import explained, short
from amp_lessons.tutor.exercises.lesson_3.models import Pair
from amp_lessons.tutor.trial import Trial

STUB = '''
def master_step(model, masters, optimizer):
    """After backward of an fp16 model: step `optimizer`, which holds float32 `masters`.

    >>> model = nn.Linear(1, 1, bias=False).half()
    >>> masters = [torch.ones(1, 1, requires_grad=True)]
    >>> optimizer = torch.optim.SGD(masters, lr=1e-4)
    >>> for step in range(5):
    ...     model(torch.ones(1, 1).half()).sum().backward()
    ...     master_step(model, masters, optimizer)
    >>> masters[0].item() < 0.9996, torch.equal(model.weight, masters[0].half())
    (True, True)
    """
    ...
'''

ANSWER = """
def master_step(model, masters, optimizer):
    for weight, master in zip(model.parameters(), masters):
        master.grad = weight.grad.float()
    optimizer.step()
    with torch.no_grad():
        for weight, master in zip(model.parameters(), masters):
            weight.copy_(master)
    model.zero_grad()
"""

_MEANINGS = {
    "grad_dtype": "A master is float32, and so is its gradient: cast what you take from the model.",
    "assigned grad has data of a different type": "A master is float32, and so is its gradient: cast what you take from the model.",
    "leaf Variable that requires grad": "Writing into a weight is no part of the graph: do it under `torch.no_grad()`.",
}


def _ones() -> Pair:
    """Weights of 1 and gradients of 1, as in the lesson: each update is 0.0001."""
    model = nn.Linear(3, 1).half()
    for weight in model.parameters():
        nn.init.ones_(weight)
    return Pair(model, lambda masters: torch.optim.SGD(masters, lr=1e-4), torch.ones(4, 3, dtype=torch.float16))


def _network() -> Pair:
    torch.random.default_generator.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1)).half()
    return Pair(model, lambda masters: torch.optim.Adam(masters, lr=1e-3), torch.randn(4, 8).half())


def examine(master_step: Trial) -> str | None:
    with explained(_MEANINGS):
        return _mistake(master_step, _ones, 20) or _mistake(master_step, _network, 5)


def _mistake(master_step: Trial, make: Callable[[], Pair], steps: int) -> str | None:
    tried, right, answer = make(), make(), EXERCISE.answer_of(ANSWER)
    start = [master.detach().clone() for master in tried.masters]
    first: list[Tensor] = []
    for number in range(1, steps + 1):
        tried.step(master_step)
        right.step(answer)
        told = _wrong_kind(tried) or _wrong_place(tried, right, start, first)
        if told:
            return f"After step {number}: {told}"
        first = first or [master.detach().clone() for master in tried.masters]
    return None


def _wrong_kind(tried: Pair) -> str | None:
    if len(tried.masters) != len(tried.weights):
        return f"there are {len(tried.masters)} masters for {len(tried.weights)} weights. Leave the list as it is."
    kinds = {weight.dtype for weight in tried.weights} - {torch.float16}
    if kinds:
        return f"the model's weights are {short(kinds.pop())}. They take the masters' values and stay float16: copy into them."
    kinds = {master.dtype for master in tried.masters} - {torch.float32}
    if kinds:
        return f"the masters are {short(kinds.pop())}, where an update of 0.0001 to a weight of 1 is lost. They stay float32."
    return None


def _wrong_place(tried: Pair, right: Pair, start: list[Tensor], first: list[Tensor]) -> str | None:
    masters, weights = tried.masters, tried.weights
    if not tried.stepped:
        return (
            "the optimizer has not stepped. It holds the masters, and only there do small updates survive: in float16, "
            f"1 - 0.0001 is {torch.tensor(1.0).half().sub(1e-4).item():g}."
        )
    if _same(masters, start):
        return "the masters have not moved: they had no gradients when the optimizer stepped. Backward filled the model's: hand them over."
    if first and _same(masters, first):
        return (
            f"the masters are where step 1 left them, {_one(masters):.6g} for the first. They were set from the model's rounded weights, "
            "so each step starts at the same place: never copy from the model to the masters."
        )
    wanted = right.masters
    if not all(torch.allclose(master, other, rtol=1e-5, atol=1e-6) for master, other in zip(masters, wanted)):
        mine, theirs = _furthest(masters, wanted)
        return f"a master is {mine:.6g} where a right step has it at {theirs:.6g}."
    rounded = [master.detach().half() for master in masters]
    if not _same(weights, rounded):
        mine, theirs = _furthest(weights, rounded)
        return (
            f"a weight of the model is {mine:.6g} where its master is {theirs:.6g} in float16. "
            "Copy the masters into the model after the step, in place, or the next forward pass will not see it."
        )
    left = [weight.grad for weight in tried.model.parameters() if weight.grad is not None and weight.grad.any()]
    if left:
        return (
            f"the model still has its gradients, {_one(left):.4g} for the first, and the next backward adds to them. "
            "`optimizer.zero_grad()` clears only those of what it holds, the masters."
        )
    return None


def _same(some: list[Tensor], others: list[Tensor]) -> bool:
    return all(torch.equal(one.detach(), other) for one, other in zip(some, others))


def _furthest(some: list[Tensor], others: list[Tensor]) -> tuple[float, float]:
    """The pair of values that lie furthest apart."""
    a, b = (torch.cat([tensor.detach().float().flatten() for tensor in tensors]) for tensors in (some, others))
    at = (a - b).abs().argmax()
    return a[at].item(), b[at].item()


def _one(tensors: list[Tensor]) -> float:
    return tensors[0].flatten()[0].item()


PRAISE = (
    "Twenty updates of 0.0001 took the masters from 1 to 0.998, and the float16 weights followed, where float16 alone would have "
    "stayed at 1. Under autocast the parameters are float32, and you write none of this."
)

HINTS = (
    Hint("I do not know where to begin", "Three things cross between the two sets of weights: gradients one way, values the other. Which when?"),
    Hint("The masters do not move", "The optimizer reads the `.grad` of what it holds. Backward wrote it somewhere else."),
    Hint("The masters move and the model does not", "The next forward pass runs on the model's own weights. Are they written in place?"),
    Hint("The steps get larger and larger", "`optimizer` knows the masters only. Who clears the model's gradients?"),
)

ALTERNATIVES = (
    """
def master_step(model, masters, optimizer):
    optimizer.zero_grad()
    for p, m in zip(model.parameters(), masters):
        m.grad = p.grad.detach().to(torch.float32)
        p.grad = None
    optimizer.step()
    for p, m in zip(model.parameters(), masters):
        p.data.copy_(m.data)
""",
    """
def master_step(model, masters, optimizer):
    weights = list(model.parameters())
    for i in range(len(weights)):
        masters[i].grad = torch.zeros_like(masters[i])
        masters[i].grad += weights[i].grad
    optimizer.step()
    for weight, master in zip(weights, masters):
        weight.data = master.detach().half()
        weight.grad.zero_()
""",
    """
@torch.no_grad()
def master_step(model, masters, optimizer):
    weights = [*model.parameters()]
    for weight, master in zip(weights, masters):
        master.grad = weight.grad.clone().float()
    model.zero_grad(set_to_none=True)
    optimizer.step()
    torch._foreach_copy_(weights, masters)
""",
)

_DEF = "def master_step(model, masters, optimizer):\n"
_PAIRS = "    for weight, master in zip(model.parameters(), masters):\n"
_GRADS = f"{_PAIRS}        master.grad = weight.grad.float()\n"
_COPY = "    with torch.no_grad():\n        for weight, master in zip(model.parameters(), masters):\n            weight.copy_(master)\n"
_STEP = "    optimizer.step()\n"
_CLEAR = "    model.zero_grad()\n"

WRONG = (
    Wrong("steps without gradients", f"{_DEF}{_STEP}{_COPY}{_CLEAR}", "they had no gradients when the optimizer stepped"),
    Wrong(
        "hands over the float16 gradients",
        f"{_DEF}{_PAIRS}        master.grad = weight.grad\n{_STEP}{_COPY}{_CLEAR}",
        "cast what you take from the model",
    ),
    Wrong("does not copy back", f"{_DEF}{_GRADS}{_STEP}{_CLEAR}", "Copy the masters into the model after the step"),
    Wrong("binds the name to a new value", f"{_DEF}{_GRADS}{_STEP}{_PAIRS}        weight = master.half()\n{_CLEAR}", "in place"),
    Wrong(
        "copies under grad mode",
        f"{_DEF}{_GRADS}{_STEP}{_PAIRS}        weight.copy_(master)\n{_CLEAR}",
        "do it under `torch.no_grad()`",
    ),
    Wrong(
        "makes the model float32",
        f"{_DEF}{_GRADS}{_STEP}{_PAIRS}        weight.data = master.data\n{_CLEAR}",
        "They take the masters' values and stay float16",
    ),
    Wrong(
        "sets the masters from the rounded weights",
        f"{_DEF}{_PAIRS}        master.data.copy_(weight.data)\n        master.grad = weight.grad.float()\n{_STEP}{_COPY}{_CLEAR}",
        "never copy from the model to the masters",
    ),
    Wrong("clears the masters only", f"{_DEF}{_GRADS}{_STEP}{_COPY}    optimizer.zero_grad()\n", "clears only those of what it holds"),
    Wrong(
        "updates the float16 weights",
        f"{_DEF}    with torch.no_grad():\n        for weight in model.parameters():\n            weight -= 1e-4 * weight.grad\n{_CLEAR}",
        "the optimizer has not stepped",
    ),
    Wrong("copies before the step", f"{_DEF}{_GRADS}{_COPY}{_STEP}{_CLEAR}", "Copy the masters into the model after the step"),
    Wrong(
        "makes the masters float16",
        f"{_DEF}{_PAIRS}        master.data = master.data.half()\n        master.grad = weight.grad\n{_STEP}{_COPY}{_CLEAR}",
        "the masters are float16",
    ),
)

EXERCISE = Exercise(
    name="3-master",
    title="Master weights by hand",
    target="master_step",
    stub=STUB,
    answer=ANSWER,
    lines=7,
    examine=examine,
    praise=PRAISE,
    hints=HINTS,
    alternatives=ALTERNATIVES,
    wrong=WRONG,
    setup="import torch\nfrom torch import nn",
)
