"""Priors of W: the step with them, what never rises with them, and what they do to W."""

import os
import shutil
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
import scipy.optimize
import scipy.special
from eight_devices import run
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import blocks, full_pair, problems, random_S, random_W, slow

from dcdjax import Status, prepare, solve, solve_restarts
from dcdjax.devices import native
from dcdjax.method import decomposition, priors
from dcdjax.method.priors import Prior
from dcdjax.solvers import full_batch

DTYPES = [np.float32, np.float64]
FEW = 0.3  # b, of the penalty on topics


# --- The formulas, in float64 -----------------------------------------------------------------------


def penalty(W, alpha=1.0, rho=0.0):
    N, r = W.shape
    return -(alpha - 1) / r * np.log(W).sum() + rho * N * np.log(1 + W.sum(0) / FEW).sum()


def penalized(W, S, alpha=1.0, rho=0.0):
    """In the units of S, as a solution has it."""
    return oracle.objective(W, S) + S.sum() / len(S) * penalty(W, alpha, rho)


def size(W, S, alpha=1.0, rho=0.0):
    """Of the terms that are summed, which cancel."""
    return abs(oracle.objective(W, S)) + S.sum() / len(S) * (
        abs(penalty(W, alpha)) + abs(penalty(W, rho=rho))
    )


def majorizer_parts(W, S, alpha, rho):
    """(A, B) of sum_ik (B_ik V_ik - A_ik log V_ik), which touches the penalized objective of V at W."""
    N, r = W.shape
    plus, minus = oracle.gradient_parts(W, S * N / S.sum())
    few, many = max(1 - alpha, 0) / r, max(alpha - 1, 0) / r
    return W * minus + many, plus + rho * N / (W.sum(0) + FEW) + few / W


def step(W, S, alpha=1.0, rho=0.0):
    """A_ik / (B_ik + lam_i), lam_i by bisection of its distance from the nearest pole."""
    A, B = majorizer_parts(W, S, alpha, rho)
    poles = B - B.min(1, keepdims=True)
    low, high = np.full((len(W), 1), -700.0), np.full((len(W), 1), 700.0)
    for _ in range(200):
        middle = (low + high) / 2
        too_low = (A / (poles + np.exp(middle))).sum(1, keepdims=True) > 1
        low, high = np.where(too_low, middle, low), np.where(too_low, high, middle)
    return A / (poles + np.exp(low))


KINDS = [(0.3, 0.0), (0.9, 0.0), (4.0, 0.0), (1.0, 0.05), (0.3, 0.05), (4.0, 0.3)]


def problem(seed=0, num_words=20, num_topics=4, concentration=1.0):
    rng = np.random.default_rng(seed)
    return random_W(rng, num_words, num_topics, concentration), random_S(rng, num_words)


@pytest.mark.parametrize(("alpha", "rho"), KINDS)
def test_majorizer_lies_above_and_touches(alpha, rho):
    rng = np.random.default_rng(0)
    for seed in range(20):
        W, S = problem(seed, concentration=0.3)
        S *= len(S) / S.sum()
        A, B = majorizer_parts(W, S, alpha, rho)
        for spread in (1e-3, 0.3, 3.0):
            V = W * np.exp(spread * rng.normal(size=W.shape))
            V /= V.sum(1, keepdims=True)
            above = (B * (V - W) - A * np.log(V / W)).sum()
            rise = penalized(V, S, alpha, rho) - penalized(W, S, alpha, rho)
            assert rise <= above + 1e-9 * size(W, S, alpha, rho)
            if spread == 1e-3:  # it touches: the difference is of second order
                assert above - rise < 1e-3 * spread * size(W, S, alpha, rho)


@pytest.mark.parametrize(("alpha", "rho"), KINDS)
def test_step_is_the_minimum_of_the_majorizer(alpha, rho):
    W, S = problem()
    found = solve(W, S, tol=0.0, max_steps=1, concentration=alpha, relevance=rho).W
    np.testing.assert_allclose(found, step(W, S, alpha, rho), rtol=1e-9)
    V, (A, B) = np.asarray(found), majorizer_parts(W, S, alpha, rho)
    slopes = B - A / V  # on the simplex, at its minimum, equal in a row
    np.testing.assert_allclose(slopes, np.broadcast_to(slopes.mean(1, keepdims=True), V.shape), rtol=1e-7)
    for i in range(3):

        def of_row(theta, i=i):
            log_row = scipy.special.log_softmax(theta)
            return (B[i] * np.exp(log_row) - A[i] * log_row).sum()

        best = scipy.optimize.minimize(of_row, np.log(W[i]), tol=1e-12)
        np.testing.assert_allclose(V[i], scipy.special.softmax(best.x), atol=1e-5)


