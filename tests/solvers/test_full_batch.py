"""The loop: what it converges to, why it stops, and what its restarts have in common."""

import inspect
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.typing import DTypeLike
from problems import blocks, full_pair, pair, problems, random_S, random_W, slow

from dcdjax import (
    SolverError,
    Status,
    best,
    consensus,
    objective,
    prepare,
    raise_on_failure,
    solve,
    solve_restarts,
)
from dcdjax.devices.layout import Layout, Nonzeros
from dcdjax.method import decomposition
from dcdjax.solvers import full_batch, result
from dcdjax.starts import initialize


def sparse_problem(seed=0, num_words=25, num_topics=4, dtype: DTypeLike = np.float64):
    rng = np.random.default_rng(seed)
    S = random_S(rng, num_words)
    return jnp.asarray(random_W(rng, num_words, num_topics).astype(dtype)), S, scipy.sparse.csr_array(S)


def starts(num_words, num_topics, restarts, dtype: DTypeLike = np.float64, seed=0):
    return initialize.uniform(jax.random.key(seed), num_words, num_topics, restarts=restarts, dtype=dtype)


# --- The steps it takes -----------------------------------------------------------------------------


def test_relaxed_is_the_paper_to_the_letter():
    W, S, sparse = sparse_problem()
    expected = np.asarray(W)
    for _ in range(25):
        expected = oracle.update(expected, S)
    solution = solve(W, sparse, step="relaxed", tol=0.0, max_steps=25)
    np.testing.assert_allclose(solution.W, expected, rtol=1e-9)


