"""Scores of any model are compared with human judgments as loops in plain Python would do it."""

import math
import subprocess
import sys
import tracemalloc
from collections import Counter
from types import SimpleNamespace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from problems import random_W

from dcdjax.evaluation import scores as scoring
from dcdjax.evaluation.scores import (
    Vectors,
    analogies,
    as_vectors,
    categorization,
    read_analogies,
    read_categories,
    read_pairs,
    word_pairs,
)

seeds = st.integers(0, 2**32 - 1)


def named(num_words):
    return tuple(f"w{n}" for n in range(num_words))


def score(x, y, kind):
    dot = sum(a * b for a, b in zip(x, y, strict=True))
    if kind == "dot":
        return dot
    lengths = math.sqrt(sum(a * a for a in x)) * math.sqrt(sum(b * b for b in y))
    return dot / lengths if lengths else 0.0


def ranks(values):
    return [sum(v < x for v in values) + (sum(v == x for v in values) + 1) / 2 for x in values]


def spearman(x, y):
    x, y = ranks(x), ranks(y)
    x, y = [a - sum(x) / len(x) for a in x], [b - sum(y) / len(y) for b in y]
    return score(x, y, "cosine")


def answer(table, question, method):
    """The best word, by a loop over them all; the first of equals."""
    a, b, c = question[:3]
    row = dict(zip(table.words, table.vectors.tolist(), strict=True))

    def chance(x, y):
        value = score(row[x], row[y], table.scores)
        return (1 + value) / 2 if table.scores == "cosine" else max(value, 0)

    floor = 1e-3 if table.scores == "cosine" else sum(chance(a, x) for x in row) / len(row) or 1
    best, most = "", -math.inf
    for x in row:
        if method == "add":
            total = sum(sign * score(row[x], row[y], table.scores) for sign, y in ((1, b), (-1, a), (1, c)))
        else:
            total = chance(x, b) * chance(x, c) / (chance(x, a) + floor)
        if x not in (a, b, c) and total > most:
            best, most = x, total
    return best


def ward(points, num_clusters):
    """Merges whatever raises the sum of squares least, by trying all."""
    clusters = [[n] for n in range(len(points))]
    while len(clusters) > num_clusters:
        costs = {}
        for j, y in enumerate(clusters):
            for i, x in enumerate(clusters[:j]):
                gap = points[x].mean(axis=0) - points[y].mean(axis=0)
                costs[i, j] = len(x) * len(y) / (len(x) + len(y)) * gap @ gap
        i, j = min(costs, key=lambda pair: costs[pair])
        clusters[i] += clusters.pop(j)
    return sorted(sorted(cluster) for cluster in clusters)


def drawn_pairs(rng, num_words, num_pairs):
    numbers = rng.integers(num_words, size=(num_pairs, 2))
    return [(f"w{i}", f"w{j}", float(rng.integers(5))) for i, j in numbers]


def drawn_questions(rng, num_words, num_questions):
    numbers = [rng.choice(num_words, size=4, replace=False) for _ in range(num_questions)]
    return [tuple(f"w{n}" for n in row) for row in numbers]


# Models


def test_an_embedding_is_compared_by_Shat():
    W = random_W(np.random.default_rng(0), 7, 3)
    s = W.sum(axis=0)
    Shat = [[sum(W[i, k] * W[j, k] / s[k] for k in range(3)) for j in range(7)] for i in range(7)]
    table = as_vectors(SimpleNamespace(words=named(7), W=W))
    assert (table.words, table.scores) == (named(7), "dot")
    np.testing.assert_allclose(table.vectors @ table.vectors.T, Shat, rtol=1e-13)
    np.testing.assert_allclose((table.vectors @ table.vectors.T).sum(axis=1), 1, rtol=1e-13)


def test_a_topic_that_nobody_holds_adds_nothing():
    W = np.array([[0.5, 0.0, 0.5], [1.0, 0.0, 0.0]], np.float32)
    table = as_vectors(SimpleNamespace(words=("a", "b"), W=W))
    assert table.vectors.dtype == np.float32
    np.testing.assert_allclose(
        table.vectors @ table.vectors.T, [[0.25 / 1.5 + 0.5, 0.5 / 1.5], [0.5 / 1.5, 1 / 1.5]], rtol=1e-6
    )