@pytest.mark.parametrize(("alpha", "rho"), KINDS)
def test_many_steps(alpha, rho):
    W, S = problem()
    expected, objectives = W, [penalized(W, S, alpha, rho)]
    for _ in range(15):
        expected = np.maximum(step(expected, S, alpha, rho), np.finfo(float).eps ** 2)
        objectives.append(penalized(expected, S, alpha, rho))
    found = solve(W, S, tol=0.0, max_steps=15, concentration=alpha, relevance=rho)
    np.testing.assert_allclose(found.W, expected, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(found.history.objective, objectives, rtol=1e-9)
    np.testing.assert_allclose(found.objective, penalized(np.asarray(found.W), S, alpha, rho), rtol=1e-12)


# --- What never rises -------------------------------------------------------------------------------


@partial(jax.jit, static_argnames=("eta", "max_steps"))
def traced(W, S_idx, S_val, alpha, rho, eta=1.0, max_steps=60):
    """All zeros of S stored and everything traced: compiled once for all problems."""
    return solve(
        W, (S_idx, S_val), tol=0.0, max_steps=max_steps, over_relaxation=eta,
        concentration=alpha, relevance=rho,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("eta", [1.0, 1.9])
def test_penalized_objective_never_rises(eta, dtype):
    rng = np.random.default_rng(0)
    for n in range(60):
        alpha = rng.choice([1e-3, 0.1, 0.5, 0.9, 1.0, 1.1, 2.0, 10.0, 1e3])
        rho = rng.choice([0, 0.01, 0.1, 1, 10])
        S = random_S(rng, 20, spread=2.0) if n % 2 else blocks(4, 5)[0]
        W = random_W(rng, 20, 6, concentration=rng.choice([0.1, 1.0])).astype(dtype)
        found = traced(W, *full_pair(S, dtype), alpha.astype(dtype), np.asarray(rho, dtype), eta=eta)
        W = np.asarray(found.W, np.float64)
        scale = size(W, S, alpha, rho)
        history = np.asarray(found.history.objective, np.float64)
        assert np.nanmax(np.diff(history)) <= 30 * np.finfo(dtype).eps * scale, (alpha, rho)
        assert float(found.objective) == history[found.num_steps] < history[0]
        np.testing.assert_allclose(W.sum(1), 1, rtol=1e-5)
        error = abs(float(found.objective) - penalized(W, S, alpha, rho))
        assert error <= 200 * np.finfo(dtype).eps * scale


@pytest.mark.slow
@settings(max_examples=60)
@given(problems(), st.floats(-3, 3), st.sampled_from([0.0, 0.01, 1.0]))
def test_the_same_of_any_problem(given_problem, exponent, rho):
    W, S = given_problem
    alpha = 10.0**exponent
    found = traced(W, *full_pair(S), np.asarray(alpha), np.asarray(rho), max_steps=5)
    on_simplex = np.maximum(W / W.sum(1, keepdims=True), np.finfo(float).eps ** 2)
    history = np.asarray(found.history.objective)
    scale = size(np.asarray(found.W), S, alpha, rho) + size(on_simplex, S, alpha, rho)
    assert np.nanmax(np.diff(history)) <= 1e-13 * scale
    assert abs(history[0] - penalized(on_simplex, S, alpha, rho)) <= 1e-12 * scale


@pytest.mark.slow
def test_over_relaxed_steps_are_judged_with_the_penalty(monkeypatch):
    """Over-relaxation made harmful to the penalty alone: every such step leads to few topics a word."""
    W, S = problem()
    W, sharp = (np.asarray(solve(W, S, max_steps=60, concentration=alpha).W) for alpha in (2.0, 1.0))
    assert oracle.objective(sharp, S) < oracle.objective(W, S)
    assert penalized(sharp, S, 2.0) > penalized(W, S, 2.0)
    monkeypatch.setattr(decomposition, "over_relax", lambda W, W_step, eta: jnp.asarray(sharp))
    with jax.disable_jit():
        found = solve(W, S, tol=0.0, max_steps=4, over_relaxation=1.7, concentration=2.0)
    np.testing.assert_array_equal(found.history.change[1::2], 0)  # refused
    np.testing.assert_allclose(found.W, step(step(W, S, 2.0), S, 2.0), rtol=1e-7)


# --- The terms --------------------------------------------------------------------------------------


def numbers(alpha=None, rho=None):
    return Prior(
        concentration=None if alpha is None else jnp.atleast_1d(jnp.asarray(alpha, float)),
        relevance=None if rho is None else jnp.asarray(rho, float),
    )


@pytest.mark.parametrize(("alpha", "rho"), KINDS)
def test_penalty_and_its_gradient(alpha, rho):
    W, _ = problem(num_words=3)
    prior = numbers(alpha, rho)
    value, gradient = jax.value_and_grad(lambda W: priors.penalty(prior, jnp.int32(7), W))(jnp.asarray(W))
    np.testing.assert_allclose(value, penalty(W, alpha, rho), rtol=1e-12)
    for at in np.ndindex(W.shape):
        moved = np.zeros_like(W)
        moved[at] = 1e-6 * W[at]
        slope = (penalty(W + moved, alpha, rho) - penalty(W - moved, alpha, rho)) / (2 * moved[at])
        np.testing.assert_allclose(gradient[at], slope, rtol=1e-6, atol=1e-7)


def test_penalty_leaves_padding_out():
    W, _ = problem(num_words=7)
    padded = jnp.where(jnp.arange(7)[:, None] < 5, W, 0)
    found = priors.penalty(numbers(0.4, 0.2), jnp.int32(0), padded, 5)
    np.testing.assert_allclose(found, penalty(W[:5], 0.4, 0.2), rtol=1e-12)
    gradient = jax.grad(lambda W: priors.penalty(numbers(0.4), jnp.int32(0), W, 5))(padded)
    assert np.isfinite(gradient).all()


# --- What is asked for ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_asked_for_is_nothing(dtype):
    W, S = problem(num_words=18)
    W, layout = jnp.asarray(W.astype(dtype)), prepare(S, dtype=dtype)
    options = {"tol": 0.0, "max_steps": 6, "over_relaxation": 1.9}
    plain = solve(W, layout, **options)
    program: Any = full_batch.run
    compiled = program._cache_size()
    for concentration in (1, 1.0, np.float32(1), [1.0, 1.0], jnp.ones(3)):
        same = solve(W, layout, concentration=concentration, relevance=0, **options)
        jax.tree.map(np.testing.assert_array_equal, same, plain)
    assert program._cache_size() == compiled
    solve(W, layout, concentration=2.0, **options)
    solve(W, layout, concentration=0.2, **options)  # another number is no other program
    assert program._cache_size() == compiled + 1


def test_prior_of_one_is_none_but_for_rounding():
    W, S = problem()
    one = traced(jnp.asarray(W), *full_pair(S), np.asarray(1.0), np.asarray(0.0), max_steps=10)
    plain = solve(W, S, tol=0.0, max_steps=10)
    np.testing.assert_allclose(one.W, plain.W, rtol=1e-9)
    np.testing.assert_allclose(one.objective, plain.objective, rtol=1e-12)


@pytest.mark.parametrize("name", ["concentration", "relevance"])
@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf, np.ones(0), np.ones((1, 2))])
@pytest.mark.parametrize("solver", [solve, solve_restarts])
def test_bad_values_are_named(solver, name, value):
    W, S = problem()
    with pytest.raises(ValueError, match=name):
        solver(W if solver is solve else W[None], S, **{name: value})


