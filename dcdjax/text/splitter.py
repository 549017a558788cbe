"""Split blocks of text into tokens by NumPy and Arrow, and each distinct piece of a block only once."""

import itertools
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dcdjax.text.blocks import CUTS, CorpusError, Text
from dcdjax.text.paragraphs import paragraph_breaks
from dcdjax.text.sources import Documents, TokenLists
from dcdjax.text.words import OUTER_MARKS, words_of

# Bytes searched at a time, so that the temporary arrays stay in the cache.
SLICE_BYTES = 1 << 20


@dataclass(frozen=True)
class Block:
    """Hold consecutive tokens of a corpus.

    Attributes:
      words: the distinct tokens.
      codes: position in `words` of each token.
      breaks: ascending positions in `codes`, from 0 to its length, at which a document begins.
    """

    words: list[str]
    codes: np.ndarray
    breaks: np.ndarray


@dataclass(frozen=True)
class Splitter:
    """Split text into tokens. Each distinct piece between blanks is split only once in a block.

    Attributes:
      documents: what a document is.
      words: whether the words of each piece are the tokens.
      lowercase: whether text is converted to lower case.
      lowercase_lists: whether the tokens of token lists are converted to lower case.
      pattern: regular expression of a token, or None.
    """

    documents: Documents
    words: bool
    lowercase: bool
    lowercase_lists: bool
    pattern: re.Pattern[str] | None

    def __call__(self, item: Text | TokenLists) -> Block:
        """Split a text into tokens, or apply the options to tokens that come in lists. Text must be UTF-8."""
        if isinstance(item, TokenLists):
            number: dict[str, int] = {}
            flat = [number.setdefault(word, len(number)) for tokens in item.lists for word in tokens]
            ends = np.cumsum([0, *map(len, item.lists)])
            breaks = ends[:-1][np.array(item.begins, bool)]
            block = Block(list(number), np.array(flat, np.int32), breaks)
            return self._refined(block, True, self.lowercase_lists)

        content = np.frombuffer(item.content, np.uint8)
        starts = _starts(content)
        breaks = np.unique(np.searchsorted(starts, np.array(item.breaks, np.int64)))
        if self.documents == "line":
            num_lines = item.content.count(b"\n")
            breaks = np.union1d(breaks, _line_breaks(content, starts, num_lines))
        elif self.documents == "paragraph":
            breaks = np.union1d(breaks, paragraph_breaks(content, starts))
        pieces, codes = _distinct(item, starts)
        if self.words:
            return self._split_in_words(pieces, codes, breaks)
        # str.split also cuts at these characters, and at some beyond ASCII.
        whole = item.content.isascii() and not _between(content, "\x1c", "\x1f").any()
        return self._refined(Block(_strings(pieces), codes, breaks), whole, self.lowercase)

    def _refined(self, block: Block, whole: bool, lowercase: bool) -> Block:
        """Replace each piece by its tokens: none, one or several."""
        if whole and self.pattern is None and not lowercase:
            return block
        number: dict[str, int] = {}
        tokens = [
            [number.setdefault(word, len(number)) for word in self._tokens(piece, whole, lowercase)]
            for piece in block.words
        ]
        lengths = np.fromiter(map(len, tokens), np.int64, len(tokens))
        flat = np.fromiter(itertools.chain.from_iterable(tokens), np.int32, int(lengths.sum()))
        return _replaced(block.codes, block.breaks, list(number), lengths, flat)

    def _tokens(self, piece: str, whole: bool, lowercase: bool) -> list[str]:
        words = [piece] if whole else piece.split()
        if lowercase:
            words = [word.lower() for word in words]
        if self.pattern is not None:
            words = [
                match.group() for word in words for match in self.pattern.finditer(word) if match.group()
            ]
        return words

    def _split_in_words(self, pieces: Any, codes: np.ndarray, breaks: np.ndarray) -> Block:
        """Replace each piece by its words. Most are a word of ASCII letters, with punctuation around it.

        Arrow handles these without Python's global lock. `words_of` handles the others, and needs the lock.
        """
        compute: Any = pc
        trimmed = compute.ascii_trim(pieces, characters=OUTER_MARKS)
        simple = compute.ascii_is_alpha(trimmed)
        trimmed = compute.ascii_lower(trimmed) if self.lowercase else trimmed
        merged = compute.if_else(simple, trimmed, pieces).dictionary_encode()
        found, codes = merged.dictionary, merged.indices.to_numpy()[codes]
        simple = compute.ascii_is_alpha(found).to_numpy(zero_copy_only=False)
        is_word = simple & (compute.binary_length(found).to_numpy() > 1)
        found = _strings(found)
        number = {word: place for place, word in enumerate(itertools.compress(found, is_word))}
        num_simple, others = len(number), np.flatnonzero(~simple)
        tokens = [
            [number.setdefault(word, len(number)) for word in words_of(found[piece], self.lowercase)]
            for piece in others.tolist()
        ]
        lengths = is_word.astype(np.int64)
        lengths[others] = np.fromiter(map(len, tokens), np.int64, len(tokens))
        flat = np.empty(int(lengths.sum()), np.int32)
        is_simple = np.repeat(simple, lengths)
        flat[is_simple] = np.arange(num_simple)
        flat[~is_simple] = np.fromiter(
            itertools.chain.from_iterable(tokens), np.int32, flat.size - num_simple
        )
        return _replaced(codes, breaks, list(number), lengths, flat)


