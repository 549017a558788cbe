"""Hold arrays and tables in temporary files where they do not fit in memory.

Temporary files are in the system's folder for them (the environment variable TMPDIR names another). They are
deleted when their owner is closed, at the latest when the process ends. If it is killed, the next process
that needs such files deletes them.
"""

import tempfile
from collections.abc import Iterator
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from dcdjax.util.files import TemporaryFolder, name_in_os_errors
from dcdjax.util.parallel import num_workers

# DuckDB recommends this much for each thread that aggregates.
_MEMORY_PER_THREAD = 128 << 20


class SpillArray:
    """Append to an array: in memory up to a limit, beyond it in a temporary file without a name."""

    def __init__(self, dtype: Any, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._buffer = np.empty(0, dtype)
        self._file: IO[bytes] | None = None
        self.size = 0

    def append(self, part: np.ndarray) -> None:
        """Append entries."""
        with name_in_os_errors(tempfile.gettempdir()):  # the file has no name
            self._append(part)

    def _append(self, part: np.ndarray) -> None:
        end = self.size + part.size
        if self._file is None and end * self._buffer.itemsize > self._limit:
            self._file = tempfile.TemporaryFile(prefix="dcdjax-")  # noqa: SIM115, it outlives this function
            self._file.write(self._buffer[: self.size].data)
            self._buffer.resize(0, refcheck=False)
        if self._file is not None:
            self._file.write(np.ascontiguousarray(part, self._buffer.dtype).data)
        else:
            if end > self._buffer.size:
                # Resizing so much memory is cheap: the system remaps pages and copies no bytes.
                self._buffer.resize(max(end, self._buffer.size * 5 // 4), refcheck=False)
            self._buffer[self.size : end] = part
        self.size = end

    def close(self) -> None:
        """Delete the file, unless `array` has taken it over."""
        if self._file is not None:
            self._file.close()

    def array(self) -> np.ndarray:
        """Return all entries, in memory or mapped from the file. Nothing can be appended afterwards."""
        if self._file is None:
            self._buffer.resize(self.size, refcheck=False)
            return self._buffer
        with name_in_os_errors(tempfile.gettempdir()):
            self._file.flush()
        # The mapping keeps the file alive, which has no name.
        mapped = np.memmap(self._file, self._buffer.dtype, mode="r+", shape=(self.size,))
        self._file.close()
        return mapped


class SpillDatabase:
    """Keep tables in temporary Parquet files and query them by DuckDB within a limit of memory.

    Results are Parquet files too, so that rows stream in and out in every version of DuckDB.
    """

    def __init__(self) -> None:
        self._temporary = TemporaryFolder("dcdjax-spill-")
        self._folder = self._temporary.path
        self._writers: dict[str, pyarrow.parquet.ParquetWriter] = {}

    def add(self, name: str, table: pa.Table) -> None:
        """Append rows to a table."""
        if name not in self._writers:
            path = self._folder / f"{name}.parquet"
            # Compression is faster than most disks. Dictionaries do not pay, as few values repeat.
            self._writers[name] = pyarrow.parquet.ParquetWriter(
                path, table.schema, compression="lz4", use_dictionary=False
            )
        with name_in_os_errors(self._folder):
            self._writers[name].write_table(table)

    def query(self, sql: str, *, memory: int, rows_at_once: int = 1 << 17) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a query in batches.

        Args:
          sql: query that names a table as `{name}`. Nothing can be added to a table after the first query.
          memory: bytes that DuckDB may use. What does not fit goes to disk.
          rows_at_once: rows of a batch.
        """
        import duckdb  # takes a while to import, and most texts fit in memory

        for writer in self._writers.values():
            writer.close()
        folder = str(self._folder).replace("'", "''")
        sources = {name: f"read_parquet('{folder}/{name}.parquet')" for name in self._writers}
        settings = {
            "memory_limit": f"{memory}B",
            "temp_directory": str(self._folder),
            # Each thread has buffers of its own.
            "threads": max(1, min(num_workers(), memory // _MEMORY_PER_THREAD)),
        }
        rows = sql.format(**sources)
        try:
            with duckdb.connect(config=settings) as connection:
                # In an interactive session DuckDB would show a bar of its own after two seconds.
                connection.execute("SET enable_progress_bar = false")
                connection.execute(f"COPY ({rows}) TO '{folder}/result.parquet' (FORMAT parquet)")
        except (RuntimeError, duckdb.InterruptException) as error:
            if "interrupted" not in str(error).lower():
                raise
            raise KeyboardInterrupt from error  # DuckDB has another name for Ctrl-C
        except duckdb.OutOfMemoryException as error:
            raise MemoryError(f"{memory} bytes are too few to add up what did not fit: {error}") from error
        except duckdb.IOException as error:
            raise OSError(f"{self._folder}: {error}") from error
        with pyarrow.parquet.ParquetFile(self._folder / "result.parquet") as file:
            yield from file.iter_batches(rows_at_once)

    def close(self) -> None:
        """Delete the tables and their files."""
        for writer in self._writers.values():
            writer.close()
        self._temporary.close()
