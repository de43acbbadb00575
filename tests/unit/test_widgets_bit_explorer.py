"""The bit explorer says what PyTorch's own casts do."""

import itertools

import pytest
import torch

from amp_lessons.formats import BF16, FORMATS, FP8_E4M3, FP8_E5M2, FP16, FP32
from amp_lessons.widgets.bit_explorer import BitExplorer


@pytest.fixture(scope="module")
def explorer() -> BitExplorer:
    return BitExplorer()


def at(explorer, format, exponent, hundredths, sign=1) -> str:
    explorer.format.value, explorer.sign.value = format, sign
    explorer.exponent.value, explorer.hundredths.value = exponent, hundredths
    return explorer.text


def test_it_starts_at_a_tenth():
    explorer = BitExplorer()
    assert explorer.wanted == 0.1
    # IEEE 754 binary16 of 0.1 is 0x2E66.
    assert explorer.text == (
        "FP16 stores 0.1 as 0 01011 1001100110. That is +1.599609375 · 2^-4 = 0.0999755859. The spacing here is 2^-14. "
        "The stored number is 0.024% too small."
    )


@pytest.mark.parametrize("format", [FP32, FP16, BF16], ids=lambda format: format.name)
def test_bits_are_those_of_the_cast(explorer, format):
    integer = {32: torch.int32, 16: torch.int16}[format.bits]
    for exponent, hundredths, sign in itertools.product((-25, -15, 0, 16), (100, 133), (1, -1)):
        text = at(explorer, format, exponent, hundredths, sign)
        code = torch.tensor(explorer.wanted).to(format.dtype).view(integer).item() % 2**format.bits
        assert text.split(" as ")[1].split(". ")[0].replace(" ", "") == f"{code:0{format.bits}b}"


def test_spacing_doubles_with_each_power_of_two(explorer):
    assert "The spacing here is 2^-10. Nothing is lost." in at(explorer, FP16, 0, 100)
    assert "The spacing here is 2^1. " in at(explorer, FP16, 11, 100)
    assert "The spacing here is 2^1. " in at(explorer, BF16, 8, 100)


def test_floor_and_ceiling_of_fp16(explorer):
    assert "That is 0: all of the value is lost. The next number is 2^-24." in at(explorer, FP16, -25, 100)
    assert "0.0009765625 · 2^-14 = 5.96046448e-08, a subnormal number" in at(explorer, FP16, -25, 101)
    assert "98% too large" in explorer.text
    assert "1 11111 0000000000. That is -inf: the wanted value is past 65504" in at(explorer, FP16, 16, 100, sign=-1)
    assert "Nothing is lost" in at(explorer, BF16, 16, 100) and "Nothing is lost" in at(explorer, BF16, -25, 100)


def test_fp8_ends_in_inf_or_saturates(explorer):
    assert "+1.75 · 2^8 = 448" in at(explorer, FP8_E4M3, 12, 150)
    assert "93% too small. It is the format's largest number." in explorer.text
    assert "That is inf: the wanted value is past 57344" in at(explorer, FP8_E5M2, 16, 100)


def test_no_setting_of_the_controls_fails(explorer):
    for format, exponent, hundredths in itertools.product(FORMATS, range(-28, 21, 8), (100, 199)):
        at(explorer, format, exponent, hundredths, sign=-1)
        assert 'role="status"' in explorer._twin.value


def test_picture_and_twin_change_together(explorer):
    at(explorer, FP16, -4, 160)
    before = explorer._image.value
    explorer.exponent.box.value = 3
    assert explorer._image.value != before and "= 12.796875" in explorer._twin.value
