"""TF32 said aloud: whether float32 products on CUDA may round their inputs to TF32's 10 mantissa bits.

PyTorch's defaults differ by kind of layer (matrix products: no, cuDNN convolutions: yes) and have changed with its
versions, so a measurement that does not set them says little. Source: PyTorch docs, notes/cuda, "TensorFloat-32".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def float32_products(tf32: bool) -> Iterator[None]:
    """Allow or forbid TF32 for matrix products and convolutions on CUDA; puts the old setting back in any case."""
    before = tf32_state()
    try:
        _set({name: ("tf32" if tf32 else "ieee") if _NEW else tf32 for name in before})
        yield
    finally:
        _set(before)


def tf32_state() -> dict[str, Any]:
    """The settings in force now, by name: for provenance, and to put back."""
    return {name: getattr(owner, attribute) for name, (owner, attribute) in _switches().items()}


# From 2.9 on there are new switches, and PyTorch raises where old and new ones disagree; so only one kind is touched.
_NEW = hasattr(torch.backends.cuda.matmul, "fp32_precision")


def _switches() -> dict[str, tuple[Any, str]]:
    if _NEW:
        return {
            "torch.backends.cuda.matmul.fp32_precision": (torch.backends.cuda.matmul, "fp32_precision"),
            "torch.backends.cudnn.conv.fp32_precision": (torch.backends.cudnn.conv, "fp32_precision"),
        }
    return {
        "torch.backends.cuda.matmul.allow_tf32": (torch.backends.cuda.matmul, "allow_tf32"),
        "torch.backends.cudnn.allow_tf32": (torch.backends.cudnn, "allow_tf32"),
    }


def _set(values: dict[str, Any]) -> None:
    for name, (owner, attribute) in _switches().items():
        setattr(owner, attribute, values[name])
