"""How numbers and places are written in findings."""

from __future__ import annotations

import math

from amp_lessons.doctor.events import Event


def number(value: float | None) -> str:
    """A measured value in up to four significant digits."""
    if value is None:
        return "unknown"
    return f"{value:.4g}"


def scale(value: float | None) -> str:
    """A loss scale, as a power of two where it is one."""
    if value is None or value <= 0 or not math.isfinite(value):
        return number(value)
    mantissa, exponent = math.frexp(value)
    return f"2^{exponent - 1}" if mantissa == 0.5 else number(value)


def at(event: Event) -> str:
    """Where in the user's code it was, ready to stand after a statement."""
    return f" ({event.where})" if event.where else ""
