"""Let processes find each other before JAX connects them.

JAX ends a process without an exception if another one does not connect within `initialization_timeout`, as of
JAX 0.7.2 and 0.10.2. So the processes first connect here, at the same address: rank 0 waits for all others,
compares their settings, and sends each of them the outcome.

Each message is a line. Rank 0 sends a random challenge. The other side answers with its settings and an
HMAC-SHA-256 code of the settings and the challenge. Computing the code needs the token, which is never sent.
Rank 0 closes a connection whose code is wrong: it does not parse that message, and reads no more. The outcome
is signed in the same way.
"""

import hmac
import ipaddress
import json
import secrets
import selectors
import socket
import time
from collections.abc import Container
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from dcdjax.util.warn import warn

# What must be equal on all processes.
_PACKAGES = ("dcdjax", "jax", "jaxlib")
# The limits of what anybody may send or hold open: bytes, seconds and connections.
_MAX_MESSAGE_BYTES = 1 << 12
_SECONDS_PER_MESSAGE = 5.0
_MAX_PENDING = 100
_SECONDS_BETWEEN_TRIES = 0.1
_SECONDS_AFTER_REFUSAL = 1.0


class ProcessError(RuntimeError):
    """Signal that the processes cannot work together."""


class StrangerWarning(UserWarning):
    """Warn that somebody connected to rank 0 who is none of the processes, or has another token."""


def find_address(host: str, port: int) -> tuple[socket.AddressFamily, tuple[Any, ...]]:
    """Return the family and the address of the coordinator.

    Raises:
      OSError: if the host has no address.
      ValueError: if the address means all networks of a machine.
    """
    family, _, _, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
    if _ip(address).is_unspecified:
        raise ValueError(f"coordinator must be the address of one network, got {host!r}, which means all")
    return family, address


def is_loopback(host: str, port: int) -> bool:
    """Return whether only processes of this machine can reach the address."""
    with suppress(OSError):
        return _ip(find_address(host, port)[1]).is_loopback
    return False


def _ip(address: tuple[Any, ...]) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(address[0].partition("%")[0])


def wait_for_all(
    host: str, port: int, num_processes: int, rank: int, timeout: float, token: str = ""
) -> None:
    """Wait until all processes have connected.

    Args:
      host: the host at which all processes can reach rank 0. Rank 0 listens at this address only.
      port: a free port of that host.
      num_processes: the number of processes.
      rank: the number of this process.
      timeout: the longest time to wait, in seconds.
      token: a secret that all processes share. Whoever connects without it is ignored.

    Raises:
      ProcessError: in each connected process, saying which ranks are missing or connected twice, or what
        differs.
    """
    own = {"rank": rank, "processes": num_processes, **{name: version(name) for name in _PACKAGES}}
    deadline = time.monotonic() + timeout
    where = f"{host}:{port}"
    if rank:
        _connect(where, (host.strip("[]"), port), own, token, deadline, timeout)
    elif num_processes > 1:
        _Coordinator(where, own, token, deadline).serve((host, port), timeout)


# --- The other ranks ----------------------------------------------------------------------------------


def _connect(
    where: str, address: tuple[str, int], own: dict[str, Any], token: str, deadline: float, timeout: float
) -> None:
    """Connect to rank 0, send our settings, and wait for the outcome."""
    reason = "no process answers"
    while time.monotonic() < deadline:
        pause = _SECONDS_BETWEEN_TRIES
        try:
            with socket.create_connection(address, max(0.01, deadline - time.monotonic())) as connection:
                # One second more, because rank 0 may have begun to wait later.
                challenge = _read_line(connection, deadline + 1)
                reason, pause = "it does not have our DCDJAX_TOKEN", _SECONDS_AFTER_REFUSAL
                ours = secrets.token_hex(16)
                _send(connection, token, challenge, {**own, "challenge": ours})
                answer = _checked(_read_line(connection, deadline + 1), token, ours)
        except (OSError, EOFError) as error:
            reason = reason if pause == _SECONDS_AFTER_REFUSAL else str(error)
            answer = None
        if answer is None or "error" not in answer:
            time.sleep(max(0.0, min(pause, deadline - time.monotonic())))
        elif answer["error"]:
            raise ProcessError(_printable(answer["error"], 500))
        else:
            return
    raise ProcessError(f"rank 0 does not answer at {where} within {timeout:g} s: {_printable(reason)}")


