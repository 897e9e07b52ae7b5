"""The GitHub Action: its `run:` steps are executed as GitHub does, but for the installation."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT

FILE = ROOT / ".github" / "actions" / "profkit" / "action.yml"
ACTION: dict[str, Any] = yaml.safe_load(FILE.read_text("utf-8"))
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]
EXPRESSION = re.compile(r"\$\{\{ inputs\.(\w+) \}\}")
BASH = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"]  # what `shell: bash` runs
TRACE = "tests/program/data/attention_with_bias.planted.json.gz"


@dataclass(frozen=True)
class Result:
    status: int
    log: str
    summary: str
    outputs: dict[str, str]


def run_action(folder: Path, **given: str) -> Result:
    """Run the steps whose `if:` holds, until one fails, in the checkout."""
    inputs = {name: about["default"] for name, about in ACTION["inputs"].items()} | given
    inputs["output"] = str(folder / "out")
    summary, outputs = folder / "summary.md", folder / "outputs"
    base = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "GITHUB_STEP_SUMMARY": str(summary),
        "GITHUB_OUTPUT": str(outputs),
    }
    log, status = "", 0
    for step in STEPS[1:]:
        condition = step.get("if", "")
        if condition and not inputs[re.fullmatch(r"inputs\.(\w+) != ''", condition)[1]]:
            continue
        env = {k: EXPRESSION.sub(lambda m: inputs[m[1]], v) for k, v in step["env"].items()}
        done = subprocess.run(
            [*BASH, step["run"]],
            cwd=ROOT,
            env={**base, **env},
            capture_output=True,
            text=True,
            check=False,
        )
        log += done.stdout + done.stderr
        status = done.returncode
        if status:
            break
    lines = outputs.read_text().splitlines()
    return Result(status, log, summary.read_text(), dict(line.split("=", 1) for line in lines))


def test_only_the_environment_brings_inputs_into_a_script() -> None:
    assert [step["name"] for step in STEPS if "${{" in step["run"]] == []
    # The action is three folders below the project, which it installs.
    assert '"$ACTION_FOLDER/../../..[' in STEPS[0]["run"]
    assert (FILE.parent / ".." / ".." / ".." / "pyproject.toml").is_file()
    used = set(EXPRESSION.findall(FILE.read_text()))
    assert used == set(ACTION["inputs"])


@pytest.mark.slow
def test_reports_and_a_recording_become_summary_annotations_comment_and_sarif(
    tmp_path: Path,
) -> None:
    done = run_action(tmp_path, reports="artifacts/stage2.B.ncu-rep\n", recordings=TRACE)
    assert done.status == 0, done.log
    assert "::warning file=kernels/common/ptx.cuh,line=57," in done.log
    assert f"::warning file={TRACE},title=profkit%3A attention-unfused::" in done.log
    assert "is limited by shared memory" in done.summary
    assert "attention-unfused" in done.summary
    comment = Path(done.outputs["comment"]).read_text()
    assert comment.startswith("<!-- profkit -->\n")
    assert comment == done.summary
    logs = sorted(Path(done.outputs["sarif"]).iterdir())
    assert [path.name for path in logs] == ["recording1.sarif", "reports.sarif"]
    assert all(json.loads(path.read_text())["runs"][0]["results"] for path in logs)
    assert done.outputs["status"] == "0"


@pytest.mark.slow
def test_what_cannot_be_read_or_judged_fails_after_all_is_said(tmp_path: Path) -> None:
    done = run_action(tmp_path, reports="gone.ncu-rep", base="gone", head="artifacts")
    assert done.status == 2
    assert done.outputs["status"] == "2"
    assert "gone.ncu-rep: no such file" in done.log
    assert "::error title=profkit gate::exit status 2" in done.log