def _replaced(
    codes: np.ndarray, breaks: np.ndarray, words: list[str], lengths: np.ndarray, flat: np.ndarray
) -> Block:
    """Replace each piece by its tokens.

    Args:
      codes: number of each piece.
      breaks: pieces at which documents begin.
      words: the distinct tokens.
      lengths: how many tokens each distinct piece has.
      flat: these tokens, one piece after the other.
    """
    each = lengths[codes]
    begins = np.cumsum(np.append(0, each))
    first = np.cumsum(lengths) - lengths
    if lengths.max(initial=0) > 1:
        within = np.arange(begins[-1]) - np.repeat(begins[:-1], each)
        codes = flat[np.repeat(first[codes], each) + within]
    else:
        codes = flat[first[codes[each > 0]]]
    return Block(words=words, codes=codes, breaks=begins[breaks])


def _starts(content: np.ndarray) -> np.ndarray:
    """Return the offsets at which pieces between blanks begin."""
    parts, after_cut = [np.empty(0, np.int32)], True
    for at in range(0, content.size, SLICE_BYTES):
        part = content[at : at + SLICE_BYTES]
        is_cut = (part == ord(" ")) | _between(part, "\t", "\r")  # the characters of CUTS
        is_start = ~is_cut
        is_start[1:] &= is_cut[:-1]
        is_start[0] &= after_cut
        after_cut = is_cut[-1]
        parts.append((np.flatnonzero(is_start) + at).astype(np.int32))
    return np.concatenate(parts)


def _line_breaks(content: np.ndarray, starts: np.ndarray, num_lines: int) -> np.ndarray:
    """Return the tokens before which a line ends, and the number of tokens if a line ends after the last."""
    if not num_lines:
        return np.empty(0, np.int64)
    ends = content == ord("\n")
    if not starts.size:
        return np.zeros(1, np.int64)
    if num_lines <= starts.size:
        return np.unique(np.searchsorted(starts, np.flatnonzero(ends) + 1))
    # Many lines are empty. Asking for each token whether a line ends before the next one needs no memory for
    # each line. Lines that end before the first token are a case of their own.
    followed = np.logical_or.reduceat(ends, starts)
    return np.append(np.flatnonzero(ends[: starts[0]].any(keepdims=True)), np.flatnonzero(followed) + 1)


def _between(content: np.ndarray, low: str, high: str) -> np.ndarray:
    # Unsigned numbers below `low` wrap around to large ones, so one comparison is enough. A table is slower.
    return content - np.uint8(ord(low)) <= np.uint8(ord(high) - ord(low))


def _distinct(text: Text, starts: np.ndarray) -> tuple[Any, np.ndarray]:
    """Return the distinct pieces between blanks, and the number of the piece at each start."""
    # Arrow needs adjacent strings, so each piece includes the blanks after it. The blanks are stripped from
    # the distinct pieces: until then, "the" before a blank and "the" before a line end are different.
    ends = np.append(starts, np.int32(len(text.content)))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(text.content)]
    encoded = pa.Array.from_buffers(pa.binary(), starts.size, buffers).dictionary_encode()
    try:
        # Arrow creates these functions when it is imported.
        pieces = pc.ascii_rtrim(  # pyright: ignore[reportAttributeAccessIssue]
            encoded.dictionary.cast(pa.string()), characters=CUTS.decode()
        )
    except pa.ArrowInvalid:
        decoded(text.content, text)
        raise
    merged = pieces.dictionary_encode()
    return merged.dictionary, merged.indices.to_numpy()[encoded.indices.to_numpy()]


def _strings(array: Any) -> list[str]:
    # Several times as fast as to_pylist.
    return array.to_numpy(zero_copy_only=False).tolist()


def decoded(content: bytes, text: Text, offset: int = 0) -> str:
    """Decode a part of a text, or raise CorpusError.

    Args:
      content: the part.
      text: the text.
      offset: position of the part in it.
    """
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        at = offset + error.start
        line = text.line + text.content.count(b"\n", 0, at)
        raise CorpusError(
            f"{text.name}: byte {text.offset + at} (line {line}), 0x{text.content[at]:02x}, is not UTF-8: "
            f"{error.reason}"
        ) from None
