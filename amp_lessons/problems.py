"""The teaching problems: data, a model and a loss for each, all small enough for a laptop's CPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons import devices
from amp_lessons.errors import LessonError


class CoordinateNetwork(nn.Module):
    """A network from a position in a picture to what is seen there.

    ``forward`` takes float32 positions in [0, 1], shape [batch, 2] (row, column), and gives [batch, outputs] in the dtype
    of the last layer. The positions first become random Fourier features (Tancik et al. 2020, arXiv:2006.10739), since a
    plain MLP on coordinates learns only smooth pictures.
    """

    def __init__(self, outputs: int, width: int = 64, layers: int = 3, frequencies: int = 64, sigma: float = 8.0) -> None:
        super().__init__()
        self.register_buffer("frequencies", torch.randn(2, frequencies) * sigma)
        sizes = [2 * frequencies] + [width] * layers
        hidden = []
        for before, after in zip(sizes, sizes[1:]):
            hidden += [nn.Linear(before, after), nn.ReLU()]
        self.hidden = nn.Sequential(*hidden)
        self.head = nn.Linear(width, outputs)

    def forward(self, positions: Tensor) -> Tensor:
        # A product by hand, not a matmul: autocast would round the angles to 16 bits and blur the picture.
        angles = 2 * math.pi * (positions[:, :, None] * self.frequencies).sum(1)  # [batch, frequencies]
        features = torch.cat([angles.sin(), angles.cos()], dim=1)  # [batch, 2 * frequencies]
        return self.head(self.hidden(features))


@dataclass(frozen=True)
class Problem:
    """Data, model and loss of one teaching problem.

    ``inputs`` [items, features] and ``targets`` [items, outputs] are float32. ``loss_weight`` multiplies the mean-squared
    error, as a weight among several losses would. ``shape`` is the (rows, columns) of a problem that is a picture.
    """

    name: str
    inputs: Tensor
    targets: Tensor
    make_model: Callable[[], nn.Module]
    batch_size: int
    learning_rate: float
    loss_weight: float = 1.0
    shape: tuple[int, int] | None = None

    def to(self, device: torch.device) -> Problem:
        """The same problem with its data on another device."""
        return replace(self, inputs=self.inputs.to(device), targets=self.targets.to(device))

    def batch(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """A random batch, drawn with replacement: inputs [batch, features] and targets [batch, outputs]."""
        chosen = torch.randint(len(self.inputs), (self.batch_size,), generator=generator)
        chosen = chosen.to(self.inputs.device)
        return self.inputs[chosen], self.targets[chosen]

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Weighted mean-squared error of the model on a batch, a scalar."""
        inputs, targets = batch
        return self.loss_weight * F.mse_loss(model(inputs), targets)

    @torch.no_grad()
    def predict(self, model: nn.Module) -> Tensor:
        """The model's answer for every item, in float32 on the CPU, shape [items, outputs]."""
        device = next(model.parameters()).device
        # In batches, whose intermediate values stay in the processor's caches: twice as fast as all items at once.
        with devices.one_thread(device):
            return torch.cat([model(inputs).float().cpu() for inputs in self.inputs.to(device).split(self.batch_size)])

    def relative_error(self, model: nn.Module) -> float:
        """Mean-squared error over all items, divided by the variance of the targets: 1 is no better than the mean."""
        targets = self.targets.float().cpu()
        error = (self.predict(model) - targets).square().mean()
        return (error / (targets - targets.mean(0)).square().mean()).item()

    def picture(self, model: nn.Module | None = None) -> Tensor:
        """The model's picture, or the one to learn, clipped to [0, 1]: [rows, columns, outputs]."""
        values = self.targets.float().cpu() if model is None else self.predict(model)
        return values.clamp(0, 1).reshape(*self.shape, -1)

    def psnr(self, model: nn.Module) -> float:
        """Peak signal-to-noise ratio of the model's picture, in dB; more is better, NaN if the model gives NaN."""
        return self.psnr_of(self.picture(model))

    def psnr_of(self, picture: Tensor) -> float:
        """Peak signal-to-noise ratio of a picture as ``picture`` gives it."""
        error = (picture - self.picture()).square().mean().item()
        return -10 * math.log10(error) if error > 0 else (math.inf if error == 0 else math.nan)


def portrait(size: int = 64, loss_weight: float = 1.0) -> Problem:
    """Learn a portrait of Grace Hopper pixel by pixel; ``size`` is its height and width in pixels.

    The public-domain photograph ships inside matplotlib (``grace_hopper.jpg``); a square around her head and shoulders is
    used. At a loss weight of 1 every recipe learns it. A small weight pushes the gradients towards fp16's floor.
    """
    import numpy
    from matplotlib import cbook
    from PIL import Image

    _check_size(size)
    with cbook.get_sample_data("grace_hopper.jpg") as file:
        photograph = Image.open(file).convert("RGB")
    side = photograph.width
    square = photograph.crop((0, 0, side, side)).resize((size, size), Image.Resampling.LANCZOS)
    pixels = torch.from_numpy(numpy.asarray(square).copy()).float().div(255).reshape(-1, 3)  # [size * size, 3]
    return Problem(
        name="portrait",
        inputs=_grid(size, size),
        targets=pixels,
        make_model=lambda: CoordinateNetwork(outputs=3),
        batch_size=1024,
        learning_rate=5e-3,
        loss_weight=loss_weight,
        shape=(size, size),
    )


def millimetres(size: int = 64) -> Problem:
    """Learn the heights of a relief map a few centimetres tall, written in metres.

    The terrain is the Jacksboro fault elevation model that ships inside matplotlib, shrunk to a printed map: heights
    around 0 with a standard deviation of 10 mm, so the targets are numbers like 0.01. Nothing about the loss is unusual;
    small targets alone make gradients small.
    """
    from matplotlib import cbook

    _check_size(size)
    with cbook.get_sample_data("jacksboro_fault_dem.npz") as file:
        elevation = torch.from_numpy(file["elevation"].astype("float32"))
    heights = F.interpolate(elevation[None, None], (size, size), mode="area").reshape(-1, 1)
    heights = 0.01 * (heights - heights.mean()) / heights.std()  # metres
    return Problem(
        name="millimetres",
        inputs=_grid(size, size),
        targets=heights,
        make_model=lambda: CoordinateNetwork(outputs=1, sigma=4.0),
        batch_size=4096,
        learning_rate=2e-3,
        shape=(size, size),
    )


def _check_size(size: int) -> None:
    if size < 2:
        raise LessonError(f"size is {size}; a picture needs at least 2 pixels on each side.")


def _grid(rows: int, columns: int) -> Tensor:
    """Centres of the cells of a grid on [0, 1]², shape [rows * columns, 2]."""
    row = (torch.arange(rows) + 0.5) / rows
    column = (torch.arange(columns) + 0.5) / columns
    return torch.cartesian_prod(row, column)
