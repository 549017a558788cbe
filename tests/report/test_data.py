"""The page as Python makes it: what it tells is what the embedding answers, and nothing in it can run."""

import base64
import gzip
import hashlib
import html
import json
import re
from pathlib import Path
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
import pytest
from commands import called
from embeddings import HOSTILE, embedding, merged_levels

import dcdjax
from dcdjax import Embedding, report
from dcdjax.cli import main
from dcdjax.report.labels import label


class Told:
    """What a page holds, read independently of its scripts."""

    def __init__(self, page):
        [text] = re.findall(r'<script type="text/plain" id="data">([^<]*)</script>', page.html)
        content = gzip.decompress(base64.b64decode(text, validate=True))
        length = int.from_bytes(content[:4], "little")
        self.told = json.loads(content[8 : 8 + length])
        self.names, self.words = self.told["words"], self.told["words"][: self.told["num_shown"]]
        self.arrays = {}
        place = 8 + length
        for name, one in self.told["arrays"].items():
            size = int(np.prod(one["shape"]))
            array = np.frombuffer(content, np.dtype(one["type"]).newbyteorder("<"), size, place)
            self.arrays[name] = array.reshape(one["shape"])
            place += -(-array.nbytes // 8) * 8
        assert place == len(content)

    def probabilities(self, name):
        codes = np.cumsum(self.arrays[f"{name}_codes"], axis=1, dtype=np.uint16).astype(float)
        values = self.arrays[f"{name}_largest"][0] * np.exp(-(codes - 1) / self.told["log_steps"])
        return np.where(codes > 0, values, 0)

    def assert_tells(self, model, num_neighbors):
        """Each word's neighbors, paths and topics are those that the embedding gives."""
        among = self.words if len(self.words) < len(model) else None
        near = self.probabilities("neighbor")
        own = self.probabilities("word_topic")
        for row, word in enumerate(self.words):
            expected = model.neighbors(word, num_neighbors, among=among)
            found = [self.words[number] for number in self.arrays["neighbors"][row]]
            assert found == [one.word for one in expected]
            probabilities = [one.probability for one in expected]
            np.testing.assert_allclose(near[row], probabilities, rtol=3e-4, atol=1e-13)
            for rank, one in enumerate(expected):
                self.assert_explains(model, word, one, row, rank)
            topics = model.topics_of(word, own.shape[1])
            assert self.arrays["word_topics"][row].tolist() == [share.number for share in topics]
            probabilities = [share.probability for share in topics]
            np.testing.assert_allclose(own[row], probabilities, rtol=3e-4, atol=1e-13)

    def assert_explains(self, model, word, neighbor, row, rank):
        codes = self.arrays["path_codes"][row, rank].astype(float)
        shares = np.where(codes > 0, self.told["min_share"] ** ((255 - codes) / 254), 0)
        expected = model.explain(word, neighbor.word, shares.size)
        for topic, share, one in zip(self.arrays["paths"][row, rank], shares, expected, strict=True):
            part = one.probability / neighbor.probability
            if part < 0.01 * (1 - 1e-6):
                assert share == 0
            elif part > 0.01 * (1 + 1e-6):
                assert topic == one.number
                assert share == pytest.approx(part, rel=0.0095)


@pytest.mark.parametrize("more", [{}, {"levels": merged_levels(12, 8, 5)}], ids=["columns", "merged"])
def test_it_tells_what_the_embedding_answers(more):
    model = embedding(**more)
    told = Told(report.page(model, progress=False))
    assert told.words == list(model.words)
    told.assert_tells(model, 20)
    W = np.asarray(model.topic_probabilities())
    for topic in model.topics(20):
        row = topic.number
        assert told.arrays["weights"][row] == np.float32(topic.weight)
        words = [model.words[number] for number in told.arrays["topic_words"][row]]
        assert words == [one.word for one in topic.words]
        expected = W[told.arrays["topic_words"][row], row]
        np.testing.assert_allclose(told.arrays["topic_word_shares"][row], expected, rtol=1e-6)
        name = [model.words[number] for number in told.told["labels"][row]]
        assert len(name) == 3
        assert set(name) < set(words) - {"<!--"}
    topics = model.topics(10)
    assert told.told["coherence"] == [topic.coherence for topic in topics]
    first = [[one.word for one in topic.words] for topic in model.topics(25)]
    assert told.told["diversity"] == len({word for words in first for word in words}) / sum(map(len, first))
    assert told.told["junk"] == [topic.number for topic in topics if topic.junk]
    assert told.told["first_word"] == told.told["labels"][0][0]
    assert told.arrays["counts"].tolist() == np.asarray(model.word_counts).tolist()
    if not more:
        assert told.told["subtopics"] is None
        return
    assert told.told["subtopics"] == [list(topic.subtopics) for topic in topics]
    for part in model.topics(8, subtopics=True):
        assert told.arrays["subtopic_weights"][part.number] == np.float32(part.weight)
        words = [model.words[number] for number in told.arrays["subtopic_words"][part.number]]
        assert words == [one.word for one in part.words]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("the Thames , river rivers bank", "the Thames river"),
        ("— x 7 \u200b word \u3164 y", "word x y"),
        ("7 … ! \u2800", "7"),
        ("= \u00ad", ""),
        ("game games Game", "game games Game"),
        ("art artist arts", "art artist arts"),
        ("漢 a 字 e\u0301", "漢 字 a"),
    ],
)
def test_labels_are_words_that_tell_something(words, expected):
    words = words.split(" ")
    assert [words[place] for place in label(words)] == expected.split()


