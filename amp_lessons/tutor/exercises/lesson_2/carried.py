"""Exercise 2-carried: gradients carried through fp16 by a factor before the loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons.tutor.exercise import Exercise, Hint, Wrong
from amp_lessons.tutor.given import NOTHING
from amp_lessons.tutor.trial import Trial

STUB = '''
def carried(model, inputs, targets, weight, factor):
    """Gradients of weight * MSE from fp16 autocast on the CPU, none of them lost.

    One float32 tensor for each parameter, and not multiplied by the factor.

    >>> layer = torch.nn.Linear(1, 1, bias=False)
    >>> _ = torch.nn.init.ones_(layer.weight)
    >>> x, y = torch.ones(1, 1), torch.full((1, 1), 0.5)
    >>> (found,) = carried(layer, x, y, weight=2.0**-30, factor=2.0**16)
    >>> found.item() == 2.0**-30
    True
    """
    ...
'''

ANSWER = """
def carried(model, inputs, targets, weight, factor):
    model.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = weight * F.mse_loss(model(inputs), targets)
    (factor * loss).backward()
    return [parameter.grad / factor for parameter in model.parameters()]
"""

# Loss weight and factor: without the factor nothing is left. A number that is written out fits one of the pairs only.
SITUATIONS = ((2.0**-24, 2.0**13), (2.0**-36, 2.0**25))


def examine(carried: Trial) -> str | None:
    for weight, factor in SITUATIONS:
        model, inputs, targets = _setting()
        exact = _gradients(model, inputs, targets, weight, half=False)
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)  # of an earlier step
        seen: list[torch.dtype | None] = []
        model.register_forward_pre_hook(lambda *_, seen=seen: seen.append(_region()))
        given = carried(model, inputs, targets, weight, factor)
        if wrong := _not_gradients(given, model) or _wrong_region(seen):
            return wrong
        scaled = _gradients(model, inputs, targets, weight * factor, half=True)
        if wrong := _difference(_flat(given), _flat(exact), _flat(scaled), weight, factor):
            pair = f"With a loss weight of {_power(weight)} and a factor of {_power(factor)}"
            if (weight, factor) == SITUATIONS[0]:
                return f"{pair}, {wrong}"
            return f"One pair of weight and factor was right. {pair} it is not: is a number written where one of them is meant?"
    return None


def _setting() -> tuple[nn.Module, Tensor, Tensor]:
    """A small network and a batch, whose gradients are around 1 at a loss weight of 1."""
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.rand(parameter.shape, generator=generator) + 0.25)
    inputs = torch.rand(16, 2, generator=generator)
    return model, inputs, inputs.sum(dim=1, keepdim=True) - 1.0


def _gradients(model: nn.Module, inputs: Tensor, targets: Tensor, weight: float, half: bool) -> list[Tensor]:
    with torch.autocast("cpu", dtype=torch.float16, enabled=half):
        loss = weight * F.mse_loss(model(inputs), targets)
    return list(torch.autograd.grad(loss, list(model.parameters())))


def _region() -> torch.dtype | None:
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None


def _not_gradients(given: Any, model: nn.Module) -> str | None:
    """What is wrong with the kind of the answer: as many tensors as parameters, in their shapes, and the model kept."""
    if given is None:
        return NOTHING
    if not isinstance(given, (list, tuple)):
        return f"It returns a {type(given).__name__}; a list is asked for, one gradient for each parameter."
    parameters = list(model.parameters())
    if len(given) != len(parameters):
        return f"It returns {len(given)} gradients; the model has {len(parameters)} parameters."
    for parameter, gradient in zip(parameters, given):
        if not isinstance(gradient, Tensor) or gradient.shape != parameter.shape:
            what = f"a tensor of shape {list(gradient.shape)}" if isinstance(gradient, Tensor) else f"`{gradient!r}`"
            return f"The gradient of a parameter of shape {list(parameter.shape)} came back as {what}."
    if parameters[0].dtype != torch.float32:
        return "The model's weights are not float32 any more. Autocast casts copies of them: leave the model as it is."
    return None


def _wrong_region(seen: list[torch.dtype | None]) -> str | None:
    if not seen:
        return "The model was never called."
    if None in seen:
        return "The model ran outside autocast, in float32, where nothing is flushed. Call it in an fp16 region."
    if torch.bfloat16 in seen:
        return "autocast ran in bfloat16, the CPU's default, which has no such floor. Give `dtype=torch.float16`."
    return None


def _flat(gradients: Sequence[Tensor]) -> Tensor:
    return torch.cat([gradient.detach().double().flatten() for gradient in gradients])


def _difference(found: Tensor, exact: Tensor, scaled: Tensor, weight: float, factor: float) -> str | None:
    """The mistake that leads from the float32 gradients to those found, in words, or None where they agree.

    ``scaled`` are those of fp16 with the factor still in them.
    """
    if _alike(found, exact):
        return None
    if not found.isfinite().all():
        return "there are inf or nan among the gradients: what went backward was too large for fp16."
    if any(_alike(found - old, exact) for old in (1.0, 1.0 / factor)):
        return "the gradients of an earlier step were still in `.grad`, and backward added to them. Clear them first."
    lost = int(((exact != 0) & (found == 0)).sum())
    if lost:
        told = f"{'all' if lost == len(exact) else f'{lost} of the'} {len(exact)} gradients came back as 0."
        if torch.equal(found == 0, (scaled / factor).half() == 0) and lost < len(exact):
            return f"{told} The factor had lifted them, and dividing in fp16 pushed them under the floor again. Divide in float32."
        return f"{told} The factor was not before the loss when backward ran, and what is 0 after that stays 0."
    usual = {
        factor: f"the gradients are {_power(factor)} times too large: they still carry the factor. Divide them by it.",
        1 / weight: f"the gradients are {_power(1 / weight)} times too large: the loss weight is missing.",
        1 / factor: f"the gradients are {_power(factor)} times too small: they were divided once too often.",
    }
    for size, told in usual.items():
        if _alike(found, size * exact):
            return told
    far = float((found - exact).norm() / exact.norm())
    return f"the gradients differ from those of float32 by {far:.2g} times their size."


def _alike(one: Tensor, other: Tensor) -> bool:
    # fp16 rounds what is right by about 0.1%; the mistakes are far larger.
    return bool((one - other).norm() <= 0.01 * other.norm())


def _power(value: float) -> str:
    return f"2^{math.log2(value):g}"


PRAISE = (
    "That is loss scaling: without the factor fp16 would have flushed all 17 gradients, and with it they came back to within 1%, "
    "for two loss weights. A fixed factor does it as long as nothing overflows."
)

HINTS = (
    Hint("All my gradients are 0", "When is a gradient lost: in backward, or after it? The factor must be there before."),
    Hint("They are thousands of times too large", "The factor is still in them. What undoes it, and for every parameter?"),
    Hint("Some are 0, although I multiplied and divided", "In which dtype do you divide? `.grad` has room for small numbers as it is."),
    Hint("It says that gradients of an earlier step were there", "backward adds to what `.grad` holds already."),
)

_DEF = "def carried(model, inputs, targets, weight, factor):\n"
_ZERO = "    model.zero_grad()\n"
_FORWARD = '    with torch.autocast("cpu", dtype=torch.float16):\n        loss = weight * F.mse_loss(model(inputs), targets)\n'
_BACKWARD = "    (factor * loss).backward()\n"
_RETURN = "    return [parameter.grad / factor for parameter in model.parameters()]\n"

ALTERNATIVES = (
    # In place, the factor inside the region.
    f"""
{_DEF}    for parameter in model.parameters():
        parameter.grad = None
    with torch.autocast("cpu", dtype=torch.float16):
        loss = factor * weight * F.mse_loss(model(inputs), targets)
    loss.backward()
    for parameter in model.parameters():
        parameter.grad.div_(factor)
    return [parameter.grad.clone() for parameter in model.parameters()]
