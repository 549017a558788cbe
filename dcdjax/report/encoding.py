"""Pack numbers and JSON into the ASCII text that a page carries."""

import base64
import gzip
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

# `log_codes` counts this many steps for a factor of e. A step is 0.05 percent, enough for three digits.
# Values below 10^-14 of the largest become zero.
LOG_STEPS = 2048
# `share_codes` stores smaller shares as zero.
MIN_SHARE = 0.01


def log_codes(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Store rows of values >= 0 as 16-bit logarithms, relative to the largest value of all rows.

    Code 0 means zero. Code c > 0 means largest * exp(-(c - 1) / LOG_STEPS). Each code is stored as the
    difference to the code before it in its row, modulo 65536. Rows that fall slowly then have small numbers,
    which compress well.

    Returns:
      The differences as uint16, and the largest value as an array of one entry.

    Example:
      >>> codes, largest = log_codes(np.array([[0.5, 0.001, 0.0]]))
      >>> codes, (largest * np.exp(-(codes.cumsum()[:2] - 1.0) / 2048)).round(6)
      (array([[    1, 12728, 52807]], dtype=uint16), array([0.5  , 0.001]))
    """
    positive = values > 0
    largest = np.max(values, initial=np.finfo(values.dtype).tiny)
    steps = np.log(np.divide(largest, values, where=positive, out=np.ones_like(values))) * LOG_STEPS
    codes = np.where(positive & (steps < 65534), np.rint(steps) + 1, 0).astype(np.uint16)
    return np.diff(codes, axis=1, prepend=np.uint16(0)), np.array([largest])


def share_codes(shares: np.ndarray) -> np.ndarray:
    """Store shares between 0 and 1 in 8 bits: 255 for 1, 1 for MIN_SHARE, 0 for less; a step is 1.8 percent.

    Example:
      >>> share_codes(np.array([1.0, 0.5, 0.01, 0.009, 0.0]))
      array([255, 217,   1,   0,   0], dtype=uint8)
    """
    clipped = np.clip(shares, MIN_SHARE, 1)
    codes = np.rint(255 - 254 * np.log(clipped) / math.log(MIN_SHARE))
    return np.where(shares >= MIN_SHARE, codes, 0).astype(np.uint8)


def pack(content: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """Join JSON and arrays, compress them with gzip, and encode the bytes as ASCII (base64).

    Before compression there are: the length of the JSON text in 8 bytes; the JSON text, which lists the type
    and shape of each array; the bytes of the arrays. Each part is padded to a multiple of 8 bytes, so that
    JavaScript can read every type in place.
    """
    small = {name: _smallest_type(array) for name, array in arrays.items()}
    types = {name: {"type": str(array.dtype), "shape": array.shape} for name, array in small.items()}
    text = json.dumps(_as_json({**content, "arrays": types}), separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    parts = [np.array([len(text), 0], "<u4").tobytes(), text]
    for array in small.values():
        data = array.astype(array.dtype.newbyteorder("<")).tobytes()
        parts.append(data + bytes(-len(data) % 8))
    return base64.b64encode(gzip.compress(b"".join(parts), 9, mtime=0)).decode()


def _as_json(value: Any) -> Any:
    """Return a value that JSON can hold; other values become their text."""
    if isinstance(value, Mapping):
        return {str(key): _as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    known = value is None or isinstance(value, str) or (isinstance(value, float) and math.isfinite(value))
    # JavaScript would round larger whole numbers.
    known |= isinstance(value, int) and abs(value) < 1 << 53
    return value if known else str(value)


def _smallest_type(array: np.ndarray) -> np.ndarray:
    """Convert whole numbers to the smallest unsigned type that holds them."""
    if array.dtype.kind != "i":
        return array
    return array.astype(np.min_scalar_type(array.max(initial=0)))
