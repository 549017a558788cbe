"""A Matrix Market file enters, compressed or not; a matrix leaves, or an error that names the file."""

import gzip
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import scipy.io
import scipy.sparse

from dcdjax import matrix_files

_COMPRESSED = b"\x1f\x8b"  # gzip's first bytes


def read_matrix(path: str | os.PathLike[str]) -> scipy.sparse.coo_array | np.ndarray:
    """Reads a Matrix Market file, compressed by gzip or not: real, integer or pattern, general or symmetric.

    Args:
      path: of the file. Its name does not matter, its content does.

    Returns:
      A sparse matrix with both triangles, or a dense one where the file has all entries.

    Raises:
      FileNotFoundError: if there is none.
      ValueError: naming the file and what is wrong with it.
    """
    with matrix_files.naming(path), _uncompressed(Path(path)) as plain:
        with plain.open("rb") as file:
            banner = file.readline(256).decode("latin-1").lower().split()
        if not banner or banner[0] != "%%matrixmarket":
            raise ValueError("it is neither a .npz nor a Matrix Market file (.mtx, .mtx.gz)")
        for wrong in ("complex", "hermitian", "skew-symmetric"):
            if wrong in banner:
                raise ValueError(f"it holds a {wrong} matrix: only real, symmetric ones are similarities")
        with warnings.catch_warnings():
            # Which of its two kinds of sparse matrices SciPy gives does not matter here.
            warnings.filterwarnings("ignore", "The default value for `spmatrix`", DeprecationWarning)
            matrix = scipy.io.mmread(os.fspath(plain))
        if isinstance(matrix, np.ndarray):
            return matrix
        matrix_files.check_size(matrix.shape[0], matrix.nnz)
        return scipy.sparse.coo_array(matrix)


@contextmanager
def _uncompressed(path: Path) -> Iterator[Path]:
    """The path, or that of an uncompressed copy.

    mmread would take compressed files by their name, and open streams. But where a stream fails, as one of
    damaged gzip does, its compiled reader aborts the process (seen with scipy 1.17.1).
    """
    with path.open("rb") as file:
        compressed = file.read(len(_COMPRESSED)) == _COMPRESSED
    if not compressed and path.suffix not in (".gz", ".bz2"):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="dcdjax-") as folder:
        copy = Path(folder) / "matrix.mtx"
        with (gzip.open if compressed else open)(path, "rb") as source, copy.open("wb") as target:
            shutil.copyfileobj(source, target)
        yield copy
