"""What is not a symmetric, nonnegative S is refused with its first offending entry, or mended as asked."""

import gzip
import tracemalloc
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import given
from problems import problems, random_S

from dcdjax.similarity.similarity import (
    Similarity,
    from_counts,
    from_matrix,
    from_points,
    load,
    mapped,
    read,
)
from dcdjax.util import store

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
        (IDX, VAL[:3], r"S_val must be of shape \(4,\) to match S_idx, got \(3,\)"),
        (
            IDX,
            changed(VAL, 1, -1),
            r"S_val\[1\] = -1.0 at \(1, 0\) is not a finite, nonnegative number \(1 in total",
        ),
        (IDX, changed(VAL, 3, np.nan), r"S_val\[3\] = nan at \(2, 1\)"),
        (IDX, changed(VAL, slice(2, 4), np.inf), r"S_val\[2\] = inf at \(1, 2\).*\(2 in total"),
        (IDX, VAL.astype(complex), "S_val must be real numbers, got complex128"),
        (IDX, np.array(["a"] * 4), "S_val must be real numbers"),
        (IDX, changed(VAL, 0, 5), r"S\[0, 1\] = 5.0 but S\[1, 0\] = 1.0 \(2 entries"),
        (IDX[:3], VAL[:3], r"S is not symmetric: S\[1, 2\] = 2.0 but S\[2, 1\] = 0.0"),
        (
            IDX[[0, 1, 2, 3, 2]],
            VAL[[0, 1, 2, 3, 2]],
            r"S_idx\[2\] = \(1, 2\) occurs more than once \(1 in total",
        ),
        (IDX[:2], VAL[:2], r"word 2 has no nonzero \(1 in total\)"),
        (IDX, changed(VAL, slice(2, 4), 0), r"word 2 has no nonzero"),
        (IDX[:0], VAL[:0], r"word 0 has no nonzero \(3 in total\)"),
    ],
)
def test_wrong_pairs_are_refused(S_idx, S_val, message):
    with pytest.raises(ValueError, match=message):
        from_matrix((S_idx, S_val), num_words=3)


