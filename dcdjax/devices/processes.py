"""Connect several processes, on one machine or many, and exchange small data between them.

All processes must call the same functions in the same order. If a process dies or hangs, the others stop with
an error within the timeout that was passed to `join`. If a process is alive but does something else, such as
showing an error in a notebook, the others wait as long as JAX does: half an hour on CPUs.
"""

import inspect
import json
import math
import os
import socket
import sys
import time
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import version
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from dcdjax.util.checks import find_differences
from dcdjax.util.files import describe

Result = TypeVar("Result")

# Seconds to wait for another process to connect, or to show that it is alive.
TIMEOUT = 60.0
# Clusters set these variables. JAX reads the number of tasks and the rank from them.
CLUSTERS = ("SLURM_JOB_ID", "OMPI_MCA_orte_hnp_uri", "TPU_WORKER_HOSTNAMES", "JAX_COORDINATOR_ADDRESS")
# Bytes to send at a time.
CHUNK_BYTES = 1 << 26
# Words in the error messages of a broken connection.
_NETWORK_ERRORS = ("Gloo", "gloo", "coordination service", "Connection reset", "NCCL")

# Before JAX connects the processes: what must be equal on all of them, and the limits of a message.
_PACKAGES = ("dcdjax", "jax", "jaxlib")
_MAX_MESSAGE_BYTES = 1 << 12
_SECONDS_BETWEEN_TRIES = 0.1
_SECONDS_PER_MESSAGE = 2.0
_SECONDS_PER_CHECK = 1.0  # whether the connected processes are still there


class ProcessError(RuntimeError):
    """Signal that the processes cannot work together."""


def join(
    coordinator: str | None = None,
    num_processes: int | None = None,
    rank: int | None = None,
    *,
    timeout: float = TIMEOUT,
) -> None:
    """Connect this process to the others. Call this before JAX is used for anything else.

    Args:
      coordinator: HOST:PORT at which all processes can reach rank 0. Pass this and the next two arguments
        together, or none of them on SLURM, Open MPI or a TPU pod, whose environment variables are used then.
      num_processes: the number of processes.
      rank: the number of this process, from 0.
      timeout: seconds to wait for the others to connect. Later, JAX stops a process if another one has not
        answered for this long. A process that dies is noticed at once, because its connection breaks.

    Raises:
      ProcessError: if a process does not connect in time, or was started with another number of processes or
        another version.
      ValueError: naming the argument that is wrong.
    """
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
        wait_for_all(host, int(port), num_processes, rank, timeout)
    elif not any(name in os.environ for name in CLUSTERS):
        raise ValueError("coordinator is missing, and no environment variable names a cluster that JAX knows")
    try:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(coordinator, num_processes, rank, **_timeouts(timeout))
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


# --- Rendezvous -------------------------------------------------------------------------------------

# JAX ends a process without an exception if another one does not connect in time. So the processes first
# connect here, at the same address: rank 0 waits for all others, compares their settings, and sends each of
# them the outcome.


def wait_for_all(host: str, port: int, num_processes: int, rank: int, timeout: float) -> None:
    """Wait until all processes have connected.

    Args:
      host: the host at which all processes can reach rank 0.
      port: a free port of that host.
      num_processes: the number of processes.
      rank: the number of this process.
      timeout: the longest time to wait, in seconds.

    Raises:
      ProcessError: in each connected process, saying which ranks are missing or connected twice, or what
        differs.
    """
    own = {"rank": rank, "processes": num_processes, **{name: version(name) for name in _PACKAGES}}
    deadline = time.monotonic() + timeout
    where = f"{host}:{port}"
    if rank:
        _connect(where, (host.strip("[]"), port), own, deadline, timeout)
    elif num_processes > 1:
        _serve(where, port, own, deadline, timeout)


