"""What is written comes back bit by bit; what is damaged, edited or foreign is refused."""

import errno
import hashlib
import json
import os
from enum import IntEnum
from typing import Any, cast

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import example, given

from dcdjax.util import store
from dcdjax.util.store import kind_of, name_in_errors, read, write

TENSORS = {"W": np.arange(6, dtype=np.float32).reshape(2, 3), "count": np.array([3, 1])}
CONTENT = {"words": ["a", "é\ud800"], "solver": {"steps": 7, "tol": 1e-3, "start": None, "exact": True}}
DTYPES = ["float32", "float64", "int32", "int64", "uint8", "bool"]
METADATA = {"format": "dcdjax", "kind": "model", "version": "1", "content": json.dumps(CONTENT)}
ENTRIES = {
    "count": {"dtype": "I64", "shape": [2], "data_offsets": [0, 16]},
    "W": {"dtype": "F32", "shape": [2, 3], "data_offsets": [16, 40]},
}
DATA = TENSORS["count"].tobytes() + TENSORS["W"].tobytes()


@pytest.fixture
def path(tmp_path):
    write(tmp_path / "file", TENSORS, CONTENT, kind="model")
    return tmp_path / "file"


def same(stored, tensors, content):
    assert list(stored.tensors) == sorted(tensors)
    for name, tensor in tensors.items():
        found = stored.tensors[name]
        assert found.dtype == tensor.dtype.newbyteorder("=")
        assert found.dtype.isnative
        assert found.shape == tensor.shape
        assert found.tobytes() == tensor.astype(found.dtype).tobytes()
    # 1, 1.0 and True are equal, and so are two dicts in another order.
    assert repr(stored.content) == repr(content)
    return True


def with_digest(metadata):
    """Return the metadata with the digest of TENSORS and themselves, as documented."""
    shapes = {"W": ["float32", [2, 3]], "count": ["int64", [2]]}
    digest = hashlib.sha256(json.dumps([sorted(metadata.items()), shapes]).encode())
    digest.update(TENSORS["W"].tobytes())
    digest.update(TENSORS["count"].tobytes())
    return {**metadata, "sha256": digest.hexdigest()}


def file_of(metadata, entries, data=DATA):
    header = json.dumps({"__metadata__": metadata, **entries}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + data


def test_what_is_written_comes_back(path):
    stored = read(str(path), kind="model")
    assert kind_of(path) == "model"
    path.unlink()
    assert same(stored, TENSORS, CONTENT)
    stored.tensors["W"][:] = 3.0


def test_the_file_is_as_documented(path):
    assert path.read_bytes() == file_of(with_digest(METADATA), ENTRIES)


def test_the_same_is_written_the_same(path, tmp_path):
    write(tmp_path / "again", dict(reversed(TENSORS.items())), CONTENT, kind="model")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_a_mapped_tensor_stays_in_the_file(path):
    mapped = read(path, mapped=["W", "count"])
    assert same(mapped, TENSORS, CONTENT)
    assert all(isinstance(tensor, np.memmap) for tensor in mapped.tensors.values())
    assert not mapped.tensors["W"].flags.writeable
    write(path, {"W": np.zeros((0, 3))}, {}, kind="model")
    assert read(path, mapped=["W"]).tensors["W"].shape == (0, 3)


def test_content_that_is_too_long_for_a_header(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "MAX_TEXT_IN_HEADER", 10)
    write(tmp_path / "file", TENSORS, CONTENT, kind="model")
    assert same(read(tmp_path / "file"), TENSORS, CONTENT)
    content = bytearray((tmp_path / "file").read_bytes())
    content[content.rindex(b'"a"') + 1] ^= 1
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ValueError, match="sha256 does not match"):
        read(tmp_path / "file")


WEIRD_TEXT = st.text(st.one_of(st.characters(exclude_categories=()), st.sampled_from("\ud83d\ude00\0\n")))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WEIRD_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WEIRD_TEXT, inner, max_size=4),
    max_leaves=10,
)


