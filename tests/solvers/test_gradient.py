"""Stochastic gradients: unbiased, with any optimizer and divergence, and what their solutions say is true."""

import inspect
import os
import subprocess
import sys
from functools import cache
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import oracle
import pytest
import scipy.sparse
from jax import lax
from jax.typing import DTypeLike
from problems import blocks, pair, random_S, random_W, slow

from dcdjax import Status, objective
from dcdjax import solve as solve_exactly
from dcdjax.method import decomposition, divergences, priors
from dcdjax.method.divergences import alpha, kl, squared
from dcdjax.solvers import choosing, gradient, minibatches, stochastic
from dcdjax.starts import initialize

TERMS = {
    "kl": (kl, oracle.kl),
    "squared": (squared, oracle.squared),
    "hellinger": (alpha(0.5), oracle.alpha(0.5)),
}
each_divergence = pytest.mark.parametrize("name", TERMS)


def sparse_problem(seed=0, num_words=20, num_topics=3, dtype: DTypeLike = np.float64):
    rng = np.random.default_rng(seed)
    S = random_S(rng, num_words)
    return jnp.asarray(random_W(rng, num_words, num_topics).astype(dtype)), S, scipy.sparse.csr_array(S)


def scaled(S):
    return S / (S.sum() / len(S))


def solve(W, S, **options):
    return gradient.solve(W, S, **{"key": 0, "num_batches": 3, "tol": 0.0, "max_epochs": 2, **options})


@cache
def compiled(num_batches, divergence):
    of = gradient.Problem(divergence=divergence, zeros=divergences.over_zeros(divergence))

    def all_of_them(theta, batches, prior, epoch):
        numbers = jnp.arange(num_batches, dtype=jnp.int32)
        return lax.map(lambda n: gradient.estimate(theta, batches, n, prior, epoch, of), numbers)

    return jax.jit(all_of_them)


def estimates(W, S, num_batches, divergence, prior=priors.NO_PRIOR, epoch=0):
    """The gradients by theta of all minibatches, and what they add to the objective."""
    batches = minibatches.draw(jax.random.key(1), scipy.sparse.csr_array(S), num_batches, dtype=W.dtype)
    return compiled(num_batches, divergence)(jnp.log(W), batches, prior, jnp.int32(epoch))


# --- The gradient -----------------------------------------------------------------------------------