def test_an_embedding_on_a_device():
    import jax.numpy as jnp

    W = np.array([[0.5, 0.5], [0.25, 0.75]], np.float32)
    table = as_vectors(SimpleNamespace(words=("a", "b"), W=jnp.asarray(W)))
    np.testing.assert_array_equal(table.vectors, as_vectors(SimpleNamespace(words=("a", "b"), W=W)).vectors)


@pytest.mark.parametrize("form", ["pair", "list", "mapping", "keyed", "vectors"])
def test_other_models_are_compared_by_cosine(form):
    words, rows = ("a", "b", "c"), np.array([[1.0, 2.0], [2.0, 1.0], [0.0, 3.0]])
    model = {
        "pair": (words, rows),
        "list": [list(words), rows.tolist()],
        "mapping": dict(zip(words, rows, strict=True)),
        "keyed": SimpleNamespace(index_to_key=list(words), vectors=rows),
        "vectors": Vectors(words, rows, "cosine"),
    }[form]
    table = as_vectors(model)
    assert (table.words, table.scores) == (words, "cosine")
    np.testing.assert_array_equal(table.vectors, rows)
    # By dot product the order would be another: 4, 6, 3.
    assert word_pairs(model, [("a", "b", 2), ("a", "c", 3), ("b", "c", 1)]).spearman == 1


@pytest.mark.parametrize(
    ("dtype", "kept"),
    [("float64", "float64"), ("float32", "float32"), ("float16", "float32"), ("int64", "float64")],
)
def test_the_dtype_of_vectors(dtype, kept):
    rows = np.array([[1, 2]], dtype)
    table = as_vectors((["a"], rows))
    assert table.vectors.dtype == kept
    assert np.shares_memory(table.vectors, rows) == (dtype == kept)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ((["a", "b"], np.eye(3)), "words: got 2 words for 3 rows"),
        ((["a", "b", "a"], np.eye(3)), "words: 'a' occurs more than once"),
        (("ab", np.eye(2)), "words must be a sequence of strings"),
        ((["a", 2], np.eye(2)), "words must be a sequence of strings"),
        ((["a", "b"], [[1, 2], [np.nan, 1]]), r"vectors: row 1 \('b'\) is not finite \(1 in total\)"),
        ((["a", "b"], [[1, -np.inf], [np.nan, 1]]), r"vectors: row 0 \('a'\) is not finite \(2 in total\)"),
        ((["a", "b"], [[1, 2], [1]]), "vectors must be a matrix of real numbers: "),
        ((["a", "b"], [1, 2]), r"vectors must be a matrix of real numbers, got int64 of shape \(2,\)"),
        ((["a"], [[1j]]), "vectors must be a matrix of real numbers, got complex128"),
        ((["a"], [["x"]]), "vectors must be a matrix of real numbers, got <U1"),
        ({"a": [1, 2], "b": [1, 2], "c": [1]}, r"'c' has shape \(1,\), the first, 'a', \(2,\)"),
        ({"a": 1.0}, r"'a' has shape \(\)"),
        ({}, r"vectors must be a matrix of real numbers, got float64 of shape \(0,\)"),
        (SimpleNamespace(words=("a",), W=[[0.5, -0.5]]), r"W\[0, 1\] = -0.5 is negative"),
        (
            SimpleNamespace(words=("a",), W=[0.5, 0.5]),
            "W must be a matrix of real numbers, got float64 of shape",
        ),
        (
            SimpleNamespace(words=("a", "b"), W=[[1.0], [np.nan]]),
            r"row 1 \('b'\) is not finite \(1 in total\)",
        ),
        (
            SimpleNamespace(words=("a", "b"), W=[[1.0], [np.inf]]),
            r"row 1 \('b'\) is not finite \(1 in total\)",
        ),
        (SimpleNamespace(index_to_key=["a"], vectors=np.eye(2)), "words: got 1 words for 2 rows"),
    ],
)
def test_wrong_models_are_refused(unchecked_annotations, model, message):
    with pytest.raises(ValueError, match=message):
        as_vectors(model)


@pytest.mark.parametrize("model", ["vectors.txt", None, np.eye(2), (["a"], [[1.0]], "dot")], ids=type)
def test_what_is_no_model(model):
    with pytest.raises(TypeError, match=f"model must be a Vectors, .*got {type(model).__name__}"):
        as_vectors(model)


