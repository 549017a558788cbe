"""Text in any of its forms enters; blocks of tokens leave, with the places where documents begin."""

import itertools
import re
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dcdjax.parallel import in_order
from dcdjax.source import CUTS, CorpusError, Documents, Text, TokenLists, checked_tokens, texts

# What long computations call: the stage, how much is done, how much there is in all, the unit.
Progress = Callable[[str, int, int | None, str], None]


@dataclass(frozen=True)
class Block:
    """Consecutive tokens of a corpus.

    Attributes:
      words: the distinct ones among them.
      codes: for each token, which of `words` it is.
      breaks: ascending positions in `codes`, from 0 to its length, before which a new document begins.
    """

    words: list[str]
    codes: np.ndarray
    breaks: np.ndarray


def read(
    source: Any,
    *,
    documents: Documents = "line",
    lowercase: bool = False,
    pattern: str | re.Pattern[str] | None = None,
    tokenizer: Callable[[str], Iterable[str]] | None = None,
    progress: Progress | None = None,
) -> Generator[Block, None, None]:
    r"""Splits a corpus into tokens, on all cores, without ever holding more than a few blocks of it.

    Args:
      source: a path (a folder means all visible files below it, by name), an open file, `"-"` for standard
        input, or an iterable: of `pathlib.Path`, of strings (texts, not names of files), or of lists of
        tokens. Files are UTF-8; gzip is recognized by its first bytes.
      documents: what a document is: a "line", a whole "file" (or item of an iterable), or the "corpus".
        A list of tokens, and the beginning of a file, begins a document unless the corpus is one.
      lowercase: turn words into lower case.
      pattern: a regular expression; its matches within each blank-separated piece are the tokens, such as
        `r"\w+"`. By default the pieces themselves are, as `str.split` gives them.
      tokenizer: any callable from a line of text to tokens, in place of all this. It is called in order and
        from one thread; empty tokens are left out; lines of a file longer than 8 MiB come in parts.
      progress: called as `progress("reading", tokens so far, estimated total or None, "tokens")`.

    Yields:
      Blocks of tokens, in order.

    Raises:
      CorpusError: for bad UTF-8, a binary or empty file, or a damaged gzip, naming the file, and the byte or
        line; FileNotFoundError or TypeError where the source is no source.

    Example:
      >>> [block] = read(["To be or not", "to be"], lowercase=True)
      >>> [block.words[code] for code in block.codes], block.breaks
      (['to', 'be', 'or', 'not', 'to', 'be'], array([0, 4]))
    """
    if documents not in get_args(Documents):
        raise ValueError(f"documents must be one of {get_args(Documents)}, got {documents!r}")
    if tokenizer is not None and (pattern is not None or lowercase):
        raise ValueError("tokenizer takes the place of pattern and lowercase: give one or the other")
    try:
        compiled = re.compile(pattern) if pattern is not None else None
    except re.error as error:
        raise ValueError(f"pattern {pattern!r} is not a regular expression: {error}") from None
    items = texts(source, documents)
    if tokenizer is not None:
        items = (_tokenized(item, documents, tokenizer) for item in items)
    splitter = _Splitter(documents, lowercase, compiled)
    done = 0
    for item, block in in_order(splitter, items):
        done += block.codes.size
        if progress is not None:
            part, whole = item.read or (0, 0)
            progress("reading", done, round(done * whole / part) if part else None, "tokens")
        yield block


def _tokenized(
    item: Text | TokenLists, documents: Documents, tokenizer: Callable[[str], Iterable[str]]
) -> TokenLists:
    if isinstance(item, TokenLists):
        raise ValueError("tokenizer is for texts, but the corpus comes as lists of tokens")
    lists, begins = [], []
    offset, breaks = 0, set(item.breaks)
    for number, line in enumerate(item.content.split(b"\n")):
        # What follows the last line end is a line too: empty, it says that another document begins.
        begins.append(offset in breaks or (documents == "line" and number > 0))
        text = _decoded(line, item, offset)
        tokens = tokenizer(text) if text and not text.isspace() else ()
        lists.append(checked_tokens(tokens, f"tokenizer on line {item.line + number} of {item.name}"))
        offset += len(line) + 1
    return TokenLists(lists=lists, begins=begins, read=item.read)


