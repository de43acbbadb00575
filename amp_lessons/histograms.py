"""Histograms of magnitudes, exact per binade: what fp16 would do to the values, and which loss scales fit them.

Counts are by the key that ``counting`` explains, whose borders are fp16's own at every power-of-two scale.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass

import torch
from torch import Tensor

from amp_lessons.counting import EXPONENT_BIAS, INFINITY_KEY, KEYS, counts_of, key_of_power
from amp_lessons.errors import LessonError


@dataclass(frozen=True)
class Shares:
    """What storing values in fp16 would do to them, as shares of all values; they add up to 1.

    ``zero`` counts values that were zero before (dead ReLUs, say): those are not underflow.
    """

    zero: float
    flushed: float
    subnormal: float
    normal: float
    overflow: float
    nonfinite: float


@dataclass(frozen=True)
class LossScaleWindow:
    """The powers of two between which a loss scale is safe: 2^low to 2^high.

    ``low`` is the smallest exponent that flushes no more than the allowed share, ``high`` the largest that overflows
    nothing. Both are None when there is no non-zero finite gradient; ``low > high`` means that no scale does both.
    """

    low: int | None
    high: int | None

    def __contains__(self, scale: float) -> bool:
        return self.low is not None and scale > 0 and self.low <= math.log2(scale) <= self.high

    def __str__(self) -> str:
        if self.low is None:
            return "no window: every gradient is zero or non-finite"
        if self.low > self.high:
            return f"no window: keeping the small needs 2^{self.low}, keeping the large allows at most 2^{self.high}"
        return f"2^{self.low} to 2^{self.high}"


class ExponentHistogram:
    """How many values lie in each binade, exactly, with zeros, infinities and NaN apart.

    ``counts`` is an int64 tensor [768] on the CPU, indexed by the key that ``counting`` explains. Histograms add up
    with ``+``.
    """

    def __init__(self, counts: Tensor | None = None) -> None:
        self.counts = torch.zeros(KEYS, dtype=torch.int64) if counts is None else counts

    @classmethod
    def of(cls, *tensors: Tensor) -> ExponentHistogram:
        """Count every value of the tensors (float32, fp16 or bf16, any shape or device)."""
        return cls(counts_of(tensors))

    @property
    def total(self) -> int:
        """How many values were counted."""
        return int(self.counts.sum())

    @property
    def zeros(self) -> int:
        """How many were +0 or -0."""
        return int(self.counts[0])

    @property
    def infinities(self) -> int:
        """How many were +inf or -inf."""
        return int(self.counts[INFINITY_KEY])

    @property
    def nans(self) -> int:
        """How many were NaN."""
        return int(self.counts[INFINITY_KEY + 1 :].sum())

    @property
    def nonzero_finite(self) -> int:
        """How many were neither zero nor non-finite."""
        return int(self.counts[1:INFINITY_KEY].sum())

    def binades(self) -> dict[int, int]:
        """Counts by exponent: ``e`` holds the values with 2^e <= |x| < 2^(e+1); float32's subnormals are under -127.

        Empty binades inside the range are there with 0.
        """
        per_exponent = self.counts[:INFINITY_KEY].reshape(-1, 3).sum(1)
        per_exponent[0] -= self.counts[0]
        filled = per_exponent.nonzero().flatten().tolist()
        return {e - EXPONENT_BIAS: int(per_exponent[e]) for e in range(filled[0], filled[-1] + 1)} if filled else {}

    def fp16_counts(self, scale: float = 1.0) -> dict[str, int]:
        """How many values have each fate when multiplied by ``scale`` and stored in fp16; keys as in ``Shares``.

        ``scale`` is a power of two: there the count is exact. Raises LessonError for other scales. Only float32's own
        subnormals, under 2^-126, share one key: they are exact up to a scale of 2^101.
        """
        return {fate: int(self.counts[start:stop].sum()) for fate, (start, stop) in _fate_keys(scale).items()}

    def fp16_binades(self, scale: float = 1.0) -> dict[str, dict[int, int]]:
        """``fp16_counts`` split by the exponent of the scaled value: fate -> exponent -> count, empty binades left out.

        Zeros and non-finite values have no exponent and are not here.
        """
        k = _power(scale)
        split: dict[str, dict[int, int]] = {}
        for fate, (start, stop) in _fate_keys(scale).items():
            if fate not in ("zero", "nonfinite"):
                split[fate] = per_exponent = {}
                for key in (self.counts[start:stop].nonzero().flatten() + start).tolist():
                    exponent = key // 3 - EXPONENT_BIAS + k
                    per_exponent[exponent] = per_exponent.get(exponent, 0) + int(self.counts[key])
        return split

    def shares(self, scale: float = 1.0) -> Shares:
        """``fp16_counts`` as shares of all values; all 0 for an empty histogram."""
        total = max(self.total, 1)
        return Shares(**{name: count / total for name, count in self.fp16_counts(scale).items()})

    def flushed_share(self, scale: float = 1.0) -> float:
        """Share of the non-zero finite values that fp16 would flush to zero at this power-of-two scale."""
        return self.fp16_counts(scale)["flushed"] / max(self.nonzero_finite, 1)

    def overflowed_share(self, scale: float = 1.0) -> float:
        """Share of the non-zero finite values that fp16 would turn into inf at this power-of-two scale."""
        return self.fp16_counts(scale)["overflow"] / max(self.nonzero_finite, 1)

    def window(self, allowed: float = 1e-4) -> LossScaleWindow:
        """The loss scales that flush at most ``allowed`` of the non-zero values and overflow none.

        A forecast for these very values: activation gradients can be smaller or larger than the parameter gradients.
        Raises LessonError when ``allowed`` is not a share from 0 to 1.
        """
        if not 0 <= allowed <= 1:
            raise LessonError(f"allowed is {allowed}; give the share that may be flushed, from 0 to 1.")
        if not self.nonzero_finite:
            return LossScaleWindow(None, None)
        exponents = range(-152, 151)
        # With a larger scale less is flushed and more overflows, so bisection finds both ends.
        low = exponents[bisect_left(exponents, True, key=lambda k: self.flushed_share(2.0**k) <= allowed)]
        high = exponents[bisect_left(exponents, True, key=lambda k: self.overflowed_share(2.0**k) > 0) - 1]
        return LossScaleWindow(low, high)

    def to_json(self) -> dict[str, int]:
        """The non-empty counts by key, ready for ``json``."""
        return {str(key): int(self.counts[key]) for key in self.counts.nonzero().flatten().tolist()}

    @classmethod
    def from_json(cls, data: dict[str, int]) -> ExponentHistogram:
        """The histogram that ``to_json`` described."""
        histogram = cls()
        for key, count in data.items():
            histogram.counts[int(key)] = count
        return histogram

    def __add__(self, other: ExponentHistogram) -> ExponentHistogram:
        return ExponentHistogram(self.counts + other.counts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExponentHistogram) and torch.equal(self.counts, other.counts)

    def __repr__(self) -> str:
        return f"<ExponentHistogram of {self.total} values, {self.zeros} zero, {self.infinities + self.nans} non-finite>"


def _fate_keys(scale: float) -> dict[str, tuple[int, int]]:
    """Ranges of keys by fate in fp16 at a power-of-two scale."""
    k = _power(scale)
    borders = (key_of_power(-25 - k) + 1, key_of_power(-14 - k), key_of_power(15 - k) + 2)
    flushed, subnormal, normal = (min(max(key, 1), INFINITY_KEY) for key in borders)
    edges = (0, 1, flushed, subnormal, normal, INFINITY_KEY, KEYS)
    return dict(zip(Shares.__dataclass_fields__, zip(edges, edges[1:])))


def _power(scale: float) -> int:
    mantissa, exponent = math.frexp(scale) if scale > 0 and math.isfinite(scale) else (0.0, 0)
    if mantissa != 0.5:
        raise LessonError(f"A histogram answers for powers of two, like 2**16 = 65536.0, not for a scale of {scale}.")
    return exponent - 1
