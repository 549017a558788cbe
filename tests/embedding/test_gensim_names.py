"""The names of other libraries, beside gensim itself."""

import copy
import inspect
import pickle
import re

import jax.numpy as jnp
import numpy as np
import pytest
from problems import random_W

from dcdjax import Embedding
from dcdjax.embedding import gensim_names


@pytest.fixture(scope="module")
def embedding():
    W = random_W(np.random.default_rng(0), 40, 6, concentration=0.3)
    return Embedding(words=tuple(f"word{n}" for n in range(40)), W=jnp.asarray(W))


@pytest.fixture(scope="module")
def dense(embedding):
    W = np.asarray(embedding.W, np.float64)
    return W @ np.diag(1 / W.sum(axis=0)) @ W.T


def test_they_take_what_gensims_take():
    gensim = pytest.importorskip("gensim.models").KeyedVectors
    for name in ("most_similar", "similar_by_word", "similar_by_vector", "n_similarity", "doesnt_match"):
        theirs, ours = (list(inspect.signature(getattr(t, name)).parameters) for t in (gensim, Embedding))
        shared = len(ours) if name != "most_similar" else 4
        if name.startswith("similar_by"):  # gensim has restrict_vocab besides
            assert ours[2] == theirs[2] == "topn"
        else:
            assert ours[:shared] == theirs[:shared]
    assert len(inspect.signature(Embedding.similarity).parameters) == 3


def test_vectors_are_those_of_gensim(embedding):
    theirs = pytest.importorskip("gensim.models").KeyedVectors(embedding.vector_size)
    theirs.add_vectors(list(embedding.words), np.asarray(embedding.W))
    assert embedding.vector_size == theirs.vector_size
    np.testing.assert_allclose(embedding.vectors, theirs.vectors, rtol=1e-6)
    for norm in (False, True):
        ours = embedding.get_vector("word3", norm)
        np.testing.assert_allclose(ours, theirs.get_vector("word3", norm), rtol=1e-5)


def test_neighbors_of_a_word_and_of_a_vector(embedding):
    pytest.importorskip("gensim.models")
    assert embedding.similar_by_word("word3", 7) == embedding.neighbors("word3", 7)
    row = embedding["word3"]  # a vector has no words that could be left out, as in gensim
    assert embedding.similar_by_vector(row, topn=5) == embedding.neighbors(row, 5)
    with pytest.raises(ValueError, match="vector must be one row"):
        embedding.similar_by_vector(embedding[["word3", "word4"]])


def test_similarity_of_two_lists_is_the_mean_over_all_pairs(embedding, dense):
    found = embedding.n_similarity(["word1", "word2"], ["word3", "word4", "word5"])
    assert found == pytest.approx(dense[1:3, 3:6].mean(), rel=1e-12)
    with pytest.raises(ValueError, match="ws1 and ws2 must have at least one word each"):
        embedding.n_similarity([], ["word1"])


def test_the_word_that_does_not_match(embedding, dense):
    words = [3, 9, 20, 31, 7]
    mean = [np.mean([dense[i, j] for j in words if j != i]) for i in words]
    assert embedding.doesnt_match([f"word{n}" for n in words]) == f"word{words[int(np.argmin(mean))]}"
    with pytest.raises(ValueError, match="words must be at least three words, got 2"):
        embedding.doesnt_match(["word1", "word2"])
    with pytest.raises(ValueError, match="words must be a list of words"):
        embedding.doesnt_match("word1 word2 word3")


def test_the_odd_word_is_odd_for_gensim_too():
    W = np.kron(np.eye(3), np.ones((5, 1))) * 0.94 + 0.02
    planted = Embedding(words=tuple(f"word{n}" for n in range(15)), W=jnp.asarray(W))
    theirs = pytest.importorskip("gensim.models").KeyedVectors(3)
    theirs.add_vectors(list(planted.words), W)
    words = ["word6", "word8", "word12", "word5"]
    assert planted.doesnt_match(words) == theirs.doesnt_match(words) == "word12"


@pytest.mark.parametrize(
    ("name", "hint"),
    [("wv", "the embedding itself answers"), ("components_", "embedding.W"), ("show_topics", "topics"),
     ("get_topic_info", "embedding.topics"), ("index2word", "embedding.words")],
)  # fmt: skip
def test_attributes_of_other_libraries_lead_to_ours(embedding, name, hint):
    with pytest.raises(AttributeError, match=f"an Embedding has no attribute '{name}': .*{hint}"):
        getattr(embedding, name)


def test_unknown_attributes_are_ordinary_errors(embedding):
    with pytest.raises(
        AttributeError, match=r"an Embedding has no attribute 'neighbours'; did you mean neighbors\?$"
    ):
        embedding.neighbours  # noqa: B018
    assert not hasattr(embedding, "_ipython_display_")
    assert copy.deepcopy(embedding).words == embedding.words
    assert pickle.loads(pickle.dumps(embedding)).words == embedding.words


def test_hints_name_what_exists(embedding):
    for hint in set(gensim_names.ELSEWHERE.values()):
        for name in re.findall(r"embedding\.(\w+)", hint):
            assert hasattr(embedding, name), hint
