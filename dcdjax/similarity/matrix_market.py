"""Read Matrix Market files."""

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

from dcdjax.util import matrix_files, store

_GZIP_MAGIC = b"\x1f\x8b"


def read_matrix(path: str | os.PathLike[str]) -> scipy.sparse.coo_array | np.ndarray:
    """Read a Matrix Market file: real, integer or pattern, general or symmetric.

    Args:
      path: path of the file, plain or compressed by gzip. The content decides, not the name.

    Returns:
      A sparse matrix with both triangles, or a dense one if the file lists all entries.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: if it cannot be read. The message names the file and what is wrong.
    """
    with store.name_in_errors(path), _uncompressed(Path(path)) as plain:
        with plain.open("rb") as file:
            banner = file.readline(256).decode("latin-1").lower().split()
        if not banner or banner[0] != "%%matrixmarket":
            raise ValueError("it is neither a .npz nor a Matrix Market file (.mtx, .mtx.gz)")
        for kind in ("complex", "hermitian", "skew-symmetric"):
            if kind in banner:
                raise ValueError(f"it holds a {kind} matrix: similarities are real and symmetric")
        with warnings.catch_warnings():
            # SciPy has two kinds of sparse matrices. Either will do here.
            warnings.filterwarnings("ignore", "The default value for `spmatrix`", DeprecationWarning)
            matrix = scipy.io.mmread(os.fspath(plain))
        if isinstance(matrix, np.ndarray):
            return matrix
        matrix_files.check_size(matrix.shape[0], matrix.nnz)
        return scipy.sparse.coo_array(matrix)


@contextmanager
def _uncompressed(path: Path) -> Iterator[Path]:
    """Return the path of a plain file as it is, or the path of an uncompressed copy.

    SciPy reads compressed files by their name, and open files. But its compiled reader aborts the process
    where a stream fails, as one of damaged gzip does, or is closed after an error (scipy 1.17.1).
    """
    with path.open("rb") as file:
        compressed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
    if not compressed and path.suffix not in (".gz", ".bz2"):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="dcdjax-") as folder:
        copy = Path(folder) / "matrix.mtx"
        with (gzip.open if compressed else open)(path, "rb") as source, copy.open("wb") as target:
            shutil.copyfileobj(source, target)
        yield copy
