"""Phrases against a search in plain Python, and joining against joining token by token."""

from itertools import pairwise

import numpy as np
import pytest
import text_oracle
from hypothesis import given, settings
from hypothesis import strategies as st

import dcdjax
from dcdjax.counting import cooccurrence, joining
from dcdjax.counting.cooccurrence import count
from dcdjax.counting.joining import Joiner, count_adjacent
from dcdjax.counting.phrases import join

words = st.sampled_from("abcde")
corpora = st.lists(st.lists(words, max_size=20), min_size=1, max_size=5).filter(any)
some_phrases = st.sets(st.lists(words, min_size=2, max_size=4).map(" ".join), max_size=6)


def cut(stream, cuts):
    return np.split(np.array(stream, np.int32), sorted(cuts))


@given(corpora, some_phrases, st.sets(st.integers(0, 60), max_size=8))
def test_joined_wherever_the_stream_is_cut(documents, given_phrases, cuts):
    number = {"a": 0, "b": 1, "c": 2, "d": 3}  # "e" is outside
    known = sorted(phrase for phrase in given_phrases if "e" not in phrase)
    joiner = Joiner([tuple(map(number.__getitem__, phrase.split(" "))) for phrase in known], 4)
    stream = [n for tokens in documents for n in (-2, *(number.get(token, -1) for token in tokens))]
    cuts = {at for at in cuts if at <= len(stream)}
    found = np.concatenate([*joiner(cut(stream, cuts)), np.empty(0, np.int32)]).tolist()
    names = [*"abcd", *known, None, "e"]  # -2 begins a document, -1 is outside
    expected = [name for tokens in documents for name in (None, *text_oracle.join(tokens, known))]
    assert [names[n] for n in found] == expected
    assert [join(tokens, known) for tokens in documents] == [text_oracle.join(t, known) for t in documents]


def ascending(first, second):
    return (first >= 0) & (first <= second)


@given(st.lists(st.integers(-2, 3), max_size=40), st.sets(st.integers(0, 40), max_size=6), st.integers(1, 3))
def test_adjacent_pairs(stream, cuts, least):
    pieces = cut(stream, {at for at in cuts if at <= len(stream)})
    first, second, times, counts = count_adjacent(pieces, 4, ascending, least=least, memory=1 << 20)
    dense, expected = np.zeros((4, 4), int), np.zeros((4, 4), int)
    dense[first, second] = times
    for one, other in pairwise(stream):
        if 0 <= one <= other:
            expected[one, other] += 1
    np.testing.assert_array_equal(dense, np.where(expected >= least, expected, 0))
    assert counts.tolist() == [stream.count(n) for n in range(4)]


def test_adjacent_pairs_of_more_text_than_memory(monkeypatch):
    stream = np.random.default_rng(0).integers(-1, 50, 5000).astype(np.int32)
    pieces = np.array_split(stream, 30)
    options = {"wanted": ascending, "least": 2, "memory": 1 << 28}
    in_memory = count_adjacent(pieces, 50, **options)
    monkeypatch.setattr(joining, "BYTES_PER_PAIR", 1 << 17)
    for whole, spilled in zip(in_memory, count_adjacent(pieces, 50, **options), strict=True):
        np.testing.assert_array_equal(whole, spilled)


@given(
    corpora,
    some_phrases.filter(bool),
    st.integers(1, 8) | st.none(),
    st.integers(1, 3),
    st.sets(words, max_size=2),
    st.sampled_from(["keep", "drop"]),
    st.integers(1, 40),
)
@settings(deadline=None)
def test_counts_of_joined_texts(documents, given_phrases, max_words, min_count, drop, outside, size):
    """The counts are those of the texts with the phrases joined before."""
    joined = [text_oracle.join(tokens, given_phrases) for tokens in documents]
    expected, frequency = text_oracle.most_frequent(joined, max_words, min_count, drop)
    options = {"max_words": max_words, "min_count": min_count, "drop": drop, "outside": outside, "window": 3}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dcdjax.counting.phrases.TOKENS_PER_PIECE", size)
        patch.setattr("dcdjax.counting.vocabulary.TOKENS_PER_PIECE", size)
        if not expected:
            with pytest.raises(ValueError, match="no word is left of"):
                count(documents, phrases=given_phrases, distance_weighting="flat", **options)
            return
        counts = count(documents, phrases=given_phrases, distance_weighting="flat", **options)
    assert counts.words == tuple(expected)
    assert counts.vocabulary.counts.tolist() == frequency
    assert counts.vocabulary.num_tokens == sum(map(len, joined))
    by_hand = text_oracle.pair_counts(joined, expected, 3, "flat", outside)
    np.testing.assert_array_equal(counts.matrix.toarray(), by_hand)
    times = {token: sum(tokens.count(token) for tokens in joined) for token in given_phrases}
    assert {one.phrase: one.count for one in counts.phrases} == {t: n for t, n in times.items() if n}


def random_documents(num_words=160, num_documents=400, length=60):
    """Zipf's law, with some words that follow each other more often than by chance."""
    rng = np.random.default_rng(0)
    added = {"x y": 0.06, "x y z": 0.08, "s t": 0.01, "s t u": 0.06, "1 q": 0.05, "q , r": 0.05}
    added |= {"v p": 0.05, "v": 0.4, "g h": 0.06, "g": 0.15, "h": 0.15}
    documents = []
    for _ in range(num_documents):
        tokens = [f"w{n}" for n in rng.zipf(1.35, length) % num_words]
        for phrase, chance in added.items():
            if rng.random() < chance:
                at = rng.integers(length)
                tokens[at:at] = phrase.split(" ")
        documents.append(tokens)
    return documents


