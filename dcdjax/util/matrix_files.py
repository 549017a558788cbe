"""Save and load sparse matrices with their words, and read the .npz files of SciPy."""

import math
import os
import zipfile
from collections.abc import Mapping, Sequence
from typing import IO, Any, NamedTuple

import numpy as np
import scipy.sparse

from dcdjax.util import store

# What scipy.sparse.save_npz writes for the formats that are read here.
_SCIPY_NAMES = {"format", "shape", "data", "indices", "indptr", "row", "col", "_is_array"}
_OWN_NAMES = ("data", "indices", "indptr")
_PASSAGE_NAMES = ("passage_indices", "passage_indptr")
_INDICES = {"csr": ("indices", "indptr"), "csc": ("indices", "indptr"), "coo": ("row", "col")}
# Bytes of the array that holds the format, the shape or a flag. SciPy writes at most 32.
_MAX_SMALL_BYTES = 64
# A file may have this many more rows than nonzeros, which are empty, or more nonzeros than places for them,
# which add up. A larger number can only be wrong, and would take all memory for nothing.
_MAX_SPARE = 10_000_000


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
        words, settings = content["words"], content["settings"]
        if not isinstance(words, list | None) or not isinstance(settings, dict):
            raise ValueError("its words are no list, or its settings no record")
        if words is not None and len(words) != matrix.shape[0]:
            raise ValueError(f"it has {len(words)} words for {matrix.shape[0]} rows")
        arrays = {name: tensors[name] for name in tensors if name not in _OWN_NAMES}
        return StoredMatrix(matrix, None if words is None else tuple(words), settings, arrays)


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

    `scipy.sparse.load_npz` does not check all indices. With a wrong one, SciPy would read outside of arrays.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: if the file is damaged or holds something else. The message names it.
    """
    with store.name_in_errors(path), open(path, "rb") as file:
        declared = _declared_arrays(file)
        if "format" not in declared:
            raise ValueError(f"it holds no sparse matrix, only {sorted(declared)}")
        for name in ("format", "shape", "_is_array"):
            if name in declared and declared[name].nbytes > _MAX_SMALL_BYTES:
                raise ValueError(f"array {name!r} has {declared[name].nbytes} bytes")
        file.seek(0)
        # np.load leaves a damaged file open if it opens the file itself.
        with np.load(file, allow_pickle=False) as archive:
            small = {name: archive[name] for name in ("format", "shape") if name in declared}
            _check_sizes({**declared, **small})
            if set(declared) - _SCIPY_NAMES:
                raise ValueError(f"it holds the arrays {list(declared)}, which is more than a sparse matrix")
            arrays = {name: archive[name] for name in declared}
        # SciPy takes arrays of this machine's byte order only.
        return _to_matrix(
            {name: array.astype(array.dtype.newbyteorder("=")) for name, array in arrays.items()}
        )


def _declared_arrays(file: IO[bytes]) -> dict[str, np.ndarray]:
    """Return arrays of the shapes and dtypes that a .npz file declares. They take no memory.

    A short file can hold gigabytes of zeros, so what it declares is checked before anything is inflated.
    """
    declared: dict[str, np.ndarray] = {}
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            # The decompressors of other methods ask for as much memory as the file says.
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"array {name!r} is compressed by another method than that of NumPy")
            if name in declared:
                raise ValueError(f"array {name!r} is there twice")
            with archive.open(member) as array:
                if (version := np.lib.format.read_magic(array)) != (1, 0):  # headers of others may be large
                    raise ValueError(f"array {name!r} is of version {version}")
                shape, _, dtype = np.lib.format.read_array_header_1_0(array)
                num_bytes = array.tell() + math.prod(shape) * dtype.itemsize
            if dtype.hasobject:
                raise ValueError(f"array {name!r} is pickled")
            if dtype.itemsize > _MAX_SMALL_BYTES:
                raise ValueError(f"array {name!r} has entries of {dtype.itemsize} bytes")
            if num_bytes != member.file_size:
                raise ValueError(f"array {name!r} should have {num_bytes} bytes, but has {member.file_size}")
            declared[name] = np.broadcast_to(np.zeros((), dtype), shape)
    return declared


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
    """Refuse CSR arrays that would make compiled code read or write outside of arrays."""
    _check_indices("indices", indices, data.size, num_columns)
    if indptr.size != num_rows + 1 or indptr[0] != 0 or indptr[-1] != data.size:
        raise ValueError(f"array 'indptr' must rise from 0 to {data.size} in {num_rows} steps")
    if (indptr[1:] < indptr[:-1]).any():
        raise ValueError(f"array 'indptr' decreases at {int((indptr[1:] < indptr[:-1]).argmax())}")


def check_size(num_rows: int, num_columns: int, num_nonzeros: int) -> None:
    """Refuse a number of rows or of nonzeros that can only be wrong. Some nonzeros may be there twice."""
    if num_rows > num_nonzeros + _MAX_SPARE:
        raise ValueError(f"it says it has {num_rows} rows, but has only {num_nonzeros} nonzeros")
    if num_nonzeros > num_rows * num_columns + _MAX_SPARE:
        raise ValueError(
            f"it says it has {num_nonzeros} nonzeros, but only {num_rows} x {num_columns} entries"
        )


def _check_sizes(content: Mapping[str, np.ndarray]) -> tuple[str, int, int]:
    """Refuse sizes that make no matrix. Return the format and shape; of other arrays only sizes matter."""
    layout = content["format"].astype(str).item()  # SciPy saves bytes
    if layout not in ("csr", "csc", "coo"):
        raise ValueError(f"it holds the sparse format {layout!r}: save matrix.tocsr() instead")
    needed = ("shape", "data", *_INDICES[layout])
    missing = [name for name in needed if name not in content]
    if missing:
        raise ValueError(f"it holds no array {missing[0]!r}, which the sparse format {layout} needs")
    for name in (needed[0], *needed[2:]):
        if content[name].dtype.kind not in "iu" or content[name].ndim != 1:
            raise ValueError(f"array {name!r} must be integers in one dimension")
    shape, data = content["shape"], content["data"]
    if shape.shape != (2,) or min(shape) < 0 or data.ndim != 1:
        raise ValueError(f"it holds no matrix: shape {shape.tolist()}, data of {data.ndim} dimensions")
    num_rows, num_columns = (int(length) for length in shape)
    check_size(num_rows, num_columns, data.size)
    for name in ("row", "col") if layout == "coo" else ("indices",):
        if content[name].size != data.size:
            raise ValueError(
                f"array {name!r} has {content[name].size} entries where the data have {data.size}"
            )
    num_steps = num_columns if layout == "csc" else num_rows
    if layout != "coo" and content["indptr"].size != num_steps + 1:
        raise ValueError(f"array 'indptr' must rise from 0 to {data.size} in {num_steps} steps")
    return layout, num_rows, num_columns


def _to_matrix(content: Mapping[str, np.ndarray]) -> scipy.sparse.csr_array:
    layout, num_rows, num_columns = _check_sizes(content)
    data, first, second = (content[name] for name in ("data", *_INDICES[layout]))
    if layout == "coo":
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
