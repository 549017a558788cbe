"""An open file or a long string enters; texts leave, blocks of it that are not cut within a word."""

import gzip
import io
import itertools
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

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


@dataclass
class Meter:
    """Bytes of the files read so far, zipped as they are, and in all.

    Attributes:
      total: in all files; None if unknown.
      before: in files that have been read.
      now: in the one that is being read.
    """

    total: int | None
    before: int = 0
    now: int = 0

    def read(self) -> tuple[int, int] | None:
        """So many of so many; None if that is unknown."""
        return None if self.total is None else (min(self.before + self.now, self.total), self.total)


def from_file(file: Any, name: str, begins: tuple[int, ...], meter: Meter) -> Iterator[Text]:
    """The blocks of one file, unzipped, with no byte order mark."""
    empty, size = True, 0
    chunks = _chunks(file, name, meter)
    start = next(chunks, b"")
    marked = len(_BYTE_ORDER_MARK) if start.startswith(_BYTE_ORDER_MARK) else 0  # it is no part of the text
    chunks = itertools.chain([start[marked:]], chunks)
    for text in _cut(chunks, name, begins, longest=BLOCK_BYTES, offset=marked):
        nul = text.content.find(b"\0")
        if nul >= 0:
            raise CorpusError(
                f"{name}: byte {text.offset + nul} is zero: a binary file, or text in UTF-16 or UTF-32; "
                "UTF-8 is expected"
            )
        empty = empty and text.content.isspace()
        size = text.offset + len(text.content)
        yield replace(text, read=meter.read())
    if empty:
        raise CorpusError(f"{name}: the file is empty" + (" but for blanks" if size else ""))


def from_string(content: bytes, name: str, begins: tuple[int, ...]) -> Iterator[Text]:
    """The blocks of a string, whose words may be of any length."""
    slices = (content[start : start + BLOCK_BYTES] for start in range(0, len(content), BLOCK_BYTES))
    return _cut(slices, name, begins, longest=len(content) + 1)


def _cut(
    chunks: Iterable[bytes], name: str, begins: tuple[int, ...], *, longest: int, offset: int = 0
) -> Iterator[Text]:
    """Cuts behind a line or at least behind a blank; a word must not be longer than `longest`."""
    line, rest = 1, b""
    for chunk in chunks:
        if end := chunk.rfind(b"\n") + 1 or _last_cut(chunk):
            content, rest = b"".join((rest, memoryview(chunk)[:end])), chunk[end:]
        else:
            rest += chunk
            end = _last_cut(rest)
            if not end and len(rest) >= longest:
                at = rest.find(b"\0")
                why = f"byte {offset + at} is zero: a binary file" if at >= 0 else "is this text?"
                raise CorpusError(
                    f"{name}: a word of more than {longest} bytes at byte {offset}, line {line}: {why}"
                )
            content, rest = rest[:end], rest[end:]
        if content:
            yield Text(content, name, offset, line, begins)
            begins = ()
            offset, line = offset + len(content), line + content.count(b"\n")
    if rest:
        yield Text(rest, name, offset, line, begins)


def _last_cut(content: bytes) -> int:
    """Behind the last blank; 0 if there is none."""
    return max(content.rfind(cut) for cut in CUTS) + 1


def encoded(text: str, name: str) -> bytes:
    """In UTF-8."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise CorpusError(
            f"{name}: character {error.start}, {text[error.start]!r}, is half of a surrogate pair"
        ) from None


def _chunks(file: Any, name: str, meter: Meter) -> Iterator[bytes]:
    """Unzipped bytes, a full block at a time; a zipped file tells so by its first ones."""
    try:
        start = _filled(file, BLOCK_BYTES)
        if isinstance(start, str):
            while start:
                yield encoded(start, name)
                start = _filled(file, BLOCK_BYTES)
            return
    except UnicodeDecodeError as error:  # a file that was opened as text
        raise CorpusError(f"{name}: {error}") from None
    counted: Any = _Counted(start, file, meter)
    plain = gzip.GzipFile(fileobj=counted) if start.startswith(_GZIP_MAGIC) else counted
    size = 0
    try:
        while chunk := _filled(plain, BLOCK_BYTES):
            size += len(chunk)
            yield chunk
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise CorpusError(
            f"{name}: not a whole gzip file, from byte {size} of the text on: {error}"
        ) from None


def _filled(file: Any, size: int) -> Any:
    """So many bytes or characters, or all there are: pipes and sockets often give fewer at a time."""
    parts = [file.read(size)]
    missing = size - len(parts[0])
    while missing > 0 and parts[-1]:
        parts.append(file.read(missing))
        missing -= len(parts[-1])
    return parts[0] if len(parts) == 1 else parts[0][:0].join(parts)


class _Counted(io.RawIOBase):
    """A file whose first bytes have been read, and which counts for the meter what is read."""

    def __init__(self, start: bytes, file: Any, meter: Meter) -> None:
        self._start, self._file, self._meter = start, file, meter
        self._meter.now = len(start)

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        if self._start:
            end = len(self._start) if size < 0 else size
            start, self._start = self._start[:end], self._start[end:]
            return start
        chunk = self._file.read(size)
        self._meter.now += len(chunk)
        return chunk
