"""Read a corpus from a path, a folder, an open file or an iterable."""

import errno
import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dcdjax.text import blocks, tables
from dcdjax.text.blocks import ByteCounter, CorpusError, Text, blocks_of_file, blocks_of_string, encode_utf8

Documents = Literal["auto", "line", "paragraph", "file", "corpus"]

# Bytes of a Python string in addition to its characters.
_BYTES_PER_OBJECT = 64
# Only the first strings of an iterable are checked for file names. A caller who passes names instead of paths
# does so from the first item on.
_NUM_CHECKED = 16
# Characters of a word that an error shows.
_LONGEST_SHOWN = 60


@dataclass(frozen=True)
class TokenLists:
    """Hold texts that come as tokens.

    Attributes:
      lists: tokens of each text.
      begins: whether a document begins with each text.
      read: as in `Text`.
    """

    lists: list[list[str]]
    begins: list[bool]
    read: tuple[int, int] | None = None


def read_texts(
    source: Any,
    documents: Documents,
    text: str | Sequence[str] | None = None,
    *,
    blanks_in_tokens: bool = True,
) -> Iterator[Text | TokenLists]:
    """Yield the texts of a source in order. See `tokens.read` for possible sources.

    Args:
      source: the source.
      documents: what a document is.
      text: columns of a table.
      blanks_in_tokens: whether the tokens of lists may have blanks.

    Raises:
      CorpusError, FileNotFoundError, TypeError: the message names the file or item, and the byte or line.
    """
    begins = (0,) if documents != "corpus" else ()
    if source is sys.stdin or (isinstance(source, str) and source == "-"):
        stream = getattr(sys.stdin, "buffer", sys.stdin)
        yield from blocks_of_file(stream, "standard input", begins, ByteCounter(total=None))
    elif tables.is_frame(source):
        yield from _from_items(tables.texts_of_frame(source, text), begins, file_names=False)
    elif (files := list_files(source)) is not None:
        if _are_tables(files):
            yield from _from_items(tables.texts_of_files(files, text), begins, file_names=False)
        elif text is not None:
            raise ValueError(f"text={text!r} names a column, but {files[0]} is not a table")
        else:
            yield from _from_files(files, begins)
    elif text is not None:
        raise ValueError(f"text={text!r} names a column, but the corpus is not a table")
    elif hasattr(source, "read"):
        yield from blocks_of_file(source, _name(source), begins, ByteCounter(total=None))
    elif isinstance(source, bytes | bytearray | Mapping) or not isinstance(source, Iterable):
        raise TypeError(
            f"corpus must be a path, an open file, or an iterable of paths, strings or token lists; "
            f"got {type(source).__name__}"
        )
    else:
        yield from _from_items(source, begins, blanks_in_tokens=blanks_in_tokens)


def list_files(source: Any) -> list[Path] | None:
    """Return the files of a path, a folder or a list of paths in order; None for other sources."""
    if isinstance(source, str | os.PathLike):
        return _files(_path(source))
    if isinstance(source, list | tuple) and source and all(isinstance(item, os.PathLike) for item in source):
        return [file for item in source for file in _files(_path(item))]
    return None


def _from_items(
    source: Iterable[Any],
    begins: tuple[int, ...],
    *,
    file_names: bool = True,
    blanks_in_tokens: bool = True,
) -> Iterator[Text | TokenLists]:
    """Collect strings and token lists in blocks, and read paths and open files one by one.

    If `file_names`, refuse strings that are names of files.
    """
    strings: list[bytes] = []
    lists: list[list[str]] = []
    size = first = 0
    paths_seen = False

    def collected() -> Iterator[Text | TokenLists]:
        nonlocal size
        if strings:
            starts = itertools.accumulate((len(string) + 1 for string in strings[:-1]), initial=0)
            breaks = tuple(starts) if begins else ()
            yield Text(content=b"\n".join(strings), name=f"items {first} and on", breaks=breaks)
        if lists:
            yield TokenLists(lists=lists.copy(), begins=[bool(begins)] * len(lists))
        strings.clear()
        lists.clear()
        size = 0

    for number, item in enumerate(source):
        name = f"item {number} of the corpus"
        if isinstance(item, str):
            if file_names and (number < _NUM_CHECKED or paths_seen) and _names_a_file(item):
                raise CorpusError(
                    f"{name}, {item!r}, is the name of a file, but strings are taken as text; to read the "
                    "file, pass a pathlib.Path"
                )
            content = encode_utf8(item, name)
            if lists or size + len(content) >= blocks.BLOCK_BYTES:
                yield from collected()
            if len(content) >= blocks.BLOCK_BYTES:
                yield from blocks_of_string(content, name, begins)
                continue
            first = first if strings else number
            strings.append(content)
            size += len(content) + _BYTES_PER_OBJECT
        elif isinstance(item, os.PathLike) or hasattr(item, "read"):
            yield from collected()
            paths_seen = True
            if isinstance(item, os.PathLike):
                yield from _from_files(_files(_path(item)), begins)
            else:
                yield from blocks_of_file(item, _name(item), begins, ByteCounter(total=None))
        else:
            if strings or size >= blocks.BLOCK_BYTES:
                yield from collected()
            tokens = _token_list(item, name)
            lists.append(tokens if blanks_in_tokens else _without_blanks(tokens, name))
            size += _BYTES_PER_OBJECT + sum(len(token) + _BYTES_PER_OBJECT for token in lists[-1])
    yield from collected()


