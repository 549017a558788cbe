"""The built-in corpus: prose stays, everything else goes, and nothing is run."""

import os
import re
import subprocess
import sys
import sysconfig
import textwrap
import warnings

import pytest

from dcdjax.text import python_docs

NUMPYDOC = """
    frobnicate(x, axis=None, *, out=None)

    Return the frobnicated :class:`~numpy.ndarray`, see [1]_ and `numpy.fft`. Uses ``x_max`` (e.g. the
    largest eigenvalue) if :math:`x > 0` and ``x[0] = 1``.

    .. versionadded:: 1.2.0
        It was not there before that.

    Parameters
    ----------
    x : ndarray of the shape, optional
        The values to be frobnicated.
    axis : {None, int}
        Along which axis to do so;
        the last by default.

    Returns
    -------
    ndarray of all the good things
        A new array of the same kind.

    See Also
    --------
    defrobnicate : The inverse of this one.

    Notes
    -----
    Written as a formula this is the same::

        the formula is not a sentence at all

    .. math:: this is not a sentence of the text

    .. plot::

        and this is not one of them

    =====  ==================================
    name   what is the meaning of it
    =====  ==================================
    x      this is the meaning of it
    =====  ==================================

    References
    ----------
    .. [1] A. Author, "The book of all things", 1999.
    A reference may be without the number.

    Examples
    --------
    A look at the first of them:

    >>> frobnicate(the_first_of_them)
    the output is not a sentence

    See https://example.org/what/is/the/this for more of the same.
"""


def test_numpydoc():
    assert list(python_docs.sentences(NUMPYDOC)) == [
        "return the frobnicated ndarray see and fft",
        "uses max the largest eigenvalue if and",
        "it was not there before that",
        "the values to be frobnicated",
        "along which axis to do so the last by default",
        "a new array of the same kind",
        "the inverse of this one",
        "written as a formula this is the same",
        "a look at the first of them",
        "see for more of the same",
    ]


def test_google_and_sphinx_style():
    text = """Acquire a lock, blocking or non-blocking.

    Args:
      timeout: the number of seconds that
        it may take at most.
      blocking (bool): whether to wait for it.

    Returns:
      True if the lock is acquired.

    :param name: the name of the thread
    :type name: str

    Usage:
       lock = threading.Lock()
       for x in the_list: print(x)

    - It doesn't matter who's first.
    * a list item may
      be of two lines
    release(x) -- let another thread have it
    """
    assert list(python_docs.sentences(text)) == [
        "acquire a lock blocking or non-blocking",
        "the number of seconds that it may take at most",
        "whether to wait for it",
        "true if the lock is acquired",
        "the name of the thread",
        "it doesn't matter who's first",
        "a list item may be of two lines",
        "let another thread have it",
    ]


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        ("The dtype is float32 or a 2-D ndarray.", "the dtype is or a ndarray"),
        ("Calls os.path.join() on each of the paths", "calls join on each of the paths"),
        ("The max_iter option and/or the x_0 value", "the max iter option and or the value"),
        ("The norm $of the x$ by [Doe 1]_ is at www.example.org/the.", "the norm by is at"),
        ("if x: return the_value[x] + y", ""),
        ("x = the y + z * w", ""),
        ("one two three", ""),
        ("numpy scipy jax python", ""),
    ],
)
def test_words(sentence, words):
    assert list(python_docs.sentences(sentence)) == ([words] if words else [])


def source(text):
    return textwrap.dedent(text).encode()


@pytest.fixture
def installation(tmp_path, monkeypatch):
    """A small standard library and one package; a function that writes files into them."""
    stdlib, packages = tmp_path / "lib", tmp_path / "site-packages"
    monkeypatch.setattr(sysconfig, "get_path", {"stdlib": str(stdlib)}.get)
    monkeypatch.setattr(python_docs, "PACKAGES", ("smallpackage", "missingpackage"))
    monkeypatch.syspath_prepend(str(packages))

    def write(path, content):
        path = tmp_path / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    write(
        "lib/pydoc_data/topics.py",
        source("topics = {'x': 'A topic of the '\n 'language.\\nThere is more.\\n'}"),
    )
    write("site-packages/smallpackage/__init__.py", b'"""The package is the last one."""\nraise SystemExit')
    return write


