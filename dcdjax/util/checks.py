"""Check arguments, and name the one that is wrong. Compare the records of two runs."""

import difflib
import functools
import inspect
import json
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

# Names in gensim, scikit-learn, BERTopic, fastText and GloVe, in lower case, and the options here.
_FOREIGN = {
    foreign: name
    for name, others in {
        "source": "sentences corpus corpus_file docs texts raw_documents corpus_iterable x input",
        "num_topics": "n_components n_topics nr_topics num_topic topics n_clusters num_clusters "
        "vector_size size dim embedding_dim",
        "max_words": "max_features max_final_vocab max_vocab_size max_vocab keep_n vocab_size",
        "min_count": "min_df no_below mincount min_word_count vocab_min_count min_freq min_frequency",
        "max_steps": "max_iter epochs epoch passes iterations iter n_iter num_iter n_epochs num_steps",
        "tol": "mean_change_tol gamma_threshold tolerance eps",
        "window": "window_size ws",
        "restarts": "n_init num_starts n_starts starts num_restarts",
        "start": "init",
        "key": "rng rng_key prng_key random_seed",
        "drop": "stop_words stopwords stop_list",
        "phrases": "ngram_range ngrams bigrams collocations",
        "pattern": "token_pattern",
        "tokenizer": "analyzer preprocessor",
        "lowercase": "lower do_lower_case to_lower",
        "subsample": "sample",
        "context_exponent": "ns_exponent cds",
        "over_relaxation": "relaxation",
        "devices": "workers n_jobs num_workers threads thread n_threads num_threads",
        "progress": "verbose progress_bar show_progress_bar quiet report_delay",
        "checkpoint": "checkpoint_dir checkpoint_path",
        "text": "column text_column",
        "num_neighbors": "n_neighbors k_neighbors",
        "k": "topn top_n top_k n topk num_words top_n_words",
    }.items()
    for foreign in others.split()
}

# The largest number that NumPy's and JAX's integers hold.
_MOST = 2**63 - 1


def whole(name: str, value: Any, least: int) -> int:
    """Return a whole number of at least `least` that fits into 64 bits."""
    try:
        value = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number, got {value!r}") from None
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    if value > _MOST:
        raise ValueError(f"{name} must be at most {_MOST}, got a number of {value.bit_length()} bits")
    return value


def choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Refuse a value that is not one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {choices}, got {value!r}")


def did_you_mean(value: Any, known: Iterable[str]) -> str:
    """Return a hint with the known name that is spelled most like the value, or an empty text.

    Example:
      >>> did_you_mean("wikitext2", ["text8", "wikitext-2"])
      '; did you mean wikitext-2?'
    """
    close = difflib.get_close_matches(str(value), list(known), 1)
    return f"; did you mean {close[0]}?" if close else ""


def suggestion(name: str, known: Iterable[str], others: Mapping[str, str] | None = None) -> str:
    """Return a hint with the known option that a name stands for, or an empty text.

    Args:
      name: the name that was given.
      known: the names of the options.
      others: where the known names differ from those of `fit`: the name of `fit`, and the known one.

    Example:
      >>> suggestion("n_components", ["num_topics", "tol"]), suggestion("toll", ["num_topics", "tol"])
      ('; did you mean num_topics?', '; did you mean tol?')
    """
    others, known = others or {}, set(known)
    meant = {**others, **{foreign: others.get(ours, ours) for foreign, ours in _FOREIGN.items()}}
    meant = {one: ours for one, ours in meant.items() if ours in known} | {one: one for one in known}
    close = difflib.get_close_matches(name.lower().replace("-", "_"), meant, 1)
    return f"; did you mean {meant[close[0]]}?" if close else ""


def suggest_names(function: F) -> F:
    """Decorate a function so that an unknown option is an error that suggests the right one.

    Example:
      >>> @suggest_names
      ... def learn(*, num_topics: int = 2) -> int:
      ...     return num_topics
      >>> learn(n_components=3)
      Traceback (most recent call last):
      TypeError: learn has no option 'n_components'; did you mean num_topics?
    """

    @functools.cache
    def known() -> frozenset[str]:
        return frozenset(inspect.signature(checked).parameters)

    @functools.wraps(function)
    def checked(*arguments: Any, **options: Any) -> Any:
        for name in options:
            if name not in known():
                raise TypeError(f"{function.__name__} has no option {name!r}{suggestion(name, known())}")
        return function(*arguments, **options)

    return cast(F, checked)


def show_options_of(
    other: Callable[..., Any], *, leave_out: Iterable[str], defaults: Mapping[str, Any]
) -> Callable[[F], F]:
    """Decorate a function that passes `**options` on, so that its signature lists them by name.

    `inspect.signature`, `help` and the completion of IPython read this signature.

    Args:
      other: the function that takes the options.
      leave_out: its parameters that are no such options.
      defaults: defaults that differ from those of `other`.

    Example:
      >>> def count(source: str, *, window: int = 8, lowercase: bool = False) -> None: ...
      >>> @show_options_of(count, leave_out=["source"], defaults={"window": 5})
      ... def learn(source: str, **counting: object) -> None: ...
      >>> print(inspect.signature(learn))
      (source: str, *, window: int = 5, lowercase: bool = False) -> None
    """

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
        further = [
            one.replace(kind=one.KEYWORD_ONLY, default=defaults.get(name, one.default))
            for name, one in inspect.signature(other).parameters.items()
            if name not in leave_out
        ]
        listed: Any = function
        listed.__signature__ = signature.replace(parameters=[*own, *further])
        return function

    return decorate


def checked_words(words: Sequence[str] | None, num_words: int) -> tuple[str, ...] | None:
    """Return the words as a tuple: one for each row, all different."""
    if words is None:
        return None
    single = isinstance(words, str)
    words = tuple(words)
    if single or not all(isinstance(word, str) for word in words):
        raise ValueError("words must be a sequence of strings")
    words = tuple(map(str, words))  # NumPy's strings are larger and have another repr
    if len(words) != num_words:
        raise ValueError(f"words: got {len(words)} words for {num_words} rows")
    if len(set(words)) < num_words:
        twice = next(word for word, count in Counter(words).items() if count > 1)
        raise ValueError(f"words: {twice!r} occurs more than once")
    return words


def find_differences(first: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield each entry that differs: its dotted name, and its value in both records as JSON.

    Example:
      >>> list(find_differences({"tol": 0.1, "S": {"sha256": "a"}}, {"S": {"sha256": "b"}}))
      [('tol', '0.1', 'not given'), ('S.sha256', '"a"', '"b"')]
    """
    first_entries, other_entries = _flatten(first), _flatten(other)
    for name in {**first_entries, **other_entries}:
        one, two = first_entries.get(name, "not given"), other_entries.get(name, "not given")
        if one != two:
            yield name, one, two


def _flatten(record: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat = {}
    for name, value in record.items():
        is_record = isinstance(value, dict)
        flat |= _flatten(value, f"{prefix}{name}.") if is_record else {prefix + name: json.dumps(value)}
    return flat
