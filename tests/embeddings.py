"""Embeddings that the tests of the page share, with words that try to break out of it."""

import jax.numpy as jnp
import numpy as np
from problems import random_W

from dcdjax import Embedding
from dcdjax.topics.levels import Level

HOSTILE = (
    "</script><img src=x onerror=window.hacked=1>",
    "<script>window.hacked=1</script>",
    "<!--",
    "{{data}}",
    "\"'&amp;",
    "שלום",
    "Café",
    "\u202eright\u202c",
    "\udce9t\udce9",  # bytes that were no text
    "long" * 60,
)


def embedding(num_words=60, starts=(5, 7), *, words=HOSTILE, seed=0, **more):
    """Of sharp topics, so that neighbors differ well beyond rounding; with all that a fit would bring."""
    rng = np.random.default_rng(seed)
    blocks = [random_W(rng, num_words, size) ** 4 for size in starts]
    W = np.concatenate([block / block.sum(axis=1, keepdims=True) for block in blocks], axis=1) / len(blocks)
    words = tuple(words[:num_words]) + tuple(f"word{n}" for n in range(num_words - len(words)))
    given = {
        "word_counts": rng.permutation(num_words) + 1,
        "levels": (Level(np.arange(sum(starts)), rng.uniform(-1, 1, (sum(starts), 20))),),
        "history": {"objective": np.array([[9.0, 5.0, 4.0, np.nan], [8.0, 6.0, 5.0, 4.5]])},
        "record": {"corpus": {"name": "a <b>corpus</b>", "num_tokens": 12345}, "seed": 7},
        **more,
    }
    return Embedding(words=words, W=jnp.asarray(W, jnp.float32), starts=starts, **given)


def merged_levels(num_columns, num_subtopics, num_topics):
    """Topics of subtopics of columns; the last topics are junk."""
    rng = np.random.default_rng(1)
    subtopics = np.append(
        np.arange(num_subtopics), rng.integers(num_subtopics, size=num_columns - num_subtopics)
    )
    topics = np.append(np.arange(num_topics), rng.integers(num_topics, size=num_subtopics - num_topics))
    coherence = np.linspace(0.5, -0.5, num_topics)[:, None] - np.linspace(0, 0.1, 20)
    return Level(np.sort(topics)[subtopics], coherence), Level(subtopics)