def test_what_is_taken(installation):
    installation(
        "lib/module.py",
        source('''
            """The module is the first."""
            class C:
                """The class is the second."""
                async def f(self):
                    "The method is the third."
                    return "The value is not taken."
            try:
                pass
            except ImportError:
                def g():
                    """The function is the fourth."""
            add_newdoc("module", "x", """The function in C is the fifth.""")
            _doc_of_x = {"y": """The piece of it is the sixth."""}
            message = "The message is not taken."
            print("The output is not taken.")
            '''),
    )
    assert set(python_docs.build().splitlines()) == {
        "the module is the first",
        "the class is the second",
        "the method is the third",
        "the function is the fourth",
        "the function in is the fifth",
        "the piece of it is the sixth",
        "a topic of the language",
        "the package is the last one",
    }


def test_what_is_skipped(installation):
    doc = b'"""This is not to be seen."""'
    for folder in ("test", "x/tests", "site-packages/y", "idlelib"):
        installation(f"lib/{folder}/module.py", doc)
    installation("lib/broken.py", doc + b"\ndef")
    installation("lib/null.py", doc + b"\0")
    installation("lib/latin.py", doc + b"\n'\xe9'")
    installation("lib/deep.py", doc + b"\n" + b"(" * 5000 + b")" * 5000)
    installation("lib/text.txt", doc)
    assert "seen" not in python_docs.build()


def test_each_sentence_once_and_files_in_order(installation):
    letters = ["d", "b", "f", "a", "h", "c", "e", "g"]
    for letter in letters:
        doc = f'"""The sentence is said again. This is of {letter * 3}."""'
        installation(f"lib/{letter}.py", doc.encode())
    own = [f"this is of {letter * 3}" for letter in sorted(letters)]
    assert python_docs.build().splitlines()[:9] == ["the sentence is said again", *own]


def test_other_peoples_warnings_stay_there(installation):
    code = b'"""The escape is of \\d kind."""\nx = "\\d"\nassert (x, "always true")\n'
    with pytest.warns((SyntaxWarning, DeprecationWarning)):
        compile(code, "warns", "exec")
    installation("lib/warns.py", code)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert "the escape is of kind" in python_docs.build()
    assert caught == []


def test_progress(installation):
    calls = []
    python_docs.build(lambda *call: calls.append(call))
    assert calls == [("reading documentation", done, 2, "files") for done in (1, 2)]


def test_no_sources_at_all(installation, monkeypatch, tmp_path):
    monkeypatch.setattr(sysconfig, "get_path", {"stdlib": str(tmp_path / "nowhere")}.get)
    monkeypatch.setattr(python_docs, "PACKAGES", ("missingpackage",))
    with pytest.raises(RuntimeError, match="no source files of Python, missingpackage"):
        python_docs.build()


def test_fingerprint_follows_versions_and_this_code(monkeypatch, tmp_path):
    seen = {python_docs.fingerprint()}
    assert seen == {python_docs.fingerprint()}
    monkeypatch.setattr(python_docs.platform, "python_version", lambda: "3.99.0")
    seen.add(python_docs.fingerprint())
    monkeypatch.setattr(python_docs, "PACKAGES", ("numpy", "scipy", "missingpackage"))
    seen.add(python_docs.fingerprint())
    monkeypatch.setattr(python_docs.importlib.metadata, "version", lambda package: "99.0")
    seen.add(python_docs.fingerprint())
    (tmp_path / "python_docs.py").write_text("the cleaning is another one")
    monkeypatch.setattr(python_docs, "__file__", str(tmp_path / "python_docs.py"))
    seen.add(python_docs.fingerprint())
    assert len(seen) == 5
    assert all(re.fullmatch("[0-9a-f]{16}", fingerprint) for fingerprint in seen)


# A tenth of this very installation: all of it takes a quarter of a minute.
SAMPLE = """
import sys
from dcdjax.text import python_docs
files = list(python_docs.source_files())[::10]
python_docs.source_files = lambda: files
sys.stdout.reconfigure(encoding="utf-8", newline="\\n")
print(python_docs.build(), end="")
assert not {"numpy", "scipy", "jax"} & set(sys.modules)
"""


@pytest.mark.slow
def test_this_installation():
    def build(seed):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-W", "error", "-c", SAMPLE]
        done = subprocess.run(command, capture_output=True, env=environment, timeout=120)
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout.decode()

    text = build("1")
    lines = text.splitlines()
    assert text == build("2")
    assert len(text.split()) > 20_000
    assert len(set(lines)) == len(lines)
    assert all(re.fullmatch(r"[a-z'-]+( [a-z'-]+){3,}", line) for line in lines)


def test_topics_of_this_python_are_found():
    file = next(file for file in python_docs.source_files() if file.name == "topics.py")
    topics = [text for text in python_docs.documentation(file) if "\n" in text]
    assert len(topics) > 50
    assert sum(len(line.split()) for text in topics for line in python_docs.sentences(text)) > 20_000
