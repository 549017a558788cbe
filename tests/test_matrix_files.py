"""What is saved comes back, in scipy too; what is damaged, tampered with or something else is refused."""

import gzip
import io
import json
import tracemalloc
import zipfile

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import given

from dcdjax import matrix_files
from dcdjax.matrix_files import load_matrix, save_matrix
from dcdjax.matrix_market import read_matrix

DENSE = np.array([[0.0, 2.0, 0.0], [2.0, 0.1, 3.0], [0.0, 3.0, 0.0]])
MATRIX = scipy.sparse.csr_array(DENSE)
WORDS = ("a b", "\n", "é\u2028")
SETTINGS = {"kind": "counts", "window": 8, "nested": {"x": [1, 2.5, None, "ü"]}}


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "m.npz"
    save_matrix(path, MATRIX, WORDS, SETTINGS, extra=np.arange(4, dtype=np.int16))
    return path


def test_what_is_saved_comes_back(saved):
    matrix, words, settings, arrays = load_matrix(saved, kind="counts")
    np.testing.assert_array_equal(matrix.toarray(), DENSE)
    assert words == WORDS
    assert settings == SETTINGS
    assert list(arrays) == ["extra"]
    np.testing.assert_array_equal(arrays["extra"], np.arange(4))
    assert arrays["extra"].dtype == np.int16


def test_scipy_reads_it_too(saved):
    matrix = scipy.sparse.load_npz(saved)
    np.testing.assert_array_equal(matrix.toarray(), DENSE)
    assert matrix.format == "csr"


@given(words=st.lists(st.text(max_size=5), max_size=6), data=st.data())
def test_any_words_come_back(tmp_path_factory, words, data):
    path = tmp_path_factory.mktemp("any") / "m.npz"
    dense = np.array(data.draw(st.lists(st.floats(), min_size=len(words), max_size=len(words))))
    diagonal = (dense, np.arange(len(words)), np.arange(len(words) + 1))
    matrix = scipy.sparse.csr_array(diagonal, shape=(len(words), len(words)))
    save_matrix(path, matrix, words, {})
    stored = load_matrix(path)
    assert stored.words == tuple(words)
    assert stored.settings == {}
    np.testing.assert_array_equal(stored.matrix.diagonal(), dense)


@pytest.mark.parametrize("index_dtype", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.bool_])
def test_dtypes(tmp_path, dtype, index_dtype):
    matrix = scipy.sparse.csr_array(DENSE.astype(dtype))
    matrix.indices, matrix.indptr = matrix.indices.astype(index_dtype), matrix.indptr.astype(index_dtype)
    save_matrix(tmp_path / "m.npz", matrix, None, {})
    stored = load_matrix(tmp_path / "m.npz")
    np.testing.assert_array_equal(stored.matrix.toarray(), DENSE.astype(dtype))
    assert stored.words is None


def test_the_other_byte_order(tmp_path):
    swapped = {name: array.astype(array.dtype.newbyteorder(">")) for name, array in CSR.items()}
    np.savez(tmp_path / "m.npz", **swapped)
    matrix = load_matrix(tmp_path / "m.npz").matrix
    np.testing.assert_array_equal(matrix.toarray(), DENSE)
    assert matrix.dtype == np.float64  # which ">f8" is not


