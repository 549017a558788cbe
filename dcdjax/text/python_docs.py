"""Build a corpus of English sentences from the docstrings of Python, NumPy, SciPy and JAX.

It gives a real corpus without a network. No module is imported or run: the source files are parsed, their
docstrings are reduced to words, and each sentence is kept once.
"""

import ast
import hashlib
import importlib.metadata
import importlib.util
import inspect
import itertools
import math
import platform
import re
import sysconfig
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from dcdjax.util.progress import Progress

_PACKAGES = ("numpy", "scipy", "jax")
# Tests are mostly numbers, idlelib is a program, and the last two hold other packages.
_SKIPPED_FOLDERS = {"test", "tests", "internal_test_util", "idlelib", "site-packages", "dist-packages"}

_MIN_WORDS = 4
# With a smaller share of plain words, a "sentence" is a formula, a row of a table or a line of code.
_MIN_PLAIN = 0.7
# Almost every English sentence has one of these words. Python's keywords (for, in, is) are left out, so that
# a line of code does not pass.
_FUNCTION_WORD = re.compile(
    r"an?|the|th(?:is|at|ese|ose|an|en|ere|eir|ey)|wh(?:ich|en|ere|o|at)|how|its?|of|to|by|on|at|into|be|been"
    r"|are|was|were|ha[sd]|have|do|does|can|could|will|would|should|must|may|might|but|so|such|only|also|any"
    r"|each|every|all|no|some|you|we|your|our|one|more|most|other|same|between|through|over"
)
_REFERENCES = {"references", "reference", "bibliography"}

_DIRECTIVE = re.compile(r"\.\.(?: |$)")
_PROSE_DIRECTIVE = re.compile(
    r"\.\. (?:admonition|attention|caution|deprecated|hint|important|note|seealso|tip|version\w+|warning):: *"
)
_UNDERLINE = re.compile(r"([^\w\s.])\1{2,}")
# The first line of an example or of a table.
_BLOCK = re.compile(
    r">>>|\.\.\. |\.\.\.$|\$ |\||@\w|(?:In|Out) ?\[\d*\]:|.*::=|[=~-]{2,}(?: +[=~-]{2,})+$|\+[-=+]+\+$"
)
_BULLET = re.compile(r"(?:[-*+•]|\(?(?:\d{1,2}|[a-z]|#)[.)]) +")
# Labels before a description: `:param x:`, `x (int):`, `x -- `, `f(x) -> `, and in See Also `f, g : `.
_LABEL = re.compile(
    r":(?!\w+:`)[\w *]+:(?: +|$)"
    r"|\*{0,2}`{0,2}[A-Za-z_][\w.]*`{0,2}(?: ?\([^()]*\))?(?:: +| --? | -> )"
    r"|[\w.`]+(?:, [\w.`]+)* : "
)

_WORD = re.compile(r"[a-z]+(?:['-][a-z]+)*")
_IDENTIFIER = re.compile(r"[~!@]?(?:\w+\.)*(\w+)(?:\(.*\))?")
_SENTENCE_END = re.compile(r"(?<=[.!?])(?<!\b[A-Z]\.)[)\]\"'*]*\s+")


def _code(match: re.Match[str]) -> str:
    """Keep text marked as code or as a link if it reads as words."""
    content = re.sub(r"\s*<[^>]*>$", "", match[1])
    if identifier := _IDENTIFIER.fullmatch(content):
        return identifier[1]
    return content if re.fullmatch(r"[A-Za-z' -]+", content) and match[0][:2] != "``" else " "


_INLINE: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"<?(?:https?|ftp)://[^\s>`]+>?|\bwww\.[^\s>`]+"), " "),
    (re.compile(r":math:`[^`]*`|\$[^$]+\$|\[[\w*#,. -]+\]_?(?=[\s.,;:)]|$)"), " "),
    (re.compile(r"``(.+?)``"), _code),
    (re.compile(r"(?::[\w:+-]+:)?`([^`]+)`_{0,2}"), _code),
    (re.compile(r"\b(?:e\. ?g|i\. ?e|w\.r\.t|a\.k\.a)\b\.?,?", re.IGNORECASE), " "),
    (re.compile(r"\b(etc|cf|vs|al|fig|eqs?|refs?|sec|resp|approx|dr|pp?|vol|ch)\.", re.IGNORECASE), r"\1"),
    # A call or an indexing inside a sentence is reduced to the name.
    (re.compile(r"(?<=\w)\([^()]*\)|(?<=\w)\[[^\[\]]*\]"), ""),
)


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
    files = list(_source_files())
    if not files:
        raise RuntimeError("there are no source files of Python, " + ", ".join(_PACKAGES))
    sentences: dict[str, None] = {}
    for done, file in enumerate(files, start=1):
        for text in _documentation(file):
            sentences.update(dict.fromkeys(_sentences(text)))
        if progress is not None:
            progress("reading documentation", done, len(files), "files")
    return "".join(f"{sentence}\n" for sentence in sentences)


def fingerprint() -> str:
    """Return 16 hexadecimal digits that identify the text of `build`, without building it.

    They depend on the versions of Python and of the packages, and on this file, as any change of it may
    change the text. A version number raised by hand would be forgotten one day.
    """
    parts = [platform.python_implementation(), platform.python_version()]
    for package in _PACKAGES:
        try:
            parts.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            parts.append(f"{package} absent")
    digest = hashlib.sha256("\n".join(parts).encode())
    digest.update(Path(__file__).read_bytes())
    return digest.hexdigest()[:16]


