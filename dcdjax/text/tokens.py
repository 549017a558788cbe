"""Split a corpus into tokens."""

import io
import itertools
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dcdjax.text import layout
from dcdjax.text.blocks import BLOCK_BYTES, CUTS, CorpusError, Text
from dcdjax.text.paragraphs import mark_paragraphs, paragraph_breaks
from dcdjax.text.sources import Documents, TokenLists, checked_tokens, read_texts
from dcdjax.text.words import OUTER_MARKS, words_of
from dcdjax.util import checks
from dcdjax.util.parallel import in_order
from dcdjax.util.progress import Progress
from dcdjax.util.warn import warn

TokenKind = Literal["words", "blanks"]

# Bytes searched at a time, so that the temporary arrays stay in the cache.
SLICE_BYTES = 1 << 20
# Memory for splitting a block, as a multiple of its size.
_SPLITTING = 16
# A corpus is judged by its first blocks, of this size together.
_JUDGED_BYTES = 1 << 20


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


@dataclass
class Reading(Iterator[Block]):
    """Iterate over the blocks of a corpus, and tell how it is read.

    Attributes:
      blocks: the blocks.
      documents: what a document is; never "auto".
      tokens: "words" or "blanks"; None if a pattern or a tokenizer says what a token is.
      lowercase: whether text is converted to lower case.
      is_text: whether the corpus begins with text, not with a list of tokens.
    """

    blocks: Generator[Block, None, None]
    documents: Documents
    tokens: TokenKind | None
    lowercase: bool
    is_text: bool

    def __next__(self) -> Block:
        return next(self.blocks)

    def close(self) -> None:
        """Stop reading."""
        self.blocks.close()


def read(
    source: Any,
    *,
    text: str | Sequence[str] | None = None,
    documents: Documents = "auto",
    tokens: TokenKind | None = None,
    lowercase: bool | None = None,
    pattern: str | re.Pattern[str] | None = None,
    tokenizer: Any = None,
    memory: int = 1 << 30,
    progress: Progress | None = None,
) -> Reading:
    r"""Split a corpus into tokens on all cores. Only a few blocks of it are in memory at a time.

    Args:
      source: a path (a folder stands for all visible files below it, sorted by name), an open file, `"-"` for
        standard input, or an iterable of `pathlib.Path`, of strings (text, not file names), or of lists of
        tokens. Files are UTF-8, plain or compressed by gzip. Tables are read row by row, a document each:
        files that end in .csv, .tsv, .jsonl, .ndjson or .parquet, and data frames, columns and arrays of
        pandas, polars, Arrow and Hugging Face.
      text: column of a table that holds the text, or several columns, which are joined. By default the only
        column, or the column "text". The columns of a CSV or TSV file without a header are "column0",
        "column1", ... Rows without text are left out, with a warning.
      documents: a document is a "line", a "paragraph" (up to an empty line), a whole "file" (or item of an
        iterable), or the "corpus". A list of tokens and the start of a file begin a document, unless the
        corpus is one document. "auto" is a line, or a paragraph if lines are hard-wrapped, with a warning.
      tokens: "words" finds the words, see `words.words_of`. "blanks" takes what stands between blanks as it
        is, and allows blanks in the tokens of lists. Default: "words", unless there is a pattern or a
        tokenizer. If you pass "words" with a tokenizer, its tokens without a letter are left out.
      lowercase: convert tokens to lower case. Default: only words that `tokens="words"` finds in text.
      pattern: regular expression such as `r"\w+"`. Its matches within each blank-separated piece are the
        tokens.
      tokenizer: callable from a line of text to tokens, instead of `lowercase` and `pattern`; or an object
        with a method `tokenize`, or with `encode` whose result has `tokens`, as Hugging Face's tokenizers. It
        is called in order and from one thread. Empty tokens are left out. Lines longer than 8 MiB come in
        parts, cut at blanks.
      memory: bytes to work with. Less memory means that fewer cores split at the same time.
      progress: called as `progress("reading", tokens so far, estimated total or None, "tokens")`.

    Returns:
      An iterator over blocks of tokens, in order. The first part of the corpus has been read by then.

    Raises:
      CorpusError: for bad UTF-8, a binary or empty file, a word of more than 8 MiB in a file, damaged gzip, a
        language without blanks between words, or blanks in a token. The message names the file, and the byte
        or line.
      FileNotFoundError, TypeError: if the source does not exist or has a wrong type.

    Example:
      >>> [block] = read(["To be, or not", "to be!"])
      >>> [block.words[code] for code in block.codes], block.breaks
      (['to', 'be', 'or', 'not', 'to', 'be'], array([0, 4]))
    """
    checks.choice("documents", documents, get_args(Documents))
    if tokens is not None:
        checks.choice("tokens", tokens, get_args(TokenKind))
    if tokenizer is not None and (pattern is not None or lowercase):
        raise ValueError("tokenizer cannot be combined with pattern or lowercase")
    if pattern is not None and tokens == "words":
        raise ValueError('pattern cannot be combined with tokens="words": it says itself what a word is')
    compiled = _compiled(pattern)
    tokenize = None if tokenizer is None else _tokenize(tokenizer)
    kind = (tokens or "words") if pattern is None and tokenizer is None else None

    items = read_texts(source, documents, text, blanks_in_tokens=tokens == "blanks")
    first = _first_items(items)
    items = itertools.chain(first, items)
    if texts := [item for item in first if isinstance(item, Text)]:
        documents = _judge(texts, documents, kind)
    documents = "line" if documents == "auto" else documents
    if documents == "paragraph":
        items = mark_paragraphs(items, join=kind == "words")
    if tokenize is not None:
        items = (_tokenized(item, documents, tokenize, tokens == "words") for item in items)
    lower = kind == "words" if lowercase is None else bool(lowercase)
    splitter = _Splitter(documents, kind == "words", lower, bool(lowercase), compiled)
    blocks = _blocks(splitter, items, memory, progress)
    return Reading(blocks, documents, kind, lower, is_text=bool(texts))


