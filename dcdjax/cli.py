"""A command line enters; what it asked for is printed."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

_THEMES = {
    "sea": "ship harbor sail captain wave anchor island storm",
    "kitchen": "bread butter oven flour sugar recipe salt dough",
    "music": "guitar melody drum song chorus piano rhythm concert",
    "space": "planet orbit comet moon telescope star rocket galaxy",
    "law": "court judge verdict trial lawyer appeal jury evidence",
    "garden": "flower soil seed rose tree leaf root meadow",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The `dcdjax` command."""
    parser = argparse.ArgumentParser(
        prog="dcdjax",
        description="Word embedding by low-rank doubly stochastic matrix decomposition, in JAX.",
        epilog="example: dcdjax demo --seed 3",
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    demo = commands.add_parser(
        "demo",
        help="find the topics that were planted in a small made-up text",
        description="Writes a small text about six themes, each sentence mostly about one, counts which "
        "words share a sentence, and finds the themes again from the counts alone.",
    )
    demo.add_argument("--seed", type=int, default=0, help="of the text and of the starts (default: 0)")
    chosen = parser.parse_args(arguments)
    if chosen.version:
        from dcdjax import __version__

        print(f"dcdjax {__version__}")
        return 0
    if chosen.command is None:
        parser.print_help()
        return 2
    if chosen.seed < 0:
        print(f"dcdjax demo: --seed must not be negative, got {chosen.seed}", file=sys.stderr)
        return 2
    try:
        _demo(chosen.seed)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read us has seen enough. What is still buffered must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _demo(seed: int, *, num_sentences: int = 600, restarts: int = 8, max_steps: int = 300) -> None:
    import jax
    import numpy as np
    import scipy.sparse

    import dcdjax

    words = [word for theme in _THEMES.values() for word in theme.split()]
    num_topics = len(_THEMES)
    rng = np.random.default_rng(seed)
    sentences = _planted_sentences(rng, num_sentences)
    counts = np.zeros((num_sentences, len(words)))
    np.add.at(counts, (np.arange(num_sentences)[:, None], sentences), 1)
    pairs = counts.T @ counts
    np.fill_diagonal(pairs, 0)
    S = scipy.sparse.csr_array(pairs)

    print(f"A made-up text: {num_sentences} sentences of {sentences.shape[1]} words, such as")
    for sentence in sentences[:3]:
        print("   ", " ".join(words[n] for n in sentence))
    print(f"S: {len(words)} words, {S.nnz} pairs that share a sentence; solving from {restarts} starts ...")

    starts = dcdjax.initialize.uniform(jax.random.key(seed), len(words), num_topics, restarts=restarts)
    solutions = dcdjax.solve_restarts(starts, S, max_steps=max_steps, over_relaxation=1.9)
    solution = dcdjax.best(solutions)
    objectives = np.asarray(solutions.objective)
    print(
        f"Objectives from {objectives.min():.1f} to {objectives.max():.1f}; the best start took "
        f"{int(solution.num_steps)} steps ({dcdjax.Status(int(solution.status)).name.lower()}).\n"
    )

    W = np.asarray(solution.W, dtype=np.float64)
    word_given_topic = W / W.sum(axis=0)
    theme_of = np.repeat(np.arange(num_topics), len(words) // num_topics)
    names = list(_THEMES)
    print("Topics, the words with the highest P(word | topic), and the theme that most of them are of:")
    for k in range(num_topics):
        top = np.argsort(-word_given_topic[:, k], kind="stable")[:8]
        theme = names[np.bincount(theme_of[top]).argmax()]
        print(f"  {k}  {' '.join(f'{words[n]:<10}' for n in top[:6])} {theme}")

    Shat = W @ word_given_topic.T
    np.fill_diagonal(Shat, 0)
    print("\nNeighbors by Shat = P(neighbor | word):")
    for word in ("captain", "oven", "moon", "jury"):
        nearest = np.argsort(-Shat[words.index(word)], kind="stable")[:4]
        print(f"  {word:<8}", "  ".join(f"{words[n]} {Shat[words.index(word), n]:.3f}" for n in nearest))
    at_home = (theme_of[Shat.argmax(axis=1)] == theme_of).sum()
    print(f"\n{at_home} of {len(words)} words have their nearest neighbor in their own theme.")
    print("Next: give your own symmetric scipy matrix to dcdjax.solve (README.md shows how).")


def _planted_sentences(
    rng: "np.random.Generator", num_sentences: int, *, length: int = 7, noise: float = 0.2
) -> "np.ndarray":
    """Word ids, (num_sentences, length): each sentence of one theme, but for a part of noise."""
    num_themes, per_theme = len(_THEMES), 8
    theme = rng.integers(num_themes, size=(num_sentences, 1))
    themed = theme * per_theme + rng.random((num_sentences, per_theme)).argsort(axis=1)[:, :length]
    anything = rng.integers(num_themes * per_theme, size=(num_sentences, length))
    replaced = rng.random((num_sentences, length)) < noise
    return themed * ~replaced + anything * replaced
