"""Names of variants and cases  ->  checks, times, reports and records, one after another.

The verbs check, bench and profile are these functions and a table each.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from profkit.errors import ProfkitError
from profkit.files import write_text
from profkit.measure.check import sanitize
from profkit.measure.check.check import CaseCheck, Check
from profkit.measure.commits import git_commit
from profkit.measure.profile import collect
from profkit.measure.profile.faults import NoCounters
from profkit.measure.runs import TargetRun, plan_of, record_of, with_timing
from profkit.measure.targets import Target, build_target
from profkit.measure.variants import toolchain
from profkit.measure.workers import session
from profkit.measure.workers.crew import Crew
from profkit.measure.workers.session import Job, Measurements, Progress
from profkit.records.artifacts import place_for
from profkit.records.parts import NcuRun, RecordedReport
from profkit.records.record import Record, write_record
from profkit.records.store import digest

_SANITIZERS = 6  # at once: each is mostly starting up, on a processor core of its own


def measure_target(
    target: Target, progress: Progress, checks: Iterable[str] | None = None, time: bool = True
) -> TargetRun:
    """Build, check and time in turns.

    `checks`: names of the cases to judge beside target.cases; None takes the problem's CHECKS.
    """
    progress("build")
    builds, support = build_target(target)
    problem = target.problem
    todo = problem.pairs(target.cases, checks)
    good = [b for b in builds if b.error is None]
    by_name = {b.variant.id: b for b in builds}
    if not good and not target.references:
        return TargetRun(target, by_name, support, Measurements())
    job = Job(problem, target.folder, support, good, target.references, todo, target.cases, time)
    return TargetRun(target, by_name, support, session.run_job(job, progress, target.visible))


@dataclass(frozen=True)
class Profiled:
    """What profiling one variant at one case came to."""

    name: str  # variant or reference
    case: str
    record: Record
    report: Path | None
    problem: ProfkitError | None = None  # why there is none
    ncu_seconds: float = 0.0  # how long ncu ran
    wrong: bool = False  # whether the variant is at fault: its values, or what it touches


@dataclass(frozen=True)
class Profiling:
    """What profiling came to."""

    results: tuple[Profiled, ...]
    measured: Measurements  # the times before ncu, and on which GPUs they were taken


def profile(
    target: Target,
    artifacts: Path,
    options: collect.CollectOptions,
    progress: Progress,
    finished: Callable[[Profiled], None],
) -> Profiling:
    """Check, time, then collect a report of everything that is right; each is kept when it is done."""
    ncu: toolchain.Tool | ProfkitError
    try:
        ncu = toolchain.tool("ncu", target.folder)
    except ProfkitError as error:
        ncu = error
    run = measure_target(target, progress)
    commit = git_commit(target.problem.path.parent)
    counting = _Counting(run, artifacts, options, ncu)
    results: dict[tuple[str, str], Profiled] = {}
    reporting = threading.Lock()

    def collect_one(visible: str | None, at: tuple[str, str], _: bool) -> None:
        name, case = at
        record = replace(record_of(run, name, case), git=commit)
        check = run.measured.checks.get(name)
        faulty = check is not None and check.status in ("wrong", "failed")
        result = Profiled(name, case, record, None, why_not(run, name, case), wrong=faulty)
        if result.problem is None:
            progress(f"ncu {name} {case}")
            result = counting.collect(result, visible)
        with reporting:
            results[at] = result
            finished(result)

    names = (*(v.id for v in target.variants), *target.references)
    every = [(name, case) for name in names for case in target.cases]
    Crew(list(target.visible)).share(every, collect_one)
    return Profiling(tuple(results[at] for at in every), run.measured)


def why_not(run: TargetRun, name: str, case: str) -> ProfkitError | None:
    """Why a variant gets no time and no verdict; None if it does."""
    built, measured = run.builds.get(name), run.measured
    if built is not None and built.error is not None:
        return ProfkitError(f"{built.variant.path} does not compile\n{built.error}")
    check = measured.checks.get(name)
    if check and check.status in ("wrong", "failed"):
        return ProfkitError(f"{name} is {check.status}: {check.faults[0] if check.faults else ''}")
    if name in measured.failed:
        return ProfkitError(measured.failed[name])
    if (name, case) not in measured.times:
        return ProfkitError(f"{name} does not support case {case} on this GPU")
    return None


@dataclass
class _Counting:
    """Reports of what was measured, from every GPU at once: ncu itself lets one in at a time."""

    run: TargetRun
    artifacts: Path
    options: collect.CollectOptions
    ncu: toolchain.Tool | ProfkitError

    def collect(self, result: Profiled, visible: str | None) -> Profiled:
        """Run ncu round one call, and write the record; without ncu or counters, the record alone."""
        run, ncu = self.run, self.ncu
        place = run.target.problem.name, result.name, result.case
        report, path = place_for(self.artifacts, *place)
        if isinstance(ncu, ProfkitError):
            return _without(run, result, ncu, self.artifacts)
        plan = plan_of(run, result.name, result.case)
        kernels = [launch.kernel for launch in run.measured.launches[result.name, result.case]]
        if not kernels:  # a call that only copies: ncu would find nothing
            return _without(run, result, None, self.artifacts)
        options = self.options
        if visible is not None:
            options = replace(options, env={**os.environ, "CUDA_VISIBLE_DEVICES": visible})
        try:
            collected = collect.start_ncu(plan, kernels, report, ncu, options)
        except NoCounters as error:
            self.ncu = error  # the answer is the same for every variant
            return _without(run, result, error, self.artifacts)
        except ProfkitError as error:
            return replace(result, problem=error)
        timed = with_timing(result.record, run)
        how = collected.command, collected.seconds, collect.CLOCKS, options.cache, options.set
        record = replace(
            timed,
            versions=replace(timed.versions, ncu=ncu.version),
            ncu=NcuRun(*how, visible=visible),
            report=RecordedReport(report.name, digest(report), len(collected.kernels)),
        )
        write_record(path, record)
        return replace(result, record=record, report=report, ncu_seconds=collected.seconds)


def _without(
    run: TargetRun, result: Profiled, why: ProfkitError | None, artifacts: Path
) -> Profiled:
    """A record without a report; where an older report stands, its record stays with it."""
    report, path = place_for(artifacts, run.target.problem.name, result.name, result.case)
    record = with_timing(result.record, run)
    if not report.exists():
        write_record(path, record)
    return replace(result, record=record, problem=why)


def sanitized(run: TargetRun, progress: Progress) -> None:
    """Run compute-sanitizer on a small ragged case of every variant, and add its verdicts.

    They are kept beside the build, so that the records of this very binary have them. A tool that
    gives no verdict is a fault of that variant; the others go on.
    """
    sanitizer = toolchain.need_tool("compute-sanitizer")
    pool = ThreadPoolExecutor(_SANITIZERS)
    try:
        waiting = []
        for name, built in run.builds.items():
            check = run.measured.checks.get(name)
            if check is None or built.library is None:
                continue
            plan = plan_of(run, name, _small_case(run, check))
            run_tool = partial(sanitize.sanitize, sanitizer, plan)
            tools = {tool: pool.submit(run_tool, [tool]) for tool in sanitize.TOOLS}
            waiting.append((name, built.library, plan.case, tools))
        for name, library, case, tools in waiting:
            for tool, verdict in tools.items():
                progress(f"{tool} {name} {case}")
                check = run.measured.checks[name]
                run.measured.checks[name] = _with_verdict(check, case, tool, verdict)
            kept = run.measured.checks[name].sanitizer
            write_text(library.with_name("sanitizer.json"), json.dumps(kept))
    finally:
        pool.shutdown(cancel_futures=True)  # after Ctrl-C: what has not begun never does


def _with_verdict(
    check: Check, case: str, tool: str, running: Future[list[sanitize.SanitizerVerdict]]
) -> Check:
    """A check with one tool's verdict; what is not clean makes the variant wrong."""
    try:
        (result,) = running.result()
        clean, verdict = result.clean, result.verdict
    except ProfkitError as error:
        clean, verdict = False, error.message
    check = replace(check, sanitizer={**check.sanitizer, tool: verdict})
    if clean:
        return check
    fault = CaseCheck(case, 0, "wrong", faults=(f"{tool}: {verdict}",))
    return replace(check, status="wrong", cases=(*check.cases, fault))


def _small_case(run: TargetRun, check: Check) -> str:
    """The check with the fewest operations above ten million that the variant supports.

    Large enough for several tiles and a ragged end, small enough for tools that slow a kernel down
    a hundred times; the largest check of a problem whose checks are all smaller.
    """
    problem = run.target.problem
    supported = [c.case for c in check.cases if c.status != "not supported"]
    small = [c for c in supported if c in problem.checks]
    known = small or [c for c in supported if c in problem.cases] or list(problem.checks)
    work = {c: problem.module.operations(problem.case(c)) for c in known}
    large = {c: n for c, n in work.items() if n >= 1e7}
    return min(large, key=lambda c: large[c]) if large else max(work, key=lambda c: work[c])
