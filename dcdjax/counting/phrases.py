"""Find phrases, such as "new york", and join each of them to one token.

A phrase is two or three words that stand side by side more often than by chance. A first round finds pairs of
words. With these joined, a second round finds pairs of a phrase and a word.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dcdjax.counting.joining import Joiner, count_adjacent
from dcdjax.counting.spill import SpillArray
from dcdjax.counting.vocabulary import BREAK, OUTSIDE, TOKENS_PER_PIECE, Outside, Tokens, Vocabulary, select

# The thresholds were chosen by reading the phrases of encyclopedia articles, news and titles of papers. From
# 0.5 on, nearly all phrases are names and terms; below it, "same year" and "suggested that" begin. A word
# needs about ten occurrences for a good vector.
LEAST_NPMI = 0.5
LEAST_COUNT = 10
# Some pairs of function words, such as "has been", have a large NPMI too. A text has function words if its
# ten most frequent words make up more than this share: 0.19 to 0.27 in English, 0.05 to 0.12 without them.
FUNCTION_SHARE = 1 / 6
# Then a word with this share of the text forms a phrase only with a word that stands beside it half of the
# time ("new york", not "has been"), and a word with the second share forms none ("at least").
FREQUENT, VERY_FREQUENT = 1 / 1000, 1 / 200
# In a vocabulary of fewer words, the ten most frequent ones always have a large share.
_FEW_WORDS = 100
# Words of the longest phrase.
_MOST_WORDS = 3


class Phrase(NamedTuple):
    """Hold a phrase that was joined.

    Attributes:
      phrase: its words with blanks between them.
      count: how often it was joined.
      score: normalized pointwise mutual information of its words, log(p / (p_1 ... p_n)) / -((n - 1) log p):
        1 if the words occur only together, 0 for chance.
    """

    phrase: str
    count: int  # pyright: ignore[reportIncompatibleMethodOverride], the best name; a tuple's is not needed
    score: float


@dataclass(frozen=True, eq=False)
class JoinedTokens:
    """Hold a corpus whose phrases are joined.

    Attributes:
      vocabulary: words and phrases, by their counts after joining.
      phrases: the phrases that were joined, the best first.
      encoded: yields the corpus by word numbers, as `Tokens.encoded`.
    """

    vocabulary: Vocabulary
    phrases: tuple[Phrase, ...]
    encoded: Callable[[], Iterator[np.ndarray]]


def join(tokens: Sequence[str], phrases: Iterable[str]) -> list[str]:
    """Join the phrases in a list of tokens: at each place the longest one, from left to right.

    Args:
      tokens: the tokens of one document.
      phrases: words with blanks between them, such as `embedding.phrases`.

    Example:
      >>> join(["the", "new", "york", "times"], ["new york", "york times"])
      ['the', 'new york', 'times']
    """
    by_first = _by_first_word(tuple(phrases))
    tokens, joined, at = list(tokens), [], 0
    while at < len(tokens):
        length = 1
        for words in by_first.get(tokens[at], ()):
            if tokens[at : at + len(words)] == words:
                length = len(words)
                break
        joined.append(" ".join(tokens[at : at + length]))
        at += length
    return joined


@lru_cache(maxsize=4)
def _by_first_word(phrases: tuple[str, ...]) -> dict[str, list[list[str]]]:
    """Return the words of the phrases by their first word, the longest first."""
    by_first: dict[str, list[list[str]]] = {}
    for words in sorted((phrase.split(" ") for phrase in phrases), key=len, reverse=True):
        by_first.setdefault(words[0], []).append(words)
    return by_first


def checked(phrases: Any) -> bool | frozenset[str]:
    """Check the option `phrases` of `count`: a bool, or phrases to join, which may have any blanks."""
    if isinstance(phrases, bool | np.bool_):
        return bool(phrases)
    if isinstance(phrases, str) or not isinstance(phrases, Iterable):
        raise ValueError(f"phrases must be True, False or a collection of phrases, got {phrases!r}")
    given: set[str] = set()
    for phrase in phrases:
        words = phrase.split() if isinstance(phrase, str) else []
        if len(words) < 2:
            raise ValueError(f"phrases: {phrase!r} is no phrase: a string with two or more words is one")
        given.add(" ".join(words))
    return frozenset(given)


def joined_tokens(
    tokens: Tokens,
    phrases: bool | Sequence[str],
    *,
    max_words: int | None,
    min_count: int,
    drop: frozenset[str],
    outside: Outside,
    memory: int,
) -> JoinedTokens:
    """Join phrases in a corpus, and choose the vocabulary of the result.

    Args:
      tokens: the corpus.
      phrases: True to find the phrases; or the phrases to join.
      max_words: as in `Tokens.vocabulary`; words and phrases are counted after joining.
      min_count: likewise.
      drop: likewise.
      outside: as in `Tokens.encoded`.
      memory: bytes to work with.
    """
    options = {"max_words": max_words, "min_count": min_count, "drop": drop}
    if phrases is True:
        kept = tokens.vocabulary(**options)
        # A rarer phrase could not enter the vocabulary. Hence all words of phrases are in `kept`.
        least = max(LEAST_COUNT, min_count, int(kept.counts[-1]) if len(kept.words) == max_words else 0)
        found = _find(lambda: tokens.encoded(kept), kept, least, memory)
        text = _Text(tokens, found, **options, memory=memory)
        found, joiner, counts = _prune(text, found, least)
    else:
        found = [tuple(phrase.split(" ")) for phrase in phrases or ()]
        text = _Text(tokens, found, **options, memory=memory)
        joiner = text.joiner(found)
        counts = text.counted(joiner)
    vocabulary, names = text.vocabulary(found, counts), text.names(found)
    numbers = {word: number for number, word in enumerate(vocabulary.words)}
    final = np.array([*(numbers.get(name, OUTSIDE) for name in names), BREAK, OUTSIDE], np.int32)

    def encoded() -> Iterator[np.ndarray]:
        for piece in joiner(text.pieces()):
            numbered = final[piece]
            yield numbered[numbered != OUTSIDE] if outside == "drop" else numbered

    return JoinedTokens(vocabulary, text.scored(found, counts), encoded)


def _prune(
    text: "_Text", found: list[tuple[str, ...]], least: int
) -> tuple[list[tuple[str, ...]], Joiner, np.ndarray]:
    """Leave out phrases that would be lost. Return the others, their joiner, and the counts after joining."""
    while True:
        joiner = text.joiner(found)
        counts = text.counted(joiner)
        # Within longer phrases, a phrase can become rarer than it was when it was found.
        stays = (counts[len(text.words) :] >= least).tolist()
        if all(stays):
            # A phrase outside of the vocabulary would be lost with its words: they are better apart.
            known = set(text.vocabulary(found, counts).words)
            stays = [" ".join(words) in known for words in found]
        if all(stays):
            return found, joiner, counts
        found = [words for words, stay in zip(found, stays, strict=True) if stay]


class _Text:
    """Hold a corpus encoded by all words that can be in the vocabulary or in a phrase."""

    def __init__(
        self,
        tokens: Tokens,
        found: Sequence[tuple[str, ...]],
        *,
        max_words: int | None,
        min_count: int,
        drop: frozenset[str],
        memory: int,
    ) -> None:
        self._limits = {"max_words": max_words, "min_count": min_count, "dropped": drop}
        parts = {word for words in found for word in words}
        # Joining lowers the counts of these words alone. So many more words can come into the vocabulary.
        most = None if max_words is None else max_words + len(drop) + len(parts)
        candidates = tokens.vocabulary(max_words=most, min_count=min_count)
        self.words = (*candidates.words, *sorted(parts.difference(candidates.words)))
        self._number = {word: number for number, word in enumerate(self.words)}
        self._counts = np.zeros(len(self.words), np.int64)
        self._num_tokens = tokens.num_tokens
        line = SpillArray(np.int32, memory // 2)
        for piece in tokens.encoded(Vocabulary(self.words, self._counts, tokens.num_tokens)):
            line.append(piece)
            self._counts += np.bincount(piece[piece >= 0], minlength=len(self.words))
        self._line = line.array()

    def pieces(self) -> Iterator[np.ndarray]:
        """Yield the corpus before joining."""
        for start in range(0, self._line.size, TOKENS_PER_PIECE):
            yield self._line[start : start + TOKENS_PER_PIECE]

    def joiner(self, phrases: Sequence[tuple[str, ...]]) -> Joiner:
        """Return the `Joiner` that replaces each of these phrases by one number."""
        return Joiner([tuple(map(self._number.__getitem__, words)) for words in phrases], len(self.words))

    def names(self, phrases: Sequence[tuple[str, ...]]) -> list[str]:
        """Return the words and phrases by their numbers after joining."""
        return [*self.words, *map(" ".join, phrases)]

    def counted(self, joiner: Joiner) -> np.ndarray:
        """Return how often each word and then each phrase occurs after joining."""
        counts = np.zeros(joiner.num_numbers, np.int64)
        for piece in joiner(self.pieces()):
            counts += np.bincount(piece[piece >= 0], minlength=counts.size)
        return counts

    def vocabulary(self, phrases: Sequence[tuple[str, ...]], counts: np.ndarray) -> Vocabulary:
        """Choose the vocabulary by the counts after joining."""
        total = int(counts.sum()) - int(self._counts.sum()) + self._num_tokens
        enough, names = np.flatnonzero(counts >= self._limits["min_count"]), self.names(phrases)
        found = sorted(zip((-counts[enough]).tolist(), map(names.__getitem__, enough.tolist()), strict=True))
        return select([(word, -negative) for negative, word in found], total, **self._limits)

    def scored(self, phrases: Sequence[tuple[str, ...]], counts: np.ndarray) -> tuple[Phrase, ...]:
        """Return the phrases that occur with their scores, the best first."""
        scored = []
        for words, count in zip(phrases, counts[len(self.words) :].tolist(), strict=True):
            if count:
                single = self._counts[[self._number[word] for word in words]] / self._num_tokens
                own = np.log(count / self._num_tokens)
                score = (own - np.log(single).sum()) / -((len(words) - 1) * own)
                scored.append(Phrase(" ".join(words), count, float(score)))
        return tuple(sorted(scored, key=lambda one: (-one.score, -one.count, one.phrase)))


def _find(
    encoded: Callable[[], Iterable[np.ndarray]], vocabulary: Vocabulary, least: int, memory: int
) -> list[tuple[str, ...]]:
    """Return the phrases of two and three words that occur at least `least` times."""
    words = vocabulary.words
    # "dota 2" is a phrase, but not "1 0" or ", and".
    begins = np.array([word.isalpha() or any(map(str.isalpha, word)) for word in words], bool)
    ends = np.array([word.isalnum() or any(map(str.isalnum, word)) for word in words], bool)
    # Punctuation does not count here, which some texts have as tokens.
    share = np.where(ends, vocabulary.counts, 0) / max(1, vocabulary.counts[ends].sum())
    if len(words) <= _FEW_WORDS or np.sort(share)[-10:].sum() <= FUNCTION_SHARE:
        share[:] = 0
    begins &= share <= VERY_FREQUENT
    ends &= share <= VERY_FREQUENT
    parts: list[tuple[int, ...]] = [(number,) for number in range(len(words))]
    while len(parts[-1]) < _MOST_WORDS:
        joiner = Joiner(parts[len(words) :], len(words))
        wanted = _Wanted(parts, begins, ends)
        pairs = count_adjacent(joiner(encoded()), len(parts), wanted, least=least, memory=memory)
        is_frequent = np.append(share > FREQUENT, np.zeros(len(parts) - len(words), bool))
        good = _are_phrases(*pairs, is_frequent)
        joined = zip(*(numbers[good].tolist() for numbers in pairs[:2]), strict=True)
        # The same three words can come from two pairs.
        new = list(dict.fromkeys(parts[first] + parts[second] for first, second in joined))
        if not new:
            break
        parts += new
    return [tuple(words[number] for number in part) for part in parts[len(words) :]]


class _Wanted:
    """Choose the pairs that can form a phrase one word longer than the longest phrase so far.

    The first word must be allowed at the beginning of a phrase, and the last word at the end.
    """

    def __init__(self, parts: Sequence[tuple[int, ...]], begins: np.ndarray, ends: np.ndarray) -> None:
        lengths = np.array([len(part) for part in parts], np.int8)
        self._length = lengths.max() + 1
        never = np.int8(2 * self._length)
        first = np.where(begins[[part[0] for part in parts]], lengths, never)
        last = np.where(ends[[part[-1] for part in parts]], lengths, never)
        # Negative numbers, which are no words, are the last entries.
        self._first, self._last = (np.append(side, [never, never]) for side in (first, last))

    def __call__(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return self._first[first] + self._last[second] == self._length


def _are_phrases(
    first: np.ndarray, second: np.ndarray, times: np.ndarray, counts: np.ndarray, is_frequent: np.ndarray
) -> np.ndarray:
    """Decide which pairs of adjacent words are phrases, by the counts of the pairs and of the words."""
    total = counts.sum()
    one, other, both = counts[first] / total, counts[second] / total, times / total
    good = np.log(both / (one * other)) >= LEAST_NPMI * -np.log(both)
    belong = times >= np.minimum(counts[first], counts[second]) / 2
    return good & (belong | ~(is_frequent[first] | is_frequent[second]))
