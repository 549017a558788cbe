"""A model comes back bit by bit or is refused; who crashes, fails or reads meanwhile finds a whole one."""

import errno
import fcntl
import hashlib
import inspect
import json
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
from enum import IntEnum
from typing import Any, cast

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import example, given

from dcdjax import model_files
from dcdjax.model_files import load, save

TENSORS = {"W": np.arange(6, dtype=np.float32).reshape(2, 3), "count": np.array([3, 1])}
RECORD = {"words": ["a", "é\ud800"], "solver": {"steps": 7, "tol": 1e-3, "start": None, "exact": True}}
OTHER = {"W": np.ones((2, 3), np.float32)}
DTYPES = ["float32", "float64", "int32", "int64", "uint8", "bool"]


def save_numbered(folder, number, size):
    """A model that says in each of its parts which one it is."""
    tensors = {"W": np.full((size, 3), number, np.float32), "bias": np.full(4, number)}
    save(folder, tensors, {"number": number, "words": [f"{number}-{n}" for n in range(size // 100)]})


def number_of(folder):
    tensors, record = load(folder)
    number = record["number"]
    assert sorted(tensors) == ["W", "bias"]
    assert all((tensor == number).all() for tensor in tensors.values())
    assert record["words"] == [f"{number}-{n}" for n in range(tensors["W"].shape[0] // 100)]
    return number


def run(code, *args):
    """A process of its own, which knows `save_numbered`."""
    imports = "import os, signal, sys\nimport numpy as np\nfrom dcdjax.model_files import load, save\n"
    code = imports + inspect.getsource(save_numbered) + textwrap.dedent(code)
    command = [sys.executable, "-W", "ignore", "-c", code, *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def folder(tmp_path):
    save(tmp_path / "model", TENSORS, RECORD)
    return tmp_path / "model"


def files_of(folder):
    """model.json and the tensors' file."""
    record, tensors = sorted(folder.iterdir(), key=lambda path: path.suffix)
    assert record.name == "model.json"
    return record, tensors


def same(model, tensors, record):
    assert list(model.tensors) == sorted(tensors)
    for name, tensor in tensors.items():
        found = model.tensors[name]
        assert found.dtype == tensor.dtype.newbyteorder("=")
        assert found.dtype.isnative
        assert found.shape == tensor.shape
        assert found.tobytes() == tensor.astype(found.dtype).tobytes()
    # 1, 1.0 and True are equal, and so are two dicts in another order.
    assert repr(model.record) == repr(record)
    return True


def sealed(described):
    """model.json with the right digest."""
    text = json.dumps(described)
    return (text[:-1] + f', "sha256": "{hashlib.sha256(text.encode()).hexdigest()}"' + "}").encode()


def described_in(folder):
    described = json.loads((folder / "model.json").read_bytes())
    del described["sha256"]
    return described


def test_what_is_saved_comes_back(folder):
    model = load(str(folder))
    shutil.rmtree(folder)
    assert same(model, TENSORS, RECORD)
    model.tensors["W"][:] = 3.0


def test_the_files_are_as_documented(folder):
    record, tensors = files_of(folder)
    content = tensors.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    assert tensors.name == f"model-{digest[:16]}.safetensors"
    described = {"format": "dcdjax model", "version": 1, "tensors_file": tensors.name}
    described |= {"tensors_sha256": digest, "tensors_bytes": len(content), "record": RECORD}
    assert record.read_bytes() == sealed(described)


WEIRD_TEXT = st.text(st.one_of(st.characters(exclude_categories=()), st.sampled_from("\ud83d\ude00\0\n")))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WEIRD_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WEIRD_TEXT, inner, max_size=4),
    max_leaves=10,
)


@given(record=st.dictionaries(WEIRD_TEXT, JSON, max_size=4))
@example({"x": "\ud83d\ude00"})
@example({"x": {"\ud83d\ude00": 1, "\U0001f600": 2}})
@example({"x": "\ude00\ud83d", "y": "\ud83d", "z": -0.0})
def test_any_record_comes_back(tmp_path_factory, record):
    folder = tmp_path_factory.mktemp("any")
    if repr(json.loads(json.dumps(record))) == repr(record):
        save(folder, {}, record)
        assert same(load(folder), {}, record)
    else:  # two halves of a character become one
        with pytest.raises(ValueError, match="JSON cannot hold record"):
            save(folder, {}, record)
        assert not list(folder.iterdir())
    shutil.rmtree(folder)


@given(
    tensor=hnp.arrays(
        st.sampled_from(DTYPES), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
    ),
    layout=st.sampled_from(["C", "F", "reversed", "every second", "swapped", "read-only"]),
    name=st.text(max_size=4),
)
@example(np.array(3.5), "C", "")
@example(np.array(3.5), "swapped", "W")
@example(np.zeros((3, 0, 2), np.int32), "F", "W")
@example(np.array([[1.0, 2.0], [3.0, 4.0]]), "F", "W")
@example(np.array([1, 2, 3]), "every second", "W")
@example(np.array([True, False]), "reversed", "W")
def test_any_tensor_comes_back(tmp_path_factory, tensor, layout, name):
    folder = tmp_path_factory.mktemp("any")
    tensor = {
        "C": lambda: tensor,
        "F": lambda: np.asfortranarray(tensor) if tensor.ndim else tensor,
        "reversed": lambda: tensor[::-1] if tensor.ndim else tensor,
        "every second": lambda: tensor[..., ::2] if tensor.ndim else tensor,
        "swapped": lambda: tensor.astype(tensor.dtype.newbyteorder(">")),
        "read-only": lambda: tensor,
    }[layout]()
    tensor.flags.writeable = layout != "read-only"
    save(folder, {name: tensor, "second": tensor}, {})
    assert same(load(folder), {name: tensor, "second": tensor}, {})
    shutil.rmtree(folder)


def test_safetensors_gets_what_it_can_copy(tmp_path, monkeypatch):
    """Some of its versions copy memory as it lies, whatever the layout says."""
    real = safetensors.numpy.save

    def strict(tensors):
        assert all(tensor.flags.c_contiguous for tensor in tensors.values())
        assert all(tensor.dtype == tensor.dtype.newbyteorder("<") for tensor in tensors.values())
        return real(tensors)

    monkeypatch.setattr(safetensors.numpy, "save", strict)
    tensors = {"swapped": np.arange(3.0).astype(">f8"), "transposed": np.ones((2, 3), ">i4").T}
    save(tmp_path, tensors, {})
    assert same(load(tmp_path), tensors, {})


def test_scalars_of_numpy_become_plain(tmp_path):
    class Color(IntEnum):
        RED = 3

    numbers = {
        "f": np.float32(0.1),
        "d": np.float64(0.1),
        "i": np.int64(3),
        "b": np.bool_(True),
        "s": np.str_("x"),
    }
    save(tmp_path, {}, {**numbers, "red": Color.RED})
    expected = {"f": float(np.float32(0.1)), "d": 0.1, "i": 3, "b": True, "s": "x", "red": 3}
    assert same(load(tmp_path), {}, expected)


CIRCLE = []
CIRCLE.append(CIRCLE)
RING = {}
RING["x"] = RING


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"a": {"b": [1.0, float("nan")]}}, r"record\['a'\]\['b'\]\[1\] = nan"),
        ({"a": float("inf")}, r"record\['a'\] = inf"),
        ({"a": np.float32("-inf")}, r"record\['a'\] = -inf"),
        ({"a": [0, np.zeros(2)]}, r"record\['a'\]\[1\] = array\(\[0., 0.\]\), a ndarray"),
        ({"a": {1, 2}}, r"record\['a'\] = {1, 2}, a set"),
        ({"words": ("a", "b")}, r"record\['words'\] = \('a', 'b'\), a tuple"),
        ({"a": b"bytes"}, r"record\['a'\] = b'bytes'"),
        ({"a": 1j}, r"record\['a'\] = 1j"),
        ({"a": np.longdouble(1)}, r"record\['a'\]"),
        ({"a": np.datetime64("2020-01-01")}, r"record\['a'\]"),
        ({"a": {"b": {1: 2}}}, r"record\['a'\]\['b'\], which has the key 1"),
        ({"a": {None: 2}}, r"record\['a'\], which has the key None"),
        ({"a": CIRCLE}, r"record\['a'\](\[0\])+ = .* 100 levels deep"),
        ({"a": RING}, r"record\['a'\](\['x'\])+ = .* 100 levels deep"),
        ({"a": 10**5000}, "digits"),
    ],
)
def test_what_no_record_can_hold(tmp_path, record, message):
    with pytest.raises(ValueError, match=message):
        save(tmp_path / "model", TENSORS, record)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("W", np.zeros(2, np.float16), r"tensors\['W'\] is of float16, not of one of float32, float64"),
        ("W", np.zeros(2, np.complex64), r"tensors\['W'\] is of complex64"),
        ("W", np.array(["a"]), r"tensors\['W'\] is of <U1"),
        ("W", np.array([None]), r"tensors\['W'\] is of object"),
        ("W", np.zeros(2, "M8[s]"), r"tensors\['W'\] is of datetime64"),
        ("W", np.zeros(2, [("x", np.float32)]), r"tensors\['W'\] is of \[\('x'"),
        ("__metadata__", np.zeros(2), "name '__metadata__'"),
        ("a\ud800", np.zeros(2), r"name 'a\\ud800'"),
    ],
)
def test_what_no_tensor_can_be(tmp_path, name, tensor, message):
    with pytest.raises(ValueError, match=message):
        save(tmp_path / "model", {"fine": np.zeros(2), name: tensor}, {})
    assert not list(tmp_path.iterdir())


