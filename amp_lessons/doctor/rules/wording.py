"""How numbers and places are written in findings."""

from __future__ import annotations

from amp_lessons.doctor.events import Event
from amp_lessons.recipes import scale_text


def number(value: float | None) -> str:
    """A measured value in up to four significant digits."""
    if value is None:
        return "unknown"
    return f"{value:.4g}"


def scale(value: float | None) -> str:
    """A loss scale, as a power of two where it is one."""
    return "unknown" if value is None else scale_text(value)


def at(event: Event) -> str:
    """Where in the user's code it was, ready to stand after a statement."""
    return f" ({event.where})" if event.where else ""
