"""The Slurm array as it is documented, with a stand-in for sbatch: tasks at once, shared folders."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from profkit.evidence.history import History
from tests.conftest import ROOT

from .conftest import Machine

pytestmark = pytest.mark.slow

SCRIPT = ROOT / "tools" / "slurm_array.sh"
SBATCH = """#!/usr/bin/env bash
# Runs every task of an array at once and waits, as --wait does.
[ "${1%%=*}" = --array ] || exit 64
range=${1#--array=}; shift
grep -q '^#SBATCH --gpus=1' "$1" || exit 65
pids=()
for task in $(seq "${range%-*}" "${range#*-}"); do
  SLURM_ARRAY_TASK_ID=$task CUDA_VISIBLE_DEVICES=0 bash "$1" & pids+=($!)
done
status=0
for pid in "${pids[@]}"; do wait "$pid" || status=$?; done
exit $status
"""


@pytest.fixture
def cluster(machine: Machine, tmp_path: Path) -> dict[str, str]:
    """The environment of a stand-in cluster, and a ladder of two."""
    pytest.importorskip("pyarrow")
    pytest.importorskip("ncu_report")
    machine.write("v1_x.cu")
    machine.write("v2_x.cu", keys="after: v1")
    programs = tmp_path / "bin"
    programs.mkdir()
    profkit = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m profkit "$@"\n'
    for name, text in (("sbatch", SBATCH), ("profkit", profkit)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PROFKIT_ARTIFACTS": str(machine.artifacts),
        "PROFKIT_HISTORY": str(tmp_path / "history"),
    }


def sbatch(env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sbatch", *words, str(SCRIPT)], env=env, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_each_task_measures_a_case_into_shared_folders(
    cluster: dict[str, str], machine: Machine
) -> None:
    done = sbatch({**cluster, "PROFKIT_CASES": "B C"}, "--array=0-1")
    assert done.returncode == 0, done.stderr
    runs, problems = History(cluster["PROFKIT_HISTORY"]).list_runs()
    assert problems == []
    assert {r.subject for r in runs} == {"v1.B", "v2.B", "v1.C", "v2.C"}
    assert len({r.session for r in runs}) == 2, "a case is one process on one GPU"


def test_a_task_without_cases_says_what_it_wants(cluster: dict[str, str]) -> None:
    done = sbatch(cluster, "--array=0-0")
    assert done.returncode != 0
    assert "the cases of the problem" in done.stderr


@pytest.mark.slow
def test_submitit_does_the_same(cluster: dict[str, str], machine: Machine, tmp_path: Path) -> None:
    """The lines that the script documents, on submitit's executor of this machine."""
    pytest.importorskip("submitit")
    head = [
        x.removeprefix("#").strip() for x in SCRIPT.read_text().split("#SBATCH")[0].splitlines()
    ]
    text = "\n".join(head[head.index("import submitit") :])
    for documented, here in (
        ("/shared/logs", str(tmp_path / "logs")),
        ("/shared/artifacts", str(machine.artifacts)),
        ('("A", "B", "C", "D")', '("B", "C")'),
    ):
        assert documented in text
        text = text.replace(documented, here)
    (tmp_path / "bin" / "sbatch").unlink()
    done = subprocess.run(
        [sys.executable, "-c", text], env=cluster, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert {(r.parent.name, r.stem) for r in machine.artifacts.rglob("*.json")} >= {
        (case, variant) for case in "BC" for variant in ("v1", "v2")
    }
