"""The words of several languages, and texts as people have them."""

# ruff: noqa: RUF001, characters of many languages

import unicodedata
from itertools import chain
from typing import Any

import pytest
import text_oracle
from hypothesis import example, given
from hypothesis import strategies as st

from dcdjax import count
from dcdjax.text import blocks as text_blocks
from dcdjax.text import tokens
from dcdjax.text.blocks import CorpusError
from dcdjax.text.words import words_of


def words(text, **options):
    blocks = tokens.read([text], **options)
    return [block.words[code] for block in blocks for code in block.codes.tolist()]


TEXTS = {
    "English": (
        "\ufeffDon\u2019t panic: the well-known King's men (mother-in-law) said \u201cIt\u2019s 3 o'clock!",
        "don't panic the well-known king men mother-in-law said it o'clock",
    ),
    "French": (
        "L\u2019État, c'est moi; qu'il s'agisse d'œuvres ou d'aujourd'hui, l'élève n'y est pas.",
        "état est moi qu il agisse œuvres ou aujourd'hui élève est pas",
    ),
    "Italian": ("L'arte dell'antica Roma: un po' d'acqua, com'è?", "arte dell antica roma un po acqua com"),
    "German": ("Die Straße – „schöne Grüße“ – über 100km/h.", "die straße schöne grüße über"),
    "Greek": ("Ο ΟΔΥΣΣΕΥΣ, ο πολύτροπος· γύρισε;", "οδυσσευς πολύτροπος γύρισε"),
    "Russian": ("Всё смешалось в доме Облонских… Да-да!", "всё смешалось доме облонских да-да"),
    "Ukrainian": ("Моє м\u2019ясо, твоє м'ясо", "моє м'ясо твоє м'ясо"),
    "Hindi": ("हिन्दी विश्व की भाषाओं में है। संख्या १२३", "हिन्दी विश्व की भाषाओं में है संख्या"),
    "Arabic": ("العَرَبِيّة لغةٌ جميلة، و كـتاب؟", "العَرَبِيّة لغةٌ جميلة و كتاب"),
    "Persian": ("می\u200cخواهم کتاب", "میخواهم کتاب"),
    "Hebrew": ("צה\u05f4ל הודיע, שלום-רב", "צה\u05f4ל הודיע שלום-רב"),
    "Vietnamese": ("Tiếng Việt được viết bằng chữ Quốc ngữ.", "tiếng việt được viết bằng chữ quốc ngữ"),
    "Korean": ("그 한국어는 띄어쓰기를 한다.", "그 한국어는 띄어쓰기를 한다"),
    "Tamil": ("தமிழ் மொழி", "தமிழ் மொழி"),
    "Turkish": ("Ankara\u2019da ILIK su", "ankara'da ilik su"),
}


@pytest.mark.parametrize("language", TEXTS)
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_words_of_languages(language, form):
    text, expected = TEXTS[language]
    assert words(unicodedata.normalize(form, text)) == unicodedata.normalize("NFC", expected).split()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("snake_case __init__ max-words --help", "snake case init max-words help"),
        ("https://example.org/some_page?c=d (see http://x.org/), www.python.org. Ftp://a/b", "see"),
        (
            "[the docs](https://docs.python.org/3/) <https://a.org> a@b.org <Jane.Doe@mail.example.org>",
            "the docs",
        ),
        ("<unk> = = Title = = @-@ @,@ <br/>line</p> &quot;said&quot; AT&T", "title line said at"),
        (
            'the <a href="http://a.org/b" class="c d">page</a>; a < bee and cee > d = e',
            "the page bee and cee",
        ),
        ('&lt;FONT face="verdana, arial" size="-2"&gt;&lt;B&gt;by Rob&lt;/B&gt;&lt;/FONT&gt;', "by rob"),
        (
            "zero\u200bwidth soft\u00adhyphen joined\u2060word \u200e\u200f",
            "zero width softhyphen joinedword",
        ),
        ("1,000 3.14 2nd 1990s 0x1f \u00bd \u2167 \u2460 x\u00b2y 5-year-old", "x\u00b2y year-old"),
        ("mp3 utf8 word2vec covid-19 F-16", "mp3 utf8 word2vec covid"),
        ("a I x \u00e9 \u0436 O", ""),
        ("... -- ' '' '- -' _ * 😀 \u2764\ufe0f \u0301", ""),
        ("non\u2011breaking well\u2010known d\u2019", "non-breaking well-known"),
        ("\u2018quoted\u2019 'tis the kings' rock'n'roll", "quoted tis the kings rock'n'roll"),
    ],
)
def test_what_is_no_word(text, expected):
    assert words(text) == expected.split()


