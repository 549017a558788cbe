"""Join phrases in a stream of word numbers, and count which words stand side by side in it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing

import numpy as np
import pyarrow as pa

from dcdjax.counting.spill import SpillDatabase

# Bytes for each pair while the pairs are sorted: the key, its sorted copy, and where it begins.
BYTES_PER_PAIR = 24


class Joiner:
    """Replace the words of each phrase by one number: at each place the longest phrase, from left to right.

    The result does not depend on how the stream is cut into pieces.

    Example:
      >>> join = Joiner([(0, 1), (0, 1, 2)], num_words=3)
      >>> [piece.tolist() for piece in join([np.array([0, 1]), np.array([2, 0, 1, -2, 0])])]
      [[4, 3], [-2, 0]]
    """

    def __init__(self, phrases: Sequence[tuple[int, ...]], num_words: int) -> None:
        """Build a tree of the phrases.

        Args:
          phrases: the word numbers of each phrase, two or more. Phrase k becomes number num_words + k.
          num_words: size of the vocabulary.
        """
        self.num_words = num_words
        self.num_numbers = num_words + len(phrases)  # all numbers of the result are smaller
        self.longest = max(map(len, phrases), default=1)
        self._lengths = np.array([len(phrase) for phrase in phrases], np.int64)
        edges: dict[tuple[int, int], int] = {}  # from a node by a word to a node; 0 is the root
        phrase_at: dict[int, int] = {}
        for number, phrase in enumerate(phrases):
            node = 0
            for word in phrase:
                node = edges.setdefault((node, word), len(edges) + 1)
            phrase_at[node] = number
        # Negative numbers, which are no words, are the last entries and lead nowhere.
        self._first = np.full(num_words + 2, -1, np.int32)
        self._is_inner = np.zeros(num_words + 2, bool)  # words that come after the first one
        for (node, word), child in edges.items():
            if node == 0:
                self._first[word] = child
            else:
                self._is_inner[word] = True
        keys = np.array([node * num_words + word for node, word in edges if node], np.int64)
        children = np.array([child for (node, _), child in edges.items() if node], np.int32)
        order = np.argsort(keys)
        self._keys, self._children = keys[order], children[order]
        self._phrase_at = np.full(len(edges) + 1, -1, np.int32)
        self._phrase_at[list(phrase_at)] = list(phrase_at.values())

    def __call__(self, pieces: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """Yield the pieces of a stream with its phrases joined. Negative numbers stay as they are."""
        if not self._lengths.size:
            yield from pieces
            return
        rest = np.empty(0, np.int32)
        for piece in pieces:
            tokens = np.concatenate([rest, piece])
            # A phrase that begins later may go on in the next piece.
            joined, rest = self._joined(tokens, tokens.size - self.longest + 1)
            if joined.size:
                yield joined
        if rest.size:
            yield self._joined(rest, rest.size)[0]

    def _joined(self, tokens: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
        """Join the phrases that begin before `limit`. Return the result, and the tokens not yet decided."""
        if limit <= 0:
            return tokens[:0], tokens
        found = self._longest_at(tokens)
        starts = np.flatnonzero(found[:limit] >= 0)
        lengths = self._lengths[found[starts]]
        chosen = _without_overlap(starts, lengths)
        starts, lengths = starts[chosen], lengths[chosen]
        end = max(limit, int(starts[-1] + lengths[-1])) if starts.size else limit
        result, stays = tokens[:end].copy(), np.ones(end, bool)
        result[starts] = self.num_words + found[starts]
        for distance in range(1, self.longest):
            stays[starts[lengths > distance] + distance] = False
        return result[stays], tokens[end:]

    def _longest_at(self, tokens: np.ndarray) -> np.ndarray:
        """Return the longest phrase that begins at each place; -1 if there is none."""
        found = np.full(tokens.size, -1, np.int32)
        nodes = self._first[tokens]
        places = np.flatnonzero(nodes >= 0)
        nodes = nodes[places]
        for distance in range(1, self.longest):
            inside = np.searchsorted(places, tokens.size - distance)
            words = tokens[places[:inside] + distance]
            possible = np.flatnonzero(self._is_inner[words])  # a search takes longer than this
            places, nodes, words = places[possible], nodes[possible], words[possible]
            keys = nodes * np.int64(self.num_words) + words
            at = np.minimum(np.searchsorted(self._keys, keys), self._keys.size - 1)
            known = self._keys[at] == keys
            places, nodes = places[known], self._children[at[known]]
            numbers = self._phrase_at[nodes]
            found[places[numbers >= 0]] = numbers[numbers >= 0]
        return found


def _without_overlap(starts: np.ndarray, lengths: np.ndarray) -> list[int]:
    """Choose from left to right what does not overlap with what was chosen before."""
    following = np.searchsorted(starts, starts + lengths).tolist()
    chosen, at = [], 0
    while at < len(following):
        chosen.append(at)
        at = following[at]
    return chosen


def count_adjacent(
    pieces: Iterable[np.ndarray],
    num_words: int,
    wanted: Callable[[np.ndarray, np.ndarray], np.ndarray],
    *,
    least: int,
    memory: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Count which words follow each other directly.

    Args:
      pieces: a stream of word numbers. Negative numbers are no words.
      num_words: all numbers are smaller.
      wanted: function of two arrays, the first and the second number of each pair. It returns True for the
        pairs to count, and never for a negative number. Only these pairs are sorted, which saves time.
      least: leave out pairs that occur less often.
      memory: bytes to work with. DuckDB sums the partial counts of a corpus that needs more.

    Returns:
      The first words, the second words and the counts of the pairs, in the order of the words; and how often
      each word occurs.
    """
    words = np.zeros(num_words, np.int64)
    database: SpillDatabase | None = None
    waiting: list[np.ndarray] = []
    size, last = 0, np.full(1, -1, np.int32)
    with ExitStack() as stack:
        for piece in pieces:
            words += np.bincount(piece[piece >= 0], minlength=num_words)
            tokens = np.concatenate([last, piece])
            last = tokens[-1:]
            at = np.flatnonzero(wanted(tokens[:-1], tokens[1:]))
            waiting.append(tokens[at].astype(np.int64) * num_words + tokens[at + 1])
            size += waiting[-1].size
            if size * BYTES_PER_PAIR > memory:
                database = database or stack.enter_context(closing(SpillDatabase()))
                database.add("pairs", _table(waiting))
                waiting, size = [], 0
        if database is None:
            keys, counts = _summed(waiting)
        else:
            database.add("pairs", _table(waiting))
            keys, counts = _summed_by_database(database, least, memory)
    enough = counts >= least
    return keys[enough] // num_words, keys[enough] % num_words, counts[enough], words


def _summed(waiting: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct keys, sorted, and how often each occurs."""
    if not waiting:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    keys = np.concatenate(waiting)
    waiting.clear()
    keys.sort()
    begins = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: keys.size])
    return keys[begins], np.diff(np.append(begins, keys.size))


def _table(waiting: list[np.ndarray]) -> pa.Table:
    keys, counts = _summed(waiting)
    return pa.table({"key": keys, "count": counts})


def _summed_by_database(database: SpillDatabase, least: int, memory: int) -> tuple[np.ndarray, np.ndarray]:
    """Sum partial counts. Pairs that occur less often than `least` stay in the database."""
    query = (
        "SELECT key, sum(count)::BIGINT AS total FROM {{pairs}} "
        "GROUP BY key HAVING total >= {:d} ORDER BY key"
    )
    keys, counts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for batch in database.query(query.format(least), memory=memory):
        keys.append(batch["key"].to_numpy())
        counts.append(batch["total"].to_numpy())
    return np.concatenate(keys), np.concatenate(counts)
