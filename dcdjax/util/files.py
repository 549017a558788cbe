"""Write files atomically, remove what a crash left of them, and find the cache folder."""

import errno
import os
import re
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

# The names of temporary files.
_PART = re.compile(r"\.(?P<target>.+)\.[0-9a-f]{16}\.part")


# What users read instead of the system's own words.
_REASONS = {
    errno.ENOENT: "no such file or folder",
    errno.EISDIR: "a folder, not a file",
    errno.ENOTDIR: "not a folder",
    errno.EACCES: "no permission",
    errno.EPERM: "no permission",
    errno.ENOSPC: "the disk is full",
    errno.EROFS: "the disk is read-only",
}


def describe(error: BaseException) -> str:
    """Return the message of an error. An error of the system says what is wrong, and with which file.

    Example:
      >>> describe(FileNotFoundError(errno.ENOENT, "No such file or directory", "words.tsv"))
      'no such file or folder: words.tsv'
    """
    if not isinstance(error, OSError) or error.errno is None:
        return str(error) or type(error).__name__
    reason = _REASONS.get(error.errno) or error.strerror or type(error).__name__
    return reason if error.filename is None else f"{reason}: {os.fsdecode(error.filename)}"


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a temporary binary file that replaces `path` at the end, or is deleted on an error.

    Other processes see the old file or the new one, never a part, even after a crash. At the end, the disk
    has the file and its name. A pipe or a device is written directly. A folder that does not exist is an
    error, because its name may be a mistake.
    """
    given = os.fspath(path)
    path = Path(os.path.realpath(path))  # replaces the file that a link points to, not the link
    if path.exists() and not path.is_file():
        with open(path, "wb") as file:
            yield file
        return
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{given}: there is no folder {path.parent}")
    # Files by tempfile cannot be read by other users.
    part = path.with_name(f".{path.name[:64]}.{secrets.token_hex(8)}.part")
    try:
        file = open(part, "xb")  # noqa: SIM115, it is closed below
    except OSError as error:
        error.filename = given  # the user knows no other
        raise
    try:
        with name_in_os_errors(given), file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        _sync_folder(path.parent)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


@contextmanager
def name_in_os_errors(name: str | os.PathLike[str]) -> Iterator[None]:
    """Add the name of a file to errors of the system that have none, as those of reading and writing."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = os.fspath(name)
        raise


def remove_leftovers(folder: Path, targets: str, *, min_age: float = 0.0) -> None:
    """Remove the temporary files that killed processes left in a folder.

    Args:
      folder: the folder.
      targets: remove the temporary files of `atomic_write` for files whose names begin with this.
      min_age: keep files that were written to within the last seconds, this many. Another process may be
        writing them.
    """
    for path in folder.iterdir():
        match = _PART.fullmatch(path.name)
        if match and match["target"].startswith(targets):
            with suppress(OSError):  # what stays does no harm
                if time.time() - path.stat().st_mtime >= min_age:
                    path.unlink()


def _sync_folder(folder: Path) -> None:
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
