"""Exercise 2-stalled: which parameters get nothing from an fp16 run."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons.tutor.exercise import Exercise, Hint, Wrong
from amp_lessons.tutor.given import NOTHING
from amp_lessons.tutor.trial import Trial

STUB = '''
def stalled(exact, fp16):
    """Names of the parameters that lost all their non-zero float32 gradients in fp16.

    Both map names to gradients, for the same weights and batch.

    >>> exact = {"0.weight": torch.tensor([3e-9, 0.0]), "0.bias": torch.tensor([3e-9, 0.5])}
    >>> fp16 = {name: gradient.half().float() for name, gradient in exact.items()}
    >>> stalled(exact, fp16)
    ['0.weight']
    """
    ...
'''

ANSWER = """
def stalled(exact, fp16):
    return [name for name in exact if exact[name].any() and not fp16[name].any()]
"""

Named = dict[str, Tensor]

_NEGATIVE = "A negative gradient moves a weight as well as a positive one."

SYNTHETIC = (
    {"0.weight": [3e-9, 2e-9, 1e-9], "2.weight": [0.5, -0.25]},
    {"0.weight": [0.5, 0.1], "2.weight": [1e-6, 1e-7]},  # rounded, none lost
    {"0.weight": [[3e-9, 2e-9], [0.5, 1e-9]], "0.bias": [1e-9, 1e-9]},
    {"0.weight": [0.0, 0.0], "0.bias": [0.0, -0.0], "2.weight": [1e-9, -0.5]},  # the first layer's ReLU is dead
    {"0.weight": [1e-9, 0.0, 0.0], "2.weight": [1e-9, 1e-9, 0.5]},
    {"0.weight": [-2e-9, -1e-9], "2.weight": [-1e-6, -0.5]},
    {"0.weight": [2.0**-20, -(2.0**-20)], "2.weight": [1e-9, -1e-9]},  # each adds up to 0
    {},
)


def examine(stalled: Trial) -> str | None:
    pairs = [_flushed({name: torch.tensor(values) for name, values in case.items()}) for case in SYNTHETIC]
    for exact, fp16 in (*pairs, _measured()):
        given = stalled(dict(exact), dict(fp16))
        if wrong := _not_names(given, exact):
            return wrong
        right = {name for name in exact if exact[name].any() and not fp16[name].any()}
        if right and set(given) == set(exact) - right:
            return f"It returns {list(given)}, which still move. {_left_out(min(right), exact[min(right)])}"
        for name in exact:
            if name in given and name not in right:
                return _listed_wrongly(name, exact[name], fp16[name])
            if name in right and name not in given:
                return _left_out(name, exact[name])
    return None


def _flushed(exact: Named) -> tuple[Named, Named]:
    return exact, {name: gradient.half().float() for name, gradient in exact.items()}


def _measured() -> tuple[Named, Named]:
    """A pair from a real network: the upper layer's small weights shrink what reaches the lower one."""
    model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.5)
        model[2].weight.fill_(2.0**-6)
    inputs, targets = torch.ones(16, 2), torch.zeros(16, 1)
    exact, fp16 = {}, {}
    for found, half in ((exact, False), (fp16, True)):
        model.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16, enabled=half):
            loss = 2.0**-18 * F.mse_loss(model(inputs), targets)
        loss.backward()
        found.update({name: parameter.grad.clone() for name, parameter in model.named_parameters()})
    return exact, fp16


def _not_names(given: Any, exact: Named) -> str | None:
    if given is None:
        return NOTHING
    if not isinstance(given, (list, tuple, set)):
        return f"It returns `{given!r}`, of type {type(given).__name__}; a list of names is asked for, also for one name or none."
    strange = [item for item in given if not isinstance(item, str) or item not in exact]
    return f"It returns a list that holds `{strange[0]!r}`, which is not one of the names {', '.join(exact)}." if strange else None


def _listed_wrongly(name: str, exact: Tensor, fp16: Tensor) -> str:
    if not exact.any():
        return f"`{name}` is listed, but its float32 gradient is zero too, as behind a dead ReLU: fp16 lost nothing there."
    alive, kept = int(exact.count_nonzero()), int(fp16.count_nonzero())
    if kept < alive:
        told = f"`{name}` is listed, but fp16 lost only {alive - kept} of its {alive} non-zero values: it still moves."
        return told if (fp16 > 0).any() else f"{told} {_NEGATIVE}"
    if fp16.sum() == 0:
        return f"`{name}` is listed, but its values {_values(fp16)} only add up to 0. None of them is 0, and it moves."
    return f"`{name}` is listed, but fp16 kept all its {alive} non-zero values, rounded or not: it still moves."


