"""Gather eight texts of different kinds from Debian packages, from Python and from the shared data."""

import gzip
import io
import os
import struct
import sys
import sysconfig
import tokenize
import zlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow.csv

from dcdjax import datasets

DATA = Path(os.environ.get("DCDJAX_DATA") or Path(__file__).parents[3] / "shared" / "data")
MANUALS = Path("/usr/share/debian-reference")
NOVELS = Path("/usr/lib/R/site-library/janeaustenr/data/Rdata.rdb")
# The novel in the file of the R package, by offset and length.
EMMA = slice(0, 352043)


def gather(folder: Path) -> dict[str, Path]:
    """Write each text to the folder, unless its source is missing. Return the files by name."""
    sources = {
        "manual, French": (lambda: _unzipped(MANUALS / "debian-reference.fr.txt.gz"), "txt"),
        "manual, German": (lambda: _unzipped(MANUALS / "debian-reference.de.txt.gz"), "txt"),
        "novel": (lambda: "\n".join(_strings(NOVELS, EMMA)), "txt"),
        "headlines": (lambda: "\n".join(_columns(1)), "txt"),
        "news items, raw": (lambda: "\n".join(_columns(2)), "txt"),
        "log file": (lambda: Path("/var/log/apt/term.log").read_text(errors="replace"), "txt"),
        "code comments": (lambda: "\n".join(_comments()), "txt"),
        "docstrings": (lambda: Path(datasets.load("python-docs").path).read_text(), "txt"),
    }
    found = {}
    for name, (read, ending) in sources.items():
        path = folder / f"{name.replace(', ', '-').replace(' ', '-')}.{ending}"
        try:
            path.write_text(read())
        except OSError as error:
            print(f"{name}: left out, {error}", file=sys.stderr)
            continue
        found[name] = path
    return found


def _unzipped(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode()


def _columns(number: int) -> list[str]:
    with gzip.open(DATA / "documents/ag-news.csv.gz") as file:
        names = ["label", "title", "description"]
        table = pyarrow.csv.read_csv(file, pyarrow.csv.ReadOptions(column_names=names))
    return table.column(number).to_pylist()


def _strings(path: Path, part: slice) -> Iterator[str]:
    """Yield the strings of a vector that R saved: a header, then the length and bytes of each string."""
    content = zlib.decompress(path.read_bytes()[part][4:])
    stream = io.BytesIO(content[content.index(struct.pack(">i", 16)) :])  # 16: a vector of strings
    stream.read(4)
    [number] = struct.unpack(">i", stream.read(4))
    for _ in range(number):
        _, length = struct.unpack(">ii", stream.read(8))
        yield stream.read(length).decode() if length > 0 else ""


def _comments() -> Iterator[str]:
    """Yield the comments of Python's own modules. Comments on lines in a row are one text."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        last, lines = -2, []
        try:
            tokens = list(tokenize.generate_tokens(io.StringIO(path.read_text()).readline))
        except (tokenize.TokenError, SyntaxError, UnicodeDecodeError):
            continue
        for token in tokens:
            if token.type == tokenize.COMMENT:
                if token.start[0] != last + 1 and lines:
                    yield " ".join(lines)
                    lines = []
                lines.append(token.string.strip("# "))
                last = token.start[0]
        yield " ".join(lines)
