"""Compare S and Shat by other divergences than the paper's.

A divergence is any elementwise function d(S, Shat) with d(x, x) = 0. Its sum over all N x N cells must not
take N x N operations, and a pass reads only the nonzeros of S. This works if d(0, t) = b t + c t^2:

    sum_ij d(S_ij, Shat_ij) = sum over nonzeros [d(S, Shat) - b Shat - c Shat^2]
                              + b sum_ij Shat_ij + c sum_ij Shat_ij^2

where sum Shat = sum W, which is N on the simplex, and sum Shat^2 = sum_kl (W'W)_kl^2 / (s_k s_l), a sum of r
x r numbers. Any other d(0, t) raises ValueError.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, ArrayLike, Float

from dcdjax.method import decomposition
from dcdjax.method.decomposition import Indices, Values, Weights

Divergence = Callable[[Any, Any], Any]

# Where d(0, t) is probed: powers of two, at which a polynomial is exact, from below the Shat of a rare pair
# to above any Shat.
_POINTS = 2.0 ** np.arange(-20, 4)


def kl(S: Any, Shat: Any) -> Array:
    """Return the paper's divergence, S log(S / Shat) - S + Shat."""
    positive_S = jnp.where(S > 0, S, 1)
    return jnp.where(S > 0, positive_S * jnp.log(positive_S / Shat), 0) - S + Shat


def squared(S: ArrayLike, Shat: ArrayLike) -> Array:
    """Return (S - Shat)^2."""
    return jnp.square(jnp.subtract(S, Shat))


@functools.cache  # one object for each order, so that JAX compiles once
def alpha(order: float) -> Divergence:
    """Return a divergence of the alpha family, [S^a Shat^(1-a) - a S + (a-1) Shat] / (a (a-1)).

    | order a | divergence |
    |---|---|
    | 1 | KL, the limit |
    | 1/2 | 2 (sqrt S - sqrt Shat)^2, four times the squared Hellinger distance |
    | 2 | half of Pearson's chi^2 |

    Args:
      order: a > 0. A larger order penalizes more the cells in which S is above Shat. For a <= 0 the
        divergence is infinite where S is zero.

    Examples:
      >>> round(float(alpha(0.5)(4.0, 1.0)), 6)
      2.0
    """
    order = float(order)  # a NumPy number would override the dtype of W
    if not 0 < order < float("inf"):
        raise ValueError(
            f"alpha must be positive and finite, got {order}: its terms over zeros of S are not finite"
        )
    if order == 1:
        return kl

    def divergence(S: ArrayLike, Shat: ArrayLike) -> Array:
        S, Shat = jnp.asarray(S), jnp.asarray(Shat)
        positive_S = jnp.where(S > 0, S, 1)
        # S^a Shat^(1-a) - S in a form that does not cancel near a = 1.
        difference = positive_S * jnp.expm1((1 - order) * jnp.log(Shat / positive_S))
        return jnp.where(S > 0, difference / (order * (order - 1)), 0) + (Shat - S) / order

    return divergence


class OverZeros(NamedTuple):
    """Hold the coefficients of d(0, t) = linear t + square t^2."""

    linear: float
    square: float


def over_zeros(divergence: Divergence) -> OverZeros:
    """Find the polynomial d(0, t) of a divergence by probing it.

    Raises:
      ValueError: if d(0, t) is not b t + c t^2, or if d(x, x) is not zero.
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
    wrong = ~(np.abs(at_equal) <= 1e-4 * _POINTS)
    if wrong.any():
        first = wrong.argmax()
        raise ValueError(
            f"divergence: d(x, x) must be zero, but is {at_equal[first]:.3g} at {_POINTS[first]:.3g}"
        )
    if not np.isfinite(at_zero).all():
        first = np.isfinite(at_zero).argmin()
        raise ValueError(
            f"divergence: d(0, t) is {at_zero[first]} at t = {_POINTS[first]:.3g}, and zeros of S have no sum"
            + (" (jax.scipy.special.xlogy has 0 log 0 = 0)" if np.isnan(at_zero[first]) else "")
        )
    # Fit at the two ends, where one term outweighs the other: in between, rounding would hide the smaller
    # one.
    least, most = _POINTS[0], _POINTS[-1]
    square = (at_zero[-1] / most - at_zero[0] / least) / (most - least)
    linear = at_zero[0] / least - square * least
    size = (abs(linear) + abs(square) * _POINTS) * _POINTS
    wrong = ~(np.abs(at_zero - (linear + square * _POINTS) * _POINTS) <= 1e-4 * size)
    if wrong.any():
        first = wrong.argmax()
        raise ValueError(
            f"divergence: d(0, t) must be b t + c t^2 to be summed over the zeros of S, but is "
            f"{at_zero[first]:.3g} at t = {_POINTS[first]:.3g}, {at_zero[0]:.3g} at {least:.3g} and "
            f"{at_zero[-1]:.3g} at {most:.3g}"
        )
    return OverZeros(linear=float(linear), square=float(square))


def entries(divergence: Divergence, zeros: OverZeros) -> decomposition.Entries:
    """Return the function of (S, Shat) that a sweep needs: (-f', -f) for f = d(S, Shat) - d(0, Shat)."""

    def z_and_terms(S: Array, Shat: Array) -> tuple[Array, Array]:
        positive_S = jnp.where(S > 0, S, 1)

        def beyond_zero(Shat: Array) -> Array:
            return divergence(positive_S, Shat) - (zeros.linear + zeros.square * Shat) * Shat

        value, slope = jax.jvp(beyond_zero, (Shat,), (jnp.ones_like(Shat),))
        return jnp.where(S > 0, -slope, 0), jnp.where(S > 0, -value, 0)

    return z_and_terms


def sum_of_squares(W: Weights) -> Float[Array, ""]:
    """Return sum_ij Shat_ij^2 over all N x N cells, from the r x r matrix W'W."""
    gram = jnp.matmul(W.T, W, precision=lax.Precision.HIGHEST)
    s = jnp.sum(W, axis=0)
    # Divide each factor by s first: for a topic that no word holds, the product would underflow.
    return jnp.sum((gram / s[:, None]) * (gram / s[None, :]))


def from_zeros(zeros: OverZeros, W: Weights) -> Float[Array, ""]:
    """Return b sum Shat + c sum Shat^2, the divergence of Shat from an S of zeros."""
    linear = zeros.linear * jnp.sum(W)
    return linear + zeros.square * sum_of_squares(W) if zeros.square else linear


def total(divergence: Divergence, W: Weights, S_idx: Indices, S_val: Values) -> Float[Array, ""]:
    """Return D(S || Shat) = sum_ij d(S_ij, Shat_ij) over all N x N cells, including the zeros of S.

    Args:
      divergence: `kl`, `squared`, `alpha(0.5)` or a function of your own.
      W: positive, (N, r).
      S_idx: rows and columns of the nonzeros, int32 (nnz, 2), both triangles, no duplicates.
      S_val: values of the nonzeros, (nnz,).

    Raises:
      ValueError: if the sum over the zeros of S would take N x N operations.
    """
    decomposition.check_shapes(W, S_idx, S_val)
    zeros = over_zeros(divergence)
    swept = decomposition.sweep(W, S_idx, S_val, entries(divergence, zeros))
    return from_zeros(zeros, W) - swept.log_likelihood