@each_divergence
def test_on_average_over_minibatches_it_is_the_gradient(name):
    W, S, _ = sparse_problem()
    prior = priors.checked(1.3, 0.01, W.dtype)
    (whole,), (loss,) = estimates(W, S, 1, TERMS[name][0], prior)
    parts, losses = estimates(W, S, 5, TERMS[name][0], prior)
    np.testing.assert_allclose(parts.mean(0), whole, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(losses.sum(), loss, rtol=1e-12)
    for part in parts:  # each of them is another
        assert np.abs(part - whole).max() > 0.01 * np.abs(whole).max()


@pytest.mark.parametrize(("concentration", "relevance"), [(0.7, 0.0), (1.0, 0.02), (1.5, 0.02)])
def test_priors_are_in_the_gradient_and_in_the_objective(concentration, relevance):
    W, S, sparse = sparse_problem()
    mean_row = S.sum() / len(S)

    def dense(theta):
        W = oracle.softmax(theta)
        return oracle.objective(W, S) / mean_row + oracle.penalty(W, concentration, relevance)

    prior = priors.checked(concentration, relevance, W.dtype)
    (whole,), _ = estimates(W, S, 1, kl, prior)
    theta = np.log(np.asarray(W))
    np.testing.assert_allclose(whole, oracle.finite_differences(dense, theta), rtol=1e-5, atol=1e-7)
    if concentration == 1.5:
        options = {"concentration": concentration, "relevance": relevance}
        at_start = solve(W, sparse, max_epochs=0, **options).objective
        np.testing.assert_allclose(at_start, mean_row * dense(theta), rtol=1e-10)
        exactly = solve_exactly(W, sparse, max_steps=0, **options).objective
        np.testing.assert_allclose(at_start, exactly, rtol=1e-10)


def test_what_is_not_finite_at_the_end_is_said():
    W, _, sparse = sparse_problem()
    wild = {"divergence": alpha(4.0), "optimizer": optax.sgd(1e6), "num_batches": 1, "max_epochs": 1}
    found = solve(W.astype(np.float32), sparse, **wild)
    assert not np.isfinite(found.objective)
    assert found.status == Status.NONFINITE


def test_each_epoch_has_its_concentration():
    """The last one's from then on."""
    W, S, sparse = sparse_problem()
    for epoch, concentration in ((0, 1.1), (1, 1.9), (5, 1.9)):
        got = estimates(W, S, 1, kl, priors.checked(np.array([1.1, 1.9]), 0.0, W.dtype), epoch)
        chex.assert_trees_all_equal(got, estimates(W, S, 1, kl, priors.checked(concentration, 0.0, W.dtype)))
    still = solve(W, sparse, optimizer=optax.sgd(0.0), concentration=np.array([1.1, 1.9]), max_epochs=3)
    assert (still.status, still.num_steps) == (Status.CONVERGED, 2)  # not before the last of them
    expected = [
        oracle.objective(np.asarray(W), S) + S.sum() / 20 * oracle.penalty(np.asarray(W), concentration, 0.0)
        for concentration in (1.1, 1.9)
    ]
    np.testing.assert_allclose(still.objective, expected[1], rtol=1e-10)
    np.testing.assert_allclose(still.history.objective[1:3], expected, rtol=1e-10)


# --- What is done with it ---------------------------------------------------------------------------


def test_one_minibatch_is_gradient_descent():
    W, S, sparse = sparse_problem()
    rate, theta, seen = 0.05, np.log(np.asarray(W)), []
    for _ in range(2):
        seen.append(oracle.objective(oracle.softmax(theta), S))
        theta = theta - rate * oracle.finite_differences(
            lambda theta: oracle.objective(oracle.softmax(theta), scaled(S)), theta
        )
    solution = solve(W, sparse, num_batches=1, optimizer=optax.sgd(rate))
    np.testing.assert_allclose(solution.W, oracle.softmax(theta), rtol=1e-6)
    np.testing.assert_allclose(solution.history.objective[1:], seen, rtol=1e-6)  # where it was visited


OPTIMIZERS = {
    "the usual": None,
    "momentum": optax.sgd(0.05, momentum=0.5, nesterov=True),
    "adam on a schedule": optax.adam(optax.cosine_decay_schedule(0.2, 30)),
    "clipped": optax.chain(optax.clip_by_global_norm(1.0), optax.scale_by_rms(), optax.scale(-0.1)),
    "looks at the objective": optax.chain(optax.adam(0.2), optax.contrib.reduce_on_plateau()),
}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("the usual", np.float32), ("clipped", np.float32), *((name, np.float64) for name in OPTIMIZERS)],
)
def test_any_optimizer(name, dtype):
    W, S, sparse = sparse_problem(dtype=dtype)
    solution = solve(W, sparse, optimizer=OPTIMIZERS[name], max_epochs=8)
    assert solution.W.dtype == solution.objective.dtype == solution.history.objective.dtype == dtype
    tolerance = 1e-5 if dtype == np.float32 else 1e-10
    np.testing.assert_allclose(solution.W.sum(axis=1), 1, rtol=tolerance)
    assert (np.asarray(solution.W) >= decomposition.smallest_weight(dtype)).all()
    expected = oracle.objective(np.asarray(solution.W, np.float64), S)
    np.testing.assert_allclose(solution.objective, expected, rtol=tolerance)
    assert float(solution.objective) < 0.97 * oracle.objective(np.asarray(W, np.float64), S)


def test_an_optimizer_is_told_the_objective():
    """As a minibatch estimates it: of one minibatch, itself."""
    W, _, sparse = sparse_problem()

    def update(moves, memory, params=None, *, value, **_):
        return jax.tree.map(jnp.zeros_like, moves), value

    told: Any = optax.GradientTransformationExtraArgs
    told = told(lambda theta: jnp.zeros((), theta.dtype), update)
    batches = minibatches.draw(jax.random.key(0), sparse, 1, dtype=W.dtype)
    for d, prior in ((kl, priors.checked(1.5, 0.0, W.dtype)), (squared, priors.NO_PRIOR)):
        of = gradient.Problem(divergence=d, zeros=divergences.over_zeros(d))
        method = gradient.method(batches, prior, told, of)
        (_, value), _ = jax.jit(method.visit)(method.init(W), jnp.int32(0), jnp.int32(0))
        np.testing.assert_allclose(value, stochastic.objective(method, W, jnp.int32(0)), rtol=1e-10)