def test_topics_are_alike_by_the_cosine_of_their_columns():
    model = embedding(levels=merged_levels(12, 8, 5))
    told = Told(report.page(model, progress=False))
    W = np.asarray(model.topic_probabilities(), np.float64)
    unit = W / np.linalg.norm(W, axis=0)
    cosine = unit.T @ unit
    for topic, (like, likeness) in enumerate(
        zip(told.arrays["similar_topics"], told.arrays["topic_similarity"], strict=True)
    ):
        others = [k for k in np.argsort(-cosine[topic]) if k != topic][: len(like)]
        assert like.tolist() == others
        np.testing.assert_allclose(likeness, cosine[topic, others], rtol=1e-5)


# Not by hypothesis: each size is compiled.
@pytest.mark.parametrize(
    ("num_words", "num_topics", "num_neighbors"), [(1, 1, 5), (2, 1, 1), (1, 3, 1), (40, 9, 50)]
)
def test_any_size(num_words, num_topics, num_neighbors):
    model = embedding(num_words, (num_topics,), seed=num_words)
    told = Told(report.page(model, num_neighbors=num_neighbors, progress=False))
    assert told.arrays["neighbors"].shape[1] == min(num_neighbors, num_words - 1)
    told.assert_tells(model, num_neighbors)


def test_of_many_words_the_most_frequent():
    model = embedding()
    told = Told(report.page(model, max_words=25, num_neighbors=30, progress=False))
    frequent = {model.words[number] for number in np.argsort(-np.asarray(model.word_counts))[:25]}
    assert told.words == [word for word in model.words if word in frequent]
    assert told.told["num_words"] == 60
    told.assert_tells(model, 30)
    # Topics are those of all words.
    assert told.arrays["topic_words"].max() >= 25
    for topic in model.topics(20):
        names = [told.names[number] for number in told.arrays["topic_words"][topic.number]]
        assert names == [one.word for one in topic.words]
    assert len(set(told.names)) == len(told.names)
    assert told.told["first_word"] < 25
    counts = np.zeros(60, np.uint64)
    counts[50:] = 3
    rare_first = Embedding(model.words, model.W, word_counts=counts)
    assert Told(report.page(rare_first, max_words=10, progress=False)).words == list(model.words[50:])
    # Without counts, words come in the order of their frequency.
    bare = Embedding(model.words, model.W)
    assert Told(report.page(bare, max_words=9, progress=False)).words == list(model.words[:9])


