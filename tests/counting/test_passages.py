"""Which words stand in the same passages, against plain Python; pieces of the corpus may be cut anywhere."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcdjax import count
from dcdjax.counting import passages
from dcdjax.counting.passages import PassageSampler
from dcdjax.counting.vocabulary import BREAK, OUTSIDE

NUM_WORDS = 5
documents = st.lists(st.lists(st.integers(OUTSIDE, NUM_WORDS - 1), max_size=9), min_size=1, max_size=9)


def by_hand(documents, length, every):
    """The set of words of each kept passage; those without words are left out. An empty document is one."""
    cut = [
        tokens[begin : begin + length] for tokens in documents for begin in range(0, len(tokens) or 1, length)
    ]
    found = [{word for word in tokens if word >= 0} for tokens in cut]
    # The corpus begins with a break, so that the passage before it is the first one, and empty.
    return [words for words in [set(), *found][::every] if words]


def words_of(matrix):
    return [set(row.indices.tolist()) for row in matrix]


@given(
    documents,
    st.integers(1, 4),
    st.integers(1, 4),
    st.lists(st.integers(0, 60), max_size=8),
)
def test_passages_are_those_cut_by_hand(documents, length, every, cuts):
    corpus = np.array([n for tokens in documents for n in (BREAK, *tokens)], np.int32)
    num_tokens = sum(map(len, documents))
    pieces = np.split(corpus, sorted(min(cut, corpus.size) for cut in cuts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passages, "PASSAGE_TOKENS", length)
        patch.setattr(passages, "MOST_TOKENS", max(1, -(-num_tokens // every)))
        sampler = PassageSampler(num_tokens)
        seen = list(sampler.watch(pieces))
        every = max(1, -(-num_tokens // passages.MOST_TOKENS))
    np.testing.assert_array_equal(np.concatenate(seen), corpus)
    matrix = sampler.matrix(NUM_WORDS)
    assert words_of(matrix) == by_hand(documents, length, every)
    assert matrix.shape[1] == NUM_WORDS
    assert (matrix.data == 1).all()
    assert matrix.has_canonical_format


def test_count_keeps_the_passages_of_all_words_before_any_is_left_out():
    long = ["a", "b"] * 100 + ["c"]  # 201 tokens: one more than a passage has
    counts = count([long, ["a", "z"], ["z"], ["b", "a", "b"]], drop=["z"], subsample=1e-9, window=2)
    assert counts.passages is not None
    named = [{counts.words[n] for n in row.indices} for row in counts.passages]
    assert named == [{"a", "b"}, {"c"}, {"a"}, {"a", "b"}]
    empty = count(["zoo"] * 3 + ["at at"], drop=["zoo"]).passages
    assert empty is not None
    assert empty.shape == (1, 1)


@pytest.mark.parametrize("num_tokens", [1000, 4000])
def test_of_a_large_corpus_a_sample_is_kept(monkeypatch, num_tokens):
    monkeypatch.setattr(passages, "MOST_TOKENS", 1000)
    monkeypatch.setattr(passages, "PASSAGE_TOKENS", 10)
    counts = count([[f"w{n % 7}" for n in range(40)] for _ in range(num_tokens // 40)])
    assert counts.passages is not None
    assert counts.passages.shape[0] == pytest.approx(100, abs=1)


def test_a_word_that_fills_a_passage_counts_once():
    # 256 times 1 is 0 in a number of eight bits.
    sampler = PassageSampler(512)
    for _ in sampler.watch([np.array([BREAK, *([0] * 512)], np.int32)]):
        pass
    assert sampler.matrix(1).toarray().tolist() == [[1], [1], [1]]
