"""An embedding enters; a page to explore it leaves: one file, which needs no network and no other file.

Whatever the page tells was computed here; it only looks things up. Words and numbers stand in it packed and
compressed, as text that no browser takes for HTML. Its scripts and styles are those in the folder `page`,
named by their hashes, and nothing else may run.
"""

import base64
import gzip
import hashlib
import html
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from dcdjax import answers, files, queries, validation
from dcdjax.answers import WordProbability
from dcdjax.embedding import Embedding
from dcdjax.parallel import Progress
from dcdjax.progress import as_progress

# How much is told: with these a page of 20,000 words and 200 topics has 4 MB.
_MAX_WORDS = 20_000
_NUM_NEIGHBORS = 20
_PATHS = 3  # topics by which a neighbor is reached; of 200 topics they give 97 percent of it, of 1400, 83
_TOPICS_OF_WORD = 8
_WORDS_OF_TOPIC = 20
_WORDS_OF_COHERENCE = 10  # as usual, and as `dcdjax topics` has it
_LIKE_TOPICS = 6
# Steps of a training curve, at most: a curve has no more pixels.
_STEPS = 500
# A step is 0.05 percent, for three digits; what is below 10^-14 of the largest is told as zero.
_STEPS_OF_LOG = 2048
# What gives less to a neighbor than this is told as the rest.
_LEAST_SHARE = 0.01
# Words asked about at a time, between which it is told how far it is.
_PIECE = 2048
# Height of the page in a notebook, in pixels.
_HEIGHT = 800

# In the order in which they are joined.
_SCRIPTS = ("elements", "model", "search", "word", "topic", "layout", "map", "training", "main")
_LIBRARY, _LICENSE = "vendor/d3.min.js", "vendor/d3.LICENSE"