def test_what_an_embedding_of_ones_own_lacks():
    W = jnp.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    told = Told(report.page(Embedding(("a", "b", "c"), W), progress=False))
    assert told.told["title"] == "An embedding"
    assert told.told["coherence"] is None
    assert told.told["curves"] == []
    assert "counts" not in told.arrays
    # a and c have no topic in common.
    assert told.probabilities("neighbor")[0].tolist() == pytest.approx([1 / 3, 0], rel=3e-4)
    assert told.arrays["path_codes"][0].tolist() == [[255, 0], [0, 0]]


def test_a_record_that_JSON_does_not_know():
    record = {"corpus": {"name": None}, "loss": float("nan"), "when": Path("x"), 3: ("a", np.float32(2))}
    told = Told(report.page(embedding(record={**record, "seed": 2**63}), progress=False)).told
    expected = {"corpus": {"name": None}, "loss": "nan", "when": "x", "3": ["a", "2.0"], "seed": str(2**63)}
    assert told["record"] == expected
    assert told["title"] == "An embedding"


@pytest.mark.parametrize(("corpus", "title"), [(None, "An embedding"), ("tea leaves", "tea leaves")])
def test_a_corpus_in_ones_own_words(corpus, title):
    model = embedding(record={"corpus": corpus})
    assert Told(report.page(model, progress=False)).told["title"] == title
    assert repr(model) == f"Embedding(60 words, 12 topics{', learned from tea leaves' if corpus else ''})"


def test_curves_are_of_each_start_and_short():
    objective = np.arange(3000.0)[::-1][None].repeat(2, axis=0)
    objective[1, 40:] = np.nan
    long, short = Told(report.page(embedding(history={"objective": objective}), progress=False)).told[
        "curves"
    ]
    assert len(long) <= 500
    assert (long[0], long[-1]) == ([0, 2999.0], [2999, 0.0])
    assert short == [[step, 2999.0 - step] for step in range(40)]
    one = Told(report.page(embedding(history={"objective": np.array([2.0, 1.0])}), progress=False)).told
    assert one["curves"] == [[[0, 2.0], [1, 1.0]]]


def test_nothing_of_a_word_or_title_is_markup():
    title = "</title><script>hacked=1</script>{{script}}"
    page = report.page(embedding(), title=title, progress=False)
    assert page.html.count("<script") == 3
    assert page.html.count("</script") == 3
    assert f"<title>{html.escape(title)} · dcdjax</title>" in page.html
    for word in HOSTILE[:4]:
        assert word not in page.html.replace(html.escape(title), "")
    assert Told(page).told["title"] == title


def test_only_its_own_scripts_and_styles_may_run():
    page = report.page(embedding(), progress=False).html
    [policy] = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    parts = re.findall(r"<script>(.*?)</script>|<style>(.*?)</style>", page, re.DOTALL)
    hashes = {
        base64.b64encode(hashlib.sha256((script or style).encode()).digest()).decode()
        for script, style in parts
    }
    assert len(hashes) == 3
    assert set(re.findall(r"'sha256-([^']*)'", policy)) == hashes
    assert not re.findall(r'(?:src|href)="(?!#)[^"]*"', page[: page.index('<script type="text/plain"')])


def test_the_library_is_as_it_was_published():
    library = (Path(report.__file__).parent / "assets" / "vendor" / "d3.min.js").read_bytes()
    assert library.startswith(b"// https://d3js.org v7.9.2 ")
    assert hashlib.sha256(library).hexdigest() == D3
    assert "permission notice appear in all copies" in report.page(embedding(), progress=False).html


