"""Counts against a count by hand, in one piece and in many."""

import dataclasses
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import text_oracle
from hypothesis import given
from hypothesis import strategies as st

from dcdjax.counting import cooccurrence, pair_counts
from dcdjax.counting.cooccurrence import count
from dcdjax.counting.spill import SpillArray
from dcdjax.util import matrix_files

plain = partial(count, tokens="blanks")
WEIGHTINGS = ["flat", "linear", "harmonic"]
corpora = st.lists(st.lists(st.sampled_from("abcdefg"), max_size=15), min_size=1, max_size=6).filter(any)


@given(
    corpora,
    st.integers(1, 12),
    st.sampled_from(WEIGHTINGS),
    st.sampled_from(["keep", "drop"]),
    st.sampled_from(["line", "corpus"]),
    st.integers(1, 8),
)
def test_equals_a_count_by_hand(documents, window, weighting, outside, extent, max_words):
    counts = count(
        documents,
        window=window,
        distance_weighting=weighting,
        outside=outside,
        documents=extent,
        max_words=max_words,
    )
    joined = documents if extent == "line" else [[token for tokens in documents for token in tokens]]
    words, frequency = text_oracle.most_frequent(joined, max_words)
    expected = text_oracle.pair_counts(joined, words, window, weighting, outside)
    assert counts.words == tuple(words)
    assert counts.vocabulary.counts.tolist() == frequency
    # To the bit: sums of integers are exact, and divided once.
    np.testing.assert_array_equal(counts.matrix.toarray(), expected)
    assert counts.matrix.has_canonical_format
    assert (counts.matrix.data > 0).all()


def same(first, second):
    return all(
        np.array_equal(getattr(first.matrix, name), getattr(second.matrix, name))
        for name in ("data", "indices", "indptr")
    )


