"""Files that are whole or absent, results in order, bars on a terminal."""

import errno
import io
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dcdjax.util.files import TemporaryFolder, atomic_write, describe, name_in_os_errors, remove_leftovers
from dcdjax.util.parallel import in_order, num_workers
from dcdjax.util.progress import Bars


def test_a_file_appears_whole(tmp_path):
    path = tmp_path / "file.bin"
    with atomic_write(path) as file:
        file.write(b"half")
        file.flush()
        assert not path.exists()
        file.write(b" and half")
    assert path.read_bytes() == b"half and half"
    assert os.listdir(path.parent) == ["file.bin"]


def test_no_folder_is_made_for_a_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"file.bin: there is no folder .*new$"):  # noqa: SIM117
        with atomic_write(tmp_path / "new" / "file.bin"):
            pass
    assert not os.listdir(tmp_path)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="no folder in which nobody may write")
def test_a_file_that_cannot_be_made_is_named_as_it_was_given():
    with pytest.raises(OSError, match=r"/proc/file\.bin") as caught, atomic_write("/proc/file.bin"):
        pass
    assert describe(caught.value).endswith(": /proc/file.bin")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOENT, "No such file or directory", "x"), "no such file or folder: x"),
        (OSError(errno.EISDIR, "Is a directory", b"x"), "a folder, not a file: x"),
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full"),
        (OSError(errno.ELOOP, "Too many links", "x"), "Too many links: x"),
        (FileNotFoundError("x is not a model"), "x is not a model"),
        (ValueError(), "ValueError"),
    ],
)
def test_errors_of_the_system_in_plain_words(error, words):
    assert describe(error) == words


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
def test_a_pipe_is_written_into_and_a_link_followed(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    read = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    with atomic_write(tmp_path / "pipe") as file:
        file.write(b"through")
    reader.join(timeout=10)
    assert read == [b"through"]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    (tmp_path / "old").write_bytes(b"old")
    (tmp_path / "link").symlink_to("old")
    with atomic_write(tmp_path / "link") as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "old").read_bytes() == b"new"


