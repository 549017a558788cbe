"""Text in every form it may come in, and every way in which it may be broken."""

import errno
import gzip
import io
import os
import random
import re
import subprocess
import sys
import threading
from itertools import chain
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import text_oracle
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from dcdjax.text import blocks as text_blocks
from dcdjax.text import splitter
from dcdjax.text import tokens as corpus
from dcdjax.text.blocks import CorpusError

# Every character at which str.split splits, some at which it does not, and some of each width in UTF-8.
ALPHABET = "ab é中😀'\t\v\f\r \x1c\x1d\x1e\x1f\x85\xa0\u1680\u2003\u2028\u3000\x00\x01\x7f\u200b\ufeff\n"


def read(source, **options):
    """What stands between blanks, as it is. The words are tested in test_words.py."""
    return corpus.read(source, **{"tokens": "blanks", **options})


def documents_of(blocks):
    """Documents of tokens, empty ones left out."""
    documents = [[]]
    for block in blocks:
        assert block.codes.dtype == np.int32
        assert len(set(block.words)) == len(block.words)
        assert (np.diff(block.breaks) >= 0).all()
        breaks = set(block.breaks.tolist())
        assert breaks <= set(range(len(block.codes) + 1))
        for place, code in enumerate(block.codes.tolist()):
            if place in breaks:
                documents.append([])
            documents[-1].append(block.words[code])
        if len(block.codes) in breaks:
            documents.append([])
    return [tokens for tokens in documents if tokens]


def expected(texts, documents="line", tokens_of=str.split):
    return [tokens for tokens in text_oracle.split(texts, documents, tokens_of) if tokens]


@pytest.fixture
def tiny_blocks(monkeypatch):
    monkeypatch.setattr(text_blocks, "BLOCK_BYTES", 16)


TEXT = "one two\nthree  four five\n\n  six\tseven\r\neight nine ten eleven twelve thirteen\nfourteen"


@pytest.mark.parametrize("documents", ["line", "paragraph", "file", "corpus"])
@pytest.mark.parametrize("block_bytes", [9, 16, 50, 1 << 20])
def test_files_folders_and_gzip(tmp_path, monkeypatch, documents, block_bytes):
    monkeypatch.setattr(text_blocks, "BLOCK_BYTES", block_bytes)
    first, second, third = tmp_path / "b.txt", tmp_path / "a" / "z.txt.gz", tmp_path / "c"
    (tmp_path / "a").mkdir()
    (tmp_path / ".hidden").write_bytes(b"\0")
    first.write_text(TEXT, newline="")
    second.write_bytes(gzip.compress(b"zipped words\nin a file\n", mtime=0))
    third.write_bytes(b"\xef\xbb\xbfmarked by order")
    texts = {first: TEXT, second: "zipped words\nin a file\n", third: "marked by order"}
    for path, text in texts.items():
        assert documents_of(read(path, documents=documents)) == expected([text], documents)
        assert documents_of(read(str(path), documents=documents)) == expected([text], documents)
        with open(path, "rb") as file:
            assert documents_of(read(file, documents=documents)) == expected([text], documents)
    assert documents_of(read(tmp_path, documents=documents)) == expected(
        [texts[second], texts[first], texts[third]], documents
    )
    assert documents_of(read([third, first], documents=documents)) == expected(
        [texts[third], texts[first]], documents
    )


@pytest.mark.parametrize("documents", ["line", "paragraph", "file", "corpus"])
def test_iterables(tiny_blocks, tmp_path, documents):
    texts = ["one two\nthree", "", "four\n", " ", "five six seven eight nine ten", "eleven"]
    assert documents_of(read(texts, documents=documents)) == expected(texts, documents)
    assert documents_of(read(iter(texts), documents=documents)) == expected(texts, documents)
    assert documents_of(read(io.StringIO(TEXT), documents=documents)) == expected([TEXT], documents)
    lists = [["a b", "c"], [], ["", "d"], ("e",) * 20, ["f"]]
    joined = [["a b", "c"], ["d"], ["e"] * 20, ["f"]]
    joined = [list(chain(*joined))] if documents == "corpus" else joined
    assert documents_of(read(lists, documents=documents)) == joined
    file = tmp_path / "file"
    file.write_text("in a file")
    mixed = ["text", ["tokens"], file, "text again"]
    tokens = [["text"], ["tokens"], ["in", "a", "file"], ["text", "again"]]
    tokens = [list(chain(*tokens))] if documents == "corpus" else tokens
    assert documents_of(read(mixed, documents=documents)) == tokens


