"""Find a corpus by its name: build it, take it from a local folder, or download it once.

A downloaded or local text is used only if its SHA-256 is the known one.
"""

import gzip
import hashlib
import itertools
import os
import time
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dcdjax.text import python_docs
from dcdjax.util import checks, trust
from dcdjax.util.files import TemporaryFolder, atomic_write, cache_folder, describe
from dcdjax.util.progress import Progress

_CHUNK = 1 << 16
# Seconds without a byte after which a connection counts as lost, and attempts for each address.
_TIMEOUT, _ATTEMPTS = 30, 2
# Bytes a second. A connection that is slower on average counts as lost too, after `_TIMEOUT`.
_LEAST_SPEED = 10_000
# How much larger than its texts a zip archive may be, in bytes.
_MAX_OVERHEAD = 1 << 20


class DownloadError(OSError):
    """Report that no address gave the file: which addresses, what happened, and what to do instead."""


@dataclass(frozen=True)
class Dataset:
    """Describe a text on disk. It can be passed wherever a path can.

    Attributes:
      name: name of the corpus.
      path: file with the UTF-8 text, plain or compressed by gzip.
      sha256: checksum of the uncompressed text.
      num_bytes: size of the uncompressed text.
      origin: where `load` found the text.
    """

    name: str
    path: Path
    sha256: str
    num_bytes: int
    origin: Literal["built in", "local", "cache", "download"]

    def __fspath__(self) -> str:
        return os.fspath(self.path)


@dataclass(frozen=True)
class ZippedText:
    """Describe a text in a zip archive: its name there, its size and its checksum."""

    member: str
    num_bytes: int
    sha256: str


@dataclass(frozen=True)
class Source:
    """List the addresses of a zip archive, and its texts by the names of their splits."""

    urls: tuple[str, ...]
    texts: dict[str, ZippedText]


SOURCES = {
    "wikitext-2": Source(
        urls=(
            "https://wikitext.smerity.com/wikitext-2-v1.zip",
            "https://s3.amazonaws.com/research.metamind.io/wikitext/wikitext-2-v1.zip",
        ),
        texts={
            "train": ZippedText(
                member="wikitext-2/wiki.train.tokens",
                num_bytes=10_797_148,
                sha256="9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f",
            ),
            "valid": ZippedText(
                member="wikitext-2/wiki.valid.tokens",
                num_bytes=1_121_681,
                sha256="f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
            ),
            "test": ZippedText(
                member="wikitext-2/wiki.test.tokens",
                num_bytes=1_256_449,
                sha256="d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
            ),
        },
    ),
    "text8": Source(
        urls=("http://mattmahoney.net/dc/text8.zip",),
        texts={
            "train": ZippedText(
                member="text8",
                num_bytes=100_000_000,
                sha256="6e890197040d37d85beb962ae1f041ff1d9a9ca8d20c7d99c85027eebf51dca7",
            )
        },
    ),
}
_BUILT_IN = "python-docs"


def names() -> list[str]:
    """Return the names that `load` knows.

    Example:
      >>> names()
      ['python-docs', 'text8', 'wikitext-2']
    """
    return sorted([_BUILT_IN, *SOURCES])


