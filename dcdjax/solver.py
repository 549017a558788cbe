"""A start W and an S enter; a Solution leaves, with the reason why the solver stopped.

The loop runs on the device. Its State is a value: `begin`, `advance` as often as one likes, `finish` give
to the bit what `solve` gives in one go, for those who want to report or save between steps.
"""

import enum
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.sharding import Mesh
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from dcdjax import decomposition, native, priors, sharding, sweeps
from dcdjax.layout import Layout, Nonzeros, prepare
from dcdjax.priors import Prior

Step = Literal["exact", "relaxed"]
_STEPS = {"exact": decomposition.exact_step, "relaxed": decomposition.relaxed_step}

# An over-relaxed step is refused if the objective rose by more than this many rounding errors of
# itself: a sum of millions of terms is no more exact than that.
_OBJECTIVE_NOISE = 8


class Status(enum.IntEnum):
    """Why the solver stopped."""

    CONVERGED = 0
    MAX_STEPS = 1
    NONFINITE = 2
    RUNNING = 3
    INTERRUPTED = 4


MESSAGES = {
    Status.CONVERGED: "converged: the relative change of W fell to the tolerance",
    Status.MAX_STEPS: "stopped at max_steps before the relative change of W fell to the tolerance",
    Status.NONFINITE: "stopped because a value was not finite; W is the last before it",
    Status.RUNNING: "not finished",
    Status.INTERRUPTED: "interrupted; W is what was learned until then",
}


class History(NamedTuple):
    """Entry t describes W after t steps, entry 0 the start; entries never reached are NaN."""

    objective: Float[Array, "*batch steps_and_start"]
    change: Float[Array, "*batch steps_and_start"]  # |W_t - W_(t-1)| / |W_(t-1)|; 0 for a refused step
    residual: Float[Array, "*batch steps_and_start"]  # max_i |sum_k W_ik - 1|


class Solution(NamedTuple):
    """Where the solver arrived. From `solve_restarts`, every field has a leading axis of restarts."""

    W: Float[Array, "*batch words topics"]
    objective: Float[Array, "*batch"]  # -sum S log Shat, rows on the simplex, and what priors add
    status: Int[Array, "*batch"]  # a Status; MESSAGES says it in words
    num_steps: Int[Array, "*batch"]
    history: History


class State(NamedTuple):
    """A W with all that was learned in passing over S for it. Objectives are those of the scaled S."""

    W: Float[Array, "words topics"]
    ZW: Float[Array, "words topics"]
    objective: Float[Array, ""]
    refused: Bool[Array, ""]  # the last over-relaxed step was: the next one is the exact step
    status: Int[Array, ""]
    num_steps: Int[Array, ""]
    history: History


