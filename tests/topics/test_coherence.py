"""How often the words of a topic stand in the same passages, against a slow count."""

import itertools

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from dcdjax.topics.coherence import npmi


@given(seed=st.integers(0, 2**32 - 1), density=st.sampled_from([0.05, 0.3, 0.9]))
def test_it_is_the_mean_over_pairs(seed, density):
    rng = np.random.default_rng(seed)
    dense = rng.random((rng.integers(1, 30), 9)) < density
    passages = [set(np.flatnonzero(row).tolist()) for row in dense]
    top = np.array([rng.permutation(9)[:5] for _ in range(3)])

    def share(*words):
        return sum(all(word in passage for word in words) for passage in passages) / len(passages)

    def of_pair(i, j):
        together = share(i, j)
        if together in (0, 1):
            return -1.0 if together == 0 else 1.0
        return np.log(together / (share(i) * share(j))) / -np.log(together)

    found = npmi(scipy.sparse.csr_array(dense.astype(np.int8)), top)
    assert np.isnan(found[:, 0]).all()
    for topic, words in enumerate(top.tolist()):
        for depth in range(2, 6):
            values = [of_pair(i, j) for i, j in itertools.combinations(words[:depth], 2)]
            assert found[topic, depth - 1] == pytest.approx(np.mean(values), abs=1e-12)


def test_its_ends_and_chance():
    independent = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    assert npmi(scipy.sparse.csr_array(independent), np.array([[0, 1]]))[0, 1] == pytest.approx(0)
    only_together = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1]])
    found = npmi(scipy.sparse.csr_array(only_together), np.array([[0, 1], [0, 2], [2, 1]]))
    np.testing.assert_allclose(found[:, 1], [1, -1, -1])
    # A word that no passage of the sample has, and words that all of them have.
    assert npmi(scipy.sparse.csr_array(np.array([[1, 0], [1, 0]])), np.array([[0, 1]]))[0, 1] == -1
    assert npmi(scipy.sparse.csr_array(np.ones((3, 2))), np.array([[0, 1]]))[0, 1] == 1


def test_many_passages_of_one_word_do_not_overflow():
    passages = scipy.sparse.csr_array(np.ones((1000, 2), np.int8))
    assert npmi(passages, np.array([[0, 1]]))[0, 1] == 1
