"""Run lookups in batches of a few fixed shapes, and turn word indices into words."""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from dcdjax.queries import lookup
from dcdjax.queries.display import ResultList
from dcdjax.queries.lookup import Factor, Sizes

# Queries in one batch. A larger product is faster until its scores leave the cache; 256 is among the fastest
# of 64 to 512 for 20,000 words. With more words the batch shrinks, so that it has at most MAX_SCORES scores.
MAX_BATCH = 256
MAX_SCORES = 1 << 24
# Compute at least this many results, so that most queries use one compiled program: the usual ten words, and
# the query's own word.
_MIN_RESULTS = 12
# Up to this many words in a query, comparing all results with all its words at once is the fastest.
MAX_COMPARED_WORDS = 64


class WordProbability(NamedTuple):
    """A word and its probability given the query."""

    word: str
    probability: float

    def __repr__(self) -> str:
        return f"({self.word!r}, {self.probability:.4g})"


class Topic(NamedTuple):
    """A topic and its first words."""

    number: int
    weight: float  # the share of the text that the topic explains, P(topic)
    coherence: float | None  # mean NPMI of all pairs of these words; None if the passages are not known
    words: tuple[WordProbability, ...]  # with P(word | topic)
    subtopics: tuple[int, ...] = ()  # the numbers of its parts
    junk: bool = False  # its words hardly ever stand in one passage


class TopicShare(NamedTuple):
    """The part of one topic in a word, or in the similarity of two words."""

    number: int
    probability: float
    words: tuple[str, ...]  # the first words of the topic


class Neighbors(NamedTuple):
    """The nearest words of each query as indices, the most probable first."""

    probabilities: np.ndarray  # (queries, k)
    indices: np.ndarray  # (queries, k)
    lengths: np.ndarray  # (queries,): a row is valid up to here


