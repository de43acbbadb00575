"""What happened in a training loop: events, gathered into iterations."""

from __future__ import annotations

import functools
import math
import runpy
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

_PACKAGE = str(Path(__file__).resolve().parents[1])
_TORCH = str(Path(torch.__file__).resolve().parent)
_LIBRARIES = str(Path(torch.__file__).resolve().parents[1])  # Lightning's or accelerate's line says less than the user's


@dataclass(slots=True)
class Event:
    """One thing that happened, with its facts.

    ``kind`` is one of: forward, region, scale, backward, penalty, unscale, clip, changed, scaler-step, step, update,
    zero-grad, scheduler, save, scaler, op, input, histogram, landed. ``where`` is the line of the user's own file. The rules say
    which facts they read.
    """

    kind: str
    where: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.facts[name]
        except KeyError:
            raise AttributeError(f"a {self.kind} event has no fact {name!r}") from None

    def get(self, name: str, default: Any = None) -> Any:
        """A fact, or a default where this event does not have it."""
        return self.facts.get(name, default)


@dataclass(slots=True)
class Iteration:
    """The events from one forward pass up to the next one after an optimizer step; ``number`` counts from 0."""

    number: int
    events: list[Event] = field(default_factory=list)

    def of(self, *kinds: str) -> list[Event]:
        """The events of these kinds, in order."""
        return [event for event in self.events if event.kind in kinds]

    def first(self, kind: str, **facts: Any) -> Event | None:
        """The first event of a kind whose facts have these values."""
        return next(self.all(kind, **facts), None)

    def all(self, kind: str, **facts: Any) -> Iterator[Event]:
        """All events of a kind whose facts have these values."""
        for event in self.events:
            if event.kind == kind and all(event.facts.get(name) == value for name, value in facts.items()):
                yield event

    def resolve(self) -> None:
        """Read the numbers that were left on a device; done once, when the iteration is over."""
        for event in self.events:
            for name, value in event.facts.items():
                if isinstance(value, torch.Tensor):
                    event.facts[name] = value.item()

    @property
    def signature(self) -> tuple:
        """What kind of iteration it is: equal signatures mean that the same things happened in the same order."""
        return tuple((event.kind, *(_kind_of(fact) for fact in event.facts.values())) for event in self.events)


def _kind_of(fact: Any) -> Any:
    """A fact without its exact number: loops differ in numbers every time, in kind only when something happens."""
    if type(fact) is float:
        return "non-finite" if not math.isfinite(fact) else (fact > 0, fact >= 1, fact == 1)
    return fact if type(fact) in (bool, str, tuple) else None


def dtype_name(dtype: torch.dtype) -> str:
    """A dtype's name without the "torch." in front."""
    return str(dtype).removeprefix("torch.")


def later(value: torch.Tensor) -> float | torch.Tensor:
    """A scalar's value now if that costs no waiting, else a copy to read when the iteration is over."""
    return value.item() if value.device.type == "cpu" else value.detach().clone()


def user_lines(most: int = 1) -> list[str]:
    """File and line of the innermost frames that are neither PyTorch's nor this package's, the user's own if there are any."""
    frame, found, library = sys._getframe(1), [], ""
    while frame is not None and len(found) < most:
        kind, short = _file(frame.f_code.co_filename)
        if kind == "user":
            found.append(f"{short}, line {frame.f_lineno}")
        elif kind == "library" and not library:
            library = f"{short}, line {frame.f_lineno}"
        frame = frame.f_back
    return found or [library]


@functools.lru_cache(maxsize=1024)
def _file(name: str) -> tuple[str, str]:
    """Whose file it is, and its name as it is shown."""
    if name.startswith((_PACKAGE, _TORCH, "<frozen")) or name in (runpy.__file__, threading.__file__):
        return "ours", ""
    # A notebook cell has a temporary file's name, which says nothing.
    short = "the cell" if "ipykernel" in name or name.startswith("<") else Path(name).name
    return ("library" if name.startswith(_LIBRARIES) else "user"), short