def test_a_key_that_is_no_string(tmp_path, unchecked_annotations):
    with pytest.raises(ValueError, match="record, which has the key 3"):
        save(tmp_path, {}, cast(Any, {3: 4}))


def test_a_new_model_takes_the_place_of_the_old(folder):
    save(folder, OTHER, {"new": 1})
    assert same(load(folder), OTHER, {"new": 1})
    assert len(files_of(folder)) == 2
    save(folder, OTHER, {"newer": 2})  # the same tensors, which must not be taken away
    save(folder, OTHER, {"newer": 2})
    assert same(load(folder), OTHER, {"newer": 2})
    assert len(files_of(folder)) == 2


def test_parents_are_made_and_other_files_stay(tmp_path):
    folder = tmp_path / "a" / "b" / "model"
    save(folder, TENSORS, RECORD)
    (folder / "notes.txt").write_text("mine")
    save(folder, OTHER, {})
    assert (folder / "notes.txt").read_text() == "mine"
    assert len(list(folder.iterdir())) == 3


@pytest.mark.parametrize(
    "name", ["thesis.tex", "model-00001-of-00002.safetensors", "model.safetensors", "sub"]
)
def test_a_folder_of_somebody_else(tmp_path, name):
    (tmp_path / ".hidden").touch()
    (tmp_path / name).mkdir() if name == "sub" else (tmp_path / name).write_text("mine")
    with pytest.raises(ValueError, match=f"folder .* holds other files and no model: choose another.*{name}"):
        save(tmp_path, TENSORS, RECORD)
    assert sorted(os.listdir(tmp_path)) == sorted([".hidden", name])


