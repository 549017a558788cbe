"""Find the multiplier that puts a row of W on the simplex: the root that the exact step needs."""

import math

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

# The root took up to 5 iterations on rows from real runs, and 7 on the worst rows that we constructed
# (experiments/row_root). The loop ends when the last row has converged.
_MAX_ITERATIONS = 16


def row_root(
    A: Float[Array, "words topics"], poles: Float[Array, "#words topics"]
) -> Float[Array, "words 1"]:
    """Solve sum_k A_ik / (poles_k + x_i) = 1 for x_i > 0, for all rows at once.

    The iteration starts below the root, at max_k (A_ik - poles_k), and rises to the root without passing it.

    Args:
      A: positive.
      poles: nonnegative. The smallest pole of each row is zero. All rows may share their poles.

    Returns:
      The roots x. Convergence is quadratic: the loop ends when, before the last iteration, the sum of every
      row was within the *square root* of the rounding error of one.
    """
    close = math.sqrt(jnp.finfo(A.dtype).eps)

    def unfinished(carry: tuple[Array, Array, Array]) -> Array:
        _, error, iteration = carry
        return (iteration < _MAX_ITERATIONS) & jnp.any(error > close)

    def iterate(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        x, _, iteration = carry
        row_sum, closer = climb(A, poles, x)
        return jnp.maximum(x, closer), jnp.abs(row_sum - 1), iteration + 1

    start = jnp.max(A - poles, axis=1, keepdims=True)
    start = jnp.maximum(start, jnp.finfo(A.dtype).tiny)
    x, _, _ = lax.while_loop(unfinished, iterate, (start, jnp.full_like(start, jnp.inf), jnp.int32(0)))
    return x


def climb(
    A: Float[Array, "words topics"], poles: Float[Array, "#words topics"], x: Float[Array, "words 1"]
) -> tuple[Float[Array, "words 1"], Float[Array, "words 1"]]:
    """Return the row sums at x, and a point y between x and the root.

    For any group G of topics, psi(x) = sum_G A_k / (poles_k + x) has a concave reciprocal. So its tangent at
    x gives a lower bound, psi(y) >= beta / (u + y - x), with u = -psi / psi' and beta = psi u. Newton's
    method is this bound with all topics in one group. It only doubles x per iteration while a topic with
    hardly any weight has the smallest pole. With two groups, the poles up to x and those beyond, y solves a
    quadratic equation, and the iteration does not slow down there.
    """
    tiny = jnp.finfo(A.dtype).tiny
    terms = A / (poles + x)
    # -psi' times x: with a second division, XLA would compute A / (poles + x)^2, and that square underflows.
    slopes = terms * (x / (poles + x))
    near = poles <= x
    # All four sums in one reduction: XLA makes one loop of it, which is five times as fast on the CPU.
    psi_near, slope_near, psi_far, slope_far = (
        jnp.expand_dims(total, axis=1)
        for total in lax.reduce(
            tuple(jnp.where(group, part, 0) for group in (near, ~near) for part in (terms, slopes)),
            (jnp.zeros((), A.dtype),) * 4,
            lambda left, right: tuple(a + b for a, b in zip(left, right, strict=True)),
            dimensions=(1,),
        )
    )
    u_near = x * (psi_near / jnp.maximum(slope_near, tiny))
    u_far = x * (psi_far / jnp.maximum(slope_far, tiny))
    beta_near, beta_far = psi_near * u_near, psi_far * u_far

    # Solve beta_near / v + beta_far / (v + gap) = 1 for v = u_near + y - x > 0. That is the positive root of
    # v^2 - p v - beta_near gap = 0, in the form that loses no digits.
    gap = jnp.maximum(u_far - u_near, 0)
    p = beta_near + beta_far - gap
    root = jnp.hypot(p, 2 * jnp.sqrt(beta_near) * jnp.sqrt(gap))
    v = jnp.where(p >= 0, (p + root) / 2, beta_near * (2 * gap / jnp.maximum(root - p, tiny)))
    return psi_near + psi_far, x + (v - u_near)
