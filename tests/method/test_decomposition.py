"""The mathematics against the oracle, and the paper's theorem with its two misleading neighbors."""

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
import scipy.sparse
from hypothesis import given
from problems import ROOT_KINDS, full_pair, pair, problems, random_S, random_W, root_problem

from dcdjax import divergence, lagrangian, multipliers, objective, update
from dcdjax.method import decomposition, row_root

DTYPES = [(np.float64, 1e-10), (np.float32, 2e-4)]
PUBLIC = [(update, oracle.update), (multipliers, oracle.multipliers), (objective, oracle.objective)]


def sweep_step(step, W, S_idx, S_val):
    ZW = decomposition.sweep(W, S_idx, S_val).ZW
    return step(decomposition.column_sums(W, ZW), W, ZW)


exact_update = jax.jit(lambda W, S_idx, S_val: sweep_step(decomposition.exact_step, W, S_idx, S_val))


# --- Against the oracle -----------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [*PUBLIC, (divergence, oracle.divergence), (exact_update, oracle.exact_step)],
    ids=["update", "multipliers", "objective", "divergence", "exact"],
)
@given(problem=problems())
def test_equals_the_oracle(ours, theirs, dtype, tolerance, problem):
    W, S = problem[0].astype(dtype), problem[1].astype(dtype)
    got = ours(jnp.asarray(W), *full_pair(S, dtype))
    assert got.dtype == dtype
    expected = theirs(W.astype(np.float64), S.astype(np.float64))
    # What cancels (multipliers, divergence) is as exact as the numbers it was made of.
    size = np.abs(S).max() * len(S) if ours in (multipliers, divergence) else 0.0
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * size + tolerance * 1e-2)


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
def test_lagrangian_equals_the_oracle(dtype, tolerance):
    rng = np.random.default_rng(1)
    S, W, lam = random_S(rng, 15), 1.3 * random_W(rng, 15, 4), rng.normal(size=15)
    got = lagrangian(jnp.asarray(W.astype(dtype)), jnp.asarray(lam.astype(dtype)), *pair(S, dtype))
    np.testing.assert_allclose(got, oracle.lagrangian(W, lam, S), rtol=tolerance)


@pytest.mark.parametrize("num_nonzeros_per_chunk", [1, 7, 64, 10_000])
def test_chunks_do_not_show(monkeypatch, num_nonzeros_per_chunk):
    rng = np.random.default_rng(2)
    S, W = random_S(rng, 20), random_W(rng, 20, 3)
    monkeypatch.setattr(decomposition, "CHUNK_BYTES", num_nonzeros_per_chunk * 3 * 8)
    got = decomposition.sweep(jnp.asarray(W), *pair(S))
    np.testing.assert_allclose(got.ZW, oracle.ratio(W, S) @ W, rtol=1e-12)
    np.testing.assert_allclose(got.log_likelihood, -oracle.objective(W, S), rtol=1e-12)


def test_order_of_the_nonzeros_does_not_matter():
    rng = np.random.default_rng(3)
    S, W = random_S(rng, 20), jnp.asarray(random_W(rng, 20, 3))
    S_idx, S_val = pair(S)
    order = rng.permutation(len(S_val))
    np.testing.assert_allclose(update(W, S_idx[order], S_val[order]), update(W, S_idx, S_val), rtol=1e-12)


def test_gradient_by_autodiff_is_plus_minus_minus():
    rng = np.random.default_rng(4)
    S, W = random_S(rng, 12), random_W(rng, 12, 4) * rng.uniform(0.5, 2, (12, 1))
    got = jax.grad(objective)(jnp.asarray(W), *pair(S))
    plus, minus = oracle.gradient_parts(W, S)
    np.testing.assert_allclose(got, plus - minus, rtol=1e-10, atol=1e-10)


# --- What falls, and what does not ------------------------------------------------------------------


def steps(num_problems, num_steps, step=oracle.update):
    """(W, next W, S) along many runs of the oracle's step from random starts."""
    for seed in range(num_problems):
        rng = np.random.default_rng(seed)
        S = random_S(rng, 10, spread=2.0)
        W = random_W(rng, 10, 3, concentration=0.5)
        for _ in range(num_steps):
            W_new = step(W, S)
            yield W, W_new, S
            W = W_new


@pytest.mark.parametrize(("dtype", "noise"), [(np.float64, 1e-12), (np.float32, 1e-5)])
@given(problem=problems())
def test_lagrangian_never_rises_at_fixed_multipliers(dtype, noise, problem):
    W, (S_idx, S_val) = jnp.asarray(problem[0].astype(dtype)), full_pair(problem[1], dtype)
    for _ in range(5):
        lam = multipliers(W, S_idx, S_val)
        before = lagrangian(W, lam, S_idx, S_val)
        W = update(W, S_idx, S_val)
        after = lagrangian(W, lam, S_idx, S_val)
        size = jnp.abs(objective(W, S_idx, S_val)) + jnp.sum(jnp.abs(lam))
        assert after <= before + noise * size


