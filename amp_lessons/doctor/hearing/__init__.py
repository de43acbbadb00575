"""What the observer makes of each call it hears: one small function a call, gathered in a table."""

from __future__ import annotations

from collections.abc import Callable

HANDLERS: dict[tuple[str, str], Callable] = {}


def heard(phase: str, call: str) -> Callable[[Callable], Callable]:
    """Register a handler for "before", "after" or "failed" of a call, by the names in ``patches``."""

    def register(handler: Callable) -> Callable:
        HANDLERS[phase, call] = handler
        return handler

    return register


from amp_lessons.doctor.hearing import gradients, losses, optimizer, scaler  # noqa: E402, F401 - they fill the table
