"""Split S at random into minibatches, each a symmetric matrix, whose sum is S.

Each pair of words is in one minibatch, with both of its entries. So a minibatch is a matrix like S, for all
words, with about an equal part of every row. The result of a pass over it, times the number of minibatches,
is on average the result of a pass over S. Minibatches are stored on devices as S is (`layout`), but without
dense tiles, because few places of a minibatch are dense.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
import scipy.sparse
from jax import lax
from jax.sharding import Mesh
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int, PRNGKeyArray

from dcdjax.devices import packing, preparation, sharding
from dcdjax.devices.layout import DeviceKind, Layout
from dcdjax.devices.packing import WINDOW, Segments
from dcdjax.similarity.similarity import Similarity, from_matrix
from dcdjax.util import checks
from dcdjax.util.parallel import in_order

# Nonzeros that are assigned together: the temporary arrays take a few times their memory.
_NONZEROS_AT_A_TIME = 1 << 20
# The most minibatches: each takes a search among all nonzeros, and 16 bits of a hash fill so many evenly.
_MAX_BATCHES = 1 << 12


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Minibatches:
    """Hold S in minibatches, scaled to a mean row sum of one.

    Attributes:
      segments: the nonzeros, with axes of devices and of minibatches.
      scale: the mean row sum of S.
      degrees: the row sums of the scaled S.
      num_words: N.
      num_batches: how many minibatches there are.
      mesh: as in `Layout`.
      kind: as in `Layout`.
      num_threads: as in `Layout`.
    """

    segments: Segments
    scale: Float[Array, ""]
    degrees: Float[Array, " words"]
    num_words: int = field(metadata={"static": True})
    num_batches: int = field(metadata={"static": True})
    mesh: Mesh | None = field(metadata={"static": True})
    kind: DeviceKind = field(metadata={"static": True})
    num_threads: int = field(metadata={"static": True})

    def layout(self, number: Int[Array, ""]) -> Layout:
        """Return one minibatch as a layout."""

        def one(array: Array) -> Array:
            return lax.dynamic_index_in_dim(array, number, axis=1, keepdims=False)

        return Layout(
            pieces=(jax.tree.map(one, self.segments),),
            scale=self.scale,
            num_words=self.num_words,
            mesh=self.mesh,
            kind=self.kind,
            num_threads=self.num_threads,
        )

    @property
    def devices(self) -> list[Any]:
        """Return the devices that hold S."""
        return list(self.scale.devices()) if self.mesh is None else list(self.mesh.devices.flat)


def draw(
    key: PRNGKeyArray,
    S: Any,
    num_batches: int,
    *,
    num_words: int | None = None,
    dtype: DTypeLike = np.float32,
    devices: Sequence[Any] | Mesh | None = None,
) -> Minibatches:
    """Assign the nonzeros of S to minibatches. S_ij and S_ji are in the same minibatch.

    Args:
      key: key from `jax.random.key`. The minibatch of a pair depends on the key alone, not on the rest of S.
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
    similarity = S if isinstance(S, Similarity) else from_matrix(S, num_words=num_words)
    if num_words not in (None, similarity.num_words):
        raise ValueError(f"S has {similarity.num_words} words where {num_words} are expected")
    matrix, dtype = similarity.matrix, np.dtype(jax.dtypes.canonicalize_dtype(dtype))
    plan, scale = preparation.plan_work(devices), preparation.mean_row_sum(matrix, dtype)
    with jax.ensure_compile_time_eval():  # inside of a `jit`, too
        seed = int(np.asarray(jax.random.bits(key, (), np.uint32)))
    width = packing.width_for(matrix.nnz / matrix.shape[0] / num_batches)
    shares = []
    for part in _parts(matrix, seed, num_batches):
        _, segments = packing.pack(
            part, divisor=scale, dtype=dtype, tile_size=WINDOW, cells_per_nonzero=0.0,
            num_parts=plan.num_parts, width=width,
        )  # fmt: skip
        shares.append(packing.share_segments(segments, len(plan.devices)))
    most = max(share.rows.size for of_devices in shares for share in of_devices)
    own = [packing.stack_segments([batch.pop(0) for batch in shares], max(1, most)) for _ in plan.devices]
    return Minibatches(
        segments=sharding.stack_shares(own, plan.devices),
        scale=sharding.replicate(np.asarray(scale, dtype), plan.devices),
        degrees=sharding.replicate((matrix.sum(axis=1) / scale).astype(dtype), plan.devices),
        num_words=similarity.num_words,
        num_batches=num_batches,
        mesh=sharding.make_mesh(plan.devices),
        kind=plan.kind,
        num_threads=plan.num_threads,
    )


def _parts(matrix: scipy.sparse.csr_array, seed: int, num_batches: int) -> Iterator[scipy.sparse.csr_array]:
    """Yield the matrix of each minibatch."""
    batch = _batch_numbers(matrix, seed, num_batches)

    def part(number: int) -> scipy.sparse.csr_array:
        own = np.flatnonzero(batch == number)
        begins = np.searchsorted(own, matrix.indptr).astype(matrix.indptr.dtype)
        return scipy.sparse.csr_array((matrix.data[own], matrix.indices[own], begins), shape=matrix.shape)

    for _, found in in_order(part, range(num_batches)):
        yield found


def _batch_numbers(matrix: scipy.sparse.csr_array, seed: int, num_batches: int) -> np.ndarray:
    """Return the minibatch of each nonzero: a hash of its two words, the same in either order."""
    # The upper bits of a product of two odd numbers depend on all bits of both.
    word_hash = np.random.default_rng(seed).integers(0, 1 << 32, matrix.shape[0], np.uint32) | np.uint32(1)
    batch = np.empty(matrix.nnz, np.uint8 if num_batches <= 1 << 8 else np.uint16)
    ends = matrix.indptr[1:]
    cuts = np.searchsorted(ends, np.arange(_NONZEROS_AT_A_TIME, matrix.nnz, _NONZEROS_AT_A_TIME)).tolist()

    def assign(rows: tuple[int, int]) -> None:
        first, last = rows
        entries = slice(matrix.indptr[first], matrix.indptr[last])
        hashed = np.repeat(word_hash[first:last], np.diff(matrix.indptr[first : last + 1]))
        hashed *= word_hash[matrix.indices[entries]]
        hashed >>= np.uint32(16)
        hashed *= np.uint32(num_batches)
        batch[entries] = hashed >> np.uint32(16)

    bounds = sorted({0, *cuts, matrix.shape[0]})
    for _ in in_order(assign, itertools.pairwise(bounds)):
        pass
    return batch
