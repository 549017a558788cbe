"""Other processes are joined, on this machine or others; what each of them says reaches all.

Processes work as one: each calls the same functions in the same order. One that is gone, or stopped, ends the
others with an error within the time that was stated when they were joined. One that lives but does something
else, such as to show an error in a notebook, the others wait for as long as JAX does: half an hour on CPUs.
"""

import inspect
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from dcdjax import greetings
from dcdjax.facts import differing as differing_facts
from dcdjax.greetings import ProcessError

Result = TypeVar("Result")

# For a peer to appear, or to say that it is still there.
TIMEOUT = 60.0
# Where clusters say how many tasks there are, and which one this is; JAX knows those too.
_CLUSTERS = ("SLURM_JOB_ID", "OMPI_MCA_orte_hnp_uri", "TPU_WORKER_HOSTNAMES", "JAX_COORDINATOR_ADDRESS")
# Bytes sent to all at a time.
_PIECE = 1 << 26
# In the messages of what fails with the connection to another process.
_NETWORK = ("Gloo", "gloo", "coordination service", "Connection reset", "NCCL")


def join(
    coordinator: str | None = None,
    num_processes: int | None = None,
    rank: int | None = None,
    *,
    timeout: float = TIMEOUT,
) -> None:
    """Joins the others; before JAX has been used for anything else.

    Args:
      coordinator: host:port at which the process of rank 0 can be reached by all. If neither this nor the
        next two are given, what the environment says, as that of SLURM, of Open MPI or of a TPU pod does.
      num_processes: how many there are.
      rank: of this one, from 0.
      timeout: seconds to wait for the others to appear; and, later, for one that does not answer any more,
        after which JAX ends the process. One that is gone is noticed at once, when its connection breaks.

    Raises:
      ProcessError: if they do not meet in time, or are not told the same of how many there are.
      ValueError: naming the argument.
    """
    given = {"coordinator": coordinator, "num_processes": num_processes, "rank": rank}
    missing = [name for name, value in given.items() if value is None]
    if missing and len(missing) < len(given):
        raise ValueError(f"{missing[0]} is missing: coordinator, num_processes and rank belong together")
    if not 1 <= timeout < float("inf"):
        raise ValueError(f"timeout must be at least a second and finite, got {timeout}")
    if not missing:
        assert coordinator is not None
        assert num_processes is not None
        assert rank is not None
        if num_processes < 1:
            raise ValueError(f"num_processes must be at least 1, got {num_processes}")
        if not 0 <= rank < num_processes:
            raise ValueError(f"rank must be from 0 to {num_processes - 1}, got {rank}")
        host, _, port = coordinator.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise ValueError(f"coordinator must be HOST:PORT, got {coordinator!r}")
        greetings.meet(host, int(port), num_processes, rank, timeout)
    elif not any(name in os.environ for name in _CLUSTERS):
        raise ValueError(
            "coordinator is missing, and the environment is not that of a cluster which JAX knows"
        )
    try:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(
            coordinator,
            num_processes,
            rank,
            **_limits(timeout),
        )
        with _aside():
            exchanged(np.int64(0))  # now, that is, they are connected
    except Exception as error:
        who = "the processes" if coordinator is None else f"rank {rank} of {num_processes} at {coordinator}"
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ProcessError(f"{who} cannot join the others: {reason}") from error


def _limits(timeout: float) -> dict[str, Any]:
    """How long JAX is to wait, of which older releases know less."""
    names = ("initialization_timeout", "heartbeat_timeout_seconds", "shutdown_timeout_seconds")
    known = inspect.signature(jax.distributed.initialize).parameters
    return {name: max(1, round(timeout)) for name in names if name in known}


@contextmanager
def _aside() -> Iterator[None]:
    """Lets what a library says of its connections go where errors do, not among the results."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


@contextmanager
def watched() -> Iterator[None]:
    """Says of an error in what processes do together that one of them may be the reason."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        if number() == 1 or not any(name in str(error) for name in _NETWORK):
            raise
        reason = " ".join(str(error).split())
        raise ProcessError(f"rank {jax.process_index()} has lost one of the others: {reason}") from error


def number() -> int:
    """How many there are, this one included."""
    return jax.process_count()


def is_first() -> bool:
    """Whether this is the one that writes files and speaks for all."""
    return jax.process_index() == 0


def exchanged(values: Any) -> np.ndarray:
    """The numbers that each process gives, stacked by rank, to the bit; all give arrays of the same shape."""
    values = np.array(values)
    if number() == 1:
        return values[None]
    # As bytes: JAX would round what has 64 bits.
    of_all = multihost_utils.process_allgather(values.reshape(-1).view(np.uint8))
    return np.ascontiguousarray(of_all).view(values.dtype).reshape(-1, *values.shape)


def agree(facts: Mapping[str, Any]) -> None:
    """Refuses to go on where the processes have not been told the same.

    Args:
      facts: as JSON has them, with the same names everywhere.

    Raises:
      ProcessError: on all of them, naming each fact that differs, and what two of them say.
    """
    said = _texts(json.dumps(facts, sort_keys=True, default=str))
    for rank, other in enumerate(said):
        if other != said[0]:
            differing = differing_facts(json.loads(said[0]), json.loads(other))
            shown = "; ".join(f"{name}: {one} and {two}" for name, one, two in differing)
            raise ProcessError(f"rank 0 and rank {rank} have not been told the same: {shown}")


def _texts(text: str) -> list[str]:
    """What each process says."""
    encoded = text.encode(errors="backslashreplace")
    lengths = exchanged(np.int64(len(encoded)))
    padded = np.zeros(max(1, int(lengths.max())), np.uint8)
    padded[: len(encoded)] = np.frombuffer(encoded, np.uint8)
    return [bytes(row[:length]).decode() for row, length in zip(exchanged(padded), lengths, strict=True)]


def by_first(function: Callable[[], Result]) -> Result | Any:
    """What the first process gets by calling it, there; None elsewhere. If it fails, it fails on all."""
    result, error = None, None
    if is_first():
        try:
            result = function()
        except Exception as raised:
            if number() == 1:
                raise
            error = raised
    said = _texts("" if error is None else str(error) or type(error).__name__)[0]
    if error is not None:
        raise error
    if said:
        raise ProcessError(f"rank 0: {said}")
    return result


def from_first(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of the first process, on all."""
    plan = [(name, array.dtype.str, array.shape) for name, array in arrays.items()]
    found = {}
    for name, dtype, shape in json.loads(_texts(json.dumps(plan))[0]):
        content = np.zeros(math.prod(shape) * np.dtype(dtype).itemsize, np.uint8)
        if is_first():
            content[:] = np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8)
        for begin in range(0, content.size, _PIECE):  # each goes by way of every device
            part = content[begin : begin + _PIECE]
            part[:] = np.asarray(multihost_utils.broadcast_one_to_all(part))
        found[name] = content.view(dtype).reshape(shape)
    return found


def first_says(value: bool) -> bool:
    """What the first process says."""
    return bool(value) if number() == 1 else together(False, int(value))[1] == 1


def together(heard: bool, chunk: int) -> tuple[bool, int]:
    """Whether any process has heard of an interruption; and the number that the first one says."""
    of_all = exchanged(np.array([heard, chunk], np.int64))
    return bool(of_all[:, 0].any()), int(of_all[0, 1])
