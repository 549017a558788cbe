"""Weightings against their dense formulas, and what they must not depend on: scale, order, direction."""

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.sparse
from hypothesis import assume, given

from dcdjax.similarity import weighting
from dcdjax.similarity.weighting import degree, drop_diagonal, map_entries, ppmi, sinkhorn


def dense_ppmi(C, alpha=0.75, shift=0.0):
    """From probabilities, entry by entry: the mean of both directions, then the shift, then the clipping."""
    word = C.sum(1) / C.sum()
    context = np.where(C.sum(0) > 0, C.sum(0) ** alpha, 0)
    context = context / context.sum()
    S = np.zeros_like(C)
    for i, j in np.argwhere(C > 0):
        joint = C[i, j] / C.sum()
        there, back = joint / (word[i] * context[j]), joint / (word[j] * context[i])
        S[i, j] = max(0.0, (np.log(there) + np.log(back)) / 2 - shift)
    return S


def dense_sinkhorn(C, rounds=20_000):
    """Sinkhorn and Knopp's own: rows and columns in turn."""
    left, right = np.ones(len(C)), np.ones(len(C))
    for _ in range(rounds):
        left = 1 / (C @ right)
        right = 1 / (C.T @ left)
    return left[:, None] * C * right


@st.composite
def count_matrices(draw, diagonal=None):
    """Symmetric counts over four orders of magnitude; `diagonal` makes all of it at least that."""
    num_words = draw(st.integers(1, 9))
    exponents = draw(hnp.arrays(np.float64, (num_words, num_words), elements=st.floats(-2, 2)))
    present = draw(hnp.arrays(np.bool_, (num_words, num_words)))
    C = np.triu(10**exponents * present)
    C = C + C.T
    if diagonal is not None:
        C += diagonal * np.eye(num_words)
    return C


def word_counts(num_words=400, seed=0):
    """Counts as words have them: many pairs seen once, a few everywhere."""
    rng = np.random.default_rng(seed)
    chance = 1 / np.arange(1, num_words + 1)
    upper = np.triu(rng.poisson(3000 * np.outer(chance, chance)).astype(float))
    upper[np.arange(num_words), rng.permutation(num_words)] += 1
    return upper + upper.T


WEIGHTINGS = [ppmi, degree, sinkhorn]


@given(count_matrices(), st.floats(-1, 1))
def test_frequent_words_weigh_more(C, exponent):
    assume(C.any())
    sparse, margins = scipy.sparse.csr_array(C), C.sum(axis=1)
    relative = np.where(margins > 0, margins / margins[margins > 0].mean(), 1.0) ** exponent
    found = ppmi(sparse, frequency_exponent=exponent).toarray()
    np.testing.assert_allclose(found, dense_ppmi(C) * np.outer(relative, relative), atol=1e-9)
    np.testing.assert_array_equal(found, found.T)
    scaled = ppmi(scipy.sparse.csr_array(7 * C), frequency_exponent=exponent).toarray()
    np.testing.assert_allclose(scaled, found, atol=1e-9)


def test_a_new_row_has_the_frequency_exponent_too():
    counts = scipy.sparse.csr_array(word_counts(40))
    margins = counts.sum(axis=1)
    whole = ppmi(counts, frequency_exponent=0.3).toarray()[7]
    log_sum = float(np.log((margins**0.75).sum()))
    alone = weighting.weight_new_row(
        counts.toarray()[7], margins, "ppmi", context_exponent=0.75, shift=0.0, log_sum=log_sum,
        frequency_exponent=0.3,
    )  # fmt: skip
    np.testing.assert_allclose(alone / alone.sum(), whole / whole.sum(), rtol=1e-9, atol=1e-12)


@given(
    C=count_matrices(),
    alpha=st.sampled_from([0.0, 0.5, 0.75, 1.0, 1.3]),
    shift=st.sampled_from([0.0, 1.0, -0.5]),
)
def test_ppmi_is_the_dense_formula(C, alpha, shift):
    assume(C.any())
    S = ppmi(scipy.sparse.csr_array(C), context_exponent=alpha, shift=shift)
    np.testing.assert_allclose(S.toarray(), dense_ppmi(C, alpha, shift), rtol=1e-9, atol=1e-12)
    assert (S.data > 0).all()


