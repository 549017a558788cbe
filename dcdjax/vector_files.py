"""Words with vectors enter; files that other tools read leave: word2vec's, NumPy's, a projector's."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dcdjax import files

# Numbers that are text at the same time.
_BLOCK = 1 << 17
# Readers undo these by the name alone, and would fail at what is not compressed.
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
# gensim splits at blanks and line feeds, other readers at all of C's white space, and C ends a word with NUL.
# Spaces beyond ASCII, such as U+00A0, come back unharmed. UTF-8 has no surrogates.
_NOT_IN_WORD2VEC = re.compile("[\0\t-\r \ud800-\udfff]|^\\Z")
# Where the projector, or Python, begins a new cell or line.
_NOT_IN_TABLES = re.compile("[\t-\r\x1c-\x1e\x85\u2028\u2029\ud800-\udfff]")
# The projector skips blank lines, and all further words would label wrong points. What decodes the file takes
# U+FEFF at its beginning for a byte order mark.
_NOT_A_LABEL = re.compile(f"{_NOT_IN_TABLES.pattern}|^\ufeff|^[\\s\ufeff]*\\Z")
# NumPy fills strings up with it, and takes all of it off again.
_NOT_IN_NUMPY = re.compile("\0\\Z")


def write_word2vec(
    path: str | os.PathLike[str], words: Sequence[str], vectors: np.ndarray, *, binary: bool = False
) -> None:
    """Writes what gensim's `KeyedVectors.load_word2vec_format` and word2vec's own C programs read.

    The readers hold float32, so that is what is written; text has as many digits as it takes to get the same
    bits back. (The C programs show no more than the first 50 bytes of a word.)

    Args:
      path: of the file, taken as it is. It is not compressed, whatever it is called.
      words: all different, not empty, without ASCII white space and NUL.
      vectors: one row for each word, finite.
      binary: the smaller and faster of the two formats. Tell the reader which one it is.

    Raises:
      ValueError: naming the first word or number that cannot be written. Nothing is written then.

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
        raise ValueError(f"path {os.fspath(path)} says that it is compressed, which it would not be")
    vectors = _checked(words, vectors, as_float32=True)
    _refuse("words", words, _NOT_IN_WORD2VEC, "is empty or holds white space, NUL or half a character")
    with files.written_whole(path) as file:
        file.write(f"{vectors.shape[0]} {vectors.shape[1]}\n".encode())
        for rows in _blocks(vectors):
            singles = _as_float32(vectors[rows])
            numbers = map(bytes, singles.astype("<f4", copy=False)) if binary else _texts(singles, " ")
            pairs = zip(words[rows], numbers, strict=True)
            file.writelines(b"%b %b\n" % (word.encode(), row) for word, row in pairs)


def write_numpy(path: str | os.PathLike[str], words: Sequence[str], vectors: np.ndarray) -> None:
    """Writes one uncompressed .npz file with the arrays `words` and `vectors`, which `np.load` reads.

    Args:
      path: of the file, taken as it is.
      words: all different. NumPy gives each the room of the longest.
      vectors: one row for each word, finite, float16, float32 or float64.

    Raises:
      ValueError: naming the first word or number that cannot be written. Nothing is written then.

    Example:
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     write_numpy(f"{folder}/two.npz", ["sun", "moon"], np.eye(2))
      ...     with np.load(f"{folder}/two.npz") as content:
      ...         print(content["words"], content["vectors"].shape)
      ['sun' 'moon'] (2, 2)
    """
    vectors = _checked(words, vectors, as_float32=False)
    _refuse("words", words, _NOT_IN_NUMPY, "ends in NUL, which NumPy would take off")
    with files.written_whole(path) as file:
        np.savez(file, words=np.array(words, dtype=np.str_), vectors=vectors)


