"""Answers as source code: run into values, and compared as code."""

from __future__ import annotations

import dis
import linecache
from types import CodeType, FunctionType


def run(source: str, name: str, setup: str = "") -> dict[str, object]:
    """The names that the source defines when it is run after ``setup``; ``name`` stands in tracebacks, with the lines."""
    namespace: dict[str, object] = {"__name__": name}
    exec(setup, namespace)
    # Like a notebook's cell: a traceback can show the line.
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec"), namespace)
    return namespace


def commented(source: str) -> str:
    """The text of the comment lines of a source."""
    return "\n".join(line.lstrip("#").removeprefix(" ") for line in source.splitlines() if line.startswith("#"))


def same_code(one: FunctionType, other: FunctionType) -> bool:
    """Whether two functions do the same, instruction by instruction; their names, docstrings and places do not count."""
    return _essence(one.__code__) == _essence(other.__code__)


def _essence(code: CodeType) -> list[tuple]:
    # By value: where a constant stands among the others depends on whether there is a docstring.
    return [
        (step.opname, _essence(step.argval) if isinstance(step.argval, CodeType) else (type(step.argval).__name__, repr(step.argval)))
        for step in dis.get_instructions(code)
    ]
