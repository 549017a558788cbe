"""Save the parts of a run in a folder, and load each part unchanged or not at all.

Each part has files checkpoint-<part>-<number>.safetensors in the format of `dcdjax.util.store`. A file says
which run it belongs to. The last two files of each part are kept, in case the newest is damaged.
"""

import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np

from dcdjax.util import files, store
from dcdjax.util.checks import find_differences
from dcdjax.util.warn import warn

# It belongs to the description of a run: files of another version are of another run.
VERSION = 1
_KIND = "checkpoint"
_NAME = re.compile(r"checkpoint-(?P<part>\w+)-(?P<number>\d+)\.safetensors")
_PROBE, _LOCK = "checkpoint-probe", "checkpoint-lock"
# Size of the file that is written to find out whether the disk takes it.
_PROBE_BYTES = 4096


class CheckpointError(ValueError):
    """Signal that a checkpoint was made with other settings or data, or is in use by another process."""


class CheckpointWarning(UserWarning):
    """Warn that a checkpoint could not be saved or is damaged. The run continues."""


class CheckpointFolder:
    """Save the parts of one run at a time in a folder. Other files in the folder stay as they are."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Make the folder if there is none, lock it, and check that it can be written to.

        Raises:
          CheckpointError: if another run is using the folder.
          OSError: if nothing can be written there.
        """
        self.path = Path(path)
        self._header: dict[str, Any] = {}  # what every file says: the run and the environment
        self._newest: dict[str, Path] = {}  # the newest good file of each part
        try:
            with ExitStack() as lock:
                self.path.mkdir(parents=True, exist_ok=True)
                lock.enter_context(store.lock(self.path / _LOCK, wait=0.0))
                files.remove_leftovers(self.path, "checkpoint-", min_age=0.0)
                with files.atomic_write(self.path / _PROBE) as file:
                    file.write(bytes(_PROBE_BYTES))
                os.unlink(self.path / _PROBE)
                self._lock = lock.pop_all()
        except BlockingIOError:
            raise CheckpointError(f"checkpoint folder {self.path} is being used by another run") from None
        except OSError as error:
            raise OSError(
                f"checkpoint folder {self.path}: nothing can be written there ({error.strerror or error})"
            ) from error

    def load(
        self,
        run: Mapping[str, Any],
        environment: Mapping[str, Any],
        check: Callable[[str, store.Stored], None] | None = None,
    ) -> dict[str, store.Stored]:
        """Return the newest undamaged file of each part, and warn about each damaged file.

        Args:
          run: the settings and data that the result depends on. They tell one run from another.
          environment: what else is saved with each part for information, such as versions. It may change.
          check: raises ValueError if a part is not what the run saves. Its file is then a damaged one.

        Raises:
          CheckpointError: if the folder holds parts of another run. The message names all that differs.
        """
        header = {"run": {"format_version": VERSION, **run}, "environment": environment}
        self._header = json.loads(json.dumps(header, allow_nan=False))  # as a file returns it
        found = {}
        for part, paths in self._paths().items():
            for number in sorted(paths, reverse=True):
                try:
                    stored, saved_run = self._read(paths[number])
                    # A file of another run is refused, not damaged.
                    self._check_run(saved_run)
                    if check is not None:
                        with store.name_in_errors(paths[number]):
                            check(part, stored)
                except CheckpointError:
                    raise
                except (OSError, ValueError) as error:
                    warn(f"checkpoint file is damaged and not used: {error}", CheckpointWarning)
                    continue
                found[part] = stored
                self._newest[part] = paths[number]
                break
        return found

    def save(
        self,
        part: str,
        tensors: Mapping[str, np.ndarray],
        info: Mapping[str, Any],
        *,
        keep_previous: bool = True,
    ) -> None:
        """Write a new file of a part. Once it is safe on the disk, remove the older files.

        Args:
          part: name of the part, of letters and digits.
          tensors: as in `store.write`.
          info: plain values to save with the tensors, as in `store.write`.
          keep_previous: keep the file before, for the case that the new one is damaged.

        Raises:
          OSError: if the disk refuses. All files that were there stay.
        """
        older = self._paths()[part]
        number = 1 + max(older, default=0)
        path = self.path / f"checkpoint-{part}-{number:06d}.safetensors"
        store.write(path, tensors, {**self._header, "info": info}, kind=_KIND)
        kept = self._newest.get(part) if keep_previous else None
        self._newest[part] = path
        for old in older.values():
            if old != kept:
                with suppress(OSError):  # what stays does no harm
                    os.unlink(old)

    def __enter__(self) -> "CheckpointFolder":
        return self

    def __exit__(self, *_: object) -> None:
        """Unlock the folder."""
        self._lock.close()

    @staticmethod
    def _read(path: Path) -> tuple[store.Stored, dict[str, Any]]:
        """Return what a file holds, and which run it says it belongs to."""
        tensors, content = store.read(path, kind=_KIND)
        with store.name_in_errors(path):
            for name in ("run", "info"):
                if not isinstance(content.get(name), dict):
                    raise ValueError(f"its entry {name!r} is no record")
            return store.Stored(tensors, content["info"]), content["run"]

    def _paths(self) -> defaultdict[str, dict[int, Path]]:
        """Return the files of each part by their number. The newest has the largest."""
        paths = defaultdict(dict)
        for path in self.path.iterdir():
            if match := _NAME.fullmatch(path.name):
                paths[match["part"]][int(match["number"])] = path
        return paths

    def _check_run(self, saved_run: Mapping[str, Any]) -> None:
        differences = find_differences(self._header["run"], saved_run)
        different = "; ".join(f"{name} is {here}, there it is {there}" for name, here, there in differences)
        if different:
            raise CheckpointError(
                f"checkpoint folder {self.path} is of another run: {different}. Choose another "
                "folder, or delete this one"
            )
