"""The scalers of a loop: a number for each, and how many an optimizer has been stepped by."""

from __future__ import annotations

import weakref
from typing import Any


class Scalers:
    """Knows scalers without keeping them alive."""

    def __init__(self) -> None:
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._next = 0
        self._last: weakref.WeakKeyDictionary[Any, tuple[weakref.ref, int]] = weakref.WeakKeyDictionary()

    def number(self, scaler: Any) -> int:
        """A number of its own for each scaler, in the order they were first seen."""
        if scaler not in self._numbers:
            self._numbers[scaler] = self._next
            self._next += 1
        return self._numbers[scaler]

    def used_by(self, optimizer: Any, scaler: Any) -> int:
        """How many scalers this optimizer has been stepped by one after the other, this one included."""
        last, count = self._last.get(optimizer, (None, 0))
        if last is None or last() is not scaler:
            count += 1
            self._last[optimizer] = (weakref.ref(scaler), count)
        return count
