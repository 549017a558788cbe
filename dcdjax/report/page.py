"""Make one HTML file to explore an embedding in a browser.

The file needs no network and no other file. All numbers are computed here; the page only looks them up. The
words and numbers are in the page as compressed text that no browser reads as HTML. The page allows only the
scripts and the style of the folder `assets` to run, by their hashes.
"""

import base64
import hashlib
import html
import os
import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from dcdjax.embedding import levels, lookup, results
from dcdjax.embedding.embedding import Embedding
from dcdjax.report import encoding
from dcdjax.util import checks, files
from dcdjax.util.progress import Progress, as_progress

# With these sizes a page of 20,000 words and 200 topics has 4 MB.
_MAX_WORDS = 20_000
_NUM_NEIGHBORS = 20
_TOPICS_OF_NEIGHBOR = 3  # they explain 97 percent of a neighbor's probability with 200 topics, 83 with 1400
_TOPICS_OF_WORD = 8
_WORDS_OF_TOPIC = 20
_WORDS_OF_COHERENCE = 10  # the usual number, and that of `dcdjax topics`
_SIMILAR_TOPICS = 6
# A training curve has no more steps than a screen has pixels for it.
_STEPS_OF_CURVE = 500
# The number of words between two reports of progress.
_WORDS_AT_A_TIME = 2048
# The height of the page in a notebook, in pixels.
_HEIGHT = 800

# The scripts are joined in this order.
_SCRIPTS = ("elements", "model", "search", "word", "topic", "layout", "map", "training", "main")
_LIBRARY, _LICENSE = "vendor/d3.min.js", "vendor/d3.LICENSE"


@dataclass(frozen=True, repr=False)
class Page:
    """Hold a page to explore an embedding. A notebook shows it if it is the last line of a cell.

    Attributes:
      html: the text of the page.
    """

    html: str

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file. If this fails, an old file stays as it is."""
        with files.atomic_write(path) as file:
            file.write(self.html.encode())

    def __repr__(self) -> str:
        return f"Page({len(self.html.encode()) / 1e6:.1f} MB; save(path) writes it)"

    def _repr_html_(self) -> str:
        # In a frame, the styles and scripts of page and notebook cannot affect each other.
        return (
            f'<iframe srcdoc="{html.escape(self.html)}" title="dcdjax report" '
            f'style="width: 100%; height: {_HEIGHT}px; border: 1px solid #8888"></iframe>'
        )


def page(
    embedding: Embedding,
    *,
    title: str | None = None,
    max_words: int = _MAX_WORDS,
    num_neighbors: int = _NUM_NEIGHBORS,
    progress: Progress | bool = True,
) -> Page:
    """Make a page with the neighbors of each word and their explanation, the topics, a map, and the record.

    Args:
      embedding: the embedding to show.
      title: the heading of the page; by default the name of the corpus.
      max_words: show this many words at most, the most frequent ones. Neighbors are chosen among them. A page
        takes about 200 bytes for each word.
      num_neighbors: the number of neighbors of each word.
      progress: True shows a bar if stderr is a terminal, False shows none. A function is called instead, as
        `progress.Progress` describes.

    Returns:
      The page. Call `save`, or show it in a notebook.

    Raises:
      ValueError: with the name of the wrong argument.

    Example:
      >>> import jax.numpy as jnp
      >>> W = jnp.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9]])
      >>> page(Embedding(("tea", "cup", "ship"), W))
      Page(0.3 MB; save(path) writes it)
    """
    max_words = checks.whole("max_words", max_words, 1)
    num_neighbors = checks.whole("num_neighbors", num_neighbors, 1)
    if title is None:
        corpus = embedding.record.get("corpus")
        title = str((corpus.get("name") if isinstance(corpus, Mapping) else corpus) or "An embedding")
    title = title.encode(errors="replace").decode()  # a file name can have bytes that are not text
    shown = _most_frequent(embedding, max_words)
    s = lookup.topic_sizes(embedding.W)
    W = embedding.topic_probabilities()
    content, arrays = _topic_data(embedding, W, shown)
    with ExitStack() as stack:
        arrays |= _word_data(embedding, W, s, shown, num_neighbors, as_progress(progress, stack))
    content |= {
        "title": title,
        "num_shown": shown.size,
        "num_words": len(embedding),
        "starts": [embedding.num_topics],
        "log_steps": encoding.LOG_STEPS,
        "min_share": encoding.MIN_SHARE,
        "curves": _curves(embedding.history),
        "record": embedding.record,
    }
    return Page(_document(title, encoding.pack(content, arrays)))


def _most_frequent(embedding: Embedding, max_words: int) -> np.ndarray:
    """Return the indices of the words to show, in the order of the embedding."""
    if embedding.word_counts is None:
        return np.arange(min(max_words, len(embedding)))
    return np.sort(np.argsort(-np.asarray(embedding.word_counts, np.float64), kind="stable")[:max_words])


def _word_data(
    embedding: Embedding, W: Any, s: Any, shown: np.ndarray, num_neighbors: int, report_progress: Progress
) -> dict[str, np.ndarray]:
    """Collect the neighbors of each shown word, the topics that explain them, and the word's own topics."""
    among = None
    if shown.size < len(embedding):
        among = np.zeros(len(embedding), bool)
        among[shown] = True
    parts = []
    for begin in range(0, shown.size, _WORDS_AT_A_TIME):
        report_progress("neighbors", begin, shown.size, "words")
        queries = shown[begin : begin + _WORDS_AT_A_TIME, None].astype(np.int32)
        found = results.nearest_indices(embedding.W, s, queries, num_neighbors, among=among)
        parts.append(_neighbor_data(embedding, s, shown, queries, found))
    report_progress("neighbors", shown.size, shown.size, "words")
    arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    own = lookup.topics_of_words(W[shown], k=min(_TOPICS_OF_WORD, embedding.num_topics))
    arrays["word_topics"] = np.asarray(own.indices)
    arrays["word_topic_codes"], arrays["word_topic_largest"] = encoding.log_codes(
        np.asarray(own.values, np.float64)
    )
    arrays["neighbor_codes"], arrays["neighbor_largest"] = encoding.log_codes(arrays.pop("probabilities"))
    if embedding.word_counts is not None:
        arrays["counts"] = np.asarray(embedding.word_counts, np.float64)[shown]
    return arrays


