"""The layout holds S, scaled."""

import chex
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from problems import dense, pair, random_S

from dcdjax import prepare, similarity
from dcdjax.devices.layout import Nonzeros


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [(np.float32, 1e-36), (np.float32, 1.0), (np.float32, 1e36), (np.float64, 1e-300), (np.float64, 1e305)],
)
def test_the_layout_is_S(dtype, scale):
    S = random_S(np.random.default_rng(0), 9)
    S *= scale
    layout = prepare(scipy.sparse.csr_array(S), dtype=dtype)
    np.testing.assert_allclose(dense(layout).astype(np.float64) * (S.sum() / 9), S, rtol=1e-6)
    np.testing.assert_allclose(dense(layout).sum(), 9, rtol=1e-6)
    assert layout.num_words == 9
    for piece in layout.pieces:
        assert not isinstance(piece, Nonzeros)
        assert piece.rows.dtype == piece.columns.dtype == jnp.int32
        assert piece.values.dtype == layout.scale.dtype == dtype


def test_scale_in_float64():
    S = random_S(np.random.default_rng(1), 9)
    np.testing.assert_allclose(prepare(scipy.sparse.csr_array(S), dtype=np.float64).scale, S.sum() / 9)


def test_every_form_gives_the_same_layout():
    S = random_S(np.random.default_rng(2), 9)
    order = np.random.default_rng(3).permutation((S > 0).sum())
    S_idx, S_val = pair(S)
    expected = prepare(scipy.sparse.csr_array(S))
    for form in ((S_idx[order], S_val[order]), similarity.from_matrix((S_idx, S_val))):
        got = prepare(form)
        chex.assert_trees_all_equal(got, expected)


def test_wrong_number_of_words():
    S = scipy.sparse.csr_array(np.eye(4))
    for form in (S, similarity.from_matrix(S)):
        with pytest.raises(ValueError, match="S has 4 words where 3 are expected"):
            prepare(form, num_words=3)


@pytest.mark.parametrize(("dtype", "scale"), [(np.float32, 1e-45), (np.float32, 1e40), (np.float64, 1e-310)])
def test_a_scale_that_the_dtype_cannot_hold_is_refused(dtype, scale):
    with pytest.raises(ValueError, match=r"S has a mean row sum of .* cannot hold: divide S by it"):
        prepare(scipy.sparse.csr_array(np.full((3, 3), scale)), dtype=dtype)


def test_a_word_that_float32_cannot_see_is_refused():
    S = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1e-39]])
    prepare(scipy.sparse.csr_array(S), dtype=np.float64)
    with pytest.raises(ValueError, match="all entries of word 2 are below"):
        prepare(scipy.sparse.csr_array(S), dtype=np.float32)