@given(content=st.dictionaries(WEIRD_TEXT, JSON, max_size=4))
@example({"x": "\ud83d\ude00"})
@example({"x": {"\ud83d\ude00": 1, "\U0001f600": 2}})
@example({"x": "\ude00\ud83d", "y": "\ud83d", "z": -0.0})
def test_any_content_comes_back(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("any") / "file"
    if repr(json.loads(json.dumps(content))) == repr(content):
        write(path, {}, content, kind="model")
        assert same(read(path), {}, content)
    else:  # two halves of a character become one
        with pytest.raises(ValueError, match="JSON cannot hold content"):
            write(path, {}, content, kind="model")
        assert not path.exists()


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
    path = tmp_path_factory.mktemp("any") / "file"
    tensor = {
        "C": lambda: tensor,
        "F": lambda: np.asfortranarray(tensor) if tensor.ndim else tensor,
        "reversed": lambda: tensor[::-1] if tensor.ndim else tensor,
        "every second": lambda: tensor[..., ::2] if tensor.ndim else tensor,
        "swapped": lambda: tensor.astype(tensor.dtype.newbyteorder(">")),
        "read-only": lambda: tensor,
    }[layout]()
    tensor.flags.writeable = layout != "read-only"
    tensors = {name: tensor, "second": tensor}
    write(path, tensors, {}, kind="model")
    assert same(read(path), tensors, {})
    assert same(read(path, mapped=[name]), tensors, {})
    by_library = safetensors.numpy.load(path.read_bytes())
    assert same(store.Stored(dict(sorted(by_library.items())), {}), tensors, {})


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
    write(tmp_path / "file", {}, {**numbers, "red": Color.RED}, kind="model")
    expected = {"f": float(np.float32(0.1)), "d": 0.1, "i": 3, "b": True, "s": "x", "red": 3}
    assert same(read(tmp_path / "file"), {}, expected)


CIRCLE = []
CIRCLE.append(CIRCLE)
RING = {}
RING["x"] = RING


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"a": {"b": [1.0, float("nan")]}}, r"content\['a'\]\['b'\]\[1\] = nan"),
        ({"a": float("inf")}, r"content\['a'\] = inf"),
        ({"a": np.float32("-inf")}, r"content\['a'\] = -inf"),
        ({"a": [0, np.zeros(2)]}, r"content\['a'\]\[1\] = array\(\[0., 0.\]\), a ndarray"),
        ({"a": {1, 2}}, r"content\['a'\] = {1, 2}, a set"),
        ({"words": ("a", "b")}, r"content\['words'\] = \('a', 'b'\), a tuple"),
        ({"a": b"bytes"}, r"content\['a'\] = b'bytes'"),
        ({"a": 1j}, r"content\['a'\] = 1j"),
        ({"a": np.longdouble(1)}, r"content\['a'\]"),
        ({"a": np.datetime64("2020-01-01")}, r"content\['a'\]"),
        ({"a": {"b": {1: 2}}}, r"content\['a'\]\['b'\], which has the key 1"),
        ({"a": {None: 2}}, r"content\['a'\], which has the key None"),
        ({"a": CIRCLE}, r"content\['a'\](\[0\])+ = .* 100 levels deep"),
        ({"a": RING}, r"content\['a'\](\['x'\])+ = .* 100 levels deep"),
        ({"a": 10**5000}, "digits"),
    ],
)
def test_what_no_content_can_hold(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        write(tmp_path / "file", TENSORS, content, kind="model")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("W", np.zeros(2, np.float16), r"tensors\['W'\] is of float16, not of one of float64, float32"),
        ("W", np.zeros(2, np.complex64), r"tensors\['W'\] is of complex64"),
        ("W", np.array(["a"]), r"tensors\['W'\] is of <U1"),
        ("W", np.array([None]), r"tensors\['W'\] is of object"),
        ("W", np.zeros(2, "M8[s]"), r"tensors\['W'\] is of datetime64"),
        ("W", np.zeros(2, [("x", np.float32)]), r"tensors\['W'\] is of \[\('x'"),
        ("__metadata__", np.zeros(2), "name '__metadata__'"),
        ("__content__", np.zeros(2), "name '__content__'"),
        ("a\ud800", np.zeros(2), r"name 'a\\ud800'"),
    ],
)
def test_what_no_tensor_can_be(tmp_path, name, tensor, message):
    with pytest.raises(ValueError, match=message):
        write(tmp_path / "file", {"fine": np.zeros(2), name: tensor}, {}, kind="model")
    assert not list(tmp_path.iterdir())


def test_a_key_that_is_no_string(tmp_path, unchecked_annotations):
    with pytest.raises(ValueError, match="content, which has the key 3"):
        write(tmp_path / "file", {}, cast(Any, {3: 4}), kind="model")


def test_a_failed_write_leaves_the_old_file(path, monkeypatch):
    before = path.read_bytes()

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write(path, {}, {}, kind="model")
    assert path.read_bytes() == before
    assert [one.name for one in path.parent.iterdir()] == ["file"]


@pytest.mark.parametrize("mapped", [[], ["W", "count"]], ids=["in memory", "mapped"])
def test_every_flipped_bit_is_refused(path, mapped):
    content = path.read_bytes()
    for place in range(len(content)):
        for bit in range(8):
            damaged = bytearray(content)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            with pytest.raises(ValueError, match="file: "):
                read(path, kind="model", mapped=mapped)
    path.write_bytes(content)
    assert same(read(path, mapped=mapped), TENSORS, CONTENT)


def test_every_other_length_is_refused(path):
    content = path.read_bytes()
    for damaged in [*(content[:length] for length in range(len(content))), content + b"\n", content * 2]:
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="file: "):
            read(path)


