"""Whatever stands in a file, a reader returns what is valid or raises what it documents, soon and in bounds.

Real files are changed byte by byte, and in their structure with the right checksum. What is accepted is used,
so that a compiled kernel sees it. More examples than in CI, for about an hour:

    DCDJAX_FUZZ_EXAMPLES=5000 pytest -n0 -m slow tests/fuzz
"""

import gzip
import json
import os
import resource
import shutil
import time
import warnings
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from problems import random_S

from dcdjax import Embedding, cooccurrence, count, evaluation, fit, prepare, similarity
from dcdjax.checkpoints.checkpoint_files import CheckpointError, CheckpointWarning
from dcdjax.devices import sweeps
from dcdjax.util import matrix_files, store

NUM_EXAMPLES = int(os.environ.get("DCDJAX_FUZZ_EXAMPLES", 20))
# Far above what the files here need, far below what a lying size would take.
MAX_SECONDS, MAX_BYTES = 20, 1 << 30
CORPUS = ["tea cup tea", "cup tea", "sail ship", "ship sail sea"]
S = random_S(np.random.default_rng(0), 12)
FIT = {"num_topics": 2, "key": 0, "restarts": 2, "max_steps": 6, "tol": 0.0, "progress": False}

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unchecked_annotations")]
fuzzed = settings(
    max_examples=NUM_EXAMPLES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


# --- Changes ----------------------------------------------------------------------------------------

PIECES = st.one_of(
    st.binary(max_size=8),
    st.sampled_from(
        [
            *(
                b"nan",
                b"inf",
                b"-1",
                b"1e400",
                b"0",
                b"9" * 30,
                b"\0",
                b"\xff\xfe",
                b"\r",
                b"\n",
                b" ",
                b"\t",
            ),
            *(
                b'"',
                b",",
                b"{",
                b"}",
                b"[" * 2000,
                b"null",
                b"\xed\xa0\x80",
                b"%",
                b"%%",
                bytes(64),
                b"\x1f\x8b",
            ),
        ]
    ),
)
KINDS = st.sampled_from(["insert", "replace", "cut", "double", "end"])
EDITS = st.lists(st.tuples(KINDS, st.floats(0, 1), st.floats(0, 1), PIECES), min_size=1, max_size=4)


def edited(content, edits):
    for kind, first, second, piece in edits:
        begin, end = sorted((int(first * len(content)), int(second * len(content))))
        if kind == "insert":
            content = content[:begin] + piece + content[begin:]
        elif kind == "replace":
            content = content[:begin] + piece + content[begin + len(piece) :]
        elif kind == "cut":
            content = content[:begin] + content[end:]
        elif kind == "double":
            content = content[:end] + content[begin:]
        else:
            content = content[:end]
    return content


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-9, 9) | st.text(max_size=3) | st.just(2**70),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
DTYPES = st.sampled_from([np.float32, np.float64, np.int32, np.int64, np.uint8, np.bool_])


@st.composite
def changed_arrays(draw, arrays):
    """Arrays of which one is gone, cut, reshaped, of another dtype, or has another entry."""
    arrays = dict(arrays)
    for _ in range(draw(st.integers(1, 2))):
        name = draw(st.sampled_from(sorted(arrays)))
        array = np.array(arrays[name])
        kind = draw(
            st.sampled_from(["entry", "entry", "entry", "cut", "grow", "dtype", "shape", "gone", "more"])
        )
        if kind == "gone" and len(arrays) > 1:
            del arrays[name]
        elif kind == "more":
            arrays[draw(st.sampled_from(["data", "W", "x", "kept"]))] = array
        elif array.dtype.kind in "SU":
            arrays[name] = np.array(draw(st.sampled_from(["csr", "csc", "coo", "", "dia"])))
        elif kind == "entry" and array.size:
            number = draw(st.sampled_from([0, -1, 1, 2, 12, 10**6, 2**31 - 1, 0.5, np.nan, np.inf, -1e300]))
            with np.errstate(all="ignore"):
                array.reshape(-1)[draw(st.integers(0, array.size - 1))] = np.asarray(number).astype(
                    array.dtype
                )
            arrays[name] = array
        elif kind == "cut" and array.ndim:
            arrays[name] = array[draw(st.integers(0, 3)) : len(array) - draw(st.integers(0, 3))]
        elif kind == "grow" and array.ndim:
            arrays[name] = np.concatenate([array, array], axis=draw(st.integers(0, array.ndim - 1)))
        elif kind == "dtype":
            with np.errstate(all="ignore"):
                arrays[name] = array.astype(draw(DTYPES))
        else:
            arrays[name] = array[None] if draw(st.booleans()) else array.reshape(-1)
    return arrays