def test_capitals_are_kept_on_request():
    assert words("The KING'S \u00c9tat, iPhone", lowercase=False) == ["The", "KING", "\u00c9tat", "iPhone"]


ALPHABET = (
    "abS's'\u2019\u02bc.,-\u2010_ 1\u00b2\u2167<>/&;:@w.\n\u00e9\u00c9\u0301\u0338\u0307I\u0130\u03a3\u03c3"
    "\u212a\u0431\u0416\u0939\u093f\u094d\u0628\u064e\u0640\ud55c\u200b\u200c\u200d\ufe0f\u00ad\ufeff\u00a0\u3000"
    "\u05f4\u00b7\u01f0J\u030c😀"
)
PIECES = ["l'", "qu'", "http://", "www.", "<unk>", "&amp;", "a@b.c", "dell'", "--", "\u2019s ", "ok"]
some_text = st.lists(st.sampled_from([*ALPHABET, *PIECES]), max_size=40).map("".join)


@given(some_text, st.booleans(), st.sampled_from([20, 1 << 20]))
@example("a\u0338 <b\u0338> =\u0338c", True, 20)
def test_words_are_those_of_a_simple_splitter(text, lowercase, block_bytes):
    expected = text_oracle.split([text], "line", lambda line: text_oracle.words(line, lowercase))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_blocks, "BLOCK_BYTES", block_bytes)
        blocks = list(tokens.read([text], lowercase=lowercase, documents="line"))
    assert [block.words[code] for block in blocks for code in block.codes] == list(chain(*expected))


@given(some_text, st.booleans())
@example("J\u030cab", True)  # in lower case, these two combine
def test_composed_or_not_is_the_same(text, lowercase):
    forms = [words(unicodedata.normalize(form, text), lowercase=lowercase) for form in ("NFC", "NFD")]
    assert forms[0] == forms[1]
    assert all(unicodedata.is_normalized("NFC", word) for word in forms[0])


@given(st.text(max_size=40))
def test_any_text(text):
    text = text.encode(errors="ignore").decode()
    assert words(text, documents="file") == text_oracle.words(text, True)
    assert not any(set(word) & set(" \t\n_.,;:!?\u200b\ufeff") or word[0].isdigit() for word in words(text))


@pytest.mark.parametrize(
    "text", ["@" + "x" * 30_000, "x" * 30_000 + "@", "a." * 30_000, "<a" * 30_000, "l'a" * 30_000]
)
def test_long_pieces_take_no_quadratic_time(text):
    words_of(text, lowercase=True)


# --- Languages without blanks -----------------------------------------------------------------------

NO_BLANKS = {
    "Chinese": "自然语言处理是人工智能的一个重要方向,研究人与计算机之间如何用自然语言进行有效通信。",
    "Japanese": "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。",
    "Thai": "ภาษาไทยเป็นภาษาที่เขียนโดยไม่เว้นวรรคระหว่างคำ",
    "Lao": "ພາສາລາວເປັນພາສາທີ່ຂຽນໂດຍບໍ່ມີຍະຫວ່າງ",
    "Khmer": "ភាសាខ្មែរត្រូវបានសរសេរដោយគ្មានដកឃ្លារវាងពាក្យ",
    "Burmese": "မြန်မာဘာသာစကားသည်မြန်မာနိုင်ငံ၏ရုံးသုံးဘာသာစကားဖြစ်သည်",
}


@pytest.mark.parametrize("language", NO_BLANKS)
def test_languages_without_blanks_are_refused_with_a_recipe(tmp_path, language):
    path = tmp_path / "text.txt"
    path.write_text("Title: example\n" + (NO_BLANKS[language] + "\n") * 5)
    with pytest.raises(CorpusError, match=rf"text\.txt: {language} has no blanks between words: .*tokenizer"):
        count(path)
    known = {"Chinese": "jieba.lcut", "Japanese": "nagisa.wakati", "Thai": "pythainlp.word_tokenize"}
    with pytest.raises(CorpusError, match=known.get(language, "a function from a line to its words")):
        count([NO_BLANKS[language]])
    several: list[dict[str, Any]] = [{"tokens": "blanks"}, {"pattern": r"\w"}, {"tokenizer": list}]
    for options in several:
        assert count(path, **options).words


