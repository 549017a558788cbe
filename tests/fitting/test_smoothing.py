"""A word takes some of its topics from its neighbors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import random_S

from dcdjax import prepare
from dcdjax.fitting import smoothing
from dcdjax.starts import initialize


@given(seed=st.integers(0, 2**32 - 1), num_topics=st.integers(1, 5))
def test_it_is_a_step_of_a_random_walk(seed, num_topics):
    rng = np.random.default_rng(seed)
    S, share = random_S(rng, 9), rng.random(9)
    W = rng.dirichlet(np.ones(num_topics), 9)
    walk = np.diag(1 - share) + share[:, None] * S / S.sum(axis=1, keepdims=True)
    found = smoothing.smoothed(jnp.asarray(W), prepare(S, dtype=jnp.float64), jnp.asarray(share))
    np.testing.assert_allclose(found, walk @ W, rtol=1e-9)


def test_nothing_and_everything_of_it():
    rng = np.random.default_rng(0)
    S = random_S(rng, 12)
    W = initialize.dirichlet(jax.random.key(0), 12, 3)
    layout = prepare(S)
    np.testing.assert_allclose(smoothing.smoothed(W, layout, jnp.zeros(12, jnp.float32)), W, rtol=1e-6)
    alone = smoothing.smoothed(W, layout, jnp.ones(12, jnp.float32))
    np.testing.assert_allclose(alone, S @ np.asarray(W) / S.sum(axis=1, keepdims=True), rtol=1e-5)


def test_the_shat_of_it_is_doubly_stochastic():
    rng = np.random.default_rng(1)
    W = rng.dirichlet(np.full(4, 0.3), 15)
    share = smoothing.shares(rng.integers(1, 100, 15), 20.0)
    W = np.asarray(
        smoothing.smoothed(jnp.asarray(W), prepare(random_S(rng, 15), dtype=jnp.float64), jnp.asarray(share))
    )
    Shat = W / W.sum(axis=0) @ W.T
    np.testing.assert_allclose(Shat.sum(axis=0), 1)
    np.testing.assert_allclose(Shat.sum(axis=1), 1)


@pytest.mark.parametrize("a", [0.0, 3.0, 50.0])
def test_the_rarer_a_word_the_more(a):
    share = smoothing.shares(np.array([1, 10, 1000]), a)
    assert (np.diff(share) <= 0).all()
    assert (share >= 0).all()
    assert (share < 1).all()
