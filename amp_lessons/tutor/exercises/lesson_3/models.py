"""Small models that a learner's function trains, watched: one under autocast, and one in float16 with float32 masters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn


@dataclass
class Watched:
    """A model of 8 inputs with SGD, and a batch of 16; what happens in it is noted.

    ``forward`` fills with autocast's dtype (None outside a region) for each call of the model, ``seen`` with the weights then,
    and ``backward`` with whether a region was open.
    """

    lr: float = 0.02
    size: float = 1.0
    data: torch.dtype = torch.float32
    forward: list[torch.dtype | None] = field(default_factory=list)
    seen: list[Tensor] = field(default_factory=list)
    backward: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        torch.random.default_generator.manual_seed(3)
        self.model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=self.lr)
        self.inputs = torch.randn(16, 8).to(self.data)
        self.targets = (self.size * self.inputs.sum(dim=1, keepdim=True)).to(self.data)
        self.model.register_forward_pre_hook(self._note)
        self.model[-1].bias.register_hook(lambda _: self.backward.append(torch.is_autocast_enabled("cpu")))

    def _note(self, *_: object) -> None:
        self.forward.append(torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None)
        self.seen.append(self.weights)

    @property
    def weights(self) -> Tensor:
        """All parameters in one vector."""
        return torch.cat([parameter.detach().flatten() for parameter in self.model.parameters()])

    @property
    def clean(self) -> bool:
        """Whether no gradients are left."""
        return not any(parameter.grad is not None and parameter.grad.any() for parameter in self.model.parameters())

    def call(self, function: Any) -> Any:
        """What the function gives back for this model and batch."""
        for noted in (self.forward, self.seen, self.backward):
            noted.clear()
        return function(self.model, self.optimizer, self.inputs, self.targets)


@dataclass
class Pair:
    """An fp16 model, its float32 masters and their optimizer; ``step`` is one backward and one call of the learner's function."""

    model: nn.Module
    make: Callable[[list[Tensor]], torch.optim.Optimizer]
    inputs: Tensor

    def __post_init__(self) -> None:
        self.masters = [weight.detach().float().requires_grad_() for weight in self.model.parameters()]
        self.optimizer = self.make(self.masters)
        self.stepped = False
        self.optimizer.register_step_post_hook(lambda *_: setattr(self, "stepped", True))

    def step(self, function: Any) -> None:
        """One step by the function."""
        self.stepped = False
        self.model(self.inputs).mean().backward()
        function(self.model, self.masters, self.optimizer)

    @property
    def weights(self) -> list[Tensor]:
        """The model's own weights."""
        return [weight.detach() for weight in self.model.parameters()]