def write_projector(
    folder: str | os.PathLike[str],
    words: Sequence[str],
    vectors: np.ndarray,
    *,
    columns: Mapping[str, Sequence[Any] | np.ndarray] | None = None,
) -> None:
    r"""Writes vectors.tsv and metadata.tsv, which the TensorFlow embedding projector loads.

    Args:
      folder: made if there is none. Further files in it stay.
      words: all different, not blank, without tabs and line breaks.
      vectors: one row for each word, finite; written as float32, which is what the projector holds.
      columns: what else to show of each word, such as {"count": counts}.

    Raises:
      ValueError: naming the first word, number or further value that cannot be written. Nothing is written
        then.

    Example:
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     write_projector(folder, ["sun", "moon"], np.eye(2), columns={"count": [7, 5]})
      ...     print(Path(folder, "metadata.tsv").read_text().splitlines())
      ['word\tcount', 'sun\t7', 'moon\t5']
    """
    vectors = _checked(words, vectors, as_float32=True)
    _refuse("words", words, _NOT_A_LABEL, "is blank or holds a tab, a line break or half a character")
    columns = dict(columns or {})
    for name, column in columns.items():
        if name == "word" or _NOT_A_LABEL.search(name):
            raise ValueError(
                f"columns has the name {name!r}, which is taken, blank or holds a tab or line break"
            )
        if len(column) != len(words):
            raise ValueError(f"columns[{name!r}] has {len(column)} values for {len(words)} words")
        _refuse(f"columns[{name!r}]", map(str, column), _NOT_IN_TABLES, "holds a tab or a line break")
    folder = Path(folder)
    with (
        files.written_whole(folder / "vectors.tsv") as numbers,
        files.written_whole(folder / "metadata.tsv") as labels,
    ):
        for rows in _blocks(vectors):
            numbers.writelines(text + b"\n" for text in _texts(_as_float32(vectors[rows]), "\t"))
        if columns:
            labels.write(("\t".join(["word", *columns]) + "\n").encode())
        for cells in zip(words, *columns.values(), strict=True):
            labels.write(("\t".join(map(str, cells)) + "\n").encode())
        # The labels take their place first: a full disk must show before.
        numbers.flush()


def _checked(words: Sequence[str], vectors: np.ndarray, *, as_float32: bool) -> np.ndarray:
    """The vectors, if they are finite and one for each word, which differ."""
    vectors = np.asarray(vectors)
    if vectors.ndim != 2 or vectors.dtype.name not in ("float16", "float32", "float64"):
        raise ValueError(f"vectors must be a matrix of floats, not of shape {vectors.shape}, {vectors.dtype}")
    if as_float32 and not vectors.shape[1]:
        raise ValueError(f"vectors of shape {vectors.shape} have no columns, which no reader expects")
    if len(words) != vectors.shape[0]:
        raise ValueError(f"{len(words)} words for vectors of shape {vectors.shape}")
    places: dict[str, int] = {}
    for n, word in enumerate(words):
        if not isinstance(word, str):
            raise ValueError(f"words[{n}] = {word!r} is not a string")
        if places.setdefault(word, n) != n:
            raise ValueError(f"words[{n}] = {word!r} is words[{places[word]}] again")
    for rows in _blocks(vectors):
        block = _as_float32(vectors[rows]) if as_float32 else vectors[rows]
        wrong = np.argwhere(~np.isfinite(block))
        if wrong.size:
            row, column = int(wrong[0, 0]) + rows.start, int(wrong[0, 1])
            value = f"vectors[{row}, {column}] = {vectors[row, column]} of the word {words[row]!r}"
            raise ValueError(f"{value} is not finite{' in float32' if as_float32 else ''}")
    return vectors


def _refuse(name: str, words: Iterator[str] | Sequence[str], pattern: re.Pattern[str], why: str) -> None:
    for n, word in enumerate(words):
        if pattern.search(word):
            raise ValueError(f"{name}[{n}] = {word!r} {why}: it cannot be written")


def _blocks(vectors: np.ndarray) -> Iterator[slice]:
    length = max(1, _BLOCK // max(1, vectors.shape[1]))
    for start in range(0, vectors.shape[0], length):
        yield slice(start, start + length)


def _as_float32(block: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore", under="ignore"):  # what overflows is refused by name
        return np.ascontiguousarray(block, np.float32)


def _texts(block: np.ndarray, separator: str) -> list[bytes]:
    """The rows as text, each number in the fewest digits from which readers get its bits back."""
    flat = block.ravel()
    texts = pa.array(flat).cast(pa.string())
    # gensim reads a double and makes it float32. Rounded twice, 7.038531e-26 is another number.
    read = _as_float32(texts.cast(pa.float64()).to_numpy())
    others = np.flatnonzero(read.view(np.uint32) != flat.view(np.uint32))
    if others.size:
        longer = texts.to_pylist()
        for n in others:
            longer[n] = repr(float(flat[n]))
        texts = pa.array(longer)
    ends = np.arange(block.shape[0] + 1, dtype=np.int32) * np.int32(block.shape[1])
    rows = pa.ListArray.from_arrays(pa.array(ends), texts)
    # Arrow makes this function when it is imported.
    joined = pc.binary_join(rows, separator)  # pyright: ignore[reportAttributeAccessIssue]
    return joined.cast(pa.binary()).to_pylist()