def test_scores_are_one_of_two(unchecked_annotations):
    with pytest.raises(ValueError, match=r"scores must be one of \('cosine', 'dot'\), got 'l2'"):
        Vectors(("a",), np.eye(1), "l2")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("scale", [1e-44, 1e-30, 1.0, 1e30])
def test_cosines_at_any_scale(scale):
    rows = (np.array([[1, 0], [1, 1], [0, 1], [-1, 2], [0, 0]]) * scale).astype(np.float32)
    unit = scoring.unit_rows(rows)
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), [1, 1, 1, 1, 0], rtol=1e-6)
    model = (named(5), rows)
    pairs = [("w0", "w1", 3), ("w0", "w2", 1), ("w0", "w3", 0), ("w0", "w4", 1)]
    assert word_pairs(model, pairs).spearman == pytest.approx(1)
    for method in ("add", "multiply"):
        result = analogies(model, {"": [("w4", "w0", "w2", "w1")]}, method=method)
        assert result.accuracy == 1
    assert categorization(model, dict.fromkeys(model[0], "x")).purity == 1


# Pairs


@given(seed=seeds, num_pairs=st.integers(2, 12), scores=st.sampled_from(["cosine", "dot"]))
def test_spearman_is_that_of_loops(seed, num_pairs, scores):
    rng = np.random.default_rng(seed)
    # Small integers: scores tie.
    table = Vectors(named(6), rng.integers(-2, 3, size=(6, 3)).astype(float), scores)
    pairs = drawn_pairs(rng, 6, num_pairs)
    row = dict(zip(table.words, table.vectors.tolist(), strict=True))
    # Cosines that are equal may not be so to the last bit.
    machine = [round(score(row[a], row[b], scores), 9) for a, b, _ in pairs]
    human = [number for *_, number in pairs]
    result = word_pairs(table, pairs)
    assert (result.num_pairs, result.num_missing, result.missing) == (num_pairs, 0, ())
    if len(set(machine)) == 1 or len(set(human)) == 1:
        assert scores == "cosine" or math.isnan(result.spearman)
    elif scores == "dot" or len(set(machine)) == num_pairs:
        assert result.spearman == pytest.approx(spearman(machine, human), abs=1e-12)


@given(seed=seeds, scores=st.sampled_from(["cosine", "dot"]))
def test_what_does_not_matter_to_spearman(seed, scores):
    rng = np.random.default_rng(seed)
    table = Vectors(named(8), rng.normal(size=(8, 3)), scores)
    pairs = drawn_pairs(rng, 10, 12)  # two words are unknown
    result = word_pairs(table, pairs)
    raised = [(a, b, math.exp(number) - 3) for a, b, number in pairs]
    shuffled = [pairs[n] for n in rng.permutation(12)]
    order = rng.permutation(8)
    moved = Vectors(tuple(table.words[n] for n in order), table.vectors[order], scores)
    for other in (word_pairs(table, raised), word_pairs(table, shuffled), word_pairs(moved, pairs)):
        assert other.spearman == pytest.approx(result.spearman, abs=1e-12, nan_ok=True)
        assert (other.num_pairs, other.num_missing) == (result.num_pairs, result.num_missing)
        assert other.missing == result.missing


LINE = (("a", "b", "c", "d"), [[1.0, 0.0], [1.0, 0.5], [1.0, 2.0], [1.0, 9.0]])


def test_unknown_words_are_counted_and_named():
    pairs = [("a", "b", 9), ("a", "x", 8), ("x", "Y", 0), ("a", "c", 3), ("B", "a", 0), ("a", "d", 4)]
    result = word_pairs(LINE, iter(pairs))
    assert result.spearman == pytest.approx(0.5)
    assert (result.num_pairs, result.num_missing, result.missing) == (3, 3, ("B", "Y", "x"))
    result = word_pairs(LINE, pairs, lowercase=True)
    assert (result.num_pairs, result.num_missing, result.missing) == (4, 2, ("x", "y"))
    assert result.spearman == pytest.approx(spearman([4, 3, 4, 2], [9, 3, 0, 4]))


@pytest.mark.parametrize(
    ("pairs", "num_pairs"),
    [
        ([], 0),
        ([("a", "b", 1)], 1),
        ([("a", "x", 1), ("a", "b", 2)], 1),
        ([("a", "b", 5), ("a", "c", 5), ("c", "d", 5)], 3),
        ([("a", "b", 5), ("b", "a", 6)], 2),
    ],
)
def test_no_correlation(pairs, num_pairs):
    result = word_pairs(LINE, pairs)
    assert math.isnan(result.spearman)
    assert result.num_pairs == num_pairs


