"""The notebooks run top to bottom as they are, but smaller; and what is committed of them is whole."""

import ast
import copy
import os
import re
import subprocess
import sys

import pytest

pytest.importorskip("nbclient", reason="nbclient executes the notebooks")
pytest.importorskip("ipykernel", reason="ipykernel runs them")
pytest.importorskip("ipywidgets", reason="without ipywidgets tqdm warns in a notebook")
pytest.importorskip("matplotlib", reason="matplotlib draws in them")

import execute
import nbformat

# In place of the cells that are tagged "parameters": what remains is imports and compilation, mostly.
SMALL = {
    "devices": {"NUM_WORDS": 200, "NUM_PAIRS": 2000, "NUM_TOPICS": 3, "NUM_STEPS": 2},
    "quickstart": {"MAX_WORDS": 800, "NUM_TOPICS": (4, 6)},
    "restarts": {"MAX_WORDS": 200, "NUM_TOPICS": 3, "RESTARTS": 2, "MAX_STEPS": 3},
    "theorem": {"NUM_PROBLEMS": 2, "NUM_STEPS": 3, "GROUP_SIZE": 4, "LONG_RUN": 10},
}
# What is printed wherever it runs, at whatever size.
SAID = {
    "devices": r"float64 .* W split .* (\d\.\de-1\d|0\.0e\+00)\n",
    "quickstart": r"the same: True",
    "restarts": r"consensus of the \d starts +\d",
    "theorem": r"the Lagrangian at fixed λ +0 +0 ",
}
# Nobody listens there: what would use the network fails at once.
NOWHERE = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")


def committed(name):
    return execute.read(execute.FOLDER / f"{name}.ipynb")


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def parameters(notebook):
    [cell] = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    return cell


def printed(notebook):
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    return "".join(output.text for output in outputs if output.output_type == "stream")


def without_pictures(notebook):
    """The cells that draw, but show nothing."""
    kinds = {n: {kind for output in cell.outputs for kind in output.get("data", {})}
             for n, cell in enumerate(notebook.cells) if "plt.show()" in cell.source}  # fmt: skip
    assert kinds, "nothing is drawn"
    return [n for n, shown in kinds.items() if "image/png" not in shown]


@pytest.fixture
def environment(cached):
    """Of a kernel without network or corpora, with all warnings shown."""
    # With the second, what C code says on stderr would not be caught; with the third, nothing would be drawn.
    left_out = ("DCDJAX_DATA", "PYTEST_CURRENT_TEST", "MPLBACKEND", "no_proxy", "NO_PROXY")
    kept = {name: value for name, value in cached.items() if name not in left_out}
    path = os.pathsep.join([str(execute.FOLDER.parent), os.environ.get("PYTHONPATH", "")])
    return {**kept, **NOWHERE, "PYTHONPATH": path, "PYTHONWARNINGS": "default"}


def test_these_are_all():
    assert {path.stem for path in execute.PATHS} == set(SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_runs_top_to_bottom_without_a_warning(name, environment, tmp_path):
    notebook = committed(name)
    parameters(notebook).source = "\n".join(f"{key} = {value!r}" for key, value in SMALL[name].items())
    execute.execute(notebook, tmp_path, environment)
    assert execute.faults(notebook) == []
    assert without_pictures(notebook) == []
    assert re.search(SAID[name], printed(notebook)), printed(notebook)
    if name in ("quickstart", "restarts"):
        assert "python-docs: " in printed(notebook)


def test_what_is_wrong_is_seen(environment, tmp_path):
    sources = (
        "import warnings; warnings.warn('!')",
        "import os; os.write(2, b'C')",
        "print('/tmp/x')",
        "1",
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    execute.execute(notebook, tmp_path, environment)
    faults = execute.faults(notebook)
    assert len(faults) == 3
    assert all(
        re.search(expected, fault)
        for expected, fault in zip(("UserWarning: !", "stderr: C", "path: /tmp"), faults, strict=True)
    )


@pytest.mark.parametrize("name", SMALL)
def test_was_executed_in_order_and_left_clean(name):
    notebook = committed(name)
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert execute.faults(notebook) == []
    assert without_pictures(notebook) == []
    assert re.search(SAID[name], printed(notebook))
    cleaned = copy.deepcopy(notebook)
    execute.clean(cleaned)
    assert cleaned == notebook
    assert notebook.metadata.kernelspec.name == "python3"
    path = execute.FOLDER / f"{name}.ipynb"
    assert path.read_text() == nbformat.writes(notebook) + "\n"
    assert path.stat().st_size < (1_100_000 if name == "quickstart" else 400_000)  # that one shows a page


@pytest.mark.parametrize("name", SMALL)
def test_is_as_the_others(name):
    notebook = committed(name)
    first = notebook.cells[0].source
    address = f"https://colab.research.google.com/github/dcdjax/dcdjax/blob/main/notebooks/{name}.ipynb"
    assert first.startswith(
        f"[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({address})\n"
    )
    install = code_cells(notebook)[0].source
    assert install == code_cells(committed("quickstart"))[0].source
    assert "-c {constraints} git+https://github.com/dcdjax/dcdjax" in install
    assigned = [statement.targets[0].id for statement in ast.parse(parameters(notebook).source).body]
    assert assigned == list(SMALL[name])


def test_are_formatted():
    for command in ("format --check", "check"):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command.split(), *execute.PATHS],
            capture_output=True, text=True, timeout=60, cwd=execute.FOLDER.parent,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
