"""An address enters; processes that were told the same have met, or each knows who is missing or wrong.

JAX ends a process without an exception where the others do not come. So they meet here first, at the same
address: the first one waits for all others, and tells each of them how it went.
"""

import json
import socket
import time
from contextlib import ExitStack
from importlib.metadata import version
from typing import Any

_PACKAGES = ("dcdjax", "jax", "jaxlib")
_LONGEST = 1 << 12  # of a message
_SECONDS_BETWEEN_CALLS = 0.1


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
        _call(where, (host, port), own, until, timeout)
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
    lines: list[socket.socket] = []
    ranks: set[int] = set()
    wrong = ""
    with ExitStack() as stack:
        stack.enter_context(server)
        while not wrong and len(ranks) < own["processes"] - 1 and time.monotonic() < until:
            server.settimeout(max(0.01, until - time.monotonic()))
            try:
                line, _ = server.accept()
                stack.enter_context(line)
                line.settimeout(max(0.01, until - time.monotonic()))
                caller = _heard(line)
                rank = int(caller["rank"])
            except (OSError, ValueError, KeyError, TypeError):  # nobody in time; or nobody whom we know
                continue
            wrong = _difference(own, caller, rank, ranks)
            lines.append(line)
            ranks.add(rank)
        missing = sorted(set(range(1, own["processes"])) - ranks)
        if missing and not wrong:
            names = ", ".join(map(str, missing))
            wrong = f"rank {names} of {own['processes']} did not come to {where} within {timeout:g} s"
        for line in lines:
            try:
                line.sendall(json.dumps({"error": wrong}).encode() + b"\n")
                _heard(line)  # until it is closed: whoever closes first cannot use the port at once
            except (OSError, ValueError):
                continue
    if wrong:
        raise ProcessError(wrong)


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
    text = b""
    while not text.endswith(b"\n"):
        more = line.recv(_LONGEST)
        text += more
        if not more or len(text) > _LONGEST:
            raise ValueError("the line was closed in the middle of a message")
    message = json.loads(text)
    if not isinstance(message, dict):
        raise ValueError("not a message of this kind")
    return message
