"""Build a corpus of English sentences from the docstrings of Python, NumPy, SciPy and JAX.

It gives a real corpus without a network. No module is imported or run: the source files are parsed, their
docstrings are reduced to words, and each sentence is kept once.
"""

import ast
import hashlib
import importlib.metadata
import importlib.util
import inspect
import platform
import re
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

from dcdjax.util.progress import Progress

PACKAGES = ("numpy", "scipy", "jax")
# Tests are mostly numbers, idlelib is a program, and the last two hold other packages.
_SKIPPED_FOLDERS = {"test", "tests", "internal_test_util", "idlelib", "site-packages", "dist-packages"}

_MIN_WORDS = 4
# With a smaller share of plain words, a "sentence" is a formula, a row of a table or a line of code.
_MIN_PLAIN = 0.7
# Almost every English sentence has one of these words. Python's keywords (for, in, is) are left out, so that
# a line of code does not pass.
_FUNCTION_WORD = re.compile(
    r"an?|the|th(?:is|at|ese|ose|an|ere|ey)|wh(?:ich|en|ere|at)|its?|of|to|by|on|at|into|be|are|was|has|have"
    r"|do|does|can|will|should|must|may|but|so|only|also|any|each|every|all|no|you|we"
)

# A bullet or number, or a label of the lines that follow: `:param x:`, `x (int):`, `x -- `, `f(x) -> `.
_ITEM = r"(?:(?:[-*+•]|\(?(?:\w|\d\d)[.)]|:[\w *]+:(?!`)|[\w.*`'\"]+(?: ?\([^()\n]*\))?(?::| --?| ->)) +)+"
# Patterns and their replacements, for a whole docstring. They remove what is not prose, and set paragraphs
# apart. The order matters: an item of a table or of a listing is not an item of a list.
_LAYOUT = (
    # References end at the next heading.
    (r"^ *references?\n *---+$(?:\n(?!.+\n *---).*)*", "\n"),
    # A heading has a line below it. So has the first row of many tables.
    (r"^.*\n *([^\w\s.])\1\1+$", "\n"),
    # An example or a table ends at the next empty line.
    (r"^ *(?:>>>|\.\.\. |\$ |\||\+-|@|.*::=|\w+ ?\[\d*\]:|[=~-]+ +[=~-]+).*(?:\n.+)*", "\n"),
    # A directive or a double colon begins a listing, which is indented. Notes are prose.
    (r"^( *)\.\. (?:note|warning|seealso|deprecated|version\w+):: *", r"\n\1"),
    (r"^( *)(?:\.\.(?: .*)?|(.*)::)$(?:\n(?:\1 +.*)?$)*", r"\1\2\n"),
    # The other lines of an item are deeper than its first one. The first one gets the same indentation.
    (rf"^( *){_ITEM}(.*)(?:\n(\1 +)(?!{_ITEM}))?", r"\n\3\2 "),
    # NumPy writes `x : type` for a parameter, `f, g : description` for related functions.
    (r"^( *)[\w.`*]+(?:, [\w.`*]+)* : ", r"\n\1"),
)
# Lines of the same indentation. A single line above deeper ones is a label, unless it ends as a sentence.
_PARAGRAPH = re.compile(r"^( *)\S.*$(?:(?:\n\1\S.*)+|(?<=[.!?])|(?!\n\1 ))", re.MULTILINE)
# Patterns and their replacements, for a paragraph.
_MARKUP = (
    # Links, formulas and citations.
    (r"<?(?:https?://|ftp://|www\.)[^\s>`]+>?|:math:`[^`]*`|\$[^$]+\$|\[[\w*#,. -]+\]_?(?=[\s.,;:)]|$)", " "),
    # Code is kept if it reads as words, without its role, its arguments and its target.
    (r"(?::[\w:+-]+:)?(``?)(?:[~!@]?([\w.' -]+)(?:\([^`]*\)|<[^`]*>)?|[^`]+)\1_{0,2}", r"\2"),
    # The dot of an abbreviation does not end a sentence.
    (r"\b(?:e\. ?g|i\. ?e|w\.r\.t|a\.k\.a|etc|cf|vs|al|fig|eqs?|refs?|sec|resp|approx|dr|pp?|vol)\.,?", " "),
    # A call, an indexing or a name with dots is reduced to the last name.
    (r"(?<=\w)\([^()]*\)|(?<=\w)\[[^\[\]]*\]|\b(?:\w+\.)+(?=\w)", ""),
)
_SENTENCE_END = re.compile(r"(?<=[.!?])(?<!\b[A-Z]\.)[)\]\"'*]*\s+")
# Single letters but "a" are variables.
_WORD = re.compile(r"a|(?!.$)[a-z]+(?:['/_-][a-z]+)*")


