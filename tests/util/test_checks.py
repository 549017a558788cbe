"""Names of options: those of other libraries, and misspelled ones."""

import inspect
import typing

import pytest

import dcdjax
from dcdjax.counting.cooccurrence import CountingOptions
from dcdjax.fitting import presets
from dcdjax.similarity import from_counts, from_points

TEXT = ["tea cup tea", "cup tea"]


@pytest.mark.parametrize(
    ("function", "wrong", "right"),
    [
        (dcdjax.fit, "n_components", "num_topics"),
        (dcdjax.fit, "vector_size", "num_topics"),
        (dcdjax.fit, "nr_topics", "num_topics"),
        (dcdjax.fit, "sentences", "source"),
        (dcdjax.fit, "windw", "window"),
        (dcdjax.fit, "lower", "lowercase"),
        (dcdjax.fit, "n_jobs", "devices"),
        (dcdjax.fit, "verbose", "progress"),
        (dcdjax.count, "min_df", "min_count"),
        (dcdjax.count, "max_features", "max_words"),
        (dcdjax.count, "minCount", "min_count"),
        (dcdjax.count, "token_patern", "pattern"),
        (dcdjax.solve, "max_iter", "max_steps"),
        (dcdjax.solve_restarts, "tolerance", "tol"),
        (from_counts, "wieghting", "weighting"),
        (from_points, "n_neighbors", "num_neighbors"),
    ],
)
def test_unknown_options_lead_to_ours(function, wrong, right):
    with pytest.raises(
        TypeError, match=f"^{function.__name__} has no option '{wrong}'; did you mean {right}\\?$"
    ):
        function(TEXT, **{wrong: 3})
    assert right in inspect.signature(function).parameters


def test_what_resembles_nothing_is_only_refused():
    with pytest.raises(TypeError, match=r"^count has no option 'zzz'$"):
        dcdjax.count(TEXT, zzz=3)  # pyright: ignore[reportCallIssue]
    with pytest.raises(
        AttributeError, match="module 'dcdjax' has no attribute 'Embeding'; did you mean Embedding"
    ):
        dcdjax.Embeding  # noqa: B018


def test_counting_options_are_those_of_count():
    """The one list that is written twice, for type checkers and editors."""
    hints = typing.get_type_hints(dcdjax.count)
    for name in ("source", "progress", "return"):
        del hints[name]
    assert typing.get_type_hints(CountingOptions) == hints
    assert list(CountingOptions.__annotations__) == list(hints)


def test_fit_lists_the_options_of_count():
    options, counting = (inspect.signature(function).parameters for function in (dcdjax.fit, dcdjax.count))
    assert set(counting) < set(options)
    assert not any(one.kind is one.VAR_KEYWORD for one in options.values())
    changed = presets.counting("default")
    for name in CountingOptions.__annotations__:
        assert options[name].default == changed.get(name, counting[name].default)
