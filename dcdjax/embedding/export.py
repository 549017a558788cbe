"""Write words and vectors in the formats of word2vec, NumPy and the TensorFlow embedding projector."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dcdjax.util import checks, files

ExportFormat = Literal["word2vec", "word2vec-binary", "numpy", "projector"]

# The number of entries that are turned into text at a time.
BLOCK_ENTRIES = 1 << 17
# Readers decompress files with these endings, and fail because ours are not compressed.
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
# gensim splits at spaces and line feeds, other readers at all white space of C, and C ends words at NUL.
# Other spaces, such as U+00A0, are safe. UTF-8 cannot encode surrogates.
_NOT_IN_WORD2VEC = re.compile("[\0\t-\r \ud800-\udfff]|^\\Z")
# The projector or Python begins a new cell or line at these characters.
_NOT_IN_TABLES = re.compile("[\t-\r\x1c-\x1e\x85\u2028\u2029\ud800-\udfff]")
# The projector skips blank lines, so all later labels would move to wrong points. A decoder removes U+FEFF at
# the start of a file as a byte order mark.
_NOT_A_LABEL = re.compile(f"{_NOT_IN_TABLES.pattern}|^\ufeff|^[\\s\ufeff]*\\Z")
# NumPy pads strings with NUL and removes every NUL at the end.
_NOT_IN_NUMPY = re.compile("\0\\Z")


def write(
    path: str | os.PathLike[str],
    format: ExportFormat,  # noqa: A002, the usual name
    words: Sequence[str],
    vectors: np.ndarray,
    *,
    word_counts: np.ndarray | None = None,
) -> None:
    """Write words and vectors in the named format; the projector also shows the word counts."""
    checks.choice("format", format, get_args(ExportFormat))
    if format == "numpy":
        write_numpy(path, words, vectors)
    elif format == "projector":
        columns = None if word_counts is None else {"count": word_counts.tolist()}
        write_projector(path, words, vectors, columns=columns)
    else:
        # Words have no blanks in these formats, so phrases are written as word2vec's own tool writes them.
        words = [word.replace(" ", "_") if " " in word.strip() else word for word in words]
        write_word2vec(path, words, vectors, binary=format == "word2vec-binary")


def write_word2vec(
    path: str | os.PathLike[str], words: Sequence[str], vectors: np.ndarray, *, binary: bool = False
) -> None:
    """Write a file for gensim's `KeyedVectors.load_word2vec_format` and for word2vec's C programs.

    The file holds float32, as the readers do. Text has enough digits to read back the same bits. The C
    programs show only the first 50 bytes of a word.

    Args:
      path: the file to write. It is never compressed.
      words: all different, not empty, without ASCII white space and NUL.
      vectors: one row for each word, finite.
      binary: write the binary format, which is smaller and faster. The reader must be told.

    Raises:
      ValueError: with the first word or number that cannot be written. Then no file is written.

    Example:
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     write_word2vec(f"{folder}/two.txt", ["sun", "moon"], np.array([[0.1, 2.0], [1e-9, 0.0]]))
      ...     print(Path(f"{folder}/two.txt").read_text(), end="")
      2 2
      sun 0.1 2
      moon 1e-9 0
    """
    if os.fspath(path).endswith(_COMPRESSED):
        raise ValueError(
            f"path {os.fspath(path)} ends like a compressed file, but the file is not compressed"
        )
    vectors = _checked(words, vectors, as_float32=True)
    _refuse("words", words, _NOT_IN_WORD2VEC, "is empty or has white space, NUL or a lone surrogate")
    with files.atomic_write(path) as file:
        file.write(f"{vectors.shape[0]} {vectors.shape[1]}\n".encode())
        for rows in _blocks(vectors):
            singles = _as_float32(vectors[rows])
            numbers = map(bytes, singles.astype("<f4", copy=False)) if binary else _texts(singles, " ")
            pairs = zip(words[rows], numbers, strict=True)
            file.writelines(b"%b %b\n" % (word.encode(), row) for word, row in pairs)


def write_numpy(path: str | os.PathLike[str], words: Sequence[str], vectors: np.ndarray) -> None:
    """Write one uncompressed .npz file with the arrays `words` and `vectors`, for `np.load`.

    Args:
      path: the file to write. No ending is added.
      words: all different. In NumPy's array each word takes as many bytes as the longest one.
      vectors: one row for each word, finite, float16, float32 or float64.

    Raises:
      ValueError: with the first word or number that cannot be written. Then no file is written.

    Example:
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     write_numpy(f"{folder}/two.npz", ["sun", "moon"], np.eye(2))
      ...     with np.load(f"{folder}/two.npz") as content:
      ...         print(content["words"], content["vectors"].shape)
      ['sun' 'moon'] (2, 2)
    """
    vectors = _checked(words, vectors, as_float32=False)
    _refuse("words", words, _NOT_IN_NUMPY, "ends in NUL, which NumPy removes")
    with files.atomic_write(path) as file:
        np.savez(file, words=np.array(words, dtype=np.str_), vectors=vectors)


def write_projector(
    folder: str | os.PathLike[str],
    words: Sequence[str],
    vectors: np.ndarray,
    *,
    columns: Mapping[str, Sequence[Any] | np.ndarray] | None = None,
) -> None:
    r"""Write vectors.tsv and metadata.tsv for the TensorFlow embedding projector.

    Args:
      folder: the folder to write to. It is created if missing, in a folder that exists; other files in it
        stay.
      words: all different, not blank, without tabs and line breaks.
      vectors: one row for each word, finite; written as float32, as the projector holds them.
      columns: more values to show for each word, such as {"count": counts}.

    Raises:
      ValueError: with the first word, number or column value that cannot be written. Then no file is written.

    Example:
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     write_projector(folder, ["sun", "moon"], np.eye(2), columns={"count": [7, 5]})
      ...     print(Path(folder, "metadata.tsv").read_text().splitlines())
      ['word\tcount', 'sun\t7', 'moon\t5']
    """
    vectors = _checked(words, vectors, as_float32=True)
    _refuse("words", words, _NOT_A_LABEL, "is blank or has a tab, a line break or a lone surrogate")
    columns = dict(columns or {})
    for name, column in columns.items():
        if name == "word" or _NOT_A_LABEL.search(name):
            raise ValueError(f"columns: the name {name!r} is 'word', is blank, or has a tab or line break")
        if len(column) != len(words):
            raise ValueError(f"columns[{name!r}] has {len(column)} values for {len(words)} words")
        _refuse(f"columns[{name!r}]", map(str, column), _NOT_IN_TABLES, "has a tab or a line break")
    folder = Path(folder)
    if not folder.absolute().parent.is_dir():
        raise FileNotFoundError(f"{folder}: there is no folder {folder.absolute().parent}")
    folder.mkdir(exist_ok=True)
    with (
        files.atomic_write(folder / "vectors.tsv") as numbers,
        files.atomic_write(folder / "metadata.tsv") as labels,
    ):
        for rows in _blocks(vectors):
            numbers.writelines(text + b"\n" for text in _texts(_as_float32(vectors[rows]), "\t"))
        if columns:
            labels.write(("\t".join(["word", *columns]) + "\n").encode())
        for cells in zip(words, *columns.values(), strict=True):
            labels.write(("\t".join(map(str, cells)) + "\n").encode())
        # metadata.tsv is closed and renamed first, so an error of a full disk must show before that.
        numbers.flush()


def _checked(words: Sequence[str], vectors: np.ndarray, *, as_float32: bool) -> np.ndarray:
    """Return the vectors if they are finite, one for each word, and all words differ."""
    vectors = np.asarray(vectors)
    if vectors.ndim != 2 or vectors.dtype.name not in ("float16", "float32", "float64"):
        raise ValueError(f"vectors must be a matrix of floats, got shape {vectors.shape} of {vectors.dtype}")
    if as_float32 and not vectors.shape[1]:
        raise ValueError(f"vectors of shape {vectors.shape} have no columns, which readers do not accept")
    if len(words) != vectors.shape[0]:
        raise ValueError(f"words: there are {len(words)} words for vectors of shape {vectors.shape}")
    places: dict[str, int] = {}
    for n, word in enumerate(words):
        if not isinstance(word, str):
            raise ValueError(f"words[{n}] = {word!r} is not a string")
        if places.setdefault(word, n) != n:
            raise ValueError(f"words[{n}] = {word!r} is also words[{places[word]}]")
    for rows in _blocks(vectors):
        block = _as_float32(vectors[rows]) if as_float32 else vectors[rows]
        wrong = np.argwhere(~np.isfinite(block))
        if wrong.size:
            row, column = int(wrong[0, 0]) + rows.start, int(wrong[0, 1])
            value = f"vectors[{row}, {column}] = {vectors[row, column]} of the word {words[row]!r}"
            raise ValueError(f"{value} is not finite{' in float32' if as_float32 else ''}")
    return vectors


def _refuse(name: str, words: Iterator[str] | Sequence[str], pattern: re.Pattern[str], why: str) -> None:
    """Raise an error for the first word that matches the pattern."""
    for n, word in enumerate(words):
        if pattern.search(word):
            raise ValueError(f"{name}[{n}] = {word!r} {why}, so it cannot be written")


def _blocks(vectors: np.ndarray) -> Iterator[slice]:
    """Yield slices of rows with about BLOCK_ENTRIES entries each."""
    length = max(1, BLOCK_ENTRIES // max(1, vectors.shape[1]))
    for start in range(0, vectors.shape[0], length):
        yield slice(start, start + length)


def _as_float32(block: np.ndarray) -> np.ndarray:
    """Convert to float32; what overflows becomes infinite and is refused by its word."""
    with np.errstate(over="ignore", under="ignore"):
        return np.ascontiguousarray(block, np.float32)


def _texts(block: np.ndarray, separator: str) -> list[bytes]:
    """Write each row as text, with the fewest digits from which readers get the same bits back."""
    flat = block.ravel()
    texts = pa.array(flat).cast(pa.string())
    # gensim reads a double and rounds it to float32. Rounding twice changes some, such as 7.038531e-26.
    read = _as_float32(texts.cast(pa.float64()).to_numpy())
    others = np.flatnonzero(read.view(np.uint32) != flat.view(np.uint32))
    if others.size:
        longer = texts.to_pylist()
        for n in others:
            longer[n] = repr(float(flat[n]))
        texts = pa.array(longer)
    ends = np.arange(block.shape[0] + 1, dtype=np.int32) * np.int32(block.shape[1])
    rows = pa.ListArray.from_arrays(pa.array(ends), texts)
    # Arrow defines this function at import time, so pyright does not see it.
    joined = pc.binary_join(rows, separator)  # pyright: ignore[reportAttributeAccessIssue]
    return joined.cast(pa.binary()).to_pylist()