""",
    # Without .grad.
    f"""
{_DEF}    with torch.autocast(device_type="cpu", dtype=torch.half):
        loss = ((model(inputs).float() - targets) ** 2).mean()
    scaled = torch.autograd.grad(loss * weight * factor, list(model.parameters()))
    return tuple(gradient * (1 / factor) for gradient in scaled)
""",
    # The factor enters as the gradient of the loss itself; the division in float64.
    f"""
{_DEF}    model.zero_grad(set_to_none=False)
{_FORWARD}    loss.backward(gradient=torch.tensor(factor))
    gradients = []
    for parameter in model.parameters():
        gradients.append(parameter.grad.double() / factor)
    return gradients
""",
)

WRONG = (
    Wrong("puts no factor before the loss", f"{_DEF}{_ZERO}{_FORWARD}    loss.backward()\n    return [p.grad for p in model.parameters()]\n", "The factor was not before the loss"),
    Wrong(
        "multiplies after backward",
        f"{_DEF}{_ZERO}{_FORWARD}    loss.backward()\n    return [p.grad * factor / factor for p in model.parameters()]\n",
        "what is 0 after that stays 0",
    ),
    Wrong("only divides", f"{_DEF}{_ZERO}{_FORWARD}    loss.backward()\n{_RETURN}", "The factor was not before the loss"),
    Wrong(
        "does not divide",
        f"{_DEF}{_ZERO}{_FORWARD}{_BACKWARD}    return [p.grad for p in model.parameters()]\n",
        "times too large: they still carry the factor",
    ),
    Wrong(
        "divides the loss instead",
        f"{_DEF}{_ZERO}{_FORWARD}    (factor * loss / factor).backward()\n    return [p.grad for p in model.parameters()]\n",
        "The factor was not before the loss",
    ),
    Wrong(
        "divides in fp16",
        f"{_DEF}{_ZERO}{_FORWARD}{_BACKWARD}    return [p.grad.half() / factor for p in model.parameters()]\n",
        "dividing in fp16 pushed them under the floor again",
    ),
    Wrong("keeps the old gradients", f"{_DEF}{_FORWARD}{_BACKWARD}{_RETURN}", "the gradients of an earlier step were still in `.grad`"),
    Wrong("leaves the loss weight out", f"{_DEF}{_ZERO}{_FORWARD.replace('weight * ', '')}{_BACKWARD}{_RETURN}", "the loss weight is missing"),
    Wrong(
        "writes a number for the factor",
        f"{_DEF}{_ZERO}{_FORWARD}    (2.0**13 * loss).backward()\n    return [p.grad / 2.0**13 for p in model.parameters()]\n",
        "is a number written where one of them is meant?",
    ),
    Wrong(
        "leaves autocast out",
        f"{_DEF}{_ZERO}    loss = weight * F.mse_loss(model(inputs), targets)\n{_BACKWARD}{_RETURN}",
        "The model ran outside autocast",
    ),
    Wrong("gives no dtype", f"{_DEF}{_ZERO}{_FORWARD.replace(', dtype=torch.float16', '')}{_BACKWARD}{_RETURN}", "autocast ran in bfloat16"),
    Wrong("halves the model", f"{_DEF}    model.half()\n{_ZERO}{_FORWARD}{_BACKWARD}{_RETURN}", "The model's weights are not float32 any more"),
    Wrong("returns the loss", f"{_DEF}{_ZERO}{_FORWARD}{_BACKWARD}    return loss\n", "It returns a Tensor; a list is asked for"),
    Wrong(
        "divides twice",
        f"{_DEF}{_ZERO}{_FORWARD}{_BACKWARD}    return [p.grad / factor / factor for p in model.parameters()]\n",
        "they were divided once too often",
    ),
    Wrong("forgets to return", f"{_DEF}{_ZERO}{_FORWARD}{_BACKWARD}    [p.grad / factor for p in model.parameters()]\n", "is the `return` missing?"),
)

EXERCISE = Exercise(
    name="2-carried",
    title="Carry the gradients past the floor",
    target="carried",
    stub=STUB,
    answer=ANSWER,
    lines=5,
    examine=examine,
    praise=PRAISE,
    hints=HINTS,
    alternatives=ALTERNATIVES,
    wrong=WRONG,
    setup="import torch\nimport torch.nn.functional as F",
)
