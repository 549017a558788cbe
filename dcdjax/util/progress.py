"""Show the progress of long computations as bars on a terminal or in a notebook, and the time left."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Protocol, runtime_checkable

import tqdm.auto

# A remark takes the place of the speed, which the time left tells too: both do not fit 80 columns.
_FORMAT = "{l_bar}{bar}| {counted} [{elapsed}<{remaining}{postfix}]"
_WITHOUT_TOTAL = "{desc}: {counted} [{elapsed}{postfix}]"
# Smaller numbers are shown as they are, larger ones with a prefix: 9500, 12.3k, 2.05M.
_LEAST_SCALED = 10_000
# Fewer changes of W say nothing of how fast they fall.
_LEAST_STEPS = 4
# A slower fall, as an exponent, is none: the estimate would be beyond any max_steps.
_SLOWEST_FALL = 0.05


@runtime_checkable
class Progress(Protocol):
    """Define the function that long computations call to report progress."""

    def __call__(self, stage: str, done: int, total: int | None, unit: str, detail: str = "", /) -> None:
        """Take the stage, how much is done, the total (None if unknown), the unit, and a remark."""


class _Bar(tqdm.auto.tqdm):
    """A bar that shows whole numbers as such, where tqdm would show 0.00/4.00."""

    @property
    def format_dict(self) -> Any:
        """Return what the format of the bar can use."""
        values = super().format_dict
        n, total, unit = values["n"], values["total"], values["unit"]
        # Bytes are shown in binary units, as file sizes usually are.
        divisor = 1024 if unit == "B" else 1000

        def short(number: int | float) -> str:
            if number < _LEAST_SCALED:
                return f"{number:.0f}"
            return tqdm.auto.tqdm.format_sizeof(number, divisor=divisor)

        of_total = "" if total is None else f"/{short(total)}"
        blank = "" if unit == "B" else " "
        values["counted"] = f"{short(n)}{of_total}{blank}{unit}"
        values["bar_format"] = _WITHOUT_TOTAL if total is None else _FORMAT
        return values


class Bars:
    """Show each stage as a bar, or nothing if stderr is not a terminal.

    Pass an instance as `progress` to a long computation.

    Example:
      >>> from dcdjax import cooccurrence
      >>> with Bars() as progress:
      ...     counts = cooccurrence.count([["to", "be", "or", "not", "to", "be"]], progress=progress)
    """

    def __init__(self, **options: Any) -> None:
        """Take options of `tqdm`: `disable=False` always shows the bars."""
        self._options = {"disable": None, "leave": True, **options}
        self._stage: str | None = None
        self._bar: Any = None

    def __call__(self, stage: str, done: int, total: int | None, unit: str, detail: str = "") -> None:
        """Show how far a stage has come."""
        if stage != self._stage:
            self.close()
            self._bar = _Bar(desc=stage, total=total, unit=unit, **self._options)
            self._stage = stage
        if total != self._bar.total:
            self._bar.total = total
            # A notebook's bar stores its own total, and is a short stub until it has one.
            widgets = getattr(getattr(self._bar, "container", None), "children", ())
            for widget in widgets:
                if hasattr(widget, "max") and total is not None:
                    widget.max, widget.bar_style, widget.layout.width = total, "", None
        if detail:
            self._bar.set_postfix_str(detail, refresh=False)
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        """Close the bar of the last stage."""
        if self._bar is not None:
            self._bar.close()
        self._stage, self._bar = None, None

    def __enter__(self) -> "Bars":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def as_progress(progress: Progress | bool | None, stack: ExitStack) -> Progress:
    """Return the function to report progress to.

    Args:
      progress: True for bars, False or None for no report, or a function that is returned as it is.
      stack: closes the bars at its end.
    """
    if progress is True:
        return stack.enter_context(Bars())
    if progress is False or progress is None:
        return lambda *_, **__: None
    if not callable(progress):
        raise ValueError(
            f"progress must be True, False or callable, such as progress.Bars(), got {progress!r}"
        )
    return progress


# --- The steps that a solve will take -----------------------------------------------------------------


def expected_steps(changes: Any, tol: float, max_steps: int) -> int | None:
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
      >>> import numpy as np
      >>> changes = np.arange(1, 11) ** -1.5
      >>> expected_steps(changes, 1e-3, 500), expected_steps(changes[:3], 1e-3, 500)
      (100, None)
    """
    import numpy as np  # the built-in corpus is read without it

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
