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

from dcdjax.embedding.embedding import Embedding
from dcdjax.report import contents, encoding
from dcdjax.util import checks, files
from dcdjax.util.progress import Progress, as_progress

_MAX_WORDS = 20_000
_NUM_NEIGHBORS = 20
# The height of the page in a notebook, in pixels.
_HEIGHT = 800

# The scripts are joined in this order.
_SCRIPTS = (
    *("elements", "model", "search", "word", "topic", "table", "layout", "labels", "map", "training", "main"),
)
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
    """Make a page with a map of the topics, their words, the neighbors of each word, and the record.

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
      Page(0.4 MB; save(path) writes it)
    """
    max_words = checks.whole("max_words", max_words, 1)
    num_neighbors = checks.whole("num_neighbors", num_neighbors, 1)
    if title is None:
        corpus = embedding.record.get("corpus")
        title = str((corpus.get("name") if isinstance(corpus, Mapping) else corpus) or "An embedding")
    title = title.encode(errors="replace").decode()  # a file name can have bytes that are not text
    shown = contents.most_frequent(embedding, max_words)
    content, arrays = contents.topic_data(embedding, shown)
    with ExitStack() as stack:
        arrays |= contents.word_data(embedding, shown, num_neighbors, as_progress(progress, stack))
    content |= {
        "title": title,
        "num_shown": shown.size,
        "num_words": len(embedding),
        "starts": embedding.starts,
        "log_steps": encoding.LOG_STEPS,
        "min_share": encoding.MIN_SHARE,
        "curves": contents.curves(embedding.history),
        "record": embedding.record,
    }
    return Page(_document(title, encoding.pack(content, arrays)))


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
