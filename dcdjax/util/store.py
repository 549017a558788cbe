"""Write tensors and a JSON record to one safetensors file, and read them back unchanged or not at all.

Models, checkpoints and matrices are all saved in this format. The metadata of the file hold its kind, the
record as JSON text, and a SHA-256 of the record and of all tensors. Nothing is ever pickled.
"""

import errno
import hashlib
import json
import math
import os
import re
import reprlib
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors

from dcdjax.util import files

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_FORMAT, _VERSION = "dcdjax", "1"
# The first 8 bytes are the length of the header. The next ones tell our files from others, even if damaged.
_BEGINNING = re.compile(rb'.{8}\{"__metadata__":\{"format":"dcdjax","kind":"(\w+)"', re.DOTALL)
_DTYPES = {
    "float64": "F64", "float32": "F32", "int64": "I64", "int32": "I32", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip
# Seconds to wait for another process that writes into the same folder, and between two tries.
SECONDS_TO_WAIT = 60.0
_SECONDS_BETWEEN_TRIES = 0.02
# safetensors reads headers up to 100 MB, and the text may double there. A longer one becomes a tensor.
MAX_TEXT_IN_HEADER = 40_000_000
_TEXT_TENSOR = "__content__"
# JSON joins two halves of a character that follow each other, so another string would come back.
_SPLIT_CHARACTER = re.compile("[\ud800-\udbff][\udc00-\udfff]")
# Far above the depth of any sensible record, far below Python's limit of recursion.
_MAX_DEPTH = 100


class Stored(NamedTuple):
    """Hold what a file contains.

    Attributes:
      tensors: arrays by name, in the order of their names.
      content: the record: numbers, strings, lists and dicts as JSON has them.
    """

    tensors: dict[str, np.ndarray]
    content: dict[str, Any]


def write(
    path: str | os.PathLike[str],
    tensors: Mapping[str, np.ndarray],
    content: Mapping[str, Any],
    *,
    kind: str,
    take_turns: bool = False,
    make_folder: bool = False,
) -> None:
    """Write one file in place of the file that is there, if any.

    A crash at any moment leaves the old file or the new one. The tensors are written one by one without a
    copy, so they may be memory-mapped and larger than memory.

    Args:
      path: path of the file.
      tensors: arrays of float32, float64, int32, int64, uint8 or bool, in any shape and layout.
      content: dicts with keys of type str, lists, str, int, finite float, bool, None. NumPy scalars become
        Python numbers. Tuples are refused, because they would come back as lists.
      kind: what the file holds, such as "model". `read` can insist on it.
      take_turns: lock the folder, so that processes that write into it wait for each other, for a minute at
        most.
      make_folder: make the folder of the file if it does not exist, which is an error otherwise.

    Raises:
      ValueError: if a tensor or an entry of the content cannot be saved. Nothing is written.
      OSError: if the disk refuses, or another process holds the lock for too long.

    Example:
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     write(f"{folder}/two", {"W": np.eye(2)}, {"words": ["sun", "moon"]}, kind="model")
      ...     stored = read(f"{folder}/two", kind="model")
      >>> stored.content["words"], stored.tensors["W"].tolist()
      (['sun', 'moon'], [[1.0, 0.0], [0.0, 1.0]])
    """
    # Some versions of safetensors copy all tensors before they write them, so the file is written here.
    text = json.dumps(_to_json(content, "content", _MAX_DEPTH), allow_nan=False)
    tensors = {name: _to_storable(name, tensor) for name, tensor in tensors.items()}
    if len(text) > MAX_TEXT_IN_HEADER:
        tensors[_TEXT_TENSOR] = np.frombuffer(text.encode(), np.uint8)
        text = ""
    metadata = {"format": _FORMAT, "kind": kind, "version": _VERSION, "content": text}
    header: dict[str, Any] = {"__metadata__": {**metadata, "sha256": _digest(metadata, tensors)}}
    pieces, position = [], 0
    # The widest first, so that each tensor begins at a multiple of its width and can be mapped.
    for name, tensor in sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0])):
        offsets = [position, position + tensor.nbytes]
        dtype = _DTYPES[tensor.dtype.name]
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": offsets}
        pieces.append(_bytes(tensor))
        position += tensor.nbytes
    encoded = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    folder = Path(path).parent
    if make_folder:
        folder.mkdir(parents=True, exist_ok=True)
    with (
        lock(folder, wait=SECONDS_TO_WAIT) if take_turns else nullcontext(),
        files.atomic_write(path) as file,
    ):
        file.writelines([len(encoded).to_bytes(8, "little"), encoded, *pieces])


