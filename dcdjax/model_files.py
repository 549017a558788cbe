"""Tensors and a record enter; a folder that holds them leaves, and comes back whole or is refused by name.

Two files: model-<hash of its bytes>.safetensors, and model.json, which names it. A new model's tensors stand
beside the old one's until a new model.json takes the place of the old one, in one go.
"""

import hashlib
import json
import math
import os
import re
import reprlib
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy

from dcdjax import files, matrix_files

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_RECORD = "model.json"
_FORMAT, _VERSION = "dcdjax model", 1
# How each of ours begins, even if the rest of it is damaged.
_BEGINNING = json.dumps({"format": _FORMAT})[:-1].encode()
# What may lie about after a crash: tensors, and parts of both files.
_LEFTOVER = re.compile(r"model-[0-9a-f]{16}\.safetensors|\.model[-.\w]+\.[0-9a-f]{16}\.part")
# Seconds after which no process can still be writing what no model.json names: it may be removed.
_STALE = 24 * 60 * 60
_DTYPES = ("float32", "float64", "int32", "int64", "uint8", "bool")
# Two halves of a character in a row: JSON joins them, and another string would come back.
_SPLIT_CHARACTER = re.compile("[\ud800-\udbff][\udc00-\udfff]")
# Far above any sensible record, far below what Python's recursion bears.
_MAX_DEPTH = 100
# How often to look for tensors that model.json names: whoever saves meanwhile takes the old ones away.
_ATTEMPTS = 10


class Model(NamedTuple):
    """What a folder holds.

    Attributes:
      tensors: by name, in the order of their names.
      record: plain values: words, settings, numbers.
    """

    tensors: dict[str, np.ndarray]
    record: dict[str, Any]


