"""Save the parts of a run in a folder, and load each part unchanged or not at all.

Each part has files checkpoint-<part>-<number>.safetensors in the format of `dcdjax.util.store`. A file says
which run it belongs to. The last two files of each part are kept, in case the newest is damaged.
"""

import json
import os
import re
from collections import defaultdict
from collections.abc import Mapping
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
# What a process that was killed leaves behind.
_LEFTOVER = re.compile(rf"\.checkpoint-[-.\w]+\.[0-9a-f]{{16}}\.part|{_PROBE}")
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
        self._lock = ExitStack()
        self._run: dict[str, Any] = {}
        self._environment: dict[str, Any] = {}
        self._newest: dict[str, Path] = {}  # the newest good file of each part
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock.enter_context(store.lock(self.path / _LOCK, wait=False))
            for name in os.listdir(self.path):
                if _LEFTOVER.fullmatch(name):
                    os.unlink(self.path / name)
            with files.atomic_write(self.path / _PROBE) as file:
                file.write(bytes(_PROBE_BYTES))
            os.unlink(self.path / _PROBE)
        except BlockingIOError:
            raise CheckpointError(f"checkpoint folder {self.path} is being used by another run") from None
        except BaseException as error:
            self.close()
            if not isinstance(error, OSError):
                raise
            raise OSError(
                f"checkpoint folder {self.path}: nothing can be written there ({error.strerror or error})"
            ) from error

    def load(self, run: Mapping[str, Any], environment: Mapping[str, Any]) -> dict[str, store.Stored]:
        """Return the newest undamaged file of each part, and warn about each damaged file.

        Args:
          run: the settings and data that the result depends on. They tell one run from another.
          environment: what else is saved with each part for information, such as versions. It may change.

        Raises:
          CheckpointError: if the folder holds parts of another run. The message names all that differs.
        """
        self._run = json.loads(json.dumps({"format_version": VERSION, **run}, allow_nan=False))
        self._environment = json.loads(json.dumps(environment, allow_nan=False))
        found = {}
        for part, paths in self._paths().items():
            for path in reversed(paths):
                try:
                    tensors, content = store.read(path, kind=_KIND)
                    saved_run, info = content["run"], content["info"]
                except (OSError, ValueError, LookupError) as error:
                    warn(f"checkpoint file is damaged and not used: {error}", CheckpointWarning)
                    continue
                self._check_run(saved_run)
                found[part] = store.Stored(tensors, info)
                self._newest[part] = path
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
        number = 1 + max(map(_number, older), default=0)
        path = self.path / f"checkpoint-{part}-{number:06d}.safetensors"
        content = {"run": self._run, "environment": self._environment, "info": info}
        store.write(path, tensors, content, kind=_KIND)
        files.sync_folder(self.path)
        kept = self._newest.get(part) if keep_previous else None
        self._newest[part] = path
        for old in older:
            if old != kept:
                with suppress(OSError):  # what stays does no harm
                    os.unlink(old)

    def close(self) -> None:
        """Unlock the folder."""
        self._lock.close()

    def __enter__(self) -> "CheckpointFolder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _paths(self) -> defaultdict[str, list[Path]]:
        """Return the files of each part, the oldest first."""
        paths = defaultdict(list)
        names = [name for name in os.listdir(self.path) if _NAME.fullmatch(name)]
        for path in sorted((self.path / name for name in names), key=_number):
            paths[_NAME.sub(r"\g<part>", path.name)].append(path)
        return paths

    def _check_run(self, saved_run: Mapping[str, Any]) -> None:
        different = [
            f"{name} is {here}, there it is {there}"
            for name, here, there in find_differences(self._run, saved_run)
        ]
        if different:
            raise CheckpointError(
                f"checkpoint folder {self.path} is of another run: {'; '.join(different)}. Choose another "
                "folder, or delete this one"
            )


def _number(path: Path) -> int:
    return int(_NAME.sub(r"\g<number>", path.name))
