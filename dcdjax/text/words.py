"""Find the words in text of any language that writes blanks between words."""

import re
import unicodedata
from functools import cache

# Marks around a piece of text that do not change its words.
OUTER_MARKS = ".,;:!?()[]{}\"'`*~|+^$%#=_-\\"
# Web and mail addresses, tags such as <br/> or <unk>, and entities such as &amp;. The lookbehinds keep the
# search linear in the length of the text.
_NO_WORDS = re.compile(
    r"(?<![a-z0-9+.-])(?:[a-z][a-z0-9+.-]*://|www\.(?=\w))[^\s<>\"]+|(?<![\w.+-])[\w.+-]+@[\w-]+\.[\w.-]+"
    r"|<[a-z/!?][^<>\s]*>|&lt;[a-z/!?][^<>\s&]*&gt;|&(?:[a-z]+|#\w+);",
    re.IGNORECASE,
)
_MAY_HAVE_NO_WORDS = re.compile("://|[@<&]|www", re.IGNORECASE)
# A tag with an attribute, such as <a href="...">, also if its brackets are entities. The bounds keep
# the search linear in the length of the text.
_TAG = re.compile(rb"(?:<|&lt;)[A-Za-z][A-Za-z0-9:]{0,20}[ \t][^<>=\r\n]{0,200}=[^<>\r\n]{0,400}?(?:>|&gt;)")
# French, Italian and Catalan words that lose their last vowel if the next word begins with one.
_ELIDED = re.compile(
    "[cdjlmnstv]|(?:jus|lors|puis|quoi)?qu|un|(?:d[ae]|ne|su|co|que|be|a)ll|(?:d[ae]|ne|su|a)?gl|sant|quest"
    "|(?:ness|ciasc|alc|qualc)un|tutt|mezz|senz|anch|com|dov|cos|quand",
    re.IGNORECASE,
)
_VOWELS = frozenset("aeiouyhœæ")
# Everything that combines with a letter and everything of no width is below these ends.
_COMBINING = (range(0x300, 0x20000), range(0xE0000, 0xE0200))
_VARIATION_SELECTORS = (range(0x180B, 0x1810), range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0))


@cache
def _patterns() -> tuple[re.Pattern[str], dict[int, str | None]]:
    r"""Return the pattern of a word, and what to do with some characters before it is searched.

    The pattern has the combining marks, which `\w` leaves out: they are vowels in India and in Arabic.
    """
    replaced: dict[int, str | None] = {}
    marks = []
    for code in (code for codes in _COMBINING for code in codes):
        category = unicodedata.category(chr(code))
        if category[0] == "M":
            marks.append(chr(code))
        elif category == "Cf":  # joiners, directions, byte order marks
            replaced[code] = None
    replaced |= {code: None for codes in _VARIATION_SELECTORS for code in codes}
    # A soft hyphen and Arabic's stretching are no letters. A space of no width separates words.
    replaced |= {0xAD: None, 0x640: None, 0x200B: " "}
    replaced |= dict.fromkeys(map(ord, "\u2019\u02bc"), "'") | dict.fromkeys(map(ord, "\u2010\u2011"), "-")
    part = rf"[^\W\d_][\w{''.join(marks)}]*"
    # The last three joiners are of Catalan and Hebrew.
    return re.compile(rf"(?<!\w){part}(?:['\-\u00b7\u05f3\u05f4]{part})*"), replaced


def blank_tags(content: bytes) -> bytes:
    """Replace tags with attributes, which have blanks, by as many blanks. All offsets remain.

    Example:
      >>> blank_tags(b'the <a href="x.html">page</a>, if a < b and b > c')
      b'the                  page</a>, if a < b and b > c'
    """
    if b"<" not in content and b"&lt;" not in content:
        return content
    return _TAG.sub(lambda found: b" " * len(found[0]), content)


def normalized(text: str) -> str:
    """Return text with its letters, apostrophes and hyphens as `words_of` returns them.

    Example:
      >>> normalized("don\u2019t e\u0301cole")
      "don't école"
    """
    return unicodedata.normalize("NFC", text.translate(_patterns()[1]))


def words_of(text: str, lowercase: bool) -> list[str]:
    r"""Return the words of a piece of text that stood between two blanks.

    A word has letters, the marks on them, and digits after them. Apostrophes and hyphens between letters
    belong to it. An elided word is separated from the next word: qu'il gives qu and il. Single letters of
    alphabets with capitals are left out, so l'homme gives homme. The English possessive is removed: king's
    gives king. Numbers and ordinals are no words, nor are addresses of the web and of mail, tags such as
    <br/>, and entities such as &amp;.
    Words are in NFC, with ' for every apostrophe and - for every hyphen, and without characters of no width.

    Example:
      >>> words_of("(L'\u00c9tat's_well\u2010known,mp3/2nd:don\u2019t", lowercase=True)
      ['état', 'well-known', 'mp3', "don't"]
    """
    if len(text) > 1 and text.isalpha() and "\u02bc" not in text and "\u0640" not in text:
        words = [unicodedata.normalize("NFC", text)]
    else:
        pattern, _ = _patterns()
        if not text.isascii():
            text = normalized(text)
        if _MAY_HAVE_NO_WORDS.search(text):
            text = _NO_WORDS.sub(" ", text)
        words = pattern.findall(text.replace("_", " "))
        if "'" in text:
            words = [part for word in words for part in _without_elisions(word)]
    if lowercase:
        words = [word.lower() for word in words]
        if not text.isascii():  # some letters in lower case combine with the mark that follows
            words = [unicodedata.normalize("NFC", word) for word in words]
    return [word for word in words if _is_word(word)]


def _without_elisions(word: str) -> list[str]:
    parts, rest = [], word
    while "'" in rest:
        elided, following = rest.split("'", 1)
        first = unicodedata.normalize("NFD", following[0].lower())[0]
        if not _ELIDED.fullmatch(elided) or first not in _VOWELS:
            break
        parts.append(elided)
        rest = following
    return [*parts, rest[:-2] if rest[-2:] in ("'s", "'S") else rest]


def _is_word(word: str) -> bool:
    if len(word) == 1:
        return unicodedata.category(word) == "Lo"
    return word[0].isalpha()  # not a Roman numeral or a digit in a circle
