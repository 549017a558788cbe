"""The defaults that docstrings and `--help` name are those of `presets`."""

import inspect
import re
from typing import get_args

import pytest

from dcdjax import count, fit
from dcdjax.cli import main
from dcdjax.fitting import presets
from dcdjax.similarity.similarity import from_counts


def documented(name):
    """What fit's docstring says of an argument, on one line."""
    text = re.search(rf"^ +[*]*{name}: (.*?)(?=^ {{6}}\S|^ {{4}}\S)", fit.__doc__ or "", re.M | re.S)
    assert text, name
    return " ".join(text[1].split())


NONE: dict[str, None] = dict.fromkeys(("num_topics", "weighting", "tol"))


@pytest.mark.parametrize("name", ["tol", "max_steps", "over_relaxation", "smoothing"])
def test_the_docstring_names_the_defaults_for_text_and_for_S(name):
    said = re.search(r"Default: (\S+) for a text(?: \([^)]*\))?, (\S+) for S", documented(name))
    assert said
    of_text = presets.settings("default", NONE, counts_are_known=True)[name]
    of_matrix = presets.settings("default", NONE, counts_are_known=False)[name]
    assert (float(said[1]), float(said[2])) == (of_text, of_matrix)


@pytest.mark.parametrize("name", ["weighting", "start", "context_exponent", "shift", "frequency_exponent"])
def test_the_docstring_names_the_other_defaults(name):
    settings = presets.settings("default", NONE, counts_are_known=True)
    usual = {**settings, **presets.counting("default"), **presets.ppmi()}[name]
    said = re.search(r'Default: "?([\w.]+?)"?\.(?:\s|$)', documented(name))
    assert said
    assert type(usual)(said[1]) == usual


def test_the_docstring_names_the_numbers_of_topics_and_starts():
    assert f"Default: {presets.num_topics(10**6)} for a consensus" in documented("num_topics")
    assert f"otherwise {presets.num_topics(10**6, several=False)[0]}." in documented("num_topics")
    assert presets.num_topics(50) == (5,)  # "at most a tenth of its words"
    assert "four starts in all" in documented("restarts")
    assert presets.restarts(1) == 4
    assert presets.restarts(2) == 2


def test_the_docstring_tells_the_preset_of_the_paper():
    paper = {**presets.settings("paper", NONE, counts_are_known=True), **presets.counting("paper")}
    said = documented("preset")
    assert paper["weighting"] == "counts"
    assert "plain counts" in said
    assert (paper["tokens"], paper["lowercase"], paper["min_count"]) == ("blanks", False, 1)
    assert "what stands between blanks as words" in said
    assert f"{paper['distance_weighting']} windows" in said
    assert f"one {paper['start']} start of {paper['num_topics']} topics" in said
    assert paper["restarts"] == 1
    assert f"at most {paper['max_steps']} steps" in said
    assert float(re.search(r"tol (\S+),", said)[1]) == paper["tol"]  # pyright: ignore[reportOptionalSubscript]
    assert paper["smoothing"] == 0
    assert "no smoothing" in said


@pytest.fixture
def helped(capsys):
    with pytest.raises(SystemExit):
        main.main(["fit", "--help"])
    options = capsys.readouterr().out.partition("the text:")[2]

    def defaults(option):
        [shown] = [text for text in options.split("  --") if text.startswith(f"{option.replace('_', '-')} ")]
        said = re.search(r"default: ([^;)]+)(?:; matrix: ([^)]+))?", " ".join(shown.split()))
        assert said, option
        return said.groups()

    return defaults


@pytest.mark.parametrize("name", ["tol", "max_steps", "over_relaxation", "smoothing"])
def test_help_names_the_defaults_for_text_and_for_a_matrix(helped, name):
    of_text, of_matrix = (
        presets.settings("default", NONE, counts_are_known=known) for known in (True, False)
    )
    assert tuple(map(float, helped(name))) == (of_text[name], of_matrix[name])


@pytest.mark.parametrize(
    "name",
    ["weighting", "start", "step", "window", "distance_weighting", "context_exponent", "shift",
     "frequency_exponent", "max_words", "documents"],
)  # fmt: skip
def test_help_names_the_other_defaults(helped, name):
    counting = {key: one.default for key, one in inspect.signature(count).parameters.items()}
    settings = presets.settings("default", NONE, counts_are_known=True)
    usual = {**counting, **settings, **presets.counting("default"), **presets.ppmi()}[name]
    of_text, of_matrix = helped(name)
    assert of_matrix is None
    assert type(usual)(of_text) == usual


def test_help_names_the_numbers_of_topics(helped):
    assert helped("topics")[0].startswith(",".join(map(str, presets.num_topics(10**6))))


def defaults(function):
    parameters = inspect.signature(function).parameters.values()
    return {one.name: one.default for one in parameters if one.default is not inspect.Parameter.empty}


def test_count_and_from_counts_have_the_defaults_of_fit():
    """So that `fit(corpus)`, `fit(count(corpus))` and `fit(from_counts(count(corpus)))` are the same."""
    assert presets.counting("default").items() <= defaults(count).items()
    weights = {
        **presets.ppmi(),
        "weighting": presets.settings("default", NONE, counts_are_known=True)["weighting"],
    }
    assert weights.items() <= defaults(from_counts).items()
    # The other presets name what differs.
    for preset in get_args(presets.Preset):
        assert {"window", "distance_weighting"} <= set(presets.counting(preset))
    assert presets.counting("paper")["distance_weighting"] == "flat"
    # What the docstring says of the two.
    said = re.search(
        r'window \(default: (\d+)\) and distance_weighting \(default: "(\w+)"\)', documented("counting")
    )
    assert said
    assert {"window": int(said[1]), "distance_weighting": said[2]} == dict(presets.counting("default"))


def test_the_docstring_tells_the_preset_of_topics():
    topics = {**presets.settings("topics", NONE, counts_are_known=True), **presets.counting("topics")}
    said = documented("preset")
    [number] = presets.num_topics(10**6, "topics")
    assert topics["restarts"] == 1
    assert f"{number} topics from one start" in said
    assert f"{topics['distance_weighting']} windows of {topics['window']} words" in said
    assert re.search(r'"default" is for .* "topics" is for .* "paper" is for ', said)
    # All else is as usual.
    usual = presets.settings("default", NONE, counts_are_known=True)
    assert {name for name in usual if usual[name] != topics[name]} == {"restarts"}


def test_what_is_given_replaces_the_preset():
    assert presets.settings("default", {"tol": 0.5, "step": None}, counts_are_known=True)["tol"] == 0.5
    assert presets.settings("default", {"tol": 0.5, "step": None}, counts_are_known=True)["step"] == "exact"
    with pytest.raises(ValueError, match="preset must be one of"):
        presets.settings("papers", {}, counts_are_known=True)