def test_a_model_of_somebody_else(tmp_path):
    (tmp_path / "model.json").write_text('{"format": "layers-model"}')
    with pytest.raises(ValueError, match=r"holds a model\.json that is not dcdjax's"):
        save(tmp_path, TENSORS, RECORD)
    assert (tmp_path / "model.json").read_text() == '{"format": "layers-model"}'


def test_a_damaged_model_can_be_replaced(folder):
    record, _ = files_of(folder)
    record.write_bytes(record.read_bytes()[:50])
    save(folder, OTHER, {"new": 1})
    assert same(load(folder), OTHER, {"new": 1})


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "model").write_text("mine")
    with pytest.raises(ValueError, match=r"folder .*model is a file"):
        save(tmp_path / "model", TENSORS, RECORD)
    with pytest.raises(FileNotFoundError, match=r"model is not a saved model: it has no file model\.json"):
        load(tmp_path / "model")
    assert (tmp_path / "model").read_text() == "mine"


def test_leftovers_of_a_crash(folder):
    leftovers = [f"model-{'0' * 16}.safetensors", f".model.json.{'1' * 16}.part"]
    leftovers.append(f".model-{'0' * 16}.safetensors.{'2' * 16}.part")
    for name in [*leftovers, ".hidden", "model-mine.safetensors"]:
        (folder / name).touch()
        os.utime(folder / name, (0, 0))
    recent = folder / f"model-{'3' * 16}.safetensors"  # somebody may be saving it now
    recent.touch()
    named = folder / described_in(folder)["tensors_file"]
    os.utime(named, (0, 0))
    save(folder, TENSORS, {})
    left = {path.name for path in folder.iterdir()}
    assert left == {"model.json", named.name, recent.name, ".hidden", "model-mine.safetensors"}
    assert same(load(folder), TENSORS, {})


def test_a_save_after_a_crashed_first_one(tmp_path):
    (tmp_path / f"model-{'0' * 16}.safetensors").touch()
    (tmp_path / f".model.json.{'1' * 16}.part").touch()
    with pytest.raises(FileNotFoundError, match="is not a saved model"):
        load(tmp_path)
    save(tmp_path, TENSORS, RECORD)
    assert same(load(tmp_path), TENSORS, RECORD)


