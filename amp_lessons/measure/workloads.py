"""Models to time whose size is set by a width and a batch: an MLP and a small transformer, on random data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from amp_lessons.errors import LessonError


@dataclass(frozen=True)
class Workload:
    """A model, a batch and a loss of a given width and batch size; ``batch`` counts rows of an MLP, or sequences."""

    name: str
    width: int
    batch: int
    make_model: Callable[[], nn.Module]
    make_batch: Callable[[torch.Generator], tuple[Tensor, Tensor]]
    loss: Callable[[nn.Module, Tensor, Tensor], Tensor]

    @property
    def step_flop(self) -> int:
        """Floating-point operations in the matrix products of one forward and backward pass, as PyTorch counts them."""
        return _step_flop(self)


def lesson_sizes(device: torch.device) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Widths and batches for a table of ``mlp`` in a lesson: small on the CPU, where large ones would take minutes."""
    if device.type == "cpu":
        return (32, 64, 128, 256), (16, 64, 256)
    return (256, 512, 1024, 2048), (64, 256, 1024, 4096)


def mlp(width: int = 256, batch: int = 256, layers: int = 4) -> Workload:
    """``layers`` square linear layers of this width with ReLU between, [batch, width] in and out, mean-squared error."""
    _check(width=width, batch=batch, layers=layers)

    def make_model() -> nn.Module:
        stack = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())]
        return nn.Sequential(*stack[:-1])

    def make_batch(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        inputs, targets = torch.randn(2, batch, width, generator=generator).unbind()
        return inputs, targets

    return Workload("mlp", width, batch, make_model, make_batch, _squared_error)


def transformer(width: int = 64, batch: int = 8, layers: int = 2, length: int = 32, vocabulary: int = 256) -> Workload:
    """``layers`` of PyTorch's own encoder layer over tokens [batch, length], and a cross-entropy over ``vocabulary``.

    The feed-forward part is four times as wide, and a head has 32 numbers or the whole width.
    """
    _check(width=width, batch=batch, layers=layers, length=length, vocabulary=vocabulary)
    heads = width // 32 if width % 32 == 0 else 1

    def make_model() -> nn.Module:
        layer = [
            nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(layers)
        ]
        return nn.Sequential(nn.Embedding(vocabulary, width), *layer, nn.LayerNorm(width), nn.Linear(width, vocabulary))

    def make_batch(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        inputs, targets = torch.randint(vocabulary, (2, batch, length), generator=generator).unbind()
        return inputs, targets

    return Workload("transformer", width, batch, make_model, make_batch, _cross_entropy)


def _squared_error(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return F.mse_loss(model(inputs), targets)


def _cross_entropy(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


@lru_cache(maxsize=256)
def _step_flop(workload: Workload) -> int:
    # On the meta device shapes are followed and nothing is computed.
    inputs, targets = (part.to("meta") for part in workload.make_batch(torch.Generator().manual_seed(0)))
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        model = workload.make_model()
    with FlopCounterMode(display=False) as counter:
        workload.loss(model, inputs, targets).backward()
    return counter.get_total_flops()


def _check(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise LessonError(f"{name} is {size}; give a whole number from 1 up.")
