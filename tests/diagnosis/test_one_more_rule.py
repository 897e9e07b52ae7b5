"""One more rule is one more file among the rules: everything else finds it there, and its page in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

STAGE2 = ROOT / "artifacts" / "stage2.B.ncu-rep"
RULE = '''"""A rule that somebody dropped in."""

from profkit.diagnosis.rule import Hit, LaunchRule
from profkit.model.scenario import Fix
from profkit.model.launch import Threshold
from profkit.model.scenario import Scenario

THIRD = Scenario(gone=2 / 3)
MANY = Threshold(2, "exponentials: two are one too many")


def _check(launch):
    return Hit("exponentials are computed", looked=("inst_exp",)) if launch["inst_exp"] > MANY else None


RULES = (
    LaunchRule(
        id="dropped-in", title="Exponentials", meaning="They run.", advice="Leave them out.",
        check=_check, fires=({"inst_exp": 3.0},), clear=({"inst_exp": 1.0},),
        lines=("instructions exponential",), leads=True, page=PAGE,
        fix=Fix("waste", "bound: a third.", lambda _: THIRD, lambda _: THIRD),
    ),
)
'''


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of profkit with one more file among its rules."""
    folder = tmp_path_factory.mktemp("with")
    # With what is compiled: it is as old as its source there, too, and is not compiled again.
    shutil.copytree(ROOT / "profkit", folder / "profkit")
    rules = folder / "profkit/diagnosis/rules"
    page = (rules / "pages/redundant-exp.md").read_text("utf-8")
    (rules / "dropped_in.py").write_text(RULE.replace("page=PAGE", f"page={page!r}"))
    return folder


def said(package: Path, *args: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "profkit", *args],
        cwd=package,
        env={**os.environ, "PYTHONPATH": str(package), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout


@pytest.mark.slow
def test_it_is_in_text_page_explain_reference_and_where(package: Path) -> None:
    text = said(package, "diagnose", str(STAGE2), "--where", 'limiter != "dram"', "--lines", "3")
    assert "dropped-in" in text
    assert "exponentials are computed" in text
    first = text[text.index("exponentials are computed") :][:600]
    assert ".cuh:" in first, "with its lines"
    assert "MANY 2: exponentials: two are one too many" in said(package, "explain", "dropped-in")
    assert "## dropped-in\n" in said(package, "explain", "--markdown")
    said(package, "report", str(STAGE2), "-o", "page.html")
    assert "dropped-in" in (package / "page.html").read_text("utf-8")
