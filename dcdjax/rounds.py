"""The rows of S that lie on a device enter; segments leave, a round of them for the block of each device.

In round n device d meets the words of device d + n: see `sharding.around`. Rows and columns of a round are
numbered as the devices have them: see `dealing`.
"""

from collections.abc import Sequence

import numpy as np
import scipy.sparse

from dcdjax import packing
from dcdjax.dealing import Deal
from dcdjax.packing import Segments


def cut(
    rows: scipy.sparse.csr_array,
    deal: Deal,
    device: int,
    *,
    divisor: float,
    dtype: np.dtype,
    width: int,
    num_parts: int,
) -> list[Segments]:
    """Segments of each round.

    Args:
      rows: of S, those of the device's own words, with the columns of all.
      deal: of the words.
      device: its number.
      divisor: of the values.
      dtype: of the values that leave.
      width: of a segment.
      num_parts: of a round, for threads.
    """
    num_own, num_devices = rows.shape[0], deal.num_devices
    holder = (rows.indices % num_devices).astype(np.uint16 if num_devices < 1 << 16 else np.int64)
    # Stable: within a block, rows and columns stay in order.
    order = np.argsort(holder, kind="stable")
    begins = np.searchsorted(holder[order], np.arange(num_devices + 1))
    row_of = np.repeat(np.arange(num_own), np.diff(rows.indptr))
    found = []
    for n in range(num_devices):
        other = (device + n) % num_devices
        entries = order[begins[other] : begins[other + 1]]
        lengths = np.bincount(row_of[entries], minlength=deal.each)
        block = scipy.sparse.csr_array(
            (rows.data[entries], rows.indices[entries] // num_devices, np.append(0, np.cumsum(lengths))),
            shape=(deal.each, deal.each),
        )
        _, segments = packing.pack(
            block, divisor=divisor, dtype=dtype, tile_size=packing.WINDOW, cells_per_nonzero=0.0,
            num_parts=num_parts, width=width,
        )  # fmt: skip
        found.append(segments)
    return found


def stacked(rounds: Sequence[Segments], num_segments: int) -> Segments:
    """The rounds of a device as one, each with as many segments, some of them empty and in no part."""

    def of_all(name: str) -> np.ndarray:
        arrays = [getattr(segments, name) for segments in rounds]
        if name == "parts":
            return np.stack(arrays)
        whole = packing.aligned((len(arrays), num_segments, *arrays[0].shape[1:]), arrays[0].dtype)
        for place, array in zip(whole, arrays, strict=True):
            place[: len(array)] = array
            place[len(array) :] = 0
        return whole

    return Segments(**{name: of_all(name) for name in Segments.__dataclass_fields__})
