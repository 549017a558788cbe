"""Save a model in a folder, and load it unchanged or not at all.

The folder holds one file, model.safetensors, in the format of `dcdjax.util.store`.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dcdjax.util import store

_FILE, _KIND = "model.safetensors", "model"


def save(
    folder: str | os.PathLike[str], tensors: Mapping[str, np.ndarray], content: Mapping[str, Any]
) -> None:
    """Write a model into a folder, in place of the model that is there, if any.

    A crash at any moment leaves the old model or the new one. Processes that save into one folder take turns.

    Args:
      folder: made if there is none; else empty, or with a model in it. Other files in it stay.
      tensors: as in `store.write`.
      content: as in `store.write`.

    Raises:
      ValueError: if a tensor or an entry of the content cannot be saved, or the folder holds other files and
        no model. Nothing is written.
      OSError: if the disk refuses.
    """
    check_target(folder)
    store.write(Path(folder, _FILE), tensors, content, kind=_KIND, take_turns=True, make_folder=True)


def load(folder: str | os.PathLike[str]) -> store.Stored:
    """Read what `save` wrote, and refuse it if a single bit is different.

    Another process may save into the folder meanwhile. The old or the new model is returned then.

    Raises:
      FileNotFoundError: if the folder holds no model.
      ValueError: if the file is damaged or holds something else. The message names the file.

    Example:
      >>> load("nowhere")
      Traceback (most recent call last):
      FileNotFoundError: nowhere is not a saved model: it has no file model.safetensors
    """
    if not is_model(folder):
        raise FileNotFoundError(f"{folder} is not a saved model: it has no file {_FILE}")
    return store.read(Path(folder) / _FILE, kind=_KIND)


def is_model(folder: str | os.PathLike[str]) -> bool:
    """Return whether a model is saved in the folder."""
    return os.path.isfile(os.path.join(folder, _FILE))


def check_target(folder: str | os.PathLike[str]) -> None:
    """Refuse a folder that `save` would refuse, before a long computation rather than after it.

    Raises:
      ValueError: if the folder is a file, or holds other files and no model.
      OSError: if nothing may be written there.
    """
    folder = Path(folder)
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if existing != folder and not existing.is_dir():
        raise NotADirectoryError(f"{folder}: {existing} is a file, no folder can be made in it")
    if existing.is_dir() and not os.access(existing, os.W_OK | os.X_OK):
        raise PermissionError(f"{folder}: nothing may be written in {existing}")
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"folder {folder} is a file: choose another")
    names = sorted(os.listdir(folder)) if folder.exists() else []
    others = [name for name in names if not name.startswith(".")]
    if others and _FILE not in names:
        raise ValueError(f"folder {folder} holds other files and no model: choose another ({others[0]!r})")
    if others and store.kind_of(folder / _FILE) != _KIND:
        raise ValueError(f"folder {folder} holds a {_FILE} that is not dcdjax's: choose another")
