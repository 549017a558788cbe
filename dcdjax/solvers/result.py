"""Define what a solver returns, and pick or combine the solutions of several starts."""

import enum
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from dcdjax.method import decomposition


class Status(enum.IntEnum):
    """Say why the solver stopped."""

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
    """Describe W after each step. Entry 0 is the start; entries of steps not taken are NaN."""

    objective: Float[Array, "*batch steps_and_start"]
    change: Float[Array, "*batch steps_and_start"]  # |W_t - W_(t-1)| / |W_(t-1)|; 0 for a refused step
    residual: Float[Array, "*batch steps_and_start"]  # max_i |sum_k W_ik - 1|

    def __repr__(self) -> str:
        return f"History({', '.join(self._fields)}: {_shape(self.objective)})"


class Solution(NamedTuple):
    """Hold the result of a solver. From `solve_restarts`, every field has a leading axis of restarts."""

    W: Float[Array, "*batch words topics"]
    objective: Float[Array, "*batch"]  # -sum S log Shat for rows on the simplex, plus the priors' terms
    status: Int[Array, "*batch"]  # a Status; MESSAGES has the sentence for each
    num_steps: Int[Array, "*batch"]
    history: History

    def __repr__(self) -> str:
        parts = [f"W {_shape(self.W)}"]
        values = (self.objective, self.status, self.num_steps)
        if all(map(_is_known, values)):
            objectives, codes, steps = (np.ravel(np.asarray(value)) for value in values)
            ends = [
                f"{Status(int(code)).name.lower()} after {number} steps"
                for code, number in zip(codes, steps, strict=True)
            ]
            parts += [f"objective {', '.join(f'{value:.6g}' for value in objectives)}", *ends]
        return f"Solution({', '.join(parts)})"


def _shape(array: Any) -> str:
    return str(tuple(getattr(array, "shape", ())))


def _is_known(value: Any) -> bool:
    """Return whether this is an array with numbers, unlike in a function that JAX traces."""
    return isinstance(value, np.ndarray | np.generic | jax.Array) and not isinstance(value, Tracer)


class SolverError(RuntimeError):
    """Raised by `raise_on_failure`."""


def best(solution: Solution) -> Solution:
    """Return the restart with the lowest objective among those that did not fail.

    Raises:
      ValueError: if every restart met a value that was not finite.
    """
    if solution.W.ndim != 3:
        raise ValueError(f"solution must be of solve_restarts, but W has shape {solution.W.shape}")
    usable = (solution.status != Status.NONFINITE.value) & jnp.isfinite(solution.objective)
    if not usable.any():
        raise ValueError(f"solution has no usable restart: {MESSAGES[Status.NONFINITE]}")
    winner = int(jnp.argmin(jnp.where(usable, solution.objective, jnp.inf)))
    return jax.tree.map(lambda leaf: leaf[winner], solution)


def consensus(*solutions: Solution) -> Float[Array, "words all_topics"]:
    """Join all restarts to one embedding, [W_1 ... W_M] / M. Its Shat is the mean of their Shat.

    Args:
      *solutions: one or more solutions for the same words. Each may hold one start or a batch of starts.
        Their numbers of topics may differ. Every start has the same weight.

    Returns:
      W with the topics of all starts side by side. Rows sum to one.
    """
    starts = [W for s in solutions for W in (s.W if s.W.ndim == 3 else [s.W])]
    if not starts:
        raise ValueError("consensus needs at least one solution")
    for W in starts:
        if W.shape[0] != starts[0].shape[0]:
            raise ValueError(f"solutions are of different words: {starts[0].shape[0]} and {W.shape[0]}")
    return jnp.concatenate([decomposition.on_simplex(W) for W in starts], axis=1) / len(starts)


def raise_on_failure(solution: Solution) -> Solution:
    """Return the solution if every restart has converged; raise SolverError otherwise."""
    codes = np.atleast_1d(np.asarray(solution.status))
    failed = np.flatnonzero(codes != Status.CONVERGED)
    if failed.size:
        first = failed[0]
        of_batch = f" (restart {first}; {failed.size} of {codes.size} failed)" if solution.W.ndim == 3 else ""
        steps = np.atleast_1d(np.asarray(solution.num_steps))[first]
        raise SolverError(f"after {steps} steps: {MESSAGES[Status(int(codes[first]))]}{of_batch}")
    return solution
