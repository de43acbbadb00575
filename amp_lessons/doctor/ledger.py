"""What state each gradient is in: none, unscaled, or still multiplied by a loss scale."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from amp_lessons.doctor.events import later


@dataclass(slots=True)
class Entry:
    """One parameter's gradient as last seen. ``scale`` is None for an unscaled one; ``backwards`` counts what it sums."""

    identity: int | None = None
    version: int = -1
    scale: float | Tensor | None = None
    backwards: int = 0


class Ledger:
    """Keeps an entry for each parameter and notices what changed a gradient behind PyTorch's back.

    A tensor's version counter rises with every in-place change, so a change costs two attribute reads to notice, and no
    value is touched.
    """

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        self._parameters: dict[int, Tensor] = {}

    def track(self, parameters: Iterable[Tensor]) -> None:
        """Keep an eye on these parameters' gradients from now on."""
        for parameter in parameters:
            if id(parameter) not in self.entries:
                self._parameters[id(parameter)] = parameter
                self.entries[id(parameter)] = Entry()
                self._note(parameter)

    @property
    def parameters(self) -> list[Tensor]:
        """All parameters that are tracked."""
        return list(self._parameters.values())

    def changed(self, parameters: Iterable[Tensor] | None = None) -> list[Tensor]:
        """The parameters whose gradient is no longer the one last seen, and is not None; None ones start anew."""
        found = []
        for parameter in self.parameters if parameters is None else parameters:
            entry = self.entries.get(id(parameter))
            if entry is None:
                continue
            grad = parameter.grad
            if grad is None:
                if entry.identity is not None:
                    self.forget([parameter])
            elif id(grad) != entry.identity or grad._version != entry.version:
                found.append(parameter)
        return found

    def accept(self, parameters: Iterable[Tensor]) -> None:
        """Take the gradients as they are now."""
        for parameter in parameters:
            if id(parameter) in self.entries:
                self._note(parameter)

    def forget(self, parameters: Iterable[Tensor]) -> None:
        """These gradients were cleared."""
        for parameter in parameters:
            if id(parameter) in self.entries:
                self.entries[id(parameter)] = Entry()
                self._note(parameter)

    def scales(self, parameters: Iterable[Tensor]) -> list[float | Tensor]:
        """The loss scales that these parameters' gradients are multiplied by."""
        entries = (self.entries.get(id(parameter)) for parameter in parameters)
        return [entry.scale for entry in entries if entry and entry.scale is not None and entry.identity is not None]

    def _note(self, parameter: Tensor) -> None:
        entry, grad = self.entries[id(parameter)], parameter.grad
        entry.identity = None if grad is None else id(grad)
        entry.version = -1 if grad is None else grad._version


@torch.no_grad()
def norm_of(parameters: Iterable[Tensor]) -> float | Tensor | None:
    """Norm of the parameters' gradients, read later where reading would wait; None when there are none."""
    grads = [p.grad for p in parameters if p.grad is not None and not p.grad.is_sparse]
    if not grads:
        return None
    # float32 first: a norm in fp16 would overflow by itself.
    return later(torch.nn.utils.get_total_norm([grad.float() if grad.dtype != torch.float32 else grad for grad in grads]))
