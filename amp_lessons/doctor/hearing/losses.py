"""The loss on its way: scaled, sent backward, differentiated for a penalty."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from amp_lessons.doctor.events import dtype_name, later, user_lines
from amp_lessons.doctor.hearing import heard
from amp_lessons.doctor.hearing.gradients import note_changes
from amp_lessons.doctor.hearing.penalties import judge_penalties
from amp_lessons.doctor.ledger import norm_of

if TYPE_CHECKING:
    from amp_lessons.doctor.observer import LoopObserver


@heard("after", "scaler.scale")
def after_scale(observer: LoopObserver, args: tuple, kwargs: dict, result: Any) -> None:
    scaler, outputs = args[0], args[1] if len(args) > 1 else kwargs.get("outputs")
    if not scaler.is_enabled() or scaler._scale is None:
        return
    if observer.stepped:
        observer.close_iteration()
    scale = later(scaler._scale)
    for output, scaled in _pairs(outputs, result):
        if scaled.grad_fn is not None:
            observer.scaled_nodes.append((scaled.grad_fn, scale))
        observer.add(
            "scale", dtype=dtype_name(output.dtype), scale=scale, loss=later(output.detach().float().sum()),
            elements=output.numel(), scaler=observer.scalers.number(scaler),
        )  # fmt: skip


@heard("before", "backward")
def before_backward(observer: LoopObserver, args: tuple, kwargs: dict) -> None:
    observer.depth += 1
    if observer.depth > 1:
        return
    if observer.stepped:
        observer.close_iteration()
    note_changes(observer, None)
    _note_unseen_zeros(observer)
    root = _root(args, kwargs)
    weighted = kwargs.get("grad_tensors", args[1] if len(args) > 1 else None) is not None
    # Backward frees the graph, so what it shows is read first.
    observer.pending["root"] = (*scale_of(observer, root), weighted or _is_divided(observer, root))
    judge_penalties(observer, root)
    observer.pending["grads"] = observer.ledger.snapshot()


@heard("after", "backward")
def after_backward(observer: LoopObserver, args: tuple, kwargs: dict, result: Any) -> None:
    observer.depth -= 1
    if observer.depth > 0:
        return
    observer.depth = 0
    root = _root(args, kwargs)
    scale, node, divided = observer.pending.pop("root", (None, None, False))
    if node is not None and not _kept(args, kwargs):  # its graph is used up, and would only fill memory
        observer.scaled_nodes = [pair for pair in observer.scaled_nodes if pair[0] is not node]
    fresh, earlier = observer.ledger.add(observer.pending.pop("grads", {}), scale)
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
        path="; ".join(user_lines(3)),
        norm=norm_of(fresh) if observer.looks_closely else None,
    )


@heard("failed", "backward")
def failed_backward(observer: LoopObserver, args: tuple, kwargs: dict) -> None:
    observer.depth = max(observer.depth - 1, 0)
    if observer.depth == 0:  # some gradients may have arrived
        observer.pending.pop("root", None)
        observer.pending.pop("grads", None)
        observer.ledger.accept(observer.ledger.parameters)


@heard("after", "grad")
def after_grad(observer: LoopObserver, args: tuple, kwargs: dict, result: Any) -> None:
    root = _root(args, kwargs)
    scale, _ = scale_of(observer, root)
    create_graph = kwargs.get("create_graph", args[4] if len(args) > 4 else False)
    tensors = [t for t in result if isinstance(t, Tensor)]
    if create_graph and tensors:
        norm = later(torch.linalg.vector_norm(torch.stack([t.detach().float().norm() for t in tensors])))
        event = observer.add("penalty", scaled=scale is not None, scale=scale, norm=norm, used_scaled=False)
        if scale is not None and observer.looks_closely:
            observer.penalties.append((event, [t.grad_fn for t in tensors if t.grad_fn is not None], scale))


def scale_of(observer: LoopObserver, root: Any) -> tuple[float | Tensor | None, Any]:
    """The loss scale that a loss is multiplied by, and the autograd node that did it, at the loss or just behind it."""
    nodes, seen = [getattr(root, "grad_fn", None)], 0
    while nodes and seen < 8:
        node = nodes.pop(0)
        seen += 1
        if node is None:
            continue
        for known, scale in observer.scaled_nodes:
            if known is node:
                return scale, node
        nodes += [behind for behind, _ in node.next_functions]
    return None, None


def _pairs(outputs: Any, result: Any) -> list[tuple[Tensor, Tensor]]:
    """The losses given to scaler.scale with what it made of each."""
    if isinstance(outputs, Tensor):
        return [(outputs, result)]
    if isinstance(outputs, (list, tuple)):
        return [pair for output, scaled in zip(outputs, result) for pair in _pairs(output, scaled)]
    return []


def _kept(args: tuple, kwargs: dict) -> bool:
    """Whether backward was told to keep the graph (retain_graph or create_graph)."""
    return any(bool(given) for given in (*args[2:4], kwargs.get("retain_graph"), kwargs.get("create_graph")))


def _note_unseen_zeros(observer: LoopObserver) -> None:
    """Gradients that a step has used may have been zeroed through ``.data``, which no version counter shows."""
    used = [p for p in observer.ledger.parameters if (entry := observer.ledger.entry(p)) and entry.used and p.grad is not None]
    if not used:
        return
    if observer.looks_closely:
        norm = norm_of(used)
        observer.zeroed_unseen = norm is not None and float(norm) == 0
    if observer.zeroed_unseen:
        observer.ledger.forget(used)


def _root(args: tuple, kwargs: dict) -> Any:
    """The loss, or the first of several, that backward or grad was called with."""
    root = args[0] if args else kwargs.get("tensors", kwargs.get("outputs"))
    return root[0] if isinstance(root, (tuple, list)) and root else root


# What may stand between the end of a loss and its division: sums of terms, shapes, casts.
_BETWEEN = ("AddBackward", "SubBackward", "ToCopyBackward", "ViewBackward", "SqueezeBackward", "UnsqueezeBackward", "AliasBackward")


def _is_divided(observer: LoopObserver, root: Any) -> bool:
    """Whether a loss, or a term of it, was divided or multiplied by a number, as ``loss / n`` is, before or after scaling."""
    nodes, seen = [getattr(root, "grad_fn", None)], 0
    while nodes and seen < 12:
        node, seen = nodes.pop(0), seen + 1
        name = type(node).__name__
        by_scaler = any(known is node for known, _ in observer.scaled_nodes)
        behind = [following for following, _ in getattr(node, "next_functions", ()) if following is not None]
        if not by_scaler and name.startswith(("DivBackward", "MulBackward")) and len(behind) == 1:
            return True
        if by_scaler or name.startswith(_BETWEEN):
            nodes += behind
    return False
