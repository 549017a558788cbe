"""Arrays and facts of a run enter; a folder of files leaves, from which each comes back whole or not at all.

A run has parts, and each part a file: checkpoint-<part>-<number>.safetensors, whose header says which run it
is of, with a SHA-256 of all that it holds. The last two of each part are kept, in case the newest is damaged.
"""

import hashlib
import json
import os
import re
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors

from dcdjax import facts, files

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

# What a file says of its run is compared: another version of the format is another run.
_FORMAT, _VERSION = "dcdjax checkpoint", 1
_NAME = re.compile(r"checkpoint-(\w+)-(\d+)\.safetensors")
_PROBE, _LOCK = "checkpoint-probe", "checkpoint-lock"
# What a killed process leaves behind.
_LEFTOVER = re.compile(rf"\.checkpoint-[-.\w]+\.[0-9a-f]{{16}}\.part|{_PROBE}")
# Of a file that is written to see whether that can be done.
_PROBE_BYTES = 4096
_DTYPES = {"float64": "F64", "int64": "I64", "float32": "F32", "int32": "I32", "bool": "BOOL"}


class CheckpointError(ValueError):
    """A checkpoint cannot be used: it is of another run, or another run is using it."""


class CheckpointWarning(UserWarning):
    """A checkpoint could not be saved, or is damaged; the run goes on."""


class Part(NamedTuple):
    """What is known of a part of a run.

    Attributes:
      tensors: by name.
      facts: plain values, as JSON has them.
    """

    tensors: dict[str, np.ndarray]
    facts: dict[str, Any]


class Folder:
    """A folder in which one run at a time keeps its parts; other files in it stay as they are."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Makes the folder if there is none, keeps other runs out, and sees whether it can be written to.

        Raises:
          CheckpointError: if another run is using it.
          OSError: if nothing can be written there.
        """
        self.path = Path(path)
        self._lock: int | None = None
        self._run: dict[str, Any] = {}
        self._about: dict[str, Any] = {}
        self._good: dict[str, Path] = {}  # the newest of each part
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._keep_others_out()
            for name in os.listdir(self.path):
                if _LEFTOVER.fullmatch(name):
                    os.unlink(self.path / name)
            with files.written_whole(self.path / _PROBE) as file:
                file.write(bytes(_PROBE_BYTES))
            os.unlink(self.path / _PROBE)
        except BaseException as error:
            self.close()
            if not isinstance(error, OSError):
                raise
            raise OSError(
                f"checkpoint folder {self.path}: nothing can be written there ({error.strerror or error})"
            ) from error

    def find(self, run: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Part]:
        """The newest whole file of each part of a run.

        Args:
          run: what makes it the run it is, and no other.
          about: what else is to be known of it, but may change.

        Raises:
          CheckpointError: naming all that differs, if another run has kept its parts here.
        """
        self._run, self._about = _plain({"format_version": _VERSION, **run}), _plain(about)
        found = {}
        for part, paths in self._files().items():
            for path in reversed(paths):
                try:
                    tensors, content = _read(path)
                except (OSError, LookupError, TypeError, ValueError, safetensors.SafetensorError) as error:
                    warnings.warn(
                        f"checkpoint file {path} is damaged and not used ({error})",
                        CheckpointWarning,
                        stacklevel=4,  # who called fit
                    )
                    continue
                self._refuse_others(content["run"])
                found[part] = Part(tensors, content["facts"])
                self._good[part] = path
                break
        return found

    def write(
        self, part: str, tensors: Mapping[str, np.ndarray], facts: Mapping[str, Any], *, alone: bool = False
    ) -> None:
        """Writes a new file of a part; once it is safe on the disk, all but the one before are removed.

        Args:
          part: its name, of letters and digits.
          tensors: float64, float32, int64, int32 or bool.
          facts: what JSON holds.
          alone: remove the one before too.

        Raises:
          OSError: if the disk refuses. What was there before still is.
        """
        before = self._files()[part]
        number = 1 + max((int(_match(path)[2]) for path in before), default=0)
        path = self.path / f"checkpoint-{part}-{number:06d}.safetensors"
        content = {"format": _FORMAT, "run": self._run, "about": self._about, "facts": facts}
        with files.written_whole(path) as file:
            for piece in _encoded(tensors, content):
                file.write(piece)
        files.sync_folder(self.path)
        kept = None if alone else self._good.get(part)
        self._good[part] = path
        for old in before:
            if old != kept:
                with suppress(OSError):  # what stays does no harm
                    os.unlink(old)

    def close(self) -> None:
        """Lets others in."""
        if self._lock is not None:
            os.close(self._lock)
        self._lock = None

    def __enter__(self) -> "Folder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _keep_others_out(self) -> None:
        """Until the folder is closed or the process ends, in whatever way."""
        if fcntl is None:
            return
        self._lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CheckpointError(f"checkpoint folder {self.path} is being used by another run") from None
        except OSError:  # some network file systems have no locks
            pass

    def _files(self) -> defaultdict[str, list[Path]]:
        """Those of each part, the oldest first."""
        found = defaultdict(list)
        names = [name for name in os.listdir(self.path) if _NAME.fullmatch(name)]
        for path in sorted((self.path / name for name in names), key=lambda path: int(_match(path)[2])):
            found[_match(path)[1]].append(path)
        return found

    def _refuse_others(self, run: Mapping[str, Any]) -> None:
        different = [
            f"{name} is {here}, there it is {there}" for name, here, there in facts.differing(self._run, run)
        ]
        if different:
            raise CheckpointError(
                f"checkpoint folder {self.path} is of another run: {'; '.join(different)}. Choose another "
                "folder, or delete this one"
            )


