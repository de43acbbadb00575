"""Measured quantities as short text, and labels kept apart."""

from __future__ import annotations

import math
from collections.abc import Sequence


def seconds_text(seconds: float) -> str:
    """Three digits with a fitting unit: 310 µs, 4.89 ms, 1.2 s."""
    return _with_unit(seconds, (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)))


def bytes_text(count: float) -> str:
    """Three digits with a decimal unit: 393 kB, 1.05 MB."""
    return _with_unit(count, (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0)))


def rate_text(per_second: float, unit: str = "FLOP/s") -> str:
    """Three digits with a decimal unit: 152 GFLOP/s, or with unit="B/s" 13.5 GB/s."""
    return _with_unit(per_second, ((f"T{unit}", 1e12), (f"G{unit}", 1e9), (f"M{unit}", 1e6), (unit, 1.0)))


def ratio_text(ratio: float) -> str:
    """A ratio for a label: 0.62×, 12×."""
    return f"{digits(ratio)}×"


def digits(value: float) -> str:
    """Three significant digits, never in powers of ten."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def spread(places: Sequence[float], gap: float) -> list[float]:
    """The places moved up just so far that all lie at least ``gap`` apart; their order stays."""
    moved = [0.0] * len(places)
    previous = -math.inf
    for at in sorted(range(len(places)), key=lambda i: places[i]):
        previous = moved[at] = max(places[at], previous + gap)
    return moved


def _with_unit(value: float, units: Sequence[tuple[str, float]]) -> str:
    for unit, size in units:
        if abs(value) >= size or (unit, size) == units[-1]:
            return f"{digits(value / size)} {unit}"
    raise AssertionError  # the last unit takes everything
