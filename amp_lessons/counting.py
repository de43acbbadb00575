"""Counting values by magnitude, each exactly once: the key, the quick way on the CPU, the way without a wait on CUDA.

The key of a value. The bits of |x| as a float32, read as an integer, hold the exponent e above the 23 bits m of the mantissa.
The key is ``3 * e + part``: part 0 is exactly a power of two (m = 0), part 2 the last 1/4096 below the next one
(m >= 0x7FF000), part 1 all between. With these parts fp16's three borders fall between keys at every power-of-two scale: 2^-25
and below is flushed (a tie goes to zero), under 2^-14 is subnormal, 65520 = 2^16 (1 - 1/4096) and above overflows. Zeros,
infinities and NaN have keys of their own. Three shifts add up to the key: one plain (e), one that carries for every m > 0
(the ceiling: e + 1 for all but powers of two), one that carries for every m >= 0x7FF000.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

KEYS = 3 * 256
INFINITY_KEY = 3 * 255
EXPONENT_BIAS = 127  # float32's

_CARRY_ABOVE_POWER = 0x7FFFFF
_CARRY_NEAR_NEXT = 0x1000
_CHUNK = 1 << 16  # so many float32 and what is made of them stay in a core's own cache
_BATCH = 1 << 21  # so many ceilings are counted in one go
_SMALL = 1 << 14  # tensors below this are counted together


def key_of_power(exponent: int) -> int:
    """Key of the number 2^exponent."""
    return 3 * (exponent + EXPONENT_BIAS)


def count_into(table: Tensor, *tensors: Tensor) -> None:
    """Add the values of tensors to an int64 count table [768] on the same device, on CUDA without a host synchronisation.

    float32, fp16 or bf16, of any shape. Values on the CPU are counted on one thread; threads may count at the same time.
    """
    if table.device.type == "cpu":
        table += torch.from_numpy(_count_on_cpu(tensors))
    else:
        for values in tensors:
            _count_without_wait(table, values)


def _count_without_wait(table: Tensor, values: Tensor) -> None:
    bits = values.detach().to(torch.float32).reshape(-1).view(torch.int32)
    bits = bits | -(2**31)  # every sign set: this is |x| - 2^31, and no sum below can overflow
    key = bits >> 23
    for carry in (_CARRY_ABOVE_POWER, _CARRY_NEAR_NEXT):
        key += (bits + carry) >> 23
    table.index_add_(0, key + KEYS, torch.ones(1, dtype=torch.int64, device=table.device).expand(len(key)))


class _Scratch:
    """Kept memory: the first touch of new pages would take as long as the counting."""

    def __init__(self) -> None:
        self.ceilings = np.empty(_BATCH, np.uint8)
        self.sums = np.empty(_CHUNK, np.uint32)
        self.rare = np.empty(_CHUNK, np.uint8)


_idle: list[_Scratch] = []  # whoever counts takes one out, so threads and hooks never share one


def _count_on_cpu(tensors: Iterable[Tensor]) -> np.ndarray:
    """Counts by key, int64 [768].

    Nearly all values are of part 1, so their ceiling, one byte, says it all. The few of parts 0 and 2 are counted by their
    whole key as well, and taken off their ceiling's count again.
    """
    scratch = _idle.pop() if _idle else _Scratch()
    counts = np.zeros(KEYS, np.int64)
    used, rare = 0, []
    for bits in _chunks(tensors):
        if used + len(bits) > _BATCH:
            counts += _count_ceilings(scratch.ceilings[:used], rare)
            used, rare = 0, []
        found = _split(bits, scratch.ceilings[used : used + len(bits)], scratch)
        if found is None:
            counts += _count_keys(bits)
        else:
            rare += found
            used += len(bits)
    if used:
        counts += _count_ceilings(scratch.ceilings[:used], rare)
    _idle.append(scratch)
    return counts


def _chunks(tensors: Iterable[Tensor]) -> Iterator[np.ndarray]:
    """All values as the bits of float32, uint32, in pieces of up to ``_CHUNK``."""
    for bits in _arrays(tensors):
        for start in range(0, len(bits), _CHUNK):
            yield bits[start : start + _CHUNK]


def _arrays(tensors: Iterable[Tensor]) -> Iterator[np.ndarray]:
    small = []
    for values in tensors:
        values = values.detach()
        if values.dtype != torch.float32:
            values = values.float()
        bits = values.numpy().reshape(-1).view(np.uint32)
        if len(bits) < _SMALL:
            small.append(bits)
        else:
            yield bits
    if small:
        yield np.concatenate(small)


def _split(bits: np.ndarray, ceilings: np.ndarray, scratch: _Scratch) -> list[np.ndarray] | None:
    """Write the ceiling of each value modulo 256, and give all values of parts 0 and 2 with a few others; None if they are many."""
    sums, rare = scratch.sums[: len(bits)], scratch.rare[: len(bits)]
    if np.isnan(bits.view(np.float32).max()):
        return None  # NaN's ceiling is 256 and would look like zero's
    np.add(bits, _CARRY_ABOVE_POWER, out=sums)
    np.right_shift(sums, 23, out=ceilings, casting="unsafe")  # a byte has no room for the sign
    # The sum left m - 1 modulo 2^23 in the mantissa: at the top for both rare parts. This shift drops sign and exponent.
    np.left_shift(sums, 9, out=sums)
    np.greater_equal(sums, 0x7FEFFF << 9, out=rare.view(bool))
    np.minimum(rare, ceilings, out=rare)  # zeros have m = 0, and there can be many
    # Taken eight at a time, since finding them one by one would be the slowest part.
    whole = len(bits) // 8 * 8
    eights = np.flatnonzero(rare[:whole].view(np.uint64).astype(bool))
    if len(eights) * 32 > whole:
        return None
    return [bits[:whole].reshape(-1, 8)[eights].ravel(), bits[whole:]]


def _count_ceilings(ceilings: np.ndarray, rare: list[np.ndarray]) -> np.ndarray:
    """Counts by key, int64 [768], of values given by their ceilings, with those picked out put right."""
    counts = _count_keys(np.concatenate(rare))
    per_exponent = counts.reshape(256, 3)  # [exponent, part]
    per_ceiling = _count_bytes(ceilings)
    per_ceiling -= per_exponent[:, 0]
    per_ceiling[1:] -= per_exponent[:-1, 1:].sum(1)
    per_exponent[0, 0] += per_ceiling[0]
    per_exponent[:-1, 1] += per_ceiling[1:]
    return counts


def _count_keys(bits: np.ndarray) -> np.ndarray:
    """Counts by key, int64 [768], the straight way."""
    magnitude = bits & 0x7FFFFFFF
    key = magnitude >> 23
    for carry in (_CARRY_ABOVE_POWER, _CARRY_NEAR_NEXT):
        key += (magnitude + carry) >> 23
    return torch.bincount(torch.from_numpy(key.view(np.int32)), minlength=KEYS).numpy()


def _count_bytes(values: np.ndarray) -> np.ndarray:
    """How often each byte occurs, int64 [256]."""
    # torch.bincount takes bytes as they are; NumPy's would first turn each into eight.
    if values.max() >= 128 or len(values) % 2:
        return torch.bincount(torch.from_numpy(values), minlength=256).numpy()
    # Two bytes under 128 make a non-negative int16: half as many steps, and runs of equal bytes do not slow them down.
    pairs = torch.bincount(torch.from_numpy(values.view(np.int16)), minlength=128 * 256).numpy().reshape(128, 256)
    per_value = pairs.sum(0)
    per_value[:128] += pairs.sum(1)
    return per_value
