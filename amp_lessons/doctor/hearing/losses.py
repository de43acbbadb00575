"""The loss on its way: scaled, sent backward, differentiated for a penalty."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from amp_lessons.doctor.events import dtype_name, later
from amp_lessons.doctor.hearing import heard
from amp_lessons.doctor.hearing.gradients import note_changes
from amp_lessons.doctor.ledger import norm_of

if TYPE_CHECKING:
    from amp_lessons.doctor.observer import LoopObserver


@heard("after", "scaler.scale")
def after_scale(observer: LoopObserver, args: tuple, kwargs: dict, result: Any) -> None:
    scaler, outputs = args[0], args[1] if len(args) > 1 else kwargs.get("outputs")
    if not isinstance(outputs, Tensor) or not scaler.is_enabled():
        return
    if observer.stepped:
        observer.close_iteration()
    scale = later(scaler._scale)
    if result.grad_fn is not None:
        observer.scaled_nodes.append((result.grad_fn, scale))
    observer.add(
        "scale", dtype=dtype_name(outputs.dtype), scale=scale,
        loss=later(outputs.detach().float().sum()), elements=outputs.numel(),
    )  # fmt: skip


@heard("before", "backward")
def before_backward(observer: LoopObserver, args: tuple, kwargs: dict) -> None:
    observer.depth += 1
    if observer.depth > 1:
        return
    if observer.stepped:
        observer.close_iteration()
    note_changes(observer, None)
    root = _root(args, kwargs)
    # Backward frees the graph, so what it shows is read first.
    observer.pending["root"] = (scale_of(observer, root), _is_divided(observer, root))
    observer.pending["grads"] = {id(p): (id(p.grad), p.grad._version) for p in observer.ledger.parameters if p.grad is not None}


@heard("after", "backward")
def after_backward(observer: LoopObserver, args: tuple, kwargs: dict, result: Any) -> None:
    observer.depth -= 1
    if observer.depth > 0:
        return
    observer.depth = 0
    root = _root(args, kwargs)
    scale, divided = observer.pending.pop("root", (None, False))
    before = observer.pending.pop("grads", {})
    fresh = [p for p in observer.ledger.parameters if p.grad is not None and before.get(id(p)) != (id(p.grad), p.grad._version)]
    mixed = False
    earlier = 0
    for parameter in fresh:
        entry = observer.ledger.entries[id(parameter)]
        earlier = max(earlier, entry.backwards)
        if entry.backwards and (entry.scale is None) != (scale is None):
            mixed = True
        entry.scale = scale
        entry.backwards += 1
    observer.ledger.accept(fresh)
    device = root.device.type if isinstance(root, Tensor) else "cpu"
    observer.add(
        "backward",
        scaled=scale is not None,
        scale=scale,
        inside_autocast=torch.is_autocast_enabled(device),
        autocast=dtype_name(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else "",
        divided=divided,
        loss=later(root.detach().float().sum()) if isinstance(root, Tensor) else None,
        dtype=dtype_name(root.dtype) if isinstance(root, Tensor) else "",
        parameters=len(fresh),
        accumulated=earlier > 0,
        mixed=mixed,
        norm=norm_of(fresh) if observer.looks_closely else None,
    )


@heard("failed", "backward")
def failed_backward(observer: LoopObserver, args: tuple, kwargs: dict) -> None:
    observer.depth = max(observer.depth - 1, 0)


@heard("after", "grad")
def after_grad(observer: LoopObserver, args: tuple, kwargs: dict, result: Any) -> None:
    root = _root(args, kwargs)
    scale = scale_of(observer, root)
    create_graph = kwargs.get("create_graph", args[4] if len(args) > 4 else False)
    tensors = [t for t in result if isinstance(t, Tensor)]
    if create_graph and tensors:
        norm = later(torch.linalg.vector_norm(torch.stack([t.detach().float().norm() for t in tensors])))
        observer.add("penalty", scaled=scale is not None, scale=scale, norm=norm)


def scale_of(observer: LoopObserver, root: Any) -> float | Tensor | None:
    """The loss scale that a loss is multiplied by, found by its autograd node or those just behind it."""
    nodes, seen = [getattr(root, "grad_fn", None)], 0
    while nodes and seen < 8:
        node = nodes.pop(0)
        seen += 1
        if node is None:
            continue
        for known, scale in observer.scaled_nodes:
            if known is node:
                return scale
        nodes += [behind for behind, _ in node.next_functions]
    return None


def _root(args: tuple, kwargs: dict) -> Any:
    """The loss, or the first of several, that backward or grad was called with."""
    root = args[0] if args else kwargs.get("tensors", kwargs.get("outputs"))
    return root[0] if isinstance(root, (tuple, list)) and root else root


def _is_divided(observer: LoopObserver, root: Any) -> bool:
    """Whether a loss ends in a division or multiplication by a number, as ``loss / n`` does, before or after scaling."""
    node = getattr(root, "grad_fn", None)
    for _ in range(4):
        if node is None:
            return False
        name = type(node).__name__
        by_scaler = any(known is node for known, _ in observer.scaled_nodes)
        behind = [following for following, _ in node.next_functions if following is not None]
        if not by_scaler and name.startswith(("DivBackward", "MulBackward")) and len(behind) == 1:
            return True
        if not by_scaler and not name.startswith("ToCopyBackward"):
            return False
        node = behind[0] if behind else None
    return False
