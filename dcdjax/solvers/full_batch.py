"""Minimize the objective from a start W, with one pass over all of S for each step.

`solve` runs one start, `solve_restarts` a batch of starts. Both call `begin`, `advance` and `finish`. These
may be called one by one to report or save between steps; the result is the same to the bit.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from dcdjax.devices import native, sharding, sweeps
from dcdjax.devices.layout import Layout
from dcdjax.method import decomposition, priors
from dcdjax.method.decomposition import Weights
from dcdjax.method.priors import NO_PRIOR, Prior
from dcdjax.solvers import arguments, loop
from dcdjax.solvers.arguments import Step
from dcdjax.solvers.loop import Report
from dcdjax.solvers.result import History, Solution, Status
from dcdjax.util import checks

# An over-relaxed step is refused if the objective rose by more than this many of its rounding errors. A sum
# of millions of terms is not more exact than that.
_OBJECTIVE_NOISE = 8


class State(NamedTuple):
    """Hold W and the results of a pass over S with it. Objectives are those of the scaled S."""

    W: Weights
    ZW: Weights
    objective: Float[Array, ""]
    refused: Bool[Array, ""]  # whether the last over-relaxed step was refused; then the next step is exact
    status: Int[Array, ""]
    num_steps: Int[Array, ""]
    history: History


@checks.suggest_names
def solve(
    W: ArrayLike,
    S: Any,
    *,
    step: Step = "exact",
    tol: ArrayLike = 1e-3,
    max_steps: int = 500,
    over_relaxation: float = 1.0,
    concentration: ArrayLike | Sequence[float] = 1.0,
    relevance: ArrayLike = 0.0,
    devices: sharding.Devices = None,
    split: bool | None = None,
) -> Solution:
    """Minimize the objective from a start until W converges.

    Args:
      W: positive start, (N, r), float32 or float64; see `initialize`. Results have the same dtype.
      S: scipy sparse matrix, pair (S_idx, S_val), `Similarity`, or prepared `Layout`.
      step: "exact" keeps the rows on the simplex and never raises the objective. "relaxed" is the paper's
        algorithm: it never raises the Lagrangian, and the rows drift to the simplex.
      tol: stop when the relative change of W, |W_new - W| / |W| in Frobenius norm, is at most this. A smaller
        value takes more steps.
      max_steps: stop after this many steps.
      over_relaxation: exponent of `decomposition.over_relax`, from 1 to below 2. 1 takes the steps as they
        are; 1.9 usually needs fewer steps. A step that would raise the objective is refused, which costs one
        pass over S, and the exact step follows. Values above 1 put the rows on the simplex.
      concentration: Dirichlet parameter of the rows of W, see `priors`. Above 1 smooths the rows, below 1
        makes them sparse. Pass a sequence to anneal it: step t uses entry t, later steps use the last entry.
        The solver does not test for convergence until the sequence is used up. Begin with about 2: with much
        larger values W becomes uniform, and stays so (experiments/topics). Needs exact steps.
      relevance: weight of the prior on topics, see `priors`. Topics that are not needed die out; a larger
        value leaves fewer. `pruning.prune` finds a suitable one. Needs exact steps.
      devices: devices that share the work, or a mesh of them, as in `prepare`. A layout has its own. Inside a
        `jit` that traces W, the default is the first device alone.
      split: whether to split the rows of W too, as in `prepare`. W then comes back on the host.

    Returns:
      The solution. Failure is a value: look at `status`, or call `raise_on_failure`. With the native kernel
      switched off (DCDJAX_NATIVE=0), the solution can be differentiated in forward mode.

    Raises:
      ValueError: names the argument and the first wrong entry.

    Examples:
      >>> import jax, numpy as np, scipy.sparse
      >>> from dcdjax import initialize, solve
      >>> S = scipy.sparse.csr_array(np.kron(np.eye(2), np.ones((3, 3))))
      >>> solution = solve(initialize.uniform(jax.random.key(0), 6, 2), S)
      >>> np.unique(solution.W.argmax(axis=1)[:3]).size
      1
    """
    start, layout = arguments.checked_problem(W, S, devices, split, batched=False)
    options = arguments.checked_options(step, tol, max_steps, over_relaxation)
    prior = arguments.checked_prior(concentration, relevance, step, start.dtype)
    return _run_on_devices(start, layout, tol, prior, **options)


@checks.suggest_names
def solve_restarts(
    W_batch: ArrayLike,
    S: Any,
    *,
    step: Step = "exact",
    tol: ArrayLike = 1e-3,
    max_steps: int = 500,
    over_relaxation: float = 1.0,
    concentration: ArrayLike | Sequence[float] = 1.0,
    relevance: ArrayLike = 0.0,
    devices: sharding.Devices = None,
    split: bool | None = None,
) -> Solution:
    """Run `solve` from every start of a batch under `vmap`. Each restart stops by itself.

    Args:
      W_batch: positive starts, (restarts, N, r), as from `initialize.uniform(..., restarts=8)`.
      S: as in `solve`; all starts share it.
      step: as in `solve`, like all further options.
      tol: see `solve`.
      max_steps: see `solve`.
      over_relaxation: see `solve`.
      concentration: see `solve`.
      relevance: see `solve`.
      devices: see `solve`.
      split: see `solve`.

    Returns:
      A solution with a leading axis of restarts, for `best` or `consensus`.
    """
    start, layout = arguments.checked_problem(W_batch, S, devices, split, batched=True)
    options = arguments.checked_options(step, tol, max_steps, over_relaxation)
    prior = arguments.checked_prior(concentration, relevance, step, start.dtype)
    return _run_on_devices(start, layout, tol, prior, **options)


def _run_on_devices(W: Array, layout: Layout, tol: ArrayLike, prior: Prior, **options: Any) -> Solution:
    """Run on the devices of S, and move the solution to where W was."""
    axis_of_words = W.ndim - 2
    traced = isinstance(W, Tracer) or isinstance(layout.scale, Tracer)
    # Even if neither is traced, another argument may be, such as tol.
    with nullcontext() if traced else jax.ensure_compile_time_eval():
        start = layout.to_devices(W, axis_of_words)
    with nullcontext() if traced else sharding.override_mesh(layout.mesh):
        solution = run(start, layout, arguments.as_scalar(tol, W), prior, **options)
    if layout.row_split is not None:
        return solution._replace(W=layout.from_devices(solution.W, axis_of_words))
    return arguments.move_to_start(solution, W, layout)


# --- The loop ---------------------------------------------------------------------------------------


@partial(jax.jit, static_argnames=("step", "max_steps", "over_relaxation"))
def run(
    W: Float[Array, "*restarts words topics"],
    layout: Layout,
    tol: Float[Array, ""] | float,
    prior: Prior = NO_PRIOR,
    *,
    step: Step,
    max_steps: int,
    over_relaxation: float,
) -> Solution:
    """Begin, advance and finish, from one start or from each of a batch."""
    kind: dict[str, Any] = {"step": step, "over_relaxation": over_relaxation, "prior": prior}

    def one(W: Array) -> Solution:
        state = begin(W, layout, max_steps=max_steps, **kind)
        state = advance(state, layout, until=max_steps, tol=tol, **kind)
        return finish(state, layout, step=step)

    return jax.vmap(one)(W) if W.ndim == 3 else one(W)


@partial(jax.jit, static_argnames=("max_steps", "step", "over_relaxation"))
def begin(
    W: Weights,
    layout: Layout,
    *,
    max_steps: int,
    step: Step,
    over_relaxation: float,
    prior: Prior = NO_PRIOR,
) -> State:
    """Return the state before the first step. This takes one pass over S.

    W moves onto the simplex, unless the steps are the paper's own.
    """
    if step == "exact" or over_relaxation != 1:
        W = _on_simplex(W, layout)
    W = layout.fill_padding(jnp.maximum(W, decomposition.smallest_weight(W.dtype)), 0)
    ZW, log_likelihood = _sweep(W, layout, jnp.array(True))
    objective = priors.penalty(prior, jnp.int32(0), W, layout.num_words) - log_likelihood
    report = Report(
        objective=objective,
        change=jnp.full((), jnp.nan, W.dtype),
        residual=_residual(W, layout),
        status=jnp.where(jnp.isfinite(objective), Status.RUNNING.value, Status.NONFINITE.value),
    )
    return loop.begin(
        State, report, max_steps, W=W, ZW=ZW, objective=objective, refused=jnp.array(False)
    )  # fmt: skip


@partial(jax.jit, static_argnames=("step", "over_relaxation"))
def advance(
    state: State,
    layout: Layout,
    *,
    until: Int[Array, ""] | int,
    tol: Float[Array, ""] | float,
    step: Step,
    over_relaxation: float,
    prior: Prior = NO_PRIOR,
) -> State:
    """Take steps until the state has `until` of them, W has converged or a value is not finite."""

    def one_step(state: State) -> tuple[State, Report]:
        # After a refusal the exact step is taken, whichever is over-relaxed: it never raises the objective.
        plain = jnp.array(True) if over_relaxation == 1 else state.refused
        W = _next_weights(state, layout, plain, step, over_relaxation, prior)
        ZW, log_likelihood = _sweep(W, layout, loop.is_running(state))
        change = jnp.linalg.norm(W - state.W) / jnp.linalg.norm(state.W)
        objective = priors.penalty(prior, state.num_steps, W, layout.num_words) - log_likelihood
        finite = jnp.isfinite(objective) & jnp.isfinite(change)
        before = _objective_before(state, layout, prior)
        noise = _OBJECTIVE_NOISE * jnp.finfo(W.dtype).eps * jnp.abs(before)
        # A plain step is always accepted: the exact one never raises the objective, and the paper's may.
        accepted = finite & (plain | (objective <= before + noise))

        new, old = (W, ZW, objective, change), (state.W, state.ZW, before, jnp.zeros_like(change))
        W, ZW, objective, change = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), new, old)
        # While the concentration is annealed, a small change means nothing: the next one moves W again.
        annealed = state.num_steps + 1 >= priors.num_annealed(prior)
        converged = accepted & (change <= tol) & annealed
        status = jnp.where(converged, Status.CONVERGED.value, Status.RUNNING.value)
        status = jnp.where(plain & ~finite, Status.NONFINITE.value, status)
        report = Report(objective=objective, change=change, residual=_residual(W, layout), status=status)
        return state._replace(W=W, ZW=ZW, objective=objective, refused=~accepted), report

    return loop.advance(state, one_step, until=until)


@partial(jax.jit, static_argnames="step")
def finish(state: State, layout: Layout, *, step: Step) -> Solution:
    """Return the solution that a state has reached, in the units of the original S."""
    objective = state.objective
    if step == "relaxed":
        # Rows that sum to two double Shat, which lowers the objective without a better fit. So compute it on
        # the simplex, to compare restarts and steps. This takes one more pass over S.
        W = layout.fill_padding(_on_simplex(state.W, layout), 0)
        objective = -_sweep(W, layout, jnp.array(True)).log_likelihood
    return loop.finish(state, state.W, objective, layout.scale)


def _sweep(W: Weights, layout: Layout, wanted: Bool[Array, ""]) -> decomposition.Sweep:
    """Pass over S, or return zeros if the result is not wanted."""

    # Under vmap, restarts pass over S one after the other, each on all devices, because the gathered rows of
    # two restarts do not fit into the cache. The while_loop also steps restarts that have finished, until the
    # last one is done. Their passes are skipped here.
    @jax.custom_batching.sequential_vmap
    def one(W: Array, wanted: Array, *leaves: Array) -> decomposition.Sweep:
        layout = jax.tree.unflatten(structure, leaves)
        return lax.cond(wanted, lambda W: sweeps.sweep(W, layout), sweeps.zeros, W)

    # Pass array by array: JAX does not see what is traced outside of the function, and older releases cannot
    # batch a registered dataclass.
    leaves, structure = jax.tree.flatten(layout)
    return one(W, wanted, *leaves)


def _next_weights(
    state: State,
    layout: Layout,
    plain: Bool[Array, ""],
    step: Step,
    over_relaxation: float,
    prior: Prior,
) -> Weights:
    """Compute the W after a step. Each device does so for its part of the words."""
    extra = priors.pseudocount(prior, state.num_steps, state.W.shape[1])
    sums = priors.add_relevance(prior, decomposition.column_sums(state.W, state.ZW), layout.num_words)
    is_native = step == "exact" and layout.num_threads > 0 and state.W.dtype == jnp.float32 and extra is None

    def step_rows(shared: Any, W: Array, ZW: Array) -> Array:
        sums, plain, extra = shared
        if is_native:
            exponent = jnp.where(plain, 1.0, over_relaxation).astype(W.dtype)
            return native.exact_step(sums, W, ZW, exponent, num_threads=layout.num_threads)

        def exact() -> Array:
            return priors.exact_step(sums, extra, W, ZW)

        def chosen() -> Array:
            return exact() if step == "exact" else decomposition.relaxed_step(sums, W, ZW)

        if over_relaxation == 1:
            return chosen()
        return lax.cond(plain, exact, lambda: decomposition.over_relax(W, chosen(), over_relaxation))

    shared = (sums, plain, extra)
    split = layout.row_split
    if split is None:
        return sharding.map_replicated_rows(step_rows, layout.mesh, shared, state.W, state.ZW)

    def own_rows(device: Array, shared: Any, W: Array, ZW: Array) -> Array:
        if not is_native:  # XLA iterates until all rows have converged, so fill padding with an ordinary row
            W, ZW = (split.fill_local_padding(array, device, array[0]) for array in (W, ZW))
        return split.fill_local_padding(step_rows(shared, W, ZW), device, 0)

    assert layout.mesh is not None
    return sharding.map_sharded_rows(own_rows, layout.mesh, shared, state.W, state.ZW)


def _objective_before(state: State, layout: Layout, prior: Prior) -> Float[Array, ""]:
    """Return the objective of a state under the prior of its next step, which may not be that of its last."""
    if priors.num_annealed(prior) <= 1:
        return state.objective
    last = jnp.maximum(state.num_steps - 1, 0)
    of_last, of_next = (priors.penalty(prior, n, state.W, layout.num_words) for n in (last, state.num_steps))
    return state.objective + (of_next - of_last)


def _residual(W: Weights, layout: Layout) -> Float[Array, ""]:
    """Return how far the sum of a row is from one, at most."""
    distances = jnp.abs(jnp.sum(W, axis=1, keepdims=True) - 1)
    return jnp.max(layout.fill_padding(distances, 0))


def _on_simplex(W: Weights, layout: Layout) -> Weights:
    """Scale the rows of W to sum to one. Rows that only pad a split W become arbitrary."""
    return decomposition.on_simplex(layout.fill_padding(W, 1))