def load(
    name: str,
    *,
    split: str = "train",
    folder: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Find a corpus in the local folder or in the cache; otherwise build or download it into the cache.

    "python-docs" is built from the documentation of the installed packages and needs no network.

    Args:
      name: one of `names()`.
      split: "train"; "wikitext-2" also has "valid" and "test".
      folder: local folder with files such as `wikitext-2/train.txt.gz`, `wikitext-2/train.txt`, or named as
        in the zip archive, `wikitext-2/wiki.train.tokens`. Default: the environment variable DCDJAX_DATA.
      cache: folder for texts that were built or downloaded. Default: the environment variable DCDJAX_CACHE,
        or else `dcdjax` in the platform's folder for caches.
      progress: called with files read and bytes downloaded: `progress(stage, done, total, unit)`.

    Returns:
      The data set. A damaged file in the cache is replaced.

    Raises:
      ValueError: if there is no such name or split, or if a local file has another text.
      DownloadError: if the text is not on this machine and cannot be downloaded.
      OSError: if the cache cannot be written.
    """
    _check_choice("name", name, names())
    _check_choice("split", split, ["train"] if name == _BUILT_IN else list(SOURCES[name].texts))
    if folder is not None and not Path(folder).is_dir():
        raise ValueError(f"folder is not a folder: {os.fspath(folder)!r}")
    cache = cache_folder() if cache is None else Path(cache)
    if name == _BUILT_IN:
        return _built_in(cache, progress)

    source = SOURCES[name]
    text = source.texts[split]
    folder = os.environ.get("DCDJAX_DATA") if folder is None else folder
    if folder and (path := _local(Path(folder) / name, split, text)):
        return Dataset(name, path, text.sha256, text.num_bytes, "local")
    path = cache / name / f"{split}.txt"
    if path.is_file() and _sha256(path) == text.sha256:
        return Dataset(name, path, text.sha256, text.num_bytes, "cache")

    with _writing(path.parent):
        _download(name, split, path.parent, progress)
    return Dataset(name, path, text.sha256, text.num_bytes, "download")


def _check_choice(argument: str, value: str, known: list[str]) -> None:
    if value not in known:
        choices, hint = ", ".join(map(repr, known)), checks.did_you_mean(value, known)
        raise ValueError(f"{argument} must be one of {choices}, got {value!r}{hint}")


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Create the cache folder. Errors while writing say how to choose another folder."""
    try:
        trust.make_private(folder.parent, folder.parent)
        folder.mkdir(exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError("no permission to write")
        yield
    except DownloadError:
        raise
    except OSError as error:
        hint = "choose another folder by cache=... or by the environment variable DCDJAX_CACHE"
        raise OSError(f"cannot write into the cache {folder}: {describe(error)}; {hint}") from error


def _built_in(cache: Path, progress: Progress | None) -> Dataset:
    # The checksum is not known before the text is built. The file name holds it, and a fingerprint of the
    # sources.
    folder, stem = cache / _BUILT_IN, python_docs.fingerprint()
    for path in sorted(folder.glob(f"{stem}-*.txt")):
        if trust.reason_against(path, cache) is not None:  # it may be another text of the right name
            continue
        sha256 = _sha256(path)
        if path.stem == f"{stem}-{sha256[:16]}":
            return Dataset(_BUILT_IN, path, sha256, path.stat().st_size, "built in")
    with _writing(folder):
        folder.chmod(0o700)
        text = python_docs.build(progress).encode()
        sha256 = hashlib.sha256(text).hexdigest()
        path = folder / f"{stem}-{sha256[:16]}.txt"
        with atomic_write(path) as file:
            os.chmod(file.fileno(), 0o600)
            file.write(text)
    return Dataset(_BUILT_IN, path, sha256, len(text), "built in")


def _local(folder: Path, split: str, text: ZippedText) -> Path | None:
    original = text.member.rpartition("/")[2]
    for name in (f"{split}.txt.gz", f"{split}.txt", f"{original}.gz", original):
        path = folder / name
        if path.is_file():
            try:
                _check_sha256(path, text)
            except (gzip.BadGzipFile, EOFError, zlib.error) as error:
                raise ValueError(f"{path} is damaged: {error}") from error
            return path
    return None


def _sha256(path: Path) -> str:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_sha256(path: Path, text: ZippedText) -> None:
    if (found := _sha256(path)) != text.sha256:
        raise ValueError(f"{path} is another text: SHA-256 {found}, expected {text.sha256}")


def _download(name: str, split: str, folder: Path, progress: Progress | None) -> None:
    """Download a zip archive from the first address that has the right one, and unpack all its texts.

    The archive is not kept. Its checksum does not matter, as mirrors may pack the same text differently.
    """
    import requests  # takes a while to import, and most texts are in the cache
    import urllib3

    source = SOURCES[name]
    failures = {}
    max_bytes = sum(text.num_bytes for text in source.texts.values()) + _MAX_OVERHEAD
    for url, attempt in itertools.product(source.urls, range(_ATTEMPTS)):
        time.sleep(attempt)  # seconds: a busy server may answer the second time
        # Each process downloads into a folder of its own, on the disk of the cache.
        with TemporaryFolder(".download-", folder) as temporary:
            archive = temporary / "archive.zip"
            try:
                _fetch(url, archive, progress, max_bytes=max_bytes)
                _unpack(archive, source, folder)
                return
            except (requests.RequestException, urllib3.exceptions.HTTPError, ValueError) as error:
                failures[url] = f"{url}: {error}"
    advice = (
        f"Without a network, put the text ({source.texts[split].member} in that zip) as {name}/{split}.txt "
        "into a folder, and name the folder by folder=... or by the environment variable DCDJAX_DATA."
    )
    raise DownloadError("\n".join([f"cannot download {name}", *failures.values(), advice]))


def _fetch(url: str, path: Path, progress: Progress | None, *, max_bytes: int) -> None:
    """Download a file, and report progress in bytes.

    Raises:
      ValueError: if the file is too large, comes too slowly, or would come without encryption from an address
        that promises it.
    """
    import requests

    # A server must not compress the archive once more: the bytes read would not add up to the length.
    answer = requests.get(url, headers={"Accept-Encoding": "identity"}, stream=True, timeout=_TIMEOUT)
    began = time.monotonic()
    with answer, path.open("wb") as file:
        answer.raise_for_status()
        if url.startswith("https:") and not answer.url.startswith("https:"):
            raise ValueError(f"it leads to an address without https, {answer.url}")
        total = int(answer.headers.get("Content-Length", 0)) or None
        for chunk in itertools.chain([b""], _chunks(answer)):  # the first call says 0 bytes
            file.write(chunk)
            done = file.tell()
            if max(done, total or 0) > max_bytes:
                raise ValueError(f"the file has {max(done, total or 0)} bytes, more than {max_bytes}")
            if time.monotonic() - began > _TIMEOUT + done / _LEAST_SPEED:
                raise ValueError(f"it sends less than {_LEAST_SPEED} bytes a second")
            if progress is not None:
                progress(f"downloading {url.rpartition('/')[2]}", done, total, "B")


def _chunks(answer: Any) -> Iterator[bytes]:
    """Yield bytes as they come, without waiting for a full chunk: a slow server must not go unnoticed."""
    if hasattr(answer.raw, "read1"):
        while chunk := answer.raw.read1(_CHUNK):
            yield chunk
    else:  # urllib3 before 2.2
        yield from answer.iter_content(1 << 10)


def _unpack(archive: Path, source: Source, folder: Path) -> None:
    """Unpack all texts of a zip archive. Raise ValueError if one is missing, damaged or another text."""
    try:
        with zipfile.ZipFile(archive) as zipped:
            for split, text in source.texts.items():
                # Check the size before unpacking: a wrong one could fill the disk.
                if zipped.getinfo(text.member).file_size != text.num_bytes:
                    raise ValueError(f"{text.member} does not have {text.num_bytes} bytes")
                unpacked = Path(zipped.extract(text.member, archive.parent))
                _check_sha256(unpacked, text)
                os.replace(unpacked, folder / f"{split}.txt")  # other processes see all of it or nothing
    except (ValueError, MemoryError):
        raise
    except Exception as error:  # damaged, encrypted or odd archives raise many kinds
        if isinstance(error, OSError) and error.errno is not None:  # the disk
            raise
        raise ValueError(f"not the expected zip archive: {error}") from error
