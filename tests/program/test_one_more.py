"""One more rule of a step, or kind of recording, is one more file: everything finds it there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

RULE = '''"""A rule that somebody dropped in."""

from profkit.program.example import Kernel
from profkit.program.findings import StepRule
from profkit.program.findings.case import Advice, RuleTexts, StepFinding
from profkit.program.replay.scenario import Range, StepChange

HASHING = RuleTexts(
    rule="hashing",
    says="the GPU mines: {count} kernels, {ms:time}",
    advice=Advice(torch="do not mine", others="do not mine"),
)


def find_hashing(case, claimed):
    works = case.list_unclaimed_works(lambda work: "mine_" in work.activity.name, claimed)
    if works:
        yield case.make_finding(HASHING, works, StepChange(dict.fromkeys(works, Range(0.3, 0.2, 0.1))))


RULES = (
    StepRule(
        id="hashing", title="the GPU mines", meaning="Kernels that mine.", advice="Do not mine.",
        checks=(find_hashing,), fix="The replay leaves them out.",
        fires=((Kernel(name="mine_block", us=500.0),) * 3,),
        clear=((Kernel(name="other", us=500.0),) * 3,),
    ),
)
'''
KIND = '''"""A recording that nobody else writes: name, call, begin and end a line."""

from profkit.program.readers import RecordingKind
from profkit.program.timeline import Activity, Call, Process, Timeline


def read_toy(path):
    activities, calls = [], []
    for number, line in enumerate(path.read_text("utf-8").splitlines()[1:], 1):
        name, *times = line.split()
        called, start, end = map(int, times)
        if name == "wait":
            calls.append(Call("cudaDeviceSynchronize", called, start, 1, number))
            continue
        activities.append(Activity("kernel", name, start, end, correlation=number))
        calls.append(Call("cudaLaunchKernel", called, called + 5_000, 1, number))
    return Timeline("toy", [Process(1, 0, None, activities, calls, ())])


RECORDING = RecordingKind(
    name="a toy (.toy)", suffixes=(".toy",), read=read_toy,
    is_kind=lambda file: file.head.startswith(b"TOY 1"),
)
'''


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of profkit with one more rule, its page, and one more kind of recording."""
    folder = tmp_path_factory.mktemp("with")
    shutil.copytree(ROOT / "profkit", folder / "profkit")
    program = folder / "profkit/program"
    (program / "findings/hashing.py").write_text(RULE)
    shutil.copy(program / "pages/kernel.md", program / "pages/hashing.md")
    (program / "readers/toy.py").write_text(KIND)
    lines = ["TOY 1"]
    for step in range(12):
        begin = 1_000_000 + step * 1_500_000
        for kernel in range(10):
            called = begin + kernel * 6_000
            start = begin + 10_000 + kernel * 141_000
            lines.append(f"mine_block {called} {start} {start + 140_000}")
        lines.append(f"wait {called + 6_000} {start + 141_000} 0")
    (folder / "mining.toy").write_text("\n".join(lines))
    return folder


def run_profkit(package: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "profkit", *args],
        cwd=package,
        env={**os.environ, "PYTHONPATH": str(package), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_triage_reads_the_recording_and_says_the_rule_first(package: Path) -> None:
    done = run_profkit(package, "triage", "mining.toy", "--json")
    assert done.returncode == 0, done.stderr
    first = json.loads(done.stdout)["findings"][0]
    assert first["category"] == "hashing"
    assert "the GPU mines" in first["say"]


@pytest.mark.slow
def test_others_know_the_recording(package: Path) -> None:
    done = run_profkit(package, "diagnose", "mining.toy")
    assert "a trace of a whole program" in done.stderr
    assert "profkit triage mining.toy" in done.stderr
    (package / "ranks").mkdir()
    shutil.copy(package / "mining.toy", package / "ranks")
    assert run_profkit(package, "triage", "ranks").returncode == 0
    missing = run_profkit(package, "triage", "missing.toy").stderr
    assert "missing.toy: no such file" in missing


@pytest.mark.slow
def test_explain_has_the_rule(package: Path) -> None:
    page = run_profkit(package, "explain", "hashing").stdout
    assert "the GPU mines" in page
    assert "do not mine" in page
