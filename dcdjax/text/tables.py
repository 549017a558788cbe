"""Read the text of tables: CSV, TSV, JSON lines and Parquet files, data frames and columns.

Every row is a document. Cells without text are counted and reported, so that nothing is lost silently.
"""

import gzip
import json
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dcdjax.text.blocks import CorpusError
from dcdjax.util.files import name_in_os_errors
from dcdjax.util.warn import warn

# Readers by the ending of a file, which may be followed by one of _COMPRESSED.
_DELIMITED = (".csv", ".tsv")
_JSON_LINES = (".jsonl", ".ndjson")
_ENDINGS = (*_DELIMITED, *_JSON_LINES, ".parquet")
_COMPRESSED = (".gz", ".zst")
# The column that is read by default, if there are several.
_USUAL_NAME = "text"
# Characters of a column's name that an error shows: a long "name" may be a text.
_LONGEST_NAME = 40
# The columns of a CSV or TSV file without a header.
_UNNAMED = re.compile(r"column\d+")
# Rows in memory at a time.
_ROWS_AT_ONCE = 1 << 13


def is_table_file(path: Path) -> bool:
    """Return whether a file is a table, by its ending.

    Example:
      >>> [is_table_file(Path(name)) for name in ("news.csv", "news.CSV.gz", "news.txt")]
      [True, True, False]
    """
    return _ending(path) in _ENDINGS


def is_frame(source: Any) -> bool:
    """Return whether the source is a data frame or a column: pandas, polars, Arrow, Hugging Face datasets."""
    is_arrow = hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__")
    return is_arrow or _column_names(source) is not None


def texts_of_files(files: Sequence[Path], text: str | Sequence[str] | None) -> Iterator[str]:
    """Yield the text of each row of some files.

    Args:
      files: CSV, TSV, JSON lines or Parquet files, plain or compressed.
      text: name of the column with the text, or several names, whose texts are joined. By default the only
        column, or the column "text". The columns of a CSV or TSV file without a header are "column0",
        "column1", ...

    Raises:
      ValueError: if there is no such column. The message lists the columns.
      CorpusError: if a file cannot be read. The message names the file, and the line if it is known.
    """
    counter: Counter[str] = Counter()
    for file in files:
        ending = _ending(file)
        if ending in _JSON_LINES:
            rows = _read_json_lines(file, text)
        elif ending in _DELIMITED:
            rows = _read_delimited(file, text)
        else:
            rows = _read_parquet(file, text)
        yield from _texts(rows, counter)
    _report(counter)


def texts_of_frame(frame: Any, text: str | Sequence[str] | None) -> Iterator[str]:
    """Yield the text of each row of a data frame, or of each entry of a column. See `texts_of_files`."""
    names = _column_names(frame)
    if names is None:
        if text is not None:
            raise ValueError(f"text={text!r} names a column, but the corpus is a column itself")
        columns = [frame]
    else:
        columns = [frame[name] for name in _chosen(text, names, type(frame).__name__)]
    counter: Counter[str] = Counter()
    yield from _texts(zip(*map(_values, columns), strict=True), counter)
    _report(counter)


