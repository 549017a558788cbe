"""Call a function on many arguments in threads, and return the results in order."""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Argument = TypeVar("Argument")
Result = TypeVar("Result")


def num_workers() -> int:
    """Return how many cores this process may use: at most DCDJAX_CORES, if that variable is set."""
    # A container or a job scheduler often grants fewer cores than the machine has.
    granted = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get("DCDJAX_CORES") or str(granted)
    if not asked.isdecimal() or int(asked) < 1:
        raise ValueError(f"the environment variable DCDJAX_CORES must be a number of cores, got {asked!r}")
    return min(granted, int(asked))


def in_order(
    function: Callable[[Argument], Result], arguments: Iterable[Argument], max_workers: int | None = None
) -> Generator[tuple[Argument, Result], None, None]:
    """Yield each argument with its result, in order. At most one call more than there are workers is pending.

    The arguments are drawn in the caller's thread. The function should release the interpreter's lock most of
    the time, as NumPy, SciPy and Arrow do.

    Args:
      function: function of one argument.
      arguments: iterable that is read as results are needed.
      max_workers: largest number of threads, to limit memory. Default: the number of cores.

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
