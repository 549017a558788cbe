"""Connect several processes, on one machine or many, and exchange small data between them.

All processes must call the same functions in the same order. If a process dies or hangs, the others stop with
an error within the timeout that was passed to `join`. If a process is alive but does something else, such as
showing an error in a notebook, the others wait as long as JAX does: half an hour on CPUs.
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

from dcdjax.devices.rendezvous import ProcessError, find_address, is_loopback, wait_for_all
from dcdjax.util.checks import find_differences
from dcdjax.util.files import describe

Result = TypeVar("Result")

# Seconds to wait for another process to connect, or to show that it is alive.
TIMEOUT = 60.0
# Clusters set these variables. JAX reads the number of tasks and the rank from them.
CLUSTERS = ("SLURM_JOB_ID", "OMPI_MCA_orte_hnp_uri", "TPU_WORKER_HOSTNAMES", "JAX_COORDINATOR_ADDRESS")
# This environment variable holds the secret that the processes share.
TOKEN = "DCDJAX_TOKEN"  # noqa: S105, its name, not the secret
# Bytes to send at a time.
CHUNK_BYTES = 1 << 26
# Words in the error messages of a broken connection.
_NETWORK_ERRORS = ("Gloo", "gloo", "coordination service", "Connection reset", "NCCL")


def join(
    coordinator: str | None = None,
    num_processes: int | None = None,
    rank: int | None = None,
    *,
    timeout: float = TIMEOUT,
) -> None:
    """Connect this process to the others. Call this before JAX is used for anything else.

    The processes trust each other and their network: what JAX sends between them is neither encrypted nor
    signed. Set the environment variable DCDJAX_TOKEN to the same secret in all of them, so that nobody else
    can take the place of one. Only if the coordinator is an address of this machine alone, such as 127.0.0.1,
    the token may be left out.

    Args:
      coordinator: HOST:PORT at which all processes can reach rank 0, which listens at this address only.
        Pass this and the next two arguments together, or none of them on SLURM, Open MPI or a TPU pod, whose
        environment variables are used then.
      num_processes: the number of processes.
      rank: the number of this process, from 0.
      timeout: seconds to wait for the others to connect. Later, JAX stops a process if another one has not
        answered for this long. A process that dies is noticed at once, because its connection breaks.

    Raises:
      ProcessError: if a process does not connect in time, or was started with another number of processes or
        another version.
      ValueError: naming the argument that is wrong.
    """
    listen_at = None  # on a cluster, JAX finds the coordinator, which listens on all networks of its machine
    given = {"coordinator": coordinator, "num_processes": num_processes, "rank": rank}
    missing = [name for name, value in given.items() if value is None]
    if missing and len(missing) < len(given):
        raise ValueError(f"{missing[0]} is missing: coordinator, num_processes and rank belong together")
    if not 1 <= timeout < float("inf"):
        raise ValueError(f"timeout must be at least a second and finite, got {timeout}")
    if coordinator is not None and num_processes is not None and rank is not None:
        if num_processes < 1:
            raise ValueError(f"num_processes must be at least 1, got {num_processes}")
        if not 0 <= rank < num_processes:
            raise ValueError(f"rank must be from 0 to {num_processes - 1}, got {rank}")
        host, _, port = coordinator.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise ValueError(f"coordinator must be HOST:PORT, got {coordinator!r}")
        token = os.environ.get(TOKEN, "")
        if not token and num_processes > 1 and not is_loopback(host, int(port)):
            raise ValueError(
                f"the environment variable {TOKEN} is missing: others can reach the coordinator "
                f"{coordinator}, so set it to the same secret in all processes"
            )
        wait_for_all(host, int(port), num_processes, rank, timeout, token)
        if rank == 0:
            address = find_address(host, int(port))[1][0]
            listen_at = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    elif not any(name in os.environ for name in CLUSTERS):
        raise ValueError("coordinator is missing, and no environment variable names a cluster that JAX knows")
    try:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(
            coordinator, num_processes, rank, coordinator_bind_address=listen_at, **_timeouts(timeout)
        )
        with _stdout_to_stderr():
            allgather(np.int64(0))  # opens the connections now
    except Exception as error:
        who = "the processes" if coordinator is None else f"rank {rank} of {num_processes} at {coordinator}"
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ProcessError(f"{who} cannot connect to the others: {reason}") from error


def _timeouts(timeout: float) -> dict[str, Any]:
    """Return the timeouts that this release of JAX knows."""
    names = ("initialization_timeout", "heartbeat_timeout_seconds", "shutdown_timeout_seconds")
    known = inspect.signature(jax.distributed.initialize).parameters
    return {name: max(1, round(timeout)) for name in names if name in known}


@contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Send what a library prints about its connections to stderr, so that it does not mix with results."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


@contextmanager
def report_lost_process() -> Iterator[None]:
    """Turn an error of the network into a ProcessError which says that another process is lost."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        if count() == 1 or not any(name in str(error) for name in _NETWORK_ERRORS):
            raise
        lost = f"rank {jax.process_index()} lost the connection to another process"
        raise ProcessError(f"{lost}: {' '.join(str(error).split())}") from error


