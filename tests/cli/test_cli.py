"""The command as a shell sees it: real processes, files, pipes, exit codes."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from commands import called, child, dcdjax_command, heeds_ctrl_c, run
from problems import THEMES, sentences, slow

import dcdjax
from dcdjax import Embedding, report
from dcdjax.cli import main, terminal
from dcdjax.fitting import scheduler
from dcdjax.topics.levels import Level


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("shell")


@pytest.fixture(scope="module")
def corpus(folder):
    path = folder / "corpus.txt"
    path.write_text("\n".join(sentences()).title())
    return path


@pytest.fixture(scope="module")
def model(folder, corpus):
    done = dcdjax_command("fit", corpus, "-o", folder / "model", "--topics", 3, "--window", 5, "--lowercase",
                          "--restarts", 2, "--seed", 3)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(
        r"18 words, \d+ pairs in S\n2 starts of 3 topics; \d+, \d+ steps \(converged\); \d+ s\n", done.stdout
    )
    assert done.stdout.endswith(f"Saved in {folder / 'model'}\n")
    return folder / "model"


# --- fit --------------------------------------------------------------------------------------------


def test_fit_learns_what_the_python_function_does(model, corpus):
    embedding = Embedding.load(model)
    same = dcdjax.fit(corpus, num_topics=3, window=5, lowercase=True, restarts=2, key=3, progress=False)
    assert embedding.words == same.words
    np.testing.assert_array_equal(embedding.W, same.W)
    assert embedding.record["corpus"] == same.record["corpus"]


def test_fit_reads_a_pipe_and_says_json(folder, corpus, model):
    command = (f"cat {corpus} | {sys.executable} -m dcdjax fit - -o {folder / 'piped'} --topics 3 --window 5 "
               "--lowercase --restarts 2 --seed 3 --json")  # fmt: skip
    done = run("bash", "-c", command)
    assert (done.returncode, done.stderr) == (0, "")
    record = json.loads(done.stdout)
    assert record["corpus"]["name"] == "standard input"
    assert record["status"] == ["converged", "converged"]
    np.testing.assert_array_equal(Embedding.load(folder / "piped").W, Embedding.load(model).W)


def test_fit_takes_every_option(folder, corpus, capsys, monkeypatch):
    monkeypatch.setenv("DCDJAX_CORES", "2")  # so that it is set back
    called(capsys, "fit", corpus, corpus, "-o", folder / "options", "--topics", 2, "--window", 3,
           "--distance-weighting", "linear", "--max-words", 15, "--min-count", 2, "--drop", "Ship", "--drop",
           "Oven", "--pattern", r"\w+", "--documents", "file", "--memory", 0.6, "--weighting", "ppmi",
           "--context-exponent", 1.0, "--shift", 0.1, "--start", "random", "--restarts", 2,
           "--combine", "best", "--step", "relaxed", "--tol", 0.05, "--max-steps", 300, "--over-relaxation",
           1.5, "--cores", 1, "--quiet", "--subsample", 1.0)  # fmt: skip
    settings = Embedding.load(folder / "options").record["settings"]
    assert settings["counting"]["drop"] == ["Oven", "Ship"]
    assert settings["counting"]["max_words"] == 15
    assert settings["counting"]["documents"] == "file"
    assert settings["counting"]["pattern"] == r"\w+"
    assert settings["counting"]["subsample"] == 1.0
    assert (settings["combine"], settings["step"], settings["over_relaxation"]) == ("best", "relaxed", 1.5)
    assert (settings["num_topics"], settings["tol"], settings["max_steps"]) == (2, 0.05, 300)
    assert settings["start"] == "random"


def test_fit_joins_phrases_and_drops_lists_of_words(folder, capsys):
    text = folder / "york.txt"
    text.write_text("the tea in New York\nship of new york sail\nand new tea\n" * 12)
    mine = folder / "mine.txt"
    mine.write_text("sail  # and so on\n")
    options = ["--topics", 2, "--restarts", 1, "--lowercase", "--phrases", "--quiet"]
    lists = ["--drop", "tea", "--drop-list", "english", "--drop-list", mine]
    printed = called(capsys, "fit", text, "-o", folder / "york", *options, *lists)
    assert "\n2 words, 1 of them phrases, " in printed
    embedding = Embedding.load(folder / "york")
    assert set(embedding.words) == {"new york", "ship"}
    counting = embedding.record["settings"]["counting"]
    assert (counting["phrases"], counting["drop"]) == (True, ["tea"])
    assert [(one["name"], one["num_words"]) for one in counting["drop_lists"]] == [
        ("english", 174),
        ("mine.txt", 1),
    ]
    assert "ship" in called(capsys, "neighbors", folder / "york", "new york")
    code = main.main(["fit", str(text), "-o", str(folder / "no"), "--drop-list", "klingon"])
    assert (code, "no list of stop words 'klingon'" in capsys.readouterr().err) == (2, True)


def test_fit_takes_presets_and_reduces(folder, corpus, capsys):
    text = called(capsys, "fit", corpus, "-o", folder / "paper", "--preset", "paper", "--topics", 2,
                  "--quiet", "--max-steps", 3, "--json")  # fmt: skip
    settings = json.loads(text)["settings"]
    assert (settings["step"], settings["start"], settings["smoothing"]) == ("relaxed", "random", 0.0)
    text = called(capsys, "fit", corpus, "-o", folder / "reduced", "--topics", 3, "--combine", "reduced",
                  "--smoothing", 5, "--frequency-exponent", 0.3, "--quiet", "--json")  # fmt: skip
    record = json.loads(text)
    assert (record["settings"]["restarts"], record["settings"]["smoothing"]) == (4, 5.0)
    assert record["weighting"]["frequency_exponent"] == 0.3
    reduced = dcdjax.Embedding.load(folder / "reduced")
    assert (reduced.num_topics, reduced.record["reduced_from"]) == (3, 12)


def test_fit_takes_several_numbers_of_topics(folder, corpus, capsys):
    text = called(
        capsys, "fit", "--topics", "2,3", corpus, "-o", folder / "several", "--restarts", 2, "--quiet"
    )
    assert "\n4 starts of 2 and 3 topics; " in text
    assert Embedding.load(folder / "several").starts == (2, 2, 3, 3)
    with pytest.raises(SystemExit, match="2"):
        main.main(["fit", str(corpus), "-o", str(folder / "several"), "--topics", "2,x"])
    assert "--topics: invalid number of topics value: '2,x'" in capsys.readouterr().err


def test_fit_tells_how_the_text_was_read(folder, capsys):
    quick = ("--topics", 2, "--restarts", 1, "--quiet", "--max-steps", 2)
    text = "\n\n".join(textwrap.fill(". ".join(sentences(seed, 8)).capitalize(), 50) for seed in range(9))
    path = folder / "book.txt"
    path.write_text(f"{text}\n\nThe King's 2nd hat.")
    assert main.main(["fit", str(path), "-o", str(folder / "book"), *map(str, quick)]) == 0
    printed = capsys.readouterr()
    read = "363 words, 21 different; documents are paragraphs of hard-wrapped lines\n"
    assert printed.out.startswith(read)
    assert re.match(r'dcdjax fit: warning: \S+book.txt: the lines are .*, pass --documents "', printed.err)
    assert "king" in Embedding.load(folder / "book").words
    options = ("--documents", "line", "--no-lowercase", "--min-count", 2)
    text = called(capsys, "fit", path, "-o", folder / "book", *quick, *options)
    assert text.startswith("363 words, 27 different, left out if they occur less than 2 times; a line is a ")
    text = called(capsys, "fit", path, "-o", folder / "book", *quick, "--tokens", "blanks", "--documents",
                  "paragraph")  # fmt: skip
    assert "hat." in Embedding.load(folder / "book").words


def test_fit_takes_a_tokenizer(folder, corpus, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    (folder / "own_words.py").write_text("def halves(line):\n    return [*line.lower().split(), '.', '1']\n")
    quick = ("--topics", 2, "--restarts", 1, "--quiet", "--max-steps", 2)
    fit = ("fit", corpus, "-o", folder / "own", *quick, "--tokenizer")
    called(capsys, *fit, "own_words:halves")
    assert {".", "1", "butter"} <= set(Embedding.load(folder / "own").words)
    called(capsys, *fit, "own_words:halves", "--tokens", "words")
    embedding = Embedding.load(folder / "own")
    assert not {".", "1"} & set(embedding.words)
    assert embedding.record["settings"]["counting"]["tokenizer"] == "halves"
    for name, said in {
        "own_words": "--tokenizer own_words: must be MODULE:FUNCTION, such as jieba:lcut",
        "no_such_module:f": "cannot import no_such_module: No module named 'no_such_module'",
        "own_words:halfs": "own_words has no halfs; did you mean halves?",
        "os:path": "it is not a function but module",
        "collections:Counter": "it is not a function but",
    }.items():
        assert said in called(capsys, *fit, name, code=2)
    (folder / "chinese.txt").write_text("自然语言处理是人工智能的一个重要方向\n" * 9)
    said = called(capsys, "fit", folder / "chinese.txt", "-o", folder / "own", code=2)
    assert "chinese.txt: Chinese has no blanks between words: " in said
    assert "--tokenizer jieba:lcut --tokens words" in said
    assert 'count(..., tokenizer=jieba.lcut, tokens="words")' in said


def test_fit_takes_a_matrix(folder, capsys):
    S = np.kron(np.eye(2), np.ones((4, 4)))
    scipy.sparse.save_npz(folder / "S.npz", scipy.sparse.csr_array(S))
    called(capsys, "fit", "--matrix", folder / "S.npz", "-o", folder / "graph", "--topics", 2)
    found = json.loads(called(capsys, "neighbors", folder / "graph", 0, "-k", 3, "--json"))
    assert {one["word"] for one in found["neighbors"]} == {"1", "2", "3"}


def test_fit_warns_in_one_line(folder, corpus):
    done = dcdjax_command("fit", corpus, "-o", folder / "short", "--topics", 3, "--restarts", 1,
                          "--max-steps", 2, "--tol", 0)  # fmt: skip
    assert done.returncode == 0
    assert done.stderr.startswith("dcdjax fit: warning: not converged after 2 steps")
    assert len(done.stderr.splitlines()) == 1
    assert "(max steps)" in done.stdout


@pytest.fixture(scope="module")
def large(folder):
    """A matrix that takes longer than anybody waits."""
    S = scipy.sparse.csr_array((np.random.default_rng(0).random((3000, 3000)) < 0.02).astype(float))
    scipy.sparse.save_npz(
        folder / "large.npz", scipy.sparse.csr_array(S + S.T + scipy.sparse.eye_array(3000))
    )
    return ("--matrix", folder / "large.npz", "--topics", 50, "--tol", 0, "--max-steps", 100_000)


@heeds_ctrl_c
@pytest.mark.parametrize("presses", [slow(1), slow(2), 3])
def test_fit_interrupted_saves_what_it_learned(folder, large, presses):
    # Says when it has taken its first step: well before, nothing could be kept.
    code = (
        "import signal, sys; from dcdjax.cli import commands, main; from dcdjax.fitting import scheduler\n"
        "wait, save = scheduler.Worker.wait, commands.save\n"
        "scheduler.Worker.wait = lambda worker: (wait(worker), print('stepped', flush=True))\n"
        f"again = lambda: [signal.raise_signal(signal.SIGINT) for _ in range({presses - 1})]\n"
        "commands.save = lambda *model: (again(), save(*model))\n"
        "sys.exit(main.main(sys.argv[1:]))"
    )
    arguments = ("fit", *large, "-o", folder / f"stopped {presses}")
    with child(sys.executable, "-c", code, *arguments) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "stepped\n"
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    if presses == 3:
        assert errors.endswith("dcdjax fit: interrupted\n")
        assert "Traceback" not in errors
        assert not (folder / "stopped 3").exists()
        return
    assert "dcdjax fit: warning: interrupted; W is what was learned until then\n" in errors
    assert ("saving what was learned; Ctrl-C once more gives it up\n" in errors) == (presses == 2)
    assert "(interrupted)" in out
    assert Embedding.load(folder / f"stopped {presses}").record["num_steps"][0] >= 1


def test_an_interrupted_fit_names_the_starts_that_it_saved(folder, corpus, capsys, monkeypatch):
    take = scheduler.Worker.take

    def taken(worker, number, start):
        if number == 2:
            raise KeyboardInterrupt
        take(worker, number, start)

    monkeypatch.setattr(scheduler.Worker, "take", taken)
    arguments = ("fit", corpus, "-o", folder / "half", "--topics", "2,3", "--restarts", 2, "--cores", 1)
    text = called(capsys, *arguments, "--quiet", code=130)
    assert Embedding.load(folder / "half").starts == (2, 2)
    assert re.search(r"\n2 of 4 starts of 2 topics; \d+, \d+ steps \(converged\); ", text)
    arguments = ("fit", corpus, "-o", folder / "half best", "--topics", 2, "--restarts", 3, "--cores", 1)
    text = called(capsys, *arguments, "--combine", "best", "--quiet", code=130)
    assert re.search(r"\n2 of 3 starts of 2 topics, the best of which is number [01]; \d+, \d+ steps ", text)


def test_an_interrupted_model_does_not_replace_a_whole_one(model, folder, corpus):
    code = (
        "import signal, sys; from dcdjax.cli import main; from dcdjax.fitting import scheduler\n"
        "wait = scheduler.Worker.wait\n"
        "scheduler.Worker.wait = lambda worker: (wait(worker), signal.raise_signal(signal.SIGTERM))\n"
        "sys.exit(main.main(sys.argv[1:]))"
    )
    before = Embedding.load(model).W
    arguments = ("fit", corpus, "-o", model, "--topics", 3, "--restarts", 1, "--tol", 0)
    done = run(sys.executable, "-c", code, *map(str, arguments))
    assert done.returncode == 130, done.stderr
    np.testing.assert_array_equal(Embedding.load(model).W, before)
    assert f"Saved in {model}-interrupted" in done.stdout
    assert Embedding.load(f"{model}-interrupted").record["interrupted"]


@heeds_ctrl_c
@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.3, 1.0, 1.6, 2.2])
def test_ctrl_c_at_any_moment_is_no_crash(folder, large, seconds):
    arguments = ("fit", *large, "-o", folder / f"early {seconds}", "--restarts", 2)
    with child(sys.executable, "-m", "dcdjax", *arguments) as process:
        time.sleep(seconds)
        for _ in range(10):
            process.send_signal(signal.SIGINT)
            try:
                _, errors = process.communicate(timeout=10)
                break
            except subprocess.TimeoutExpired:
                pass
        else:
            pytest.fail("it does not hear Ctrl-C")
    # At once, or after having saved what was learned. Before that, while Python itself is starting, by a
    # traceback.
    assert process.returncode in ((1, 130, -signal.SIGINT) if seconds < 0.5 else (130, -signal.SIGINT)), (
        errors
    )


@heeds_ctrl_c
def test_an_interruption_that_python_lost_is_heard():
    from dcdjax.cli.terminal import InterruptOnce

    with InterruptOnce(None) as interrupt:
        interrupt.tell("solving", 1, 2, "steps")
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interrupt.tell("solving", 2, 2, "steps")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_closed_streams_are_no_crash(model, closed):
    words = "-" if closed == "<&-" else "ship"
    done = run("bash", "-c", f"{sys.executable} -m dcdjax neighbors {model} {words} {closed}")
    assert done.returncode in (0, 2)
    assert "Traceback" not in done.stderr


def test_words_that_share_no_topic_are_explained(folder, capsys):
    import jax.numpy as jnp

    Embedding(words=("a", "b"), W=jnp.eye(2)).save(folder / "eye")
    assert "P(b | a) = 0.000000" in called(capsys, "explain", folder / "eye", "a", "b")


def test_fit_refuses_before_it_reads(folder, corpus, large, capsys):
    taken = folder / "taken"
    taken.mkdir()
    (taken / "letters.txt").write_text("dear")
    assert "holds other files" in called(capsys, "fit", corpus, "-o", taken, code=2)
    assert "letters.txt" in os.listdir(taken)
    assert str(corpus) in called(capsys, "fit", corpus, "-o", corpus, code=2)
    assert "either a CORPUS or --matrix" in called(capsys, "fit", "-o", folder / "x", code=2)
    assert "cannot be read together" in called(capsys, "fit", "-", corpus, "-o", folder / "x", code=2)
    assert "no such file" in called(capsys, "fit", folder / "nowhere.txt", "-o", folder / "x", code=2)
    assert "window is an option" in called(capsys, "fit", *large, "--window", 3, "-o", folder / "x", code=2)
    assert not (folder / "x").exists()


def test_what_cannot_be_saved_is_saved_elsewhere(model, folder, monkeypatch, tmp_path):
    monkeypatch.setattr(terminal.tempfile, "tempdir", str(tmp_path))
    blocked = folder / "blocked"
    blocked.write_text("a file")
    with pytest.raises(OSError, match=r"could not be written .* the model is saved in ") as caught:
        terminal.save(Embedding.load(model), str(blocked))
    elsewhere = str(caught.value).split("saved in ")[1]
    assert os.path.dirname(elsewhere) == str(folder)  # beside it
    assert Embedding.load(elsewhere).words == Embedding.load(model).words
    shutil.rmtree(elsewhere)
    with pytest.raises(OSError, match=r"could not be written .* the model is saved in ") as caught:
        terminal.save(Embedding.load(model), str(blocked / "deeper"))
    assert str(caught.value).split("saved in ")[1].startswith(str(tmp_path))


def test_sigterm_leaves_no_unfinished_page(model, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(os, "fsync", lambda _: signal.raise_signal(signal.SIGTERM))
    ended = []
    before = signal.signal(signal.SIGTERM, lambda *_: ended.append("killed"))
    try:
        called(capsys, "report", model, "-o", tmp_path / "page.html", "--quiet", code=130)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not ended
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("fit", "--n-components", "5"), "unrecognized arguments: --n-components 5; did you mean --topics?"),
        (("fit", "--num-topics=5"), "did you mean --topics?"),
        (("fit", "--lower"), "did you mean --lowercase?"),
        (("fit", "--max_words", "5"), "did you mean --max-words?"),
        (("fit", "--random-state", "1"), "did you mean --seed?"),
        (("fit", "--n-jobs", "1"), "did you mean --cores?"),
        (("fit", "--preset", "papr"), "did you mean paper?"),
        (("neighbors", "tea", "--topn", "3"), "did you mean -k?"),
        (("neighbor", "tea"), "did you mean neighbors?"),
    ],
)
def test_wrong_options_lead_to_the_right_ones(words, hint, capsys):
    command, *more = words
    with pytest.raises(SystemExit) as caught:
        main.main([command, "model", *more, *(["-o", "x"] if command == "fit" else [])])
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert hint in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("place", ["nowhere/vectors.txt", "no/where/page.html"])
def test_missing_folders_are_not_made(model, folder, place, capsys):
    name = folder / place
    command = ("report", model, "-o", name) if place.endswith("html") else ("export", model, name)
    assert f"there is no folder {name.parent}" in called(capsys, *command, code=2)
    if place.endswith("txt"):
        projector = (*command, "--format", "projector")
        assert f"there is no folder {name.parent}" in called(capsys, *projector, code=2)
    assert not name.parent.exists()


def test_errors_of_the_system_are_told_in_words(model, folder, capsys):
    missing, output = folder / "missing.tsv", folder / "x"
    for command in (
        ("evaluate", model, "--pairs", missing),
        ("fit", "--matrix", missing, "-o", output),
        ("fit", missing, "-o", output),
    ):
        said = called(capsys, *command, code=2)
        assert f"no such file or folder: {missing}\n" in said
        assert "Errno" not in said
    for command in (("evaluate", model, "--pairs", folder), ("fit", "--matrix", folder, "-o", output)):
        said = called(capsys, *command, code=2)
        assert "a folder, not a file" in said
        assert said.count(str(folder)) == 1
        assert "Errno" not in said


# --- Questions --------------------------------------------------------------------------------------


def test_neighbors_as_a_table_and_as_json(model, capsys):
    embedding = Embedding.load(model)
    lines = called(capsys, "neighbors", model, "ship", "-k", 3).splitlines()
    assert lines[0].split() == ["neighbor", "P(neighbor", "|", "ship)"]
    right = embedding.neighbors("ship", 3)
    assert [line.split() for line in lines[1:]] == [[one.word, f"{one.probability:.6f}"] for one in right]
    printed = called(capsys, "neighbors", model, "ship", "oven", "-k", 2, "--json").splitlines()
    assert [json.loads(line)["word"] for line in printed] == ["ship", "oven"]
    together = embedding.neighbors(
        ["ship", "oven"], 2
    )  # of equally near words, one asked alone may name others
    assert json.loads(printed[0])["neighbors"] == [one._asdict() for one in together[0]]
    tables = called(capsys, "neighbors", model, "ship", "oven", "-k", 2).split("\n\n")
    assert len(tables) == 2
    together = json.loads(called(capsys, "neighbors", model, "ship", "oven", "--together", "--json"))
    assert together["words"] == ["ship", "oven"]
    assert together["neighbors"][0]["word"] == embedding.neighbors(["ship", "oven"], together=True)[0].word
    among = json.loads(called(capsys, "neighbors", model, "ship", "--json", "--among", "oven", "harbor"))
    assert [one["word"] for one in among["neighbors"]] == ["harbor", "oven"]


def test_words_come_from_a_pipe_and_answers_go_into_one(model):
    command = (
        f"printf 'ship\\n\\n oven\\n' | {sys.executable} -m dcdjax neighbors {model} - --json | head -n 1"
    )
    done = run("bash", "-c", command)
    assert done.stderr == ""
    assert json.loads(done.stdout)["word"] == "ship"


def test_unknown_words_do_not_keep_others_from_being_answered(model):
    done = dcdjax_command("neighbors", model, "shipp", "ship", "zzz", "--json")
    assert done.returncode == 2
    assert [json.loads(line)["word"] for line in done.stdout.splitlines()] == ["ship"]
    assert [line.split(" is not")[0] for line in done.stderr.splitlines()] == [
        "dcdjax neighbors: 'shipp'",
        "dcdjax neighbors: 'zzz'",
    ]


def listed(capsys, *arguments):
    return [json.loads(line) for line in called(capsys, "topics", *arguments, "--json").splitlines()]


def test_topics(model, capsys):
    embedding = Embedding.load(model)
    *lines, last = called(capsys, "topics", model, "-k", 4).splitlines()
    first = [[one.word for one in topic.words] for topic in embedding.topics(25)]
    share = len({word for words in first for word in words}) / sum(map(len, first))
    assert last == f"Diversity {share:.2f}: the share of different words among the first 25 of all topics"
    assert lines[0].split() == ["topic", "share", "NPMI", "words"]
    assert len(lines) == 1 + 3
    for line, topic in zip(lines[1:], embedding.topics(4), strict=True):
        number, share, npmi, *words = line.split()
        assert int(number) == topic.number
        assert words == [one.word for one in topic.words]
        assert float(share.rstrip("%")) / 100 == pytest.approx(topic.weight, abs=1e-3)
        assert float(npmi) == pytest.approx(topic.coherence, abs=1e-2)
    expected = [
        {**topic._asdict(), "words": [one._asdict() for one in topic.words]} for topic in embedding.topics(4)
    ]
    assert json.loads(json.dumps(expected)) == listed(capsys, model, "-k", 4)
    for sort, name in (("share", "weight"), ("coherence", "coherence")):
        values = [one[name] for one in listed(capsys, model, "--sort", sort, "-n", 2)]
        assert values == sorted((getattr(topic, name) for topic in embedding.topics()), reverse=True)[:2]
    assert "\n2 more: -n 3 shows all\n" in called(capsys, "topics", model, "-n", 1)
    assert "more:" not in called(capsys, "topics", model, "-n", 3)


def test_topics_of_a_word(model, capsys):
    embedding = Embedding.load(model)
    of = listed(capsys, model, "--of", "ship")
    expected = embedding.topics_of("ship", 99)
    assert [one["number"] for one in of] == [one.number for one in expected]
    assert [one["probability"] for one in of] == [one.probability for one in expected]
    assert called(capsys, "topics", model, "--of", "ship").splitlines()[0].split()[1:4] == [
        "P(topic",
        "|",
        "ship)",
    ]
    message = called(capsys, "topics", model, "--of", "ship", "--sort", "share", code=2)
    assert "sorted by P(topic | word)" in message


def test_subtopics(folder, corpus, model, capsys):
    several = folder / "with subtopics"
    called(capsys, "fit", "--topics", "2,4", corpus, "-o", several, "--restarts", 1, "--quiet", "--lowercase")
    embedding = Embedding.load(several)
    parts = embedding.topics(subtopics=True)
    assert [one["number"] for one in listed(capsys, several, "--subtopics")] == [0, 1, 2, 3]
    for topic in embedding.topics():
        shown = listed(capsys, several, "--topic", topic.number)
        assert [one["number"] for one in shown] == list(topic.subtopics)
        assert [one["weight"] for one in shown] == [parts[n].weight for n in topic.subtopics]
    of = listed(capsys, several, "--of", "ship", "--subtopics")
    assert [one["probability"] for one in of] == [
        one.probability for one in embedding.topics_of("ship", 4, subtopics=True)
    ]
    of_part = listed(capsys, several, "--of", "ship", "--topic", 1)
    shares = {one.number: one.probability for one in embedding.topics_of("ship", 4, subtopics=True)}
    assert {one["number"]: one["probability"] for one in of_part} == {
        number: shares[number] for number in embedding.topics()[1].subtopics
    }
    assert "--topic 2: the model has 2 topics" in called(capsys, "topics", several, "--topic", 2, code=2)
    for arguments in (("--subtopics",), ("--topic", 1)):
        assert "the 3 topics of this model have none" in called(capsys, "topics", model, *arguments, code=2)


def test_junk_and_unknown_coherence(folder, capsys):
    import jax.numpy as jnp

    words = tuple(f"w{n}" for n in range(20))
    W = jnp.asarray(np.repeat(np.eye(2), 10, axis=0))
    table = np.array([[0.5] * 10, [-0.5] * 10])
    Embedding(words, W, levels=(Level(np.arange(2), table),)).save(folder / "junk")
    _, good, junk, _ = called(capsys, "topics", folder / "junk").splitlines()
    assert not good.endswith(" (junk)")
    assert junk.endswith(" (junk)")
    assert [one["junk"] for one in listed(capsys, folder / "junk")] == [False, True]
    Embedding(words, W).save(folder / "unknown")
    assert "(junk)" not in called(capsys, "topics", folder / "unknown")
    message = called(capsys, "topics", folder / "unknown", "--sort", "coherence", code=2)
    assert "the model was not learned from counts" in message


def test_explain(model, capsys):
    embedding = Embedding.load(model)
    printed = json.loads(called(capsys, "explain", model, "ship", "harbor", "-k", 99, "--json"))
    assert printed["similarity"] == pytest.approx(embedding.similarity("ship", "harbor"))
    assert sum(one["probability"] for one in printed["topics"]) == pytest.approx(printed["similarity"])
    table = called(capsys, "explain", model, "ship", "harbor", "-k", 2).splitlines()
    assert table[0] == f"P(harbor | ship) = {printed['similarity']:.6f}, by way of the topics"
    parts = [float(line.split()[1]) for line in table[2:]]
    assert len(parts) == 3
    assert sum(parts) == pytest.approx(printed["similarity"], abs=2e-6)
    assert sum(int(line.split()[2].rstrip("%")) for line in table[2:]) == pytest.approx(100, abs=1)


def test_evaluate(model, folder, capsys):
    (folder / "pairs.tsv").write_text(
        "ship\tsail\t9\nship\toven\t1\nbread\toven\t8\ncourt\tbread\t2\nx\ty\t3\n"
    )
    (folder / "questions.txt").write_text(": themes\nship sail bread butter\nship sail bread nothing\n")
    themes = {word: theme for theme, words in THEMES.items() for word in words.split()}
    (folder / "themes.tsv").write_text(
        "".join(f"{word.title()}\t{theme}\n" for word, theme in themes.items())
    )
    files = ("--pairs", folder / "pairs.tsv", "--analogies", folder / "questions.txt",
             "--categories", folder / "themes.tsv")  # fmt: skip
    printed = called(capsys, "evaluate", model, *files, "--lowercase", "--json").splitlines()
    pairs, analogies, categories = map(json.loads, printed)
    assert pairs["score"] > 0.5
    assert (pairs["measure"], pairs["used"], pairs["missing"]) == ("spearman", 4, 1)
    assert (analogies["used"], analogies["missing"]) == (1, 1)
    assert (categories["score"], categories["used"]) == (1.0, 18)
    lines = called(capsys, "evaluate", model, *files).splitlines()
    assert lines[0].split()[:4] == ["file", "measure", "score", "used"]
    assert [line.split()[1] for line in lines[1:]] == ["Spearman", "accuracy", "purity"]
    assert lines[3].split()[2] == "nan"  # no word of it is known without --lowercase
    assert "give files by" in called(capsys, "evaluate", model, code=2)
    (folder / "bad.tsv").write_text("ship\tsail\n")
    assert "bad.tsv: line 1" in called(capsys, "evaluate", model, "--pairs", folder / "bad.tsv", code=2)


def test_export(model, folder, capsys):
    gensim = pytest.importorskip("gensim.models").KeyedVectors
    embedding = Embedding.load(model)
    printed = called(capsys, "export", model, folder / "vectors.bin", "--format", "word2vec-binary")
    assert printed == f"18 words with 6 numbers each: {folder / 'vectors.bin'}\n"
    vectors = gensim.load_word2vec_format(folder / "vectors.bin", binary=True)
    np.testing.assert_array_equal(vectors["ship"], embedding["ship"])
    printed = called(
        capsys, "export", model, folder / "topics.bin", "--format", "word2vec-binary", "--topics"
    )
    assert printed == f"18 words with 3 numbers each: {folder / 'topics.bin'}\n"
    vectors = gensim.load_word2vec_format(folder / "topics.bin", binary=True)
    np.testing.assert_array_equal(
        vectors["ship"], embedding.topic_probabilities()[embedding.key_to_index["ship"]]
    )
    called(capsys, "export", model, folder / "vectors.txt", "--scaled")
    vectors = gensim.load_word2vec_format(folder / "vectors.txt")
    assert vectors["ship"] @ vectors["oven"] == pytest.approx(embedding.similarity("ship", "oven"), rel=1e-4)
    done = run(sys.executable, "-m", "dcdjax", "export", str(model), "-")
    assert done.stdout.splitlines()[0] == "18 6"
    assert len(done.stdout.splitlines()) == 19
    message = called(capsys, "export", model, model / "model.json", code=2)
    assert "is in the model's own folder" in message
    assert "is a folder" in called(capsys, "export", model, folder, code=2)
    called(capsys, "export", model, folder / "projector", "--format", "projector")
    assert (folder / "projector" / "vectors.tsv").exists()
    called(capsys, "export", model, folder / "vectors.npz", "--format", "numpy")
    assert (folder / "vectors.npz").exists()


# --- Errors, help, start-up -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("neighbors", "MODEL", "shipp"), "'shipp' is not among the 18 words; similar: 'ship'"),
        (("neighbors", "MODEL", "shipp", "oven", "--together"), "'shipp' is not among the 18 words"),
        (("neighbors", "MODEL", "ship", "-k", str(10**24)), "dcdjax neighbors: "),
        (("fit", "text9", "-o", "x"), "no such file or folder: text9; did you mean text8?"),
        (("fit", "python-docs", "-o", "x", "--memory", "0"), "--memory must be at least 0.54 GB, got 0"),
        (("fit", "python-docs", "-o", "x", "--max-steps", str(10**20)), "dcdjax fit: "),
        (("neighbors", "nowhere", "ship"), "nowhere is not a saved model"),
        (("topics", "MODEL", "--of", "zzz"), "'zzz' is not among the 18 words"),
        (("explain", "MODEL", "ship", "zzz"), "'zzz' is not among"),
        (("export", "MODEL", "/dev/null/x"), "/dev/null"),
        (("evaluate", "MODEL", "--pairs", "nowhere.tsv"), "nowhere.tsv"),
    ],
)
def test_errors_are_one_line_and_code_2(model, capsys, arguments, message):
    arguments = [str(model) if argument == "MODEL" else argument for argument in arguments]
    assert message in called(capsys, *arguments, code=2)


def test_a_damaged_model_is_refused_in_one_line(model, folder, capsys):
    import shutil

    shutil.copytree(model, folder / "damaged")
    [tensors] = (folder / "damaged").glob("*.safetensors")
    content = bytearray(tensors.read_bytes())
    content[-5] ^= 1
    tensors.write_bytes(content)
    assert tensors.name in called(capsys, "neighbors", folder / "damaged", "ship", code=2)


def test_a_traceback_where_it_is_asked_for(model, monkeypatch):
    monkeypatch.setenv("DCDJAX_TRACEBACK", "1")
    with pytest.raises(KeyError):
        main.main(["explain", str(model), "ship", "zzz"])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--version",), 0, f"dcdjax {dcdjax.__version__}"),
        ((), 2, "usage: dcdjax"),
        (("sing",), 2, "dcdjax: argument COMMAND: invalid choice: 'sing'"),
        (("demo", "--seed", "x"), 2, "dcdjax demo: argument --seed: invalid int value: 'x'"),
        (("demo", "--seed", "-1"), 2, "must be at least 0, got -1"),
        (
            ("fit", "text.txt", "-o", "x", "--num-topics", "5"),
            2,
            "dcdjax fit: unrecognized arguments: --num-topics 5; did you mean --topics? (see dcdjax fit",
        ),
        (("fit", "text.txt"), 2, "dcdjax fit: the following arguments are required: -o/--output"),
        (("neighbors", "model"), 2, "dcdjax neighbors: the following arguments are required: WORD"),
    ],
)
def test_command_line(arguments, code, message):
    done = dcdjax_command(*arguments)
    assert done.returncode == code
    assert message in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 1


@pytest.mark.parametrize("command", ["demo", "fit", "neighbors", "topics", "explain", "evaluate", "export"])
def test_help_has_examples_that_parse(command, capsys):
    with pytest.raises(SystemExit) as caught:
        main.main([command, "--help"])
    assert caught.value.code == 0
    printed = capsys.readouterr().out
    examples = printed.split("examples:\n")[1].splitlines()
    assert examples
    import shlex

    for example in examples:
        words = shlex.split(example.split("|")[-1])
        assert words[0] == "dcdjax"
        assert main.make_parser().parse_args(words[1:]).command == command


def test_help_does_not_wait_for_jax():
    code = (
        "import sys; from dcdjax.cli import main\n"
        "try: main.main(['fit', '-h'])\n"
        "finally: assert not {'jax', 'numpy', 'scipy'} & set(sys.modules)"
    )
    done = run(sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
    assert "--topics" in done.stdout


def test_words_that_a_terminal_would_act_upon_are_escaped(folder, capsys):
    import jax.numpy as jnp

    words = ("\x1b[2J", "tea", "日本", "\ud800")
    W = jnp.asarray(np.full((4, 2), 0.5))
    Embedding(words=words, W=W).save(folder / "odd")
    printed = called(capsys, "neighbors", folder / "odd", "tea")
    assert "\x1b" not in printed
    assert "\\x1b[2J" in printed
    assert "\\ud800" in printed
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = dcdjax_command("neighbors", folder / "odd", "tea", env=environment)
    assert (done.returncode, done.stderr) == (0, "")


def test_cores_are_jax_devices_unless_somebody_said_otherwise():
    code = "from dcdjax.cli.terminal import use_cores; use_cores(3); import jax; print(len(jax.devices()))"
    environment = {name: value for name, value in os.environ.items() if name not in ("XLA_FLAGS",)}
    assert run(sys.executable, "-c", code, env=environment).stdout == "3\n"
    flags = {**environment, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    assert run(sys.executable, "-c", code, env=flags).stdout == "2\n"
    assert run(sys.executable, "-c", code, env={**environment, "JAX_NUM_CPU_DEVICES": "4"}).stdout == "4\n"


# --- The demonstration ------------------------------------------------------------------------------


@pytest.mark.slow
def test_demo_learns_and_says_what_to_try_next(tmp_path, cached):
    done = dcdjax_command("demo", cwd=tmp_path, env=cached)
    assert done.returncode == 0, done.stderr
    assert all(line.startswith("dcdjax demo: warning: dropped ") for line in done.stderr.splitlines())
    [thread] = re.findall(r"^  thread +(.*)$", done.stdout, re.MULTILINE)
    concurrent = (
        "lock locks locked unlocked acquire acquired wait waiting wake awaited coroutines threads notify"
    )
    assert len(set(concurrent.split()) & set(thread.split())) >= 3
    topics = done.stdout.split("Topics: share of the text, first words\n")[1].split("\n\n")[0].splitlines()
    assert len(topics) == 8
    assert "Why are they similar?" in done.stdout
    embedding = Embedding.load(tmp_path / "dcdjax-demo")
    assert embedding.record["corpus"]["name"] == "python-docs"
    assert "\nTo explore the model, open dcdjax-demo.html in a browser.\n" in done.stdout
    page = (tmp_path / "dcdjax-demo.html").read_text()
    assert page == report.page(embedding, title="The documentation of Python", progress=False).html
    # What it says to try next works as it stands.
    tries = [line.strip() for line in done.stdout.split("Try next:\n")[1].splitlines()]
    for line in tries:
        if " fit " not in line:
            tried = dcdjax_command(*line.split()[1:], cwd=tmp_path)
            assert tried.returncode == 0, tried.stderr


def test_a_closed_pipe_is_no_error(model):
    command = f"{sys.executable} -m dcdjax topics {model} -n 100 | head -n 1"
    done = run("bash", "-c", command, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1


def test_the_docs_name_every_command():
    root = Path(__file__).parents[2]
    readme = "".join(page.read_text() for page in [root / "README.md", *root.glob("docs/*.md")])
    for command in ("demo", "fit", "neighbors", "topics", "explain", "evaluate", "export", "report"):
        assert f"dcdjax {command}" in readme
