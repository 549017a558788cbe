"""Define the layout: S on the devices, in the form that the solver passes over."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import jax
from jax.core import Tracer
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from dcdjax.devices import sharding
from dcdjax.devices.packing import Segments, Tiles
from dcdjax.devices.row_split import RowSplit


@dataclass(frozen=True)
class DeviceKind:
    """State which form of S suits a kind of device best.

    Attributes:
      tile_size: rows and columns of a tile. Larger tiles make better use of a matrix unit. Smaller tiles
        follow the dense regions of S more closely.
      cells_per_nonzero: how many cells of a tile take as long as one nonzero of a segment. A cell also serves
        its mirror image, so a tile pays if more than 1 / (2 cells_per_nonzero) of its cells are nonzero. A
        larger value makes more tiles.
      block_bytes: bytes of the rows of W that one step of XLA's loop over segments gathers.
    """

    tile_size: int
    cells_per_nonzero: float
    block_bytes: int


# Nanoseconds measured on two machines (experiments/benchmark):
#
#   cores of     r    cell of a tile   nonzero of a segment, XLA   the same in C
#   the first    200  7.5              38                          16
#   the first    50   4                20                          7
#   the second   200  10.5             34                          10
#   the second   50   5                19                          4
#
# So the ratio for C lies between 1 and 2.2. Gathered rows should stay in a core's own cache.
DEVICE_KINDS = {
    "xla": DeviceKind(tile_size=256, cells_per_nonzero=5.0, block_bytes=1 << 18),
    "native": DeviceKind(tile_size=256, cells_per_nonzero=1.5, block_bytes=1 << 18),
    # GPUs and TPUs: estimated, not measured. A matrix unit multiplies about a hundred times faster than a
    # gather loads. Each operation should be large: to start one takes as long as a product of 256 x 256.
    "accelerator": DeviceKind(tile_size=1024, cells_per_nonzero=25.0, block_bytes=1 << 26),
}


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Nonzeros:
    """Hold S as `update` takes it: for an S that is traced by JAX, and as the reference in tests."""

    S_idx: Int[Array, "nonzeros 2"]
    S_val: Float[Array, " nonzeros"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class Layout:
    """Hold S, divided by its mean row sum, on the devices that it was prepared for.

    Attributes:
      pieces: together they hold each nonzero of S once, divided by `scale`. The arrays of tiles and segments
        have a leading axis of devices. If W is split, a second axis numbers the rounds of the ring.
      scale: the mean row sum of S. No step depends on the scale of S, but float32 has a limited range.
      num_words: N.
      mesh: the devices that share the work, or None for a single device.
      kind: the kind of these devices.
      num_threads: threads of the native kernel on each device; 0 if XLA computes everything.
      row_split: which device holds which rows of W; None if each device holds all of W.
    """

    pieces: tuple[Nonzeros | Tiles | Segments, ...]
    scale: Float[Array, ""]
    num_words: int = field(metadata={"static": True})
    mesh: Mesh | None = field(default=None, metadata={"static": True})
    kind: DeviceKind = field(default=DEVICE_KINDS["xla"], metadata={"static": True})
    num_threads: int = field(default=0, metadata={"static": True})
    row_split: RowSplit | None = field(default=None, metadata={"static": True})

    @property
    def devices(self) -> list[Any]:
        """Return the devices that hold S."""
        return list(self.scale.devices()) if self.mesh is None else list(self.mesh.devices.flat)

    @property
    def nbytes(self) -> int:
        """Return the bytes of S on all devices together."""
        return sum(array.nbytes for array in jax.tree.leaves(self.pieces))

    def __repr__(self) -> str:
        num_devices = 1 if self.mesh is None else self.mesh.size
        split = "" if self.row_split is None else ", rows of W split"
        return f"Layout({self.num_words} words, {num_devices} device{'s' * (num_devices > 1)}{split})"

    def to_devices(self, array: Any, axis: int = 0) -> Array:
        """Put an array with an axis of words on the devices: replicated, or split as W is."""
        if self.row_split is None:
            traced = isinstance(array, Tracer) or isinstance(self.scale, Tracer)
            return array if traced else sharding.replicate(array, self.devices)
        if isinstance(array, Tracer):
            return self.row_split.to_device_order(array, axis)
        assert self.mesh is not None
        ordered = self.row_split.to_device_order(sharding.to_host(array), axis)
        return sharding.shard_axis(ordered, self.mesh, axis)

    def from_devices(self, array: Array, axis: int = 0) -> Array:
        """Undo `to_devices`. An array that was split is gathered on the host, and stays there."""
        if self.row_split is None:
            return array
        if isinstance(array, Tracer):
            return self.row_split.to_word_order(array, axis)
        whole = self.row_split.to_word_order(sharding.to_host(array), axis)
        return jax.device_put(whole, sharding.host_device())

    def fill_padding(self, W: Array, value: int) -> Array:
        """Set to a number the rows that only pad a split W. Without a split, all rows are words."""
        return W if self.row_split is None else self.row_split.fill_padding(W, value)

    def put_whole(self, tree: Any) -> Any:
        """Put arrays, such as a key, where starts are made: on the devices, or on the host if W is split."""
        if self.row_split is None:
            return sharding.replicate(tree, self.devices)
        return jax.device_put(tree, sharding.host_device())

    def host_if_split(self) -> AbstractContextManager[Any]:
        """Compute on the host if W is split, because no device may have the memory for all of W."""
        return nullcontext() if self.row_split is None else jax.default_device(sharding.host_device())
