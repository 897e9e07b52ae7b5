"""The notebooks: short, and every one of them runs on the artifacts; two are stored with outputs."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from profkit.cli.app import import_verbs
from profkit.diagnosis.rules import BY_ID
from profkit.lab.measure.variants.variants import read_all_variants
from tests.conftest import ROOT
from tests.forks import compute_in_fork
from tests.found import find_files
from tools.notebooks import SHOWN

pytestmark = pytest.mark.slow

FOLDER = ROOT / "notebooks"
NOTEBOOKS = find_files(FOLDER, "*.ipynb")
LONGEST = 10  # lines of a cell
VERBS = import_verbs()
each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)


def _code(path: Path) -> list[nbformat.NotebookNode]:
    return [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]


def test_they_are_numbered_and_all_there() -> None:
    numbers = [path.stem.split("_")[0] for path in NOTEBOOKS]
    assert len(numbers) >= 6
    assert numbers == [f"{n:02}" for n in range(len(numbers))]


@each
def test_it_is_a_valid_notebook(path: Path) -> None:
    """Those that are read on the web are stored with outputs, the others without."""
    nbformat.validate(nbformat.read(path, as_version=4))
    numbers = [cell.execution_count for cell in _code(path)]
    if path.name in SHOWN:
        assert numbers == list(range(1, len(numbers) + 1)), "python tools/notebooks.py"
    else:
        assert [cell.outputs for cell in _code(path)] == [[] for _ in numbers]
        assert set(numbers) == {None}


def _outline(cells: list[nbformat.NotebookNode]) -> list[list[tuple[str, int]]]:
    """Return what each cell shows: the kinds of its outputs, and how many rows a table has."""
    outline = []
    for cell in cells:
        shown = []
        for output in cell.outputs:
            data = output.get("data", {})
            kinds = ", ".join(sorted(data)) or output.output_type
            shown.append((kinds, str(data.get("text/html", "")).count("<tr")))
        outline.append(shown)
    return outline


@each
def test_cells_are_short(path: Path) -> None:
    long = [c.source for c in _code(path) if len(c.source.splitlines()) > LONGEST]
    assert long == []


# Those whose outputs are stored run as Jupyter runs them; the others' cells in a fork, by IPython.
IN_JUPYTER = [path for path in NOTEBOOKS if path.name in SHOWN or "PROFKIT_SWEEP_ALL" in os.environ]


@pytest.fixture
def nothing_is_left() -> Iterator[None]:
    before = set(find_files(FOLDER, "**/*"))
    yield
    after = set(find_files(FOLDER, "**/*"))
    assert {path for path in after - before if "__pycache__" not in path.parts} == set()


@pytest.mark.usefixtures("nothing_is_left")
@pytest.mark.parametrize("path", IN_JUPYTER, ids=lambda path: path.stem)
def test_it_runs_and_shows_something(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(FOLDER)}}).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if path.name in SHOWN:
        assert _outline(cells) == _outline(_code(path)), "python tools/notebooks.py"
    outputs = [o for cell in cells for o in cell.outputs]
    kinds = {kind for o in outputs for kind in o.get("data", ())}
    assert "text/html" in kinds or "stream" in {o.output_type for o in outputs}
    assert not [o for o in outputs if o.get("name") == "stderr"]


@pytest.mark.usefixtures("nothing_is_left")
@pytest.mark.parametrize(
    "path", [path for path in NOTEBOOKS if path not in IN_JUPYTER], ids=lambda path: path.stem
)
def test_its_cells_run_and_show_something(path: Path) -> None:
    shown, stderr = compute_in_fork(partial(run_cells, path))
    assert {"text/html", "text/plain", "stdout"} & shown
    assert stderr == ""


def run_cells(path: Path) -> tuple[set[str], str]:
    """Run the cells of a notebook here; return the kinds of what they show, and their stderr."""
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    os.chdir(FOLDER)
    shell = InteractiveShell.instance()
    shown: set[str] = set()
    stderr = ""
    for cell in _code(path):
        with capture_output() as captured:
            shell.run_cell(cell.source).raise_error()
        shown |= {kind for output in captured.outputs for kind in output.data}
        shown |= {"stdout"} if captured.stdout else set()
        stderr += captured.stderr
    return shown, stderr


def _told(path: Path) -> list[str]:
    """The commands in a notebook's prose."""
    cells = nbformat.read(path, as_version=4).cells
    prose = "\n".join(c.source for c in cells if c.cell_type == "markdown")
    return [*re.findall(r"^profkit .*$", prose, re.M), *re.findall(r"`(profkit \S+ [^`]+)`", prose)]


@pytest.mark.parametrize("command", sorted({c for path in NOTEBOOKS for c in _told(path)}))
def test_commands_in_the_prose_are_what_the_parser_takes(command: str) -> None:
    _, verb, *args = shlex.split(command, comments=True)
    VERBS[verb].make_context(verb, args)


def test_the_kernels_of_notebook_04_name_rules_that_there_are() -> None:
    found = read_all_variants(FOLDER / "own")
    assert [v.id for v in found] == ["thread", "warp"]
    assert {rule for v in found for rule in (*v.header.fixes, *v.header.fixes_not)} <= set(BY_ID)
    assert any(v.header.fixes for v in found)


def test_targets_that_notebooks_name_are_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = {t for path in NOTEBOOKS for t in re.findall(r"`make ([a-z-]+)`", path.read_text())}
    assert named
    assert named <= targets