@st.composite
def changed_record(draw, record):
    """A record of which one value, somewhere in it, is another."""
    record = json.loads(json.dumps(record))
    place = record
    for _ in range(draw(st.integers(0, 3))):
        inner = [value for value in place.values() if isinstance(value, dict) and value]
        if not inner:
            break
        place = draw(st.sampled_from(inner))
    name = draw(st.sampled_from(sorted(place)))
    if draw(st.booleans()):
        place[name] = draw(VALUES)
    elif isinstance(place[name], list) and place[name]:
        place[name][draw(st.integers(0, len(place[name]) - 1))] = draw(VALUES)
    else:
        del place[name]
    return record


def change_store(data, path):
    """Change what a file of ours holds, with the right checksum."""
    tensors, content = store.read(path)
    kind = store.kind_of(path) or ""
    if data.draw(st.booleans()):
        tensors = data.draw(changed_arrays(tensors))
    else:
        content = data.draw(changed_record(content))
    try:
        store.write(path, tensors, content, kind=kind)
    except ValueError:  # it cannot even be written
        path.write_bytes(b"")


def change_npz(data, path):
    with np.load(path) as archive:
        arrays = data.draw(changed_arrays(dict(archive)))
    np.savez(path, **arrays)


def change_bytes(data, path):
    content = path.read_bytes()
    if path.suffix == ".gz" and data.draw(st.booleans()):
        path.write_bytes(gzip.compress(edited(gzip.decompress(content), data.draw(EDITS)), 1))
    else:
        path.write_bytes(edited(content, data.draw(EDITS)))


# --- Readers ----------------------------------------------------------------------------------------


def use_S(found):
    layout = prepare(found, dtype=np.float64)
    ZW = sweeps.sweep(jnp.full((found.num_words, 3), 0.3), layout).ZW
    assert ZW.shape == (found.num_words, 3)


def use_model(folder):
    found = Embedding.load(folder)
    repr(found)
    found.neighbors(found.words[0], 2)
    found.topics(3)
    found.topics_of(found.words[-1])
    found.explain(found.words[0], found.words[-1])
    found.fold_in({found.words[0]: 2})


def use_counts(path):
    found = cooccurrence.load(path)
    similarity.from_counts(found, drop_isolated=True)


def go_on(folder):
    found = fit(S, **FIT, checkpoint=folder)
    assert np.isfinite(found.W).all()


READERS = {
    "model/model.safetensors": lambda path: use_model(path.parent),
    "counts.safetensors": use_counts,
    "S.safetensors": lambda path: (use_S(similarity.load(path)), use_S(similarity.mapped(path))),
    "S.npz": lambda path: use_S(similarity.read(path, symmetrize=True, drop_isolated=True)),
    "S.mtx": lambda path: use_S(similarity.read(path, symmetrize=True, drop_isolated=True)),
    "S.mtx.gz": lambda path: use_S(similarity.read(path, symmetrize=True, drop_isolated=True)),
    "dense.mtx": lambda path: use_S(similarity.read(path, symmetrize=True, drop_isolated=True)),
    "pairs.txt": evaluation.read_pairs,
    "analogies.txt": evaluation.read_analogies,
    "categories.txt": evaluation.read_categories,
    "text.txt": lambda path: count(path, window=2),
    "text.txt.gz": lambda path: count(path, window=2),
    "news.csv": lambda path: count(path, window=2, text="body"),
    "news.csv.gz": lambda path: count(path, window=2, text="body"),
    "news.jsonl": lambda path: count(path, window=2, text="body"),
    "news.jsonl.gz": lambda path: count(path, window=2, text="body"),
    "news.parquet": lambda path: count(path, window=2, text="body"),
}


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    """A folder with a real file of each kind."""
    folder = tmp_path_factory.mktemp("samples")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit(CORPUS, num_topics=2, progress=False).save(folder / "model")
        counts = count(CORPUS, window=2)
        counts.save(folder / "counts.safetensors")
        similarity.from_matrix(S, words=[f"w{n}" for n in range(12)]).save(folder / "S.safetensors")
        fit(S, **FIT, checkpoint=folder / "run", checkpoint_every=0.0)
    sparse = scipy.sparse.csr_array(S)
    scipy.sparse.save_npz(folder / "S.npz", sparse)
    scipy.io.mmwrite(folder / "S.mtx", sparse)
    scipy.io.mmwrite(folder / "dense.mtx", S)
    (folder / "pairs.txt").write_text("# scores\nword,word,score\ntea,cup,3.5\nsail,ship,9\n")
    (folder / "analogies.txt").write_text(": seas\ntea cup sail ship\ncup tea ship sail\n")
    (folder / "categories.txt").write_text("tea\tdrink\nship\tthing\n")
    (folder / "text.txt").write_text("\n".join(CORPUS))
    frame = pd.DataFrame({"id": range(4), "body": CORPUS, "score": [0.5, None, 1.0, 2.0]})
    frame.to_csv(folder / "news.csv", index=False)
    frame.to_json(folder / "news.jsonl", orient="records", lines=True)
    frame.to_parquet(folder / "news.parquet")
    for name in ("S.mtx", "text.txt", "news.csv", "news.jsonl"):
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
    return folder


