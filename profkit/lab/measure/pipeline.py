"""Names of variants and cases  ->  checks, times, reports and records, one after another.

The verbs check, bench and profile are these functions and a table each.

On other hosts each case is profiled by a Dask worker that has a GPU; a worker of one GPU is
`CUDA_VISIBLE_DEVICES=0 dask worker ADDRESS --nthreads 1 --resources GPU=1`. Kernels and artifacts lie
on a disk that all hosts share. What is compared at a case stays on one GPU, so a case is one task; a
worker that dies gives its case back to the scheduler.

In an A/A run nothing differs between the two sides: what these differ by, and what a process differs
by from the next, is what a comparison on this machine has to allow for. Both sides have their own
memory, as two variants have.
"""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from profkit.collect import profiler, tools
from profkit.collect.ncu_output import NoCounters
from profkit.collect.process import Tool
from profkit.errors import ProfkitError, require_package
from profkit.evidence.commits import read_current_commit
from profkit.evidence.tables import HistoryTwin
from profkit.files import is_path_there
from profkit.lab.measure import targets
from profkit.lab.measure.session import (
    GpuPool,
    Progress,
    check_and_time_run,
    make_worker_entry_of_build,
)
from profkit.lab.measure.targets import (
    Target,
    TargetRun,
    add_timing_of_run,
    build_target,
    make_profile_plan,
    make_record_without_timing,
)
from profkit.lab.measure.variants.build import Build
from profkit.lab.measure.worker import TIMEOUT, Setup, Worker
from profkit.records.parts import Commit, NcuRun, RecordedReport
from profkit.records.paths import make_run_paths
from profkit.records.record import Record, write_record
from profkit.records.store import compute_sha256_of_file

if TYPE_CHECKING:
    from profkit.units import CaseName, DaskClientOrExecutor


def measure_target(
    target: Target,
    progress: Progress,
    check_cases: Iterable[str] | None = None,
    is_timed: bool = True,
) -> TargetRun:
    """Build, check and time in turns.

    `check_cases`: names of the cases to judge beside target.cases; None takes the problem's CHECKS.
    """
    progress("build")
    builds, support = build_target(target)
    run = TargetRun(target, {b.variant.id: b for b in builds}, support)
    if target.references or any(b.error is None for b in builds):
        check_and_time_run(
            run,
            target.problem.list_case_seeds(target.cases, check_cases),
            progress,
            is_timed,
        )
    return run


@dataclass(frozen=True)
class Profiled:
    """One profiled case of a variant or a reference, with its record."""

    name: str  # variant or reference
    case: str
    record: Record
    report: Path | None
    problem: ProfkitError | None = None  # why there is none
    wrong: bool = False  # whether the variant is at fault: its values, or what it touches


@dataclass(frozen=True)
class Profiling:
    """All that was profiled, and what was measured before it."""

    results: tuple[Profiled, ...]
    measured: targets.Measurements  # the times before ncu, and on which GPUs they were taken


def _find_ncu(target: Target) -> Tool | ProfkitError:
    """Return ncu, or why there is none: checks and times do not need it."""
    try:
        return tools.require_tool_with_version("ncu", target.folder)
    except ProfkitError as error:
        return error


def profile_target(
    target: Target,
    artifacts: Path,
    options: profiler.CollectOptions,
    progress: Progress,
    finished: Callable[[Profiled], None],
) -> Profiling:
    """Check, time, then collect a report of everything that is right; each is kept when it is done."""
    ncu = _find_ncu(target)
    run = measure_target(target, progress)
    profiler = _Profiler(
        run, artifacts, options, ncu, read_current_commit(target.problem.path.parent)
    )
    results: dict[tuple[str, str], Profiled] = {}
    reporting = threading.Lock()

    def profile_one(visible: str | None, at: tuple[str, CaseName], _: bool) -> None:
        name, case = at
        result = profiler.make_result_without_report(name, case)
        if result.problem is None:
            progress(f"ncu {name} {case}")
            result = profiler.profile_and_record(result, visible)
        with reporting:
            results[at] = result
            finished(result)

    names = (*(v.id for v in target.variants), *target.references)
    every = list(product(names, target.cases))
    GpuPool(list(target.visible)).share_items(every, profile_one)
    return Profiling(tuple(results[at] for at in every), run.measured)


