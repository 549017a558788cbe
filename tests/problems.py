"""Problems that the tests share: symmetric S, positive W, and their forms."""

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from jax.typing import DTypeLike

from dcdjax.devices.layout import Nonzeros
from dcdjax.devices.packing import Tiles


def random_S(rng, num_words, density=0.3, spread=1.0):
    """Symmetric, log-normal where it is not zero, no word alone, some on the diagonal."""
    S = np.exp(spread * rng.normal(size=(num_words, num_words))) * (
        rng.random((num_words, num_words)) < density
    )
    S = np.triu(S)
    S[np.arange(num_words), rng.permutation(num_words)] += 0.5
    return S + S.T


def random_W(rng, num_words, num_topics, concentration=1.0):
    W = rng.dirichlet(np.full(num_topics, concentration), size=num_words) + 1e-9
    return W / W.sum(1, keepdims=True)


def mixed_S(rng, num_words):
    """Dense at its head, sparse elsewhere, as words sorted by frequency make it."""
    S = random_S(rng, num_words, density=0.05)
    head = num_words // 3
    return S + np.pad(random_S(rng, head, density=0.7), (0, num_words - head))


def pair(S, dtype: DTypeLike = np.float64):
    """(S_idx, S_val) of a dense or sparse S."""
    entries = scipy.sparse.coo_array(S)
    idx = np.stack([entries.row, entries.col], axis=1).astype(np.int32)
    return jnp.asarray(idx), jnp.asarray(entries.data.astype(dtype))


TOLERANCES = {np.float32: 1e-5, np.float64: 1e-12}


def assert_same_sweep(got, expected, dtype):
    np.testing.assert_allclose(got.ZW, expected.ZW, rtol=TOLERANCES[dtype])
    np.testing.assert_allclose(got.log_likelihood, expected.log_likelihood, rtol=TOLERANCES[dtype])
    assert got.ZW.dtype == got.log_likelihood.dtype == dtype


def blocks(num_blocks, size):
    """Block-diagonal S, and the block of each word."""
    return np.kron(np.eye(num_blocks), np.ones((size, size))), np.repeat(np.arange(num_blocks), size)


def dense(layout):
    """The S that a layout holds, over its scale."""
    S = np.zeros((layout.num_words,) * 2, layout.scale.dtype)
    for piece in layout.pieces:
        if isinstance(piece, Nonzeros):
            np.add.at(S, tuple(np.asarray(piece.S_idx).T), piece.S_val)
            continue
        rows, columns, values = (np.concatenate(a) for a in (piece.rows, piece.columns, piece.values))
        if isinstance(piece, Tiles):
            size = values.shape[1]
            for i, j, tile in zip(rows, columns, values, strict=True):
                S[i : i + size, j : j + size] += tile
                S[j : j + size, i : i + size] += tile.T
        else:
            np.add.at(S, (np.broadcast_to(rows[:, None], columns.shape), columns), values)
    return S


def full_pair(S, dtype: DTypeLike = np.float64):
    """All N x N cells, zeros too: one shape to compile for whatever is zero in S."""
    idx = np.indices(S.shape).reshape(2, -1).T.astype(np.int32)
    return jnp.asarray(idx), jnp.asarray(S.reshape(-1).astype(dtype))


# Few shapes, because each is compiled for: one word, one topic, more topics than words, and ordinary.
SHAPES = ((1, 1), (2, 1), (3, 5), (5, 3), (12, 4))


@st.composite
def problems(draw):
    """(W, S) in float64: S over six orders of magnitude, W on the simplex or off it."""
    num_words, num_topics = draw(st.sampled_from(SHAPES))
    exponents = hnp.arrays(np.float64, (num_words, num_words), elements=st.floats(-3, 3))
    present = hnp.arrays(np.bool_, (num_words, num_words))
    S = np.triu(10 ** draw(exponents) * draw(present))
    S += np.diag((S.sum(0) + S.sum(1) == 0).astype(float))
    S = S + S.T
    W = draw(hnp.arrays(np.float64, (num_words, num_topics), elements=st.floats(1e-4, 1)))
    if draw(st.booleans()):
        W = W / W.sum(1, keepdims=True)
    return W, S


ROOT_KINDS = (
    "ordinary",
    "sparse",
    "spread",
    "dominated",
    "weak word",
    "balanced at the pole",
    "balanced at tied poles",
    "chain of poles",
)


def root_problem(kind, rng, num_topics=60, num_rows=200):
    """Rows for the root that have been, or should be, hard."""
    poles = rng.gamma(2, size=num_topics)
    poles -= poles.min()
    nearest = poles.argmin()
    A = np.exp(rng.normal(size=(num_rows, num_topics)))
    if kind == "sparse":
        A *= rng.dirichlet(np.full(num_topics, 0.05), num_rows) + 1e-14
    elif kind == "spread":
        A = 10.0 ** rng.uniform(-25, 1, A.shape)
    elif kind == "dominated":
        A[:] = 1e-20
        A[np.arange(num_rows), rng.integers(num_topics, size=num_rows)] = 10.0 ** rng.uniform(-6, 6, num_rows)
    elif kind == "weak word":
        A *= 10.0 ** rng.uniform(-12, 0, (num_rows, 1))
    elif kind in ("balanced at the pole", "balanced at tied poles"):
        # All but the weightless sum to one exactly where the nearest pole is: Newton alone crawls.
        if kind == "balanced at tied poles":
            poles[rng.random(num_topics) < 0.3] = 0
        weightless = poles < 0.1
        A = rng.dirichlet(np.ones(num_topics), num_rows) * ~weightless
        A = A / A.sum(1, keepdims=True) * poles * (1 + rng.choice([0, 1e-8, -1e-8, 1e-3], (num_rows, 1)))
        A[:, weightless] = 10.0 ** rng.uniform(-28, -10, (num_rows, weightless.sum()))
    elif kind == "chain of poles":
        poles = np.concatenate([[0], 10.0 ** np.linspace(-14, 0, num_topics - 1)])
        A = 10.0 ** rng.uniform(-26, -2, A.shape) * poles ** rng.uniform(0, 1, (num_rows, 1)) + 1e-28
    assert poles[nearest] == 0 or kind == "chain of poles"
    return A, poles[None, :]


THEMES = {
    "sea": "ship harbor sail captain wave anchor",
    "kitchen": "bread butter oven flour sugar recipe",
    "law": "court judge verdict trial lawyer appeal",
}


def sentences(seed=0, num_sentences=300):
    rng = np.random.default_rng(seed)
    themes = [words.split() for words in THEMES.values()]
    return [" ".join(rng.permutation(themes[rng.integers(3)])[:5]) for _ in range(num_sentences)]


def slow(*values):
    """Return the values of a parametrized test that only CI runs: `pytest -m slow`."""
    return pytest.param(*values, marks=pytest.mark.slow)
