"""What is written comes back exactly, as other tools read it; what would not is refused first."""

import errno
import os
import re
import tracemalloc

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given

from dcdjax.embedding import export
from dcdjax.embedding.export import write_numpy, write_projector, write_word2vec

WORDS = ["sun", "é", "日本", "a\u00a0b", "\u200b", "#", '"q', "0.5", "\U0001f600", "w" * 60]
VECTORS = np.random.default_rng(0).dirichlet(np.ones(3), len(WORDS)).astype(np.float32)
# All that float32 has: the smallest, the largest, both zeros, and what is another number when rounded twice.
HARD = np.array([1e-45, 1.1754942e-38, 3.4028235e38, -0.0, 0.0, 1 / 3, -1e-7, 16777216.0], np.float32)
HARD = np.append(HARD, np.array([0x15AE43FD], np.uint32).view(np.float32))


def read_word2vec(path, binary):
    models = pytest.importorskip("gensim.models")
    read = models.KeyedVectors.load_word2vec_format(path, binary=binary)
    return list(read.index_to_key), read.vectors


def read_numpy(path):
    with np.load(path, allow_pickle=False) as content:
        assert sorted(content) == ["vectors", "words"]
        assert content["words"].dtype.kind == "U"
        return content["words"].tolist(), content["vectors"]


def read_projector(folder):
    """As the projector does it: blank lines do not count, a tab in the first line makes it a header."""
    lines = (folder / "vectors.tsv").read_bytes().decode("utf-8-sig").split("\n")
    vectors = [[float(number) for number in line.split("\t")] for line in lines if line.strip()]
    lines = (folder / "metadata.tsv").read_bytes().decode("utf-8-sig").split("\n")
    cells = [line.split("\t") for line in lines if line.strip(" \t\n\v\f\r\u00a0\ufeff\u2028\u2029\u3000")]
    header = cells.pop(0) if cells and len(cells[0]) > 1 else ["label"]
    return dict(zip(header, zip(*cells, strict=True), strict=True)), np.array(vectors, np.float32)


def bits(vectors):
    return np.asarray(vectors, np.float32).view(np.uint32).tolist()


WRITERS = {
    "text": lambda path, words, vectors: write_word2vec(path / "v.txt", words, vectors),
    "binary": lambda path, words, vectors: write_word2vec(path / "v.bin", words, vectors, binary=True),
    "numpy": lambda path, words, vectors: write_numpy(path / "v.npz", words, vectors),
    "projector": write_projector,
}
READERS = {
    "text": lambda path: read_word2vec(path / "v.txt", False),
    "binary": lambda path: read_word2vec(path / "v.bin", True),
    "numpy": lambda path: read_numpy(path / "v.npz"),
    "projector": lambda path: (list(read_projector(path)[0]["label"]), read_projector(path)[1]),
}
every_format = pytest.mark.parametrize("how", list(WRITERS))
as_float32 = pytest.mark.parametrize("how", ["text", "binary", "projector"])


@every_format
def test_words_and_bits_come_back(tmp_path, how):
    WRITERS[how](tmp_path, WORDS, VECTORS)
    words, vectors = READERS[how](tmp_path)
    assert words == WORDS
    assert vectors.dtype == np.float32
    assert bits(vectors) == bits(VECTORS)


def test_the_text_is_what_word2vec_writes(tmp_path):
    write_word2vec(tmp_path / "v", ["sun", "é"], np.array([[0.1, -2.0], [1e-10, 3e38]]))
    assert (tmp_path / "v").read_bytes() == "2 2\nsun 0.1 -2\né 1e-10 3e+38\n".encode()


def test_the_bytes_are_what_word2vec_writes(tmp_path):
    write_word2vec(tmp_path / "v", ("sun", "é"), np.array([[0.1, -2.0], [1e-10, 3e38]]), binary=True)
    rows = [np.array(row, "<f4").tobytes() for row in ([0.1, -2.0], [1e-10, 3e38])]
    assert (tmp_path / "v").read_bytes() == b"2 2\nsun " + rows[0] + b"\n\xc3\xa9 " + rows[1] + b"\n"


