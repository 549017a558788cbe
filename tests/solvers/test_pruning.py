"""Topics that S does not need: how many are left, and of what kind the solution is."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
import scipy.sparse
from jax.typing import DTypeLike
from problems import pair, slow

from dcdjax import prepare, similarity
from dcdjax.devices.layout import Layout, Nonzeros
from dcdjax.method import decomposition
from dcdjax.solvers import full_batch, pruning
from dcdjax.starts import initialize

FOUR, EIGHT = (20,) * 4, (10, 12, 14, 14, 16, 16, 18, 20)


def planted(seed, sizes, inside, outside):
    """Counts as Poisson has them, at one rate in groups and at another between them; and the groups."""
    group = np.repeat(np.arange(len(sizes)), sizes)
    rate = np.where(group[:, None] == group, inside, outside)
    counts = np.triu(np.random.default_rng(seed).poisson(rate))
    return counts + np.triu(counts, 1).T, group


def start(seed, num_words, num_topics, dtype: DTypeLike = np.float32):
    return initialize.uniform(jax.random.key(seed), num_words, num_topics, dtype=dtype)


def agrees(W, group):
    """Whether words are together in a topic if and only if they are in a group, but for one in twenty."""
    pairs = np.stack([np.asarray(W.argmax(axis=1)), group], axis=1)
    distinct, counts = np.unique(pairs, axis=0, return_counts=True)
    kept = distinct[counts > 1]
    return counts[counts > 1].sum() >= 0.95 * len(group) and len(kept) == group.max() + 1


@pytest.fixture
def one_program(monkeypatch):
    """What is not zero differs from seed to seed: all cells are stored, so that it is compiled for once."""

    def stored(S, *, num_words, dtype):
        S = S.matrix.toarray()
        idx = np.indices(S.shape).reshape(2, -1).T.astype(np.int32)
        S_val, scale = decomposition.normalize(jnp.asarray(S.reshape(-1).astype(dtype)), num_words)
        pieces = (Nonzeros(S_idx=jnp.asarray(idx), S_val=S_val),)
        return Layout(pieces=pieces, scale=scale, num_words=num_words)

    monkeypatch.setattr(pruning, "prepare", stored)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "inside", "outside", "dtype"),
    [(FOUR, 4.0, 0.4, np.float32), (EIGHT, 6.0, 0.2, np.float32), (FOUR, 20.0, 4.0, np.float64)],
)
def test_planted_number_is_found(one_program, sizes, inside, outside, dtype):
    right = 0
    for seed in range(5):  # experiments/topics has more
        S, group = planted(seed, sizes, inside, outside)
        found = pruning.prune(start(seed, len(S), 3 * len(sizes), dtype), S)
        right += found.W.shape[1] == len(sizes) and agrees(found.W, group)
    assert right >= 4


@pytest.mark.slow
def test_the_right_number_stays(one_program):
    for seed in range(3):
        S, group = planted(seed, FOUR, 4.0, 0.4)
        assert agrees(pruning.prune(start(seed, len(S), 4), S).W, group)


@pytest.mark.slow
def test_one_group_is_one_topic(one_program):
    """At a relevance of 2; at 1, of smaller counts or fewer words, topics that fit noise are left."""
    for seed in range(3):
        S, _ = planted(seed, (40,), 3.0, 3.0)
        assert pruning.prune(start(seed, 40, 3), S, relevance=2.0).W.shape[1] == 1


@pytest.mark.slow
def test_more_relevance_leaves_fewer(one_program):
    S, _ = planted(0, FOUR, 4.0, 0.4)
    W = start(0, len(S), 12)
    left = [pruning.prune(W, S, relevance=factor, max_steps=300).W.shape[1] for factor in (0.01, 1.0, 30.0)]
    assert left[0] > left[1] == 4 > left[2]


@pytest.mark.parametrize("dtype", [np.float32, slow(np.float64)])
def test_what_is_returned(one_program, dtype):
    S, _ = planted(0, FOUR, 4.0, 0.4)
    W = start(0, len(S), 12, dtype)
    found = pruning.prune(W, S, max_steps=400)
    assert found.W.dtype == found.objective.dtype == dtype
    np.testing.assert_allclose(found.W.sum(axis=1), 1, rtol=1e-5)
    assert np.asarray(found.W).min() > 0
    expected = oracle.objective(np.asarray(found.W, np.float64), S)  # no penalty in it
    np.testing.assert_allclose(found.objective, expected, rtol=20 * np.finfo(dtype).eps)
    history = np.asarray(found.history.objective, np.float64)
    assert history.shape == (401,)
    assert np.nanmax(np.diff(history)) <= 30 * np.finfo(dtype).eps * history[0]
    assert np.isfinite(history[found.num_steps])
    # Mended: some more steps change little.
    more = full_batch.solve(found.W, S, tol=0.0, max_steps=50)
    assert abs(float(more.objective) / float(found.objective) - 1) < 1e-3


@pytest.mark.slow
def test_shapes_stay_while_it_solves(one_program):
    """Another S of the same words compiles nothing anew, although topics die at other times."""
    compiled: Any = full_batch.run
    programs = []
    for seed in range(3):
        S, _ = planted(seed, FOUR, 4.0, 0.4)
        assert pruning.prune(start(seed, len(S), 12), S, max_steps=401).W.shape[1] == 4
        programs.append(compiled._cache_size())
    assert programs[0] == programs[1] == programs[2]


@pytest.mark.slow
def test_S_in_any_form():
    S, _ = planted(0, FOUR, 4.0, 0.4)
    W = start(0, len(S), 8)
    expected = pruning.prune(W, S, max_steps=100)
    forms = (scipy.sparse.csr_array(S), pair(S), similarity.from_matrix(S), 3 * S)  # no scale matters
    for form in forms:
        found = pruning.prune(np.asarray(W), form, max_steps=100)
        np.testing.assert_allclose(found.W, expected.W, rtol=1e-3, atol=1e-5)


def test_noise():
    S, group = planted(0, FOUR, 4.0, 0.4)
    W = np.asarray(start(0, len(S), 5, np.float64))
    mean = S.sum() / len(S)
    matrix = similarity.from_matrix(S).matrix
    expected = ((S / mean - oracle.shat(W)) ** 2).sum() / len(S)
    np.testing.assert_allclose(pruning.noise(jnp.asarray(W), matrix), expected, rtol=1e-10)
    # Of counts, at the W whose Shat is their rate, one over the mean.
    share = np.sqrt(20 * (4.0 - 0.4) / (20 * 4.0 + 60 * 0.4))
    planted_W = np.eye(4)[group] * share + (1 - share) / 4
    assert 0.9 < mean * pruning.noise(jnp.asarray(planted_W), matrix) < 1.1


@pytest.mark.slow
def test_fewer_words_than_topics():
    S = np.ones((2, 2))
    found = pruning.prune(start(0, 2, 9), S, max_steps=2, relevance=1e-6)
    assert found.W.shape[1] >= 1


def test_alive():
    W = jnp.asarray([[0.5, 0.3, 0.2], [0.0, 0.3, 0.7]])
    np.testing.assert_array_equal(pruning.alive(W), [0, 1, 2])
    np.testing.assert_array_equal(pruning.alive(W[:1] * 0.8), [0])  # the largest, if none has half a word
    np.testing.assert_array_equal(pruning.alive(W[1:]), [2])


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_bad_relevance_is_named(value):
    S, _ = planted(0, FOUR, 4.0, 0.4)
    with pytest.raises(ValueError, match="relevance"):
        pruning.prune(start(0, len(S), 8), S, relevance=value)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("tol", {"tol": -1.0}),
        ("max_steps", {"max_steps": -1}),
        ("over_relaxation", {"over_relaxation": 2.0}),
        ("W", {"W": np.zeros((80, 3))}),
        ("W", {"W": np.ones(80)}),
        ("S", {"S": np.triu(np.ones((80, 80)))}),
        ("S", {"S": np.ones((79, 79))}),
        ("S", {"S": "layout"}),
    ],
)
def test_other_bad_arguments_are_named(name, wrong):
    S, _ = planted(0, FOUR, 4.0, 0.4)
    arguments = {"W": start(0, len(S), 8), "S": S, **wrong}
    if isinstance(arguments["S"], str):
        arguments["S"] = prepare(S)
    with pytest.raises(ValueError, match=rf"\b{name}\b"):
        pruning.prune(**arguments)


@pytest.mark.slow
def test_an_S_without_noise():
    """Of which the noise, a difference, may be below zero by a rounding error."""
    for size in (5, 8, 11, 15):
        W = jnp.ones((size, 1), np.float32)
        S = scipy.sparse.csr_array(np.ones((size, size)))
        assert 0 < float(pruning.noise(W, S)) < 1e-5
    assert pruning.prune(np.ones((11, 1), np.float32), np.ones((11, 11)), max_steps=5).W.shape == (11, 1)
