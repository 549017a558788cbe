"""What may not fit in memory enters part by part; it leaves as one array, or as the answer to a query.

Temporary files stand where the system puts them (the environment variable TMPDIR moves them) and go with
whoever made them: when closed, at the latest when the process ends.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from dcdjax.parallel import num_workers

# DuckDB's advice for a thread that aggregates.
_MEMORY_PER_THREAD = 128 << 20


class Spool:
    """An array that grows at its end: in memory up to a limit, then in a temporary file without a name."""

    def __init__(self, dtype: Any, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._buffer = np.empty(0, dtype)
        self._file: IO[bytes] | None = None
        self.size = 0

    def append(self, part: np.ndarray) -> None:
        """Adds entries."""
        end = self.size + part.size
        if self._file is None and end * self._buffer.itemsize > self._limit:
            self._file = tempfile.TemporaryFile(prefix="dcdjax-")  # noqa: SIM115, it outlives this function
            self._file.write(self._buffer[: self.size].data)
            self._buffer.resize(0, refcheck=False)
        if self._file is not None:
            self._file.write(np.ascontiguousarray(part, self._buffer.dtype).data)
        else:
            if end > self._buffer.size:
                # Memory of this size grows where it stands: the system moves pages, not bytes.
                self._buffer.resize(max(end, self._buffer.size * 5 // 4), refcheck=False)
            self._buffer[self.size : end] = part
        self.size = end

    def close(self) -> None:
        """Gives up the file, if `array` has not taken it over."""
        if self._file is not None:
            self._file.close()

    def array(self) -> np.ndarray:
        """All entries: an array in memory, or one mapped from the file. The spool is given up."""
        if self._file is None:
            self._buffer.resize(self.size, refcheck=False)
            return self._buffer
        self._file.flush()
        # The mapping keeps the file alive, which nobody else can see.
        mapped = np.memmap(self._file, self._buffer.dtype, mode="r+", shape=(self.size,))
        self._file.close()
        return mapped


class Engine:
    """Tables in temporary Parquet files, queried by DuckDB within a limit of memory, the rest on disk.

    Parquet on both sides: rows stream in and out, whatever DuckDB's own ways to hand over results are.
    """

    def __init__(self) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="dcdjax-", ignore_cleanup_errors=True)
        self._folder = Path(self._temporary.name)
        self._writers: dict[str, pyarrow.parquet.ParquetWriter] = {}

    def add(self, name: str, table: pa.Table) -> None:
        """Appends rows to a table."""
        if name not in self._writers:
            path = self._folder / f"{name}.parquet"
            # Compression pays: it is faster than most disks. Dictionaries do not: few values repeat.
            self._writers[name] = pyarrow.parquet.ParquetWriter(
                path, table.schema, compression="lz4", use_dictionary=False
            )
        self._writers[name].write_table(table)

    def query(self, sql: str, *, memory: int, rows_at_once: int = 1 << 17) -> Iterator[pa.RecordBatch]:
        """The rows of a query, in batches; a table stands in it as `{name}`, and is complete with that."""
        import duckdb  # takes a while to import, and most texts fit in memory

        for writer in self._writers.values():
            writer.close()
        folder = str(self._folder).replace("'", "''")
        sources = {name: f"read_parquet('{folder}/{name}.parquet')" for name in self._writers}
        settings = {
            "memory_limit": f"{memory}B",
            "temp_directory": str(self._folder),
            # Each thread wants buffers of its own.
            "threads": max(1, min(num_workers(), memory // _MEMORY_PER_THREAD)),
        }
        rows = sql.format(**sources)
        try:
            with duckdb.connect(config=settings) as connection:
                # To a person at a prompt or a notebook it would show a bar of its own after two seconds.
                connection.execute("SET enable_progress_bar = false")
                connection.execute(f"COPY ({rows}) TO '{folder}/result.parquet' (FORMAT parquet)")
        except duckdb.OutOfMemoryException as error:
            raise MemoryError(f"{memory} bytes are too few to add up what did not fit: {error}") from error
        with pyarrow.parquet.ParquetFile(self._folder / "result.parquet") as file:
            yield from file.iter_batches(rows_at_once)

    def close(self) -> None:
        """Gives up the tables, and their files."""
        for writer in self._writers.values():
            writer.close()
        self._temporary.cleanup()