def test_nothing_there(tmp_path):
    for missing in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(FileNotFoundError, match=rf"{missing.name} is not a saved model: it has no file"):
            load(missing)
    (tmp_path / "model.json").mkdir()
    with pytest.raises(FileNotFoundError, match="is not a saved model"):
        load(tmp_path)


@pytest.mark.parametrize("which", [0, 1], ids=["record", "tensors"])
def test_every_flipped_bit_is_refused(folder, which):
    path = files_of(folder)[which]
    content = path.read_bytes()
    for place in range(len(content)):
        for bit in range(8):
            damaged = bytearray(content)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            with pytest.raises(ValueError, match=path.name):
                load(folder)
    path.write_bytes(content)
    assert same(load(folder), TENSORS, RECORD)


@pytest.mark.parametrize("which", [0, 1], ids=["record", "tensors"])
def test_every_other_length_is_refused(folder, which):
    path = files_of(folder)[which]
    content = path.read_bytes()
    for damaged in [*(content[:length] for length in range(len(content))), content + b"\n", content * 2]:
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=path.name):
            load(folder)


def test_tensors_of_another_model(folder, tmp_path):
    save(tmp_path / "other", TENSORS | {"W": TENSORS["W"] + 1}, RECORD)
    files_of(tmp_path / "other")[1].replace(files_of(folder)[1])
    with pytest.raises(ValueError, match=r"model-.*\.safetensors: it is damaged, or not what"):
        load(folder)


def test_missing_tensors(folder):
    _, tensors = files_of(folder)
    tensors.unlink()
    with pytest.raises(ValueError, match=rf"{tensors.name}: there is no such file, but model\.json names it"):
        load(folder)
    tensors.mkdir()
    with pytest.raises(ValueError, match=tensors.name):
        load(folder)


def test_an_edited_word(folder):
    record, _ = files_of(folder)
    record.write_bytes(record.read_bytes().replace(b'"a"', b'"b"'))
    with pytest.raises(ValueError, match=r"model\.json: it is damaged or was edited"):
        load(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "layers-model"}, "no model that dcdjax saved"),
        ({"version": 2}, "version 2, which was written by a newer dcdjax"),
        ({"version": None}, "version None"),
        ({"tensors_file": "../model-0000000000000000.safetensors"}, "names the tensors '../model-0"),
        ({"tensors_file": "/etc/passwd"}, "names the tensors '/etc/passwd'"),
        ({"tensors_file": ".."}, r"names the tensors '\.\.'"),
        ({"tensors_file": "model-0000000000000000.safetensors\n"}, "names the tensors"),
        ({"tensors_file": 3}, ""),
        ({"tensors_bytes": 2**70}, f"bytes long, not {2**70}"),
        ({"tensors_bytes": -1}, "bytes long, not -1"),
        ({"tensors_bytes": "many"}, "bytes long, not 'many'"),
        ({"tensors_sha256": "0" * 64}, "sha256 does not match"),
        ({"tensors_sha256": None}, "sha256 does not match"),
        ({"record": [1]}, r"its record is \[1\]"),
        ({"record": None}, "its record is None"),
    ],
)
def test_tampered_records_with_the_right_digest(folder, change, message):
    (folder / "model.json").write_bytes(sealed(described_in(folder) | change))
    with pytest.raises(ValueError, match=rf"(model\.json|safetensors): .*{message}"):
        load(folder)


@pytest.mark.parametrize(
    "key", ["format", "version", "tensors_file", "tensors_sha256", "tensors_bytes", "record"]
)
def test_records_without_a_key(folder, key):
    described = described_in(folder)
    del described[key]
    (folder / "model.json").write_bytes(sealed(described))
    with pytest.raises(ValueError, match=r"(model\.json|safetensors): "):
        load(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "it is cut off or damaged"),
        (b"[]", "no model that dcdjax saved"),
        (b"{}", "no model that dcdjax saved"),
        (b"[" * 1_000_000, "recursion"),
        (b"\xff\xfe", "ascii"),
        (b'{"format": "dcdjax model", "version": ' + b"9" * 5000 + b"}", "digits"),
    ],
    ids=["empty", "list", "object", "deep", "bytes", "digits"],
)
def test_something_else_called_model_json(tmp_path, text, message):
    (tmp_path / "model.json").write_bytes(text)
    with pytest.raises(ValueError, match=rf"model\.json: .*{message}"):
        load(tmp_path)


def test_a_key_twice(folder):
    text = json.dumps(described_in(folder)).replace('"steps": 7', '"steps": 7, "steps": 8').encode()
    digest = hashlib.sha256(text).hexdigest()
    (folder / "model.json").write_bytes(text[:-1] + f', "sha256": "{digest}"'.encode() + b"}")
    with pytest.raises(ValueError, match=r"model\.json: one of the keys \['steps', 'steps'"):
        load(folder)


