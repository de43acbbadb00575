"""Gradient penalties: whether the loss that is sent backward uses gradients that are still multiplied by the loss scale."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from amp_lessons.doctor.observer import LoopObserver

MOST_NODES = 20_000


def judge_penalties(observer: LoopObserver, root: Any) -> None:
    """Mark the penalties that this loss uses without dividing them by the loss scale on the way."""
    penalties, observer.penalties = observer.penalties, []
    for event, nodes, scale in penalties:
        if reaches_scaled(getattr(root, "grad_fn", None), nodes, float(scale)):
            event.facts["used_scaled"] = True
        else:
            observer.penalties.append((event, nodes, scale))  # another loss may use it


def reaches_scaled(root: Any, gradients: list[Any], scale: float) -> bool:
    """Whether a way through the graph leads from a loss to scaled gradients with no division by the scale on it.

    The way is walked from the loss down, and not on behind a multiplication by 1/scale or a division by the scale. Dividing
    a norm by the scale is as good as dividing the gradients, so it may be anywhere on the way.
    """
    waiting, seen = [root], set()
    while waiting and len(seen) < MOST_NODES:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if any(node is gradient for gradient in gradients):
            return True
        if not _unscales(node, scale):
            waiting += [behind for behind, _ in node.next_functions]
    return False


def _unscales(node: Any, scale: float) -> bool:
    name = type(node).__name__.lower()
    if "mul" in name:
        return any(math.isclose(factor, 1 / scale, rel_tol=1e-3) for factor in _factors(node))
    return "div" in name and any(math.isclose(factor, scale, rel_tol=1e-3) for factor in _factors(node))


def _factors(node: Any) -> list[float]:
    """The numbers that an operation saved: what it multiplied or divided by."""
    found = []
    for name in ("_saved_self", "_saved_other", "_saved_scalar"):
        try:
            value = getattr(node, name, None)
        except RuntimeError:  # the graph was freed already
            continue
        if isinstance(value, Tensor) and value.numel() == 1 or isinstance(value, (int, float)):
            found.append(float(value))
    return found
