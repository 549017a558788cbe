"""Words enter; their numbers leave, or an error with the words that are spelled like them."""

import difflib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

# Comparing spellings takes about 5 microseconds a word; words are sorted by frequency, and nobody waits for
# a second to learn of a typing error in a rare word.
_COMPARED = 50_000


class UnknownWordError(KeyError):
    """A word that was asked for is not in the vocabulary."""

    def __str__(self) -> str:
        # KeyError would show the message in quotes.
        return str(self.args[0])


class Lexicon:
    """Words, each with its number.

    Example:
      >>> lexicon = Lexicon(("tea", "cup"))
      >>> lexicon.number("cup")
      1
      >>> lexicon.number("teas")
      Traceback (most recent call last):
      dcdjax.lexicon.UnknownWordError: 'teas' is not among the 2 words; similar: 'tea'
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)

    @cached_property
    def index(self) -> dict[str, int]:
        """The number of each word."""
        return {word: number for number, word in enumerate(self.words)}

    def number(self, word: Any) -> int:
        """The number of a word.

        Raises:
          UnknownWordError: a KeyError that suggests words of similar spelling.
        """
        try:
            return self.index[word]
        except (KeyError, TypeError):
            raise self._unknown(word) from None

    def numbers(self, words: Any, name: str = "words") -> list[int]:
        """The numbers of several words.

        Raises:
          UnknownWordError: for the first unknown one.
          ValueError: if these are no several words.
        """
        if isinstance(words, str | bytes) or not hasattr(words, "__iter__"):
            raise ValueError(f"{name} must be a list of words, got {words!r}")
        return [self.number(word) for word in words]

    def _unknown(self, word: Any) -> UnknownWordError:
        if not isinstance(word, str):
            return UnknownWordError(f"a word must be a str, got {word!r}")
        compared = self.words[:_COMPARED]
        spellings: dict[str, list[str]] = {}
        for known in compared:
            spellings.setdefault(known.casefold(), []).append(known)
        close = difflib.get_close_matches(word.casefold(), spellings, n=5, cutoff=0.7)
        found = [repr(known) for key in close for known in spellings[key]][:5]
        similar = f"; similar: {', '.join(found)}" if found else ""
        return UnknownWordError(f"{word!r} is not among the {len(self.words)} words{similar}")