def test_exact_is_the_exact_step():
    W, S, sparse = sparse_problem()
    expected = np.asarray(W)
    for _ in range(25):
        expected = oracle.exact_step(expected, S)
    solution = solve(W, sparse, tol=0.0, max_steps=25)
    np.testing.assert_allclose(solution.W, expected, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize(
    ("step", "eta"), [("exact", 1.9), ("relaxed", 1.0), slow("exact", 1.0), slow("relaxed", 1.9)]
)
def test_history_says_what_happened(step, eta):
    W, S, sparse = sparse_problem()
    runs = [solve(W, sparse, step=step, tol=0.0, max_steps=t, over_relaxation=eta) for t in range(4)]
    history = runs[-1].history
    assert history.objective.shape == history.change.shape == history.residual.shape == (4,)
    for t, run in enumerate(runs):
        assert run.num_steps == t
        W_t = np.asarray(run.W)
        np.testing.assert_allclose(history.objective[t], oracle.objective(W_t, S), rtol=1e-10)
        np.testing.assert_allclose(history.residual[t], np.abs(W_t.sum(1) - 1).max(), atol=1e-12)
        if t:
            before = np.asarray(runs[t - 1].W)
            change = np.linalg.norm(W_t - before) / np.linalg.norm(before)
            np.testing.assert_allclose(history.change[t], change, rtol=1e-8)
    assert np.isnan(history.change[0])


def test_history_is_padded_with_nan():
    W, _, sparse = sparse_problem()
    solution = solve(W, sparse, tol=0.05, max_steps=100)
    steps = int(solution.num_steps)
    assert 0 < steps < 100
    for entries in solution.history:
        assert np.isfinite(entries[1 : steps + 1]).all()
        assert np.isnan(entries[steps + 1 :]).all()


@pytest.mark.parametrize("step", ["exact", "relaxed"])
def test_objective_is_that_of_W_on_the_simplex(step):
    W, S, sparse = sparse_problem()
    solution = solve(W, sparse, step=step, tol=0.0, max_steps=3)
    projected = np.asarray(solution.W) / np.asarray(solution.W).sum(1, keepdims=True)
    np.testing.assert_allclose(solution.objective, oracle.objective(projected, S), rtol=1e-10)


@pytest.mark.parametrize(
    ("step", "eta", "dtype"),
    [
        ("exact", 1.0, np.float64),
        ("exact", 1.9, np.float32),
        ("relaxed", 1.99, np.float64),
        slow("exact", 1.0, np.float32),
        slow("exact", 1.9, np.float64),
        slow("exact", 1.99, np.float32),
        slow("exact", 1.99, np.float64),
        slow("relaxed", 1.5, np.float32),
        slow("relaxed", 1.5, np.float64),
        slow("relaxed", 1.99, np.float32),
    ],
)
def test_objective_never_rises(step, eta, dtype):
    rng = np.random.default_rng(0)
    for S in (random_S(rng, 30, spread=2.0), blocks(5, 6)[0]):
        batch = jnp.stack(
            [jnp.asarray(random_W(rng, 30, 5, concentration=0.3).astype(dtype)) for _ in range(20)]
        )
        batch *= rng.choice([1, 3], (20, 1, 1)).astype(dtype)  # off the simplex, some
        solution = solve_restarts(
            batch, scipy.sparse.csr_array(S), step=step, tol=0.0, max_steps=150, over_relaxation=eta
        )
        np.testing.assert_allclose(solution.W.sum(axis=-1), 1, rtol=1e-5)
        assert np.nanmax(solution.history.residual) < 1e-5
        history = np.asarray(solution.history.objective, np.float64)
        rises = np.diff(history, axis=1) / history[:, :1]
        assert np.nanmax(rises) <= 20 * np.finfo(dtype).eps
        assert (np.asarray(solution.objective) < history[:, 0]).all()


@pytest.mark.slow
@pytest.mark.parametrize("step", ["relaxed", "exact"])
def test_a_step_too_far_is_refused_and_the_exact_one_taken(monkeypatch, step):
    """Over-relaxation made harmful: every over-relaxed step now leads back to the uniform W."""
    W, _, sparse = sparse_problem(seed=3, num_topics=5)
    W = solve(W, sparse, tol=0.0, max_steps=20).W  # better than uniform
    plain = solve(W, sparse, tol=0.0, max_steps=3)

    monkeypatch.setattr(decomposition, "over_relax", lambda W, W_step, eta: jnp.full_like(W, 1 / W.shape[1]))
    with jax.disable_jit():
        relaxed = solve(W, sparse, step=step, tol=0.0, max_steps=6, over_relaxation=1.5)
    np.testing.assert_allclose(relaxed.W, plain.W, rtol=1e-9)
    np.testing.assert_array_equal(relaxed.history.change[1:6:2], 0)  # refused
    assert (relaxed.history.change[2:7:2] > 0).all()  # exact
    assert relaxed.status == Status.MAX_STEPS  # a refused step is no convergence


def test_over_relaxation_saves_steps():
    W, _, sparse = sparse_problem(seed=4, num_words=60)
    plain = solve(W, sparse, tol=0.0, max_steps=30)
    faster = solve(W, sparse, tol=0.0, max_steps=30, over_relaxation=1.9)
    assert faster.objective < plain.objective


# --- Why it stops -----------------------------------------------------------------------------------


@pytest.mark.parametrize("tol", [0.05, np.float64(0.05), np.float32(0.05), jnp.float32(0.05)])
def test_any_number_is_a_tolerance(tol):
    W, _, sparse = sparse_problem(dtype=np.float32)
    assert solve(W, sparse, tol=tol, max_steps=100).status == Status.CONVERGED


def test_converged():
    W, _, sparse = sparse_problem()
    solution = solve(W, sparse, tol=1e-3, max_steps=2000)
    assert solution.status == Status.CONVERGED
    change = solution.history.change[1 : int(solution.num_steps) + 1]
    assert change[-1] <= 1e-3
    assert (change[:-1] > 1e-3).all()
    assert raise_on_failure(solution) is solution


def test_max_steps():
    W, _, sparse = sparse_problem()
    solution = solve(W, sparse, tol=0.0, max_steps=4)
    assert (solution.status, solution.num_steps) == (Status.MAX_STEPS, 4)
    with pytest.raises(SolverError, match="after 4 steps: stopped at max_steps"):
        raise_on_failure(solution)


def test_no_steps_at_all():
    W, S, sparse = sparse_problem()
    solution = solve(W, sparse, max_steps=0)
    np.testing.assert_allclose(solution.W, W, rtol=1e-14)
    np.testing.assert_allclose(solution.objective, oracle.objective(np.asarray(W), S))
    assert (solution.status, solution.num_steps) == (Status.MAX_STEPS, 0)


def test_nonfinite_from_the_start():
    """What is traced is not validated: a status has to tell."""
    W, S, _ = sparse_problem()
    S_idx, S_val = pair(S)
    solution = jax.jit(lambda W, val: solve(W, (S_idx, val)))(W, S_val.at[3].set(jnp.nan))
    assert (solution.status, solution.num_steps) == (Status.NONFINITE, 0)
    np.testing.assert_allclose(solution.W, W, rtol=1e-14)
    with pytest.raises(SolverError, match="after 0 steps: stopped because a value was not finite"):
        raise_on_failure(solution)


@pytest.mark.parametrize("eta", [1.0, 1.9])
def test_nonfinite_on_the_way_keeps_the_last_good_W(monkeypatch, eta):
    W, _, sparse = sparse_problem()
    good = solve(W, sparse, tol=0.0, max_steps=2)
    calls, exact_step = [], decomposition.exact_step

    def failing(sums, W, ZW):
        calls.append(1)
        return exact_step(sums, W, ZW) * (1.0 if len(calls) <= 2 else jnp.nan)

    monkeypatch.setattr(decomposition, "exact_step", failing)
    monkeypatch.setattr(decomposition, "over_relax", lambda W, W_step, eta: W_step)
    with jax.disable_jit():
        solution = solve(W, sparse, tol=0.0, max_steps=9, over_relaxation=eta)
    assert solution.status == Status.NONFINITE
    # An over-relaxed step that is not finite is first refused, and the exact one tried.
    assert solution.num_steps == (3 if eta == 1 else 4)
    np.testing.assert_allclose(solution.W, good.W, rtol=1e-10)


def test_every_status_has_a_message():
    assert set(result.MESSAGES) == set(Status)


def test_running_is_what_an_unfinished_state_is():
    W, _, sparse = sparse_problem()
    layout = prepare(sparse, dtype=W.dtype)
    state = full_batch.begin(W, layout, max_steps=5, step="exact", over_relaxation=1.0)
    assert state.status == Status.RUNNING


def test_in_parts_is_in_one_go_to_the_bit():
    W, _, sparse = sparse_problem()
    layout = prepare(sparse, dtype=W.dtype)
    whole = solve(W, layout, tol=1e-6, max_steps=40, over_relaxation=1.9)
    kind = {"step": "exact", "over_relaxation": 1.9}
    state = full_batch.begin(W, layout, max_steps=40, **kind)
    for until in (1, 2, 13, 13, 39, 40):
        state = full_batch.advance(state, layout, until=until, tol=1e-6, **kind)
        assert state.num_steps == until
    parts = full_batch.finish(state, layout, step="exact")
    jax.tree.map(np.testing.assert_array_equal, parts, whole)


# --- What it finds ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "dtype"),
    [("exact", np.float64), ("relaxed", np.float32), slow("exact", np.float32), slow("relaxed", np.float64)],
)
def test_a_planted_partition_is_recovered(step, dtype):
    S, labels = blocks(4, 6)
    batch = starts(24, 4, restarts=10, dtype=dtype)
    solution = best(solve_restarts(batch, scipy.sparse.csr_array(S), step=step, tol=1e-6, max_steps=1000))
    found = np.asarray(solution.W).argmax(1)
    assert len(set(zip(labels, found, strict=True))) == 4 == len(set(found))
    # The best possible: Shat = S / 6, in blocks.
    np.testing.assert_allclose(solution.objective, 24 * 6 * np.log(6), rtol=1e-4)


