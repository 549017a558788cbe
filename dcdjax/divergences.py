"""A small function by which S and Shat are compared enters; what its sum over all N x N cells takes leaves.

A divergence is any `d(S, Shat)`, elementwise, with d(x, x) = 0. Only the nonzeros of S are passed over, so
what it is over the zeros must be known otherwise. That is so where d(0, t) = b t + c t^2:

    sum_ij d(S_ij, Shat_ij) = sum over nonzeros [d(S, Shat) - b Shat - c Shat^2]  +  b sum Shat  +  c sum
    Shat^2

with sum Shat = sum W, which is N on the simplex, and sum Shat^2 = sum_kl (W'W)_kl^2 / (s_k s_l), r x r
numbers. Of any other d(0, t), those infinite among them, the sum would take all N x N cells: it is refused.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, ArrayLike, Float, Int

from dcdjax import decomposition, sweeps
from dcdjax.layout import Layout, Nonzeros

Divergence = Callable[[Any, Any], Any]

# Powers of two, at which a polynomial is exact: from where Shat of a rare pair is, to above any.
_POINTS = 2.0 ** np.arange(-20, 4)


def kl(S: Any, Shat: Any) -> Array:
    """The paper's: S log(S / Shat) - S + Shat."""
    some = jnp.where(S > 0, S, 1)
    return jnp.where(S > 0, some * jnp.log(some / Shat), 0) - S + Shat


def squared(S: ArrayLike, Shat: ArrayLike) -> Array:
    """(S - Shat)^2."""
    return jnp.square(jnp.subtract(S, Shat))


@functools.cache  # so that it is compiled for once
def alpha(order: float) -> Divergence:
    """The alpha family: [S^a Shat^(1-a) - a S + (a-1) Shat] / (a (a-1)).

    KL is its limit at 1; at 1/2 it is 2 (sqrt S - sqrt Shat)^2, four times Hellinger's squared distance, and
    at 2 half of Pearson's chi^2. Of a large order it minds most where S is above Shat.

    Args:
      order: a > 0. At 0 and below it is infinite where S is zero.

    Examples:
      >>> round(float(alpha(0.5)(4.0, 1.0)), 6)
      2.0
    """
    order = float(order)  # a number of NumPy's would not take on the dtype of W
    if not 0 < order < float("inf"):
        raise ValueError(
            f"alpha must be positive and finite, got {order}: its terms over zeros of S are not finite"
        )
    if order == 1:
        return kl

    def of_order(S: ArrayLike, Shat: ArrayLike) -> Array:
        S, Shat = jnp.asarray(S), jnp.asarray(Shat)
        some = jnp.where(S > 0, S, 1)
        # S^a Shat^(1-a) - S in a form that does not cancel near a = 1.
        grown = some * jnp.expm1((1 - order) * jnp.log(Shat / some))
        return jnp.where(S > 0, grown / (order * (order - 1)), 0) + (Shat - S) / order

    return of_order


class OverZeros(NamedTuple):
    """d(0, t) = linear t + square t^2."""

    linear: float
    square: float


