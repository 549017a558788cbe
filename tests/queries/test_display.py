"""What results look like in a terminal and in a notebook."""

import json
import pickle
import re
from html.parser import HTMLParser
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from dcdjax import Embedding
from dcdjax.queries.display import ResultList
from dcdjax.queries.results import Topic, TopicShare, WordProbability
from dcdjax.topics.levels import Level

HOSTILE = ("<b>tea</b>", "\x1b[2J", "\ud800", "$x$", "\u202eright", "&amp;", "日本")


@pytest.fixture(scope="module")
def embedding():
    W = np.random.default_rng(0).dirichlet(np.full(4, 0.5), 30)
    words = HOSTILE + tuple(f"word{n}" for n in range(30 - len(HOSTILE)))
    record = {"corpus": {"name": "<i>talk</i>", "num_tokens": 500}, "created": "2026-05-04", "seconds": 7.2,
              "seed": 3}  # fmt: skip
    return Embedding(words=words, W=jnp.asarray(W), starts=(1, 3), record=record)


class Cells(HTMLParser):
    """Reads the cells of the rows of a table."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.tags = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data):
        if self.rows:
            self.rows[-1][-1] += data


def test_results_are_still_lists_of_tuples(embedding):
    found = embedding.neighbors("word3", 5)
    assert found == [tuple(pair) for pair in found]
    assert isinstance(found, list)
    assert [word for word, _ in found] == [pair.word for pair in found]
    assert json.loads(json.dumps(found)) == [list(pair) for pair in found]
    assert pickle.loads(pickle.dumps(found)) == found
    assert isinstance(found[:3], ResultList)
    assert found[:3] == list(found)[:3]
    assert found[0] == found[-5]


def test_few_results_take_one_line_and_many_a_line_each(embedding):
    assert "\n" not in repr(embedding.neighbors("word3", 2))
    lines = repr(embedding.neighbors("word3", 20)).splitlines()
    assert len(lines) == 20
    assert all(re.fullmatch(r"[\[ ]\('.*', [\d.e-]+\)[,\]]", line) for line in lines)
    two = repr(embedding.neighbors(["word3", "word4"], 20)).splitlines()
    assert len(two) == 40
    assert two[0].startswith("[[('")
    assert two[20].startswith(" [('")
    long = ResultList(WordProbability(f"word{n}", 0.5) for n in range(1400))
    assert len(repr(long).splitlines()) < 70
    assert repr(long).endswith("... 1340 more]")
    assert repr(ResultList()) == "[]"


def test_topics_fit_a_terminal():
    words = tuple(WordProbability(f"longer-word-{n}", 0.1) for n in range(20))
    topics = ResultList([Topic(3, 0.0123456, 0.5, words), Topic(4, 0.5, None, words[:1])])
    lines = repr(topics).splitlines()
    assert lines[0].startswith("[(3, 0.01235, 0.5, 'longer-word-0 longer-word-1 ")
    assert lines[0].endswith(" ...'),")
    assert lines[1] == " (4, 0.5, None, 'longer-word-0')]"
    assert max(map(len, lines)) <= 80
    part = Topic(3, 0.0123456, -0.5, words, (4, 5, 17), junk=True)
    line = repr(ResultList([part]))
    assert line.startswith("[(3, 0.01235, -0.5, 'longer-word-0 ")
    assert line.endswith(" ...', subtopics=(4, 5, 17), junk=True)]")
    assert len(line) <= 80
    share = ResultList([TopicShare(3, 0.25, ("tea", "cup"))])
    assert repr(share) == "[(3, 0.25, 'tea cup')]"


def test_notebooks_show_tables(embedding):
    found = embedding.neighbors("word3", 5)
    page = found._repr_html_()
    table = Cells(page)
    assert table.rows[0] == ["word", "probability"]
    assert [row[1] for row in table.rows[1:]] == [f"{pair.probability:.4g}" for pair in found]
    assert "mathjax_ignore" in page  # or $ would begin a formula
    topics = ResultList(
        [Topic(3, 0.0123456, None, (WordProbability("tea", 0.5), WordProbability("cup", 0.25)))]
    )
    assert Cells(topics._repr_html_()).rows[1] == ["3", "0.01235", "", "tea cup", "", ""]
    part = topics[0]._replace(subtopics=(4, 7), junk=True)
    assert Cells(ResultList([part])._repr_html_()).rows == [
        ["number", "weight", "coherence", "words", "subtopics", "junk"],
        ["3", "0.01235", "", "tea cup", "4 7", "yes"],
    ]
    two = Cells(embedding.neighbors(["word3", "word4"], 2)._repr_html_())
    assert [row[0] for row in two.rows] == ["", "word3", "word4"]
    assert two.rows[1][1] == " ".join(pair.word for pair in found[:2])
    assert "1340 more" in ResultList(found * 280)._repr_html_()
    assert Cells(ResultList()._repr_html_()).rows == [["", "results"]]


def test_nothing_in_a_table_is_read_as_html(embedding):
    class Any(NamedTuple):
        text: str
        words: tuple[str, ...]

    rows = ResultList([Any(word, (word,)) for word in HOSTILE])
    for page in (
        rows._repr_html_(),
        embedding._repr_html_(),
        embedding.neighbors(list(HOSTILE), 29)._repr_html_(),
    ):
        assert Cells(page).tags <= {"table", "thead", "tbody", "tr", "th", "td"}
        assert "\x1b" not in page
        assert "\u202e" not in page
        page.encode()  # half of a character could not be sent to a browser
    assert [row[0] for row in Cells(rows._repr_html_()).rows[1:]] == [
        "<b>tea</b>", "\\x1b[2J", "\\ud800", "$x$", "\\u202eright", "&amp;", "日本"
    ]  # fmt: skip
    assert "\x1b" not in repr(rows)


def test_an_embedding_says_what_it_is(embedding):
    rows = dict(Cells(embedding._repr_html_()).rows[1:])
    assert rows["words"].startswith("30: <b>tea</b> ")
    assert rows["topics"] == "4 (1 + 3)"
    assert rows["corpus"] == "<i>talk</i>, 500 tokens"
    assert rows["learned"] == "2026-05-04, 7 seconds"
    assert rows["key"] == "3"
    grouped = Embedding(
        words=embedding.words, W=embedding.W, starts=(1, 3), levels=(Level(np.array([0, 1, 0, 0])),)
    )
    assert dict(Cells(grouped._repr_html_()).rows[1:])["topics"] == "2 of 4 columns (1 + 3)"
    plain = Embedding(words=("tea",), W=jnp.ones((1, 1)), record={"corpus": "talk"})
    assert dict(Cells(plain._repr_html_()).rows[1:]) == {"words": "1: tea", "topics": "1", "corpus": "talk"}
