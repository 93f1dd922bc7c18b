"""Arrays are stored as text inside a page: concatenated, compressed and encoded in base64."""

from __future__ import annotations

import zlib
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ALIGNMENT = 8  # bytes; a typed array of JavaScript starts at a multiple of its element's size
_EXACT = 2**53  # larger integers may not be exact as JavaScript numbers
_JAVASCRIPT = {"f8": "Float64Array", "i4": "Int32Array", "u2": "Uint16Array", "u1": "Uint8Array"}


@dataclass(frozen=True, slots=True)
class Blob:
    """Compressed arrays as text.

    Parameters
    ----------
    layout
        For each array its name, its JavaScript type, the place of its first byte in the decompressed data,
        and its number of elements.
    data
        The bytes of all arrays, each padded to a multiple of 8 bytes, compressed by zlib, in base64.
    """

    layout: tuple[tuple[str, str, int, int], ...]
    data: str


def pack(arrays: Mapping[str, tuple[str, NDArray[Any]]]) -> Blob:
    """Return arrays in compressed form.

    Parameters
    ----------
    arrays
        By name, the type in which an array is stored (``f8``, ``i4``, ``u2`` or ``u1``, little-endian), and
        the array, which has one dimension and holds whole numbers.

    Raises
    ------
    OverflowError
        If the type of an array cannot hold one of its numbers exactly.
    """
    layout, parts, offset = [], [], 0
    for name, (kind, values) in arrays.items():
        stored = values.astype(f"<{kind}")
        if (stored.astype(np.int64) != values).any() or (np.abs(values) > _EXACT).any():
            raise OverflowError(f"{name} has numbers that {kind} does not hold")
        layout.append((name, _JAVASCRIPT[kind], offset, len(values)))
        content = stored.tobytes()
        parts.append(content + bytes(-len(content) % _ALIGNMENT))
        offset += len(parts[-1])
    return Blob(tuple(layout), b64encode(zlib.compress(b"".join(parts), level=9)).decode())
