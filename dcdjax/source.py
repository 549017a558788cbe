"""A path, folder, open file or iterable enters; texts, not cut within a word, or token lists leave."""

import gzip
import io
import itertools
import os
import sys
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

Documents = Literal["line", "file", "corpus"]

# Text comes in blocks of about this many bytes: large enough that a block's distinct words are few beside
# it, small enough that every core gets one, and that a block in each state of being split is little memory.
BLOCK_BYTES = 8 << 20
# The ASCII characters at which bytes are cut into pieces.
CUTS = b"\t\n\v\f\r "
_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class CorpusError(ValueError):
    """What cannot be read as a text: the message names the file, and the byte or line."""


@dataclass(frozen=True)
class Text:
    """Some bytes of a text, not cut within a word.

    Attributes:
      content: UTF-8, not yet checked.
      name: of the file, for error messages.
      offset: of the content, in the unzipped text.
      line: the number of the content's first line, from 1.
      breaks: offsets within the content at which a document begins, besides those at line ends.
      read: how much of all input has been read with this, and how much there is; None if unknown.
    """

    content: bytes
    name: str
    offset: int = 0
    line: int = 1
    breaks: tuple[int, ...] = ()
    read: tuple[int, int] | None = None


@dataclass(frozen=True)
class TokenLists:
    """Some texts that come as tokens.

    Attributes:
      lists: the tokens of each, empty ones left out.
      begins: whether a document begins with it.
    """

    lists: list[list[str]]
    begins: list[bool]
    read: tuple[int, int] | None = None


@dataclass
class _Meter:
    """Bytes of the files read so far, zipped as they are, and in all."""

    total: int | None
    before: int = 0
    now: int = field(default=0)

    def read(self) -> tuple[int, int] | None:
        return None if self.total is None else (min(self.before + self.now, self.total), self.total)


def texts(source: Any, documents: Documents) -> Iterator[Text | TokenLists]:
    """The texts of a source, in order; see `corpus.read` for what a source may be.

    Raises:
      CorpusError, FileNotFoundError, TypeError: naming the file or the item, and the byte or line.
    """
    if source is sys.stdin or (isinstance(source, str) and source == "-"):
        yield from _from_file(sys.stdin.buffer, "standard input", documents, _Meter(total=None))
    elif isinstance(source, str | os.PathLike):
        yield from _from_paths([Path(cast(str, source))], documents)
    elif hasattr(source, "read"):
        name = str(getattr(source, "name", "the open file"))
        yield from _from_file(source, name, documents, _Meter(total=None))
    elif isinstance(source, bytes | bytearray | dict) or not isinstance(source, Iterable):
        raise TypeError(
            f"corpus must be a path, an open file, or an iterable of paths, strings or token lists; "
            f"got {type(source).__name__}"
        )
    elif (
        isinstance(source, list | tuple) and source and all(isinstance(item, os.PathLike) for item in source)
    ):
        yield from _from_paths([Path(item) for item in source], documents)
    else:
        yield from _from_items(source, documents)


def _from_items(source: Iterable[Any], documents: Documents) -> Iterator[Text | TokenLists]:
    """Strings and token lists are gathered to blocks, each in its own; paths pass through one by one."""
    strings: list[bytes] = []
    lists: list[list[str]] = []
    size = first = 0

    def gathered() -> Iterator[Text | TokenLists]:
        nonlocal size
        if strings:
            starts = itertools.accumulate((len(string) + 1 for string in strings[:-1]), initial=0)
            breaks = () if documents == "corpus" else tuple(starts)
            yield Text(content=b"\n".join(strings), name=f"items {first} and on", breaks=breaks)
        if lists:
            yield TokenLists(lists=lists.copy(), begins=[documents != "corpus"] * len(lists))
        strings.clear()
        lists.clear()
        size = 0

    for number, item in enumerate(source):
        is_text, is_path = isinstance(item, str), isinstance(item, os.PathLike)
        if is_path or size >= BLOCK_BYTES or (lists if is_text else strings):
            yield from gathered()
        if is_path:
            yield from _from_paths([Path(item)], documents)
        elif is_text:
            if number == 0 and isinstance(source, list | tuple) and _names_a_file(item):
                raise CorpusError(
                    f"corpus[0] = {item!r} is the name of a file: a list of strings is taken as texts; "
                    "make it pathlib.Path to read files"
                )
            first = first if strings else number
            strings.append(_encoded(item, f"item {number} of the corpus"))
            size += len(strings[-1])
        else:
            lists.append(_token_list(item, number))
            size += sum(map(len, lists[-1]))
    yield from gathered()


