"""Exercise 3-router: one layer in float32 while a region is open around it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from amp_lessons.tutor.exercise import Exercise, Hint, Wrong
from amp_lessons.tutor.exercises.lesson_3.explain import explained, short
from amp_lessons.tutor.given import NOTHING
from amp_lessons.tutor.trial import Trial

STUB = '''
def route(gate, hidden):
    """The logits of a linear layer in float32, in a 16-bit region on the CPU.

    >>> gate, hidden = nn.Linear(1, 1, bias=False), torch.ones(1, 1).half()
    >>> _ = nn.init.constant_(gate.weight, 2049.0)
    >>> with torch.autocast("cpu", dtype=torch.float16):
    ...     usual, exact = gate(hidden), route(gate, hidden)
    >>> usual.item(), exact.item()
    (2048.0, 2049.0)
    """
    ...
'''

ANSWER = """
def route(gate, hidden):
    with torch.autocast("cpu", enabled=False):
        return gate(hidden.float())
"""

_MEANINGS = {
    "same dtype": "With autocast off nobody makes the dtypes agree: cast `hidden` yourself, and leave `gate` as it is.",
}

_CONSEQUENCES = {
    "overflow": "an overflow",
    "tie": "nothing tells the two experts apart any more",
    "rounding": "some of the digits are lost",
}


def examine(route: Trial) -> str | None:
    close = [[1000.0, 0.125], [1000.0, 0.1875]]  # 16 bits cannot tell these two experts apart
    for region, given in ((torch.float16, torch.float16), (torch.bfloat16, torch.bfloat16), (torch.float16, torch.float32)):
        if mistake := _mistake(route, close, [1.0, 1.0], region, given):
            return mistake
    return _mistake(route, [[1.0, 1.0], [1.0, -1.0]], [40_000.0, 40_000.0], torch.float16, torch.float16)


def _mistake(route: Trial, weights: list, values: list, region: torch.dtype, given: torch.dtype) -> str | None:
    gate = nn.Linear(2, 2, bias=False)
    gate.weight.data = torch.tensor(weights)
    hidden = torch.tensor([values], dtype=given, requires_grad=True)
    exact = gate(hidden.float())
    calls = []

    def note(_: nn.Module, inputs: tuple) -> None:
        calls.append((inputs[0].dtype, torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")))

    # On only so that a nested region for the wrong device shows.
    torch.set_autocast_enabled("cuda", True)
    with explained(_MEANINGS), torch.autocast("cpu", dtype=region):
        usual = gate(hidden)
        gate.register_forward_pre_hook(note)
        logits = route(gate, hidden)
        still_on = torch.is_autocast_enabled("cpu")

    name = short(region)
    if not isinstance(logits, Tensor):
        return NOTHING if logits is None else f"It returns a {type(logits).__name__}, not logits."
    if gate.weight.dtype != torch.float32:
        return f"`gate` itself was changed: its weights are {short(gate.weight.dtype)} now. Leave the layer as it is, and cast its input."
    if logits.dtype == region:
        return f"The logits came back in {name}. {_told(logits, exact)} {_reason(calls, name)}"
    if logits.dtype != torch.float32:
        return f"The logits came back in {short(logits.dtype)}; float32 was asked for."
    if logits.shape != exact.shape:
        return f"The logits have the shape {list(logits.shape)}; `gate` gives {list(exact.shape)}."
    if not torch.allclose(logits, exact):
        if torch.equal(logits, usual.float()):
            return f"The cast came too late: the logits are float32, but `gate` ran in {name}. {_told(logits, exact)} {_reason(calls, name)}"
        return f"The logits are {_listed(logits)}; in float32 `gate` gives {_listed(exact)}."
    if not still_on:
        return "Autocast is off after the call as well, for the rest of the forward pass. A `with` block puts it back when it ends."
    into = {"`hidden`": hidden, "the weights of `gate`": gate.weight}
    gradients = torch.autograd.grad(logits.sum(), into.values(), allow_unused=True) if logits.requires_grad else [None, None]
    cut = [what for what, gradient in zip(into, gradients) if gradient is None]
    if cut:
        return f"No gradient can come back to {cut[0]}: what went into the product is a copy, cut off from the graph. A cast by `.float()` stays in it."
    return None


def _reason(calls: list[tuple[torch.dtype, bool, bool]], name: str) -> str:
    if any(on_cpu and not on_cuda for _, on_cpu, on_cuda in calls):
        return 'Your nested region is for "cuda", and these tensors are on the CPU, where autocast stayed on.'
    if any(on_cpu and dtype == torch.float32 for dtype, on_cpu, _ in calls):
        return f"`gate` got a float32 input, and the region cast it back to {name}. Switch autocast off around the layer as well."
    if any(on_cpu for _, on_cpu, _ in calls):
        return "Autocast was on while `gate` ran: switch it off around the layer, and cast what goes in."
    if calls:
        return "`gate` ran in float32, and its result was cast down again: leave it as it is."
    return "Call `gate` with autocast switched off around it, and cast what goes in."


def _told(logits: Tensor, exact: Tensor) -> str:
    """What the 16-bit logits lead to, in numbers."""
    found = "overflow" if not logits.isfinite().all() else "tie" if logits.unique().numel() == 1 else "rounding"
    return f"They are {_listed(logits)} where float32 gives {_listed(exact)}: {_CONSEQUENCES[found]}."


def _listed(logits: Tensor) -> str:
    return " and ".join(f"{value:.8g}" for value in logits.flatten().tolist())


PRAISE = (
    "It takes both: autocast off, so that nothing is cast to 16 bits, and your own cast of what comes in. The experts' logits "
    "1000.125 and 1000.1875 stayed apart, and 80,000 did not overflow."
)

HINTS = (
    Hint("The result is still 16 bits", "Inside a region a linear layer casts its input back. What switches a region off for a few lines?"),
    Hint("It says that two matrices must have the same dtype", "Where autocast is off, you make the dtypes agree. Which of the two is the 16-bit one?"),
    Hint("It is float32 and the digits are still wrong", "A cast keeps what is there and brings nothing back. Cast before the layer."),
)

ALTERNATIVES = (
    """