def _read_line(connection: socket.socket, deadline: float) -> bytes:
    """Read one line. The time limit holds for the whole line."""
    text = b""
    while not text.endswith(b"\n"):
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        more = connection.recv(_MAX_MESSAGE_BYTES)
        text += more
        if not more or len(text) > _MAX_MESSAGE_BYTES:
            raise EOFError("the connection was closed in the middle of a message")
    return text.strip()


# --- Rank 0 -------------------------------------------------------------------------------------------


@dataclass
class _PendingConnection:
    """Hold a connection whose settings have not arrived yet."""

    challenge: bytes
    deadline: float
    text: bytes = b""


class _Coordinator:
    """Serve all connections at once, in one thread, so that none of them can hold up the others."""

    def __init__(self, where: str, own: dict[str, Any], token: str, deadline: float) -> None:
        self._where, self._own, self._token, self._deadline = where, own, token, deadline
        self._guests: dict[socket.socket, _PendingConnection] = {}  # the oldest first
        self._accepted: dict[
            int, tuple[socket.socket, str]
        ] = {}  # with the challenge that they want answered
        self._refused: list[tuple[socket.socket, str]] = []
        self._selector = selectors.DefaultSelector()
        self._problem, self._warned = "", False

    def serve(self, address: tuple[str, int], timeout: float) -> None:
        """Accept the connections of all other ranks, and send them the outcome."""
        with ExitStack() as stack:
            stack.callback(self._close)
            try:
                family, place = find_address(*address)
                server = stack.enter_context(socket.create_server(place, family=family, backlog=_MAX_PENDING))
            except OSError as error:
                raise ProcessError(f"coordinator {self._where}: {error.strerror or error}") from error
            server.setblocking(False)
            self._selector.register(server, selectors.EVENT_READ)
            num_others = self._own["processes"] - 1
            while not self._problem and len(self._accepted) < num_others:
                now = time.monotonic()
                if now >= self._deadline:
                    break
                for guest in [one for one, state in self._guests.items() if state.deadline <= now]:
                    self._drop(guest, "it said nothing")
                until = min([self._deadline, *(guest.deadline for guest in self._guests.values())])
                for key, _ in self._selector.select(max(0.001, until - now)):
                    if key.fileobj is server:
                        self._accept(server)
                    elif isinstance(key.fileobj, socket.socket) and not self._problem:
                        self._hear(key.fileobj)
            self._answer(timeout)
        if self._problem:
            raise ProcessError(self._problem)

    def _accept(self, server: socket.socket) -> None:
        with suppress(OSError):
            connection, _ = server.accept()
            connection.setblocking(False)
            challenge = secrets.token_hex(16).encode()
            self._guests[connection] = _PendingConnection(challenge, time.monotonic() + _SECONDS_PER_MESSAGE)
            self._selector.register(connection, selectors.EVENT_READ)
            with suppress(OSError):  # a failure shows at the next read
                connection.send(challenge + b"\n")
        if len(self._guests) > _MAX_PENDING:  # our own processes answer at once: the oldest is not one
            self._drop(next(iter(self._guests)), "too many connections")

    def _hear(self, connection: socket.socket) -> None:
        try:
            more = connection.recv(_MAX_MESSAGE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            more = b""
        guest = self._guests.get(connection)
        if guest is None:  # one of ours has gone, or is out of order: it may be started again
            for rank in [rank for rank, (seated, _) in self._accepted.items() if seated is connection]:
                del self._accepted[rank]
            self._forget(connection)
            return
        guest.text += more
        if not more or len(guest.text) > _MAX_MESSAGE_BYTES:
            self._drop(connection, "it sent no message of ours")
        elif guest.text.endswith(b"\n"):
            self._judge(connection, guest)

    def _judge(self, connection: socket.socket, guest: _PendingConnection) -> None:
        """Give a seat to one of our processes, and drop anybody else."""
        theirs = _checked(guest.text.strip(), self._token, guest.challenge.decode())
        rank, challenge = (None, None) if theirs is None else (theirs.get("rank"), theirs.get("challenge"))
        if theirs is None or type(rank) is not int or not isinstance(challenge, str):
            self._drop(connection, "it has another DCDJAX_TOKEN, or is none of the processes")
            return
        del self._guests[connection]
        self._problem = _find_mismatch(self._own, theirs, rank, self._accepted)
        if self._problem:
            self._refused.append((connection, challenge))
        else:
            self._accepted[rank] = connection, challenge

    def _answer(self, timeout: float) -> None:
        """Send the outcome to all, and wait for a moment until they have closed."""
        missing = sorted(set(range(1, self._own["processes"])) - self._accepted.keys())
        if missing and not self._problem:
            names = ", ".join(map(str, missing))
            of_all = f"rank {names} of {self._own['processes']}"
            self._problem = f"{of_all} did not connect to {self._where} within {timeout:g} s"
        answered = [*self._accepted.values(), *self._refused]
        deadline = time.monotonic() + _SECONDS_PER_MESSAGE
        for connection, challenge in answered:
            with suppress(OSError):
                connection.settimeout(_SECONDS_PER_MESSAGE)
                _send(connection, self._token, challenge.encode(), {"error": self._problem})
        for connection, _ in answered:  # the side that closes first blocks the port for a while
            with suppress(OSError, EOFError):
                _read_line(connection, deadline)

    def _drop(self, connection: socket.socket, reason: str) -> None:
        # Even if the user has turned warnings into errors, a stranger must not end us.
        with suppress(OSError, StrangerWarning):
            who = _printable(connection.getpeername()[0])
            if not self._warned:
                self._warned = True
                warn(f"a connection from {who} to {self._where} was dropped: {reason}", StrangerWarning)
        self._forget(connection)

    def _forget(self, connection: socket.socket) -> None:
        self._guests.pop(connection, None)
        with suppress(KeyError, ValueError):
            self._selector.unregister(connection)
        connection.close()

    def _close(self) -> None:
        for connection in [*self._guests, *(one for one, _ in (*self._accepted.values(), *self._refused))]:
            self._forget(connection)
        self._selector.close()


def _find_mismatch(own: dict[str, Any], theirs: dict[str, Any], rank: int, others: Container[int]) -> str:
    """Return what is wrong with the settings of another rank, or an empty string."""
    if rank in others:
        return f"rank {rank} of {own['processes']} connected twice"
    if not 0 < rank < own["processes"]:
        return f"rank {rank} connected, but rank 0 was started for {own['processes']} processes"
    for name in ("processes", *_PACKAGES):
        if own[name] != theirs.get(name):
            return f"{name}: {own[name]} on rank 0, but {_printable(theirs.get(name))} on rank {rank}"
    return ""


# --- Messages -----------------------------------------------------------------------------------------


def _send(connection: socket.socket, token: str, challenge: bytes, content: dict[str, Any]) -> None:
    """Send one message, signed for the other side's challenge."""
    text = json.dumps(content).encode()
    connection.sendall(_code(token, challenge, text) + b" " + text + b"\n")


def _checked(line: bytes, token: str, challenge: str) -> dict[str, Any] | None:
    """Return the content of a message, or None if it is not signed for our challenge."""
    code, _, text = line.partition(b" ")
    if not hmac.compare_digest(code, _code(token, challenge.encode(), text)):
        return None
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _code(token: str, challenge: bytes, text: bytes) -> bytes:
    key = token.encode(errors="surrogateescape")
    return hmac.digest(key, challenge + b" " + text, "sha256").hex().encode()


def _printable(value: Any, most: int = 80) -> str:
    """Return a text that cannot move the cursor of a terminal, nor fill it."""
    return str(value)[:most].encode("unicode_escape").decode()
