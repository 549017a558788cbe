"""Set up devices, processes and signals for commands; find the corpus and save the model."""

import importlib
import os
import signal
import sys
import tempfile
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dcdjax.util import checks
from dcdjax.util.files import describe
from dcdjax.util.progress import Progress

if TYPE_CHECKING:
    from dcdjax.embedding.embedding import Embedding

# Each device holds its own W.
_MOST_DEVICES = 8


def use_cores(num_cores: int) -> None:
    """Let JAX see a CPU device for each core, up to eight, unless the environment sets another number."""
    num_devices = min(num_cores, _MOST_DEVICES)
    if "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", ""):
        return
    if num_devices < 2 or "JAX_NUM_CPU_DEVICES" in os.environ:
        return
    import jax

    with suppress(RuntimeError):  # JAX has already started with its devices
        jax.config.update("jax_num_cpu_devices", num_devices)


def join(chosen: Namespace) -> bool:
    """Join other processes if the options ask for it. Return whether they do."""
    values = (chosen.coordinator, chosen.processes, chosen.rank)
    names = ("--coordinator", "--processes", "--rank")
    missing = [name for name, value in zip(names, values, strict=True) if value is None]
    if chosen.distributed and len(missing) < len(values):
        raise ValueError("--distributed cannot be combined with --coordinator, --processes or --rank")
    if not chosen.distributed and len(missing) == len(values):
        if chosen.timeout is not None:
            raise ValueError(
                "--timeout is for several processes: give --coordinator, --processes and --rank too"
            )
        return False
    if missing and not chosen.distributed:
        raise ValueError(f"{missing[0]} is missing: {', '.join(names[:2])} and {names[2]} belong together")
    from dcdjax.devices import processes

    processes.join(*values, timeout=processes.TIMEOUT if chosen.timeout is None else chosen.timeout)
    return True


class InterruptOnce:
    """Interrupt at the first Ctrl-C or SIGTERM. At the second, print that the model is being saved."""

    def __init__(self, bars: Progress | None) -> None:
        self._bars = bars
        self._num_signals = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "InterruptOnce":
        if threading.current_thread() is threading.main_thread():  # only this thread may set handlers
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def tell(self, *news: Any) -> None:
        """Pass progress on. Interrupt the computation if an earlier interruption got lost."""
        if self._num_signals:  # Python ignores what is raised while it collects garbage
            raise KeyboardInterrupt
        if self._bars is not None:
            self._bars(*news)

    def end(self) -> None:
        """Treat the next signal as the second one: from now on there is a model to save."""
        self._num_signals = max(1, self._num_signals)

    def _handle(self, *_: Any) -> None:
        self._num_signals += 1
        if self._num_signals != 2:
            raise KeyboardInterrupt
        print("saving what was learned; Ctrl-C once more gives it up", file=sys.stderr)

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)


@contextmanager
def stop_cleanly() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM raise KeyboardInterrupt, so that unfinished files are deleted."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def find_corpus(names: Sequence[str]) -> Any:
    """Return the corpus that the command line names: standard input, a data set, files or folders."""
    if "-" in names:
        if len(names) > 1:
            raise ValueError("standard input, -, cannot be read together with files")
        return sys.stdin
    from dcdjax.text import datasets
    from dcdjax.util.progress import Bars

    if len(names) == 1 and names[0] in datasets.names() and not os.path.exists(names[0]):
        with Bars() as progress, stop_cleanly():
            return datasets.load(names[0], progress=progress)
    for path in names:
        if not os.path.exists(path):
            hint = checks.did_you_mean(path, datasets.names())
            raise FileNotFoundError(f"no such file or folder: {path}{hint}")
    return [Path(path) for path in names] if len(names) > 1 else names[0]


def find_tokenizer(name: str) -> Callable[[str], Any]:
    """Import the function that MODULE:FUNCTION names. The module may be in the current folder."""
    option = f"--tokenizer {name}"
    module, colon, function = name.partition(":")
    if not (module and colon and function):
        raise ValueError(f"{option}: must be MODULE:FUNCTION, such as jieba:lcut")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise ValueError(f"{option}: cannot import {module}: {error}") from error
    for part in function.split("."):
        if not hasattr(found, part):
            hint = checks.did_you_mean(part, [one for one in dir(found) if not one.startswith("_")])
            raise ValueError(f"{option}: {module} has no {part}{hint}")
        found = getattr(found, part)
    if isinstance(found, type) or not callable(found):
        raise ValueError(f"{option}: it is not a function but {type(found).__name__}")
    return found


def save(embedding: "Embedding", folder: str) -> None:
    """Save the model in a folder. If that fails, save it in a new folder beside it, or a temporary one."""
    try:
        embedding.save(folder)
    except (OSError, ValueError) as error:
        place, name = os.path.split(os.path.abspath(folder))
        try:
            elsewhere = tempfile.mkdtemp(prefix=f"{name}-", dir=place)
            embedding.save(elsewhere)
        except OSError:
            elsewhere = tempfile.mkdtemp(prefix="dcdjax-")
            embedding.save(elsewhere)
        raise OSError(
            f"{folder} could not be written ({describe(error)}); the model is saved in {elsewhere}"
        ) from error
