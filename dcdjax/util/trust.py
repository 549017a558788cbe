"""Find out whether another user can have written a file, and make folders that others cannot write to."""

import os
import stat
from pathlib import Path


def make_private(folder: Path, root: Path) -> None:
    """Make a folder, and those above it up to `root`, for this user alone. Existing ones stay as they are."""
    root.parent.mkdir(parents=True, exist_ok=True)
    above = [one for one in folder.parents if root in one.parents]
    for one in (root, *reversed(above), folder):
        one.mkdir(mode=0o700, exist_ok=True)


def reason_against(path: Path, root: Path) -> str | None:
    """Return a text that says how another user can have written a file, or None if nobody else can.

    The superuser is trusted. A shared folder such as /tmp is accepted if it has the sticky bit, because users
    cannot replace each other's files there.

    Args:
      path: the file or folder to check. The folders above it, up to `root`, are checked too. A path that does
        not exist is skipped.
      root: the topmost folder to look at.
    """
    if not hasattr(os, "geteuid"):  # Windows
        return None
    path, root = Path(os.path.realpath(path)), Path(os.path.realpath(root))
    if root not in (path, *path.parents):
        return f"{path} is outside of {root}"
    for one in (path, *path.parents):
        try:
            status = one.stat()
        except FileNotFoundError:
            pass
        else:
            if status.st_uid not in (0, os.geteuid()):
                return f"{one} belongs to another user"
            is_shared = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
            if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not is_shared:
                return f"other users can write to {one}"
        if one == root:
            break
    return None
