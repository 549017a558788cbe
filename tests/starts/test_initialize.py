"""Starts are strictly positive, on the simplex, and the same for the same key."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dcdjax.method.decomposition import smallest_weight
from dcdjax.starts import initialize

STARTS = [
    initialize.uniform,
    initialize.dirichlet,
    lambda *args, **kwargs: initialize.dirichlet(*args, concentration=0.01, **kwargs),
]


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32, jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("restarts", [None, 3])
def test_positive_and_on_the_simplex(start, dtype, restarts):
    W = start(jax.random.key(0), 50, 8, dtype=dtype, restarts=restarts)
    assert W.shape == ((50, 8) if restarts is None else (3, 50, 8))
    assert W.dtype == dtype
    wide = np.asarray(W.astype(jnp.float64))
    assert (wide > 0).all()
    assert (wide >= 0.99 * smallest_weight(dtype)).all()
    np.testing.assert_allclose(wide.sum(-1), 1, atol=8 * float(jnp.finfo(dtype).eps))


def test_half_precision_is_not_drawn_in_half_precision():
    """One in 128 of bfloat16's own uniform numbers is zero, and would stand at the floor."""
    W = initialize.uniform(jax.random.key(0), 2000, 10, dtype=jnp.bfloat16)
    at_floor = np.asarray(W.astype(jnp.float64)) <= smallest_weight(jnp.bfloat16)
    assert at_floor.mean() < 2e-3  # 3e-4 are as small as that without being zero


@pytest.mark.parametrize("start", STARTS)
def test_one_topic_or_one_word(start):
    np.testing.assert_array_equal(start(jax.random.key(0), 4, 1), np.ones((4, 1)))
    assert start(jax.random.key(0), 1, 3).shape == (1, 3)


def test_one_topic_of_very_many_words():
    """The uniform numbers of this key have an exact zero among them, were it let through."""
    assert (initialize.uniform(jax.random.key(46), 200_000, 1) == 1).all()


def test_a_concentration_of_next_to_nothing():
    W = initialize.dirichlet(jax.random.key(0), 50, 4, concentration=1e-38)
    assert np.isfinite(W).all()
    np.testing.assert_allclose(W.sum(axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize("start", STARTS)
def test_a_batch_is_its_starts(start):
    key = jax.random.key(1)
    batch = start(key, 10, 4, restarts=3)
    for n, k in enumerate(jax.random.split(key, 3)):
        np.testing.assert_allclose(batch[n], start(k, 10, 4), rtol=1e-6)
    assert np.abs(batch[0] - batch[1]).max() > 0.01


def test_concentration_is_how_even_the_rows_are():
    largest = [
        initialize.dirichlet(jax.random.key(2), 500, 10, concentration=c).max(axis=1).mean()
        for c in (0.05, 1.0, 20.0)
    ]
    assert largest[0] > 0.6 > largest[1] > 0.2 > largest[2]


@pytest.mark.slow
def test_dirichlet_has_the_variance_of_a_dirichlet():
    W = initialize.dirichlet(jax.random.key(3), 20_000, 4, concentration=2.0, dtype=jnp.float64)
    mean, total = 1 / 4, 4 * 2.0
    np.testing.assert_allclose(W.mean(axis=0), mean, atol=5e-3)
    np.testing.assert_allclose(W.var(axis=0), mean * (1 - mean) / (total + 1), rtol=0.05)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_words": 0}, "num_words must be at least 1, got 0"),
        ({"num_topics": 0}, "num_topics must be at least 1, got 0"),
        ({"restarts": 0}, "restarts must be at least 1, got 0"),
        ({"dtype": jnp.int32}, "dtype must be floating point, got int32"),
        ({"concentration": 0.0}, "concentration must be positive and finite, got 0.0"),
        ({"concentration": float("inf")}, "concentration must be positive and finite, got inf"),
        ({"concentration": float("nan")}, "concentration must be positive"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        initialize.dirichlet(jax.random.key(0), **{"num_words": 3, "num_topics": 2, **arguments})


def test_whole_numbers_make_keys():
    np.testing.assert_array_equal(initialize.uniform(3, 6, 2), initialize.uniform(jax.random.key(3), 6, 2))
    np.testing.assert_array_equal(
        initialize.dirichlet(3, 6, 2), initialize.dirichlet(jax.random.key(3), 6, 2)
    )
    with pytest.raises(ValueError, match="key must be a whole number, got None"):
        initialize.uniform(None, 6, 2)
