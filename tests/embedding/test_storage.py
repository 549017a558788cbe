"""A model comes back bit by bit or is refused; who crashes, fails or reads meanwhile finds a whole one."""

import errno
import fcntl
import inspect
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
import safetensors.numpy

from dcdjax.embedding.storage import load, save
from dcdjax.util import store

TENSORS = {"W": np.arange(6, dtype=np.float32).reshape(2, 3), "count": np.array([3, 1])}
CONTENT = {"words": ["a", "é\ud800"], "solver": {"steps": 7, "tol": 1e-3, "start": None, "exact": True}}
OTHER = {"W": np.ones((2, 3), np.float32)}
FILE = "model.safetensors"


def save_numbered(folder, number, size):
    """A model that says in each of its parts which one it is."""
    tensors = {"W": np.full((size, 3), number, np.float32), "bias": np.full(4, number)}
    save(folder, tensors, {"number": number, "words": [f"{number}-{n}" for n in range(size // 100)]})


def number_of(folder):
    tensors, content = load(folder)
    number = content["number"]
    assert sorted(tensors) == ["W", "bias"]
    assert all((tensor == number).all() for tensor in tensors.values())
    assert content["words"] == [f"{number}-{n}" for n in range(tensors["W"].shape[0] // 100)]
    return number


def run(code, *args):
    """A process of its own, which knows `save_numbered`."""
    imports = "import os, signal, sys\nimport numpy as np\nfrom dcdjax.embedding.storage import load, save\n"
    code = imports + inspect.getsource(save_numbered) + textwrap.dedent(code)
    command = [sys.executable, "-W", "ignore", "-c", code, *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def folder(tmp_path):
    save(tmp_path / "model", TENSORS, CONTENT)
    return tmp_path / "model"


def same(model, tensors, content):
    assert list(model.tensors) == sorted(tensors)
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(model.tensors[name], tensor, strict=True)
    assert model.content == content
    return True


def test_what_is_saved_comes_back(folder):
    model = load(str(folder))
    by_library = safetensors.numpy.load_file(folder / FILE)
    assert os.listdir(folder) == [FILE]
    shutil.rmtree(folder)
    assert same(model, TENSORS, CONTENT)
    assert by_library.keys() == TENSORS.keys()
    model.tensors["W"][:] = 3.0


def test_nothing_is_made_for_what_cannot_be_saved(tmp_path):
    for tensors, content in (({"W": np.zeros(2, np.float16)}, {}), ({}, {"a": float("nan")})):
        with pytest.raises(ValueError, match=r"tensors\['W'\] is of float16|content\['a'\] = nan"):
            save(tmp_path / "model", tensors, content)
    assert not list(tmp_path.iterdir())


def test_a_new_model_takes_the_place_of_the_old(folder):
    for content in ({"new": 1}, {"newer": 2}, {"newer": 2}):
        save(folder, OTHER, content)
        assert same(load(folder), OTHER, content)
        assert os.listdir(folder) == [FILE]


def test_parents_are_made_and_other_files_stay(tmp_path):
    folder = tmp_path / "a" / "b" / "model"
    save(folder, TENSORS, CONTENT)
    (folder / "notes.txt").write_text("mine")
    save(folder, OTHER, {})
    assert (folder / "notes.txt").read_text() == "mine"
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("name", ["thesis.tex", "model-00001-of-00002.safetensors", "model.json", "sub"])
def test_a_folder_of_somebody_else(tmp_path, name):
    (tmp_path / ".hidden").touch()
    (tmp_path / name).mkdir() if name == "sub" else (tmp_path / name).write_text("mine")
    with pytest.raises(ValueError, match=f"folder .* holds other files and no model: choose another.*{name}"):
        save(tmp_path, TENSORS, CONTENT)
    assert sorted(os.listdir(tmp_path)) == sorted([".hidden", name])


def test_a_model_of_somebody_else(tmp_path):
    safetensors.numpy.save_file(OTHER, tmp_path / FILE)
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(ValueError, match=r"holds a model\.safetensors that is not dcdjax's"):
        save(tmp_path, TENSORS, CONTENT)
    assert (tmp_path / FILE).read_bytes() == before


def test_a_damaged_model_can_be_replaced(folder):
    (folder / FILE).write_bytes((folder / FILE).read_bytes()[:100])
    with pytest.raises(ValueError, match=r"model\.safetensors: "):
        load(folder)
    save(folder, OTHER, {"new": 1})
    assert same(load(folder), OTHER, {"new": 1})


def test_what_is_no_model(folder):
    store.write(folder / FILE, TENSORS, {}, kind="counts")
    with pytest.raises(ValueError, match=r"model\.safetensors: it holds counts, not model"):
        load(folder)


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "model").write_text("mine")
    with pytest.raises(ValueError, match=r"folder .*model is a file"):
        save(tmp_path / "model", TENSORS, CONTENT)
    with pytest.raises(
        FileNotFoundError, match=r"model is not a saved model: it has no file model\.safetensors"
    ):
        load(tmp_path / "model")
    assert (tmp_path / "model").read_text() == "mine"


def test_leftovers_of_a_crash(folder):
    old, recent = (folder / f".{FILE}.{digit * 16}.part" for digit in "01")
    for path in (old, recent, folder / ".hidden", folder / ".model.mine.part"):
        path.touch()
        if path != recent:  # which somebody may be saving now
            os.utime(path, (0, 0))
    save(folder, TENSORS, {})
    assert {path.name for path in folder.iterdir()} == {FILE, recent.name, ".hidden", ".model.mine.part"}
    assert same(load(folder), TENSORS, {})


def test_a_save_after_a_crashed_first_one(tmp_path):
    (tmp_path / f".{FILE}.{'1' * 16}.part").touch()
    with pytest.raises(FileNotFoundError, match="is not a saved model"):
        load(tmp_path)
    save(tmp_path, TENSORS, CONTENT)
    assert same(load(tmp_path), TENSORS, CONTENT)


def test_nothing_there(tmp_path):
    for missing in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(FileNotFoundError, match=rf"{missing.name} is not a saved model: it has no file"):
            load(missing)
    (tmp_path / FILE).mkdir()
    with pytest.raises(FileNotFoundError, match="is not a saved model"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("function", "nth"),
    [("replace", 1), ("fsync", 1), ("fsync", 2)],
)
@pytest.mark.parametrize("first", [True, False], ids=["first model", "second model"])
def test_a_full_disk(folder, monkeypatch, function, nth, first):
    if first:
        shutil.rmtree(folder)
    calls, real = [], getattr(os, function)

    def fails(*args):
        calls.append(args)
        if len(calls) == nth:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*args)

    monkeypatch.setattr(os, function, fails)
    with pytest.raises(OSError, match="No space left"):
        save(folder, OTHER, {"new": 1})
    monkeypatch.undo()
    if (function, nth) == ("fsync", 2):  # all is there, but a power failure might undo it
        assert same(load(folder), OTHER, {"new": 1})
        return
    assert not folder.exists() or not list(folder.glob(".*"))
    if first:
        with pytest.raises(FileNotFoundError, match="is not a saved model"):
            load(folder)
    else:
        assert same(load(folder), TENSORS, CONTENT)
    save(folder, OTHER, {"new": 1})
    assert same(load(folder), OTHER, {"new": 1})
    assert os.listdir(folder) == [FILE]


def test_each_step_is_on_the_disk_before_the_next(folder, monkeypatch):
    steps, real_sync, real_replace, real_unlink = [], os.fsync, os.replace, os.unlink

    def fsync(descriptor):
        steps.append("sync folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "sync file")
        real_sync(descriptor)

    def replace(source, target):
        steps.append(f"name {os.fspath(target)[-4:]}")
        real_replace(source, target)

    def unlink(path, **options):
        steps.append("remove")
        real_unlink(path, **options)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(os, "unlink", unlink)
    leftover = folder / f".{FILE}.{'0' * 16}.part"
    leftover.touch()
    os.utime(leftover, (0, 0))
    save(folder, OTHER, {})
    assert steps == ["remove", "sync file", "name sors", "sync folder"]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP], ids=["EINVAL", "ENOTSUP"])
def test_folders_that_cannot_be_synced_locked_or_emptied(folder, monkeypatch, number):
    real = os.fsync

    def fsync(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, "not for folders")
        real(descriptor)

    def refuses(*_, **__):
        raise OSError(number, "not here")

    leftover = folder / f".{FILE}.{'0' * 16}.part"
    leftover.touch()
    os.utime(leftover, (0, 0))
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "unlink", refuses)
    monkeypatch.setattr(fcntl, "flock", refuses)
    save(folder, OTHER, {})
    assert same(load(folder), OTHER, {})
    assert leftover.exists()
    monkeypatch.setattr(store, "fcntl", None)  # as on Windows
    save(folder, TENSORS, {})
    assert same(load(folder), TENSORS, {})


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind root")
def test_a_folder_that_may_not_be_written_to(folder):
    folder.chmod(0o500)
    with pytest.raises(PermissionError):
        save(folder, OTHER, {})
    folder.chmod(0o700)
    assert same(load(folder), TENSORS, CONTENT)


def test_death_before_each_system_call(tmp_path):
    """A child that dies at the nth thing it asks the system for, for every n that there is."""
    code = """
        folder, calls = sys.argv[1], 0
        save_numbered(folder, 1, 200)
        while True:
            calls += 1
            if not (child := os.fork()):
                left = calls

                def die(event, args):
                    global left
                    left -= event.startswith(("open", "os.", "fcntl."))
                    if not left:
                        os.kill(os.getpid(), signal.SIGKILL)

                sys.addaudithook(die)
                save_numbered(folder, 2, 200)
                os._exit(0)
            _, status = os.waitpid(child, 0)
            tensors, content = load(folder)
            number = content["number"]
            assert all((tensor == number).all() for tensor in tensors.values())
            print(number, flush=True)
            if not status:
                break
            assert status == signal.SIGKILL
            save_numbered(folder, 1, 200)
    """
    process = run(code, tmp_path)
    numbers = process.communicate(timeout=100)[0].split()
    assert process.returncode == 0
    # Old models, then new ones: neither can be missing, or no child died before or after the renaming.
    assert numbers == sorted(numbers)
    assert numbers.count("1") >= 5
    assert numbers.count("2") >= 2
    assert number_of(tmp_path) == 2


def test_death_at_any_moment(tmp_path):
    code = """
        number = int(sys.argv[2])
        while True:
            number += 1
            save_numbered(sys.argv[1], number, 300_000)
            print(number, flush=True)
    """
    folder, chance, number, interrupted = tmp_path / "model", random.Random(0), 0, 0
    for _ in range(20):
        process = run(code, folder, number)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.04 * chance.random())
        process.kill()
        done = [number + 1, *map(int, process.communicate(timeout=60)[0].split())]
        number = number_of(folder)
        # Killed between saving it and saying so, or while it saved the next.
        assert number in (done[-1], done[-1] + 1)
        left = list(folder.glob(".*.part"))
        interrupted += bool(left)
        for path in left:
            path.unlink()
    assert interrupted  # else no death came at a bad moment


@pytest.mark.parametrize("num_savers", [1, 3])
def test_readers_and_savers_of_one_folder(tmp_path, num_savers):
    """All save the same two models in turns."""
    code = """
        while True:
            for number in (1, 2):
                save_numbered(sys.argv[1], number, 200)
    """
    save_numbered(tmp_path, 1, 200)
    savers = [run(code, tmp_path) for _ in range(num_savers)]
    try:
        seen, end = set(), time.monotonic() + 60
        first = os.stat(tmp_path / FILE).st_ino
        while os.stat(tmp_path / FILE).st_ino == first and time.monotonic() < end:
            time.sleep(0.01)
        end = time.monotonic() + 2
        while time.monotonic() < end:
            seen.add(number_of(tmp_path))
        assert all(saver.poll() is None for saver in savers)
    finally:
        for saver in savers:
            saver.send_signal(signal.SIGKILL)
            saver.communicate()
    assert seen == {1, 2}
    assert number_of(tmp_path) in (1, 2)


def test_savers_take_turns(folder):
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    saver = threading.Thread(target=save, args=(folder, OTHER, {}))
    saver.start()
    try:
        saver.join(0.2)
        assert saver.is_alive()
        assert same(load(folder), TENSORS, CONTENT)  # readers need not wait
    finally:
        os.close(descriptor)
        saver.join()
    assert same(load(folder), OTHER, {})


def test_a_lock_that_stays_is_an_error_that_names_its_holder(folder, monkeypatch):
    monkeypatch.setattr(store, "SECONDS_TO_WAIT", 0.1)
    descriptor = os.open(folder, os.O_RDONLY)  # who may only read can lock it
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    try:
        with pytest.raises(
            BlockingIOError, match=f"locked by (process {os.getpid()}|another process): .*{folder.name}"
        ):
            save(folder, OTHER, {})
    finally:
        os.close(descriptor)
    assert same(load(folder), TENSORS, CONTENT)
    save(folder, OTHER, {})


def test_jax_is_not_imported():
    code = "import sys, dcdjax.embedding.storage, dcdjax.embedding.export; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