def _neighbor_data(
    embedding: Embedding, s: Any, shown: np.ndarray, queries: np.ndarray, found: results.Neighbors
) -> dict[str, np.ndarray]:
    """Add to the neighbors of some words the topics that explain most of each neighbor's probability."""
    # Every shown word but the query itself can be a neighbor, so all rows have the same length.
    width = int(found.lengths.max(initial=0))
    indices = found.indices[:, :width]
    probabilities = found.probabilities[:, :width].astype(np.float64)
    terms, topics = results.top_contributions(
        embedding.W,
        s,
        np.broadcast_to(queries, indices.shape).ravel(),
        indices.ravel(),
        embedding.levels[0].groups,
        min(_TOPICS_OF_NEIGHBOR, embedding.num_topics),
    )
    shape = *indices.shape, terms.shape[1]
    similarity = np.broadcast_to(probabilities[:, :, None], shape)
    shares = np.divide(terms.reshape(shape), similarity, where=similarity > 0, out=np.zeros(shape))
    codes = encoding.share_codes(shares)
    return {
        "neighbors": np.searchsorted(shown, indices),
        "probabilities": probabilities,
        "paths": np.where(codes > 0, topics.reshape(shape), 0),
        "path_codes": codes,
    }


def _topic_data(
    embedding: Embedding, W: Any, shown: np.ndarray
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Collect the top words, weight, coherence and similar topics of each topic, and the words of the page.

    The words of the page are the shown words, and after them words that only name topics.
    """
    topics = embedding.topics(_WORDS_OF_COHERENCE)
    weights = levels.emphasis(embedding.word_counts, len(embedding))
    sizes = lookup.topic_sizes(W)
    probabilities, top_words = results.top_words(W, sizes, weights, min(_WORDS_OF_TOPIC, len(embedding)))
    named = np.concatenate([shown, np.setdiff1d(top_words, shown)])
    position = np.empty(len(embedding), np.int64)
    position[named] = np.arange(named.size)
    top_words = position[top_words]
    similarity = np.array(lookup.topic_similarity(W), np.float64)
    np.fill_diagonal(similarity, -np.inf)
    num_similar = min(_SIMILAR_TOPICS, len(topics) - 1)
    similar = np.argsort(-similarity, axis=1, kind="stable")[:, :num_similar]
    similarity = np.take_along_axis(similarity, similar, axis=1)
    arrays = {
        "weights": np.array([topic.weight for topic in topics], np.float32),
        "topic_words": top_words,
        "topic_word_probabilities": probabilities.astype(np.float32),
        "similar_topics": similar,
        "topic_similarity": np.clip(similarity, 0, 1).astype(np.float32),
    }
    # The page opens with a word of the first topic, which is the most useful one.
    best = topics[0]
    content = {
        "words": [embedding.words[index] for index in named.tolist()],
        "coherence": None if embedding.levels[0].coherence is None else [topic.coherence for topic in topics],
        "first_word": next((word for word in top_words[best.number].tolist() if word < shown.size), 0),
    }
    return content, arrays


def _curves(history: Mapping[str, np.ndarray]) -> list[list[tuple[int, float]]]:
    """Return pairs (step, objective) for each start, at most _STEPS_OF_CURVE of them."""
    curves = []
    for row in np.atleast_2d(np.asarray(history.get("objective", np.empty((0, 0))), np.float64)):
        steps = np.flatnonzero(np.isfinite(row))
        kept = np.linspace(0, steps.size - 1, min(_STEPS_OF_CURVE, steps.size)).astype(int)
        curves.append([(int(step), float(row[step])) for step in steps[np.unique(kept)]])
    return curves


def _document(title: str, data: str) -> str:
    """Fill the HTML template, and allow only its own scripts and style to run."""
    library, style = f"/*\n{_asset(_LICENSE)}*/\n{_asset(_LIBRARY)}", _asset("page.css")
    script = "\n".join(_asset(f"{name}.js") for name in _SCRIPTS)
    # A block keeps the names out of the global scope.
    script = f'"use strict";\n{{\n{script}}}\n'
    policy = (
        f"default-src 'none'; script-src {_hash(library)} {_hash(script)}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    texts = {
        "title": html.escape(title),
        "policy": policy,
        "style": style,
        "data": data,
        "library": library,
        "script": script,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: texts[found[1]], _asset("page.html"))


@cache
def _asset(name: str) -> str:
    return resources.files("dcdjax.report").joinpath("assets", name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
