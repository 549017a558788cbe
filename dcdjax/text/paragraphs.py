"""Find the paragraphs of hard-wrapped text, and join words that are split at the ends of lines."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from dcdjax.text.blocks import CUTS, Text
from dcdjax.text.sources import TokenLists

# A hyphen after a letter at the end of a line, and a piece in the next line that begins with a small letter.
_SPLIT_WORDS = {
    hyphen: re.compile(
        hyphen + rb"(?<=[A-Za-z\x80-\xff]" + hyphen + rb")(\r?\n)([ \t]*)([a-z\x80-\xff][^\t\n\v\f\r ]*)"
    )
    for hyphen in (b"-", "\u2010".encode(), "\u00ad".encode())
}


def mark_paragraphs(items: Iterable[Text | TokenLists], *, join: bool) -> Iterator[Text | TokenLists]:
    """Add a break at the start of each block that follows an empty line.

    `paragraph_breaks` finds the other breaks later, inside each block.

    Args:
      items: the blocks of a corpus.
      join: join words that are split at the ends of lines. A word that begins in one block and ends in the
        next stays split.
    """
    num_line_ends = 0  # since the last word
    for item in items:
        if isinstance(item, TokenLists):
            num_line_ends = 0
            yield item
            continue
        content = item.content
        begin = len(content) - len(content.lstrip(CUTS))
        num_line_ends += content.count(b"\n", 0, begin)
        if begin < len(content):
            if num_line_ends > 1:
                item = replace(item, breaks=(*item.breaks, content.rfind(b"\n", 0, begin) + 1))
            num_line_ends = content.count(b"\n", len(content.rstrip(CUTS)))
        yield replace(item, content=join_split_words(content, item.breaks)) if join else item


def paragraph_breaks(content: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return the tokens before which an empty line stands.

    Args:
      content: bytes of a text.
      starts: offsets at which its tokens begin.
    """
    following = np.searchsorted(starts, np.flatnonzero(content == ord("\n")))
    return np.unique(following[1:][following[1:] == following[:-1]])


def join_split_words(content: bytes, breaks: Iterable[int] = ()) -> bytes:
    r"""Move the rest of a word that is split at the end of a line to its beginning. All offsets remain.

    The plain hyphen may belong to the word, so it stays. U+2010 and the soft hyphen mark the end of a line,
    so they are removed.

    Example:
      >>> join_split_words("speci\u2010\n  fied, well-\nknown".encode())
      b'specified,   \n   well-known\n'
    """
    begins = set(breaks)
    for hyphen, pattern in _SPLIT_WORDS.items():
        if hyphen + b"\n" not in content and hyphen + b"\r\n" not in content:
            continue
        kept = hyphen if hyphen == b"-" else b""
        blanks = b" " * (len(hyphen) - len(kept))

        def joined(match: re.Match[bytes], kept: bytes = kept, blanks: bytes = blanks) -> bytes:
            if match.end(1) in begins:
                return match[0]
            return b"".join((kept, match[3], blanks, match[1], match[2]))

        content = pattern.sub(joined, content)
    return content