def test_a_noisy_partition_is_recovered():
    S, labels = blocks(3, 15)
    rng = np.random.default_rng(0)
    counts = np.triu(rng.poisson(np.where(S > 0, 4.0, 0.5)))
    solution = best(solve_restarts(starts(45, 3, restarts=8), scipy.sparse.csr_array(counts + counts.T)))
    found = np.asarray(solution.W).argmax(1)
    assert len(set(zip(labels, found, strict=True))) == 3 == len(set(found))


def test_Shat_is_doubly_stochastic_at_a_solution():
    W, _, sparse = sparse_problem()
    Shat = oracle.shat(np.asarray(solve(W, sparse).W))
    np.testing.assert_allclose(Shat.sum(0), 1, rtol=1e-9)
    np.testing.assert_allclose(Shat.sum(1), 1, rtol=1e-9)
    np.testing.assert_allclose(Shat, Shat.T, rtol=1e-9)


def test_relaxed_rows_come_to_the_simplex():
    W, _, sparse = sparse_problem()
    solution = solve(W, sparse, step="relaxed", tol=1e-9, max_steps=20_000)
    assert solution.status == Status.CONVERGED
    np.testing.assert_allclose(solution.W.sum(axis=1), 1, atol=1e-5)


# --- Numbers out of the ordinary --------------------------------------------------------------------


