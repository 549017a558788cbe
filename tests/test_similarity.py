"""What is not a symmetric, nonnegative S is refused with its first offending entry, or mended as asked."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from problems import problems, random_S

from dcdjax.similarity import from_matrix

IDX = np.array([[0, 1], [1, 0], [1, 2], [2, 1]], np.int32)
VAL = np.array([1.0, 1.0, 2.0, 2.0])


def changed(array, at, value):
    array = array.copy()
    array[at] = value
    return array


@pytest.mark.parametrize(
    ("S_idx", "S_val", "message"),
    [
        (changed(IDX, (2, 1), 3), VAL, r"S_idx\[2\] = \(1, 3\) is outside of 3 words"),
        (changed(IDX, (0, 0), -1), VAL, r"S_idx\[0\] = \(-1, 1\) is outside of 3 words"),
        (IDX.T, VAL, r"S_idx must be of shape \(nonzeros, 2\), got \(2, 4\)"),
        (IDX[:, 0], VAL, r"S_idx must be of shape \(nonzeros, 2\), got \(4,\)"),
        (IDX.astype(float), VAL, "S_idx must be integers, got float64"),
        (IDX, VAL[:3], r"S_val must be of shape \(4,\) as S_idx has it, got \(3,\)"),
        (
            IDX,
            changed(VAL, 1, -1),
            r"S_val\[1\] = -1.0 at \(1, 0\) is not a finite, nonnegative number \(1 such",
        ),
        (IDX, changed(VAL, 3, np.nan), r"S_val\[3\] = nan at \(2, 1\)"),
        (IDX, changed(VAL, slice(2, 4), np.inf), r"S_val\[2\] = inf at \(1, 2\).*\(2 such"),
        (IDX, VAL.astype(complex), "S_val must be real numbers, got complex128"),
        (IDX, np.array(["a"] * 4), "S_val must be real numbers"),
        (IDX, changed(VAL, 0, 5), r"S\[0, 1\] = 5.0 but S\[1, 0\] = 1.0 \(2 entries"),
        (IDX[:3], VAL[:3], r"S is not symmetric: S\[1, 2\] = 2.0 but S\[2, 1\] = 0.0"),
        (
            IDX[[0, 1, 2, 3, 2]],
            VAL[[0, 1, 2, 3, 2]],
            r"S_idx\[2\] = \(1, 2\) stands there more than once \(1 such",
        ),
        (IDX[:2], VAL[:2], r"word 2 has no nonzero \(1 such in all\)"),
        (IDX, changed(VAL, slice(2, 4), 0), r"word 2 has no nonzero"),
        (IDX[:0], VAL[:0], r"word 0 has no nonzero \(3 such in all\)"),
    ],
)
def test_wrong_pairs_are_refused(S_idx, S_val, message):
    with pytest.raises(ValueError, match=message):
        from_matrix((S_idx, S_val), num_words=3)


@pytest.mark.parametrize(
    ("S", "message"),
    [
        (np.eye(3), "S must be a scipy sparse matrix or a pair"),
        ("S.npz", "S must be a scipy sparse matrix or a pair"),
        (scipy.sparse.csr_array(np.ones((3, 2))), r"S must be square, got shape \(3, 2\)"),
        (scipy.sparse.csr_array([[1.0, np.nan], [np.nan, 1.0]]), r"S\[1\] = nan at \(0, 1\)"),
        (scipy.sparse.csr_array([[1.0, -2], [-2, 1.0]]), r"S\[1\] = -2.0 at \(0, 1\)"),
        (scipy.sparse.csr_array(np.triu(np.ones((2, 2)))), r"S\[0, 1\] = 1.0 but S\[1, 0\] = 0.0"),
        (scipy.sparse.csr_array(np.diag([1.0, 0.0])), "word 1 has no nonzero"),
        (scipy.sparse.csr_array(np.eye(4)), "S has 4 words where 3 are expected"),
        (scipy.sparse.csr_array((0, 0)), "S is empty"),
        ((np.zeros((0, 2), int), np.zeros(0)), "S is empty"),
    ],
)
def test_wrong_matrices_are_refused(S, message):
    with pytest.raises(ValueError, match=message):
        from_matrix(S, num_words=3 if "expected" in message else None)


@given(problem=problems())
def test_good_matrices_pass_as_they_are(problem):
    S = problem[1]
    entries = scipy.sparse.coo_array(S)
    pair = np.stack([entries.row, entries.col], axis=1), entries.data
    for form in (scipy.sparse.csr_array(S), scipy.sparse.csc_matrix(S), entries, pair):
        similarity = from_matrix(form, num_words=len(S))
        np.testing.assert_array_equal(similarity.matrix.toarray(), S)
        np.testing.assert_array_equal(similarity.kept, np.arange(len(S)))
        assert similarity.matrix.has_canonical_format
        assert similarity.matrix.dtype == np.float64
        assert (similarity.num_symmetrized, similarity.num_dropped) == (0, 0)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8, np.float32, bool])
def test_any_real_dtype(dtype):
    S = scipy.sparse.csr_array(np.array([[0, 1], [1, 1]], dtype))
    np.testing.assert_array_equal(from_matrix(S).matrix.toarray(), [[0, 1], [1, 1]])


def test_duplicates_of_a_scipy_matrix_add_up():
    S = scipy.sparse.coo_array(([1.0, 2.0, 3.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    np.testing.assert_array_equal(from_matrix(S).matrix.toarray(), [[0, 3], [3, 0]])


def test_the_input_is_left_as_it_was():
    S = scipy.sparse.csr_array(np.array([[0.0, 1.0], [1.0, 2.0]]))
    S.data[2] = 0.0  # a stored zero
    from_matrix(S)
    assert S.nnz == 3


def test_rounding_is_no_asymmetry():
    S = random_S(np.random.default_rng(0), 20)
    noisy = S * (1 + 1e-7 * np.random.default_rng(1).normal(size=S.shape))
    matrix = from_matrix(scipy.sparse.csr_array(noisy)).matrix
    assert abs(matrix - matrix.T).max() == 0
    np.testing.assert_allclose(matrix.toarray(), S, rtol=1e-6)


@pytest.mark.parametrize("S", [[[0, 1], [1.001, 0]], [[1e8, 0.001], [0.0011, 9]], [[1e12, 5], [0, 1]]])
def test_more_than_rounding_is_asymmetry(S):
    with pytest.raises(ValueError, match=r"S is not symmetric: S\[0, 1\]"):
        from_matrix(scipy.sparse.csr_array(S))


def test_symmetrize_takes_the_mean_and_says_how_many():
    S = np.array([[1.0, 4.0, 0.0], [2.0, 0.0, 3.0], [0.0, 3.0, 0.0]])
    with pytest.warns(UserWarning, match="symmetrized S: 2 entries differed"):
        similarity = from_matrix(scipy.sparse.csr_array(S), symmetrize=True)
    np.testing.assert_array_equal(similarity.matrix.toarray(), (S + S.T) / 2)
    assert similarity.num_symmetrized == 2


def test_drop_isolated_says_how_many_and_which_remain():
    S = np.zeros((5, 5))
    S[np.ix_([1, 3], [1, 3])] = [[0, 2], [2, 1]]
    with pytest.warns(UserWarning, match="dropped 3 words without neighbors, 2 remain"):
        similarity = from_matrix(scipy.sparse.csr_array(S), drop_isolated=True)
    np.testing.assert_array_equal(similarity.matrix.toarray(), [[0, 2], [2, 1]])
    np.testing.assert_array_equal(similarity.kept, [1, 3])
    assert similarity.num_dropped == 3


def test_dropping_all_words_is_refused():
    with pytest.raises(ValueError, match="no word would remain"):
        from_matrix(scipy.sparse.csr_array((3, 3)), drop_isolated=True)