@pytest.mark.parametrize(
    "wrong", [{"concentration": 0.0}, {"concentration": [2.0, 1.0, 0.0]}, {"relevance": np.ones(1)}]
)
def test_other_bad_values_are_named(wrong):
    W, S = problem()
    with pytest.raises(ValueError, match=next(iter(wrong))):
        solve(W, S, **wrong)


@pytest.mark.parametrize("wrong", [{"concentration": 2.0}, {"relevance": 0.1}])
def test_the_papers_step_knows_no_priors(wrong):
    W, S = problem()
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} needs step='exact'"):
        solve(W, S, step="relaxed", **wrong)
    solve(W, S, step="relaxed", concentration=1.0, relevance=0.0, max_steps=1)


# --- What it does -----------------------------------------------------------------------------------


def entropy(W):
    W = np.asarray(W, np.float64)
    return -(W * np.log(W)).sum(1).mean()


@pytest.mark.parametrize("dtype", DTYPES)
def test_concentration_sparsifies_and_smooths(dtype):
    W, S = problem(num_words=20, num_topics=6)
    alphas = [0.1, 0.5, 0.9, 1.0, 1.1, 2.0, 10.0]
    entropies = [
        entropy(traced(W.astype(dtype), *full_pair(S, dtype), dtype(alpha), dtype(0)).W) for alpha in alphas
    ]
    assert (np.diff(entropies) > 0).all(), entropies
    assert entropies[0] < 0.3 * np.log(6)
    assert entropies[-1] > 0.9 * np.log(6)


