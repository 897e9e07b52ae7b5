from pathlib import Path

import pytest

from profkit.errors import ProfkitError
from profkit.lab.measure import sanitize
from profkit.lab.measure.cuda.library import LaunchPlan

CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
OUT_OF_BOUNDS = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 2 bytes
=========     at attention(const __half *)+0x1f0 in base.cuh:60
=========     by thread (0,0,0) in block (4,5,0)
=========     Access to 0x7f0 is out of bounds
========= ERROR SUMMARY: 12 errors
"""
RACE = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at kernel(float *)+0x90 in a.cu:7
=========     and Read access at kernel(float *)+0xd0 in a.cu:9 [3840 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
WARNED = "========= RACECHECK SUMMARY: 2 hazards displayed (0 errors, 2 warnings)\n"
NO_RACE = "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"


@pytest.mark.parametrize(
    ("tool", "status", "output", "clean", "verdict"),
    [
        ("memcheck", 0, CLEAN, True, "clean"),
        ("racecheck", 0, NO_RACE, True, "clean"),
        ("memcheck", 86, OUT_OF_BOUNDS, False, "12 errors: Invalid __global__ read of size 2"),
        ("racecheck", 86, RACE, False, "1 errors: Error: Race reported between Write access"),
        ("racecheck", 0, WARNED, False, "0 errors, 2 warnings"),
    ],
)
def test_verdicts(tool: str, status: int, output: str, clean: bool, verdict: str) -> None:
    found = sanitize.summarize_sanitizer_output(tool, status, output)
    assert (found == sanitize.CLEAN) == clean
    assert found.startswith(verdict)


def test_the_place_is_in_the_verdict() -> None:
    assert "base.cuh:60" in sanitize.summarize_sanitizer_output("memcheck", 86, OUT_OF_BOUNDS)


@pytest.mark.parametrize(
    ("status", "output"), [(1, ""), (0, "nothing known"), (2, "Error: device not supported\n")]
)
def test_no_summary_is_no_verdict(status: int, output: str) -> None:
    with pytest.raises(ProfkitError, match="gave no verdict"):
        sanitize.summarize_sanitizer_output("memcheck", status, output)


def test_a_program_that_fails_by_itself_is_not_clean() -> None:
    with pytest.raises(ProfkitError, match="exit status 2") as caught:
        sanitize.summarize_sanitizer_output("memcheck", 2, "profkit: cannot load v.so\n" + CLEAN)
    assert "cannot load v.so" in caught.value.hint


def test_a_hang_is_stopped(tmp_path: Path) -> None:
    tool = tmp_path / "compute-sanitizer"
    tool.write_text("#!/bin/sh\nsleep 60\n")
    tool.chmod(0o755)
    found = sanitize.run_sanitizer_tool(tool, LaunchPlan("x", "y"), "synccheck", timeout_s=0.3)
    assert "stopped after" in found
