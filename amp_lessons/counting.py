"""Counting values by magnitude, each exactly once: the key, the quick way on the CPU, the way without a wait on CUDA.

The key of a value. The bits of |x| as a float32, read as an integer, hold the exponent e above the 23 bits m of the mantissa.
The key is ``3 * e + part``: part 0 is exactly a power of two (m = 0), part 2 the last 1/4096 below the next one
(m >= 0x7FF000), part 1 all between. With these parts fp16's three borders fall between keys at every power-of-two scale: 2^-25
and below is flushed (a tie goes to zero), under 2^-14 is subnormal, 65520 = 2^16 (1 - 1/4096) and above overflows. Zeros,
infinities and NaN have keys of their own. Three shifts add up to the key: one plain (e), one that carries for every m > 0,
one that carries for every m >= 0x7FF000.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

KEYS = 3 * 256
INFINITY_KEY = 3 * 255
EXPONENT_BIAS = 127  # float32's

_CARRY_ABOVE_POWER = 0x7FFFFF
_CARRY_NEAR_NEXT = 0x1000
_UP = 88
_JUST_BELOW = np.float32(2.0**_UP * (1 - 2.0**-24))
_CHUNK = 1 << 17  # so many float32 and what is made of them stay in a core's own cache
_BATCH = 1 << 21  # so many bytes are counted in one go
_SMALL = 1 << 14  # tensors below this are counted together


def key_of_power(exponent: int) -> int:
    """Key of the number 2^exponent."""
    return 3 * (exponent + EXPONENT_BIAS)


def counts_of(tensors: Sequence[Tensor]) -> Tensor:
    """Counts of all values by key, int64 [768] on the CPU; the tensors are on one device, float32, fp16 or bf16, of any shape.

    Values on the CPU are counted on one thread; threads may count at the same time.
    """
    if not tensors or tensors[0].device.type == "cpu":
        return torch.from_numpy(_count_on_cpu(tensors))
    table = torch.zeros(KEYS, dtype=torch.int64, device=tensors[0].device)
    count_into(table, *tensors)
    return table.cpu()


def count_into(table: Tensor, *tensors: Tensor) -> None:
    """Add the counts of tensors' values to a table [768] on the same device, on CUDA without a host synchronisation."""
    if table.device.type == "cpu":
        table += counts_of(tensors)
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
        self.below = np.empty(_CHUNK, np.float32)
        self.exponents = np.empty(_BATCH, np.uint8)


_idle: list[_Scratch] = []  # whoever counts takes one out, so threads and hooks never share one


def _count_on_cpu(tensors: Iterable[Tensor]) -> np.ndarray:
    """Counts by key, int64 [768]."""
    scratch = _idle.pop() if _idle else _Scratch()
    counts = np.zeros(KEYS, np.int64)
    batch, size = [], 0
    with np.errstate(all="ignore"):  # overflow is how large values are told
        for bits in _pieces(tensors, counts):
            if size + len(bits) > _BATCH:
                counts += _count_batch(batch, size, scratch)
                batch, size = [], 0
            batch.append(bits)
            size += len(bits)
        if batch:
            counts += _count_batch(batch, size, scratch)
    _idle.append(scratch)
    return counts


def _pieces(tensors: Iterable[Tensor], counts: np.ndarray) -> Iterator[np.ndarray]:
    """All values as the bits of float32, uint32, in pieces of up to ``_BATCH``, all of them multiples of eight.

    The last one is filled up with zeros, which are taken off ``counts``.
    """
    rest = []
    for values in tensors:
        if values.requires_grad:
            values = values.detach()
        if values.dtype != torch.float32:
            values = values.float()
        bits = values.numpy().reshape(-1).view(np.uint32)
        whole = len(bits) // 8 * 8 if len(bits) >= _SMALL else 0
        for start in range(0, whole, _BATCH):
            yield bits[start : min(start + _BATCH, whole)]
        if whole < len(bits):
            rest.append(bits[whole:])
    if rest:
        fill = np.zeros(-sum(map(len, rest)) % 8, np.uint32)
        counts[0] -= len(fill)
        bits = np.concatenate([*rest, fill])
        for start in range(0, len(bits), _BATCH):
            yield bits[start : start + _BATCH]


def _count_batch(batch: list[np.ndarray], size: int, scratch: _Scratch) -> np.ndarray:
    """Counts by key, int64 [768].

    Nearly all gradients are zero or of part 1 and between 2^-86 and 2^40: one byte says it all. The few of parts 0 and 2 are
    counted by their whole key. A batch with other values, or many of parts 0 and 2, takes the straight way.
    """
    exponents, rare, used = scratch.exponents[:size], [], 0
    for bits in batch:
        for start in range(0, len(bits), _CHUNK):
            chunk = bits[start : start + _CHUNK]
            rare.append(_look(chunk, scratch.below[: len(chunk)], exponents[used : used + len(chunk)]))
            used += len(chunk)

    # What is expected, 129 to 254, becomes 0 to 125; 255, which stands for all above, 126; zero 127; what lies between more.
    exponents -= 129
    if exponents.max() >= 128:
        return _count_all_keys(batch)
    # Two bytes under 128 make a non-negative int16: half as many steps, and runs of equal bytes do not slow them down.
    pairs = torch.bincount(torch.from_numpy(exponents.view(np.int16)), minlength=128 * 256).numpy()
    pairs = pairs.reshape(128, 256)[:, :128]
    per_byte = pairs.sum(0) + pairs.sum(1)
    found = np.concatenate(rare)
    if per_byte[126] or len(found) * 4 > size:
        return _count_all_keys(batch)

    counts = _count_keys(found)
    parts = counts.reshape(256, 3)  # [exponent, part]
    parts[0, 0] = per_byte[127]
    # What lies just under a power of two has the exponent before it.
    first, stop = 129 - _UP, 255 - _UP
    parts[first:stop, 1] = per_byte[:126] - parts[first:stop, 2] - parts[first + 1 : stop + 1, 0]
    return counts


def _look(bits: np.ndarray, below: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """Write a byte for each value's exponent; give all values of parts 0 and 2, with some others."""
    # In float32 this gives exactly the number just below |x|, times 2^88: only zero stays zero, and from 2^40 on all is
    # infinite. The mantissa is now m - 1 modulo 2^23, at its top for both rare parts.
    np.multiply(bits.view(np.float32), _JUST_BELOW, out=below)
    mantissas = below.view(np.uint32)
    np.right_shift(mantissas, 23, out=exponents, casting="unsafe")  # a byte has no room for the sign
    np.left_shift(mantissas, 9, out=mantissas)  # drops the sign and the exponent
    # Eight at a time, since finding them one by one would be the slowest part.
    eights = np.flatnonzero(mantissas.reshape(8, -1).max(0) >= 0x7FEFFF << 9)
    return bits.reshape(8, -1)[:, eights].ravel()


def _count_all_keys(batch: list[np.ndarray]) -> np.ndarray:
    return sum(_count_keys(bits[start : start + _CHUNK]) for bits in batch for start in range(0, len(bits), _CHUNK))


def _count_keys(bits: np.ndarray) -> np.ndarray:
    """Counts by key, int64 [768], the straight way."""
    # torch.bincount takes int32 as it is; NumPy's would first double its size.
    magnitude = bits & 0x7FFFFFFF
    key = magnitude >> 23
    for carry in (_CARRY_ABOVE_POWER, _CARRY_NEAR_NEXT):
        key += (magnitude + carry) >> 23
    return torch.bincount(torch.from_numpy(key.view(np.int32)), minlength=KEYS).numpy()
