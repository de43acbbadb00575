"""Lesson 3's first explorer: a family of ops, and what each gives under CPU and under CUDA autocast."""

from __future__ import annotations

import torch

from amp_lessons.autocast_ops import OpTable, Row, op_table
from amp_lessons.figures.dtype_grid import DtypeGrid
from amp_lessons.widgets.controls import choice
from amp_lessons.widgets.explorer import Explorer


class OpExplorer(Explorer):
    """Buttons for a family of ops and for the dtype that goes in, over a grid of what comes out.

    All answers are asked for once, when the explorer is made.
    """

    def __init__(self, autocast_dtype: torch.dtype = torch.float16) -> None:
        as_usual = op_table(autocast_dtype)
        self.tables: dict[str, OpTable] = {
            "as in a model": as_usual,
            "all float32": op_table(autocast_dtype, inputs=torch.float32),
            f"all {_name(autocast_dtype)}": op_table(autocast_dtype, inputs=autocast_dtype),
        }
        families = list(dict.fromkeys(row.family for row in as_usual))
        self.family = choice("ops", [(name, name) for name in families], "exponentials")
        self.inputs = choice("inputs", [(name, name) for name in self.tables], "as in a model")
        super().__init__([self.family, self.inputs], DtypeGrid())

    def redraw(self) -> str:
        rows = list(self.tables[self.inputs.value].family(self.family.value))
        self.picture.show(
            [(row.op, _inputs(row), row.cpu.short, row.cuda.short, "differ" if row.differ else "") for row in rows]
        )
        said = [f"{row.op}, {_inputs(row)} in: {_outcome(row)}." for row in rows]
        return "\n".join([f"{self.family.value.capitalize()}, inputs {self.inputs.value}:", *said])


def _outcome(row: Row) -> str:
    if row.differ:
        return f"{row.cpu.short} on the CPU, {row.cuda.short} on CUDA"
    return f"{row.cpu.short} on both"


def _inputs(row: Row) -> str:
    """The dtypes that go in, each kind once."""
    return ", ".join(dict.fromkeys(map(_name, row.inputs)))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