@pytest.mark.parametrize(
    ("S", "message"),
    [
        ("S.npz", "S must be a scipy sparse matrix, a square array or a pair .*got str"),
        (np.ones(3), r"S must be square, got shape \(3,\)"),
        (np.ones((2, 3)), r"S must be square, got shape \(2, 3\)"),
        (np.ones((2, 2)) * 1j, "S must be real numbers, got complex128"),
        (np.array([["a"]]), "S must be real numbers"),
        (np.array([[1.0, np.nan], [np.nan, 1.0]]), r"S\[1\] = nan at \(0, 1\)"),
        (np.array([[1.0, 2.0], [3.0, 1.0]]), r"S\[0, 1\] = 2.0 but S\[1, 0\] = 3.0"),
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
    for form in (S, scipy.sparse.csr_array(S), scipy.sparse.csc_matrix(S), entries, pair):
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
    result = from_matrix(S).matrix
    assert S.nnz == 3
    assert not np.shares_memory(result.data, S.data)
    S = scipy.sparse.csr_array(np.eye(2))
    result = from_matrix(S).matrix
    assert not any(np.shares_memory(getattr(result, part), getattr(S, part)) for part in ("data", "indices"))


def test_an_unsorted_matrix_with_duplicates_is_sorted_and_left_as_it_was():
    S = scipy.sparse.csr_array(
        (np.array([2.0, 1.0, 1.0, 2.0]), np.array([1, 1, 0, 0]), np.array([0, 2, 4])), shape=(2, 2)
    )
    matrix = from_matrix(S).matrix
    np.testing.assert_array_equal(matrix.toarray(), [[0, 3], [3, 0]])
    assert matrix.nnz == 2
    np.testing.assert_array_equal(S.indices, [1, 1, 0, 0])


def test_csr_arrays_that_would_crash_are_refused():
    S = scipy.sparse.csr_array(np.eye(3))
    S.indices[1] = 1000
    with pytest.raises(ValueError, match=r"S: indices\[1\] = 1000 is outside of 0 to 2"):
        from_matrix(S)


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


def test_words_go_with_the_rows_that_remain():
    S = np.zeros((4, 4))
    S[1, 3] = S[3, 1] = 1
    with pytest.warns(UserWarning, match="dropped 2 words"):
        result = from_matrix(S, words=["a", "b", "c", "d"], drop_isolated=True)
    assert result.words == ("b", "d")
    with pytest.raises(ValueError, match=r"S: word 0 \('a'\) has no nonzero \(2 in total"):
        from_matrix(S, words=["a", "b", "c", "d"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a", "b"], "words: got 2 words for 3 rows"),
        (["a", "b", "a"], "words: 'a' occurs more than once"),
        ("abc", "words must be a sequence of strings"),
        (["a", "b", 3], "words must be a sequence of strings"),
    ],
)
@pytest.mark.usefixtures("unchecked_annotations")
def test_wrong_words_are_refused(words, message):
    for make in (from_matrix, from_counts):
        with pytest.raises(ValueError, match=message):
            make(np.ones((3, 3)), words=words)
    with pytest.raises(ValueError, match=message):
        from_points(np.eye(3), 1, words=words)


COUNTS = np.array([[8.0, 4.0, 2.0], [4.0, 0.0, 0.0], [2.0, 0.0, 6.0]])


def test_counts_as_they_are():
    result = from_counts(COUNTS, weighting="counts", words=("a", "b", "c"))
    np.testing.assert_array_equal(result.matrix.toarray(), COUNTS)
    assert result.words == ("a", "b", "c")
    assert result.matrix.has_canonical_format


def test_the_diagonal_is_dropped_before_weighting():
    bare = COUNTS - np.diag(np.diag(COUNTS))
    d = bare.sum(1)
    result = from_counts(COUNTS, weighting="degree", keep_diagonal=False)
    np.testing.assert_allclose(result.matrix.toarray(), bare / np.sqrt(np.outer(d, d)))


def test_options_reach_the_weighting():
    pure: dict[str, Any] = {"context_exponent": 1.0, "frequency_exponent": 0.0}
    plain = from_counts(COUNTS, **pure).matrix.toarray()
    np.testing.assert_allclose(plain[2, 2], np.log(6 * COUNTS.sum() / 8**2))
    shifted = from_counts(COUNTS, **pure, shift=0.1).matrix.toarray()
    np.testing.assert_allclose(shifted, np.maximum(plain - 0.1, 0), atol=1e-12)
    doubly = from_counts(COUNTS + np.eye(3), weighting="sinkhorn").matrix.toarray()
    np.testing.assert_allclose(doubly.sum(1), 1)


@pytest.mark.parametrize("weighting", ["ppmi", "counts", "degree", "sinkhorn"])
def test_a_record_of_counts_brings_its_words(weighting):
    C = COUNTS + np.eye(3)
    record = SimpleNamespace(matrix=scipy.sparse.csr_array(C), words=("a", "b", "c"))
    result = from_counts(record, weighting=weighting)
    assert result.words == ("a", "b", "c")
    np.testing.assert_array_equal(
        result.matrix.toarray(), from_counts(C, weighting=weighting).matrix.toarray()
    )
    assert not np.shares_memory(result.matrix.data, record.matrix.data)
    with pytest.raises(ValueError, match="words: these counts have their own"):
        from_counts(record, weighting=weighting, words=("a", "b", "c"))


@pytest.mark.parametrize(("row", "column"), [(0, 1), (2, 0), (1, 2)])
def test_a_record_that_is_not_symmetric_is_refused(row, column):
    C = COUNTS.copy()
    C[row, column] += 1e-6
    record = SimpleNamespace(matrix=scipy.sparse.csr_array(C), words=("a", "b", "c"))
    with pytest.raises(ValueError, match=rf"counts is not symmetric: row {min(row, column)} differs"):
        from_counts(record)


def test_words_no_more_frequent_than_chance_are_refused_or_dropped():
    # "the" meets everybody as chance has it, the others prefer their own kind
    C = np.array([[4.0, 4, 4], [4, 9, 0], [4, 0, 9]])
    pure: dict[str, Any] = {"context_exponent": 1.0, "frequency_exponent": 0.0, "shift": 0.1}
    with pytest.raises(ValueError, match=r"word 0 \('the'\) has no nonzero \(1 in total\).*drop_isolated"):
        from_counts(C, words=["the", "tea", "law"], **pure)
    with pytest.warns(UserWarning, match="dropped 1 words without neighbors, 2 remain"):
        result = from_counts(C, words=["the", "tea", "law"], **pure, drop_isolated=True)
    assert result.words == ("tea", "law")
    np.testing.assert_array_equal(result.kept, [1, 2])
    np.testing.assert_allclose(result.matrix.toarray(), np.eye(2) * (np.log(9 * 38 / 13**2) - 0.1))


def test_sinkhorn_drops_isolated_words_too():
    C = np.zeros((4, 4))
    C[np.ix_([0, 2, 3], [0, 2, 3])] = COUNTS + np.eye(3)
    with pytest.warns(UserWarning, match="dropped 1 words"):
        result = from_counts(C, weighting="sinkhorn", drop_isolated=True)
    np.testing.assert_allclose(result.matrix.toarray().sum(1), 1)


@pytest.mark.parametrize(
    ("counts", "options", "message"),
    [
        (COUNTS, {"weighting": "tfidf"}, r"weighting must be one of \['ppmi', .*got 'tfidf'"),
        (COUNTS, {"context_exponent": -0.1}, "context_exponent must be finite and not negative, got -0.1"),
        (COUNTS, {"context_exponent": np.nan}, "context_exponent must be finite"),
        (COUNTS, {"shift": np.inf}, "shift must be finite, got inf"),
        (-COUNTS, {}, r"counts\[0\] = -8.0 at \(0, 0\)"),
        (np.triu(COUNTS), {}, r"counts is not symmetric: counts\[0, 1\] = 4.0 but .*image\)$"),
        (COUNTS[:2], {}, r"counts must be square, got shape \(2, 3\)"),
        (np.zeros((0, 0)), {}, "counts is empty"),
        (np.zeros((2, 2)), {}, "word 0 has no nonzero"),
        ("counts.npz", {}, "counts must be a scipy sparse matrix"),
    ],
)
def test_wrong_counts_are_refused(counts, options, message):
    with pytest.raises(ValueError, match=message):
        from_counts(counts, **options)


def test_points_become_a_graph():
    result = from_points(np.array([[0.0], [1.0], [3.0]]), 1, words=["a", "b", "c"])
    np.testing.assert_array_equal(result.matrix.toarray(), [[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    assert result.words == ("a", "b", "c")
    with pytest.raises(ValueError, match="num_neighbors must be below 3"):
        from_points(np.eye(3), 3)


def assert_same(a: Similarity, b: Similarity):
    for part in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(a.matrix, part), getattr(b.matrix, part))
    np.testing.assert_array_equal(a.kept, b.kept)
    assert a.matrix.shape == b.matrix.shape
    assert a.matrix.dtype == b.matrix.dtype
    assert (a.words, a.num_symmetrized, a.num_dropped) == (b.words, b.num_symmetrized, b.num_dropped)


@given(problem=problems(), data=st.data())
def test_save_and_load_are_inverse(tmp_path_factory, problem, data):
    S = problem[1]
    texts = st.lists(st.text(), min_size=len(S), max_size=len(S), unique=True)
    path = tmp_path_factory.mktemp("any") / "S"
    original = from_matrix(S, words=data.draw(st.none() | texts))
    original.save(path)
    assert_same(load(path), original)
    assert_same(read(path), original)
    assert_same(mapped(path), original)


@pytest.fixture
def saved(tmp_path):
    S = np.zeros((5, 5))
    S[np.ix_([1, 2, 4], [1, 2, 4])] = random_S(np.random.default_rng(0), 3)
    S[1, 4] += 1
    with pytest.warns(UserWarning, match=r"dropped|symmetrized"):
        original = from_matrix(S, words=["", "a b", "\n", "é", "x"], symmetrize=True, drop_isolated=True)
    original.save(tmp_path / "S.safetensors")
    return tmp_path / "S.safetensors", original


def test_what_was_done_is_saved(saved):
    path, original = saved
    assert (original.words, original.num_symmetrized, original.num_dropped) == (("a b", "\n", "x"), 2, 2)
    assert_same(load(path), original)


@pytest.mark.parametrize("open_file", [load, read, mapped])
def test_a_cut_file_is_refused(saved, open_file):
    path, _ = saved
    content = path.read_bytes()
    for length in range(0, len(content), 13):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"S\.safetensors: "):
            open_file(path)


def test_a_wrong_byte_is_refused(saved):
    path, _ = saved
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :])
        for open_file in (load, read, mapped):
            with pytest.raises(ValueError, match=r"S\.safetensors: "):
                open_file(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kept": np.array([0, 2, 2])}, "'kept' does not number the rows"),
        ({"kept": np.array([-1, 2, 3])}, "'kept' does not number the rows"),
        ({"kept": np.array([0, 1])}, "'kept' does not number the rows"),
        ({"kept": np.array([0.0, 1, 2])}, "'kept' does not number the rows"),
        ({"words": ["a", "a", "a"]}, "'a' occurs more"),
        ({"data": np.array([1.0])}, "'indices' has"),
    ],
)
def test_a_tampered_similarity_is_refused(saved, change, message):
    path, _ = saved
    tensors, content = store.read(path)
    for name, value in change.items():
        (content if name in content else tensors)[name] = value
    store.write(path, tensors, content, kind="similarity")
    for open_file in (load, read, mapped):
        with pytest.raises(ValueError, match=rf"S\.safetensors: .*{message}"):
            open_file(path)


