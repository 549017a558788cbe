"""An address enters; processes that were told the same have met, or each knows who is missing or wrong.

JAX ends a process without an exception where the others do not come. So they meet here first, at the same
address: the first one waits for all others, and tells each of them how it went.
"""

import json
import socket
import time
from contextlib import ExitStack, suppress
from importlib.metadata import version
from typing import Any

_PACKAGES = ("dcdjax", "jax", "jaxlib")
_LONGEST = 1 << 12  # of a message
_SECONDS_BETWEEN_CALLS = 0.1
_SECONDS_PER_MESSAGE = 2.0
_SECONDS_PER_LOOK = 1.0  # whether those who wait are still there


class ProcessError(RuntimeError):
    """Processes that are to work together cannot."""


def meet(host: str, port: int, num_processes: int, rank: int, timeout: float) -> None:
    """Waits for the others.

    Args:
      host: at which rank 0 is reached by all.
      port: of it, free.
      num_processes: how many there are.
      rank: of this one.
      timeout: seconds to wait at most.

    Raises:
      ProcessError: on each process that is there, saying who is missing, who comes twice, or what differs.
    """
    own = {"rank": rank, "processes": num_processes, **{name: version(name) for name in _PACKAGES}}
    until = time.monotonic() + timeout
    where = f"{host}:{port}"
    if rank:
        _call(where, (host.strip("[]"), port), own, until, timeout)
    elif num_processes > 1:
        _receive(where, port, own, until, timeout)


def _call(where: str, address: tuple[str, int], own: dict[str, Any], until: float, timeout: float) -> None:
    reason = "nobody answers"
    while time.monotonic() < until:
        try:
            with socket.create_connection(address, max(0.01, until - time.monotonic())) as line:
                line.settimeout(
                    max(0.01, until + 1 - time.monotonic())
                )  # rank 0 may have begun to wait later
                line.sendall(json.dumps(own).encode() + b"\n")
                answer = _heard(line)
        except (OSError, ValueError) as error:
            reason = str(error)
            time.sleep(_SECONDS_BETWEEN_CALLS)
            continue
        if answer.get("error"):
            raise ProcessError(answer["error"])
        return
    raise ProcessError(f"rank 0 does not answer at {where} within {timeout:g} s: {reason}")


def _receive(where: str, port: int, own: dict[str, Any], until: float, timeout: float) -> None:
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        server = socket.create_server(("", port), family=family, dualstack_ipv6=both)
    except OSError as error:
        raise ProcessError(f"coordinator {where}: {error.strerror or error}") from error
    lines: dict[int, socket.socket] = {}
    wrong, refused = "", []
    with ExitStack() as stack:
        stack.enter_context(server)
        while not wrong and time.monotonic() < until:
            # Who has given up, or was ended, may come again.
            lines = {rank: line for rank, line in lines.items() if _is_open(line)}
            if len(lines) == own["processes"] - 1:
                break
            server.settimeout(max(0.01, min(_SECONDS_PER_LOOK, until - time.monotonic())))
            try:
                line, _ = server.accept()
            except OSError:  # nobody so far
                continue
            stack.enter_context(line)
            try:
                line.settimeout(_SECONDS_PER_MESSAGE)
                caller = _heard(line)
                rank = caller["rank"]
                if type(rank) is not int:
                    raise TypeError("a rank is a whole number")
            except Exception:  # nobody whom we know: whatever a stranger says must not end us
                line.close()
                continue
            wrong = _difference(own, caller, rank, {n for n, one in lines.items() if _is_open(one)})
            if wrong:
                refused.append(line)
            else:
                lines[rank] = line
        missing = sorted(set(range(1, own["processes"])) - lines.keys())
        if missing and not wrong:
            names = ", ".join(map(str, missing))
            wrong = f"rank {names} of {own['processes']} did not come to {where} within {timeout:g} s"
        for line in (*lines.values(), *refused):
            with suppress(OSError, ValueError):
                line.settimeout(_SECONDS_PER_MESSAGE)
                line.sendall(json.dumps({"error": wrong}).encode() + b"\n")
                _heard(line)  # until it is closed: whoever closes first cannot use the port at once
    if wrong:
        raise ProcessError(wrong)


def _is_open(line: socket.socket) -> bool:
    """Whether whoever called is still there; nobody says more than one message."""
    line.setblocking(False)
    try:
        return line.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def _difference(own: dict[str, Any], caller: dict[str, Any], rank: int, ranks: set[int]) -> str:
    if rank in ranks:
        return f"rank {rank} of {own['processes']} came twice"
    if not 0 < rank < own["processes"]:
        return f"there is a rank {rank}, but rank 0 was told of {own['processes']} processes"
    for name in ("processes", *_PACKAGES):
        if own[name] != caller.get(name):
            return f"{name}: {own[name]} on rank 0, but {caller.get(name)} on rank {rank}"
    return ""


def _heard(line: socket.socket) -> dict[str, Any]:
    """One message, which ends with its line."""
    text, until = b"", time.monotonic() + (line.gettimeout() or 0)
    while not text.endswith(b"\n"):
        line.settimeout(max(0.001, until - time.monotonic()))  # for all of it
        more = line.recv(_LONGEST)
        text += more
        if not more or len(text) > _LONGEST:
            raise ValueError("the line was closed in the middle of a message")
    message = json.loads(text)
    if not isinstance(message, dict):
        raise ValueError("not a message of this kind")
    return message
