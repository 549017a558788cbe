"""Draw a symmetric S of words with Zipf's frequencies in planted groups.

Word n is as frequent as 1 / (n + 1)^exponent. It meets words as if a text were read: as many as its
frequency gives it, with probability `loyalty` one of its own group, otherwise any, either way by frequency.
S_ij = log(1 + how often i and j met). Rows are drawn some at a time: little more than S is in memory.
"""

import itertools
from dataclasses import dataclass

import numpy as np
import scipy.sparse

from dcdjax.util.parallel import in_order

# Where a uniform number finds its word: the rarest of 200,000 have six places, and it is 64 MB.
_PLACES = 1 << 24
# Meetings drawn at a time, about; those of a word are never parted.
_AT_A_TIME = 1 << 22


@dataclass(frozen=True)
class Planted:
    """Hold S and the planted group of each word."""

    matrix: scipy.sparse.csr_array
    groups: np.ndarray


def make(
    num_words: int,
    num_nonzeros: int,
    *,
    seed: int,
    num_groups: int = 200,
    exponent: float = 1.0,
    loyalty: float = 0.5,
) -> Planted:
    """Draw S.

    Args:
      num_words: N, the most frequent word first.
      num_nonzeros: of S, both triangles; met within a tenth.
      seed: the same S for the same one, however many threads there are.
      num_groups: that words are assigned to at random.
      exponent: of Zipf's law.
      loyalty: the share of meetings that are with words of the same group for a reason.

    Returns:
      S in float64 and int32, symmetric to the last bit, no word alone.
    """
    frequency = (1.0 + np.arange(num_words)) ** -exponent
    frequency /= frequency.sum()
    groups = np.random.default_rng(seed).integers(0, num_groups, num_words, dtype=np.int32)
    meetings = _meetings(frequency, num_nonzeros, num_groups, loyalty)
    each = np.maximum(1, np.rint(meetings * frequency)).astype(np.int64)
    met = _met(each, frequency, groups, seed, loyalty)
    S = scipy.sparse.csr_array(met + met.T)
    del met
    # By a table: a function of NumPy may round by where in memory a number stands, and S is to be symmetric.
    S.data = np.log1p(np.arange(S.data.max() + 1.0))[S.data]
    return Planted(matrix=S, groups=groups)


def _meetings(frequency: np.ndarray, num_nonzeros: int, num_groups: int, loyalty: float) -> float:
    """Return how many meetings give about the wanted nonzeros. Most pairs meet once."""
    num_words = frequency.size
    bounds = np.unique(np.geomspace(1, num_words + 1, 400).astype(np.int64)) - 1
    many = np.diff(bounds)
    mean = np.add.reduceat(frequency, bounds[:-1]) / many
    pairs, chance = np.outer(many, many), 2 * np.outer(mean, mean)
    same = 1 / num_groups

    def nonzeros(meetings: float) -> float:
        strange = -np.expm1(-meetings * chance * (1 - loyalty))
        own = -np.expm1(-meetings * chance * (1 - loyalty + loyalty * num_groups))
        return float((pairs * ((1 - same) * strange + same * own)).sum())

    low, high = 0.0, 1.0
    while nonzeros(high) < num_nonzeros:
        low, high = high, 2 * high
        if high > 1e15:
            raise ValueError(f"num_nonzeros: {num_words} words have no {num_nonzeros} pairs")
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if nonzeros(middle) < num_nonzeros else (low, middle)
    return high


def _met(
    each: np.ndarray, frequency: np.ndarray, groups: np.ndarray, seed: int, loyalty: float
) -> scipy.sparse.csr_array:
    """Count how often each word met each other word."""
    num_words = each.size
    # Words by group, each with places in proportion to its frequency: those of a group are side by side.
    order = np.argsort(groups, kind="stable")
    ends = np.cumsum(frequency[order])
    middles = (np.arange(_PLACES) + 0.5) / _PLACES * ends[-1]
    words = order[np.searchsorted(ends, middles)].astype(np.int32)
    firsts = np.searchsorted(groups[words], np.arange(groups.max() + 2))
    sizes = np.diff(firsts).astype(np.uint64)

    def draw(rows: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        random = np.random.default_rng([seed, rows[0]])
        row = np.repeat(np.arange(rows[1] - rows[0]), each[slice(*rows)])
        group = groups[slice(*rows)][row]
        loyal = (random.random(row.size, np.float32) < loyalty) & (sizes[group] > 0)
        place = random.integers(0, 1 << 32, row.size, np.uint32).astype(np.uint64)
        place *= np.where(loyal, sizes[group], np.uint64(_PLACES))
        place >>= np.uint64(32)
        place += np.where(loyal, firsts[group], 0).astype(np.uint64)
        pairs = row * num_words + words[place]
        pairs.sort()
        begins = np.flatnonzero(np.diff(pairs, prepend=-1))
        times = np.diff(begins, append=pairs.size).astype(np.int32)
        row, column = np.divmod(pairs[begins], num_words)
        return np.bincount(row, minlength=rows[1] - rows[0]), column.astype(np.int32), times

    cuts = np.searchsorted(np.cumsum(each), np.arange(0, each.sum(), _AT_A_TIME))
    bounds = np.union1d(cuts, [0, num_words]).tolist()
    drawn = [found for _, found in in_order(draw, itertools.pairwise(bounds))]
    lengths, columns, times = (np.concatenate(of_all) for of_all in zip(*drawn, strict=True))
    begins = np.append(0, np.cumsum(lengths)).astype(np.int32)
    return scipy.sparse.csr_array((times, columns, begins), shape=(num_words, num_words))
