"""Read human judgments of words from files: pairs, analogies and categories."""

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dcdjax.util.files import name_in_os_errors


def read_pairs(path: str | os.PathLike[str]) -> list[tuple[str, str, float]]:
    """Read word pairs with scores: word, word, score in each line.

    Args:
      path: path of a UTF-8 file. Fields are separated by tabs, semicolons, commas or blanks. Empty lines and
        lines that begin with # are skipped. So is a header: a first line whose third field is not a number.

    Returns:
      Tuples (word, word, score) in the order of the file.

    Raises:
      ValueError: if the file is not as described. The message names the file and the line.
    """
    pairs = []
    for n, (place, line) in enumerate(_lines(path)):
        separator = next((mark for mark in "\t;," if mark in line), None)
        fields = [field.strip() for field in line.split(separator)]
        if n or len(fields) < 3 or _number(fields[2]) is not None:
            pairs.append(checked_pair(place, fields))
    if not pairs:
        raise ValueError(f"{os.fspath(path)}: it holds no pairs")
    return pairs


def read_analogies(path: str | os.PathLike[str]) -> dict[str, list[tuple[str, str, str, str]]]:
    """Read analogies in the format of Google's file: four words in each line, in sections.

    Args:
      path: path of a UTF-8 file. A line ": name" begins a section. Words are separated by blanks. Empty lines
        and lines that begin with # are skipped.

    Returns:
      The questions of each section, in the order of the file. Sections with the same name are joined.

    Raises:
      ValueError: if the file is not as described. The message names the file and the line.
    """
    questions, section = {}, None
    for place, line in _lines(path):
        if line.startswith(":"):
            [name] = checked_words(place, [line[1:].strip()], 1, "a section's name")
            section = questions.setdefault(name, [])
        elif section is None:
            raise ValueError(f"{place}: a line ': name' must begin a section before {line!r}")
        else:
            section.append(checked_words(place, line.split(), 4, "four words"))
    if not any(questions.values()):
        raise ValueError(f"{os.fspath(path)}: it holds no questions")
    return questions


def read_categories(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read the categories of words: word and category in each line, separated by a tab or a comma.

    Args:
      path: path of a UTF-8 file. Empty lines and lines that begin with # are skipped.

    Returns:
      The category of each word, in the order of the file.

    Raises:
      ValueError: if the file is not as described. The message names the file and the line.
    """
    categories = {}
    for place, line in _lines(path):
        fields = [field.strip() for field in line.split("\t" if "\t" in line else ",")]
        word, category = checked_words(place, fields, 2, "word, category")
        if word in categories:
            raise ValueError(f"{place}: {word!r} occurs more than once")
        categories[word] = category
    if not categories:
        raise ValueError(f"{os.fspath(path)}: it holds no words")
    return categories


def _lines(path: str | os.PathLike[str]) -> Iterator[tuple[str, str]]:
    """Yield each line that is neither empty nor a comment, after its place in the file."""
    with name_in_os_errors(path):
        content = Path(path).read_bytes()
    try:
        text = content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        at = error.start
        raise ValueError(f"{os.fspath(path)}: byte {at}, 0x{content[at]:02x}, is not UTF-8") from None
    for n, line in enumerate(text.split("\n"), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            # Tabs stay, because a field between two tabs may be empty.
            yield f"{os.fspath(path)}: line {n}", line.strip("\r ")


def checked_words(place: str, fields: Sequence[Any], count: int, expected: str) -> tuple[str, ...]:
    """Return the fields if they are as many strings as expected, none of them empty."""
    if len(fields) != count:
        raise ValueError(f"{place}: expected {expected}, got {len(fields)} fields: {fields!r}")
    for field in fields:
        if not isinstance(field, str) or not field:
            raise ValueError(f"{place}: {field!r} is not a word; expected {expected}")
    return tuple(fields)


def checked_pair(place: str, fields: Sequence[Any]) -> tuple[str, str, float]:
    """Return the fields if they are two words and a finite number."""
    if len(fields) != 3:
        raise ValueError(f"{place}: expected word, word, score, got {len(fields)} fields: {fields!r}")
    first, second = checked_words(place, fields[:2], 2, "word, word, score")
    score = _number(fields[2])
    if score is None or not math.isfinite(score):
        raise ValueError(f"{place}: the score {fields[2]!r} is not a finite number")
    return first, second, score


def _number(field: Any) -> float | None:
    try:
        return float(field)
    except (TypeError, ValueError):
        return None