PATH = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 2.0], [0.0, 2.0, 0.0]])


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (
            changed(PATH, (0, 1), np.nan),
            r"S\[0\] = nan at \(0, 1\) is not a finite, nonnegative number \(1 in total",
        ),
        (changed(PATH, (2, 1), np.inf), r"S\[3\] = inf at \(2, 1\)"),
        (changed(PATH, (1, 2), -1.0), r"S\[2\] = -1.0 at \(1, 2\)"),
        (changed(PATH, (0, 1), 7.0), "S is not symmetric: "),
        (changed(PATH, (0, 2), 1e-4), "S is not symmetric: "),
        (np.pad(PATH, [(0, 0), (0, 2)], constant_values=1.0), r"S must be square, got shape \(3, 5\)"),
        (np.pad(PATH, [(0, 2), (0, 0)], constant_values=1.0), r"S must be square, got shape \(5, 3\)"),
    ],
)
@pytest.mark.parametrize("open_file", [load, mapped, read])
def test_tampered_matrices_are_refused(tmp_path, matrix, message, open_file):
    matrix = scipy.sparse.csr_array(matrix)
    Similarity(matrix, np.arange(matrix.shape[0])).save(tmp_path / "S.safetensors")
    with pytest.raises(ValueError, match=rf"S\.safetensors: {message}"):
        open_file(tmp_path / "S.safetensors")


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (scipy.sparse.csr_array(PATH.astype(np.float32)), "S must be float64 to be mapped, got float32"),
        (scipy.sparse.csr_array(([1.0, 2, 1, 2], [1, 2, 0, 1], [0, 1, 3, 4])), "columns that are not sorted"),
        (scipy.sparse.csr_array(([1.0, 0.5, 0.5], [1, 0, 0], [0, 1, 3])), "sorted, or are there twice"),
        (scipy.sparse.csr_array(([1.0, 1, 0, 2], [1, 0, 1, 2], [0, 1, 3, 4])), "zeros among its nonzeros"),
    ],
)
def test_a_matrix_that_would_have_to_change_is_not_mapped(tmp_path, matrix, message):
    Similarity(matrix, np.arange(matrix.shape[0])).save(tmp_path / "S.safetensors")
    with pytest.raises(ValueError, match=rf"S\.safetensors: .*{message}"):
        mapped(tmp_path / "S.safetensors")