def test_standard_input():
    code = (
        "import dcdjax.text.tokens as c, sys; "
        "source = sys.argv[1] if sys.argv[1:] else sys.stdin; "
        "print([b.words[k] for b in c.read(source, tokens='blanks') for k in b.codes])"
    )
    for arguments in [], ["-"]:
        for sent in "é to be\n".encode(), gzip.compress("é to be\n".encode()):
            done = subprocess.run(
                [sys.executable, "-X", "utf8", "-c", code, *arguments], input=sent, capture_output=True
            )
            assert done.stdout.decode() == "['é', 'to', 'be']\n", done.stderr


@given(
    st.lists(st.text(st.sampled_from(ALPHABET), max_size=12), max_size=9),
    st.sampled_from(["line", "paragraph", "file"]),
)
def test_splits_where_python_splits(texts, documents):
    for block_bytes in (50, 1 << 20):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(text_blocks, "BLOCK_BYTES", block_bytes)
            patch.setattr(splitter, "SLICE_BYTES", 7)
            assert documents_of(read(texts, documents=documents)) == expected(texts, documents)
            encoded = "\n".join(texts).replace("\0", "0").lstrip("\ufeff")
            if encoded.encode().strip(b"\t\n\v\f\r "):
                found = documents_of(read(io.BytesIO(encoded.encode()), documents=documents))
                assert found == expected([encoded], documents)


@given(st.text(st.sampled_from(ALPHABET + "AÉΣİ1.-"), max_size=60))
def test_lower_case_and_pattern(text):
    for pattern in (None, r"\w+", r"[a-z]", r"x*"):
        for lowercase in (False, True):

            def tokens_of(line, pattern=pattern, lowercase=lowercase):
                words = [word.lower() if lowercase else word for word in line.split()]
                return [w for word in words for w in (re.findall(pattern, word) if pattern else [word]) if w]

            found = documents_of(read([text], pattern=pattern, lowercase=lowercase))
            assert found == expected([text], "line", tokens_of)


@given(
    st.lists(st.text(st.sampled_from("ab é\n"), max_size=30), max_size=4),
    st.sampled_from(["line", "paragraph", "file"]),
)
def test_tokenizer_gets_lines(texts, documents):
    seen = []

    def letters(line):
        seen.append(line)
        return [*line, ""]

    found = documents_of(read(texts, documents=documents, tokenizer=letters))
    assert found == expected(texts, documents, lambda line: list(line) if line.strip() else [])
    assert not any("\n" in line or not line.strip() for line in seen)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b" \n \t\n", "the file is empty but for blanks"),
        (b"good line\nbad \xff byte", "byte 14 (line 2), 0xff, is not UTF-8"),
        (b"good line\nbad \xe4\xb8", "byte 14 (line 2), 0xe4, is not UTF-8"),
        (b"\xef\xbb\xbfgood line\nbad \xed\xa0\x80 surrogate", "byte 17 (line 2), 0xed, is not UTF-8"),
        (b"text and \x00 then", "byte 9 is zero: a binary file"),
        ("utf-16".encode("utf-16-le"), "byte 1 is zero"),
        (gzip.compress(b"many words " * 99, mtime=0)[:-9], "not a whole gzip file"),
        (gzip.compress(b"", mtime=0)[:5], "not a whole gzip file"),
        (b"\x1f\x8bnot gzip at all", "not a whole gzip file"),
        (gzip.compress(b"", mtime=0), "the file is empty"),
    ],
)
@pytest.mark.parametrize("tokenizer", [None, str.split])
@pytest.mark.parametrize("block_bytes", [10, 1 << 20])
def test_broken_files_are_named(tmp_path, monkeypatch, content, message, tokenizer, block_bytes):
    monkeypatch.setattr(text_blocks, "BLOCK_BYTES", block_bytes)
    path = tmp_path / "broken.txt"
    path.write_bytes(content)
    with pytest.raises(CorpusError, match=re.escape(message)) as error:
        list(read([path], tokenizer=tokenizer))
    assert "broken.txt" in str(error.value)


