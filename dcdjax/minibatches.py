"""S enters; minibatches of it leave, drawn by a key: each symmetric, and all of them together S.

A pair of words is in one of them, in both of its places. So each minibatch is a matrix like S, of all words,
with about an equal part of every row: what a pass over it yields, times their number, is on average what a
pass over S yields. They lie on the devices as S does (`layout`), but without tiles: few places are dense in a
part.
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

from dcdjax import layout, packing, rounds, sharding, validation
from dcdjax.layout import Kind, Layout, Segments
from dcdjax.packing import WINDOW
from dcdjax.parallel import in_order
from dcdjax.similarity import Similarity, from_matrix

# Nonzeros that are looked at together: what is computed of each takes a few times as much memory as itself.
_AT_A_TIME = 1 << 20
# Minibatches: each is looked for among all nonzeros, and 16 bits deal to so many evenly.
_MOST = 1 << 12


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Minibatches:
    """S in minibatches, scaled to a mean row sum of one.

    Attributes:
      segments: with axes of devices and of minibatches.
      scale: the mean row sum of S.
      degrees: the row sums of the scaled S.
      num_words: N.
      num_batches: how many there are.
      mesh: as that of a `Layout`, like kind and num_threads.
      kind: of the devices.
      num_threads: of the native kernel on each of them.
    """

    segments: Segments
    scale: Float[Array, ""]
    degrees: Float[Array, " words"]
    num_words: int = field(metadata={"static": True})
    num_batches: int = field(metadata={"static": True})
    mesh: Mesh | None = field(metadata={"static": True})
    kind: Kind = field(metadata={"static": True})
    num_threads: int = field(metadata={"static": True})

    def layout(self, number: Int[Array, ""]) -> Layout:
        """One of them, as a pass takes it."""

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
        """On which S lies."""
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
    """Deals the nonzeros of S to minibatches, a pair of words and its mirror image to the same one.

    Args:
      key: from `jax.random.key`, by which each pair is assigned, whatever else is in S.
      S: as in `prepare`.
      num_batches: how many.
      num_words: N, where a pair (S_idx, S_val) does not say it by its largest index.
      dtype: of the W that will be solved for.
      devices: as in `prepare`, of this process.

    Returns:
      The minibatches, to be given to `gradient.solve` or `incremental.solve` in place of S.
    """
    num_batches = validation.whole("num_batches", num_batches, 1)
    if num_batches > _MOST:
        raise ValueError(f"num_batches must be at most {_MOST}, got {num_batches}")
    similarity = S if isinstance(S, Similarity) else from_matrix(S, num_words=num_words)
    if num_words not in (None, similarity.num_words):
        raise ValueError(f"S has {similarity.num_words} words where {num_words} are expected")
    matrix, dtype = similarity.matrix, np.dtype(jax.dtypes.canonicalize_dtype(dtype))
    way, scale = layout.way(devices), layout.scale_of(matrix, dtype)
    with jax.ensure_compile_time_eval():  # inside of a `jit`, too
        seed = int(np.asarray(jax.random.bits(key, (), np.uint32)))
    width = packing.width_for(matrix.nnz / matrix.shape[0] / num_batches)
    shares = []
    for part in _parts(matrix, seed, num_batches):
        _, segments = packing.pack(
            part, divisor=scale, dtype=dtype, tile_size=WINDOW, cells_per_nonzero=0.0,
            num_parts=way.num_parts, width=width,
        )  # fmt: skip
        shares.append(packing.share_segments(segments, len(way.devices)))
    most = max(share.rows.size for of_devices in shares for share in of_devices)
    own = [rounds.stacked([batch.pop(0) for batch in shares], max(1, most)) for _ in way.devices]
    return Minibatches(
        segments=layout.joined(Segments, own, way.devices),
        scale=sharding.everywhere(np.asarray(scale, dtype), way.devices),
        degrees=sharding.everywhere((matrix.sum(axis=1) / scale).astype(dtype), way.devices),
        num_words=similarity.num_words,
        num_batches=num_batches,
        mesh=sharding.mesh_of(way.devices),
        kind=way.kind,
        num_threads=way.num_threads,
    )


def _parts(matrix: scipy.sparse.csr_array, seed: int, num_batches: int) -> Iterator[scipy.sparse.csr_array]:
    batch = _assigned(matrix, seed, num_batches)

    def part(number: int) -> scipy.sparse.csr_array:
        own = np.flatnonzero(batch == number)
        begins = np.searchsorted(own, matrix.indptr).astype(matrix.indptr.dtype)
        return scipy.sparse.csr_array((matrix.data[own], matrix.indices[own], begins), shape=matrix.shape)

    for _, found in in_order(part, range(num_batches)):
        yield found


def _assigned(matrix: scipy.sparse.csr_array, seed: int, num_batches: int) -> np.ndarray:
    """The minibatch of each nonzero, by a hash of its two words, which is the same for its mirror image."""
    # Of a product of odd numbers the upper bits depend on all of both, in whichever order.
    of_word = np.random.default_rng(seed).integers(0, 1 << 32, matrix.shape[0], np.uint32) | np.uint32(1)
    batch = np.empty(matrix.nnz, np.uint8 if num_batches <= 1 << 8 else np.uint16)
    ends = matrix.indptr[1:]
    cuts = np.searchsorted(ends, np.arange(_AT_A_TIME, matrix.nnz, _AT_A_TIME)).tolist()

    def assign(rows: tuple[int, int]) -> None:
        first, last = rows
        entries = slice(matrix.indptr[first], matrix.indptr[last])
        hashed = np.repeat(of_word[first:last], np.diff(matrix.indptr[first : last + 1]))
        hashed *= of_word[matrix.indices[entries]]
        hashed >>= np.uint32(16)
        hashed *= np.uint32(num_batches)
        batch[entries] = hashed >> np.uint32(16)

    bounds = sorted({0, *cuts, matrix.shape[0]})
    for _ in in_order(assign, itertools.pairwise(bounds)):
        pass
    return batch
