"""Choose the alpha divergence that predicts held-out counts best."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import ArrayLike

from dcdjax.method import decomposition, divergences
from dcdjax.solvers import arguments, gradient, stochastic
from dcdjax.solvers.result import Solution
from dcdjax.util import matrix_checks


class Choice(NamedTuple):
    """Hold the order that predicts the held-out counts best.

    Attributes:
      order: the best order.
      losses: -sum C log Shat / sum C for each order, where C are the held-out counts.
      solution: of the best order.
    """

    order: float
    losses: dict[float, float]
    solution: Solution


def alpha(
    W: ArrayLike,
    S: Any,
    held_out: Any,
    *,
    key: Any,
    orders: Sequence[float] = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0),
    **options: Any,
) -> Choice:
    """Solve with each order of the alpha family, and keep the one that predicts held-out counts best.

    Args:
      W: start; all orders share it.
      S: as in `gradient.solve`.
      held_out: counts of the same words from other text than S: sparse, dense or a pair (S_idx, S_val).
      key: as in `gradient.solve`; all orders share it.
      orders: orders of `divergences.alpha` to try.
      **options: further options of `gradient.solve`.

    Returns:
      The choice. Whatever divergence W was learned with, orders are compared by the log-likelihood of the
      counts, -sum C log Shat.

    Raises:
      ValueError: names the argument.
    """
    orders = [float(order) for order in orders]
    if not orders:
        raise ValueError("orders must be some numbers, got none")
    family = {order: divergences.alpha(order) for order in orders}
    start, batches, _, _ = stochastic.checked_arguments(
        W, S, key, num_batches=options.pop("num_batches", 16), devices=options.pop("devices", None),
        tol=0.0, max_epochs=0,
    )  # fmt: skip
    C_idx, C_val = _counts(held_out, start.shape[0])
    losses, best = {}, None
    for order, divergence in family.items():
        solution = gradient.solve(start, batches, key=key, divergence=divergence, **options)
        losses[order] = float(decomposition.objective(solution.W, C_idx, C_val))
        if best is None or losses[order] < losses[best.order]:
            best = Choice(order, losses, solution)
    assert best is not None
    return best._replace(solution=arguments.move_to_start(best.solution, W, batches.stacked))


def _counts(held_out: Any, num_words: int) -> tuple[np.ndarray, np.ndarray]:
    """Check the counts, and return them as a pair (indices, values) that sums to one."""
    try:
        counts = matrix_checks.canonical("held_out", held_out, num_words).tocoo()
    except ValueError as error:
        named = str(error).startswith("held_out")
        raise ValueError(str(error) if named else f"held_out: {error}") from None
    total = counts.data.sum()
    if not total > 0:
        raise ValueError("held_out has no counts")
    return np.stack([counts.row, counts.col], axis=1).astype(np.int32), counts.data / total
