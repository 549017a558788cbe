"""Write files atomically, make temporary folders, remove what a crash left, and find the cache folder.

A process holds a lock on each of its temporary files and folders. The lock ends with the process, however it
ends. So whatever is there without a lock was left behind, and the next process that writes there removes it.
"""

import errno
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

# The names of temporary files.
_PART = re.compile(r"\.(?P<target>.+)\.[0-9a-f]{16}\.part")
# The file in a temporary folder that its process locks.
_LOCK = "lock"
# Seconds before a file without a lock counts as left behind: its process may be about to lock it.
_MIN_AGE = 60.0
# The same where the file system has no locks: no process writes a file for so long.
_STALE = 24 * 60 * 60.0


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
    remove_leftovers(path.parent, path.name[:64])
    # Files by tempfile cannot be read by other users.
    part = path.with_name(f".{path.name[:64]}.{secrets.token_hex(8)}.part")
    try:
        file = open(part, "xb")  # noqa: SIM115, it is closed below
    except OSError as error:
        error.filename = given  # the user knows no other
        raise
    try:
        with name_in_os_errors(given), file:
            _lock(file.fileno())
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


def remove_leftovers(folder: Path, targets: str, *, min_age: float = _MIN_AGE) -> None:
    """Remove the temporary files that killed processes of this user left in a folder.

    Args:
      folder: the folder.
      targets: remove the temporary files of `atomic_write` for files whose names begin with this.
      min_age: keep files that were written to within the last seconds, this many.
    """
    with suppress(OSError):  # what stays does no harm
        for path in folder.iterdir():
            match = _PART.fullmatch(path.name)
            if match and match["target"].startswith(targets):
                with _abandoned(path, min_age) as is_abandoned:
                    if is_abandoned:
                        path.unlink(missing_ok=True)


class TemporaryFolder:
    """Make a folder that is deleted when it is closed, at the latest when the process ends.

    If the process is killed, the next one that makes such a folder in the same place deletes it.

    Attributes:
      path: the path of the folder.
    """

    def __init__(self, prefix: str, parent: str | os.PathLike[str] | None = None) -> None:
        """Make the folder, and delete what killed processes of this user left.

        Args:
          prefix: the beginning of its name. No other kind of folder may begin with it.
          parent: where to make it. Default: the system's folder for temporary files.
        """
        place = Path(tempfile.gettempdir() if parent is None else parent)
        _remove_folders(place, prefix)
        # It gets its name once it is locked: another process never sees it without a lock.
        made = Path(tempfile.mkdtemp(prefix=f"new-{prefix}", dir=place))
        descriptor = os.open(made / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        _lock(descriptor)
        self.path = made.with_name(made.name.removeprefix("new-"))
        os.rename(made, self.path)
        self._delete = weakref.finalize(self, _delete_folder, self.path, descriptor)

    def close(self) -> None:
        """Delete the folder and all that is in it."""
        self._delete()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()


def _delete_folder(path: Path, descriptor: int) -> None:
    os.close(descriptor)  # first, because Windows cannot delete an open file
    shutil.rmtree(path, ignore_errors=True)


def _remove_folders(place: Path, prefix: str) -> None:
    with suppress(OSError):
        for path in place.iterdir():
            if path.name.startswith(prefix) and _is_own(path.lstat(), stat.S_ISDIR):
                with _abandoned(path / _LOCK, 0.0) as is_abandoned:
                    if is_abandoned:
                        shutil.rmtree(path, ignore_errors=True)  # does not follow links


@contextmanager
def _abandoned(path: Path, min_age: float) -> Iterator[bool]:
    """Find out whether a process that has ended left the file behind. Keep others from it meanwhile."""
    descriptor = None
    try:
        found = path.lstat()
        age = time.time() - found.st_mtime
        is_abandoned = _is_own(found, stat.S_ISREG) and age >= min_age
        if is_abandoned:
            descriptor = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
            is_abandoned = _lock(descriptor) or age >= _STALE
    except OSError:  # it is locked, or it has gone
        is_abandoned = False
    try:
        with suppress(OSError):
            yield is_abandoned
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _is_own(found: os.stat_result, is_kind: Callable[[int], bool]) -> bool:
    """Return whether this is a file or folder of this user, not a link."""
    return is_kind(found.st_mode) and (not hasattr(os, "geteuid") or found.st_uid == os.geteuid())


def _lock(descriptor: int) -> bool:
    """Lock a file until it is closed. Return whether the file system can.

    Raises:
      BlockingIOError: if another process has locked it.
    """
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # some network file systems have no locks
        return False
    return True


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
