"""docs/why/nvidia.md: what Nsight Compute's rules report, and the rules that answer it here."""

from __future__ import annotations

import re

from profkit.diagnosis.launches import judge_reports
from profkit.diagnosis.rules import BY_ID
from profkit.reports.reader import read_report_files
from tests.conftest import ROOT

TEXT = (ROOT / "docs" / "why" / "nvidia.md").read_text("utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT.splitlines()
    if line.startswith("| ") and not line.startswith(("| ncu's rule", "| ---"))
]


def test_every_rule_that_is_named_exists() -> None:
    named = {name for row in ROWS for name in re.findall(r"`([^`]+)`", row[2])}
    assert named
    assert named <= set(BY_ID)


def test_the_shares_are_counted() -> None:
    answered = sum("`" in row[2] for row in ROWS)
    kernels = sum("not of the kernel" not in row[3] for row in ROWS)
    share = f"{100 * answered / kernels:.0f} %"
    said = (
        f"{answered} of these {len(ROWS)} have a rule; of the {kernels} that are about the kernel"
    )
    assert said in TEXT
    assert f"{answered} ({share})" in TEXT


def test_what_ncu_says_of_a_report_is_in_the_table() -> None:
    known = {row[0] for row in ROWS}
    launches = judge_reports(read_report_files([ROOT / "artifacts" / "stage2.B.ncu-rep"]))
    said = {rule.rule for launch in launches for rule in launch.nvidia}
    assert said
    assert said <= known
