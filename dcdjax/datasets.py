"""The name of a corpus enters; a file of its text leaves: built in, from a local folder, or downloaded once.

Whatever its origin, a downloaded or local text is compared with its known SHA-256 before it is used.
"""

import difflib
import gzip
import hashlib
import os
import sys
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dcdjax import python_docs
from dcdjax.download import DownloadError, fetch
from dcdjax.files import written_whole
from dcdjax.parallel import Progress

_CHUNK = 1 << 20


@dataclass(frozen=True)
class Dataset:
    """A text on disk; stands wherever a path does.

    Attributes:
      name: the name it was asked for by.
      path: a plain UTF-8 text, or a .gz of it.
      sha256: of the text, unzipped.
      num_bytes: of the text, unzipped.
      origin: where it came from this time.
    """

    name: str
    path: Path
    sha256: str
    num_bytes: int
    origin: Literal["built in", "local", "cache", "download"]

    def __fspath__(self) -> str:
        return os.fspath(self.path)


@dataclass(frozen=True)
class _Text:
    member: str  # in the zip
    num_bytes: int
    sha256: str


@dataclass(frozen=True)
class _Source:
    urls: tuple[str, ...]
    texts: dict[str, _Text]


_SOURCES = {
    "wikitext-2": _Source(
        urls=(
            "https://wikitext.smerity.com/wikitext-2-v1.zip",
            "https://s3.amazonaws.com/research.metamind.io/wikitext/wikitext-2-v1.zip",
        ),
        texts={
            "train": _Text(
                member="wikitext-2/wiki.train.tokens",
                num_bytes=10_797_148,
                sha256="9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f",
            ),
            "valid": _Text(
                member="wikitext-2/wiki.valid.tokens",
                num_bytes=1_121_681,
                sha256="f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
            ),
            "test": _Text(
                member="wikitext-2/wiki.test.tokens",
                num_bytes=1_256_449,
                sha256="d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
            ),
        },
    ),
    "text8": _Source(
        urls=("http://mattmahoney.net/dc/text8.zip",),
        texts={
            "train": _Text(
                member="text8",
                num_bytes=100_000_000,
                sha256="6e890197040d37d85beb962ae1f041ff1d9a9ca8d20c7d99c85027eebf51dca7",
            )
        },
    ),
}
_BUILT_IN = "python-docs"


def names() -> list[str]:
    """The names that `load` knows.

    Example:
      >>> names()
      ['python-docs', 'text8', 'wikitext-2']
    """
    return sorted([_BUILT_IN, *_SOURCES])