def _are_tables(files: list[Path]) -> bool:
    """Return whether the files are tables. Refuse a mixture of tables and plain text."""
    kinds = {tables.is_table_file(file) for file in files}
    if len(kinds) > 1:
        table = next(file for file in files if tables.is_table_file(file))
        other = next(file for file in files if not tables.is_table_file(file))
        raise CorpusError(f"{table} is a table, but {other} is not: read them separately")
    return kinds == {True}


def _token_list(item: Any, name: str) -> list[str]:
    if not isinstance(item, Iterable) or isinstance(item, bytes | bytearray | Mapping):
        raise TypeError(
            f"{name} must be a string, a list of tokens, a path or an open file, got {type(item).__name__}"
        )
    return checked_tokens(item, name)


def _without_blanks(tokens: list[str], name: str) -> list[str]:
    """Leave out tokens that are nothing but blanks. Refuse those with blanks in them, which are texts."""
    joined = "".join(tokens)
    if joined.split(None, 1) == [joined] or not tokens:
        return tokens
    kept = [token for token in tokens if not token.isspace()]
    for token in kept:
        if token.split(None, 1) != [token]:
            shown = token if len(token) < _LONGEST_SHOWN else f"{token[:_LONGEST_SHOWN]}..."
            raise CorpusError(
                f"{name} is a list of words, but the word {shown!r} has blanks in it. Pass texts as strings, "
                'not in lists or tuples. For words with blanks, such as "new york", pass tokens="blanks"'
            )
    return kept


def checked_tokens(tokens: Any, name: str) -> list[str]:
    """Return the tokens that are not empty. Refuse those that are no strings or have no UTF-8."""
    if isinstance(tokens, str | bytes | Mapping) or not isinstance(tokens, Iterable):
        raise TypeError(f"{name}: tokens must be a list of strings, got {type(tokens).__name__}")
    kept = list(tokens)
    for place, token in enumerate(kept):
        if type(token) is not str:
            if not isinstance(token, str):
                raise TypeError(f"{name}: tokens must be str, got {type(token).__name__}")
            kept[place] = str(token)  # NumPy's strings are larger and have another repr
    if not all(map(str.isascii, kept)):
        encode_utf8("".join(kept), name)
    return list(filter(None, kept))


def _path(path: Any) -> Path:
    if os.fspath(path) == "":
        raise CorpusError("corpus is an empty path; for the current folder, pass '.'")
    return Path(path)


def _name(file: Any) -> str:
    return str(getattr(file, "name", "the open file"))


def _names_a_file(text: str) -> bool:
    return len(text) < 1024 and not text.isspace() and "\0" not in text and os.path.isfile(text)


def _from_files(files: list[Path], begins: tuple[int, ...]) -> Iterator[Text]:
    regular = all(file.is_file() for file in files)
    counter = ByteCounter(total=sum(file.stat().st_size for file in files) if regular else None)
    for file in files:
        with open(file, "rb") as opened:
            yield from blocks_of_file(opened, str(file), begins, counter)
        counter.finished, counter.current = counter.finished + counter.current, 0


def _files(path: Path) -> list[Path]:
    try:
        if path.is_dir():
            return _files_below(path)
        if path.exists():
            return [path]
    except OSError as error:  # a name that is too long
        if error.errno not in (errno.ENAMETOOLONG, errno.EINVAL):
            raise
    shown = str(path) if len(str(path)) < 200 else f"{str(path)[:200]}..."
    raise FileNotFoundError(
        f"corpus: no such file or folder: {shown} (to pass the text itself, pass a list of strings)"
    )


def _files_below(folder: Path) -> list[Path]:
    """Return all visible files, sorted by name. A folder that cannot be read is an error."""

    def refuse(error: OSError) -> None:
        raise error

    files = []
    for place, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in folders:
            if os.path.islink(os.path.join(place, name)):
                raise CorpusError(
                    f"{Path(place, name)}: links to folders are not followed; pass the folder itself"
                )
        files += [Path(place, name) for name in names if not name.startswith(".")]
    for file in files:
        if not file.exists():
            raise FileNotFoundError(f"corpus: no such file: {file}, a broken link")
    if not files:
        raise CorpusError(f"{folder}: the folder has no file")
    return sorted(files, key=lambda file: file.relative_to(folder).parts)
