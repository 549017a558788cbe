"""Measure how well the top words of topics fit together, and how different they are."""

from collections.abc import Sequence

import numpy as np
import scipy.sparse


def npmi(passages: scipy.sparse.csr_array, top_words: np.ndarray) -> np.ndarray:
    """Compute the mean normalized pointwise mutual information of all pairs of a topic's top words.

    With p_i the share of passages that have word i, and p_ij the share that have both, a pair has
    log(p_ij / (p_i p_j)) / -log p_ij. The value is 1 for words that only occur together, 0 for independent
    words, and -1 for words that never occur together.

    Args:
      passages: (passages, words), 1 where the word stands in the passage, 0 elsewhere.
      top_words: (topics, depth), the word indices of each topic, the first word first.

    Returns:
      (topics, depth). Entry [k, n] is the mean over the first n + 1 words of topic k; NaN for a single word.

    Example:
      >>> passages = scipy.sparse.csr_array(np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1], [1, 0, 1]]))
      >>> npmi(passages, np.array([[0, 1, 2]])).round(2)
      array([[  nan,  0.42, -0.29]])

    References:
      Bouma, Normalized (pointwise) mutual information in collocation extraction, GSCL 2009. Lau, Newman,
      Baldwin, Machine reading tea leaves, EACL 2014.
    """
    num_passages = passages.shape[0]
    by_word = scipy.sparse.csc_array(passages, dtype=np.float32)
    num_topics, depth = top_words.shape
    result = np.full((num_topics, depth), np.nan)
    num_pairs = np.arange(1, depth + 1) * np.arange(depth) / 2
    for topic, words in enumerate(top_words):
        having = by_word[:, words]
        together = (having.T @ having).toarray().astype(np.float64) / num_passages
        with np.errstate(divide="ignore", invalid="ignore"):
            alone = np.log(np.diag(together))
            information = (np.log(together) - alone[:, None] - alone[None, :]) / -np.log(together)
        information = np.where(together > 0, information, -1.0)
        # 0 / 0, if two words stand in every passage.
        information = np.where(together >= 1, 1.0, information)
        # What each word adds: its pairs with the words before it.
        added = np.tril(information, -1).sum(axis=1)
        result[topic, 1:] = (np.cumsum(added) / np.maximum(num_pairs, 1))[1:]
    return result


def diversity(topics: Sequence[Sequence[str]]) -> float:
    """Return the share of different words among the first words of all topics: 1 if no two topics share one.

    Args:
      topics: the first words of each topic; 25 are usual.

    Example:
      >>> diversity([("tea", "cup"), ("sea", "tea")])
      0.75

    References:
      Dieng, Ruiz, Blei, Topic modeling in embedding spaces, TACL 8, 2020.
    """
    words = [word for topic in topics for word in topic]
    return len(set(words)) / len(words)
