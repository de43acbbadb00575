"""What state each gradient is in: none, unscaled, or still multiplied by a loss scale."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from amp_lessons.doctor.events import later


@dataclass(slots=True)
class Entry:
    """One parameter's gradient as last seen.

    ``scale`` and ``last`` are the loss scales of the first and the last backward pass that it sums, None for unscaled ones;
    ``backwards`` counts the passes. ``mixed``: it sums scaled and unscaled ones. ``used``: an optimizer has stepped with it.
    """

    parameter: weakref.ref  # a model that is gone must not be kept alive by the doctor
    identity: int | None = None
    version: int = -1
    scale: float | Tensor | None = None
    last: float | Tensor | None = None
    backwards: int = 0
    mixed: bool = False
    used: bool = False

    def clear(self) -> None:
        """Start anew, as a gradient of zero or None does."""
        self.scale, self.last, self.backwards, self.mixed, self.used = None, None, 0, False, False

    def see(self, grad: Tensor | None) -> None:
        """Take the gradient as it is now."""
        self.identity = None if grad is None else id(grad)
        self.version = -1 if grad is None else grad._version

    def differs(self, grad: Tensor) -> bool:
        """Whether the gradient is not the one last seen."""
        return id(grad) != self.identity or grad._version != self.version


class Ledger:
    """Keeps an entry for each parameter and notices what changed a gradient behind PyTorch's back.

    A tensor's version counter rises with every in-place change, so a change costs two attribute reads to notice, and no
    value is touched.
    """

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}

    def track(self, parameters: Iterable[Tensor]) -> None:
        """Keep an eye on these parameters' gradients from now on."""
        gone = [key for key, entry in self._entries.items() if entry.parameter() is None]
        for key in gone:
            del self._entries[key]
        for parameter in parameters:
            if id(parameter) not in self._entries:
                entry = self._entries[id(parameter)] = Entry(weakref.ref(parameter))
                entry.see(parameter.grad)

    @property
    def parameters(self) -> list[Tensor]:
        """All parameters that are tracked."""
        return [parameter for entry in self._entries.values() if (parameter := entry.parameter()) is not None]

    def entry(self, parameter: Tensor) -> Entry | None:
        """A parameter's entry; None if it is not tracked."""
        entry = self._entries.get(id(parameter))
        return entry if entry is not None and entry.parameter() is parameter else None

    def entries(self, parameters: Iterable[Tensor]) -> list[Entry]:
        """The entries of those parameters that are tracked."""
        known = self._entries
        return [e for p in parameters if (e := known.get(id(p))) is not None and e.parameter() is p]

    def changed(self, parameters: Iterable[Tensor] | None = None) -> list[Tensor]:
        """The parameters whose gradient is no longer the one last seen, and is not None; None ones start anew."""
        found = []
        for parameter in self.parameters if parameters is None else parameters:
            entry, grad = self.entry(parameter), parameter.grad
            if entry is None:
                continue
            if grad is not None and entry.differs(grad):
                found.append(parameter)
            elif grad is None and entry.identity is not None:
                entry.clear()
                entry.see(None)
        return found

    def accept(self, parameters: Iterable[Tensor]) -> None:
        """Take the gradients as they are now."""
        for parameter in parameters:
            if (entry := self.entry(parameter)) is not None:
                entry.see(parameter.grad)

    def forget(self, parameters: Iterable[Tensor]) -> None:
        """These gradients were cleared."""
        for parameter in parameters:
            if (entry := self.entry(parameter)) is not None:
                entry.clear()
                entry.see(parameter.grad)

    def unscaled(self, parameters: Iterable[Tensor], used: bool = False) -> None:
        """These gradients were unscaled, and perhaps used by a step."""
        for entry in self.entries(parameters):
            entry.scale = entry.last = None
            entry.used = entry.used or used
            entry.see(entry.parameter().grad)

    def scales(self, parameters: Iterable[Tensor]) -> list[float | Tensor]:
        """The loss scales that these parameters' gradients are multiplied by."""
        return [e.scale for e in self.entries(parameters) if e.scale is not None and e.identity is not None]

    def parts(self, parameters: Iterable[Tensor]) -> dict[str, Any]:
        """Facts on what these parameters' gradients sum: whether scaled and unscaled parts, whether one is left over from the
        last step, and the first and last scale."""
        entries = [entry for entry in self.entries(parameters) if entry.identity is not None]
        several = next((e for e in entries if e.scale is not None and e.last is not e.scale), None)
        return {
            "mixed": any(entry.mixed for entry in entries),
            "left_over": any(entry.mixed and entry.used for entry in entries),
            "first_scale": several.scale if several else None,
            "last_scale": several.last if several else None,
        }

    def snapshot(self) -> dict[int, tuple[int, int]]:
        """The gradients before a backward pass, to be given to ``add``."""
        return {id(p): (id(p.grad), p.grad._version) for p in self.parameters if p.grad is not None}

    def add(self, before: dict[int, tuple[int, int]], scale: float | Tensor | None) -> tuple[list[Tensor], int]:
        """A backward pass with a loss scale (None: unscaled) has run: the parameters it reached, and how many passes their
        gradients had summed before."""
        reached, earlier = [], 0
        for parameter in self.parameters:
            grad = parameter.grad
            if grad is None or before.get(id(parameter)) == (id(grad), grad._version):
                continue
            reached.append(parameter)
            entry = self._entries[id(parameter)]
            earlier = max(earlier, entry.backwards)
            entry.mixed = entry.mixed or (entry.backwards > 0 and (entry.last is None) != (scale is None))
            entry.scale = scale if entry.backwards == 0 or entry.scale is None else entry.scale
            entry.last = scale
            entry.backwards += 1
            entry.see(grad)
        return reached, earlier


@torch.no_grad()
def norm_of(parameters: Sequence[Tensor]) -> float | Tensor | None:
    """Norm of the parameters' gradients, read later where reading would wait; None when there are none."""
    grads = [p.grad.detach() for p in parameters if p.grad is not None and not p.grad.is_sparse and not p.grad.is_complex()]
    if not grads:
        return None
    # float32 first: a norm in fp16 would overflow by itself.
    return later(torch.nn.utils.get_total_norm([grad.float() if grad.dtype != torch.float32 else grad for grad in grads]))
