"""Numbers of words enter, and leave as answers: words with their probabilities, in batches by the device."""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Int

from dcdjax import queries

# Questions answered at once. A larger product is faster until its scores leave the cache: of 64 to 512, this
# is among the fastest for 20,000 words. For more words, so many that there are no more than _SCORES numbers.
_BATCH = 256
_SCORES = 1 << 24
# At least so many answers are computed, so that most questions need the same compiled program: the usual ten,
# and the word itself.
_LEAST_ANSWERS = 12
# Up to so many words of a question, comparing every answer with each is the fastest way.
_FEW = 64


class WordProbability(NamedTuple):
    """A word with P(word | what was asked about)."""

    word: str
    probability: float

    def __repr__(self) -> str:
        return f"({self.word!r}, {self.probability:.4g})"


class Topic(NamedTuple):
    """A topic as its words."""

    number: int
    weight: float  # P(topic), the mean of P(topic | word) over all words
    coherence: float | None  # mean NPMI of all pairs among the first words; None where no counts are known
    words: tuple[WordProbability, ...]  # with P(word | topic)


class TopicShare(NamedTuple):
    """What a topic has of a word, or of the similarity of two."""

    topic: int
    probability: float
    words: tuple[str, ...]  # the topic's first


def nearest(
    words: np.ndarray,
    W: Float[Array, "words topics"],
    s: Float[Array, " topics"],
    asked: Int[np.ndarray, "questions together"],
    k: int,
    *,
    among: np.ndarray | None = None,
    rows: np.ndarray | None = None,
) -> list[list[WordProbability]]:
    """The k words j with the largest mean Shat_ij over the words i of each question, without these.

    Args:
      words: all, as an array of objects.
      W: their rows.
      s: the sums of its columns.
      asked: the numbers of the words of each question, filled up with NO_WORD.
      k: how many answers at most.
      among: True for the words to choose from.
      rows: ask about these, (questions, topics), instead; `asked` then only says what is left out.

    Returns:
      The answers to each, the largest first.
    """
    num_questions, together = asked.shape
    num_answers = min(max(_LEAST_ANSWERS, rounded(k + together)), len(words))
    batch = max(1, min(_BATCH, _SCORES // len(words)))
    found = []
    for start in range(0, num_questions, batch):
        # Always one of a few sizes: each is compiled once. Nobody reads the answers to what is filled in.
        size = min(batch, rounded(num_questions - start))
        if rows is None:
            numbers = np.zeros((size, rounded(together)), np.int32)
            numbers[:, together:] = queries.NO_WORD
            part = asked[start : start + batch]
            numbers[: len(part), :together] = part
            found.append(queries.nearest_to_words(W, s, numbers, among, k=num_answers))
        else:
            part = rows[start : start + batch]
            part = np.pad(part, ((0, size - len(part)), (0, 0)))
            found.append(queries.nearest_to_rows(W, s, part, among, k=num_answers))
    return [
        answer
        for place, ranked in enumerate(found)
        for answer in _in_words(words, asked[place * batch : (place + 1) * batch], ranked, k)
    ]


def _in_words(
    words: np.ndarray, asked: np.ndarray, found: queries.Ranked, k: int
) -> list[list[WordProbability]]:
    """The first k answers to each question, without its own words and those that were not to be chosen.

    For all questions at once: one by one it would take a tenth of a large batch's time.
    """
    num_questions, together = asked.shape
    # By np.asarray, as jax.device_get would take a tenth of a single question's time.
    values, places = (np.asarray(array)[:num_questions, : k + together] for array in found)
    if together <= _FEW:
        left_out = (places[:, :, None] == asked[:, None, :]).any(axis=2)
    else:
        left_out = np.stack([np.isin(*pair) for pair in zip(places, asked, strict=True)])
    ends = np.minimum((~left_out & (values > -np.inf)).sum(axis=1), k).tolist()
    order = left_out.argsort(axis=1, kind="stable")[:, :k]
    rows = np.arange(num_questions)[:, None]
    values, places = values[rows, order], places[rows, order]
    pairs = zip(words[places].ravel().tolist(), values.ravel().tolist(), strict=True)
    # Calling WordProbability takes three times as long.
    flat = list(map(tuple.__new__, itertools.repeat(WordProbability), pairs))
    width = order.shape[1]
    return [flat[row * width : row * width + end] for row, end in enumerate(ends)]


def pair_similarity(
    W: Float[Array, "words topics"], s: Float[Array, " topics"], first: np.ndarray, second: np.ndarray
) -> np.ndarray:
    """Shat_ij of each pair of numbers."""
    result = np.empty(first.size, W.dtype)
    for part, size, numbers in _in_batches(W.shape[0], first, second):
        result[part] = np.asarray(queries.pair_similarity(W, s, *numbers))[:size]
    return result


def _in_batches(
    num_words: int, first: np.ndarray, second: np.ndarray
) -> Iterator[tuple[slice, int, list[np.ndarray]]]:
    """Where the pairs of a batch stand, how many they are, and their numbers, filled up to a usual size."""
    # As many gathered rows at once as there are words, at most: no more memory than W itself takes.
    batch = rounded(num_words)
    for start in range(0, first.size, batch):
        part = slice(start, start + batch)
        size = first[part].size
        yield part, size, [np.pad(numbers[part], (0, rounded(size) - size)) for numbers in (first, second)]


def paths(
    W: Float[Array, "words topics"],
    s: Float[Array, " topics"],
    first: np.ndarray,
    second: np.ndarray,
    k: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Of each pair of numbers the k largest W_ik W_jk / s_k, and their topics, each (pairs, k)."""
    values, topics = np.empty((first.size, k), W.dtype), np.empty((first.size, k), np.int32)
    for part, size, numbers in _in_batches(W.shape[0], first, second):
        found = queries.paths(W, s, *numbers, k=k)
        values[part], topics[part] = (np.asarray(array)[:size] for array in found)
    return values, topics


def first_words(
    W: Float[Array, "words topics"], s: Float[Array, " topics"], k: int
) -> tuple[np.ndarray, np.ndarray]:
    """P(word | topic) and the number of each topic's first k words, each (topics, k)."""
    num_words, num_topics = W.shape
    num_answers = min(rounded(max(k, _LEAST_ANSWERS)), num_words)
    batch = max(1, _SCORES // num_words)
    found = [
        queries.words_of_topics(W[:, start : start + batch], s[start : start + batch], k=num_answers)
        for start in range(0, num_topics, batch)
    ]
    probabilities, numbers = (np.concatenate(parts)[:, :k] for parts in zip(*found, strict=True))
    return probabilities, numbers


def shares(terms: np.ndarray, k: int, words: Sequence[tuple[str, ...]]) -> list[TopicShare]:
    """The k largest of a term for each topic, with the topic's words."""
    order = np.argsort(-terms, kind="stable")[:k].tolist()
    return [TopicShare(topic, float(terms[topic]), words[topic]) for topic in order]


def folded_in(
    W: Float[Array, "words topics"],
    s: Float[Array, " topics"],
    starts: Sequence[int],
    numbers: np.ndarray,
    weights: np.ndarray,
) -> np.ndarray:
    """The row of a new word: see `queries.fold_in`; in a consensus, each start has a row of its own.

    Args:
      W: of all starts beside each other.
      s: the sums of its columns.
      starts: the number of topics of each.
      numbers: of the known words.
      weights: S_j for each.

    Returns:
      P(topic | new word).
    """
    size = numbers.size
    # Words of weight zero add nothing.
    numbers = np.pad(numbers, (0, rounded(size) - size)).astype(np.int32)
    # First by the largest, in float64: no scale leaves the range of float32, and none matters.
    weights = np.pad(weights / weights.max(), (0, rounded(size) - size)).astype(W.dtype)
    # In a consensus of M starts, W and s are an M-th of those of a start: it cancels.
    word_given_topic = W[numbers] / s[None, :]
    ends = np.cumsum(starts)
    rows = [
        queries.fold_in(word_given_topic[:, end - size : end], weights)
        for size, end in zip(starts, ends.tolist(), strict=True)
    ]
    return np.concatenate([np.asarray(row) for row in rows]) / np.asarray(len(rows), W.dtype)


def rounded(size: int) -> int:
    """The next power of two: of arrays of any length, few shapes are compiled."""
    return 1 << max(0, size - 1).bit_length()
