"""A function and its arguments enter; its results leave in order, computed on all cores by threads."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Argument = TypeVar("Argument")
Result = TypeVar("Result")


def num_workers() -> int:
    """How many cores this process may use."""
    # A container or a job scheduler often grants fewer than the machine has.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(
    function: Callable[[Argument], Result], arguments: Iterable[Argument]
) -> Iterator[tuple[Argument, Result]]:
    """Each argument with its result; at most one more than there are cores is waiting or being computed.

    The arguments are drawn in the caller's thread. The function should leave the interpreter's lock for most
    of its time, as NumPy, SciPy and Arrow do.

    Example:
      >>> list(in_order(abs, [-2, 3]))
      [(-2, 2), (3, 3)]
    """
    pending: deque[tuple[Argument, Future[Result]]] = deque()
    pool = ThreadPoolExecutor(num_workers())
    try:
        for argument in arguments:
            pending.append((argument, pool.submit(function, argument)))
            if len(pending) > num_workers():
                first, result = pending.popleft()
                yield first, result.result()
        while pending:
            first, result = pending.popleft()
            yield first, result.result()
    finally:
        pool.shutdown(cancel_futures=True)
