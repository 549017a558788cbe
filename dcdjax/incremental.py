"""A start W and an S enter; a Solution leaves, by an exact step after each minibatch of S.

The majorizer of the exact step needs of S only T_ik = sum_j S_ij q_ijk, where q_ijk = W_ik W_jk / (s_k
Shat_ij) is the share of topic k in a pair of words. A minibatch has its part in T. It is looked at, which
makes its part anew by the current W, and all rows take the step by what is then known of T:

    W_ik <- 2 T_ik / (plus_k + lam_i),    plus_k = sum_i T_ik / s_k.

*Average*: T <- (1 - g) T + g M part, of M minibatches, g falling from 0.9 as the inverse of the number of
epochs: what was learned of an early W is soon forgotten, noise is averaged away later (Cappe and Moulines,
2009). The sum of each row of T is known, that of S, and kept. One T is all that is remembered.

*Parts*: T is the sum of the parts that the minibatches had when they were looked at last (Neal and Hinton,
1998). For *any* shares q that sum to one over k,

    F(q, W) = sum_ij S_ij sum_k q_ijk log(q_ijk s_k / (W_ik W_jk))  >=  -sum_ij S_ij log Shat_ij,

with equality for the q of W; new shares of a minibatch lower F, and so does the exact step. F never rises;
the objective under it may. A T of each minibatch is remembered: as much as so many W.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from dcdjax import decomposition, epochs, native, sharding, solver, sweeps
from dcdjax.minibatches import Minibatches
from dcdjax.solver import Solution

Memory = Literal["average", "parts"]

# g of the first minibatch. Not all: a word that a minibatch does not know keeps the topics that it had.
_FIRST = 0.9


def solve(
    W: ArrayLike,
    S: Any,
    *,
    key: Any,
    memory: Memory = "average",
    num_batches: int = 16,
    over_relaxation: float = 1.9,
    tol: ArrayLike = 1e-3,
    max_epochs: int = 5,
    devices: Sequence[Any] | Mesh | None = None,
) -> Solution:
    """Minimizes the objective of `dcdjax.solve` by exact steps after each minibatch, from a start.

    From a random start on a large S it is far ahead of `dcdjax.solve` in the first epochs, which then takes
    it to the end: `dcdjax.solve(incremental.solve(W, S, key=0).W, S)`. See experiments/stochastic.

    Args:
      W: a positive start, (N, r), float32 or float64; see `initialize`.
      S: as in `dcdjax.solve`, or what `minibatches.draw` made of it.
      key: from `jax.random.key`, or a whole number to make one of: by it S is dealt to minibatches, and these
        are taken, each once an epoch in another order.
      memory: of the minibatches before: their "average", or the "parts" of them all.
      num_batches: how many, unless S is minibatches. One of them with "parts" and no over-relaxation is
        `dcdjax.solve`.
      over_relaxation: as in `dcdjax.solve`, but nothing is refused. With 1 and "parts", F never rises.
      tol: stop when the relative change of W over an epoch is no more than this.
      max_epochs: stop after so many times over S.
      devices: that share the work, as in `prepare`, unless S is minibatches.

    Returns:
      The solution, steps being epochs. Its objective is that of W. In its history each minibatch is taken
      where it was looked at: an estimate that costs nothing, and is late by half an epoch. Of the start there
      is none.

    Raises:
      ValueError: naming the argument.

    Examples:
      >>> import jax, numpy as np, scipy.sparse
      >>> from dcdjax import incremental, initialize
      >>> S = scipy.sparse.csr_array(np.kron(np.eye(2), np.ones((30, 30))))
      >>> start = initialize.uniform(jax.random.key(0), 60, 2)
      >>> solution = incremental.solve(start, S, key=0, num_batches=4)
      >>> np.unique(solution.W.argmax(axis=1)[:30]).size
      1
    """
    if memory not in ("average", "parts"):
        raise ValueError(f"memory must be 'average' or 'parts', got {memory!r}")
    solver.checked_options("exact", tol, 0, over_relaxation)
    start, batches, key, max_epochs = epochs.arguments(
        W, S, key, num_batches=num_batches, tol=tol, max_epochs=max_epochs, devices=devices
    )
    return epochs.at_home(
        W,
        batches,
        lambda: _solve(
            start, batches, key, jnp.asarray(tol, start.dtype),
            memory=memory, over_relaxation=float(over_relaxation), max_epochs=max_epochs,
        ),
    )  # fmt: skip


@partial(jax.jit, static_argnames=("memory", "over_relaxation", "max_epochs"))
def _solve(
    W: Array,
    batches: Minibatches,
    key: PRNGKeyArray,
    tol: Array,
    *,
    memory: Memory,
    over_relaxation: float,
    max_epochs: int,
) -> Solution:
    going = way(batches, memory, over_relaxation)
    state = epochs.begin(begun(W, batches, memory), going, key, max_epochs)
    state = epochs.advance(state, going, batches.num_batches, until=max_epochs, tol=tol)
    return finish(state, batches, going)


def begun(W: Float[Array, "words topics"], batches: Minibatches, memory: Memory) -> Any:
    """What is carried into the first epoch: W and what is remembered."""
    W = decomposition.on_simplex(W)
    if memory == "average":  # T of shares that are W's own: as if nothing had been seen
        return W, W * batches.degrees[:, None], jnp.int32(0)
    parts = lax.map(lambda number: _part(W, batches, number)[0], _numbers(batches))
    return W, jnp.zeros_like(W), parts


def way(batches: Minibatches, memory: Memory, over_relaxation: float) -> epochs.Way:
    """A step after each minibatch. Carried is W first, then T."""

    def with_average(carried: Any, number: Array, _: Array) -> tuple[Any, Array]:
        W, T, num_visited = carried
        part, log_likelihood = _part(W, batches, number)
        g = _FIRST / (1 + num_visited.astype(W.dtype) / batches.num_batches)
        T = (1 - g) * T + (g * batches.num_batches) * part
        # By what is known of the sum of each row a word that is rare, and was not seen, is not forgotten.
        T = T * (batches.degrees / jnp.sum(T, axis=1))[:, None]
        return (_stepped(W, T, batches, over_relaxation), T, num_visited + 1), -log_likelihood

    def with_parts(carried: Any, number: Array, _: Array) -> tuple[Any, Array]:
        W, T, parts = carried
        part, log_likelihood = _part(W, batches, number)
        before = lax.dynamic_index_in_dim(parts, number, keepdims=False)
        T = T + (part - before)
        parts = lax.dynamic_update_index_in_dim(parts, part, number, axis=0)
        return (_stepped(W, T, batches, over_relaxation), T, parts), -log_likelihood

    def afresh(carried: Any) -> Any:
        W, _, parts = carried
        return W, jnp.sum(parts, axis=0), parts  # so that rounding errors do not add up over epochs

    return epochs.Way(
        visit=with_average if memory == "average" else with_parts,
        W=lambda carried: carried[0],
        besides=lambda carried, _: jnp.zeros((), carried[0].dtype),
        afresh=afresh if memory == "parts" else lambda carried: carried,
    )


def finish(state: epochs.State, batches: Minibatches, going: epochs.Way) -> Solution:
    """See `epochs.finish`."""

    def objective(W: Array, _: Array) -> Array:
        def look(so_far: Array, number: Array) -> tuple[Array, None]:
            return so_far - sweeps.sweep(W, batches.layout(number)).log_likelihood, None

        total, __ = lax.scan(look, jnp.zeros((), W.dtype), _numbers(batches))
        return total

    return epochs.finish(state, going, objective, batches.scale)


def _numbers(batches: Minibatches) -> Int[Array, " batches"]:
    return jnp.arange(batches.num_batches, dtype=jnp.int32)


def _part(
    W: Float[Array, "words topics"], batches: Minibatches, number: Int[Array, ""]
) -> tuple[Float[Array, "words topics"], Float[Array, ""]]:
    """T of a minibatch, and its log-likelihood."""
    ZW, log_likelihood = sweeps.sweep(W, batches.layout(number))
    return W * (ZW / jnp.sum(W, axis=0, keepdims=True)), log_likelihood


def _stepped(
    W: Float[Array, "words topics"],
    T: Float[Array, "words topics"],
    batches: Minibatches,
    over_relaxation: float,
) -> Float[Array, "words topics"]:
    """The exact step by T: that of a ZW for which W * ZW / s is T."""
    s = jnp.sum(W, axis=0, keepdims=True)
    T = jnp.maximum(T, 0)  # differences of parts may be below it by a rounding error
    sums = decomposition.Sums(s=s, plus=jnp.sum(T, axis=0, keepdims=True) / s)
    ZW = T * (s / W)
    if batches.num_threads and W.dtype == jnp.float32:
        exponent = jnp.asarray(over_relaxation, W.dtype)
        return native.exact_step(sums, W, ZW, exponent, num_threads=batches.num_threads)

    def rows(sums: decomposition.Sums, W: Array, ZW: Array) -> Array:
        moved = decomposition.exact_step(sums, W, ZW)
        return moved if over_relaxation == 1 else decomposition.over_relax(W, moved, over_relaxation)

    return sharding.by_rows(rows, batches.mesh, sums, W, ZW)
