"""Split S at random into minibatches, each a symmetric matrix, whose sum is S.

Each pair of words is in one minibatch, with both of its entries. So a minibatch is a matrix like S, for all
words, with about an equal part of every row. The result of a pass over it, times the number of minibatches,
is on average the result of a pass over S. Minibatches are stored on devices as S is (`layout`), but without
dense tiles, because few places of a minibatch are dense.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np
import scipy.sparse
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from dcdjax.devices import packing, preparation, sharding, tiling
from dcdjax.devices.layout import Layout
from dcdjax.starts.keys import checked_key
from dcdjax.util import checks
from dcdjax.util.parallel import in_order

# Most minibatches. Each takes a search among all nonzeros, and 16 bits of a hash fill this many evenly.
_MAX_BATCHES = 1 << 12


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class Minibatches:
    """Hold S in minibatches, scaled to a mean row sum of one.

    Attributes:
      stacked: the layout of all minibatches. Its arrays have an axis of minibatches after that of devices.
      degrees: the row sums of the scaled S.
      num_batches: how many minibatches there are.
    """

    stacked: Layout
    degrees: Float[Array, " words"]
    num_batches: int = field(metadata={"static": True})

    def __repr__(self) -> str:
        return f"Minibatches({self.stacked.num_words} words, {self.num_batches} minibatches)"

    def layout(self, number: Int[Array, ""]) -> Layout:
        """Return one minibatch as a layout."""

        def one(array: Array) -> Array:
            return lax.dynamic_index_in_dim(array, number, axis=1, keepdims=False)

        return replace(self.stacked, pieces=jax.tree.map(one, self.stacked.pieces))


def draw(
    key: Any,
    S: Any,
    num_batches: int,
    *,
    num_words: int | None = None,
    dtype: DTypeLike = np.float32,
    devices: sharding.Devices = None,
) -> Minibatches:
    """Assign the nonzeros of S to minibatches. S_ij and S_ji are in the same minibatch.

    Args:
      key: key from `jax.random.key`, or a whole number to make one. The minibatch of a pair depends on the
        key alone, not on the rest of S.
      S: as in `prepare`.
      num_batches: number of minibatches, at most 4096.
      num_words: N, if it is more than the largest index of a pair (S_idx, S_val) says.
      dtype: dtype of the W to solve for.
      devices: as in `prepare`, but of this process alone.

    Returns:
      The minibatches. Pass them to `gradient.solve` or `incremental.solve` in place of S.
    """
    num_batches = checks.whole("num_batches", num_batches, 1)
    if num_batches > _MAX_BATCHES:
        raise ValueError(f"num_batches must be at most {_MAX_BATCHES}, got {num_batches}")
    matrix = preparation.checked_similarity(S, num_words).matrix
    dtype = np.dtype(jax.dtypes.canonicalize_dtype(dtype))
    plan, scale = preparation.plan_work(devices), preparation.mean_row_sum(matrix, dtype)
    with jax.ensure_compile_time_eval():  # so that this also works inside a `jit`
        seed = int(np.asarray(jax.random.bits(checked_key(key), (), np.uint32)))
    width = packing.width_for(matrix.nnz / matrix.shape[0] / num_batches)
    num_parts = len(plan.devices) * plan.parts_per_device
    shares = []
    for part in _parts(matrix, seed, num_batches):
        _, segments = packing.pack(part, divisor=scale, dtype=dtype, num_parts=num_parts, width=width)
        shares.append(packing.share_segments(segments, len(plan.devices)))
    most = max(share.rows.size for of_devices in shares for share in of_devices)
    own = [packing.stack_segments([batch.pop(0) for batch in shares], max(1, most)) for _ in plan.devices]
    return Minibatches(
        stacked=preparation.lay_out([own], np.asarray(scale, dtype), plan, num_words=matrix.shape[0]),
        degrees=sharding.replicate((matrix.sum(axis=1) / scale).astype(dtype), plan.devices),
        num_batches=num_batches,
    )


def _parts(matrix: scipy.sparse.csr_array, seed: int, num_batches: int) -> Iterator[scipy.sparse.csr_array]:
    """Return the matrices of the minibatches, one after the other."""
    batch = _batch_numbers(matrix, seed, num_batches)

    def part(number: int) -> scipy.sparse.csr_array:
        own = np.flatnonzero(batch == number)
        begins = np.searchsorted(own, matrix.indptr).astype(matrix.indptr.dtype)
        return scipy.sparse.csr_array((matrix.data[own], matrix.indices[own], begins), shape=matrix.shape)

    return (found for _, found in in_order(part, range(num_batches)))


def _batch_numbers(matrix: scipy.sparse.csr_array, seed: int, num_batches: int) -> np.ndarray:
    """Return the minibatch of each nonzero: a hash of its two words, the same in either order."""
    # The upper bits of a product of two odd numbers depend on all bits of both.
    word_hash = np.random.default_rng(seed).integers(0, 1 << 32, matrix.shape[0], np.uint32) | np.uint32(1)
    batch = np.empty(matrix.nnz, np.uint8 if num_batches <= 1 << 8 else np.uint16)
    lengths = np.diff(matrix.indptr)

    def assign(strip: tiling.Strip) -> None:
        hashed = np.repeat(word_hash[strip.rows], lengths[strip.rows])
        hashed *= word_hash[matrix.indices[strip.entries]]
        hashed >>= np.uint32(16)
        hashed *= np.uint32(num_batches)
        batch[strip.entries] = hashed >> np.uint32(16)

    for _ in in_order(assign, tiling.cut_strips(matrix, matrix.shape[0])):
        pass
    return batch
