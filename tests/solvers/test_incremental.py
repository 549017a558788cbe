"""A step after each minibatch: what it is, and how soon it is ahead."""

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
import scipy.sparse
from problems import blocks, dense, random_S, random_W

from dcdjax import Status, solve
from dcdjax.solvers import incremental, minibatches, stochastic
from dcdjax.starts import initialize


def problem(seed=0, num_words=30, num_topics=4, num_batches=3):
    rng = np.random.default_rng(seed)
    S = random_S(rng, num_words)
    W = jnp.asarray(random_W(rng, num_words, num_topics))
    batches = minibatches.draw(jax.random.key(seed), scipy.sparse.csr_array(S), num_batches, dtype=W.dtype)
    return W, S, batches


def parts_of(batches):
    return [dense(batches.layout(jnp.int32(n))) for n in range(batches.num_batches)]


def T_of(W, S):
    """T_ik = sum_j S_ij q_ijk, term by term."""
    q = W[:, None, :] * W[None, :, :] / W.sum(0)
    q /= q.sum(2, keepdims=True)
    return np.einsum("ij,ijk->ik", S, q)


def stepped(W, T, eta):
    """The exact step by T, over-relaxed: from the formula of the module's first lines."""
    plus = T.sum(0) / W.sum(0)
    root = oracle.row_root(2 * T, np.tile(plus - plus.min(), (len(W), 1)))
    new = 2 * T / (plus - plus.min() + root[:, None])
    new = W * (new / W) ** eta
    return new / new.sum(1, keepdims=True)


def visited(eta, W, batches, numbers):
    """W after each minibatch."""
    method = incremental.method(batches, eta)
    visit = jax.jit(method.visit)
    carried, found = method.init(W), []
    for number in numbers:
        carried, loss = visit(carried, jnp.int32(number), jnp.int32(0))
        found.append((np.asarray(method.weights(carried)), float(loss)))
    return found


# --- The steps --------------------------------------------------------------------------------------


def test_average_is_as_it_is_written():
    W, S, batches = problem()
    parts, M, eta = parts_of(batches), 3, 1.9
    degrees = (S / (S.sum() / len(S))).sum(1)
    expected, T = np.asarray(W), np.asarray(W) * degrees[:, None]
    order = [2, 0, 1, 1, 2, 0]
    for n, (number, (got, loss)) in enumerate(zip(order, visited(eta, W, batches, order), strict=True)):
        np.testing.assert_allclose(loss, oracle.objective(expected, parts[number]), rtol=1e-9)
        g = 0.9 / (1 + n / M)
        T = (1 - g) * T + g * M * T_of(expected, parts[number])
        T *= (degrees / T.sum(1))[:, None]
        expected = stepped(expected, T, eta)
        np.testing.assert_allclose(got, expected, rtol=1e-7, atol=1e-12)


# --- The solution -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_solution_is_what_it_says(dtype):
    W, S, _ = problem()
    found = incremental.solve(W.astype(dtype), S, key=0, num_batches=2, tol=0.0, max_epochs=4)
    assert found.W.dtype == dtype
    np.testing.assert_allclose(found.W.sum(axis=1), 1, rtol=1e-5)
    expected = oracle.objective(np.asarray(found.W, np.float64), S)
    np.testing.assert_allclose(found.objective, expected, rtol=2e-5 if dtype == np.float32 else 1e-10)
    assert found.status == Status.MAX_STEPS.value
    assert found.num_steps == 4
    assert found.history.objective.shape == (5,)
    assert np.isfinite(found.history.objective[1:]).all()
    assert np.isfinite(found.history.change[1:]).all()
    assert np.nanmax(found.history.residual) < 1e-5
    assert float(found.objective) < oracle.objective(np.asarray(W), S)


