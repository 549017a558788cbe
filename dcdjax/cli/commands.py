"""Run the commands, and print what they find."""

import json
import os
import shutil
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dcdjax.cli.tables import shown, table
from dcdjax.cli.terminal import (
    InterruptOnce,
    find_corpus,
    find_tokenizer,
    join,
    save,
    stop_cleanly,
    use_cores,
)
from dcdjax.counting import stop_words
from dcdjax.embedding import storage
from dcdjax.util.parallel import num_workers
from dcdjax.util.progress import Progress

if TYPE_CHECKING:
    from dcdjax.embedding.embedding import Embedding


# The usual number of words of a topic by which diversity is judged.
_USUAL_WORDS = 25
# The least memory of `count`, in units of 10^9 bytes.
_LEAST_MEMORY = 0.54
# What the command line knows and `fit` does not, or under another name.
_NOT_OF_FIT = {
    *(
        "command",
        "version",
        "corpus",
        "drop_list",
        "output",
        "matrix",
        "quiet",
        "json",
        "topics",
        "seed",
        "cores",
        "memory",
        "tokenizer",
    ),
    *("coordinator", "processes", "rank", "distributed", "timeout"),
}


def fit(chosen: Namespace) -> int:
    """Run `dcdjax fit`: learn an embedding and save it. Return the exit code."""
    if bool(chosen.corpus) == bool(chosen.matrix):
        raise ValueError("give either a CORPUS or --matrix FILE")
    if chosen.memory is not None and not _LEAST_MEMORY <= chosen.memory < float("inf"):
        raise ValueError(f"--memory must be at least {_LEAST_MEMORY} GB, got {chosen.memory:g}")
    storage.check_target(chosen.output)
    if chosen.checkpoint is not None:
        output, checkpoint = (os.path.realpath(path) for path in (chosen.output, chosen.checkpoint))
        if os.path.commonpath([output, checkpoint]) == output:
            raise ValueError(f"--checkpoint {chosen.checkpoint} is in the model's own folder: choose another")
    if chosen.cores:
        os.environ["DCDJAX_CORES"] = str(chosen.cores)
    one_of_several = join(chosen)
    if not one_of_several:
        use_cores(num_workers())
    from dcdjax import similarity
    from dcdjax.devices import processes
    from dcdjax.fitting import fit as fitting
    from dcdjax.util.progress import Bars

    if chosen.matrix:
        source = (similarity.mapped if one_of_several else similarity.read)(chosen.matrix)
    else:
        source = find_corpus(chosen.corpus)
    given = {name: value for name, value in vars(chosen).items() if value is not None}
    options = {name: given[name] for name in given.keys() - _NOT_OF_FIT}
    if chosen.drop_list:
        options["drop"] = [*options.get("drop", ()), *map(stop_words.load, chosen.drop_list)]
    if chosen.memory is not None:
        options["memory"] = int(chosen.memory * 1e9)
    if chosen.tokenizer is not None:
        options["tokenizer"] = find_tokenizer(chosen.tokenizer)
    quiet = chosen.quiet or not processes.is_first()
    with Bars() as bars, InterruptOnce(None if quiet else bars) as interrupt:
        embedding = fitting.fit(
            source,
            num_topics=chosen.topics,
            key=chosen.seed,
            progress=_report_resumption(interrupt.tell),
            **options,
        )
        bars.close()
        interrupt.end()
        folder = chosen.output
        if embedding.record["interrupted"] and storage.is_model(folder):
            # The run may have been started by mistake: keep the old model.
            folder = f"{folder}-interrupted"
        # The other processes wait for the first one.
        processes.run_on_first(lambda: save(embedding, folder))
    if not processes.is_first():
        pass
    elif chosen.json:
        _print_json({"model": folder, **embedding.record})
    else:
        print_learned(embedding, folder)
    return 130 if embedding.record["interrupted"] else 0


def neighbors(chosen: Namespace) -> int:
    """Run `dcdjax neighbors`: print the neighbors of words. Return the exit code."""
    embedding = _load(chosen.model)
    words = [word for one in chosen.words for word in (_lines() if one == "-" else [one])]
    known = words if chosen.together else [word for word in words if word in embedding]
    options = {"among": chosen.among, "together": chosen.together}
    found = embedding.neighbors(known, chosen.k, **options)
    asked = [words] if chosen.together else [[word] for word in known]
    answers = [found] if chosen.together else found
    for number, (question, near) in enumerate(zip(asked, answers, strict=True)):
        if chosen.json:
            named = {"words": question} if chosen.together else {"word": question[0]}
            _print_json({**named, "neighbors": [one._asdict() for one in near]})
            continue
        if number:
            print()
        rows = [(shown(one.word), f"{one.probability:.6f}") for one in near]
        print(table([("neighbor", f"P(neighbor | {shown(' + '.join(question))})"), *rows], right=[1]))
    for word in words:  # after the neighbors of the known words
        if word not in embedding:
            try:
                embedding.neighbors(word)
            except KeyError as error:
                print(f"dcdjax neighbors: {error}", file=sys.stderr)
    return 0 if len(known) == len(words) else 2


