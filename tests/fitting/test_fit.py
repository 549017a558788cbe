"""From text, counts or S to an embedding: what is learned, told, recorded, warned of, kept when stopped."""

import hashlib
import itertools
import os
import re
import signal
import struct
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from commands import child, heeds_ctrl_c
from problems import THEMES, pair, random_S, sentences, slow

import dcdjax
from dcdjax import Embedding, fit, similarity
from dcdjax.fitting import fit as fitting
from dcdjax.fitting import presets, scheduler
from dcdjax.fitting.fit import NotConvergedWarning
from dcdjax.fitting.inputs import PresetWarning
from dcdjax.method.decomposition import on_simplex
from dcdjax.solvers import result
from dcdjax.solvers.result import SolverError, Status
from dcdjax.starts import initialize
from dcdjax.topics import coherence

DEVICES = jax.local_devices()


@pytest.fixture(scope="module")
def learned():
    return fit(sentences(), num_topics=3, window=5, key=0, tol=1e-4, max_steps=2000, progress=False)


# --- What is learned --------------------------------------------------------------------------------


def test_planted_themes_are_found(learned):
    for words in THEMES.values():
        theme = words.split()
        for word in theme:
            near = [pair.word for pair in learned.neighbors(word, len(theme) - 1)]
            assert set(near) == set(theme) - {word}
    tops = {frozenset(pair.word for pair in topic.words) for topic in learned.topics(6)}
    assert tops == {frozenset(words.split()) for words in THEMES.values()}


@pytest.mark.usefixtures("unchecked_annotations")
def test_an_array_of_numbers_of_topics_is_taken():
    numbers: Any = np.array([2, 3])
    embedding = fit(sentences(), num_topics=numbers, restarts=1, window=5, progress=False)
    assert embedding.starts == (2, 3)


def test_the_words_of_topics_hold_together(learned):
    topics = learned.topics(6)
    for topic in topics:
        assert topic.coherence > 0.1
        assert not topic.junk


def test_the_same_key_gives_the_same_embedding(learned):
    options: Any = {"num_topics": 3, "window": 5, "tol": 1e-4, "max_steps": 2000, "progress": False}
    again = fit(sentences(), key=jax.random.key(0), **options)
    np.testing.assert_array_equal(again.W, learned.W)
    raw = fit(sentences(), key=jax.random.PRNGKey(0), **options)
    np.testing.assert_array_equal(raw.W, learned.W)
    options["tol"] = 0.5
    one, other = (fit(sentences(), key=key, **options) for key in (0, 1))
    assert not np.array_equal(other.W, one.W)


def test_text_counts_and_S_give_the_same(learned, tmp_path):
    options: Any = {"num_topics": 3, "key": 0, "tol": 1e-4, "max_steps": 2000, "progress": False}
    counts = dcdjax.count(sentences(), window=5, distance_weighting="harmonic")
    path = tmp_path / "text.txt"
    path.write_text("\n".join(sentences()))
    S = similarity.from_counts(counts)
    counts.save(tmp_path / "counts.safetensors")
    S.save(tmp_path / "S.safetensors")
    saved = (
        dcdjax.cooccurrence.load(tmp_path / "counts.safetensors"),
        similarity.load(tmp_path / "S.safetensors"),
    )
    for source in (counts, S, *saved):
        assert_same_model(fit(source, **options), learned)
    assert_same_model(fit(path, window=5, **options), learned)


