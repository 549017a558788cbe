"""From text to counts once more, word by word in plain Python, independent of the package."""

import re
import unicodedata
from collections import Counter
from fractions import Fraction
from itertools import pairwise

import numpy as np


def split(texts, documents="line", tokens_of=str.split):
    """Documents of tokens; a text is what a file or an item holds."""
    if documents == "line":
        return [tokens_of(line) for text in texts for line in text.split("\n")]
    if documents == "paragraph":
        return [tokens for text in texts for tokens in paragraphs(text, tokens_of)]
    files = [[token for line in text.split("\n") for token in tokens_of(line)] for text in texts]
    return files if documents == "file" else [[token for file in files for token in file]]


def paragraphs(text, tokens_of):
    """Lines without anything but ASCII blanks are between paragraphs."""
    found = [[]]
    for line in text.split("\n"):
        if line.strip("\t\n\v\f\r "):
            found[-1] += tokens_of(line)
        else:
            found.append([])
    return found


def most_frequent(documents, max_words=None, min_count=1, drop=()):
    counts = Counter(token for tokens in documents for token in tokens)
    ranked = sorted(
        (-count, word) for word, count in counts.items() if count >= min_count and word not in drop
    )
    return [word for _, word in ranked][:max_words], [-count for count, _ in ranked][:max_words]


def weight(kind, distance, window):
    return {
        "flat": Fraction(1),
        "linear": Fraction(window - distance + 1, window),
        "harmonic": Fraction(1, distance),
    }[kind]


def pair_counts(documents, words, window, kind="flat", outside="keep"):
    number = {word: n for n, word in enumerate(words)}
    sums = Counter()
    for tokens in documents:
        if outside == "drop":
            tokens = [token for token in tokens if token in number]
        for here, first in enumerate(tokens):
            for there in range(max(0, here - window), min(len(tokens), here + window + 1)):
                if here != there and first in number and tokens[there] in number:
                    pair = number[first], number[tokens[there]]
                    sums[pair] += weight(kind, abs(here - there), window)
    dense = np.zeros((len(words), len(words)))
    for pair, total in sums.items():
        dense[pair] = float(total)
    return dense


def join(tokens, phrases):
    """At each place the longest phrase, from left to right."""
    phrases = [tuple(phrase.split(" ")) for phrase in phrases]
    beginning = {token: [words for words in phrases if words[0] == token] for token in set(tokens)}
    result, at = [], 0
    while at < len(tokens):
        fitting = [words for words in beginning[tokens[at]] if tuple(tokens[at : at + len(words)]) == words]
        words = max(fitting, key=len, default=(tokens[at],))
        result.append(" ".join(words))
        at += len(words)
    return result


def phrases(documents, max_words=None, min_count=1, drop=(), least_count=10, least_npmi=0.5):
    """The phrases of two and three words, found by counting in plain Python; and what is left of them."""
    words, counts = most_frequent(documents, max_words, min_count, drop)
    kept, least = set(words), max(least_count, min_count, counts[-1] if len(words) == max_words else 0)
    proper = {word: n for word, n in zip(words, counts, strict=True) if any(map(str.isalnum, word))}
    total = sum(proper.values())
    has_function_words = len(words) > 100 and sum(sorted(proper.values())[-10:]) > total / 6
    never = {word for word, n in proper.items() if n > total / 200 and has_function_words}
    frequent = {word for word, n in proper.items() if n > total / 1000 and has_function_words}
    found = []
    for length in (2, 3):
        joined = [join(tokens, found) for tokens in documents]
        known = [[token for token in tokens if set(token.split(" ")) <= kept] for tokens in joined]
        single = Counter(token for tokens in known for token in tokens)
        total = sum(single.values())
        pairs = Counter(
            pair for tokens in joined for pair in pairwise(tokens) if pair[0] in single and pair[1] in single
        )
        for (one, other), count in sorted(pairs.items()):
            if len(f"{one} {other}".split(" ")) != length or count < least:
                continue
            p = count / total
            npmi = np.log(count * total / (single[one] * single[other])) / -np.log(p)
            if (
                npmi >= least_npmi
                and any(map(str.isalpha, one.split(" ")[0]))
                and any(map(str.isalnum, other.split(" ")[-1]))
                and not {one.split(" ")[0], other.split(" ")[-1]} & never
                and not ({one, other} & frequent and count < min(single[one], single[other]) / 2)
            ):
                found.append(f"{one} {other}")
    while True:
        joined = [join(tokens, found) for tokens in documents]
        times = Counter(token for tokens in joined for token in tokens)
        vocabulary, _ = most_frequent(joined, max_words, min_count, drop)
        left = [phrase for phrase in found if times[phrase] >= least]
        if left == found:
            left = [phrase for phrase in found if phrase in vocabulary]
        if len(left) == len(found):
            return found, joined, times
        found = left


