"""The address of a file enters; the file leaves, whole and accepted, or an error that says what to do.

A connection that was cut off goes on where it was. Until it is whole, the file is called `<name>.part`.
"""

import http.client
import io
import os
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dcdjax.parallel import Progress

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_CHUNK = 1 << 16
# Answers that may be different a moment later: too many requests, and the server's own troubles.
_PASSING_STATUSES = {408, 425, 429, 500, 502, 503, 504}


class DownloadError(OSError):
    """A file could not be had: which address, what happened, what one can do."""


class _AttemptError(Exception):
    """One address did not give the file: this time, if `passing`, else for good."""

    def __init__(self, what: str, *, passing: bool = False) -> None:
        super().__init__(what)
        self.passing = passing


def fetch(
    urls: str | Sequence[str],
    target: str | os.PathLike[str],
    *,
    accept: Callable[[Path], Any] | None = None,
    advice: str = "",
    progress: Progress | None = None,
    attempts: int = 4,
    timeout: float = 30.0,
    wait: float = 0.5,
) -> Path:
    """Downloads a file; at the end `target` is whole, or there is neither `target` nor a part of it.

    What a killed process or Ctrl-C left behind as `<target>.part` is gone on with, but only where `accept`
    can tell whether the pieces belong together, and not on Windows, where nothing tells whether the part is
    still being written. Several processes may fetch the same target at once.

    Args:
      urls: the address, or several that are tried in turn; http or https.
      target: the file to write. Its folder is made.
      accept: is called with the path of the whole file before it takes its place, and raises ValueError to
        refuse it. A file put together from several connections is then fetched once more in one piece.
      advice: what the user can do instead, for the error message.
      progress: is told how many bytes are there: `progress(stage, done, total, "B")`.
      attempts: how many connections to make to each address.
      timeout: seconds without a byte after which a connection counts as cut off.
      wait: seconds before the second attempt; twice as long before each further one.

    Returns:
      The path of the target.

    Raises:
      DownloadError: if no address gives a file that is accepted, or it cannot be written.
      ValueError: naming the argument, for addresses that are not http or https, or no attempts.
    """
    urls = [urls] if isinstance(urls, str) else list(urls)
    for url in urls:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"urls must begin with http:// or https://, got {url!r}")
    if not urls:
        raise ValueError("urls is empty")
    if attempts < 1:
        raise ValueError(f"attempts must be at least 1, got {attempts}")
    target = Path(target)
    failures = []

    def told(done: int, total: int | None) -> None:
        if progress is not None:
            progress(f"downloading {target.name}", done, total, "B")

    part = _Part(target)
    try:
        for url in urls:
            try:
                _transfer(url, part, accept, told, attempts, timeout, wait)
                part.become(target)
                return target
            except _AttemptError as failure:
                failures.append(f"{url}: {failure}")
                part.truncate()
        raise DownloadError("\n".join([f"cannot download {target.name}", *failures, advice]).rstrip())
    except BaseException as error:
        part.give_up(keep=isinstance(error, KeyboardInterrupt))
        raise


def _transfer(
    url: str,
    part: "_Part",
    accept: Callable[[Path], Any] | None,
    told: Callable[[int, int | None], None],
    attempts: int,
    timeout: float,
    wait: float,
) -> None:
    """Fills the part from one address, over as many connections as it takes and are allowed."""
    validator: str | None = None
    num_failures = 0
    while True:
        if validator is None and accept is None:
            part.truncate()  # nothing would tell whether two pieces belong together
        try:
            with _connect(url, part, validator, timeout) as response:
                pieces = part.size() > 0
                validator = _validator(response)
                _receive(response, part, told)
            try:
                if accept is not None:
                    accept(part.path)
                return
            except ValueError as error:
                part.truncate()
                if not pieces:
                    raise _AttemptError(f"what arrived is not the file: {error}") from error
                # Else the pieces may be of two versions of the file: once more, in one piece.
        except _AttemptError as error:
            num_failures += 1
            if not error.passing:
                raise
            if num_failures == attempts:
                raise _AttemptError(f"{error} ({attempts} attempts)") from error
            time.sleep(wait * 2 ** (num_failures - 1))


