"""Execute notebooks from top to bottom, and leave nothing of the machine in them.

Run as `python notebooks/execute.py [name ...]`: at full settings, all of them if none is named.
"""

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER = Path(__file__).parent
PATHS = sorted(FOLDER.glob("*.ipynb"))
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
# A widget without its state shows nothing, and its text is that of the bar before it began.
_WIDGET = "application/vnd.jupyter.widget-view+json"
# Where a path begins that only one machine has.
_MACHINE_PATH = re.compile(r"(?<![\w.:/])(/(?:tmp|home|root|work|usr|opt|var|Users|content)/|[A-Z]:\\)")


def read(path: Path) -> NotebookNode:
    """Read a notebook from a file and check that it is valid."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def execute(notebook: NotebookNode, folder: Path, env: Mapping[str, str] | None = None) -> None:
    """Run all cells in a new kernel in the given folder. Raise the error of a cell."""
    client = NotebookClient(
        notebook,
        timeout=600,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
        coalesce_streams=True,  # else it is chance how what a cell prints is cut
        store_widget_state=False,
    )
    client.execute(**({} if env is None else {"env": dict(env)}))


def clean(notebook: NotebookNode) -> None:
    """Remove progress bars, and metadata that differs between machines."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict(
            {name: cell.metadata[name] for name in ("tags",) if name in cell.metadata}
        )
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if _WIDGET not in output.get("data", {})]


def faults(notebook: NotebookNode) -> list[str]:
    """Return the errors, warnings and machine paths of an executed notebook."""
    found = []
    for number, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            texts = [output.get("text", ""), *(data[kind] for kind in data if kind.startswith("text/"))]
            if output.output_type == "error":
                found.append(f"cell {number}: {output.ename}: {output.evalue}")
            elif output.get("name") == "stderr":
                found.append(f"cell {number} wrote to stderr: {output.text}")
            else:
                found += [
                    f"cell {number} shows a path: {text}" for text in texts if _MACHINE_PATH.search(text)
                ]
    return found


def main() -> None:
    """Execute the named notebooks in place. A notebook with a fault stays as it was."""
    parser = argparse.ArgumentParser(description="Execute notebooks in place, at full settings.")
    parser.add_argument("names", nargs="*", help="such as quickstart; all if none is given")
    names = parser.parse_args().names
    for path in [FOLDER / f"{name}.ipynb" for name in names] or PATHS:
        began = time.perf_counter()
        notebook = read(path)
        with tempfile.TemporaryDirectory() as folder:
            execute(notebook, Path(folder))
        clean(notebook)
        if wrong := faults(notebook):
            sys.exit("\n".join([f"{path.name} is left as it was:", *wrong]))
        nbformat.write(notebook, path)
        size = path.stat().st_size
        print(f"{path.name}: {time.perf_counter() - began:.0f} s, {size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
