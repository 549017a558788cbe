"""Parse the command line, run the command, and print errors in one line."""

import argparse
import inspect
import os
import signal
import sys
import warnings
from collections.abc import Sequence

from dcdjax.cli.parser import Parser, natural, numbers, positive

# Names in error messages of the package, and the options of the shell that they stand for.
_OPTIONS = {
    "num_topics=": "--topics ",
    "min_count=": "--min-count ",
    "tokens=": "--tokens ",
    "tokenizer=": "--tokenizer ",
    "documents=": "--documents ",
    "max_steps": "--max-steps",
    "max_words": "--max-words",
    "over_relaxation": "--over-relaxation",
    "checkpoint_every": "--checkpoint-every",
}
# The exit code that shells use for SIGINT.
_INTERRUPTED = 130
# The exit code if another process did not connect or was lost.
_LOST = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the `dcdjax` command and return its exit code."""
    parser = make_parser()
    chosen, unknown = parser.parse_known_args(arguments)
    if unknown:
        command = parser if chosen.command is None else parser.commands[chosen.command]
        command.error(f"unrecognized arguments: {' '.join(unknown)}{command.suggestion(unknown)}")
    if chosen.version:
        from dcdjax import __version__

        print(f"dcdjax {__version__}")
        return 0
    if chosen.command is None:
        parser.print_help()
        return 2
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a character that the terminal cannot show must not be an error
            stream.reconfigure(errors="backslashreplace")  # pyright: ignore[reportAttributeAccessIssue]
    with warnings.catch_warnings():
        # The environment may turn warnings into errors, but an error would lose the model.
        warnings.filterwarnings("default", category=UserWarning)
        warnings.showwarning = lambda message, *_, **__: _say(chosen.command, f"warning: {message}")
        return _run(chosen)


def script() -> None:
    """Run `main` and end the process. The shell calls this."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Ctrl-C ends the process at once until there is something to keep, see `terminal.InterruptOnce`. An
        # exception in the middle of an import can crash Python instead.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        code = main()
    except KeyboardInterrupt:  # before the command started
        code = _INTERRUPTED
    others = sys.modules.get("dcdjax.devices.processes")
    if code == _INTERRUPTED or (code and others is not None and others.count() > 1):
        # If JAX was compiling, it goes on in the background and would crash at an ordinary exit. And one of
        # several processes would wait for the others, which may be gone.
        os._exit(code)
    sys.exit(code)


def _run(chosen: argparse.Namespace) -> int:
    try:
        from dcdjax.cli import commands, demo

        module = demo if chosen.command == "demo" else commands
        code = getattr(module, chosen.command)(chosen)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe. Buffered output must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())  # pyright: ignore[reportOptionalMemberAccess]
        return 1
    except KeyboardInterrupt:
        _say(chosen.command, "interrupted")
        return _INTERRUPTED
    except Exception as error:
        if os.environ.get("DCDJAX_TRACEBACK"):
            raise
        from dcdjax.util.files import describe

        _say(chosen.command, describe(error))
        from dcdjax.devices.processes import ProcessError

        return _LOST if isinstance(error, ProcessError) else 2
    return code


def _say(command: str, message: str) -> None:
    if "dcdjax fit" not in message:  # it does not tell yet what to type in the shell
        for name, option in _OPTIONS.items():
            message = message.replace(name, option)
    print(f"dcdjax {command}: {' '.join(message.split())}", file=sys.stderr)


# --- Commands and options --------------------------------------------------------------------------