@as_float32
def test_hard_numbers(tmp_path, how):
    WRITERS[how](tmp_path, ["x", "y"], np.stack([HARD, -HARD]))
    assert bits(READERS[how](tmp_path)[1]) == bits([HARD, -HARD])


@given(
    hnp.arrays(
        np.float32,
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=5),
        elements=st.floats(allow_nan=False, allow_infinity=False, width=32),
    )
)
def test_any_number_comes_back(tmp_path_factory, vectors):
    folder = tmp_path_factory.mktemp("any")
    words = [f"w{n}" for n in range(len(vectors))]
    for how, write in WRITERS.items():
        write(folder, words, vectors)
        assert READERS[how](folder)[0] == words
        assert bits(READERS[how](folder)[1]) == bits(vectors)


ANY_WORDS = st.lists(
    st.text(
        st.one_of(
            st.characters(exclude_categories=()),
            st.sampled_from("ab \t\n\v\f\r\0\x1c\x1f\x85\u00a0\u2028\u3000\ufeff\ud800"),
        ),
        max_size=5,
    ),
    unique=True,
    min_size=1,
    max_size=4,
)


@every_format
@given(words=ANY_WORDS)
@example(words=["a", "b\0"])
@example(words=["a", "\u00a0"])
@example(words=["\ufeffa"])
@example(words=["a\u00a0", "\u00a0b", "\u2007"])
@example(words=["", "a"])
@example(words=["a", " b"])
@example(words=["a", "b\n"])
@example(words=["a", "b\r"])
@example(words=["a", "b\tc"])
@example(words=["a", "\ud800"])
def test_any_word_comes_back_or_is_refused(tmp_path_factory, how, words):
    folder = tmp_path_factory.mktemp("any")
    vectors = np.arange(2.0 * len(words), dtype=np.float32).reshape(-1, 2)
    try:
        WRITERS[how](folder, words, vectors)
    except ValueError:
        assert not list(folder.iterdir())
    else:
        read_words, read_vectors = READERS[how](folder)
        assert read_words == words
        assert bits(read_vectors) == bits(vectors)


@given(
    words=st.lists(
        st.text("aé日\u00a0\u2009#.-'", min_size=1, max_size=4), unique=True, min_size=1, max_size=4
    )
)
def test_no_harmless_word_is_refused(tmp_path_factory, words):
    folder = tmp_path_factory.mktemp("any")
    for how in ("text", "binary", "numpy"):
        WRITERS[how](folder, words, np.ones((len(words), 1)))
    write_projector(folder, [f"a{word}" for word in words], np.ones((len(words), 1)))


WORD2VEC = "is empty or has white space, NUL or a lone surrogate"
PROJECTOR = "is blank or has a tab, a line break or a lone surrogate"


@pytest.mark.parametrize(
    ("how", "word", "message"),
    [
        *[("text", word, WORD2VEC) for word in ["", " ", "a b", "a\n", "\ta", "a\r", "a\v", "a\fb", "a\0b"]],
        *[("binary", word, WORD2VEC) for word in ["", "a b", "\na", "a\0", "a\udfffb"]],
        *[("projector", word, PROJECTOR) for word in ["", " ", "\u00a0", "a\tb", "a\n", "\ra", "a\x85b"]],
        *[
            ("projector", word, PROJECTOR)
            for word in ["a\u2028b", "a\x1cb", "a\ud800", "\ufeffa", "a\v", "a\f"]
        ],
        *[("numpy", word, "ends in NUL") for word in ["a\0", "\0"]],
    ],
)
def test_the_first_word_that_cannot_be_written_is_named(tmp_path, how, word, message):
    with pytest.raises(ValueError, match=re.escape(f"words[1] = {word!r} {message}")):
        WRITERS[how](tmp_path / "new", ["fine", word, "a b\n\0"], np.ones((3, 2)))
    assert not list(tmp_path.iterdir())