def test_close_cosines_are_told_apart():
    rows = np.array([[1, 0], [1, 1e-4], [1, 2e-4], [1, 3e-4]], np.float32)  # one minus 5e-9 and more
    pairs = [("w0", "w1", 3), ("w0", "w2", 2), ("w0", "w3", 1)]
    assert word_pairs((named(4), rows), pairs).spearman == pytest.approx(1)


@pytest.mark.parametrize(("human", "expected"), [((1, 2), -1), ((2, 1), 1)])
def test_two_pairs_are_enough(human, expected):
    assert word_pairs(LINE, [("a", "b", human[0]), ("a", "c", human[1])]).spearman == pytest.approx(expected)


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (("a", "b"), r"pairs\[1\]: expected word, word, score, got 2 fields: \('a', 'b'\)"),
        (("a", "b", "much"), r"pairs\[1\]: the score 'much' is not a finite number"),
        (("a", "b", None), r"pairs\[1\]: the score None is not"),
        (("a", "b", math.inf), r"pairs\[1\]: the score inf is not"),
        (("a", "", 1), r"pairs\[1\]: '' is not a word"),
        (("a", 7, 1), r"pairs\[1\]: 7 is not a word"),
    ],
)
def test_wrong_pairs_are_refused(pair, message):
    with pytest.raises(ValueError, match=message):
        word_pairs(LINE, [("a", "b", 1), pair])


# Analogies


@pytest.mark.parametrize("scores", ["cosine", "dot"])
@pytest.mark.parametrize("method", ["add", "multiply"])
@given(seed=seeds, num_words=st.integers(4, 9))
def test_answers_are_those_of_loops(scores, method, seed, num_words):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(num_words, 3))
    table = Vectors(named(num_words), rows, scores)
    questions = drawn_questions(rng, num_words, 10)
    for question in questions:
        best = answer(table, question, method)
        for expected in table.words:
            result = analogies(table, {"s": [(*question[:3], expected)]}, method=method)
            assert result.accuracy == (expected == best)


@given(seed=seeds)
def test_of_equal_answers_the_first(seed):
    rng = np.random.default_rng(seed)
    table = Vectors(named(7), rng.integers(-1, 2, size=(7, 2)).astype(float), "dot")
    for question in drawn_questions(rng, 7, 5):
        assert analogies(table, {"": [(*question[:3], answer(table, question, "add"))]}).accuracy == 1


@pytest.mark.parametrize("method", ["add", "multiply"])
def test_the_words_of_a_question_are_no_answers(method):
    rows = {"a": [0.0, 1.0], "b": [1.0, 0.0], "c": [1.0, 0.1], "far": [-1.0, 0.0], "near": [1.0, 0.5]}
    for expected in rows:
        result = analogies(rows, {"": [("a", "b", "c", expected)]}, method=method)
        assert result.accuracy == (expected == "near")
    # No fourth word, no answer, though the first is the expected one.
    three = {word: rows[word] for word in ("a", "b", "c")}
    assert [analogies(three, {"": [("a", "b", "c", x)]}, method=method).accuracy for x in three] == [0, 0, 0]


def test_the_epsilon_belongs_to_halved_cosines():
    # x is opposite to a, so that epsilon alone divides it; y nearly so: half of epsilon would prefer x.
    angles = {"a": 0.0, "b": 0.261, "c": 0.261, "x": math.pi, "y": math.pi - 0.0632}
    model = {word: [math.cos(angle), math.sin(angle)] for word, angle in angles.items()}
    assert answer(as_vectors(model), "abc", "multiply") == "y"
    assert analogies(model, {"": [("a", "b", "c", "y")]}, method="multiply").accuracy == 1


@pytest.mark.parametrize("method", ["add", "multiply"])
def test_scores_that_are_all_zero(method):
    table = Vectors(named(4), np.zeros((4, 2)), "dot")
    assert analogies(table, {"": [("w1", "w2", "w3", "w0")]}, method=method).accuracy == 1