def _token_list(item: Any, number: int) -> list[str]:
    if not isinstance(item, Iterable) or isinstance(item, bytes | bytearray | dict):
        raise TypeError(
            f"item {number} of the corpus must be a string, a list of tokens or a path, got "
            f"{type(item).__name__}"
        )
    return checked_tokens(item, f"item {number} of the corpus")


def checked_tokens(tokens: Iterable[Any], name: str) -> list[str]:
    """The tokens that are not empty, all of them strings that UTF-8 can write."""
    kept = [token for token in tokens if token != ""]
    for token in kept:
        if not isinstance(token, str):
            raise TypeError(f"{name}: tokens must be str, got {type(token).__name__}")
    if not all(map(str.isascii, kept)):
        _encoded("".join(kept), name)
    return kept


def _names_a_file(text: str) -> bool:
    return len(text) < 1024 and not text.isspace() and "\0" not in text and os.path.isfile(text)


def _encoded(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise CorpusError(
            f"{name}: character {error.start}, {text[error.start]!r}, is half of a surrogate pair"
        ) from None


def _from_paths(paths: list[Path], documents: Documents) -> Iterator[Text]:
    files = [file for path in paths for file in _files(path)]
    regular = all(file.is_file() for file in files)
    meter = _Meter(total=sum(file.stat().st_size for file in files) if regular else None)
    for file in files:
        with open(file, "rb") as opened:
            yield from _from_file(opened, str(file), documents, meter)
        meter.before, meter.now = meter.before + meter.now, 0


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        below = [file for file in path.rglob("*") if file.is_file()]
        visible = [
            file for file in below if not any(part.startswith(".") for part in file.relative_to(path).parts)
        ]
        if not visible:
            raise CorpusError(f"{path}: the folder holds no file")
        return sorted(visible, key=lambda file: file.relative_to(path).parts)
    if not path.exists():
        hint = (
            "; to give text itself, pass a list of strings" if " " in str(path) or "\n" in str(path) else ""
        )
        raise FileNotFoundError(f"corpus: no such file or folder: {path}{hint}")
    return [path]


def _from_file(file: Any, name: str, documents: Documents, meter: _Meter) -> Iterator[Text]:
    """The blocks of one file, unzipped, cut behind a line or at least behind a blank."""
    offset, line, rest, empty = 0, 1, b"", True
    begins = () if documents == "corpus" else (0,)
    for chunk in _chunks(file, name, meter):
        if not offset and not rest and chunk.startswith(_BYTE_ORDER_MARK):  # no part of the text
            offset, chunk = len(_BYTE_ORDER_MARK), chunk[len(_BYTE_ORDER_MARK) :]
        nul = chunk.find(b"\0")
        if nul >= 0:
            at = offset + len(rest) + nul
            raise CorpusError(
                f"{name}: byte {at} is zero: a binary file, or text in UTF-16 or UTF-32; UTF-8 is expected"
            )
        content = rest + chunk
        end = content.rfind(b"\n") + 1 or max(content.rfind(cut) for cut in CUTS) + 1
        if not end and len(content) >= BLOCK_BYTES:
            raise CorpusError(
                f"{name}: a word of more than {BLOCK_BYTES} bytes at byte {offset}, line {line}"
            )
        content, rest = content[:end], content[end:]
        if content:
            empty = empty and content.isspace()
            yield Text(content, name, offset, line, begins, meter.read())
            begins = ()
            offset, line = offset + len(content), line + content.count(b"\n")
    empty = empty and (not rest or rest.isspace())
    if empty:
        raise CorpusError(f"{name}: the file is empty" + (" but for blanks" if offset or rest else ""))
    if rest:
        yield Text(rest, name, offset, line, begins, meter.read())


def _chunks(file: Any, name: str, meter: _Meter) -> Iterator[bytes]:
    """Unzipped bytes; a zipped file tells so by its first ones."""
    start = file.read(BLOCK_BYTES)
    if isinstance(start, str):
        while start:
            yield _encoded(start, name)
            start = file.read(BLOCK_BYTES)
        return
    counted: Any = _Counted(start, file, meter)
    zipped = start.startswith(_GZIP_MAGIC)
    plain = gzip.GzipFile(fileobj=counted) if zipped else counted
    try:
        while chunk := plain.read(BLOCK_BYTES):
            yield chunk
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise CorpusError(f"{name}: not a whole gzip file: {error}") from None


class _Counted(io.RawIOBase):
    """A file whose first bytes have been read, and which counts for the meter what is read."""

    def __init__(self, start: bytes, file: Any, meter: _Meter) -> None:
        self._start, self._file, self._meter = start, file, meter
        self._meter.now = len(start)

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        if self._start and size >= 0:
            start, self._start = self._start[:size], self._start[size:]
            return start
        chunk = self._file.read(size)
        self._meter.now += len(chunk)
        return chunk
