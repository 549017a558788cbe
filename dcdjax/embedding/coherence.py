"""Measure how often the top words of a topic occur near each other."""

import numpy as np
import scipy.sparse
from jaxtyping import Array, Float

from dcdjax.embedding import lookup, results

# The coherence is stored for up to this many top words; 10 are usual.
_DEPTH = 20


def topic_coherence(
    W: Float[Array, "words topics"], counts: scipy.sparse.csr_array, rows: np.ndarray
) -> np.ndarray:
    """Compute `npmi` for up to 20 top words of every topic of W.

    Args:
      W: rows on the simplex.
      counts: symmetric counts of word pairs. They may have more words than W.
      rows: the row of `counts` for each word of W.
    """
    _, top_words = results.top_words(W, lookup.topic_sizes(W), min(_DEPTH, len(rows)))
    return npmi(counts, rows[top_words])


def npmi(counts: scipy.sparse.csr_array, top_words: np.ndarray) -> np.ndarray:
    """Compute the mean normalized pointwise mutual information of all pairs of a topic's top words.

    With p_ij = C_ij / sum C and p_i = sum_j p_ij, a pair has log(p_ij / (p_i p_j)) / -log p_ij. The value is
    1 for words that only occur together, 0 for independent words, and -1 for words that never occur near
    each other.

    Args:
      counts: symmetric counts of word pairs near each other.
      top_words: (topics, depth), the word indices of each topic, the most probable word first.

    Returns:
      (topics, depth). Entry [k, n] is the mean over the first n + 1 words of topic k; NaN for a single word.

    Example:
      >>> counts = scipy.sparse.csr_array(np.array([[0.0, 4.0, 0.0], [4.0, 0.0, 1.0], [0.0, 1.0, 0.0]]))
      >>> npmi(counts, np.array([[0, 1, 2]])).round(2)
      array([[ nan, 0.76, 0.02]])

    References:
      Bouma, Normalized (pointwise) mutual information in collocation extraction, GSCL 2009. Lau, Newman,
      Baldwin, Machine reading tea leaves, EACL 2014.
    """
    margins = counts @ np.ones(counts.shape[1])
    total = margins.sum()
    num_topics, depth = top_words.shape
    result = np.full((num_topics, depth), np.nan)
    num_pairs = np.arange(1, depth + 1) * np.arange(depth) / 2
    for topic, words in enumerate(top_words):
        together = counts[words][:, words].toarray() / total
        with np.errstate(divide="ignore", invalid="ignore"):
            alone = np.log(margins[words] / total)
            information = (np.log(together) - alone[:, None] - alone[None, :]) / -np.log(together)
        information = np.where(together > 0, information, -1.0)
        # 0 / 0, if two words are the whole text.
        information = np.where(together >= 1, 1.0, information)
        # What each word adds: its pairs with the words before it.
        added = np.tril(information, -1).sum(axis=1)
        result[topic, 1:] = (np.cumsum(added) / np.maximum(num_pairs, 1))[1:]
    return result
