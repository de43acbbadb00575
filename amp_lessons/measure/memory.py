"""Where the memory of a training step goes, counted on real tensors: why mixed precision does not halve it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from amp_lessons import devices
from amp_lessons.measure.settings import Setting
from amp_lessons.measure.steps import TrainingStep
from amp_lessons.measure.workloads import Workload


@dataclass(frozen=True)
class SavedBytes:
    """Bytes that autograd keeps for the backward pass, each storage once, apart by what they are.

    ``weight_copies_bytes`` are the 16-bit copies of parameters that autocast made. The parameters themselves and the batch
    are there anyway; how many of their bytes autograd points to is in ``weights_bytes`` and ``batch_bytes``.
    """

    activations_bytes: int
    weight_copies_bytes: int
    weights_bytes: int
    batch_bytes: int


@dataclass(frozen=True)
class MemorySplit:
    """Bytes of one training step by what they hold, each measured when there is most of it.

    Activations and the copies of weights are largest at the end of the forward pass, gradients at the end of the backward
    pass, so the whole is less than the sum. ``peak_bytes`` is what CUDA's allocator had handed out at most, above what was
    in use before the model was made; None on the CPU, which does not count it.
    """

    setting: str
    workload: str
    width: int
    batch: int
    weights_bytes: int
    weight_copies_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int
    batch_bytes: int
    peak_bytes: int | None = None

    @property
    def sum_bytes(self) -> int:
        """All parts together, without the batch."""
        kept = self.weights_bytes + self.weight_copies_bytes + self.gradients_bytes
        return kept + self.optimizer_bytes + self.activations_bytes


def saved_for_backward(forward: Callable[[], Any], model: nn.Module, batch: Iterable[Tensor] = ()) -> SavedBytes:
    """Run ``forward`` and count what autograd keeps of it; ``batch`` names the tensors that were there before."""
    return _saved(forward, model, batch)[0]


def _saved(forward: Callable[[], Any], model: nn.Module, batch: Iterable[Tensor]) -> tuple[SavedBytes, Any]:
    weights = _storages(model.parameters())
    given = _storages(batch)
    copies = _Copies(weights)
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor  # views of one storage take its bytes once
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), copies:
        result = forward()
    sizes = dict.fromkeys(("activations", "copies", "weights", "batch"), 0)
    for place, tensor in kept.items():
        kind = "weights" if place in weights else "batch" if place in given else "copies" if place in copies.made else "activations"
        sizes[kind] += tensor.untyped_storage().nbytes()
    return SavedBytes(sizes["activations"], sizes["copies"], sizes["weights"], sizes["batch"]), result


class _Copies(TorchDispatchMode):
    """Notes the storages of copies of the parameters; autocast casts with ``_to_copy``, once a weight."""

    def __init__(self, weights: set[int]) -> None:
        super().__init__()
        self.made: dict[int, Tensor] = {}
        self._weights = weights

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._to_copy.default and args[0].untyped_storage().data_ptr() in self._weights:
            self.made[result.untyped_storage().data_ptr()] = result  # held, so that its place is not given to another
        return result


def memory_split(workload: Workload, setting: Setting, device: str | torch.device | None = None) -> MemorySplit:
    """Measure the parts in one real training step after a first one, which fills the optimizer's state."""
    device = devices.pick(device)
    on_cuda = device.type == "cuda"
    if on_cuda:
        torch.ones(8, 8, device=device).mm(torch.ones(8, 8, device=device))  # cuBLAS's workspace is no part of a step
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
    with ExitStack() as settings:
        settings.enter_context(setting.around())
        settings.enter_context(devices.one_thread(device))
        step = TrainingStep(workload, setting, device)
        step()
        peak = None
        if on_cuda:
            torch.cuda.reset_peak_memory_stats(device)
            step()
            torch.cuda.synchronize(device)
            peak = torch.cuda.max_memory_allocated(device) - before
        seen: dict[str, Any] = {}

        def forward() -> Tensor:
            seen["saved"], loss = _saved(step.loss, step.model, step.batch)
            return loss

        def gradients() -> None:
            seen["gradients"] = _bytes(p.grad for p in step.model.parameters() if p.grad is not None)

        step(forward, gradients)
    saved: SavedBytes = seen["saved"]
    state = (value for slots in step.optimizer.state.values() for value in slots.values() if isinstance(value, Tensor))
    return MemorySplit(
        setting=setting.name,
        workload=workload.name,
        width=workload.width,
        batch=workload.batch,
        weights_bytes=_bytes(step.model.parameters()),
        weight_copies_bytes=saved.weight_copies_bytes,
        gradients_bytes=seen["gradients"],
        optimizer_bytes=_bytes(state),
        activations_bytes=saved.activations_bytes,
        batch_bytes=_bytes(step.batch),
        peak_bytes=peak,
    )


def _storages(tensors: Iterable[Tensor]) -> set[int]:
    return {tensor.untyped_storage().data_ptr() for tensor in tensors}


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())