class SolverError(RuntimeError):
    """Raised by `raise_on_failure`."""


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
    devices: Sequence[Any] | Mesh | None = None,
    split: bool | None = None,
) -> Solution:
    """Minimizes the objective from a start until W converges.

    Args:
      W: a positive start, (N, r), float32 or float64; see `initialize`. All results have its dtype.
      S: a scipy sparse matrix, a pair (S_idx, S_val), a `Similarity`, or a prepared `Layout`. The devices
        that a layout was prepared for share the work; otherwise the first one alone where W is an argument of
        a `jit`.
      step: "exact" brings the rows onto the simplex, keeps them there and never raises the objective;
        "relaxed" is the paper's algorithm to the letter: the Lagrangian never rises, the rows drift to
        the simplex.
      tol: stop when the relative change of W, |W_new - W| / |W| in Frobenius norm, is no more than this.
      max_steps: stop after this many steps.
      over_relaxation: the exponent of `decomposition.over_relax`; 1 takes the steps as they are, 1.9
        usually needs fewer of them. The rows are on the simplex then. A step that would raise the
        objective is refused, which costs a sweep, and the exact step taken next.
      concentration: alpha of a Dirichlet prior of the rows of W, see `priors`: above 1 smooths them, below 1
        makes them sparse. Of several numbers, the first is that of the first step, and so on, the last that
        of all the rest: from large to small, it is annealed, and nothing converges before. From 2, say: of
        much more, W becomes uniform, and stays so (experiments/topics). Needs exact steps, as relevance does.
      relevance: rho of a prior of the topics, see `priors`: those that are not needed die out, and weigh less
        than a word. See `pruning.prune` for how large it should be.
      devices: that share the work, or a mesh of them, as in `prepare`, unless S is a layout.
      split: W by rows too, as in `prepare`: it then comes back by way of the host, and stays there.

    Returns:
      The solution. Failure is a value: look at `status`, or pass it to `raise_on_failure`. It can be
      differentiated, forward, where the native kernel is switched off (DCDJAX_NATIVE=0).

    Raises:
      ValueError: naming the argument and the first offending entry.

    Examples:
      >>> import jax, numpy as np, scipy.sparse
      >>> from dcdjax import initialize, solve
      >>> S = scipy.sparse.csr_array(np.kron(np.eye(2), np.ones((3, 3))))
      >>> solution = solve(initialize.uniform(jax.random.key(0), 6, 2), S)
      >>> np.unique(solution.W.argmax(axis=1)[:3]).size
      1
    """
    W, layout = _arguments(W, S, devices, split, batched=False)
    options = checked_options(step, tol, max_steps, over_relaxation)
    prior = checked_prior(concentration, relevance, step, W.dtype)
    return _at_home(W, layout, lambda W: _solve(W, layout, _number(tol, W), prior, **options))


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
    devices: Sequence[Any] | Mesh | None = None,
    split: bool | None = None,
) -> Solution:
    """`solve` from every start of a batch (restarts, N, r) under `vmap`; each stops by itself.

    Args:
      W_batch: positive starts, as from `initialize.uniform(..., restarts=8)`.
      S: as in `solve`, one for all starts.
      step: as in `solve`.
      tol: as in `solve`.
      max_steps: as in `solve`.
      over_relaxation: as in `solve`.
      concentration: as in `solve`.
      relevance: as in `solve`.
      devices: as in `solve`.
      split: as in `solve`.

    Returns:
      A solution with a leading axis of restarts, for `best` or `consensus`.
    """
    W, layout = _arguments(W_batch, S, devices, split, batched=True)
    options = checked_options(step, tol, max_steps, over_relaxation)
    prior = checked_prior(concentration, relevance, step, W.dtype)
    return _at_home(W, layout, lambda W: _solve_restarts(W, layout, _number(tol, W), prior, **options))


def best(solution: Solution) -> Solution:
    """The restart with the lowest objective on the simplex, of those that did not fail.

    Raises:
      ValueError: where a value was not finite in all of them.
    """
    if solution.W.ndim != 3:
        raise ValueError(f"solution must be of solve_restarts, but W has shape {solution.W.shape}")
    usable = (solution.status != Status.NONFINITE.value) & jnp.isfinite(solution.objective)
    if not usable.any():
        raise ValueError(f"solution has no usable restart: {MESSAGES[Status.NONFINITE]}")
    winner = int(jnp.argmin(jnp.where(usable, solution.objective, jnp.inf)))
    return jax.tree.map(lambda leaf: leaf[winner], solution)


def consensus(*solutions: Solution) -> Float[Array, "words all_topics"]:
    """One embedding of all restarts, whose Shat is the mean of their Shat: [W_1 ... W_M] / M.

    Args:
      *solutions: one or more, of the same words; each may hold one start or a batch, and they may differ
        in the number of topics. Every start weighs the same.

    Returns:
      W with the topics of all starts beside each other, rows on the simplex.
    """
    starts = [W for s in solutions for W in (s.W if s.W.ndim == 3 else [s.W])]
    if not starts:
        raise ValueError("consensus needs at least one solution")
    for W in starts:
        if W.shape[0] != starts[0].shape[0]:
            raise ValueError(f"solutions are of different words: {starts[0].shape[0]} and {W.shape[0]}")
    return jnp.concatenate([decomposition.on_simplex(W) for W in starts], axis=1) / len(starts)


def raise_on_failure(solution: Solution) -> Solution:
    """Returns a solution that has converged, every restart of it, as it is; raises SolverError otherwise."""
    codes = np.atleast_1d(np.asarray(solution.status))
    failed = np.flatnonzero(codes != Status.CONVERGED)
    if failed.size:
        first = failed[0]
        of_batch = f" (restart {first}; {failed.size} of {codes.size} failed)" if solution.W.ndim == 3 else ""
        steps = np.atleast_1d(np.asarray(solution.num_steps))[first]
        raise SolverError(f"after {steps} steps: {MESSAGES[Status(int(codes[first]))]}{of_batch}")
    return solution