def test_ppmi_at_exponent_one_is_the_plain_one():
    C = word_counts(50)
    plain = np.log(np.maximum(C * C.sum() / np.outer(C.sum(1), C.sum(0)), 1))
    S = ppmi(scipy.sparse.csr_array(C), context_exponent=1.0)
    np.testing.assert_allclose(S.toarray(), plain, rtol=1e-9, atol=1e-12)


@given(C=count_matrices())
def test_degree_is_the_dense_formula(C):
    d = np.where(C.any(1), C.sum(1), 1)
    S = degree(scipy.sparse.csr_array(C))
    np.testing.assert_allclose(S.toarray(), C / np.sqrt(np.outer(d, d)), rtol=1e-12)


@given(C=count_matrices(diagonal=1.0))
def test_sinkhorn_is_the_dense_iteration(C):
    S = sinkhorn(scipy.sparse.csr_array(C)).toarray()
    np.testing.assert_allclose(S.sum(1), 1, rtol=0, atol=1e-9)
    np.testing.assert_allclose(S, dense_sinkhorn(C, rounds=3000), rtol=1e-5, atol=1e-7)


def test_sinkhorn_of_word_counts():
    C = word_counts()
    S = sinkhorn(scipy.sparse.csr_array(C)).toarray()
    np.testing.assert_allclose(S.sum(1), 1, rtol=0, atol=1e-9)
    # D C D: the same numbers d_i d_j at all nonzeros, seen at the diagonal
    d = np.sqrt(np.diag(S)[np.diag(C) > 0] / np.diag(C)[np.diag(C) > 0])
    block = np.ix_(np.diag(C) > 0, np.diag(C) > 0)
    np.testing.assert_allclose(S[block], C[block] * np.outer(d, d), rtol=1e-9)


@pytest.mark.parametrize(
    ("C", "row", "total"),
    [
        # two leaves share one hub: the hub would need row sum two
        ([[0, 1, 1], [1, 0, 0], [1, 0, 0]], r"word 0 \('hub'\)", "1.41421"),
        # support, but not total: (0, 0) lies on no permutation of nonzeros, and falls to zero ever so slowly
        ([[1, 1, 0], [1, 0, 0], [0, 0, 1]], r"word 1 \('leaf'\)", "0.995"),
    ],
)
def test_what_cannot_be_scaled_is_refused(C, row, total):
    message = (
        rf"after \d+ iterations the row of {row} still sums to {total}\d* instead of 1.*self_similarity=0.01"
    )
    with pytest.raises(ValueError, match=message):
        sinkhorn(scipy.sparse.csr_array(np.array(C, float)), words=("hub", "leaf", "other"))


def test_bipartite_counts_can_be_scaled():
    B = np.array([[1.0, 2], [3, 4]])
    C = np.block([[np.zeros((2, 2)), B], [B.T, np.zeros((2, 2))]])
    S = sinkhorn(scipy.sparse.csr_array(C)).toarray()
    np.testing.assert_allclose(S.sum(1), 1, atol=1e-9)


@pytest.mark.parametrize("function", [*WEIGHTINGS, drop_diagonal])
def test_symmetric_to_the_last_bit(function, monkeypatch):
    monkeypatch.setattr(weighting, "BLOCK_ENTRIES", 1000)  # blocks, and mirror images in different ones
    rng = np.random.default_rng(1)
    C = word_counts() * (1 + np.triu(rng.random((400, 400))))
    C = np.triu(C) + np.triu(C, 1).T
    S = function(scipy.sparse.csr_array(C)).toarray()
    np.testing.assert_array_equal(S, S.T)


