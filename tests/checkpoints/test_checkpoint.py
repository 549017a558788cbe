"""A run that is killed, interrupted or out of disk goes on with the same result; never with a wrong one."""

import errno
import inspect
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from commands import heeds_ctrl_c
from problems import random_S, slow

from dcdjax import fit
from dcdjax.checkpoints import checkpoint_files
from dcdjax.checkpoints.checkpoint_files import CheckpointError, CheckpointFolder, CheckpointWarning
from dcdjax.cli import main
from dcdjax.fitting import scheduler
from dcdjax.fitting.fit import NotConvergedWarning
from dcdjax.method import decomposition
from dcdjax.solvers import full_batch
from dcdjax.starts import spectrum
from dcdjax.util import files, store

S = random_S(np.random.default_rng(3), 30)
OPTIONS = {"num_topics": 3, "key": 0, "restarts": 2, "tol": 0.0, "max_steps": 12, "progress": False}
RUN = {"S": {"sha256": "ab"}, "tol": 0.1}
pytestmark = pytest.mark.filterwarnings("ignore::dcdjax.fitting.fit.NotConvergedWarning")


class Cut(Exception):  # noqa: N818, no error but what a test wants
    """Ends a run as a crash would: nothing is saved any more."""


def cutting(at):
    """A progress that cuts a run off after so many steps of all starts."""

    def tell(stage, done, total, unit, detail=""):
        if stage == "solving" and done >= at:
            raise Cut

    return tell


def cut(folder, at, source=S, **options):
    with pytest.raises(Cut):
        kept(folder, source, **{**options, "progress": cutting(at)})


def kept(folder, source=S, **options):
    given: Any = {**OPTIONS, "checkpoint": folder, "checkpoint_every": 0.0, **options}
    return fit(source, **given)


def assert_same(found, expected):
    np.testing.assert_array_equal(found.W, expected.W)
    assert found.starts == expected.starts
    for name, history in expected.history.items():
        np.testing.assert_array_equal(found.history[name], history)
    for name in ("objective", "num_steps", "status", "used", "settings"):
        assert found.record[name] == expected.record[name]