def _left_out(name: str, exact: Tensor) -> str:
    alive = int(exact.count_nonzero())
    told = f"`{name}` is missing: float32 has {alive} non-zero value{'' if alive == 1 else 's'} there, {_values(exact)}, and fp16 has none."
    if alive < exact.numel():
        return f"{told} A zero beside them, which was zero before, does not save it."
    if exact.sum() == 0:
        return f"{told} That they add up to 0 does not make them 0."
    if (exact < 0).all():
        return f"{told} {_NEGATIVE}"
    return told


def _values(gradient: Tensor) -> str:
    shown = [f"{value:.2g}" for value in gradient[gradient != 0][:3].tolist()]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if shown[1:] else shown) + (", …" if gradient.count_nonzero() > 3 else "")


PRAISE = (
    "It was tried on a real pair, too: under autocast the lower layer got nothing and the upper one learned on. A layer with a "
    "dead ReLU is not on your list, and one that lost only a part is not either."
)

HINTS = (
    Hint("It lists a layer that is dead in float32 too", "Two things must hold: there was something in float32, and nothing is left in fp16."),
    Hint("It lists layers that lost only a few values", "When does a parameter stop moving: when one value is lost, or when all are?"),
    Hint("It goes wrong where values are 2^-20 and -2^-20", "Does your code add the values up? `.any()` asks whether one is not zero."),
)

_DEF = "def stalled(exact, fp16):\n"

ALTERNATIVES = (
    """
def stalled(exact, fp16):
    names = []
    for name, gradient in exact.items():
        alive = gradient != 0
        if alive.sum() > 0 and (fp16[name][alive] == 0).all():
            names.append(name)
    return names
""",
    f"{_DEF}    return {{name for name in exact if exact[name].abs().max() > 0 and fp16[name].abs().max() == 0}}",
    f"{_DEF}    return tuple(n for n, g in exact.items() if g.count_nonzero() and not fp16[n].count_nonzero())",
    # By the share that the lesson measures.
    f"{_DEF}    return [name for name in exact if lost_share([exact[name]], [fp16[name]]) == 1]",
    f"{_DEF}    return [name for name in fp16 if fp16[name].norm() == 0 and exact[name].norm() > 0]",
)

WRONG = (
    Wrong("lists dead layers", f"{_DEF}    return [name for name in fp16 if not fp16[name].any()]", "its float32 gradient is zero too"),
    Wrong(
        "lists layers that lost a part",
        f"{_DEF}    return [n for n in exact if ((exact[n] != 0) & (fp16[n] == 0)).any()]",
        "fp16 lost only 3 of its 4 non-zero values",
    ),
    Wrong(
        "wants all values to have been non-zero",
        f"{_DEF}    return [n for n in exact if ((exact[n] != 0) & (fp16[n] == 0)).all()]",
        "A zero beside them, which was zero before, does not save it",
    ),
    Wrong("adds the fp16 values up", f"{_DEF}    return [n for n in exact if exact[n].any() and fp16[n].sum() == 0]", "only add up to 0"),
    Wrong(
        "adds the float32 values up",
        f"{_DEF}    return [n for n in exact if exact[n].sum() != 0 and not fp16[n].any()]",
        "That they add up to 0 does not make them 0",
    ),
    Wrong(
        "asks for positive values",
        f"{_DEF}    return [n for n in exact if exact[n].max() > 0 and not fp16[n].max() > 0]",
        "A negative gradient moves a weight as well",
    ),
    Wrong(
        "takes every difference for a loss",
        f"{_DEF}    return [n for n in exact if not torch.equal(exact[n], fp16[n])]",
        "fp16 kept all its 2 non-zero values, rounded or not",
    ),
    Wrong("gives the parameters that still learn", f"{_DEF}    return [n for n in exact if fp16[n].any()]", "which still move"),
    Wrong(
        "compares with a tolerance",
        f"{_DEF}    zero = torch.tensor(0.0)\n    return [n for n in exact if torch.allclose(fp16[n], zero) and not torch.allclose(exact[n], zero)]",
        "float32 has 3 non-zero values there, 3e-09, 2e-09 and 1e-09, and fp16 has none",
    ),
    Wrong("gives marks instead of names", f"{_DEF}    return [not fp16[n].any() for n in exact]", "which is not one of the names"),
    Wrong("gives one name", f"{_DEF}    for n in exact:\n        if exact[n].any() and not fp16[n].any():\n            return n", "a list of names is asked for"),
    Wrong("forgets to return", f"{_DEF}    [n for n in exact if exact[n].any() and not fp16[n].any()]", "is the `return` missing?"),
)

EXERCISE = Exercise(
    name="2-stalled",
    title="Which parameters stall",
    target="stalled",
    stub=STUB,
    answer=ANSWER,
    lines=1,
    examine=examine,
    praise=PRAISE,
    hints=HINTS,
    alternatives=ALTERNATIVES,
    wrong=WRONG,
    setup="import torch\n\nfrom amp_lessons.gradients import lost_share",
)