def topics(chosen: Namespace) -> int:
    """Run `dcdjax topics`: print the topics. Return the exit code."""
    embedding = _load(chosen.model)
    finer = chosen.subtopics or chosen.topic is not None
    found = embedding.topics(chosen.k, subtopics=finer)
    if chosen.topic is not None:
        whole = embedding.topics(1)
        if chosen.topic >= len(whole):
            raise ValueError(f"--topic {chosen.topic}: the model has {len(whole)} topics, from 0 on")
        found = [found[number] for number in whole[chosen.topic].subtopics]
    shares, heading = {topic.number: topic.weight for topic in found}, "share"
    if chosen.of is not None:
        if chosen.sort is not None:
            raise ValueError("--sort: the topics of a word are sorted by P(topic | word)")
        of_word = embedding.topics_of(chosen.of, embedding.W.shape[1], subtopics=finer)
        shares, heading = {one.number: one.probability for one in of_word}, f"P(topic | {shown(chosen.of)})"
    if chosen.sort == "coherence":
        if any(topic.coherence is None for topic in found):
            raise ValueError("--sort coherence: the model was not learned from counts, its topics have none")
        found.sort(key=lambda topic: -(topic.coherence or 0))
    elif chosen.sort == "share" or chosen.of is not None:
        found.sort(key=lambda topic: -shares[topic.number])
    if chosen.json:
        for topic in found[: chosen.n]:
            extra = {} if chosen.of is None else {"probability": shares[topic.number]}
            _print_json({**topic._asdict(), "words": [one._asdict() for one in topic.words], **extra})
        return 0
    rows = [("topic", heading, "NPMI", "words")]
    for topic in found[: chosen.n]:
        npmi = "" if topic.coherence is None else f"{topic.coherence:.2f}"
        words = " ".join(shown(one.word) for one in topic.words)
        share = f"{shares[topic.number]:.1%}"
        rows.append((str(topic.number), share, npmi, f"{words} (junk)" if topic.junk else words))
    print(table(rows, right=[0, 1, 2]))
    if len(found) > chosen.n:
        print(f"{len(found) - chosen.n} more: -n {len(found)} shows all")
    from dcdjax.topics.coherence import diversity

    judged = embedding.topics(_USUAL_WORDS, subtopics=finer)
    share = diversity([[one.word for one in topic.words] for topic in judged])
    print(f"Diversity {share:.2f}: the share of different words among the first {_USUAL_WORDS} of all topics")
    return 0


def explain(chosen: Namespace) -> int:
    """Run `dcdjax explain`: print the topics that make two words similar. Return the exit code."""
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
    """Run `dcdjax evaluate`: print scores against human judgments. Return the exit code."""
    if not (chosen.pairs or chosen.analogies or chosen.categories):
        raise ValueError("give files by --pairs, --analogies or --categories")
    from dcdjax.evaluation import scores

    vectors = scores.as_vectors(_load(chosen.model))
    rows = [("file", "measure", "score", "used", "not in vocabulary")]
    kinds = (
        (chosen.pairs, scores.word_pairs, "Spearman", "num_pairs"),
        (chosen.analogies, scores.analogies, "accuracy", "num_questions"),
        (chosen.categories, scores.categorization, "purity", "num_words"),
    )
    for paths, compare, measure, counted in kinds:
        for path in paths:
            result: Any = compare(vectors, path, lowercase=chosen.lowercase)
            score, used = getattr(result, measure.lower()), getattr(result, counted)
            rows.append((path, measure, f"{score:.4f}", str(used), str(result.num_missing)))
            if chosen.json:
                value = None if score != score else score  # JSON knows no NaN
                found = {"file": path, "measure": measure.lower(), "score": value, "used": used}
                _print_json({**found, "missing": result.num_missing})
    if not chosen.json:
        print(table(rows, right=[2, 3, 4]))
    return 0


def export(chosen: Namespace) -> int:
    """Run `dcdjax export`: write words and vectors for other tools. Return the exit code."""
    embedding = _load(chosen.model)
    options = {"scaled": chosen.scaled, "topics": chosen.topics}
    if chosen.path == "-":
        if chosen.format == "projector":
            raise ValueError("--format projector writes a folder, not to standard output")
        with stop_cleanly(), tempfile.TemporaryDirectory() as folder:
            embedding.export(path := os.path.join(folder, "vectors"), chosen.format, **options)
            with open(path, "rb") as file:
                shutil.copyfileobj(file, sys.stdout.buffer)
        return 0
    _check_place(chosen.path, chosen.model, folder=chosen.format == "projector")
    with stop_cleanly():
        embedding.export(chosen.path, chosen.format, **options)
    width = embedding.num_topics if chosen.topics else embedding.W.shape[1]
    print(f"{len(embedding)} words with {width} numbers each: {chosen.path}")
    return 0


