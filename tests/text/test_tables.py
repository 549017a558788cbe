"""Tables: the text of each row is a document, whatever holds the table."""

import warnings

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dcdjax import count, fit
from dcdjax.cli import main
from dcdjax.text.blocks import CorpusError

TITLES = ["Tea", "Ships", "Tea, again"]
BODIES = ["a cup\nof tea", "the ship sails", 'she said "tea"']


def write(path, ending):
    frame = pd.DataFrame({"id": [1, 2, 3], "title": TITLES, "body": BODIES})
    if ending == ".parquet":
        frame.to_parquet(path)
    elif ending.startswith(".jsonl"):
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_csv(path, sep="\t" if ending.startswith(".tsv") else ",", index=False)
    return path


def words(source, **options):
    counts = count(source, window=2, tokens="blanks", **options)
    return dict(zip(counts.words, counts.vocabulary.counts.tolist(), strict=True)), counts.matrix.sum()


ENDINGS = [".csv", ".csv.gz", ".tsv", ".tsv.gz", ".jsonl", ".jsonl.gz", ".parquet"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_row_is_a_document(tmp_path, ending):
    path = write(tmp_path / f"news{ending}", ending)
    expected = words([body.split() for body in BODIES])
    assert words(path, text="body") == expected
    assert words(path, text=["title", "body"]) == words(
        [f"{title} {body}".split() for title, body in zip(TITLES, BODIES, strict=True)]
    )
    # As a folder, and by the name of the only column.
    assert words(tmp_path, text="body") == expected


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_missing_column_lists_the_columns(tmp_path, ending):
    path = write(tmp_path / f"news{ending}", ending)
    with pytest.raises(
        ValueError, match=r"text='nothing': .*no such column; the columns are 'id', 'title', 'body'"
    ):
        count(path, text="nothing")
    with pytest.raises(ValueError, match=r"name the column of the text.*'title', 'body'"):
        count(path)


@pytest.mark.parametrize("ending", [".csv", ".tsv.gz"])
def test_a_file_without_a_header(tmp_path, ending):
    path = tmp_path / f"news{ending}"
    frame = pd.DataFrame({"title": TITLES, "body": BODIES})
    frame.to_csv(path, sep="\t" if ending == ".tsv.gz" else ",", index=False, header=False)
    assert words(path, text="column1") == words([body.split() for body in BODIES])
    assert words(path, text=["column0", "column1"]) == words(frame, text=["title", "body"])
    with pytest.raises(ValueError, match=r"text='column2': .*the columns are 'column0', 'column1'"):
        count(path, text="column2")
    with pytest.raises(ValueError, match=r'; without a header, they are "column0" to "column1"$'):
        count(path)


def test_columns_that_are_called_as_if_there_were_no_header(tmp_path):
    path = tmp_path / "news.csv"
    pd.DataFrame({"column1": TITLES, "column2": BODIES}).to_csv(path, index=False)
    assert words(path, text="column1") == words([title.split() for title in TITLES])
    pd.DataFrame({f"name{n}": BODIES for n in range(12)}).to_csv(path, index=False)
    with pytest.raises(ValueError, match=r'; without a header, they are "column00" to "column11"$'):
        count(path)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_frames_and_their_columns(make):
    frame = make({"title": TITLES, "body": BODIES})
    expected = words([body.split() for body in BODIES])
    assert words(frame, text="body") == expected
    assert words(frame["body"]) == expected
    assert words(make({"text": BODIES, "title": TITLES})) == expected
    with pytest.raises(ValueError, match="the columns are 'title', 'body'"):
        count(frame, text="nothing")
    with pytest.raises(ValueError, match="the corpus is a column itself"):
        count(frame["body"], text="body")


def test_an_arrow_array_and_a_dataset_of_hugging_face():
    class Dataset:
        column_names = ("text", "label")

        def __getitem__(self, name):
            return iter(BODIES if name == "text" else [0, 1, 0])

    expected = words([body.split() for body in BODIES])
    assert words(pa.array(BODIES)) == words(Dataset()) == expected


def test_cells_without_text_are_counted(tmp_path):
    frame = pd.DataFrame({"body": ["tea cup", None, "", "  ", 7, float("nan"), "cup tea"]}, dtype=object)
    with pytest.warns(
        UserWarning, match="left out rows without text: 2 empty, 2 null, 1 not text, of 7 rows"
    ):
        found, _ = words(frame)
    assert found == {"cup": 2, "tea": 2}
    lines = ['{"body": "tea cup"}', "", '{"title": 1}', '{"body": [1]}', '{"body": "cup"}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    with pytest.warns(UserWarning, match="1 null, 1 not text, of 4 rows"):
        found, _ = words(tmp_path / "a.jsonl")
    assert found == {"cup": 2, "tea": 1}
    for empty in (pd.DataFrame({"body": [None, 3]}), pl.DataFrame({"body": []})):
        with pytest.raises(CorpusError, match="no row of the table has text"):
            count(empty)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", b"text,id\n\xff\xfe tea,1\n", "a.csv: .*"),
        ("a.jsonl", b'{"text": "tea"}\n{"text": ', "a.jsonl: line 2 is not JSON"),
        ("a.jsonl", b'["tea"]\n', "a.jsonl: line 1 is not a JSON object but list"),
        ("a.jsonl", b"[" * 100_000, "a.jsonl: line 1 is not JSON"),
        ("a.parquet", b"not parquet at all", "a.parquet: "),
    ],
)
def test_what_is_damaged_is_named(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=said):
        count(tmp_path / name)


def test_text_belongs_to_tables(tmp_path):
    (tmp_path / "a.txt").write_text("tea cup")
    (tmp_path / "a.csv").write_text("text\ntea cup\n")
    with pytest.raises(ValueError, match=r"text='body' names a column, but .*a.txt is not a table"):
        count(tmp_path / "a.txt", text="body")
    with pytest.raises(ValueError, match="but the corpus is not a table"):
        count(["tea cup"], text="body")
    with pytest.raises(CorpusError, match=r"a.csv is a table, but .*a.txt is not"):
        count(tmp_path)
    # A cell that is the name of a file is text.
    assert words(pd.Series([str(tmp_path / "a.txt")]))[0] == {str(tmp_path / "a.txt"): 1}


def test_fit_and_the_shell_take_a_column(tmp_path, capsys):
    path = tmp_path / "notes.csv"
    pd.DataFrame({"id": range(40), "body": ["tea cup tea", "sail ship sea"] * 20}).to_csv(path, index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = fit(path, text="body", num_topics=2, restarts=1, key=0, progress=False)
    assert model.neighbors("tea", 1)[0].word == "cup"
    assert model.record["settings"]["counting"]["text"] == "body"
    options = ["--text", "body", "--topics", "2", "--restarts", "1", "--quiet", "-o", str(tmp_path / "model")]
    assert main.main(["fit", str(path), *options]) == 0
    assert main.main(["fit", str(path), *options[2:]]) == 2
    assert "the columns are 'id', 'body'" in capsys.readouterr().err


def test_damaged_files_are_named(tmp_path):
    whole = write(tmp_path / "news.jsonl.gz", ".jsonl.gz").read_bytes()
    for content in (whole[:-9], b"\x1f\x8b no gzip", b"{}"):
        (tmp_path / "bad.jsonl.gz").write_bytes(content)
        with pytest.raises(CorpusError, match=r"bad\.jsonl\.gz: not a whole gzip file, from line \d on: "):
            count(tmp_path / "bad.jsonl.gz", text="title")