def nearest_indices(
    W: Factor,
    s: Sizes,
    queries: Int[np.ndarray, "queries words_per_query"],
    k: int,
    *,
    among: np.ndarray | None = None,
    rows: np.ndarray | None = None,
) -> Neighbors:
    """Find the k words j with the largest mean Shat_ij over the words i of each query, without these words.

    Args:
      W: rows on the simplex.
      s: the column sums of W, from `lookup.topic_sizes`.
      queries: the word indices of each query, filled up with NO_WORD.
      k: the largest number of neighbors.
      among: True for the words to choose from; None means all words.
      rows: query these rows, (queries, topics), instead. `queries` then only says which words to leave out.
    """
    num_words = W.shape[0]
    num_queries, width = queries.shape
    num_results = min(max(_MIN_RESULTS, next_power_of_two(k + width)), num_words)
    batch = max(1, min(MAX_BATCH, MAX_SCORES // num_words))
    # Few sizes, so that few programs are compiled. The results of the padding are never read.
    if rows is None:
        nearest, filling = lookup.nearest_to_words, ((0, 0), (0, next_power_of_two(width) - width))
        asked = np.pad(queries, filling, constant_values=lookup.NO_WORD)
    else:
        nearest, asked = lookup.nearest_to_rows, rows
    found = []
    # All batches are dispatched before the first one is read.
    for start in range(0, num_queries, batch):
        size = min(batch, next_power_of_two(num_queries - start))
        part = asked[start : start + batch]
        part = np.pad(part, ((0, size - len(part)), (0, 0)))
        found.append(nearest(W, s, part, among, k=num_results))
    parts = [
        _without_query_words(queries[n * batch : (n + 1) * batch], ranked, k)
        for n, ranked in enumerate(found)
    ]
    if not parts:
        return Neighbors(np.zeros((0, 0), W.dtype), np.zeros((0, 0), np.int32), np.zeros(0, int))
    return Neighbors(*map(np.concatenate, zip(*parts, strict=True))) if len(parts) > 1 else parts[0]


def _without_query_words(queries: np.ndarray, found: lookup.Ranked, k: int) -> Neighbors:
    """Remove the query's own words and the words outside `among` from one batch, and keep k results.

    All queries at once: one by one, this takes a tenth of the time of a large batch.
    """
    num_queries, width = queries.shape
    # np.asarray, because jax.device_get takes a tenth of the time of a single query.
    values, indices = (np.asarray(array)[:num_queries, : k + width] for array in found)
    if width <= MAX_COMPARED_WORDS:
        left_out = (indices[:, :, None] == queries[:, None, :]).any(axis=2)
    else:
        left_out = np.stack([np.isin(*pair) for pair in zip(indices, queries, strict=True)])
    lengths = np.minimum((~left_out & (values > -np.inf)).sum(axis=1), k)
    order = left_out.argsort(axis=1, kind="stable")[:, :k]
    rows = np.arange(num_queries)[:, None]
    return Neighbors(values[rows, order], indices[rows, order], lengths)


def neighbors_as_words(words: np.ndarray, found: Neighbors) -> list[ResultList[WordProbability]]:
    """Replace the indices by words, which are an array of objects."""
    pairs = zip(words[found.indices].ravel().tolist(), found.probabilities.ravel().tolist(), strict=True)
    # Calling WordProbability takes three times as long.
    flat = list(map(tuple.__new__, itertools.repeat(WordProbability), pairs))
    width = found.indices.shape[1]
    return [
        ResultList(flat[row * width : row * width + end]) for row, end in enumerate(found.lengths.tolist())
    ]


def pair_similarity(W: Factor, s: Sizes, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return Shat_ij for each pair of word indices."""
    result = np.empty(first.size, W.dtype)
    for part, size, pairs in _pair_batches(W.shape[0], first, second):
        result[part] = np.asarray(lookup.pair_similarity(W, s, *pairs))[:size]
    return result


def top_contributions(
    W: Factor, s: Sizes, first: np.ndarray, second: np.ndarray, groups: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the k topics that add most to Shat_ij of each pair, and what each adds.

    Args:
      W: rows on the simplex.
      s: the column sums of W, from `lookup.topic_sizes`.
      first: a word index of each pair.
      second: the other word index of each pair.
      groups: the topic of each column of W, as in `levels.Level`.
      k: the number of topics.

    Returns:
      The sums of W_ik W_jk / s_k over the columns of a topic, and the topics, each as (pairs, k).
    """
    values, topics = np.empty((first.size, k), W.dtype), np.empty((first.size, k), np.int32)
    member = membership(groups, W.dtype)
    for part, size, pairs in _pair_batches(W.shape[0], first, second):
        found = lookup.top_contributions(W, s, *pairs, member, k=k)
        values[part], topics[part] = (np.asarray(array)[:size] for array in found)
    return values, topics


def membership(groups: np.ndarray, dtype: Any) -> np.ndarray | None:
    """Return 1 where a column belongs to a topic, (columns, topics); None if each is a topic, in their order.

    Example:
      >>> membership(np.array([1, 0, 1]), np.float32)
      array([[0., 1.],
             [1., 0.],
             [0., 1.]], dtype=float32)
    """
    if (groups == np.arange(groups.size)).all():
        return None
    return (groups[:, None] == np.arange(groups.max() + 1)).astype(dtype)


def _pair_batches(
    num_words: int, first: np.ndarray, second: np.ndarray
) -> Iterator[tuple[slice, int, list[np.ndarray]]]:
    """Yield the slice of each batch, its number of pairs, and its word indices padded to a usual size."""
    # A batch gathers about as many rows as W has, so it takes no more memory than W.
    batch = next_power_of_two(num_words)
    for start in range(0, first.size, batch):
        part = slice(start, start + batch)
        size = first[part].size
        padding = (0, next_power_of_two(size) - size)
        yield part, size, [np.pad(indices[part], padding) for indices in (first, second)]


def top_words(W: Factor, s: Sizes, emphasis: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first k words of each topic, see `levels.emphasis`.

    Returns:
      P(word | topic) and the word indices, each as (topics, k).
    """
    num_words, num_topics = W.shape
    num_results = min(next_power_of_two(max(k, _MIN_RESULTS)), num_words)
    batch = max(1, MAX_SCORES // num_words)
    emphasis = emphasis.astype(W.dtype)
    found = [
        lookup.words_of_topics(W[:, start : start + batch], s[start : start + batch], emphasis, k=num_results)
        for start in range(0, num_topics, batch)
    ]
    probabilities, indices = (np.concatenate(parts)[:, :k] for parts in zip(*found, strict=True))
    return probabilities, indices


def next_power_of_two(size: int) -> int:
    """Round up to a power of two, so that arrays of any length need few compiled programs."""
    return 1 << max(0, size - 1).bit_length()
