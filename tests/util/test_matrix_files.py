"""What is saved comes back; SciPy's files are read; what is damaged or something else is refused."""

import errno
import gzip
import io
import os
import tracemalloc
import zipfile
from functools import partial

import hypothesis.strategies as st
import numpy as np
import pytest
import safetensors.numpy
import scipy.io
import scipy.sparse
from hypothesis import given

from dcdjax.similarity.matrix_market import read_matrix
from dcdjax.util import store
from dcdjax.util.matrix_files import is_npz, load_matrix, read_npz, save_matrix

DENSE = np.array([[0.0, 2.0, 0.0], [2.0, 0.1, 3.0], [0.0, 3.0, 0.0]])
MATRIX = scipy.sparse.csr_array(DENSE)
WORDS = ("a b", "\n", "é\u2028")
SETTINGS = {"window": 8, "nested": {"x": [1, 2.5, None, "ü"]}}


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "m.safetensors"
    save_matrix(path, MATRIX, WORDS, SETTINGS, kind="counts", extra=np.arange(4, dtype=np.int32))
    return path


def test_what_is_saved_comes_back(saved):
    matrix, words, settings, arrays = load_matrix(saved, kind="counts")
    np.testing.assert_array_equal(matrix.toarray(), DENSE)
    assert words == WORDS
    assert settings == SETTINGS
    assert list(arrays) == ["extra"]
    np.testing.assert_array_equal(arrays["extra"], np.arange(4))
    assert arrays["extra"].dtype == np.int32


def test_safetensors_reads_it_too(saved):
    arrays = safetensors.numpy.load_file(saved)
    matrix = scipy.sparse.csr_array((arrays["data"], arrays["indices"], arrays["indptr"]))
    np.testing.assert_array_equal(matrix.toarray(), DENSE)


@given(words=st.lists(st.text(max_size=5), max_size=6), data=st.data())
def test_any_words_come_back(tmp_path_factory, words, data):
    path = tmp_path_factory.mktemp("any") / "m.safetensors"
    dense = np.array(data.draw(st.lists(st.floats(), min_size=len(words), max_size=len(words))))
    diagonal = (dense, np.arange(len(words)), np.arange(len(words) + 1))
    matrix = scipy.sparse.csr_array(diagonal, shape=(len(words), len(words)))
    save_matrix(path, matrix, words, {}, kind="counts")
    stored = load_matrix(path, kind="counts", mapped=len(words) % 2 == 1)
    assert stored.words == tuple(words)
    assert stored.settings == {}
    np.testing.assert_array_equal(stored.matrix.diagonal(), dense)


@pytest.mark.parametrize("index_dtype", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.bool_])
def test_dtypes(tmp_path, dtype, index_dtype):
    matrix = scipy.sparse.csr_array(DENSE.astype(dtype))
    matrix.indices, matrix.indptr = matrix.indices.astype(index_dtype), matrix.indptr.astype(index_dtype)
    save_matrix(tmp_path / "m.safetensors", matrix, None, {}, kind="counts")
    stored = load_matrix(tmp_path / "m.safetensors", kind="counts")
    np.testing.assert_array_equal(stored.matrix.toarray(), DENSE.astype(dtype))
    assert stored.words is None


def test_the_other_byte_order(tmp_path):
    swapped = {name: array.astype(array.dtype.newbyteorder(">")) for name, array in CSR.items()}
    np.savez(tmp_path / "m.npz", **swapped)
    matrix = read_npz(tmp_path / "m.npz")
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
    tracemalloc.start()
    save_matrix(tmp_path / "m.safetensors", matrix, None, {}, kind="counts")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20  # of 12 MB
    stored = load_matrix(tmp_path / "m.safetensors", kind="counts", mapped=True)
    np.testing.assert_array_equal(stored.matrix.data, data)


def test_the_same_is_saved_the_same(tmp_path, saved):
    extra = np.arange(4, dtype=np.int32)
    save_matrix(tmp_path / "again", MATRIX, list(WORDS), SETTINGS, kind="counts", extra=extra)
    assert (tmp_path / "again").read_bytes() == saved.read_bytes()


@pytest.mark.parametrize(
    ("words", "arrays", "message"),
    [
        (("a", "b"), {}, "m.safetensors: 2 words for 3 rows"),
        (("a", "b", "c\ud800"), {}, r"m.safetensors: .* can't encode character '\\ud800'"),
        (None, {"indptr": np.arange(3)}, "m.safetensors: the name 'indptr' is taken"),
        (None, {"extra": np.array([None])}, r"m.safetensors: tensors\['extra'\] is of object"),
    ],
)
def test_what_cannot_be_saved(tmp_path, words, arrays, message):
    with pytest.raises(ValueError, match=message):
        save_matrix(tmp_path / "m.safetensors", MATRIX, words, {}, kind="counts", **arrays)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_no_wrong_matrix(saved, monkeypatch):
    before = saved.read_bytes()

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*m\.safetensors'"):
        save_matrix(saved, MATRIX, None, {}, kind="counts")
    assert saved.read_bytes() == before


