"""What S keeps of the counts it was made from, in memory and in a file."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import sentences

from dcdjax import count
from dcdjax.similarity.similarity import from_counts, from_matrix, load
from dcdjax.util import store

corpora = st.lists(st.lists(st.sampled_from("abcdef"), max_size=12), min_size=1, max_size=6).filter(any)


@settings(max_examples=25)
@given(corpora, st.sampled_from(["ppmi", "counts", "degree"]), st.booleans())
def test_it_is_of_the_words_of_S(tmp_path_factory, documents, weighting, keep_diagonal):
    counts = count(documents, window=3)
    options = {"weighting": weighting, "keep_diagonal": keep_diagonal, "self_similarity": 0.1}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dcdjax.similarity.similarity.warn", lambda *message: None)
        try:
            S = from_counts(counts, **options, drop_isolated=True)
        except ValueError:
            return  # no word remains
    origin, dense = S.origin, counts.matrix.toarray()
    assert origin is not None
    assert origin.passages is not None
    assert counts.passages is not None
    if not keep_diagonal:
        dense = dense - np.diag(np.diag(dense))
    margins = dense.sum(axis=1) * 1.1  # with a tenth of self-similarity
    number = {word: n for n, word in enumerate(counts.words)}
    rows = [number[word] for word in S.words or ()]
    assert origin.word_counts.tolist() == counts.vocabulary.counts[rows].tolist()
    np.testing.assert_allclose(origin.margins, margins[rows])
    assert origin.num_tokens == sum(map(len, documents))
    assert origin.passages.toarray().tolist() == counts.passages.toarray()[:, rows].tolist()
    assert origin.counting == counts.settings
    # The sum is of all words, also of those that were dropped.
    assert np.exp(origin.weighting["log_sum"]) == pytest.approx((margins[margins > 0] ** 0.75).sum())
    path = tmp_path_factory.mktemp("origin") / "S.safetensors"
    S.save(path)
    again = load(path).origin
    assert again is not None
    assert again.passages is not None
    for name in ("word_counts", "margins"):
        np.testing.assert_array_equal(getattr(again, name), getattr(origin, name))
        assert getattr(again, name).dtype == getattr(origin, name).dtype
    assert again.passages.toarray().tolist() == origin.passages.toarray().tolist()
    assert (again.num_tokens, again.counting, again.weighting) == (
        origin.num_tokens, origin.counting, origin.weighting
    )  # fmt: skip


def test_nothing_is_known_of_bare_counts_and_matrices(tmp_path):
    counts = count(sentences(num_sentences=40), window=3)
    bare = SimpleNamespace(matrix=counts.matrix, words=counts.words)
    for S in (from_counts(bare), from_counts(counts.matrix), from_matrix(counts.matrix)):
        assert S.origin is None
        S.save(tmp_path / "S.safetensors")
        assert load(tmp_path / "S.safetensors").origin is None


def test_passages_may_be_unknown(tmp_path):
    counts = count(sentences(num_sentences=40), window=3)
    S = from_counts(dataclasses.replace(counts, passages=None))
    S.save(tmp_path / "S.safetensors")
    for origin in (S.origin, load(tmp_path / "S.safetensors").origin):
        assert origin is not None
        assert origin.passages is None
        assert origin.num_tokens == 200


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("margins", None, "array 'margins' must have 18 entries of float64"),
        ("margins", np.ones(17), "array 'margins' must have 18 entries of float64"),
        ("margins", np.ones(18, np.float32), "array 'margins' must have 18 entries of float64"),
        ("margins", np.full(18, np.nan), "arrays 'margins' and 'word_counts' must be positive"),
        ("margins", np.full(18, np.inf), "arrays 'margins' and 'word_counts' must be positive"),
        ("margins", np.zeros(18), "arrays 'margins' and 'word_counts' must be positive"),
        ("word_counts", np.ones(18), "array 'word_counts' must have 18 entries of int64"),
        ("word_counts", np.ones((18, 1), np.int64), "array 'word_counts' must have 18 entries of int64"),
        ("word_counts", np.arange(18), "arrays 'margins' and 'word_counts' must be positive"),
        ("passage_indices", np.array([18] * 200, np.int32), ""),
        ("passage_indices", np.array([-1] * 200, np.int32), ""),
        ("passage_indices", np.zeros(200), "the arrays of its passages must be int32 in one dimension"),
        ("passage_indptr", np.array([0, 100, 50, 200], np.int32), ""),
        ("passage_indptr", np.array([0, 100], np.int32), ""),
        ("passage_indptr", None, "array 'passage_indptr' is missing"),
        ("passage_indptr", np.array([], np.int32), "the arrays of its passages must be int32"),
        ("num_tokens", None, "num_tokens"),
        ("num_tokens", "many", "many"),
        ("counting", None, "counting"),
        ("weighting", 3, ""),
        ("origin", None, "num_tokens"),
        ("origin", [], ""),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, name, change, message):
    path = tmp_path / "S.safetensors"
    from_counts(count(sentences(num_sentences=40), window=3)).save(path)
    arrays, content = store.read(path)
    arrays = dict(arrays)
    content = json.loads(json.dumps(content))
    settings = content["settings"]
    holder = arrays if name in arrays else settings if name == "origin" else settings["origin"]
    if change is None:
        del holder[name]
    else:
        holder[name] = change
    store.write(path, arrays, content, kind="similarity")
    with pytest.raises(ValueError, match=rf"S\.safetensors: .*{message}"):
        load(path)
