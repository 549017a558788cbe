"""Nearest neighbors against all distances, one by one: exact, symmetric, ties by index, copies of points."""

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from dcdjax.similarity import neighbor_graph as module
from dcdjax.similarity.neighbor_graph import nearest, neighbor_graph


def all_distances(points, metric="euclidean"):
    points = np.asarray(points, np.float64)
    if metric == "cosine":
        points = points / np.linalg.norm(points, axis=1, keepdims=True)
    return np.array([[np.sqrt(((x - y) ** 2).sum()) for y in points] for x in points])


def brute_force(points, k, metric="euclidean"):
    """Sorted by distance, then index, without the point itself."""
    D = all_distances(points, metric)
    return np.array([[j for j in np.lexsort((np.arange(len(D)), D[i])) if j != i][:k] for i in range(len(D))])


def dense_graph(points, k, metric="euclidean", weights="binary"):
    D, chosen = all_distances(points, metric), brute_force(points, k, metric)
    edge = np.zeros(D.shape, bool)
    for i in range(len(D)):
        edge[i, chosen[i]] = edge[chosen[i], i] = True
    if weights == "binary":
        return edge * 1.0
    sigma = D[np.arange(len(D)), chosen[:, -1]]
    return np.where(edge, np.exp(-(D**2) / np.outer(sigma, sigma)), 0)


@pytest.fixture(params=["tree", "product"])
def search(request, monkeypatch):
    """Either way of searching, whatever the dimension; blocks of a few rows."""
    monkeypatch.setattr(module, "MAX_TREE_DIMENSION", 1000 if request.param == "tree" else 0)
    monkeypatch.setattr(module, "BLOCK_ENTRIES", 700)


@pytest.mark.usefixtures("search")
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("weights", ["binary", "gaussian"])
@pytest.mark.parametrize(("num_points", "dimension", "k"), [(60, 2, 5), (80, 30, 1), (40, 5, 39), (2, 1, 1)])
def test_graph_is_the_dense_one(num_points, dimension, k, metric, weights):
    points = np.random.default_rng(num_points).normal(size=(num_points, dimension))
    graph = neighbor_graph(points, k, metric=metric, weights=weights).toarray()
    np.testing.assert_allclose(graph, dense_graph(points, k, metric, weights), rtol=1e-9)
    np.testing.assert_array_equal(graph, graph.T)
    assert not graph.diagonal().any()


@pytest.mark.usefixtures("search")
@given(
    points=hnp.arrays(np.int8, st.tuples(st.integers(2, 14), st.integers(1, 3)), elements=st.integers(0, 2))
)
def test_ties_go_to_the_lower_index(points):
    for k in {1, len(points) // 2, len(points) - 1}:
        neighbors, squares = nearest(points, k)
        np.testing.assert_array_equal(neighbors, brute_force(points, k))
        assert (np.diff(squares, axis=1) >= 0).all()


@pytest.mark.usefixtures("search")
def test_a_grid_is_all_ties():
    points = np.indices((9, 9)).reshape(2, -1).T
    for k in (2, 4, 5, 12):
        np.testing.assert_array_equal(nearest(points, k)[0], brute_force(points, k))


@pytest.mark.usefixtures("search")
def test_far_from_the_origin_nothing_cancels():
    rng = np.random.default_rng(3)
    points = rng.normal(size=(50, 20))
    shifted = np.round(points * 2**20) / 2**20 + 2.0**30  # exact
    np.testing.assert_array_equal(nearest(shifted, 4)[0], brute_force(np.round(points * 2**20), 4))


@pytest.mark.usefixtures("search")
def test_two_clusters_far_apart_keep_their_inner_order():
    # |x|^2 is 10^16 times the distances within: a product alone sees none of them
    points = np.random.default_rng(4).normal(size=(60, 6))
    points[30:] += 1e8
    chosen = nearest(points, 3)[0]
    np.testing.assert_array_equal(chosen, brute_force(points, 3))
    assert ((chosen < 30) == (np.arange(60)[:, None] < 30)).all()


@pytest.mark.usefixtures("search")
@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1e150, 1.7e308])
def test_scale_does_not_matter(scale):
    points = np.random.default_rng(5).uniform(-1, 1, size=(30, 4))
    for metric in ("euclidean", "cosine"):
        graph = neighbor_graph(points, 3, metric=metric, weights="gaussian")
        scaled = neighbor_graph(points * scale, 3, metric=metric, weights="gaussian")
        np.testing.assert_allclose(scaled.toarray(), graph.toarray(), rtol=1e-9)