def random_documents(num_documents=60, length=60, num_words=80):
    rng = np.random.default_rng(1)
    return [
        [f"w{n}" for n in rng.zipf(1.3, rng.integers(0, length)) % num_words] for _ in range(num_documents)
    ]


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("window", [1, 5, 30])
@pytest.mark.parametrize(("chunk", "places"), [(100, 7), (10**6, 7), (100, 10**6), (977, 64)])
def test_in_many_pieces(monkeypatch, window, weighting, chunk, places):
    """Chunks of the corpus go through the database, blocks of words through threads: here very small ones."""
    documents = random_documents()
    words, _ = text_oracle.most_frequent(documents, 40)
    expected = text_oracle.pair_counts(documents, words, window, weighting)
    memory = 1 << 30
    monkeypatch.setattr(pair_counts, "BYTES_PER_TOKEN", memory // 4 // chunk)
    monkeypatch.setattr(pair_counts, "LEAST_PLACES", places)
    monkeypatch.setattr(pair_counts, "BYTES_PER_SUM", memory // 4 // 300)
    counts = count(documents, window=window, distance_weighting=weighting, max_words=40, memory=memory)
    np.testing.assert_allclose(counts.matrix.toarray(), expected, rtol=0 if window < 25 else 1e-14)
    assert counts.matrix.has_canonical_format
    assert (np.diff(counts.matrix.indptr) > 0).all()


def test_a_result_larger_than_its_share_is_mapped_from_a_file(monkeypatch):
    documents = random_documents()
    in_memory = count(documents, distance_weighting="linear")
    monkeypatch.setattr(pair_counts, "SpillArray", lambda dtype, limit: SpillArray(dtype, 0))
    mapped = count(documents, distance_weighting="linear")
    for array in (mapped.matrix.data, mapped.matrix.indices):
        while array is not None and not isinstance(array, np.memmap):
            array = array.base
        assert array is not None
    assert same(mapped, in_memory)
    monkeypatch.setattr(pair_counts, "LARGEST_INT32", 100)
    wide = count(documents, distance_weighting="linear")
    assert wide.matrix.indices.dtype == np.int64
    assert same(wide, in_memory)


def test_windows_end_with_the_document():
    assert plain(["a b", "c d"], window=5).matrix.toarray().tolist() == [
        [0, 1, 0, 0],
        [1, 0, 0, 0],
        [0, 0, 0, 1],
        [0, 0, 1, 0],
    ]
    assert plain(["a b", "c d"], window=5, documents="corpus").matrix.nnz == 12
    assert plain(["a b\nc d"], window=5, documents="file").matrix.nnz == 12
    assert plain(["a b\nc d"], window=5).matrix.nnz == 4


def test_places_of_words_outside():
    text = ["a x b", "x a b"]
    kept = plain(text, window=1, drop=["x"])
    assert kept.words == ("a", "b")
    assert kept.matrix.toarray().tolist() == [[0, 1], [1, 0]]
    assert plain(text, window=1, drop=["x"], outside="drop").matrix.toarray().tolist() == [[0, 2], [2, 0]]


def test_the_largest_exact_count():
    """Beyond 2^24 float32 could not count; one weight at a time, but many."""
    counts = count([["a", "b"] * 400_000], window=30, distance_weighting="flat")
    pairs = sum(800_000 - distance for distance in range(1, 31, 2))
    same = sum(800_000 - distance for distance in range(2, 31, 2))
    assert counts.matrix.toarray().tolist() == [[same, pairs], [pairs, same]]


def test_harmonic_sums_are_exact_where_they_can_be():
    assert pair_counts.weights("harmonic", 8).scale == 840
    assert pair_counts.weights("harmonic", 40).scale == 1.0
    by_distance = pair_counts.weights("harmonic", 18)
    assert (by_distance.by_distance % 1 == 0).all()


def test_subsampling_keeps_words_as_often_as_word2vec():
    rng = np.random.default_rng(0)
    documents = [["often"] * 8 + ["seldom"] * 2 for _ in range(2000)]
    for tokens in documents:
        rng.shuffle(tokens)
    counts = count(documents, window=9, subsample=0.1, seed=3, distance_weighting="flat")
    # Of n tokens of a word, each pair of two in a document remains with the square of its chance.
    for n, (frequency, times) in enumerate([(0.8, 8), (0.2, 2)]):
        chance = min(1, np.sqrt(0.1 / frequency) + 0.1 / frequency)
        expected = 2000 * times * (times - 1) * chance**2
        assert abs(counts.matrix[n, n] / expected - 1) < 0.05
    assert counts.vocabulary.counts.tolist() == [16000, 4000]
    again = count(documents, window=9, subsample=0.1, seed=3, distance_weighting="flat")
    other = count(documents, window=9, subsample=0.1, seed=4, distance_weighting="flat")
    assert same(again, counts)
    assert not same(other, counts)
    everything = count(documents, window=9, subsample=1e9)
    assert same(everything, count(documents, window=9))


def test_subsampling_does_not_depend_on_memory(monkeypatch):
    documents = random_documents()
    whole = count(documents, subsample=0.01, seed=5)
    monkeypatch.setattr("dcdjax.counting.vocabulary.TOKENS_PER_PIECE", 17)
    monkeypatch.setattr("dcdjax.text.blocks.BLOCK_BYTES", 100)
    pieces = count(documents, subsample=0.01, seed=5)
    assert same(whole, pieces)


def test_words_that_subsampling_drops_leave_the_window():
    documents = [["a"] + ["the"] * 5000 + ["b"] + ["the"] * 5000]
    assert count(documents, window=200).matrix[1, 2] == 0
    # A chance of 0.01 for "the", of 1 for the others: about 50 are left between them.
    near = count(documents, window=200, subsample=1e-4, distance_weighting="flat")
    assert near.words == ("the", "a", "b")
    assert near.matrix[1, 2] == 1
    assert 0 < near.matrix[0, 1] < 200


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 0}, "window must be at least 1, got 0"),
        ({"window": 10**400}, "window must be at most 9223372036854775807, got a number of 1329 bits"),
        ({"distance_weighting": "round"}, "distance_weighting must be one of ('flat', 'linear', 'harmonic')"),
        ({"outside": "x"}, "outside must be one of ('keep', 'drop'), got 'x'"),
        ({"subsample": 0.0}, "subsample must be a positive number, got 0.0"),
        ({"subsample": float("nan")}, "subsample must be a positive number, got nan"),
        ({"memory": 1000}, "memory must be at least 536870912, got 1000"),
        ({"memory": 2e9}, "memory must be a whole number, got 2000000000.0"),
        ({"window": 2.0}, "window must be a whole number, got 2.0"),
        ({"window": None}, "window must be a whole number, got None"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"seed": None}, "seed must be a whole number, got None"),
        ({"max_words": 1e4}, "max_words must be a whole number, got 10000.0"),
        ({"min_count": 1.5}, "min_count must be a whole number, got 1.5"),
        ({"min_count": 0}, "min_count must be at least 1, got 0"),
        ({"drop": None}, "drop must be a collection of words, a language or a file, got None"),
        ({"drop": "the"}, "drop: there is no list of stop words 'the'"),
        ({"phrases": None}, "phrases must be True, False or a collection of phrases, got None"),
        ({"phrases": "new york"}, "phrases must be True, False or a collection of phrases, got 'new york'"),
        ({"phrases": ["york"]}, "phrases: 'york' is no phrase: a string with two or more words is one"),
        ({"drop": [b"b"]}, "drop must be a collection of words, got one with b'b' in it"),
        ({"subsample": "much"}, "subsample must be a positive number, got 'much'"),
        ({"progress": True}, "progress must be callable"),
        ({"max_words": 0}, "max_words must be at least 1"),
        ({"documents": "page"}, "documents must be one of"),
    ],
)
def test_bad_options(unchecked_annotations, options, message):
    def texts():
        yield "a b"
        raise AssertionError("read before the arguments were checked")

    with pytest.raises(ValueError, match=re.escape(message)):
        count(texts(), **options)


