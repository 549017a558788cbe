"""Split a corpus into tokens."""

import io
import itertools
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from dcdjax.text import kinds
from dcdjax.text.blocks import BLOCK_BYTES, Text
from dcdjax.text.paragraphs import mark_paragraphs
from dcdjax.text.sources import Documents, TokenLists, checked_tokens, read_texts
from dcdjax.text.splitter import Block, Splitter, decoded
from dcdjax.text.words import blank_tags
from dcdjax.util import checks
from dcdjax.util.parallel import in_order
from dcdjax.util.progress import Progress
from dcdjax.util.warn import warn

TokenKind = Literal["words", "blanks"]

# Memory for splitting a block, as a multiple of its size.
_SPLITTING = 16
# A corpus is judged by its first blocks, of this size together.
_JUDGED_BYTES = 1 << 20


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
      tokens: "words" finds the words, see `words.words_of`. "blanks" takes what stands between
        blanks as it is, and allows blanks in the tokens of lists. Default: "words", unless there is a pattern
        or a tokenizer. If you pass "words" with a tokenizer, its tokens without a letter are left out.
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
    if kind == "words":
        items = map(_without_tags, items)
    if documents == "paragraph":
        items = mark_paragraphs(items, join=kind == "words")
    if tokenize is not None:
        items = (_tokenized(item, documents, tokenize, tokens == "words") for item in items)
    lower = kind == "words" if lowercase is None else bool(lowercase)
    splitter = Splitter(documents, kind == "words", lower, bool(lowercase), compiled)
    blocks = _blocks(splitter, items, memory, progress)
    # Tokens of lists are converted only if this was asked for.
    lower = lower if texts else bool(lowercase)
    return Reading(blocks, documents, kind, lower, is_text=bool(texts))


def _without_tags(item: Text | TokenLists) -> Text | TokenLists:
    return replace(item, content=blank_tags(item.content)) if isinstance(item, Text) else item


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
    sample = kinds.sample(texts)
    if kind == "words":
        kinds.check_blanks(sample, texts[0].name)
    if documents == "auto" and kinds.is_hard_wrapped(sample):
        warn(kinds.HARD_WRAPPED.format(name=texts[0].name), kinds.HardWrappedWarning)
        return "paragraph"
    return documents


def _blocks(
    splitter: Splitter, items: Iterator[Text | TokenLists], memory: int, progress: Progress | None
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
        text = decoded(line, item, offset).removesuffix("\n").removesuffix("\r")
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