def test_another_kind_is_refused(saved, tmp_path):
    with pytest.raises(ValueError, match=r"m\.safetensors: it holds counts, not similarity"):
        load_matrix(saved, kind="similarity")
    scipy.sparse.save_npz(tmp_path / "s.npz", MATRIX)
    with pytest.raises(ValueError, match=r"s\.npz: it is damaged, or dcdjax did not save it"):
        load_matrix(tmp_path / "s.npz", kind="counts")


@pytest.mark.parametrize("layout", ["csr", "csc", "coo"])
@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("kind", ["array", "matrix"])
def test_files_of_scipy(tmp_path, layout, compressed, kind):
    dense = np.concatenate([DENSE, [[7.0, 0.0, 0.0]]])  # rows and columns must not change places
    matrix = getattr(scipy.sparse, f"{layout}_{kind}")(dense)
    scipy.sparse.save_npz(tmp_path / "s.npz", matrix, compressed=compressed)
    assert is_npz(tmp_path / "s.npz")
    np.testing.assert_array_equal(read_npz(tmp_path / "s.npz").toarray(), dense)


@pytest.mark.parametrize("layout", ["bsr", "dia"])
def test_other_formats_of_scipy_are_refused(tmp_path, layout):
    scipy.sparse.save_npz(tmp_path / "s.npz", MATRIX.asformat(layout))
    with pytest.raises(
        ValueError, match=rf"s\.npz: it holds the sparse format '{layout}': save matrix.tocsr"
    ):
        read_npz(tmp_path / "s.npz")


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
        (CSR | {"indptr": [0, 2, 1, 5]}, "'indptr' decreases at 1"),
        (CSR | {"indptr": [0, 99, 5, 5]}, "'indptr' decreases at 1"),
        (CSR | {"indptr": [0, 1, 4, 4]}, "'indptr' must rise from 0 to 5 in 3 steps"),
        (CSR | {"indptr": [1, 1, 4, 5]}, "'indptr' must rise"),
        (CSR | {"indptr": [0, 1, 5]}, "'indptr' must rise"),
        (CSR | {"indptr": np.array([0, 1, 4, 5.0])}, "'indptr' must be integers in one dimension"),
        (CSR | {"indptr": [0, 9, 0, 0], "indices": np.array([], int), "data": []}, "'indptr' decreases at 1"),
        (CSR | {"indices": [1, 0, 1, 3, 1]}, r"indices\[3\] = 3 is outside of 0 to 2"),
        (CSR | {"indices": [1, -1, 1, 2, 1]}, r"indices\[1\] = -1 is outside"),
        (CSR | {"indices": np.array([2**63, 0, 1, 2, 1], np.uint64)}, r"indices\[0\] = 9223372036854775808"),
        (CSR | {"indices": [1, 0, 1, 2]}, "'indices' has 4 entries where the data have 5"),
        (CSR | {"indices": [[1, 0, 1, 2, 1]]}, "'indices' must be integers in one dimension"),
        (CSR | {"data": np.ones((5, 1))}, "data of 2 dimensions"),
        (CSR | {"data": np.array([object()] * 5)}, "'data' is pickled"),
        (CSR | {"shape": [3]}, r"it holds no matrix: shape \[3\]"),
        (CSR | {"shape": [-3, 3]}, r"it holds no matrix: shape \[-3, 3\]"),
        (CSR | {"shape": [2**62, 3]}, "says it has 4611686018427387904 rows, but has only 5 nonzeros"),
        (CSR | {"format": np.array(b"xyz")}, "the sparse format 'xyz'"),
        (CSR | {"format": np.array([1, 2])}, ""),
        (CSR | {"format": np.array(object())}, "'format' is pickled"),
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
        read_npz(tmp_path / "t.npz")


CONTENT = {"shape": [3, 3], "words": list(WORDS), "settings": SETTINGS}
TENSORS = {"data": MATRIX.data, "indices": MATRIX.indices, "indptr": MATRIX.indptr}


