"""Topics that resemble each other become one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcdjax import Embedding
from dcdjax.embedding import reduction


def blocks(rng, num_words=30, num_topics=3):
    """A W in which each word is mostly of one topic."""
    W = np.full((num_words, num_topics), 0.02) + 0.01 * rng.random((num_words, num_topics))
    W[np.arange(num_words), np.arange(num_words) % num_topics] += 1
    return W / W.sum(axis=1, keepdims=True)


@given(seed=st.integers(0, 2**32 - 1), num_topics=st.sampled_from([1, 3, 7]))
def test_columns_are_sums_of_columns(seed, num_topics):
    rng = np.random.default_rng(seed)
    W = rng.dirichlet(np.ones(7), 12)
    fewer = np.asarray(reduction.merge_topics(jax.random.key(seed), jnp.asarray(W), num_topics=num_topics))
    assert fewer.shape == (12, num_topics)
    np.testing.assert_allclose(fewer.sum(axis=1), 1, rtol=1e-12)
    # Each old topic is in one new one: the least squares solution is of zeros and ones.
    groups = np.linalg.lstsq(W, fewer, rcond=None)[0]
    np.testing.assert_allclose(groups, groups.round(), atol=1e-6)
    np.testing.assert_allclose(groups.sum(axis=1), 1, atol=1e-6)
    assert (np.diff(fewer.sum(axis=0)) <= 1e-9).all()


@pytest.mark.parametrize("seed", range(3))
def test_the_same_topics_of_several_starts_find_each_other(seed):
    rng = np.random.default_rng(seed)
    starts = [blocks(rng)[:, rng.permutation(3)] for _ in range(4)]
    fewer = np.asarray(
        reduction.merge_topics(
            jax.random.key(2), jnp.asarray(np.concatenate(starts, axis=1) / 4), num_topics=3
        )
    )
    assert {tuple(np.flatnonzero(fewer[:, k] > 0.5) % 3) for k in range(3)} == {(k,) * 10 for k in range(3)}


def test_what_an_embedding_keeps_and_refuses():
    rng = np.random.default_rng(0)
    words = tuple(f"w{n}" for n in range(30))
    W = np.concatenate([blocks(rng), blocks(rng)], axis=1) / 2
    embedding = Embedding(words, jnp.asarray(W), starts=(3, 3), word_counts=np.arange(30), record={"seed": 4})
    fewer = embedding.reduce(3, key=0)
    assert fewer.words == words
    assert fewer.starts == (3,)
    assert fewer.coherence is None
    assert fewer.record == {"seed": 4, "reduced_from": 6}
    np.testing.assert_array_equal(fewer.word_counts, np.arange(30))
    np.testing.assert_array_equal(fewer.W, embedding.reduce(3, key=jax.random.key(0)).W)
    with pytest.raises(ValueError, match="num_topics must be at most 6, got 7"):
        embedding.reduce(7, key=0)
    with pytest.raises(ValueError, match="num_topics must be at least 1"):
        embedding.reduce(0, key=0)

    with pytest.raises(ValueError, match="key must be below 2"):
        embedding.reduce(2, key=2**32)

    class Few:
        words = ("w0", "w1")

    with pytest.raises(ValueError, match="counts must have all words of the embedding, 'w2' is missing"):
        embedding.reduce(2, key=0, counts=Few())
