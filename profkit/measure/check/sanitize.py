"""A built variant and a case  ->  the verdicts of compute-sanitizer's four tools."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from profkit.errors import ProfkitError
from profkit.files import temporary_folder
from profkit.measure import process
from profkit.measure.cuda.library import Plan

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
_FOUND = 86  # an exit status that nothing else uses
_SUMMARY = re.compile(
    r"ERROR SUMMARY: (?P<errors>\d+) error"
    r"|RACECHECK SUMMARY: (?P<hazards>\d+) hazards? displayed \((?P<races>\d+) errors?, "
    r"(?P<warnings>\d+) warnings?\)"
)
_DETAIL = re.compile(
    r"^=========\s+((?:Invalid|Error|Race|Warning|Uninitialized|Barrier).*)$", re.M
)
_PLACE = re.compile(r"^=========\s+at (.*)$", re.M)


@dataclass(frozen=True)
class SanitizerVerdict:
    """What one tool said."""

    tool: str
    clean: bool
    verdict: str  # `clean`, or how many errors, the first of them and where


def sanitize(
    sanitizer: Path,
    plan: Plan,
    tools: Sequence[str] = TOOLS,
    timeout: float = 300.0,
) -> list[SanitizerVerdict]:
    """Run a plan (see profkit.measure.profile.launch) under each tool.

    A small case: each tool slows it down tens of times. `timeout`: seconds for each.
    """
    with temporary_folder() as folder:
        program = replace(plan, profile=False).program(folder)
        return [_run_tool(sanitizer, tool, program, timeout) for tool in tools]


def _run_tool(
    sanitizer: Path, tool: str, program: Sequence[str], timeout: float
) -> SanitizerVerdict:
    options = ["--tool", tool, "--error-exitcode", str(_FOUND), "--show-backtrace", "no"]
    done = process.run_command([sanitizer, *options, *program], timeout)
    if done.status is None:
        return SanitizerVerdict(tool, False, f"stopped after {timeout:.0f} s")
    return read_sanitizer(tool, done.status, done.output)


def read_sanitizer(tool: str, status: int, output: str) -> SanitizerVerdict:
    """What a tool's exit status and output say.

    Raises:
        ProfkitError: The tool did not do its work: no summary, or the program failed by itself.
    """
    summaries = list(_SUMMARY.finditer(output))
    if not summaries:
        words = (output.strip().splitlines() or [f"exit status {status}"])[-1]
        raise ProfkitError(
            f"compute-sanitizer --tool {tool} gave no verdict: {words[:200]}",
            "is it of the CUDA version of the driver? profkit doctor lists both",
        )
    last = summaries[-1]
    errors = int(last["errors"] or last["races"] or 0)
    warnings = int(last["warnings"] or 0)
    if not errors and not warnings and status == 0:
        return SanitizerVerdict(tool, True, "clean")
    if not errors and not warnings:
        raise ProfkitError(
            f"the variant failed under compute-sanitizer --tool {tool} (exit status {status})",
            _tail(output),
        )
    detail, place = _DETAIL.search(output), _PLACE.search(output)
    first = detail[1].strip() if detail else ""
    where = f" at {place[1].strip()}" if place else ""
    counted = f"{errors} errors" + (f", {warnings} warnings" if warnings else "")
    return SanitizerVerdict(tool, False, f"{counted}: {first}{where}"[:300])


def _tail(output: str) -> str:
    own = [s for s in output.splitlines() if s.strip() and not s.startswith("=====")]
    return own[-1][:200] if own else ""