def test_a_word_longer_than_a_block_is_no_word(tiny_blocks, tmp_path):
    path = tmp_path / "long"
    path.write_text("some words\nand " + "x" * 40 + " more")
    with pytest.raises(CorpusError, match=r"long: a word of more than 16 bytes at byte 15, line 2"):
        list(read(path))
    list(read(["x" * 40]))  # what is in memory already may be of any length


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ("no such file", FileNotFoundError, "no such file or folder: no such file (to pass the text itself"),
        ("many words " * 500, FileNotFoundError, "... (to pass the text itself"),
        ("", CorpusError, "corpus is an empty path"),
        (Path("nowhere"), FileNotFoundError, "no such file or folder: nowhere"),
        ([Path("nowhere")], FileNotFoundError, "nowhere"),
        (b"bytes", TypeError, "got bytes"),
        (7, TypeError, "got int"),
        ({"a": 1}, TypeError, "got dict"),
        ([3], TypeError, "item 0 of the corpus must be a string"),
        (["a", b"b"], TypeError, "item 1 of the corpus must be a string"),
        ([["a"], ["b", 3]], TypeError, "item 1 of the corpus: tokens must be str, got int"),
        (["a", "b\ud800"], CorpusError, "item 1 of the corpus: character 1"),
        ([["a", "b\udfff"]], CorpusError, "item 0 of the corpus: character 2"),
        ([__file__], CorpusError, "item 0 of the corpus, "),
        (iter(["a", __file__]), CorpusError, "is the name of a file"),
        (["text"] * 20 + [Path(__file__), __file__], CorpusError, "item 21 of the corpus, "),
        ([["a"], {"b": 1}], TypeError, "item 1 of the corpus must be a string"),
    ],
)
def test_what_is_no_corpus(given, kind, message):
    with pytest.raises(kind, match=re.escape(message)):
        list(read(given))


def test_folder_without_files(tmp_path):
    with pytest.raises(CorpusError, match="has no file"):
        list(read(tmp_path))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"documents": "page"}, "documents must be one of"),
        ({"pattern": "("}, "pattern '(' is not a regular expression"),
        ({"pattern": b"a"}, "pattern b'a' is not a regular expression"),
        ({"pattern": 3}, "pattern 3 is not a regular expression"),
        ({"tokenizer": str.split, "lowercase": True}, "tokenizer cannot be combined with"),
    ],
)
def test_bad_options(unchecked_annotations, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        list(read(["a"], **options))


def test_tokenizer_on_token_lists_is_refused():
    with pytest.raises(ValueError, match="the corpus is lists of tokens"):
        list(read([["a"]], tokenizer=str.split))


def test_tokenizer_that_gives_no_strings():
    with pytest.raises(TypeError, match=r"tokenizer on line 2 of .*: tokens must be str, got int"):
        list(read(["\na b"], tokenizer=lambda line: cast(Any, [1, 2])))


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        (lambda line: {"input_ids": [1]}, "tokens must be a list of strings, got dict"),
        (str.lower, "tokens must be a list of strings, got str"),
        (lambda line: None, "tokens must be a list of strings, got NoneType"),
        (lambda line: 7, "tokens must be a list of strings, got int"),
    ],
)
def test_tokenizers_that_give_something_else(tokenizer, message):
    with pytest.raises(TypeError, match=f"tokenizer on line 1 of items 0 and on: {message}"):
        list(read(["Hello World"], tokenizer=tokenizer))


@pytest.mark.parametrize("tokenizer", ["abc", 3])
def test_what_is_no_tokenizer(tokenizer):
    with pytest.raises(ValueError, match=f"tokenizer must be callable, .* got {tokenizer!r}"):
        list(read(["a b"], tokenizer=cast(Any, tokenizer)))


def test_hugging_face_tokenizers():
    words = {"[UNK]": 0, "to": 1, "be": 2, "##ing": 3, "[CLS]": 4}
    wordpiece = tokenizers.Tokenizer(tokenizers.models.WordPiece(words, unk_token="[UNK]"))
    wordpiece.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    wordpiece.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A", special_tokens=[("[CLS]", 4)]
    )
    expected = [["to", "be", "##ing"], ["[UNK]"]]
    assert documents_of(read(["to being\nnot"], tokenizer=wordpiece)) == expected

    class Transformers:
        """Called, it gives the fields of a model's input; `tokenize` gives the tokens."""

        def __call__(self, line):
            return {"input_ids": [1, 2]}

        def tokenize(self, line):
            return wordpiece.encode(line, add_special_tokens=False).tokens

    assert documents_of(read(["to being\nnot"], tokenizer=Transformers())) == expected


def test_tokenizers_get_no_line_ends(tmp_path):
    path = tmp_path / "crlf.txt"
    path.write_bytes(b"a b\r\nc\r\n\r\nd\r")
    found = documents_of(read(path, tokenizer=lambda line: iter(line.split(" "))))
    assert found == [["a", "b"], ["c"], ["d"]]


def test_tokens_from_numpy_are_plain_strings():
    [block] = read([np.array(["a", "b"])])
    assert [type(word) for word in block.words] == [str, str]


class Slow(io.RawIOBase):
    """A pipe that gives a byte or a few at a time."""

    def __init__(self, content, size):
        self.content, self.size, self.name = io.BytesIO(content), size, "slow"

    def read(self, size=-1):
        return self.content.read(min(size, self.size))