# --- The loop ---------------------------------------------------------------------------------------


def _sweep(W: Float[Array, "words topics"], layout: Layout, wanted: Bool[Array, ""]) -> decomposition.Sweep:
    def nothing(W: Array) -> decomposition.Sweep:
        return decomposition.Sweep(ZW=jnp.zeros_like(W), log_likelihood=jnp.zeros((), W.dtype))

    # Under vmap one after the other, each on all devices: the rows of W that two of them gather would not fit
    # into the cache together. So a restart that has finished, which vmap's while_loop takes along until the
    # last one is done, can leave its sweep out.
    @jax.custom_batching.sequential_vmap
    def one(W: Array, wanted: Array, *leaves: Array) -> decomposition.Sweep:
        layout = jax.tree.unflatten(structure, leaves)
        return lax.cond(wanted, lambda W: sweeps.sweep(W, layout), nothing, W)

    # Array by array: JAX does not know what is traced outside of the function, nor, if it is old, how to
    # batch a record of its own.
    leaves, structure = jax.tree.flatten(layout)
    return one(W, wanted, *leaves)


def begin(
    W: Float[Array, "words topics"],
    layout: Layout,
    *,
    max_steps: int,
    step: Step,
    over_relaxation: float,
    prior: Prior | None = None,
) -> State:
    """The state before the first step, on the simplex unless the paper is to be followed; takes one sweep."""
    if step == "exact" or over_relaxation != 1:
        W = _on_simplex(W, layout)
    W = _blank(jnp.maximum(W, decomposition.smallest_weight(W.dtype)), layout)
    ZW, log_likelihood = _sweep(W, layout, jnp.array(True))
    objective = _penalized(-log_likelihood, W, layout, prior, jnp.int32(0))
    nothing = jnp.full(max_steps + 1, jnp.nan, W.dtype)
    return State(
        W=W,
        ZW=ZW,
        objective=objective,
        refused=jnp.array(False),
        status=jnp.where(jnp.isfinite(objective), Status.RUNNING.value, Status.NONFINITE.value).astype(
            jnp.int32
        ),
        num_steps=jnp.int32(0),
        history=History(
            objective=nothing.at[0].set(objective),
            change=nothing,
            residual=nothing.at[0].set(_residual(W, layout)),
        ),
    )


def advance(
    state: State,
    layout: Layout,
    *,
    until: Int[Array, ""] | int,
    tol: Float[Array, ""] | float,
    step: Step,
    over_relaxation: float,
    prior: Prior | None = None,
) -> State:
    """Steps until the state has `until` of them, W has converged or a value is not finite."""

    def running(state: State) -> Array:
        return (state.status == Status.RUNNING.value) & (state.num_steps < until)

    def one_step(state: State) -> State:
        return _one_step(state, layout, tol, step, over_relaxation, prior)

    return lax.while_loop(running, one_step, state)


def finish(state: State, layout: Layout, *, step: Step) -> Solution:
    """The solution that a state has reached, in the units of the S that was given."""
    objective = state.objective
    if step == "relaxed":
        # Rows that sum to two double Shat and lower the objective for nothing; only on the simplex can
        # it be compared, between restarts or with the exact step. This takes one more sweep.
        W = _blank(_on_simplex(state.W, layout), layout)
        objective = -_sweep(W, layout, jnp.array(True)).log_likelihood
    stopped = jnp.where(state.status == Status.RUNNING.value, Status.MAX_STEPS.value, state.status)
    return Solution(
        W=state.W,
        objective=layout.scale * objective,
        status=stopped.astype(jnp.int32),
        num_steps=state.num_steps,
        history=state.history._replace(objective=layout.scale * state.history.objective),
    )


