"""Numbers of words enter, and leave as answers: words with their probabilities, in batches by the device."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from dcdjax import decomposition, queries

# Questions answered at once: their scores should stay in the cache, and be no more than this many numbers.
_BATCH = 256
_SCORES = 1 << 24
# At least so many answers are computed, so that most questions need the same compiled program.
_LEAST_ANSWERS = 16


class WordProbability(NamedTuple):
    """A word with P(word | what was asked about)."""

    word: str
    probability: float


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
    words: Sequence[str],
    W: Float[Array, "words topics"],
    s: Float[Array, " topics"],
    questions: Sequence[tuple[int, ...]],
    k: int,
    *,
    among: np.ndarray | None = None,
    rows: np.ndarray | None = None,
) -> list[list[WordProbability]]:
    """The k words with the largest mean Shat_ij over the words i of each question, without these.

    Args:
      words: all.
      W: their rows.
      s: the sums of its columns.
      questions: the numbers of the words of each.
      k: how many answers at most.
      among: True for the words to choose from.
      rows: ask about these, (questions, topics), instead; the questions then only say what is left out.

    Returns:
      The answers to each, the largest first.
    """
    together = max(map(len, questions), default=0)
    num_answers = min(rounded(max(k + together, _LEAST_ANSWERS)), len(words))
    batch = max(1, min(_BATCH, _SCORES // len(words)))
    answers = []
    for start in range(0, len(questions), batch):
        part = questions[start : start + batch]
        # Always one of a few sizes: each is compiled once.
        size = rounded(len(part))
        if rows is None:
            numbers = np.full((size, rounded(together)), queries.NO_WORD, np.int32)
            numbers[len(part) :] = 0
            for place, question in enumerate(part):
                numbers[place, : len(question)] = question
            found = queries.nearest_to_words(W, s, numbers, among, k=num_answers)
        else:
            padded = np.pad(rows[start : start + batch], ((0, size - len(part)), (0, 0)))
            found = queries.nearest_to_rows(W, s, padded, among, k=num_answers)
        answers.append((part, found))
    result = []
    for part, found in answers:
        # All of them at once: made Python's one by one, numbers would take longer than the device did.
        values, places = jax.device_get(found)
        listed: Iterable[tuple[tuple[int, ...], list[float], list[int]]]
        listed = zip(part, values.tolist(), places.tolist(), strict=False)
        for question, probabilities, numbers in listed:
            near = [
                WordProbability(words[number], probability)
                for number, probability in zip(numbers, probabilities, strict=True)
                if number not in question and probability != -np.inf
            ]
            result.append(near[:k])
    return result


def pair_similarity(
    W: Float[Array, "words topics"], s: Float[Array, " topics"], first: np.ndarray, second: np.ndarray
) -> np.ndarray:
    """Shat_ij of each pair of numbers."""
    result = np.empty(first.size, W.dtype)
    # As many gathered rows at once as there are words, at most: no more memory than W itself takes.
    batch = rounded(W.shape[0])
    for start in range(0, first.size, batch):
        parts = [numbers[start : start + batch] for numbers in (first, second)]
        size = parts[0].size
        padded = (np.pad(part, (0, rounded(size) - size)) for part in parts)
        result[start : start + size] = np.asarray(queries.pair_similarity(W, s, *padded))[:size]
    return result


def first_words(
    W: Float[Array, "words topics"], s: Float[Array, " topics"], k: int
) -> tuple[np.ndarray, np.ndarray]:
    """P(word | topic) and the number of each topic's first k words, each (topics, k)."""
    num_answers = min(rounded(max(k, _LEAST_ANSWERS)), W.shape[0])
    probabilities, numbers = jax.device_get(queries.words_of_topics(W, s, k=num_answers))
    return probabilities[:, :k], numbers[:, :k]


def shares(terms: np.ndarray, k: int, words: Sequence[tuple[str, ...]]) -> list[TopicShare]:
    """The k largest of a term for each topic, with the topic's words."""
    order = np.argsort(-terms, kind="stable")[:k].tolist()
    return [TopicShare(topic, float(terms[topic]), words[topic]) for topic in order]


def folded_in(
    W: Float[Array, "words topics"],
    starts: Sequence[int],
    plus: np.ndarray | None,
    numbers: np.ndarray,
    weights: np.ndarray,
) -> np.ndarray:
    """The row of a new word: see `queries.fold_in`; in a consensus, each start has a row of its own.

    Args:
      W: of all starts beside each other.
      starts: the number of topics of each.
      plus: of each start at its own W; None where it is not known.
      numbers: of the known words.
      weights: S_j for each.

    Returns:
      P(topic | new word).
    """
    size = numbers.size
    # Words of weight zero add nothing.
    numbers = np.pad(numbers, (0, rounded(size) - size)).astype(np.int32)
    weights = np.pad(weights, (0, rounded(size) - size)).astype(W.dtype)
    rows, begin = [], 0
    for num_topics in starts:
        topics = slice(begin, begin + num_topics)
        block = decomposition.on_simplex(W[:, topics])
        at = np.zeros(num_topics) if plus is None else plus[topics]
        s = queries.topic_sizes(block)
        rows.append(queries.fold_in(block, s, at.astype(W.dtype), numbers, weights))
        begin += num_topics
    return np.concatenate([np.asarray(row) for row in rows]) / len(rows)


def rounded(size: int) -> int:
    """The next power of two: of arrays of any length, few shapes are compiled."""
    return 1 << max(0, size - 1).bit_length()
