"""Check arguments, and name the one that is wrong. Compare the records of two runs."""

import difflib
import json
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

# The largest number that NumPy's and JAX's integers hold.
_MOST = 2**63 - 1


def whole(name: str, value: Any, least: int) -> int:
    """Return a whole number of at least `least` that fits into 64 bits."""
    try:
        value = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number, got {value!r}") from None
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    if value > _MOST:
        raise ValueError(f"{name} must be at most {_MOST}, got a number of {value.bit_length()} bits")
    return value


def choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Refuse a value that is not one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {choices}, got {value!r}")


def did_you_mean(value: Any, known: Iterable[str]) -> str:
    """Return a hint with the known name that is spelled most like the value, or an empty text.

    Example:
      >>> did_you_mean("wikitext2", ["text8", "wikitext-2"])
      '; did you mean wikitext-2?'
    """
    close = difflib.get_close_matches(str(value), list(known), 1)
    return f"; did you mean {close[0]}?" if close else ""


def checked_words(words: Sequence[str] | None, num_words: int) -> tuple[str, ...] | None:
    """Return the words as a tuple: one for each row, all different."""
    if words is None:
        return None
    single = isinstance(words, str)
    words = tuple(words)
    if single or not all(isinstance(word, str) for word in words):
        raise ValueError("words must be a sequence of strings")
    words = tuple(map(str, words))  # NumPy's strings are larger and have another repr
    if len(words) != num_words:
        raise ValueError(f"words: got {len(words)} words for {num_words} rows")
    if len(set(words)) < num_words:
        seen: set[str] = set()
        twice = next(word for word in words if word in seen or seen.add(word))
        raise ValueError(f"words: {twice!r} occurs more than once")
    return words


def find_differences(first: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield each entry that differs: its dotted name, and its value in both records as JSON.

    Example:
      >>> list(find_differences({"tol": 0.1, "S": {"sha256": "a"}}, {"S": {"sha256": "b"}}))
      [('tol', '0.1', 'not given'), ('S.sha256', '"a"', '"b"')]
    """
    first_entries, other_entries = _flatten(first), _flatten(other)
    for name in {**first_entries, **other_entries}:
        one, two = first_entries.get(name, "not given"), other_entries.get(name, "not given")
        if one != two:
            yield name, one, two


def _flatten(record: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat = {}
    for name, value in record.items():
        is_record = isinstance(value, dict)
        flat |= _flatten(value, f"{prefix}{name}.") if is_record else {prefix + name: json.dumps(value)}
    return flat