def test_numbers_of_numpy_are_numbers(tmp_path, unchecked_annotations):
    options: Any = {
        "window": np.int64(2),
        "max_words": np.int32(5),
        "min_count": np.uint8(1),
        "subsample": np.float32(0.9),
        "seed": np.int64(3),
        "lowercase": np.bool_(True),
        "drop": (word for word in ["c"]),
        "pattern": re.compile("[ab]", re.IGNORECASE),
    }
    counts = count(["a b a"], **options)
    counts.save(tmp_path / "counts.safetensors")
    again = cooccurrence.load(tmp_path / "counts.safetensors")
    assert again.settings == counts.settings
    assert again.settings["drop"] == ["c"]
    assert again.settings["pattern_flags"] & re.IGNORECASE


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_a_window_larger_than_any_document(weighting):
    documents = [["a", "b", "c"], ["a"], ["b", "a", "c", "b"]]
    words, _ = text_oracle.most_frequent(documents)
    expected = text_oracle.pair_counts(documents, words, 10**12, weighting)
    counts = count(documents, window=10**12, distance_weighting=weighting)
    np.testing.assert_allclose(counts.matrix.toarray(), expected, rtol=1e-15)


def test_progress_counts_tokens():
    seen = []
    plain(["a b", "c d", "e"], drop=["e"], progress=lambda *told: seen.append(told))
    assert ("reading", 5, None, "tokens") in seen
    assert seen[-1] == ("counting", 4, 4, "tokens")


def test_settings_say_how_it_was_counted():
    counts = count(["A b"], pattern=re.compile("[a-z]"), lowercase=True, drop={"q", "p"})
    assert counts.settings["pattern"] == "[a-z]"
    assert counts.settings["drop"] == ["p", "q"]
    assert counts.settings["window"] == 8
    assert cooccurrence.count(["a"], tokenizer=str.split).settings["tokenizer"] == "str.split"


def test_saved_counts_come_back(tmp_path):
    counts = plain([["a\nb", "é", "\0", "😀"], ["é", "a\nb"]], distance_weighting="harmonic")
    counts.save(tmp_path / "counts.safetensors")
    again = cooccurrence.load(tmp_path / "counts.safetensors")
    assert same(again, counts)
    assert again.words == counts.words
    assert again.settings == counts.settings
    assert again.vocabulary.counts.tolist() == counts.vocabulary.counts.tolist()
    assert again.vocabulary.num_tokens == counts.vocabulary.num_tokens
    assert again.vocabulary.num_different == 4
    assert again.passages is not None
    assert counts.passages is not None
    assert again.passages.toarray().tolist() == counts.passages.toarray().tolist() == [[1] * 4, [1, 1, 0, 0]]
    dataclasses.replace(counts, passages=None).save(tmp_path / "counts.safetensors")
    assert cooccurrence.load(tmp_path / "counts.safetensors").passages is None


