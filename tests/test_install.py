"""What the plain installation does, and what is said where an extra is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from profkit.errors import EXTRAS
from tests.conftest import ROOT
from tests.found import find_files

pytestmark = pytest.mark.slow

REPORTS = [str(path) for path in find_files(ROOT / "artifacts", "stage2.B.ncu-rep*")]
NAMES = ("stage1", "stage2")
# Started as the program is, with these packages as if they were not installed.
START = """
import sys
for name in sys.argv.pop(1).split(","):
    sys.modules[name] = None
from profkit.cli import main
main()
"""


def without(packages: str, *args: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", START, packages, *args],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(ROOT)},
    )


def test_without_any_extra_it_diagnoses_and_writes_the_page(tmp_path: Path) -> None:
    every = ",".join([*EXTRAS, "mpl_toolkits"])
    said = without(every, "diagnose", *REPORTS, "--brief")
    assert said.returncode == 0, said.stderr
    assert "stage2" in said.stdout
    page = tmp_path / "page.html"
    made = without(every, "report", *REPORTS, "-o", str(page))
    assert made.returncode == 0, made.stderr
    assert 'class="roofline"' in page.read_text()


def test_a_page_without_what_judges_times_says_that_the_ladder_is_missing(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    pair = [str(find_files(ROOT / "artifacts", f"{name}.B.ncu-rep*")[0]) for name in NAMES]
    assert without("scipy", "report", *pair, "-o", str(page)).returncode == 0
    assert "no ladder: an interval of measured times needs scipy" in page.read_text()


@pytest.mark.parametrize(
    ("package", "args"),
    [
        ("matplotlib", ("roofline", *REPORTS, "-o", "roof.png")),
        ("scipy", ("compare", "stage1", "stage2", "--case", "B")),
        ("mcp", ("mcp",)),
        ("pyarrow", ("diagnose", *REPORTS, "--parquet", "x.parquet")),
        ("duckdb", ("query", "SELECT 1")),
    ],
)
def test_a_verb_names_the_extra_that_it_lacks(package: str, args: tuple[str, ...]) -> None:
    done = without(package, *args)
    assert done.returncode == 2, done.stderr
    assert f"needs {package}" in done.stderr
    assert f"profkit[{EXTRAS[package]}]" in done.stderr
    assert "Traceback" not in done.stderr