def build(progress: Progress | None = None) -> str:
    """Build the corpus. An installation always gives the same text.

    Args:
      progress: called as `progress(stage, files done, number of files, "files")`.

    Returns:
      One sentence a line, in lower-case words with a blank between two. The standard library comes first.
      Packages that are not installed are left out.

    Raises:
      RuntimeError: if this installation has no source files.
    """
    files = list(source_files())
    if not files:
        raise RuntimeError("there are no source files of Python, " + ", ".join(PACKAGES))
    lines: dict[str, None] = {}
    for done, file in enumerate(files, start=1):
        for text in documentation(file):
            lines.update(dict.fromkeys(sentences(text)))
        if progress is not None:
            progress("reading documentation", done, len(files), "files")
    return "".join(f"{line}\n" for line in lines)


def fingerprint() -> str:
    """Return 16 hexadecimal digits that identify the text of `build`, without building it.

    They depend on the versions of Python and of the packages, and on this file, as any change of it may
    change the text. A version number raised by hand would be forgotten one day.
    """
    parts = [platform.python_implementation(), platform.python_version()]
    for package in PACKAGES:
        try:
            parts.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            parts.append(f"{package} absent")
    return hashlib.sha256("\n".join(parts).encode() + Path(__file__).read_bytes()).hexdigest()[:16]


def source_files() -> Iterator[Path]:
    """Yield the source files of the standard library, then those of the packages."""
    roots = [Path(sysconfig.get_path("stdlib"))]
    for package in PACKAGES:
        specification = importlib.util.find_spec(package)
        roots += [Path(root) for root in (specification and specification.submodule_search_locations) or ()]
    for root in roots:
        for file in sorted(root.rglob("*.py")):
            if _SKIPPED_FOLDERS.isdisjoint(file.relative_to(root).parts[:-1]):
                yield file


def documentation(file: Path) -> Iterator[str]:
    """Yield strings that are statements, as docstrings are, or belong to a name with "doc" or to `topics`.

    The named ones are docstrings of functions written in C (`add_newdoc("numpy", "array", ...)`), pieces of
    docstrings that are joined at import, and Python's own `topics`.
    """
    try:
        with warnings.catch_warnings(action="ignore"):  # about invalid escapes in the strings
            tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, RecursionError, OSError):  # null bytes are a ValueError to older Pythons
        return
    for node in ast.walk(tree):
        match node:
            case ast.Expr(ast.Constant(str(text))):
                yield text
            case ast.Expr(ast.Call(name) as value) | ast.Assign([name, *_], value):
                if re.search("doc|^topics$", ast.unparse(name), re.IGNORECASE):
                    parts = (part.value for part in ast.walk(value) if isinstance(part, ast.Constant))
                    yield from (part for part in parts if isinstance(part, str))


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a docstring, in lower-case words with a blank between two."""
    text = inspect.cleandoc(text)
    for pattern, replacement in _LAYOUT:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE | re.IGNORECASE)
    for match in _PARAGRAPH.finditer(text):
        paragraph = " ".join(match[0].split())
        for pattern, replacement in _MARKUP:
            paragraph = re.sub(pattern, replacement, paragraph, flags=re.IGNORECASE)
        yield from filter(None, map(_words, _SENTENCE_END.split(paragraph)))


def _words(sentence: str) -> str:
    """Return the words of a sentence in lower case, with a blank between two; "" if it is not a sentence."""
    tokens = [token.strip("\"'`*_.,;:!?()[]{}<>-|\\") for token in sentence.lower().split()]
    plain = [token for token in tokens if _WORD.fullmatch(token)]
    words = [word for token in plain for word in re.split("[/_]", token) if len(word) > 1 or word == "a"]
    # An identifier counts half: a sentence may have some, a line of code consists of them.
    num_plain = sum(0.5 if "_" in token else 1 for token in plain)
    if len(words) < _MIN_WORDS or num_plain < _MIN_PLAIN * sum(map(bool, tokens)):
        return ""
    return " ".join(words) if any(map(_FUNCTION_WORD.fullmatch, tokens)) else ""
