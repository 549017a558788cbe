"""Choose the topics that are shown: columns of W, or groups of them, in a useful order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from jaxtyping import Float

from dcdjax.topics import merging
from dcdjax.topics.coherence import npmi

# The coherence is computed for up to this many words; 10 are usual.
DEPTH = 20
# Topics are ordered, and called junk, by the coherence of so many words.
_USUAL_DEPTH = 10
# Words of a topic with less coherence hardly ever stand in one passage. On three collections of documents,
# readers called such topics junk, and hardly any above.
JUNK_COHERENCE = -0.3
# A mean of values between -1 and 1 is outside by no more than this.
_ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class Level:
    """Say which columns of W make up each topic.

    Attributes:
      groups: (columns,), the number of the topic that each column of W belongs to, from 0.
      coherence: (topics, depth), the coherence of the first words of each topic, from `coherence.npmi`; None
        if it is not known.
    """

    groups: np.ndarray
    coherence: np.ndarray | None = None

    def __post_init__(self) -> None:
        groups, coherence = np.asarray(self.groups), self.coherence
        object.__setattr__(self, "groups", groups)
        if groups.ndim != 1 or groups.dtype.kind != "i" or not groups.size or groups.min() < 0:
            raise ValueError("groups must be whole numbers from 0, one for each column of W")
        if np.unique(groups).size != groups.max() + 1:
            raise ValueError(f"groups must name every topic from 0 to {groups.max()}")
        if coherence is None:
            return
        coherence = np.asarray(coherence)
        object.__setattr__(self, "coherence", coherence)
        if coherence.ndim != 2 or len(coherence) != groups.max() + 1 or not coherence.shape[1]:
            raise ValueError(f"coherence must be ({groups.max() + 1}, depth), got shape {coherence.shape}")
        if coherence.dtype.kind != "f" or (np.abs(coherence) > 1 + _ROUNDING).any():
            raise ValueError("coherence must be numbers from -1 to 1, or NaN")

    @property
    def num_topics(self) -> int:
        """Return the number of topics."""
        return int(self.groups.max()) + 1

    def coherence_of(self, num_words: int) -> list[float | None]:
        """Return the coherence of each topic's first words, or None for each if it is not known."""
        if self.coherence is None:
            return [None] * self.num_topics
        column = self.coherence[:, min(num_words, self.coherence.shape[1]) - 1]
        return [None if np.isnan(value) else float(value) for value in column]


def check_levels(levels: Sequence[Level], num_columns: int) -> None:
    """Refuse levels that do not fit W, or whose subtopics do not lie within topics."""
    for level in levels:
        if level.groups.size != num_columns:
            raise ValueError(f"levels: a level has {level.groups.size} columns, but W has {num_columns}")
    if len(levels) > 2:
        raise ValueError(f"levels must be the topics and their subtopics, got {len(levels)} levels")
    if len(levels) == 2:
        pairs = np.unique(np.stack([levels[1].groups, levels[0].groups]), axis=1)
        if pairs.shape[1] != levels[1].num_topics:
            subtopic = int(pairs[0, np.flatnonzero(np.diff(pairs[0]) == 0)[0]])
            raise ValueError(f"levels: subtopic {subtopic} is a part of more than one topic")