@pytest.mark.parametrize(("dtype", "noise"), [(np.float64, 1e-12), (np.float32, 1e-5)])
@given(problem=problems())
def test_objective_never_rises_under_the_exact_step(dtype, noise, problem):
    W, (S_idx, S_val) = jnp.asarray(problem[0].astype(dtype)), full_pair(problem[1], dtype)
    W = exact_update(W, S_idx, S_val)  # onto the simplex
    for _ in range(5):
        before = objective(W, S_idx, S_val)
        W = exact_update(W, S_idx, S_val)
        np.testing.assert_allclose(W.sum(axis=1), 1, rtol=noise)
        assert objective(W, S_idx, S_val) <= before + noise * jnp.sum(S_val)


def test_full_divergence_inside_the_lagrangian_does_rise():
    """The paper's gradient has no term for sum Shat = sum W, which is constant on the simplex only. So
    Theorem 1 is not true of the L with the full divergence, and a test of that L would be a wrong test."""
    rises = fair_rises = 0
    for W, W_new, S in steps(30, 30):
        lam = oracle.multipliers(W, S)
        rises += oracle.full_lagrangian(W_new, lam, S) > oracle.full_lagrangian(W, lam, S) + 1e-9
        fair_rises += oracle.lagrangian(W_new, lam, S) > oracle.lagrangian(W, lam, S) + 1e-9
    assert fair_rises == 0
    assert rises > 10


def test_lagrangian_with_renewed_multipliers_does_rise():
    """The majorizer is built for the lam of the W before the step. Each step changes lam too, and two
    values of L at two different lam are not values of one function."""
    rises = 0
    for W, W_new, S in steps(30, 30):
        before = oracle.lagrangian(W, oracle.multipliers(W, S), S)
        rises += oracle.lagrangian(W_new, oracle.multipliers(W_new, S), S) > before + 1e-9
    assert rises > 10


def test_objective_alone_does_rise_under_the_paper_step():
    rises = sum(oracle.objective(W_new, S) > oracle.objective(W, S) + 1e-9 for W, W_new, S in steps(30, 30))
    assert rises > 10


def test_fixed_points_stay():
    """At a stationary point on the simplex both steps return what they were given."""
    rng = np.random.default_rng(5)
    S, W = random_S(rng, 8), random_W(rng, 8, 2)
    for _ in range(3_000):
        W = oracle.update(W, S)
    W, nonzeros = jnp.asarray(W), pair(S)
    np.testing.assert_allclose(exact_update(W, *nonzeros), W, atol=1e-9)
    np.testing.assert_allclose(update(W, *nonzeros), W, atol=1e-9)


def test_a_perfect_decomposition_has_no_divergence_and_stays():
    W = random_W(np.random.default_rng(6), 9, 3)
    S = oracle.shat(W)
    assert abs(divergence(jnp.asarray(W), *pair(S))) < 1e-12
    np.testing.assert_allclose(update(jnp.asarray(W), *pair(S)), W, rtol=1e-10)
    np.testing.assert_allclose(exact_update(jnp.asarray(W), *pair(S)), W, rtol=1e-10)


# --- The root ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ROOT_KINDS)
def test_root_converges_on_every_row(kind, dtype):
    A, poles = (x.astype(dtype) for x in root_problem(kind, np.random.default_rng(7)))
    x = row_root.row_root(jnp.asarray(A), jnp.asarray(poles))
    terms = A.astype(np.float64) / (poles + np.asarray(x, dtype=np.float64))
    np.testing.assert_allclose(terms.sum(1), 1, atol=60 * np.finfo(dtype).eps)


@pytest.mark.parametrize("kind", ROOT_KINDS)
def test_root_climbs_and_never_passes(kind):
    A, poles = root_problem(kind, np.random.default_rng(8))
    x = jnp.max(jnp.asarray(A) - poles, axis=1, keepdims=True)
    for _ in range(4):
        total, closer = row_root.climb(jnp.asarray(A), jnp.asarray(poles), x)
        np.testing.assert_allclose(total, (A / (poles + x)).sum(1, keepdims=True), rtol=1e-10)
        assert (A / (poles + np.maximum(x, closer))).sum(1).min() > 1 - 1e-9
        x = jnp.maximum(x, closer)


# --- Numbers out of the ordinary --------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-20, 1e20])
def test_scale_of_S_changes_nothing_but_the_scale(scale, dtype):
    rng = np.random.default_rng(9)
    S, W = random_S(rng, 20), jnp.asarray(random_W(rng, 20, 4).astype(dtype))
    plain, scaled = pair(S, dtype), pair(S * scale, dtype)
    rtol = 1e3 * np.finfo(dtype).eps
    np.testing.assert_allclose(update(W, *scaled), update(W, *plain), rtol=rtol)
    np.testing.assert_allclose(objective(W, *scaled), scale * objective(W, *plain), rtol=rtol)
    np.testing.assert_allclose(
        multipliers(W, *scaled) / scale, multipliers(W, *plain), rtol=rtol, atol=rtol * S.sum(1).max()
    )