@pytest.mark.parametrize("scores", ["cosine", "dot"])
@pytest.mark.parametrize("method", ["add", "multiply"])
def test_neither_the_order_of_words_nor_batches_matter(monkeypatch, scores, method):
    rng = np.random.default_rng(3)
    table = Vectors(named(30), rng.gamma(1, size=(30, 4)), scores)  # negative scores would tie at 0
    drawn = drawn_questions(rng, 33, 200)  # three words are unknown
    known = [q for q in drawn if not {"w30", "w31", "w32"} & set(q)]
    # Half of them have the right answer, for the wrong batch to spoil.
    right = [(*q[:3], answer(table, q, method)) for q in known[::2]]
    questions = {"right": right, "any": drawn, "none": []}
    result = analogies(table, questions, method=method)
    assert result.num_questions == len(right) + len(known)
    assert result.num_missing == 200 - len(known)
    assert result.sections["right"] == (len(right), len(right))
    num_lucky = sum(answer(table, q, method) == q[3] for q in known)
    assert result.sections["any"] == (num_lucky, len(known))
    assert result.sections["none"] == (0, 0)
    assert result.accuracy == pytest.approx((len(right) + num_lucky) / result.num_questions)
    order = rng.permutation(30)
    moved = Vectors(tuple(table.words[n] for n in order), table.vectors[order], scores)
    assert analogies(moved, questions, method=method) == result
    for num_bytes in (1, 30 * 8 * 3 * 7):
        monkeypatch.setattr(scoring, "MAX_BYTES", num_bytes)
        assert analogies(table, questions, method=method) == result


@pytest.mark.parametrize("scores", ["cosine", "dot"])
@pytest.mark.parametrize("method", ["add", "multiply"])
def test_scores_do_not_fill_the_memory(monkeypatch, scores, method):
    rng = np.random.default_rng(0)
    table = Vectors(named(4000), rng.normal(size=(4000, 2)), scores)
    questions = {"": drawn_questions(rng, 4000, 400)}
    monkeypatch.setattr(scoring, "MAX_BYTES", 2**22)  # a tenth of all their scores
    tracemalloc.start()
    analogies(table, questions, method=method)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 2**21 < peak < 1.3 * 2**22


ROYAL = {"man": [1, 0, 1], "woman": [0, 1, 1], "king": [1, 0, 9], "queen": [0, 1, 9]}


def test_case_and_unknown_words_of_questions():
    questions = {"royal": [("Man", "king", "woman", "queen"), ("man", "king", "woman", "Queen")]}
    result = analogies(ROYAL, questions)
    assert math.isnan(result.accuracy)
    assert (result.num_questions, result.num_missing, result.sections) == (0, 2, {"royal": (0, 0)})
    result = analogies(ROYAL, questions, lowercase=True)
    assert (result.accuracy, result.num_missing, result.sections) == (1, 0, {"royal": (2, 2)})
    assert math.isnan(analogies(ROYAL, {}).accuracy)


def test_only_the_first_words_are_searched_and_known():
    model = {**ROYAL, "empress": [0, 1, 9.5], "prince": [2, 0, 9]}
    question = ("man", "king", "woman", "queen")
    assert analogies({"empress": [-1, 1, 9], **ROYAL}, {"": [question]}).accuracy == 0
    assert analogies(model, {"": [(*question[:3], "queen")]}, max_words=4).accuracy == 1
    for max_words, num_asked in ((6, 1), (5, 0), (3, 0), (100, 1)):
        result = analogies(model, {"": [(*question[:3], "prince")]}, max_words=max_words)
        assert (result.num_questions, result.num_missing) == (num_asked, 1 - num_asked)
    searched = {**ROYAL, "empress": [-1, 1, 9]}
    assert analogies(searched, {"": [question]}).accuracy == 0
    assert analogies(searched, {"": [question]}, max_words=4).accuracy == 1


@pytest.mark.parametrize(
    ("questions", "options", "message"),
    [
        ({"s": []}, {"method": "divide"}, "method must be one of .*'add', 'multiply'.*, got 'divide'"),
        ({"s": []}, {"max_words": 0}, "max_words must be at least 1, got 0"),
        ({"s": [("a", "b", "c")]}, {}, r"questions\['s'\]\[0\]: expected four words, got 3 fields: \('a'"),
        ({"s": [("a",) * 4, ("a", "b", 3, "c")]}, {}, r"questions\['s'\]\[1\]: 3 is not a word"),
    ],
)
def test_wrong_questions_are_refused(unchecked_annotations, questions, options, message):
    with pytest.raises(ValueError, match=message):
        analogies(ROYAL, questions, **options)