def read(path: str | os.PathLike[str], *, kind: str | None = None, mapped: Collection[str] = ()) -> Stored:
    """Read what `write` wrote. Refuse the file if a single bit is different.

    Args:
      path: path of the file.
      kind: if given, refuse a file of another kind.
      mapped: names of tensors to leave in the file. They are checked too, then mapped into memory read-only.

    Returns:
      The content and the tensors. Tensors that are not mapped are writable.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: if the file is damaged or of another kind. The message names the file.
    """
    with name_in_errors(path):
        found = kind_of(path)
        if found is None:
            raise ValueError("it is damaged, or dcdjax did not save it")
        if kind not in (None, found):
            raise ValueError(f"it holds {found}, not {kind}")
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if (version := metadata.get("version")) != _VERSION:
                raise ValueError(f"it is of version {version!r}, which was written by a newer dcdjax")
            tensors = {
                name: _map(path, name) if name in mapped else file.get_tensor(name)
                for name in sorted(file.keys())
            }
        sha256 = metadata.pop("sha256", None)
        if _digest(metadata, tensors) != sha256:
            raise ValueError("it is damaged or was edited: its sha256 does not match")
        for name, tensor in tensors.items():
            if tensor.dtype.name not in _DTYPES:
                raise ValueError(f"tensor {name!r} is of {tensor.dtype}, as dcdjax never saves it")
        text = metadata["content"] or tensors.pop(_TEXT_TENSOR).tobytes()
        content = json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant)
        if not isinstance(content, dict):
            raise ValueError(f"its content is {reprlib.repr(content)}")
        _check_depth(content, _MAX_DEPTH)
        return Stored(tensors, content)


def kind_of(path: str | os.PathLike[str]) -> str | None:
    """Return the kind of a file that `write` wrote, whole or damaged, and None for any other file."""
    with name_in_errors(path), open(path, "rb") as file:
        match = _BEGINNING.match(file.read(100))
    return None if match is None else match[1].decode()