def count() -> int:
    """Return the number of processes, this one included."""
    return jax.process_count()


def is_first() -> bool:
    """Return whether this process has rank 0, which writes files and prints."""
    return jax.process_index() == 0


def allgather(values: Any) -> np.ndarray:
    """Stack the arrays of all processes by rank, bit for bit. All must have the same shape and dtype."""
    values = np.array(values)
    if count() == 1:
        return values[None]
    # As bytes, because JAX would round 64-bit numbers.
    gathered = multihost_utils.process_allgather(values.reshape(-1).view(np.uint8))
    return np.ascontiguousarray(gathered).view(values.dtype).reshape(-1, *values.shape)


def check_agreement(settings: Mapping[str, Any]) -> None:
    """Stop all processes if their settings differ.

    Args:
      settings: values that JSON can hold, with the same names in all processes.

    Raises:
      ProcessError: in all processes, with the name and two values of each setting that differs.
    """
    texts = _allgather_texts(json.dumps(settings, sort_keys=True, default=str))
    for rank, other in enumerate(texts):
        if other != texts[0]:
            differing = find_differences(json.loads(texts[0]), json.loads(other))
            shown = "; ".join(f"{name}: {one} and {two}" for name, one, two in differing)
            raise ProcessError(f"rank 0 and rank {rank} were started with different settings: {shown}")


def _allgather_texts(text: str) -> list[str]:
    """Return the text of each process, by rank."""
    encoded = text.encode(errors="backslashreplace")
    lengths = allgather(np.int64(len(encoded)))
    padded = np.zeros(max(1, int(lengths.max())), np.uint8)
    padded[: len(encoded)] = np.frombuffer(encoded, np.uint8)
    return [bytes(row[:length]).decode() for row, length in zip(allgather(padded), lengths, strict=True)]


def run_on_first(function: Callable[[], Result]) -> Result | Any:
    """Call a function on rank 0. Return its result there, None elsewhere. Its error is raised everywhere."""
    result, error = None, None
    if is_first():
        try:
            result = function()
        except Exception as raised:
            if count() == 1:
                raise
            error = raised
    message = _allgather_texts("" if error is None else describe(error))[0]
    if error is not None:
        raise error
    if message:
        raise ProcessError(f"rank 0: {message}")
    return result


def broadcast(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays of rank 0 in all processes."""
    headers = [(name, array.dtype.str, array.shape) for name, array in arrays.items()]
    found = {}
    for name, dtype, shape in json.loads(_allgather_texts(json.dumps(headers))[0]):
        content = np.zeros(math.prod(shape) * np.dtype(dtype).itemsize, np.uint8)
        if is_first():
            content[:] = np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8)
        for begin in range(0, content.size, CHUNK_BYTES):  # each chunk passes through every device
            part = content[begin : begin + CHUNK_BYTES]
            part[:] = np.asarray(multihost_utils.broadcast_one_to_all(part))
        found[name] = content.view(dtype).reshape(shape)
    return found


def broadcast_flag(value: bool) -> bool:
    """Return the value of rank 0 in all processes."""
    return bool(value) if count() == 1 else any_and_first(False, int(value))[1] == 1


def any_and_first(flag: bool, number: int) -> tuple[bool, int]:
    """Return whether the flag is set in any process, and the number of rank 0."""
    gathered = allgather(np.array([flag, number], np.int64))
    return bool(gathered[:, 0].any()), int(gathered[0, 1])