def over_zeros(divergence: Divergence) -> OverZeros:
    """What a divergence is where S is zero.

    Raises:
      ValueError: where that is no such polynomial, or where S = Shat is not zero.
    """
    if not callable(divergence):
        raise ValueError(f"divergence must be a function of S and Shat, got {divergence!r}")
    with jax.ensure_compile_time_eval():
        points = jnp.asarray(_POINTS, jnp.result_type(float))
        at_zero = np.asarray(divergence(jnp.zeros_like(points), points), np.float64)
        at_equal = np.asarray(divergence(points, points), np.float64)
    if not at_zero.shape == at_equal.shape == _POINTS.shape:
        raise ValueError(
            f"divergence must be elementwise, but of shape {_POINTS.shape} it makes {at_zero.shape}"
        )
    close = 1e-4 * _POINTS
    if not np.all(np.abs(at_equal) <= close):
        worst = int(np.argmax(~(np.abs(at_equal) <= close)))
        raise ValueError(
            f"divergence: d(x, x) must be zero, but is {at_equal[worst]:.3g} at {_POINTS[worst]:.3g}"
        )
    if not np.all(np.isfinite(at_zero)):
        first = int(np.argmin(np.isfinite(at_zero)))
        raise ValueError(
            f"divergence: d(0, t) is {at_zero[first]} at t = {_POINTS[first]:.3g}, and zeros of S have no sum"
            + (" (jax.scipy.special.xlogy has 0 log 0 = 0)" if np.isnan(at_zero[first]) else "")
        )
    # By the ends, where one term outweighs the other: else a small one would drown in the other's rounding.
    least, most = _POINTS[0], _POINTS[-1]
    square = (at_zero[-1] / most - at_zero[0] / least) / (most - least)
    linear = at_zero[0] / least - square * least
    size = (abs(linear) + abs(square) * _POINTS) * _POINTS
    wrong = ~(np.abs(at_zero - (linear + square * _POINTS) * _POINTS) <= 1e-4 * size)
    if np.any(wrong):
        first = int(np.argmax(wrong))
        raise ValueError(
            f"divergence: d(0, t) must be b t + c t^2 to be summed over the zeros of S, but is "
            f"{at_zero[first]:.3g} at t = {_POINTS[first]:.3g}, {at_zero[0]:.3g} at {least:.3g} and "
            f"{at_zero[-1]:.3g} at {most:.3g}"
        )
    return OverZeros(linear=float(linear), square=float(square))


def entries(divergence: Divergence, zeros: OverZeros) -> sweeps.Entries:
    """Of what a nonzero has beyond a zero, minus the slope by Shat, and minus the value."""

    def of(S: Array, Shat: Array) -> tuple[Array, Array]:
        some = jnp.where(S > 0, S, 1)

        def beyond(Shat: Array) -> Array:
            return divergence(some, Shat) - (zeros.linear + zeros.square * Shat) * Shat

        value, slope = jax.jvp(beyond, (Shat,), (jnp.ones_like(Shat),))
        return jnp.where(S > 0, -slope, 0), jnp.where(S > 0, -value, 0)

    return of


def squares(W: Float[Array, "words topics"]) -> Float[Array, ""]:
    """sum_ij Shat_ij^2, of all N x N cells, by the r x r numbers W'W."""
    gram = jnp.matmul(W.T, W, precision=lax.Precision.HIGHEST)
    s = jnp.sum(W, axis=0)
    # Each factor by s before they meet: of a topic that nobody holds the product would underflow.
    return jnp.sum((gram / s[:, None]) * (gram / s[None, :]))


def cells(zeros: OverZeros, W: Float[Array, "words topics"]) -> Float[Array, ""]:
    """What all cells would add if S were zero: b sum Shat + c sum Shat^2."""
    linear = zeros.linear * jnp.sum(W)
    return linear + zeros.square * squares(W) if zeros.square else linear


def total(
    divergence: Divergence,
    W: Float[Array, "words topics"],
    S_idx: Int[Array, "nonzeros 2"],
    S_val: Float[Array, " nonzeros"],
) -> Float[Array, ""]:
    """D(S || Shat) = sum_ij d(S_ij, Shat_ij), over all N x N cells, zeros of S included.

    Args:
      divergence: such as `kl`, `squared`, `alpha(0.5)` or one of your own.
      W: positive, (N, r).
      S_idx: int32 (nnz, 2), both triangles, none twice.
      S_val: (nnz,).

    Raises:
      ValueError: where the zeros of S cannot be summed over.
    """
    decomposition.check_shapes(W, S_idx, S_val)
    zeros = over_zeros(divergence)
    nonzeros = Nonzeros(S_idx=S_idx, S_val=S_val.astype(W.dtype))
    alone = Layout(pieces=(nonzeros,), scale=jnp.ones((), W.dtype), num_words=W.shape[0])
    swept = sweeps.sweep(W, alone, entries(divergence, zeros))
    return cells(zeros, W) - swept.log_likelihood
