"""Moving averages of the weights: watched models that no optimizer trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from amp_lessons.doctor.events import dtype_name, later

if TYPE_CHECKING:
    from amp_lessons.doctor.observer import LoopObserver

AFTER = 20  # iterations; an average that has not moved by then does not move


class Averages:
    """Compares each 16-bit moving average with what it was some iterations ago, once."""

    def __init__(self) -> None:
        self._copies: list[tuple[Tensor, Tensor, int]] | None = None

    @torch.no_grad()
    def look(self, observer: LoopObserver, number: int) -> None:
        """Note how many of an average's values have moved since the first iteration."""
        if self._copies is None:
            trained = {id(p) for optimizer in observer.optimizers for p in observer.parameters_of(optimizer)}
            averages = [m for m in observer.models if not any(id(p) in trained for p in m.parameters())]
            largest = [max(m.parameters(), key=lambda p: p.numel(), default=None) for m in averages]
            small = [p for p in largest if p is not None and p.dtype in (torch.float16, torch.bfloat16)]
            self._copies = [(p, p.detach().clone(), p._version) for p in small]
        elif number == AFTER:
            for parameter, before, version in self._copies:
                moved = later((parameter.detach() != before).sum().float())
                if parameter._version == version and moved == 0:
                    continue  # nobody writes to it: a frozen teacher, not an average
                observer.add(
                    "average", dtype=dtype_name(parameter.dtype), moved=moved, total=float(before.numel()), updates=float(AFTER)
                )
            self._copies = []
