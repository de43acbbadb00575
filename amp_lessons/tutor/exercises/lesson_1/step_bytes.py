"""Exercise 1-bytes: what a training step keeps in memory, with and without autocast."""

from __future__ import annotations

import torch
from torch import nn

from amp_lessons.tutor.exercise import Exercise, Hint, Wrong
from amp_lessons.tutor.given import not_a_number
from amp_lessons.tutor.trial import Trial

STUB = '''
def step_bytes(weights, activations, amp):
    """Bytes that a step keeps, for so many weights and activations: SGD with momentum.

    >>> step_bytes(1000, 5000, amp=False)
    32000
    >>> step_bytes(1000, 1000, amp=True) == step_bytes(1000, 1000, amp=False)
    True
    """
    ...
'''

ANSWER = """
def step_bytes(weights, activations, amp):
    kept = 12 * weights + 4 * activations
    if amp:
        kept = (12 + 2) * weights + 2 * activations
    return kept
"""


def examine(step_bytes: Trial) -> str | None:
    for widths, batch in (((32, 48, 8), 5), ((64, 16, 16, 8), 50)):
        for amp in (False, True):
            weights, activations, right = measured(widths, batch, amp)
            given = step_bytes(weights, activations, amp)
            if wrong := not_a_number(given):
                return wrong
            if float(given) != right:
                what = (
                    f"A real step {'with' if amp else 'without'} AMP, with {weights:,} weights and {activations:,} activations"
                )
                return f"{what}, kept {right:,} bytes; you count {float(given):,.10g}. {_reason(step_bytes, amp)}".strip()
    return None


def measured(widths: tuple[int, ...], batch: int, amp: bool) -> tuple[int, int, int]:
    """Numbers of weights and of activations in a small network, and the bytes that a step with SGD and momentum keeps."""
    layers = [layer for pair in zip(widths, widths[1:]) for layer in (nn.Linear(*pair, bias=False), nn.ReLU())][:-1]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    kept = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.data_ptr()] = tensor  # by address: two layers may keep the same tensor
        return tensor

    inputs = torch.randn(batch, widths[0], requires_grad=True)  # so that the first layer keeps its weights too
    hooks = torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor)
    with hooks, torch.autocast("cpu", dtype=torch.float16, enabled=amp):
        outputs = model(inputs)
    outputs.sum().backward()
    optimizer.step()
    activations = sum(tensor.numel() for tensor in kept.values() if len(tensor) == batch)  # no layer is as wide
    for weight in model.parameters():
        for tensor in (weight, weight.grad, optimizer.state[weight]["momentum_buffer"]):
            kept[tensor.data_ptr()] = tensor
    return sum(p.numel() for p in model.parameters()), activations, sum(tensor.nbytes for tensor in kept.values())


def _reason(step_bytes: Trial, amp: bool) -> str:
    """What is wrong with the bytes that the answer counts for one weight and for one activation."""
    fixed = float(step_bytes(0, 0, amp))
    weight, activation = (float(step_bytes(*counts, amp)) - fixed for counts in ((1, 0), (0, 1)))
    if (weight, activation) == ((12, 4) if amp else (14, 2)):
        return f"That is what a step {'without' if amp else 'with'} AMP keeps. Is `amp` the wrong way round, or not looked at?"
    reasons = [f"You count {weight:g} bytes a weight and {activation:g} an activation."]
    if weight == 16 and not amp:
        reasons.append("Adam keeps two averages for each weight; SGD with momentum keeps one buffer.")
    elif weight in (4, 8):
        reasons.append("Each weight has a gradient and a momentum buffer, and all three are float32.")
    elif amp and weight < 12:
        reasons.append("Under autocast the weights, their gradients and the momentum stay float32.")
    elif amp and weight == 12:
        reasons.append("The backward pass uses 16-bit copies of the weights, which come on top.")
    elif amp and weight > 14:
        reasons.append("The copies of the weights that come on top are 16-bit.")
    if activation != (2 if amp else 4):
        reasons.append("Under autocast the activations are 16-bit." if amp else "Without AMP the activations are float32.")
    return " ".join(reasons)


PRAISE = (
    "Real steps of two networks keep just that. With as many activations as weights AMP saves nothing; what it saves grows with "
    "the batch, since the activations do and the weights do not."
)

HINTS = (
    Hint(
        "I do not know what is kept for a weight",
        "The weight, its gradient, and SGD's one momentum buffer. In which dtype is each?",
    ),
    Hint(
        "Without AMP it is right, with AMP too small",
        "Autocast changes the dtype of operations. Does it change a model's own weights?",
    ),
    Hint(
        "With AMP it is still too small",
        "What did the lesson find among the tensors kept for backward that is not an activation?",
    ),
)

_HEAD = "\ndef step_bytes(weights, activations, amp):\n"
_PLAIN = f"{_HEAD}    if not amp:\n        return 12 * weights + 4 * activations\n"

ALTERNATIVES = (
    f"{_HEAD}    return (14 * weights + 2 * activations) if amp else (12 * weights + 4 * activations)\n",
    # By dtype.
    """
def step_bytes(weights, activations, amp):
    full, half = torch.float32.itemsize, torch.float16.itemsize
    states = {"weight": full, "gradient": full, "momentum": full, "copy": half if amp else 0}
    return sum(states.values()) * weights + (half if amp else full) * activations
""",
    "step_bytes = lambda weights, activations, amp: 12.0 * weights + 4 * activations + 2 * amp * (weights - activations)",
)

WRONG = (
    Wrong("halves everything", f"{_PLAIN}    return (12 * weights + 4 * activations) / 2\n", "stay float32"),
    Wrong("halves the weights alone", f"{_PLAIN}    return 10 * weights + 2 * activations\n", "stay float32"),
    Wrong("leaves the 16-bit copies out", f"{_PLAIN}    return 12 * weights + 2 * activations\n", "which come on top"),
    Wrong("counts the copies in float32", f"{_PLAIN}    return 16 * weights + 2 * activations\n", "come on top are 16-bit"),
    Wrong(
        "counts for Adam",
        f"{_HEAD}    return 18 * weights + 2 * activations if amp else 16 * weights + 4 * activations\n",
        "Adam keeps two",
    ),
    Wrong(
        "counts the weights alone",
        f"{_HEAD}    return 6 * weights + 2 * activations if amp else 4 * weights + 4 * activations\n",
        "has a gradient and",
    ),
    Wrong(
        "keeps the activations in float32",
        f"{_PLAIN}    return 14 * weights + 4 * activations\n",
        "Under autocast the activations are 16-bit",
    ),
    Wrong(
        "takes amp the wrong way round",
        f"{_HEAD}    return 12 * weights + 4 * activations if amp else 14 * weights + 2 * activations\n",
        "what a step with AMP keeps",
    ),
    Wrong("does not look at amp", f"{_HEAD}    return 12 * weights + 4 * activations\n", "what a step without AMP keeps"),
    Wrong("prints", f"{_HEAD}    kept = 12 * weights + 4 * activations\n", "is the `return` missing?"),
)

EXERCISE = Exercise(
    name="1-bytes",
    title="The bytes of a step",
    target="step_bytes",
    stub=STUB,
    answer=ANSWER,
    lines=4,
    examine=examine,
    praise=PRAISE,
    hints=HINTS,
    alternatives=ALTERNATIVES,
    wrong=WRONG,
)
