"""S in any of its forms enters; arrays that a device passes over leave: the owner of how S is laid out."""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from dcdjax.similarity import Similarity, from_matrix


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Layout:
    """S as the solver takes it: nonzeros sorted by row, scaled to a mean row sum of one.

    Attributes:
      S_idx: rows and columns of the nonzeros.
      S_val: their values over `scale`. No step depends on the scale of S, but the range of float32 does.
      scale: the mean row sum of S.
      num_words: N.
    """

    S_idx: Int[Array, "nonzeros 2"]
    S_val: Float[Array, " nonzeros"]
    scale: Float[Array, ""]
    num_words: int = field(metadata={"static": True})


def prepare(S: Any, *, num_words: int | None = None, dtype: DTypeLike = jnp.float32) -> Layout:
    """Validates S, unless that was done before, and lays it out on the default device.

    Args:
      S: a `Similarity`, or whatever `similarity.from_matrix` takes: a scipy sparse matrix or a pair
        (S_idx, S_val).
      num_words: N, where a pair does not say it by its largest index.
      dtype: of the W that will be solved for.

    Returns:
      The layout, to be given to `solve` in place of S as often as needed.
    """
    similarity = S if isinstance(S, Similarity) else from_matrix(S, num_words=num_words)
    matrix = similarity.matrix
    if num_words not in (None, matrix.shape[0]):
        raise ValueError(f"S has {matrix.shape[0]} words where {num_words} are expected")
    entries = matrix.tocoo()
    # In float64, here: entries that float32 would flush to zero as they are may be large in proportion.
    # First by the largest entry, because the sum of the largest float64 numbers would overflow.
    largest = float(entries.data.max())
    mean = float((entries.data / largest).sum()) / matrix.shape[0]
    dtype = jax.dtypes.canonicalize_dtype(dtype)
    scale, limits = largest * mean, jnp.finfo(dtype)
    if not float(limits.tiny) <= scale <= float(limits.max):
        raise ValueError(
            f"S has a mean row sum of {scale:.3g}, which {limits.dtype} cannot hold: divide S by it"
        )
    values = entries.data / largest / mean
    strongest = np.maximum.reduceat(values, matrix.indptr[:-1])
    if strongest.min() < float(limits.tiny):
        raise ValueError(
            f"S: all entries of word {strongest.argmin()} are below {limits.tiny:.1e} of the mean row sum, "
            f"which {limits.dtype} cannot tell from none"
        )
    return Layout(
        S_idx=jnp.asarray(np.stack([entries.row, entries.col], axis=1).astype(np.int32)),
        S_val=jnp.asarray(values, dtype=dtype),
        scale=jnp.asarray(scale, dtype=dtype),
        num_words=matrix.shape[0],
    )
