"""Collect what a page tells about an embedding: its words, its topics and its training curves."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from dcdjax.embedding.embedding import Embedding
from dcdjax.queries import lookup, results
from dcdjax.queries.results import Topic
from dcdjax.report import encoding
from dcdjax.report.labels import label
from dcdjax.topics import levels
from dcdjax.topics.coherence import diversity
from dcdjax.util.progress import Progress

# With these sizes a page of 20,000 words has 4 MB.
_TOPICS_OF_NEIGHBOR = 3  # of 50 topics, they explain 96 percent of a neighbor's probability
_TOPICS_OF_WORD = 8
_WORDS_OF_TOPIC = 20
_WORDS_OF_SUBTOPIC = 8
_WORDS_OF_COHERENCE = 10  # the usual number, and that of `dcdjax topics`
_WORDS_OF_DIVERSITY = 25  # likewise
_SIMILAR_TOPICS = 6
# A training curve has no more steps than a screen has pixels for it.
_STEPS_OF_CURVE = 500
# The number of words between two reports of progress.
_WORDS_AT_A_TIME = 2048


def most_frequent(embedding: Embedding, max_words: int) -> np.ndarray:
    """Return the indices of the words to show, in the order of the embedding."""
    if embedding.word_counts is None:
        return np.arange(min(max_words, len(embedding)))
    return np.sort(np.argsort(-np.asarray(embedding.word_counts, np.float64), kind="stable")[:max_words])


# --- Words ------------------------------------------------------------------------------------------


def word_data(
    embedding: Embedding, shown: np.ndarray, num_neighbors: int, report_progress: Progress
) -> dict[str, np.ndarray]:
    """Collect the neighbors of each shown word, the topics that explain them, and the word's own topics."""
    s = lookup.topic_sizes(embedding.W)
    among = None
    if shown.size < len(embedding):
        among = np.zeros(len(embedding), bool)
        among[shown] = True
    parts = []
    for begin in range(0, shown.size, _WORDS_AT_A_TIME):
        report_progress("neighbors", begin, shown.size, "words")
        queries = shown[begin : begin + _WORDS_AT_A_TIME, None].astype(np.int32)
        found = results.nearest_indices(embedding.W, s, queries, num_neighbors, among=among)
        parts.append(_neighbor_data(embedding, s, shown, queries, found))
    report_progress("neighbors", shown.size, shown.size, "words")
    arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    own = lookup.topics_of_words(
        embedding.topic_probabilities()[shown], k=min(_TOPICS_OF_WORD, embedding.num_topics)
    )
    arrays["word_topics"] = np.asarray(own.indices)
    arrays["word_topic_codes"], arrays["word_topic_largest"] = encoding.log_codes(
        np.asarray(own.values, np.float64)
    )
    arrays["neighbor_codes"], arrays["neighbor_largest"] = encoding.log_codes(arrays.pop("probabilities"))
    if embedding.word_counts is not None:
        arrays["counts"] = np.asarray(embedding.word_counts, np.float64)[shown]
    return arrays


def _neighbor_data(
    embedding: Embedding, s: Any, shown: np.ndarray, queries: np.ndarray, found: results.Neighbors
) -> dict[str, np.ndarray]:
    """Add to the neighbors of some words the topics that explain most of each neighbor's probability."""
    # Every shown word but the query itself can be a neighbor, so all rows have the same length.
    width = int(found.lengths.max(initial=0))
    indices = found.indices[:, :width]
    probabilities = found.probabilities[:, :width].astype(np.float64)
    terms, topics = results.top_contributions(
        embedding.W,
        s,
        np.broadcast_to(queries, indices.shape).ravel(),
        indices.ravel(),
        embedding.levels[0].groups,
        min(_TOPICS_OF_NEIGHBOR, embedding.num_topics),
    )
    shape = *indices.shape, terms.shape[1]
    similarity = np.broadcast_to(probabilities[:, :, None], shape)
    shares = np.divide(terms.reshape(shape), similarity, where=similarity > 0, out=np.zeros(shape))
    codes = encoding.share_codes(shares)
    return {
        "neighbors": np.searchsorted(shown, indices),
        "probabilities": probabilities,
        "paths": np.where(codes > 0, topics.reshape(shape), 0),
        "path_codes": codes,
    }


