"""The global settings that a learner's code can change: kept, set to PyTorch's defaults for a check, and put back."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy
import torch

_DEVICES = ("cpu", "cuda")


@contextmanager
def kept(seed: int = 0) -> Iterator[None]:
    """Run the block with PyTorch's defaults, one thread and a fixed seed; afterwards everything global is as it was.

    Covers the random states of Python, NumPy and torch (the GPUs' too, once CUDA is in use), autocast, grad mode, default
    dtype and device, threads, deterministic algorithms, anomaly detection and TF32.
    """
    randomness = (random.getstate(), numpy.random.get_state())
    # Asking for the GPUs' random states would start CUDA.
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    before = _read()
    try:
        with torch.random.fork_rng(devices=list(gpus)):
            _write({**before, **_DEFAULTS})
            torch.random.default_generator.manual_seed(seed)
            random.seed(seed)
            numpy.random.seed(seed)
            yield
    finally:
        _write(before)
        random.setstate(randomness[0])
        numpy.random.set_state(randomness[1])


def _read() -> dict[str, object]:
    deterministic = torch.are_deterministic_algorithms_enabled()
    return {
        "autocast": {name: (torch.is_autocast_enabled(name), torch.get_autocast_dtype(name)) for name in _DEVICES},
        "autocast cache": torch.is_autocast_cache_enabled(),
        "autocast depth": _depth(),
        "grad": torch.is_grad_enabled(),
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "threads": torch.get_num_threads(),
        "deterministic": (deterministic, torch.is_deterministic_algorithms_warn_only_enabled()),
        "anomaly": (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        "matmul": torch.get_float32_matmul_precision(),
    }


_DEFAULTS: dict[str, object] = {
    "autocast": {"cpu": (False, torch.bfloat16), "cuda": (False, torch.float16)},
    "autocast cache": True,
    "autocast depth": 0,
    "grad": True,
    "dtype": torch.float32,
    "device": torch.device("cpu"),
    "threads": 1,  # small matrices gain nothing from more, and on a busy machine threads wait for each other
    "deterministic": (False, False),
    "anomaly": (False, True),
}


def _write(settings: dict) -> None:
    now = _read()
    for name, setter in _SETTERS.items():
        if settings[name] != now[name]:  # some of them cost a second the first time
            setter(settings[name], now[name])


def _set_autocast(wanted: dict, now: dict) -> None:
    for name, (enabled, dtype) in wanted.items():
        torch.set_autocast_enabled(name, enabled)
        torch.set_autocast_dtype(name, dtype)


def _set_depth(wanted: int, now: int) -> None:
    for _ in range(wanted, now):
        torch.autocast_decrement_nesting()
    for _ in range(now, wanted):
        torch.autocast_increment_nesting()
    torch.clear_autocast_cache()


_SETTERS = {
    "autocast depth": _set_depth,
    "autocast": _set_autocast,
    "autocast cache": lambda wanted, now: torch.set_autocast_cache_enabled(wanted),
    "grad": lambda wanted, now: torch.set_grad_enabled(wanted),
    "dtype": lambda wanted, now: torch.set_default_dtype(wanted),
    "device": lambda wanted, now: torch.set_default_device(wanted),
    "threads": lambda wanted, now: torch.set_num_threads(wanted),
    "deterministic": lambda wanted, now: torch.use_deterministic_algorithms(wanted[0], warn_only=wanted[1]),
    "anomaly": lambda wanted, now: torch.autograd.set_detect_anomaly(*wanted),
    "matmul": lambda wanted, now: torch.set_float32_matmul_precision(wanted),
}


def _depth() -> int:
    """How many autocast regions are open; the counter can only be read by moving it."""
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()
