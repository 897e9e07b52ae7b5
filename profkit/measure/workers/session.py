"""What to check and time  ->  what came of it, from workers that may hang or crash.

When a worker loses its context or says nothing for too long, the variant it was at is to blame: it
has failed, and the rest goes on in a new worker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from profkit.errors import ProfkitError
from profkit.measure.bench.bench import ROUNDS, Times
from profkit.measure.build.build import Build
from profkit.measure.check.check import CaseCheck, Check, merged_checks, summed_check
from profkit.measure.cuda.device import Gpu
from profkit.measure.cuda.graph import GraphLaunch
from profkit.measure.variants.problem import Problem
from profkit.measure.workers import client
from profkit.measure.workers.client import Reply, Setup, Worker, WorkerLost
from profkit.measure.workers.protocol import Entry, Prepare
from profkit.records.store import JsonObject

TIMEOUT = client.TIMEOUT  # seconds without a word


@dataclass(frozen=True)
class Job:
    """What to measure.

    Attributes:
        problem: The problem.
        folder: The build folder.
        support: The build of support.cu.
        builds: Variants, built.
        references: Library calls to time with them.
        checks: (case, seed) that every variant is judged on.
        bench: Cases to launch and time at.
        time: Whether to time; else the launches of each case are listed only.
        cold: Whether to time with a cold L2 too.
    """

    problem: Problem
    folder: Path
    support: Path
    builds: Sequence[Build]
    references: Sequence[str] = ()
    checks: Sequence[tuple[str, int]] = ()
    bench: Sequence[str] = ()
    time: bool = True
    cold: bool = True


@dataclass
class Measurements:
    """What workers said.

    Attributes:
        gpu: The GPU; None before a worker has opened it.
        checks: Name -> its verdict.
        times: (name, case) -> samples.
        launches: (name, case) -> kernel launches of one call.
        failed: Name -> why it has no times.
    """

    gpu: Gpu | None = None
    checks: dict[str, Check] = field(default_factory=dict)
    times: dict[tuple[str, str], Times] = field(default_factory=dict)
    launches: dict[tuple[str, str], tuple[GraphLaunch, ...]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def checks_json(self) -> list[JsonObject]:
        """The verdicts, as verbs print them."""
        return [check.to_json() for check in self.checks.values()]

    def gpu_json(self) -> JsonObject:
        """The GPU, as verbs and records have it; empty before a worker has opened it."""
        return self.gpu.to_json() if self.gpu else {}


Progress = Callable[[str], None]


def run_job(job: Job, progress: Progress = lambda _: None) -> Measurements:
    """Do a job, in as many workers as it takes.

    Args:
        job: What to do.
        progress: Told what is being done, in a few words.
    """
    prepare = Prepare(tuple(job.checks))
    setup = Setup(job.problem.path.parent, job.folder, job.support, prepare)
    measured = Measurements()
    finished: set[str] = set()  # cases
    with closing(Worker(setup, TIMEOUT, progress=progress)) as worker:
        while True:
            try:
                _check_all(job, worker, measured)
                for case in job.bench:
                    if case not in finished:
                        _measure_case(job, worker, measured, case)
                        finished.add(case)
            except WorkerLost as lost:
                _blame(job, measured, lost)
            else:
                return measured


def _check_all(job: Job, worker: Worker, measured: Measurements) -> None:
    """Judge every variant that was not judged yet."""
    worker.start()
    measured.gpu = worker.gpu
    for build in job.builds:
        name = build.variant.id
        if name not in measured.checks and name not in measured.failed:
            reply = worker.judge(_entry(build), job.checks)
            measured.checks[name] = reply.checks[name]


def _measure_case(job: Job, worker: Worker, measured: Measurements, case: str) -> None:
    """Time everything that is correct at one case, in turns."""
    entries = [_entry(build) for build in job.builds if _is_timed(build, measured, case)]
    entries += [Entry(name) for name in job.references if name not in measured.failed]
    if not entries:
        return
    if job.time:
        reply = worker.time(entries, case, ROUNDS, job.cold)
    else:
        reply = worker.list_launches(entries, case)
    _keep(measured, reply, case)


def _is_timed(build: Build, measured: Measurements, case: str) -> bool:
    """Only what is correct is timed, and what has not taken a worker with it."""
    name = build.variant.id
    check = measured.checks.get(name)
    if check is None or name in measured.failed:
        return False
    return check.status == "right" and case in check.correct_cases


def _entry(build: Build) -> Entry:
    library = str(build.library) if build.library else None
    return Entry(build.variant.id, library, build.variant.header.inputs)


def _keep(measured: Measurements, reply: Reply, case: str) -> None:
    for name, check in reply.checks.items():
        # A reference is judged case by case.
        before = measured.checks.get(name)
        measured.checks[name] = merged_checks(before, check) if before else check
    measured.launches |= {(name, case): launches for name, launches in reply.launches.items()}
    measured.times |= {(name, case): times for name, times in reply.times.items()}
    measured.failed |= reply.refused


def _blame(job: Job, measured: Measurements, lost: WorkerLost) -> None:
    """The variant that the worker was at has failed.

    Raises:
        ProfkitError: It was at none, or that one had failed already.
    """
    name, why = lost.at.name, lost.message + (f"; {lost.hint}" if lost.hint else "")
    if name in measured.failed or not name:
        raise ProfkitError(f"measuring stopped: {why}", "run it again on fewer variants")
    measured.failed[name] = why
    check = measured.checks.get(name)
    if check is None or check.status == "right":
        fault = CaseCheck("?", 0, "failed", faults=(why,))
        measured.checks[name] = summed_check(name, job.problem, [fault])
