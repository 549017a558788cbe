"""What a newcomer meets: the README, the command, the names."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dcdjax

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


def code_blocks():
    return re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_readme_ten_lines_learn_and_answer(tmp_path, cached):
    code = code_blocks()[0]
    assert len(code.strip().splitlines()) <= 10
    # Warnings are shown, not raised: words without neighbors are dropped, loudly.
    done = run(sys.executable, "-c", code, cwd=tmp_path, env=cached)
    assert done.returncode == 0, done.stderr
    [corpus] = Path(cached["DCDJAX_CACHE"]).rglob("*.txt")
    assert len(corpus.read_text().split()) > 500_000
    nearest = re.findall(r"'(\w+)', 0", done.stdout.splitlines()[0])
    # Which packages are installed decides which of these it is.
    concurrent = (
        "lock locks locked unlocked acquire acquired wait waiting wake awaited coroutines threads notify"
    )
    assert len(set(concurrent.split()) & set(nearest)) >= 3
    assert "lock" in done.stdout.splitlines()[1]
    assert len(dcdjax.Embedding.load(tmp_path / "python-words")) > 7000
    done = run(sys.executable, "-c", code_blocks()[1], cwd=tmp_path, env=cached)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "report.html").stat().st_size > 1_000_000


def test_readme_goes_from_text_to_S(cached):
    done = run(sys.executable, "-c", code_blocks()[2], env=cached)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"\('\S+', 0\.\d+\)", done.stdout)) == 5


def test_readme_solves_any_S_and_finds_the_groups():
    code = code_blocks()[3]
    done = run(sys.executable, "-c", code + "\nprint(sorted(solution.W[::30].argmax(axis=1).tolist()))")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("CONVERGED after")
    assert done.stdout.rstrip().endswith("[0, 1, 2, 3]")


def test_readme_rule_is_the_update():
    import jax.numpy as jnp
    import numpy as np
    from problems import pair, random_S, random_W

    from dcdjax.decomposition import column_sums, sweep

    rng = np.random.default_rng(0)
    S, W = random_S(rng, 10), jnp.asarray(random_W(rng, 10, 3))
    names = {"jnp": jnp, "column_sums": column_sums, "W": W, "ZW": sweep(W, *pair(S)).ZW}
    exec(code_blocks()[4], names)
    np.testing.assert_allclose(names["W"], dcdjax.update(W, *pair(S)), rtol=1e-12)


def test_readme_learns_in_other_ways():
    done = run(sys.executable, "-c", code_blocks()[5])
    assert done.returncode == 0, done.stderr
    assert done.stdout == "5 topics are needed\n"


def test_readme_links_lead_somewhere():
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if not link.startswith("https:")]
    assert links
    for link in links:
        assert (ROOT / link).exists(), link


def test_every_public_name_is_there():
    assert len(dcdjax.__all__) <= 25
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


@pytest.mark.parametrize("room", sorted(path.stem for path in (ROOT / "dcdjax").glob("*.py")))
def test_every_room_opens_with_a_sentence(room):
    if room != "__main__":
        doc = importlib.import_module(f"dcdjax.{room}" if room != "__init__" else "dcdjax").__doc__
        assert doc
        assert doc.strip().splitlines()[0].endswith(".")


def test_imports_point_one_way():
    order = [
        *("files", "facts", "checkpoint", "parallel", "text_blocks", "source", "corpus", "overflow"),
        *("vocabulary", "pair_counts", "matrix_files", "validation", "cooccurrence", "download"),
        *("python_docs", "datasets", "matrix_market", "weighting", "neighbor_graph", "similarity", "tiling"),
        *("packing", "dealing", "rounds", "greetings", "processes", "decomposition", "priors", "native"),
        *("sharding", "layout", "sweeps", "divergences", "smoothing", "spectrum", "initialize", "solver"),
        *(
            "minibatches",
            "epochs",
            "gradient",
            "choosing",
            "incremental",
            "pruning",
            "keeper",
            "runs",
            "queries",
        ),
        *("reduction", "answers", "lexicon", "model_files", "vector_files", "coherence", "embedding"),
        *("presets", "provenance", "given", "progress", "fitting", "judgments", "word_tables", "evaluation"),
        *("report", "tables", "shell", "commands", "demo", "cli"),
    ]
    assert set(order) == {path.stem for path in (ROOT / "dcdjax").glob("[!_]*.py")}
    for room in order:
        imported = set()
        for node in ast.walk(ast.parse((ROOT / "dcdjax" / f"{room}.py").read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "dcdjax":
                imported |= {name.name for name in node.names} & set(order)
            elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("dcdjax."):
                imported.add(node.module.removeprefix("dcdjax."))
        assert imported <= set(order[: order.index(room)]), room


def test_the_host_floor_does_not_wait_for_jax():
    code = (
        "import sys, dcdjax.cooccurrence, dcdjax.datasets, dcdjax.similarity, dcdjax.progress\n"
        "import dcdjax.evaluation, dcdjax.model_files, dcdjax.vector_files, dcdjax.commands\n"
        "import dcdjax.checkpoint\n"
        "assert not {'jax', 'duckdb'} & set(sys.modules)"
    )
    done = run(sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
