"""A function and its arguments enter; its results leave in order, computed on all cores by threads."""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar, runtime_checkable


@runtime_checkable
class Progress(Protocol):
    """What long computations call to say how far they have come."""

    def __call__(self, stage: str, done: int, total: int | None, unit: str, detail: str = "", /) -> None:
        """Takes the stage, how much is done and there is in all (None: unknown), the unit, and a remark."""


Argument = TypeVar("Argument")
Result = TypeVar("Result")


def num_workers() -> int:
    """How many cores this process may use: at most DCDJAX_CORES, if the environment has it."""
    # A container or a job scheduler often grants fewer than the machine has.
    granted = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get("DCDJAX_CORES") or str(granted)
    if not asked.isdecimal() or int(asked) < 1:
        raise ValueError(f"the environment variable DCDJAX_CORES must be a number of cores, got {asked!r}")
    return min(granted, int(asked))


def in_order(
    function: Callable[[Argument], Result], arguments: Iterable[Argument], max_workers: int | None = None
) -> Generator[tuple[Argument, Result], None, None]:
    """Each argument with its result; at most one more than there are workers is waiting or being computed.

    The arguments are drawn in the caller's thread. The function should leave the interpreter's lock for most
    of its time, as NumPy, SciPy and Arrow do.

    Args:
      function: of one argument.
      arguments: drawn as they are needed.
      max_workers: threads to use if there are more cores than that, for what takes memory.

    Yields:
      Pairs of argument and result.

    Example:
      >>> list(in_order(abs, [-2, 3]))
      [(-2, 2), (3, 3)]
    """
    pending: deque[tuple[Argument, Future[Result]]] = deque()
    workers = max(1, min(num_workers(), max_workers or num_workers()))
    pool = ThreadPoolExecutor(workers)
    try:
        for argument in arguments:
            pending.append((argument, pool.submit(function, argument)))
            if len(pending) > workers:
                first, result = pending.popleft()
                yield first, result.result()
        while pending:
            first, result = pending.popleft()
            yield first, result.result()
    finally:
        pool.shutdown(cancel_futures=True)