# Categories


@given(seed=seeds, num_words=st.integers(2, 12), scores=st.sampled_from(["cosine", "dot"]))
def test_clusters_are_those_of_loops(seed, num_words, scores):
    rng = np.random.default_rng(seed)
    table = Vectors(named(num_words), rng.normal(size=(num_words, 4)), scores)
    categories = {word: f"c{rng.integers(4)}" for word in table.words}
    result = categorization(table, categories)
    k = len(set(categories.values()))
    assert (result.num_words, result.num_missing, result.num_categories) == (num_words, 0, k)
    points = table.vectors / np.linalg.norm(table.vectors, axis=1, keepdims=True)
    expected = ward(points, k)
    assert result.clusters == tuple(tuple(table.words[n] for n in cluster) for cluster in expected)
    most = [max(Counter(categories[word] for word in cluster).values()) for cluster in result.clusters]
    assert result.purity == sum(most) / num_words
    assert max(1 / k, k / num_words) <= result.purity <= 1
    order = rng.permutation(num_words)
    moved = Vectors(tuple(table.words[n] for n in order), table.vectors[order], scores)
    assert categorization(moved, categories) == result


@given(seed=seeds, sizes=st.lists(st.integers(1, 5), min_size=1, max_size=5))
def test_planted_categories_are_found(seed, sizes):
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(len(sizes)), sizes)
    # Lengths differ widely: only directions count.
    rows = np.eye(5)[group] + rng.uniform(0, 0.05, size=(len(group), 5))
    rows *= rng.uniform(0.1, 10, size=(len(group), 1))
    words = named(len(group))
    for kind in ("cosine", "dot"):
        result = categorization(Vectors(words, rows, kind), dict(zip(words, map(str, group), strict=True)))
        assert result.purity == 1
        assert [len(cluster) for cluster in result.clusters] == sizes


def test_purity_by_hand():
    model = {"a": [1, 0], "b": [9, 1], "c": [8, 1], "d": [0, 1], "e": [1, 9]}
    categories = {"e": "y", "a": "x", "b": "x", "c": "y", "nobody": "z", "d": "y"}
    result = categorization(model, categories)
    assert result.clusters == (("e", "d"), ("a", "b", "c"))
    assert result.purity == 4 / 5
    assert (result.num_words, result.num_missing, result.num_categories) == (5, 1, 2)


def test_words_at_one_place_are_still_as_many_clusters():
    result = categorization((named(5), np.ones((5, 2))), dict(zip(named(5), "xxyyz", strict=True)))
    assert len(result.clusters) == result.num_categories == 3


def test_few_words_and_case():
    model = {"tea": [1.0, 2.0], "law": [2.0, 1.0]}
    result = categorization(model, {"tea": "drink", "Law": "state"})
    assert (result.purity, result.num_words, result.num_missing, result.num_categories) == (1, 1, 1, 1)
    assert result.clusters == (("tea",),)
    result = categorization(model, {"tea": "drink", "Law": "state"}, lowercase=True)
    assert (result.purity, result.num_words, result.clusters) == (1, 2, (("tea",), ("law",)))
    result = categorization(model, {"ink": "pen"})
    assert math.isnan(result.purity)
    assert (result.num_words, result.num_missing, result.num_categories, result.clusters) == (0, 1, 0, ())


# Files


@pytest.mark.parametrize(
    "content",
    [
        b"tea\tcup\t7.5\nlaw\ttax\t3\n",
        b"tea cup 7.5\nlaw  tax 3",
        b"tea,cup,7.5\r\nlaw, tax ,3\r\n",
        b"tea;cup;7.5\nlaw;tax;3.0\n",
        b"\xef\xbb\xbf# a comment\n\nWord 1\tWord 2\tScore\ntea\tcup\t7.5\n \t\n  # more\nlaw\ttax\t3\n",
        b"word1 word2 score\ntea cup 75e-1\nlaw tax +3",
    ],
    ids=["tabs", "blanks", "commas", "semicolons", "header", "numbers"],
)
def test_files_of_pairs(tmp_path, content):
    path = tmp_path / "pairs.txt"
    path.write_bytes(content)
    expected = [("tea", "cup", 7.5), ("law", "tax", 3.0)]
    assert read_pairs(path) == expected
    model = {"tea": [4, 1], "cup": [3, 1], "law": [0, 1], "tax": [1, 0]}
    for name in (path, str(path)):
        assert word_pairs(model, name) == word_pairs(model, expected)
        assert word_pairs(model, name).num_pairs == 2