def _connect(
    where: str, address: tuple[str, int], own: dict[str, Any], deadline: float, timeout: float
) -> None:
    """Connect to rank 0, send our settings, and wait for the outcome."""
    reason = "no process answers"
    while time.monotonic() < deadline:
        try:
            with socket.create_connection(address, max(0.01, deadline - time.monotonic())) as connection:
                # One second more, because rank 0 may have begun to wait later.
                connection.settimeout(max(0.01, deadline + 1 - time.monotonic()))
                connection.sendall(json.dumps(own).encode() + b"\n")
                answer = _read_message(connection)
        except (OSError, ValueError) as error:
            reason = str(error)
            time.sleep(_SECONDS_BETWEEN_TRIES)
            continue
        if answer.get("error"):
            raise ProcessError(answer["error"])
        return
    raise ProcessError(f"rank 0 does not answer at {where} within {timeout:g} s: {reason}")


def _serve(where: str, port: int, own: dict[str, Any], deadline: float, timeout: float) -> None:
    """Accept the connections of all other ranks, and send them the outcome."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        server = socket.create_server(("", port), family=family, dualstack_ipv6=both)
    except OSError as error:
        raise ProcessError(f"coordinator {where}: {error.strerror or error}") from error
    connections: dict[int, socket.socket] = {}
    problem, refused = "", []
    with ExitStack() as stack:
        stack.enter_context(server)
        while not problem and time.monotonic() < deadline:
            # A process that stopped may be started again.
            connections = _still_connected(connections)
            if len(connections) == own["processes"] - 1:
                break
            server.settimeout(max(0.01, min(_SECONDS_PER_CHECK, deadline - time.monotonic())))
            try:
                connection, _ = server.accept()
            except OSError:  # none within this time
                continue
            stack.enter_context(connection)
            try:
                connection.settimeout(_SECONDS_PER_MESSAGE)
                theirs = _read_message(connection)
                rank = theirs["rank"]
                if type(rank) is not int:
                    raise TypeError("rank must be an integer")
            except Exception:  # not one of our processes: whatever it sends must not stop us
                connection.close()
                continue
            problem = _find_mismatch(own, theirs, rank, _still_connected(connections))
            if problem:
                refused.append(connection)
            else:
                connections[rank] = connection
        missing = sorted(set(range(1, own["processes"])) - connections.keys())
        if missing and not problem:
            names = ", ".join(map(str, missing))
            problem = f"rank {names} of {own['processes']} did not connect to {where} within {timeout:g} s"
        for connection in (*connections.values(), *refused):
            with suppress(OSError, ValueError):
                connection.settimeout(_SECONDS_PER_MESSAGE)
                connection.sendall(json.dumps({"error": problem}).encode() + b"\n")
                # Until the other side closes: the side that closes first blocks the port for a while.
                _read_message(connection)
    if problem:
        raise ProcessError(problem)


def _still_connected(connections: dict[int, socket.socket]) -> dict[int, socket.socket]:
    return {rank: connection for rank, connection in connections.items() if _is_connected(connection)}


def _is_connected(connection: socket.socket) -> bool:
    """Return whether the other side is still connected. It sends no second message."""
    connection.setblocking(False)
    try:
        return connection.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def _find_mismatch(own: dict[str, Any], theirs: dict[str, Any], rank: int, others: Container[int]) -> str:
    """Return what is wrong with the settings of another rank, or an empty string."""
    if rank in others:
        return f"rank {rank} of {own['processes']} connected twice"
    if not 0 < rank < own["processes"]:
        return f"rank {rank} connected, but rank 0 was started for {own['processes']} processes"
    for name in ("processes", *_PACKAGES):
        if own[name] != theirs.get(name):
            return f"{name}: {own[name]} on rank 0, but {theirs.get(name)} on rank {rank}"
    return ""


def _read_message(connection: socket.socket) -> dict[str, Any]:
    """Read one message, which is one line of JSON."""
    text, deadline = b"", time.monotonic() + (connection.gettimeout() or 0)
    while not text.endswith(b"\n"):
        # The time limit holds for the whole message.
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        more = connection.recv(_MAX_MESSAGE_BYTES)
        text += more
        if not more or len(text) > _MAX_MESSAGE_BYTES:
            raise ValueError("the connection was closed in the middle of a message")
    message = json.loads(text)
    if not isinstance(message, dict):
        raise ValueError("not a message of ours")
    return message