def test_schedules_count_minibatches_and_standing_still_is_convergence():
    W, _, sparse = sparse_problem()
    stops = optax.sgd(optax.piecewise_constant_schedule(0.05, {6: 0.0}))
    solution = solve(W, sparse, optimizer=stops, tol=1e-9, max_epochs=9)
    assert (solution.status, solution.num_steps) == (Status.CONVERGED, 3)
    change = solution.history.change
    assert (change[1:3] > 1e-3).all()
    assert change[3] == 0
    assert np.isnan(change[4:]).all()


@each_divergence
def test_the_objective_is_that_of_W(name):
    d, terms = TERMS[name]
    W, S, sparse = sparse_problem()
    concentration = 1.0 if d is kl else 1.4
    solution = solve(W, sparse, divergence=d, concentration=concentration, max_epochs=4)
    assert (solution.status, solution.num_steps) == (Status.MAX_STEPS, 4)
    if d is kl:
        np.testing.assert_allclose(solution.objective, objective(solution.W, *pair(S)), rtol=1e-12)
        return

    def dense(W):
        return oracle.total(terms, W, scaled(S)) + oracle.penalty(W, concentration, 0.0)

    np.testing.assert_allclose(solution.objective, dense(np.asarray(solution.W)), rtol=1e-10)
    assert solution.objective < 0.97 * dense(np.asarray(W))


def test_history_says_what_happened():
    W, _, sparse = sparse_problem()
    runs = [solve(W, sparse, max_epochs=t) for t in range(3)]
    np.testing.assert_allclose(runs[0].W, W, rtol=1e-12)
    history = runs[-1].history
    assert history.objective.shape == history.change.shape == history.residual.shape == (3,)
    for field in history:
        assert np.isnan(field[0])
        assert np.isfinite(field[1:]).all()
    for t in (1, 2):
        before, after = (np.asarray(runs[n].W) for n in (t - 1, t))
        change = np.linalg.norm(after - before) / np.linalg.norm(before)
        np.testing.assert_allclose(history.change[t], change, rtol=1e-8)
        np.testing.assert_allclose(history.residual[t], 0, atol=1e-12)


@pytest.mark.parametrize(
    ("divergence", "dtype", "rate"), [(kl, np.float32, 3e38), slow(squared, np.float64, np.nan)]
)
def test_an_absurd_rate_leaves_the_last_finite_W(divergence, dtype, rate):
    W, _, sparse = sparse_problem(dtype=dtype)
    absurd = optax.sgd(
        optax.join_schedules([optax.constant_schedule(0.01), optax.constant_schedule(rate)], [3])
    )
    good = solve(W, sparse, divergence=divergence, optimizer=absurd, max_epochs=1)
    solution = solve(W, sparse, divergence=divergence, optimizer=absurd, max_epochs=9)
    assert (solution.status, solution.num_steps) == (Status.NONFINITE, 2)
    np.testing.assert_allclose(solution.W, good.W, rtol=1e-6)
    np.testing.assert_allclose(solution.objective, good.objective, rtol=1e-6)
    assert np.isfinite(solution.objective)


def test_the_key_decides():
    W, _, sparse = sparse_problem()
    first, again, typed, other = (solve(W, sparse, key=key) for key in (3, 3, jax.random.key(3), 4))
    chex.assert_trees_all_equal(first, again, typed)
    assert np.abs(first.W - other.W).max() > 1e-4
    draw_key, _ = jax.random.split(jax.random.key(3))
    drawn = minibatches.draw(draw_key, sparse, 3, dtype=W.dtype)
    chex.assert_trees_all_equal(solve(W, drawn, key=3), first)
    assert np.abs(solve(W, drawn, key=5).W - first.W).max() > 1e-4  # the same minibatches in another order


def test_each_minibatch_once_an_epoch_in_another_order():
    def visit(carried, number, epoch):
        W, seen, at = carried
        return (W + 1, seen.at[at].set(number), at + 1), jnp.zeros(())

    method = stochastic.Method(
        init=lambda W: (W, jnp.full(20, -1, jnp.int32), jnp.int32(0)),
        visit=visit,
        weights=lambda carried: carried[0],
        sweep=lambda W, number: decomposition.Sweep(ZW=W, log_likelihood=jnp.zeros(())),
        remainder=lambda W, epoch: jnp.zeros(()),
        unit=jnp.ones(()),
        num_batches=5,
    )
    state = stochastic.begin(method, jnp.ones((2, 2)), jax.random.key(0), max_epochs=4)
    orders = np.asarray(stochastic.advance(method, state, until=4, tol=0.0).carried[1]).reshape(4, 5)
    np.testing.assert_array_equal(np.sort(orders), np.tile(np.arange(5), (4, 1)))
    assert len(set(map(tuple, orders))) == 4