@pytest.mark.usefixtures("search")
@pytest.mark.parametrize("weights", ["binary", "gaussian"])
def test_copies_of_a_point(weights):
    points = np.zeros((20, 3))
    points[12:] = np.random.default_rng(6).normal(size=(8, 3))
    graph = neighbor_graph(points, 4, weights=weights).toarray()
    assert not graph.diagonal().any()
    np.testing.assert_array_equal(graph > 0, dense_graph(points, 4) > 0)
    assert (graph[:12, :12][graph[:12, :12] > 0] == 1).all()
    others = graph[12:, :12][graph[12:, :12] > 0]
    assert others.size
    assert (others == (1 if weights == "binary" else np.exp(-50.0))).all()


@pytest.mark.usefixtures("search")
def test_many_copies_of_a_few_points():
    points = np.random.default_rng(8).integers(0, 2, (80, 2))
    np.testing.assert_array_equal(nearest(points, 3)[0], brute_force(points, 3))


@pytest.mark.usefixtures("search")
def test_all_points_the_same():
    graph = neighbor_graph(np.ones((30, 2)), 3, weights="gaussian").toarray()
    np.testing.assert_array_equal(graph, dense_graph(np.ones((30, 2)), 3))


def test_an_outlier_keeps_its_edges_in_float32():
    points = np.array([[0.0], [1e-9], [2e-9], [1.0]])
    graph = neighbor_graph(points, 1, weights="gaussian").toarray()
    assert np.float32(graph[3]).max() == np.float32(np.exp(-50.0))


@given(seed=st.integers(0, 20))
def test_permuting_points_permutes_the_graph(seed):
    rng = np.random.default_rng(seed)
    points, order = rng.normal(size=(25, 3)), rng.permutation(25)
    graph = neighbor_graph(points, 3, weights="gaussian").toarray()
    permuted = neighbor_graph(points[order], 3, weights="gaussian").toarray()
    np.testing.assert_array_equal(permuted, graph[np.ix_(order, order)])


def test_both_searches_find_the_same(monkeypatch):
    points = np.random.default_rng(7).normal(size=(300, 12)).astype(np.float32)
    by_tree = nearest(points, 9)
    monkeypatch.setattr(module, "MAX_TREE_DIMENSION", 0)
    by_product = nearest(points, 9)
    np.testing.assert_array_equal(by_tree[0], by_product[0])
    np.testing.assert_array_equal(by_tree[1], by_product[1])


GOOD = np.arange(8.0).reshape(4, 2) + 1


def with_row(value):
    points = GOOD.copy()
    points[2] = value
    return points


@pytest.mark.parametrize(
    ("points", "k", "options", "message"),
    [
        (with_row(np.nan), 1, {}, r"points\[2\] is not finite \(1 in total"),
        (with_row(np.inf), 1, {}, r"points\[2\] is not finite"),
        (with_row(0), 1, {"metric": "cosine"}, r"points\[2\] is zero.*cosine"),
        (GOOD[0], 1, {}, r"points must be of shape \(points, dimensions\), got \(2,\)"),
        (GOOD[:, :0], 1, {}, r"points must be of shape .*got \(4, 0\)"),
        (GOOD * 1j, 1, {}, "points must be real numbers, got complex128"),
        ([["a", "b"]] * 3, 1, {}, "points must be real numbers"),
        (GOOD, 0, {}, "num_neighbors must be at least 1, got 0"),
        (GOOD, -1, {}, "num_neighbors must be at least 1, got -1"),
        (GOOD, 4, {}, "num_neighbors must be below 4, the number of points, got 4"),
        (GOOD[:1], 1, {}, "num_neighbors must be below 1"),
        (GOOD[:0], 1, {}, "num_neighbors must be below 0"),
        (
            GOOD,
            1,
            {"metric": "manhattan"},
            "metric must be one of .*'euclidean', 'cosine'.*, got 'manhattan'",
        ),
        (GOOD, 1, {"weights": "linear"}, "weights must be one of .*'binary', 'gaussian'.*, got 'linear'"),
    ],
)
def test_wrong_arguments_are_named(points, k, options, message):
    with pytest.raises(ValueError, match=message):
        neighbor_graph(points, k, **options)
