"""Format tables for a terminal."""

import unicodedata
from collections.abc import Iterable, Sequence


def shown(word: str) -> str:
    r"""Return a word that is safe to print: control characters and unprintable ones are escaped.

    Example:
      >>> shown("tea"), shown("\x1b[2J")
      ('tea', '\\x1b[2J')
    """
    return word if word.isprintable() else repr(word)[1:-1]


def table(rows: Iterable[Sequence[str]], *, right: Sequence[int] = (), indent: int = 0) -> str:
    """Align the cells of rows in columns.

    Args:
      rows: rows with the same number of cells.
      right: numbers of the columns to align on the right.
      indent: number of blanks before each line.

    Example:
      >>> print(table([("word", "count"), ("tea", "12")], right=[1]))
      word  count
      tea      12
    """
    rows = [list(row) for row in rows]
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = []
        for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
            blanks = " " * (width - _width(cell))
            cells.append(blanks + cell if column in right else cell + blanks)
        lines.append((" " * indent + "  ".join(cells)).rstrip())
    return "\n".join(lines)


def _width(text: str) -> int:
    """Return the columns that a text takes. Chinese characters take two, combining marks none."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.combining(character) > 0 for character in text)