def check(function, *arguments):
    """Call a reader, which may refuse what it reads as it documents, but within bounded time and memory."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for category in (UserWarning, CheckpointWarning):
            warnings.simplefilter("ignore", category)
        with suppress(ValueError, OSError):
            function(*arguments)
    assert time.monotonic() - began < MAX_SECONDS
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < MAX_BYTES


@pytest.mark.parametrize("name", READERS)
def test_changed_bytes(name, samples, tmp_path):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)

    @fuzzed
    @given(st.data())
    def fuzz(data):
        shutil.copyfile(samples / name, path)
        check(READERS[name], path)
        change_bytes(data, path)
        check(READERS[name], path)

    fuzz()


@pytest.mark.parametrize("name", [name for name in READERS if Path(name).suffix in (".safetensors", ".npz")])
def test_changed_contents(name, samples, tmp_path):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)

    @fuzzed
    @given(st.data())
    def fuzz(data):
        shutil.copyfile(samples / name, path)
        (change_npz if name.endswith("npz") else change_store)(data, path)
        check(READERS[name], path)

    fuzz()


@pytest.mark.parametrize("change", [change_store, change_bytes])
def test_changed_checkpoints(change, samples, tmp_path):
    @fuzzed
    @given(st.data())
    def fuzz(data):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        shutil.copytree(samples / "run", tmp_path / "run")
        paths = sorted((tmp_path / "run").glob("checkpoint-*.safetensors"))
        path = data.draw(st.sampled_from(paths), label="file")
        if data.draw(st.booleans()):  # none before it
            for other in set(paths) - {path}:
                other.unlink()
        change(data, path)
        check(go_on, tmp_path / "run")

    fuzz()


@fuzzed
@given(
    model=st.one_of(
        VALUES,
        st.dictionaries(
            st.text(max_size=3), st.lists(st.floats(width=32), min_size=2, max_size=3), max_size=4
        ),
        st.tuples(VALUES, VALUES),
        st.tuples(
            st.lists(st.text(max_size=2), max_size=3), st.lists(st.lists(st.floats(), max_size=3), max_size=3)
        ),
    )
)
def test_word_tables(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for one in (model, SimpleNamespace(words=("a", "b"), W=model)):
            with suppress(ValueError, TypeError):
                found = evaluation.as_vectors(one)
                assert np.isfinite(found.vectors).all()
                assert len(found.words) == len(found.vectors)


@fuzzed
@given(choices=st.data())
def test_saved_matrices(choices, tmp_path_factory):
    """A file of a matrix that is mapped is refused whenever the one that is read is."""
    path = tmp_path_factory.mktemp("saved") / "S"
    arrays = {"data": np.ones(4), "indices": np.array([1, 0, 2, 1]), "indptr": np.array([0, 1, 3, 4])}
    settings = {"num_symmetrized": 0, "num_dropped": 0}
    content = {
        "shape": choices.draw(st.sampled_from([[3, 3], [3, 4], [4, 3]])),
        "words": None,
        "settings": settings,
    }
    arrays = {**choices.draw(changed_arrays(arrays)), "kept": np.arange(3)}
    store.write(path, arrays, content, kind="similarity")
    try:
        mapped = similarity.mapped(path)
    except ValueError:
        return
    assert matrix_files.load_matrix(path, kind="similarity").matrix.dtype == np.float64
    np.testing.assert_array_equal(similarity.load(path).matrix.toarray(), mapped.matrix.toarray())


def test_another_run_is_refused_not_damaged(samples, tmp_path):
    shutil.copytree(samples / "run", tmp_path / "run")
    other: Any = FIT | {"max_steps": 7}
    with pytest.raises(CheckpointError, match="is of another run"):
        fit(S, **other, checkpoint=tmp_path / "run")
