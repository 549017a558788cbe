"""Delay Ctrl-C while JAX compiles or a device works."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def hold_signals(*, hold: bool = True, deliver: bool = True) -> Iterator[list[int]]:
    """Hold SIGINT back until the block ends; hold SIGTERM too if Python handles it.

    If Ctrl-C interrupts Python while JAX compiles, JAX goes on in the background. It crashes when Python
    ends.

    Args:
      hold: False does nothing.
      deliver: raise the held signals at the end. If False, the caller looks at the list.

    Yields:
      The list of the signals that have arrived so far.
    """
    arrived: list[int] = []

    def record(number: int, _: Any) -> None:
        arrived.append(number)

    handlers: dict[int, Any] = {}
    if hold and threading.current_thread() is threading.main_thread():  # only this thread is interrupted
        if signal.getsignal(signal.SIGINT) is not None:  # None: Python did not set the handler
            handlers[signal.SIGINT] = signal.signal(signal.SIGINT, record)
        if callable(signal.getsignal(signal.SIGTERM)):
            handlers[signal.SIGTERM] = signal.signal(signal.SIGTERM, record)
    try:
        yield arrived
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in arrived if deliver else ():
            signal.raise_signal(number)
