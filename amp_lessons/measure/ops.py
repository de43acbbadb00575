"""Matrix products, additions and copies by dtype and size: how much arithmetic and how many bytes a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from amp_lessons import devices
from amp_lessons.errors import LessonError
from amp_lessons.measure.clock import Subject, Timing, interleaved, timed
from amp_lessons.measure.tf32 import float32_products

DTYPES = {"float32": torch.float32, "tf32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class OpPoint:
    """An operation on m x k and k x n matrices, or on m x n numbers for an addition, and the time of one call.

    ``flop`` counts multiplications and additions, ``bytes`` the least traffic: each input read and each result written
    once. ``time`` is None where it was not measured, and ``why_not`` says why. ``dtype`` "tf32" is float32 with TF32 allowed.
    """

    op: str
    dtype: str
    m: int
    n: int
    k: int
    flop: int
    bytes: int
    time: Timing | None
    why_not: str | None = None

    @property
    def flop_per_s(self) -> float | None:
        """Arithmetic done in a second."""
        return None if self.time is None else self.flop / self.time.median_s

    @property
    def flop_per_byte(self) -> float:
        """Arithmetic intensity: operations for each byte that has to move."""
        return self.flop / self.bytes


@dataclass(frozen=True)
class CopySpeed:
    """A copy from memory to memory; ``bytes`` counts those read and those written."""

    bytes: int
    time: Timing

    @property
    def bytes_per_s(self) -> float:
        """Memory traffic in a second."""
        return self.bytes / self.time.median_s


def matmul_flop(m: int, n: int, k: int) -> int:
    """Operations in a product of an m x k by a k x n matrix: a multiplication and an addition for each of m n k."""
    return 2 * m * n * k


def sizes_around(centre: int, reach: int = 8) -> list[int]:
    """The sizes from ``reach`` below ``centre`` to ``reach`` above: what multiples of 8 do shows between them."""
    return list(range(centre - reach, centre + reach + 1))


def dtypes_for(device: torch.device) -> list[str]:
    """The dtypes to compare on this device; TF32 and bf16 matrix units come with compute capability 8.0."""
    if device.type == "cpu":
        return ["float32", "float16", "bfloat16"]
    ampere = torch.cuda.get_device_capability(device) >= (8, 0)
    return list(DTYPES) if ampere else ["float32", "float16"]


def matmul_speeds(
    sizes: Sequence[int],
    dtypes: Sequence[str] | None = None,
    device: str | torch.device | None = None,
    runs: int = 9,
    budget_s: float = 4.0,
) -> tuple[OpPoint, ...]:
    """Time square n x n products by size and dtype, from small to large, within about ``budget_s`` seconds.

    What would not fit is left out with its reason: how long it would take is foretold from the size before.
    """

    def make(n: int, dtype: torch.dtype, on: torch.device) -> Callable[[], object]:
        a, b, out = (torch.full((n, n), 0.5, dtype=dtype, device=on) for _ in range(3))
        return lambda: torch.mm(a, b, out=out)

    def describe(n: int, size: int) -> tuple[str, int, int, int, int, int]:
        return "matmul", n, n, n, matmul_flop(n, n, n), 3 * n * n * size

    return _speeds(make, describe, sizes, dtypes, device, runs, budget_s)


def add_speeds(
    sizes: Sequence[int],
    dtypes: Sequence[str] | None = None,
    device: str | torch.device | None = None,
    runs: int = 9,
    budget_s: float = 2.0,
) -> tuple[OpPoint, ...]:
    """Time ``a + b`` on n x n numbers as ``matmul_speeds`` does products: one operation for three numbers moved."""

    def make(n: int, dtype: torch.dtype, on: torch.device) -> Callable[[], object]:
        a, b, out = (torch.full((n, n), 0.5, dtype=dtype, device=on) for _ in range(3))
        return lambda: torch.add(a, b, out=out)

    def describe(n: int, size: int) -> tuple[str, int, int, int, int, int]:
        return "add", n, n, 1, n * n, 3 * n * n * size

    return _speeds(make, describe, sizes, dtypes, device, runs, budget_s)


def copy_speed(
    device: str | torch.device | None = None, mebibytes: int = 64, runs: int = 9, budget_s: float = 1.0
) -> CopySpeed:
    """Time a copy of ``mebibytes`` from one place in the device's memory to another.

    The size is beyond most caches, so that memory itself is measured. Raises LessonError where not one copy fits the budget.
    """
    device = devices.pick(device)
    source = torch.ones(mebibytes * 2**20, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    timing = interleaved({"copy": Subject(lambda: target.copy_(source))}, device, runs, budget_s)["copy"]
    if timing is None:
        raise LessonError(f"No copy of {mebibytes} MiB fits into {budget_s:g} s here; use fewer mebibytes or more time.")
    return CopySpeed(2 * source.nbytes, timing)


def _speeds(make, describe, sizes, dtypes, device, runs, budget_s) -> tuple[OpPoint, ...]:
    device = devices.pick(device)
    dtypes = dtypes_for(device) if dtypes is None else dtypes
    for name in dtypes:
        if name not in DTYPES:
            raise LessonError(f"{name!r} is not a dtype that is measured; use {', '.join(DTYPES)}.")
    if not sizes or min(sizes) < 1:
        raise LessonError("Give at least one size, all of them 1 or more.")
    rates = {name: _first_rate(make, describe, min(sizes), DTYPES[name], device) for name in dtypes}
    end = time.perf_counter() + budget_s
    points = []
    for left, n in zip(range(len(sizes), 0, -1), sorted(sizes)):
        share = max(end - time.perf_counter(), 0.0) / left
        subjects, reasons, used_s = {}, {}, 0.0
        for name in dtypes:
            flop = describe(n, 1)[4]
            one_s = flop / rates[name]
            if used_s + 2 * one_s > share:
                reasons[name] = f"one would take about {one_s:.2g} s, too long for the time set"
                continue
            used_s += 2 * one_s
            try:
                subjects[name] = Subject(make(n, DTYPES[name], device), lambda tf32=name == "tf32": float32_products(tf32))
            except torch.OutOfMemoryError:
                reasons[name] = "there was not enough memory"
        times = interleaved(subjects, device, runs, max(share, 1e-3)) if subjects else {}
        for name in dtypes:
            timing = times.get(name)
            size = torch.finfo(DTYPES[name]).bits // 8
            why_not = None if timing else reasons.get(name, "the time set was over before its turn")
            op, m, columns, k, flop, moved = describe(n, size)
            points.append(OpPoint(op, name, m, columns, k, flop, moved, timing, why_not))
            if timing:
                rates[name] = flop / timing.median_s
    return tuple(points)


def _first_rate(make, describe, smallest: int, dtype: torch.dtype, device: torch.device) -> float:
    """A guess at FLOP/s from one small call, so that not even the first size can take for ever; without limit on CUDA."""
    small = min(smallest, 128)
    call = make(small, dtype, device)
    if device.type == "cuda":
        timed(call, device)  # starts cuBLAS, which takes a while
        return float("inf")
    with devices.one_thread(device):
        return describe(small, 1)[4] / max(min(timed(call, device).seconds for _ in range(3)), 1e-9)
