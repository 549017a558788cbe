"""A path, folder, open file or iterable enters; texts, not cut within a word, or token lists leave."""

import errno
import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dcdjax import text_blocks
from dcdjax.text_blocks import CorpusError, Meter, Text, encoded, from_file, from_string

Documents = Literal["line", "file", "corpus"]

# What an object of Python takes besides its characters.
_BYTES_PER_OBJECT = 64
# So many strings of an iterable are compared with the names of files: who forgets to make them paths
# does so from the first on.
_LOOKED_AT = 16


@dataclass(frozen=True)
class TokenLists:
    """Some texts that come as tokens.

    Attributes:
      lists: the tokens of each.
      begins: whether a document begins with it.
      read: as that of `Text`.
    """

    lists: list[list[str]]
    begins: list[bool]
    read: tuple[int, int] | None = None


def texts(source: Any, documents: Documents) -> Iterator[Text | TokenLists]:
    """The texts of a source, in order; see `corpus.read` for what a source may be.

    Raises:
      CorpusError, FileNotFoundError, TypeError: naming the file or the item, and the byte or line.
    """
    begins = (0,) if documents != "corpus" else ()
    if source is sys.stdin or (isinstance(source, str) and source == "-"):
        stream = getattr(sys.stdin, "buffer", sys.stdin)
        yield from from_file(stream, "standard input", begins, Meter(total=None))
    elif (files := files_of(source)) is not None:
        yield from _from_files(files, begins)
    elif hasattr(source, "read"):
        yield from from_file(source, _name(source), begins, Meter(total=None))
    elif isinstance(source, bytes | bytearray | Mapping) or not isinstance(source, Iterable):
        raise TypeError(
            f"corpus must be a path, an open file, or an iterable of paths, strings or token lists; "
            f"got {type(source).__name__}"
        )
    else:
        yield from _from_items(source, begins)


def files_of(source: Any) -> list[Path] | None:
    """The files of a path, a folder or a list of paths, in the order of reading; None for all else."""
    if isinstance(source, str | os.PathLike):
        return _files(_path(source))
    if isinstance(source, list | tuple) and source and all(isinstance(item, os.PathLike) for item in source):
        return [file for item in source for file in _files(_path(item))]
    return None


def _from_items(source: Iterable[Any], begins: tuple[int, ...]) -> Iterator[Text | TokenLists]:
    """Strings and token lists are gathered to blocks, each in its own; the rest passes through one by one."""
    strings: list[bytes] = []
    lists: list[list[str]] = []
    size = first = 0
    paths_seen = False

    def gathered() -> Iterator[Text | TokenLists]:
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
            if (number < _LOOKED_AT or paths_seen) and _names_a_file(item):
                raise CorpusError(
                    f"{name}, {item!r}, is the name of a file: a string is taken as a text; make it "
                    "pathlib.Path to read the file"
                )
            content = encoded(item, name)
            if lists or size + len(content) >= text_blocks.BLOCK_BYTES:
                yield from gathered()
            if len(content) >= text_blocks.BLOCK_BYTES:
                yield from from_string(content, name, begins)
                continue
            first = first if strings else number
            strings.append(content)
            size += len(content) + _BYTES_PER_OBJECT
        elif isinstance(item, os.PathLike) or hasattr(item, "read"):
            yield from gathered()
            paths_seen = True
            if isinstance(item, os.PathLike):
                yield from _from_files(_files(_path(item)), begins)
            else:
                yield from from_file(item, _name(item), begins, Meter(total=None))
        else:
            if strings or size >= text_blocks.BLOCK_BYTES:
                yield from gathered()
            lists.append(_token_list(item, name))
            size += _BYTES_PER_OBJECT + sum(len(token) + _BYTES_PER_OBJECT for token in lists[-1])
    yield from gathered()


def _token_list(item: Any, name: str) -> list[str]:
    if not isinstance(item, Iterable) or isinstance(item, bytes | bytearray | Mapping):
        raise TypeError(
            f"{name} must be a string, a list of tokens, a path or an open file, got {type(item).__name__}"
        )
    return checked_tokens(item, name)


def checked_tokens(tokens: Any, name: str) -> list[str]:
    """The tokens that are not empty, all of them strings that UTF-8 can write."""
    if isinstance(tokens, str | bytes | Mapping) or not isinstance(tokens, Iterable):
        raise TypeError(f"{name}: tokens must be a list of strings, got {type(tokens).__name__}")
    kept = list(tokens)
    for place, token in enumerate(kept):
        if type(token) is not str:
            if not isinstance(token, str):
                raise TypeError(f"{name}: tokens must be str, got {type(token).__name__}")
            kept[place] = str(token)  # NumPy's strings are larger, and are shown otherwise
    if not all(map(str.isascii, kept)):
        encoded("".join(kept), name)
    return list(filter(None, kept))


def _path(path: Any) -> Path:
    if os.fspath(path) == "":
        raise CorpusError("corpus is an empty path; for the current folder, give '.'")
    return Path(path)


def _name(file: Any) -> str:
    return str(getattr(file, "name", "the open file"))


def _names_a_file(text: str) -> bool:
    return len(text) < 1024 and not text.isspace() and "\0" not in text and os.path.isfile(text)


def _from_files(files: list[Path], begins: tuple[int, ...]) -> Iterator[Text]:
    regular = all(file.is_file() for file in files)
    meter = Meter(total=sum(file.stat().st_size for file in files) if regular else None)
    for file in files:
        with open(file, "rb") as opened:
            yield from from_file(opened, str(file), begins, meter)
        meter.before, meter.now = meter.before + meter.now, 0


def _files(path: Path) -> list[Path]:
    try:
        if path.is_dir():
            return _files_below(path)
        if path.exists():
            return [path]
    except OSError as error:  # a name too long to be one
        if error.errno not in (errno.ENAMETOOLONG, errno.EINVAL):
            raise
    shown = str(path) if len(str(path)) < 200 else f"{str(path)[:200]}..."
    raise FileNotFoundError(
        f"corpus: no such file or folder: {shown} (to give text itself, pass a list of strings)"
    )


def _files_below(folder: Path) -> list[Path]:
    """All visible files, by name. What cannot be read is an error: nothing is left out silently."""

    def refuse(error: OSError) -> None:
        raise error

    files = []
    for place, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in folders:
            if os.path.islink(os.path.join(place, name)):
                raise CorpusError(
                    f"{Path(place, name)}: a link to a folder is not followed; name it by itself"
                )
        files += [Path(place, name) for name in names if not name.startswith(".")]
    for file in files:
        if not file.exists():
            raise FileNotFoundError(f"corpus: no such file: {file}, a link that leads nowhere")
    if not files:
        raise CorpusError(f"{folder}: the folder holds no file")
    return sorted(files, key=lambda file: file.relative_to(folder).parts)