def test_relevance_lets_topics_die():
    S, _ = blocks(4, 5)
    W, _ = problem(num_topics=6)
    held = [
        (np.asarray(traced(W, *full_pair(S), np.asarray(1.0), np.asarray(rho), max_steps=300).W.sum(0)) > 0.5)
        .sum()
        for rho in (0.0, 0.05, 100.0)
    ]  # fmt: skip
    assert held == [6, 4, 1]


# --- Annealing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [0.0, 0.05])
@pytest.mark.parametrize("alphas", [[5.0, 2.0, 1.0], [0.5, 4.0, 0.8]])
def test_annealed_step_by_step(alphas, rho):
    W, S = problem()
    expected, objectives = W, [penalized(W, S, alphas[0], rho)]
    for t in range(6):
        alpha = alphas[min(t, 2)]
        expected = step(expected, S, alpha, rho)
        objectives.append(penalized(expected, S, alpha, rho))
    found = solve(W, S, tol=0.0, max_steps=6, concentration=alphas, relevance=rho)
    np.testing.assert_allclose(found.W, expected, rtol=1e-7)
    np.testing.assert_allclose(found.history.objective, objectives, rtol=1e-10)
    np.testing.assert_allclose(
        found.objective, penalized(np.asarray(found.W), S, alphas[-1], rho), rtol=1e-12
    )


@pytest.mark.parametrize(("first", "last"), [slow(30.0, 0.3), (0.3, 3.0)])
def test_annealed_and_over_relaxed(first, last):
    """Each step is judged by its own concentration: what the next one makes of W is no rise."""
    W, S = problem()
    alphas = np.geomspace(first, last, 20)
    options = {"tol": 0.0, "over_relaxation": 1.9, "concentration": alphas}
    found = solve(W, S, max_steps=40, **options)
    # There is no reason to refuse more than a step or two.
    assert np.mean(np.asarray(found.history.change[1:]) == 0) < 0.1
    np.testing.assert_allclose(found.objective, penalized(np.asarray(found.W), S, last), rtol=1e-12)
    kept = np.asarray(found.history.objective[21:])
    assert np.diff(kept).max() <= 1e-13 * size(np.asarray(found.W), S, last)
    for t in (1, 7, 8):
        W_t = np.asarray(solve(W, S, max_steps=t, **options).W)
        np.testing.assert_allclose(found.history.objective[t], penalized(W_t, S, alphas[t - 1]), rtol=1e-11)


def test_nothing_converges_before_the_last_concentration():
    W, S = problem()
    alphas = [1.2] * 200 + [0.5]
    assert solve(W, S, tol=1e-2, max_steps=300, concentration=1.2).num_steps < 200
    found = solve(W, S, tol=1e-2, max_steps=300, concentration=alphas)
    assert 201 < found.num_steps < 300
    assert found.status == Status.CONVERGED
    np.testing.assert_allclose(found.objective, penalized(np.asarray(found.W), S, 0.5), rtol=1e-12)


# --- Elsewhere --------------------------------------------------------------------------------------


@pytest.mark.parametrize("alphas", [0.5, slow([5.0, 2.0, 0.5])])
def test_jit_is_no_jit(alphas):
    W, S = problem()
    layout = prepare(S, dtype=np.float64, devices=jax.devices()[:1])
    options = {"tol": 0.0, "max_steps": 6, "over_relaxation": 1.5}
    plain = solve(W, layout, concentration=alphas, relevance=0.05, **options)
    inside = jax.jit(lambda W, a, b: solve(W, layout, concentration=a, relevance=b, **options))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9),
        inside(jnp.asarray(W), jnp.asarray(alphas), jnp.asarray(0.05)),
        plain,
    )
    if np.ndim(alphas):
        with jax.disable_jit():
            slow = solve(W, layout, concentration=alphas, relevance=0.05, **options)
        np.testing.assert_allclose(slow.W, plain.W, rtol=1e-9)


