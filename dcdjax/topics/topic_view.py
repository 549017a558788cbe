"""Describe the topics of one level: their words, weights and shares."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dcdjax.queries import lookup, results
from dcdjax.queries.display import ResultList
from dcdjax.queries.results import Neighbors, Topic, TopicShare
from dcdjax.topics import levels, merging
from dcdjax.topics.levels import Level

# The number of words that name a topic.
_WORDS_IN_NAME = 5


@dataclass(frozen=True, eq=False)
class TopicView:
    """Show W as the topics of one level.

    Attributes:
      words: all words, as an array of objects.
      columns: W, whose columns make up the topics.
      level: the topic of each column.
      word_counts: how often each word occurs, or None.
      finer: the level of the subtopics, or None.
    """

    words: np.ndarray
    columns: Float[Array, "words columns"]
    level: Level
    word_counts: np.ndarray | None = None
    finer: Level | None = None

    @cached_property
    def W(self) -> Float[Array, "words topics"]:  # noqa: N802, the name of the equations
        """Return P(topic | word)."""
        if (self.level.groups == np.arange(self.columns.shape[1])).all():
            return self.columns
        return jnp.asarray(merging.merged(np.asarray(self.columns), self.level.groups))

    @cached_property
    def s(self) -> Float[Array, " topics"]:
        """Return the column sums of W."""
        return lookup.topic_sizes(self.W)

    @cached_property
    def emphasis(self) -> np.ndarray:
        """Return by how much each word is raised when the words of a topic are ranked."""
        return levels.emphasis(self.word_counts, len(self.words))

    @cached_property
    def names(self) -> list[tuple[str, ...]]:
        """Return the first words of each topic."""
        _, indices = self.top_words(min(_WORDS_IN_NAME, len(self.words)))
        return [tuple(row) for row in self.words[indices].tolist()]

    @cached_property
    def weights(self) -> np.ndarray:
        """Return the share of the text that each topic explains."""
        return levels.shares(np.asarray(self.W), self.word_counts)

    def top_words(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return P(word | topic) and the indices of the first k words of each topic."""
        return results.top_words(self.W, self.s, self.emphasis, k)

    def topics(self, k: int) -> ResultList[Topic]:
        """Describe every topic by its first k words, in the order of their numbers."""
        num_topics = self.level.num_topics
        found = results.neighbors_as_words(self.words, Neighbors(*self.top_words(k), np.full(num_topics, k)))
        coherence = self.level.coherence_of(k)
        usual = self.level.coherence_of(levels.usual_depth(len(self.words), num_topics))
        junk = [value is not None and value < levels.JUNK_COHERENCE for value in usual]
        return ResultList(
            Topic(n, float(self.weights[n]), coherence[n], tuple(found[n]), self.subtopics_of(n), junk[n])
            for n in range(num_topics)
        )

    def subtopics_of(self, number: int) -> tuple[int, ...]:
        """Return the numbers of a topic's subtopics."""
        if self.finer is None:
            return ()
        return tuple(np.unique(self.finer.groups[self.level.groups == number]).tolist())

    def largest(self, row: np.ndarray, k: int | None) -> ResultList[TopicShare]:
        """Return the k topics over whose columns a row (columns,) has the largest sums; None means all."""
        sums = np.bincount(self.level.groups, row, self.level.num_topics)
        order = np.argsort(-sums, kind="stable")[:k].tolist()
        return ResultList(TopicShare(n, float(sums[n]), self.names[n]) for n in order)


def make_views(
    words: Sequence[str],
    W: Float[Array, "words columns"],
    shown: Sequence[Level],
    word_counts: np.ndarray | None,
) -> tuple[TopicView, ...]:
    """Return a view for each level."""
    array = np.array(words, object)
    finer = [*shown[1:], None]
    return tuple(
        TopicView(array, W, level, word_counts, below) for level, below in zip(shown, finer, strict=True)
    )
