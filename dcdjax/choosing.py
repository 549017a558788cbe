"""A start W, an S and counts held out enter; the alpha of the divergence that predicts these best leaves."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import ArrayLike

from dcdjax import decomposition, divergences, epochs, gradient, solver, validation
from dcdjax.solver import Solution


class Choice(NamedTuple):
    """Which order of the alpha family predicts best what was held out."""

    order: float
    losses: dict[float, float]  # -sum C log Shat / sum C of the counts C held out, of each order
    solution: Solution  # of that order


def alpha(
    W: ArrayLike,
    S: Any,
    held_out: Any,
    *,
    key: Any,
    orders: Sequence[float] = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0),
    **options: Any,
) -> Choice:
    """Learns with each order of the alpha family, and keeps that which predicts counts held out the best.

    Args:
      W: the start, of all of them.
      S: as in `gradient.solve`.
      held_out: counts of the same words, taken where S was not: sparse, dense or a pair (S_idx, S_val).
      key: as in `gradient.solve`, the same for all.
      orders: of `divergences.alpha`.
      **options: of `gradient.solve`.

    Returns:
      The choice. All are compared by the likelihood of the counts, -sum C log Shat, whatever they were
      learned by.

    Raises:
      ValueError: naming the argument.
    """
    orders = [float(order) for order in orders]
    if not orders:
        raise ValueError("orders must be some numbers, got none")
    family = {order: divergences.alpha(order) for order in orders}
    start, batches, _, _ = epochs.arguments(
        W, S, key, num_batches=options.pop("num_batches", 16), devices=options.pop("devices", None),
        tol=0.0, max_epochs=0,
    )  # fmt: skip
    C_idx, C_val = _counts(held_out, start.shape[0])
    losses, best = {}, None
    for order, divergence in family.items():
        found = gradient.solve(start, batches, key=key, divergence=divergence, **options)
        losses[order] = float(decomposition.objective(found.W, C_idx, C_val))
        if best is None or losses[order] < losses[best[0]]:
            best = order, found
    assert best is not None
    home = solver.brought_home(best[1], W, batches.devices)
    return Choice(order=best[0], losses=losses, solution=home)


def _counts(held_out: Any, num_words: int) -> tuple[np.ndarray, np.ndarray]:
    """Validated, as a pair, and summing up to one."""
    try:
        counts = validation.canonical("held_out", held_out, num_words).tocoo()
    except ValueError as error:
        named = str(error).startswith("held_out")
        raise ValueError(str(error) if named else f"held_out: {error}") from None
    total = counts.data.sum()
    if not total > 0:
        raise ValueError("held_out has no counts")
    return np.stack([counts.row, counts.col], axis=1).astype(np.int32), counts.data / total
