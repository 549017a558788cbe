"""A sparse matrix with its words enters; one .npz file leaves, and comes back whole or is refused by name."""

import json
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from dcdjax import files

# What scipy.sparse.save_npz writes, of one format or another.
_SCIPY_NAMES = ("format", "shape", "data", "indices", "indptr", "row", "col", "offsets", "_is_array")
_OWN_NAMES = ("words", "word_ends", "settings")
# What reading damaged files has been seen to raise, and what it may: an archive is a file written by anybody.
_DAMAGE = (
    *(OSError, EOFError, ValueError, KeyError, TypeError, RuntimeError, OverflowError, RecursionError),
    *(MemoryError, struct.error, zlib.error, zipfile.BadZipFile),
)
# Bytes read at once.
_PIECE = 1 << 24
# Of an entry of an archive, before its name and what else is said of it; the lengths of these are the last.
_LOCAL_HEADER = 30
# Rows of a file beyond its number of nonzeros. They are empty, so only a wrong number has more of them,
# and would claim all memory for nothing.
_MAX_EMPTY_ROWS = 10_000_000


class StoredMatrix(NamedTuple):
    """What a file holds.

    Attributes:
      matrix: as it was stored, its index arrays checked, its values not.
      words: one for each row, if stored.
      settings: what was said at saving; empty for a file that scipy wrote.
      arrays: further arrays, by name.
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
    **arrays: np.ndarray,
) -> None:
    """Writes one uncompressed .npz file, whole or not at all, which `scipy.sparse.load_npz` reads too.

    Entries go to the file piece by piece: the matrix may be memory-mapped and larger than memory.

    Args:
      path: of the file, taken as it is.
      matrix: any real dtype, int32 or int64 indices.
      words: one for each row, or None. Any characters but lone surrogates.
      settings: what JSON can hold. "kind" says what the matrix is: `load_matrix` can insist on it.
      **arrays: further arrays, of numbers.

    Raises:
      ValueError: for words that are not as many as rows or not Unicode, and arrays whose names are taken or
        which hold Python objects.
    """
    content: dict[str, Any] = {
        "format": np.array(b"csr"),
        "shape": np.array(matrix.shape, np.int64),
        "data": matrix.data,
        "indices": matrix.indices,
        "indptr": matrix.indptr,
        "_is_array": np.array(True),
    }
    taken = set(arrays) & {*_SCIPY_NAMES, *_OWN_NAMES}
    if taken:
        raise ValueError(f"{path}: the name {min(taken)!r} is taken, give the array another")
    content |= {name: np.asarray(array) for name, array in arrays.items()}
    if words is not None:
        if len(words) != matrix.shape[0]:
            raise ValueError(f"{path}: {len(words)} words for {matrix.shape[0]} rows")
        content |= _packed(path, words)
    for name, array in content.items():
        if array.dtype.hasobject:
            raise ValueError(f"{path}: array {name!r} holds Python objects, which are never saved")
    # All names, because one wrong byte in the directory of an archive can hide the rest of its entries.
    record = json.dumps({"settings": dict(settings), "arrays": sorted(content)})
    with files.written_whole(path) as file:
        np.savez(file, settings=np.frombuffer(record.encode(), np.uint8), **content)


def load_matrix(
    path: str | os.PathLike[str], *, kind: str | None = None, mapped: bool = False
) -> StoredMatrix:
    """Reads what `save_matrix` or `scipy.sparse.save_npz` wrote. Nothing is ever unpickled.

    Args:
      path: of the file.
      kind: refuse a file whose settings do not say this kind.
      mapped: read and check everything, but keep nothing of the matrix in memory: its arrays are mapped there
        from the file, which must stay as it is.

    Returns:
      The matrix, words, settings and further arrays.

    Raises:
      FileNotFoundError: if there is none.
      ValueError: naming the file and what is wrong with it: damage, a wrong kind, indices out of range.
    """
    with naming(path), zipfile.ZipFile(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
        settings: dict[str, Any] = {}
        if "settings" in names:
            record = json.loads(_read_array(archive, "settings").tobytes())
            settings = dict(record["settings"])
            if sorted(names) != sorted([*record["arrays"], "settings"]):
                raise ValueError(f"it should hold the arrays {record['arrays']}, but holds {names}")
        elif "format" in names and set(names) - set(_SCIPY_NAMES):
            raise ValueError(f"it holds the arrays {names}, which is more than a sparse matrix")
        found = settings.get("kind", "a matrix that dcdjax did not save")
        if kind not in (None, found):
            raise ValueError(f"it holds {found}, not {kind}")
        left = {"data", "indices"} if mapped else set()
        content = {
            name: _mapped_array(archive, path, name) if name in left else _read_array(archive, name)
            for name in names
            if name != "settings"
        }
        matrix = _matrix(content)
        words = None
        if "words" in content:
            words = _unpacked(content["words"], content["word_ends"], matrix.shape[0])
        arrays = {name: content[name] for name in content if name not in (*_SCIPY_NAMES, *_OWN_NAMES)}
        return StoredMatrix(matrix=matrix, words=words, settings=settings, arrays=arrays)


def is_archive(path: str | os.PathLike[str]) -> bool:
    """Whether the file begins as a .npz file does."""
    with naming(path), open(path, "rb") as file:
        return file.read(4) == b"PK\x03\x04"


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turns whatever reading a damaged file raises into a ValueError that names it."""
    try:
        yield
    except (FileNotFoundError, PermissionError):
        raise
    except _DAMAGE as error:
        reason = error if str(error) else type(error).__name__
        raise ValueError(f"{os.fspath(path)}: {reason}") from error


