"""Split the rows of W over devices, and cut the matching rows of S for the ring of devices.

Word n lies on device n mod D, in row n // D. The words of a corpus are sorted by frequency, so this gives
every device about the same number of nonzeros of S, and also of every block of S. The rows of all devices,
one device after the other, form an array of D B rows, with B rows for each device. If D does not divide the
number of words, the last row of some devices belongs to no word: it is padding, and zero.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jaxtyping import Array, Bool

from dcdjax.devices import packing
from dcdjax.devices.packing import Segments


@dataclass(frozen=True)
class RowSplit:
    """Map words to rows of devices.

    "Device order" means an array of the rows of all devices, padding included.

    Example:
      >>> split = RowSplit(num_words=5, num_devices=2)
      >>> split.to_device_order(np.arange(5) + 1)
      array([1, 3, 5, 2, 4, 0])
      >>> split.to_word_order(split.to_device_order(np.arange(5) + 1))
      array([1, 2, 3, 4, 5])
    """

    num_words: int
    num_devices: int

    @property
    def rows_per_device(self) -> int:
        """Return B, padding included."""
        return -(-self.num_words // self.num_devices)

    @property
    def num_rows(self) -> int:
        """Return the number of rows of all devices, padding included."""
        return self.rows_per_device * self.num_devices

    def to_device_order(self, array: Any, axis: int = 0) -> Any:
        """Reorder an axis of words to device order, in NumPy or JAX as the array is."""
        xp = np if isinstance(array, np.ndarray) else jnp
        padding = [(0, 0)] * array.ndim
        padding[axis] = (0, self.num_rows - self.num_words)
        return _transpose(xp.pad(array, padding), axis, self.rows_per_device)

    def to_word_order(self, array: Any, axis: int = 0) -> Any:
        """Undo `to_device_order`."""
        words = _transpose(array, axis, self.num_devices)
        return words[(slice(None),) * axis + (slice(self.num_words),)]

    def real_rows(self) -> Bool[Array, " rows"]:
        """Return which rows in device order belong to a word."""
        rows = jnp.arange(self.num_rows, dtype=jnp.int32)
        word = rows % self.rows_per_device * self.num_devices + rows // self.rows_per_device
        return word < self.num_words

    def fill_padding(self, W: Array, value: int = 1) -> Array:
        """Set padding to a number in an array in device order. Ones give each row a sum to divide by."""
        if self.num_rows == self.num_words:
            return W
        return jnp.where(self.real_rows()[:, None], W, value)

    def fill_local_padding(self, own: Array, device: Array, value: Any) -> Array:
        """Set padding to a number or a row in the rows of one device, without another pass over them."""
        if self.num_rows == self.num_words:
            return own
        is_real = (self.rows_per_device - 1) * self.num_devices + device < self.num_words
        return own.at[-1].set(jnp.where(is_real, own[-1], value))


def _transpose(array: Any, axis: int, num_groups: int) -> Any:
    """Take the first element of each group along an axis, then the second of each, and so on."""
    groups = array.reshape(*array.shape[:axis], num_groups, -1, *array.shape[axis + 1 :])
    return groups.swapaxes(axis, axis + 1).reshape(array.shape)


def cut_rounds(
    rows: scipy.sparse.csr_array,
    split: RowSplit,
    device: int,
    *,
    divisor: float,
    dtype: np.dtype,
    width: int,
    num_parts: int,
) -> list[Segments]:
    """Cut a device's rows of S into segments, one set for each round of `sharding.ring_reduce`.

    In round n, device d works with the words of device d + n. The segments number rows and columns as the
    devices do: see `RowSplit`.

    Args:
      rows: the rows of S of the device's own words, with the columns of all words.
      split: which device holds which words.
      device: the number of the device.
      divisor: divides the values.
      dtype: dtype of the packed values.
      width: nonzeros of a segment.
      num_parts: parts of a round, for threads.
    """
    rounds = []
    for n in range(split.num_devices):
        block: Any = rows[:, (device + n) % split.num_devices :: split.num_devices]
        block.resize((split.rows_per_device, split.rows_per_device))  # adds the padding
        _, segments = packing.pack(block, divisor=divisor, dtype=dtype, num_parts=num_parts, width=width)
        rounds.append(segments)
    return rounds
