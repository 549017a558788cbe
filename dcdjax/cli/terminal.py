"""What several commands need of the world: cores, signals, files; what they ask for leaves."""

import difflib
import os
import signal
import sys
import tempfile
import threading
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dcdjax.util.progress import Progress

if TYPE_CHECKING:
    from dcdjax.embedding.embedding import Embedding

# Each has a W of its own.
_MOST_DEVICES = 8


def use_cores(num_cores: int) -> None:
    """Lets JAX see a CPU device for each core, up to a few, unless somebody has said otherwise."""
    num_devices = min(num_cores, _MOST_DEVICES)
    if "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", ""):
        return
    if num_devices < 2 or "JAX_NUM_CPU_DEVICES" in os.environ:
        return
    import jax

    with suppress(RuntimeError):  # JAX has begun already, with the devices it has
        jax.config.update("jax_num_cpu_devices", num_devices)


def join(chosen: Namespace) -> bool:
    """Joins other processes, where that is asked for; says whether it was."""
    given = (chosen.coordinator, chosen.processes, chosen.rank)
    names = ("--coordinator", "--processes", "--rank")
    missing = [name for name, value in zip(names, given, strict=True) if value is None]
    if chosen.distributed and len(missing) < len(given):
        raise ValueError(
            "--distributed takes from the environment what --coordinator, --processes, --rank say"
        )
    if not chosen.distributed and len(missing) == len(given):
        if chosen.timeout is not None:
            raise ValueError("--timeout is of several processes: give --coordinator, --processes and --rank")
        return False
    if missing and not chosen.distributed:
        raise ValueError(f"{missing[0]} is missing: {', '.join(names[:2])} and {names[2]} belong together")
    from dcdjax.devices import processes

    processes.join(*given, timeout=processes.TIMEOUT if chosen.timeout is None else chosen.timeout)
    return True


class Patience:
    """The first Ctrl-C, or SIGTERM, interrupts; the next only says that what was learned is being saved."""

    def __init__(self, bars: Progress | None) -> None:
        self._bars = bars
        self._num_heard = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Patience":
        if threading.current_thread() is threading.main_thread():  # the only one that may
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._hear)
        return self

    def tell(self, *news: Any) -> None:
        """Passes on how far a computation has come, and interrupts it if that was heard but got lost."""
        if self._num_heard:  # what is raised while Python collects garbage, it ignores
            raise KeyboardInterrupt
        if self._bars is not None:
            self._bars(*news)

    def end(self) -> None:
        """From now on there is something to be saved: as if it had been interrupted before."""
        self._num_heard = max(1, self._num_heard)

    def _hear(self, *_: Any) -> None:
        self._num_heard += 1
        if self._num_heard != 2:
            raise KeyboardInterrupt
        print("saving what was learned; Ctrl-C once more gives it up", file=sys.stderr)

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)


def corpus(given: Sequence[str]) -> Any:
    """What stands on the command line as a corpus: standard input, a data set, or files and folders."""
    if "-" in given:
        if len(given) > 1:
            raise ValueError("standard input, -, cannot be read together with files")
        return sys.stdin
    from dcdjax.text import datasets
    from dcdjax.util.progress import Bars

    if len(given) == 1 and given[0] in datasets.names() and not os.path.exists(given[0]):
        with Bars() as progress:
            return datasets.load(given[0], progress=progress)
    for path in given:
        if not os.path.exists(path):
            near = difflib.get_close_matches(path, datasets.names(), 1)
            raise FileNotFoundError(
                f"no such file or folder: {path}{f'; did you mean {near[0]}?' if near else ''}"
            )
    return [Path(path) for path in given] if len(given) > 1 else given[0]


def save(embedding: "Embedding", folder: str) -> None:
    """Saves it there; if that is impossible, elsewhere, rather than lose what took long to learn."""
    try:
        embedding.save(folder)
    except (OSError, ValueError) as error:
        elsewhere = tempfile.mkdtemp(prefix="dcdjax-")
        embedding.save(elsewhere)
        raise OSError(
            f"{folder} could not be written ({error}); the model is saved in {elsewhere}"
        ) from error
