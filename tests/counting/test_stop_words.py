"""Words to leave out: single words, files, and lists of languages."""

import builtins
import hashlib
import re
from functools import partial
from pathlib import Path

import pytest

import dcdjax
from dcdjax.counting import stop_words
from dcdjax.counting.cooccurrence import count


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_bytes("\ufeff# my words\nThe\n\nc#  # a language\r\n  über\n#\n".encode())
    return path


def test_a_file_has_one_word_a_line(mine):
    loaded = stop_words.load(mine)
    assert set(loaded) == {"The", "c#", "über"}
    assert stop_words.load(str(mine)) == loaded
    digest = hashlib.sha256("The\nc#\nüber".encode()).hexdigest()
    assert loaded.record == {"name": "mine.txt", "num_words": 3, "sha256": digest}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\nnew york\n", "mine.txt: line 2 has 2 words, expected one: 'new york'"),
        (b"a\nb\n\xff\n", "mine.txt: line 3 is not UTF-8: byte 0xff, invalid start byte"),
        (b"# nothing\n\n", "mine.txt: the file has no word to leave out"),
    ],
)
def test_a_wrong_file_is_refused(mine, content, message):
    mine.write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(message)):
        count(["a b"], drop=mine)


def test_languages():
    english, french = stop_words.load("english"), stop_words.load("french")
    assert {"the", "of", "has", "been", "wouldn't"} <= set(english)
    assert not {"world", "system", "research", "new"} & set(english)  # as longer lists have
    assert {"le", "une", "été"} <= set(french)
    with pytest.raises(ValueError, match="no list of stop words 'englisch'; did you mean english"):
        stop_words.load("englisch")


def test_every_way_to_give_them(mine):
    counted = partial(count, tokens="blanks")
    text = ["the THE über c# the cup english"]
    assert counted(text, drop="english").words == ("THE", "c#", "cup", "english", "über")
    assert counted(text, drop=["english"]).words == ("the", "THE", "c#", "cup", "über")  # a word
    assert counted(text, drop=mine, lowercase=True).words == ("cup", "english")
    assert counted(text, drop=str(mine)).words == ("the", "THE", "cup", "english")
    counts = counted(text, drop=["cup", mine, stop_words.load("english"), mine], lowercase=True)
    assert counts.words == ("english",)
    lists = [stop_words.load(mine).record, stop_words.load("english").record]
    assert (counts.settings["drop"], counts.settings["drop_lists"]) == (["cup"], lists)
    assert counted(text, drop=["cup"]).settings["drop_lists"] == []


def test_a_missing_file_is_an_error():
    for path in (Path("nowhere"), "./nowhere", "nowhere.txt"):
        with pytest.raises(FileNotFoundError, match=r"drop: no such file with words to leave out: nowhere"):
            count(["a b"], drop=path)


def test_a_missing_library_is_an_error(monkeypatch):
    imported = builtins.__import__

    def refuse(name, *more, **options):
        if name == "stop_words":
            raise ImportError(name)
        return imported(name, *more, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r"'english' needs the package stop-words: pip install"):
        count(["a b"], drop="english")


def test_other_lists_are_another_run(mine, tmp_path):
    texts = ["tea cup tea The", "cup tea", "sail ship", "ship sail sea"]
    options = {"num_topics": 2, "key": 0, "checkpoint": tmp_path / "under way", "progress": False}
    embedding = dcdjax.fit(texts, drop=mine, **options)
    assert embedding.record["settings"]["counting"]["drop_lists"] == [stop_words.load(mine).record]
    mine.write_text("The\nnever")
    with pytest.raises(ValueError, match="drop_lists"):
        dcdjax.fit(texts, drop=mine, **options)


def test_words_to_drop_and_phrases_are_compared_as_the_text_is_read():
    counts = count(["We don't drop cafe\u0301 noir"], drop=["don\u2019t"], phrases=["caf\u00e9 noir"])
    assert set(counts.words) == {"café noir", "drop", "we"}
    lists = [["The", "New", "York", "the"]]
    counts = count(lists, drop=["The"], phrases=["New York"])
    assert set(counts.words) == {"New York", "the"}
    assert counts.settings["lowercase"] is False
    assert set(count(lists, drop=["The"], lowercase=True).words) == {"new", "york"}
