"""Convert matrices to float64 CSR and check them. Errors name the first offending entry."""

from typing import Any

import numpy as np
import scipy.sparse

from dcdjax.util import matrix_files, store
from dcdjax.util.warn import warn

# S_ij and S_ji may differ by a few rounding errors of float32, if they were computed in different order. A
# larger relative difference is asymmetric data.
_RELATIVE_ASYMMETRY = 1e-5
# Entries of a matrix that are looked at at a time, to find a wrong one.
_BLOCK_ENTRIES = 1 << 20


def canonical(name: str, S: Any, num_words: int | None = None) -> scipy.sparse.csr_array:
    """Convert S to float64 CSR with sorted indices, and check its values. Valid CSR is not copied."""
    is_matrix = scipy.sparse.issparse(S) or hasattr(S, "__array__")
    matrix = _from_matrix(name, S) if is_matrix else _from_pair(name, S, num_words)
    if num_words is not None and matrix.shape[0] != num_words:
        raise ValueError(f"{name} has {matrix.shape[0]} words where {num_words} are expected")
    if matrix.shape[0] == 0:
        raise ValueError(f"{name} is empty: it has no words")
    return matrix


def _from_matrix(name: str, S: Any) -> scipy.sparse.csr_array:
    S = S if scipy.sparse.issparse(S) else np.asarray(S)
    if S.ndim != 2 or S.shape[0] != S.shape[1]:
        raise ValueError(f"{name} must be square, got shape {S.shape}")
    if isinstance(S, np.ndarray):
        S = scipy.sparse.coo_array(_as_float64(name, S))
    return _from_sparse(name, S)


def _from_sparse(name: str, S: Any) -> scipy.sparse.csr_array:
    if S.format == "csr":
        with store.name_in_errors(name):
            matrix_files.check_compressed(S.data, S.indices, S.indptr, *S.shape)
    else:
        S = S.tocoo()
    data = _as_float64(name, S.data)
    # With a NaN, minimum and maximum are NaN. This check needs no temporary array.
    if data.size and not (data.min() >= 0 and data.max() < np.inf):
        _refuse_values(name, S)
    if S.format == "coo":  # duplicate entries are summed, as SciPy does
        return matrix_files.from_coordinates(data, S.row, S.col, S.shape)
    matrix = scipy.sparse.csr_array((data, S.indices, S.indptr), shape=S.shape, copy=False)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix


def _refuse_values(name: str, S: Any) -> None:
    """Name the first value that is negative or not finite. S in CSR may be larger than memory."""
    first, num_bad = -1, 0
    for start in range(0, S.data.size, _BLOCK_ENTRIES):
        block = S.data[start : start + _BLOCK_ENTRIES]
        bad = ~((block >= 0) & (block < np.inf))
        if first < 0 and bad.any():
            first = start + int(bad.argmax())
        num_bad += int(bad.sum())
    if S.format == "csr":
        row, column = np.searchsorted(S.indptr, first, side="right") - 1, S.indices[first]
    else:
        row, column = S.row[first], S.col[first]
    raise ValueError(
        f"{name}[{first}] = {S.data[first]} at ({row}, {column}) is not a finite, nonnegative number "
        f"({num_bad} in total)"
    )


def _as_float64(name: str, values: np.ndarray) -> np.ndarray:
    try:
        return values.astype(np.float64, casting="same_kind", copy=False)
    except TypeError:
        raise ValueError(f"{name} must be real numbers, got {values.dtype}") from None