def explain_missing_verdict(run: TargetRun, name: str, case: CaseName) -> ProfkitError | None:
    """Return why a variant gets no time and no verdict; None if it does."""
    built = run.builds.get(name)
    measured = run.measured
    if built is not None and built.error is not None:
        return built.failure
    check = measured.checks.get(name)
    if check and check.status in ("wrong", "failed"):
        return ProfkitError(f"{name} is {check.status}: {check.faults[0] if check.faults else ''}")
    if name in measured.failed:
        return ProfkitError(measured.failed[name])
    if (name, case) not in measured.times:
        return ProfkitError(f"{name} does not support case {case} on this GPU")
    return None


@dataclass
class _Profiler:
    """Reports of what was measured, from every GPU at once: ncu itself lets one in at a time."""

    run: TargetRun
    artifacts: Path
    options: profiler.CollectOptions
    ncu: Tool | ProfkitError  # an error: why there are no reports
    commit: Commit | None

    def make_result_without_report(self, name: str, case: CaseName) -> Profiled:
        record = structs.replace(make_record_without_timing(self.run, name, case), git=self.commit)
        check = self.run.measured.checks.get(name)
        wrong = check is not None and check.status in ("wrong", "failed")
        return Profiled(
            name,
            case,
            record,
            None,
            explain_missing_verdict(self.run, name, case),
            wrong=wrong,
        )

    def profile_and_record(self, result: Profiled, visible_gpus: str | None) -> Profiled:
        """Run ncu round one call and write the record; without ncu or counters, the record alone.

        Where an older report stands, its record stays with it.
        """
        place = self.run.target.problem.name, result.name, result.case
        report, path = make_run_paths(self.artifacts, *place)
        record = add_timing_of_run(result.record, self.run)
        try:
            reported = self._collect_report(record, report, visible_gpus)
        except ProfkitError as error:
            return replace(result, problem=error)
        if reported is not None:
            write_record(path, reported)
            return replace(result, record=reported, report=report)
        if not is_path_there(report):
            write_record(path, record)
        why = None
        if isinstance(self.ncu, ProfkitError):
            why = self.ncu
        return replace(result, record=record, problem=why)

    def _collect_report(
        self, record: Record, report: Path, visible_gpus: str | None
    ) -> Record | None:
        at = (record.variant, record.case)
        ncu = self.ncu
        options = self.options
        kernels = []
        for launch in self.run.measured.launches[at]:
            kernels.append(launch.kernel)
        # In a call that only copies ncu would find nothing.
        if isinstance(ncu, ProfkitError) or not kernels:
            return None
        if visible_gpus is not None:
            options = replace(options, env={**os.environ, "CUDA_VISIBLE_DEVICES": visible_gpus})
        try:
            plan = make_profile_plan(self.run, *at)
            collected = profiler.profile_one_call(plan, kernels, report, ncu.path, options)
        except NoCounters as error:
            self.ncu = error  # the answer is the same for every variant
            return None
        return structs.replace(
            record,
            versions=structs.replace(record.versions, ncu=ncu.version),
            ncu=NcuRun(
                command=tuple(collected.command),
                seconds=collected.seconds,
                clock_control=profiler.CLOCKS,
                cache_control=options.cache,
                set=options.set,
                visible=visible_gpus,
            ),
            report=RecordedReport(
                file=report.name,
                sha256=compute_sha256_of_file(report),
                launches=len(collected.kernels),
            ),
        )


_RETRIES = 2


@dataclass(frozen=True)
class HostResult:
    """How profiling one case on another host ended."""

    case: str
    host: str  # where; "" where its workers were lost
    status: int  # exit status of `profkit profile` there
    errors: str