def test_languages_without_blanks_are_taken_if_they_have_some():
    chinese = "自然 语言 处理 是 人工智能 的 一个 重要 方向"
    japanese = "吾輩 は 猫 で ある 。 コンピュータ の 名前 は まだ 無い"
    thai = "ภาษา ไทย เป็น ภาษา ที่ เขียน โดย ไม่ เว้นวรรค"
    assert "人工智能" in count([chinese, japanese, thai]).words
    assert (
        "english"
        in count([f"An English text that quotes some Chinese: {NO_BLANKS['Chinese'][:7]} " * 3]).words
    )


def test_words_of_a_tokenizer():
    line = "我,爱 2 x"
    assert set(count([line], tokenizer=list).words) == set(line)
    assert set(count([line], tokenizer=list, tokens="words").words) == {"我", "爱", "x"}


# --- Lists of tokens ----------------------------------------------------------------------------------


def test_a_list_of_texts_is_not_taken_for_words():
    with pytest.raises(
        CorpusError, match=r"item 1 .* the word 'a longer text' has blanks.* tokens=\"blanks\""
    ):
        count([("title", "text"), ("second", "a longer text")])
    with pytest.raises(CorpusError, match=r"the word 'x{60}\.\.\.' has blanks"):
        count([["x" * 100 + "\ny"]])


def test_tokens_with_blanks_are_possible():
    assert count([["new york", "Is", "big"]], tokens="blanks").words == ("Is", "big", "new york")
    assert count([["a\u00a0b"]], tokens="blanks").words == ("a\u00a0b",)


def test_lists_are_taken_as_they_are():
    assert count([["The", "\n", "U.S.", ",", "a", "", " "]]).words == (",", "The", "U.S.", "a")
    assert count([["The", "THE"]], lowercase=True).words == ("the",)
    assert count(["The text", ["The"]], documents="corpus").words == ("The", "text", "the")
    many = [["rare"], ["usual", "words"] * 50_000]
    assert count(many).settings["min_count"] == 1


# --- Settings -------------------------------------------------------------------------------------------


def test_the_least_count_grows_with_the_text():
    for num_lines, least in ((10, 1), (25_000, 2), (60_000, 5)):
        counts = count(["tea cup\nship\n" + "usual words\n" * num_lines], window=1)
        assert counts.settings["min_count"] == least
        assert ("tea" in counts.words) == (least == 1)
        assert counts.vocabulary.num_different == 5
    assert "tea" in count(["tea " + "usual words " * 25_000], min_count=1, window=1).words


def test_settings_say_what_was_used():
    chosen = ("documents", "tokens", "lowercase", "min_count")

    def used(source, **options):
        settings = count(source, **options).settings
        return tuple(settings[name] for name in chosen)

    assert used(["Tea cup"]) == ("line", "words", True, 1)
    assert used(["Tea cup"], tokens="blanks", documents="file", min_count=1) == ("file", "blanks", False, 1)
    assert used(["Tea cup"], pattern=r"\w+") == ("line", None, False, 1)
    assert used(["Tea cup"], tokenizer=str.split) == ("line", None, False, 1)
    assert used(["Tea cup"], lowercase=False) == ("line", "words", False, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokens": "letters"}, "tokens must be one of"),
        ({"tokens": "words", "pattern": "x"}, 'pattern cannot be combined with tokens="words"'),
        ({"min_count": 0}, "min_count must be at least 1"),
        (
            {"min_count": 3},
            "no word is left of 2 different words in the corpus, 2 tokens in all, with min_count=3",
        ),
    ],
)
def test_bad_options(unchecked_annotations, options, message):
    with pytest.raises(ValueError, match=message):
        count(["tea cup"], **options)


def test_text_without_words():
    with pytest.raises(CorpusError, match=r"no token that is a word: .* single letters .* tokens=\"blanks\""):
        count(["a b 1 2 ..."])