def test_it_converges_where_S_is_clear():
    S, group = blocks(3, 12)
    start = initialize.uniform(jax.random.key(0), 36, 3, dtype=np.float64)
    found = incremental.solve(start, S, key=0, num_batches=2, max_epochs=200, tol=1e-3)
    assert found.status == Status.CONVERGED.value
    assert found.num_steps < 200
    strongest = np.asarray(found.W).argmax(1)
    assert len({(g, k) for g, k in zip(group, strongest, strict=True)}) == 3
    assert np.isnan(found.history.objective[int(found.num_steps) + 1 :]).all()


@pytest.mark.slow
def test_a_few_epochs_are_ahead_of_as_many_steps():
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(6), 50)
    counts = np.triu(rng.poisson(np.where(group[:, None] == group, 1.0, 0.3)))
    S = scipy.sparse.csr_array(counts + counts.T)
    start = initialize.uniform(jax.random.key(1), 300, 6)
    full = solve(start, S, tol=0.0, max_steps=4, over_relaxation=1.9)
    for key in range(3):
        found = incremental.solve(start, S, key=key, num_batches=8, tol=0.0, max_epochs=4)
        assert found.objective < full.objective


def test_a_key_decides():
    W, _, batches = problem()
    run = partial(incremental.solve, W, batches, tol=0.0, max_epochs=2)
    first, again, other = run(key=0), run(key=jax.random.key(0)), run(key=1)
    np.testing.assert_array_equal(first.W, again.W)
    assert (np.asarray(first.W) != np.asarray(other.W)).any()


def test_words_that_a_minibatch_does_not_know_keep_their_topics():
    """A pair of words that has each other alone, in one of many minibatches."""
    S = scipy.sparse.block_diag([blocks(2, 10)[0], np.array([[0, 1.0], [1.0, 0]])], format="csr")
    start = initialize.uniform(jax.random.key(0), 22, 3, dtype=np.float64)
    batches = minibatches.draw(jax.random.key(0), S, 12, dtype=np.float64)
    found = incremental.solve(start, batches, key=0, tol=0.0, max_epochs=10)
    assert np.isfinite(found.W).all()
    assert np.isfinite(found.objective)
    np.testing.assert_allclose(found.W[20], found.W[21], atol=0.2)


def test_nothing_to_do_leaves_the_start():
    W, S, batches = problem()
    found = incremental.solve(W, batches, key=0, max_epochs=0)
    np.testing.assert_allclose(found.W, W, rtol=1e-12)
    np.testing.assert_allclose(found.objective, oracle.objective(np.asarray(W), S), rtol=1e-10)


def test_what_is_not_finite_is_a_status_and_the_last_good_W_stays():
    W, _, batches = problem()
    broken = jax.tree.map(lambda array: array, batches)
    broken = minibatches.Minibatches(**{**vars(broken), "degrees": broken.degrees * jnp.nan})
    found = incremental.solve(W, broken, key=0, max_epochs=3)
    assert found.status == Status.NONFINITE.value
    assert found.num_steps == 1
    np.testing.assert_allclose(found.W, W, rtol=1e-12)


def test_a_state_goes_on_where_it_was():
    W, _, batches = problem()
    method = incremental.method(batches, 1.9)

    def advanced(stops):
        state = stochastic.begin(method, W, jax.random.key(3), max_epochs=5)
        for until in stops:
            state = stochastic.advance(method, state, until=until, tol=0.0)
        return state

    chex.assert_trees_all_equal(advanced([5]).carried, advanced([1, 2, 5]).carried)


def test_one_trace_per_shape(monkeypatch):
    chex.clear_trace_counter()
    static = ("make_method", "settings", "max_epochs")
    untraced: Any = stochastic.run
    traced = jax.jit(chex.assert_max_traces(untraced.__wrapped__, n=1), static_argnames=static)
    monkeypatch.setattr(stochastic, "run", traced)
    W, _, batches = problem()
    for seed in range(3):
        incremental.solve(W * (1 + seed), batches, key=seed, tol=0.1 * seed, max_epochs=1)
    with pytest.raises(AssertionError, match="traced"):
        incremental.solve(W, batches, key=0, max_epochs=2)


