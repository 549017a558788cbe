"""Save and load sparse matrices with their words, and read the .npz files of SciPy."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from dcdjax.util import store

# What scipy.sparse.save_npz writes for the formats that are read here.
_SCIPY_NAMES = {"format", "shape", "data", "indices", "indptr", "row", "col", "_is_array"}
_OWN_NAMES = ("data", "indices", "indptr")
_PASSAGE_NAMES = ("passage_indices", "passage_indptr")
# A file may have this many more rows than nonzeros. They are empty, so a larger number can only be wrong, and
# would take all memory for nothing.
_MAX_EMPTY_ROWS = 10_000_000


class StoredMatrix(NamedTuple):
    """Hold what a file contains.

    Attributes:
      matrix: the matrix as it was saved. Its index arrays are checked, its values are not.
      words: one word for each row, if saved.
      settings: the settings that were saved with it.
      arrays: further arrays by name.
    """

    matrix: scipy.sparse.csr_array
    words: tuple[str, ...] | None
    settings: dict[str, Any]
    arrays: dict[str, np.ndarray]


def save_matrix(
    path: str | os.PathLike[str],
    matrix: scipy.sparse.csr_array,
    words: Sequence[str] | None,
    settings: Mapping[str, Any],
    *,
    kind: str,
    **arrays: np.ndarray,
) -> None:
    """Write a matrix to one file, as `store.write` does. The matrix may be larger than memory.

    Args:
      path: path of the file.
      matrix: float64, float32, int64, int32 or bool values; int32 or int64 indices.
      words: one word for each row, or None.
      settings: what JSON can hold.
      kind: what the matrix is, "counts" or "similarity".
      **arrays: further arrays of numbers.

    Raises:
      ValueError: if there are not as many words as rows, a word is not Unicode, the name of an array is
        taken, or something cannot be saved.
    """
    with store.name_in_errors(path):
        taken = set(arrays) & set(_OWN_NAMES)
        if taken:
            raise ValueError(f"the name {min(taken)!r} is taken, give the array another")
        if words is not None:
            if len(words) != matrix.shape[0]:
                raise ValueError(f"{len(words)} words for {matrix.shape[0]} rows")
            words = list(words)
            "".join(words).encode()  # refuses half characters
        content = {"shape": list(matrix.shape), "words": words, "settings": settings}
        tensors = {name: getattr(matrix, name) for name in _OWN_NAMES}
        store.write(path, tensors | arrays, content, kind=kind)


def load_matrix(path: str | os.PathLike[str], *, kind: str, mapped: bool = False) -> StoredMatrix:
    """Read what `save_matrix` wrote.

    Args:
      path: path of the file.
      kind: refuse a file of another kind.
      mapped: check everything, but leave the matrix in the file and map it from there.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: if the file is damaged, of another kind, or has indices out of range. The message names it.
    """
    tensors, content = store.read(path, kind=kind, mapped=("data", "indices") if mapped else ())
    with store.name_in_errors(path):
        matrix = _to_matrix({"format": np.array("csr"), "shape": np.array(content["shape"]), **tensors})
        words = content["words"]
        if words is not None and len(words) != matrix.shape[0]:
            raise ValueError(f"it has {len(words)} words for {matrix.shape[0]} rows")
        arrays = {name: tensors[name] for name in tensors if name not in _OWN_NAMES}
        return StoredMatrix(matrix, None if words is None else tuple(words), content["settings"], arrays)


def passages_to_arrays(passages: scipy.sparse.csr_array | None) -> dict[str, np.ndarray]:
    """Return the arrays of a matrix of passages and words, to save them beside a matrix of words."""
    if passages is None:
        return {}
    arrays = passages.indices.astype(np.int32), passages.indptr.astype(np.int32)
    return dict(zip(_PASSAGE_NAMES, arrays, strict=True))


def passages_from_arrays(arrays: Mapping[str, np.ndarray], num_words: int) -> scipy.sparse.csr_array | None:
    """Return the matrix that `passages_to_arrays` took apart, or None if it was not saved.

    Raises:
      ValueError: if the arrays do not fit together.
    """
    missing = [name for name in _PASSAGE_NAMES if name not in arrays]
    if len(missing) == 1:
        raise ValueError(f"array {missing[0]!r} is missing")
    if missing:
        return None
    indices, indptr = (arrays[name] for name in _PASSAGE_NAMES)
    if any(array.dtype != np.int32 or array.ndim != 1 for array in (indices, indptr)) or not indptr.size:
        raise ValueError("the arrays of its passages must be int32 in one dimension")
    ones, num_passages = np.ones(indices.size, np.int8), indptr.size - 1
    check_compressed(ones, indices, indptr, num_passages, num_words)
    matrix = scipy.sparse.csr_array((ones, indices, indptr), shape=(num_passages, num_words))
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


def is_npz(path: str | os.PathLike[str]) -> bool:
    """Return whether the file begins as a .npz file does."""
    with store.name_in_errors(path), open(path, "rb") as file:
        return file.read(4) == b"PK\x03\x04"


def read_npz(path: str | os.PathLike[str]) -> scipy.sparse.csr_array:
    """Read what `scipy.sparse.save_npz` wrote in the formats csr, csc and coo.

    `scipy.sparse.load_npz` does not check all indices, with which its compiled code would read anywhere.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: if the file is damaged or holds something else. The message names it.
    """
    # np.load leaves a damaged file open if it opens the file itself.
    with store.name_in_errors(path), open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
        if "format" not in archive:
            raise ValueError(f"it holds no sparse matrix, only {sorted(archive.files)}")
        arrays = {name: archive[name] for name in archive.files if name in _SCIPY_NAMES}
        # SciPy takes arrays of this machine's byte order only.
        native = {name: array.astype(array.dtype.newbyteorder("=")) for name, array in arrays.items()}
        matrix = _to_matrix(native)
        if set(archive.files) - _SCIPY_NAMES:
            raise ValueError(f"it holds the arrays {archive.files}, which is more than a sparse matrix")
        return matrix


def from_coordinates(
    data: np.ndarray, rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]
) -> scipy.sparse.csr_array:
    """Return a matrix in CSR with sorted indices. Entries of the same place add up."""
    matrix = scipy.sparse.csr_array((data, (rows, columns)), shape=shape)
    matrix.sum_duplicates()  # SciPy 1.13.0 leaves it undone
    return matrix


def check_compressed(
    data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, num_rows: int, num_columns: int
) -> None:
    """Refuse CSR arrays with which compiled code would read or write where it must not."""
    _check_indices("indices", indices, data.size, num_columns)
    if indptr.size != num_rows + 1 or indptr[0] != 0 or indptr[-1] != data.size:
        raise ValueError(f"array 'indptr' does not lead from 0 to {data.size} in {num_rows} steps")
    if (indptr[1:] < indptr[:-1]).any():
        raise ValueError(f"array 'indptr' falls at {int((indptr[1:] < indptr[:-1]).argmax())}")


def check_size(num_rows: int, num_nonzeros: int) -> None:
    """Refuse a number of rows that can only be wrong."""
    if num_rows > num_nonzeros + _MAX_EMPTY_ROWS:
        raise ValueError(f"it says it has {num_rows} rows, but has only {num_nonzeros} nonzeros")


def _to_matrix(content: Mapping[str, np.ndarray]) -> scipy.sparse.csr_array:
    layout = content["format"].astype(str).item()  # SciPy saves bytes
    if layout not in ("csr", "csc", "coo"):
        raise ValueError(f"it holds the sparse format {layout!r}: save matrix.tocsr() instead")
    needed = ("shape", "data", *(("row", "col") if layout == "coo" else ("indices", "indptr")))
    missing = [name for name in needed if name not in content]
    if missing:
        raise ValueError(f"it holds no array {missing[0]!r}, which the sparse format {layout} needs")
    for name in (needed[0], *needed[2:]):
        if content[name].dtype.kind not in "iu" or content[name].ndim != 1:
            raise ValueError(f"array {name!r} must be integers in one dimension")
    shape, data, first, second = (content[name] for name in needed)
    if shape.shape != (2,) or min(shape) < 0 or data.ndim != 1:
        raise ValueError(f"it holds no matrix: shape {shape.tolist()}, data of {data.ndim} dimensions")
    num_rows, num_columns = (int(length) for length in shape)
    if layout == "coo":
        check_size(num_rows, data.size)
        _check_indices("row", first, data.size, num_rows)
        _check_indices("col", second, data.size, num_columns)
        return from_coordinates(data, first, second, (num_rows, num_columns))
    major, minor = (num_rows, num_columns) if layout == "csr" else (num_columns, num_rows)
    check_compressed(data, first, second, major, minor)
    build = scipy.sparse.csr_array if layout == "csr" else scipy.sparse.csc_array
    return scipy.sparse.csr_array(build((data, first, second), shape=(num_rows, num_columns)))


def _check_indices(name: str, indices: np.ndarray, length: int, bound: int) -> None:
    if indices.size != length:
        raise ValueError(f"array {name!r} has {indices.size} entries where the data have {length}")
    if length and not 0 <= indices.min() <= indices.max() < bound:
        n = int(((indices < 0) | (indices >= bound)).argmax())
        raise ValueError(f"{name}[{n}] = {indices[n]} is outside of 0 to {bound - 1}")