_JOINERS = "'-\u00b7\u05f3\u05f4"
_ELIDED = [
    *"cdjlmnstv", "qu", "jusqu", "lorsqu", "puisqu", "quoiqu", "un", "dall", "dell", "nell", "sull", "coll",
    "quell", "bell", "all", "dagl", "degl", "negl", "sugl", "agl", "gl", "sant", "quest", "nessun", "ciascun",
    "alcun", "qualcun", "tutt", "mezz", "senz", "anch", "com", "dov", "cos", "quand",
]  # fmt: skip


def words(text, lowercase):
    """The words of a text, one character after the other."""
    found = []
    tag = r"(?:<|&lt;)[a-zA-Z][a-zA-Z0-9:]{0,20}[ \t][^<>=\r\n]{0,200}=[^<>\r\n]{0,400}?(?:>|&gt;)"
    for piece in re.split("[\t\n\v\f\r ]+", re.sub(tag, " ", text)):
        piece = unicodedata.normalize("NFC", "".join(map(_plain, piece)))
        for no_word in (
            r"(?<![a-z0-9+.-])(?:[a-z][a-z0-9+.-]*://|www\.(?=\w))[^\s<>\"]+"
            r"|(?<![\w.+-])[\w.+-]+@[\w-]+\.[\w.-]+|<[a-z/!?][^<>\s]*>|&lt;[a-z/!?][^<>\s&]*&gt;|&(?:[a-z]+|#\w+);",
        ):
            piece = re.sub(no_word, " ", piece, flags=re.I)
        found += [word for run in _runs(piece) for word in _parts(run)]
    if lowercase:
        found = [unicodedata.normalize("NFC", word.lower()) for word in found]
    return [word for word in found if len(word) > 1 or unicodedata.category(word) == "Lo"]


def _plain(character):
    if character in "\u2019\u02bc":
        return "'"
    if character in "\u2010\u2011":
        return "-"
    if character == "\u200b":
        return " "
    selector = "VARIATION SELECTOR" in unicodedata.name(character, "")
    dropped = selector or character == "\u0640" or unicodedata.category(character) == "Cf"
    return "" if dropped else character


def _runs(piece):
    """Letters with their marks and digits, joined by a single apostrophe or the like before a letter."""
    runs, run, after_number = [], "", False
    for place, character in enumerate(piece):
        following = piece[place + 1 : place + 2]
        joins = character in _JOINERS and following and _is_letter(following)
        if run and (joins or character.isalnum() or unicodedata.category(character)[0] == "M"):
            run += character
        elif not run and _is_letter(character) and not after_number:
            run = character
        else:
            runs, run = [*runs, run], ""
        after_number = not run and character.isalnum()
    return [run for run in [*runs, run] if run and run[0].isalpha()]


def _is_letter(character):
    return character.isalnum() and unicodedata.category(character) != "Nd"


def _parts(word):
    while "'" in word:
        elided, rest = word.split("'", 1)
        vowel = unicodedata.normalize("NFD", rest[0])[0].lower() in "aeiouyhœæ"
        if elided.lower() not in _ELIDED or not vowel:
            break
        yield elided
        word = rest
    yield word[:-2] if word.endswith(("'s", "'S")) else word
