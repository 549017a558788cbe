"""Choose the most frequent words, and encode the corpus by their numbers."""

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from dcdjax.counting.spill import SpillArray, SpillDatabase
from dcdjax.text.blocks import CorpusError
from dcdjax.text.splitter import Block

Outside = Literal["keep", "drop"]

# Codes in an encoded corpus that are no word numbers.
OUTSIDE, BREAK = -1, -2
# Bytes for each distinct word in addition to its characters: string, dictionary entry and count.
BYTES_PER_WORD = 240
# The default of min_count: one for each of so many tokens, up to a limit.
_TOKENS_PER_COUNT, _MOST_MIN_COUNT = 20_000, 5
# Tokens encoded at a time: arrays of this size are allocated fast.
TOKENS_PER_PIECE = 1 << 18


@dataclass(frozen=True, eq=False, repr=False)
class Vocabulary:
    """Hold the words of a model.

    Attributes:
      words: words by descending frequency; equally frequent ones by code points.
      counts: how often each word occurs in the corpus.
      num_tokens: number of tokens in the corpus, including those outside of the vocabulary.
      num_different: number of different tokens in the corpus; None if it is not known.
    """

    words: tuple[str, ...]
    counts: np.ndarray
    num_tokens: int
    num_different: int | None = None

    def __repr__(self) -> str:
        return f"Vocabulary({len(self.words)} words, {self.num_tokens} tokens)"


