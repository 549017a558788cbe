"""Questions to an embedding, against dense float64 NumPy; what it refuses; files of it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import random_W

import dcdjax
from dcdjax import Embedding
from dcdjax.queries import results
from dcdjax.queries.word_index import UnknownWordError
from dcdjax.topics.levels import Level

NUM_WORDS, NUM_TOPICS = 75, 6


def names(num_words):
    return tuple(f"word{n}" for n in range(num_words))


def shat(W):
    W = np.asarray(W, np.float64)
    return W @ np.diag(1 / W.sum(axis=0)) @ W.T


@pytest.fixture(scope="module")
def embedding():
    W = random_W(np.random.default_rng(0), NUM_WORDS, NUM_TOPICS, concentration=0.3)
    return Embedding(words=names(NUM_WORDS), W=jnp.asarray(W))


def expected(row, excluded, k, among=None):
    chosen = range(NUM_WORDS) if among is None else among
    order = sorted(set(chosen) - set(excluded), key=lambda n: -row[n])[:k]
    return [(f"word{n}", row[n]) for n in order]


def assert_answers(found, right):
    assert [pair.word for pair in found] == [word for word, _ in right]
    np.testing.assert_allclose([pair.probability for pair in found], [p for _, p in right], rtol=1e-12)


# --- Questions --------------------------------------------------------------------------------------


def test_neighbors_of_a_word(embedding):
    assert_answers(embedding.neighbors("word3", 7), expected(shat(embedding.W)[3], [3], 7))
    assert len(embedding.neighbors("word3")) == 10


def test_neighbors_of_several_words_are_those_of_each(embedding):
    words = ["word3", "word70", "word3", "word0"]
    found = embedding.neighbors(words, 4)
    assert len(found) == 4
    for word, near in zip(words, found, strict=True):
        assert_answers(near, embedding.neighbors(word, 4))
    assert embedding.neighbors([], 4) == []


def test_neighbors_of_words_together_are_those_of_the_mean_distribution(embedding):
    mean = shat(embedding.W)[[3, 9, 41]].mean(axis=0)
    found = embedding.neighbors(["word3", "word9", "word41"], 5, together=True)
    assert_answers(found, expected(mean, [3, 9, 41], 5))
    assert_answers(embedding.neighbors(["word3"], 5, together=True), embedding.neighbors("word3", 5))


def test_a_question_of_very_many_words_takes_little_memory(monkeypatch):
    import tracemalloc

    num_words = 4000
    W = jnp.asarray(random_W(np.random.default_rng(1), num_words, 2), jnp.float32)
    embedding = Embedding(words=names(num_words), W=W)
    asked = embedding.words[: num_words // 2]
    few = embedding.neighbors(asked[:3], 5, together=True)
    monkeypatch.setattr(results, "MAX_COMPARED_WORDS", 2)
    assert embedding.neighbors(asked[:3], 5, together=True) == few
    embedding.neighbors(asked, 5, together=True)
    tracemalloc.start()
    found = embedding.neighbors(asked, 5, together=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert not set(asked) & {pair.word for pair in found}
    assert len(found) == 5
    assert peak < 1 << 20  # pairs of them would be four million


def test_neighbors_among_some_words(embedding):
    among = ["word5", "word3", "word60", "word5", "word61"]
    right = expected(shat(embedding.W)[3], [3], 10, among=[5, 60, 61])
    assert_answers(embedding.neighbors("word3", 10, among=among), right)
    assert embedding.neighbors("word3", among=["word3"]) == []
    assert embedding.neighbors("word3", among=[]) == []


def test_neighbors_of_rows(embedding):
    rows = np.asarray(embedding.W)[[4, 6]]
    found = embedding.neighbors(rows, 3)
    for near, number in zip(found, (4, 6), strict=True):
        assert_answers(near, expected(shat(embedding.W)[number], [], 3))
    assert_answers(embedding.neighbors(rows[0], 3), found[0])
    assert_answers(embedding.neighbors(jnp.asarray(rows[1]), 3), found[1])
    mean = shat(embedding.W)[[4, 6]].mean(axis=0)
    assert_answers(embedding.neighbors(rows, 3, together=True), expected(mean, [], 3))


def test_more_neighbors_than_words_are_all_words(embedding):
    found = embedding.neighbors("word1", 1000)
    assert_answers(found, expected(shat(embedding.W)[1], [1], NUM_WORDS))
    assert len(found) == NUM_WORDS - 1


@pytest.mark.parametrize("k", [11, 12, 15, 16, 17, 31, 32, 33])
def test_as_many_answers_as_asked_for(embedding, k):
    assert len(embedding.neighbors("word1", k)) == k
    assert len(embedding.neighbors(["word1", "word2", "word3"], k, together=True)) == k
    rows = embedding.fold_in([{"word5": 1}, {"word7": 2}])
    assert [len(near) for near in embedding.neighbors(rows, k)] == [k, k]


@pytest.mark.parametrize(("batch", "scores"), [(1, 1 << 24), (3, 1 << 24), (256, 2 * NUM_WORDS), (256, 1)])
def test_batches_change_nothing(embedding, monkeypatch, batch, scores):
    words = [f"word{n}" for n in range(0, NUM_WORDS, 4)]
    whole, topics = embedding.neighbors(words, 5), embedding.topics(3)
    monkeypatch.setattr(results, "MAX_BATCH", batch)
    monkeypatch.setattr(results, "MAX_SCORES", scores)
    assert [[pair.word for pair in topic.words] for topic in embedding.topics(3)] == [
        [pair.word for pair in topic.words] for topic in topics
    ]
    for one, other in zip(embedding.neighbors(words, 5), whole, strict=True):
        assert [pair.word for pair in one] == [pair.word for pair in other]
        np.testing.assert_allclose([p for _, p in one], [p for _, p in other], rtol=1e-12)


def test_no_matrix_of_all_pairs_is_ever_made(monkeypatch):
    # Of 3,000 words that would be 9 million numbers: what is compiled for a batch has far fewer.
    W = jnp.asarray(random_W(np.random.default_rng(1), 3000, 4), jnp.float32)
    embedding = Embedding(words=names(3000), W=W)
    monkeypatch.setattr(results, "MAX_SCORES", 64 * 3000)
    sizes = []
    original = results.lookup.nearest_to_words

    def watched(W, s, numbers, among, *, k):
        memory = original.lower(W, s, numbers, among, k=k).compile().memory_analysis()
        assert memory is not None
        sizes.append(memory.temp_size_in_bytes)
        return original(W, s, numbers, among, k=k)

    monkeypatch.setattr(results.lookup, "nearest_to_words", watched)
    found = embedding.neighbors(embedding.words, 5)
    assert len(found) == 3000
    assert len(sizes) == -(-3000 // 64)
    assert max(sizes) < 4 * 64 * 3000 * 4


def test_similarity_of_words_and_of_lists(embedding):
    dense = shat(embedding.W)
    found = embedding.similarity("word2", "word7")
    assert isinstance(found, float)
    assert found == pytest.approx(dense[2, 7], rel=1e-12)
    lists = embedding.similarity(["word1", "word2", "word3"], ["word1", "word5", "word0"])
    np.testing.assert_allclose(lists, dense[[1, 2, 3], [1, 5, 0]], rtol=1e-12)
    np.testing.assert_allclose(
        embedding.similarity("word1", ["word4", "word9"]), dense[1, [4, 9]], rtol=1e-12
    )
    np.testing.assert_allclose(embedding.similarity(["word4"], "word1"), dense[[1], [4]], rtol=1e-12)
    many = [f"word{n % NUM_WORDS}" for n in range(300)]
    np.testing.assert_allclose(embedding.similarity(many, many[::-1]),
                               [dense[n % NUM_WORDS, (299 - n) % NUM_WORDS] for n in range(300)])  # fmt: skip
    with pytest.raises(ValueError, match="b must have as many words as a, got 3 for 2"):
        embedding.similarity(["word1", "word2"], ["word1", "word2", "word3"])


def test_neighbors_have_the_similarity_they_say(embedding):
    for pair in embedding.neighbors("word9", 5):
        assert pair.probability == pytest.approx(embedding.similarity("word9", pair.word), rel=1e-12)


def test_answers_are_shown_as_pairs(embedding):
    [pair] = embedding.neighbors("word3", 1)
    assert repr(pair) == f"('{pair.word}', {pair.probability:.4g})"


def test_topics_are_their_words_by_probability(embedding):
    W = np.asarray(embedding.W)
    word_given_topic = W / W.sum(axis=0)
    topics = embedding.topics(4)
    assert [topic.number for topic in topics] == list(range(NUM_TOPICS))
    assert sum(topic.weight for topic in topics) == pytest.approx(1)
    for topic in topics:
        column = word_given_topic[:, topic.number]
        assert topic.weight == pytest.approx(W[:, topic.number].mean())
        assert [pair.word for pair in topic.words] == [f"word{n}" for n in np.argsort(-column)[:4]]
        np.testing.assert_allclose([pair.probability for pair in topic.words], -np.sort(-column)[:4])
        assert topic.coherence is None
    assert len(embedding.topics(1000)[0].words) == NUM_WORDS
    assert sum(p for _, p in embedding.topics(1000)[0].words) == pytest.approx(1)


def test_coherence_is_of_as_many_words_as_are_shown(embedding):
    table = np.arange(NUM_TOPICS * 3, dtype=np.float64).reshape(NUM_TOPICS, 3)
    table[:, 0] = np.nan
    known = dataclasses.replace(embedding, levels=(Level(np.arange(NUM_TOPICS), table / 32),))
    assert known.topics(1)[2].coherence is None
    assert known.topics(2)[2].coherence == 7 / 32
    assert known.topics(3)[2].coherence == 8 / 32
    assert known.topics(50)[2].coherence == 8 / 32


def test_topics_of_a_word(embedding):
    row = np.asarray(embedding.W)[12]
    found = embedding.topics_of("word12", 3)
    assert [share.number for share in found] == np.argsort(-row)[:3].tolist()
    np.testing.assert_allclose([share.probability for share in found], -np.sort(-row)[:3])
    assert found[0].words == tuple(pair.word for pair in embedding.topics(5)[found[0].number].words)
    assert sum(share.probability for share in embedding.topics_of("word12", 99)) == pytest.approx(1)


def test_an_explanation_sums_to_the_similarity(embedding):
    shares = embedding.explain("word5", "word33")
    assert len(shares) == NUM_TOPICS
    assert sum(share.probability for share in shares) == pytest.approx(
        embedding.similarity("word5", "word33")
    )
    W = np.asarray(embedding.W)
    terms = W[5] * W[33] / W.sum(axis=0)
    for share in shares:
        assert share.probability == pytest.approx(terms[share.number], rel=1e-12)
    np.testing.assert_allclose([share.probability for share in shares], -np.sort(-terms))
    assert embedding.explain("word5", "word33", 2) == shares[:2]
    assert [share.number for share in embedding.explain("word33", "word5", 2)] == [
        s.number for s in shares[:2]
    ]


@given(seed=st.integers(0, 2**32 - 1))
def test_permuting_the_words_changes_no_answer(seed):
    rng = np.random.default_rng(seed)
    W = random_W(rng, 40, 3, concentration=0.3)
    order = rng.permutation(40)
    plain = Embedding(words=names(40), W=jnp.asarray(W))
    permuted = Embedding(words=tuple(f"word{n}" for n in order), W=jnp.asarray(W[order]))
    for question in ("word0", "word39"):
        one, other = plain.neighbors(question, 6), permuted.neighbors(question, 6)
        assert [pair.word for pair in one] == [pair.word for pair in other]
        np.testing.assert_allclose([p for _, p in one], [p for _, p in other], rtol=1e-9)


# --- By gensim's names ------------------------------------------------------------------------------


def test_names_that_gensim_users_know(embedding):
    assert embedding.most_similar("word3", topn=4) == embedding.neighbors("word3", 4)
    together = embedding.neighbors(["word3", "word4"], 4, together=True)
    assert embedding.most_similar(positive=["word3", "word4"], topn=4) == together
    assert embedding.key_to_index["word3"] == 3
    assert embedding.index_to_key[3] == "word3"
    assert "word3" in embedding
    assert "nothing" not in embedding
    assert 3 not in embedding
    assert len(embedding) == NUM_WORDS
    assert tuple(embedding) == embedding.words
    np.testing.assert_array_equal(embedding["word3"], embedding.W[3])
    np.testing.assert_array_equal(embedding[["word3", "word1"]], embedding.W[jnp.array([3, 1])])


def test_most_similar_to_nothing(embedding):
    for nothing in ({"positive": []}, {"positive": [], "negative": "word3"}):
        with pytest.raises(ValueError, match="positive must have at least one word"):
            embedding.most_similar(**nothing)


def test_negative_words_are_taken_away(embedding):
    dense = shat(embedding.W)
    scores = (dense[3] + dense[4] - dense[5]) / 3
    found = embedding.most_similar(["word3", "word4"], negative="word5", topn=6)
    assert_answers(found, expected(scores, [3, 4, 5], 6))


# --- New words --------------------------------------------------------------------------------------


def test_a_new_word_lies_where_its_neighbors_are():
    W = np.kron(np.eye(3), np.ones((5, 1))) * 0.94 + 0.02
    embedding = Embedding(words=names(15), W=jnp.asarray(W))
    row = embedding.fold_in({"word6": 3, "word8": 1})
    assert row.argmax() == 1
    assert row.sum() == pytest.approx(1)
    assert {pair.word for pair in embedding.neighbors(row, 5)} == {f"word{n}" for n in range(5, 10)}
    rows = embedding.fold_in([{"word6": 3, "word8": 1}, {"word0": 1}])
    np.testing.assert_allclose(rows[0], row)
    assert rows[1].argmax() == 0
    assert embedding.fold_in([]).shape == (0, 3)


def test_in_a_consensus_each_start_has_a_row_of_its_own():
    rng = np.random.default_rng(7)
    W1, W2 = random_W(rng, 20, 3), random_W(rng, 20, 4)
    both = Embedding(words=names(20), W=jnp.asarray(np.concatenate([W1, W2], axis=1) / 2), starts=(3, 4))
    first = Embedding(words=names(20), W=jnp.asarray(W1))
    second = Embedding(words=names(20), W=jnp.asarray(W2))
    counts = {"word1": 2.0, "word5": 1.0, "word9": 3.0}
    alone = np.concatenate([first.fold_in(counts), second.fold_in(counts)]) / 2
    np.testing.assert_allclose(both.fold_in(counts), alone, atol=1e-9)


def test_counts_are_weighted_as_those_were_that_it_was_learned_from():
    rng = np.random.default_rng(8)
    counts = rng.poisson(3.0, (12, 12)).astype(np.float64)
    counts = counts + counts.T
    settings = {"weighting": "ppmi", "context_exponent": 0.75, "shift": 0.1, "frequency_exponent": 0.15}
    S = dcdjax.similarity.from_counts(counts, **settings, drop_isolated=True)
    margins = counts.sum(axis=1)
    log_sum = float(np.log((margins**0.75).sum()))
    W = jnp.asarray(random_W(rng, 12, 3))
    record = {"weighting": {**settings, "log_sum": log_sum}}
    embedding = Embedding(words=names(12), W=W, margins=margins, record=record)
    for word in range(0, 12, 5):
        given = {f"word{n}": counts[word, n] for n in range(12)}
        weighted = {f"word{n}": S.matrix[word, n] for n in range(12)}
        np.testing.assert_allclose(
            embedding.fold_in(given), embedding.fold_in(weighted, weighted=True), rtol=1e-9
        )


def test_what_folding_in_refuses(embedding):
    with pytest.raises(UnknownWordError, match="'wort3' is not among the 75 words; similar: 'word3'"):
        embedding.fold_in({"wort3": 1})
    row = embedding.fold_in({"wort3": 1, "word4": 2}, skip_unknown=True)
    np.testing.assert_array_equal(row, embedding.fold_in({"word4": 2}))
    with pytest.raises(ValueError, match=r"'word3' has -1\.0, which is negative"):
        embedding.fold_in({"word3": -1})
    with pytest.raises(ValueError, match="'word3' has nan"):
        embedding.fold_in({"word3": float("nan")})
    for nothing in ({}, {"word3": 0}):
        with pytest.raises(ValueError, match="must have a positive number for at least one known word"):
            embedding.fold_in(nothing)


def test_folding_in_says_what_it_takes(embedding, unchecked_annotations):
    with pytest.raises(ValueError, match="counts must map words to numbers, got 'word3'"):
        embedding.fold_in(["word3"])


def test_counts_of_any_size_are_folded_in(embedding):
    usual = embedding.fold_in({"word3": 1.0, "word9": 2.0})
    for scale in (1e-50, 1e60, 1e-300, 1e307):
        row = embedding.fold_in({"word3": scale, "word9": 2 * scale})
        np.testing.assert_allclose(row, usual, rtol=1e-6)


def test_words_no_nearer_than_by_chance_say_nothing():
    settings = {"weighting": "ppmi", "context_exponent": 1.0, "shift": 5.0, "log_sum": 0.0}
    words, W = ("a", "b"), jnp.full((2, 1), 1.0)
    shifted = Embedding(words=words, W=W, margins=np.ones(2), record={"weighting": settings})
    with pytest.raises(ValueError, match="no known word occurs near the new word more often than by chance"):
        shifted.fold_in({"a": 1})
    assert Embedding(words=words, W=W, margins=np.ones(2)).fold_in({"a": 1}).tolist() == [1.0]


def test_a_row_may_be_asked_about_as_a_word(embedding):
    row = embedding["word12"]
    assert embedding.topics_of(row, 3) == embedding.topics_of("word12", 3)
    for pair in (("word12", "word5"), (row, "word5"), ("word5", row)):
        assert embedding.similarity(*pair) == pytest.approx(embedding.similarity("word12", "word5"), rel=1e-9)
        shares = embedding.explain(*pair)
        assert [share.number for share in shares] == [s.number for s in embedding.explain("word12", "word5")]
        assert sum(share.probability for share in shares) == pytest.approx(embedding.similarity(*pair))
    several = embedding.similarity(embedding[["word1", "word2"]], "word5")
    np.testing.assert_allclose(several, embedding.similarity(["word1", "word2"], "word5"))
    with pytest.raises(ValueError, match="word must be one word or one row, got 2"):
        embedding.topics_of(["word1", "word2"])
    with pytest.raises(ValueError, match="together=True needs at least one word"):
        embedding.neighbors(np.zeros((0, NUM_TOPICS)), together=True)


# --- What it refuses --------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["wrod3", "Word3", "WORD3"])
def test_an_unknown_word_gets_words_of_similar_spelling(embedding, word):
    for ask in (embedding.neighbors, embedding.topics_of, embedding.__getitem__, embedding.most_similar):
        with pytest.raises(KeyError, match=f"^{word!r} is not among the 75 words; similar: .*'word3'"):
            ask(word)


def test_case_makes_no_difference_to_what_is_similar():
    embedding = Embedding(words=("Paris", "NASA", "tea"), W=jnp.full((3, 1), 1.0))
    both = Embedding(words=("King", "taking", "king"), W=jnp.full((3, 1), 1.0))
    with pytest.raises(KeyError, match="similar: 'King', 'king'"):
        both.neighbors("kingg")
    for word, similar in (("paris", "Paris"), ("nasa", "NASA"), ("TEA", "tea")):
        with pytest.raises(KeyError, match=f"similar: '{similar}'"):
            embedding.neighbors(word)


def test_an_unknown_word_like_no_other(embedding):
    with pytest.raises(KeyError, match=r"^'zzz' is not among the 75 words$"):
        embedding.neighbors(["word3", "zzz"])
    with pytest.raises(KeyError, match="a word must be a str, got 3"):
        embedding.neighbors([3])


def test_arguments_out_of_range(embedding, unchecked_annotations):
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        embedding.neighbors("word3", 0)
    with pytest.raises(ValueError, match=r"k must be a whole number, got 1\.5"):
        embedding.topics(1.5)
    with pytest.raises(ValueError, match="words: together=True needs at least one word"):
        embedding.neighbors([], together=True)
    with pytest.raises(ValueError, match="among must be a list of words, got 'word3'"):
        embedding.neighbors("word3", among="word3")
    with pytest.raises(ValueError, match="words must be a list of words, got 7"):
        embedding.neighbors(7)
    with pytest.raises(ValueError, match=r"rows must be finite and have 6 columns, got shape \(3,\)"):
        embedding.neighbors(np.ones(3))
    with pytest.raises(ValueError, match=r"format must be one of .*, got 'xml'"):
        embedding.export("nowhere", "xml")


W_GOOD = np.array([[0.5, 0.5], [0.1, 0.9]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"W": np.array([[0.5, 0.6], [0.1, 0.9]])}, r"word 0 \('a'\) is not on the simplex: its sum is 1.1"),
        ({"W": np.array([[0.5, 0.5], [-0.1, 1.1]])}, r"word 1 \('b'\) .* its smallest entry is -0.1"),
        ({"W": np.array([[0.5, 0.5], [np.nan, 1.0]])}, r"word 1 \('b'\) is not on the simplex"),
        ({"W": np.ones(3)}, r"W must be \(words, topics\)"),
        ({"W": np.ones((2, 1), int)}, r"W must be .* of float32 or float64, got int64"),
        ({"words": ("a",)}, "words: got 1 words for 2 rows"),
        ({"words": ("a", "a")}, "'a' occurs more than once"),
        ({"words": None}, "words must be given, one for each row of W, got None"),
        ({"starts": (1, 2)}, r"starts must add up to the 2 columns of W, got \(1, 2\)"),
        ({"starts": (2, 0)}, "starts must add up"),
        ({"margins": np.ones(3)}, r"margins must have 2 entries, got shape \(3,\)"),
        ({"word_counts": np.ones(1)}, "word_counts must have 2 entries"),
        ({"margins": np.ones((2, 2))}, r"margins must have 2 entries, got shape \(2, 2\)"),
        ({"margins": np.array([1, np.nan])}, "margins must be finite and not negative"),
        ({"margins": np.array([1.0, 0.0])}, "margins must be positive, that of word 1 is 0"),
        ({"word_counts": np.array([1, -1])}, "word_counts must be finite and not negative"),
        ({"record": [1]}, "record must be a mapping, got list"),
        ({"record": {"weighting": None}, "margins": np.ones(2)}, "record: the weighting must be a mapping"),
        (
            {"record": {"weighting": {"weighting": "ppmi", "shift": "a"}}, "margins": np.ones(2)},
            "record: the weighting has context_exponent = None",
        ),
        ({"levels": (Level(np.arange(3)),)}, "levels: a level has 3 columns, but W has 2"),
        ({"levels": (Level(np.zeros(2, int)),) * 3}, "levels must be the topics and their subtopics, got 3"),
        ({"levels": (Level(np.arange(2)), Level(np.zeros(2, int)))}, "subtopic 0 is a part of more than one"),
    ],
)
def test_what_is_no_embedding(change, message, unchecked_annotations):
    with pytest.raises(ValueError, match=message):
        Embedding(**{"words": ("a", "b"), "W": W_GOOD, **change})


# --- Files ------------------------------------------------------------------------------------------


@pytest.fixture
def full():
    rng = np.random.default_rng(9)
    return Embedding(
        words=("tea", "cup", "naïve", "日本", "a b", "\ud800"),
        W=jnp.asarray(random_W(rng, 6, 4), jnp.float32),
        starts=(1, 3),
        word_counts=np.arange(6, 0, -1),
        margins=rng.random(6),
        levels=(
            Level(np.array([1, 0, 1, 1]), np.array([[np.nan, 0.5]] * 2)),
            Level(np.array([2, 0, 1, 2])),
        ),
        history={"objective": np.array([[3.0, 2.0], [3.0, np.nan]])},
        record={
            "corpus": {"name": "tea talk", "sha256": None},
            "seed": 3,
            "weighting": {"weighting": "counts"},
        },
    )


def test_what_was_saved_comes_back(full, tmp_path):
    full.save(tmp_path / "new" / "model")
    loaded = Embedding.load(tmp_path / "new" / "model")
    assert loaded.words == full.words
    assert loaded.starts == full.starts
    assert loaded.record == full.record
    assert isinstance(loaded.W, jax.Array)
    for name in ("W", "word_counts", "margins"):
        one, other = getattr(loaded, name), getattr(full, name)
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    for one, other in zip(loaded.levels, full.levels, strict=True):
        assert one.groups.tolist() == other.groups.tolist()
    np.testing.assert_array_equal(loaded.levels[0].coherence, full.levels[0].coherence)
    assert loaded.levels[1].coherence is None
    assert loaded.topics(3) == full.topics(3)
    assert loaded.topics(3, subtopics=True) == full.topics(3, subtopics=True)
    np.testing.assert_array_equal(loaded.history["objective"], full.history["objective"])
    assert repr(loaded) == "Embedding(6 words, 2 topics of 4 columns, learned from tea talk)"
    assert loaded.neighbors("tea", 3) == full.neighbors("tea", 3)


def test_a_bare_one_is_saved_too(embedding, tmp_path):
    embedding.save(tmp_path / "bare")
    loaded = Embedding.load(tmp_path / "bare")
    np.testing.assert_array_equal(loaded.W, embedding.W)
    assert loaded.margins is None
    assert loaded.history == {}


@pytest.mark.parametrize("missing", ["words", "W", "kind", "record"])
def test_a_model_of_something_else_is_refused(tmp_path, missing):
    from dcdjax.embedding import storage

    record = {"kind": "embedding", "words": ["a", "b"], "starts": [2], "record": {}}
    tensors = {"W": W_GOOD}
    record.pop(missing, None)
    tensors.pop(missing, None)
    storage.save(tmp_path / "model", tensors, record)
    with pytest.raises(ValueError, match=f"{tmp_path / 'model'}: "):
        Embedding.load(tmp_path / "model")


def test_a_model_with_wrong_content_is_refused(tmp_path):
    from dcdjax.embedding import storage

    record = {"kind": "embedding", "words": ["a"], "starts": [2], "record": {}}
    storage.save(tmp_path, {"W": W_GOOD}, record)
    with pytest.raises(ValueError, match="words: got 1 words for 2 rows"):
        Embedding.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("words", "ab", "its words must be a list of str"),
        ("words", ["a", 1], "its words must be a list of str"),
        ("words", None, "its words must be a list of str"),
        ("starts", 2, "its starts must be a list of int"),
        ("starts", [2.0], "its starts must be a list of int"),
        ("starts", [True, 1], "its starts must be a list of int"),
        ("record", "text", "record must be a mapping, got str"),
        ("record", None, "record must be a mapping, got NoneType"),
    ],
)
def test_a_forged_model_is_refused(tmp_path, name, value, message, unchecked_annotations):
    from dcdjax.embedding import storage

    record = {"kind": "embedding", "words": ["a", "b"], "starts": [2], "record": {}}
    storage.save(tmp_path, {"W": W_GOOD}, {**record, name: value})
    with pytest.raises(ValueError, match=f"{tmp_path}: {message}"):
        Embedding.load(tmp_path)


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
def test_gensim_reads_what_is_exported(embedding, tmp_path, binary, scaled):
    gensim = pytest.importorskip("gensim.models").KeyedVectors
    path = tmp_path / "vectors"
    embedding.export(path, "word2vec-binary" if binary else "word2vec", scaled=scaled)
    vectors = gensim.load_word2vec_format(path, binary=binary)
    assert tuple(vectors.index_to_key) == embedding.words
    W = np.asarray(embedding.W)
    right = W / np.sqrt(W.sum(axis=0)) if scaled else W
    np.testing.assert_allclose(vectors.vectors, right, rtol=1e-6)
    if scaled:
        found = vectors.vectors @ vectors.vectors.T
        np.testing.assert_allclose(found, shat(W), rtol=1e-5)


def test_numpy_and_the_projector_read_what_is_exported(full, embedding, tmp_path):
    embedding.export(tmp_path / "vectors.npz", "numpy")
    with np.load(tmp_path / "vectors.npz") as stored:
        assert tuple(stored["words"].tolist()) == embedding.words
        np.testing.assert_array_equal(stored["vectors"], embedding.W)
    with pytest.raises(ValueError, match="ud800"):
        full.export(tmp_path / "refused", "projector")
    counted = Embedding(words=("tea", "cup"), W=jnp.asarray(W_GOOD), word_counts=np.array([5, 2]))
    counted.export(tmp_path / "projector", "projector")
    assert (tmp_path / "projector" / "metadata.tsv").read_text() == "word\tcount\ntea\t5\ncup\t2\n"
    np.testing.assert_allclose(np.loadtxt(tmp_path / "projector" / "vectors.tsv"), W_GOOD, rtol=1e-6)


def test_phrases_are_words_with_a_blank(tmp_path):
    words = ("new york", "york", " ", "a ", "rio de janeiro")
    W = jnp.full((5, 2), 0.5, jnp.float32)
    both = Embedding(words=words, W=W)
    assert both.phrases == ("new york", "rio de janeiro")
    with pytest.raises(ValueError, match=r"words.2. = ' ' is empty or has white space"):
        both.export(tmp_path / "refused")
    Embedding(words=(words[0], words[4]), W=W[:2]).export(tmp_path / "vectors.txt")
    assert (tmp_path / "vectors.txt").read_text().splitlines()[1:] == [
        "new_york 0.5 0.5",
        "rio_de_janeiro 0.5 0.5",
    ]
    with pytest.raises(ValueError, match=r"words.1. = 'new_york' is also words.0."):
        Embedding(words=("new york", "new_york"), W=W[:2]).export(tmp_path / "twice")
