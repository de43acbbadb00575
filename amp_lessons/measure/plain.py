"""Results as plain values that JSON can hold, and back."""

from __future__ import annotations

import types
from dataclasses import asdict, fields, is_dataclass
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def to_plain(result: Any) -> Any:
    """A frozen result, or a tuple or list of them, as dicts, lists, text and numbers."""
    if is_dataclass(result):
        return {name: to_plain(value) for name, value in asdict(result).items()}
    if isinstance(result, (tuple, list)):
        return [to_plain(item) for item in result]
    return result


def from_plain(kind: type[T], data: Any) -> T:
    """The result of this class that ``to_plain`` gave ``data`` for; raises KeyError or TypeError where they do not fit."""
    hints = get_type_hints(kind)
    unknown = set(data) - {field.name for field in fields(kind)}
    if unknown:
        raise TypeError(f"{kind.__name__} has no {', '.join(sorted(unknown))}")
    return kind(**{field.name: _value(hints[field.name], data[field.name]) for field in fields(kind)})


def _value(hint: Any, data: Any) -> Any:
    if data is None:
        return None
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = [part for part in get_args(hint) if part is not type(None)]
    if get_origin(hint) is tuple:
        return tuple(_value(get_args(hint)[0], item) for item in data)
    return from_plain(hint, data) if is_dataclass(hint) else data
