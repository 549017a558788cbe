"""Wait until all processes have connected, before JAX connects them.

JAX ends a process without an exception if another one does not connect in time. So the processes first
connect here, at the same address: rank 0 waits for all others, compares their settings, and sends each of
them the outcome.
"""

import json
import socket
import time
from collections.abc import Container
from contextlib import ExitStack, suppress
from importlib.metadata import version
from typing import Any

_PACKAGES = ("dcdjax", "jax", "jaxlib")
_MAX_MESSAGE_BYTES = 1 << 12
_SECONDS_BETWEEN_TRIES = 0.1
_SECONDS_PER_MESSAGE = 2.0
_SECONDS_PER_CHECK = 1.0  # whether the connected processes are still there


class ProcessError(RuntimeError):
    """Signal that the processes cannot work together."""


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
