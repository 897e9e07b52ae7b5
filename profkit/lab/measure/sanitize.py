"""Built variants and a case  ->  the verdicts of compute-sanitizer's tools, kept next to the build."""

from __future__ import annotations

import json
import re
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.collect import process, tools
from profkit.errors import ProfkitError
from profkit.files import make_temporary_folder, write_text
from profkit.lab.measure.check import CaseCheck, Check
from profkit.lab.measure.cuda.library import LaunchPlan
from profkit.lab.measure.session import Progress
from profkit.lab.measure.targets import TargetRun, make_profile_plan

if TYPE_CHECKING:
    from profkit.units import CaseName, Seconds, TextOrEmpty


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


CLEAN = "clean"


def run_sanitizer_tool(
    sanitizer: Path, plan: LaunchPlan, tool: str, timeout_s: Seconds = 300.0
) -> str:
    """Run a plan (see profkit.lab.measure.launch) under one tool; its verdict.

    A small case: a tool slows it down tens of times. `timeout_s`: seconds.
    """
    options = ["--tool", tool, "--error-exitcode", str(_FOUND), "--show-backtrace", "no"]
    with make_temporary_folder() as folder:
        program = replace(plan, profile=False).write_program(folder)
        done = process.run_command([sanitizer, *options, *program], timeout_s)
    if done.status is None:
        return f"stopped after {timeout_s:.0f} s"
    return summarize_sanitizer_output(tool, done.status, done.output)


def _find_last_program_line(output: str) -> TextOrEmpty:
    """Return the last line that the program wrote and not the tool; empty for none."""
    last = ""
    for line in output.splitlines():
        if line.strip() and not line.startswith("====="):
            last = line
    return last


def summarize_sanitizer_output(tool: str, exit_status: int, output: str) -> str:
    """Return CLEAN, or how many errors a tool's output says, the first of them and where.

    ProfkitError: the tool did not do its work: no summary, or the program failed by itself.
    """
    summaries = list(_SUMMARY.finditer(output))
    if not summaries:
        words = (output.strip().splitlines() or [f"exit status {exit_status}"])[-1]
        raise ProfkitError(
            f"compute-sanitizer --tool {tool} gave no verdict: {words[:200]}",
            "is it of the CUDA version of the driver? profkit doctor lists both",
        )
    last = summaries[-1]
    errors = int(last["errors"] or last["races"] or 0)
    warnings = int(last["warnings"] or 0)
    if not errors and not warnings:
        if exit_status == 0:
            return CLEAN
        raise ProfkitError(
            f"the variant failed under compute-sanitizer --tool {tool} (exit status {exit_status})",
            _find_last_program_line(output)[:200],
        )
    detail = _DETAIL.search(output)
    place = _PLACE.search(output)
    first = ""
    if detail:
        first = detail[1].strip()
    where = ""
    if place:
        where = f" at {place[1].strip()}"
    counted = f"{errors} errors" + (f", {warnings} warnings" if warnings else "")
    return f"{counted}: {first}{where}"[:300]


_ENOUGH = 1e7  # operations of a case that has several tiles and a ragged end
_AT_ONCE = 6  # each is mostly starting up, on a processor core of its own


def run_sanitizer_on_all_variants(run: TargetRun, progress: Progress) -> None:
    """Run compute-sanitizer on a small ragged case of every variant, and add its verdicts.

    They are kept next to the build, so that the records of this very binary have them. A tool that
    gives no verdict is a fault of that variant; the others go on.
    """
    sanitizer = tools.require_tool("compute-sanitizer")
    pool = process.make_thread_pool(_AT_ONCE)
    try:
        waiting = []
        for name, built in run.builds.items():
            check = run.measured.checks.get(name)
            if check is None or built.library is None:
                continue
            plan = make_profile_plan(run, name, _choose_small_case(run, check))
            verdicts = {
                tool: pool.submit(run_sanitizer_tool, sanitizer, plan, tool) for tool in TOOLS
            }
            waiting.append((name, built.library, plan.case, verdicts))
        for name, library, case, verdicts in waiting:
            for tool, verdict in verdicts.items():
                progress(f"{tool} {name} {case}")
                check = run.measured.checks[name]
                run.measured.checks[name] = _wait_for_sanitizer_verdict(check, case, tool, verdict)
            kept = run.measured.checks[name].sanitizer
            write_text(library.with_name("sanitizer.json"), json.dumps(kept))
    finally:
        pool.shutdown(cancel_futures=True)  # after Ctrl-C: what has not begun never does


def _wait_for_sanitizer_verdict(
    check: Check, case: CaseName, tool: str, verdict_future: Future[str]
) -> Check:
    """Return a check with one tool's verdict; what is not clean makes the variant wrong."""
    try:
        verdict = verdict_future.result()
    except ProfkitError as error:
        verdict = error.message
    check = replace(check, sanitizer={**check.sanitizer, tool: verdict})
    if verdict == CLEAN:
        return check
    fault = CaseCheck(case, 0, "wrong", faults=(f"{tool}: {verdict}",))
    return replace(check, status="wrong", cases=(*check.cases, fault))


def _choose_small_case(run: TargetRun, check: Check) -> CaseName:
    """Return the check with the fewest operations above ten million that the variant supports.

    Large enough for several tiles and a ragged end, small enough for tools that slow a kernel down
    a hundred times; the largest check of a problem whose checks are all smaller.
    """
    problem = run.target.problem
    supported = []
    for case in check.cases:
        if case.status != "not supported":
            supported.append(case.case)
    names = []
    for name in supported:
        if name in problem.checks:
            names.append(name)
    if not names:
        names = []
        for name in supported:
            if name in problem.cases:
                names.append(name)
    if not names:
        names = list(problem.checks)
    operations = {}
    for name in names:
        operations[name] = problem.module.operations(problem.get_case(name))
    large = []
    for name in names:
        if operations[name] >= _ENOUGH:
            large.append(name)
    if large:
        return min(large, key=operations.__getitem__)
    return max(names, key=operations.__getitem__)