def spanning_eight_orders(rng):
    """One pair of words a hundred million times as frequent as another."""
    S = random_S(rng, 12, density=0.6)
    strength = 10.0 ** np.linspace(-4, 4, 12)
    return S * np.sqrt(strength[:, None] * strength)


def only_itself(rng):
    S = random_S(rng, 12)
    S[4, :] = S[:, 4] = 0
    S[4, 4] = 1.0
    return S


EXTREMES = {
    "more topics than words": (lambda rng: random_S(rng, 5), 9),
    "one topic": (lambda rng: random_S(rng, 5), 1),
    "one word": (lambda rng: np.ones((1, 1)), 3),
    "only itself for a neighbor": (only_itself, 3),
    "tiny S": (lambda rng: 1e-20 * random_S(rng, 12), 4),
    "huge S": (lambda rng: 1e20 * random_S(rng, 12), 4),
    "eight orders of magnitude": (spanning_eight_orders, 4),
}


@pytest.mark.parametrize(
    ("eta", "dtype"), [(1.9, np.float32), slow(1.0, np.float32), slow(1.0, np.float64), slow(1.9, np.float64)]
)
@pytest.mark.parametrize("name", EXTREMES)
def test_extremes_are_finite_and_on_the_simplex(name, eta, dtype):
    make, num_topics = EXTREMES[name]
    S = make(np.random.default_rng(0))
    W = starts(len(S), num_topics, None, dtype)
    solution = solve(W, scipy.sparse.csr_array(S), tol=0.0, max_steps=200, over_relaxation=eta)
    assert solution.status != Status.NONFINITE
    assert np.isfinite(solution.W).all()
    assert np.isfinite(solution.objective)
    np.testing.assert_allclose(solution.W.sum(axis=1), 1, atol=1e-5)
    assert (np.asarray(solution.W) >= decomposition.smallest_weight(dtype)).all()
    expected = oracle.objective(np.asarray(solution.W, np.float64), S)
    tolerance = 1e-5 if dtype == np.float32 else 1e-9
    np.testing.assert_allclose(solution.objective, expected, rtol=tolerance, atol=tolerance * S.sum())


@pytest.mark.parametrize("name", EXTREMES)
def test_extremes_under_the_paper_step(name):
    make, num_topics = EXTREMES[name]
    S = make(np.random.default_rng(0))
    W = starts(len(S), num_topics, None, np.float32)
    solution = solve(W, scipy.sparse.csr_array(S), step="relaxed", tol=0.0, max_steps=200)
    assert solution.status != Status.NONFINITE
    assert np.isfinite(solution.W).all()
    assert np.isfinite(solution.objective)


@pytest.mark.parametrize(
    ("step", "dtype"),
    [
        ("exact", np.float32),
        slow("exact", np.float64),
        slow("relaxed", np.float32),
        slow("relaxed", np.float64),
    ],
)
@pytest.mark.parametrize("weight", [1e-30, 1e-42])  # the second is subnormal in float32
def test_a_dying_topic_stays_finite(step, dtype, weight):
    """Two blocks and three topics, one of which starts with next to nothing."""
    S, _ = blocks(2, 4)
    W = np.full((8, 3), 0.5, dtype)
    W[:4, 0] += 0.1
    W[:, 2] = weight
    solution = solve(W, scipy.sparse.csr_array(S), step=step, tol=0.0, max_steps=300)
    assert np.isfinite(solution.W).all()
    assert solution.W[:, 2].max() < 1e-3
    np.testing.assert_allclose(solution.W.sum(axis=1), 1, atol=1e-5)


