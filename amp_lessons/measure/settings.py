"""What is compared: the course's recipes, and TF32, which is a switch and not a recipe."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from amp_lessons.measure.tf32 import float32_products
from amp_lessons.recipes import AMP, BF16, FP16, FP32, Recipe


@dataclass(frozen=True)
class Setting:
    """A recipe, and whether float32 products may use TF32; ``name`` is how results and figures call it."""

    name: str
    label: str
    recipe: Recipe
    tf32: bool = False

    def around(self) -> AbstractContextManager:
        """A context with TF32 as this setting says."""
        return float32_products(self.tf32)


SETTINGS = (
    Setting("fp32", FP32.label, FP32),
    Setting("tf32", "FP32 with TF32 products", FP32, tf32=True),
    Setting("fp16", FP16.label, FP16),
    Setting("amp", AMP.label, AMP),
    Setting("bf16", BF16.label, BF16),
)


def settings_for(device: torch.device, without_scaler: bool = False) -> tuple[Setting, ...]:
    """The settings that mean something on this device; ``without_scaler`` adds fp16 autocast alone.

    TF32 needs a GPU of compute capability 8.0 (Ampere), and so do matrix units that read bf16. A CPU has bf16 in any case,
    with or without instructions for it.
    """
    ampere = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
    left_out = {"fp16"} - ({"fp16"} if without_scaler else set())
    if not ampere:
        left_out |= {"tf32"} if device.type == "cpu" else {"tf32", "bf16"}
    return tuple(setting for setting in SETTINGS if setting.name not in left_out)
