"""Answers as source code: run into values, and compared as code."""

from __future__ import annotations

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
    return _essence(one.__code__, one.__doc__) == _essence(other.__code__, other.__doc__)


def _essence(code: CodeType, doc: str | None = None) -> tuple:
    constants = [
        _essence(value) if isinstance(value, CodeType) else (type(value).__name__, repr(value))
        for value in code.co_consts
        if value is None or value != doc
    ]
    # Python keeps a None among the constants in some versions only where there is no docstring.
    constants = [constant for constant in constants if constant != ("NoneType", "None")]
    return code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars
