"""The most frequent words, the same with and without enough memory."""

import re
import threading
from contextlib import closing
from functools import partial

import numpy as np
import pytest
import text_oracle
from hypothesis import given
from hypothesis import strategies as st

from dcdjax.counting.vocabulary import BREAK, OUTSIDE, Tokens
from dcdjax.text import blocks as text_blocks
from dcdjax.text import tokens as corpus
from dcdjax.text.blocks import CorpusError

corpora = st.lists(
    st.lists(st.text("aAé中😀\0\n ", min_size=1, max_size=3), max_size=12), min_size=1, max_size=8
)
read = partial(corpus.read, tokens="blanks")
MEMORY = 1 << 27  # DuckDB cannot do with much less


def decoded(pieces, words):
    """Documents of words, None for those outside, and without the empty documents."""
    documents = [[]]
    for number in np.concatenate(list(pieces)).tolist():
        if number == BREAK:
            documents.append([])
        else:
            documents[-1].append(words[number] if number != OUTSIDE else None)
    return [tokens for tokens in documents if tokens]


@given(corpora, st.integers(1, 6) | st.none(), st.integers(1, 3), st.sets(st.text("aA", max_size=2)))
def test_words_counts_and_places(documents, max_words, min_count, drop):
    words, counts = text_oracle.most_frequent(documents, max_words, min_count, drop)
    with closing(Tokens(read(documents), memory=MEMORY)) as tokens:
        if not words:
            with pytest.raises(CorpusError, match=r"has no token|no word is left of"):
                tokens.vocabulary(max_words=max_words, min_count=min_count, drop=drop)
            return
        vocabulary = tokens.vocabulary(max_words=max_words, min_count=min_count, drop=drop)
        assert vocabulary.words == tuple(words)
        assert vocabulary.counts.tolist() == counts
        assert vocabulary.num_tokens == sum(map(len, documents))
        assert vocabulary.num_different == len({token for tokens in documents for token in tokens})
        marked = [[token if token in words else None for token in tokens] for tokens in documents]
        assert decoded(tokens.encoded(vocabulary), words) == [tokens for tokens in marked if tokens]
        dropped = [[token for token in tokens if token] for tokens in marked]
        assert decoded(tokens.encoded(vocabulary, outside="drop"), words) == [t for t in dropped if t]


@pytest.mark.parametrize("max_words", [None, 1, 50])
def test_more_words_than_memory_has_room_for(monkeypatch, max_words):
    monkeypatch.setattr(text_blocks, "BLOCK_BYTES", 1 << 10)
    rng = np.random.default_rng(0)
    documents = [[f"é{n}\0" for n in rng.zipf(1.2, 40) % 1000] for _ in range(200)]
    with closing(Tokens(read(documents), memory=MEMORY)) as in_memory:
        vocabulary = in_memory.vocabulary(max_words=max_words, min_count=2, drop=["é1\0"])
        encoded = np.concatenate(list(in_memory.encoded(vocabulary)))
    monkeypatch.setattr("dcdjax.counting.vocabulary.BYTES_PER_WORD", MEMORY // 200)
    with closing(Tokens(read(documents), memory=MEMORY)) as cramped:
        assert len(cramped.generation_ends) > 5  # generations
        again = cramped.vocabulary(max_words=max_words, min_count=2, drop=["é1\0"])
        assert (again.words, again.num_tokens) == (vocabulary.words, vocabulary.num_tokens)
        assert again.num_different == vocabulary.num_different
        np.testing.assert_array_equal(again.counts, vocabulary.counts)
        np.testing.assert_array_equal(np.concatenate(list(cramped.encoded(vocabulary))), encoded)
    assert "é1\0" not in vocabulary.words


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"min_count": 3},
            "no word is left of 2 different words in the corpus, 3 tokens in all, with min_count=3",
        ),
        ({"drop": ["a", "b"]}, "2 words to drop"),
    ],
)
def test_no_word_left(options, message):
    with (
        closing(Tokens(read(["a b a"]), memory=MEMORY)) as tokens,
        pytest.raises(CorpusError, match=re.escape(message)),
    ):
        tokens.vocabulary(**options)


@given(st.lists(st.lists(st.sampled_from("ab"), max_size=9), min_size=1, max_size=9), st.integers(1, 30))
def test_the_longest_document(documents, block_bytes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_blocks, "BLOCK_BYTES", block_bytes)
        lines = [" ".join(tokens) for tokens in documents]
        for source in (documents, lines):
            with closing(Tokens(read(source), memory=MEMORY)) as tokens:
                assert tokens.longest == max(map(len, documents))
            with closing(Tokens(read(source, documents="corpus"), memory=MEMORY)) as tokens:
                assert tokens.longest == sum(map(len, documents))


def test_without_a_token():
    with (
        closing(Tokens(read(["", " "]), memory=MEMORY)) as tokens,
        pytest.raises(CorpusError, match="has no token"),
    ):
        tokens.vocabulary()


def test_long_words_take_memory_too(monkeypatch):
    """A few words, but of many characters: they are not all remembered."""
    monkeypatch.setattr(text_blocks, "BLOCK_BYTES", 1 << 20)
    documents = [[f"{n}" + "x" * 100_000] for n in range(100)] * 2
    with closing(Tokens(read(documents), memory=8 << 20)) as tokens:
        assert len(tokens.generation_ends) > 2
        tokens.memory = MEMORY
        vocabulary = tokens.vocabulary()
    assert len(vocabulary.words) == 100
    assert (vocabulary.counts == 2).all()


def test_an_error_while_reading_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(text_blocks, "BLOCK_BYTES", 1 << 10)

    def documents():
        yield from ([f"w{n}"] * 10 for n in range(1000))
        raise ZeroDivisionError

    before = threading.active_count()
    blocks = read(documents())
    with pytest.raises(ZeroDivisionError):
        Tokens(blocks, memory=4000)
    blocks.close()
    assert not list(tmp_path.iterdir())
    assert threading.active_count() == before