# --- Properties that cross folders ------------------------------------------------------------------


@settings(max_examples=6)
@given(problem=problems(), exponent=st.integers(-20, 20), seed=st.integers(0, 99))
def test_permuting_scaling_and_padding_change_nothing(problem, exponent, seed):
    W, S = problem
    W, S = W / W.sum(1, keepdims=True), S + 1e-4  # nothing zero: one number of nonzeros to compile for
    few = {"tol": 0.0, "max_steps": 3}
    expected = solve(jnp.asarray(W), full_pair(S), **few)
    same = partial(np.testing.assert_allclose, rtol=1e-6, atol=1e-9)

    scaled = solve(jnp.asarray(W), full_pair(S * 10.0**exponent), **few)
    same(scaled.W, expected.W)
    np.testing.assert_allclose(scaled.objective, expected.objective * 10.0**exponent, rtol=1e-9, atol=0)

    order = np.random.default_rng(seed).permutation(len(S))
    permuted = solve(jnp.asarray(W[order]), full_pair(S[np.ix_(order, order)]), **few)
    same(permuted.W, expected.W[order])

    S_idx, S_val = pair(S)
    zeros = np.zeros((7, 2), np.int32)
    padded = Nonzeros(
        S_idx=jnp.concatenate([S_idx, zeros]),
        S_val=jnp.concatenate([S_val, np.zeros(7)]) * (len(S) / S.sum()),
    )
    layout = Layout(pieces=(padded,), scale=jnp.asarray(S.sum() / len(S)), num_words=len(S))
    same(solve(jnp.asarray(W), layout, **few).W, expected.W)