@every_format
@pytest.mark.parametrize(
    ("words", "vectors", "message"),
    [
        (["a"], np.ones((2, 2)), r"1 words for vectors of shape \(2, 2\)"),
        (["a", "b", "a"], np.ones((3, 2)), r"words\[2\] = 'a' is also words\[0\]"),
        (["a", "b"], np.ones(2), r"vectors must be a matrix of floats, got shape \(2,\)"),
        (["a", "b"], np.ones((2, 2, 2)), "vectors must be a matrix"),
        (["a", "b"], np.ones((2, 2), int), "vectors must be a matrix of floats, .* int64"),
        (["a", "b"], np.ones((2, 2), complex), "complex128"),
        (["a", "b"], np.array([[1, 2], [3, np.nan]]), r"vectors\[1, 1\] = nan of the word 'b' is not finite"),
        (
            ["a", "b"],
            np.array([[1, 2], [-np.inf, 1]]),
            r"vectors\[1, 0\] = -inf of the word 'b' is not finite",
        ),
    ],
)
def test_wrong_arguments(tmp_path, how, words, vectors, message):
    with pytest.raises(ValueError, match=message):
        WRITERS[how](tmp_path / "new", words, vectors)
    assert not list(tmp_path.iterdir())


@every_format
def test_words_that_are_not_strings(tmp_path, how, unchecked_annotations):
    with pytest.raises(ValueError, match=r"words\[1\] = 3 is not a string"):
        WRITERS[how](tmp_path / "new", ["a", 3], np.ones((2, 2)))


@as_float32
def test_what_overflows_float32(tmp_path, how):
    vectors = np.ones((3, 2))
    vectors[2, 1] = -1e39
    with pytest.raises(
        ValueError, match=r"vectors\[2, 1\] = -1e\+39 of the word 'c' is not finite in float32"
    ):
        WRITERS[how](tmp_path / "new", list("abc"), vectors)
    assert not list(tmp_path.iterdir())
    write_numpy(tmp_path / "v.npz", list("abc"), vectors)
    np.testing.assert_array_equal(read_numpy(tmp_path / "v.npz")[1], vectors)
    with np.errstate(all="raise"):
        WRITERS[how](tmp_path, list("abc"), vectors.clip(-1e-300, 1e-42))  # what underflows is zero


@as_float32
def test_no_columns(tmp_path, how):
    with pytest.raises(ValueError, match=r"vectors of shape \(2, 0\) have no columns"):
        WRITERS[how](tmp_path / "new", ["a", "b"], np.ones((2, 0)))


@pytest.mark.parametrize("how", ["text", "binary", "numpy"])
def test_no_words(tmp_path, how):
    WRITERS[how](tmp_path, [], np.ones((0, 3)))
    words, vectors = READERS[how](tmp_path)
    assert words == []
    assert vectors.shape == (0, 3)


@every_format
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4", ">f8"])
def test_dtypes_and_layouts(tmp_path, how, dtype):
    vectors = np.asfortranarray(VECTORS.astype(dtype))[::-1, ::2]
    words = [f"w{n}" for n in range(len(vectors))]
    WRITERS[how](tmp_path, words, vectors)
    assert bits(READERS[how](tmp_path)[1]) == bits(vectors)


def test_numpy_keeps_the_dtype(tmp_path):
    vectors = np.random.default_rng(0).random((2, 3))
    write_numpy(tmp_path / "no-extension", ["a", "b"], vectors)
    assert os.listdir(tmp_path) == ["no-extension"]
    np.testing.assert_array_equal(read_numpy(tmp_path / "no-extension")[1], vectors, strict=True)


@every_format
def test_more_than_one_block(tmp_path, how, monkeypatch):
    words = [f"w{n}" for n in range(100)]
    vectors = np.random.default_rng(0).random((100, 7), np.float32)
    WRITERS[how](tmp_path, words, vectors)
    whole = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for block in (1, 7, 20, 700, 701):
        monkeypatch.setattr(export, "BLOCK_ENTRIES", block)
        WRITERS[how](tmp_path, words, vectors)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == whole
    assert READERS[how](tmp_path)[0] == words
    monkeypatch.setattr(export, "BLOCK_ENTRIES", 70)
    vectors[60, 2] = np.nan
    with pytest.raises(ValueError, match=r"vectors\[60, 2\] = nan of the word 'w60'"):
        WRITERS[how](tmp_path, words, vectors)


