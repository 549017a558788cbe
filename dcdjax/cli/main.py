"""A command line enters; what it asks for is done and printed, errors in one line."""

import argparse
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

# What messages call as Python does, and the shell otherwise.
_OPTIONS = {
    "num_topics=": "--topics ",
    "min_count=": "--min-count ",
    **{
        name: f"--{name.replace('_', '-')}"
        for name in ("max_steps", "max_words", "over_relaxation", "checkpoint_every")
    },
}
# As a shell has it for what was ended by the signal SIGINT.
_INTERRUPTED = 130
# A process that worked with others has lost one of them, or never met it.
_LOST = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """The `dcdjax` command; returns its exit code."""
    parser = _parser()
    chosen, unknown = parser.parse_known_args(arguments)
    if unknown:
        name = "dcdjax" if chosen.command is None else f"dcdjax {chosen.command}"
        parser.exit(2, f"{name}: unrecognized arguments: {' '.join(unknown)} (see {name} --help)\n")
    if chosen.version:
        from dcdjax import __version__

        print(f"dcdjax {__version__}")
        return 0
    if chosen.command is None:
        parser.print_help()
        return 2
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # that a terminal cannot show a character is no reason to fail
            stream.reconfigure(errors="backslashreplace")  # pyright: ignore[reportAttributeAccessIssue]
    with warnings.catch_warnings():
        # Whatever the environment says of warnings: one that were an error would lose what was learned.
        warnings.filterwarnings("default", category=UserWarning)
        warnings.showwarning = lambda message, *_, **__: _say(chosen.command, f"warning: {message}")
        return _run(chosen)


