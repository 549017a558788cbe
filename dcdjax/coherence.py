"""The first words of topics and the counts of pairs enter; how well those words go together leaves."""

import numpy as np
import scipy.sparse


def npmi(counts: scipy.sparse.csr_array, top_words: np.ndarray) -> np.ndarray:
    """Mean normalized pointwise mutual information of all pairs among each topic's first words.

    With p_ij = C_ij / sum C and p_i = sum_j p_ij, a pair has log(p_ij / (p_i p_j)) / -log p_ij: 1 for words
    that only occur together, 0 for independent ones, -1 for words that were never near each other.

    Args:
      counts: symmetric, of pairs near each other.
      top_words: (topics, depth), the numbers of each topic's words, the first ones first.

    Returns:
      (topics, depth), whose entry [k, n] is of the first n + 1 words of topic k; NaN for one word alone.

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
        # Two words that are all the text: 0 / 0.
        information = np.where(together >= 1, 1.0, information)
        # What each word adds to the pairs of those before it.
        added = np.tril(information, -1).sum(axis=1)
        result[topic, 1:] = (np.cumsum(added) / np.maximum(num_pairs, 1))[1:]
    return result