def _one_step(
    state: State,
    layout: Layout,
    tol: Float[Array, ""] | float,
    step: Step,
    over_relaxation: float,
    prior: Prior | None,
) -> State:
    # After a refusal the exact step, whichever is over-relaxed: it is proven not to raise the objective.
    plain = jnp.array(True) if over_relaxation == 1 else state.refused
    W = _moved(state, layout, plain, step, over_relaxation, prior)
    running = state.status == Status.RUNNING.value
    ZW, log_likelihood = _sweep(W, layout, running)
    change = jnp.linalg.norm(W - state.W) / jnp.linalg.norm(state.W)
    objective = _penalized(-log_likelihood, W, layout, prior, state.num_steps)
    finite = jnp.isfinite(objective) & jnp.isfinite(change)
    before = _anew(state, layout, prior)
    noise = _OBJECTIVE_NOISE * jnp.finfo(W.dtype).eps * jnp.abs(before)
    # A plain step is not asked: the exact one is proven, and the paper's is free to raise the objective.
    accepted = finite & (plain | (objective <= before + noise))

    W, ZW, objective, change = (
        jnp.where(accepted, new, old)
        for new, old in (
            (W, state.W),
            (ZW, state.ZW),
            (objective, before),
            (change, jnp.zeros_like(change)),
        )
    )
    t = state.num_steps + 1
    # While the concentration is annealed, W may rest where the last one would not let it.
    still = accepted & (change <= tol) & (t >= priors.num_annealed(prior))
    status = jnp.where(still, Status.CONVERGED.value, Status.RUNNING.value)
    status = jnp.where(plain & ~finite, Status.NONFINITE.value, status)
    return State(
        W=W,
        ZW=ZW,
        objective=objective,
        refused=~accepted,
        status=status.astype(jnp.int32),
        num_steps=t,
        history=History(
            objective=state.history.objective.at[t].set(objective),
            change=state.history.change.at[t].set(change),
            residual=state.history.residual.at[t].set(_residual(W, layout)),
        ),
    )


def _penalized(
    objective: Float[Array, ""],
    W: Float[Array, "words topics"],
    layout: Layout,
    prior: Prior | None,
    step: Int[Array, ""],
) -> Float[Array, ""]:
    if prior is None:
        return objective
    held = None if layout.deal is None else layout.deal.held()
    return objective + priors.penalty(prior, step, W, held, layout.num_words)


def _anew(state: State, layout: Layout, prior: Prior | None) -> Float[Array, ""]:
    """The objective of a state by the prior of its next step, which need not be that of its last."""
    if prior is None or prior.concentration is None or prior.concentration.shape[0] == 1:
        return state.objective
    last = jnp.maximum(state.num_steps - 1, 0)
    of_last, of_next = (
        _penalized(jnp.zeros_like(state.objective), state.W, layout, prior, step)
        for step in (last, state.num_steps)
    )
    return state.objective + (of_next - of_last)


def _moved(
    state: State,
    layout: Layout,
    plain: Bool[Array, ""],
    step: Step,
    over_relaxation: float,
    prior: Prior | None,
) -> Float[Array, "words topics"]:
    """The step itself: every device takes it for its part of the words."""
    extra = None if prior is None else priors.pseudocount(prior, state.num_steps, state.W.shape[1])

    def stepped(shared: Any, W: Array, ZW: Array) -> Array:
        sums, _, extra = shared
        return _STEPS[step](sums, W, ZW) if extra is None else priors.exact_step(sums, extra, W, ZW)

    def exactly(shared: Any, W: Array, ZW: Array) -> Array:
        sums, _, extra = shared
        return decomposition.exact_step(sums, W, ZW) if extra is None else stepped(shared, W, ZW)

    def native_rows(shared: Any, W: Array, ZW: Array) -> Array:
        sums, plain, _ = shared
        exponent = jnp.where(plain, 1.0, over_relaxation).astype(W.dtype)
        return native.exact_step(sums, W, ZW, exponent, num_threads=layout.num_threads)

    def over_relaxed(shared: Any, W: Array, ZW: Array) -> Array:
        return decomposition.over_relax(W, stepped(shared, W, ZW), over_relaxation)

    def xla_rows(shared: Any, W: Array, ZW: Array) -> Array:
        if over_relaxation == 1:
            return stepped(shared, W, ZW)
        return lax.cond(shared[1], exactly, over_relaxed, shared, W, ZW)

    native_too = step == "exact" and layout.num_threads > 0 and state.W.dtype == jnp.float32 and extra is None
    rows_step = native_rows if native_too else xla_rows
    sums = decomposition.column_sums(state.W, state.ZW)
    if prior is not None:
        sums = priors.weighed(prior, sums, layout.num_words)
    shared = (sums, plain, extra)
    deal = layout.deal
    if deal is None:
        return sharding.by_rows(rows_step, layout.mesh, shared, state.W, state.ZW)

    def own_rows(device: Array, shared: Any, W: Array, ZW: Array) -> Array:
        if not native_too:  # where all rows go on until the last one is done
            W, ZW = (deal.filled_last(array, device) for array in (W, ZW))
        return deal.blank_last(rows_step(shared, W, ZW), device)

    assert layout.mesh is not None
    return sharding.by_own_rows(own_rows, layout.mesh, shared, state.W, state.ZW)