def script() -> None:
    """What the shell calls: `main`, and the end of the process."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Ctrl-C ends it at once, until there is something to be kept: see `shell.Patience`. An exception in
        # the middle of an import has been seen to crash instead.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        code = main()
    except KeyboardInterrupt:  # before there was anything to be interrupted
        code = _INTERRUPTED
    others = sys.modules.get("dcdjax.devices.processes")
    if code == _INTERRUPTED or (code and others is not None and others.count() > 1):
        # Interrupted while compiling, JAX goes on in the background, and would crash in an ordinary end. And
        # one of several processes would wait then for the others, which may be gone.
        os._exit(code)
    sys.exit(code)


def _run(chosen: argparse.Namespace) -> int:
    try:
        from dcdjax.cli import commands, demo

        room = demo if chosen.command == "demo" else commands
        code = getattr(room, chosen.command)(chosen)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read us has seen enough. What is still buffered must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())  # pyright: ignore[reportOptionalMemberAccess]
        return 1
    except KeyboardInterrupt:
        _say(chosen.command, "interrupted")
        return _INTERRUPTED
    except Exception as error:
        if os.environ.get("DCDJAX_TRACEBACK"):
            raise
        _say(chosen.command, str(error) or type(error).__name__)
        from dcdjax.devices.rendezvous import ProcessError

        return _LOST if isinstance(error, ProcessError) else 2
    return code


def _say(command: str, message: str) -> None:
    for name, option in _OPTIONS.items():
        message = message.replace(name, option)
    print(f"dcdjax {command}: {' '.join(message.split())}", file=sys.stderr)


# --- What can be asked for --------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _whole(least: int) -> Any:
    def whole(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, got {value}")
        return value

    whole.__name__ = "int"  # argparse calls the type so: invalid int value
    return whole


def _numbers(text: str) -> list[int]:
    return [_whole(1)(part) for part in text.split(",")]


_numbers.__name__ = "number of topics"


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="dcdjax",
        description="Word vectors that are topic probabilities: word embedding by low-rank doubly stochastic "
        "matrix decomposition, in JAX.",
        epilog="dcdjax COMMAND --help has examples. DCDJAX_TRACEBACK=1 shows where an error comes from.",
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)

    def command(name: str, summary: str, *examples: str) -> argparse.ArgumentParser:
        return commands.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog="examples:\n" + "\n".join(f"  {example}" for example in examples),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    _demo(command)
    _fit(command)
    _neighbors(command)
    _topics(command)
    _explain(command)
    _evaluate(command)
    _export(command)
    _report(command)
    return parser


def _model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a folder that dcdjax fit wrote")


def _json(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--json", action="store_true", help=f"JSON instead of a table: {what}")


def _demo(command: Any) -> None:
    parser = command(
        "demo",
        "learn from the built-in corpus, what Python says of itself, and show what was learned",
        "dcdjax demo",
        "dcdjax demo --seed 3 -o my-demo",
    )
    parser.add_argument("-o", "--output", metavar="MODEL", default="dcdjax-demo",
                        help="save it in this folder (default: %(default)s)")  # fmt: skip
    parser.add_argument("--seed", type=_whole(0), default=0, help="of the starts (default: %(default)s)")


def _fit(command: Any) -> None:
    parser = command(
        "fit",
        "learn an embedding from text",
        "dcdjax fit book.txt -o book --lowercase --pattern '\\w+' --topics 50",
        "zcat articles.gz | dcdjax fit - -o articles --topics 300",
        "dcdjax fit wikitext-2 -o wiki --drop '<unk>'",
        "dcdjax fit --matrix similarities.npz -o graph",
        "dcdjax fit --matrix S.npz -o big --coordinator host0:1234 --processes 4 --rank 0",
        "dcdjax fit articles.txt -o articles --checkpoint articles-under-way",
    )
    parser.add_argument("corpus", metavar="CORPUS", nargs="*", help="files or folders, gzipped or not; - for "
                        "standard input; or python-docs, wikitext-2, text8")  # fmt: skip
    parser.add_argument("-o", "--output", metavar="MODEL", required=True, help="the folder to save it in")
    parser.add_argument("--matrix", metavar="FILE", help="learn from this symmetric matrix instead, .npz or "
                        "Matrix Market")  # fmt: skip
    group = parser.add_argument_group("the text")
    group.add_argument("--window", type=_whole(1), help="the largest distance of words near each other "
                       "(default: 8)")  # fmt: skip
    group.add_argument(
        "--distance-weighting", choices=("flat", "linear", "harmonic"), help="default: harmonic"
    )
    group.add_argument("--max-words", type=_whole(1), help="the most frequent words (default: 20000)")
    group.add_argument("--min-count", type=_whole(1), help="leave out words that occur less often")
    group.add_argument("--drop", metavar="WORD", action="append", help="leave out this word; may be repeated")
    group.add_argument("--lowercase", action="store_true", default=None, help="turn words into lower case")
    group.add_argument("--pattern", metavar="REGEX", help="words are its matches (default: what stands "
                       "between blanks)")  # fmt: skip
    group.add_argument(
        "--documents", choices=("line", "file", "corpus"), help="where windows end (default: line)"
    )
    group.add_argument("--subsample", type=float, metavar="T", help="word2vec's threshold, such as 1e-4")
    group.add_argument("--memory", type=float, metavar="GB", help="to count with (default: 2)")
    group = parser.add_argument_group("the similarity")
    group.add_argument("--weighting", choices=("ppmi", "counts", "degree", "sinkhorn"),
                       help="default: ppmi")  # fmt: skip
    group.add_argument("--context-exponent", type=float, help="of PPMI, below 1 for less weight on chance "
                       "meetings of rare words (default: 0.75)")  # fmt: skip
    group.add_argument("--shift", type=float, help="taken off PPMI before clipping: fewer pairs, but surer "
                       "ones (default: 0)")  # fmt: skip
    group.add_argument("--frequency-exponent", type=float, help="of PPMI, above 0 for more weight on "
                       "frequent words (default: 0.15)")  # fmt: skip
    group = parser.add_argument_group("the solver")
    group.add_argument("--preset", choices=("default", "paper"), default="default", help="what holds for all "
                       "that is not given; paper: raw counts, flat windows, its own step, one random start "
                       "of 200 topics, not smoothed (default: %(default)s)")  # fmt: skip
    group.add_argument("--topics", type=_numbers, metavar="N[,N]", help="how many; several: starts of each "
                       "number (default: 200,500, or a tenth of the words)")  # fmt: skip
    group.add_argument("--start", choices=("spectral", "random"), help="default: spectral")
    group.add_argument("--restarts", type=_whole(1), help="how many starts, of each number of topics "
                       "(default: four in all, for a matrix one)")  # fmt: skip
    group.add_argument("--combine", choices=("consensus", "best", "reduced"), default="consensus",
                       help="what several starts make; reduced: a consensus with as many topics as one start "
                       "(default: %(default)s)")  # fmt: skip
    group.add_argument("--smoothing", type=float, metavar="A", help="a word that occurs A times takes half "
                       "of its topics from its neighbors (default: 20, for a matrix 0)")  # fmt: skip
    group.add_argument("--step", choices=("exact", "relaxed"), help="relaxed: the paper's (default: exact)")
    group.add_argument("--tol", type=float, help="stop when the relative change of W is no more than this "
                       "(default: 0.03, for a matrix 0.001)")  # fmt: skip
    group.add_argument("--max-steps", type=_whole(1), help="stop after so many at the latest (default: "
                       "200, for a matrix 500)")  # fmt: skip
    group.add_argument("--over-relaxation", type=float, help="default: 1, for a matrix 1.9")
    group.add_argument("--seed", type=_whole(0), default=0, help="default: %(default)s")
    group.add_argument("--cores", type=_whole(1), help="how many to use (default: all)")
    group = parser.add_argument_group("checkpoints")
    group.add_argument("--checkpoint", metavar="FOLDER", help="save in this folder while it solves; the same "
                       "command goes on from there. It may be deleted once all is done")  # fmt: skip
    group.add_argument("--checkpoint-every", type=float, metavar="SECONDS", default=30.0,
                       help="between saves (default: %(default)g)")  # fmt: skip
    group = parser.add_argument_group(
        "several processes",
        "Each is given the same command but for its rank. Of a --matrix that dcdjax saved, each loads the "
        "rows of its own devices only. The first one writes the model.",
    )
    group.add_argument("--coordinator", metavar="HOST:PORT", help="where rank 0 is reached by all")
    group.add_argument("--processes", type=_whole(1), help="how many there are")
    group.add_argument("--rank", type=_whole(0), help="of this one, from 0")
    group.add_argument("--distributed", action="store_true", help="the three as the environment says: "
                       "that of SLURM, Open MPI or a TPU pod")  # fmt: skip
    group.add_argument("--timeout", type=float, metavar="SECONDS", help="for another process to appear, or "
                       "to answer (default: 60)")  # fmt: skip
    parser.add_argument("--quiet", action="store_true", help="no bars")
    _json(parser, "one object that says what was learned")


def _neighbors(command: Any) -> None:
    parser = command(
        "neighbors",
        "the words with the largest P(neighbor | word)",
        "dcdjax neighbors MODEL thread",
        "dcdjax neighbors MODEL king queen --together -k 20",
        "dcdjax neighbors MODEL monday --among tuesday march june",
        "cut -f1 words.tsv | dcdjax neighbors MODEL - --json",
    )
    _model(parser)
    parser.add_argument("words", metavar="WORD", nargs="+", help="- for words from standard input, one a "
                        "line; -- before words that begin with -")  # fmt: skip
    parser.add_argument("-k", type=_whole(1), default=10, help="how many (default: %(default)s)")
    parser.add_argument(
        "--among", metavar="WORD", nargs="+", help="choose from these words only; stands after the words"
    )
    parser.add_argument("--together", action="store_true",
                        help="all words as one question: the mean of their distributions")  # fmt: skip
    _json(parser, "an object a line for each question")


def _topics(command: Any) -> None:
    parser = command(
        "topics",
        "the topics: their weight P(topic), their words, and how well those go together: the mean NPMI of "
        "the words shown, from -1 (never near each other) over 0 (by chance) to 1",
        "dcdjax topics MODEL",
        "dcdjax topics MODEL --sort weight -n 10 -k 15",
        "dcdjax topics MODEL --of thread",
    )
    _model(parser)
    parser.add_argument("-k", type=_whole(1), default=10, help="words of each (default: %(default)s)")
    parser.add_argument("-n", type=_whole(1), default=20, help="how many topics (default: %(default)s)")
    parser.add_argument("--of", metavar="WORD", help="those with the largest P(topic | word)")
    parser.add_argument("--start", type=_whole(0), metavar="NUMBER",
                        help="of a consensus, the topics of this start only, counted from 0")  # fmt: skip
    parser.add_argument("--sort", choices=("weight", "coherence"), help="default: coherence, where "
                        "it is known. The heaviest topic is often one of rare words")  # fmt: skip
    _json(parser, "an object a line for each topic")


def _explain(command: Any) -> None:
    parser = command(
        "explain",
        "the topics that make two words similar",
        "dcdjax explain MODEL thread lock",
        "dcdjax explain MODEL thread lock -k 3 --json",
    )
    _model(parser)
    parser.add_argument("word", metavar="WORD")
    parser.add_argument("other", metavar="WORD")
    parser.add_argument("-k", type=_whole(1), default=5, help="how many topics (default: %(default)s)")
    _json(parser, "one object; all its contributions sum to the similarity if -k is large enough")


def _evaluate(command: Any) -> None:
    parser = command(
        "evaluate",
        "score against human judgments of words",
        "dcdjax evaluate MODEL --pairs wordsim353.tsv simlex999.txt",
        "dcdjax evaluate MODEL --analogies questions-words.txt --lowercase --json",
        "dcdjax evaluate MODEL --categories animals.tsv",
    )
    _model(parser)
    parser.add_argument("--pairs", metavar="FILE", nargs="+", default=[],
                        help="word, word, human score a line: Spearman's correlation")  # fmt: skip
    parser.add_argument("--analogies", metavar="FILE", nargs="+", default=[], help="four words a line, in "
                        "sections, as Google's: accuracy")  # fmt: skip
    parser.add_argument("--categories", metavar="FILE", nargs="+", default=[], help="word, tab, category "
                        "a line: purity of clusters")  # fmt: skip
    parser.add_argument("--lowercase", action="store_true", help="look words up in lower case")
    _json(parser, "an object a line for each file")


def _export(command: Any) -> None:
    parser = command(
        "export",
        "write words and vectors for other tools",
        "dcdjax export MODEL vectors.txt",
        "dcdjax export MODEL vectors.bin --format word2vec-binary --scaled",
        "dcdjax export MODEL projector --format projector",
    )
    _model(parser)
    parser.add_argument("path", metavar="PATH", help="the file to write, - for standard output; a "
                        "folder for the projector")  # fmt: skip
    parser.add_argument("--format", choices=("word2vec", "word2vec-binary", "numpy", "projector"),
                        default="word2vec", help="default: %(default)s")  # fmt: skip
    parser.add_argument("--scaled", action="store_true",
                        help="W / sqrt(s) instead of W, whose dot products are Shat (gensim compares by "
                        "cosine, and finds other neighbors)")  # fmt: skip


def _report(command: Any) -> None:
    parser = command(
        "report",
        "write a page to explore it in a browser: one file, which needs no network",
        "dcdjax report MODEL -o report.html",
        "dcdjax report MODEL -o small.html --max-words 5000 --neighbors 10",
    )
    _model(parser)
    parser.add_argument("-o", "--output", metavar="FILE", required=True,
                        help="the file to write, - for standard output")  # fmt: skip
    parser.add_argument("--title", help="what stands above it (default: the name of the corpus)")
    parser.add_argument("--max-words", type=_whole(1),
                        help="the most frequent words, of which it tells (default: 20000)")  # fmt: skip
    parser.add_argument("--neighbors", type=_whole(1), metavar="K", help="of each word (default: 20)")
    parser.add_argument("--quiet", action="store_true", help="no bars")