def _connect(url: str, part: "_Part", validator: str | None, timeout: float) -> http.client.HTTPResponse:
    """Asks for what the part lacks; the part is emptied if the answer begins at the beginning."""
    offset = part.size()
    headers = {"User-Agent": "dcdjax"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
        if validator is not None:
            headers["If-Range"] = validator
    request = urllib.request.Request(url, headers=headers)  # noqa: S310, `fetch` has seen the scheme
    try:
        response = urllib.request.urlopen(request, timeout=timeout)  # noqa: S310
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and offset:
            part.truncate()
            raise _AttemptError("the server has less than was already there", passing=True) from error
        what = f"the server answers {error.code} {error.reason}"
        raise _AttemptError(what, passing=error.code in _PASSING_STATUSES) from error
    except urllib.error.URLError as error:
        # Nobody there at the very first try is most often no network: say so at once.
        raise _AttemptError(f"no connection: {error.reason}", passing=offset > 0) from error
    except (OSError, http.client.HTTPException) as error:
        raise _AttemptError(f"no answer: {error or type(error).__name__}", passing=True) from error
    if response.status != http.HTTPStatus.PARTIAL_CONTENT:
        part.truncate()
    elif not response.headers.get("Content-Range", "").startswith(f"bytes {offset}-"):
        response.close()
        part.truncate()
        raise _AttemptError("the server sent another range than was asked for", passing=True)
    return response


def _receive(
    response: http.client.HTTPResponse, part: "_Part", told: Callable[[int, int | None], None]
) -> None:
    length = response.headers.get("Content-Length", "")
    size = part.size()
    total = size + int(length) if length.isdecimal() else None
    told(size, total)
    why = ""
    while size != total:
        try:
            # What has arrived, without waiting for more: a cut loses nothing.
            chunk = response.read1(_CHUNK if total is None else min(_CHUNK, total - size))
        except (OSError, http.client.HTTPException) as error:
            chunk, why = b"", f": {error or type(error).__name__}"
        if not chunk:
            break
        part.append(chunk)
        size += len(chunk)
        told(size, total)
    if why or (total is not None and size < total):
        raise _AttemptError(f"cut off after {size} of {total or 'unknown'} bytes{why}", passing=True)


def _validator(response: http.client.HTTPResponse) -> str | None:
    """What names this version of the file byte by byte, for If-Range; weak tags do not."""
    tag = response.headers.get("ETag", "W/")
    return tag if not tag.startswith("W/") else response.headers.get("Last-Modified")


class _Part:
    """The file that grows: `<target>.part`, or a name of its own while another process has that one."""

    def __init__(self, target: Path) -> None:
        self.path = target.with_name(f"{target.name}.part")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            file = _claimed(self.path)
            self._shared = file is not None
            if file is None:
                self.path = target.with_name(f"{target.name}.{secrets.token_hex(4)}.part")
                file = io.FileIO(self.path, "a")
            self._file = file
        except OSError as error:
            raise DownloadError(f"cannot write {target}: {error}") from error

    def size(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def truncate(self) -> None:
        self._file.truncate(0)

    def append(self, chunk: bytes) -> None:
        rest = memoryview(chunk)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            raise DownloadError(f"cannot write {self.path}: {error}") from error

    def become(self, target: Path) -> None:
        try:
            os.fsync(self._file.fileno())
            # A shared name is let go only when it is gone, lest another process claims the whole file. A name
            # of its own is closed first: Windows does not rename open files.
            if not self._shared:
                self._file.close()
            os.replace(self.path, target)
        except OSError as error:
            raise DownloadError(f"cannot write {target}: {error}") from error
        self._file.close()

    def give_up(self, *, keep: bool) -> None:
        """Vanishes; `keep` leaves what others can go on with."""
        if not self._shared:
            self._file.close()
        if not (keep and self._shared):
            self.path.unlink(missing_ok=True)
        self._file.close()


def _claimed(path: Path) -> io.FileIO | None:
    """The file, locked until it is closed or the process dies; None if another process has it."""
    if fcntl is None:
        return None
    file = io.FileIO(path, "a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Between opening and locking, the other process may have finished: then this is its file.
        if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
            return file
    except OSError:  # locked, gone, or a file system without locks
        pass
    file.close()
    return None