def _residual(W: Float[Array, "words topics"], layout: Layout) -> Float[Array, ""]:
    distances = jnp.abs(jnp.sum(W, axis=1) - 1)
    return jnp.max(distances if layout.deal is None else jnp.where(layout.deal.held(), distances, 0))


def _on_simplex(W: Float[Array, "words topics"], layout: Layout) -> Float[Array, "words topics"]:
    return decomposition.on_simplex(W if layout.deal is None else layout.deal.filled(W))


def _blank(W: Float[Array, "words topics"], layout: Layout) -> Float[Array, "words topics"]:
    return W if layout.deal is None else layout.deal.blank(W)


def _run(
    W: Float[Array, "words topics"],
    layout: Layout,
    tol: Float[Array, ""] | float,
    prior: Prior | None = None,
    *,
    step: Step,
    max_steps: int,
    over_relaxation: float,
) -> Solution:
    kind: dict[str, Any] = {"step": step, "over_relaxation": over_relaxation, "prior": prior}
    state = begin(W, layout, max_steps=max_steps, **kind)
    state = advance(state, layout, until=max_steps, tol=tol, **kind)
    return finish(state, layout, step=step)


_STATIC = ("step", "max_steps", "over_relaxation")
_solve = jax.jit(_run, static_argnames=_STATIC)


@partial(jax.jit, static_argnames=_STATIC)
def _solve_restarts(
    W: Float[Array, "restarts words topics"],
    layout: Layout,
    tol: Float[Array, ""] | float,
    prior: Prior | None = None,
    *,
    step: Step,
    max_steps: int,
    over_relaxation: float,
) -> Solution:
    run = partial(_run, step=step, max_steps=max_steps, over_relaxation=over_relaxation)
    return jax.vmap(lambda start: run(start, layout, tol, prior))(W)


# --- What was asked for -----------------------------------------------------------------------------


def checked_options(step: Step, tol: ArrayLike, max_steps: int, over_relaxation: float) -> dict[str, Any]:
    """The options, validated; those that are static are returned."""
    if step not in _STEPS:
        raise ValueError(f"step must be one of {sorted(_STEPS)}, got {step!r}")
    if np.ndim(tol) != 0:
        raise ValueError(f"tol must be one number, got shape {np.shape(tol)}")
    if not isinstance(tol, Tracer) and not np.asarray(tol) >= 0:
        raise ValueError(f"tol must be nonnegative, got {tol}")
    max_steps = operator.index(max_steps)
    if max_steps < 0:
        raise ValueError(f"max_steps must be nonnegative, got {max_steps}")
    if not 1 <= over_relaxation < 2:
        raise ValueError(f"over_relaxation must be at least 1 and below 2, got {over_relaxation}")
    return {"step": step, "max_steps": max_steps, "over_relaxation": float(over_relaxation)}


def checked_prior(
    concentration: ArrayLike | Sequence[float], relevance: ArrayLike, step: Step, dtype: Any
) -> Prior | None:
    """What is known of W before, validated."""
    prior = priors.given(concentration, relevance, dtype)
    if prior is not None and step != "exact":
        name = "relevance" if prior.concentration is None else "concentration"
        raise ValueError(f"{name} needs step='exact', got {step!r}")
    return prior


