"""What to check and time  ->  what came of it, from workers that may hang or crash.

When a worker loses its context or says nothing for too long, the variant it was at is to blame: it
has failed, and the rest goes on in a new worker.

GPUs share a queue and no plan: items differ in length, and GPUs of one host in speed, so a split made
before leaves some of them idle.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Generic, TypeVar

from profkit.errors import ProfkitError
from profkit.measure.check.bench import ROUNDS, Times
from profkit.measure.check.check import CaseCheck, Check, merged_checks, summed_check
from profkit.measure.cuda.device import Gpu
from profkit.measure.cuda.library import GraphLaunch
from profkit.measure.variants.build import Build
from profkit.measure.variants.problem import Problem
from profkit.measure.workers import client
from profkit.measure.workers.client import Reply, Setup, Worker, WorkerLost
from profkit.measure.workers.protocol import Entry, Prepare
from profkit.records.store import JsonObject

ItemT = TypeVar("ItemT")
MemberT = TypeVar("MemberT")


class GivenBack(ProfkitError):
    """A member could not do an item for a reason that may be its own: another one tries it."""


@dataclass
class Crew(Generic[MemberT]):
    """Those who do items, one a GPU."""

    members: list[MemberT]
    # those that failed, with why; they get nothing more
    lost: list[tuple[MemberT, ProfkitError]] = field(default_factory=list)

    def share(self, items: Sequence[ItemT], do: Callable[[MemberT, ItemT, bool], None]) -> None:
        """Do every item once, each in a thread of its own; what is decided is decided in this one.

        In their order: do(member, item, last); `last`: nobody is left who has not tried it.
        GivenBack leaves an item to another member; any other ProfkitError ends the member as well,
        anything else ends all when what runs has ended.

        Raises:
            ProfkitError: No member is left, as the last one said it.
        """
        if len(self.members) == 1:
            for item in items:
                do(self.members[0], item, True)
            return
        ended: SimpleQueue[tuple[MemberT, ItemT, list[MemberT], BaseException | None]]
        ended, free = SimpleQueue(), list(self.members)
        waiting = deque[tuple[ItemT, list[MemberT]]]((item, []) for item in items)
        broken: BaseException | None = None

        def run(member: MemberT, item: ItemT, tried: list[MemberT]) -> None:
            error: BaseException | None = None
            try:
                do(member, item, all(m is member or m in tried for m in self.members))
            except BaseException as caught:  # noqa: BLE001 - raised where the items were given
                error = caught
            ended.put((member, item, tried, error))

        while len(free) < len(self.members) or (waiting and not broken):
            for member, item, tried in () if broken else self._pairs(free, waiting):
                # Daemons: after Ctrl-C nobody waits for them.
                threading.Thread(target=run, args=(member, item, tried), daemon=True).start()
            member, item, tried, error = ended.get()
            if isinstance(error, GivenBack):
                waiting.append((item, [*tried, member]))
            elif isinstance(error, ProfkitError):
                self.members.remove(member)
                self.lost.append((member, error))
                waiting.appendleft((item, tried))
                broken = broken or (None if self.members else error)
            elif error:
                broken = broken or error
            if member in self.members:
                free.append(member)
        if broken:
            raise broken

    def _pairs(
        self, free: list[MemberT], waiting: deque[tuple[ItemT, list[MemberT]]]
    ) -> list[tuple[MemberT, ItemT, list[MemberT]]]:
        """Take from both who is to do what next."""
        pairs = []
        for member in tuple(free):
            for handed in tuple(waiting):
                item, tried = handed
                if all(m in tried for m in self.members):
                    tried.clear()  # the others were lost meanwhile
                if member not in tried:
                    free.remove(member)
                    waiting.remove(handed)
                    pairs.append((member, item, tried))
                    break
        return pairs


TIMEOUT = client.TIMEOUT  # seconds without a word


@dataclass(frozen=True)
class Job:
    """What to measure."""

    problem: Problem
    folder: Path  # the build folder
    support: Path  # the build of support.cu
    builds: Sequence[Build]
    references: Sequence[str] = ()
    checks: Sequence[tuple[str, int]] = ()  # (case, seed) that every variant is judged on
    bench: Sequence[str] = ()
    time: bool = True  # whether to time; else the launches of each case are listed only
    cold: bool = True


@dataclass
class Measurements:
    """What workers said."""

    gpu: Gpu | None = None  # the GPU; None before a worker has opened it
    checks: dict[str, Check] = field(default_factory=dict)  # name -> its verdict
    times: dict[tuple[str, str], Times] = field(default_factory=dict)  # (name, case) -> samples
    # (name, case) -> kernel launches of one call
    launches: dict[tuple[str, str], tuple[GraphLaunch, ...]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)  # name -> why it has no times
    # (name, case) -> the GPU that launched it there; all of one case are on one
    gpus: dict[tuple[str, str], Gpu] = field(default_factory=dict)
    # what became of GPUs and workers that failed on the way
    lost: list[str] = field(default_factory=list)

    def gpu_of(self, name: str, case: str) -> Gpu | None:
        """The GPU that a variant ran on at a case; None before a worker has opened one."""
        return self.gpus.get((name, case), self.gpu)

    def checks_json(self) -> list[JsonObject]:
        """The verdicts, as verbs print them."""
        return [check.to_json() for check in self.checks.values()]

    def gpu_json(self) -> JsonObject:
        """The GPU, as verbs and records have it; empty before a worker has opened it."""
        return self.gpu.to_json() if self.gpu else {}


Progress = Callable[[str], None]


def run_job(
    job: Job,
    progress: Progress = lambda _: None,
    visible: Sequence[str | None] = (None,),
) -> Measurements:
    """Do a job, in as many workers as it takes.

    Each GPU takes the next variant to check as soon as it is free, and then the next case to time:
    all that is compared at a case takes turns on one GPU.

    `visible`: CUDA_VISIBLE_DEVICES of each worker; None leaves it as it is.
    """
    prepare = Prepare(tuple(job.checks))
    setup = Setup(job.problem.path.parent, job.folder, job.support, prepare)
    workers = [Worker(setup, TIMEOUT, v, progress) for v in visible]
    crew = Crew(list(workers))
    doing = _Session(job, Measurements(), threading.Lock())
    try:
        if not job.builds:
            doing.open(workers[0])
        crew.share(job.builds, doing.check)
        crew.share(job.bench, doing.measure)
    finally:
        for worker in workers:
            worker.close()
    for worker, why in crew.lost:
        doing.measured.lost.append(f"{_place(worker)} was left out: {why.message}")
    # Several GPUs end in any order; what is said of a job is not to depend on it.
    ranks = {name: at for at, name in enumerate((*_names(job.builds), *job.references))}
    checks = doing.measured.checks
    doing.measured.checks = {name: checks[name] for name in sorted(checks, key=ranks.__getitem__)}
    return doing.measured


def _names(builds: Sequence[Build]) -> list[str]:
    return [build.variant.id for build in builds]


def _place(worker: Worker) -> str:
    """A worker's GPU, as messages name it."""
    return worker.gpu.pci if worker.gpu else f"GPU {worker.visible}"