@as_float32
def test_memory_is_for_a_block_only(tmp_path, how):
    words = [f"w{n}" for n in range(20_000)]
    vectors = np.random.default_rng(0).random((20_000, 100))
    tracemalloc.start()
    WRITERS[how](tmp_path, words, vectors)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    written = max(path.stat().st_size for path in tmp_path.iterdir())
    assert written > (8_000_000 if how == "binary" else 15_000_000)
    assert peak < 6_000_000  # of which the words, in a dict, are 2


@pytest.mark.parametrize("name", ["v.gz", "v.bz2", "v.xz", "v.zst"])
def test_names_of_compressed_files(tmp_path, name):
    with pytest.raises(ValueError, match=f"path .*{name} ends like a compressed file"):
        write_word2vec(tmp_path / name, ["a"], np.ones((1, 2)))
    assert not list(tmp_path.iterdir())


def test_projector_with_further_columns(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    columns = {"count": np.array([7, 5]), "share": [0.5, np.float32(0.1)], "kind": ["é x", ""]}
    write_projector(tmp_path, ["sun", "moon"], np.array([[0.25, 1.0], [1e-9, 0.0]]), columns=columns)
    assert (tmp_path / "vectors.tsv").read_text() == "0.25\t1\n1e-9\t0\n"
    lines = ["word\tcount\tshare\tkind", "sun\t7\t0.5\té x", "moon\t5\t0.1\t", ""]
    assert (tmp_path / "metadata.tsv").read_bytes() == "\n".join(lines).encode()
    assert read_projector(tmp_path)[0]["count"] == ("7", "5")
    write_projector(tmp_path, ["sun", "moon"], np.eye(2), columns={})
    assert (tmp_path / "metadata.tsv").read_bytes() == b"sun\nmoon\n"
    assert sorted(os.listdir(tmp_path)) == ["metadata.tsv", "notes.txt", "vectors.tsv"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"count": [1]}, r"columns\['count'\] has 1 values for 2 words"),
        ({"count": [1, 2, 3]}, r"columns\['count'\] has 3 values for 2 words"),
        ({"word": [1, 2]}, "columns: the name 'word' is 'word'"),
        ({"": [1, 2]}, "columns: the name ''"),
        ({"a\tb": [1, 2]}, r"columns: the name 'a\\tb'"),
        ({"a\n": [1, 2]}, r"columns: the name 'a\\n'"),
        ({"fine": [1, 2], "kind": ["x", "a\tb"]}, r"columns\['kind'\]\[1\] = 'a\\tb' has a tab"),
        ({"kind": ["a\r", "b"]}, r"columns\['kind'\]\[0\] = 'a\\r' has a tab or a line break"),
        ({"kind": ["a", "\ud800"]}, r"columns\['kind'\]\[1\] = '\\ud800'"),
    ],
)
def test_wrong_columns(tmp_path, columns, message):
    with pytest.raises(ValueError, match=message):
        write_projector(tmp_path / "new", ["a", "b"], np.eye(2), columns=columns)
    assert not list(tmp_path.iterdir())


@every_format
@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_failure_leaves_the_old_files(tmp_path, how, monkeypatch, function):
    WRITERS[how](tmp_path, ["a", "b"], np.eye(2))
    old = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def fails(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, function, fails)
    with pytest.raises(OSError, match="No space left"):
        WRITERS[how](tmp_path, ["c", "d"], np.ones((2, 2)))
    with pytest.raises(ValueError, match="not finite"):
        WRITERS[how](tmp_path, ["c", "d"], np.full((2, 2), np.nan))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == old


def test_a_full_disk_leaves_both_files_of_the_projector(tmp_path, monkeypatch):
    """Numbers are many and labels few: what does not fit is seen before either takes its place."""
    write_projector(tmp_path, ["a", "b"], np.eye(2))
    old = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    names, real = [], os.replace

    def replace(source, target):
        names.append(os.path.getsize(source) > 0 and os.path.basename(target))
        # The numbers are no longer in Python's hands, though their file is still open.
        assert all(path.stat().st_size for path in tmp_path.glob(".vectors*.part"))
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    write_projector(tmp_path, ["c", "d"], np.ones((2, 2)))
    assert names == ["metadata.tsv", "vectors.tsv"]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} != old