def _decoded(content: bytes, text: Text, offset: int = 0) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        at = offset + error.start
        line = text.line + text.content.count(b"\n", 0, at)
        raise CorpusError(
            f"{text.name}: byte {text.offset + at} (line {line}), 0x{text.content[at]:02x}, is not UTF-8: "
            f"{error.reason}"
        ) from None


@dataclass(frozen=True)
class _Splitter:
    """Text becomes tokens. A piece between blanks is looked at once, however often it stands in a block."""

    documents: Documents
    lowercase: bool
    pattern: re.Pattern[str] | None

    def __call__(self, item: Text | TokenLists) -> Block:
        """The tokens of a text that is UTF-8, or the given ones."""
        if isinstance(item, TokenLists):
            number: dict[str, int] = {}
            flat = [number.setdefault(word, len(number)) for tokens in item.lists for word in tokens]
            ends = np.cumsum([0, *map(len, item.lists)])
            breaks = ends[:-1][np.array(item.begins, bool)]
            return self._refined(list(number), np.array(flat, np.int32), breaks)

        content = np.frombuffer(item.content, np.uint8)
        is_cut = (content == ord(" ")) | _between(content, "\t", "\r")  # the characters of CUTS
        is_start = ~is_cut
        is_start[1:] &= is_cut[:-1]
        starts = np.flatnonzero(is_start)
        breaks = np.array(item.breaks, np.int64)
        if self.documents == "line":
            breaks = np.union1d(breaks, np.flatnonzero(content == ord("\n")) + 1)
        pieces, codes = _distinct(item, starts)
        # str.split cuts at these too, and at some beyond ASCII.
        whole = item.content.isascii() and not _between(content, "\x1c", "\x1f").any()
        return self._refined(pieces, codes, np.searchsorted(starts, breaks), whole)

    def _refined(self, pieces: list[str], codes: np.ndarray, breaks: np.ndarray, whole: bool = True) -> Block:
        """Replaces each piece by its tokens: usually one, but none or several are no error."""
        number: dict[str, int] = {}
        if whole and self.pattern is None and not self.lowercase:
            return Block(words=pieces, codes=codes, breaks=breaks)
        tokens = [
            [number.setdefault(word, len(number)) for word in self._tokens(piece, whole)] for piece in pieces
        ]
        lengths = np.fromiter(map(len, tokens), np.int64, len(tokens))
        flat = np.fromiter(itertools.chain.from_iterable(tokens), np.int32, int(lengths.sum()))
        each = lengths[codes]
        begins = np.cumsum(np.append(0, each))
        within = np.arange(begins[-1]) - np.repeat(begins[:-1], each)
        first = np.cumsum(lengths) - lengths
        codes = flat[np.repeat(first[codes], each) + within]
        return Block(words=list(number), codes=codes, breaks=begins[breaks])

    def _tokens(self, piece: str, whole: bool) -> list[str]:
        words = [piece] if whole else piece.split()
        if self.lowercase:
            words = [word.lower() for word in words]
        if self.pattern is not None:
            words = [
                match.group() for word in words for match in self.pattern.finditer(word) if match.group()
            ]
        return words


def _between(content: np.ndarray, low: str, high: str) -> np.ndarray:
    # Unsigned numbers below `low` wrap around to large ones: one comparison does. A table would be slower.
    return content - np.uint8(ord(low)) <= np.uint8(ord(high) - ord(low))


def _distinct(text: Text, starts: np.ndarray) -> tuple[list[str], np.ndarray]:
    """The distinct pieces between blanks, and which of them stands at each start."""
    # Arrow wants strings one behind the other: each piece with the blanks that follow it. These are taken
    # off the distinct ones; "the" before a blank and "the" before a line end are two of them until then.
    ends = np.append(starts, len(text.content)).astype(np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(text.content)]
    encoded = pa.Array.from_buffers(pa.binary(), starts.size, buffers).dictionary_encode()
    try:
        # Arrow makes these functions when it is imported.
        pieces = pc.ascii_rtrim(  # pyright: ignore[reportAttributeAccessIssue]
            encoded.dictionary.cast(pa.string()), characters=CUTS.decode()
        )
    except pa.ArrowInvalid:
        _decoded(text.content, text)
        raise
    merged = pieces.dictionary_encode()
    # NumPy's way to strings is several times as fast as to_pylist.
    words = merged.dictionary.to_numpy(zero_copy_only=False).tolist()
    return words, merged.indices.to_numpy()[encoded.indices.to_numpy()]
