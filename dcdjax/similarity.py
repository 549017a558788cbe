"""A matrix in any of its forms enters; S, validated once, leaves: symmetric, nonnegative, no word alone."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

# S_ij and S_ji computed in two orders of operations differ by a few rounding errors of float32; a
# difference beyond these is data, not arithmetic.
_RELATIVE_ASYMMETRY = 1e-5


@dataclass(frozen=True)
class Similarity:
    """The S of the method, and what was done to make it so.

    Attributes:
      matrix: float64 CSR with sorted indices, symmetric, without stored zeros.
      kept: the rows of the original that remain, ascending; all of them unless isolated words were dropped.
      num_symmetrized: how many entries of the original differed from their mirror image.
      num_dropped: how many isolated words were dropped.
    """

    matrix: scipy.sparse.csr_array
    kept: np.ndarray
    num_symmetrized: int = 0
    num_dropped: int = 0


def from_matrix(
    S: Any,
    *,
    num_words: int | None = None,
    symmetrize: bool = False,
    drop_isolated: bool = False,
) -> Similarity:
    """Validates a similarity matrix; refuses it with its first offending entry, or mends it as asked.

    Args:
      S: a scipy sparse matrix, or a pair (S_idx, S_val) of integers (nnz, 2) and numbers (nnz,).
      num_words: N, where the pair does not say it by its largest index.
      symmetrize: replace S by (S + S') / 2 instead of refusing it, and warn how many entries changed. A
        stored triangle would keep its diagonal whole and halve the rest: mirror it yourself.
      drop_isolated: drop words without any neighbor instead of refusing them, and warn how many. Words
        may not be numbered as before then: see `Similarity.kept`.

    Returns:
      The matrix with the record of what was changed.

    Raises:
      ValueError: naming the argument and the first offending entry.
    """
    matrix = _from_sparse(S) if scipy.sparse.issparse(S) else _from_pair(S, num_words)
    if num_words is not None and matrix.shape[0] != num_words:
        raise ValueError(f"S has {matrix.shape[0]} words where {num_words} are expected")
    if matrix.shape[0] == 0:
        raise ValueError("S is empty: it has no words")
    matrix.eliminate_zeros()
    matrix.sort_indices()

    matrix, num_symmetrized = _symmetric(matrix, symmetrize)
    alone = np.flatnonzero(np.diff(matrix.indptr) == 0)
    kept = np.arange(matrix.shape[0])
    if alone.size and not drop_isolated:
        raise ValueError(
            f"S: word {alone[0]} has no nonzero ({alone.size} such in all): nothing can be learned of it; "
            "drop_isolated=True drops them"
        )
    if alone.size:
        kept = np.delete(kept, alone)
        if not kept.size:
            raise ValueError("S has no nonzero: no word would remain")
        matrix = scipy.sparse.csr_array(matrix[kept][:, kept])
        matrix.sort_indices()
        warnings.warn(f"dropped {alone.size} words without neighbors, {kept.size} remain", stacklevel=2)
    return Similarity(matrix=matrix, kept=kept, num_symmetrized=num_symmetrized, num_dropped=alone.size)


def _from_sparse(S: Any) -> scipy.sparse.csr_array:
    if S.ndim != 2 or S.shape[0] != S.shape[1]:
        raise ValueError(f"S must be square, got shape {S.shape}")
    entries = S.tocoo()
    _check_values("S", entries.data, entries.row, entries.col)
    # Entries of the same place add up: what duplicates mean in scipy.
    return scipy.sparse.csr_array(
        (entries.data.astype(np.float64), (entries.row, entries.col)), shape=S.shape
    )


def _from_pair(S: Any, num_words: int | None) -> scipy.sparse.csr_array:
    if not isinstance(S, tuple | list) or len(S) != 2:
        raise ValueError(f"S must be a scipy sparse matrix or a pair (S_idx, S_val), got {type(S).__name__}")
    S_idx, S_val = np.asarray(S[0]), np.asarray(S[1])
    if S_idx.ndim != 2 or S_idx.shape[1] != 2:
        raise ValueError(f"S_idx must be of shape (nonzeros, 2), got {S_idx.shape}")
    if not np.issubdtype(S_idx.dtype, np.integer):
        raise ValueError(f"S_idx must be integers, got {S_idx.dtype}")
    if S_val.shape != S_idx.shape[:1]:
        raise ValueError(f"S_val must be of shape ({S_idx.shape[0]},) as S_idx has it, got {S_val.shape}")
    if num_words is None:
        num_words = int(S_idx.max(initial=-1)) + 1
    rows, columns = S_idx[:, 0], S_idx[:, 1]
    outside = (S_idx < 0) | (S_idx >= num_words)
    if outside.any():
        n = int(np.flatnonzero(outside.any(axis=1))[0])
        raise ValueError(f"S_idx[{n}] = ({rows[n]}, {columns[n]}) is outside of {num_words} words")
    _check_values("S_val", S_val, rows, columns)

    matrix = scipy.sparse.csr_array((S_val.astype(np.float64), (rows, columns)), shape=(num_words, num_words))
    if matrix.nnz < S_val.size:  # the conversion has added duplicates up
        _, first, count = np.unique(
            rows.astype(np.int64) * num_words + columns, return_index=True, return_counts=True
        )
        n = int(first[count > 1].min())
        raise ValueError(
            f"S_idx[{n}] = ({rows[n]}, {columns[n]}) stands there more than once "
            f"({int((count > 1).sum())} such in all)"
        )
    return matrix


def _check_values(name: str, values: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> None:
    if not (np.issubdtype(values.dtype, np.integer) or np.issubdtype(values.dtype, np.floating)):
        # ml_dtypes' bfloat16 is neither to NumPy, but converts
        try:
            values = values.astype(np.float64, casting="safe")
        except TypeError:
            raise ValueError(f"{name} must be real numbers, got {values.dtype}") from None
    good = np.isfinite(values) & (values >= 0)
    if not good.all():
        n = int(np.flatnonzero(~good)[0])
        raise ValueError(
            f"{name}[{n}] = {values[n]} at ({rows[n]}, {columns[n]}) is not a finite, nonnegative number "
            f"({int((~good).sum())} such in all)"
        )


def _symmetric(matrix: scipy.sparse.csr_array, symmetrize: bool) -> tuple[scipy.sparse.csr_array, int]:
    mirror = scipy.sparse.csr_array(matrix.T)
    difference = abs(matrix - mirror)
    if not difference.data.any():
        return matrix, 0
    excess = difference - _RELATIVE_ASYMMETRY * matrix.maximum(mirror)
    asymmetric = excess > 0
    if asymmetric.nnz and not symmetrize:
        entries = asymmetric.tocoo()
        n = np.lexsort((entries.col, entries.row))[0]
        i, j = int(entries.row[n]), int(entries.col[n])
        raise ValueError(
            f"S is not symmetric: S[{i}, {j}] = {matrix[i, j]} but S[{j}, {i}] = {matrix[j, i]} "
            f"({asymmetric.nnz} entries differ from their mirror image); symmetrize=True takes the mean"
        )
    if asymmetric.nnz:
        message = f"symmetrized S: {asymmetric.nnz} entries differed from their mirror image"
        warnings.warn(message, stacklevel=3)
    return scipy.sparse.csr_array((matrix + mirror) / 2), asymmetric.nnz
