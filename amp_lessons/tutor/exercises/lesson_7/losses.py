"""Steps that begin with a loss: the forward pass is given, and the learner's part is everything after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F

from amp_lessons.tutor import loops

AfterLoss = Callable[..., Any]


def mistake(tried: AfterLoss, right: AfterLoss, variants: Mapping[str, AfterLoss], **loop: Any) -> str | None:
    """What ``loops.mistake`` says of functions that are called as ``tried(parameters, optimizer, scaler, loss)``."""
    known = {name: step(variant) for name, variant in variants.items()}
    return loops.mistake(step(tried), step(right), variants=known, **loop)


def step(after_loss: AfterLoss) -> loops.Step:
    """A whole step for ``loops``: a forward pass under fp16 autocast, mean-squared error, and then ``after_loss``."""

    def whole(model, optimizer, scaler, inputs, targets):
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.mse_loss(model(inputs), targets)
        after_loss(list(model.parameters()), optimizer, scaler, loss)

    return whole