def _match(path: Path) -> re.Match[str]:
    match = _NAME.fullmatch(path.name)
    assert match is not None
    return match


def _plain(facts: Mapping[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(facts, allow_nan=False))


# --- Files ------------------------------------------------------------------------------------------


def _encoded(tensors: Mapping[str, np.ndarray], content: Mapping[str, Any]) -> Iterator[bytes | memoryview]:
    """A safetensors file in pieces: the library's own functions would copy all tensors first."""
    # The widest first, so that each begins at a multiple of its width.
    tensors = dict(sorted(tensors.items(), key=lambda item: -item[1].dtype.itemsize))
    text = json.dumps(content, allow_nan=False)
    header: dict[str, Any] = {"__metadata__": {"content": text, "sha256": _digest(tensors, text)}}
    position = 0
    for name, tensor in tensors.items():
        offsets = [position, position + tensor.nbytes]
        header[name] = {
            "dtype": _DTYPES[tensor.dtype.name], "shape": list(tensor.shape), "data_offsets": offsets,
        }  # fmt: skip
        position += tensor.nbytes
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    yield len(encoded).to_bytes(8, "little")
    yield encoded
    for tensor in tensors.values():
        yield _bytes(tensor)


def _read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The tensors of a file and what else it says; an error if one bit of it is different."""
    with safetensors.safe_open(path, framework="numpy") as file:
        metadata = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, it is no dict
    if _digest(tensors, metadata["content"]) != metadata["sha256"]:
        raise ValueError("its sha256 does not match")
    content = json.loads(metadata["content"])
    if content["format"] != _FORMAT:
        raise ValueError("it is no checkpoint of dcdjax")
    return tensors, content


def _digest(tensors: Mapping[str, np.ndarray], text: str) -> str:
    shapes = {name: [tensor.dtype.name, list(tensor.shape)] for name, tensor in sorted(tensors.items())}
    digest = hashlib.sha256(json.dumps([text, shapes]).encode())
    for _, tensor in sorted(tensors.items()):
        digest.update(_bytes(tensor))
    return digest.hexdigest()


def _bytes(tensor: np.ndarray) -> memoryview:
    # safetensors are little-endian.
    tensor = np.asarray(tensor, tensor.dtype.newbyteorder("<"))
    return tensor.reshape(-1).view(np.uint8).data
