"""Problems that the tests share: symmetric S, positive W, and their forms."""

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import jax.numpy as jnp
import numpy as np
import scipy.sparse


def random_S(rng, num_words, density=0.3, spread=1.0):
    """Symmetric, log-normal where it is not zero, no word alone, some on the diagonal."""
    S = np.exp(spread * rng.normal(size=(num_words, num_words))) * (rng.random((num_words, num_words)) < density)
    S = np.triu(S)
    S[np.arange(num_words), rng.permutation(num_words)] += 0.5
    return S + S.T


def random_W(rng, num_words, num_topics, concentration=1.0):
    W = rng.dirichlet(np.full(num_topics, concentration), size=num_words) + 1e-9
    return W / W.sum(1, keepdims=True)


def pair(S, dtype=np.float64):
    """(S_idx, S_val) of a dense or sparse S."""
    entries = scipy.sparse.coo_array(S)
    idx = np.stack([entries.row, entries.col], axis=1).astype(np.int32)
    return jnp.asarray(idx), jnp.asarray(entries.data.astype(dtype))


def blocks(num_blocks, size):
    """Block-diagonal S, and the block of each word."""
    return np.kron(np.eye(num_blocks), np.ones((size, size))), np.repeat(np.arange(num_blocks), size)


@st.composite
def problems(draw, max_words=12, max_topics=5):
    """(W, S) of hypothesis, float64: entries of S over six orders of magnitude, W off the simplex or on it."""
    num_words = draw(st.integers(1, max_words))
    num_topics = draw(st.integers(1, max_topics))
    exponents = hnp.arrays(np.float64, (num_words, num_words), elements=st.floats(-3, 3))
    present = hnp.arrays(np.bool_, (num_words, num_words))
    S = np.triu(10 ** draw(exponents) * draw(present))
    S += np.diag((S.sum(0) + S.sum(1) == 0).astype(float))
    S = S + S.T
    W = draw(hnp.arrays(np.float64, (num_words, num_topics), elements=st.floats(1e-4, 1)))
    if draw(st.booleans()):
        W /= W.sum(1, keepdims=True)
    return W, S
