"""Estimate the memory of a fit before it starts, and say what to do where there is too little of it.

The numbers of bytes below were measured with `experiments/memory/run.py`.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dcdjax.devices import sharding
from dcdjax.fitting.options import Combine, Start
from dcdjax.starts import initialize
from dcdjax.util.warn import warn

try:
    import resource
except ImportError:  # Windows
    resource = None

# This environment variable set to 0 leaves the check out.
SWITCH = "DCDJAX_MEMORY_CHECK"

# Compiled programs and threads.
_BASE_BYTES = 70 << 20
# The layout of a nonzero, and what is needed to make it: 10 to 19 bytes were measured, 14 to 27 without the
# native kernel, where tiles are larger.
_BYTES_PER_NONZERO = 16
# In units of one W. While a start is solved: its state before and after a step, and temporaries (7.2 were
# measured, 7.4 without the native kernel). While starts are joined: their solutions, the sorted factors, and
# two copies of these side by side (5.1). To reduce them: the cosines of topics too (9.6). To bring a W to the
# host that was split: the rows of all devices, and their words' order (5.9).
_COPIES_TO_SOLVE, _COPIES_TO_JOIN, _COPIES_TO_REDUCE, _COPIES_TO_GATHER = 7.5, 5.1, 9.6, 6.0
# Measured peaks are between 0.73 and 0.95 of the estimate. What is below this share of it cannot be enough.
_CERTAIN = 0.7

_ADVICE = (
    "Needs less: fewer topics (num_topics), fewer words (max_words), fewer starts (restarts), or "
    "combine='best', which keeps one of them"
)
# How XLA reports a failed allocation.
_EXHAUSTED = re.compile(r"RESOURCE_EXHAUSTED|[Oo]ut of memory|Resource exhausted")


class MemoryWarning(UserWarning):
    """Warn that a fit probably needs more memory than there is."""


@dataclass(frozen=True)
class Need:
    """Hold the estimated peak memory of a fit, in bytes, without the S that was passed to it.

    Attributes:
      layout: S on all devices.
      solving: W and its copies on all devices while starts are solved.
      joining: W and its copies on the host when the starts are joined.
      per_device: what a device needs if it has a memory of its own.
    """

    layout: float
    solving: float
    joining: float
    per_device: float

    @property
    def on_host(self) -> float:
        """Return the bytes on the host if one process runs all devices, and these use the host's memory."""
        return self.share_on_host(1.0)

    def share_on_host(self, share: float) -> float:
        """Return the bytes on the host of a process that has this share of the devices in its memory."""
        return _BASE_BYTES + share * self.layout + max(share * self.solving, self.joining)


def estimate(
    num_words: int,
    num_nonzeros: int,
    topics_of_starts: Sequence[int],
    *,
    itemsize: int,
    start: Start,
    combine: Combine,
    num_groups: int = 1,
    devices_per_group: int = 1,
    split: bool = False,
) -> Need:
    """Estimate the memory of a fit.

    Args:
      num_words: N.
      num_nonzeros: the nonzeros of S.
      topics_of_starts: the number of topics of each start.
      itemsize: bytes of an entry of W.
      start: the kind of start.
      combine: how the starts become one embedding.
      num_groups: groups of devices; each works on one start at a time and has a copy of S.
      devices_per_group: devices of a group, which share its S.
      split: whether the devices of a group share W too.

    Example:
      >>> topics = [200, 200, 500, 500]
      >>> need = estimate(20_000, 6_000_000, topics, itemsize=4, start="random", combine="consensus")
      >>> round(need.on_host / 1e6)
      741
    """
    sizes = sorted((num_words * r * itemsize for r in topics_of_starts), reverse=True)
    kept = sizes[:1] if combine == "best" else sizes
    at_once = sizes[:num_groups]
    finished = sum(sizes[num_groups:] if combine != "best" else kept)
    vectors = 0.0
    if start == "spectral":
        dimensions = initialize.num_dimensions(max(topics_of_starts))
        vectors = num_words * dimensions * itemsize * (1 + len(sizes))  # each start keeps its own
    copies = _COPIES_TO_REDUCE if combine == "reduced" and len(sizes) > 1 else _COPIES_TO_JOIN
    layout = float(_BYTES_PER_NONZERO * num_nonzeros)
    copies_of_W = 1 if split else devices_per_group
    return Need(
        layout=layout * num_groups,
        solving=_COPIES_TO_SOLVE * sum(at_once) * copies_of_W + finished + vectors,
        joining=copies * sum(kept) + vectors + split * _COPIES_TO_GATHER * sizes[0],
        per_device=(layout + _COPIES_TO_SOLVE * sizes[0] * copies_of_W) / devices_per_group,
    )