@contextmanager
def name_in_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn whatever reading a damaged file raises into a ValueError that names the file.

    Errors of a disk and of memory keep their kind, because they do not mean that the file is damaged. They
    name the file too. The name is there once, however often this function is nested.
    """
    name = os.fspath(path)
    try:
        yield
    except Exception as error:  # safetensors, zipfile, zlib and NumPy raise many kinds
        # The system numbers its errors, gzip does not. EISDIR means that this is no file, EINVAL comes from a
        # wrong offset in a damaged one.
        if isinstance(error, OSError) and error.errno not in (None, errno.EISDIR, errno.EINVAL):
            error.filename = error.filename or name
            raise
        reason = files.describe(error).removeprefix(f"{name}: ").removesuffix(f": {name}")
        kind = MemoryError if isinstance(error, MemoryError) else ValueError
        raise kind(f"{name}: {reason}") from error


@contextmanager
def lock(path: str | os.PathLike[str], *, wait: float) -> Iterator[None]:
    """Hold a lock on a folder or file that no other process can hold, where the platform has locks.

    Args:
      path: a folder, or a file, which is made if there is none.
      wait: seconds to wait until no other process holds the lock.

    Raises:
      BlockingIOError: if another process still holds the lock. The message says which one, if the system
        tells.
    """
    if fcntl is None:
        yield
        return
    flags = os.O_RDONLY if os.path.isdir(path) else os.O_RDWR | os.O_CREAT
    descriptor = os.open(path, flags, 0o666)
    until = time.monotonic() + wait
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                # Whoever may read the folder can lock it: this must not take for ever.
                if time.monotonic() >= until:
                    reason = f"locked by {_holder(descriptor)}"
                    raise BlockingIOError(error.errno, reason, os.fspath(path)) from None
                time.sleep(_SECONDS_BETWEEN_TRIES)
            except OSError:  # some network file systems have no locks
                break
        yield
    finally:
        os.close(descriptor)  # which unlocks, as the end of the process does


def _holder(descriptor: int) -> str:
    """Return which process holds a lock on an open file, as far as the system tells."""
    found = os.fstat(descriptor)
    device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    with suppress(OSError, ValueError):  # only Linux has this file
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if "FLOCK" in fields[:2] and device in fields:
                return f"process {int(fields[fields.index(device) - 1])}"
    return "another process"


def _to_json(value: Any, where: str, depth: int) -> Any:
    """Return the value as JSON will return it, or raise a ValueError that says where it cannot."""
    if isinstance(value, np.generic):
        value = value.item()
    is_text = isinstance(value, str) and not _SPLIT_CHARACTER.search(value)
    is_finite = isinstance(value, float) and math.isfinite(value)
    if value is None or isinstance(value, int) or is_text or is_finite:
        return value
    if isinstance(value, list) and depth:
        return [_to_json(item, f"{where}[{n}]", depth - 1) for n, item in enumerate(value)]
    if isinstance(value, Mapping) and depth:
        for key in value:
            if not isinstance(key, str) or _SPLIT_CHARACTER.search(key):
                raise ValueError(f"JSON cannot hold {where}, which has the key {key!r}")
        return {key: _to_json(item, f"{where}[{key!r}]", depth - 1) for key, item in value.items()}
    depths = "" if depth else f", {_MAX_DEPTH} levels deep"
    raise ValueError(f"JSON cannot hold {where} = {reprlib.repr(value)}{depths}, a {type(value).__name__}")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError(f"one of the keys {reprlib.repr([key for key, _ in pairs])} is there twice")
    return content


def _refuse_constant(name: str) -> None:
    raise ValueError(f"its content has {name}, which JSON does not")


def _check_depth(value: Any, depth: int) -> None:
    """Refuse what `write` would not have written, so that nobody who goes through it needs many frames."""
    if not depth:
        raise ValueError(f"its content is more than {_MAX_DEPTH} levels deep")
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, dict | list):
            _check_depth(item, depth - 1)


def _to_storable(name: str, tensor: np.ndarray) -> np.ndarray:
    if name in ("__metadata__", _TEXT_TENSOR) or name != name.encode(errors="replace").decode():
        raise ValueError(f"tensors has the name {name!r}, which safetensors cannot hold")
    tensor = np.asarray(tensor)
    if tensor.dtype.name not in _DTYPES:
        raise ValueError(f"tensors[{name!r}] is of {tensor.dtype}, not of one of {', '.join(_DTYPES)}")
    return np.asarray(tensor, tensor.dtype.newbyteorder("<"), order="C")  # as safetensors has them


def _digest(metadata: Mapping[str, str], tensors: Mapping[str, np.ndarray]) -> str:
    shapes = {name: [tensor.dtype.name, list(tensor.shape)] for name, tensor in sorted(tensors.items())}
    digest = hashlib.sha256(json.dumps([sorted(metadata.items()), shapes]).encode())
    for _, tensor in sorted(tensors.items()):
        digest.update(_bytes(tensor))
    return digest.hexdigest()


def _bytes(tensor: np.ndarray) -> memoryview:
    return np.asarray(tensor, tensor.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data


def _map(path: str | os.PathLike[str], name: str) -> np.ndarray:
    """Map a tensor of a file whose header safetensors has checked."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        entry = json.loads(file.read(length))[name]
    dtypes = {short: np.dtype(name).newbyteorder("<") for name, short in _DTYPES.items()}
    dtype, shape = dtypes[entry["dtype"]], tuple(entry["shape"])
    if not math.prod(shape):
        return np.empty(shape, dtype)
    return np.memmap(path, dtype, "r", 8 + length + entry["data_offsets"][0], shape)
