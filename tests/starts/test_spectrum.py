"""The vectors are those of the spectrum of S; the clusters are those that are there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from problems import blocks, mixed_S, random_S

from dcdjax import prepare, solve
from dcdjax.method.decomposition import smallest_weight
from dcdjax.starts import initialize, kmeans, spectrum

KEY = jax.random.key(0)


def low_rank(rng, num_words, rank):
    """Nonnegative, of this rank, with eigenvalues of both signs that are well apart."""
    factors = rng.random((num_words, rank)) * (rng.random((num_words, rank)) < 0.4) + 1e-3
    core = np.diag(2.0 ** -np.arange(rank)) + np.eye(rank)[::-1] * 0.3
    S = factors @ core @ factors.T
    return S + S.T


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-9), (np.float32, 2e-4)])
def test_vectors_are_the_spectrum(kernel, dtype, tolerance):
    S = low_rank(np.random.default_rng(0), 120, 6)
    layout = prepare(scipy.sparse.csr_array(S), dtype=dtype)
    X = np.asarray(spectrum.vectors(KEY, layout, num_dimensions=6))
    assert X.shape == (120, 6)
    assert X.dtype == dtype
    values, U = np.linalg.eigh(S / (S.sum() / 120))
    leading = np.argsort(-np.abs(values))[:6]
    assert (values[leading] < 0).any()
    # A vector is known but for its sign; its products are known wholly.
    expected = U[:, leading] * np.sqrt(np.abs(values[leading]))
    np.testing.assert_allclose(X @ X.T, expected @ expected.T, atol=tolerance * np.abs(expected).max() ** 2)


def test_more_dimensions_than_S_has():
    S = np.kron(np.eye(2), np.ones((3, 3)))
    X = np.asarray(
        spectrum.vectors(KEY, prepare(scipy.sparse.csr_array(S), dtype=np.float64), num_dimensions=6)
    )
    assert X.shape == (6, 6)
    np.testing.assert_allclose(X @ X.T, S / 3, atol=1e-7)


def test_the_spectrum_of_an_ordinary_S_nearly():
    """Eigenvalues that are close to each other are not told apart; what they explain together is."""
    S = mixed_S(np.random.default_rng(1), 200)
    S /= S.sum() / 200
    X = np.asarray(
        spectrum.vectors(KEY, prepare(scipy.sparse.csr_array(S), dtype=np.float64), num_dimensions=20)
    )
    found, _ = np.linalg.qr(X)
    values = np.sort(np.abs(np.linalg.eigvalsh(S)))[::-1][:20]
    assert (np.linalg.norm(S @ found) / np.linalg.norm(values)) > 0.97


def test_clusters_are_found():
    rng = np.random.default_rng(0)
    centers = np.eye(5)
    group = np.repeat(np.arange(5), 20)
    X = centers[group] + 0.05 * rng.normal(size=(100, 5))
    hits = 0
    for seed in range(20):
        cosines = kmeans.cosines_to_centers(jax.random.key(seed), jnp.asarray(X), num_clusters=5)
        nearest = np.asarray(cosines.argmax(axis=1))
        assert np.abs(cosines).max() <= 1 + 1e-12
        hits += len({(a, b) for a, b in zip(group, nearest, strict=True)}) == 5
    assert hits >= 5  # k-means from random words; no worse than it is known to be


def test_no_cluster_stays_empty():
    """Of five words alike and five apart, centers that begin alike must move on."""
    X = np.concatenate([np.ones((5, 6)), np.eye(6)[:5] * 4]) + 1e-6
    for seed in range(20):
        cosines = kmeans.cosines_to_centers(jax.random.key(seed), jnp.asarray(X), num_clusters=6)
        assert len(set(np.asarray(cosines.argmax(axis=1)).tolist())) == 6


def test_a_word_without_a_vector():
    X = jnp.asarray(np.concatenate([np.zeros((1, 3)), np.eye(3)]))
    cosines = kmeans.cosines_to_centers(KEY, X, num_clusters=2)
    assert jnp.isfinite(cosines).all()
    np.testing.assert_array_equal(cosines[0], 0)


# --- The start that is made of them -----------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("restarts", [None, 3])
def test_a_spectral_start_is_positive_and_on_the_simplex(dtype, restarts):
    S = scipy.sparse.csr_array(random_S(np.random.default_rng(0), 30))
    W = initialize.spectral(KEY, S, 4, restarts=restarts, dtype=dtype)
    assert W.shape == ((30, 4) if restarts is None else (3, 30, 4))
    assert W.dtype == dtype
    assert float(W.min()) > smallest_weight(dtype)
    np.testing.assert_allclose(W.sum(-1), 1, rtol=8 * np.finfo(dtype).eps)
    again = initialize.spectral(KEY, prepare(S, dtype=dtype), 4, restarts=restarts)
    np.testing.assert_array_equal(W, again)
    if restarts:
        assert not np.allclose(W[0], W[1])


def test_a_spectral_start_sees_the_groups():
    S, group = blocks(4, 6)
    S = scipy.sparse.csr_array(S + 0.01)
    found = 0
    for seed in range(10):
        W = initialize.spectral(jax.random.key(seed), S, 4, dtype=np.float64)
        found += len({(a, b) for a, b in zip(group, np.asarray(W.argmax(axis=1)).tolist(), strict=True)}) == 4
    assert found >= 4


@pytest.mark.slow
def test_a_spectral_start_is_ahead_of_a_random_one():
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(10), 20)
    S = np.triu(rng.poisson(np.where(group[:, None] == group, 2.0, 0.1)), 1) + np.eye(200)
    S = scipy.sparse.csr_array(S + S.T)
    for seed in range(5):
        key = jax.random.key(seed)
        starts = initialize.spectral(key, S, 10, dtype=np.float64), initialize.uniform(key, 200, 10)
        spectral, random = (solve(W.astype(np.float64), S, max_steps=10, tol=0.0) for W in starts)
        assert spectral.objective < random.objective


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_topics_are_told_apart_where_vectors_are_not(dtype):
    """All words have the same direction: without noise all topics would be equal, and stay so for ever."""
    d = np.random.default_rng(0).uniform(0.1, 3, 30)
    for S, num_topics in ((np.outer(d, d), 4), (np.kron(np.eye(2), np.outer(d[:10], d[:10])), 6)):
        S = scipy.sparse.csr_array(S)
        random = solve(initialize.uniform(KEY, S.shape[0], num_topics, dtype=dtype), S)
        for seed in range(3):
            W = initialize.spectral(jax.random.key(seed), S, num_topics, dtype=dtype)
            solution = solve(W, S)
            assert solution.num_steps > 5
            assert solution.objective < random.objective * 1.005


def test_small_numbers_have_directions_too():
    X = np.eye(3, dtype=np.float32)[[0, 1, 2, 0]] * np.float32(1e-25)
    X[3, 1] = 1e-26
    cosines = np.asarray(kmeans.cosines_to_centers(KEY, jnp.asarray(X), num_clusters=2))
    assert np.abs(cosines).max() <= 1 + 1e-6
    assert cosines.argmax(axis=1)[0] == cosines.argmax(axis=1)[3]


def test_words_that_cancel():
    """A cluster of opposite vectors has no direction."""
    S = scipy.sparse.csr_array(np.array([[0.0, 1.0], [1.0, 0.0]]))
    for seed in range(10):
        for num_topics in (1, 2):
            W = initialize.spectral(jax.random.key(seed), S, num_topics)
            np.testing.assert_allclose(W.sum(axis=1), 1, rtol=1e-6)


def test_one_topic_and_as_many_as_words():
    S = scipy.sparse.csr_array(random_S(np.random.default_rng(0), 7))
    np.testing.assert_array_equal(initialize.spectral(KEY, S, 1), np.ones((7, 1)))
    assert initialize.spectral(KEY, S, 7).shape == (7, 7)


def test_what_a_spectral_start_refuses():
    S = scipy.sparse.csr_array(random_S(np.random.default_rng(0), 7))
    with pytest.raises(ValueError, match="num_topics must be at most the number of words, 7, got 8"):
        initialize.spectral(KEY, S, 8)
    with pytest.raises(ValueError, match="num_topics must be at least 1, got 0"):
        initialize.spectral(KEY, S, 0)
    with pytest.raises(ValueError, match="restarts must be at least 1, got 0"):
        initialize.spectral(KEY, S, 2, restarts=0)
    with pytest.raises(ValueError, match="dtype must be float32 or float64, got bfloat16"):
        initialize.spectral(KEY, S, 2, dtype=jnp.bfloat16)