@dataclass
class _Session:
    """A job on its way, shared by the threads of the GPUs."""

    job: Job
    measured: Measurements
    lock: threading.Lock

    def open(self, worker: Worker) -> None:
        """Start a worker's process, if it is not there."""
        worker.start()
        with self.lock:
            self.measured.gpu = self.measured.gpu or worker.gpu

    def given_back(self, worker: Worker, lost: WorkerLost, what: str) -> GivenBack:
        """An item that another GPU tries, and the line that says so."""
        with self.lock:
            self.measured.lost.append(
                f"{what} was given to another GPU: at {_place(worker)} {lost.message}"
            )
        return GivenBack(lost.message, lost.hint)

    def check(self, worker: Worker, build: Build, last: bool) -> None:
        """Judge one variant; one that takes a worker with it is tried on one GPU more.

        Raises:
            GivenBack: The worker was lost, and another GPU may say whose fault it was.
            ProfkitError: This GPU is of no use.
        """
        name = build.variant.id
        try:
            self.open(worker)
            reply = worker.judge(entry_of(build), self.job.checks)
        except WorkerLost as lost:
            if lost.at.name == name and not last:
                raise self.given_back(worker, lost, name) from lost
            with self.lock:
                _blame(self.job, self.measured, lost)
            return
        with self.lock:
            self.measured.checks[name] = reply.checks[name]

    def measure(self, worker: Worker, case: str, last: bool) -> None:
        """Time everything that is correct at one case, in turns; what takes the worker with it not.

        Raises:
            GivenBack: The worker was lost, and another GPU may say whose fault it was.
            ProfkitError: This GPU is of no use.
        """
        while True:
            try:
                self.open(worker)
                _measure_case(self.job, worker, self, case)
            except WorkerLost as lost:
                if lost.at.name and not last:
                    raise self.given_back(worker, lost, f"case {case}") from lost
                with self.lock:
                    _blame(self.job, self.measured, lost)
            else:
                return


def _measure_case(job: Job, worker: Worker, doing: _Session, case: str) -> None:
    measured = doing.measured
    entries = [entry_of(build) for build in job.builds if _is_timed(build, measured, case)]
    entries += [Entry(name) for name in job.references if name not in measured.failed]
    if not entries:
        return
    if job.time:
        reply = worker.time(entries, case, ROUNDS, job.cold)
    else:
        reply = worker.list_launches(entries, case)
    with doing.lock:
        _keep(measured, reply, case)
        if worker.gpu:
            measured.gpus |= {(entry.name, case): worker.gpu for entry in entries}


def _is_timed(build: Build, measured: Measurements, case: str) -> bool:
    """Only what is correct is timed, and what has not taken a worker with it."""
    name = build.variant.id
    check = measured.checks.get(name)
    if check is None or name in measured.failed:
        return False
    return check.status == "right" and case in check.correct_cases


def entry_of(build: Build, again: str = "") -> Entry:
    """A build as the protocol has it; `again` ends the name of one that is timed twice."""
    library = str(build.library) if build.library else None
    return Entry(build.variant.id + again, library, build.variant.header.inputs)


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