def usual_min_count(num_tokens: int) -> int:
    """Return how often a word of a text must occur by default.

    Example:
      >>> [usual_min_count(number) for number in (100, 50_000, 2_000_000)]
      [1, 2, 5]
    """
    return min(max(1, num_tokens // _TOKENS_PER_COUNT), _MOST_MIN_COUNT)


def select(
    ranked: Iterable[tuple[str, int]],
    num_tokens: int,
    *,
    max_words: int | None,
    min_count: int,
    dropped: Collection[str],
    num_different: int | None = None,
) -> Vocabulary:
    """Return the first words of a ranking, without those to drop.

    Raises:
      CorpusError: if no word remains.
    """
    kept = [(word, count) for word, count in ranked if word not in dropped][:max_words]
    if not kept:
        different = "" if num_different is None else f"{num_different} different words in "
        raise CorpusError(
            f"no word is left of {different}the corpus, {num_tokens} tokens in all, with "
            f"min_count={min_count} and {len(dropped)} words to drop"
        )
    words, counts = zip(*kept, strict=True)
    return Vocabulary(words, np.array(counts, np.int64), num_tokens, num_different)


def _numbered() -> defaultdict[str, int]:
    """Return a dictionary that gives each new word the next number."""
    return defaultdict(itertools.count().__next__)


class Tokens:
    """Hold a corpus that was read once: its words with their counts, and which word stands where.

    The tokens are in memory up to a limit, beyond it in temporary files. Words get provisional numbers as
    they come. When there are too many to keep, their counts go to the database and the numbers start again
    from 0: a new generation begins.
    """

    def __init__(self, blocks: Iterable[Block], *, memory: int) -> None:
        """Read all blocks.

        Args:
          blocks: result of `tokens.read`.
          memory: bytes for words and tokens together. What does not fit goes to disk.
        """
        self.memory = memory
        self._word_bytes = 0
        self._last_break = 0
        self.longest = 0  # tokens in the longest document
        self._spilled = SpillArray(np.int32, memory // 4)
        self._number = _numbered()
        self._counts = np.zeros(1 << 16, np.int64)
        self.generation_ends: list[int] = []  # positions in the tokens where generations end
        self._database: SpillDatabase | None = None
        self.num_tokens = 0
        try:
            for block in blocks:
                self._add(block)
            if self._database is not None:
                self._end_generation()
        except BaseException:
            self.close()
            raise
        self.longest = max(self.longest, self.num_tokens - self._last_break)
        self._tokens = self._spilled.array()

    def _add(self, block: Block) -> None:
        known = len(self._number)
        numbers = np.fromiter(map(self._number.__getitem__, block.words), np.int32, len(block.words))
        if len(self._number) > self._counts.size:
            self._counts = np.append(self._counts, np.zeros(2 * len(self._number), np.int64))
        self._counts[numbers] += np.bincount(block.codes, minlength=len(block.words))
        self._word_bytes += (len(self._number) - known) * BYTES_PER_WORD
        self._word_bytes += sum(len(block.words[n]) for n in np.flatnonzero(numbers >= known).tolist())
        tokens = numbers[block.codes]
        if block.breaks.size:
            breaks = np.unique(block.breaks)
            lengths = np.diff(self.num_tokens + breaks, prepend=self._last_break)
            self.longest = max(self.longest, int(lengths.max()))
            self._last_break = self.num_tokens + int(breaks[-1])
            tokens = np.insert(tokens, breaks, BREAK)
        self.num_tokens += block.codes.size
        self._spilled.append(tokens)
        if self._word_bytes > self.memory // 2:
            self._end_generation()

    def _end_generation(self) -> None:
        if self._database is None:
            self._database = SpillDatabase()
        size = len(self._number)
        columns = {
            "generation": np.full(size, len(self.generation_ends), np.int32),
            "number": np.arange(size, dtype=np.int32),
            "word": pa.array([word.encode() for word in self._number], pa.binary()),
            "count": self._counts[:size],
        }
        self._database.add("words", pa.table(columns))
        self.generation_ends.append(self._spilled.size)
        self._number = _numbered()
        self._word_bytes = 0
        self._counts[:] = 0

    def vocabulary(
        self, *, max_words: int | None = None, min_count: int = 1, drop: Collection[str] = ()
    ) -> Vocabulary:
        """Return the most frequent words.

        Args:
          max_words: largest number of words; None means all.
          min_count: leave out words that occur less often.
          drop: words to leave out, such as `["<unk>"]`.

        Raises:
          CorpusError: if no word remains.
        """
        if not self.num_tokens:
            raise CorpusError("the corpus has no token")
        dropped = set(drop)
        limit = None if max_words is None else max_words + len(dropped)
        if self._database is None:
            ranked = self._ranked(limit, min_count)
        else:
            ranked = self._ranked_by_database(self._database, limit, min_count)
        return select(
            ranked,
            self.num_tokens,
            max_words=max_words,
            min_count=min_count,
            dropped=dropped,
            num_different=self.num_different(),
        )

    def num_different(self) -> int:
        """Return the number of different words of the corpus."""
        if self._database is None:
            return len(self._number)
        [batch] = self._database.query(
            "SELECT count(DISTINCT word) AS number FROM {words}", memory=self.memory
        )
        return batch["number"][0].as_py()

    def _ranked(self, limit: int | None, min_count: int) -> list[tuple[str, int]]:
        counts = self._counts[: len(self._number)]
        if limit is not None and limit < counts.size:
            # Rarer words than the last one wanted need not be sorted.
            min_count = max(min_count, int(np.partition(counts, counts.size - limit)[counts.size - limit]))
        words = list(self._number)
        enough = np.flatnonzero(counts >= min_count)
        # Sorting pairs is twice as fast as sorting by a key.
        found = sorted(zip((-counts[enough]).tolist(), map(words.__getitem__, enough.tolist()), strict=True))
        return [(word, -negative) for negative, word in found]

    def _ranked_by_database(
        self, database: SpillDatabase, limit: int | None, min_count: int
    ) -> list[tuple[str, int]]:
        # UTF-8 bytes sort in the same order as code points.
        batches = database.query(
            f"SELECT word, sum(count)::BIGINT AS total FROM {{words}} GROUP BY word "  # noqa: S608, numbers only
            f"HAVING total >= {min_count:d} ORDER BY total DESC, word LIMIT {limit or 2**62:d}",
            memory=self.memory,
        )
        return [
            (word.decode(), total)
            for batch in batches
            for word, total in zip(batch["word"].to_pylist(), batch["total"].to_pylist(), strict=True)
        ]

    def encoded(self, vocabulary: Vocabulary, *, outside: Outside = "keep") -> Iterator[np.ndarray]:
        """Yield the corpus as word numbers, in pieces, with BREAK before each document.

        Args:
          vocabulary: the words. The position of a word is its number.
          outside: "keep" writes OUTSIDE for tokens that are not in the vocabulary, "drop" leaves them out.
        """
        number = {word: position for position, word in enumerate(vocabulary.words)}
        begin = 0
        for generation, end in enumerate([*self.generation_ends] or [self._tokens.size]):
            words = self._number if self._database is None else self._words_of(self._database, generation)
            # A break is -2, which NumPy takes as the last entry but one.
            numbers = np.array([*(number.get(word, OUTSIDE) for word in words), BREAK, OUTSIDE], np.int32)
            for start in range(begin, end, TOKENS_PER_PIECE):
                final = numbers[self._tokens[start : min(start + TOKENS_PER_PIECE, end)]]
                yield final[final != OUTSIDE] if outside == "drop" else final
            begin = end

    def _words_of(self, database: SpillDatabase, generation: int) -> Iterator[str]:
        query = f"SELECT word FROM {{words}} WHERE generation = {generation:d} ORDER BY number"  # noqa: S608
        for batch in database.query(query, memory=self.memory):
            for word in batch["word"].to_pylist():
                yield word.decode()

    def close(self) -> None:
        """Delete the temporary files."""
        self._spilled.close()
        if self._database is not None:
            self._database.close()
