"""What objects say of themselves: a line, however large they are."""

import jax
import numpy as np
import pytest
from problems import sentences

import dcdjax
from dcdjax import evaluation, initialize, similarity
from dcdjax.evaluation import AnalogyResult, CategorizationResult, PairResult
from dcdjax.solvers import minibatches


@pytest.fixture(scope="module")
def counts():
    return dcdjax.count(sentences(), window=3)


@pytest.fixture(scope="module")
def S(counts):
    return similarity.from_counts(counts, weighting="counts")


def test_counts_and_similarities(counts, S):
    pairs, tokens = counts.matrix.nnz, counts.vocabulary.num_tokens
    assert repr(counts) == f"Counts(18 words, {pairs} pairs, {tokens} tokens, window 3)"
    assert repr(counts.vocabulary) == f"Vocabulary(18 words, {tokens} tokens)"
    assert repr(S) == f"Similarity(18 words, {pairs} pairs)"
    with pytest.warns(UserWarning, match="dropped 1 words"):
        dropped = similarity.from_matrix(np.diag([1.0, 0.0]), drop_isolated=True)
    assert repr(dropped) == "Similarity(1 words, 1 pairs, 1 dropped)"
    assert repr(dcdjax.prepare(S, devices=jax.devices()[:1])) == "Layout(18 words, 1 device)"
    batches = minibatches.draw(0, S, 2, devices=jax.devices()[:1])
    assert repr(batches) == "Minibatches(18 words, 2 minibatches)"


def test_solutions(S):
    one = dcdjax.solve(initialize.uniform(0, 18, 3), S, max_steps=2, tol=0.0)
    assert repr(one) == f"Solution(W (18, 3), objective {float(one.objective):.6g}, max_steps after 2 steps)"
    assert repr(one.history) == "History(objective, change, residual: (3,))"
    said = []

    def traced(solution):
        said.append(repr(solution))
        return solution

    jax.eval_shape(traced, one)
    assert said == ["Solution(W (18, 3))"]
    both = jax.tree.map(lambda *leaves: np.stack(leaves), one, one)
    assert repr(both).count("max_steps after 2 steps") == 2


def test_scores():
    words = tuple(f"word{n}" for n in range(500))
    assert repr(PairResult(0.123456789, 300, 500, words)) == (
        "PairResult(spearman=0.1235, num_pairs=300, num_missing=500, "
        "missing=('word0', 'word1', 'word2', ...))"
    )
    sections = {f"section{n}": (1, 2) for n in range(14)}
    result = AnalogyResult(float("nan"), 0, 9, sections)
    assert repr(result).startswith("AnalogyResult(accuracy=nan, num_questions=0, num_missing=9, sections={")
    assert len(repr(result)) < 160
    clusters = CategorizationResult(1.0, 500, 0, 9, (words,) * 9)
    assert len(repr(clusters)) < 250
    vectors = evaluation.as_vectors((words, np.eye(500)))
    assert repr(vectors) == "Vectors(500 words, 500 dimensions, compared by cosine)"