def test_errors_of_the_disk_name_the_file(tmp_path):
    with (
        pytest.raises(OSError, match=r"No space left on device: '.*new\.bin'"),
        atomic_write(tmp_path / "new.bin"),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(FileNotFoundError, match=r"'other'"), name_in_os_errors("new"):
        Path("other").read_bytes()
    with pytest.raises(OSError, match=r"^odd$"), name_in_os_errors("new"):
        raise OSError("odd")


def test_leftovers_are_removed_by_target_and_age(tmp_path):
    old, recent, other = (tmp_path / f".{name}.{'0' * 16}.part" for name in ("a-1.bin", "a-2.bin", "b.bin"))
    for path in (old, recent, other, tmp_path / ".a-mine.part"):
        path.touch()
        if path != recent:
            os.utime(path, (0, 0))
    remove_leftovers(tmp_path, "a-", min_age=60.0)
    assert set(os.listdir(tmp_path)) == {recent.name, other.name, ".a-mine.part"}
    remove_leftovers(tmp_path, "a-", min_age=0.0)
    assert set(os.listdir(tmp_path)) == {other.name, ".a-mine.part"}


# Writes a file and makes a temporary folder, says so, and waits to be killed.
KILLED = """
import sys
from dcdjax.util.files import TemporaryFolder, atomic_write
with TemporaryFolder("spill-", sys.argv[1]) as folder, atomic_write(sys.argv[1] + "/page.html") as file:
    (folder / "data").write_text("large")
    print(flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no locks")
def test_what_a_killed_process_left_is_removed_and_what_a_living_one_has_is_not(tmp_path):
    def started():
        one = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert one.stdout is not None
        one.stdout.readline()
        return one

    def write():
        for path in tmp_path.glob(".*.part"):  # without a lock they would count as left behind
            os.utime(path, (0, 0))
        with TemporaryFolder("spill-", tmp_path), atomic_write(tmp_path / "page.html"):
            pass
        return sorted(name[:6] for name in os.listdir(tmp_path))

    with started() as one:
        assert write() == [".page.", "page.h", "spill-"]
        one.kill()
        one.wait()
        assert write() == ["page.h"]
    with started() as one:
        one.communicate(b"")
        assert sorted(os.listdir(tmp_path)) == ["page.html"]


@pytest.mark.skipif(sys.platform == "win32", reason="no links")
def test_links_and_what_others_made_stay(tmp_path, monkeypatch):
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "lock").touch()
    (tmp_path / "spill-link").symlink_to(kept)
    (tmp_path / "spill-unlocked").mkdir()  # without a file to lock: not ours
    part = tmp_path / f".a.{'0' * 16}.part"
    part.symlink_to(kept / "lock")
    os.utime(kept / "lock", (0, 0))
    with TemporaryFolder("spill-", tmp_path), atomic_write(tmp_path / "a"):
        pass
    assert sorted(os.listdir(tmp_path)) == [part.name, "a", "kept", "spill-link", "spill-unlocked"]
    own = tmp_path / "spill-x"
    own.mkdir()
    (own / "lock").touch()
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    TemporaryFolder("spill-", tmp_path).close()
    assert own.is_dir()
    monkeypatch.undo()
    TemporaryFolder("spill-", tmp_path).close()
    assert not own.is_dir()
    assert (kept / "lock").exists()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_the_old_file(tmp_path, error):
    path = tmp_path / "file.bin"
    path.write_bytes(b"old")

    def fail():
        with atomic_write(path) as file:
            file.write(b"new")
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file.bin"]


@pytest.mark.skipif(sys.platform == "win32", reason="no such permissions")
def test_others_may_read_it_as_any_new_file(tmp_path):
    ordinary, whole = tmp_path / "ordinary", tmp_path / "whole"
    ordinary.touch()
    with atomic_write(whole):
        pass
    assert stat.S_IMODE(whole.stat().st_mode) == stat.S_IMODE(ordinary.stat().st_mode)


def test_results_come_in_order_of_the_arguments():
    def slow(n):
        time.sleep(0.02 * (n % 3 == 0))
        return n * n

    assert list(in_order(slow, range(20))) == [(n, n * n) for n in range(20)]


def test_only_a_few_arguments_are_drawn_ahead():
    drawn = []

    def arguments():
        for n in range(100):
            drawn.append(n)
            yield n

    results = in_order(str, arguments())
    for n in range(5):
        assert next(results) == (n, str(n))
        assert len(drawn) <= n + num_workers() + 2
    results.close()
    assert len(drawn) < 20


def test_an_error_in_a_thread_comes_out_and_no_thread_remains():
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError):
        list(in_order(lambda n: 1 // n, [2, 1, 0, 1]))
    assert threading.active_count() == before


def test_bars_say_how_far_each_stage_is():
    out = io.StringIO()
    with Bars(file=out, disable=False, mininterval=0, ascii=True) as progress:
        progress("reading", 500, 2000, "tokens")
        progress("reading", 2500, 2500, "tokens")
        progress("loading", 1 << 20, None, "B")
    shown = out.getvalue()
    assert "reading: 100%" in shown
    assert "2500/2500 tokens" in shown
    assert "loading: 1.00MB" in shown


def test_bars_count_in_whole_numbers():
    out = io.StringIO()
    with Bars(file=out, disable=False, mininterval=0, ascii=True) as progress:
        progress("starting", 0, 4, "parts")
        progress("starting", 3, 4, "parts")
        progress("reading", 0, 2_050_000, "tokens")
        progress("solving", 2, None, "steps")
        progress("solving", 3, 9_999, "steps")
    shown = out.getvalue()
    for counted in ("0/4 parts", "3/4 parts", "0/2.05M tokens", "2 steps", "3/9999 steps"):
        assert f" {counted} [" in shown
    assert "0.0" not in shown


def test_bars_show_a_remark_in_eighty_columns():
    out = io.StringIO()
    with Bars(file=out, disable=False, mininterval=0, ascii=True, ncols=80) as progress:
        progress("solving", 0, 400, "steps")
        progress("solving", 17, 400, "steps", "objective 4.246e+06, change 0.04")
        progress("solving", 18, None, "steps", "objective 4.246e+06, change 0.03")
    lines = out.getvalue().replace("\r", "\n").splitlines()
    assert any("17/400 steps [" in line and line.rstrip().endswith("change 0.04]") for line in lines)
    assert max(map(len, lines)) <= 80


def test_bars_are_silent_where_nobody_looks():
    out = io.StringIO()
    with Bars(file=out) as progress:
        progress("reading", 5, 10, "tokens")
        progress("counting", 5, 10, "tokens")
    assert out.getvalue() == ""


def test_no_more_cores_than_the_environment_allows(monkeypatch):
    monkeypatch.delenv("DCDJAX_CORES", raising=False)
    granted = num_workers()
    for asked, expected in (("1", 1), (str(granted + 5), granted), ("", granted)):
        monkeypatch.setenv("DCDJAX_CORES", asked)
        assert num_workers() == expected
    for asked in ("0", "-1", "many", "1.5"):
        monkeypatch.setenv("DCDJAX_CORES", asked)
        with pytest.raises(ValueError, match=f"DCDJAX_CORES must be a number of cores, got '{asked}'"):
            num_workers()