def make_parser() -> Parser:
    """Return the parser of the whole command line."""
    parser = Parser(
        prog="dcdjax",
        description="Word vectors that are topic probabilities: word embedding by low-rank doubly stochastic "
        "matrix decomposition, in JAX.",
        epilog="dcdjax COMMAND --help has examples. DCDJAX_TRACEBACK=1 shows where an error comes from.",
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for declare in (_demo, _fit, _neighbors, _topics, _explain, _evaluate, _export, _report):
        description, _, examples = (inspect.getdoc(declare) or "").partition("\n\nExamples:\n")
        command = commands.add_parser(
            declare.__name__.removeprefix("_"),
            help=description.partition(".\n")[0].removesuffix("."),
            description=description,
            epilog=f"examples:\n{examples}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.commands[declare.__name__.removeprefix("_")] = command
        if declare not in (_demo, _fit):
            command.add_argument("model", metavar="MODEL", help="a folder that dcdjax fit wrote")
        declare(command)
    return parser


def _json(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--json", action="store_true", help=f"JSON instead of a table: {what}")


# Each function below adds the options of one command. Its docstring is the help of the command.


def _demo(parser: argparse.ArgumentParser) -> None:
    """Learn from the documentation of Python on this machine, and show what was learned.

    Examples:
      dcdjax demo
      dcdjax demo --seed 3 -o my-demo
    """
    add = parser.add_argument
    add(
        "-o",
        "--output",
        metavar="MODEL",
        default="dcdjax-demo",
        help="folder for the model (default: %(default)s)",
    )
    add("--seed", type=natural, default=0, help="random seed (default: %(default)s)")


def _fit(parser: argparse.ArgumentParser) -> None:
    r"""Learn an embedding from text or from a matrix.

    Examples:
      dcdjax fit book.txt -o book --topics 50
      dcdjax fit articles.csv --text title --text body -o articles
      zcat articles.gz | dcdjax fit - -o articles --topics 300
      dcdjax fit wikitext-2 -o wiki --max-words 10000
      dcdjax fit news.txt -o news --phrases --drop-list english --drop-list mine.txt
      dcdjax fit chinese.txt -o chinese --tokenizer jieba:lcut --tokens words
      dcdjax fit --matrix similarities.npz -o graph
      dcdjax fit --matrix S.npz -o big --coordinator host0:1234 --processes 4 --rank 0
      dcdjax fit articles.txt -o articles --checkpoint articles-under-way
    """
    add = parser.add_argument
    sources = (
        "files or folders of text, or tables (.csv, .tsv, .jsonl, .parquet), gzipped or not; - for standard "
        "input; or python-docs, wikitext-2, text8"
    )
    add("corpus", metavar="CORPUS", nargs="*", help=sources)
    add("-o", "--output", metavar="MODEL", required=True, help="folder for the model")
    add("--matrix", metavar="FILE", help="learn from a symmetric matrix instead of a text")
    add("--quiet", action="store_true", help="show no progress bars")
    _json(parser, "one object with the record of the model")

    add = parser.add_argument_group("the text").add_argument
    add("--text", metavar="COLUMN", action="append", help="column of a table; several are joined")
    add("--window", type=positive, help="largest distance of a pair of words (default: 8)")
    add(
        "--distance-weighting",
        choices=("flat", "linear", "harmonic"),
        help="weight by distance (default: harmonic)",
    )
    add("--max-words", type=positive, help="number of words to keep (default: 20000)")
    min_count = "leave out words that occur less often (default: 1 to 5, by the size of the text)"
    add("--min-count", type=positive, help=min_count)
    add("--drop", metavar="WORD", action="append", help="leave out this word; may be repeated")
    lists = "leave out the words of this list: english or another language, or a file; may be repeated"
    add("--drop-list", metavar="LIST", action="append", help=lists)
    phrases = "find phrases such as new york, and count each as one word"
    add("--phrases", action="store_true", default=None, help=phrases)
    tokens = "words without punctuation and numbers, or all that stands between blanks (default: words)"
    add("--tokens", choices=("words", "blanks"), help=tokens)
    lowercase = (
        "convert words to lower case (default: yes, but not with --tokens blanks, --pattern or --tokenizer)"
    )
    add("--lowercase", action=argparse.BooleanOptionalAction, help=lowercase)
    add("--pattern", metavar="REGEX", help="what a word is, such as '\\w+'")
    tokenizer = (
        "function from a line to its words, such as jieba:lcut; with --tokens words without punctuation"
    )
    add("--tokenizer", metavar="MODULE:FUNCTION", help=tokenizer)
    documents = "what a document is (default: auto). auto: a line, or a paragraph if lines are hard-wrapped"
    add("--documents", choices=("auto", "line", "paragraph", "file", "corpus"), help=documents)
    add("--subsample", type=float, metavar="T", help="drop frequent words at random, try 1e-4")
    add("--memory", type=float, metavar="GB", help="memory for counting (default: 2)")

    add = parser.add_argument_group("the similarity").add_argument
    add("--weighting", choices=("ppmi", "counts", "degree", "sinkhorn"), help="default: ppmi")
    add("--context-exponent", type=float, help="below 1: smaller PPMI of rare words (default: 0.75)")
    add("--shift", type=float, help="subtract this from PPMI: fewer pairs (default: 0)")
    add("--frequency-exponent", type=float, help="above 0: more weight for frequent words (default: 0.15)")

    _solver_options(parser)
    _process_options(parser)


def _solver_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("the solver").add_argument
    preset = (
        "sets all other options. default: neighbors of words. topics: 50 topics of documents, from one start "
        "and windows of 100 words. paper: plain counts, flat windows, the paper's step, one random start of "
        "200 topics, no smoothing (default: %(default)s)"
    )
    add("--preset", choices=("default", "topics", "paper"), default="default", help=preset)
    topics = (
        "several numbers make several starts; auto recommends one (default: 200,500; preset topics: 50; at "
        "most a tenth of the words)"
    )
    add("--topics", type=numbers, metavar="N[,N]", help=topics)
    add("--start", choices=("spectral", "random"), help="default: spectral")
    restarts = "starts for each number of topics (default: four in all; matrix: one)"
    add("--restarts", type=positive, help=restarts)
    combine = "how several starts become one model (default: %(default)s)"
    add("--combine", choices=("consensus", "best", "reduced"), default="consensus", help=combine)
    smoothing = (
        "a word that occurs A times takes half of its topics from its neighbors (default: 20; matrix: 0)"
    )
    add("--smoothing", type=float, metavar="A", help=smoothing)
    add("--step", choices=("exact", "relaxed"), help="relaxed is the paper's step (default: exact)")
    add("--tol", type=float, help="stop at this relative change of W (default: 0.03; matrix: 1e-3)")
    add("--max-steps", type=positive, help="largest number of steps (default: 200; matrix: 500)")
    add("--over-relaxation", type=float, help="above 1: larger steps (default: 1; matrix: 1.9)")
    add("--seed", type=natural, default=0, help="random seed (default: %(default)s)")
    add("--cores", type=positive, help="cores to use (default: all)")

    add = parser.add_argument_group("checkpoints").add_argument
    folder = "save here while solving; the same command continues from there"
    add("--checkpoint", metavar="FOLDER", help=folder)
    between = "time between saves (default: %(default)g)"
    add("--checkpoint-every", type=float, metavar="SECONDS", default=30.0, help=between)


def _process_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group(
        "several processes",
        "Start the same command in each process, with another rank. The process of rank 0 writes the model. "
        "If others can reach the coordinator, DCDJAX_TOKEN must hold the same secret in all. "
        "From a --matrix that dcdjax saved, each process keeps only the rows of its own devices in memory.",
    ).add_argument
    add("--coordinator", metavar="HOST:PORT", help="address of rank 0, the only one where it listens")
    add("--processes", type=positive, help="number of processes")
    add("--rank", type=natural, help="rank of this process, from 0")
    add("--distributed", action="store_true", help="take all three from SLURM, Open MPI or a TPU pod")
    add("--timeout", type=float, metavar="SECONDS", help="time to wait for the other processes (default: 60)")


def _neighbors(parser: argparse.ArgumentParser) -> None:
    """Show the words with the largest P(neighbor | word).

    Examples:
      dcdjax neighbors MODEL thread
      dcdjax neighbors MODEL king queen --together -k 20
      dcdjax neighbors MODEL monday --among tuesday march june
      cut -f1 words.tsv | dcdjax neighbors MODEL - --json
    """
    add = parser.add_argument
    words = "words to look up; - reads them from standard input, one a line"
    add("words", metavar="WORD", nargs="+", help=words)
    add("-k", type=positive, default=10, help="number of neighbors (default: %(default)s)")
    add("--among", metavar="WORD", nargs="+", help="choose from these words only; stands after the words")
    add("--together", action="store_true", help="take all words as one query")
    _json(parser, "one object a line for each query")


def _topics(parser: argparse.ArgumentParser) -> None:
    """Show the topics: their share of the text, their coherence and their words.

    The useful topics come first. The coherence is the mean NPMI (normalized pointwise mutual information) of
    all pairs of the words shown. It is 1 for words that only stand in the same passages, 0 for chance, and -1
    for words that never do. Topics whose words hardly ever do are marked as junk.

    Examples:
      dcdjax topics MODEL
      dcdjax topics MODEL --sort share -n 10 -k 15
      dcdjax topics MODEL --topic 3
      dcdjax topics MODEL --of thread
    """
    add = parser.add_argument
    add("-k", type=positive, default=10, help="words of each topic (default: %(default)s)")
    add("-n", type=positive, default=20, help="number of topics (default: %(default)s)")
    add("--of", metavar="WORD", help="the topics with the largest P(topic | WORD)")
    add("--subtopics", action="store_true", help="the finer topics of a model of several starts")
    add("--topic", type=natural, metavar="NUMBER", help="the subtopics of this topic")
    add("--sort", choices=("share", "coherence"), help="default: the most useful topics first")
    _json(parser, "one object a line for each topic")


def _explain(parser: argparse.ArgumentParser) -> None:
    """Show the topics that make two words similar.

    Examples:
      dcdjax explain MODEL thread lock
      dcdjax explain MODEL thread lock -k 3 --json
    """
    parser.add_argument("word", metavar="WORD")
    parser.add_argument("other", metavar="WORD")
    parser.add_argument("-k", type=positive, default=5, help="number of topics (default: %(default)s)")
    _json(parser, "one object; all its contributions sum to the similarity if -k is large enough")


def _evaluate(parser: argparse.ArgumentParser) -> None:
    """Score a model against human judgments of words.

    Examples:
      dcdjax evaluate MODEL --pairs wordsim353.tsv simlex999.txt
      dcdjax evaluate MODEL --analogies questions-words.txt --lowercase --json
      dcdjax evaluate MODEL --categories animals.tsv
    """
    files = {
        "--pairs": "lines of word, word, human score: Spearman's correlation",
        "--analogies": "lines of four words in sections, as in Google's file: accuracy",
        "--categories": "lines of word, tab, category: purity of clusters",
    }
    for name, content in files.items():
        parser.add_argument(name, metavar="FILE", nargs="+", default=[], help=content)
    parser.add_argument("--lowercase", action="store_true", help="look words up in lower case")
    _json(parser, "one object a line for each file")


def _export(parser: argparse.ArgumentParser) -> None:
    """Write words and vectors for other tools.

    Examples:
      dcdjax export MODEL vectors.txt
      dcdjax export MODEL vectors.bin --format word2vec-binary --scaled
      dcdjax export MODEL projector --format projector
    """
    add = parser.add_argument
    add("path", metavar="PATH", help="file to write, - for standard output; a folder for the projector")
    formats = ("word2vec", "word2vec-binary", "numpy", "projector")
    add("--format", choices=formats, default="word2vec", help="default: %(default)s")
    scaled = "write W / sqrt(s), whose dot products are Shat"
    add("--scaled", action="store_true", help=scaled)
    add("--topics", action="store_true", help="write the topics that are shown, not all columns of W")


def _report(parser: argparse.ArgumentParser) -> None:
    """Write a page to explore a model in a browser: one file, which needs no network.

    Examples:
      dcdjax report MODEL -o report.html
      dcdjax report MODEL -o small.html --max-words 5000 --neighbors 10
    """
    add = parser.add_argument
    add("-o", "--output", metavar="FILE", required=True, help="file to write, - for standard output")
    add("--title", help="title of the page (default: the name of the corpus)")
    add("--max-words", type=positive, help="show the most frequent words only (default: 20000)")
    add("--neighbors", type=positive, metavar="K", help="neighbors of each word (default: 20)")
    add("--quiet", action="store_true", help="show no progress bars")