def save(
    folder: str | os.PathLike[str], tensors: Mapping[str, np.ndarray], record: Mapping[str, Any]
) -> None:
    """Writes a model into a folder, in place of the one that is there, if any.

    A crash at any moment leaves the old model or the new one. Processes that save into one folder take turns.

    Args:
      folder: made if there is none; else empty, or with a model in it. Further files in it stay.
      tensors: float32, float64, int32, int64, uint8 or bool, of any shape and layout.
      record: what JSON holds: dicts with keys of type str, lists, str, int, finite float, bool, None. NumPy's
        scalars become Python's. Tuples are refused: they would come back as lists.

    Raises:
      ValueError: naming the tensor or the place in the record that cannot be saved, or the folder if
        somebody keeps other things in it. Nothing is written then.
      OSError: if the disk refuses.

    Example:
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     save(folder, {"W": np.eye(2, dtype=np.float32)}, {"words": ["sun", "moon"]})
      ...     model = load(folder)
      >>> model.record["words"], model.tensors["W"].tolist()
      (['sun', 'moon'], [[1.0, 0.0], [0.0, 1.0]])
    """
    folder = Path(folder)
    plain = _plain(record, "record", _MAX_DEPTH)
    content = safetensors.numpy.save({name: _savable(name, tensor) for name, tensor in tensors.items()})
    digest = hashlib.sha256(content).hexdigest()
    name = f"model-{digest[:16]}.safetensors"
    described = {"format": _FORMAT, "version": _VERSION, "tensors_file": name, "tensors_sha256": digest}
    text = json.dumps({**described, "tensors_bytes": len(content), "record": plain}, allow_nan=False).encode()
    check_target(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with _taking_turns(folder):
        before = None
        with suppress(OSError, ValueError):  # none, or a damaged one
            before = _read_record(folder)["tensors_file"]
        with files.written_whole(folder / name) as file:
            file.write(content)
        files.sync_folder(folder)  # else a power failure might keep model.json without what it names
        with files.written_whole(folder / _RECORD) as file:
            file.write(text[:-1] + _ending(text))
        files.sync_folder(folder)
        for entry in os.scandir(folder):
            # Not all leftovers: where folders cannot be locked, somebody else may be about to name one.
            with suppress(OSError):  # what stays does no harm
                old = entry.name == before or time.time() - entry.stat().st_mtime > _STALE
                if old and entry.name != name and _LEFTOVER.fullmatch(entry.name):
                    os.unlink(entry.path)


def load(folder: str | os.PathLike[str]) -> Model:
    """Reads what `save` wrote, and refuses it if one bit is different. Nothing is ever unpickled.

    Another process may save into the folder meanwhile: either its model or the old one is returned.

    Args:
      folder: that holds the model.

    Returns:
      The tensors, writable and in memory of their own, and the record.

    Raises:
      FileNotFoundError: if the folder or its model.json is not there.
      ValueError: naming the file and what is wrong with it.

    Example:
      >>> load("nowhere")
      Traceback (most recent call last):
      FileNotFoundError: nowhere is not a saved model: it has no file model.json
    """
    folder = Path(folder)
    attempts = 0
    while True:
        described = _read_record(folder)
        path = folder / described["tensors_file"]
        try:
            with matrix_files.naming(path):
                return Model(tensors=_read_tensors(path, described), record=described["record"])
        except FileNotFoundError as error:
            attempts += 1
            if attempts == _ATTEMPTS:
                raise ValueError(f"{path}: there is no such file, but {_RECORD} names it") from error
            time.sleep(0.001 * attempts)


def _savable(name: str, tensor: np.ndarray) -> np.ndarray:
    if name == "__metadata__" or name != name.encode(errors="replace").decode():
        raise ValueError(f"tensors has the name {name!r}, which safetensors cannot hold")
    tensor = np.asarray(tensor)
    if tensor.dtype.name not in _DTYPES:
        raise ValueError(f"tensors[{name!r}] is of {tensor.dtype}, not of one of {', '.join(_DTYPES)}")
    # safetensors copies memory as it lies; its files are little-endian.
    return np.asarray(tensor, tensor.dtype.newbyteorder("<"), order="C")


def _plain(value: Any, where: str, depth: int) -> Any:
    """The value as JSON will return it, or a ValueError that says where in the record it cannot."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, str) and not _SPLIT_CHARACTER.search(value):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, list) and depth:
        return [_plain(item, f"{where}[{n}]", depth - 1) for n, item in enumerate(value)]
    if isinstance(value, Mapping) and depth:
        for key in value:
            if not isinstance(key, str) or _SPLIT_CHARACTER.search(key):
                raise ValueError(f"JSON cannot hold {where}, which has the key {key!r}")
        return {key: _plain(item, f"{where}[{key!r}]", depth - 1) for key, item in value.items()}
    depths = "" if depth else f", {_MAX_DEPTH} levels deep"
    raise ValueError(f"JSON cannot hold {where} = {reprlib.repr(value)}{depths}, a {type(value).__name__}")


def is_model(folder: str | os.PathLike[str]) -> bool:
    """Whether a model is saved there."""
    return os.path.isfile(os.path.join(folder, _RECORD))


def check_target(folder: str | os.PathLike[str]) -> None:
    """Refuses a folder that `save` would refuse: better before a long computation than after it.

    Raises:
      ValueError: naming the folder, and what is in it.
      OSError: if nothing may be written there.
    """
    folder = Path(folder)
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if there != folder and not there.is_dir():
        raise NotADirectoryError(f"{folder}: {there} is a file, no folder can be made in it")
    if there.is_dir() and not os.access(there, os.W_OK | os.X_OK):
        raise PermissionError(f"{folder}: nothing may be written in {there}")
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"folder {folder} is a file: choose another")
    names = sorted(os.listdir(folder)) if folder.exists() else []
    others = [name for name in names if not name.startswith(".") and not _LEFTOVER.fullmatch(name)]
    if others and _RECORD not in names:
        raise ValueError(f"folder {folder} holds other files and no model: choose another ({others[0]!r})")
    if others and (folder / _RECORD).read_bytes()[: len(_BEGINNING)] != _BEGINNING:
        raise ValueError(f"folder {folder} holds a {_RECORD} that is not dcdjax's: choose another")


@contextmanager
def _taking_turns(folder: Path) -> Iterator[None]:
    """Keeps other savers out, where the platform can."""
    descriptor = None if fcntl is None else os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems have no locks
            if fcntl is not None and descriptor is not None:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)  # which unlocks, as the end of the process does


def _ending(text: bytes) -> bytes:
    """What stands in model.json instead of the last brace of the rest."""
    return f', "sha256": "{hashlib.sha256(text).hexdigest()}"}}'.encode()


def _read_record(folder: Path) -> dict[str, Any]:
    path = folder / _RECORD
    if not path.is_file():
        raise FileNotFoundError(f"{folder} is not a saved model: it has no file {_RECORD}")
    with matrix_files.naming(path):
        text = path.read_bytes()
        try:
            described = json.loads(text.decode("ascii"), object_pairs_hook=_without_duplicates)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"it is cut off or damaged ({error})") from None
        if not isinstance(described, dict) or described.get("format") != _FORMAT:
            raise ValueError("it is no model that dcdjax saved")
        if (version := described.get("version")) != _VERSION:
            raise ValueError(f"it is of version {version!r}, which was written by a newer dcdjax")
        # Of the bytes as they are: what is parsed from them could come from other bytes too.
        length = len(_ending(b""))
        if text[-length:] != _ending(text[:-length] + b"}"):
            raise ValueError("it is damaged or was edited: its sha256 does not match")
        if not re.fullmatch(r"model-[0-9a-f]{16}\.safetensors", described["tensors_file"]):
            raise ValueError(f"it names the tensors {described['tensors_file']!r}, as dcdjax never does")
        if not isinstance(described["record"], dict):
            raise ValueError(f"its record is {reprlib.repr(described['record'])}")
        return described


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError(f"one of the keys {reprlib.repr([key for key, _ in pairs])} is there twice")
    return content


def _read_tensors(path: Path, described: Mapping[str, Any]) -> dict[str, np.ndarray]:
    size, digest = described["tensors_bytes"], described["tensors_sha256"]
    with open(path, "rb") as file:
        found = os.fstat(file.fileno()).st_size
        if found != size:
            raise ValueError(f"it is {found} bytes long, not {size!r}")
        content = file.read(found)
    if hashlib.sha256(content).hexdigest() != digest:
        raise ValueError(f"it is damaged, or not what {_RECORD} was saved with: its sha256 does not match")
    try:
        return dict(sorted(safetensors.numpy.load(content).items()))
    except safetensors.SafetensorError as error:
        raise ValueError(f"it holds no tensors: {error}") from error