def profile_cases_on_workers(
    client: DaskClientOrExecutor,
    profile_arguments: Sequence[str],
    cases: Sequence[str],
    finished: Callable[[HostResult], None],
) -> list[HostResult]:
    """Run `profkit profile` once a case, wherever a GPU is free; ProfkitError if no worker has one.

    `profile_arguments` is what `profkit profile` is told beside the case; `finished` gets each result
    at once.
    """
    with require_package("distributed", "measuring on other hosts"):
        from distributed import as_completed
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    if not any(worker["resources"].get("GPU") for worker in workers):
        raise ProfkitError(
            "no worker of this scheduler has a GPU to give",
            "CUDA_VISIBLE_DEVICES=0 dask worker ADDRESS --nthreads 1 --resources GPU=1",
        )
    options = {"resources": {"GPU": 1}, "pure": False, "retries": _RETRIES}
    tasks = {
        client.submit(_profile_case_on_worker, tuple(profile_arguments), case, **options): case
        for case in cases
    }
    results: dict[str, HostResult] = {}
    for task in as_completed(list(tasks)):
        case = tasks[task]
        lost = task.exception()
        why = f"its workers were lost ({type(lost).__name__})"
        if lost is None:
            results[case] = task.result()
        else:
            results[case] = HostResult(case, "", 2, why)
        finished(results[case])
    return [results[case] for case in cases]


def _profile_case_on_worker(profile_arguments: Sequence[str], case: CaseName) -> HostResult:
    """Profile one case, in a process of its own on the worker's GPU."""
    from profkit.interpreter import make_module_command

    command = make_module_command(
        "profkit", "profile", *profile_arguments, "--case", case, "--quiet"
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return HostResult(case, socket.gethostname(), done.returncode, done.stderr.strip())


_AGAIN = "~again"  # no variant's id holds a ~


def iterate_aa_comparisons(
    target: Target, process_count: int, rounds_per_process: int, progress: Progress
) -> Iterator[list[HistoryTwin]]:
    """Yield the A/A comparisons of each process, one after another, as soon as it has ended.

    ProfkitError if a variant does not compile or is not right: its time is no noise.
    """
    progress("build")
    builds, support = build_target(target)
    for build in builds:
        if build.failure:
            raise build.failure
    if not builds:
        raise ProfkitError("an A/A run needs variants: references are not timed", "--variant ID")
    checks = tuple((case, 0) for case in target.cases)
    setup = Setup(target.problem.path.parent, target.folder, support, checks)
    for number in range(process_count):
        progress(f"process {number + 1} of {process_count}")
        with closing(Worker(setup, TIMEOUT)) as worker:
            if not number:
                _require_correct_results(worker, builds, checks)
            yield list(_iterate_aa_comparisons_once(worker, builds, target, rounds_per_process))


def _require_correct_results(
    worker: Worker, builds: list[Build], checks: tuple[tuple[CaseName, int], ...]
) -> None:
    for built in builds:
        name = built.variant.id
        check = worker.check_variant_and_list_launches(
            make_worker_entry_of_build(built), checks
        ).checks[name]
        if check.status != "right":
            if check.faults:
                why = check.faults[0]
            else:
                why = check.status
            raise ProfkitError(f"{name} is {check.status}: {why}", "profkit check says more")


def _iterate_aa_comparisons_once(
    worker: Worker, builds: list[Build], target: Target, rounds: int
) -> Iterator[HistoryTwin]:
    for case in target.cases:
        entries = [make_worker_entry_of_build(built) for built in builds]
        entries += [make_worker_entry_of_build(built, _AGAIN) for built in builds]
        times = worker.time_entries(entries, case, (rounds, rounds)).times
        gpu = worker.gpu
        for built in builds:
            name = built.variant.id
            first = times.get(name)
            again = times.get(name + _AGAIN)
            if first is None or again is None:
                continue
            yield HistoryTwin(
                session=first.session,
                variant=name,
                case=case,
                problem=target.problem.name,
                made=datetime.now(UTC).isoformat(timespec="seconds"),
                sass=built.sass,
                gpu=gpu.name if gpu else None,
                gpu_uuid=gpu.uuid if gpu else None,
                driver=gpu.driver if gpu else None,
                samples=first.warm,
                again=again.warm,
                sm_clock=first.after.sm_clock,
            )
