"""PNG for pictures that change many times a second and only in part."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import numpy

_UP = 2  # the PNG filter that stores each row as its difference from the row above


class PngBands:
    """Encodes pictures of one size, band of rows by band of rows; a band that is as before keeps its compressed bytes.

    ``cuts`` are the rows at which a new band begins, in rising order. Pixels are uint8 [rows, columns, 4]: red, green, blue
    and one more that is left out.
    """

    def __init__(self, rows: int, columns: int, cuts: Sequence[int] = ()) -> None:
        self._size = (columns, rows)
        self._bands = [_Band(start, end, columns) for start, end in zip([0, *cuts], [*cuts, rows])]

    def encode(self, pixels: numpy.ndarray) -> bytes:
        """The whole picture as a PNG."""
        # 78 01 opens a zlib stream; an empty last block and the checksum of all bands close it.
        parts, checksum = [b"\x78\x01"], 1
        for band in self._bands:
            parts.append(band.encode(pixels))
            checksum = zlib.adler32(band.filtered, checksum)
        parts += [b"\x03\x00", struct.pack(">I", checksum)]
        header = struct.pack(">IIBBBBB", *self._size, 8, 2, 0, 0, 0)  # 8 bits each of red, green and blue
        chunks = (_chunk(b"IHDR", header), _chunk(b"IDAT", b"".join(parts)), _chunk(b"IEND", b""))
        return b"".join([b"\x89PNG\r\n\x1a\n", *chunks])


class _Band:
    """The rows from ``start`` up to ``end``; ``filtered`` is what they are in the PNG before compression."""

    def __init__(self, start: int, end: int, columns: int) -> None:
        self._rows = slice(start, end)
        self._seen = numpy.zeros((end - start, columns, 4), numpy.uint8)
        self._packed = b""
        # The first row stands for itself, so that no band hangs on the one above it.
        self.filtered = numpy.zeros((end - start, 1 + 3 * columns), numpy.uint8)
        self.filtered[1:, 0] = _UP

    def encode(self, pixels: numpy.ndarray) -> bytes:
        pixels = pixels[self._rows]
        if self._packed and numpy.array_equal(pixels, self._seen):
            return self._packed
        self._seen[:] = pixels
        whole = self._seen.view(numpy.uint32)[..., 0]  # one number a pixel
        # Enlarged pictures repeat most of their rows, and a repeated row is all zeros.
        new = numpy.append(True, (whole[1:] != whole[:-1]).any(1))
        colours = self._seen[new, :, :3].reshape(new.sum(), -1)
        self.filtered[:, 1:] = 0
        self.filtered[new, 1:] = numpy.diff(colours, axis=0, prepend=numpy.zeros_like(colours[:1]))
        # Level 1: the picture goes no further than the browser. A full flush ends a band at a whole byte.
        packer = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS, 9)
        self._packed = packer.compress(self.filtered) + packer.flush(zlib.Z_FULL_FLUSH)
        return self._packed


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(content, zlib.crc32(kind)))