def test_numbers_near_the_limit_are_mapped(tmp_path):
    S = from_matrix(np.full((3, 3), 1e308))
    S.save(tmp_path / "S.safetensors")
    assert_same(mapped(tmp_path / "S.safetensors"), S)


def test_a_mapped_matrix_is_checked_without_a_copy(tmp_path):
    num_words, num_neighbors = 2_000, 250
    i = np.repeat(np.arange(num_words), 2 * num_neighbors)
    j = (i + np.tile([*range(-num_neighbors, 0), *range(1, num_neighbors + 1)], num_words)) % num_words
    S = from_matrix(scipy.sparse.coo_array((np.ones(i.size), (i, j))))
    S.save(tmp_path / "S.safetensors")
    tracemalloc.start()
    try:
        mapped(tmp_path / "S.safetensors")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20  # of 12 MB
    finally:
        tracemalloc.stop()


def test_counts_are_no_similarity(tmp_path):
    from dcdjax.util.matrix_files import save_matrix

    save_matrix(tmp_path / "C", scipy.sparse.csr_array(COUNTS), ("a", "b", "c"), {}, kind="counts")
    for open_file in (load, read, mapped):
        with pytest.raises(ValueError, match=r"C: it holds counts, not a? ?similarity"):
            open_file(tmp_path / "C")


