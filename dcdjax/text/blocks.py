"""Cut an open file or a long string into blocks of text, never within a word."""

import gzip
import io
import itertools
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from dcdjax.util.files import name_in_os_errors

# Size of a block. It is large enough that a block has far fewer distinct words than tokens, and small enough
# that every core gets one and that the blocks in work take little memory.
BLOCK_BYTES = 8 << 20
# ASCII characters that separate words.
CUTS = b"\t\n\v\f\r "
_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class CorpusError(ValueError):
    """Report a corpus that cannot be read as text. The message names the file, and the byte or line."""


@dataclass(frozen=True)
class Text:
    """Hold a block of text that is not cut within a word.

    Attributes:
      content: bytes of UTF-8, not yet checked.
      name: name of the file, for error messages.
      offset: position of the content in the uncompressed text.
      line: number of the content's first line, from 1.
      breaks: offsets in the content at which documents begin. Those at line ends are not listed.
      read: bytes of all input read so far, and in total; None if unknown.
    """

    content: bytes
    name: str
    offset: int = 0
    line: int = 1
    breaks: tuple[int, ...] = ()
    read: tuple[int, int] | None = None


@dataclass
class ByteCounter:
    """Count the bytes read from files, as they are on disk.

    Attributes:
      total: bytes of all files; None if unknown.
      finished: bytes of the files that have been read.
      current: bytes read of the file that is being read.
    """

    total: int | None
    finished: int = 0
    current: int = 0

    def read(self) -> tuple[int, int] | None:
        """Return the bytes read and the total; None if the total is unknown."""
        return None if self.total is None else (min(self.finished + self.current, self.total), self.total)


def blocks_of_file(file: Any, name: str, begins: tuple[int, ...], counter: ByteCounter) -> Iterator[Text]:
    """Yield the blocks of a file, uncompressed and without a byte order mark."""
    empty, size = True, 0
    chunks = _chunks(file, name, counter)
    start = next(chunks, b"")
    marked = len(_BYTE_ORDER_MARK) if start.startswith(_BYTE_ORDER_MARK) else 0
    chunks = itertools.chain([start[marked:]], chunks)
    for text in _cut_blocks(chunks, name, begins, longest=BLOCK_BYTES, offset=marked):
        nul = text.content.find(b"\0")
        if nul >= 0:
            raise CorpusError(
                f"{name}: byte {text.offset + nul} is zero: a binary file, or text in UTF-16 or UTF-32; "
                "UTF-8 is expected"
            )
        empty = empty and text.content.isspace()
        size = text.offset + len(text.content)
        yield replace(text, read=counter.read())
    if empty:
        raise CorpusError(f"{name}: the file is empty" + (" but for blanks" if size else ""))


def blocks_of_string(content: bytes, name: str, begins: tuple[int, ...]) -> Iterator[Text]:
    """Yield the blocks of a string, whose words may have any length."""
    slices = (content[start : start + BLOCK_BYTES] for start in range(0, len(content), BLOCK_BYTES))
    return _cut_blocks(slices, name, begins, longest=len(content) + 1)


def _cut_blocks(
    chunks: Iterable[bytes], name: str, begins: tuple[int, ...], *, longest: int, offset: int = 0
) -> Iterator[Text]:
    """Cut after a line or else after a blank. Refuse words of `longest` bytes or more."""
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
    """Return the position after the last blank; 0 if there is none."""
    return max(content.rfind(cut) for cut in CUTS) + 1


def encode_utf8(text: str, name: str) -> bytes:
    """Encode a string in UTF-8, or raise CorpusError."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise CorpusError(
            f"{name}: character {error.start}, {text[error.start]!r}, is half of a surrogate pair"
        ) from None


def _chunks(file: Any, name: str, counter: ByteCounter) -> Iterator[bytes]:
    """Yield uncompressed bytes, a full block at a time. Gzip is recognized by its first bytes."""
    try:
        start = _read_named(file, name)
        if isinstance(start, str):
            while start:
                yield encode_utf8(start, name)
                start = _read_named(file, name)
            return
    except UnicodeDecodeError as error:  # a file that was opened as text
        raise CorpusError(f"{name}: {error}") from None
    counted: Any = _CountingReader(start, file, counter)
    plain = gzip.GzipFile(fileobj=counted) if start.startswith(_GZIP_MAGIC) else counted
    size = 0
    try:
        while chunk := _read_named(plain, name):
            size += len(chunk)
            yield chunk
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise CorpusError(
            f"{name}: not a whole gzip file, from byte {size} of the text on: {error}"
        ) from None


def _read_named(file: Any, name: str) -> Any:
    with name_in_os_errors(name):
        return _read_fully(file, BLOCK_BYTES)


def _read_fully(file: Any, size: int) -> Any:
    """Read `size` bytes or characters, or all that are left. A single read of a pipe often gives fewer."""
    parts = [file.read(size)]
    missing = size - len(parts[0])
    while missing > 0 and parts[-1]:
        parts.append(file.read(missing))
        missing -= len(parts[-1])
    return parts[0] if len(parts) == 1 else parts[0][:0].join(parts)


class _CountingReader(io.RawIOBase):
    """Wrap a file whose first bytes have been read, and count the bytes read."""

    def __init__(self, start: bytes, file: Any, counter: ByteCounter) -> None:
        self._start, self._file, self._counter = start, file, counter
        self._counter.current = len(start)

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        if self._start:
            end = len(self._start) if size < 0 else size
            start, self._start = self._start[:end], self._start[end:]
            return start
        chunk = self._file.read(size)
        self._counter.current += len(chunk)
        return chunk