@pytest.mark.parametrize(
    ("content", "tensors", "message"),
    [
        (CONTENT | {"words": ["a", "b"]}, {}, "it has 2 words for 3 rows"),
        (CONTENT | {"words": 3}, {}, "its words are no list"),
        (CONTENT | {"words": "abc"}, {}, "its words are no list"),
        (CONTENT | {"settings": []}, {}, "its settings no record"),
        (CONTENT | {"shape": [3]}, {}, r"it holds no matrix: shape \[3\]"),
        (CONTENT | {"shape": [3, 2]}, {}, r"indices\[3\] = 2 is outside of 0 to 1"),
        (CONTENT | {"shape": [3.0, 3.0]}, {}, "'shape' must be integers"),
        (CONTENT | {"shape": None}, {}, "'shape' must be integers"),
        ({"shape": [3, 3]}, {}, "words"),
        ({}, {}, "shape"),
        (CONTENT, {"indptr": np.array([0, 2, 1, 5])}, "'indptr' decreases at 1"),
        (CONTENT, {"indptr": np.array([0, 1, 4, 4])}, "'indptr' must rise from 0 to 5 in 3 steps"),
        (CONTENT, {"indices": np.array([1, 0, 1, 3, 1])}, r"indices\[3\] = 3 is outside of 0 to 2"),
        (CONTENT, {"indices": np.array([1.0, 0, 1, 2, 1])}, "'indices' must be integers in one dimension"),
        (CONTENT, {"data": np.ones((5, 1))}, "data of 2 dimensions"),
        (CONTENT, {"data": np.ones(4)}, "'indices' has 5 entries where the data have 4"),
    ],
)
@pytest.mark.parametrize("mapped", [True, False])
def test_tampered_files_with_the_right_digest_are_refused(tmp_path, content, tensors, message, mapped):
    store.write(tmp_path / "m.safetensors", TENSORS | tensors, content, kind="counts")
    with pytest.raises(ValueError, match=rf"m\.safetensors: .*{message}"):
        load_matrix(tmp_path / "m.safetensors", kind="counts", mapped=mapped)


def test_a_missing_array(tmp_path):
    tensors = {name: TENSORS[name] for name in ("data", "indices")}
    store.write(tmp_path / "m.safetensors", tensors, CONTENT, kind="counts")
    with pytest.raises(ValueError, match=r"m\.safetensors: it holds no array 'indptr'"):
        load_matrix(tmp_path / "m.safetensors", kind="counts")


