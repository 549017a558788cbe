"""Minibatches: each like S, all of them together S, drawn by a key."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from problems import dense, pair, random_S

from dcdjax import similarity
from dcdjax.devices import tiling
from dcdjax.solvers import minibatches


def drawn(S, num_batches, key=0, **options):
    return minibatches.draw(jax.random.key(key), S, num_batches, dtype=np.float64, **options)


def parts(batches):
    """Of each minibatch the S that it holds, over the scale."""
    return np.stack([dense(batches.layout(jnp.int32(n))) for n in range(batches.num_batches)])


@pytest.mark.parametrize("num_batches", [1, 3, pytest.param(300, marks=pytest.mark.slow)])
def test_all_together_are_S(num_batches):
    S = random_S(np.random.default_rng(0), 40)
    batches = drawn(scipy.sparse.csr_array(S), num_batches)
    found = parts(batches)
    mean = S.sum() / 40
    np.testing.assert_allclose(found.sum(0), S / mean, rtol=1e-12)
    np.testing.assert_allclose(batches.stacked.scale, mean, rtol=1e-12)
    np.testing.assert_allclose(batches.degrees, S.sum(1) / mean, rtol=1e-12)
    # A pair is in one of them, and its mirror image in the same.
    assert ((found > 0).sum(0) == (S > 0)).all()
    np.testing.assert_array_equal(found, found.transpose(0, 2, 1))


def test_pairs_are_dealt_evenly_and_independently_of_rows():
    N, M = 400, 8
    batches = drawn(scipy.sparse.csr_array(np.ones((N, N))), M)
    found = parts(batches) > 0
    share = found.mean((1, 2)) * M
    np.testing.assert_allclose(share, 1, atol=0.05)
    # Each row has about an eighth in each, as a binomial has it: neither none nor all.
    each = found.sum(2)
    assert each.min() > 20
    assert each.max() < 90
    # Not by classes of words: two words have no more of a minibatch in common than chance gives them.
    both = np.einsum("mij,mkj->ik", found.astype(float), found.astype(float)) / N
    both = both[~np.eye(N, dtype=bool)]
    np.testing.assert_allclose(both.mean(), 1 / M, atol=0.005)
    assert both.max() < 0.35


def test_another_key_deals_otherwise_and_the_same_key_the_same():
    S = scipy.sparse.csr_array(random_S(np.random.default_rng(1), 30))
    first, again, other = (parts(drawn(S, 4, key)) for key in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_a_pair_is_dealt_whatever_else_is_in_S():
    S = random_S(np.random.default_rng(2), 30, density=0.8)
    fewer = S * (np.random.default_rng(3).random(S.shape) < 0.5)
    fewer = np.maximum(fewer, fewer.T) + np.diag(np.diag(S))
    where = np.argmax(parts(drawn(scipy.sparse.csr_array(S), 5)) > 0, axis=0)
    there = np.argmax(parts(drawn(scipy.sparse.csr_array(fewer), 5)) > 0, axis=0)
    np.testing.assert_array_equal(where[fewer > 0], there[fewer > 0])


def test_rows_are_assigned_in_pieces(monkeypatch):
    S = scipy.sparse.csr_array(random_S(np.random.default_rng(4), 50))
    expected = parts(drawn(S, 6))
    monkeypatch.setattr(tiling, "STRIP_NONZEROS", 7)
    np.testing.assert_array_equal(parts(drawn(S, 6)), expected)


def test_S_in_every_form():
    S = random_S(np.random.default_rng(5), 20)
    sparse = scipy.sparse.csr_array(S)
    expected = parts(drawn(sparse, 3))
    for given in (similarity.from_matrix(sparse), pair(S), S):
        np.testing.assert_array_equal(parts(drawn(given, 3)), expected)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_batches": 0}, "num_batches must be"),
        ({"num_batches": 5000}, "num_batches must be at most 4096, got 5000"),
        ({"num_batches": 2, "num_words": 9}, "9"),
        ({"num_batches": 2, "devices": []}, "devices must be"),
    ],
)
def test_what_cannot_be_is_refused(options, said):
    S = scipy.sparse.csr_array(random_S(np.random.default_rng(7), 8))
    with pytest.raises(ValueError, match=said):
        minibatches.draw(jax.random.key(0), S, **options)