def checked_start(given: ArrayLike, name: str, *, batched: bool, on_host: bool = False) -> Any:
    """W, validated on the host; what is traced can only be looked at for its shape."""
    if on_host and not isinstance(given, jax.Array):  # it may be too large for a device
        W: Any = np.asarray(given)
        W = W.astype(jax.dtypes.canonicalize_dtype(W.dtype), copy=False)
    else:
        W = jnp.asarray(given)
    if W.dtype not in (jnp.float32, jnp.float64):
        raise ValueError(f"{name} must be float32 or float64, got {W.dtype}")
    if W.ndim != 2 + batched or min(W.shape) < 1:
        shape = "(restarts, words, topics)" if batched else "(words, topics)"
        raise ValueError(f"{name} must be {shape} with at least one of each, got shape {W.shape}")
    if not isinstance(W, Tracer):
        bad = np.argwhere(~(np.isfinite(W) & (np.asarray(W) > 0)))
        if bad.size:
            at = tuple(int(n) for n in bad[0])
            raise ValueError(
                f"{name}{list(at)} = {W[at]} is not a finite, positive number ({len(bad)} such in all)"
            )
    return W


def _arguments(
    given: ArrayLike, S: Any, devices: Any, split: bool | None, *, batched: bool
) -> tuple[Array, Layout]:
    """Validates W, and lays S out."""
    name = "W_batch" if batched else "W"
    if isinstance(S, Layout) and not (devices is None and split is None):
        raise ValueError(f"{'split' if devices is None else 'devices'}: S is a layout, prepared for its own")
    on_host = S.deal is not None if isinstance(S, Layout) else split or jax.process_count() > 1
    W = checked_start(given, name, batched=batched, on_host=bool(on_host))
    num_words = W.shape[-2]
    if isinstance(S, Layout):
        layout = S
    elif isinstance(S, tuple | list) and len(S) == 2 and any(isinstance(part, Tracer) for part in S):
        S_idx, S_val = (jnp.asarray(part) for part in S)
        decomposition.check_shapes(W[0] if batched else W, S_idx, S_val)
        S_val, scale = decomposition.normalize(S_val.astype(W.dtype), num_words)
        layout = Layout(pieces=(Nonzeros(S_idx=S_idx, S_val=S_val),), scale=scale, num_words=num_words)
    else:
        # While JAX traces there is no telling on which devices W is.
        if isinstance(W, Tracer) and devices is None:
            devices = jax.local_devices()[:1]
        layout = prepare(S, num_words=num_words, dtype=W.dtype, devices=devices, split=split)
    if layout.num_words != num_words:
        raise ValueError(f"{name} has {num_words} words, but S has {layout.num_words}")
    if layout.scale.dtype != W.dtype:
        raise ValueError(f"{name} is {W.dtype}, but S was prepared for {layout.scale.dtype}")
    return W, layout


def _number(tol: ArrayLike, W: Array) -> Float[Array, ""]:
    # By way of the host, so that it is bound to no device.
    return jnp.asarray(tol if isinstance(tol, Tracer) else np.asarray(tol), W.dtype)


def _at_home(W: Array, layout: Layout, run: Callable[[Array], Solution]) -> Solution:
    """Runs where S lies, and brings the result to where W was."""
    axis = W.ndim - 2
    if isinstance(W, Tracer) or isinstance(layout.scale, Tracer):
        if layout.deal is None:
            return run(W)
        solution = run(layout.placed(W, axis))
        return solution._replace(W=layout.collected(solution.W, axis))
    with jax.ensure_compile_time_eval():  # something else may be traced, such as tol
        start = layout.placed(W, axis)
    with sharding.instead_of_others(layout.mesh):
        solution = run(start)
    if layout.deal is not None:
        return solution._replace(W=layout.collected(solution.W, axis))
    return brought_home(solution, W, layout.devices)


def brought_home(solution: Solution, W: Any, devices: Sequence[Any]) -> Solution:
    """A solution that lies on some devices, where the start was, if that was on one of JAX's."""
    if (
        isinstance(solution.W, Tracer)
        or not isinstance(W, jax.Array)
        or len(W.devices()) > 1
        or W.devices() == set(devices)
    ):
        return solution
    (home,) = W.devices()
    return sharding.everywhere(solution, [home])