def test_a_lying_header_claims_no_memory(tmp_path):
    """An array said to be of 2^60 bytes, with its checksum right."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"shape": (2**57,), "fortran_order": False, "descr": "<f8"})
    scipy.sparse.save_npz(tmp_path / "s.npz", MATRIX)
    with zipfile.ZipFile(tmp_path / "s.npz") as old:
        members = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(tmp_path / "s.npz", "w") as new:
        for name, content in {**members, "data.npy": header.getvalue()}.items():
            new.writestr(name, content)
    with pytest.raises(ValueError, match=r"s\.npz: array 'data' should have \d+ bytes, but has 128"):
        read_npz(tmp_path / "s.npz")


@pytest.mark.parametrize(
    ("bomb", "message"),
    [
        ({"data": np.zeros(4_000_000)}, "'indices' has 5 entries where the data have 4000000"),
        ({"data": np.zeros(4_000_000), "indices": np.zeros(4_000_000, int)}, "'indptr' must rise"),
        ({"shape": np.zeros(4_000_000, int)}, "array 'shape' has 32000000 bytes"),
        ({"format": np.array(" " * 8_000_000)}, "array 'format' has entries of 32000000 bytes"),
        ({"more": np.zeros(4_000_000)}, "more than a sparse matrix"),
    ],
)
def test_what_a_bomb_declares_is_compared_before_it_is_inflated(tmp_path, bomb, message):
    indptr = {"indptr": np.array([0, 2])} if "indices" in bomb else {}
    np.savez_compressed(tmp_path / "b.npz", **CSR | bomb | indptr)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=rf"b\.npz: .*{message}"):
            read_npz(tmp_path / "b.npz")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20  # of 32 MB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_other_compressions_than_numpys_are_refused(tmp_path, method):
    scipy.sparse.save_npz(tmp_path / "s.npz", MATRIX)
    with zipfile.ZipFile(tmp_path / "s.npz") as old, zipfile.ZipFile(tmp_path / "t.npz", "w", method) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    with pytest.raises(ValueError, match=r"t\.npz: array '\w+' is compressed by another method"):
        read_npz(tmp_path / "t.npz")


def test_damaged_files_of_scipy(tmp_path):
    scipy.sparse.save_npz(tmp_path / "s.npz", MATRIX, compressed=False)
    content = (tmp_path / "s.npz").read_bytes()
    for length in range(0, len(content), 13):
        (tmp_path / "s.npz").write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"s\.npz: "):
            read_npz(tmp_path / "s.npz")
    place = content.index(MATRIX.data.tobytes()) + 3
    (tmp_path / "s.npz").write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    with pytest.raises(ValueError, match=r"s\.npz: Bad CRC-32 for file 'data.npy'"):
        read_npz(tmp_path / "s.npz")


def test_a_missing_file():
    for read in (partial(load_matrix, kind="counts"), read_npz, read_matrix, is_npz):
        with pytest.raises(FileNotFoundError, match=r"nowhere\.npz"):
            read("nowhere.npz")


def test_a_folder_is_no_file(tmp_path):
    for read in (partial(load_matrix, kind="counts"), read_npz, read_matrix, is_npz):
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
    triangle = "".join(f"{value}\n" for column, row in enumerate(DENSE) for value in row[column:])
    (tmp_path / "t.mtx").write_text(f"%%MatrixMarket matrix array real symmetric\n3 3\n{triangle}")
    np.testing.assert_array_equal(read_matrix(tmp_path / "t.mtx"), DENSE)
    rectangle = np.arange(6.0).reshape(2, 3)
    scipy.io.mmwrite(tmp_path / "r.mtx", rectangle, symmetry="general")
    np.testing.assert_array_equal(read_matrix(tmp_path / "r.mtx"), rectangle)


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
        (BANNER + b"3 3 1\n1 2 1.0\n2 1 1.0\n", "more than the 1 entries that line 2 says"),
        (BANNER + b"3 3 1\n1 4 1.0\n", "line 3: '1 4 1.0' has a column outside of 1 to 3"),
        (BANNER + b"%\n\n3 3 1\n\n0 1 1.0\n", "line 6: '0 1 1.0' has a row outside of 1 to 3"),
        (BANNER + b"3 3 1\n1 2 many\n", "line 3: '1 2 many' is not a row, a column and a number"),
        # With these SciPy's reader ends the process.
        (BANNER + b"3 3 2\n1 2 5\n2 1 5x", "line 4: '2 1 5x' is not a row"),
        (BANNER + b"3 3 2\n1 2 5\n2 1 5\0\n", r"line 4: '2 1 5\\x00' is not a row"),
        (gzip.compress(BANNER + b"3 3 2\n1 2 5\n2 1 5e", mtime=0), "line 4: '2 1 5e' is not a row"),
        (BANNER + b"3 3 2\n" + b"1 2 5\n" * 999 + b"2 1 5 7\n", "line 1002: '2 1 5 7' is not a row"),
        (BANNER + b"3 3 1\n1 2 " + b"1" * 70_000 + b"x", "line 3: '1 2 1+...' is not a row"),
        (BANNER + b"3 -3 1\n", "line 2: '3 -3 1' are no sizes"),
        (BANNER.replace(b"general", b"symmetric") + b"3 2 0\n", "a symmetric matrix is square, got 3 x 2"),
        (BANNER.replace(b"matrix c", b"vector c"), "line 1: '%%matrixmarket vector .*' is no known kind"),
        (BANNER.replace(b"coordinate", b"array") + b"2 2\n1\n2\n3 4\n", "line 5: '3 4' is not a number"),
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


@pytest.mark.parametrize("end", ["", " ", "\t", "\r", "\r\n", " \n \n", "\n\r"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_blanks_at_the_end_of_matrix_market_do_no_harm(tmp_path, end, pack):
    (tmp_path / "m.mtx").write_bytes(pack(BANNER + f"2 2 2\n1 2 5\n2 1 5{end}".encode()))
    matrix = scipy.sparse.csr_array(read_matrix(tmp_path / "m.mtx"))
    np.testing.assert_array_equal(matrix.toarray(), [[0, 5], [5, 0]])


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (b"3 3 99999999999999\n", "it says it has 99999999999999 nonzeros, but only 3 x 3 entries"),
        (b"9999999 9999999 9999999999999\n", "it ends after 1 of the 9999999999999 entries"),
    ],
)
def test_a_lying_matrix_market_claims_no_memory(tmp_path, sizes, message):
    (tmp_path / "m.mtx").write_bytes(BANNER + sizes + b"1 2 1.0\n")
    with pytest.raises(ValueError, match=rf"m\.mtx: .*{message}"):
        read_matrix(tmp_path / "m.mtx")


@pytest.mark.parametrize("filling", [b"1 2 1\n", b"1", b"\n"])
def test_a_bomb_of_matrix_market_claims_no_memory(tmp_path, filling):
    """60 MB of text in a file of 60 kB."""
    with gzip.GzipFile(tmp_path / "m.mtx.gz", "wb", compresslevel=1) as file:
        file.write(BANNER + b"3 3 2\n")
        for _ in range(60):
            file.write(filling * (1_000_000 // len(filling)))
    tracemalloc.start()
    try:
        with pytest.raises(
            ValueError, match=r"m\.mtx\.gz: (it has more than|line 3 is longer|it ends after 0)"
        ):
            read_matrix(tmp_path / "m.mtx.gz")
        assert tracemalloc.get_traced_memory()[1] < 45e6
    finally:
        tracemalloc.stop()