def _compiled(pattern: Any) -> re.Pattern[str] | None:
    try:
        compiled = re.compile(pattern) if pattern is not None else None
        if compiled is not None and not isinstance(compiled.pattern, str):
            raise TypeError("it is for bytes")
    except (re.error, TypeError) as error:
        raise ValueError(f"pattern {pattern!r} is not a regular expression: {error}") from None
    return compiled


def _first_items(items: Iterator[Text | TokenLists]) -> list[Text | TokenLists]:
    """Take as many items as are needed to judge what kind of text they are."""
    first: list[Text | TokenLists] = []
    size = 0
    while size < _JUDGED_BYTES and (item := next(items, None)) is not None:
        first.append(item)
        size += len(item.content) if isinstance(item, Text) else _JUDGED_BYTES
    return first


def _judge(texts: Sequence[Text], documents: Documents, kind: TokenKind | None) -> Documents:
    """Refuse a language without blanks between words, and return "paragraph" if lines are hard-wrapped."""
    if documents != "auto" and kind != "words":
        return documents
    sample = layout.sample(texts)
    if kind == "words":
        layout.check_blanks(sample, texts[0].name)
    if documents == "auto" and layout.is_hard_wrapped(sample):
        warn(layout.HARD_WRAPPED.format(name=texts[0].name), layout.HardWrappedWarning)
        return "paragraph"
    return documents


def _blocks(
    splitter: "_Splitter", items: Iterator[Text | TokenLists], memory: int, progress: Progress | None
) -> Generator[Block, None, None]:
    done = 0
    with closing(in_order(splitter, items, memory // (_SPLITTING * BLOCK_BYTES))) as blocks:
        for item, block in blocks:
            done += block.codes.size
            if progress is not None:
                part, whole = item.read or (0, 0)
                progress("reading", done, round(done * whole / part) if part else None, "tokens")
            yield block


def _tokenize(tokenizer: Any) -> Callable[[str], Any]:
    """Return the tokenizer's function from a line to tokens."""
    if callable(getattr(tokenizer, "tokenize", None)):
        return tokenizer.tokenize
    if callable(tokenizer):
        return tokenizer
    if callable(getattr(tokenizer, "encode", None)) and not isinstance(tokenizer, str):
        return lambda line: tokenizer.encode(line, add_special_tokens=False).tokens
    raise ValueError(f"tokenizer must be callable, or have a method tokenize, got {tokenizer!r}")


def _tokenized(
    item: Text | TokenLists, documents: Documents, tokenize: Callable[[str], Any], only_words: bool
) -> TokenLists:
    if isinstance(item, TokenLists):
        raise ValueError("tokenizer needs text, but the corpus is lists of tokens")
    lists: list[list[str]] = []
    begins: list[bool] = []
    offset, breaks, begun = 0, set(item.breaks), False
    for number, line in enumerate(io.BytesIO(item.content)):
        begun = begun or offset in breaks
        text = _decoded(line, item, offset).removesuffix("\n").removesuffix("\r")
        if text and not text.isspace():
            name = f"tokenizer on line {item.line + number} of {item.name}"
            tokens = checked_tokens(tokenize(text), name)
            lists.append(
                [token for token in tokens if any(map(str.isalpha, token))] if only_words else tokens
            )
            begins.append(begun)
            begun = False
        elif number and documents == "paragraph":
            begun = True
        begun = begun or (documents == "line" and line.endswith(b"\n"))
        offset += len(line)
    if begun:  # the next block begins a document
        lists.append([])
        begins.append(True)
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
    """Split text into tokens. Each distinct piece between blanks is split only once in a block.

    Attributes:
      documents: what a document is.
      words: whether the words of each piece are the tokens.
      lowercase: whether text is converted to lower case.
      lowercase_lists: whether tokens that come in lists are.
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

        Arrow finds these without the interpreter's lock, which `words_of` needs for the others.
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
        _decoded(text.content, text)
        raise
    merged = pieces.dictionary_encode()
    return merged.dictionary, merged.indices.to_numpy()[encoded.indices.to_numpy()]


def _strings(array: Any) -> list[str]:
    # Several times as fast as to_pylist.
    return array.to_numpy(zero_copy_only=False).tolist()