def assert_same_model(found, expected):
    """All but the name of the corpus, and the time that it took."""
    assert found.words == expected.words
    assert found.starts == expected.starts
    for name in ("W", "word_counts", "margins"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    for one, other in zip(found.levels, expected.levels, strict=True):
        np.testing.assert_array_equal(one.groups, other.groups)
        np.testing.assert_array_equal(one.coherence, other.coherence)
    for name, values in expected.history.items():
        np.testing.assert_array_equal(found.history[name], values)
    records = [
        {name: value for name, value in one.record.items() if name not in ("corpus", "seconds", "created")}
        for one in (found, expected)
    ]
    assert records[0] == records[1]
    assert found.record["corpus"]["num_tokens"] == expected.record["corpus"]["num_tokens"]
    assert found.topics(5) == expected.topics(5)


@pytest.mark.filterwarnings("ignore:dropped")
@pytest.mark.parametrize(
    "options",
    [
        {"preset": "topics"},
        {"weighting": "degree", "combine": "reduced"},
        {"preset": "paper", "num_topics": 2},
        {"num_topics": (2, 4), "shift": 0.2, "restarts": 1},
        {"smoothing": 0.0, "max_words": 12, "outside": "drop", "subsample": 0.1},
    ],
)
def test_each_route_from_a_text_leads_to_the_same_model(options, tmp_path):
    rng = np.random.default_rng(0)
    text = [*sentences(num_sentences=100), *("alone",) * 30, " ".join(rng.permutation(sentences()))]
    options = {"max_steps": 500, "progress": False, **options}
    expected = fit(text, **options)
    preset = options.get("preset", "default")
    counting = {**presets.counting(preset)}
    counting |= {name: options.pop(name) for name in ("max_words", "outside", "subsample") if name in options}
    counts = dcdjax.count(text, **counting)
    assert_same_model(fit(counts, **options), expected)
    weighting = {name: options.pop(name) for name in ("weighting", "shift") if name in options}
    weighting.setdefault("weighting", "counts" if preset == "paper" else "ppmi")
    S = similarity.from_counts(counts, **weighting, drop_isolated=True)
    S.save(tmp_path / "S.safetensors")
    assert "alone" not in (S.words or ())
    for source in (S, similarity.load(tmp_path / "S.safetensors")):
        assert_same_model(fit(source, **options), expected)


def test_a_warning_says_that_counts_do_not_fit_the_preset():
    options = {"num_topics": 2, "tol": 0.5, "restarts": 1, "progress": False}
    counts = dcdjax.count(sentences(), window=5)
    message = (
        r"^preset='topics' counts with window=100, distance_weighting='flat', "
        r"but these counts have window=5, distance_weighting='harmonic'$"
    )
    for source in (counts, similarity.from_counts(counts)):
        with pytest.warns(PresetWarning, match=message):
            fit(source, preset="topics", **options)
    # No warning (which would be an error here) if the counts fit, if the user chose the window, and if
    # nothing is known of the counts.
    fit(dcdjax.count(sentences(), **presets.counting("topics")), preset="topics", **options)
    fit(sentences(), preset="topics", window=5, **options)
    fit(similarity.from_counts(counts).matrix, preset="topics", **options)
    fit(counts, **options)


@pytest.mark.filterwarnings("ignore:dropped 1 words without neighbors")
def test_the_topics_of_rare_words_are_smoothed():
    rng = np.random.default_rng(0)
    text = [" ".join(f"w{n}" for n in (20 * rng.random(30) ** 2).astype(int)) for _ in range(50)]
    # The most frequent word stands near none, so it has no row.
    counts = dcdjax.count(text + ["alone"] * 5000, window=5)
    assert counts.words[0] == "alone"
    options = {"num_topics": 3, "key": 0, "restarts": 1, "progress": False}
    plain, smooth = (fit(counts, smoothing=a, **options) for a in (0.0, 7.0))
    assert "alone" not in smooth
    S = similarity.from_counts(counts, drop_isolated=True).matrix.toarray()
    assert np.abs(np.asarray(smooth.W - plain.W)).max() > 0.01
    W = np.asarray(plain.W, np.float64)
    share = (7 / (7 + counts.vocabulary.counts[1:]))[:, None]
    expected = (1 - share) * W + share * (S @ W) / S.sum(axis=1, keepdims=True)
    # The order of the topics may change.
    distances = np.abs(expected[:, :, None] - np.asarray(smooth.W)[:, None, :]).max(axis=0)
    order = distances.argmin(axis=1)
    assert sorted(order.tolist()) == [0, 1, 2]
    assert distances.min(axis=1).max() < 1e-6
    np.testing.assert_allclose(np.asarray(smooth.W).sum(axis=1), 1, atol=1e-6)
    assert smooth.record["settings"]["smoothing"] == 7.0
    assert smooth.record["objective"] == plain.record["objective"]


def test_the_paper_is_a_preset():
    counts = dcdjax.count(sentences(), window=8, distance_weighting="flat")
    S = similarity.from_counts(counts, weighting="counts")
    by_preset = fit(sentences(), preset="paper", num_topics=3, key=3, progress=False)
    W = initialize.uniform(jax.random.split(jax.random.key(3), 1)[0], len(counts.words), 3)
    by_hand = dcdjax.solve(W, S, step="relaxed", tol=1e-3, max_steps=500)
    assert by_preset.record["num_steps"] == [int(by_hand.num_steps)]
    W = np.asarray(on_simplex(by_hand.W))
    by_weight = [np.asarray(one)[:, np.argsort(-np.asarray(one).sum(axis=0))] for one in (by_preset.W, W)]
    np.testing.assert_allclose(*by_weight, rtol=1e-5)
    chosen = by_preset.record["settings"]
    wanted = {"preset": "paper", "start": "random", "restarts": 1, "step": "relaxed", "over_relaxation": 1.0}
    assert wanted.items() <= chosen.items()
    assert chosen["smoothing"] == 0
    assert chosen["counting"]["distance_weighting"] == "flat"
    assert by_preset.record["weighting"]["weighting"] == "counts"
    exact = fit(sentences(), preset="paper", step="exact", num_topics=3, key=3, progress=False)
    assert exact.record["settings"]["step"] == "exact"


@pytest.mark.slow
def test_without_a_number_of_topics_there_are_coarse_and_fine_ones():
    rng = np.random.default_rng(0)
    text = [" ".join(f"w{n}" for n in rng.integers(60 * (line % 50), 60 * (line % 50) + 60, 40))
            for line in range(800)]  # fmt: skip
    embedding = fit(text, key=0, tol=0.5, progress=False)
    most = len(embedding) // 10
    assert embedding.starts == (200, 200, most, most)
    reduced = fit(text, key=0, tol=0.5, combine="reduced", progress=False)
    assert reduced.starts == (200,)
    assert reduced.record["settings"]["restarts"] == 4
    for one in (embedding, reduced):
        assert len(one.topics()) == one.num_topics == 50
        assert len(one.topics(subtopics=True)) == 200
        assert all(topic.coherence is not None for topic in one.topics(subtopics=True))


def test_a_consensus_can_be_reduced():
    counts = dcdjax.count(sentences(), window=5)
    options = {"num_topics": 3, "key": 0, "progress": False}
    both, reduced = fit(counts, **options), fit(counts, combine="reduced", **options)
    assert both.starts == (3,) * 4
    assert reduced.starts == (3,)
    np.testing.assert_allclose(np.asarray(reduced.W).sum(axis=1), 1, atol=1e-5)
    # The starts agree on three groups of words: so does what is left of them.
    assert reduced.neighbors("ship", 3) != []
    np.testing.assert_allclose(reduced.similarity("ship", "sail"), both.similarity("ship", "sail"), rtol=0.05)
    by_hand = both.reduce(3, counts=counts)
    assert by_hand.record["reduced_from"] == 12
    for same in (both.reduce(), by_hand):
        np.testing.assert_allclose(same.W, reduced.W, rtol=1e-6)
        assert same.topics(5) == reduced.topics(5)
    assert all((topic.coherence or 0) > 0.1 for topic in by_hand.topics(6))


def test_every_form_of_S_is_taken():
    dense = random_S(np.random.default_rng(0), 12)
    entries = scipy.sparse.coo_array(dense)
    S_idx = np.stack([entries.row, entries.col], axis=1).astype(np.int32)
    options = {"num_topics": 2, "key": 0, "max_steps": 500, "progress": False}
    plain = fit(dense, **options)
    assert plain.words == tuple(map(str, range(12)))
    assert [topic.coherence for topic in plain.topics()] == [None, None]
    assert plain.margins is None
    for S in (
        scipy.sparse.csr_array(dense),
        jnp.asarray(dense),
        (S_idx, entries.data),
        similarity.from_matrix(dense),
    ):
        np.testing.assert_array_equal(fit(S, **options).W, plain.W)
    named = fit(dense, words=[f"w{n}" for n in range(12)], **options)
    assert named.words[3] == "w3"
    half = [similarity.from_matrix(dense, words=[f"w{n}" for n in range(12)]), similarity.from_matrix(dense)]
    assert [fit(S, **options).words[3] for S in half] == ["w3", "3"]


def test_a_new_word_is_weighted_by_the_counts_that_were_learned_from(learned):
    row = learned.fold_in({"ship": 4, "harbor": 3, "court": 0})
    assert {pair.word for pair in learned.neighbors(row, 6)} == set(THEMES["sea"].split())


@pytest.mark.parametrize("weighting", ["ppmi", "degree"])
def test_folding_in_a_word_that_was_learned_gives_nearly_its_row(weighting):
    counts = dcdjax.count(sentences(), window=5)
    embedding = fit(
        counts, num_topics=3, key=0, tol=1e-4, max_steps=5000, weighting=weighting, progress=False
    )
    for word in ("ship", "oven", "judge"):
        number = counts.words.index(word)
        known = {other: counts.matrix[number, n] for n, other in enumerate(counts.words) if n != number}
        folded = embedding.fold_in(known)
        assert np.abs(folded - embedding[word]).sum() / 2 < 0.1
        near = [pair.word for pair in embedding.neighbors(word, 5)]
        assert set(near) <= {pair.word for pair in embedding.neighbors(folded, 6)}


def test_a_few_counts_are_enough_to_fold_a_word_in(learned):
    for theme in THEMES.values():
        words = theme.split()
        row = learned.fold_in({words[0]: 1})
        assert {pair.word for pair in learned.neighbors(row, 6)} == set(words)


def test_no_row_without_all_others(learned):
    sinkhorn = fit(sentences(), num_topics=3, key=0, weighting="sinkhorn", progress=False)
    with pytest.raises(ValueError, match="'sinkhorn' needs the counts of all words"):
        sinkhorn.fold_in({"ship": 1})
    assert sinkhorn.fold_in({"ship": 1}, weighted=True).sum() == pytest.approx(1)


def test_a_matrix_is_solved_further_than_a_text():
    group = np.repeat(np.arange(3), 20)
    S = 1 + 0.2 * (group[:, None] == group)  # hardly any groups, and a plateau on the way to them
    for key in range(4):
        embedding = fit(S, num_topics=3, key=key, progress=False)
        topic = np.asarray(embedding.W).argmax(axis=1)
        assert len({(g, t) for g, t in zip(group.tolist(), topic.tolist(), strict=True)}) == 3
        assert embedding.record["settings"]["tol"] == 1e-3


def test_float64_where_asked_for(learned):
    assert learned.W.dtype == jnp.float32
    assert fit(random_S(np.random.default_rng(0), 8), num_topics=2, key=0, dtype=jnp.float64,
               max_steps=500, progress=False).W.dtype == jnp.float64  # fmt: skip


# --- Runs -------------------------------------------------------------------------------------------

SOLVING = {"step": "exact", "tol": 1e-3, "max_steps": 60, "over_relaxation": 1.9}


@pytest.mark.parametrize(
    ("step", "over_relaxation"),
    [("exact", 1.9), slow("exact", 1.0), slow("relaxed", 1.0), slow("relaxed", 1.9)],
)
def test_runs_are_to_the_bit_what_solve_gives(step, over_relaxation, monkeypatch):
    monkeypatch.setattr(scheduler, "SECONDS_PER_CHUNK", 1e-9)  # a step at a time
    S = similarity.from_matrix(random_S(np.random.default_rng(3), 20))
    starts = initialize.uniform(jax.random.key(1), 20, 3, restarts=3)
    options = {**SOLVING, "step": step, "over_relaxation": over_relaxation}
    makers = [lambda start=start: start for start in starts]
    found = scheduler.solve_all(makers, [dcdjax.prepare(S)], **options)
    alone = [dcdjax.solve(start, S, **options) for start in starts]
    for solution, expected in zip(found, alone, strict=True):
        jax.tree.map(np.testing.assert_array_equal, solution, expected)
    best = scheduler.solve_all(makers, [dcdjax.prepare(S)], **options, only_best=True)
    winner = int(np.argmin([float(one.objective) for one in alone]))
    assert [len(solution.W) for solution in best] == [20 * (number == winner) for number in range(3)]
    np.testing.assert_array_equal(best[winner].W, alone[winner].W)


@pytest.mark.slow
def test_several_devices_share_the_starts(tmp_path):
    code = f"""
import jax
jax.config.update("jax_num_cpu_devices", 3)
import sys; sys.path.insert(0, {os.path.dirname(os.path.dirname(__file__))!r})
import numpy as np, dcdjax
from problems import pair, random_S
S = random_S(np.random.default_rng(3), 30)
options = dict(num_topics=4, key=5, restarts=7, max_steps=300, progress=False)
seen = set()
from dcdjax.solvers import full_batch
advance = full_batch.advance
full_batch.advance = lambda state, *a, **k: (seen.add(state.W.device), advance(state, *a, **k))[1]
many = dcdjax.fit(S, **options)
assert seen == set(jax.devices()), seen
one = dcdjax.fit(S, **options, devices=jax.devices()[1:2])
np.testing.assert_array_equal(many.W, one.W)
assert many.W.shape == (30, 28) and len(many.record["num_steps"]) == 7
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_a_consensus_has_the_mean_of_all_shat_and_the_best_the_lowest_objective():
    S = random_S(np.random.default_rng(4), 25)
    options = {"num_topics": 3, "key": 0, "start": "random", "restarts": 4, "tol": 1e-2, "progress": False}
    both, best = fit(S, **options), fit(S, combine="best", **options)
    keys = jax.random.split(jax.random.key(0), 4)
    # Each start alone: its key is one of those that the seed is split into.
    starts = [initialize.uniform(key, 25, 3) for key in keys]
    alone = [
        dcdjax.solve(start, S, tol=1e-2, max_steps=500, over_relaxation=1.9) for start in starts
    ]  # fmt: skip

    def shat(W):
        W = np.asarray(W, np.float64)
        return (W / W.sum(axis=0)) @ W.T

    np.testing.assert_allclose(shat(both.W), np.mean([shat(one.W) for one in alone], axis=0), rtol=1e-4)
    assert both.starts == (3, 3, 3, 3)
    winner = int(np.argmin([float(one.objective) for one in alone]))
    np.testing.assert_allclose(shat(best.W), shat(alone[winner].W), rtol=1e-4)
    assert best.record["used"] == [winner]
    assert best.W.shape == (25, 3)
    np.testing.assert_allclose(best.record["objective"], [float(one.objective) for one in alone], rtol=1e-5)


def test_coarse_and_fine_topics_of_the_same_words():
    S = random_S(np.random.default_rng(4), 25)
    embedding = fit(S, num_topics=(2, 5), restarts=2, key=0, tol=1e-2, progress=False)
    assert embedding.starts == (2, 2, 5, 5)
    assert embedding.W.shape == (25, 14)
    np.testing.assert_allclose(embedding.W.sum(axis=1), 1, rtol=1e-6)
    # Every start weighs the same, whatever its number of topics.
    ends = np.cumsum((0, *embedding.starts))
    for begin, end in itertools.pairwise(ends.tolist()):
        np.testing.assert_allclose(embedding.W[:, begin:end].sum(axis=1), 1 / 4, rtol=1e-6)
    assert embedding.record["settings"]["num_topics"] == [2, 5]
    assert len(embedding.record["status"]) == 4
    one = fit(S, num_topics=[3], key=0, tol=1e-2, progress=False)
    assert one.record["settings"]["num_topics"] == 3
    np.testing.assert_array_equal(one.W, fit(S, num_topics=3, key=0, tol=1e-2, progress=False).W)


@pytest.mark.slow
@heeds_ctrl_c
def test_ctrl_c_while_the_spectrum_is_compiled_waits():
    """JAX would go on unseen, and crash when Python ends."""
    code = """
import os, signal, threading, numpy as np, dcdjax, warnings
from dcdjax.starts import spectrum
before = spectrum.vectors
def vectors(*arguments, **options):
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    return before(*arguments, **options)
spectrum.vectors = vectors
try:
    dcdjax.fit(np.ones((50, 50)) + np.eye(50), num_topics=20, key=0, progress=False, tol=0.0, max_steps=10**6)
except KeyboardInterrupt:
    print("heard")
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, (done.returncode, done.stderr)


@pytest.mark.slow
def test_a_key_may_lie_on_another_device():
    code = """
import jax, numpy as np
jax.config.update("jax_num_cpu_devices", 3)
import dcdjax
S = np.ones((20, 20)) + 5 * np.kron(np.eye(2), np.ones((10, 10)))
for n in range(3):
    key = jax.device_put(jax.random.key(0), jax.devices()[n])
    dcdjax.fit(S, num_topics=2, key=key, devices=jax.devices()[1:2], progress=False)
    dcdjax.fit(S, num_topics=2, key=key, progress=False)
    dcdjax.initialize.spectral(key, dcdjax.prepare(S, devices=jax.devices()), 2, restarts=2)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_a_spectral_start_is_the_default_and_takes_fewer_steps():
    group = np.repeat(np.arange(6), 20)
    near = np.random.default_rng(0).poisson(np.where(group[:, None] == group, 3.0, 0.1))
    S = np.triu(near, 1) + np.triu(near, 1).T
    options = {"num_topics": 6, "progress": False}
    steps, objectives = {}, {}
    for start in ("spectral", "random"):
        fitted = [fit(S, key=key, start=start, **options) for key in range(3)]
        assert all(one.record["settings"]["start"] == start for one in fitted)
        steps[start] = sum(one.record["num_steps"][0] for one in fitted)
        objectives[start] = min(one.record["objective"][0] for one in fitted)
    assert steps["spectral"] < steps["random"]
    assert objectives["spectral"] <= objectives["random"] * (1 + 1e-6)
    np.testing.assert_array_equal(fit(S, key=1, **options).W, fit(S, key=1, start="spectral", **options).W)


# --- What is told -----------------------------------------------------------------------------------


def test_progress_of_every_part_is_told(monkeypatch):
    monkeypatch.setattr(scheduler, "SECONDS_PER_CHUNK", 1e-9)
    told = []
    fit(sentences(), num_topics=3, window=5, key=0, start="random", restarts=3, max_steps=300,
        progress=lambda *news, **named: told.append((*news, *named.values())))  # fmt: skip
    stages = list(dict.fromkeys(news[0] for news in told))
    assert stages == ["reading", "counting", "weighting", "starting", "solving", "finishing"]
    for stage in stages:
        done = [news[1] for news in told if news[0] == stage]
        assert done == sorted(done)
        last = [news for news in told if news[0] == stage][-1]
        assert last[2] in (last[1], None)
    steps = [news for news in told if news[0] == "solving"]
    assert steps[0][1:3] == (0, None)
    # The total is what the starts will probably take, and the bar never moves back.
    known = [(done, total) for _, done, total, *_ in steps if total is not None]
    assert len(known) > len(steps) / 2
    assert all(done <= total <= 900 for done, total in known)
    shares = [done / total for done, total in known]
    assert all(later >= share - 0.02 for share, later in itertools.pairwise(shares))
    assert steps[-1][1] == steps[-1][2]
    remarks = [news[4] for news in steps if news[4]]
    assert all(remark.startswith("objective ") and ", change " in remark for remark in remarks)
    objectives = [float(remark.split()[1].rstrip(",")) for remark in remarks[:10]]
    assert objectives[-1] < objectives[0]


def test_nothing_is_shown_where_nobody_looks(capfd):
    fit(sentences(), num_topics=3, key=0)
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_bars_are_shown_on_a_terminal():
    fcntl, pty, termios = (pytest.importorskip(name) for name in ("fcntl", "pty", "termios"))
    parent, child = pty.openpty()
    # Of no width, a terminal shows nothing.
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    code = (
        "import dcdjax, numpy as np\n"
        "words = ['ay', 'bee', 'cee', 'dee', 'ee', 'eff']\n"
        "text = [' '.join(np.random.default_rng(n).permutation(words)) for n in range(200)]\n"
        "dcdjax.fit(text, num_topics=2, key=0, restarts=2, tol=1.0)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stderr=child, stdout=child)
    os.close(child)
    shown = b""
    while True:
        try:
            part = os.read(parent, 4096)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        shown += part
    assert process.wait(timeout=60) == 0
    for stage in (b"reading", b"counting", b"weighting", b"starting", b"solving", b"finishing"):
        assert stage in shown
    assert b"objective" in shown
    assert b"change" in shown
    assert re.search(rb"solving: +\d+%.*\| \d+/\d+ steps \[\d\d:\d\d<\d\d:\d\d, objective", shown)


# --- What is recorded -------------------------------------------------------------------------------


def test_the_record_says_where_it_comes_from(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(sentences()))
    embedding = fit(path, num_topics=3, window=4, lowercase=True, key=7, restarts=2, progress=False)
    record = embedding.record
    assert record["corpus"]["name"] == "corpus.txt"
    assert record["corpus"]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert record["corpus"]["num_tokens"] == 1500
    assert record["seed"] == 7
    assert record["settings"]["counting"]["window"] == 4
    assert record["settings"]["counting"]["lowercase"] is True
    assert record["settings"]["num_topics"] == 3
    assert record["status"] == ["converged", "converged"]
    assert record["versions"]["jax"] == jax.__version__
    assert record["S"]["num_words"] == 18
    assert str(tmp_path) not in str(record)
    objective = embedding.history["objective"]
    assert objective.shape == (2, max(record["num_steps"]) + 1)
    for start in range(2):
        np.testing.assert_allclose(objective[start, record["num_steps"][start]], record["objective"][start])
    embedding.save(tmp_path / "model")
    assert Embedding.load(tmp_path / "model").record == record


def test_the_hash_of_S_is_of_its_words_and_numbers():
    dense = random_S(np.random.default_rng(0), 8)
    options = {"num_topics": 2, "key": 0, "tol": 1.0, "progress": False}

    def hashed(S, words=None):
        return fit(S, words=words, **options).record["S"]["sha256"]

    other = dense.copy()
    other[0, 1] = other[1, 0] = other[0, 1] + 1e-9
    assert hashed(dense) == hashed(scipy.sparse.csr_array(dense))
    named = hashed(dense, list("abcdefgh"))
    assert len({hashed(dense), hashed(other), named}) == 3


def test_a_folder_is_hashed_with_all_its_files(tmp_path, monkeypatch):
    from dcdjax.fitting import provenance

    for name, text in (("a.txt", "tea cup"), ("b.txt", "sea ship")):
        (tmp_path / name).write_text(text)
    first = provenance.of_corpus(tmp_path)
    assert first["name"] == tmp_path.name
    (tmp_path / "b.txt").write_text("sea shop")
    assert provenance.of_corpus(tmp_path)["sha256"] != first["sha256"]
    several = provenance.of_corpus([tmp_path / "a.txt", tmp_path / "b.txt"])
    assert several["name"] == "a.txt and 1 more"
    told = []
    monkeypatch.setattr(provenance, "_LEAST_SHOWN", 1)
    assert (
        provenance.of_corpus([tmp_path / "a.txt", tmp_path / "b.txt"], lambda *news: told.append(news))
        == several
    )
    total = sum((tmp_path / name).stat().st_size for name in ("a.txt", "b.txt"))
    assert told[-1] == ("hashing", total, total, "B")
    assert provenance.of_corpus("-") == {"name": "standard input", "sha256": None}
    assert provenance.of_corpus([["tea"]])["sha256"] is None


# --- What is warned of and refused ------------------------------------------------------------------


def test_not_converged_is_a_loud_warning():
    S = random_S(np.random.default_rng(0), 12)
    with pytest.warns(
        NotConvergedWarning, match=r"^not converged after 3 steps: .* tol is 1e-08; raise max_steps"
    ):
        embedding = fit(S, num_topics=3, key=0, tol=1e-8, max_steps=3, progress=False)
    assert embedding.record["status"] == ["max_steps"]
    with pytest.warns(NotConvergedWarning, match=r"^2 of 2 starts: not converged"):
        fit(S, num_topics=3, key=0, tol=1e-8, max_steps=3, restarts=2, progress=False)


def test_starts_that_fail_are_left_out(monkeypatch):
    solve_all = scheduler.solve_all

    def with_failures(numbers):
        def patched(*arguments, **options):
            found = solve_all(*arguments, **options)
            bad = np.int32(Status.NONFINITE.value)
            return [
                run._replace(status=bad, objective=np.float32("nan"))
                if number in numbers else run
                for number, run in enumerate(found)
            ]  # fmt: skip

        return patched

    S = random_S(np.random.default_rng(0), 12)
    options = {"num_topics": 3, "key": 0, "restarts": 3, "tol": 0.1, "progress": False}
    whole = fit(S, **options)
    monkeypatch.setattr(scheduler, "solve_all", with_failures({1}))
    with pytest.warns(NotConvergedWarning, match="1 of 3 starts: stopped because a value was not finite"):
        rest = fit(S, **options)
    assert rest.W.shape == (12, 6)
    assert rest.record["used"] == [0, 2]
    assert rest.record["objective"][1] is None
    np.testing.assert_allclose(rest.W[:, :3] * 2, whole.W[:, :3] * 3, rtol=1e-5)
    monkeypatch.setattr(scheduler, "solve_all", with_failures({0, 1, 2}))
    with pytest.raises(SolverError, match="all 3 starts: stopped because a value was not finite"):
        fit(S, **options)


S_SMALL = random_S(np.random.default_rng(0), 6)


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (["tea cup"], {"num_topics": 3}, "num_topics=3, but there are only 2 words"),
        (["tea cup"], {"num_topics": 0}, "num_topics must be at least 1, got 0"),
        (["tea cup"], {"restarts": 1.5}, "restarts must be a whole number, got 1.5"),
        (["tea cup"], {"max_steps": 0}, "max_steps must be at least 1, got 0"),
        (["tea cup"], {"combine": "mean"}, "combine must be one of .*, got 'mean'"),
        (["tea cup"], {"step": "big"}, "step must be one of .*, got 'big'"),
        (["tea cup"], {"tol": -1.0}, "tol must be nonnegative"),
        (["tea cup"], {"over_relaxation": 2.0}, "over_relaxation must be at least 1 and below 2"),
        (["tea cup"], {"key": "x"}, "key must be a whole number, got 'x'"),
        (["tea cup"], {"key": -1}, "key must be at least 0"),
        (["tea cup"], {"window": 0}, "window must be at least 1"),
        (["tea cup"], {"weighting": "tfidf"}, "weighting must be one of"),
        (["tea cup"], {"words": ["a", "b"]}, "words: these are counted"),
        (["tea cup"], {"progress": 7}, "progress must be True, False or callable"),
        ([""], {}, "the corpus has no token"),
        (["hello"], {}, "the text is too small: .* but has one word, 'hello'$"),
        (["tea", "cup"], {}, "the text is too small: it needs .* stand near each other, but has 2 words$"),
        (
            ["tea tea cup"],
            {"min_count": 2},
            r"one word, 'tea' \(min_count=2, max_words and drop leave out 1 more",
        ),
        (["tea cup"], {"min_count": 5}, "no word is left of 2 different words .* with min_count=5"),
        (["a b 1 2"], {}, "no token that is a word: .* single letters are left out"),
        (["tea cup"], {"shift": float("nan")}, "shift must be finite"),
        (["tea cup"], {"weighting": "counts", "shift": 1.0}, "shift is an option of the weighting 'ppmi'"),
        (["tea cup"], {"tol": float("inf")}, "tol must be finite, got inf"),
        (["tea cup"], {"dtype": jnp.float16}, "dtype must be float32 or float64, got float16"),
        (["tea cup"], {"num_topics": ()}, "num_topics must be one or more numbers, got none"),
        (["tea cup"], {"num_topics": (2, 0)}, "num_topics must be at least 1"),
        (["tea cup"], {"num_topics": (1, 9)}, r"num_topics=\[1, 9\], but there are only 2 words"),
        (["tea cup"], {"num_topics": (1, 2), "combine": "best"}, "combine='best' needs one number of topics"),
        (["tea cup"], {"preset": "mine"}, "preset must be one of .'default', 'topics', 'paper'., got 'mine'"),
        (["tea cup"], {"smoothing": -1.0}, "smoothing must be finite and not negative, got -1.0"),
        (["tea cup"], {"frequency_exponent": np.inf}, "frequency_exponent must be finite, got inf"),
        (np.eye(3), {"smoothing": 2.0}, "smoothing needs the word counts of a corpus"),
        (["tea cup"], {"start": "warm"}, "start must be one of"),
        (["tea cup"], {"devices": 5}, "devices must be some of jax.devices"),
        (["tea cup"], {"devices": []}, "devices must be some of jax.devices"),
        (["tea cup"], {"key": 1 << 32}, "key must be below 2.32, got 4294967296"),
        (S_SMALL, {"window": 3}, "window is an option of making S from a corpus, but the source is S itself"),
        (S_SMALL, {"max_words": 3}, "max_words is an option of making S"),
        (S_SMALL, {"weighting": "ppmi"}, "weighting is an option of making S"),
        (S_SMALL, {"shift": 0.0}, "shift is an option of making S"),
        (S_SMALL, {"words": ["a"]}, "words: got 1 words for 6 rows"),
        (np.triu(S_SMALL), {}, "S is not symmetric"),
    ],
)
def test_what_is_refused(source, options, message, unchecked_annotations):
    given: Any = {"num_topics": 2, "key": 0, "progress": False, **options}
    with pytest.raises(ValueError, match=message):
        fit(source, **given)


def test_unknown_options(unchecked_annotations):
    with pytest.raises(TypeError, match="no option 'num_topic'; did you mean num_topics"):
        fit(["tea cup"], num_topic=3, key=0)  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="the seed of the starts is key"):
        fit(["tea cup"], seed=3, key=0)
    counts = dcdjax.count(["tea cup", "tea cup"])
    with pytest.raises(
        ValueError, match="window is an option of making S from a corpus, but the source is counts"
    ):
        fit(counts, num_topics=2, window=3, key=0)
    with pytest.raises(ValueError, match="words: a Similarity has its own words"):
        fit(similarity.from_matrix(S_SMALL), words=list("abcdef"), num_topics=2, key=0)


# --- Stopped ----------------------------------------------------------------------------------------


@heeds_ctrl_c
@pytest.mark.parametrize("restarts", [1, 3])
def test_an_interruption_keeps_what_was_learned(restarts, monkeypatch):
    monkeypatch.setattr(scheduler, "SECONDS_PER_CHUNK", 1e-9)

    def interrupt(stage, done, total, unit, detail=""):
        if stage == "solving" and done >= 5:
            signal.raise_signal(signal.SIGINT)

    S = random_S(np.random.default_rng(0), 12)
    with pytest.warns(NotConvergedWarning, match="interrupted; W is what was learned until then"):
        stopped = fit(S, num_topics=3, key=0, tol=1e-8, max_steps=50, restarts=restarts, progress=interrupt)
    assert stopped.record["interrupted"]
    assert stopped.record["status"] == ["interrupted"]
    [steps] = stopped.record["num_steps"]
    assert 5 <= steps < 50
    with pytest.warns(NotConvergedWarning, match="not converged"):
        same = fit(S, num_topics=3, key=0, tol=1e-8, max_steps=steps, restarts=1, progress=False)
    if restarts == 1:
        np.testing.assert_array_equal(stopped.W, same.W)


def test_an_interruption_after_some_starts_keeps_those(monkeypatch):
    finished, solution = [], scheduler.Worker.solution
    monkeypatch.setattr(
        scheduler.Worker, "solution", lambda worker: (finished.append(worker.number), solution(worker))[1]
    )

    def interrupt(stage, done, total, unit, detail=""):
        if stage == "solving" and finished:
            raise KeyboardInterrupt

    S = random_S(np.random.default_rng(0), 12)
    options = {"num_topics": 3, "key": 0, "tol": 0.05, "restarts": 3, "devices": DEVICES[:1]}
    message = "interrupted after 1 of 3 starts; the embedding is of the 1 that had finished"
    with pytest.warns(NotConvergedWarning, match=message):
        stopped = fit(S, progress=interrupt, **options)
    assert stopped.record["status"] in (["converged"], ["converged", "interrupted"])
    assert stopped.record["used"] == [0]
    assert stopped.record["interrupted"]
    # One that had hardly begun would blur what the other learned.
    assert stopped.W.shape == (12, 3)


def test_an_interruption_before_the_starts_with_many_topics(monkeypatch):
    finished, solution = [], scheduler.Worker.solution
    monkeypatch.setattr(
        scheduler.Worker, "solution", lambda worker: (finished.append(worker.number), solution(worker))[1]
    )

    def interrupt(stage, done, total, unit, detail=""):
        if stage == "solving" and len(finished) >= 2:
            raise KeyboardInterrupt

    S = random_S(np.random.default_rng(0), 12)
    options: Any = {"num_topics": (2, 9), "key": 0, "tol": 0.05, "restarts": 2, "devices": DEVICES[:1]}
    with pytest.warns(NotConvergedWarning, match="interrupted after 2 of 4 starts"):
        stopped = fit(S, progress=interrupt, **options)
    assert stopped.starts == (2, 2)
    assert [level.num_topics for level in stopped.levels] == [2, 4]  # not more subtopics than columns


@pytest.mark.parametrize("key", range(6))
def test_the_best_may_be_one_that_was_interrupted(key, monkeypatch):
    monkeypatch.setattr(scheduler, "SECONDS_PER_CHUNK", 1e-9)

    def interrupt(stage, done, total, unit, detail=""):
        if stage == "solving" and done >= 5 + 4:
            raise KeyboardInterrupt

    S = random_S(np.random.default_rng(0), 12)
    options = {"num_topics": 3, "tol": 0.0, "max_steps": 5, "restarts": 2, "devices": DEVICES[:1]}
    with pytest.warns(NotConvergedWarning) as caught:
        stopped = fit(S, **options, key=key, combine="best", progress=interrupt)
    assert "the embedding is of the best of those so far" in str(caught[0].message)
    assert stopped.record["status"] == ["max_steps", "interrupted"]
    assert stopped.record["used"] == [int(np.argmin(stopped.record["objective"]))]
    idx, val = pair(S, np.float32)
    found = float(dcdjax.objective(stopped.W, idx, val))
    assert found == pytest.approx(min(stopped.record["objective"]), rel=1e-4)


@pytest.mark.parametrize("stage", ["reading", "counting", "solving"])
def test_an_interruption_before_the_first_step_is_one(stage):
    def interrupt(at, done, total, unit, detail=""):
        if at == stage:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(sentences(), num_topics=3, key=0, progress=interrupt)


@pytest.mark.slow
def test_fit_works_where_no_signal_arrives(tmp_path):
    # Only the main thread may set what is done upon a signal.
    code = (
        "import sys, threading, numpy as np; from dcdjax.cli import main as cli\n"
        "np.savetxt('text', [['tea', 'cup']] * 5, fmt='%s')\n"
        "codes = []\n"
        "arguments = ['fit', 'text', '-o', 'model', '--topics', '1', '--shift', '-9']\n"
        "work = lambda: codes.append(cli.main(arguments))\n"
        "thread = threading.Thread(target=work); thread.start(); thread.join(); sys.exit(codes[0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert len(Embedding.load(tmp_path / "model")) == 2


@heeds_ctrl_c
def test_ctrl_c_in_a_real_process(tmp_path):
    code = f"""
import numpy as np, scipy.sparse, warnings, dcdjax
rng = np.random.default_rng(0)
S = scipy.sparse.csr_array((rng.random((3000, 3000)) < 0.02).astype(float))
S = S + S.T + scipy.sparse.eye_array(3000)
def tell(stage, done, total, unit, detail=""):
    if stage == "solving" and done: print("stepping", flush=True)
embedding = dcdjax.fit(S, num_topics=50, key=0, tol=0.0, max_steps=100_000, progress=tell)
embedding.save({str(tmp_path / "model")!r})
"""
    with child(sys.executable, "-c", code) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "stepping\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    # The warning points to the line that called fit.
    assert "<string>:8: NotConvergedWarning: interrupted; W is what was learned until then" in errors
    embedding = Embedding.load(tmp_path / "model")
    assert embedding.record["status"] == ["interrupted"]
    assert embedding.record["num_steps"][0] >= 1


# --- Coherence --------------------------------------------------------------------------------------


def test_fit_keeps_the_coherence_of_its_topics(learned):
    number = {word: n for n, word in enumerate(learned.words)}
    passages = np.zeros((300, len(number)))
    for row, sentence in enumerate(sentences()):
        passages[row, [number[word] for word in sentence.split()]] = 1
    for topic in learned.topics(4):
        words = np.array([[number[pair.word] for pair in topic.words]])
        expected = coherence.npmi(scipy.sparse.csr_array(passages), words)[0, -1]
        assert topic.coherence == pytest.approx(expected)


def test_the_columns_of_one_start_are_its_topics_in_order():
    for combine in ("consensus", "best"):
        restarts = 1 if combine == "consensus" else 3
        found = fit(sentences(), num_topics=4, restarts=restarts, combine=combine, progress=False)
        assert found.W.shape[1] == found.num_topics == 4
        np.testing.assert_array_equal(found.topic_probabilities(), found.W)
        for topic, column in zip(found.topics(3), np.asarray(found.W).T, strict=True):
            raised = column * np.log1p(np.asarray(found.word_counts))
            assert topic.words[0].word == found.words[raised.argmax()]


def test_a_consensus_is_shown_as_few_topics_with_parts():
    options = {"key": 0, "tol": 0.1, "progress": False}
    chosen = fit(sentences(), num_topics=(2, 4), restarts=2, **options)
    assert chosen.starts == (2, 2, 4, 4)
    assert (chosen.num_topics, len(chosen.topics(subtopics=True))) == (2, 4)
    assert repr(chosen).startswith("Embedding(18 words, 2 topics of 12 columns")
    assert [n for topic in chosen.topics() for n in topic.subtopics] == [0, 1, 2, 3]
    equal = fit(sentences(), num_topics=3, restarts=2, **options)
    assert (equal.num_topics, len(equal.levels)) == (3, 1)


def test_an_interrupted_status_has_a_message():
    assert set(result.MESSAGES) == set(Status)
    assert fitting.NotConvergedWarning.__mro__[1] is UserWarning


@pytest.mark.parametrize(
    ("name", "usual"),
    [
        ("n_components", "num_topics"),
        ("vector_size", "num_topics"),
        ("min_df", "min_count"),
        ("stop_words", "drop"),
        ("ngram_range", "phrases"),
    ],
)
def test_names_of_other_libraries_lead_to_ours(name, usual):
    with pytest.raises(TypeError, match=f"fit has no option '{name}'; did you mean {usual}"):
        fit(["tea cup"], **dict[str, Any]({name: 5}))


def test_a_key_has_a_default_and_another_name():
    S = random_S(np.random.default_rng(0), 20)
    options: Any = {"num_topics": 3, "max_steps": 5, "tol": 0.5, "progress": False}
    zero, three, other = fit(S, **options), fit(S, random_state=3, **options), fit(S, key=3, **options)
    assert (zero.record["seed"], three.record["seed"]) == (0, 3)
    np.testing.assert_array_equal(three.W, other.W)
    np.testing.assert_array_equal(zero.W, fit(S, key=0, **options).W)
    assert not np.array_equal(zero.W, three.W)