def test_words_of_pairs_may_hold_blanks(tmp_path):
    path = tmp_path / "pairs.txt"
    path.write_text("New York\tcafé, bar\t1\nline\u2028break\t#\t2\n", encoding="utf-8")
    assert read_pairs(path) == [("New York", "café, bar", 1.0), ("line\u2028break", "#", 2.0)]


def test_files_of_questions(tmp_path):
    path = tmp_path / "questions.txt"
    path.write_bytes(
        b"\xef\xbb\xbf: royal family\r\n# a comment\r\nman king woman queen\r\n\r\n:empty\r\n"
        b": more\r\nman woman\tking queen\r\n: royal family\r\nMan King Woman Queen\r\n"
    )
    expected = {
        "royal family": [("man", "king", "woman", "queen"), ("Man", "King", "Woman", "Queen")],
        "empty": [],
        "more": [("man", "woman", "king", "queen")],
    }
    assert read_analogies(path) == expected
    for name in (path, str(path)):
        assert analogies(ROYAL, name, lowercase=True) == analogies(ROYAL, expected, lowercase=True)
        assert analogies(ROYAL, name).num_questions == 2


@pytest.mark.parametrize("separator", ["\t", ",", " , "])
def test_files_of_categories(tmp_path, separator):
    path = tmp_path / "categories.txt"
    lines = ["# word, category", "tea", "", "law", "ice tea"]
    text = "\r\n".join(f"{line}{separator}a kind" if line and line[0] != "#" else line for line in lines)
    path.write_text(text, encoding="utf-8", newline="")
    expected = {"tea": "a kind", "law": "a kind", "ice tea": "a kind"}
    assert read_categories(path) == expected
    for name in (path, str(path)):
        assert categorization({"tea": [1.0], "law": [2.0]}, name).clusters == (("tea", "law"),)


@pytest.mark.parametrize(
    ("read", "content", "message"),
    [
        (read_pairs, "a b 1\n\na b\n", "line 3: expected word, word, score, got 2 fields: .'a', 'b'."),
        (read_pairs, "a b\n", "line 1: expected .*, got 2 fields"),
        (read_pairs, "a b 1 2\n", "line 1: expected .*, got 4 fields"),
        (read_pairs, "a\tb\t1\t\n", "line 1: expected .*, got 4 fields"),
        (read_pairs, "x y z\n# c\nx y z\n", "line 3: the score 'z' is not a finite number"),
        (read_pairs, "a b 1\nx y z\n", "line 2: the score 'z' is not a finite number"),
        (read_pairs, "a b nan\n", "line 1: the score 'nan' is not a finite number"),
        (read_pairs, "a b 1\na b -inf\n", "line 2: the score '-inf' is not a finite number"),
        (read_pairs, "a;b;1\na;b;2,5\n", "line 2: the score '2,5' is not"),
        (read_pairs, "a\t\t1\n", "line 1: '' is not a word"),
        (read_pairs, "\tb\t1\n", "line 1: '' is not a word"),
        (read_pairs, "", "it holds no pairs"),
        (read_pairs, "# only\n\nword1 word2 score\n", "it holds no pairs"),
        (read_analogies, ": s\na b c\n", "line 2: expected four words, got 3 fields"),
        (read_analogies, ": s\na b c d e\n", "line 2: expected four words, got 5 fields"),
        (read_analogies, "\na b c d\n", "line 2: a line ': name' must begin a section before 'a b c d'"),
        (read_analogies, ": \na b c d\n", "line 1: '' is not a word; expected a section's name"),
        (read_analogies, ": s\n: t\n", "it holds no questions"),
        (read_analogies, "", "it holds no questions"),
        (read_categories, "a\tx\nb\n", "line 2: expected word, category, got 1 fields"),
        (read_categories, "a x\n", "line 1: expected .*, got 1 fields"),
        (read_categories, "a,x,y\n", "line 1: expected .*, got 3 fields"),
        (read_categories, "a,\n", "line 1: '' is not a word"),
        (read_categories, "a,x\nb,x\na,y\n", "line 3: 'a' occurs more than once"),
        (read_categories, "\n", "it holds no words"),
    ],
)
def test_malformed_files_are_refused(tmp_path, read, content, message):
    path = tmp_path / "some.txt"
    path.write_text(content)
    with pytest.raises(ValueError, match=rf"some\.txt: {message}"):
        read(path)