def usual_depth(num_words: int, num_topics: int) -> int:
    """Return how many first words a topic is judged by: 10, or the mean number of words per topic if smaller.

    Example:
      >>> usual_depth(20_000, 50), usual_depth(18, 3)
      (10, 6)
    """
    return min(_USUAL_DEPTH, max(2, num_words // num_topics))


def emphasis(word_counts: np.ndarray | None, num_words: int) -> np.ndarray:
    """Return log(1 + n_i), by which P(topic | word i) is multiplied to rank the words of a topic.

    P(topic | word) alone puts rare words first, of which little is known. P(word | topic) over the tokens of
    the text puts "the" first. The logarithm lies between the two.

    Example:
      >>> emphasis(np.array([1, 100, 10000]), 3).round(1)
      array([0.7, 4.6, 9.2])
    """
    return np.ones(num_words) if word_counts is None else np.log1p(np.asarray(word_counts, np.float64))


def shares(W: np.ndarray, word_counts: np.ndarray | None) -> np.ndarray:
    """Return the share of the text that each topic explains: the mean of P(topic | word) over its tokens."""
    if word_counts is None:
        return W.mean(axis=0, dtype=np.float64)
    tokens = np.asarray(word_counts, np.float64)
    return (tokens / tokens.sum()) @ np.asarray(W, np.float64)


def make_levels(
    W: Float[np.ndarray, "words columns"],
    numbers: Sequence[int],
    word_counts: np.ndarray | None,
    passages: scipy.sparse.csr_array | None,
) -> tuple[Level, ...]:
    """Group the columns of W to topics, and these to fewer topics, and number them in a useful order.

    A topic is useful if its words make sense together, much of the text is about it, and its words tell what
    the text is about. The order is by

        coherence * min(share of the text, 1 / number of topics) * rarity^2

    where rarity is the mean of log(1 / p_i) / log(number of passages) over the topic's first words, p_i the
    share of passages that have word i. It is near 0 for words like "the", which stand in all texts. Topics
    without coherence come last.

    Args:
      W: rows on the simplex.
      numbers: the numbers of topics of the levels, ascending. Each topic of the second level lies within one
        topic of the first. Its topics are numbered in the order of the topics that contain them.
      word_counts: how often each word occurs, if known.
      passages: as in `npmi`, if known.
    """
    weights = emphasis(word_counts, W.shape[0])
    several = min(numbers) < W.shape[1]
    cuts = merging.group_columns(W, weights, numbers) if several else [np.arange(W.shape[1]) for _ in numbers]
    levels: list[Level] = []
    for groups in cuts:
        merged = merging.merged(W, groups)
        coherence, useful = None, shares(merged, word_counts)
        if passages is not None and passages.shape[0]:
            top_words = _top_words(merged, weights)
            coherence = npmi(passages, top_words)
            useful = _usefulness(useful, coherence, passages, top_words, usual_depth(*merged.shape))
        parents = np.zeros(merged.shape[1])
        if levels:
            parents[groups] = levels[-1].groups
        order = np.lexsort((-useful, parents))
        number = np.empty_like(order)
        number[order] = np.arange(order.size)
        levels.append(Level(number[groups], None if coherence is None else coherence[order]))
    return tuple(levels)


def _top_words(W: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the first words of each topic, (topics, depth)."""
    depth = min(DEPTH, W.shape[0])
    scores = -(W * weights[:, None]).T
    # Sorting only the candidates is several times as fast.
    candidates = np.sort(np.argpartition(scores, depth - 1, axis=1)[:, :depth], axis=1)
    order = np.argsort(np.take_along_axis(scores, candidates, axis=1), axis=1, kind="stable")
    return np.take_along_axis(candidates, order, axis=1)


def _usefulness(
    share: np.ndarray,
    coherence: np.ndarray,
    passages: scipy.sparse.csr_array,
    top_words: np.ndarray,
    depth: int,
) -> np.ndarray:
    """Return a number for each topic that is larger for more useful ones. See `make_levels`."""
    if coherence.shape[1] < 2:
        return share
    value = np.nan_to_num(coherence[:, min(depth, coherence.shape[1]) - 1])
    num_passages, occurrences = passages.shape[0], np.asarray(passages.sum(axis=0)).ravel()
    rarity = np.log(num_passages / np.maximum(occurrences[top_words[:, :depth]], 1)).mean(axis=1)
    rarity /= max(np.log(num_passages), 1.0)
    return np.where(value > 0, value * np.minimum(share, 1 / share.size) * rarity**2, value)


def reduced(
    W: Float[np.ndarray, "words columns"],
    shown: Sequence[Level],
    num_topics: int,
    word_counts: np.ndarray | None,
    passages: scipy.sparse.csr_array | None,
) -> tuple[np.ndarray, Level]:
    """Sum similar columns of W until so many remain. Return them in the order of the topics, and their level.

    If a level in `shown` has `num_topics` topics, these topics are taken. With `passages`, coherence and
    order are computed again.
    """
    known = next((level for level in shown if level.num_topics == num_topics), None)
    if known is None:
        [groups] = merging.group_columns(W, emphasis(word_counts, W.shape[0]), [num_topics])
    else:
        groups = known.groups
    W = merging.merged(W, groups)
    if known is None or passages is not None:
        [level] = make_levels(W, [num_topics], word_counts, passages)
        W, coherence = W[:, np.argsort(level.groups)], level.coherence
    else:
        coherence = known.coherence
    return W, Level(np.arange(num_topics), coherence)


def passages_of(counts: Any, words: Sequence[str]) -> scipy.sparse.csr_array | None:
    """Return the passages of counts with a column for each of the words, or None if they are not known."""
    columns = {word: column for column, word in enumerate(counts.words)}
    missing = next((word for word in words if word not in columns), None)
    if missing is not None:
        raise ValueError(f"counts must have all words of the embedding, {missing!r} is missing")
    return None if counts.passages is None else counts.passages[:, [columns[word] for word in words]]


def to_tensors(levels: Sequence[Level]) -> dict[str, np.ndarray]:
    """Return the arrays to save."""
    tensors = {}
    for number, level in enumerate(levels):
        tensors[f"levels.{number}.groups"] = np.asarray(level.groups, np.int32)
        if level.coherence is not None:
            tensors[f"levels.{number}.coherence"] = level.coherence
    return tensors


def from_tensors(tensors: Mapping[str, np.ndarray]) -> tuple[Level, ...]:
    """Return the levels that were saved."""
    levels = []
    while (groups := tensors.get(f"levels.{len(levels)}.groups")) is not None:
        levels.append(Level(groups, tensors.get(f"levels.{len(levels)}.coherence")))
    return tuple(levels)
