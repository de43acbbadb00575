"""The table of ops under CPU and CUDA autocast, side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from html import escape

import torch

from amp_lessons.autocast_ops.catalogue import EXAMPLES, FAMILIES
from amp_lessons.autocast_ops.dispatch import Answer, name_of, op_dtype
from amp_lessons.errors import LessonError

LEFT = 'style="text-align: left"'  # JupyterLab sets cells to the right, as numbers want it; these are words
COLUMNS = ("op", "dtypes in", "CPU autocast", "CUDA autocast", "CPU and CUDA")


@dataclass(frozen=True)
class Row:
    """One op: the dtypes that go in, and what comes out under CPU and under CUDA autocast."""

    family: str
    op: str
    inputs: tuple[torch.dtype, ...]
    cpu: Answer
    cuda: Answer

    @property
    def differ(self) -> bool:
        """Whether the two devices answer differently."""
        return self.cpu.short != self.cuda.short

    def cells(self) -> tuple[str, ...]:
        """The row as text, in the order of COLUMNS."""
        inputs = ", ".join(map(name_of, self.inputs))
        return self.op, inputs, self.cpu.short, self.cuda.short, "differ" if self.differ else "same"


@dataclass(frozen=True)
class OpTable:
    """Rows for many ops, in the catalogue's order; prints as plain text and shows as an HTML table in a notebook."""

    rows: tuple[Row, ...]
    autocast_dtype: torch.dtype

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, op: str) -> Row:
        """The row of one op by its name in the table, such as 'torch.softmax'; LessonError if there is none."""
        for row in self.rows:
            if row.op == op:
                return row
        raise LessonError(f"The table has no op {op!r}; it has: {', '.join(row.op for row in self.rows)}.")

    def family(self, *names: str) -> OpTable:
        """Only the rows of these families; LessonError for a family that the catalogue does not have."""
        for name in names:
            if name not in FAMILIES:
                raise LessonError(f"There is no family {name!r}; the families are: {', '.join(FAMILIES)}.")
        return replace(self, rows=tuple(row for row in self.rows if row.family in names))

    def differing(self) -> OpTable:
        """Only the rows where the CPU and CUDA answer differently."""
        return replace(self, rows=tuple(row for row in self.rows if row.differ))

    @property
    def title(self) -> str:
        return f"What comes out of each op under autocast with {name_of(self.autocast_dtype)}"

    @property
    def notes(self) -> tuple[str, ...]:
        """For each error its first sentence, and for each op without an answer the reason."""
        answers = [(row.op, device, answer) for row in self.rows for device, answer in _answers(row)]
        return tuple(f"{op} on {device}: {str(answer).splitlines()[0]}" for op, device, answer in answers)

    def text(self) -> str:
        """The table in plain text, aligned, the families as lines of their own."""
        rows = [COLUMNS, *(row.cells() for row in self.rows)]
        widths = [max(len(row[k]) for row in rows) for k in range(len(COLUMNS))]
        lines, family = [self.title, _line(COLUMNS, widths), _line(["-" * width for width in widths], widths)], ""
        for row in self.rows:
            if row.family != family:
                family = row.family
                lines.append(f"[{family}]")
            lines.append(_line(row.cells(), widths))
        return "\n".join([*lines, *self.notes])

    def html(self) -> str:
        """The table in HTML: a caption, header cells with a scope, one body a family; a difference is said in words."""
        head = "".join(f'<th scope="col" {LEFT}>{escape(name)}</th>' for name in COLUMNS)
        bodies, family = [], ""
        for row in self.rows:
            if row.family != family:
                family = row.family
                bodies.append(f'<tr><th scope="rowgroup" colspan="{len(COLUMNS)}" {LEFT}>{escape(family)}</th></tr>')
            op, *cells = map(escape, row.cells())
            if row.differ:
                cells[-1] = f"<strong>{cells[-1]}</strong>"
            data = "".join(f"<td {LEFT}>{cell}</td>" for cell in cells)
            bodies[-1] += f'<tr><th scope="row" {LEFT}><code>{op}</code></th>{data}</tr>'
        body = "".join(f"<tbody>{rows}</tbody>" for rows in bodies)
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return f"<table><caption>{escape(self.title)}</caption><thead><tr>{head}</tr></thead>{body}</table>{notes}"

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.html()


def op_table(autocast_dtype: torch.dtype = torch.float16, inputs: torch.dtype | None = None) -> OpTable:
    """Ask for every op of the catalogue: the CPU by really running it, CUDA through its dispatcher, with no GPU.

    Where a lower-precision input is meant it has ``autocast_dtype``; ``inputs`` is a dtype for all float32 and
    lower-precision inputs instead. The rows are the same on every machine, one with a GPU included, because the CUDA
    answers never come from a GPU.
    """
    dtypes = {torch.float16: inputs or autocast_dtype, torch.float32: inputs or torch.float32}
    rows = []
    for example in EXAMPLES:
        tensors = [t.to(dtypes.get(t.dtype, t.dtype)) for t in example.tensors()]
        cpu, cuda = (
            op_dtype(example.call, *tensors, device_type=device, autocast_dtype=autocast_dtype) for device in ("cpu", "cuda")
        )
        rows.append(Row(example.family, example.name, tuple(tensor.dtype for tensor in tensors), cpu, cuda))
    return OpTable(tuple(rows), autocast_dtype)


def _answers(row: Row) -> list[tuple[str, Answer]]:
    return [(name, a) for name, a in (("CPU", row.cpu), ("CUDA", row.cuda)) if a.error or a.reason]


def _line(cells: list[str] | tuple[str, ...], widths: list[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths)).rstrip()
