"""The whole way from text to S, with everything thrown at it: an S that holds, or an error that says why."""

import gzip
import warnings
from functools import partial

import numpy as np
import pytest
import text_oracle
from hypothesis import example, given, settings
from hypothesis import strategies as st
from problems import dense

from dcdjax import similarity
from dcdjax.counting import cooccurrence
from dcdjax.devices.preparation import prepare
from dcdjax.text import blocks
from dcdjax.text.blocks import CorpusError

# What stands between blanks, as it is.
count = partial(cooccurrence.count, tokens="blanks", min_count=1)
WEIGHTINGS = ["counts", "degree", "sinkhorn", "ppmi"]


def check_S(counts, weighting, *, may_fail=True, **options):
    """An S with all that the method needs, or a refusal that names a word or says that none remains."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="dropped")
        try:
            S = similarity.from_counts(counts, weighting=weighting, drop_isolated=True, **options)
        except ValueError as error:
            if may_fail and any(
                said in str(error) for said in ("no word would remain", "sinkhorn", "no nonzero")
            ):
                return
            raise
    matrix = S.matrix.toarray()
    assert (matrix >= 0).all()
    assert np.isfinite(matrix).all()
    assert (matrix == matrix.T).all()
    assert matrix.any(axis=1).all()
    assert S.words == tuple(counts.words[n] for n in S.kept)
    if weighting == "sinkhorn":
        np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=1e-6)
    layout = prepare(S.matrix)
    assert layout.num_words == len(S.words or ())
    np.testing.assert_allclose(dense(layout) * layout.scale, matrix, rtol=1e-5)


def check_text(text, source_, name, documents, window):
    """What a file or an item holds, given as text and as a source."""
    expected = text_oracle.split([text], documents)
    words, _ = text_oracle.most_frequent(expected, 30)
    if not words:
        with pytest.raises(CorpusError, match=name or "has no token"):
            count(source_, documents=documents)
        return
    counts = count(source_, documents=documents, window=window, max_words=30, distance_weighting="flat")
    assert counts.words == tuple(words)
    np.testing.assert_array_equal(counts.matrix.toarray(), text_oracle.pair_counts(expected, words, window))
    for weighting in WEIGHTINGS:
        check_S(counts, weighting)
    check_S(counts, "ppmi", keep_diagonal=False, context_exponent=1.0, shift=1.0)
    if counts.matrix.nnz:
        check_S(counts, "sinkhorn", may_fail=False, self_similarity=0.1)


@given(
    st.one_of(
        st.binary(max_size=300),
        st.text(st.characters(codec="utf-8"), max_size=200).map(str.encode),
        st.lists(st.sampled_from([b" ", b"\n", b"a", b"b ", b"\xc3\xa9", b"\xe4", b"\xff", b"\0"])).map(
            b"".join
        ),
    ),
    st.booleans(),
    st.sampled_from(["line", "paragraph", "file", "corpus"]),
    st.sampled_from([20, 64, 1 << 20]),
)
@example(b"", False, "line", 20)
@example(b"\xef\xbb\xbf", False, "line", 20)
@example(b"\x1f\x8b", False, "line", 20)
@example(b"a", False, "line", 20)
@example(b"a a a a a a", True, "corpus", 20)
@example(b"\n\n\na\n\n\nb\n\n", False, "line", 20)
@example("\U0010ffff \U0001f600\u3000\u0301".encode(), False, "file", 20)
@settings(max_examples=300)
def test_any_bytes(tmp_path_factory, content, zipped, documents, block_bytes):
    path = tmp_path_factory.mktemp("fuzz") / "some.txt"
    path.write_bytes(gzip.compress(content) if zipped else content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_BYTES", block_bytes)
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = None
        if text is None or "\0" in text:  # the first bytes of a gzip file are not UTF-8
            with pytest.raises(CorpusError, match=r"some\.txt: "):
                count(path, documents=documents)
            return
        longest = max((len(piece) for piece in content.split()), default=0)
        if longest >= block_bytes // 2:
            patch.setattr(blocks, "BLOCK_BYTES", 1 << 20)
        check_text(text, path, r"some\.txt: the file is empty|has no token", documents, window=3)


@pytest.mark.slow
@given(
    st.lists(st.text(st.characters(codec="utf-8"), max_size=60), max_size=8),
    st.sampled_from(["line", "file"]),
)
@settings(max_examples=100)
def test_any_unicode(texts, documents):
    text = "\n".join(texts)
    check_text(text, [text], "", documents, window=2)


@pytest.mark.parametrize("word", ["a", "\U0010fffd", "x" * 100_000])
def test_corpora_of_one_word(word):
    alone = count([word])
    assert alone.words == (word,)
    assert alone.matrix.nnz == 0
    with pytest.raises(ValueError, match="no nonzero"):
        similarity.from_counts(alone, weighting="counts")
    with pytest.raises(ValueError, match="no word would remain"):
        similarity.from_counts(alone, weighting="ppmi", drop_isolated=True)
    repeated = count([f"{word} {word} {word}"])
    assert repeated.matrix.toarray().tolist() == [[5]]  # at distances 1, 1 and 2, in both orders
    S = similarity.from_counts(repeated, weighting="sinkhorn")
    np.testing.assert_allclose(S.matrix.toarray(), 1, rtol=1e-9)
    with pytest.raises(ValueError, match=r"no nonzero|no word would remain"):
        similarity.from_counts(repeated, weighting="ppmi", keep_diagonal=False)


def test_a_huge_line(tmp_path):
    """Longer than a block, with nothing but blanks to cut it at."""
    rng = np.random.default_rng(0)
    tokens = [f"w{n}" for n in rng.zipf(1.5, 3_000_000) % 50]
    path = tmp_path / "line.txt"
    path.write_text(" ".join(tokens))
    assert path.stat().st_size > blocks.BLOCK_BYTES
    counts = count(path, window=2, distance_weighting="flat")
    number = {word: n for n, word in enumerate(counts.words)}
    ids = np.array([number[token] for token in tokens])
    expected = np.zeros((len(number), len(number)))
    for distance in (1, 2):
        np.add.at(expected, (ids[:-distance], ids[distance:]), 1)
    np.testing.assert_array_equal(counts.matrix.toarray(), expected + expected.T)


def test_real_text(data):
    counts = count(data / "wikitext-2" / "valid.txt.gz", drop=["<unk>"], max_words=2000, lowercase=True)
    assert counts.words[:3] == ("the", ",", ".")
    for weighting in WEIGHTINGS:
        check_S(counts, weighting, may_fail=False)
    saved = similarity.from_counts(counts, drop_isolated=True)
    assert "<unk>" not in (saved.words or ())


def test_saved_on_the_way(tmp_path):
    counts = count([["to", "be", "or", "not", "to", "be"]] * 3, window=2)
    counts.save(tmp_path / "counts.safetensors")
    S = similarity.from_counts(cooccurrence.load(tmp_path / "counts.safetensors"), weighting="degree")
    S.save(tmp_path / "S.safetensors")
    again = similarity.load(tmp_path / "S.safetensors")
    assert again.words == counts.words
    np.testing.assert_array_equal(again.matrix.toarray(), S.matrix.toarray())
    with pytest.raises(ValueError, match=r"counts\.safetensors: it holds counts, not similarity"):
        similarity.load(tmp_path / "counts.safetensors")
    with pytest.raises(ValueError, match=r"S\.safetensors: it holds similarity, not counts"):
        cooccurrence.load(tmp_path / "S.safetensors")


@pytest.mark.slow
def test_sinkhorn_on_real_text(data):
    """In headings such as "= Title =", rare words have no neighbor but "=": no scaling without a diagonal."""
    counts = count(data / "wikitext-2" / "train.txt.gz", max_words=20_000)
    with pytest.raises(ValueError, match=r"word 9 \('='\) still sums to .* self_similarity=0\.01"):
        similarity.from_counts(counts, weighting="sinkhorn")
    S = similarity.from_counts(counts, weighting="sinkhorn", self_similarity=0.01)
    np.testing.assert_allclose(S.matrix.sum(axis=1), 1, rtol=1e-9)
    assert not abs(S.matrix - S.matrix.T).data.any()
