"""Which texts are hard-wrapped, and what their paragraphs are."""

import gzip
import random
import textwrap
import warnings
from pathlib import Path

import numpy as np
import pytest
import text_oracle
from hypothesis import given
from hypothesis import strategies as st

from dcdjax import count
from dcdjax.text import blocks as text_blocks
from dcdjax.text import tokens
from dcdjax.text.kinds import HardWrappedWarning, is_hard_wrapped
from dcdjax.text.paragraphs import join_split_words

SOUNDS = "ba da ga ka la ma na pa ra sa ta bo do go ko lo mo no po ro so to".split()  # noqa: SIM905


def paragraph(rng, num_sentences):
    """Sentences of words that nobody knows."""
    return " ".join(
        " ".join(word(rng) for _ in range(rng.randint(4, 20))).capitalize() + rng.choice(".!?.")
        for _ in range(num_sentences)
    )


def word(rng):
    return "".join(rng.choices(SOUNDS, k=rng.choice((1, 1, 2, 2, 3, 4))))


def paragraphs(num=40, most=12, seed=0):
    rng = random.Random(seed)
    return [paragraph(rng, rng.randint(1, most)) for _ in range(num)]


def wrapped(texts, width, **options):
    return "\n\n".join(textwrap.fill(text, width, **options) for text in texts) + "\n"


def justified(text, width):
    """Lines of the same width, as `man` makes them."""
    lines = textwrap.wrap(text, width)
    for number, line in enumerate(lines[:-1]):
        words, gaps = line.split(), line.count(" ")
        missing = width - len(line)
        lines[number] = "".join(
            word + " " * (1 + (gap < missing)) if gap < gaps else word for gap, word in enumerate(words)
        )
    return "\n".join(f"       {line}" for line in lines)


@pytest.mark.parametrize(
    "text",
    [
        wrapped(paragraphs(), 72),
        wrapped(paragraphs(), 40),
        wrapped(paragraphs(), 100, initial_indent="    "),
        wrapped(paragraphs(5), 79, initial_indent="* ", subsequent_indent="  "),
        wrapped(paragraphs(), 72).replace("\n", "\r\n"),
        "\n\n".join(justified(text, 65) for text in paragraphs()),
        "CHAPTER I\n\n\n" + wrapped(paragraphs(), 70) + "\n".join(f"{n}. see page {n}" for n in range(30)),
        wrapped([text.upper().swapcase() for text in paragraphs()], 60),  # small letters only
        wrapped([text.translate({97: 0x905, 98: 0x915, 100: 0x924}) for text in paragraphs()], 72),
    ],
)
def test_hard_wrapped_text(text):
    assert is_hard_wrapped(text)


def logged(rng):
    return (
        f"2026-11-{rng.randint(1, 30)} 12:{rng.randint(10, 59)} INFO worker-{word(rng)} {paragraph(rng, 1)}"
    )


LINES = {
    "an article a line": "\n".join(paragraphs()),
    "a paragraph a line": "\n\n".join(paragraphs(most=30)),
    "headlines": "\n".join(paragraphs(500, most=1)),
    "small letters only": "\n".join(text.lower() for text in paragraphs(500, most=1)),
    "headlines in groups": "\n\n".join("\n".join(paragraphs(20, 1, seed)) for seed in range(20)).lower(),
    "messages with a limit": "\n".join(text[:140].lower() for text in paragraphs(500, most=4)),
    "one long line": " ".join(paragraphs()),
    "a word a line": "\n".join(" ".join(paragraphs()).split()),
    "a log": "\n".join(logged(random.Random(n)) for n in range(300)),
    "verses": "\n\n".join("\n".join(line.title() for line in paragraphs(8, 1, seed)) for seed in range(20)),
    "ten words a line": "\n".join(
        " ".join(word(random.Random(f"{n} {place}")) for place in range(10)) for n in range(90)
    ),
    "data": "\n".join("ACGT" * 15 for _ in range(100)),
    "code": Path(tokens.__file__).read_text(),
    "a few lines": wrapped(paragraphs(1, 1), 30),
    "nothing": "",
    "empty lines": "\n" * 100,
}


@pytest.mark.parametrize("kind", LINES)
def test_a_document_a_line_is_not_taken_for_hard_wrapped(kind):
    assert not is_hard_wrapped(LINES[kind])


def test_where_a_text_is_cut_is_no_empty_line(tmp_path, monkeypatch):
    path = tmp_path / "lines.txt"
    path.write_text(LINES["ten words a line"])
    for block_bytes in (200, 1000, 1 << 20):
        monkeypatch.setattr(text_blocks, "BLOCK_BYTES", block_bytes)
        assert count(path, min_count=1).settings["documents"] == "line"