def test_a_mapped_matrix_is_streamed(tmp_path):
    num_words, nonzeros = 1000, 1_000_000
    data = np.memmap(tmp_path / "data", np.float64, "w+", shape=(nonzeros,))
    indices = np.memmap(tmp_path / "indices", np.int32, "w+", shape=(nonzeros,))
    data[:] = np.random.default_rng(0).random(nonzeros)
    indices[:] = np.tile(np.arange(num_words), nonzeros // num_words)
    starts = np.arange(0, nonzeros + 1, num_words, dtype=np.int32)
    matrix = scipy.sparse.csr_array((data, indices, starts), shape=(num_words, num_words))
    buffer = 16 << 20  # NumPy writes arrays in pieces of at most this
    tracemalloc.start()
    save_matrix(tmp_path / "m.npz", matrix, None, {})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * buffer
    np.testing.assert_array_equal(load_matrix(tmp_path / "m.npz").matrix.data, data)
    with zipfile.ZipFile(tmp_path / "m.npz") as archive:
        assert archive.getinfo("data.npy").compress_type == zipfile.ZIP_STORED


def test_the_same_is_saved_the_same(tmp_path, saved):
    save_matrix(tmp_path / "again", MATRIX, list(WORDS), SETTINGS, extra=np.arange(4, dtype=np.int16))
    assert (tmp_path / "again").read_bytes() == saved.read_bytes()


def test_a_failed_save_leaves_the_old_file(saved, monkeypatch):
    before = saved.read_bytes()

    def full(file, **_):
        file.write(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space"):
        save_matrix(saved, MATRIX, None, {})
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == ["m.npz"]


@pytest.mark.parametrize(
    ("words", "arrays", "message"),
    [
        (("a", "b"), {}, "m.npz: 2 words for 3 rows"),
        (("a", "b", "c\ud800"), {}, "m.npz: the word 'c\\\\ud800' is not Unicode"),
        (None, {"indptr": np.arange(3)}, "m.npz: the name 'indptr' is taken"),
        (None, {"settings": None}, None),
        (None, {"extra": np.array([None])}, "m.npz: array 'extra' holds Python objects"),
    ],
)
def test_what_cannot_be_saved(tmp_path, words, arrays, message):
    if message is None:
        with pytest.raises(TypeError):
            save_matrix(tmp_path / "m.npz", MATRIX, words, {}, **arrays)
        return
    with pytest.raises(ValueError, match=message):
        save_matrix(tmp_path / "m.npz", MATRIX, words, {}, **arrays)
    assert not list(tmp_path.iterdir())


def test_another_kind_is_refused(saved, tmp_path):
    with pytest.raises(ValueError, match=r"m\.npz: it holds counts, not similarity"):
        load_matrix(saved, kind="similarity")
    scipy.sparse.save_npz(tmp_path / "s.npz", MATRIX)
    with pytest.raises(ValueError, match=r"s\.npz: it holds a matrix that dcdjax did not save, not counts"):
        load_matrix(tmp_path / "s.npz", kind="counts")


@pytest.mark.parametrize("layout", ["csr", "csc", "coo"])
@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("kind", ["array", "matrix"])
def test_files_of_scipy(tmp_path, layout, compressed, kind):
    dense = np.concatenate([DENSE, [[7.0, 0.0, 0.0]]])  # rows and columns must not change places
    matrix = getattr(scipy.sparse, f"{layout}_{kind}")(dense)
    scipy.sparse.save_npz(tmp_path / "s.npz", matrix, compressed=compressed)
    stored = load_matrix(tmp_path / "s.npz")
    np.testing.assert_array_equal(stored.matrix.toarray(), dense)
    assert (stored.words, stored.settings, stored.arrays) == (None, {}, {})


@pytest.mark.parametrize("layout", ["bsr", "dia"])
def test_other_formats_of_scipy_are_refused(tmp_path, layout):
    scipy.sparse.save_npz(tmp_path / "s.npz", MATRIX.asformat(layout))
    with pytest.raises(
        ValueError, match=rf"s\.npz: it holds the sparse format '{layout}': save matrix.tocsr"
    ):
        load_matrix(tmp_path / "s.npz")


CSR = {
    "format": np.array(b"csr"),
    "shape": np.array([3, 3]),
    "data": MATRIX.data,
    "indices": MATRIX.indices,
    "indptr": MATRIX.indptr,
}
COO = {"format": "coo", "shape": [3, 3], "data": [1.0, 2.0], "row": [0, 1], "col": [1, 0]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (CSR | {"indptr": [0, 2, 1, 5]}, "'indptr' falls at 1"),
        (CSR | {"indptr": [0, 99, 5, 5]}, "'indptr' falls at 1"),
        (CSR | {"indptr": [0, 1, 4, 4]}, "'indptr' does not lead from 0 to 5 in 3 steps"),
        (CSR | {"indptr": [1, 1, 4, 5]}, "'indptr' does not lead"),
        (CSR | {"indptr": [0, 1, 5]}, "'indptr' does not lead"),
        (CSR | {"indptr": np.array([0, 1, 4, 5.0])}, "'indptr' must be integers in one dimension"),
        (CSR | {"indptr": [0, 9, 0, 0], "indices": np.array([], int), "data": []}, "'indptr' falls at 1"),
        (CSR | {"indices": [1, 0, 1, 3, 1]}, r"indices\[3\] = 3 is outside of 0 to 2"),
        (CSR | {"indices": [1, -1, 1, 2, 1]}, r"indices\[1\] = -1 is outside"),
        (CSR | {"indices": np.array([2**63, 0, 1, 2, 1], np.uint64)}, r"indices\[0\] = 9223372036854775808"),
        (CSR | {"indices": [1, 0, 1, 2]}, "'indices' has 4 entries where the data have 5"),
        (CSR | {"indices": [[1, 0, 1, 2, 1]]}, "'indices' must be integers in one dimension"),
        (CSR | {"data": np.ones((5, 1))}, "data of 2 dimensions"),
        (CSR | {"data": np.array([object()] * 5)}, "'data' holds Python objects, which are never unpickled"),
        (CSR | {"shape": [3]}, r"it holds no matrix: shape \[3\]"),
        (CSR | {"shape": [-3, 3]}, r"it holds no matrix: shape \[-3, 3\]"),
        (CSR | {"shape": [2**62, 3]}, "'indptr' does not lead"),
        (CSR | {"format": np.array(b"xyz")}, "the sparse format 'xyz'"),
        (CSR | {"format": np.array([1, 2])}, ""),
        (CSR | {"format": np.array(object())}, "never unpickled"),
        (CSR | {"more": [1]}, "which is more than a sparse matrix"),
        (
            {k: v for k, v in CSR.items() if k != "indptr"},
            "no array 'indptr', which the sparse format csr needs",
        ),
        ({k: v for k, v in CSR.items() if k != "format"}, "it holds no sparse matrix, only"),
        (COO | {"row": [0, 3]}, r"row\[1\] = 3 is outside of 0 to 2"),
        (COO | {"col": [-1, 0]}, r"col\[0\] = -1 is outside of 0 to 2"),
        (COO | {"shape": [2**40, 2**40]}, "says it has 1099511627776 rows, but has only 2 nonzeros"),
        ({"x": [1]}, r"it holds no sparse matrix, only \['x'\]"),
    ],
)
def test_tampered_arrays_are_refused(tmp_path, content, message):
    np.savez(tmp_path / "t.npz", **content)
    with pytest.raises(ValueError, match=rf"t\.npz: .*{message}"):
        load_matrix(tmp_path / "t.npz")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"word_ends": np.array([3, 2, 7])}, "its words do not end where they should"),
        ({"word_ends": np.array([3, 4, 99])}, "its words do not end where they should"),
        ({"word_ends": np.array([-1, 4, 9])}, "its words do not end where they should"),
        ({"word_ends": np.array([3, 4])}, "its words are not those of 3 rows"),
        ({"word_ends": np.array([3.0, 4, 9])}, "its words are not those of 3 rows"),
        ({"words": np.frombuffer(b"a b\n\xff\xff\xff\xff\xff", np.uint8)}, "codec can't decode"),
        ({"settings": np.frombuffer(b"{", np.uint8)}, "Expecting property name"),
        ({"settings": np.frombuffer(b"[]", np.uint8)}, ""),
        ({"settings": np.frombuffer(b'{"settings": 3, "arrays": []}', np.uint8)}, ""),
        (
            {"settings": np.frombuffer(json.dumps({"settings": {}, "arrays": []}).encode(), np.uint8)},
            "should hold",
        ),
        ({"kept": np.arange(3)}, "should hold"),
    ],
)
def test_tampered_records_are_refused(saved, change, message):
    with np.load(saved) as content:
        np.savez(saved, **{**content, **change})
    with pytest.raises(ValueError, match=rf"m\.npz: .*{message}"):
        load_matrix(saved)


