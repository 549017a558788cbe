"""The arguments of a command enter; it is done and printed."""

import json
import os
import signal
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dcdjax import model_files
from dcdjax.parallel import num_workers
from dcdjax.tables import shown, table

if TYPE_CHECKING:
    from dcdjax.embedding import Embedding


def fit(chosen: Namespace) -> int:
    """`dcdjax fit`."""
    if bool(chosen.corpus) == bool(chosen.matrix):
        raise ValueError("give either a CORPUS or --matrix FILE")
    model_files.check_target(chosen.output)
    use_cores(min(chosen.restarts, chosen.cores or num_workers()))
    from dcdjax import fitting, similarity

    source = similarity.read(chosen.matrix) if chosen.matrix else _corpus(chosen.corpus)
    names = ("window", "distance_weighting", "max_words", "min_count", "drop", "lowercase", "pattern",
             "documents", "subsample")  # fmt: skip
    counting = {name: value for name in names if (value := getattr(chosen, name)) is not None}
    if chosen.memory is not None:
        counting["memory"] = int(chosen.memory * 1e9)
    names = ("weighting", "context_exponent", "shift", "restarts", "combine", "step", "tol", "max_steps",
             "over_relaxation")  # fmt: skip
    with _patient():
        embedding = fitting.fit(
            source,
            num_topics=chosen.topics,
            key=chosen.seed,
            progress=not chosen.quiet,
            **{name: getattr(chosen, name) for name in names},
            **counting,
        )
        save(embedding, chosen.output)
    if chosen.json:
        _print_json({"model": chosen.output, **embedding.record})
    else:
        print_learned(embedding, chosen.output)
    return 130 if embedding.record["interrupted"] else 0


def neighbors(chosen: Namespace) -> int:
    """`dcdjax neighbors`."""
    embedding = _load(chosen.model)
    words = [word for given in chosen.words for word in (_lines() if given == "-" else [given])]
    options = {"among": chosen.among, "together": chosen.together}
    found = embedding.neighbors(words, chosen.k, **options) if words else []
    answers = [(" + ".join(words), found)] if chosen.together else list(zip(words, found, strict=True))
    for number, (word, near) in enumerate(answers):
        if chosen.json:
            _print_json({"word": word, "neighbors": [one._asdict() for one in near]})
            continue
        if number:
            print()
        rows = [(shown(one.word), f"{one.probability:.6f}") for one in near]
        print(table([("neighbor", f"P(neighbor | {shown(word)})"), *rows], right=[1]))
    return 0


def topics(chosen: Namespace) -> int:
    """`dcdjax topics`."""
    embedding = _load(chosen.model)
    found = embedding.topics(chosen.k)
    if chosen.start is not None:
        if chosen.start >= len(embedding.starts):
            raise ValueError(
                f"--start {chosen.start}: the model has {len(embedding.starts)} starts, from 0 on"
            )
        first = sum(embedding.starts[: chosen.start])
        found = found[first : first + embedding.starts[chosen.start]]
    shares = {topic.number: topic.weight for topic in found}
    if chosen.of is not None:
        row = embedding[chosen.of]
        shares = {topic.number: float(row[topic.number]) for topic in found}
    if chosen.of is not None or chosen.sort == "weight":
        found = sorted(found, key=lambda topic: -shares[topic.number])[: chosen.n]
    else:
        if any(topic.coherence is None for topic in found):
            raise ValueError("--sort coherence: the model was not learned from counts, its topics have none")
        found = sorted(found, key=lambda topic: -(topic.coherence or 0))[: chosen.n]
    rows = [("topic", "weight", "NPMI", "words")]
    if chosen.of is not None:
        rows = [("topic", f"P(topic | {shown(chosen.of)})", "NPMI", "words")]
    for topic in found:
        share = shares[topic.number]
        if chosen.json:
            extra = {} if chosen.of is None else {"probability": share}
            _print_json({**topic._asdict(), "words": [one._asdict() for one in topic.words], **extra})
        npmi = "" if topic.coherence is None else f"{topic.coherence:.3f}"
        words = " ".join(shown(one.word) for one in topic.words)
        rows.append((str(topic.number), f"{share:.4f}", npmi, words))
    if not chosen.json:
        print(table(rows, right=[0, 1, 2]))
    return 0


def explain(chosen: Namespace) -> int:
    """`dcdjax explain`."""
    embedding = _load(chosen.model)
    similarity = embedding.similarity(chosen.word, chosen.other)
    shares = embedding.explain(chosen.word, chosen.other, chosen.k)
    if chosen.json:
        listed = [one._asdict() for one in shares]
        _print_json({"words": [chosen.word, chosen.other], "similarity": similarity, "topics": listed})
    else:
        print_explained(chosen.word, chosen.other, similarity, shares)
    return 0