@each_divergence
def test_planted_blocks_are_found(name):
    S, labels = blocks(3, 6)
    start = initialize.uniform(jax.random.key(2), 18, 3)
    options = {"divergence": TERMS[name][0], "optimizer": optax.adam(0.1), "max_epochs": 150}
    solution = solve(start, scipy.sparse.csr_array(S), **options)
    found = np.asarray(solution.W).argmax(1)
    assert len(set(zip(labels, found, strict=True))) == 3 == len(set(found))
    best = 18 * 6 * np.log(6) if name == "kl" else 0  # Shat = S / 6
    np.testing.assert_allclose(solution.objective, best, rtol=0.02, atol=0.2)


# --- Properties that cross folders ------------------------------------------------------------------


def test_one_trace_per_shape(monkeypatch):
    chex.clear_trace_counter()
    traced = chex.assert_max_traces(inspect.unwrap(stochastic.run), n=2)
    static = ("make_method", "settings", "max_epochs")
    monkeypatch.setattr(stochastic, "run", jax.jit(traced, static_argnames=static))
    problems = [sparse_problem(seed) for seed in range(3)]
    for n, (W, S, _) in enumerate(problems):
        for order in (1.0, 0.5):
            solve(W, S + 1e-3, divergence=alpha(order), tol=10.0**-n, max_epochs=1)
    W, S, _ = problems[0]
    with pytest.raises(AssertionError, match="traced"):
        solve(W, S + 1e-3, divergence=squared, max_epochs=1)


@pytest.mark.slow
def test_inside_jit_and_vmap():
    W, _, sparse = sparse_problem()
    other = sparse_problem(1)[0]
    batches = minibatches.draw(jax.random.key(0), sparse, 3, dtype=W.dtype)
    together = jax.jit(jax.vmap(lambda W: solve(W, batches).W))(jnp.stack([W, other]))
    for got, start in zip(together, (W, other), strict=True):
        np.testing.assert_allclose(got, solve(start, batches).W, rtol=1e-9)


SEVERAL = """
import jax, sys
jax.config.update("jax_num_cpu_devices", 3)
jax.config.update("jax_enable_x64", True)
sys.path[:0] = [{tests!r}, {tests!r} + "/.."]
import chex, numpy as np, oracle
from test_gradient import sparse_problem, solve
from dcdjax.solvers import choosing, gradient
from dcdjax.method.divergences import kl, squared
assert len(jax.devices()) == 3
W, S, sparse = sparse_problem(num_words=31)
for divergence in (kl, squared):
    several, one = (
        solve(W, sparse, divergence=divergence, devices=jax.devices()[:n], concentration=1.2) for n in (3, 1)
    )
    several, one = (jax.tree.map(np.asarray, each) for each in (several, one))
    chex.assert_trees_all_close(several, one, rtol=1e-9, atol=1e-12)
choice = choosing.alpha(W, sparse, S, key=0, orders=(0.5,), max_epochs=1, devices=jax.devices())
expected = oracle.objective(np.asarray(choice.solution.W), S) / S.sum()
np.testing.assert_allclose(choice.losses[0.5], expected, rtol=1e-9)
"""