def test_real_texts_with_a_document_a_line(data):
    for path in sorted(data.glob("[wtd]*/*.[tc]*.gz")):
        if path.parent.name in ("wikitext-2", "text8", "documents"):
            with path.open("rb") as file, warnings.catch_warnings(action="error"):
                reading = tokens.read(file)
                assert reading.documents == "line", path
                reading.close()


def test_real_texts_that_are_hard_wrapped():
    texts = [
        *Path("/usr/share/common-licenses").glob("GPL-3"),
        *Path("/usr/share/doc/git/RelNotes").glob("2.1?.0.txt"),
    ]
    if not texts:
        pytest.skip("a Debian system has these texts")
    for path in texts:
        assert is_hard_wrapped(path.read_text()), path


# --- What follows from it -----------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["file", "compressed", "string", "strings", "open file"])
def test_windows_go_on_in_the_next_line(tmp_path, form):
    texts = paragraphs()
    text = wrapped(texts, 72)
    path = tmp_path / "book.txt"
    path.write_bytes(gzip.compress(text.encode()) if form == "compressed" else text.encode())
    source = {"string": [text], "strings": [wrapped(texts[:20], 72), wrapped(texts[20:], 72)]}.get(form, path)
    said = "book" if isinstance(source, Path) else "items 0 and on"
    expected = count(texts, window=3)
    with (
        path.open() as file,
        pytest.warns(HardWrappedWarning, match=rf'{said}.* are hard-wrapped, .* documents="paragraph"'),
    ):
        counts = count(file if form == "open file" else source, window=3)
    assert counts.words == expected.words
    assert counts.settings["documents"] == "paragraph"
    np.testing.assert_array_equal(counts.matrix.toarray(), expected.matrix.toarray())
    for documents in ("line", "paragraph", "file"):  # no warning
        assert count(source, window=3, documents=documents).settings["documents"] == documents


def test_wide_tables_do_not_hide_that_text_is_wrapped():
    table = "\n".join("| Package ".ljust(60, ".") + f" {n:018d} |" for n in range(200))
    assert is_hard_wrapped(f"{wrapped(paragraphs(), 60)}\n\n{table}\n")


def test_a_few_lines_of_other_kinds_do_not_matter(tmp_path):
    """Texts of a folder are judged together."""
    for number, text in enumerate(paragraphs(30)):
        (tmp_path / f"{number}.txt").write_text(textwrap.fill(text, 60))
    (tmp_path / "list.txt").write_text("\n".join(paragraphs(20, 1)))
    with pytest.warns(HardWrappedWarning):
        assert count(tmp_path).settings["documents"] == "paragraph"


@given(
    st.lists(st.sampled_from(["a", " ", "\n", "\r\n", "\t", "b c", "\u2003", "\f"]), max_size=30).map(
        "".join
    ),
    st.sampled_from([9, 12, 1 << 20]),
    st.booleans(),
)
def test_paragraphs_are_those_of_a_simple_splitter(text, block_bytes, by_tokenizer):
    expected = [paragraph for paragraph in text_oracle.paragraphs(text, str.split) if paragraph]
    tokenizer = str.split if by_tokenizer else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_blocks, "BLOCK_BYTES", block_bytes)
        found = [[]]
        for block in tokens.read([text], documents="paragraph", tokens="blanks", tokenizer=tokenizer):
            breaks = set(block.breaks.tolist())
            for place, code in enumerate(block.codes.tolist()):
                found = [*found, []] if place in breaks else found
                found[-1].append(block.words[code])
            found = [*found, []] if len(block.codes) in breaks else found
    assert [paragraph for paragraph in found if paragraph] == expected


def test_words_split_at_the_end_of_a_line_are_joined():
    text = "The speci\u2010\n       fication of a well-\nknown soft\u00ad\r\nware has a -\nsign, pages 3-\n4"
    text += " and Anglo-\nSaxon."
    counts = count([text], documents="paragraph")
    assert {"specification", "well-known", "software", "sign", "anglo", "saxon"} <= set(counts.words)
    assert "specification" not in count([text], documents="line").words
    assert "speci\u2010" in count([text], documents="paragraph", tokens="blanks").words
    two = ["ends with a well-", "known word"]  # two documents
    assert "well-known" not in count(two, documents="paragraph").words


@given(st.lists(st.sampled_from(["ab", "-", "\u2010", "\n", "\r\n", " ", "é"]), max_size=20).map("".join))
def test_joining_keeps_the_length_and_the_lines(text):
    content = text.encode()
    joined = join_split_words(content)
    assert len(joined) == len(content)
    assert joined.count(b"\n") == content.count(b"\n")
    joined.decode()
