"""What a long computation says of its progress enters; bars on a terminal or in a notebook leave."""

from contextlib import ExitStack
from types import TracebackType
from typing import Any

import tqdm.auto

from dcdjax.parallel import Progress

# In place of the speed: both do not fit a terminal of 80 columns, and the time left says it too.
_WITH_REMARK = "{l_bar}{bar}| {n:.0f}/{total:.0f} [{elapsed}<{remaining}{postfix}]"


class Bars:
    """Shows each stage as a bar; says nothing where nobody looks, that is where stderr is not a terminal.

    An instance is the `progress` that long computations take: they call it with the name of the stage,
    how much is done, how much there is in all (None where unknown), the unit, and perhaps a remark.

    Example:
      >>> from dcdjax import cooccurrence
      >>> with Bars() as progress:
      ...     counts = cooccurrence.count([["to", "be", "or", "not", "to", "be"]], progress=progress)
    """

    def __init__(self, **options: Any) -> None:
        """Takes what `tqdm` takes: `disable=False` shows the bars in any case."""
        self._options = {"disable": None, "leave": True, "unit_scale": True, **options}
        self._stage: str | None = None
        self._bar: Any = None

    def __call__(self, stage: str, done: int, total: int | None, unit: str, detail: str = "") -> None:
        """Shows how far a stage has come."""
        if stage != self._stage:
            self.close()
            # In binary units for bytes, as file sizes are usually shown.
            divisor = 1024 if unit == "B" else 1000
            self._bar = tqdm.auto.tqdm(
                desc=stage, total=total, unit=unit if unit == "B" else f" {unit}", unit_divisor=divisor,
                **self._options,
            )  # fmt: skip
            self._stage = stage
        if total != self._bar.total:
            self._bar.total = total
            # A notebook's bar knows its end by itself, and would stay at the first estimate.
            widgets = getattr(getattr(self._bar, "container", None), "children", ())
            for widget in widgets:
                if hasattr(widget, "max") and total is not None:
                    widget.max = total
        if detail:
            self._bar.bar_format = None if total is None else _WITH_REMARK
            self._bar.set_postfix_str(detail, refresh=False)
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        """Ends the bar of the last stage."""
        if self._bar is not None:
            self._bar.close()
        self._stage, self._bar = None, None

    def __enter__(self) -> "Bars":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def as_progress(progress: Progress | bool | None, stack: ExitStack) -> Progress:
    """What is to be told how far a computation is: bars for True, nobody for False, or what is given.

    Args:
      progress: as users give it.
      stack: closes the bars.
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