D3 = "912111098ea99503a6f4967361d2bbdc9dbf58cf9c678c8e27e5b02d1a07f0c1"


@pytest.mark.slow
def test_a_page_of_20_000_words_and_200_topics_has_less_than_5_MB():
    rng = np.random.default_rng(0)
    W = rng.standard_gamma(0.05, (20_000, 200)).astype(np.float32) + np.float32(1e-6)
    words = tuple(f"{rng.integers(1 << 40):x}" for _ in W)
    W = jnp.asarray(W / W.sum(axis=1, keepdims=True))
    model = Embedding(words, W, word_counts=rng.integers(1, 1 << 30, 20_000))
    assert len(report.page(model, progress=False).html.encode()) < 5e6


@pytest.mark.parametrize("name", ["max_words", "num_neighbors"])
@pytest.mark.parametrize("value", [0, 1.5, "x"])
def test_arguments_are_named(name, value, unchecked_annotations):
    with pytest.raises(ValueError, match=name):
        report.page(embedding(), **{name: value})
    with pytest.raises(ValueError, match="progress must be"):
        report.page(embedding(), progress=cast(Any, "yes"))


def test_it_says_how_far_it_is():
    told = []
    report.page(embedding(), progress=lambda *news: told.append(news))
    assert told == [("neighbors", 0, 60, "words"), ("neighbors", 60, 60, "words")]


def test_pages_are_saved_whole_and_shown_in_a_frame(tmp_path):
    page = report.page(embedding(), progress=False)
    page.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == page.html
    assert repr(page) == f"Page({len(page.html.encode()) / 1e6:.1f} MB; save(path) writes it)"
    [inside] = re.findall(r'^<iframe srcdoc="([^"]*)"', page._repr_html_())
    assert html.unescape(inside) == page.html
    assert report.page(embedding(), progress=False) == page  # the same every time


def test_a_title_that_is_no_text():
    page = report.page(embedding(record={"corpus": {"name": "caf\udce9.txt"}}), progress=False)
    assert "<title>caf?.txt · dcdjax</title>" in page.html
    page.html.encode()


# --- The command ------------------------------------------------------------------------------------


def test_the_command_writes_what_python_makes(tmp_path, capsysbinary):
    model = embedding(words=HOSTILE[:8])  # JSON keeps no half characters
    model.save(tmp_path / "model")
    assert main.main(["report", str(tmp_path / "model"), "-o", str(tmp_path / "page.html")]) == 0
    text = capsysbinary.readouterr().out
    written = (tmp_path / "page.html").read_text()
    assert written == report.page(model, progress=False).html
    size = len(written.encode()) / 1e6
    assert text.decode() == f"{tmp_path / 'page.html'}: {size:.1f} MB. Open it in a browser.\n"
    options = ["-o", "-", "--quiet", "--title", "Tea", "--max-words", "20", "--neighbors", "3"]
    assert main.main(["report", str(tmp_path / "model"), *options]) == 0
    printed = capsysbinary.readouterr().out
    expected = report.page(model, title="Tea", max_words=20, num_neighbors=3, progress=False)
    assert printed.decode() == expected.html


def test_the_command_refuses_in_one_line(tmp_path, capsys):
    embedding(words=()).save(tmp_path / "model")
    inside = tmp_path / "model" / "page.html"
    assert "is in the model's own folder" in called(
        capsys, "report", tmp_path / "model", "-o", inside, code=2
    )
    assert "is a folder: name a file in it" in called(
        capsys, "report", tmp_path / "model", "-o", tmp_path, code=2
    )
    assert "is not a saved model" in called(
        capsys, "report", tmp_path / "none", "-o", tmp_path / "x.html", code=2
    )
    (tmp_path / "mine.html").write_text("my own page")
    assert "this would overwrite" in called(capsys, "demo", "-o", tmp_path / "mine", code=2)
    assert (tmp_path / "mine.html").read_text() == "my own page"
    assert dcdjax.report is report
