"""Learn an embedding from the built-in corpus, print a tour of it, and write a page."""

import os
from argparse import Namespace

from dcdjax.cli.commands import print_explained, print_learned
from dcdjax.cli.tables import shown, table
from dcdjax.cli.terminal import InterruptOnce, save, use_cores
from dcdjax.embedding import storage
from dcdjax.util.parallel import num_workers

# Enough words and topics for neighbors that make sense, few enough for half a minute on two cores.
_SETTINGS = {"num_topics": 100, "max_words": 8000, "distance_weighting": "linear", "shift": 0.5, "tol": 0.02}
_RESTARTS = 4
_WORDS = ("thread", "socket", "exception", "list", "month")


def demo(chosen: Namespace) -> int:
    """Run `dcdjax demo`. Return the exit code."""
    storage.check_target(chosen.output)
    beside = os.path.normpath(chosen.output)
    if os.path.basename(beside) in (os.curdir, os.pardir):
        beside = os.path.abspath(beside)
    page = f"{beside}.html"
    if os.path.exists(page) and not _is_report(page):
        raise ValueError(f"-o {chosen.output}: this would overwrite {page}, which is not a dcdjax page")
    use_cores(num_workers())
    from dcdjax.fitting import fit
    from dcdjax.report import page as make_page
    from dcdjax.text import datasets
    from dcdjax.util.progress import Bars

    print("The corpus: the docstrings of Python and the packages installed here.")
    with Bars() as bars, InterruptOnce(bars) as interrupt:
        corpus = datasets.load("python-docs", progress=interrupt.tell)
        embedding = fit.fit(corpus, key=chosen.seed, restarts=_RESTARTS, progress=interrupt.tell, **_SETTINGS)
        interrupt.end()
        save(embedding, chosen.output)
    print_learned(embedding, chosen.output)

    print("\nNeighbors: the words with the largest P(neighbor | word)")
    asked = [word for word in _WORDS if word in embedding]
    found = embedding.neighbors(asked, 7)
    rows = [
        (word, " ".join(shown(one.word) for one in near)) for word, near in zip(asked, found, strict=True)
    ]
    print(table(rows, indent=2))

    print("\nThe most coherent topics of the first start: NPMI, first words")
    own = [topic for topic in embedding.topics(6) if topic.number < embedding.starts[0]]
    own = sorted(own, key=lambda topic: -(topic.coherence or 0))[:8]
    rows = [(f"{topic.coherence:.2f}", " ".join(shown(one.word) for one in topic.words)) for topic in own]
    print(table(rows, right=[0], indent=2))

    if found and found[0]:
        word, other = asked[0], found[0][0].word
        print("\nWhy are they similar?")
        print_explained(word, other, embedding.similarity(word, other), embedding.explain(word, other, 3))
    make_page(embedding, title="The documentation of Python").save(page)
    print(f"""
To explore the model, open {page} in a browser.

Try next:
  dcdjax neighbors {chosen.output} file
  dcdjax topics {chosen.output} --of file
  dcdjax fit your-text.txt -o your-model
  dcdjax --help""")
    return 0


def _is_report(path: str) -> bool:
    with open(path, "rb") as file:
        return b'<meta name="generator" content="dcdjax">' in file.read(200)