# --- Topics -----------------------------------------------------------------------------------------


def topic_data(embedding: Embedding, shown: np.ndarray) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Collect what is told about each topic and subtopic, and the words of the page.

    The words of the page are the shown words, and after them words that only name topics.
    """
    topics, top_words = _topics_and_words(embedding, _WORDS_OF_TOPIC, subtopics=False)
    # A topic that is its own only subtopic has no parts to show.
    has_parts = any(len(topic.subtopics) > 1 for topic in topics)
    parts, part_words = [], np.empty((0, 0), np.int64)
    if has_parts:
        parts, part_words = _topics_and_words(embedding, _WORDS_OF_SUBTOPIC, subtopics=True)
    named = np.concatenate([shown, np.setdiff1d(np.append(top_words, part_words), shown)])
    position = np.empty(len(embedding), np.int64)
    position[named] = np.arange(named.size)
    W = np.asarray(embedding.topic_probabilities())
    labels = [row[label([embedding.words[index] for index in row])] for row in top_words]
    arrays = {
        "weights": np.array([topic.weight for topic in topics], np.float32),
        "topic_words": position[top_words],
        "topic_word_shares": W[top_words, np.arange(len(topics))[:, None]].astype(np.float32),
        **_similar_topics(embedding),
    }
    if has_parts:
        arrays["subtopic_weights"] = np.array([part.weight for part in parts], np.float32)
        arrays["subtopic_words"] = position[part_words]
    coherence = [topic.coherence for topic in embedding.topics(_WORDS_OF_COHERENCE)]
    judged = embedding.topics(_WORDS_OF_DIVERSITY)
    content = {
        "words": [embedding.words[index] for index in named.tolist()],
        "labels": [position[row].tolist() for row in labels],
        "coherence": None if embedding.levels[0].coherence is None else coherence,
        "diversity": diversity([[one.word for one in topic.words] for topic in judged]),
        "junk": [topic.number for topic in topics if topic.junk],
        "junk_coherence": levels.JUNK_COHERENCE,
        "subtopics": [topic.subtopics for topic in topics] if has_parts else None,
        "first_word": _first_word(position[np.append(labels[0], top_words[0])], shown.size),
    }
    return content, arrays


def _topics_and_words(embedding: Embedding, most: int, *, subtopics: bool) -> tuple[list[Topic], np.ndarray]:
    """Return the topics, and the indices of their first words as (topics, words)."""
    topics = list(embedding.topics(most, subtopics=subtopics))
    index = embedding.key_to_index
    return topics, np.array([[index[one.word] for one in topic.words] for topic in topics], np.int64)


def _similar_topics(embedding: Embedding) -> dict[str, np.ndarray]:
    similarity = np.array(lookup.topic_similarity(embedding.topic_probabilities()), np.float64)
    np.fill_diagonal(similarity, -np.inf)
    num_similar = min(_SIMILAR_TOPICS, len(similarity) - 1)
    similar = np.argsort(-similarity, axis=1, kind="stable")[:, :num_similar]
    similarity = np.take_along_axis(similarity, similar, axis=1)
    return {"similar_topics": similar, "topic_similarity": np.clip(similarity, 0, 1).astype(np.float32)}


def _first_word(positions: np.ndarray, num_shown: int) -> int:
    """Return the word that the page opens with: of these, the first one that is shown."""
    return next((word for word in positions.tolist() if word < num_shown), 0)


# --- Training ---------------------------------------------------------------------------------------


def curves(history: Mapping[str, np.ndarray]) -> list[list[tuple[int, float]]]:
    """Return pairs (step, objective) for each start, at most _STEPS_OF_CURVE pairs each."""
    found = []
    for row in np.atleast_2d(np.asarray(history.get("objective", np.empty((0, 0))), np.float64)):
        steps = np.flatnonzero(np.isfinite(row))
        kept = np.linspace(0, steps.size - 1, min(_STEPS_OF_CURVE, steps.size)).astype(int)
        found.append([(int(step), float(row[step])) for step in steps[np.unique(kept)]])
    return found
