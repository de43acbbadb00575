"""Which device runs the loops, what can be measured there, and one line that says so."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from amp_lessons.errors import LessonError


def pick(device: str | torch.device | None = None) -> torch.device:
    """The device to train on: the one asked for, else CUDA where there is one, else the CPU.

    Raises LessonError for a device that this machine or this build of PyTorch does not have.
    """
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError):
        raise LessonError(f"{device!r} is not a device name; use 'cpu', 'cuda' or 'cuda:1'.") from None
    if chosen.type == "cuda":
        if not torch.cuda.is_available():
            raise LessonError("There is no CUDA device here; leave device out and the same loop runs on the CPU.")
        count = torch.cuda.device_count()
        if chosen.index is not None and chosen.index >= count:
            raise LessonError(f"There is no {chosen}: this machine has {count} CUDA device(s), numbered from 0.")
    elif chosen.type != "cpu":
        raise LessonError(f"The course's loops run on 'cpu' or 'cuda', not on {chosen.type!r}.")
    return chosen


def describe(device: str | torch.device | None = None) -> str:
    """One line on the device: its name, its memory if it has its own, and the PyTorch version."""
    chosen = pick(device)
    version = f"PyTorch {torch.__version__}"
    if chosen.type == "cuda":
        properties = torch.cuda.get_device_properties(chosen)
        memory = properties.total_memory / 2**30
        return f"{properties.name} ({memory:.0f} GiB, compute capability {properties.major}.{properties.minor}), {version}"
    return f"CPU ({platform.machine()}, {torch.backends.cpu.get_cpu_capability()}), {version}"


@contextmanager
def one_thread(device: torch.device) -> Iterator[None]:
    """Run small CPU work on one thread, then put the thread count back; does nothing on other devices.

    The lessons' matrices are so small that handing work between threads costs more than the work. It also makes a run
    repeatable: sums are added in one order.
    """
    if device.type != "cpu":
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
