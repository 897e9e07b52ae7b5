"""--max-memory: an answer within it, or one line that it is too little; never that a file is damaged."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.reports import made

REPORT = ROOT / "artifacts" / "attention" / "C" / "unfused.ncu-repz"


def asked(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "profkit", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("size", ["40M", "90M", "120M"])
def test_too_little_is_said_in_two_lines(size: str) -> None:
    done = asked("--max-memory", size, "diagnose", REPORT)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"profkit: (\S+: )?out of memory\n  [^\n]+\n", done.stderr)


def test_enough_is_enough() -> None:
    whole, held = asked("diagnose", REPORT), asked("--max-memory", "1G", "diagnose", REPORT)
    assert (held.returncode, held.stdout, held.stderr) == (0, whole.stdout, "")


def test_a_damaged_one_is_still_called_that(tmp_path: Path) -> None:
    path = tmp_path / "x.ncu-rep"
    path.write_bytes(made.report()[:-20])
    assert "damaged" in asked("--max-memory", "1G", "diagnose", path).stderr


@pytest.mark.parametrize("size", ["x", "4", "-1G", "1e3G", "", "9999999G"])
def test_what_is_no_size(size: str) -> None:
    done = asked("--max-memory", size, "list")
    assert (done.returncode, done.stderr) == (
        2, f"profkit: --max-memory {size}: not understood\n  say 800M or 4G\n"
    )  # fmt: skip