def test_a_lying_header_claims_no_memory(saved):
    """An array said to be of 2^60 bytes, with its checksum right."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"shape": (2**57,), "fortran_order": False, "descr": "<f8"})
    with zipfile.ZipFile(saved) as old:
        members = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(saved, "w") as new:
        for name, content in {**members, "data.npy": header.getvalue()}.items():
            new.writestr(name, content)
    with pytest.raises(ValueError, match="'data' is not as long as its shape"):
        load_matrix(saved)


def test_a_missing_file():
    for read in (load_matrix, read_matrix, matrix_files.is_archive):
        with pytest.raises(FileNotFoundError, match=r"nowhere\.npz"):
            read("nowhere.npz")


def test_a_folder_is_no_file(tmp_path):
    for read in (load_matrix, read_matrix, matrix_files.is_archive):
        with pytest.raises(ValueError, match=tmp_path.name):
            read(tmp_path)


@pytest.mark.parametrize("name", ["m.mtx", "m.mtx.gz", "anything"])
@pytest.mark.parametrize("symmetry", ["general", "symmetric"])
@pytest.mark.parametrize("field", ["real", "integer", "pattern"])
def test_matrix_market(tmp_path, name, symmetry, field):
    dense = DENSE if field == "real" else np.ceil(DENSE)
    content = io.BytesIO()
    scipy.io.mmwrite(content, scipy.sparse.coo_array(dense), field=field, symmetry=symmetry)
    text = content.getvalue()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    matrix = scipy.sparse.csr_array(read_matrix(tmp_path / name))
    expected = dense > 0 if field == "pattern" else dense
    np.testing.assert_array_equal(matrix.toarray(), expected)


def test_dense_matrix_market(tmp_path):
    scipy.io.mmwrite(tmp_path / "d.mtx", DENSE)
    np.testing.assert_array_equal(read_matrix(tmp_path / "d.mtx"), DENSE)


BANNER = b"%%MatrixMarket matrix coordinate real general\n"
GZIPPED = gzip.compress(BANNER + b"3 3 1\n1 2 1.0\n", mtime=0)  # test ids contain it


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "neither a .npz nor a Matrix Market file"),
        (b"1 2 3\n", "neither a .npz nor a Matrix Market file"),
        (b"\x93NUMPY\x01\x00", "neither a .npz nor a Matrix Market file"),
        (BANNER.replace(b"real", b"complex"), "it holds a complex matrix"),
        (BANNER.replace(b"general", b"hermitian"), "it holds a hermitian matrix"),
        (BANNER.replace(b"general", b"skew-symmetric"), "it holds a skew-symmetric matrix"),
        (BANNER, "m.mtx: "),
        (BANNER + b"3 3 2\n1 2 1.0\n", "m.mtx: "),
        (BANNER + b"3 3 1\n1 2 1.0\n2 1 1.0\n", "Too many lines"),
        (BANNER + b"3 3 1\n1 4 1.0\n", "index out of bounds"),
        (BANNER + b"3 3 1\n0 1 1.0\n", "index out of bounds"),
        (BANNER + b"3 3 1\n1 2 many\n", "Line 3: Invalid"),
        (BANNER + b"3 3 99999999999999\n1 2 1.0\n", "m.mtx: "),
        (BANNER + b"99999999999 99999999999 1\n1 2 1.0\n", "says it has 99999999999 rows, but has only 1"),
        (GZIPPED[:-9], "m.mtx: "),
        (GZIPPED[:-8] + bytes(8), "CRC check failed"),
        (b"\x1f\x8b garbage", "m.mtx: "),
    ],
)
def test_wrong_matrix_market_is_refused(tmp_path, content, message):
    (tmp_path / "m.mtx").write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_matrix(tmp_path / "m.mtx")
    assert "m.mtx" in str(caught.value)
