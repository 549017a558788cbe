"""Find the row of a word, or suggest words of similar spelling."""

import difflib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

# Comparing two spellings takes about 5 microseconds. Words are sorted by frequency, so the first 50,000 are
# enough, and the error comes after a quarter of a second.
_MAX_COMPARED = 50_000


class UnknownWordError(KeyError):
    """Say that a word is not in the vocabulary."""

    def __str__(self) -> str:
        # KeyError would show the message in quotes.
        return str(self.args[0])


class WordIndex:
    """Map words to their row indices.

    Example:
      >>> words = WordIndex(("tea", "cup"))
      >>> words.index_of("cup")
      1
      >>> words.index_of("teas")
      Traceback (most recent call last):
      dcdjax.queries.word_index.UnknownWordError: 'teas' is not among the 2 words; similar: 'tea'
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)

    @cached_property
    def by_word(self) -> dict[str, int]:
        """Return the index of each word."""
        return {word: index for index, word in enumerate(self.words)}

    def index_of(self, word: Any) -> int:
        """Return the index of a word.

        Raises:
          UnknownWordError: a KeyError that suggests words of similar spelling.
        """
        try:
            return self.by_word[word]
        except (KeyError, TypeError):
            raise self._unknown(word) from None

    def indices_of(self, words: Any, argument: str = "words") -> list[int]:
        """Return the indices of several words.

        Raises:
          UnknownWordError: for the first unknown word.
          ValueError: if `words` is not a list of words. The message names the argument.
        """
        if isinstance(words, str | bytes) or not hasattr(words, "__iter__"):
            raise ValueError(f"{argument} must be a list of words, got {words!r}")
        return [self.index_of(word) for word in words]

    def _unknown(self, word: Any) -> UnknownWordError:
        """Make the error for an unknown word, with up to five known words that are spelled like it."""
        if not isinstance(word, str):
            return UnknownWordError(f"a word must be a str, got {word!r}")
        spellings: dict[str, list[str]] = {}
        for known in self.words[:_MAX_COMPARED]:
            spellings.setdefault(known.casefold(), []).append(known)
        close = difflib.get_close_matches(word.casefold(), spellings, n=5, cutoff=0.7)
        found = [repr(known) for spelling in close for known in spellings[spelling]][:5]
        similar = f"; similar: {', '.join(found)}" if found else ""
        return UnknownWordError(f"{word!r} is not among the {len(self.words)} words{similar}")