@pytest.mark.slow
def test_several_devices_give_what_one_gives(cached):
    done = subprocess.run(
        [sys.executable, "-c", SEVERAL.format(tests=os.path.dirname(__file__))],
        capture_output=True, text=True, timeout=300, env=cached,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


# --- Which divergence -------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_order_that_predicts_best_is_chosen():
    W, _, _ = sparse_problem(dtype=np.float32)
    rng = np.random.default_rng(0)
    rates = 3 * oracle.shat(random_W(rng, 20, 3, 0.2)) * 20
    S, C = (np.triu(rng.poisson(rates)) for _ in range(2))
    S, C = S + S.T + np.eye(20), (C + C.T).astype(float)
    orders = (0.5, 1.0, 2.0)
    options: dict[str, Any] = {"key": 0, "num_batches": 2, "max_epochs": 5}
    choice = choosing.alpha(W, scipy.sparse.csr_array(S), pair(C), orders=orders, **options)
    assert tuple(choice.losses) == orders
    assert choice.order == min(orders, key=choice.losses.__getitem__)
    assert len(set(choice.losses.values())) == 3
    for order in orders:
        alone = gradient.solve(W, scipy.sparse.csr_array(S), divergence=alpha(order), **options)
        expected = oracle.objective(np.asarray(alone.W, np.float64), C) / C.sum()
        np.testing.assert_allclose(choice.losses[order], expected, rtol=1e-5)
        if order == choice.order:
            chex.assert_trees_all_equal(choice.solution, alone)
    worst = max(orders, key=choice.losses.__getitem__)  # wherever the best stands
    for two in ((choice.order, worst), (worst, choice.order)):
        again = choosing.alpha(W, scipy.sparse.csr_array(S), C, orders=two, **options)  # C, dense
        assert again.order == choice.order


S_IDX = np.array([[0, 1], [1, 0]], np.int32)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"orders": ()}, "orders must be some numbers, got none"),
        ({"orders": np.array([])}, "orders must be some numbers, got none"),
        ({"orders": (1.0, -1.0)}, "alpha must be positive and finite, got -1.0"),
        ({"held_out": (S_IDX, np.ones(3))}, r"held_out.*S_val must be of shape \(2,\)"),
        ({"held_out": (S_IDX[0], np.ones(2))}, r"held_out.*S_idx must be of shape \(nonzeros, 2\)"),
        ({"held_out": (S_IDX + 3, np.ones(2))}, r"held_out.*S_idx\[0\] = \(3, 4\) is outside of 4 words"),
        ({"held_out": (S_IDX, -np.ones(2))}, r"held_out.*S_val\[0\] = -1.0"),
        ({"held_out": (S_IDX, np.zeros(2))}, "held_out has no counts"),
        ({"held_out": np.eye(5)}, "^held_out has 5 words where 4 are expected"),
        ({"held_out": None}, "held_out must be .*got NoneType"),
        ({"num_batches": 0}, "num_batches must be at least 1, got 0"),
    ],
)
@pytest.mark.usefixtures("unchecked_annotations")
def test_wrong_arguments_of_a_choice_are_named(arguments, message):
    good = {"W": np.full((4, 2), 0.5), "S": np.eye(4), "held_out": np.eye(4), "key": 0}
    with pytest.raises(ValueError, match=message):
        choosing.alpha(**{**good, **arguments})


# --- Wrong arguments --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"W": np.ones(4)}, r"W must be \(words, topics\).*got shape \(4,\)"),
        ({"W": np.ones((3, 2))}, "S has 4 words where 3 are expected"),
        ({"W": np.ones((4, 2), int)}, "W must be float32 or float64, got int64"),
        ({"W": np.array([[1, 1], [1, -1], [1, 1], [1, 1.0]])}, r"W\[1, 1\] = -1.0 is not .*positive"),
        ({"S": "S.npz"}, "S must be a scipy sparse matrix, a square array or a pair"),
        (
            {"S": minibatches.draw(jax.random.key(0), np.eye(4), 2)},
            "W is float64, but S was drawn for float32",
        ),
        (
            {"S": minibatches.draw(jax.random.key(0), np.eye(5), 2, dtype=np.float64)},
            "W has 4 words, but S has 5",
        ),
        ({"key": None}, "key must be a whole number, got None"),
        ({"key": -1}, "key must be at least 0, got -1"),
        ({"optimizer": "adam"}, "optimizer must be one of optax, got 'adam'"),
        ({"optimizer": optax.adam}, "optimizer must be one of optax, got <function adam"),
        ({"divergence": "kl"}, "divergence must be a function of S and Shat, got 'kl'"),
        ({"num_batches": 0}, "num_batches must be at least 1, got 0"),
        ({"num_batches": 2.5}, "num_batches must be a whole number, got 2.5"),
        ({"tol": -1.0}, "tol must be nonnegative, got -1.0"),
        ({"max_epochs": -1}, "max_epochs must be at least 0, got -1"),
        ({"concentration": 0.0}, "concentration must be positive and finite, got 0.0"),
        ({"relevance": -1.0}, "relevance must be nonnegative and finite, got -1.0"),
    ],
)
@pytest.mark.usefixtures("unchecked_annotations")
def test_wrong_arguments_are_named(arguments, message):
    good = {"W": np.full((4, 2), 0.5), "S": np.eye(4), "key": 0}
    with pytest.raises(ValueError, match=message):
        gradient.solve(**{**good, **arguments})