def _from_pair(name: str, S: Any, num_words: int | None) -> scipy.sparse.csr_array:
    if not isinstance(S, tuple | list) or len(S) != 2:
        raise ValueError(
            f"{name} must be a scipy sparse matrix, a square array or a pair (S_idx, S_val), "
            f"got {type(S).__name__}"
        )
    S_idx, S_val = np.asarray(S[0]), np.asarray(S[1])
    if S_idx.ndim != 2 or S_idx.shape[1] != 2:
        raise ValueError(f"S_idx must be of shape (nonzeros, 2), got {S_idx.shape}")
    if not np.issubdtype(S_idx.dtype, np.integer):
        raise ValueError(f"S_idx must be integers, got {S_idx.dtype}")
    if S_val.shape != S_idx.shape[:1]:
        raise ValueError(f"S_val must be of shape ({S_idx.shape[0]},) to match S_idx, got {S_val.shape}")
    if num_words is None:
        num_words = int(S_idx.max(initial=-1)) + 1
    rows, columns = S_idx[:, 0], S_idx[:, 1]
    outside = ((S_idx < 0) | (S_idx >= num_words)).any(axis=1)
    if outside.any():
        n = int(outside.argmax())
        raise ValueError(f"S_idx[{n}] = ({rows[n]}, {columns[n]}) is outside of {num_words} words")
    data, shape = _as_float64("S_val", S_val), (num_words, num_words)
    matrix = _from_sparse("S_val", scipy.sparse.coo_array((data, (rows, columns)), shape=shape))
    if matrix.nnz < data.size:  # the conversion has summed duplicates
        _, first, count = np.unique(S_idx, axis=0, return_index=True, return_counts=True)
        n = int(first[count > 1].min())
        num_such = int((count > 1).sum())
        raise ValueError(
            f"S_idx[{n}] = ({rows[n]}, {columns[n]}) occurs more than once ({num_such} in total)"
        )
    return matrix


def symmetric(
    name: str, matrix: scipy.sparse.csr_array, symmetrize: bool | None = None
) -> tuple[scipy.sparse.csr_array, int]:
    """Return a symmetric copy without stored zeros, and how many entries were changed.

    Rounding errors are averaged. A larger asymmetry is an error, or averaged with a warning if `symmetrize`.
    """
    if not matrix.data.all():
        matrix = matrix.copy()
        matrix.eliminate_zeros()
    mirror = scipy.sparse.csr_array(matrix.T)  # a copy, with sorted indices
    parts = ("indptr", "indices", "data")
    if all(np.array_equal(getattr(matrix, part), getattr(mirror, part)) for part in parts):
        return mirror, 0
    difference = abs(matrix - mirror)
    excess = difference - _RELATIVE_ASYMMETRY * matrix.maximum(mirror)
    asymmetric = excess > 0
    if asymmetric.nnz and not symmetrize:
        entries = asymmetric.tocoo()
        n = np.lexsort((entries.col, entries.row))[0]
        i, j = int(entries.row[n]), int(entries.col[n])
        raise ValueError(
            f"{name} is not symmetric: {name}[{i}, {j}] = {matrix[i, j]} but "
            f"{name}[{j}, {i}] = {matrix[j, i]} ({asymmetric.nnz} entries differ from their mirror image)"
            + ("; symmetrize=True takes the mean" if symmetrize is not None else "")
        )
    if asymmetric.nnz:
        warn(f"symmetrized {name}: {asymmetric.nnz} entries differed from their mirror image", UserWarning)
    return scipy.sparse.csr_array((matrix + mirror) / 2), asymmetric.nnz


def check_mapped(name: str, matrix: scipy.sparse.csr_array) -> None:
    """Refuse a matrix that `canonical` and `symmetric` would refuse or change. It may be larger than memory.

    Of entries without a mirror image, those may pass that are below a rounding error of their row.
    """
    if matrix.dtype != np.float64:
        raise ValueError(f"{name} must be float64 to be mapped, got {matrix.dtype}")
    if matrix.shape[0] == matrix.shape[1] and not matrix.has_canonical_format:  # a copy would be made
        raise ValueError(f"{name} has columns that are not sorted, or are there twice")
    canonical(name, matrix)
    if not matrix.data.all():
        raise ValueError(f"{name} has zeros among its nonzeros")
    probe_symmetry(name, matrix)


def probe_symmetry(name: str, matrix: scipy.sparse.csr_array) -> None:
    """Check symmetry by comparing C x with C' x at one x (Freivalds). This needs no transposed copy."""
    x = 1 + np.arange(matrix.shape[0]) * 0.6180339887498949 % 1
    # Scaled by a power of two, so that no sum overflows.
    x = np.ldexp(x, -np.clip(np.frexp(matrix.data.max(initial=0.0))[1], -900, 900))
    forward, backward = matrix @ x, matrix.T @ x
    wrong = np.abs(forward - backward) > 1e-9 * forward  # far above the rounding errors
    if wrong.any():
        raise ValueError(f"{name} is not symmetric: row {int(wrong.argmax())} differs from its column")
