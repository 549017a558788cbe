"""Test what a newcomer meets: the README and the docs, the names, the folders."""

import importlib
import inspect
import json
import operator
import pydoc
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dcdjax

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
FOLDERS = sorted(path.parent.name for path in (ROOT / "dcdjax").glob("*/__init__.py"))

# Runs the blocks of several pages in one process. Each page has its own names, and its output is returned.
RUN_PAGES = """
import contextlib, io, json, sys
printed = {}
for name, code in json.load(sys.stdin).items():
    with contextlib.redirect_stdout(io.StringIO()) as caught:
        names = {}
        exec(compile(code, name, "exec"), names)
    printed[name] = caught.getvalue()
print(json.dumps(printed))
"""


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


def blocks(page, language="python"):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def run_pages(pages, folder, environment):
    done = run(sys.executable, "-c", RUN_PAGES, input=json.dumps(pages), cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_readme_is_short():
    assert len(README.read_text().split()) <= 900


@pytest.mark.slow
def test_readme_ten_lines_learn_and_answer(tmp_path, cached):
    [code] = blocks(README)
    assert len(code.strip().splitlines()) <= 10
    near, why, _ = run_pages({"README.md": code}, tmp_path, cached)["README.md"].split("]\n", 2)
    [corpus] = Path(cached["DCDJAX_CACHE"]).rglob("*.txt")
    assert len(corpus.read_text().split()) > 500_000
    nearest = re.findall(r"'(\w+)', 0", near)
    # Which packages are installed decides which of these it is.
    concurrent = (
        "lock locks locked unlocked acquire acquired wait waiting wake awaited coroutines threads notify"
    )
    assert len(set(concurrent.split()) & set(nearest)) >= 3
    assert "lock" in why
    assert len(dcdjax.Embedding.load(tmp_path / "python-words")) > 6000
    assert (tmp_path / "report.html").stat().st_size > 1_000_000


@pytest.mark.slow
def test_pages_run_as_they_are(tmp_path, cached):
    # The block of method.md is a formula, which has its own test.
    pages = {page.name: "\n".join(blocks(page)) for page in PAGES[1:] if page.name != "method.md"}
    pages = {name: code for name, code in pages.items() if code}
    assert len(pages) >= 6
    pages["solving.md"] += "\nprint(sorted(solution.W[::30].argmax(axis=1).tolist()))"
    printed = run_pages(pages, tmp_path, cached)
    solving = printed["solving.md"].splitlines()
    assert solving[0].startswith("CONVERGED after")
    assert solving[-2:] == ["5 topics are needed", "[0, 1, 2, 3]"]
    assert len(re.findall(r"\('\S+', 0\.\d+\)", printed["counting.md"])) == 5
    assert printed["words-and-topics.md"].startswith(
        "Embedding(1000 words, 20 topics of 40 columns, learned from python-docs)"
    )
    assert (tmp_path / "report.html").exists()
    assert printed["devices-and-processes.md"] == "CONVERGED\n"
    assert printed["checkpoints.md"] == "True\n"
    assert "'num_words': 5" in printed["files.md"]


def test_rule_in_the_docs_is_the_update():
    import jax.numpy as jnp
    import numpy as np
    from problems import pair, random_S, random_W

    from dcdjax.method.decomposition import column_sums, sweep

    rng = np.random.default_rng(0)
    S, W = random_S(rng, 10), jnp.asarray(random_W(rng, 10, 3))
    names = {"jnp": jnp, "column_sums": column_sums, "W": W, "ZW": sweep(W, *pair(S)).ZW}
    [code] = blocks(ROOT / "docs" / "method.md")
    exec(code, names)
    np.testing.assert_allclose(names["W"], dcdjax.update(W, *pair(S)), rtol=1e-12)


@pytest.mark.parametrize(
    "page",
    [*PAGES, ROOT / "SECURITY.md", *sorted((ROOT / "experiments").glob("*/*.md"))],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text())
    for link in links:
        assert link.startswith("https:") or (page.parent / link).exists(), link


def test_readme_links_to_every_page():
    for text in (README.read_text(), (ROOT / "docs" / "index.md").read_text()):
        for page in PAGES[1:]:
            assert page.name == "index.md" or page.name in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_in_the_docs_exist(page):
    """Every `dcdjax.name` and every `module.name` of a public module is there."""
    text = page.read_text()
    modules = "|".join(name for name in dcdjax.__all__ if inspect.ismodule(getattr(dcdjax, name)))
    quoted = "\n".join(re.findall(r"`[^`\n]+`", text) + blocks(page))
    for name in re.findall(r"(?<![\w/])dcdjax\.([A-Za-z_][\w.]*)", quoted):
        assert pydoc.locate(f"dcdjax.{name}") or operator.attrgetter(name)(dcdjax)
    for module, name in re.findall(rf"(?<![\w./])({modules})\.([A-Za-z_]\w*)", quoted):
        if f"{module}.{name}" not in {"similarity.md", "report.html"}:
            assert hasattr(getattr(dcdjax, module), name), f"{module}.{name}"


def test_commands_in_the_docs_have_their_options(capsys):
    from dcdjax.cli.main import main

    lines = "\n".join(block for page in PAGES for block in blocks(page, "sh"))
    commands = re.findall(r"^dcdjax (\w+)(.*)$", lines, re.M)
    assert len(commands) >= 8
    for command, rest in commands:
        with pytest.raises(SystemExit):
            main([command, "--help"])
        shown = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
        assert set(re.findall(r"(?<= )--[a-z-]+", rest)) <= shown, command


def test_every_folder_stands_in_the_map():
    shown = re.findall(r"^[├└]── (\w+)/ +\S", README.read_text(), re.M)
    assert sorted(shown) == FOLDERS
    # In the order that import-linter checks.
    layers = re.search(r"^layers = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.M | re.S)
    assert layers is not None
    assert shown == re.findall(r'"(\w+)"', layers[1])


def test_every_public_name_is_there():
    for name in dcdjax.__all__:
        assert getattr(dcdjax, name) is not None
        assert name in dir(dcdjax)
    assert re.fullmatch(r"\d+\.\d+\.\d+", dcdjax.__version__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = dcdjax.nonsense


def test_importing_leaves_jax_as_it_was():
    code = (
        "import jax; before = dict(jax.config.values); import dcdjax\n"
        "[getattr(dcdjax, name) for name in dcdjax.__all__]\n"
        "assert dict(jax.config.values) == before"
    )
    done = run(sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr


MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in (ROOT / "dcdjax").rglob("*.py")
    if path.name != "__main__.py"
)


@pytest.mark.parametrize("module", MODULES)
def test_every_module_opens_with_a_sentence(module):
    doc = importlib.import_module(module).__doc__
    assert doc
    assert doc.strip().splitlines()[0].endswith(".")


def test_folders_and_files_stay_small():
    for folder in (ROOT / "dcdjax").iterdir():
        if folder.is_dir() and folder.name != "__pycache__":
            modules = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
            assert len(modules) <= 10, folder
            for path in modules:
                assert len(path.read_text().splitlines()) <= 400, path


def test_the_host_floor_does_not_wait_for_jax():
    code = (
        "import sys, dcdjax.counting.cooccurrence, dcdjax.text.datasets, dcdjax.similarity\n"
        "import dcdjax.util.progress\n"
        "import dcdjax.evaluation, dcdjax.embedding.storage, dcdjax.embedding.export, dcdjax.cli.commands\n"
        "import dcdjax.checkpoints.checkpoint_files\n"
        "assert not {'jax', 'duckdb'} & set(sys.modules)"
    )
    done = run(sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
