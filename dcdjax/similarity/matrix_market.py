"""Read Matrix Market files.

SciPy's reader is not used: where a file ends in a blank, or a NUL follows a number, it reads beyond its
memory and ends the process (SciPy 1.17.1). It also ignores what follows the last number of a line.
"""

import gzip
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import scipy.sparse

from dcdjax.util import matrix_files, store

_GZIP_MAGIC = b"\x1f\x8b"
# Bytes of text that are parsed at a time, and of the longest line. A longer line must not fill the memory.
_CHUNK_BYTES, _MAX_LINE_BYTES = 1 << 20, 1 << 16
_FIELDS, _SYMMETRIES = ("real", "integer", "unsigned-integer", "pattern"), ("general", "symmetric")


class _Header(NamedTuple):
    """The first line of a file, its line of sizes, and the number of that line."""

    is_dense: bool
    is_pattern: bool
    is_symmetric: bool
    num_rows: int
    num_columns: int
    num_entries: int  # that the file lists
    line: int


def read_matrix(path: str | os.PathLike[str]) -> scipy.sparse.coo_array | np.ndarray:
    """Read a Matrix Market file: real, integer or pattern, general or symmetric.

    The file is read in pieces. The memory that is needed grows with the entries that are there, not with the
    sizes that the file declares.

    Args:
      path: path of the file, plain or compressed by gzip. The content decides, not the name.

    Returns:
      A sparse matrix with both triangles, or a dense one if the file lists all entries.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: if it cannot be read. The message names the file and what is wrong.
    """
    with store.name_in_errors(path), _opened(path) as file:
        header = _read_header(file)
        pieces = list(_read_pieces(file, header))
        columns = [np.concatenate(column) for column in zip(*pieces, strict=True)]
        if header.is_dense:
            return _dense(header, columns[0] if columns else np.empty(0))
        rows, columns, values = columns or [np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0)]
        if header.is_symmetric:
            off = rows != columns
            values = np.concatenate([values, values[off]])
            rows, columns = np.concatenate([rows, columns[off]]), np.concatenate([columns, rows[off]])
        return scipy.sparse.coo_array((values, (rows, columns)), (header.num_rows, header.num_columns))


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[io.BufferedIOBase]:
    with open(path, "rb") as file:
        compressed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
        file.seek(0)
        if not compressed:
            yield file
            return
        with gzip.open(file) as uncompressed:
            yield uncompressed


def _read_header(file: io.BufferedIOBase) -> _Header:
    banner = file.readline(_MAX_LINE_BYTES).decode("latin-1").lower().split()
    if not banner or banner[0] != "%%matrixmarket":
        raise ValueError("it is neither a .npz nor a Matrix Market file (.mtx, .mtx.gz)")
    for kind in ("complex", "hermitian", "skew-symmetric"):
        if kind in banner:
            raise ValueError(f"it holds a {kind} matrix: similarities are real and symmetric")
    known = (("matrix",), ("coordinate", "array"), _FIELDS, _SYMMETRIES)
    if len(banner) != 5 or not all(word in words for word, words in zip(banner[1:], known, strict=True)):
        raise ValueError(f"line 1: {' '.join(banner)[:100]!r} is no known kind of matrix")
    is_dense, is_pattern, is_symmetric = (
        banner[2] == "array",
        banner[3] == "pattern",
        banner[4] == "symmetric",
    )
    line, text = 2, _read_line(file, 2)
    while text and (not text.strip() or text.lstrip().startswith(b"%")):
        line, text = line + 1, _read_line(file, line + 1)
    sizes = text.split()
    if len(sizes) != (2 if is_dense else 3) or not all(size.isdigit() for size in sizes):
        raise ValueError(f"line {line}: {_shown(text.decode('latin-1'))} are no sizes of a matrix")
    num_rows, num_columns = int(sizes[0]), int(sizes[1])
    if is_symmetric and num_rows != num_columns:
        raise ValueError(f"line {line}: a symmetric matrix is square, got {num_rows} x {num_columns}")
    if is_dense:
        num_entries = num_rows * (num_rows + 1) // 2 if is_symmetric else num_rows * num_columns
    else:
        num_entries = int(sizes[2])
        matrix_files.check_size(num_rows, num_columns, num_entries)
    return _Header(is_dense, is_pattern, is_symmetric, num_rows, num_columns, num_entries, line)


def _read_pieces(file: io.BufferedIOBase, header: _Header) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield the entries piece by piece: rows, columns and values, or only values of a dense matrix."""
    places = [] if header.is_dense else [("row", np.int64), ("column", np.int64)]
    values = [] if header.is_pattern else [("value", np.float64)]
    index_dtype = np.int32 if max(header.num_rows, header.num_columns) < 1 << 31 else np.int64
    line, num_entries = header.line + 1, 0
    while text := file.read(_CHUNK_BYTES):
        text += _read_line(file, line + text.count(b"\n"))
        lines = text.decode("latin-1").split("\n")
        found = _parse(lines, line, np.dtype([*places, *values]))
        num_entries += found.size
        if num_entries > header.num_entries:
            raise ValueError(
                f"it has more than the {header.num_entries} entries that line {header.line} says"
            )
        for name, bound in (("row", header.num_rows), ("column", header.num_columns)) if places else ():
            outside = (found[name] < 1) | (found[name] > bound)
            if outside.any():
                n = [n for n, one in enumerate(lines) if one.strip()][outside.argmax()]
                raise ValueError(f"line {line + n}: {_shown(lines[n])} has a {name} outside of 1 to {bound}")
        line += len(lines) - 1
        indices = [(found[name] - 1).astype(index_dtype) for name, _ in places]
        yield *indices, found["value"].copy() if values else np.ones(found.size)
    if num_entries < header.num_entries:
        raise ValueError(f"it ends after {num_entries} of the {header.num_entries} entries that line "
                         f"{header.line} says")  # fmt: skip


def _read_line(file: io.BufferedIOBase, line: int) -> bytes:
    text = file.readline(_MAX_LINE_BYTES)
    if len(text) == _MAX_LINE_BYTES and not text.endswith(b"\n"):
        raise ValueError(f"line {line} is longer than {_MAX_LINE_BYTES} bytes")
    return text


def _parse(lines: list[str], first: int, dtype: np.dtype) -> np.ndarray:
    """Parse lines of one entry each. Blank lines are skipped."""
    try:
        # Without a line that is not blank, loadtxt warns.
        return (
            np.loadtxt(lines, dtype, comments=None, ndmin=1)
            if any(map(str.strip, lines))
            else np.empty(0, dtype)
        )
    except ValueError:
        if len(lines) == 1:
            kind = {1: "a number", 2: "a row and a column", 3: "a row, a column and a number"}[
                len(dtype.names or ())
            ]
            raise ValueError(f"line {first}: {_shown(lines[0])} is not {kind}") from None
    half = len(lines) // 2
    _parse(lines[:half], first, dtype)
    return _parse(lines[half:], first + half, dtype)


def _dense(header: _Header, values: np.ndarray) -> np.ndarray:
    if not header.is_symmetric:
        return values.reshape(header.num_columns, header.num_rows).T
    matrix = np.zeros((header.num_rows, header.num_rows))
    matrix[np.tri(header.num_rows, dtype=bool).T] = (
        values  # the lower triangle by columns is the upper one by rows
    )
    return matrix + np.triu(matrix, 1).T


def _shown(text: str) -> str:
    text = text.strip("\n")
    return repr(text if len(text) <= 60 else text[:60] + "...")
