"""Shat's rows, the largest of them, and new rows, against dense float64 NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import random_S, random_W

from dcdjax.queries import lookup
from dcdjax.queries.fold_in import fold_in_row
from dcdjax.similarity.similarity import from_matrix


def shat(W):
    W = np.asarray(W, np.float64)
    return W @ np.diag(1 / W.sum(axis=0)) @ W.T


def fold_in(W, numbers, weights, **options):
    return fold_in_row(W[numbers] / lookup.topic_sizes(W)[None, :], weights, **options)


@pytest.fixture
def W():
    return jnp.asarray(random_W(np.random.default_rng(0), 90, 5))


@pytest.mark.parametrize("k", [1, 3, 90])
def test_nearest_to_words_are_the_largest_of_their_row_of_shat(W, k):
    numbers = np.arange(90, dtype=np.int32)[:, None]
    values, indices = lookup.nearest_to_words(W, lookup.topic_sizes(W), numbers, None, k=k)
    expected = -np.sort(-shat(W), axis=1)[:, :k]
    np.testing.assert_allclose(values, expected, rtol=1e-12)
    np.testing.assert_allclose(np.take_along_axis(shat(W), np.asarray(indices), axis=1), expected, rtol=1e-12)


def test_several_words_are_one_question_by_the_mean_of_their_rows(W):
    numbers = np.array([[3, 8, 20], [5, lookup.NO_WORD, lookup.NO_WORD]], np.int32)
    values, indices = lookup.nearest_to_words(W, lookup.topic_sizes(W), numbers, None, k=4)
    for row, mean in enumerate([shat(W)[[3, 8, 20]].mean(axis=0), shat(W)[5]]):
        order = np.argsort(-mean)[:4]
        np.testing.assert_array_equal(indices[row], order)
        np.testing.assert_allclose(values[row], mean[order], rtol=1e-12)


def test_only_some_words_are_chosen_from(W):
    among = np.zeros(90, bool)
    among[[4, 50, 88]] = True
    values, indices = lookup.nearest_to_words(W, lookup.topic_sizes(W), np.array([[7]], np.int32), among, k=5)
    np.testing.assert_array_equal(np.isfinite(values), [[True] * 3 + [False] * 2])
    assert sorted(indices[0, :3].tolist()) == [4, 50, 88]


def test_rows_may_be_asked_about_themselves(W):
    numbers = np.array([[2], [17]], np.int32)
    s = lookup.topic_sizes(W)
    by_word = lookup.nearest_to_words(W, s, numbers, None, k=6)
    by_row = lookup.nearest_to_rows(W, s, W[numbers[:, 0]], None, k=6)
    np.testing.assert_array_equal(by_word.indices, by_row.indices)
    np.testing.assert_allclose(by_word.values, by_row.values, rtol=1e-12)


@given(
    # Each pair of sizes is compiled for: the sizes of blocks and their neighbors are enough.
    num_words=st.sampled_from([1, 2, 7, 63, 64, 65, 129, 700]),
    k=st.sampled_from([1, 2, 8]),
    seed=st.integers(0, 2**32 - 1),
    distinct=st.sampled_from([3, 10**9]),
)
def test_largest_is_what_sorting_gives(num_words, k, seed, distinct):
    # Few distinct numbers: of equal ones any may be taken, but no larger one may be missed or taken twice.
    k = min(k, num_words)
    scores = np.random.default_rng(seed).integers(-distinct, distinct, (2, num_words)).astype(np.float64)
    scores[0, : num_words // 3] = -np.inf
    values, indices = lookup.largest(jnp.asarray(scores), k)
    np.testing.assert_array_equal(values, -np.sort(-scores, axis=1)[:, :k])
    np.testing.assert_array_equal(np.take_along_axis(scores, np.asarray(indices), axis=1), values)
    for row in np.asarray(indices):
        assert len(set(row.tolist())) == k


def test_of_equal_numbers_the_first_comes_first():
    scores = jnp.zeros((1, 640)).at[0, jnp.array([500, 33, 41])].set(1.0)
    assert lookup.largest(scores, 4).indices.tolist() == [[33, 41, 500, 0]]


def test_pairs_and_their_contributions(W):
    first, second = np.array([0, 5, 9], np.int32), np.array([1, 5, 80], np.int32)
    s = lookup.topic_sizes(W)
    found = lookup.pair_similarity(W, s, first, second)
    np.testing.assert_allclose(found, shat(W)[first, second], rtol=1e-12)
    terms = lookup.contributions(W, s, first, second)
    np.testing.assert_allclose(
        terms, np.asarray(W)[first] * np.asarray(W)[second] / np.asarray(s), rtol=1e-12
    )


def test_words_of_topics_are_those_with_the_largest_probability_times_emphasis(W):
    word_given_topic = np.asarray(W / W.sum(axis=0, keepdims=True))
    emphasis = np.random.default_rng(0).uniform(0.5, 9, W.shape[0])
    for weights in (np.ones(W.shape[0]), emphasis):
        values, indices = lookup.words_of_topics(W, lookup.topic_sizes(W), jnp.asarray(weights), k=3)
        expected = np.argsort(-(weights[:, None] * word_given_topic).T, axis=1)[:, :3]
        np.testing.assert_array_equal(indices, expected)
        np.testing.assert_allclose(values, np.take_along_axis(word_given_topic.T, expected, 1), rtol=1e-12)


def test_a_topic_that_nobody_holds_changes_nothing():
    W = np.array([[0.5, 0.5, 0.0], [0.2, 0.8, 0.0]])
    s = lookup.topic_sizes(jnp.asarray(W))
    values, _ = lookup.nearest_to_words(jnp.asarray(W), s, np.array([[0]], np.int32), None, k=2)
    np.testing.assert_allclose(values, -np.sort(-shat(W[:, :2])[:1]), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtypes_are_kept(W, dtype):
    W = W.astype(dtype)
    s = lookup.topic_sizes(W)
    assert s.dtype == dtype
    assert lookup.nearest_to_words(W, s, np.array([[0]], np.int32), None, k=2).values.dtype == dtype
    weights = np.ones(2, dtype)
    assert fold_in(W, np.array([1, 2], np.int32), weights).dtype == dtype


# --- New rows ---------------------------------------------------------------------------------------


def objective(w, W, numbers, weights):
    W = np.asarray(W, np.float64)
    Shat = W[numbers] @ (np.asarray(w, np.float64) / W.sum(axis=0))
    return -(weights * np.log(Shat)).sum()


@given(seed=st.integers(0, 2**32 - 1))
def test_a_new_row_is_the_minimum_on_the_simplex(seed):
    rng = np.random.default_rng(seed)
    W = random_W(rng, 12, 4)
    numbers, weights = np.arange(6, dtype=np.int32), rng.uniform(0, 3, 6)
    row = np.asarray(fold_in(jnp.asarray(W), numbers, weights, tol=1e-12, max_steps=20_000))
    assert row.min() > 0
    assert row.sum() == pytest.approx(1, abs=1e-12)
    reached = objective(row, W, numbers, weights)
    # Convex: no mixture with any other distribution is better, if this is the minimum.
    for other in (*np.eye(4), *rng.dirichlet(np.ones(4), 10)):
        mixed = 0.99 * row + 0.01 * other
        assert objective(mixed, W, numbers, weights) >= reached - 1e-9 * abs(reached)


def test_each_step_of_folding_in_lowers_the_objective():
    rng = np.random.default_rng(3)
    W = random_W(rng, 30, 6)
    numbers, weights = np.arange(10, dtype=np.int32), rng.uniform(0, 5, 10)
    values = [
        objective(fold_in(jnp.asarray(W), numbers, weights, tol=0.0, max_steps=steps), W, numbers, weights)
        for steps in (0, 1, 2, 3, 5, 10, 50)
    ]
    assert np.all(np.diff(values) < 0)


def test_folding_in_is_the_exact_step_without_its_plus_part():
    # The exact step divides A = W * minus by plus + lam; with plus zero, lam is the sum of A.
    rng = np.random.default_rng(4)
    W, S = random_W(rng, 15, 4), random_S(rng, 15)
    W[3] = 0.25  # where folding in begins
    dense = from_matrix(S).matrix.toarray()
    minus = 2 * ((dense / shat(W)) @ W) / W.sum(axis=0)
    A = W[3] * minus[3]
    numbers = np.flatnonzero(dense[3]).astype(np.int32)
    row = fold_in(jnp.asarray(W), numbers, dense[3, numbers], tol=0.0, max_steps=1)
    np.testing.assert_allclose(row, A / A.sum(), rtol=1e-12)


def test_the_scale_of_the_counts_does_not_matter():
    W = jnp.asarray(random_W(np.random.default_rng(4), 20, 3))
    numbers, weights = np.arange(5, dtype=np.int32), np.array([1.0, 2.0, 0.0, 4.0, 1.0])
    small, large = (fold_in(W, numbers, scale * weights) for scale in (1e-6, 1e6))
    np.testing.assert_allclose(small, large, rtol=1e-9)


def test_words_of_weight_zero_add_nothing_to_a_new_row():
    W = jnp.asarray(random_W(np.random.default_rng(5), 20, 3))
    short = fold_in(W, np.array([3, 9], np.int32), np.array([1.0, 2.0]))
    padded = fold_in(W, np.array([3, 9, 0, 0], np.int32), np.array([1.0, 2.0, 0.0, 0.0]))
    np.testing.assert_allclose(short, padded, rtol=1e-12)


def test_questions_of_one_shape_are_compiled_once(W):
    jax.clear_caches()
    s = lookup.topic_sizes(W)
    for number in range(5):
        lookup.nearest_to_words(W, s, np.array([[number]], np.int32), None, k=4)
    assert getattr(lookup.nearest_to_words, "_cache_size")() == 1  # noqa: B009, hidden from pyright
