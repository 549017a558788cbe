"""Choose the words that name a topic: few, telling, and different from each other."""

import unicodedata
from collections.abc import Sequence

# Letters that show nothing: fillers of Hangul, and the empty Braille cell.
_BLANK = frozenset("\u115f\u1160\u3164\uffa0\u2800")
# A word and the same word with so many letters more are forms of one word. Shorter words are no stems.
_ENDING, _STEM = 2, 3


def label(words: Sequence[str], most: int = 3) -> list[int]:
    """Return the places of the words that name a topic best.

    Words of several letters come before single letters, and these before numbers. Punctuation and invisible
    characters never name a topic. A word is left out if it is a form of one before, unless too few are left.

    Args:
      words: the words of a topic, the most important first.
      most: the number of words.

    Example:
      >>> label([",", "film", "films", "s", "1998", "actor", "director"])
      [1, 5, 6]
      >>> label(["2", "x", "!"]), label(["game", "games"])
      ([1, 0], [0, 1])
    """
    kinds = [_kind(word) for word in words]
    order = sorted((place for place in range(len(words)) if kinds[place] < _SILENT), key=kinds.__getitem__)
    chosen: list[int] = []
    spare: list[int] = []
    for place in order:
        form_of_one = any(_same_stem(words[place], words[other]) for other in chosen)
        (spare if form_of_one else chosen).append(place)
        if len(chosen) == most:
            break
    return (chosen + spare)[:most]


_SILENT = 3


def _kind(word: str) -> int:
    """Return 0 for a word, 1 for a letter, 2 for numbers and pictures, _SILENT for what tells nothing."""
    shown = [unicodedata.category(sign) for sign in word if sign not in _BLANK]
    letters = [kind for kind in shown if kind[0] == "L"]
    if len(letters) > 1 or "Lo" in letters:  # one sign of Chinese is a word
        return 0
    if letters:
        return 1
    return 2 if any(kind[0] == "N" or kind == "So" for kind in shown) else _SILENT


def _same_stem(word: str, other: str) -> bool:
    short, long = sorted((word.casefold(), other.casefold()), key=len)
    longer = len(long) - len(short)
    return short == long or (len(short) >= _STEM and longer <= _ENDING and long.startswith(short))