@pytest.mark.parametrize(
    ("step", "eta"), [("relaxed", 1.0), slow("exact", 1.9), slow("exact", 1.0), slow("relaxed", 1.9)]
)
def test_jit_is_no_jit(step, eta):
    W, _, sparse = sparse_problem(num_words=10)
    options = {"step": step, "tol": 0.05, "max_steps": 8, "over_relaxation": eta}
    jitted = solve(W, sparse, **options)
    with jax.disable_jit():
        plain = solve(W, sparse, **options)
    chex.assert_trees_all_close(jitted, plain, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize(
    ("step", "eta", "dtype"),
    [
        ("exact", 1.9, np.float64),
        ("relaxed", 1.0, np.float32),
        slow("exact", 1.0, np.float32),
        slow("exact", 1.0, np.float64),
        slow("exact", 1.9, np.float32),
        slow("relaxed", 1.0, np.float64),
    ],
)
def test_restarts_give_what_each_gives_alone(step, eta, dtype):
    _, _, sparse = sparse_problem()
    batch = starts(25, 3, restarts=5, dtype=dtype)
    options = {"step": step, "tol": 0.01, "max_steps": 400, "over_relaxation": eta}
    together = solve_restarts(batch, sparse, **options)
    assert len(set(together.num_steps.tolist())) > 1  # each stopped by itself
    for n, W in enumerate(batch):
        alone = solve(W, sparse, **options)
        one = jax.tree.map(lambda leaf, n=n: leaf[n], together)
        assert (one.status, one.num_steps) == (alone.status, alone.num_steps)
        chex.assert_trees_all_close(one, alone, rtol=1e-4 if dtype == np.float32 else 1e-9, atol=1e-6)


def test_a_users_own_vmap_works_too():
    _, _, sparse = sparse_problem()
    batch = starts(25, 3, restarts=3)
    theirs = jax.vmap(lambda W: solve(W, sparse))(batch)
    chex.assert_trees_all_close(theirs, solve_restarts(batch, sparse), rtol=1e-9)


def test_one_failing_restart_does_not_touch_the_others():
    W, S, _ = sparse_problem()
    S_idx, S_val = pair(S)
    values = jnp.stack([S_val, S_val.at[0].set(jnp.inf)])
    solution = jax.vmap(lambda val: solve(W, (S_idx, val), max_steps=20))(values)
    assert solution.status.tolist()[1] == Status.NONFINITE
    np.testing.assert_allclose(solution.W[0], solve(W, (S_idx, S_val), max_steps=20).W, rtol=1e-9)
    assert best(solution).status != Status.NONFINITE
    with pytest.raises(SolverError, match=r"restart \d; \d of 2 failed"):
        raise_on_failure(solution)


def test_one_trace_per_shape(monkeypatch):
    chex.clear_trace_counter()
    traced = chex.assert_max_traces(inspect.unwrap(full_batch.run), n=2)
    static = ("step", "max_steps", "over_relaxation")
    monkeypatch.setattr(full_batch, "run", jax.jit(traced, static_argnames=static))
    for seed in range(3):
        for num_words in (10, 11):
            W, S, _ = sparse_problem(seed, num_words=num_words)
            solve(W, full_pair(S + 1e-3), tol=10.0**-seed, max_steps=3)
    W, S, _ = sparse_problem(num_words=12)
    with pytest.raises(AssertionError, match="traced"):
        solve(W, full_pair(S + 1e-3), max_steps=3)


def test_every_form_of_S_gives_the_same():
    W, S, sparse = sparse_problem(dtype=np.float32)
    expected = solve(W, sparse, max_steps=10)
    S_idx, S_val = pair(S)
    for form in ((S_idx, S_val), (np.asarray(S_idx), np.asarray(S_val)), sparse.tocoo(), prepare(sparse)):
        chex.assert_trees_all_close(solve(W, form, max_steps=10), expected, rtol=1e-6, atol=1e-6)
    inside = jax.jit(lambda W, val: solve(W, (S_idx, val), max_steps=10))(W, S_val.astype(np.float32))
    chex.assert_trees_all_close(inside, expected, rtol=1e-4, atol=1e-6)


# --- Best and consensus -----------------------------------------------------------------------------


def test_best_is_the_lowest():
    _, S, sparse = sparse_problem()
    solutions = solve_restarts(starts(25, 3, restarts=6), sparse)
    chosen = best(solutions)
    assert chosen.objective == solutions.objective.min()
    assert chosen.W.shape == (25, 3)
    np.testing.assert_allclose(chosen.objective, objective(chosen.W, *pair(S)), rtol=1e-9)


def test_best_is_not_deceived_by_rows_off_the_simplex():
    """After one paper step from rows that sum to three, the raw objective is low for nothing."""
    _, S, sparse = sparse_problem()
    batch = starts(25, 3, restarts=2) * jnp.array([1.0, 3.0])[:, None, None]
    solutions = solve_restarts(batch, sparse, step="relaxed", tol=0.0, max_steps=1)
    raw = solutions.history.objective[:, 1]
    assert raw[1] < raw[0]
    projected = [oracle.objective(W / W.sum(1, keepdims=True), S) for W in np.asarray(solutions.W)]
    np.testing.assert_allclose(best(solutions).objective, min(projected), rtol=1e-9)


def test_best_of_none():
    W, _, sparse = sparse_problem()
    with pytest.raises(ValueError, match="must be of solve_restarts"):
        best(solve(W, sparse, max_steps=1))
    solutions = solve_restarts(starts(25, 3, restarts=2), sparse, max_steps=1)
    failed = solutions._replace(status=jnp.full_like(solutions.status, Status.NONFINITE))
    with pytest.raises(ValueError, match="no usable restart"):
        best(failed)


@pytest.mark.parametrize("step", ["exact", "relaxed"])
def test_consensus_has_the_mean_of_the_Shat(step):
    _, _, sparse = sparse_problem()
    coarse = solve_restarts(starts(25, 2, restarts=3), sparse, step=step, max_steps=5)
    fine = solve(starts(25, 6, restarts=None, seed=1), sparse, step=step, max_steps=5)
    W = np.asarray(consensus(coarse, fine))
    assert W.shape == (25, 3 * 2 + 6)
    np.testing.assert_allclose(W.sum(1), 1, rtol=1e-9)
    parts = [np.asarray(part) / np.asarray(part).sum(1, keepdims=True) for part in (*coarse.W, fine.W)]
    np.testing.assert_allclose(
        oracle.shat(W), np.mean([oracle.shat(part) for part in parts], axis=0), rtol=1e-9
    )


def test_consensus_of_nothing_or_of_different_words():
    W, _, sparse = sparse_problem()
    with pytest.raises(ValueError, match="at least one solution"):
        consensus()
    one = solve(W, sparse, max_steps=1)
    with pytest.raises(ValueError, match="different words: 25 and 20"):
        consensus(one, one._replace(W=one.W[:20]))


# --- Wrong arguments --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"W": np.ones(4)}, r"W must be \(words, topics\).*got shape \(4,\)"),
        ({"W": np.ones((4, 0))}, r"W must be \(words, topics\).*got shape \(4, 0\)"),
        ({"W": np.ones((4, 2), np.float16)}, "W must be float32 or float64, got float16"),
        ({"W": np.ones((4, 2), int)}, "W must be float32 or float64, got int64"),
        (
            {"W": np.array([[1, 1], [1, 0], [1, -1], [1, 1.0]])},
            r"W\[1, 1\] = 0.0 is not .*positive.*\(2 in total",
        ),
        ({"W": np.array([[1, 1], [1, np.inf], [1, 1], [1, 1.0]])}, r"W\[1, 1\] = inf is not a finite"),
        ({"W": np.array([[1, 1], [1, 1], [np.nan, 1], [1, 1.0]])}, r"W\[2, 0\] = nan is not a finite"),
        ({"W": np.ones((3, 2))}, "S has 4 words where 3 are expected"),
        ({"S": prepare(scipy.sparse.csr_array(np.eye(5)), dtype=np.float64)}, "W has 4 words, but S has 5"),
        ({"S": prepare(scipy.sparse.csr_array(np.eye(4)))}, "W is float64, but S was prepared for float32"),
        ({"S": "S.npz"}, "S must be a scipy sparse matrix, a square array or a pair"),
        ({"step": "newton"}, r"step must be one of \('exact', 'relaxed'\), got 'newton'"),
        ({"tol": -1.0}, "tol must be nonnegative, got -1.0"),
        ({"tol": float("nan")}, "tol must be nonnegative, got nan"),
        ({"tol": np.ones(2)}, r"tol must be one number, got shape \(2,\)"),
        ({"max_steps": -1}, "max_steps must be at least 0, got -1"),
        ({"over_relaxation": 2.0}, "over_relaxation must be at least 1 and below 2, got 2.0"),
        ({"over_relaxation": 0.5}, "over_relaxation must be at least 1 and below 2, got 0.5"),
    ],
)
@pytest.mark.usefixtures("unchecked_annotations")
def test_wrong_arguments_are_named(arguments, message):
    good = {"W": np.full((4, 2), 0.5), "S": scipy.sparse.csr_array(np.eye(4))}
    with pytest.raises(ValueError, match=message):
        solve(**{**good, **arguments})


@pytest.mark.usefixtures("unchecked_annotations")
def test_what_is_traced_is_checked_for_its_shape():
    W, S, _ = sparse_problem()
    S_idx, S_val = pair(S)
    with pytest.raises(ValueError, match="S_val must be"):
        jax.jit(lambda W, idx, val: solve(W, [idx, val]))(W, S_idx, S_val[:9])
    with pytest.raises(ValueError, match="max_steps must be a whole number"):
        solve(W, (S_idx, S_val), max_steps=7.5)  # pyright: ignore[reportArgumentType]


def test_wrong_batches_are_named():
    S = scipy.sparse.csr_array(np.eye(4))
    with pytest.raises(ValueError, match=r"W_batch must be \(restarts, words, topics\)"):
        solve_restarts(np.ones((4, 2)), S)
    bad = np.ones((3, 4, 2))
    bad[1, 2, 0] = -1
    with pytest.raises(ValueError, match=r"W_batch\[1, 2, 0\] = -1.0 is not"):
        solve_restarts(bad, S)
