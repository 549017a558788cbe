"""The topics that are shown: sums of columns of W, in a useful order, each with its subtopics."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import random_W

from dcdjax import Embedding
from dcdjax.embedding import storage
from dcdjax.topics.coherence import npmi
from dcdjax.topics.levels import Level, make_levels

NUM_WORDS, NUM_COLUMNS, NUMBERS = 20, 9, (3, 6)


def names(num_words=NUM_WORDS):
    return tuple(f"word{n}" for n in range(num_words))


def example(seed, with_counts=True, with_passages=True) -> Any:
    """An embedding of three starts, its W, word counts and passages."""
    rng = np.random.default_rng(seed)
    W = np.concatenate([random_W(rng, NUM_WORDS, 3, 0.3) for _ in range(3)], axis=1) / 3
    word_counts = rng.integers(1, 1000, NUM_WORDS) if with_counts else None
    passages = scipy.sparse.csr_array((rng.random((50, NUM_WORDS)) < 0.3).astype(np.int8))
    shown = make_levels(W, NUMBERS, word_counts, passages if with_passages else None)
    embedding = Embedding(names(), jnp.asarray(W), (3, 3, 3), shown, word_counts)
    return embedding, W, word_counts, passages


seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=15)


@few
@given(seeds)
def test_each_topic_is_a_sum_of_columns_and_of_its_subtopics(seed):
    embedding, W, _, _ = example(seed)
    coarse = np.asarray(embedding.topic_probabilities())
    fine = np.asarray(embedding.topic_probabilities(subtopics=True))
    assert embedding.num_topics == 3
    assert (coarse.shape, fine.shape) == ((NUM_WORDS, 3), (NUM_WORDS, 6))
    for probabilities, level in ((coarse, embedding.levels[0]), (fine, embedding.levels[1])):
        np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-9)
        for topic in range(probabilities.shape[1]):
            np.testing.assert_allclose(probabilities[:, topic], W[:, level.groups == topic].sum(axis=1))
    topics, parts = embedding.topics(), embedding.topics(subtopics=True)
    # Each subtopic lies in one topic, and they are numbered in the order of these.
    assert [n for topic in topics for n in topic.subtopics] == list(range(6))
    assert all(part.subtopics == () for part in parts)
    for topic in topics:
        of_topic = list(topic.subtopics)
        np.testing.assert_allclose(fine[:, of_topic].sum(axis=1), coarse[:, topic.number], rtol=1e-9)
        assert topic.weight == pytest.approx(sum(parts[n].weight for n in of_topic))
    assert sum(topic.weight for topic in topics) == pytest.approx(1)


@few
@given(seeds)
def test_an_explanation_sums_to_the_similarity_at_each_level(seed):
    embedding, W, _, _ = example(seed)
    terms = W[2] * W[7] / W.sum(axis=0)
    row = embedding["word7"]
    for subtopics, level in zip((False, True), embedding.levels, strict=True):
        for other in ("word7", row):
            shares = embedding.explain("word2", other, subtopics=subtopics)
            assert len(shares) == level.num_topics
            total = sum(share.probability for share in shares)
            assert total == pytest.approx(embedding.similarity("word2", "word7"), rel=1e-9)
            values = [share.probability for share in shares]
            assert values == sorted(values, reverse=True)
            for share in shares:
                assert share.probability == pytest.approx(terms[level.groups == share.number].sum(), rel=1e-9)
        of_word = embedding.topics_of("word2", 99, subtopics=subtopics)
        probabilities = np.asarray(embedding.topic_probabilities(subtopics=subtopics))[2]
        assert [one.probability for one in of_word] == pytest.approx(sorted(probabilities, reverse=True))
        shown = embedding.topics(5, subtopics=subtopics)
        for one in of_word:
            assert one.probability == pytest.approx(probabilities[one.number])
            assert one.words == tuple(pair.word for pair in shown[one.number].words)


@few
@given(seeds, st.booleans())
def test_words_and_weights_are_those_by_hand(seed, with_counts):
    embedding, _, word_counts, passages = example(seed, with_counts)
    frequency = np.ones(NUM_WORDS) if word_counts is None else word_counts
    raised = np.ones(NUM_WORDS) if word_counts is None else np.log(1 + word_counts)
    for subtopics in (False, True):
        W = np.asarray(embedding.topic_probabilities(subtopics=subtopics))
        for topic in embedding.topics(6, subtopics=subtopics):
            column = W[:, topic.number]
            order = np.argsort(-column * raised, kind="stable")[:6]
            assert [pair.word for pair in topic.words] == [f"word{n}" for n in order]
            expected = column[order] / column.sum()
            np.testing.assert_allclose([pair.probability for pair in topic.words], expected, rtol=1e-9)
            assert topic.weight == pytest.approx((column * frequency).sum() / frequency.sum())
            assert topic.coherence == pytest.approx(npmi(passages, order[None])[0, -1])


@few
@given(seeds)
def test_permuting_the_words_permutes_nothing_in_the_topics(seed):
    _, W, word_counts, passages = example(seed)
    order = np.random.default_rng(seed).permutation(NUM_WORDS)
    plain, other = (
        Embedding(tuple(np.array(names())[some].tolist()), jnp.asarray(W[some]), (3, 3, 3),
                  make_levels(W[some], NUMBERS, word_counts[some], passages[:, some]), word_counts[some])
        for some in (np.arange(NUM_WORDS), order)
    )  # fmt: skip
    for subtopics in (False, True):
        for one, same in zip(
            plain.topics(8, subtopics=subtopics), other.topics(8, subtopics=subtopics), strict=True
        ):
            assert [pair.word for pair in one.words] == [pair.word for pair in same.words]
            assert (one.subtopics, one.junk) == (same.subtopics, same.junk)
            assert one.weight == pytest.approx(same.weight)
            assert one.coherence == pytest.approx(same.coherence)


def test_numbers_stay_when_a_model_is_saved_and_loaded(tmp_path):
    for with_passages in (True, False):
        embedding = example(3, with_passages=with_passages)[0]
        embedding.save(tmp_path / "model")
        loaded = Embedding.load(tmp_path / "model")
        for subtopics in (False, True):
            assert loaded.topics(7, subtopics=subtopics) == embedding.topics(7, subtopics=subtopics)
            assert loaded.topics_of("word3", subtopics=subtopics) == embedding.topics_of(
                "word3", subtopics=subtopics
            )


# --- Order ------------------------------------------------------------------------------------------


@few
@given(seeds)
def test_useful_topics_come_first(seed):
    embedding, _, _, passages = example(seed)
    present = passages.toarray() > 0
    most = np.log(len(present))

    def usefulness(topic, num_topics):
        rows = [embedding.key_to_index[one.word] for one in topic.words]
        rarity = np.mean([np.log(len(present) / max(present[:, row].sum(), 1)) for row in rows]) / max(
            most, 1
        )
        if topic.coherence <= 0:
            return topic.coherence
        return topic.coherence * min(topic.weight, 1 / num_topics) * rarity**2

    topics = embedding.topics(20 // 3)
    assert_falling([usefulness(topic, 3) for topic in topics])
    parts = embedding.topics(20 // 6, subtopics=True)
    for topic in topics:
        assert_falling([usefulness(parts[n], 6) for n in topic.subtopics])


def assert_falling(values):
    assert (np.diff(values) <= 1e-9).all()


def test_without_passages_large_topics_come_first():
    rng = np.random.default_rng(0)
    none_kept: Any = scipy.sparse.csr_array((0, NUM_WORDS), dtype=np.int8)
    for unknown in (None, none_kept):
        W = random_W(rng, NUM_WORDS, 5)
        [level] = make_levels(W, [5], np.arange(NUM_WORDS) + 1, unknown)
        embedding = Embedding(names(), jnp.asarray(W), levels=(level,), word_counts=np.arange(NUM_WORDS) + 1)
        topics = embedding.topics()
        assert [topic.coherence for topic in topics] == [None] * 5
        assert not any(topic.junk for topic in topics)
        weights = [topic.weight for topic in topics]
        assert weights == sorted(weights, reverse=True)


def test_junk_comes_last_and_is_marked_at_any_number_of_words():
    """Two topics of words that stand together, and between them in size one of words that never do."""
    topic_of = np.repeat([0, 1, 2], [10, 24, 10])
    W = np.full((44, 3), 0.01)
    W[np.arange(44), topic_of] = 0.98
    passages = np.zeros((60, 44), np.int8)
    passages[:20, topic_of == 0] = 1
    passages[20:36, topic_of == 2] = 1
    passages[np.arange(36, 60), np.flatnonzero(topic_of == 1)] = 1
    passages = scipy.sparse.csr_array(passages)
    counts = np.array([100, 1, 90])[topic_of]
    [level] = make_levels(W, [3], counts, passages)
    topics = Embedding(names(44), jnp.asarray(W), levels=(level,), word_counts=counts).topics(1)
    assert level.groups.tolist() == [1, 2, 0]  # the words of the last column are a little rarer
    assert [topic.coherence for topic in topics] == [None] * 3
    assert [topic.junk for topic in topics] == [False, False, True]


def test_large_topics_of_words_that_stand_everywhere_come_after_others():
    """Three groups of ten words. Those of the first stand in most passages, and in larger numbers."""
    rng = np.random.default_rng(0)
    topic_of = np.repeat([0, 1, 2], 10)
    W = np.full((30, 3), 0.01)
    W[np.arange(30), topic_of] = 0.98
    passages = np.zeros((300, 30), np.int8)
    about = rng.integers(1, 3, 300)
    passages[:, topic_of == 0] = rng.random((300, 1)) < np.linspace(0.8, 0.9, 10)
    for topic in (1, 2):
        passages[:, topic_of == topic] = (about == topic)[:, None] & (rng.random((300, 10)) < 0.4)
    counts = np.array([5000, 60, 80])[topic_of]
    [level] = make_levels(W, [3], counts, scipy.sparse.csr_array(passages))
    assert level.groups[0] == 2
    assert level.coherence is not None
    assert level.coherence[:, 9].min() > 0


# --- One level --------------------------------------------------------------------------------------


def test_by_default_each_column_is_a_topic_without_parts():
    W = random_W(np.random.default_rng(0), NUM_WORDS, 4)
    embedding = Embedding(names(), jnp.asarray(W))
    assert embedding.num_topics == 4
    assert embedding.topic_probabilities() is embedding.W
    assert all(topic.subtopics == () for topic in embedding.topics())
    for ask in (
        embedding.topics,
        embedding.topic_probabilities,
        lambda **more: embedding.topics_of("word1", **more),
    ):
        with pytest.raises(ValueError, match="subtopics: the 4 topics of this model have none"):
            ask(subtopics=True)


def test_columns_may_be_numbered_in_any_order():
    W = random_W(np.random.default_rng(0), NUM_WORDS, 4)
    numbers = np.array([2, 0, 3, 1])
    embedding = Embedding(names(), jnp.asarray(W), levels=(Level(numbers),))
    np.testing.assert_array_equal(np.asarray(embedding.topic_probabilities())[:, numbers], W)
    best = embedding.topics_of("word3", 1)[0]
    assert best.number == numbers[W[3].argmax()]
    assert best.words == tuple(pair.word for pair in embedding.topics(5)[best.number].words)


def test_topics_are_exported(tmp_path):
    embedding = example(5)[0]
    embedding.export(tmp_path / "topics.npz", "numpy", topics=True)
    embedding.export(tmp_path / "scaled.npz", "numpy", topics=True, scaled=True)
    W = np.asarray(embedding.topic_probabilities())
    with np.load(tmp_path / "topics.npz") as stored:
        np.testing.assert_array_equal(stored["vectors"], W)
    with np.load(tmp_path / "scaled.npz") as stored:
        np.testing.assert_allclose(stored["vectors"], W / np.sqrt(W.sum(axis=0)), rtol=1e-6)


# --- What is refused --------------------------------------------------------------------------------

GROUPS = np.array([0, 1, 0])


@pytest.mark.parametrize(
    ("groups", "coherence", "message"),
    [
        (np.array([0.0, 1.0]), None, "groups must be whole numbers from 0, one for each column of W"),
        (np.array([[0, 1]]), None, "groups must be whole numbers"),
        (np.array([], int), None, "groups must be whole numbers"),
        (np.array([-1, 0]), None, "groups must be whole numbers"),
        (np.array([0, 2]), None, "groups must name every topic from 0 to 2"),
        (GROUPS, np.zeros(2), r"coherence must be \(2, depth\), got shape \(2,\)"),
        (GROUPS, np.zeros((3, 4)), r"coherence must be \(2, depth\), got shape \(3, 4\)"),
        (GROUPS, np.zeros((2, 0)), r"coherence must be \(2, depth\), got shape \(2, 0\)"),
        (GROUPS, np.full((2, 2), 1.5), "coherence must be numbers from -1 to 1, or NaN"),
        (GROUPS, np.full((2, 2), np.inf), "coherence must be numbers from -1 to 1, or NaN"),
        (GROUPS, np.zeros((2, 2), int), "coherence must be numbers from -1 to 1, or NaN"),
    ],
)
def test_what_is_no_level(groups, coherence, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        Level(groups, coherence)
    # The same in a file: the message has its name.
    tensors = {"W": np.full((2, groups.size or 1), 1 / (groups.size or 1)), "levels.0.groups": groups}
    if coherence is not None:
        tensors["levels.0.coherence"] = coherence
    content = {"kind": "embedding", "words": ["a", "b"], "starts": [tensors["W"].shape[1]], "record": {}}
    storage.save(tmp_path / "model", tensors, content)
    with pytest.raises(ValueError, match=f"{tmp_path / 'model'}: .*{message}"):
        Embedding.load(tmp_path / "model")


def test_lists_make_a_level_too(unchecked_annotations):
    level = Level([0, 1, 0], [[np.nan, 0.5], [np.nan, -0.25]])  # pyright: ignore[reportArgumentType]
    assert level.num_topics == 2
    assert level.coherence_of(1) == [None, None]
    assert level.coherence_of(7) == [0.5, -0.25]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"levels.0.groups": np.zeros(4, np.int32)}, "levels: a level has 4 columns, but W has 9"),
        ({"levels.1.groups": np.arange(9, dtype=np.int32)[::-1] % 6}, "is a part of more than one topic"),
        ({"levels.2.groups": np.zeros(9, np.int32)}, "levels must be the topics and their subtopics, got 3"),
    ],
)
def test_levels_that_do_not_fit_together_are_refused(tmp_path, change, message):
    embedding = example(1, with_passages=False)[0]
    [(name, groups)] = change.items()
    number, shown = int(name.split(".")[1]), [*embedding.levels]
    shown[number : number + 1] = [Level(groups)]
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(embedding, levels=tuple(shown))
    embedding.save(tmp_path)
    tensors, content = storage.load(tmp_path)
    storage.save(tmp_path / "forged", {**tensors, **change}, content)
    with pytest.raises(ValueError, match=f"forged: .*{message}"):
        Embedding.load(tmp_path / "forged")
