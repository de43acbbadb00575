"""What an answer gave: whether it is of the kind that was asked for, in words where it is not."""

from __future__ import annotations

from reprlib import repr as short
from typing import Any

import numpy
import torch

NOTHING = "It returns nothing: is the `return` missing?"


def not_a_number(given: Any, returned: bool = True) -> str | None:
    """What is wrong with an answer that should be one number; None where ``float(given)`` will do.

    A tensor of one value passes. ``returned`` is False for an answer that is a value, and not what a function returned.
    """
    if given is None and returned:
        return NOTHING
    if isinstance(given, torch.Tensor) and given.numel() != 1:
        return f"{_it(returned)} a tensor of shape {list(given.shape)}; one number is asked for."
    number = not isinstance(given, (bool, str))
    try:
        float(given)
    except (TypeError, ValueError):
        number = False
    return None if number else f"{_it(returned)} `{short(given)}`, of type {type(given).__name__}; one number is asked for."


def not_a_tensor(given: Any, shape: torch.Size, dtype: torch.dtype) -> str | None:
    """What is wrong with a returned tensor's kind, shape or dtype, or None."""
    if given is None:
        return NOTHING
    if not isinstance(given, torch.Tensor):
        return f"It returns `{short(given)}`, of type {type(given).__name__}; a tensor is asked for."
    if given.shape != shape:
        return f"It returns a tensor of shape {list(given.shape)}; it should be {list(shape)}."
    if given.dtype != dtype:
        return f"It returns {str(given.dtype).removeprefix('torch.')}; it should be {str(dtype).removeprefix('torch.')}."
    return None


def not_a_flag(given: Any) -> str | None:
    """What is wrong with a returned value that should be True or False, or None; a tensor or array of one of them passes."""
    if given is None:
        return NOTHING
    value = torch.as_tensor(given) if isinstance(given, (numpy.ndarray, numpy.generic)) else given
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()
    return None if isinstance(value, bool) else f"It returns `{short(given)}`, of type {type(given).__name__}; True or False is asked for."


def _it(returned: bool) -> str:
    return "It returns" if returned else "The answer is"