@pytest.mark.parametrize("start", [b"", b"many words ", gzip.compress(b"many words " * 9, mtime=0)[:20]])
def test_a_disk_that_cannot_be_read_is_named(start):
    class Broken(io.BytesIO):
        name = "news.txt"

        def read(self, size: int | None = -1, /):
            found = super().read(size)
            if not found:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return found

    with pytest.raises(OSError, match=r"Input/output error: 'news\.txt'"):
        for _ in corpus.read(Broken(start)):
            pass


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("prepare", [bytes, gzip.compress, lambda text: b"\xef\xbb\xbf" + text])
def test_readers_that_give_little_at_a_time(size, prepare):
    seen = []

    def tokenizer(line):
        seen.append(line)
        return line.split()

    content = prepare("ab cd é\nf".encode())
    assert documents_of(read(Slow(content, size))) == [["ab", "cd", "é"], ["f"]]
    assert documents_of(read(Slow(content, size), tokenizer=tokenizer)) == [["ab", "cd", "é"], ["f"]]
    assert seen == ["ab cd é", "f"]


def test_open_files_among_the_items(tmp_path):
    paths = [tmp_path / "one", tmp_path / "two"]
    for path in paths:
        path.write_text(f"in {path.name}\n")
    with open(paths[0]) as one, open(paths[1], "rb") as two:
        assert documents_of(read([one, two])) == [["in", "one"], ["in", "two"]]


def test_a_file_opened_as_text_that_is_none(tmp_path):
    path = tmp_path / "bad.txt"
    path.write_bytes(b"good \xff bad")
    with open(path, encoding="utf-8") as file, pytest.raises(CorpusError, match=r"bad\.txt: .* position 5"):
        list(read(file))


def test_nothing_in_a_folder_is_left_out_silently(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("words")
    link = tmp_path / "folder" / "link"
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="link, a broken link"):
        list(read(tmp_path))
    link.unlink()
    link.symlink_to(tmp_path)
    with pytest.raises(CorpusError, match="link: links to folders are not followed"):
        list(read(tmp_path))
    link.unlink()
    link.symlink_to(tmp_path / "folder" / "file")
    assert documents_of(read(tmp_path)) == [["words"], ["words"]]


@pytest.mark.parametrize("documents", ["line", "paragraph", "file", "corpus"])
def test_long_strings_are_cut_as_files_are(tiny_blocks, documents):
    texts = ["short", "\ufeffa long\nstring of several blocks " * 3 + "x" * 40, "short again"]
    assert documents_of(read(texts, documents=documents)) == expected(texts, documents)
    sizes = [len(block.codes) for block in read(["a " * 100])]
    assert len(sizes) > 5


def test_many_small_items_make_many_blocks(tiny_blocks):
    for items in ([""] * 50, ["a"] * 50, [["a"]] * 50, [[]] * 50):
        assert len(list(read(items))) >= 25


def test_empty_lines_take_no_memory():
    """A block of nothing but line ends is a break or none, not one for each."""
    [block] = read(["a" + "\n" * 10_000])
    assert block.breaks.tolist() == [0, 1]
    [block] = read(["a" + "\n" * 10_000], tokenizer=str.split)
    assert block.breaks.tolist() == [0, 1]


def test_an_error_in_the_consumer_stops_the_readers(tiny_blocks):
    before = threading.active_count()
    blocks = read(f"line {n}" for n in range(10**9))
    next(blocks)
    assert threading.active_count() > before
    blocks.close()
    assert threading.active_count() == before


def test_progress_estimates_the_total(tmp_path, monkeypatch):
    monkeypatch.setattr(text_blocks, "BLOCK_BYTES", 1000)
    words = "".join(random.Random(0).choices("abcdefgh \n", k=10_000))
    seen = []
    for name, content in ("plain", words.encode()), ("zipped.gz", gzip.compress(words.encode())):
        path = tmp_path / name
        path.write_bytes(content)
        seen.clear()
        tokens = sum(len(b.codes) for b in read(path, progress=lambda *told: seen.append(told)))
        assert seen[-1] == ("reading", tokens, tokens, "tokens")
        assert len(seen) > 5
        assert [done for _, done, _, _ in seen] == sorted(done for _, done, _, _ in seen)
    halfway = next(total for _, done, total, _ in reversed(seen) if done < tokens)
    assert halfway >= 0.8 * tokens
    seen.clear()
    list(read(["a b"], progress=lambda *told: seen.append(told)))
    assert seen == [("reading", 2, None, "tokens")]