@pytest.mark.slow
def test_restarts_are_a_loop():
    _, S = problem()
    layout = prepare(S, dtype=np.float64)
    batch = jnp.stack([jnp.asarray(problem(seed)[0]) for seed in range(3)])
    options = {"tol": 1e-3, "max_steps": 60, "over_relaxation": 1.9}
    for asked in ({"concentration": [3.0, 1.0, 0.5]}, {"concentration": 1.5, "relevance": 0.05}):
        together = solve_restarts(batch, layout, **asked, **options)
        for n, W in enumerate(batch):
            alone = solve(W, layout, **asked, **options)
            np.testing.assert_allclose(together.W[n], alone.W, atol=1e-9)
            np.testing.assert_allclose(together.objective[n], alone.objective, rtol=1e-10)
            assert together.num_steps[n] == alone.num_steps


@pytest.mark.slow
def test_several_concentrations_at_once():
    W, S = problem()
    alphas = np.array([0.5, 1.0, 3.0])
    together = jax.vmap(lambda a: traced(W, *full_pair(S), a, np.asarray(0.0), max_steps=5).objective)(alphas)
    alone = [float(solve(W, S, tol=0.0, max_steps=5, concentration=a).objective) for a in alphas]
    np.testing.assert_allclose(together, alone, rtol=1e-10)


@pytest.mark.slow
def test_split_is_single():
    run(
        """
S = random_S(np.random.default_rng(0), 37)
annealed = {"concentration": [3.0, 1.0, 0.5], "relevance": 0.02}
smooth = {"concentration": jax.device_put(jnp.float32(1.5), devices[7])}  # bound to another device
for dtype, asked in ((jnp.float64, annealed), (jnp.float32, smooth)):
    W = initialize.uniform(jax.random.key(0), 37, 5, dtype=dtype)
    options = {"tol": 0.0, "max_steps": 8, "over_relaxation": 1.9, **asked}
    one = dcdjax.solve(W, S, devices=devices[:1], **options)
    for split in (False, True):
        many = dcdjax.solve(W, S, devices=devices[:3], split=split, **options)
        said = str((dtype, asked, split))
        np.testing.assert_allclose(many.W, one.W, atol=close[dtype], err_msg=said)
        np.testing.assert_allclose(
            many.history.objective, one.history.objective, rtol=10 * close[dtype], err_msg=said
        )
""",
        DCDJAX_NATIVE="0",
    )


@pytest.mark.slow
def test_native_step_serves_relevance_too(cached, monkeypatch):
    if not (os.environ.get("CC") or any(map(shutil.which, ("cc", "gcc", "clang")))):
        pytest.skip("no C compiler")
    monkeypatch.setenv("DCDJAX_CACHE", cached["DCDJAX_CACHE"])
    monkeypatch.delenv("DCDJAX_NATIVE", raising=False)
    if not native.available():
        pytest.skip(native.reason())
    W, S = problem(num_words=40)
    layout = prepare(S, dtype=np.float32, devices=jax.devices()[:1])
    assert layout.num_threads > 0
    calls, real = [], native.exact_step
    monkeypatch.setattr(native, "exact_step", lambda *a, **k: calls.append(0) or real(*a, **k))
    for alpha, rho, natively in [(1.0, 0.0, True), (1.0, 0.05, True), (2.0, 0.0, False), (0.5, 0.05, False)]:
        calls.clear()
        options = {"tol": 0.0, "max_steps": 3, "concentration": alpha, "relevance": rho}
        with jax.disable_jit():
            found = solve(W.astype(np.float32), layout, **options)
        assert bool(calls) == natively
        expected = step(step(step(W, S, alpha, rho), S, alpha, rho), S, alpha, rho)
        np.testing.assert_allclose(found.W, expected, rtol=2e-3, atol=1e-6)


@pytest.mark.slow
def test_a_prior_beyond_all_numbers():
    W, S = jnp.full((6, 2), 0.5, np.float32), np.ones((6, 6))
    with pytest.raises(ValueError, match="concentration must be positive and finite, got inf"):
        solve(W, S, concentration=1e39)
    assert solve(W * jnp.array([[1.0, 0.1]], np.float32), S, concentration=3e38).status == Status.NONFINITE
