"""Floating-point formats: their limits, their rounding, and what becomes of a value stored in one.

Everything is computed from two numbers, how many exponent bits and how many mantissa bits a format has, in float64
arithmetic that is exact for every float32 value. Nothing here calls a cast: the tests compare these results with
PyTorch's own casts, bit for bit.

Sources: IEEE 754-2008 (binary16, binary32); Kalamkar et al. 2019, arXiv:1905.12322 (bfloat16); Micikevicius et al. 2022,
arXiv:2209.05433, table 1 (FP8).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import torch

from amp_lessons.errors import LessonError


class Fate(str, Enum):
    """What becomes of a float32 value when it is stored in a narrower format."""

    ZERO = "zero"  # it was zero before
    FLUSHED = "flushed"  # not zero, but rounds to zero
    SUBNORMAL = "subnormal"  # kept, below the smallest normal number: fewer mantissa bits
    NORMAL = "normal"  # kept with the format's full precision
    OVERFLOW = "overflow"  # finite, but too large for the format
    NONFINITE = "non-finite"  # inf or NaN already


@dataclass(frozen=True)
class Bits:
    """The three fields of one stored number, each a string of 0 and 1, most significant bit first."""

    sign: str
    exponent: str
    mantissa: str

    def __str__(self) -> str:
        return f"{self.sign} {self.exponent} {self.mantissa}"


@dataclass(frozen=True)
class FloatFormat:
    """A binary floating-point format with one sign bit.

    ``infinities`` is False for FP8 E4M3, which spends the codes on numbers: only mantissa 111 of the top exponent is NaN.
    Values are floats or tensors of any shape; they are taken as float32 first, as ``torch.tensor(x)`` does.
    """

    name: str
    dtype: torch.dtype
    exponent_bits: int
    mantissa_bits: int
    infinities: bool = True

    @property
    def bits(self) -> int:
        """Bits a number takes in memory."""
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def bias(self) -> int:
        """What is added to an exponent before it is stored."""
        return 2 ** (self.exponent_bits - 1) - 1

    @property
    def smallest_exponent(self) -> int:
        """Exponent of the smallest normal number."""
        return 1 - self.bias

    @property
    def largest_exponent(self) -> int:
        """Exponent of the largest finite number."""
        return 2**self.exponent_bits - 1 - self.bias - (1 if self.infinities else 0)

    @property
    def max(self) -> float:
        """Largest finite number."""
        full = 2.0 - 2.0**-self.mantissa_bits
        if not self.infinities:
            full -= 2.0**-self.mantissa_bits  # the all-ones code is NaN
        return full * 2.0**self.largest_exponent

    @property
    def smallest_normal(self) -> float:
        """Smallest positive number with the full precision."""
        return 2.0**self.smallest_exponent

    @property
    def smallest_subnormal(self) -> float:
        """Smallest positive number."""
        return 2.0 ** (self.smallest_exponent - self.mantissa_bits)

    @property
    def epsilon(self) -> float:
        """Distance from 1 to the next larger number."""
        return 2.0**-self.mantissa_bits

    @property
    def flush_limit(self) -> float:
        """Largest magnitude that rounds to zero: half the smallest number, a tie that goes to even."""
        return self.smallest_subnormal / 2

    @property
    def overflow_limit(self) -> float:
        """Where rounding leaves the format: the midpoint between ``max`` and the number that would come next.

        The midpoint itself overflows, except in E4M3: there ``max`` ends in an even mantissa and wins the tie.
        """
        return self.max + self.spacing(self.max) / 2

    def spacing(self, x: float) -> float:
        """Distance between neighbouring numbers at ``x``, on the side away from zero."""
        x = _as_float32(x).abs().item()
        if not math.isfinite(x):
            raise LessonError(f"The spacing at {x} is not defined; give a finite number.")
        exponent = math.frexp(x)[1] - 1 if x else self.smallest_exponent
        exponent = min(max(exponent, self.smallest_exponent), self.largest_exponent)
        return 2.0 ** (exponent - self.mantissa_bits)

    def round(self, x: float | torch.Tensor) -> float | torch.Tensor:
        """Round to the nearest number of the format, ties to even; a tensor comes back as float64.

        Too large a value becomes inf, or ``max`` in E4M3, which has no inf and saturates (as PyTorch does since 2.12).
        """
        values = _as_float32(x).double()
        # frexp gives a mantissa in [0.5, 1), so its exponent is one above the binade's.
        exponent = torch.frexp(values).exponent - 1
        exponent = exponent.clamp(min=self.smallest_exponent)
        # 2^n from its float64 bits: a power function need not be exact on every device.
        quantum = (exponent.clamp(max=127).long() - self.mantissa_bits + 1023 << 52).view(torch.float64)
        rounded = torch.where(values.isfinite(), (values / quantum).round() * quantum, values)
        beyond = rounded.abs() > self.max
        limit = math.inf if self.infinities else self.max
        rounded = torch.where(beyond, torch.copysign(torch.full_like(values, limit), values), rounded)
        return rounded if isinstance(x, torch.Tensor) else rounded.item()

    def encode(self, x: float) -> Bits:
        """The bits in which ``x`` is stored after rounding."""
        value = self.round(float(x))
        sign = "1" if math.copysign(1.0, value) < 0 else "0"
        ones = 2**self.exponent_bits - 1
        if math.isnan(value):
            exponent, mantissa = ones, 2**self.mantissa_bits - 1
            if self.bits > 8:  # PyTorch fills an FP8 NaN with ones
                mantissa = 2 ** (self.mantissa_bits - 1)  # a quiet NaN
        elif math.isinf(value):
            exponent, mantissa = ones, 0
        elif abs(value) < self.smallest_normal:
            exponent, mantissa = 0, int(abs(value) / self.smallest_subnormal)
        else:
            fraction, power = math.frexp(abs(value))
            exponent = power - 1 + self.bias
            mantissa = int((fraction * 2 - 1) * 2**self.mantissa_bits)
        return Bits(sign, f"{exponent:0{self.exponent_bits}b}", f"{mantissa:0{self.mantissa_bits}b}")

    def decode(self, bits: Bits | str) -> float:
        """The number that a string of bits stands for; spaces are ignored.

        Raises LessonError when the string is not exactly ``self.bits`` zeros and ones.
        """
        code = str(bits).replace(" ", "")
        if len(code) != self.bits or set(code) - {"0", "1"}:
            raise LessonError(f"{self.name} needs exactly {self.bits} bits of 0 and 1, not {code!r}.")
        sign = -1.0 if code[0] == "1" else 1.0
        exponent = int(code[1 : 1 + self.exponent_bits], 2)
        mantissa = int(code[1 + self.exponent_bits :], 2)
        if exponent == 2**self.exponent_bits - 1:
            if self.infinities:
                return sign * math.inf if mantissa == 0 else math.nan
            if mantissa == 2**self.mantissa_bits - 1:
                return math.nan
        if exponent == 0:
            return sign * mantissa * self.smallest_subnormal
        return sign * (1 + mantissa * self.epsilon) * 2.0 ** (exponent - self.bias)

    def neighbours(self, x: float) -> tuple[float, float]:
        """The numbers just below and just above the one that stores ``x``.

        Past an end of the format it is inf, or NaN where the next code stands for no number. Raises LessonError for NaN.
        """
        if math.isnan(x):
            raise LessonError("NaN has no neighbours; give a number.")
        bits = str(self.encode(x)).replace(" ", "")
        # Read as integers, the codes of positive numbers are in the order of the numbers.
        code = int(bits[1:], 2) * (-1 if bits[0] == "1" else 1)
        below, above = (f"{int(step < 0)}{abs(step):0{self.bits - 1}b}" for step in (code - 1, code + 1))
        return self.decode(below), self.decode(above)

    def fate(self, x: float, scale: float = 1.0) -> Fate:
        """What becomes of ``x * scale`` when it is stored in this format.

        Subnormal is judged before rounding: just under the smallest normal number the spacing is already the coarser one.
        Raises LessonError when the scale is not a finite number.
        """
        if not math.isfinite(scale):
            raise LessonError(f"A loss scale of {scale} is not usable; give a finite number.")
        value = _as_float32(x).item()
        if not math.isfinite(value):
            return Fate.NONFINITE
        if value == 0:
            return Fate.ZERO
        magnitude = _as_float32(abs(value * scale)).item()
        if magnitude > self.overflow_limit or (magnitude == self.overflow_limit and self.infinities):
            return Fate.OVERFLOW
        if magnitude <= self.flush_limit:
            return Fate.FLUSHED
        return Fate.SUBNORMAL if magnitude < self.smallest_normal else Fate.NORMAL


def _as_float32(x: float | torch.Tensor) -> torch.Tensor:
    return torch.as_tensor(x, dtype=torch.float32).detach()


FP32 = FloatFormat("FP32", torch.float32, exponent_bits=8, mantissa_bits=23)
FP16 = FloatFormat("FP16", torch.float16, exponent_bits=5, mantissa_bits=10)
BF16 = FloatFormat("BF16", torch.bfloat16, exponent_bits=8, mantissa_bits=7)
FP8_E4M3 = FloatFormat("FP8 E4M3", torch.float8_e4m3fn, exponent_bits=4, mantissa_bits=3, infinities=False)
FP8_E5M2 = FloatFormat("FP8 E5M2", torch.float8_e5m2, exponent_bits=5, mantissa_bits=2)

FORMATS = (FP32, FP16, BF16, FP8_E4M3, FP8_E5M2)
