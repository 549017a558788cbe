"""Record which words stand in the same passages of a corpus, to judge topics by it later."""

from collections.abc import Iterable, Iterator

import numpy as np
import scipy.sparse

from dcdjax.counting.vocabulary import BREAK

# A document of more tokens is cut into passages of this length: words at the two ends of a book have nothing
# to do with each other.
PASSAGE_TOKENS = 200
# Of a larger corpus only every second, third, ... passage is kept. So many tokens are enough for a coherence
# of two digits, and take 16 MB.
MOST_TOKENS = 1 << 22


class PassageSampler:
    """Watch the encoded corpus go by, and keep the words of some passages.

    Example:
      >>> sampler = PassageSampler(num_tokens=4)
      >>> for _ in sampler.watch([np.array([BREAK, 0, 1, 0, BREAK, 1])]):
      ...     pass
      >>> sampler.matrix(num_words=2).toarray()
      array([[1, 1],
             [0, 1]], dtype=int8)
    """

    def __init__(self, num_tokens: int) -> None:
        """Choose how many passages to keep from the number of tokens in the corpus."""
        self._every = -(-num_tokens // MOST_TOKENS) if num_tokens else 1
        self._passage = 0  # number of the passage under way
        self._length = 0  # its tokens so far
        self._passages: list[np.ndarray] = []
        self._words: list[np.ndarray] = []

    def watch(self, pieces: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """Yield the pieces of `Tokens.encoded` unchanged, and take down the passages."""
        for piece in pieces:
            self._add(piece)
            yield piece

    def _add(self, piece: np.ndarray) -> None:
        # A document begins after each break. The one under way began so many tokens before this piece.
        begins = np.append(-self._length, np.flatnonzero(piece == BREAK) + 1)
        ends = np.append(begins[1:] - 1, piece.size)
        num_passages = np.maximum(-(-(ends - begins) // PASSAGE_TOKENS), 1)
        first = np.cumsum(num_passages) - num_passages
        within = np.arange(num_passages.sum()) - np.repeat(first, num_passages)
        starts = np.repeat(begins, num_passages) + PASSAGE_TOKENS * within
        ends = np.append(starts[1:], piece.size)
        passages = self._passage + np.arange(starts.size)
        self._passage, self._length = int(passages[-1]), piece.size - int(starts[-1])

        kept = passages % self._every == 0
        low, passages = np.maximum(starts[kept], 0), passages[kept] // self._every
        lengths = ends[kept] - low
        places = np.arange(lengths.sum()) + np.repeat(low - (np.cumsum(lengths) - lengths), lengths)
        words, passages = piece[places], np.repeat(passages, lengths)
        is_word = words >= 0  # not outside of the vocabulary, nor a break
        self._passages.append(passages[is_word].astype(np.int32))
        self._words.append(words[is_word])

    def matrix(self, num_words: int) -> scipy.sparse.csr_array:
        """Return a matrix with a row for each kept passage that has a word, and a 1 for each word in it."""
        passages = np.concatenate([np.empty(0, np.int32), *self._passages])
        words = np.concatenate([np.empty(0, np.int32), *self._words])
        numbers, rows = np.unique(passages, return_inverse=True)  # without those that hold no word
        ones = np.ones(words.size, np.int8)
        matrix = scipy.sparse.csr_array((ones, (rows, words)), shape=(numbers.size, num_words))
        matrix.sum_duplicates()
        matrix.data[:] = 1
        return matrix