@pytest.mark.slow
def test_inside_jit():
    W, S, batches = problem()
    options = {"tol": 0.0, "max_epochs": 2}
    expected = incremental.solve(W, batches, key=jax.random.key(5), **options).W
    run = jax.jit(lambda W, batches, key: incremental.solve(W, batches, key=key, **options).W)
    np.testing.assert_allclose(run(W, batches, jax.random.key(5)), expected, rtol=1e-10)
    closed_over = jax.jit(lambda batches: incremental.solve(W, batches, key=jax.random.key(5), **options).W)
    np.testing.assert_allclose(closed_over(batches), expected, rtol=1e-10)
    sparse = scipy.sparse.csr_array(S)
    drawn = jax.jit(lambda W: incremental.solve(W, sparse, key=7, num_batches=3, **options).W)
    expected = incremental.solve(W, sparse, key=7, num_batches=3, **options).W
    np.testing.assert_allclose(drawn(W), expected, rtol=1e-10)
    with pytest.raises(ValueError, match="key is traced"):
        jax.jit(lambda key: incremental.solve(W, sparse, key=key, **options).W)(jax.random.key(0))


# --- Devices, and what is refused -------------------------------------------------------------------

_ON_DEVICES = """
import jax, numpy as np, scipy.sparse, sys
sys.path.insert(0, {tests!r})
jax.config.update("jax_num_cpu_devices", 3)
jax.config.update("jax_enable_x64", True)
from problems import dense, random_S, random_W
from dcdjax.solvers import incremental, minibatches
import jax.numpy as jnp
rng = np.random.default_rng(0)
S = random_S(rng, 31)
W = jnp.asarray(random_W(rng, 31, 4))
sparse = scipy.sparse.csr_array(S)
drawn = [
    minibatches.draw(jax.random.key(0), sparse, 4, dtype=W.dtype, devices=jax.devices()[:n])
    for n in (1, 2, 3)
]
for n, batches in enumerate(drawn, 1):
    assert batches.stacked.devices == jax.devices()[:n]
    S_again = sum(dense(batches.layout(jnp.int32(m))) for m in range(4))
    np.testing.assert_allclose(S_again, S / (S.sum() / 31), rtol=1e-12)
alone, *shared = (incremental.solve(W, batches, key=0, tol=0.0, max_epochs=3) for batches in drawn)
for found in shared:
    assert found.W.devices() == W.devices(), "the result is where W was"
    np.testing.assert_allclose(found.W, alone.W, rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(found.objective, alone.objective, rtol=1e-12)
"""


@pytest.mark.slow
def test_devices_share_the_work():
    code = _ON_DEVICES.format(tests=str(Path(__file__).parents[1]))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"over_relaxation": 2.0}, "over_relaxation"),
        ({"num_batches": 0}, "num_batches"),
        ({"max_epochs": -1}, "max_epochs"),
        ({"tol": -1.0}, "tol"),
        ({"key": None}, "key"),
        ({"W": -np.ones((30, 4))}, "W"),
        ({"W": np.full((29, 4), 0.25)}, "29"),
        ({"S": -np.eye(30)}, "S"),
    ],
)
def test_what_cannot_be_is_refused(options, said, unchecked_annotations):
    W, S, _ = problem()
    given = {"W": W, "S": S, "key": 0, **options}
    with pytest.raises(ValueError, match=said):
        incremental.solve(given.pop("W"), given.pop("S"), **given)


def test_minibatches_are_drawn_for_their_own_words_and_devices():
    W, _, batches = problem()
    wrong: Any = (
        ({"W": W[:20]}, "W has 20 words, but S has 30"),
        ({"W": W.astype(np.float32)}, "W is float32, but S was drawn for float64"),
        ({"devices": jax.devices()}, "devices: S is minibatches"),
    )
    for given, said in wrong:
        with pytest.raises(ValueError, match=said):
            incremental.solve(given.pop("W", W), batches, key=0, **given)