def from_coordinates(
    data: np.ndarray, rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]
) -> scipy.sparse.csr_array:
    """A matrix in CSR, its indices sorted; entries of the same place add up."""
    matrix = scipy.sparse.csr_array((data, (rows, columns)), shape=shape)
    matrix.sum_duplicates()  # SciPy 1.13.0 leaves it undone
    return matrix


def check_compressed(
    data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, num_rows: int, num_columns: int
) -> None:
    """Refuses CSR arrays with which compiled code would read or write where it must not."""
    _check_indices("indices", indices, data.size, num_columns)
    if indptr.size != num_rows + 1 or indptr[0] != 0 or indptr[-1] != data.size:
        raise ValueError(f"array 'indptr' does not lead from 0 to {data.size} in {num_rows} steps")
    if (indptr[1:] < indptr[:-1]).any():
        raise ValueError(f"array 'indptr' falls at {int((indptr[1:] < indptr[:-1]).argmax())}")


def check_size(num_rows: int, num_nonzeros: int) -> None:
    """Refuses a number of rows that can only be wrong."""
    if num_rows > num_nonzeros + _MAX_EMPTY_ROWS:
        raise ValueError(f"it says it has {num_rows} rows, but has only {num_nonzeros} nonzeros")


def _read_array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """As np.load, but a lying header claims no memory, and all bytes are read, so that the CRC is checked."""
    entry = _entry(archive, name)
    with archive.open(entry) as file:
        shape, fortran_order, dtype = _header(name, entry, file)
        array = np.empty(math.prod(shape), dtype)
        buffer, start = array.view(np.uint8), 0
        while start < buffer.size:
            num_read = file.readinto(buffer[start : start + _PIECE])  # pyright: ignore[reportAttributeAccessIssue]
            if not num_read:
                raise EOFError(f"array {name!r} ends early")
            start += num_read
        array = array.astype(dtype.newbyteorder("="), copy=False)  # scipy takes no other
        return array.reshape(shape, order="F" if fortran_order else "C")


def _mapped_array(archive: zipfile.ZipFile, path: str | os.PathLike[str], name: str) -> np.ndarray:
    """The same, but left in the file."""
    entry = _entry(archive, name)
    with archive.open(entry) as file:
        shape, _, dtype = _header(name, entry, file)
        begin = file.tell()
        while file.read(_PIECE):  # for the CRC
            pass
    if entry.compress_type != zipfile.ZIP_STORED or len(shape) != 1 or not dtype.isnative:
        raise ValueError(f"array {name!r} is not as dcdjax saves it: read the file as a whole")
    with open(path, "rb") as file:
        file.seek(entry.header_offset)
        local = file.read(_LOCAL_HEADER)
    begin += entry.header_offset + _LOCAL_HEADER + sum(struct.unpack("<HH", local[-4:]))
    if not math.prod(shape):
        return np.empty(shape, dtype)
    return np.memmap(path, dtype, "r", begin, shape)


def _entry(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    entry = archive.getinfo(f"{name}.npy")
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"array {name!r} is compressed in an unknown way")
    return entry


def _header(name: str, entry: zipfile.ZipInfo, file: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"array {name!r} is of the unknown version {version}")
    read_header = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}
    shape, fortran_order, dtype = read_header[version[0]](file)
    if dtype.hasobject:
        raise ValueError(f"array {name!r} holds Python objects, which are never unpickled")
    if min(shape, default=0) < 0 or file.tell() + math.prod(shape) * dtype.itemsize != entry.file_size:
        raise ValueError(f"array {name!r} is not as long as its shape {shape} says")
    return shape, fortran_order, dtype


def _matrix(content: Mapping[str, np.ndarray]) -> scipy.sparse.csr_array:
    if "format" not in content:
        raise ValueError(f"it holds no sparse matrix, only {sorted(content)}")
    layout = content["format"].item()
    layout = layout.decode("latin-1") if isinstance(layout, bytes) else layout
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


def _packed(path: str | os.PathLike[str], words: Sequence[str]) -> dict[str, np.ndarray]:
    try:
        encoded = [word.encode() for word in words]
    except UnicodeEncodeError as error:
        raise ValueError(f"{path}: the word {error.object!r} is not Unicode: {error.reason}") from error
    ends = np.cumsum([len(word) for word in encoded], dtype=np.int64)
    return {"words": np.frombuffer(b"".join(encoded), np.uint8), "word_ends": ends}


def _unpacked(text: np.ndarray, ends: np.ndarray, num_words: int) -> tuple[str, ...]:
    if text.dtype != np.uint8 or ends.dtype.kind != "i" or ends.shape != (num_words,):
        raise ValueError(f"its words are not those of {num_words} rows")
    bounds = [0, *ends.tolist()]
    if bounds[-1] != text.size or bounds != sorted(bounds):
        raise ValueError("its words do not end where they should")
    characters = text.tobytes()
    return tuple(characters[start:end].decode() for start, end in pairwise(bounds))