@pytest.mark.parametrize(
    "options", [{}, {"max_words": 60}, {"min_count": 30}, {"drop": ["y", "w1"]}, {"max_words": 9}]
)
def test_finds_what_a_search_by_hand_finds(monkeypatch, options):
    documents = random_documents()
    found, joined, times = text_oracle.phrases(documents, **options)
    counts = count(documents, phrases=True, window=2, distance_weighting="flat", **options)
    assert {one.phrase: one.count for one in counts.phrases} == {phrase: times[phrase] for phrase in found}
    expected, _ = text_oracle.most_frequent(joined, **options)
    assert counts.words == tuple(expected)
    by_hand = text_oracle.pair_counts(joined, expected, 2)
    np.testing.assert_array_equal(counts.matrix.toarray(), by_hand)
    if not options:
        # Not "1 q" nor "q ,", and not "v p" and "g h", which are like "at least" and "has been". Outside of
        # "s t u", "s t" is rare.
        assert set(found) == {"x y", "x y z", "s t u"}
    monkeypatch.setattr("dcdjax.text.blocks.BLOCK_BYTES", 1 << 10)
    monkeypatch.setattr("dcdjax.counting.phrases.TOKENS_PER_PIECE", 31)
    monkeypatch.setattr("dcdjax.counting.vocabulary.TOKENS_PER_PIECE", 17)
    again = count(documents, phrases=True, window=2, distance_weighting="flat", **options)
    assert again.phrases == counts.phrases
    np.testing.assert_array_equal(again.matrix.toarray(), by_hand)


def test_given_phrases_are_converted_as_tokens_are():
    counts = count(["In New York", "new  york"], lowercase=True, phrases=["New  York"], drop=["In", "NEW"])
    assert counts.words == ("new york",)
    assert (counts.settings["phrases"], counts.settings["drop"]) == (["new york"], ["in", "new"])
    assert [(one.phrase, one.count) for one in counts.phrases] == [("new york", 2)]


def test_a_rare_phrase_does_not_push_its_words_out():
    """Joined, "x y" would be too rare for the vocabulary, and "x" and "y" would be lost with it."""
    pairs = [["c", "d"]] * 51 + [["c"], ["d"]] * 9 + [["x", "y"]] * 50 + [["x"], ["y"]] * 10
    documents = pairs + [["e"], ["f"], ["g"], ["h"]] * 50
    assert {one.phrase for one in count(documents, phrases=True).phrases} == {"c d", "x y"}
    few = count(documents, phrases=True, max_words=5)
    assert [one.phrase for one in few.phrases] == ["c d"]
    assert few.words == ("x", "y", "c d", "e", "f")


def test_saved_with_counts(tmp_path):
    documents = [["x", "y"]] * 12 + [["a", "b", "c"]] * 12 + [["a", "c", "b"]] * 12
    counts = count(documents, phrases=True)
    assert [tuple(one)[:2] for one in counts.phrases] == [("x y", 12)]
    # log(p / p^2) / -log(p)
    np.testing.assert_allclose(counts.phrases[0].score, 1)
    counts.save(tmp_path / "counts")
    again = cooccurrence.load(tmp_path / "counts")
    assert (again.phrases, again.words, again.settings) == (counts.phrases, counts.words, counts.settings)
    assert counts.settings["phrases"] is True
    plain = count(documents)
    assert (plain.phrases, plain.settings["phrases"]) == ((), False)


def test_in_the_record_of_a_model_and_in_its_words(tmp_path):
    documents = [["tea", "cup", "new", "york"], ["ship", "new", "york", "sail"], ["tea", "new"]] * 2
    options = {"num_topics": 2, "restarts": 1, "key": 0, "progress": False}
    embedding = dcdjax.fit(documents, phrases=["new york"], **options)
    assert embedding.record["settings"]["counting"]["phrases"] == ["new york"]
    listed = embedding.record["phrases"]
    assert (listed["num_phrases"], listed["phrase_count_score"][0][:2]) == (1, ["new york", 4])
    embedding.save(tmp_path / "model")
    again = dcdjax.Embedding.load(tmp_path / "model")
    assert again.phrases == ("new york",)
    assert again.record["phrases"] == listed
    assert again.neighbors("new york", 1) == embedding.neighbors("new york", 1)
    assert join(["in", "new", "york"], again.phrases) == ["in", "new york"]
    with pytest.raises(KeyError, match="'New York' is not among the 6 words; similar: 'new york'"):
        again.neighbors("New York")


@pytest.mark.slow
def test_phrases_of_wikitext(data):
    counts = count(data / "wikitext-2" / "train.txt.gz", lowercase=True, phrases=True)
    found = {one.phrase for one in counts.phrases}
    names = {"united states", "new york", "new york times", "los angeles", "world war ii", "air force"}
    assert names <= found
    assert not found & {"of the", "in the", "has been", "such as", "at least", "it was", "more than"}
    plain = count(data / "wikitext-2" / "train.txt.gz", lowercase=True)
    assert len(set(plain.words) - set(counts.words)) <= len(found)
