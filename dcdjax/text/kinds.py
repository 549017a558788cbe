"""Tell from a sample of a text whether its lines are hard-wrapped, and whether blanks separate its words."""

import itertools
import re
from collections.abc import Iterable, Iterator

from dcdjax.text.blocks import CorpusError, Text

# Bytes of a block that are looked at: this many pieces of this size, spread over the block.
_PIECES, _PIECE_BYTES = 8, 32 << 10
# Widths of hard-wrapped lines, in characters.
_WIDTHS = range(30, 201)
# Stands in a sample for what was left out.
_CUT = "\0"
# What makes lines hard-wrapped; see `is_hard_wrapped`. Texts with one document a line reach less than 0.2.
_LEAST_FULL, _LEAST_WRAPPED, _LEAST_LINES, _LEAST_BLANK = 0.4, 0.1, 5, 0.02
# Words a line on average. Lines of code and data have fewer.
_LEAST_WORDS = 3

# Runs of letters, written without blanks between words, that are longer than a word. In text that was split
# into words beforehand there are few of them.
_HAN, _KANA = "\u3005\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff", "\u3041-\u30ff"
_RUNS = {
    "Chinese": re.compile(f"[{_HAN}{_KANA}]{{6,}}"),
    "Thai": re.compile("[\u0e01-\u0e4e]{16,}"),
    "Lao": re.compile("[\u0e81-\u0ece]{16,}"),
    "Khmer": re.compile("[\u1780-\u17d3]{20,}"),
    "Burmese": re.compile("[\u1000-\u109f]{20,}"),
}
_HIRAGANA = re.compile("[\u3041-\u309f]")
# Signs of code or of an address in a word.
_IN_CODE = re.compile(r"[(\[{}=_<>]|\w[.:]\w")
# The share of all letters that stand in such runs, from which on the text must be split by a tokenizer.
_LEAST_SHARE = 0.2
_RECIPES = {
    "Chinese": ("jieba", "import jieba", "tokenizer=jieba.lcut", "jieba:lcut"),
    "Japanese": ("nagisa", "import nagisa", "tokenizer=nagisa.wakati", "nagisa:wakati"),
    "Thai": ("pythainlp", "import pythainlp", "tokenizer=pythainlp.word_tokenize", "pythainlp:word_tokenize"),
}


# The warning about hard-wrapped text.
HARD_WRAPPED = (
    "{name}: the lines are hard-wrapped, so the documents are paragraphs, up to an empty line. To choose, "
    'pass documents="paragraph", "line", "file" or "corpus"'
)


class HardWrappedWarning(UserWarning):
    """Warn that paragraphs of hard-wrapped lines are taken as documents."""


def sample(texts: Iterable[Text]) -> str:
    """Return some whole lines of each block, with empty lines before documents and marks where it is cut."""
    return "".join(part for text in texts for part in _parts(text))


def _parts(text: Text) -> Iterator[str]:
    content, breaks = text.content, set(text.breaks)
    for number in range(_PIECES):
        begin = number * max(_PIECE_BYTES, len(content) // _PIECES)
        end = begin + _PIECE_BYTES
        if begin >= len(content):
            return
        if begin:  # from a whole line on
            begin = content.find(b"\n", begin, end) + 1 or end
        if end < len(content):
            end = content.rfind(b"\n", begin, end) + 1 or end
        marks = [begin, *(mark for mark in text.breaks if begin < mark < end), end]
        for start, stop in itertools.pairwise(marks):
            yield "\n\n" if start in breaks else f"\n{_CUT}\n"
            yield content[start:stop].decode(errors="ignore")


def is_hard_wrapped(text: str) -> bool:
    """Return whether lines end in the middle of sentences because of a largest width.

    Only lines count whose next line begins in lower case. For at least 40 % of them, the first word of the
    next line would not fit. A text with the same number of words in each line looks similar. So the text must
    also have empty lines.
    """
    lines = [line.rstrip() for line in text.strip("\n").expandtabs().split("\n")]
    followed = [pair for pair in itertools.pairwise(lines) if pair[1] and _CUT not in pair]
    pairs = [(line, following) for line, following in followed if line]
    num_blank = len(followed) - len(pairs)
    if len(pairs) < _LEAST_LINES or num_blank < max(1, _LEAST_BLANK * len(lines)):
        return False
    first_words = [(line, following.split(None, 1)[0]) for line, following in pairs]
    going_on = [(line, word) for line, word in first_words if _goes_on(word)]
    if not going_on or sum(len(line.split()) for line, _ in pairs) < _LEAST_WORDS * len(pairs):
        return False
    # Lines of a table, after which no sentence goes on, may be wider, and so may a line with an address.
    lengths = sorted(len(line) for line, _ in going_on)
    width = lengths[int(0.9 * (len(lengths) - 1))]
    if width not in _WIDTHS:
        return False
    num_full = sum(len(line) + 1 + len(word) > width for line, word in going_on)
    return (
        num_full >= _LEAST_LINES
        and num_full >= _LEAST_FULL * len(going_on)
        and num_full >= _LEAST_WRAPPED * len(pairs)
    )


def _goes_on(word: str) -> bool:
    """Return whether a word stands in a sentence: it has no capital, nor any sign of code in it."""
    return word[0].isalpha() and not word[0].isupper() and _IN_CODE.search(word) is None


def check_blanks(text: str, name: str) -> None:
    """Refuse text of a language that is written without blanks between words.

    Args:
      text: sample of a text.
      name: name of its file, for the error.

    Raises:
      CorpusError: with the tokenizer to use.
    """
    if text.isascii():
        return
    runs = {language: "".join(pattern.findall(text)) for language, pattern in _RUNS.items()}
    language, longest = max(runs.items(), key=lambda one: len(one[1]))
    if not longest or len(longest) < _LEAST_SHARE * sum(map(str.isalpha, text)):
        return
    if language == "Chinese" and len(_HIRAGANA.findall(longest)) > _LEAST_SHARE * len(longest):
        language = "Japanese"
    hint = "pass tokenizer=, a function from a line to its words"
    if language in _RECIPES:
        package, imported, option, shell = _RECIPES[language]
        hint = (
            f"split it by a tokenizer, for example: pip install {package}; {imported}; count(..., {option}, "
            f'tokens="words"); in the shell: dcdjax fit ... --tokenizer {shell} --tokens words'
        )
    raise CorpusError(
        f"{name}: {language} has no blanks between words: {hint}. To take what stands between blanks and "
        'punctuation as words all the same, pass tokens="blanks" or a pattern'
    )