def check(
    num_words: int,
    num_nonzeros: int,
    topics_of_starts: Sequence[int],
    groups: Sequence[Sequence[Any]],
    **options: Any,
) -> None:
    """Compare what a fit needs with what there is.

    Args:
      num_words: N.
      num_nonzeros: the nonzeros of S.
      topics_of_starts: the number of topics of each start.
      groups: the groups of devices that work on a start each.
      **options: further options of `estimate`.

    Raises:
      MemoryError: if there is certainly too little. If there is only likely too little, this warns.
    """
    if os.environ.get(SWITCH) == "0":
        return
    sizes = {"num_groups": len(groups), "devices_per_group": len(groups[0])}
    need = estimate(num_words, num_nonzeros, topics_of_starts, **sizes, **options)
    devices = [device for group in groups for device in group]
    local = sharding.local_devices(devices)
    on_cpu = all(device.platform == "cpu" for device in devices)
    needed = need.share_on_host(len(local) / len(devices) if on_cpu else 0.0)
    what = f"{num_words} words and {sum(topics_of_starts)} topics"
    if len(topics_of_starts) > 1:
        what += f" of {len(topics_of_starts)} starts together"
    compare(what, needed, host_available())
    for device in [] if on_cpu else local:
        compare(what, need.per_device, device_available(device))


def compare(what: str, needed: float, found: tuple[float, str] | None) -> None:
    """Refuse what certainly does not fit, and warn about what may not.

    Args:
      what: what needs the memory, for the message.
      needed: bytes.
      found: bytes that are free, and the name of the limit; None if they are unknown.

    Raises:
      MemoryError: if there is certainly too little.

    Example:
      >>> compare("all this", 3e9, (2e9, "the machine"))
      Traceback (most recent call last):
      MemoryError: all this need about 3.0 GB of memory, but the machine leaves 2.0 GB. Needs less: fewer \
topics (num_topics), fewer words (max_words), fewer starts (restarts), or combine='best', which keeps one of \
them. DCDJAX_MEMORY_CHECK=0 in the environment tries all the same
    """
    if found is None or needed <= found[0]:
        return
    free, limit = found
    message = f"{what} need about {_shown(needed)} of memory, but {limit} leaves {_shown(free)}. {_ADVICE}"
    if _CERTAIN * needed > free:
        raise MemoryError(f"{message}. {SWITCH}=0 in the environment tries all the same")
    warn(message, MemoryWarning)


@contextmanager
def explain_exhaustion() -> Iterator[None]:
    """Turn what JAX and NumPy raise when memory runs out into a MemoryError that says what to do."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        text = " ".join(str(error).split())
        is_ours = isinstance(error, MemoryError) and _ADVICE in text
        if is_ours or not (isinstance(error, MemoryError) or _EXHAUSTED.search(text)):
            raise
        reason = text.rpartition("computation: ")[2] or type(error).__name__
        raise MemoryError(f"memory ran out: {reason[:300].rstrip('.')}. {_ADVICE}") from error


# --- What there is --------------------------------------------------------------------------------------


def host_available() -> tuple[float, str] | None:
    """Return the free bytes of the host and what limits them, or None if the system does not tell."""
    found = [*_process_limit(), *cgroup_limits(), *_machine()]
    return min(found, default=None)


def device_available(device: Any) -> tuple[float, str] | None:
    """Return the free bytes of a device and its name, or None if JAX does not tell."""
    with suppress(Exception):  # not every backend has these numbers
        stats = device.memory_stats()
        return float(stats["bytes_limit"] - stats["bytes_in_use"]), f"device {device.id}"
    return None


def _process_limit() -> Iterator[tuple[float, str]]:
    if resource is None:
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        with suppress(OSError, ValueError):  # only Linux has the file
            used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
            yield float(max(0, limit - used)), "the limit of the process (ulimit -v)"


def cgroup_limits(
    membership: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")
) -> Iterator[tuple[float, str]]:
    """Yield the bytes that the control groups of this process leave, and what they are.

    Args:
      membership: the file with the groups of the process, of version 1 or 2.
      root: the folder where the system shows all groups.
    """
    with suppress(OSError, ValueError):
        for line in membership.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            base = root / "memory" if controllers else root
            names = ("limit_in_bytes", "usage_in_bytes") if controllers else ("max", "current")
            group = base / path.strip("/")
            # In a container the path may be that of the host. The root of the tree is then the own group.
            for folder in {group, *group.parents, base}:
                if folder.is_relative_to(base):
                    yield from _cgroup_limit(folder, *(f"memory.{name}" for name in names))


def _cgroup_limit(folder: Path, limit: str, used: str) -> Iterator[tuple[float, str]]:
    with suppress(OSError, ValueError):  # "max" is no number: there is no limit
        most, taken = (int((folder / name).read_text()) for name in (limit, used))
        reclaimable = 0  # files that the system holds in memory while it has nothing better to do with it
        with suppress(OSError, ValueError):
            lines = (line.split() for line in (folder / "memory.stat").read_text().splitlines())
            reclaimable = sum(int(n) for name, n in lines if name in ("active_file", "inactive_file"))
        yield float(max(0, most - taken + min(taken, reclaimable))), "the limit of the container (cgroup)"


def _machine() -> Iterator[tuple[float, str]]:
    with suppress(OSError, ValueError, LookupError):
        lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
        kilobytes = {name.rstrip(":"): int(number) for name, number, *_ in lines}
        free = kilobytes["MemAvailable"] + kilobytes.get("SwapFree", 0)
        yield float(free * 1024), "the machine"
        return
    with suppress(OSError, ValueError, AttributeError):  # without /proc: all of the memory, free or not
        yield float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")), "the machine"


def _shown(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:.0f} MB"
