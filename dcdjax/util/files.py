"""Write files atomically, and find the cache folder."""

import errno
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a temporary binary file that replaces `path` at the end, or is deleted on an error.

    Other processes see the old file or the new one, never a part, even after a crash. A pipe or a device is
    written directly.
    """
    path = Path(os.path.realpath(path))  # replaces the file that a link points to, not the link
    if path.exists() and not path.is_file():
        with open(path, "wb") as file:
            yield file
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # Files by tempfile cannot be read by other users.
    part = path.with_name(f".{path.name[:64]}.{secrets.token_hex(8)}.part")
    try:
        with open(part, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Wait until renames in a folder are on disk, where the platform supports it."""
    if os.name == "nt":  # cannot open folders
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def cache_folder() -> Path:
    """Return the folder for downloaded and built files: DCDJAX_CACHE, or the platform's cache folder."""
    if chosen := os.environ.get("DCDJAX_CACHE"):
        return Path(chosen)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "dcdjax"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "dcdjax"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dcdjax"
