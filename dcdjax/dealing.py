"""How many words and devices enter; which device holds the row of which word leaves.

Words are dealt like cards: word n lies on device n mod D, in row n // D. Sorted by frequency, as those of a
corpus are, the devices get as many nonzeros of S each, and of every block of S. The rows of all devices, one
after the other, are an array of D B rows, B for each: where D does not divide the number of words, the last
row of some devices is nobody's, and zero.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool


@dataclass(frozen=True)
class Deal:
    """So many words on so many devices.

    Example:
      >>> deal = Deal(5, 2)
      >>> deal.dealt(np.arange(5) + 1)
      array([1, 3, 5, 2, 4, 0])
      >>> deal.collected(deal.dealt(np.arange(5) + 1))
      array([1, 2, 3, 4, 5])
    """

    num_words: int
    num_devices: int

    @property
    def each(self) -> int:
        """Rows of a device."""
        return -(-self.num_words // self.num_devices)

    @property
    def num_rows(self) -> int:
        """Of all devices."""
        return self.each * self.num_devices

    def dealt(self, array: Any, axis: int = 0) -> Any:
        """An array with an axis of words becomes one of the rows of all devices; NumPy's or JAX's."""
        ours = np if isinstance(array, np.ndarray) else jnp
        missing = [(0, 0)] * array.ndim
        missing[axis] = (0, self.num_rows - self.num_words)
        before, after = array.shape[:axis], array.shape[axis + 1 :]
        cards = ours.pad(array, missing).reshape(*before, self.each, self.num_devices, *after)
        return ours.swapaxes(cards, axis, axis + 1).reshape(*before, self.num_rows, *after)

    def collected(self, array: Any, axis: int = 0) -> Any:
        """The inverse of `dealt`."""
        ours = np if isinstance(array, np.ndarray) else jnp
        before, after = array.shape[:axis], array.shape[axis + 1 :]
        cards = array.reshape(*before, self.num_devices, self.each, *after)
        words = ours.swapaxes(cards, axis, axis + 1).reshape(*before, self.num_rows, *after)
        return words[(slice(None),) * axis + (slice(self.num_words),)]

    def held(self) -> Bool[Array, " rows"]:
        """Which rows are somebody's."""
        rows = jnp.arange(self.num_rows, dtype=jnp.int32)
        return rows % self.each * self.num_devices + rows // self.each < self.num_words

    def blank(self, W: Array) -> Array:
        """Zero where a row is nobody's; of the rows of all devices."""
        if self.num_rows == self.num_words:
            return W
        return jnp.where(self.held()[:, None], W, 0)

    def filled(self, W: Array) -> Array:
        """Ones where a row is nobody's: zeros have no sum to be divided by. Of the rows of all devices."""
        if self.num_rows == self.num_words:
            return W
        return jnp.where(self.held()[:, None], W, 1)

    def filled_last(self, own: Array, device: Array) -> Array:
        """The first row in place of one that is nobody's, of one device: a step can be taken from it."""
        if self.num_rows == self.num_words:
            return own
        held = (self.each - 1) * self.num_devices + device < self.num_words
        return own.at[-1].set(jnp.where(held, own[-1], own[0]))

    def blank_last(self, own: Array, device: Array) -> Array:
        """The same, of the rows of one device, without another pass over them."""
        if self.num_rows == self.num_words:
            return own
        held = (self.each - 1) * self.num_devices + device < self.num_words
        return own.at[-1].set(jnp.where(held, own[-1], 0))
