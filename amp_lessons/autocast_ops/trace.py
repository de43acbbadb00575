"""A model's ops one by one under autocast: which dtypes go in, and which come out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from amp_lessons.autocast_ops.dispatch import check_question, name_of, quiet
from amp_lessons.autocast_ops.record import Step, Stop, module_paths
from amp_lessons.autocast_ops.standins import stand_ins
from amp_lessons.autocast_ops.table import LEFT
from amp_lessons.errors import LessonError

COLUMNS = ("module", "op", "dtypes in", "dtype out")


@dataclass(frozen=True)
class Trace:
    """The steps of one forward pass under autocast, in the order they run.

    ``measured`` is True for a real run (``measure``), False for the dispatcher's word on fake tensors (``trace``).
    """

    steps: tuple[Step, ...]
    device_type: str
    autocast_dtype: torch.dtype
    measured: bool = False

    def of(self, op: str) -> tuple[Step, ...]:
        """The steps of one op, named as ATen names it: 'linear', 'softmax', 'cross_entropy_loss'."""
        return tuple(step for step in self.steps if step.op == op)

    def rows(self, moves: bool = False) -> list[tuple[str, str, str, str]]:
        """Module, op, dtypes in and dtype out of each step; views and reshapes only if ``moves`` is True."""
        return [
            (step.module or "(model)", step.op, ", ".join(map(name_of, step.inputs)), step.answer.short)
            for step in self.steps
            if moves or not step.moves_only
        ]

    @property
    def notes(self) -> tuple[str, ...]:
        """What PyTorch first says where a step raises, and the reason where it cannot answer, once each."""
        told = (f"{s.op}: {str(s.answer).splitlines()[0]}" for s in self.steps if s.answer.error or s.answer.reason)
        return tuple(dict.fromkeys(told))

    @property
    def title(self) -> str:
        how = "a real run" if self.measured else "PyTorch's dispatcher"
        return f"{self.device_type} autocast, {name_of(self.autocast_dtype)}, from {how}"

    def text(self, moves: bool = False) -> str:
        """The steps as an aligned plain-text table."""
        rows = [COLUMNS, *self.rows(moves)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
        return "\n".join([self.title, lines[0], "  ".join("-" * width for width in widths), *lines[1:], *self.notes])

    def html(self, moves: bool = False) -> str:
        """The steps as an HTML table with a caption and header cells."""
        head = "".join(f'<th scope="col" {LEFT}>{name}</th>' for name in COLUMNS)
        body = "".join(
            f'<tr><td {LEFT}>{escape(module)}</td><th scope="row" {LEFT}>{escape(op)}</th>'
            f"<td {LEFT}>{escape(into)}</td><td {LEFT}>{escape(out)}</td></tr>"
            for module, op, into, out in self.rows(moves)
        )
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        table = f"<table><caption>{escape(self.title)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return table + notes

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.html()


def trace(
    model: nn.Module,
    *inputs: Any,
    device_type: str = "cuda",
    autocast_dtype: torch.dtype = torch.float16,
) -> Trace:
    """What each op of ``model(*inputs)`` would give inside torch.autocast(device_type, dtype=autocast_dtype).

    The model's code runs on stand-ins for its parameters and inputs, and each op it calls is put to the dispatcher: a
    CUDA trace needs no GPU, and nothing is computed. The model, the random numbers and autocast's state are left as
    found. The steps end at the first op that raises or that PyTorch cannot answer for. Whether a kernel exists for a
    dtype is not asked: ``measure`` really runs the model, and ``differences`` holds the two against each other. Raises
    LessonError for a model whose code goes by a tensor's value.

    >>> [str(step) for step in trace(nn.Linear(8, 8), torch.ones(2, 8)).steps]
    ['linear(float32, float32, float32) -> float16']
    """
    check_model(model, inputs)
    check_question(device_type, autocast_dtype)
    steps: list[Step] = []
    with quiet(), torch.random.fork_rng(devices=[]), module_paths(model) as path:
        tensors = dict(model.named_parameters()) | dict(model.named_buffers())
        with ended_by_an_op(), stand_ins((tensors, inputs), steps, path, device_type, autocast_dtype) as fakes:
            torch.func.functional_call(model, fakes[0], fakes[1])
    return Trace(tuple(steps), device_type, autocast_dtype)


@contextmanager
def ended_by_an_op() -> Iterator[None]:
    """Let a forward pass end early at a recorded op; say in one sentence if the model's own code fails."""
    try:
        yield
    except Stop:
        pass  # the last step says why
    except LessonError:
        raise
    except Exception as error:
        text = str(error).strip() or type(error).__name__
        first = re.split(r"\.\s|\n", text)[0].rstrip(".")
        raise LessonError(f"The model does not run on these inputs: {first}.") from None


def check_model(model: nn.Module, inputs: Iterable[Any]) -> None:
    """Raise LessonError unless this is a module with at least one tensor to run it on."""
    if not isinstance(model, nn.Module):
        raise LessonError(f"The model must be a torch.nn.Module, not {type(model).__name__}; for one op use op_dtype.")
    if not any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(tuple(inputs))):
        raise LessonError("Give the model's inputs after the model, as in trace(model, x).")