def _source_files() -> Iterator[Path]:
    roots = [Path(sysconfig.get_path("stdlib"))]
    for package in _PACKAGES:
        specification = importlib.util.find_spec(package)
        roots += [Path(root) for root in (specification and specification.submodule_search_locations) or ()]
    for root in roots:
        for file in sorted(root.rglob("*.py")):
            if _SKIPPED_FOLDERS.isdisjoint(file.relative_to(root).parts[:-1]):
                yield file


def _documentation(file: Path) -> Iterator[str]:
    """Yield strings that are statements, as docstrings are, or belong to a name with "doc" or to `topics`.

    The named ones are docstrings of functions written in C (`add_newdoc("numpy", "array", ...)`), pieces of
    docstrings that are joined at import, and Python's own `topics`.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about invalid escapes in the strings
            tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, RecursionError, OSError):  # null bytes are a ValueError to older Pythons
        return
    statements = (node for node in ast.walk(tree) if isinstance(node, ast.Expr | ast.Assign))
    for node in sorted(statements, key=lambda node: node.lineno):
        match node:
            case ast.Expr(ast.Constant() as value):
                name = "docstring"
            case ast.Expr(ast.Call(func) as value):
                name = ast.unparse(func)
            case ast.Assign([target, *_], value):
                name = ast.unparse(target)
            case _:
                continue
        if "doc" in name.lower() or name == "topics":
            for part in ast.walk(value):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value


def _prose_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield indentation and content of lines outside of headings, listings, tables and references."""
    lines = [*(line.rstrip() for line in inspect.cleandoc(text).splitlines()), ""]
    listing = math.inf  # lines indented deeper than this belong to a listing
    block = references = False  # a block ends with an empty line, the references with the next heading
    for line, below in itertools.pairwise(lines):
        content = line.lstrip()
        indent = len(line) - len(content)
        if content and indent > listing:
            continue
        block = block and content != ""
        listing = math.inf if content else listing
        if _UNDERLINE.fullmatch(below.strip()):
            references = content.lower() in _REFERENCES
            yield 0, ""
        elif not content or block or references or _UNDERLINE.fullmatch(content):
            yield 0, ""
        elif _BLOCK.match(content):
            block = True
        elif directive := _PROSE_DIRECTIVE.match(content):
            yield indent, f"* {content[directive.end() :]}"  # continues indented, as a list item does
        elif _DIRECTIVE.match(content):
            listing = indent
        else:
            listing = indent if content.endswith("::") else listing
            yield indent, content
    yield 0, ""


def _paragraphs(text: str) -> Iterator[str]:
    """Join the lines of each paragraph or list item. Leave out lines that only label the next ones."""
    paragraph: list[str] = []
    first = rest = 0  # indentation of the paragraph's first line and of its others
    hanging = False  # whether the others may be indented deeper
    for indent, content in _prose_lines(text):
        bullet, label = _BULLET.match(content), _LABEL.match(content)
        deeper = len(paragraph) == 1 and content != "" and indent > first
        if paragraph and content and not bullet and not label and (indent == rest or (deeper and hanging)):
            paragraph.append(content)
            rest = indent
            continue
        if paragraph and not (deeper and not hanging and paragraph[0][-1] not in ".!?"):
            yield " ".join(paragraph)
        paragraph = [content] if content else []
        first = rest = indent
        hanging = bool(bullet) or (label is not None and not label[0].endswith(" : "))


def _sentences(text: str) -> Iterator[str]:
    for paragraph in _paragraphs(text):
        for prefix in (_BULLET, _LABEL):
            if match := prefix.match(paragraph):
                paragraph = paragraph[match.end() :]
        for pattern, replacement in _INLINE:
            paragraph = pattern.sub(replacement, paragraph)
        for sentence in _SENTENCE_END.split(paragraph):
            if words := _words(sentence):
                yield " ".join(words)


def _words(sentence: str) -> list[str]:
    """Return the words of a sentence; none if it is not a sentence."""
    words: list[str] = []
    num_tokens = num_plain = 0.0
    for token in sentence.split():
        core = token.strip("\"'`*_.,;:!?()[]{}<>-|\\").lower()
        if not core:
            continue
        num_tokens += 1
        if all(map(_WORD.fullmatch, core.split("/"))):
            parts, weight = core.split("/"), 1.0
        elif (identifier := _IDENTIFIER.fullmatch(core)) and re.fullmatch(r"[a-z_]+", identifier[1]):
            # An identifier counts half: a sentence may have some, a line of code consists of them.
            parts, weight = identifier[1].split("_"), 0.5
        else:
            continue
        parts = [part for part in parts if len(part) > 1 or part == "a"]  # other letters are variables
        words += parts
        num_plain += weight if parts else 0.0
    all_plain = num_plain == num_tokens and sentence.endswith(".")  # "Base class for compiler parameters."
    if not all_plain and not any(map(_FUNCTION_WORD.fullmatch, words)):
        return []
    return words if len(words) >= _MIN_WORDS and num_plain >= _MIN_PLAIN * num_tokens else []
