"""Names of variants and cases  ->  checks, times, reports and records, one after another.

The verbs check, bench and profile are these functions and a table each.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from profkit.errors import ProfkitError
from profkit.measure.build import toolchain
from profkit.measure.check import sanitize
from profkit.measure.profile import collect
from profkit.measure.profile.faults import NoCounters
from profkit.measure.runs import Made, git_commit, plan_of, record_of, timing_of
from profkit.measure.targets import Target, builds
from profkit.measure.workers import session
from profkit.measure.workers.session import Job, Outcome, Progress
from profkit.records import store as record
from profkit.records.artifacts import place_for

_SANITIZERS = 6  # at once: each is mostly starting up, on a processor core of its own


def measure(
    target: Target, progress: Progress, checks: Iterable[str] | None = None, time: bool = True
) -> Made:
    """Build, check and time in turns.

    Args:
        target: What.
        progress: Told what is being done.
        checks: Names of the cases to judge beside target.cases; None takes the problem's CHECKS.
        time: Whether to time.
    """
    progress("build")
    made, support = builds(target)
    the = target.problem
    small = the.checks if checks is None else checks
    todo = [(c, s) for c in small for s in the.module.SEEDS]
    todo += [(c, 0) for c in target.cases if (c, 0) not in todo]
    good = [b for b in made if b.error is None]
    by_name = {b.variant.id: b for b in made}
    if not good and not target.references:
        return Made(target, by_name, support, Outcome())
    job = Job(the, target.folder, support, good, target.references, todo, target.cases, time)
    return Made(target, by_name, support, session.run(job, progress))


@dataclass(frozen=True)
class Profiled:
    """What profiling one variant at one case came to.

    Attributes:
        name: Variant or reference.
        case: The case.
        record: The run record, also if there is no report.
        report: The report, if there is one.
        problem: Why there is none.
        ncu_seconds: How long ncu ran.
        wrong: Whether the variant is at fault: its values, or what it touches.
    """

    name: str
    case: str
    record: dict[str, Any]
    report: Path | None
    problem: ProfkitError | None = None
    ncu_seconds: float = 0.0
    wrong: bool = False


def profile(
    target: Target,
    artifacts: Path,
    options: collect.Options,
    progress: Progress,
    finished: Callable[[Profiled], None],
) -> list[Profiled]:
    """Check, time, then collect a report of everything that is right; each is kept when it is done.

    Args:
        target: What.
        artifacts: Where reports and records go.
        options: For ncu.
        progress: Told what is being done.
        finished: Given each result as soon as it is on disk.
    """
    ncu: toolchain.Tool | ProfkitError
    try:
        ncu = toolchain.tool("ncu", target.folder)
    except ProfkitError as error:
        ncu = error
    made = measure(target, progress)
    commit = git_commit(target.problem.path.parent)
    results = []
    for name in (*(v.id for v in target.variants), *target.references):
        for case in target.cases:
            said = {**record_of(made, name, case), "git": commit}
            checked = made.outcome.checks.get(name) or {}
            wrong = checked.get("status") in ("wrong", "failed")
            result = Profiled(name, case, said, None, why_not(made, name, case), wrong=wrong)
            if result.problem is None:
                progress(f"ncu {name} {case}")
                result = _collect(made, result, artifacts, options, ncu)
                if isinstance(result.problem, NoCounters):
                    ncu = result.problem  # the answer is the same for every variant
            results.append(result)
            finished(result)
    return results


def why_not(made: Made, name: str, case: str) -> ProfkitError | None:
    """Why a variant gets no time and no verdict; None if it does."""
    built, outcome = made.builds.get(name), made.outcome
    if built is not None and built.error is not None:
        return ProfkitError(f"{built.variant.path} does not compile\n{built.error}")
    said = outcome.checks.get(name)
    if said and said["status"] in ("wrong", "failed"):
        faults = [f"{c['case']} seed {c['seed']}: {f}" for c in said["cases"] for f in c["faults"]]
        return ProfkitError(f"{name} is {said['status']}: {faults[0] if faults else ''}")
    if name in outcome.failed:
        return ProfkitError(outcome.failed[name])
    if (name, case) not in outcome.times:
        return ProfkitError(f"{name} does not support case {case} on this GPU")
    return None


def _collect(
    made: Made,
    result: Profiled,
    artifacts: Path,
    options: collect.Options,
    ncu: toolchain.Tool | ProfkitError,
) -> Profiled:
    """Run ncu round one call, and write the record; without ncu or counters, the record alone."""
    report, path = place_for(artifacts, made.target.problem.name, result.name, result.case)
    said = result.record
    if isinstance(ncu, ProfkitError):
        return _without(made, result, ncu, artifacts)
    plan = plan_of(made, result.name, result.case)
    kernels = [x["kernel"] for x in said["launches"]]
    try:
        got = collect.launch(plan, kernels, report, ncu, options)
    except NoCounters as error:
        return _without(made, result, error, artifacts)
    except ProfkitError as error:
        return replace(result, problem=error)
    said["timing"] = timing_of(made, result.name, result.case)
    said["versions"]["ncu"] = ncu.version
    said["ncu"] = {
        "command": got.command,
        "seconds": got.seconds,
        "clock_control": collect.CLOCKS,
        "cache_control": options.cache,
        "set": options.set,
    }
    said["report"] = {
        "file": report.name,
        "sha256": record.digest(report),
        "launches": len(got.kernels),
    }
    record.save(path, said)
    return replace(result, report=report, ncu_seconds=got.seconds)


def _without(made: Made, result: Profiled, why: ProfkitError, artifacts: Path) -> Profiled:
    """A record without a report; where an older report stands, its record stays with it."""
    report, path = place_for(artifacts, made.target.problem.name, result.name, result.case)
    result.record["timing"] = timing_of(made, result.name, result.case)
    if not report.exists():
        record.save(path, result.record)
    return replace(result, problem=why)


def sanitized(made: Made, progress: Progress) -> None:
    """Run compute-sanitizer on a small ragged case of every variant, and add its verdicts.

    They are kept beside the build, so that the records of this very binary have them. A tool that
    gives no verdict is a fault of that variant; the others go on.
    """
    sanitizer = toolchain.need("compute-sanitizer")
    pool = ThreadPoolExecutor(_SANITIZERS)
    try:
        asked = []
        for name, built in made.builds.items():
            said = made.outcome.checks.get(name)
            if said is None or built.library is None:
                continue
            case = _small_case(made, said)
            plan = plan_of(made, name, case)
            runs = [
                (t, pool.submit(sanitize.sanitize, sanitizer, plan, [t])) for t in sanitize.TOOLS
            ]
            asked.append((name, built.library, said, case, runs))
        for name, library, said, case, runs in asked:
            for tool, run in runs:
                progress(f"{tool} {name} {case}")
                _add_verdict(said, case, tool, run)
            record.write_text(library.with_name("sanitizer.json"), json.dumps(said["sanitizer"]))
    finally:
        pool.shutdown(cancel_futures=True)  # after Ctrl-C: what has not begun never does


def _add_verdict(
    said: dict[str, Any], case: str, tool: str, run: Future[list[sanitize.Finding]]
) -> None:
    """Put one tool's verdict into a check; what is not clean makes the variant wrong."""
    try:
        (found,) = run.result()
        clean, verdict = found.clean, found.verdict
    except ProfkitError as error:
        clean, verdict = False, error.message
    said["sanitizer"][tool] = verdict
    if not clean:
        said["status"] = "wrong"
        fault = {"case": case, "seed": 0, "status": "wrong"}
        said["cases"].append({**fault, "faults": [f"{tool}: {verdict}"]})


def _small_case(made: Made, said: dict[str, Any]) -> str:
    """The case with the fewest operations above ten million that the variant supports.

    Large enough for several tiles and a ragged end, small enough for tools that slow a kernel down
    a hundred times.
    """
    the = made.target.problem
    supported = [c["case"] for c in said["cases"] if c["status"] != "not supported"]
    known = [c for c in supported if c in {**the.cases, **the.checks}]
    work = {c: the.module.operations(the.case(c)) for c in known or the.checks}
    large = {c: n for c, n in work.items() if n >= 1e7} or work
    return min(large, key=lambda c: large[c])