@dataclass(frozen=True, repr=False)
class Page:
    """A page to explore an embedding. As the last line of a notebook's cell it is shown there.

    Attributes:
      html: all of it.
    """

    html: str

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page to a file, whole or not at all."""
        with files.written_whole(path) as file:
            file.write(self.html.encode())

    def __repr__(self) -> str:
        return f"Page({len(self.html.encode()) / 1e6:.1f} MB; save(path) writes it)"

    def _repr_html_(self) -> str:
        # A frame of its own: neither the page nor the notebook can disturb the other.
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
    """A page that shows what was learned: a word's neighbors and why, topics, a map of them, provenance.

    Args:
      embedding: what to show.
      title: what stands above it; if not given, the name of the corpus.
      max_words: tell of no more words than these, the most frequent ones. Neighbors are chosen among them.
      num_neighbors: of each word.
      progress: True shows a bar where somebody looks; False shows none; or what is to be told instead.

    Returns:
      The page: `save` it, or look at it in a notebook. It has about 200 bytes for each word.

    Raises:
      ValueError: naming the argument.

    Example:
      >>> import jax.numpy as jnp
      >>> W = jnp.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9]])
      >>> page(Embedding(("tea", "cup", "ship"), W))
      Page(0.3 MB; save(path) writes it)
    """
    max_words = validation.whole("max_words", max_words, 1)
    num_neighbors = validation.whole("num_neighbors", num_neighbors, 1)
    if title is None:
        corpus = embedding.record.get("corpus")
        title = str((corpus.get("name") if isinstance(corpus, Mapping) else corpus) or "An embedding")
    title = title.encode(errors="replace").decode()  # names of files need not be text
    chosen = _most_frequent(embedding, max_words)
    told, arrays, named = _topics(embedding, chosen)
    with ExitStack() as stack:
        arrays |= _words(embedding, chosen, num_neighbors, as_progress(progress, stack))
    told |= {
        "title": title,
        "words": [embedding.words[number] for number in named.tolist()],
        "num_told": chosen.size,
        "num_words": len(embedding),
        "starts": list(embedding.starts),
        "steps_of_log": _STEPS_OF_LOG,
        "least_share": _LEAST_SHARE,
        "curves": _curves(embedding.history),
        "record": embedding.record,
    }
    return Page(_document(title, _packed(told, arrays)))


def _most_frequent(embedding: Embedding, most: int) -> np.ndarray:
    """The numbers of the words to tell of, in the order of the embedding."""
    if embedding.word_counts is None:
        return np.arange(min(most, len(embedding)))
    return np.sort(np.argsort(-np.asarray(embedding.word_counts, np.float64), kind="stable")[:most])


def _words(
    embedding: Embedding, chosen: np.ndarray, num_neighbors: int, tell: Progress
) -> dict[str, np.ndarray]:
    """Of each word its neighbors, the topics by which they are reached, and its own topics."""
    pieces, words = [], [embedding.words[number] for number in chosen.tolist()]
    among = words if len(words) < len(embedding) else None
    for begin in range(0, chosen.size, _PIECE):
        tell("neighbors", begin, chosen.size, "words")
        near = embedding.neighbors(words[begin : begin + _PIECE], num_neighbors, among=among)
        pieces.append(_explained(embedding, chosen, chosen[begin : begin + _PIECE], near))
    tell("neighbors", chosen.size, chosen.size, "words")
    arrays = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
    own = queries.topics_of_words(embedding.W[chosen], k=min(_TOPICS_OF_WORD, embedding.num_topics))
    arrays["word_topics"] = np.asarray(own.indices)
    arrays["word_topic_codes"], arrays["word_topic_largest"] = _coded(np.asarray(own.values, np.float64))
    arrays["neighbor_codes"], arrays["neighbor_largest"] = _coded(arrays.pop("probabilities"))
    if embedding.word_counts is not None:
        arrays["counts"] = np.asarray(embedding.word_counts, np.float64)[chosen]
    return arrays


def _explained(
    embedding: Embedding, chosen: np.ndarray, asked: np.ndarray, near: Sequence[Sequence[WordProbability]]
) -> dict[str, np.ndarray]:
    """The neighbors of some words, among those told of, as numbers, with the topics that lead to them."""
    index = embedding.key_to_index
    numbers = np.array([[index[one.word] for one in row] for row in near], np.int32)
    probabilities = np.array([[one.probability for one in row] for row in near], np.float64)
    terms, by_way_of = answers.paths(
        embedding.W,
        queries.topic_sizes(embedding.W),
        np.repeat(asked, numbers.shape[1]).astype(np.int32),
        numbers.ravel(),
        min(_PATHS, embedding.num_topics),
    )
    shape = *numbers.shape, terms.shape[1]
    similar = np.broadcast_to(probabilities[:, :, None], shape)
    shares = np.divide(terms.reshape(shape), similar, where=similar > 0, out=np.zeros(shape))
    codes = _share_codes(shares)
    return {
        "neighbors": np.searchsorted(chosen, numbers),
        "probabilities": probabilities,
        "paths": np.where(codes > 0, by_way_of.reshape(shape), 0),
        "path_codes": codes,
    }


def _topics(
    embedding: Embedding, chosen: np.ndarray
) -> tuple[dict[str, Any], dict[str, np.ndarray], np.ndarray]:
    """Of each topic its first words, its weight and coherence, and the topics like it.

    With the numbers of all words that are named: those told of, and then others, which only name topics.
    """
    topics = embedding.topics(_WORDS_OF_COHERENCE)
    W, s = embedding.W, queries.topic_sizes(embedding.W)
    probabilities, first = answers.first_words(W, s, min(_WORDS_OF_TOPIC, len(embedding)))
    named = np.concatenate([chosen, np.setdiff1d(first, chosen)])
    places = np.empty(len(embedding), np.int64)
    places[named] = np.arange(named.size)
    first = places[first]
    likeness = np.array(queries.topic_likeness(W), np.float64)
    np.fill_diagonal(likeness, -np.inf)
    num_like = min(_LIKE_TOPICS, len(topics) - 1)
    like = np.argsort(-likeness, axis=1, kind="stable")[:, :num_like]
    arrays = {
        "weights": np.array([topic.weight for topic in topics], np.float32),
        "topic_words": first,
        "topic_word_probabilities": probabilities.astype(np.float32),
        "like": like,
        "likeness": np.clip(np.take_along_axis(likeness, like, axis=1), 0, 1).astype(np.float32),
    }
    coherent = [topic.coherence for topic in topics]
    told = {"coherence": None if embedding.coherence is None else coherent}
    # Where to begin: a word that stands for something.
    best = max(topics, key=lambda one: (one.coherence is not None, one.coherence or 0.0, one.weight))
    begin = next((place for place in first[best.number].tolist() if place < chosen.size), 0)
    return {**told, "begin": begin}, arrays, named


def _curves(history: Mapping[str, np.ndarray]) -> list[list[tuple[int, float]]]:
    """Of each start the steps, no more than a screen has pixels, with the objective after each."""
    curves = []
    for row in np.atleast_2d(np.asarray(history.get("objective", np.empty((0, 0))), np.float64)):
        steps = np.flatnonzero(np.isfinite(row))
        shown = steps[np.unique(np.linspace(0, steps.size - 1, min(_STEPS, steps.size)).astype(int))]
        curves.append([(int(step), float(row[step])) for step in shown])
    return curves


# --- From numbers to a page -------------------------------------------------------------------------


def _coded(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of values >= 0 in 16 bits, as steps that a logarithm is below the largest's; and the largest.

    Counted from 1, as 0 is zero; and each less the one before it in its row: of rows that fall, that makes
    small numbers.

    Example:
      >>> codes, largest = _coded(np.array([[0.5, 0.001, 0.0]]))
      >>> codes, (largest * np.exp(-(codes.cumsum()[:2] - 1.0) / 2048)).round(6)
      (array([[    1, 12728, 52807]], dtype=uint16), array([0.5  , 0.001]))
    """
    positive = values > 0
    largest = np.max(values, initial=np.finfo(values.dtype).tiny)
    steps = np.log(np.divide(largest, values, where=positive, out=np.ones_like(values))) * _STEPS_OF_LOG
    codes = np.where(positive & (steps < 65534), np.rint(steps) + 1, 0).astype(np.uint16)
    return np.diff(codes, axis=1, prepend=np.uint16(0)), np.array([largest])


