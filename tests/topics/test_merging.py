"""Topics that resemble each other become one."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.cluster.hierarchy
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from dcdjax import Embedding
from dcdjax.topics import merging
from dcdjax.topics.levels import Level


def blocks(rng, num_words=30, num_topics=3):
    """A W in which each word is mostly of one topic."""
    W = np.full((num_words, num_topics), 0.02) + 0.01 * rng.random((num_words, num_topics))
    W[np.arange(num_words), np.arange(num_words) % num_topics] += 1
    return W / W.sum(axis=1, keepdims=True)


def partition(groups):
    return {frozenset(np.flatnonzero(groups == group).tolist()) for group in set(groups.tolist())}


@given(seed=st.integers(0, 2**32 - 1), num_topics=st.sampled_from([1, 3, 7]))
def test_columns_are_sums_of_columns(seed, num_topics):
    rng = np.random.default_rng(seed)
    W = rng.dirichlet(np.ones(7), 12)
    [groups] = merging.group_columns(W, rng.uniform(0.5, 9, 12), [num_topics])
    fewer = merging.merged(W, groups)
    assert fewer.shape == (12, num_topics)
    np.testing.assert_allclose(fewer.sum(axis=1), 1, rtol=1e-12)
    # Each old topic is in one new one: the least squares solution is of zeros and ones.
    members = np.linalg.lstsq(W, fewer, rcond=None)[0]
    np.testing.assert_allclose(members, members.round(), atol=1e-6)
    np.testing.assert_allclose(members.sum(axis=1), 1, atol=1e-6)


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1))
def test_cuts_are_those_of_ward_and_lie_within_each_other(seed):
    rng = np.random.default_rng(seed)
    W, emphasis = rng.dirichlet(np.ones(9), 15), rng.uniform(0.5, 9, 15)
    numbers = list(range(1, 10))
    cuts = merging.group_columns(W, emphasis, numbers)
    roots = np.sqrt(W * emphasis[:, None])
    cosines = (roots.T @ roots) / np.outer(np.linalg.norm(roots, axis=0), np.linalg.norm(roots, axis=0))
    distances = np.sqrt(np.maximum(1 - cosines, 0))[np.triu_indices(9, 1)]
    tree = scipy.cluster.hierarchy.linkage(distances, "ward")
    for number, groups in zip(numbers, cuts, strict=True):
        # Not `fcluster`, which leaves too few groups in SciPy 1.13.0.
        right = scipy.cluster.hierarchy.cut_tree(tree, n_clusters=[number]).ravel()
        assert groups.max() + 1 == number
        assert partition(groups) == partition(right)
    for coarse, fine in itertools.pairwise(cuts):
        assert all(any(part <= whole for whole in partition(coarse)) for part in partition(fine))


@given(seed=st.integers(0, 2**32 - 1))
def test_the_order_of_words_and_columns_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    W, emphasis = rng.dirichlet(np.ones(6), 15), rng.uniform(0.5, 9, 15)
    words, columns = rng.permutation(15), rng.permutation(6)
    [plain] = merging.group_columns(W, emphasis, [3])
    [permuted] = merging.group_columns(W[words][:, columns], emphasis[words], [3])
    assert partition(plain[columns]) == partition(permuted)


@pytest.mark.parametrize("seed", range(3))
def test_the_same_topics_of_several_starts_find_each_other(seed):
    rng = np.random.default_rng(seed)
    W = np.concatenate([blocks(rng)[:, rng.permutation(3)] for _ in range(4)], axis=1) / 4
    fewer = merging.merged(W, merging.group_columns(W, np.ones(30), [3])[0])
    assert {tuple(np.flatnonzero(fewer[:, k] > 0.5) % 3) for k in range(3)} == {(k,) * 10 for k in range(3)}


def test_topics_without_words_and_too_many_topics(monkeypatch):
    W = np.array([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]])
    assert partition(merging.group_columns(W, np.ones(2), [2])[0]) == {frozenset({0, 1}), frozenset({2})}
    assert [groups.tolist() for groups in merging.group_columns(np.ones((3, 1)), np.ones(3), [1])] == [[0]]
    monkeypatch.setattr(merging, "MOST_COLUMNS", 2)
    with pytest.raises(ValueError, match="num_topics: 3 columns of W are too many to merge, of 2"):
        merging.group_columns(W, np.ones(2), [2])


# --- Embedding.reduce -------------------------------------------------------------------------------


class Counted:
    def __init__(self, words, passages):
        self.words, self.passages = words, passages


def test_what_an_embedding_keeps_and_refuses():
    rng = np.random.default_rng(0)
    words = tuple(f"w{n}" for n in range(30))
    W = np.concatenate([blocks(rng), blocks(rng)], axis=1) / 2
    embedding = Embedding(words, jnp.asarray(W), starts=(3, 3), word_counts=np.arange(30), record={"seed": 4})
    fewer = embedding.reduce(3)
    assert fewer.words == words
    assert fewer.starts == (3,)
    assert fewer.num_topics == 3
    assert [topic.coherence for topic in fewer.topics()] == [None] * 3
    assert fewer.record == {"seed": 4, "reduced_from": 6}
    np.testing.assert_array_equal(fewer.word_counts, np.arange(30))
    np.testing.assert_array_equal(fewer.W, embedding.reduce(3).W)
    # Without coherence, the order is by the share of the text.
    weights = [topic.weight for topic in fewer.topics()]
    assert weights == sorted(weights, reverse=True)
    with pytest.raises(ValueError, match="num_topics must be at most 6, got 7"):
        embedding.reduce(7)
    with pytest.raises(ValueError, match="num_topics must be at least 1"):
        embedding.reduce(0)
    with pytest.raises(ValueError, match="counts must have all words of the embedding, 'w2' is missing"):
        embedding.reduce(2, counts=Counted(("w0", "w1"), None))


def test_reducing_to_the_topics_that_are_shown_changes_none_of_them():
    rng = np.random.default_rng(1)
    words = tuple(f"w{n}" for n in range(20))
    coherence = np.array([[np.nan, 0.1], [np.nan, 0.9], [np.nan, -0.5]])
    for table in (coherence, None):
        levels = (Level(np.array([2, 0, 1, 1, 0, 2]), table), Level(np.array([3, 1, 2, 2, 0, 3])))
        embedding = Embedding(words, jnp.asarray(rng.dirichlet(np.ones(6), 20)), levels=levels)
        whole = embedding.reduce()
        assert whole.W.shape == (20, 3)
        for one, other in zip(whole.topics(2), embedding.topics(2), strict=True):
            assert one[:1] + one[2:4] == other[:1] + other[2:4]
            assert one.weight == pytest.approx(other.weight)
        finer = embedding.reduce(4)
        np.testing.assert_array_equal(finer.W, embedding.topic_probabilities(subtopics=True))


def test_the_passages_of_counts_judge_reduced_topics():
    rng = np.random.default_rng(2)
    words = tuple(f"w{n}" for n in range(30))
    embedding = Embedding(words, jnp.asarray(np.concatenate([blocks(rng), blocks(rng)], axis=1) / 2))
    order = rng.permutation(30)
    # The words n, n + 3, n + 6, ... are a topic. Those of the topic of word 2 never stand in one passage.
    passages = np.zeros((40, 30), np.int8)
    for row in range(20):
        passages[row, row % 2 :: 3] = 1
        passages[20 + row, (2 + 3 * row) % 30] = 1
    passages = passages[:, order]
    counts = Counted(tuple(words[n] for n in order), scipy.sparse.csr_array(passages))
    topics = embedding.reduce(3, counts=counts).topics(10)
    assert [topic.coherence for topic in topics] == [pytest.approx(1), pytest.approx(1), pytest.approx(-1)]
    assert [topic.junk for topic in topics] == [False, False, True]
    assert {int(pair.word[1:]) % 3 for pair in topics[2].words} == {2}
    assert [topic.coherence for topic in embedding.reduce(3, counts=Counted(words, None)).topics()] == [
        None
    ] * 3