def route(gate, hidden):
    with torch.amp.autocast(device_type=hidden.device.type, enabled=False):
        logits = gate(hidden.to(torch.float32))
    return logits
""",
    """
@torch.autocast("cpu", enabled=False)
def route(gate, hidden):
    return F.linear(hidden.to(gate.weight.dtype), gate.weight, gate.bias)
""",
    # Written as a sum of products, which autocast leaves alone.
    """
def route(gate, hidden):
    logits = (hidden.float().unsqueeze(-2) * gate.weight).sum(-1)
    return logits if gate.bias is None else logits + gate.bias
""",
)

WRONG = (
    Wrong("calls the layer", "def route(gate, hidden):\n    return gate(hidden)", "Autocast was on while `gate` ran"),
    Wrong(
        "casts the input and leaves autocast on",
        "def route(gate, hidden):\n    return gate(hidden.float())",
        "got a float32 input, and the region cast it back",
    ),
    Wrong(
        "switches autocast off and forgets the cast",
        'def route(gate, hidden):\n    with torch.autocast("cpu", enabled=False):\n        return gate(hidden)',
        "nobody makes the dtypes agree",
    ),
    Wrong("casts the result", "def route(gate, hidden):\n    return gate(hidden).float()", "The cast came too late"),
    Wrong(
        "switches autocast off for another device",
        'def route(gate, hidden):\n    with torch.autocast("cuda", enabled=False):\n        return gate(hidden.float())',
        'Your nested region is for "cuda"',
    ),
    Wrong(
        "casts the logits back down",
        'def route(gate, hidden):\n    with torch.autocast("cpu", enabled=False):\n        return gate(hidden.float()).to(hidden.dtype)',
        "its result was cast down again",
    ),
    Wrong(
        "halves the layer instead",
        'def route(gate, hidden):\n    with torch.autocast("cpu", enabled=False):\n        return gate.to(hidden.dtype)(hidden).float()',
        "`gate` itself was changed",
    ),
    Wrong(
        "switches autocast off for good",
        'def route(gate, hidden):\n    torch.set_autocast_enabled("cpu", False)\n    return gate(hidden.float())',
        "Autocast is off after the call as well",
    ),
    Wrong(
        "cuts the graph",
        'def route(gate, hidden):\n    with torch.autocast("cpu", enabled=False):\n        return gate(hidden.detach().float())',
        "No gradient can come back to `hidden`",
    ),
    Wrong(
        "runs a copy of the layer",
        'def route(gate, hidden):\n    with torch.autocast("cpu", enabled=False):\n        return F.linear(hidden.float(), gate.weight.data)',
        "No gradient can come back to the weights of `gate`",
    ),
    Wrong(
        "forgets to return",
        'def route(gate, hidden):\n    with torch.autocast("cpu", enabled=False):\n        gate(hidden.float())',
        "is the `return` missing?",
    ),
)

EXERCISE = Exercise(
    name="3-router",
    title="A router in float32",
    target="route",
    stub=STUB,
    answer=ANSWER,
    lines=2,
    examine=examine,
    praise=PRAISE,
    hints=HINTS,
    alternatives=ALTERNATIVES,
    wrong=WRONG,
    setup="import torch\nimport torch.nn.functional as F\nfrom torch import nn",
)
