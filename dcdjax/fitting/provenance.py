"""Record the name and hash of a corpus or a matrix, and the versions of the packages."""

import hashlib
import os
import platform
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from dcdjax.text.sources import list_files
from dcdjax.util.files import name_in_os_errors
from dcdjax.util.progress import Progress

_PIECE = 1 << 20
# A second's work or less needs no bar.
_LEAST_SHOWN = 1 << 28


def of_corpus(source: Any, tell: Progress | None = None) -> dict[str, Any]:
    """Return the name of a corpus and the SHA-256 of its files, or None if it can be read only once.

    A data set has its own hash. A single file is hashed as it lies on disk. For several files, the list of
    their hashes and names is hashed. Progress is told if there is much to hash.
    """
    if hasattr(source, "sha256") and hasattr(source, "name"):
        return {"name": str(source.name), "sha256": str(source.sha256)}
    if source is sys.stdin or (isinstance(source, str) and source == "-"):
        return {"name": "standard input", "sha256": None}
    files = list_files(source)
    if files is None:
        name = getattr(source, "name", None)  # of an open file, unless it is known by a number only
        name = Path(name).name if isinstance(name, str) else type(source).__name__
        return {"name": name, "sha256": None}
    # The name alone: the path may be private.
    first = Path(os.fspath(source) if isinstance(source, str | os.PathLike) else files[0])
    is_one = len(files) == 1 or first.is_dir()
    name = first.resolve().name if is_one else f"{first.name} and {len(files) - 1} more"
    if not all(file.is_file() for file in files):
        return {"name": name, "sha256": None}
    hashes = _hashes(files, tell)
    if len(files) > 1:
        listed = "\n".join(f"{digest} {file.name}" for digest, file in zip(hashes, files, strict=True))
        hashes = [hashlib.sha256(listed.encode(errors="surrogatepass")).hexdigest()]
    return {"name": name, "sha256": hashes[0]}


def of_matrix(matrix: scipy.sparse.csr_array, words: Sequence[str]) -> dict[str, Any]:
    """Return the size of a matrix, and a SHA-256 of its words and nonzeros."""
    digest = hashlib.sha256("\n".join(words).encode(errors="surrogatepass"))
    for array, kind in ((matrix.indptr, "<i8"), (matrix.indices, "<i8"), (matrix.data, "<f8")):
        for start in range(0, array.size, _PIECE):
            digest.update(np.ascontiguousarray(array[start : start + _PIECE], kind).data)
    return {"num_words": matrix.shape[0], "num_nonzeros": int(matrix.nnz), "sha256": digest.hexdigest()}


def versions() -> dict[str, str]:
    """Return the versions of this package, of the packages that compute, and of Python."""
    packages = ("dcdjax", "jax", "jaxlib", "numpy", "scipy")
    return {**{name: version(name) for name in packages}, "python": platform.python_version()}


def _hashes(files: Sequence[Path], tell: Progress | None) -> list[str]:
    """Return the SHA-256 of each file."""
    total = sum(file.stat().st_size for file in files)
    hashes, done, piece = [], 0, bytearray(_PIECE)
    for file in files:
        digest = hashlib.sha256()
        with name_in_os_errors(file), open(file, "rb", buffering=0) as opened:
            while size := opened.readinto(piece):
                digest.update(memoryview(piece)[:size])
                done += size
                if tell is not None and total >= _LEAST_SHOWN:
                    tell("hashing", done, total, "B")
        hashes.append(digest.hexdigest())
    return hashes