def header(text, data=b""):
    return len(text).to_bytes(8, "little") + text + data


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 8,
        header(b"{"),
        header(b'{"W":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,4]}}', b"1234"),
        header(b'{"W":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'),
        header(b'{"W":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}', b"1234"),
        header(b'{"W":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}', b"1234"),
        header(b'{"W":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}', b"1234"),
        header(b'{"W":{"dtype":"XYZ","shape":[1],"data_offsets":[0,4]}}', b"1234"),
        header(b'{"W":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}', b"1234"),
        header(b'{"W":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', b"12345678"),
    ],
    ids=range(11),
)
def test_tampered_tensors_with_the_right_digest(folder, content):
    digest = hashlib.sha256(content).hexdigest()
    name = f"model-{digest[:16]}.safetensors"
    (folder / name).write_bytes(content)
    change = {"tensors_file": name, "tensors_sha256": digest, "tensors_bytes": len(content)}
    (folder / "model.json").write_bytes(sealed(described_in(folder) | change))
    with pytest.raises(ValueError, match=rf"{name}: "):
        load(folder)


@pytest.mark.parametrize(
    ("function", "nth"),
    [("replace", 1), ("replace", 2), ("fsync", 1), ("fsync", 2), ("fsync", 3), ("fsync", 4)],
)
@pytest.mark.parametrize("first", [True, False], ids=["first model", "second model"])
def test_a_full_disk(folder, monkeypatch, function, nth, first):
    old = files_of(folder)[1].name
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
    if (function, nth) == ("fsync", 4):  # all is there, but a power failure might undo it
        assert same(load(folder), OTHER, {"new": 1})
        assert first or (folder / old).exists()
        return
    assert not list(folder.glob(".*"))
    if first:
        with pytest.raises(FileNotFoundError, match="is not a saved model"):
            load(folder)
    else:
        assert same(load(folder), TENSORS, RECORD)
    save(folder, OTHER, {"new": 1})
    assert same(load(folder), OTHER, {"new": 1})
    assert len(files_of(folder)) == 2


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
    save(folder, OTHER, {})
    tensors, record = ["sync file", "name sors", "sync folder"], ["sync file", "name json", "sync folder"]
    assert steps == [*tensors, *record, "remove"]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP], ids=["EINVAL", "ENOTSUP"])
def test_folders_that_cannot_be_synced_locked_or_emptied(folder, monkeypatch, number):
    real = os.fsync

    def fsync(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, "not for folders")
        real(descriptor)

    def refuses(*_, **__):
        raise OSError(number, "not here")

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "unlink", refuses)
    monkeypatch.setattr(fcntl, "flock", refuses)
    save(folder, OTHER, {})
    assert same(load(folder), OTHER, {})
    assert len(list(folder.iterdir())) == 3
    monkeypatch.setattr(model_files, "fcntl", None)  # as on Windows
    save(folder, TENSORS, {})
    assert same(load(folder), TENSORS, {})


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind root")
def test_a_folder_that_may_not_be_written_to(folder):
    folder.chmod(0o500)
    with pytest.raises(PermissionError):
        save(folder, OTHER, {})
    folder.chmod(0o700)
    assert same(load(folder), TENSORS, RECORD)


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
            tensors, record = load(folder)
            number = record["number"]
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
        left = [path for path in folder.iterdir() if path.name.endswith(("part", "safetensors"))]
        interrupted += len(left) > 1
        for path in left:
            if path.name != described_in(folder)["tensors_file"]:
                path.unlink()
    assert interrupted  # else no death came at a bad moment


@pytest.mark.parametrize("num_savers", [1, 3])
def test_readers_and_savers_of_one_folder(tmp_path, num_savers):
    """All save the same two models in turns: one's new tensors are another's old ones."""
    code = """
        while True:
            for number in (1, 2):
                save_numbered(sys.argv[1], number, 200)
    """
    save_numbered(tmp_path, 1, 200)
    savers = [run(code, tmp_path) for _ in range(num_savers)]
    try:
        seen, end = set(), time.monotonic() + 60
        first = os.stat(tmp_path / "model.json").st_ino
        while os.stat(tmp_path / "model.json").st_ino == first and time.monotonic() < end:
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
        assert same(load(folder), TENSORS, RECORD)  # readers need not wait
    finally:
        os.close(descriptor)
        saver.join()
    assert same(load(folder), OTHER, {})


def test_jax_is_not_imported():
    code = "import sys, dcdjax.model_files, dcdjax.vector_files; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
