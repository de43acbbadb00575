"""The neighbours of a number are the ones that numpy and PyTorch find, in every format and at both ends."""

import math

import numpy
import pytest
import torch

from amp_lessons.errors import LessonError
from amp_lessons.formats import BF16, FORMATS, FP8_E4M3, FP8_E5M2, FP16, FP32


def test_fp16_agrees_with_numpy_at_every_finite_code():
    numbers = numpy.arange(0, 0x7C00, 37, dtype=numpy.uint16).view(numpy.float16)
    with numpy.errstate(over="ignore"):
        for number in (*numbers, *-numbers, numpy.float16(65504), numpy.float16(-65504)):
            below, above = (float(numpy.nextafter(number, numpy.float16(side))) for side in (-math.inf, math.inf))
            assert FP16.neighbours(float(number)) == (below, above)


@pytest.mark.parametrize("format", [FP32, BF16], ids=lambda format: format.name)
def test_wide_formats_agree_with_torch(format):
    for x in (1.0, -1.0, 0.1, 2.0**-126, 3e38, -6.5e-5):
        number = torch.tensor(x).to(format.dtype)
        up = torch.nextafter(number, torch.tensor(math.inf).to(format.dtype)).item()
        down = torch.nextafter(number, torch.tensor(-math.inf).to(format.dtype)).item()
        assert format.neighbours(x) == (down, up)


@pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.name)
def test_around_zero_stand_the_smallest_subnormals(format):
    smallest = format.smallest_subnormal
    assert format.neighbours(0.0) == format.neighbours(-0.0) == (-smallest, smallest)
    assert format.neighbours(smallest)[0] == 0


@pytest.mark.parametrize("format", [FP32, FP16, BF16, FP8_E5M2], ids=lambda format: format.name)
def test_past_the_largest_number_comes_inf_and_then_nothing(format):
    assert format.neighbours(format.max)[1] == math.inf
    below, above = format.neighbours(math.inf)
    assert below == format.max and math.isnan(above)


def test_e4m3_ends_in_nan():
    below, above = FP8_E4M3.neighbours(448.0)
    assert below == 416 and math.isnan(above)


def test_one_side_of_a_power_of_two_is_twice_as_near():
    assert FP16.neighbours(1.0) == (1 - 2.0**-11, 1 + 2.0**-10)


def test_nan_gets_a_sentence():
    with pytest.raises(LessonError, match="NaN has no neighbours"):
        FP16.neighbours(math.nan)
