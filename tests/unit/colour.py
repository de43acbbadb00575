"""Colour as numbers: WCAG's contrast, CIEDE2000 distances, and how colours look with a colour-vision deficiency."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

import numpy

# Machado, Oliveira and Fernandes, "A physiologically-based model for simulation of color vision deficiency", IEEE
# Transactions on Visualization and Computer Graphics 15(6), 2009, table 1: severity 1.0, on linear RGB.
DEFICIENCIES = {
    "none": numpy.eye(3),
    "protanopia": numpy.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": numpy.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": numpy.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
_TO_XYZ = numpy.array([[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]])
_WHITE = _TO_XYZ.sum(1)  # D65


def linear(colour: str | Iterable[float]) -> numpy.ndarray:
    """A colour, "#rrggbb" or sRGB in [0, 1], as linear RGB."""
    if isinstance(colour, str):
        colour = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    values = numpy.asarray(list(colour)[:3], dtype=float)
    return numpy.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def contrast(one: str | Iterable[float], other: str | Iterable[float]) -> float:
    """The contrast ratio of WCAG 2.2, from 1 to 21."""
    low, high = sorted(float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def lab(rgb: numpy.ndarray) -> tuple[float, float, float]:
    """CIE L*a*b* of linear RGB, for the white D65."""
    ratio = _TO_XYZ @ rgb / _WHITE
    x, y, z = numpy.where(ratio > 216 / 24389, numpy.cbrt(ratio), (24389 / 27 * ratio + 16) / 116)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def difference(one: tuple[float, float, float], other: tuple[float, float, float]) -> float:
    """CIEDE2000 between two colours in L*a*b*, as Sharma, Wu and Dalal write it (Color Research and Application 30, 2005)."""
    (light_1, a_1, b_1), (light_2, a_2, b_2) = one, other
    chroma = (math.hypot(a_1, b_1) + math.hypot(a_2, b_2)) / 2
    stretch = 1.5 - 0.5 * math.sqrt(chroma**7 / (chroma**7 + 25**7))
    chroma_1, chroma_2 = math.hypot(stretch * a_1, b_1), math.hypot(stretch * a_2, b_2)
    hue_1, hue_2 = (math.degrees(math.atan2(b, stretch * a)) % 360 for a, b in ((a_1, b_1), (a_2, b_2)))
    grey = chroma_1 * chroma_2 == 0
    turn = 0.0 if grey else (hue_2 - hue_1 + 180) % 360 - 180
    if grey:
        hue = hue_1 + hue_2
    elif abs(hue_1 - hue_2) <= 180:
        hue = (hue_1 + hue_2) / 2
    else:
        hue = (hue_1 + hue_2 + (360 if hue_1 + hue_2 < 360 else -360)) / 2
    d_light, d_chroma = light_2 - light_1, chroma_2 - chroma_1
    d_hue = 2 * math.sqrt(chroma_1 * chroma_2) * math.sin(math.radians(turn / 2))
    light, chroma = (light_1 + light_2) / 2, (chroma_1 + chroma_2) / 2
    waves = ((-0.17, 1, -30), (0.24, 2, 0), (0.32, 3, 6), (-0.20, 4, -63))
    t = 1 + sum(height * math.cos(math.radians(times * hue + shift)) for height, times, shift in waves)
    s_light = 1 + 0.015 * (light - 50) ** 2 / math.sqrt(20 + (light - 50) ** 2)
    s_chroma, s_hue = 1 + 0.045 * chroma, 1 + 0.015 * chroma * t
    rotation = math.sin(math.radians(60 * math.exp(-(((hue - 275) / 25) ** 2))))
    rotation *= -2 * math.sqrt(chroma**7 / (chroma**7 + 25**7))
    parts = d_light / s_light, d_chroma / s_chroma, d_hue / s_hue
    return math.sqrt(sum(part**2 for part in parts) + rotation * parts[1] * parts[2])


def seen(colour: str, deficiency: str) -> tuple[float, float, float]:
    """L*a*b* of a colour as seen with one of ``DEFICIENCIES``."""
    return lab(numpy.clip(DEFICIENCIES[deficiency] @ linear(colour), 0, 1))


def distances(colours: dict[str, str]) -> dict[tuple[str, str], float]:
    """For every two of the named colours the smallest CIEDE2000 over all of ``DEFICIENCIES``."""
    return {
        (one, other): min(difference(seen(colours[one], name), seen(colours[other], name)) for name in DEFICIENCIES)
        for one, other in itertools.combinations(colours, 2)
    }