def test_a_file_that_holds_no_counts(tmp_path):
    S = scipy.sparse.csr_array(np.ones((2, 2)))
    scipy.sparse.save_npz(tmp_path / "S.npz", S)
    with pytest.raises(ValueError, match=r"S\.npz: it is damaged, or dcdjax did not save it"):
        cooccurrence.load(tmp_path / "S.npz")
    with pytest.raises(FileNotFoundError, match=r"nothing\.npz"):
        cooccurrence.load(tmp_path / "nothing.npz")
    settings = {"num_tokens": 3}
    save: Any = partial(matrix_files.save_matrix, tmp_path / "C.safetensors", kind="counts")
    good = {"word_counts": np.ones(2, np.int64)}

    def passages(indices, indptr):
        dtype = None if any(isinstance(one, float) for one in indices) else np.int32
        return {"passage_indices": np.array(indices, dtype), "passage_indptr": np.array(indptr, np.int32)}

    for matrix, words, message in (
        (np.array([[0.0, 1.0], [2.0, 0.0]]), ["a", "b"], "counts is not symmetric"),
        (np.ones((2, 3)), ["a", "b"], "must be square"),
        (np.array([[0.0, -1.0], [-1.0, 0.0]]), ["a", "b"], "is not a finite, nonnegative number"),
        (np.ones((2, 2)), ["a", "a"], "'a' occurs more than once"),
    ):
        save(scipy.sparse.csr_array(matrix), words, settings, **good)
        with pytest.raises(ValueError, match=rf"C\.safetensors: .*{message}"):
            cooccurrence.load(tmp_path / "C.safetensors")
    for arrays, message in (
        ({}, "it does not say how often each word occurs"),
        ({"word_counts": np.ones(3, np.int64)}, "it has 3 counts for 2 words"),
        ({"word_counts": np.ones(2)}, "it has word counts of float64, not int64"),
        ({**good, **passages([0.0], [0, 1])}, "the arrays of its passages must be int32 in one dimension"),
        ({**good, **passages([[0]], [0, 1])}, "the arrays of its passages must be int32 in one dimension"),
        ({**good, **passages([], [])}, "the arrays of its passages must be int32 in one dimension"),
        ({**good, **passages([2], [0, 1])}, "C.safetensors: "),
        ({**good, **passages([-1], [0, 1])}, "C.safetensors: "),
        ({**good, **passages([0], [0, 2])}, "C.safetensors: "),
        ({**good, **passages([0, 1], [0, 2, 1])}, "C.safetensors: "),
    ):
        save(S, ["a", "b"], settings, **arrays)
        with pytest.raises(ValueError, match=re.escape(message)):
            cooccurrence.load(tmp_path / "C.safetensors")
    save(S, None, settings, word_counts=np.ones(2, np.int64))
    with pytest.raises(ValueError, match=r"C\.safetensors: it has no words"):
        cooccurrence.load(tmp_path / "C.safetensors")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells how much memory is used")
def test_memory_stays_within_its_budget():
    """In memory, this would take 0.85 GB; the file mapped for the result is none of the process's own."""
    code = """
import threading, time
import numpy as np, scipy.sparse, pyarrow.compute, pyarrow.parquet, duckdb
from dcdjax import count

def used():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) / 1024

def texts():
    rng = np.random.default_rng(0)
    for _ in range(70):
        yield " ".join(map(str, (100_000 * rng.random(100_000) ** 2).astype(int).tolist()))

seen = [used()]
def watch():
    while True:
        seen.append(used())
        time.sleep(0.005)

threading.Thread(target=watch, daemon=True).start()
options = dict(window=3, distance_weighting="flat", max_words=None, tokens="blanks", min_count=1)
counts = count(texts(), memory=512 << 20, **options)
print(max(seen) - seen[0], len(counts.words), counts.matrix.nnz, counts.matrix.sum())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    megabytes, num_words, num_nonzeros, total = map(float, done.stdout.split())
    assert megabytes < 512
    assert num_words > 99_000
    assert num_nonzeros > 4e7
    assert total == 70 * sum(2 * (100_000 - distance) for distance in (1, 2, 3))
