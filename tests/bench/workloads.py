"""The two models whose gradients are recorded; float32, SGD with momentum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Workload:
    """A model and a batch: inputs and class numbers."""

    name: str
    make_model: Callable[[], nn.Module]
    inputs: Tensor
    targets: Tensor

    def loop(self, model: nn.Module, record: Callable[[float], object] = lambda loss: None) -> Callable[[], None]:
        """A function that runs one training step; ``record(loss)`` is called after backward."""
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

        def step() -> None:
            loss = F.cross_entropy(model(self.inputs).flatten(0, -2), self.targets.flatten())
            loss.backward()
            record(loss.item())
            optimizer.step()
            optimizer.zero_grad()

        return step


def layers(width: int = 512, outputs: int = 10) -> nn.Module:
    """Four linear layers and a head: 1,055,754 parameters in 10 tensors."""
    torch.manual_seed(0)
    hidden = [layer for _ in range(4) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(width, outputs))


class Transformer(nn.Module):
    """Four layers of width 192 over characters: 1,890,688 parameters in 54 tensors."""

    def __init__(self, width: int = 192, characters: int = 256, length: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, width)
        self.position = nn.Parameter(torch.zeros(length, width))
        layer = nn.TransformerEncoderLayer(width, 6, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, characters)

    def forward(self, characters: Tensor) -> Tensor:
        return self.head(self.norm(self.layers(self.embedding(characters) + self.position)))


def transformer() -> nn.Module:
    torch.manual_seed(0)
    return Transformer()


def mlp_workload() -> Workload:
    draw = torch.Generator().manual_seed(1)
    inputs, targets = torch.randn(256, 512, generator=draw), torch.randint(10, (256,), generator=draw)
    return Workload("MLP", layers, inputs, targets)


def transformer_workload() -> Workload:
    text = torch.randint(256, (16, 65), generator=torch.Generator().manual_seed(1))
    return Workload("transformer", transformer, text[:, :-1], text[:, 1:])