def _share_codes(shares: np.ndarray) -> np.ndarray:
    """Shares in 8 bits, 255 for 1 and 1 for _LEAST_SHARE, in steps of 1.8 percent; 0 for less.

    Example:
      >>> _share_codes(np.array([1.0, 0.5, 0.01, 0.009, 0.0]))
      array([255, 217,   1,   0,   0], dtype=uint8)
    """
    told = np.clip(shares, _LEAST_SHARE, 1)
    codes = np.rint(255 - 254 * np.log(told) / math.log(_LEAST_SHARE))
    return np.where(shares >= _LEAST_SHARE, codes, 0).astype(np.uint8)


def _packed(told: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """The length of the JSON, JSON with the names of arrays, and these; compressed, as ASCII."""
    small = {name: _small(array) for name, array in arrays.items()}
    named = {name: {"type": str(array.dtype), "shape": array.shape} for name, array in small.items()}
    text = json.dumps(_plain({**told, "arrays": named}), separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    parts = [np.array([len(text), 0], "<u4").tobytes(), text]
    for array in small.values():
        content = array.astype(array.dtype.newbyteorder("<")).tobytes()
        parts.append(content + bytes(-len(content) % 8))  # each begins where any type may
    return base64.b64encode(gzip.compress(b"".join(parts), 9, mtime=0)).decode()


def _plain(value: Any) -> Any:
    """The value as JSON has it; what JSON does not know as it would be printed."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    known = value is None or isinstance(value, str) or (isinstance(value, float) and math.isfinite(value))
    # JavaScript would round larger ones.
    known |= isinstance(value, int) and abs(value) < 1 << 53
    return value if known else str(value)


def _small(array: np.ndarray) -> np.ndarray:
    """Whole numbers in as few bytes as hold them."""
    if array.dtype.kind != "i":
        return array
    most = array.max(initial=0)
    return array.astype(np.uint8 if most < 1 << 8 else np.uint16 if most < 1 << 16 else np.uint32)


@cache
def _asset(name: str) -> str:
    return resources.files("dcdjax").joinpath("page", name).read_text("utf-8")


def _document(title: str, packed: str) -> str:
    library, style = f"/*\n{_asset(_LICENSE)}*/\n{_asset(_LIBRARY)}", _asset("page.css")
    script = "\n".join(_asset(f"{name}.js") for name in _SCRIPTS)
    # In a block, where names stay inside, and none may be taken twice.
    script = f'"use strict";\n{{\n{script}}}\n'
    policy = (
        f"default-src 'none'; script-src {_hash(library)} {_hash(script)}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    texts = {
        "title": html.escape(title),
        "policy": policy,
        "style": style,
        "data": packed,
        "library": library,
        "script": script,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: texts[found[1]], _asset("page.html"))


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
