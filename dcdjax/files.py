"""What is to be written enters; a file that is whole or absent leaves."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A binary file to write to, which takes the place of `path` at the end, or vanishes on an error.

    Whoever reads `path` meanwhile, or after a crash, finds the old file whole or none. What is no ordinary
    file, such as a pipe, is written into.
    """
    # A link stays a link, to a new file.
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        # A pipe or a device: nothing can take its place.
        with open(path, "wb") as file:
            yield file
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not by tempfile, whose files nobody else may read.
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
    """Waits until the renames in a folder are on the disk, where the platform can."""
    if os.name == "nt":  # which opens no folders
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
