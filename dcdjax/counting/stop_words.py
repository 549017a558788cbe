"""Read the words to leave out: from a list of a language, or from a file."""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dcdjax.util import checks

_INSTALL = "pip install 'dcdjax[stopwords]'"
# From here to the end of the line is a comment: after a blank, so that "c#" is a word.
_COMMENT = re.compile(r"(^|\s)#.*")


@dataclass(frozen=True)
class StopWords:
    """Hold a list of words to leave out.

    Attributes:
      name: a language, or the name of a file.
      words: the words.
    """

    name: str
    words: frozenset[str]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self.words))

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.words

    @property
    def record(self) -> dict[str, Any]:
        """Return the name, the number of words and the SHA-256 of the sorted words, one a line."""
        content = "\n".join(self).encode(errors="surrogatepass")
        return {
            "name": self.name,
            "num_words": len(self.words),
            "sha256": hashlib.sha256(content).hexdigest(),
        }


def load(source: str | os.PathLike[str]) -> StopWords:
    """Read a list of stop words.

    Args:
      source: a language, such as "english", "french" or "german"; or a file with one word a line, in UTF-8.
        What follows a # is a comment. A string with a dot or a slash, and every `pathlib.Path`, is a file.

    Raises:
      ImportError: for a language, if the package with the lists is missing.
      ValueError: if there is no such language, or if the file is wrong. The message names file and line.
      FileNotFoundError: if there is no such file.

    Example:
      >>> english = load("english")
      >>> len(english), "the" in english, "time" in english
      (174, True, False)
    """
    if not isinstance(source, str | os.PathLike):
        raise ValueError(f"a list of stop words is a language or a file, got {source!r}")
    path = os.fspath(source)
    if isinstance(source, os.PathLike) or "." in path or "/" in path or os.sep in path:
        return StopWords(Path(path).name, _words_of_file(Path(path)))
    return StopWords(source, _words_of_language(source))


def resolve(drop: Any) -> tuple[frozenset[str], frozenset[str], list[dict[str, Any]]]:
    """Check the option `drop` of `count`, and read its lists.

    Args:
      drop: as `count` takes it.

    Returns:
      All words to leave out; those that were passed one by one; and the record of each list.
    """
    items = [drop] if isinstance(drop, str | os.PathLike | StopWords) else drop
    if not isinstance(items, Iterable):
        raise ValueError(f"drop must be a collection of words, a language or a file, got {drop!r}")
    single: set[str] = set()
    lists: list[StopWords] = []
    for item in items:
        if isinstance(item, StopWords):
            lists.append(item)
        elif isinstance(item, os.PathLike) or isinstance(drop, str):
            lists.append(load(item))
        elif isinstance(item, str):
            single.add(str(item))
        else:
            raise ValueError(f"drop must be a collection of words, got one with {item!r} in it")
    dropped = frozenset(single).union(*(one.words for one in lists))
    records = {one: one.record for one in lists}  # a list that is given twice counts once
    return dropped, frozenset(single), list(records.values())


def _words_of_language(language: str) -> frozenset[str]:
    try:
        import stop_words as library
    except ImportError:
        raise ImportError(
            f"drop: the list of stop words {language!r} needs the package stop-words: {_INSTALL} (to leave "
            f"out one word, pass [{language!r}], in the shell --drop {language}; to read a file, pass a "
            f"pathlib.Path or './{language}')"
        ) from None
    languages = sorted(library.AVAILABLE_LANGUAGES)
    if language not in languages:
        raise ValueError(
            f"drop: there is no list of stop words {language!r}{checks.did_you_mean(language, languages)} "
            f"(to leave out one word, pass [{language!r}], in the shell --drop {language}; to read a file, "
            f"pass a pathlib.Path or './{language}'; there are lists for {', '.join(languages)})"
        )
    return frozenset(filter(None, library.get_stop_words(language, cache=False)))


def _words_of_file(path: Path) -> frozenset[str]:
    if not path.exists():
        raise FileNotFoundError(f"drop: no such file with words to leave out: {path}")
    words: set[str] = set()
    for number, line in enumerate(path.read_bytes().removeprefix(b"\xef\xbb\xbf").splitlines(), 1):
        try:
            found = _COMMENT.sub("", line.decode()).split()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}: line {number} is not UTF-8: byte 0x{line[error.start]:02x}, {error.reason}"
            ) from None
        if len(found) > 1:
            raise ValueError(
                f"{path}: line {number} has {len(found)} words, expected one: {' '.join(found)!r}"
            )
        words.update(found)
    if not words:
        raise ValueError(f"{path}: the file has no word to leave out")
    return frozenset(words)