def newest(folder, part="start"):
    return sorted(folder.glob(f"checkpoint-{part}*.safetensors"))[-1]


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def damage(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.fixture(autouse=True)
def a_step_at_a_time(monkeypatch):
    monkeypatch.setattr(scheduler, "SECONDS_PER_CHUNK", 1e-9)
    monkeypatch.setattr(os, "fsync", lambda _: None)  # slow, and nobody cuts the power


@pytest.fixture(scope="module")
def uncut():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit(S, **OPTIONS)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    rng = np.random.default_rng(0)
    path.write_text("\n".join(" ".join(f"w{n}" for n in rng.integers(0, 20, 12)) for _ in range(60)))
    return path


# --- Cut off, and gone on ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"over_relaxation": 1.0, "start": "random"},
        {"step": "relaxed", "over_relaxation": 1.0},
        slow({"step": "relaxed", "dtype": jnp.float64}),
        slow({"num_topics": (2, 4), "combine": "consensus"}),
        slow({"combine": "best"}),
        slow({"combine": "reduced"}),
        slow({"tol": 0.05, "max_steps": 200}),
    ],
    ids=str,
)
def test_cut_anywhere_it_ends_the_same(options, tmp_path):
    expected = fit(S, **{**OPTIONS, **options})
    total = sum(expected.record["num_steps"])
    for at in (1, total // 2 + 1):
        cut(tmp_path / str(at), at, **options)
        assert_same(kept(tmp_path / str(at), **options), expected)
    folder, last = tmp_path / "often", 0
    for at in range(2, total, 5):
        cut(folder, at, **options)
        last = at
    found = kept(folder, **options)
    assert_same(found, expected)
    assert last <= found.record["resumed_at"] < total
    assert "resumed_at" not in expected.record


def test_a_corpus_too(corpus, tmp_path):
    options = {"num_topics": 2, "shift": -1.0}
    cut(tmp_path, 15, corpus, **options)
    assert_same(kept(tmp_path, corpus, **options), fit(corpus, **{**OPTIONS, **options}))


def test_refused_steps_are_remembered(tmp_path, monkeypatch):
    """After one the exact step comes next, and its objective is compared with the one before."""

    def harmful(W, W_step, eta):
        owned = jnp.arange(W.shape[0])[:, None] % W.shape[1] == jnp.arange(W.shape[1])[None]
        return decomposition.on_simplex(jnp.where(owned, jnp.ones_like(W), jnp.full_like(W, 1e-6)))

    monkeypatch.setattr(decomposition, "over_relax", harmful)
    # A number that no other test has compiled for.
    options = {"restarts": 1, "step": "relaxed", "over_relaxation": 1.37}
    expected = fit(S, **{**OPTIONS, **options})
    refused = expected.history["change"][0, 1:] == 0
    assert 3 < refused.sum() < 9
    for at in (5, 6):
        cut(tmp_path / str(at), at, **options)
        assert_same(kept(tmp_path / str(at), **options), expected)


def test_nothing_is_computed_again(tmp_path, uncut, monkeypatch):
    steps = []
    advance = full_batch.advance
    monkeypatch.setattr(
        full_batch, "advance", lambda *a, **k: (steps.append(k["until"]), advance(*a, **k))[1]
    )
    cut(tmp_path, 16)
    assert len(steps) == 16
    monkeypatch.setattr(spectrum, "vectors", None)
    assert_same(kept(tmp_path), uncut)
    assert len(steps) == 24
    # All is there: the same call returns at once.
    monkeypatch.setattr(full_batch, "advance", None)
    again = kept(tmp_path)
    assert_same(again, uncut)
    assert again.record["resumed_at"] == 24


def test_progress_goes_on_from_there(tmp_path):
    cut(tmp_path, 15)
    told = []
    kept(tmp_path, progress=lambda *news: told.append(news))
    steps = [news[1:3] for news in told if news[0] == "solving"]
    assert [done for done, _ in steps] == list(range(15, 25))
    assert {total for _, total in steps} == {24}


def test_states_that_wait_for_a_device_are_counted_and_stay(tmp_path):
    """Two starts were under way on two devices, and there is one device now."""
    states = {}
    for number in range(2):  # each alone, from a folder in which the other has not begun
        folder = tmp_path / str(number)
        cut(folder, 3 + 12 * number)
        states[number] = newest(folder, f"start{number:04d}")
    both = tmp_path / "both"
    both.mkdir()
    for path in states.values():
        shutil.copy(path, both)
    told = []
    expected = fit(S, **OPTIONS)
    vectors = newest(tmp_path / "0", "vectors")
    shutil.copy(vectors, both)
    assert_same(kept(both, progress=lambda *news: told.append(news)), expected)
    assert next(news[1:3] for news in told if news[0] == "solving") == (6, 24)


@heeds_ctrl_c
@pytest.mark.parametrize("restarts", [1, 3])
def test_ctrl_c_saves_and_the_same_call_goes_on(restarts, tmp_path):
    def interrupt(stage, done, total, unit, detail=""):
        if stage == "solving" and done >= 5:
            signal.raise_signal(signal.SIGINT)

    options = {"restarts": restarts}
    with pytest.warns(NotConvergedWarning, match="interrupted; W is what was learned until then"):
        stopped = kept(tmp_path, **options, checkpoint_every=np.inf, progress=interrupt)
    assert stopped.record["interrupted"]
    found = kept(tmp_path, **options)
    assert not found.record["interrupted"]
    assert found.record["resumed_at"] == 5
    assert_same(found, fit(S, **{**OPTIONS, **options}))


def test_only_the_ends_are_saved_if_that_is_all_that_is_asked(tmp_path, uncut):
    cut(tmp_path, 20, checkpoint_every=np.inf)
    assert len(list(tmp_path.glob("checkpoint-start*"))) == 1
    found = kept(tmp_path)
    assert found.record["resumed_at"] == 12
    assert_same(found, uncut)


def test_only_the_best_W_stays_on_the_disk(tmp_path):
    options = {"combine": "best", "restarts": 6}
    expected = fit(S, **{**OPTIONS, **options})
    cut(tmp_path, 6 * 12 - 5, **options)
    found = kept(tmp_path, **options)
    assert_same(found, expected)
    [winner] = expected.record["used"]
    rows = {}
    for path in sorted(tmp_path.glob("checkpoint-start*")):  # the newest of each comes last
        rows[int(path.name.split("-")[1][5:])] = len(safetensors.numpy.load_file(path)["W"])
    assert rows == {number: 30 * (number == winner) for number in range(6)}
    assert_same(kept(tmp_path, **options), expected)


def test_of_equally_good_starts_the_first_is_kept(tmp_path):
    options = {"combine": "best", "num_topics": 1, "restarts": 3, "tol": 0.1}
    expected = fit(S, **{**OPTIONS, **options})
    assert len(set(expected.record["objective"])) == 1
    for at in (1, 2):
        cut(tmp_path / str(at), at, **options)
        assert_same(kept(tmp_path / str(at), **options), expected)


@pytest.mark.slow
def test_on_other_devices_the_same_to_rounding(tmp_path):
    code = f"""
    import sys; sys.path.insert(0, {os.path.dirname(os.path.dirname(__file__))!r})
    import jax, numpy as np, dcdjax, warnings
    jax.config.update("jax_num_cpu_devices", 3)
    warnings.simplefilter("ignore")
    from dcdjax.fitting import scheduler
    from problems import random_S
    scheduler.SECONDS_PER_CHUNK = 1e-9
    S, devices = random_S(np.random.default_rng(3), 30), jax.devices()
    for restarts in (1, 4):
        options = dict(num_topics=3, key=5, restarts=restarts, tol=0.0, max_steps=12)
        folder = sys.argv[1] + str(restarts)
        for number in (1, 2, 3):
            until = 3 * number * restarts
            def tell(stage, done, total, unit, detail=""):
                if stage == "solving" and done >= until: raise ZeroDivisionError
            try:
                found = dcdjax.fit(S, **options, devices=devices[:number], checkpoint=folder,
                                   checkpoint_every=0.0, progress=tell if number < 3 else False)
            except ZeroDivisionError: pass
        assert found.record["resumed_at"] >= 6 * restarts, found.record
        whole = dcdjax.fit(S, **options, devices=devices[:1], progress=False)
        np.testing.assert_allclose(found.W, whole.W, atol=1e-5)
        np.testing.assert_allclose(found.record["objective"], whole.record["objective"], rtol=1e-5)
        np.testing.assert_allclose(found.history["objective"], whole.history["objective"], rtol=1e-5)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), tmp_path / "of"],
        env={**os.environ, "DCDJAX_NATIVE": "0"},  # with which all devices share the work of one start
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


# --- Killed -----------------------------------------------------------------------------------------


_DONE = 7  # as an exit code


def child(folder, output, **options):
    """Runs in a process of its own: says how far it has come, and what came out."""
    import json
    import sys
    import time
    import warnings

    import jax
    import numpy as np

    import dcdjax
    from dcdjax.fitting import scheduler
    from dcdjax.fitting.fit import NotConvergedWarning

    warnings.simplefilter("error")
    warnings.simplefilter("ignore", NotConvergedWarning)
    scheduler.SECONDS_PER_CHUNK = 1e-9
    rng = np.random.default_rng(0)
    S = np.exp(rng.normal(size=(40, 40)))

    def tell(stage, done, total, unit, detail=""):
        sys.stdout.write(f"{stage} {done}\n")
        sys.stdout.flush()
        time.sleep(0.002)

    tell("begun", 0, 0, "")
    embedding = dcdjax.fit(S + S.T, key=1, tol=0.0, checkpoint=folder, checkpoint_every=0.0, progress=tell,
                           devices=jax.devices()[:1], **options)  # fmt: skip
    record = json.dumps([embedding.record[name] for name in ("objective", "num_steps", "status", "used")])
    arrays = {"W": embedding.W, "record": record, **embedding.history}
    np.savez(output, **arrays)  # pyright: ignore[reportArgumentType], none is called allow_pickle
    sys.exit(_DONE)


def start(folder, output, options) -> Any:
    # What the first process has compiled, the others need not.
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(output.parent / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    arguments = None if folder is None else str(folder), str(output)
    code = f"_DONE = {_DONE}\n{inspect.getsource(child)}\nchild(*{arguments!r}, **{options!r})"
    command = [sys.executable, "-c", code]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **cache})


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"num_topics": (3, 6), "restarts": 2, "max_steps": 90},
        {"num_topics": 4, "restarts": 3, "start": "random", "combine": "best", "max_steps": 120},
    ],
    ids=["consensus", "best"],
)
def test_killed_at_random_moments_it_ends_the_same(options, tmp_path):
    with start(None, tmp_path / "whole.npz", options) as whole:
        whole.communicate(timeout=60)
    generator = random.Random(str(options))
    reached, num_kills, code = 0, 0, None
    while code != _DONE:
        lines = []
        with start(tmp_path / "folder", tmp_path / "found.npz", options) as process:
            if num_kills < 3:
                stage = generator.choice(["begun", "starting", "solving", "solving", "solving"])
                for line in process.stdout:
                    lines.append(line)
                    if line.startswith(stage):
                        break
                time.sleep(generator.random() * 0.4)
                process.kill()
                num_kills += 1
            lines += process.stdout.readlines()
            code = process.wait(timeout=60)
        assert code in (-signal.SIGKILL, _DONE)
        steps = [int(line.split()[1]) for line in lines if line.startswith("solving")]
        if steps:
            assert steps[0] >= reached  # nothing that was saved is lost
            reached = steps[-1]
    assert num_kills == 3
    with np.load(tmp_path / "whole.npz") as expected, np.load(tmp_path / "found.npz") as found:
        for name in expected.files:
            np.testing.assert_array_equal(found[name], expected[name])


def write_numbered(folder, number):
    tensors = {"W": np.full((200, 50), number, np.float32), "number": np.array(number)}
    folder.save("start0000", tensors, {"number": number})


def number_in(path):
    with CheckpointFolder(path) as folder:
        found = folder.load(RUN, {})
    if not found:
        return 0
    [part] = found.values()
    number = part.content["number"]
    assert all((tensor == number).all() for tensor in part.tensors.values())
    assert not [name for name in os.listdir(path) if name.endswith(".part") or "probe" in name]
    return number


def writer(path, prelude="") -> Any:
    """A process that writes one number after the other, without end, and says which are safe."""
    code = f"""
    import os, signal, sys, time
    import numpy as np
    from dcdjax.checkpoints.checkpoint_files import CheckpointFolder
    folder = CheckpointFolder({str(path)!r})
    number = max([0, *(part.content["number"] for part in folder.load({RUN!r}, {{}}).values())])
    """
    more = """
    while True:
        number += 1
        write_numbered(folder, number)
        print(number, flush=True)
    """
    code = "\n".join(map(textwrap.dedent, (code, inspect.getsource(write_numbered), prelude, more)))
    return subprocess.Popen([sys.executable, "-W", "error", "-c", code], stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_killed_while_it_writes_the_last_one_is_whole(tmp_path):
    generator = random.Random(5)
    last = 0
    for _ in range(20):
        with writer(tmp_path) as process:
            assert int(process.stdout.readline()) == last + 1
            time.sleep(generator.random() * 0.03)
            process.kill()
            safe = [int(line) for line in process.stdout.readlines()] or [last + 1]
        assert process.returncode == -signal.SIGKILL
        last = number_in(tmp_path)
        assert last in (safe[-1], safe[-1] + 1)
        assert len(list(tmp_path.glob("checkpoint-start*"))) <= 3


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("function", ["fsync", "replace", "unlink"])
def test_killed_at_each_point_of_writing(function, before, tmp_path):
    with CheckpointFolder(tmp_path) as folder:
        folder.load(RUN, {})
        for number in (1, 2, 3):
            write_numbered(folder, number)
    prelude = f"""
    real = os.{function}
    def patched(*arguments):
        if not {before}: real(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)
    os.{function} = patched
    """
    with writer(tmp_path, prelude) as process:
        assert process.wait(timeout=60) == -signal.SIGKILL
    there = function == "unlink" or (function == "replace" and not before)
    assert number_in(tmp_path) == 3 + there
    with CheckpointFolder(tmp_path) as folder:
        folder.load(RUN, {})
        write_numbered(folder, 7)
    assert number_in(tmp_path) == 7
    assert len(list(tmp_path.glob("checkpoint-start*"))) == 2


def test_the_new_one_is_on_the_disk_before_the_old_one_goes(tmp_path, monkeypatch):
    steps = []
    for name in ("fsync", "replace", "unlink"):
        real = getattr(os, name)
        told = lambda *a, name=name, real=real: (steps.append(name), real(*a))[1]  # noqa: E731
        monkeypatch.setattr(os, name, told)
    with CheckpointFolder(tmp_path) as folder:
        folder.load(RUN, {})
        for number in (1, 2, 3):
            steps.clear()
            write_numbered(folder, number)
    # The file, its name, the folder; then the one before the last.
    assert steps == ["fsync", "replace", "fsync", "unlink"]


# --- Damaged ----------------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path):
    """The folder of a run with two numbered files of a part."""
    with CheckpointFolder(tmp_path) as folder:
        folder.load(RUN, {})
        for number in (1, 2):
            tensors = {"W": np.full((2, 2), number, np.float32), "refused": np.array(number > 1)}
            folder.save("start0000", tensors, {"number": number})
    return tmp_path


def found_number(path):
    with CheckpointFolder(path) as folder:
        return {part: one.content["number"] for part, one in folder.load(RUN, {}).items()}.get("start0000")


def test_any_flipped_byte_and_any_cut_is_noticed(small):
    path = newest(small)
    content = path.read_bytes()
    generator = random.Random(0)
    assert found_number(small) == 2
    with CheckpointFolder(small) as folder:
        for position in range(len(content)):
            changed = bytearray(content)
            changed[position] ^= 1 << generator.randrange(8)
            for other in (bytes(changed), content[:position]):
                path.write_bytes(other)
                with pytest.warns(
                    CheckpointWarning, match=r"is damaged and not used: .*000002\.safetensors: "
                ):
                    [part] = folder.load(RUN, {}).values()
                assert part.content == {"number": 1}
                assert (part.tensors["W"] == 1).all()
    path.write_bytes(content + b"\0")
    with pytest.warns(CheckpointWarning):
        assert found_number(small) == 1
    path.write_bytes(content)
    assert found_number(small) == 2


def test_what_another_program_wrote_is_no_checkpoint(small):
    path = newest(small)
    for content in (
        b"",
        b"hello",
        safetensors.numpy.save({"W": np.ones(3)}),
        safetensors.numpy.save({"W": np.ones(3)}, {"content": "[]", "sha256": ""}),
        bytes(8),
        b"\xff" * 64,
    ):
        path.write_bytes(content)
        with pytest.warns(CheckpointWarning, match="is damaged"):
            assert found_number(small) == 1


@pytest.mark.parametrize("at", [3, 8, 12, 17, 23])
def test_the_older_one_is_used_if_the_newest_is_damaged(at, tmp_path, uncut):
    cut(tmp_path, at)
    damage(newest(tmp_path))
    with pytest.warns(CheckpointWarning, match="is damaged"):
        found = kept(tmp_path)
    # Which may be of a start that had just begun.
    assert at - 1 <= found.record["resumed_at"] <= at
    assert_same(found, uncut)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CheckpointWarning)
        assert_same(kept(tmp_path), uncut)


def test_a_finished_start_that_is_damaged_goes_on_from_its_last_state(tmp_path, uncut):
    kept(tmp_path)
    damage(newest(tmp_path, "start0000"))
    with pytest.warns(CheckpointWarning, match=r"is damaged and not used: .*start0000-\d+\.safetensors"):
        found = kept(tmp_path)
    assert found.record["resumed_at"] == 23
    assert_same(found, uncut)


@pytest.mark.parametrize("parts", ["start0000", "start0001", "start", "vectors", ""])
def test_with_none_left_it_begins_anew(parts, tmp_path, uncut):
    cut(tmp_path, 17)
    for path in tmp_path.glob(f"checkpoint-{parts}*.safetensors"):
        path.write_bytes(path.read_bytes()[:-10])
    with pytest.warns(CheckpointWarning, match="is damaged"):
        assert_same(kept(tmp_path), uncut)
    # All that was damaged has been replaced.
    with warnings.catch_warnings():
        warnings.simplefilter("error", CheckpointWarning)
        assert_same(kept(tmp_path), uncut)


def edit(path, tensors=None, content=None, info=None, without=()):
    """Write a file anew, with other content and the right checksum."""
    old_tensors, old_content = store.read(path)
    tensors = {
        name: array for name, array in {**old_tensors, **(tensors or {})}.items() if name not in without
    }
    content = {**old_content, **(content or {})}
    if info:
        content["info"] = {**content["info"], **info}
    store.write(path, tensors, content, kind="checkpoint")


def W(num_rows=30, num_topics=3, value=0.2, dtype: Any = np.float32):
    return np.full((num_rows, num_topics), value, dtype)


WRONG_STATES = {
    "W has other rows": ({"tensors": {"W": W(10), "ZW": W(10)}}, r"W is float32 \(10, 3\), not .* \(30, 3\)"),
    "W has more topics": ({"tensors": {"W": W(30, 5), "ZW": W(30, 5)}}, r"its W is float32 \(30, 5\)"),
    "ZW has other rows": ({"tensors": {"ZW": W(10)}}, r"its ZW is float32 \(10, 3\)"),
    "W is float64": ({"tensors": {"W": W(dtype=np.float64)}}, "its W is float64"),
    "W is negative": ({"tensors": {"W": W(value=-0.1)}}, "its W has entries that are negative or not finite"),
    "W is NaN": ({"tensors": {"W": W(value=np.nan)}}, "its W has entries"),
    "ZW is infinite": ({"tensors": {"ZW": W(value=np.inf)}}, "its ZW has entries"),
    "no ZW": ({"without": ["ZW"]}, "it holds the arrays"),
    "no history": ({"without": ["history.change"]}, "it holds the arrays"),
    "one more array": ({"tensors": {"more": W()}}, "it holds the arrays"),
    "a short history": ({"tensors": {"history.change": np.zeros(3, np.float32)}}, r"change is .* \(3,\)"),
    "no known status": ({"tensors": {"status": np.array(9, np.int32)}}, "it has the status 9"),
    "several statuses": ({"tensors": {"status": np.zeros(2, np.int32)}}, "its status is"),
    "too many steps": ({"tensors": {"num_steps": np.array(13, np.int32)}}, "after 13 steps"),
    "steps below zero": ({"tensors": {"num_steps": np.array(-1, np.int32)}}, "after -1 steps"),
    "another start": ({"info": {"start": 1}}, "it is of start 1, which its name does not say"),
    "no such start": ({"info": {"start": 2}}, "of start 2"),
    "the start is no number": ({"info": {"start": "0"}}, "of start '0'"),
    "no such kind": ({"info": {"kind": "begun"}}, "of the kind 'begun'"),
    "the kind is a list": ({"info": {"kind": []}}, r"of the kind \[\]"),
    "another kind": ({"info": {"kind": "finished"}}, "it holds the arrays"),
    "no run": ({"content": {"run": None}}, "its entry 'run' is no record"),
    "no info": ({"content": {"info": []}}, "its entry 'info' is no record"),
}  # fmt: skip


@pytest.fixture(scope="module")
def half_done(tmp_path_factory):
    """A folder with one finished start and one under way."""
    folder = tmp_path_factory.mktemp("half")
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        patch.setattr(scheduler, "SECONDS_PER_CHUNK", 1e-9)
        cut(folder, 17)
    return folder


def copied(half_done, folder):
    """A copy with one file of each part, so that a damaged one has none before it."""
    shutil.copytree(half_done, folder)
    for part in ("start0000", "start0001", "vectors"):
        for path in sorted(folder.glob(f"checkpoint-{part}*"))[:-1]:
            path.unlink()
    (state,) = [
        path for path in folder.glob("*start*") if store.read(path).content["info"]["kind"] == "under_way"
    ]
    return state


@pytest.mark.parametrize("name", WRONG_STATES)
def test_a_state_of_another_kind_is_not_used(name, half_done, tmp_path, uncut):
    state = copied(half_done, tmp_path / "run")
    changes, message = WRONG_STATES[name]
    if "another start" in name:
        changes = {"info": {"start": 1 - store.read(state).content["info"]["start"]}}
        message = "which its name does not say"
    edit(state, **changes)
    with pytest.warns(CheckpointWarning, match=rf"is damaged and not used: .*{state.name}: .*{message}"):
        assert_same(kept(tmp_path / "run"), uncut)


@pytest.mark.parametrize(
    "changes",
    [
        {"tensors": {"W": W(30, 2)}},
        {"tensors": {"W": W(29)}},
        {"tensors": {"W": W(value=np.nan)}},
        {"without": ["objective"]},
    ],
)
def test_a_solution_of_another_kind_is_not_used(changes, half_done, tmp_path, uncut):
    state = copied(half_done, tmp_path / "run")
    (solution,) = set((tmp_path / "run").glob("*start*")) - {state}
    edit(solution, **changes)
    with pytest.warns(CheckpointWarning, match=rf"is damaged and not used: .*{solution.name}: "):
        assert_same(kept(tmp_path / "run"), uncut)


@pytest.mark.parametrize("vectors", [W(30, 2), W(10, 3), W(value=np.nan), W(dtype=np.float64)])
def test_vectors_of_another_kind_are_not_used(vectors, half_done, tmp_path, uncut):
    copied(half_done, tmp_path / "run")
    edit(newest(tmp_path / "run", "vectors"), {"vectors": vectors})
    with pytest.warns(CheckpointWarning, match=r"is damaged and not used: .*its vectors "):
        assert_same(kept(tmp_path / "run"), uncut)


def test_a_deep_record_is_not_used(half_done, tmp_path, uncut, monkeypatch):
    state = copied(half_done, tmp_path / "run")
    deep: Any = []
    for _ in range(900):
        deep = {"deeper": deep}
    monkeypatch.setattr(store, "_to_json", lambda value, *_: value)
    edit(state, content={"run": deep})
    monkeypatch.undo()
    with pytest.warns(CheckpointWarning, match=r"is damaged and not used: .* more than 100 levels deep"):
        assert_same(kept(tmp_path / "run"), uncut)


# --- Refused ----------------------------------------------------------------------------------------

CHANGED = {
    "num_topics": (4, "num_topics is 4, there it is 3"),
    "key": (1, r"key is \[0, 1\], there it is \[0, 0\]"),
    "restarts": (3, "restarts is 3, there it is 2"),
    "tol": (1e-9, "tol is 1e-09, there it is 0.0"),
    "max_steps": (13, "max_steps is 13, there it is 12"),
    "start": ("random", 'start is "random", there it is "spectral"'),
    "combine": ("best", 'combine is "best", there it is "consensus"'),
    "step": ("relaxed", 'step is "relaxed", there it is "exact"'),
    "over_relaxation": (1.5, "over_relaxation is 1.5, there it is 1.9"),
    "dtype": (jnp.float64, 'dtype is "float64", there it is "float32"'),
    "words": ([f"w{n}" for n in range(30)], r"S.sha256 is \"\w+\", there it is \"\w+\""),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_changed_setting_is_refused_by_name(name, tmp_path):
    cut(tmp_path, 5)
    before = contents(tmp_path)
    value, message = CHANGED[name]
    with pytest.raises(CheckpointError, match=f"{tmp_path} is of another run: {message}. Choose"):
        kept(tmp_path, **{name: value})
    assert contents(tmp_path) == before
    assert issubclass(CheckpointError, ValueError)


def test_all_that_differs_is_named(tmp_path):
    cut(tmp_path, 5)
    other = S.copy()
    other[3, 4] = other[4, 3] = other[3, 4] + 1
    with pytest.raises(CheckpointError) as caught:
        kept(tmp_path, other, tol=0.5, key=jax.random.key(3, impl="rbg"))
    for name in ("S.sha256", "tol", "key", "key_kind"):
        assert f"{name} is " in str(caught.value)
    with pytest.raises(CheckpointError, match=r"S.num_words is 29, there it is 30; S.num_nonzeros"):
        kept(tmp_path, S[:29, :29] + np.eye(29))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"window": 3}, "counting.window"),
        ({"lowercase": False}, "counting.lowercase"),
        ({"distance_weighting": "flat"}, "counting.distance_weighting"),
        ({"weighting": "counts"}, "weighting"),
        ({"shift": -2.0}, "shift"),
        ({"context_exponent": 0.5}, "context_exponent"),
        ({"frequency_exponent": 0.5}, "frequency_exponent"),
        ({"smoothing": 3.0}, "smoothing"),
        ({"changed": True}, "corpus.sha256"),
    ],
    ids=str,
)
def test_a_changed_corpus_or_way_of_counting_is_refused(options, name, corpus, tmp_path):
    usual = {"num_topics": 2, "restarts": 1, **({} if "weighting" in options else {"shift": -1.0})}
    cut(tmp_path / "folder", 3, corpus, **usual)
    source = corpus
    if options.pop("changed", False):
        source = tmp_path / "other.txt"
        source.write_text(corpus.read_text() + "\n")
    with pytest.raises(CheckpointError, match=rf"[:;] {name} is .*, there it is "):
        kept(tmp_path / "folder", source, **{**usual, **options})


def test_what_has_no_influence_may_change(corpus, tmp_path):
    options = {"num_topics": 2, "restarts": 1, "shift": -1.0}
    cut(tmp_path / "folder", 3, corpus, **options)
    renamed = shutil.copy(corpus, tmp_path / "renamed.txt")
    found = kept(tmp_path / "folder", renamed, **options, checkpoint_every=5.0, memory=1 << 30,
                 devices=jax.devices()[:1], key=jax.random.key(0))  # fmt: skip
    assert found.record["resumed_at"] == 3


def test_another_format_is_another_run(tmp_path, monkeypatch):
    cut(tmp_path, 5)
    monkeypatch.setattr(checkpoint_files, "VERSION", 2)
    with pytest.raises(CheckpointError, match="run: format_version is 2, there it is 1"):
        kept(tmp_path)


def test_other_files_in_the_folder_stay(tmp_path, uncut):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ".checkpoint-start0000-000001.safetensors.0123456789abcdef.part").write_text("of a dead run")
    assert_same(kept(tmp_path), uncut)
    names = set(os.listdir(tmp_path))
    assert "notes.txt" in names
    assert not [name for name in names if name.endswith(".part")]


def test_one_run_at_a_time(tmp_path, uncut):
    told = []

    def tell(stage, done, total, unit, detail=""):
        if stage == "solving" and done == 5:
            with pytest.raises(CheckpointError, match=f"{tmp_path} is being used by another run"):
                kept(tmp_path)
            told.append(done)

    assert_same(kept(tmp_path, progress=tell), uncut)
    assert told == [5]
    assert_same(kept(tmp_path), uncut)  # it is free again


def test_without_locks_it_works_too(tmp_path, monkeypatch, uncut):
    monkeypatch.setattr(store, "fcntl", None)  # as on Windows
    cut(tmp_path, 5)
    assert_same(kept(tmp_path), uncut)


def test_an_empty_name_is_not_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="checkpoint must name a folder, got ''"):
        kept("")
    assert not contents(tmp_path)


def test_seconds_must_not_be_negative(tmp_path):
    for seconds in (-1.0, np.nan):
        with pytest.raises(ValueError, match="checkpoint_every must not be negative, got"):
            kept(tmp_path, checkpoint_every=seconds)


# --- No space, no permission ------------------------------------------------------------------------


def unread():
    """A corpus that nobody should begin to read."""
    pytest.fail("it was read")
    yield


def test_a_folder_that_cannot_be_is_refused_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below", "/proc/nothing"):
        with pytest.raises(OSError, match=f"checkpoint folder {path}: nothing can be written there"):
            kept(path, unread())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_refused_at_once(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(OSError, match=r"nothing can be written there \(Permission denied"):
        kept(tmp_path, unread())
    tmp_path.chmod(0o700)


def test_a_full_disk_is_refused_at_once(tmp_path, monkeypatch):
    cut(tmp_path, 5)
    before = contents(tmp_path)

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"nothing can be written there \(No space left on device"):
            kept(tmp_path, unread())
    assert contents(tmp_path) == before
    kept(tmp_path)  # the lock is not held


class Disk:
    """Refuses to take a file while it is full."""

    full = False

    def __init__(self):
        self.real = files.atomic_write

    def atomic_write(self, path):
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.real(path)


def test_a_disk_that_is_full_for_a_while(tmp_path, monkeypatch, uncut):
    disk = Disk()

    def tell(stage, done, total, unit, detail=""):
        if stage == "solving":
            disk.full = 5 <= done < 9 or 11 <= done < 15
            if done == 9:
                # Nothing of what was there is lost.
                copy = shutil.copytree(tmp_path / "folder", tmp_path / "copy")
                assert kept(copy).record["resumed_at"] == 5

    monkeypatch.setattr(files, "atomic_write", disk.atomic_write)
    with pytest.warns(CheckpointWarning) as caught:
        found = kept(tmp_path / "folder", progress=tell)
    assert_same(found, uncut)
    said = [str(one.message) for one in caught if one.category is CheckpointWarning]
    # Once for each time that it was full.
    assert len(said) == 2
    assert "could not save there (No space left on device); the run goes on, and tries again" in said[0]
    assert kept(tmp_path / "folder").record["resumed_at"] == 24


def test_vectors_that_could_not_be_saved_are_saved_later(tmp_path, monkeypatch, uncut):
    disk = Disk()

    def tell(stage, done, total, unit, detail=""):
        disk.full = stage == "starting" or done < 3
        if stage == "solving" and done == 5:
            raise Cut

    with monkeypatch.context() as patch:
        patch.setattr(files, "atomic_write", disk.atomic_write)
        with pytest.warns(CheckpointWarning, match="could not save there"), pytest.raises(Cut):
            kept(tmp_path, progress=tell)
    monkeypatch.setattr(spectrum, "vectors", None)
    assert_same(kept(tmp_path), uncut)


def test_a_limit_that_the_system_sets(tmp_path):
    """A real refusal in the middle of a file: EFBIG."""
    code = f"""
    import resource
    def write_numbered(folder, number):
        if number > 4: resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        try:
            tensors = {{"W": np.full((200, 50), number, np.float32), "number": np.array(number)}}
            folder.save("start0000", tensors, {{"number": number}})
        except OSError as error:
            print(error.strerror, sorted(os.listdir({str(tmp_path)!r})), flush=True)
            sys.exit(3)
    """
    with writer(tmp_path, code) as process:
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 3
    assert out.splitlines()[:4] == ["1", "2", "3", "4"]
    assert os.strerror(errno.EFBIG) in out
    assert ".part" not in out
    assert number_in(tmp_path) == 4


@pytest.mark.slow
def test_a_file_system_that_is_full(tmp_path):
    """A tiny one of our own: full in the middle of a run, and before one."""
    enter = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    mount = f"mount -t tmpfs -o size=256k tmpfs {tmp_path}"
    if shutil.which("unshare") is None or subprocess.run([*enter, mount], capture_output=True).returncode:
        pytest.skip("no file systems can be mounted here")
    code = f"""
    import os, sys, warnings
    sys.path.insert(0, {os.path.dirname(os.path.dirname(__file__))!r})
    import numpy as np, dcdjax
    from dcdjax.fitting import scheduler
    from dcdjax.checkpoints.checkpoint_files import CheckpointWarning
    from problems import random_S
    scheduler.SECONDS_PER_CHUNK = 1e-9
    S = random_S(np.random.default_rng(3), 30)
    options = dict(num_topics=3, key=0, restarts=2, tol=0.0, max_steps=12)
    filler = {str(tmp_path / "filler")!r}
    def tell(stage, done, total, unit, detail=""):
        if stage == "solving" and done == 5:
            with open(filler, "wb", buffering=0) as file:
                try:
                    while True: file.write(bytes(512))
                except OSError: pass
        if stage == "solving" and done == 9: os.unlink(filler)
    folder = {str(tmp_path / "folder")!r}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = dcdjax.fit(S, **options, checkpoint=folder, checkpoint_every=0.0, progress=tell)
        whole = dcdjax.fit(S, **options, progress=False)
        said = [str(one.message) for one in caught if one.category is CheckpointWarning]
        assert all(one.filename == __file__ for one in caught), caught  # where fit was called
        assert len(said) == 1 and "No space left on device" in said[0], said
        np.testing.assert_array_equal(found.W, whole.W)
        again = dcdjax.fit(S, **options, checkpoint=folder, progress=False)
        np.testing.assert_array_equal(again.W, whole.W)
        assert again.record["resumed_at"] == 24
    tell("solving", 5, None, "")
    try:
        dcdjax.fit(iter(lambda: sys.exit("it was read"), 0), key=0, checkpoint=folder)
    except OSError as error:
        assert "nothing can be written there (No space left on device)" in str(error), error
        print("refused")
    """
    (tmp_path.parent / "code.py").write_text(textwrap.dedent(code))
    command = f"{mount} && exec {sys.executable} {tmp_path.parent / 'code.py'}"
    done = subprocess.run([*enter, command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "refused\n"


# --- The shell --------------------------------------------------------------------------------------


def test_the_shell_goes_on_and_says_so(corpus, tmp_path, capsys, monkeypatch):
    arguments = ["fit", str(corpus), "-o", str(tmp_path / "model"), "--topics", "2", "--shift", "-1",
                 "--tol", "0", "--max-steps", "12", "--restarts", "1", "--json", "--quiet",
                 "--checkpoint", str(tmp_path / "folder"), "--checkpoint-every"]  # fmt: skip
    with monkeypatch.context() as patch:
        real = full_batch.advance
        count = itertools.count()

        def advance(*positional, **named):
            if next(count) == 4:
                raise KeyboardInterrupt
            return real(*positional, **named)

        patch.setattr(full_batch, "advance", advance)
        assert main.main([*arguments, "0"]) == 130
    stopped = json.loads(capsys.readouterr().out)
    assert stopped["num_steps"] == [4]
    assert main.main([*arguments, "7.5"]) == 0
    printed = capsys.readouterr()
    assert "dcdjax fit: goes on from step 4 of all starts\n" in printed.err
    record = json.loads(printed.out)
    assert (record["resumed_at"], record["num_steps"]) == (4, [12])
    assert main.main([*arguments[:-2], str(tmp_path / "new"), *arguments[-1:], "1"]) == 0
    assert "goes on" not in capsys.readouterr().err
    assert main.main([*arguments, "1", "--seed", "1"]) == 2
    assert "is of another run: key is [0, 1], there it is [0, 0]" in capsys.readouterr().err
    assert main.main([*arguments, "-1"]) == 2
    assert "--checkpoint-every must not be negative" in capsys.readouterr().err


def test_a_checkpoint_is_not_put_into_the_model(corpus, tmp_path, capsys):
    for inside in ("model", "model/checkpoint"):
        command = ["fit", corpus, "-o", tmp_path / "model", "--checkpoint", tmp_path / inside]
        assert main.main([str(argument) for argument in command]) == 2
        assert "is in the model's own folder: choose another" in capsys.readouterr().err
    assert not (tmp_path / "model").exists()


def test_the_files_are_safetensors(tmp_path):
    cut(tmp_path, 3)
    found = safetensors.numpy.load_file(Path(newest(tmp_path)))
    assert found["W"].shape == (30, 3)
    assert found["ZW"].dtype == np.float32
    assert found["refused"].dtype == bool
    assert int(found["num_steps"]) == 3
    assert found["history.objective"].shape == (13,)