def test_tensors_of_another_file(path):
    content = path.read_bytes()
    write(path, TENSORS | {"W": TENSORS["W"] + 1}, CONTENT, kind="model")
    path.write_bytes(content[: -len(DATA)] + path.read_bytes()[-len(DATA) :])
    with pytest.raises(ValueError, match="file: it is damaged or was edited: its sha256 does not match"):
        read(path)


def test_an_edited_word(path):
    content = path.read_bytes()
    edited = content.replace(rb"\"a\"", rb"\"b\"")
    assert edited != content
    path.write_bytes(edited)
    with pytest.raises(ValueError, match="file: it is damaged or was edited"):
        read(path)


def test_another_kind(path):
    with pytest.raises(ValueError, match="file: it holds model, not counts"):
        read(path, kind="counts")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "pt"}, "it is damaged, or dcdjax did not save it"),
        ({"version": "2"}, "version '2', which was written by a newer dcdjax"),
        ({"kind": "counts"}, "it holds counts, not model"),
        ({"content": "[1]"}, r"its content is \[1\]"),
        ({"content": "null"}, "its content is None"),
        ({"content": "{"}, "Expecting property name"),
        ({"content": ""}, "__content__"),
        ({"content": "[" * 100_000}, "recursion"),
        ({"content": '{"x": ' + "9" * 5000 + "}"}, "digits"),
        ({"content": '{"steps": 7, "steps": 8}'}, r"one of the keys \['steps', 'steps'\] is there twice"),
    ],
    ids=range(10),
)
def test_edited_metadata_with_the_right_digest(path, change, message):
    path.write_bytes(file_of(with_digest(METADATA | change), ENTRIES))
    with pytest.raises(ValueError, match=rf"file: .*{message}"):
        read(path, kind="model")


@pytest.mark.parametrize("key", [*METADATA, "sha256"])
def test_metadata_without_a_key(path, key):
    metadata = with_digest({name: value for name, value in METADATA.items() if name != key})
    if key == "sha256":
        del metadata[key]
    path.write_bytes(file_of(metadata, ENTRIES))
    with pytest.raises(ValueError, match="file: "):
        read(path)


@pytest.mark.parametrize(
    ("entry", "data"),
    [
        ({"dtype": "F32", "shape": [4611686018427387904], "data_offsets": [0, 4]}, b"1234"),
        ({"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, b""),
        ({"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}, b"1234"),
        ({"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}, b"1234"),
        ({"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}, b"1234"),
        ({"dtype": "XYZ", "shape": [1], "data_offsets": [0, 4]}, b"1234"),
        ({"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}, b"1234"),
        ({"dtype": "F16", "shape": [2], "data_offsets": [0, 4]}, b"1234"),
        ({"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, b"12345678"),
    ],
    ids=range(9),
)
@pytest.mark.parametrize("mapped", [[], ["W"]], ids=["in memory", "mapped"])
def test_headers_that_lie(path, entry, data, mapped):
    shapes = {"W": ["float16" if entry["dtype"] == "F16" else "float32", entry["shape"]]}
    digest = hashlib.sha256(json.dumps([sorted(METADATA.items()), shapes]).encode() + data).hexdigest()
    path.write_bytes(file_of(METADATA | {"sha256": digest}, {"W": entry}, data))
    with pytest.raises(ValueError, match="file: "):
        read(path, mapped=mapped)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello",
        b"[]",
        bytes(8),
        b"\xff" * 64,
        (1).to_bytes(8, "little") + b"{",
        safetensors.numpy.save({"W": np.ones(3)}),
        safetensors.numpy.save({"W": np.ones(3)}, {"format": "pt"}),
    ],
    ids=range(8),
)
def test_files_of_somebody_else(path, content):
    path.write_bytes(content)
    assert kind_of(path) is None
    with pytest.raises(ValueError, match="file: it is damaged, or dcdjax did not save it"):
        read(path)


def test_errors_of_the_machine_do_not_say_that_the_file_is_damaged(path):
    with pytest.raises(OSError, match=r"\[Errno 5\] Input/output error: '.*file'"), name_in_errors(path):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    with pytest.raises(MemoryError, match="file: Unable to allocate 3 TiB"), name_in_errors(path):
        raise MemoryError("Unable to allocate 3 TiB")


def test_a_file_is_named_once():
    with pytest.raises(ValueError, match=r"^here: wrong$"), name_in_errors("here"), name_in_errors("here"):
        raise ValueError("wrong")


def test_what_is_no_file(tmp_path):
    for function in (read, kind_of):
        with pytest.raises(FileNotFoundError, match="nowhere"):
            function(tmp_path / "nowhere")
        with pytest.raises(ValueError, match=tmp_path.name):
            function(tmp_path)
