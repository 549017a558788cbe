"""Arrays and sums that outgrow memory."""

import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from commands import heeds_ctrl_c
from hypothesis import given
from hypothesis import strategies as st

from dcdjax.counting.spill import SpillArray, SpillDatabase


@pytest.fixture
def folder(tmp_path, monkeypatch):
    folder = tmp_path / "it's {odd}"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no full disk")
def test_a_full_disk_is_named(folder, monkeypatch):
    full = Path("/dev/full").open("wb", buffering=0)  # noqa: SIM115, SpillArray closes it
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda prefix: full)
    spilled = SpillArray(np.int32, 0)
    with closing(spilled), pytest.raises(OSError, match=f"No space left on device: .*{folder.name[:4]}"):
        spilled.append(np.arange(9, dtype=np.int32))


@given(st.lists(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=20), max_size=8), st.integers(0, 200))
def test_array_gives_back_what_it_got(parts, limit):
    spilled = SpillArray(np.int32, limit)
    for part in parts:
        spilled.append(np.array(part, np.int32))
    expected = [entry for part in parts for entry in part]
    assert spilled.size == len(expected)
    array = spilled.array()
    assert array.dtype == np.int32
    assert array.tolist() == expected


@pytest.mark.parametrize(("size", "mapped"), [(100, False), (101, True)])
def test_array_goes_to_a_file_beyond_its_limit(folder, size, mapped):
    spilled = SpillArray(np.float64, 800)
    for part in np.array_split(np.arange(float(size)), 7):
        spilled.append(part)
    array = spilled.array()
    assert isinstance(array, np.memmap) == mapped
    np.testing.assert_array_equal(array, np.arange(size))
    assert not os.listdir(folder)  # the file has no name, so nothing can be left behind


def test_empty_array():
    assert SpillArray(np.int32, 0).array().shape == (0,)


def test_database_sums_and_orders(folder):
    rng = np.random.default_rng(0)
    row, col = rng.integers(0, 50, (2, 1000), dtype=np.int32)
    value = rng.integers(0, 2**40, 1000).astype(np.float64)
    sums: dict[tuple[int, int], float] = {}
    for i, j, x in zip(row.tolist(), col.tolist(), value.tolist(), strict=True):
        sums[i, j] = sums.get((i, j), 0) + x
    with closing(SpillDatabase()) as database:
        for part in np.array_split(np.arange(1000), 9):
            database.add("some", pa.table({"row": row[part], "col": col[part], "value": value[part]}))
        query = "SELECT row, col, sum(value) AS value FROM {some} GROUP BY row, col ORDER BY row, col"
        for _ in range(2):  # a table can be asked more than once
            batches = [batch.to_pydict() for batch in database.query(query, memory=1 << 27, rows_at_once=100)]
            found = [row for b in batches for row in zip(b["row"], b["col"], b["value"], strict=True)]
            assert found == [(i, j, x) for (i, j), x in sorted(sums.items())]
            assert len(batches) > 3
        assert list(Path(folder).iterdir())
    assert not list(Path(folder).iterdir())


@pytest.mark.filterwarnings("ignore:Implicitly cleaning up:ResourceWarning")
def test_database_that_is_never_closed_leaves_nothing(folder):
    database = SpillDatabase()
    database.add("some", pa.table({"x": [1]}))
    assert list(Path(folder).iterdir())
    del database
    gc.collect()
    assert not list(Path(folder).iterdir())


def test_too_little_memory_says_so():
    with closing(SpillDatabase()) as database:
        database.add("some", pa.table({"x": np.arange(1000)}))
        with pytest.raises(MemoryError, match="1000 bytes are too few"):
            list(database.query("SELECT x, count(*) FROM {some} GROUP BY x ORDER BY x", memory=1000))


def test_an_interrupted_query_is_an_interruption(folder, monkeypatch):
    import duckdb

    def interrupted(**_):  # as DuckDB does when Ctrl-C comes while a query runs
        raise RuntimeError("Query interrupted")

    monkeypatch.setattr(duckdb, "connect", interrupted)
    with closing(SpillDatabase()) as database:
        database.add("some", pa.table({"x": [1]}))
        with pytest.raises(KeyboardInterrupt):
            list(database.query("SELECT x FROM {some}", memory=1 << 28))
    assert not list(Path(folder).iterdir())


def test_nothing_is_printed_where_somebody_may_type():
    code = """
import duckdb, numpy as np, pyarrow as pa
from dcdjax.counting.spill import SpillDatabase
connect = duckdb.connect
def impatient(**options):
    connection = connect(**options)
    connection.execute("SET progress_bar_time = 50")
    return connection
duckdb.connect = impatient
database = SpillDatabase()
database.add("some", pa.table({"x": np.arange(20_000)}))
[batch] = database.query("SELECT sum(a.x * b.x) AS x FROM {some} a, {some} b", memory=1 << 28)
assert batch.to_pydict() == {"x": [199_990_000**2]}
database.close()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@heeds_ctrl_c
def test_ctrl_c_in_a_query_is_a_keyboard_interrupt():
    with closing(SpillDatabase()) as database:
        database.add("some", pa.table({"x": np.arange(100_000)}))
        query = "SELECT sum(a.x * b.x) AS x FROM {some} a, {some} b"
        ringing = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        ringing.start()
        with pytest.raises(KeyboardInterrupt):
            list(database.query(query, memory=1 << 27))
        ringing.join()