@pytest.mark.parametrize("read", [read_pairs, read_analogies, read_categories])
def test_what_cannot_be_read(tmp_path, read):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read(tmp_path / "nowhere")
    with pytest.raises(IsADirectoryError):
        read(tmp_path)
    path = tmp_path / "latin.txt"
    path.write_bytes(b"\xef\xbb\xbfcaf\xe9 bar 1\n")
    with pytest.raises(ValueError, match=r"latin\.txt: byte 6, 0xe9, is not UTF-8"):
        read(path)


def test_the_real_files_are_read(data):
    folder = data / "evaluation"
    pairs = read_pairs(folder / "wordsim353.tsv")
    assert (len(pairs), pairs[0], pairs[-1][:2]) == (353, ("love", "sex", 6.77), ("architecture", "century"))
    pairs = read_pairs(folder / "simlex999.txt")
    assert (len(pairs), pairs[0]) == (999, ("old", "new", 1.58))
    questions = read_analogies(folder / "questions-words.txt")
    assert (len(questions), sum(map(len, questions.values()))) == (14, 19544)
    assert questions["capital-common-countries"][0] == ("Athens", "Greece", "Baghdad", "Iraq")


# Others


@pytest.mark.parametrize("lowercase", [False, True])
def test_gensim_finds_the_same_correlation(data, lowercase):
    keyedvectors = pytest.importorskip("gensim.models.keyedvectors")
    path = data / "evaluation" / "wordsim353.tsv"
    vocabulary = sorted({word for a, b, _ in read_pairs(path) for word in (a, b)})[::-1]
    if lowercase:
        vocabulary = sorted({word.lower() for word in vocabulary})
    rng = np.random.default_rng(5)
    model = keyedvectors.KeyedVectors(vector_size=3)
    words = [word for n, word in enumerate(vocabulary) if n % 10]  # some are unknown
    model.add_vectors(words, rng.normal(size=(len(words), 3)).astype(np.float32))
    # It puts both sides in upper case instead: the same, where all words are in lower case.
    _, theirs, percentage = model.evaluate_word_pairs(str(path), case_insensitive=lowercase)
    ours = word_pairs(model, path, lowercase=lowercase)
    assert ours.spearman == pytest.approx(theirs.statistic, abs=1e-6)
    assert ours.num_missing == pytest.approx(percentage / 100 * 353)
    assert 0 < ours.num_missing == 353 - ours.num_pairs


@pytest.mark.parametrize("max_words", [None, 700])
def test_gensim_finds_the_same_analogies(data, tmp_path, max_words):
    keyedvectors = pytest.importorskip("gensim.models.keyedvectors")
    questions = read_analogies(data / "evaluation" / "questions-words.txt")
    rng = np.random.default_rng(6)
    vectors = {}
    for section in questions.values():
        step = rng.normal(size=12)
        for a, b, *_ in section:
            vectors.setdefault(a, rng.normal(size=12))
            vectors.setdefault(b, vectors[a] + step + 0.6 * rng.normal(size=12))
    path = tmp_path / "questions.txt"
    some = {name: section[::20] for name, section in questions.items()}
    lines = [line for name, section in some.items() for line in (f": {name}", *map(" ".join, section))]
    path.write_text("\n".join(lines), encoding="utf-8")
    model = keyedvectors.KeyedVectors(vector_size=12)
    model.add_vectors(list(vectors), np.array(list(vectors.values()), np.float32))
    accuracy, sections = model.evaluate_word_analogies(
        str(path), restrict_vocab=max_words or 10**6, case_insensitive=False
    )
    result = analogies(model, path, max_words=max_words)
    assert result.accuracy == pytest.approx(accuracy)
    assert 0.1 < result.accuracy < 0.9
    assert (result.num_missing > 0) == (max_words is not None)
    counts = {s["section"]: (len(s["correct"]), len(s["correct"] + s["incorrect"])) for s in sections[:-1]}
    assert result.sections == counts


def test_neither_jax_nor_gensim_is_imported():
    code = "import sys, dcdjax.evaluation\nassert not {'jax', 'gensim'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