@pytest.mark.parametrize("function", WEIGHTINGS)
@given(C=count_matrices(diagonal=1.0), exponent=st.integers(-60, 60), factor=st.sampled_from([1.0, 3.0]))
def test_scale_does_not_matter(function, C, exponent, factor):
    S = function(scipy.sparse.csr_array(C)).toarray()
    scaled = function(scipy.sparse.csr_array(C * factor * 2.0**exponent)).toarray()
    np.testing.assert_allclose(scaled, S, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("function", WEIGHTINGS)
@given(C=count_matrices(diagonal=1.0), seed=st.integers(0, 9))
def test_permuting_words_permutes_the_result(function, C, seed):
    order = np.random.default_rng(seed).permutation(len(C))
    S = function(scipy.sparse.csr_array(C)).toarray()
    permuted = function(scipy.sparse.csr_array(C[np.ix_(order, order)])).toarray()
    np.testing.assert_allclose(permuted, S[np.ix_(order, order)], rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("function", WEIGHTINGS)
def test_empty_rows_stay_empty_and_change_nothing(function):
    C = word_counts(30)
    wide = np.zeros((33, 33))
    rows = np.delete(np.arange(33), [0, 7, 32])
    wide[np.ix_(rows, rows)] = C
    S = function(scipy.sparse.csr_array(wide)).toarray()
    np.testing.assert_allclose(
        S[np.ix_(rows, rows)], function(scipy.sparse.csr_array(C)).toarray(), rtol=1e-12, atol=1e-13
    )
    assert not S[[0, 7, 32]].any()


@pytest.mark.parametrize("function", WEIGHTINGS)
def test_no_counts_at_all(function):
    assert function(scipy.sparse.csr_array((3, 3))).nnz == 0


@pytest.mark.parametrize("block", [1, 2, 7, 1 << 20])
@pytest.mark.parametrize("index_dtype", [np.int32, np.int64])
def test_blocks_join_to_the_whole(block, index_dtype, monkeypatch):
    monkeypatch.setattr(weighting, "BLOCK_ENTRIES", block)
    C = np.random.default_rng(0).poisson(0.4, (20, 20)) * 1.0
    C[[3, 4, 19]] = 0
    matrix = scipy.sparse.csr_array(C)
    matrix.indices, matrix.indptr = matrix.indices.astype(index_dtype), matrix.indptr.astype(index_dtype)
    result = map_entries(matrix, lambda values, rows, columns: values * (rows + 2 * columns - 9))
    expected = np.maximum(C * (np.arange(20)[:, None] + 2 * np.arange(20) - 9), 0)
    np.testing.assert_array_equal(result.toarray(), expected)
    assert result.nnz == np.count_nonzero(expected)
    assert result.indices.dtype == result.indptr.dtype == index_dtype
    np.testing.assert_array_equal(matrix.toarray(), C)


def test_the_counts_stay_as_they_were():
    C = word_counts(30)
    matrix = scipy.sparse.csr_array(C)
    for function in (*WEIGHTINGS, drop_diagonal):
        function(matrix)
    np.testing.assert_array_equal(matrix.toarray(), C)


def test_a_stored_zero_is_no_pair():
    matrix = scipy.sparse.csr_array(np.array([[2.0, 1.0], [1.0, 2.0]]))
    matrix.data[1:3] = 0
    for function in WEIGHTINGS:
        assert function(matrix).nnz == 2


def test_a_row_beyond_float64_is_refused():
    with pytest.raises(ValueError, match="counts: the sum of row 1 overflows float64"):
        degree(scipy.sparse.csr_array(np.array([[1e308, 0.5e308], [0.5e308, 1.5e308]])))


def test_a_scaling_that_grows_without_end_is_refused_before_it_overflows(monkeypatch):
    """A hub with a hundred leaves: their scalings drift apart by a factor of ten a round."""
    monkeypatch.setattr("dcdjax.similarity.weighting.SINKHORN_CHECK_EVERY", 10**9)
    star = np.zeros((101, 101))
    star[0, 1:] = star[1:, 0] = 1
    with pytest.raises(ValueError, match=r"after [34]\d\d iterations the row of word \d+ still sums to \d"):
        weighting.sinkhorn(scipy.sparse.csr_array(star))