def evaluate(chosen: Namespace) -> int:
    """`dcdjax evaluate`."""
    if not (chosen.pairs or chosen.analogies or chosen.categories):
        raise ValueError("give files by --pairs, --analogies or --categories")
    from dcdjax import evaluation

    vectors = evaluation.as_vectors(_load(chosen.model))
    rows = [("file", "measure", "score", "used", "not in vocabulary")]
    for path in chosen.pairs:
        result = evaluation.word_pairs(vectors, path, lowercase=chosen.lowercase)
        rows.append(_scored(path, "Spearman", result.spearman, result.num_pairs, result.num_missing, chosen))
    for path in chosen.analogies:
        result = evaluation.analogies(vectors, path, lowercase=chosen.lowercase)
        rows.append(
            _scored(path, "accuracy", result.accuracy, result.num_questions, result.num_missing, chosen)
        )
    for path in chosen.categories:
        result = evaluation.categorization(vectors, path, lowercase=chosen.lowercase)
        rows.append(_scored(path, "purity", result.purity, result.num_words, result.num_missing, chosen))
    if not chosen.json:
        print(table(rows, right=[2, 3, 4]))
    return 0


def export(chosen: Namespace) -> int:
    """`dcdjax export`."""
    embedding = _load(chosen.model)
    embedding.export(chosen.path, chosen.format, scaled=chosen.scaled)
    print(f"{len(embedding)} words with {embedding.num_topics} numbers each: {chosen.path}")
    return 0


# --- Common to several ------------------------------------------------------------------------------


def use_cores(num_devices: int) -> None:
    """Lets JAX see that many CPU devices, one start on each, unless somebody has said otherwise."""
    if "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", ""):
        return
    if num_devices < 2 or "JAX_NUM_CPU_DEVICES" in os.environ:
        return
    import jax

    jax.config.update("jax_num_cpu_devices", num_devices)


@contextmanager
def _patient() -> Iterator[None]:
    """The first Ctrl-C interrupts; the second only says that what was learned is being saved."""
    num_heard = 0

    def heard(*_: Any) -> None:
        nonlocal num_heard
        num_heard += 1
        if num_heard != 2:
            raise KeyboardInterrupt
        print("saving what was learned; Ctrl-C once more gives it up", file=sys.stderr)

    before = signal.signal(signal.SIGINT, heard)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _corpus(given: Sequence[str]) -> Any:
    """What stands on the command line as a corpus: standard input, a data set, or files and folders."""
    if "-" in given:
        if len(given) > 1:
            raise ValueError("standard input, -, cannot be read together with files")
        return sys.stdin
    from dcdjax import datasets

    if len(given) == 1 and given[0] in datasets.names() and not os.path.exists(given[0]):
        return datasets.load(given[0])
    return [Path(path) for path in given] if len(given) > 1 else given[0]


def _load(folder: str) -> "Embedding":
    from dcdjax.embedding import Embedding

    return Embedding.load(folder)


def save(embedding: "Embedding", folder: str) -> None:
    """Saves it there; if that is impossible, elsewhere, rather than lose what took long to learn."""
    try:
        embedding.save(folder)
    except (OSError, ValueError) as error:
        elsewhere = tempfile.mkdtemp(prefix="dcdjax-")
        embedding.save(elsewhere)
        raise OSError(
            f"{folder} could not be written ({error}); the model is saved in {elsewhere}"
        ) from error


def _lines() -> Iterable[str]:
    return [line for text in sys.stdin if (line := text.strip())]


def _print_json(content: dict[str, Any]) -> None:
    print(json.dumps(content))


def print_learned(embedding: "Embedding", folder: str) -> None:
    """What was learned from what."""
    record = embedding.record
    steps, statuses = record["num_steps"], sorted(set(record["status"]))
    print(
        f"{len(embedding)} words, {record['S']['num_nonzeros']} pairs in S; {embedding.num_topics} topics\n"
        f"from {len(steps)} start{'s' * (len(steps) > 1)} of {', '.join(map(str, steps))} steps "
        f"({', '.join(status.replace('_', ' ') for status in statuses)}); {record['seconds']:.0f} s.\n"
        f"Saved in {folder}."
    )


def print_explained(word: str, other: str, similarity: float, shares: Sequence[Any]) -> None:
    """The topics that make two words similar, and what remains."""
    print(f"P({shown(other)} | {shown(word)}) = {similarity:.6f}, by way of the topics")
    rows = [
        (str(one.topic), f"{one.probability:.6f}", f"{one.probability / similarity:.0%}",
         " ".join(shown(name) for name in one.words))
        for one in shares
    ]  # fmt: skip
    rest = similarity - sum(one.probability for one in shares)
    rows.append(("others", f"{rest:.6f}", f"{rest / similarity:.0%}", ""))
    print(table([("topic", "part", "", "words"), *rows], right=[0, 1, 2]))


def _scored(
    path: str, measure: str, score: float, used: int, missing: int, chosen: Namespace
) -> tuple[str, str, str, str, str]:
    if chosen.json:
        value = None if score != score else score  # JSON knows no NaN
        _print_json(
            {"file": path, "measure": measure.lower(), "score": value, "used": used, "missing": missing}
        )
    return (path, measure, f"{score:.4f}", str(used), str(missing))