def report(chosen: Namespace) -> int:
    """Run `dcdjax report`: write the page of a model. Return the exit code."""
    if chosen.output != "-":
        _check_place(chosen.output, chosen.model)
    embedding = _load(chosen.model)
    from dcdjax.report import page as make_page

    given = {"title": chosen.title, "max_words": chosen.max_words, "num_neighbors": chosen.neighbors}
    given = {name: value for name, value in given.items() if value is not None}
    page = make_page(embedding, **given, progress=not chosen.quiet)
    if chosen.output == "-":
        sys.stdout.buffer.write(page.html.encode())
        return 0
    with stop_cleanly():
        page.save(chosen.output)
    print(f"{chosen.output}: {os.path.getsize(chosen.output) / 1e6:.1f} MB. Open it in a browser.")
    return 0


def _report_resumption(tell: Progress) -> Progress:
    """Return a progress function that also prints from which step the run continues."""
    from dcdjax.devices import processes

    stages = set()

    def told(stage: str, done: int, *more: Any) -> None:
        if stage == "solving" and stage not in stages and done and processes.is_first():
            print(f"dcdjax fit: goes on from step {done} of all starts", file=sys.stderr)
        stages.add(stage)
        tell(stage, done, *more)

    return told


# --- Helpers of several commands ----------------------------------------------------------------------


def _load(folder: str) -> "Embedding":
    from dcdjax.embedding.embedding import Embedding

    return Embedding.load(folder)


def _check_place(path: str, model: str, *, folder: bool = False) -> None:
    """Refuse to write into the folder of a model, over a folder, or into one that does not exist."""
    target, home = (os.path.realpath(place) for place in (path, model))
    if target == home or os.path.dirname(target) == home:
        raise ValueError(f"{path} is in the model's own folder: choose another place")
    if not folder and os.path.isdir(target):
        raise ValueError(f"{path} is a folder: name a file in it")
    if not os.path.isdir(os.path.dirname(target)):
        raise ValueError(f"{path}: there is no folder {os.path.dirname(path)}")


def _lines() -> Iterable[str]:
    if sys.stdin is None:
        raise ValueError("there is no standard input")
    return [line for text in sys.stdin if (line := text.strip())]


def _print_json(content: dict[str, Any]) -> None:
    print(json.dumps(content))


def print_learned(embedding: "Embedding", folder: str) -> None:
    """Print the size of the model, how it was learned, and where it is."""
    record, settings = embedding.record, embedding.record["settings"]
    resolutions = (
        settings["num_topics"] if isinstance(settings["num_topics"], list) else [settings["num_topics"]]
    )
    num_planned, used = settings["restarts"] * len(resolutions), record["used"]
    is_best = settings["combine"] == "best"
    shown = range(len(record["status"])) if is_best else used  # the starts that the model was made of
    of_planned = f" of {num_planned}" if len(shown) < num_planned else ""
    if not is_best and "reduced_from" not in record:
        resolutions = sorted(set(embedding.starts))
    topics = " and ".join(map(str, resolutions))
    starts = f"{len(shown)}{of_planned} start{'s' * (num_planned > 1)} of {topics} topics"
    if "reduced_from" in record:
        starts += f", reduced to {embedding.W.shape[1]}"
    if is_best and num_planned > 1:
        starts += f", the best of which is number {used[0]}"
    steps = ", ".join(str(record["num_steps"][number]) for number in shown)
    statuses = sorted({record["status"][number].replace("_", " ") for number in shown})
    joined = f", {len(embedding.phrases)} of them phrases" if "phrases" in record else ""
    _print_read(record)
    print(
        f"{len(embedding)} words{joined}, {record['S']['num_nonzeros']} pairs in S\n"
        f"{starts}; {steps} steps ({', '.join(statuses)}); "
        f"{record['seconds']:.0f} s\nSaved in {folder}"
    )


def _print_read(record: Mapping[str, Any]) -> None:
    """Print how the text was read, unless the model is of a matrix."""
    corpus, counting = record["corpus"], record["settings"].get("counting")
    if counting is None or corpus.get("num_different") is None:
        return
    rare = (
        f", left out if they occur less than {counting['min_count']} times"
        if counting["min_count"] > 1
        else ""
    )
    documents = {
        "line": "a line is a document",
        "paragraph": "documents are paragraphs of hard-wrapped lines",
        "file": "a file is a document",
        "corpus": "the text is one document",
    }[counting["documents"]]
    print(f"{corpus['num_tokens']:,} words, {corpus['num_different']:,} different{rare}; {documents}")


def print_explained(word: str, other: str, similarity: float, shares: Sequence[Any]) -> None:
    """Print the topics that make two words similar, and the rest."""
    print(f"P({shown(other)} | {shown(word)}) = {similarity:.6f}, by way of the topics")
    whole = similarity or 1.0
    rows = [
        (str(one.number), f"{one.probability:.6f}", f"{one.probability / whole:.0%}",
         " ".join(shown(name) for name in one.words))
        for one in shares
    ]  # fmt: skip
    rest = max(0.0, similarity - sum(one.probability for one in shares))
    rows.append(("others", f"{rest:.6f}", f"{rest / whole:.0%}", ""))
    print(table([("topic", "part", "", "words"), *rows], right=[0, 1, 2]))