def _ending(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def _column_names(source: Any) -> list[str] | None:
    """Return the names of the columns of a data frame, and None for a column or anything else."""
    for attribute in ("column_names", "columns"):  # of Arrow and Hugging Face; of pandas and polars
        names = getattr(source, attribute, None)
        if names is not None and not callable(names) and hasattr(source, "__getitem__"):
            names = list(names)
            if all(isinstance(name, str) for name in names):
                return names
    return None


def _chosen(text: str | Sequence[str] | None, names: Sequence[str], where: str, hint: str = "") -> list[str]:
    """Return the columns to read, or raise an error that lists all columns and ends with a hint."""
    listed = f"the columns are {', '.join(map(_shortened, names))}{hint}"
    if text is None:
        if len(names) == 1 or _USUAL_NAME in names:
            return [_USUAL_NAME if _USUAL_NAME in names else names[0]]
        raise ValueError(f'{where} is a table: name the column of the text, as in text="..."; {listed}')
    wanted = [text] if isinstance(text, str) else list(text)
    if not wanted:
        raise ValueError(f"text must name at least one column; {listed}")
    for name in wanted:
        if name not in names:
            raise ValueError(f"text={name!r}: {where} has no such column; {listed}")
    return wanted


def _shortened(name: str) -> str:
    return repr(name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}...")


def _texts(rows: Iterable[Sequence[Any]], counter: Counter[str]) -> Iterator[str]:
    """Yield the text of each row without line breaks, so that a row is a line. Count rows without text."""
    for row in rows:
        cells = [cell for cell in row if isinstance(cell, str) and cell and not cell.isspace()]
        counter["rows"] += 1
        if cells:
            yield " ".join(cells).replace("\n", " ")
        elif all(cell is None or cell != cell for cell in row):
            counter["null"] += 1
        elif any(isinstance(cell, str) for cell in row):
            counter["empty"] += 1
        else:
            counter["not text"] += 1


def _report(counter: Counter[str]) -> None:
    parts = [f"{counter[kind]} {kind}" for kind in ("empty", "null", "not text") if counter[kind]]
    if sum(counter[kind] for kind in ("empty", "null", "not text")) == counter["rows"]:
        raise CorpusError(f"no row of the table has text: {', '.join(parts) or 'it has no rows'}")
    if parts:
        warn(f"left out rows without text: {', '.join(parts)}, of {counter['rows']} rows", UserWarning)


def _values(column: Any) -> Iterable[Any]:
    """Return the entries of a column as Python objects."""
    for method in ("to_pylist", "to_list", "tolist"):  # of Arrow; of pandas and polars; of NumPy
        if hasattr(column, method):
            return getattr(column, method)()
    return column  # Hugging Face's columns, which are read when they are iterated over


def _read_json_lines(file: Path, text: str | Sequence[str] | None) -> Iterator[list[Any]]:
    wanted: list[str] | None = None
    with gzip.open(file) if file.suffix.lower() == ".gz" else open(file, "rb") as lines:
        for number, line in _numbered(lines, file):
            if line.isspace():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise CorpusError(f"{file}: line {number} is not JSON: {error}") from None
            if not isinstance(row, dict):
                raise CorpusError(f"{file}: line {number} is not a JSON object but {type(row).__name__}")
            if wanted is None:  # later rows may leave out columns, the first one tells their names
                wanted = _chosen(text, list(row), str(file))
            yield [row.get(name) for name in wanted]


def _numbered(lines: Iterable[bytes], file: Path) -> Iterator[tuple[int, bytes]]:
    number = 0
    try:
        with name_in_os_errors(file):
            for number, line in enumerate(lines, start=1):
                yield number, line
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise CorpusError(f"{file}: not a whole gzip file, from line {number + 1} on: {error}") from None


def _read_delimited(file: Path, text: str | Sequence[str] | None) -> Iterator[tuple[Any, ...]]:
    import duckdb  # takes a while to import

    path = os.fspath(file).replace("'", "''")
    tab = ", delim='\t'" if _ending(file) == ".tsv" else ""
    asked = [text] if isinstance(text, str) else list(text or [""])
    try:
        with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
            connection.execute("SET enable_progress_bar = false")
            sources, columns = [], []
            for header in (True, False):
                sources.append(f"read_csv('{path}', header={header}, all_varchar=true{tab})")
                described = connection.execute(f"SELECT * FROM {sources[-1]} LIMIT 0").description or []  # noqa: S608
                columns.append([entry[0] for entry in described])
            # The first row is the header, unless columns are asked for by number, which it does not have.
            by_number = all(map(_UNNAMED.fullmatch, asked)) and not set(asked) <= set(columns[0])
            source, known = sources[by_number], columns[by_number]
            first, last = columns[1][0], columns[1][-1]
            hint = "" if by_number else f'; without a header, they are "{first}" to "{last}"'
            wanted = _chosen(text, known, str(file), hint)
            names = ", ".join('"' + name.replace('"', '""') + '"' for name in wanted)
            cursor = connection.execute(f"SELECT {names} FROM {source}")  # noqa: S608
            while rows := cursor.fetchmany(_ROWS_AT_ONCE):
                yield from rows
    except duckdb.Error as error:
        raise CorpusError(f"{file}: {' '.join(str(error).split()[:40])}") from None


def _read_parquet(file: Path, text: str | Sequence[str] | None) -> Iterator[tuple[Any, ...]]:
    import pyarrow as pa
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(file) as opened:
            wanted = _chosen(text, opened.schema_arrow.names, str(file))
            for batch in opened.iter_batches(_ROWS_AT_ONCE, columns=wanted):
                yield from zip(*(batch.column(name).to_pylist() for name in wanted), strict=True)
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # the disk's, not Arrow's
            error.filename = error.filename or os.fspath(file)
            raise
        raise CorpusError(f"{file}: {error}") from None