def load(
    name: str,
    *,
    split: str = "train",
    folder: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Finds a corpus: in the local folder, else in the cache, else makes or downloads it into the cache.

    "python-docs" is made of the documentation that this installation carries; it needs no network.

    Args:
      name: one of `names()`.
      split: "train", or for "wikitext-2" also "valid" or "test".
      folder: holds files such as `wikitext-2/train.txt.gz`, `wikitext-2/train.txt`, or as they are called in
        the zip, `wikitext-2/wiki.train.tokens`. By default what the environment variable DCDJAX_DATA names.
      cache: where to keep what was made or downloaded. By default what DCDJAX_CACHE names, else `dcdjax` in
        the platform's folder for caches.
      progress: is told of files read and bytes downloaded: `progress(stage, done, total, unit)`.

    Returns:
      The data set. A file in the cache that is damaged is replaced.

    Raises:
      ValueError: naming the argument, for names and splits that do not exist; or the local file, if its text
        is not the one of that name.
      DownloadError: if it is neither here nor to be had.
      OSError: if the cache cannot be written.
    """
    _check_choice("name", name, names())
    _check_choice("split", split, ["train"] if name == _BUILT_IN else list(_SOURCES[name].texts))
    if folder is not None and not Path(folder).is_dir():
        raise ValueError(f"folder is not a folder: {os.fspath(folder)!r}")
    cache = cache_folder() if cache is None else Path(cache)
    if name == _BUILT_IN:
        return _built_in(cache, progress)

    source = _SOURCES[name]
    text = source.texts[split]
    folder = os.environ.get("DCDJAX_DATA") if folder is None else folder
    if folder and (path := _local(Path(folder) / name, split, text)):
        return Dataset(name, path, text.sha256, text.num_bytes, "local")
    path = cache / name / f"{split}.txt"
    if path.is_file() and _sha256(path) == text.sha256:
        return Dataset(name, path, text.sha256, text.num_bytes, "cache")

    archive = path.with_name(source.urls[0].rpartition("/")[2])
    advice = (
        f"Where there is no network, put the text ({text.member} in that zip) as {name}/{split}.txt into a "
        "folder, and name the folder by folder=... or by the environment variable DCDJAX_DATA."
    )
    with _writing(path.parent):
        # Mirrors may pack the same text differently: the text decides, not the zip.
        fetch(
            source.urls,
            archive,
            accept=lambda zipped: _unpack(zipped, source, path.parent),
            advice=advice,
            progress=progress,
        )
        archive.unlink(missing_ok=True)  # another process at the same may have been faster
    return Dataset(name, path, text.sha256, text.num_bytes, "download")


def _check_choice(argument: str, value: str, known: list[str]) -> None:
    if value not in known:
        close = difflib.get_close_matches(str(value), known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"{argument} must be one of {', '.join(map(repr, known))}, got {value!r}{hint}")


def cache_folder() -> Path:
    """Where what was downloaded or built is kept: DCDJAX_CACHE, or where the system keeps such things."""
    if chosen := os.environ.get("DCDJAX_CACHE"):
        return Path(chosen)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "dcdjax"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "dcdjax"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dcdjax"


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Makes the folder; failures to write say that the cache is meant, and how to choose another."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError("no permission to write")
        yield
    except DownloadError:
        raise
    except OSError as error:
        hint = "cache=... or the environment variable DCDJAX_CACHE names another"
        raise OSError(f"cannot write into the cache {folder}: {error}; {hint}") from error


def _built_in(cache: Path, progress: Progress | None) -> Dataset:
    # Its text is known only once made: the name holds what it was made of, and its checksum.
    folder, stem = cache / _BUILT_IN, python_docs.fingerprint()
    for path in sorted(folder.glob(f"{stem}-*.txt")):
        sha256 = _sha256(path)
        if path.stem == f"{stem}-{sha256[:16]}":
            return Dataset(_BUILT_IN, path, sha256, path.stat().st_size, "built in")
    with _writing(folder):
        text = python_docs.build(progress).encode()
        sha256 = hashlib.sha256(text).hexdigest()
        path = folder / f"{stem}-{sha256[:16]}.txt"
        with written_whole(path) as file:
            file.write(text)
    return Dataset(_BUILT_IN, path, sha256, len(text), "built in")


def _local(folder: Path, split: str, text: _Text) -> Path | None:
    original = text.member.rpartition("/")[2]
    for name in (f"{split}.txt.gz", f"{split}.txt", f"{original}.gz", original):
        path = folder / name
        if path.is_file():
            try:
                found = _sha256(path)
            except (gzip.BadGzipFile, EOFError, zlib.error) as error:
                raise ValueError(f"{path} is damaged: {error}") from error
            if found != text.sha256:
                raise ValueError(f"{path} is another text: SHA-256 {found}, expected {text.sha256}")
            return path
    return None


def _sha256(path: Path) -> str:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unpack(archive: Path, source: _Source, folder: Path) -> None:
    """Takes all texts out of a zip; raises ValueError if one of them is not there, whole and right."""
    try:
        with zipfile.ZipFile(archive) as zipped:
            for split, text in source.texts.items():
                # The zip's word for the size is checked first, lest a wrong one fills the disk.
                if zipped.getinfo(text.member).file_size != text.num_bytes:
                    raise ValueError(f"{text.member} does not have {text.num_bytes} bytes")
                digest = hashlib.sha256()
                with zipped.open(text.member) as packed, written_whole(folder / f"{split}.txt") as file:
                    while chunk := packed.read(_CHUNK):
                        digest.update(chunk)
                        file.write(chunk)
                    if digest.hexdigest() != text.sha256:
                        found = f"SHA-256 {digest.hexdigest()}, expected {text.sha256}"
                        raise ValueError(f"{text.member} is another text: {found}")
    except (zipfile.BadZipFile, KeyError, NotImplementedError, EOFError, zlib.error) as error:
        raise ValueError(f"not the zip it should be: {error}") from error
