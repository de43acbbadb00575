"""Gradients of a model, read where they are: a recorder, and the share of gradients that a paired run has lost.

Under autocast a parameter's ``.grad`` is float32 but has been through fp16 on its way, so what was flushed is gone from it.
Three things must be kept apart: the forecast (a float32 run's histogram, shifted by a scale), the paired measurement
(``lost_share``), and zeros that were always zero, such as those of dead ReLUs.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from amp_lessons.counting import KEYS, count_into
from amp_lessons.errors import LessonError
from amp_lessons.histograms import ExponentHistogram


class GradientRecorder:
    """Counts the gradients of a model's parameters and, on request, of its layers' outputs.

    ``activations=True`` hooks every module without children. Their gradients are counted during backward as they pass,
    that is multiplied by the loss scale, while ``parameters()`` counts what ``.grad`` holds when it is called. Call
    ``close()`` to take the hooks off again.
    """

    def __init__(self, model: nn.Module, activations: bool = False) -> None:
        self._model = model
        self._table: Tensor | None = None
        self._handles = []
        if activations:
            leaves = [module for module in model.modules() if not any(module.children())]
            self._handles = [module.register_forward_hook(self._watch_output) for module in leaves]

    def _watch_output(self, module: nn.Module, inputs: tuple, output: object) -> None:
        for tensor in output if isinstance(output, (tuple, list)) else (output,):
            # A module that hands its input on (Identity, Dropout in eval mode) has no gradient of its own.
            if isinstance(tensor, Tensor) and tensor.requires_grad and not any(tensor is given for given in inputs):
                tensor.register_hook(self._count_activation)

    def _count_activation(self, grad: Tensor) -> None:
        if self._table is None:
            self._table = torch.zeros(KEYS, dtype=torch.int64, device=grad.device)
        count_into(self._table, grad)

    def parameters(self) -> ExponentHistogram:
        """Histogram of all parameter gradients now; parameters without one are left out."""
        return ExponentHistogram.of(*gradients_of(self._model))

    def take_activations(self) -> ExponentHistogram:
        """Histogram of the activation gradients since the last call, scaled as they passed; starts a new count."""
        table, self._table = self._table, None
        return ExponentHistogram(None if table is None else table.cpu())

    def close(self) -> None:
        """Take the hooks off the model."""
        for handle in self._handles:
            handle.remove()
        self._handles = []


def gradients_of(model: nn.Module) -> list[Tensor]:
    """The gradients that the model's parameters have now."""
    return [grad for parameter in model.parameters() if (grad := parameter.grad) is not None]


def lost_share(reference: Iterable[Tensor], measured: Iterable[Tensor]) -> float:
    """Share of the reference's non-zero values that are zero in the paired measurement: underflow, not dead ReLUs.

    Both are the gradients of the same parameters for the same weights and batch, the reference from a float32 run. This is
    the truth that a histogram alone can only forecast. Raises LessonError when the two do not pair up.
    """
    lost = alive = 0
    reference, measured = list(reference), list(measured)
    if len(reference) != len(measured):
        raise LessonError(f"Paired gradients must be as many on both sides, not {len(reference)} and {len(measured)}.")
    for expected, found in zip(reference, measured):
        if expected.shape != found.shape:
            raise LessonError(f"Paired gradients need equal shapes, not {tuple(expected.shape)} and {tuple(found.shape)}.")
        nonzero = expected != 0
        alive += nonzero.sum()
        lost += (nonzero & (found == 0)).sum()
    return float(lost) / max(int(alive), 1)
