"""Estimate how many steps a solve will take, so that a bar can tell the time left."""

from collections.abc import Sequence

import numpy as np

# Fewer changes of W say nothing of how fast they fall.
_LEAST_STEPS = 4
# A slower fall, as an exponent, is none: the estimate would be beyond any max_steps.
_SLOWEST_FALL = 0.05


def expected_steps(changes: np.ndarray, tol: float, max_steps: int) -> int | None:
    """Estimate after how many steps the relative change of W reaches the tolerance.

    The change falls nearly as a power of the number of steps: on texts, about as t^-1.3. So a line is fitted
    to the logarithms of the last half of the steps. Of a text's dozen steps, the estimate is right to one or
    two from the fourth step on; an exponential fall would promise too few.

    Args:
      changes: the relative change of W in each step so far; 0 for a refused step.
      tol: the tolerance.
      max_steps: the largest possible number of steps.

    Returns:
      The number of all steps, at most `max_steps`, or None if there are too few changes to tell.

    Example:
      >>> changes = np.arange(1, 11) ** -1.5
      >>> expected_steps(changes, 1e-3, 500), expected_steps(changes[:3], 1e-3, 500)
      (100, None)
    """
    if not tol > 0:
        return max_steps
    taken = len(changes)
    if taken < _LEAST_STEPS:
        return None
    steps = np.arange(taken // 2, taken) + 1
    last = changes[taken // 2 :]
    usable = np.isfinite(last) & (last > 0)
    if usable.sum() < 2:
        return max_steps
    x, y = np.log(steps[usable]), np.log(last[usable])
    fall = -np.polyfit(x, y, 1)[0]
    if not fall > _SLOWEST_FALL:
        return max_steps
    logarithm = np.mean(x) + (np.mean(y) - np.log(tol)) / fall
    end = int(np.rint(np.exp(min(logarithm, np.log(max_steps)))))
    return min(max(end, taken + 1), max_steps)


class SteadyTotal:
    """Keep the total of a bar such that the bar never moves back, though the estimate may grow.

    Example:
      >>> total = SteadyTotal()
      >>> total(0, 40), total(10, 20), total(12, 48), total(30, 40)
      (40, 20, 24, 40)
    """

    def __init__(self) -> None:
        self._share = 0.0

    def __call__(self, done: int, expected: int) -> int:
        """Return the total to show when `done` of the expected number of steps are done."""
        if self._share and done / expected < self._share:
            return max(done, int(done / self._share))
        self._share = done / expected if expected else 0.0
        return expected


def expected_total(
    taken: Sequence[int],
    under_way: Sequence[int | None],
    waiting: Sequence[int],
    tol: float,
    max_steps: int,
) -> int | None:
    """Estimate the steps of all starts together.

    Args:
      taken: the steps of the starts that have ended.
      under_way: the expected steps of the starts under way, None where they are not known yet.
      waiting: the steps that the starts that wait have taken in an earlier run, usually 0.
      tol: the tolerance. No start reaches 0.
      max_steps: the largest number of steps of each.

    Returns:
      The number of steps. Starts of which nothing is known are taken to need what the others do. None if
      nothing is known of any.

    Example:
      >>> expected_total([12, 14], [20, None], [0, 0], 0.1, 200), expected_total([], [None], [0], 0.1, 200)
      (91, None)
    """
    if not tol > 0:
        return sum(taken) + max_steps * (len(under_way) + len(waiting))
    known = [*taken, *(number for number in under_way if number is not None)]
    unknown = [0 for number in under_way if number is None] + list(waiting)
    if not unknown:
        return sum(known)
    if not known:
        return None
    usual = min(max_steps, round(sum(known) / len(known)))
    return sum(known) + sum(max(usual, number) for number in unknown)
