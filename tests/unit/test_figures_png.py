"""Pictures encoded in bands: every pixel comes back, whatever changed since the one before."""

import io

import numpy
import pytest
from PIL import Image

from amp_lessons.figures.png import PngBands


def decoded(png):
    image = Image.open(io.BytesIO(png))
    image.load()  # checks the checksums of the chunks and of the stream
    return numpy.asarray(image)


@pytest.fixture
def pixels():
    return numpy.random.default_rng(0).integers(0, 256, (40, 30, 4), dtype=numpy.uint8)


@pytest.mark.parametrize("cuts", [[], [1], [10, 11, 39]])
def test_every_pixel_comes_back(pixels, cuts):
    png = PngBands(40, 30, cuts).encode(pixels)
    assert numpy.array_equal(decoded(png), pixels[..., :3])


@pytest.mark.parametrize("row", [0, 9, 10, 19, 20, 39])
def test_a_change_in_one_row_is_seen_and_so_is_the_way_back(pixels, row):
    bands = PngBands(40, 30, [10, 20])
    first = bands.encode(pixels)
    changed = pixels.copy()
    changed[row, 5] ^= 255
    assert numpy.array_equal(decoded(bands.encode(changed)), changed[..., :3])
    assert bands.encode(pixels) == first


def test_repeated_rows_come_back_and_cost_next_to_nothing(pixels):
    repeated = pixels.repeat(3, axis=0)
    png = PngBands(120, 30).encode(repeated)
    assert numpy.array_equal(decoded(png), repeated[..., :3])
    assert len(png) < len(PngBands(40, 30).encode(pixels)) * 1.2


def test_a_band_that_stays_is_not_compressed_again(pixels, monkeypatch):
    bands = PngBands(40, 30, [10])
    bands.encode(pixels)
    changed = pixels.copy()
    changed[20] = 0
    packed = []
    compressobj = __import__("zlib").compressobj
    monkeypatch.setattr("amp_lessons.figures.png.zlib.compressobj", lambda *a: packed.append(a) or compressobj(*a))
    bands.encode(changed)
    assert len(packed) == 1


def test_what_the_caller_does_to_its_pixels_afterwards_does_not_matter(pixels):
    bands = PngBands(40, 30)
    bands.encode(pixels)
    pixels[3] = 7
    assert numpy.array_equal(decoded(bands.encode(pixels)), pixels[..., :3])
