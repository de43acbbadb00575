"""Weights whose true gradients are given: the smallest thing that a scaler can be tried on."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from amp_lessons.recipes import ScalerOptions


class Weights:
    """``count`` weights of 1, each in a parameter group of its own, with SGD and a real CPU GradScaler.

    ``unused``: the first group also has a parameter that no loss uses. ``taken`` counts the optimizer's own steps.
    """

    def __init__(
        self, options: ScalerOptions = ScalerOptions(), count: int = 1, lr: float = 0.5, momentum: float = 0.0, unused: bool = False
    ) -> None:
        self.parameters = [torch.nn.Parameter(torch.ones(1)) for _ in range(count)]
        groups = [{"params": [parameter]} for parameter in self.parameters]
        if unused:
            groups[0]["params"].insert(0, torch.nn.Parameter(torch.ones(3)))
        self.lr, self.momentum = lr, momentum
        self.optimizer = torch.optim.SGD(groups, lr=lr, momentum=momentum)
        self.scaler = options.make(torch.device("cpu"), enabled=True)
        self.taken = 0
        self.optimizer.register_step_post_hook(self._count)

    def _count(self, *_: object) -> None:
        self.taken += 1

    @property
    def values(self) -> list[float]:
        """The weights."""
        return [parameter.item() for parameter in self.parameters]

    def loss(self, gradients: Sequence[float]) -> Tensor:
        """Clear the gradients; a loss that has these, after a way through fp16 that can flush them or make them inf."""
        self.optimizer.zero_grad()
        return sum((weight.half().float() * gradient).sum() for weight, gradient in zip(self.parameters, gradients))

    def scaled_backward(self, gradients: Sequence[float]) -> None:
        """Leave these gradients, scaled, in ``.grad``."""
        self.scaler.scale(self.loss(gradients)).backward()

    def end_step(self, new_scale: float | None = None) -> bool:
        """The scaler's step and update; whether the optimizer stepped."""
        before = self.taken
        self.scaler.step(self.optimizer)
        self.scaler.update(new_scale)
        return self.taken > before
