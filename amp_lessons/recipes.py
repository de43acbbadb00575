"""How a training step is computed: FP32, fp16 autocast without a scaler, AMP (autocast + GradScaler) and BF16.

One step function serves all four, since ``enabled=`` switches autocast and the scaler off without a branch in the loop.
Source: PyTorch, "Automatic Mixed Precision examples" (docs, notes/amp_examples).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

from amp_lessons.errors import LessonError


@dataclass(frozen=True)
class Recipe:
    """Which dtype autocast uses (None: no autocast) and whether a GradScaler works."""

    name: str
    label: str
    autocast_dtype: torch.dtype | None
    uses_scaler: bool

    def autocast(self, device: torch.device) -> torch.autocast:
        """The autocast region of a step on this device."""
        return torch.autocast(device.type, dtype=self.autocast_dtype, enabled=self.autocast_dtype is not None)


FP32 = Recipe("fp32", "FP32", autocast_dtype=None, uses_scaler=False)
FP16 = Recipe("fp16", "fp16 autocast, no scaler", autocast_dtype=torch.float16, uses_scaler=False)
AMP = Recipe("amp", "AMP: fp16 autocast + GradScaler", autocast_dtype=torch.float16, uses_scaler=True)
BF16 = Recipe("bf16", "BF16 autocast", autocast_dtype=torch.bfloat16, uses_scaler=False)

RECIPES = (FP32, FP16, AMP, BF16)


@dataclass(frozen=True)
class ScalerOptions:
    """The four numbers of a GradScaler, with PyTorch's defaults.

    Raises LessonError for numbers with which the scaler could not work.
    """

    init_scale: float = 2.0**16
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000

    def __post_init__(self) -> None:
        if not 1 <= self.init_scale <= torch.finfo(torch.float32).max:
            raise LessonError(
                f"init_scale is {self.init_scale}; start at 1 or more and stay within float32 (PyTorch starts at 65536), since "
                "scales under 1 make small gradients smaller and a scale of 0 writes NaN into the weights."
            )
        if not (math.isfinite(self.growth_factor) and self.growth_factor > 1):
            raise LessonError(f"growth_factor is {self.growth_factor}; it must be above 1, and is usually 2.")
        if not 0 < self.backoff_factor < 1:
            raise LessonError(f"backoff_factor is {self.backoff_factor}; it must lie between 0 and 1, and is usually 0.5.")
        if not (math.isfinite(self.growth_interval) and self.growth_interval >= 1 and self.growth_interval % 1 == 0):
            raise LessonError(f"growth_interval is {self.growth_interval}; it counts steps, so give a whole number from 1 up.")

    def make(self, device: torch.device, enabled: bool) -> torch.amp.GradScaler:
        """A GradScaler with these numbers for the device."""
        options = asdict(self)
        # The scaler computes in float32 but says its first scale as given; rounded now, it does not seem to move by itself.
        options["init_scale"] = torch.tensor(self.init_scale, dtype=torch.float32).item()
        options["growth_interval"] = int(self.growth_interval)
        return torch.amp.GradScaler(device.type, enabled=enabled, **options)


def scale_text(scale: float) -> str:
    """A loss scale in plain text: as a power of two where it is one, like 2^16, else in four digits."""
    mantissa, exponent = math.frexp(scale)
    return f"2^{exponent - 1}" if mantissa == 0.5 else f"{scale:.4g}"


def training_step(
    model: nn.Module,
    loss_of: Callable[[], Tensor],
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    autocast: torch.autocast,
    max_norm: float | None = None,
    on_gradients: Callable[[], None] | None = None,
) -> Tensor:
    """One training step; gives the detached loss, a scalar tensor.

    ``loss_of()`` runs the forward pass and gives the loss. ``on_gradients()`` is called once the gradients are unscaled and
    before they are clipped to ``max_norm``, which is where a recorder has to look.
    """
    with autocast:
        loss = loss_of()
    scaler.scale(loss).backward()  # outside: backward ops take the dtypes that forward chose
    scaler.unscale_(optimizer)
    if on_gradients is not None:
        on_gradients()
    if max_norm is not None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    return loss.detach()
