"""Notebooks that are read on the web  ->  the same with what their cells show, written into them.

python tools/notebooks.py    # after what a notebook shows has changed
"""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "notebooks"
SHOWN = ("00_read_a_report.ipynb", "01_roofline.ipynb")


def run_notebook(file: Path) -> nbformat.NotebookNode:
    """Return a notebook with its outputs, and nothing in it that differs from run to run."""
    notebook = nbformat.read(file, as_version=4)
    about = dict(notebook.metadata)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(FOLDER)}}).execute()
    notebook.metadata = nbformat.from_dict(about)
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({})
    return notebook


def main() -> None:
    paths = [str(FOLDER.parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    for name in SHOWN:
        nbformat.write(run_notebook(FOLDER / name), FOLDER / name)


if __name__ == "__main__":
    main()
