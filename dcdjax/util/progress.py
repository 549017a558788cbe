"""Show the progress of long computations as bars on a terminal or in a notebook."""

from contextlib import ExitStack
from typing import Any, Protocol, runtime_checkable

import tqdm.auto

# A remark takes the place of the speed, which the time left tells too: both do not fit 80 columns.
_FORMAT = "{l_bar}{bar}| {counted} [{elapsed}<{remaining}{postfix}]"
_WITHOUT_TOTAL = "{desc}: {counted} [{elapsed}{postfix}]"
# Smaller numbers are shown as they are, larger ones with a prefix: 9500, 12.3k, 2.05M.
_LEAST_SCALED = 10_000


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
        values |= {"counted": f"{short(n)}{of_total}{blank}{unit}"}
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