def test_reading_what_others_saved(tmp_path):
    S = scipy.sparse.csr_array(random_S(np.random.default_rng(2), 9))
    scipy.sparse.save_npz(tmp_path / "S.npz", S)
    scipy.io.mmwrite(tmp_path / "general.mtx", S, symmetry="general", precision=17)
    scipy.io.mmwrite(tmp_path / "symmetric.mtx", S, symmetry="symmetric", precision=17)
    (tmp_path / "S.mtx.gz").write_bytes(gzip.compress((tmp_path / "general.mtx").read_bytes()))
    for name in ("S.npz", "general.mtx", "symmetric.mtx", "S.mtx.gz"):
        result = read(tmp_path / name)
        np.testing.assert_array_equal(result.matrix.toarray(), S.toarray(), err_msg=name)
        assert result.words is None
        assert_same(mapped(tmp_path / name), result)
    with pytest.raises(ValueError, match=r"S\.npz: it is damaged, or dcdjax did not save it"):
        load(tmp_path / "S.npz")


@pytest.mark.parametrize("name", ["S.npz", "S.mtx"])
def test_what_is_read_is_validated_or_mended(tmp_path, name):
    S = np.array([[1.0, 4.0, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    save = scipy.sparse.save_npz if name == "S.npz" else scipy.io.mmwrite
    save(tmp_path / name, scipy.sparse.csr_array(S))
    with pytest.raises(ValueError, match=rf"{name}: S is not symmetric: S\[0, 1\] = 4.0"):
        read(tmp_path / name)
    with (
        pytest.warns(UserWarning, match="symmetrized S: 2"),
        pytest.raises(ValueError, match=f"{name}: S: word 2"),
    ):
        read(tmp_path / name, symmetrize=True)
    with pytest.warns(UserWarning, match=r"symmetrized S|dropped 1 words") as caught:
        result = read(tmp_path / name, symmetrize=True, drop_isolated=True)
    assert len(caught) == 2
    np.testing.assert_array_equal(result.matrix.toarray(), [[1, 3], [3, 0]])
    save(tmp_path / name, scipy.sparse.csr_array(S[:2]))
    with pytest.raises(ValueError, match=rf"{name}: S must be square, got shape \(2, 3\)"):
        read(tmp_path / name)


def test_what_is_no_matrix_file(tmp_path):
    (tmp_path / "S.txt").write_text("0 1 2\n")
    with pytest.raises(ValueError, match=r"S\.txt: it is neither a \.npz nor a Matrix Market file"):
        read(tmp_path / "S.txt")
    for open_file in (load, read):
        with pytest.raises(FileNotFoundError, match=r"nowhere\.npz"):
            open_file(tmp_path / "nowhere.npz")