def test_a_topic_that_nobody_holds_in_float32():
    rng = np.random.default_rng(12)
    S, W = random_S(rng, 20), random_W(rng, 20, 4)
    W[:, 3] *= 1e-25
    got = multipliers(jnp.asarray(W.astype(np.float32)), *pair(S, np.float32))
    np.testing.assert_allclose(got, oracle.multipliers(W, S), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("scale", [1e-33, 1e34])
def test_update_at_the_ends_of_float32(scale):
    """Where Z = S / Shat, or its product with a small W, would leave the range of float32."""
    rng = np.random.default_rng(11)
    S, W = random_S(rng, 20), random_W(rng, 20, 4, concentration=0.1)
    got = update(jnp.asarray(W.astype(np.float32)), *pair(S * scale, np.float32))
    np.testing.assert_allclose(got, oracle.update(W, S), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_zeros_in_W_do_no_harm(dtype):
    """No word has topic 2, and two neighbors share no topic. Without the floor both give 0 / 0."""
    W = np.array([[1, 0, 0], [0, 1, 0], [0.5, 0.5, 0]], dtype)
    S = np.ones((3, 3))
    out = update(jnp.asarray(W), *pair(S, dtype))
    assert np.isfinite(out).all()
    assert (np.asarray(out) >= decomposition.smallest_weight(dtype)).all()


@pytest.mark.slow
def test_float32_objective_at_five_million_nonzeros():
    rng = np.random.default_rng(10)
    num_words, num_topics, half = 20_000, 20, 2_600_000
    rows = (num_words * rng.random(half) ** 2).astype(np.int32)
    columns = (num_words * rng.random(half) ** 2).astype(np.int32)
    S = scipy.sparse.coo_array((rng.gamma(0.5, size=half), (rows, columns)), shape=(num_words, num_words))
    S = scipy.sparse.coo_array(scipy.sparse.csr_array(S + S.T))
    assert S.nnz >= 5_000_000
    W = random_W(rng, num_words, num_topics, concentration=0.2).astype(np.float32)
    got = objective(jnp.asarray(W), *pair(S, np.float32))

    wide, expected = W.astype(np.float64), 0.0
    scaled, values = wide / wide.sum(0), S.data.astype(np.float32).astype(np.float64)
    for part in np.array_split(np.arange(S.nnz), 20):
        Shat = (scaled[S.row[part]] * wide[S.col[part]]).sum(1)
        expected -= (values[part] * np.log(Shat)).sum()
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_memory_does_not_grow_with_nonzeros_times_topics():
    num_words, num_topics, num_nonzeros = 20_000, 200, 6_000_000
    W = jax.ShapeDtypeStruct((num_words, num_topics), jnp.float32)
    S_idx = jax.ShapeDtypeStruct((num_nonzeros, 2), jnp.int32)
    S_val = jax.ShapeDtypeStruct((num_nonzeros,), jnp.float32)
    analysis = update.lower(W, S_idx, S_val).compile().memory_analysis()
    assert analysis is not None
    few_W = 3 * num_words * num_topics * 4
    assert analysis.temp_size_in_bytes < 64e6 + few_W


def test_memory_of_a_gradient_does_not_either():
    shapes = ((2000, 100), jnp.float32), ((500_000, 2), jnp.int32), ((500_000,), jnp.float32)
    arguments = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in shapes]
    analysis = jax.jit(jax.grad(objective)).lower(*arguments).compile().memory_analysis()
    assert analysis is not None
    assert analysis.temp_size_in_bytes < 64e6 + 1.5 * 500_000 * 100  # a fraction of 4 bytes each


# --- Wrong shapes -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("unchecked_annotations")
def test_wrong_multipliers_are_named():
    with pytest.raises(ValueError, match=r"lam must be \(3,\).*got shape \(3, 1\)"):
        lagrangian(jnp.ones((3, 2)), jnp.ones((3, 1)), jnp.zeros((1, 2), int), jnp.ones(1))


@pytest.mark.usefixtures("unchecked_annotations")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((jnp.ones(3), jnp.zeros((1, 2), int), jnp.ones(1)), "W must be"),
        ((jnp.ones((3, 0)), jnp.zeros((1, 2), int), jnp.ones(1)), "W must be"),
        ((jnp.ones((3, 2), int), jnp.zeros((1, 2), int), jnp.ones(1)), "W must be floating"),
        ((jnp.ones((3, 2)), jnp.zeros((1, 3), int), jnp.ones(1)), "S_idx must be"),
        ((jnp.ones((3, 2)), jnp.zeros((1, 2)), jnp.ones(1)), "S_idx must be"),
        ((jnp.ones((3, 2)), jnp.zeros((1, 2), int), jnp.ones(2)), "S_val must be"),
        ((jnp.ones((3, 2)), jnp.zeros((0, 2), int), jnp.ones(0)), "S_val is empty"),
    ],
)
@pytest.mark.parametrize("function", [update, multipliers, objective, divergence])
def test_wrong_shapes_are_named(function, arguments, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments)
