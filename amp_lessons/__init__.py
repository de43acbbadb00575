"""Mixed precision in PyTorch, to be seen: the package under the course's notebooks.

Everything is imported from its own module; only ``watch``, the doctor's entrance, is offered here as well.
"""

from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Only when asked for: importing the package alone costs nothing.
    if name == "watch":
        from amp_lessons.doctor import watch

        return watch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
