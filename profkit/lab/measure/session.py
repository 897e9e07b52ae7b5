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
from queue import SimpleQueue
from typing import TYPE_CHECKING, Generic, TypeVar

from profkit.errors import ProfkitError
from profkit.lab.measure.bench import ROUNDS
from profkit.lab.measure.check import CaseCheck, combine_case_checks, merge_checks
from profkit.lab.measure.targets import TargetRun
from profkit.lab.measure.variants.build import Build
from profkit.lab.measure.worker import TIMEOUT, Entry, Setup, Worker, WorkerLost

if TYPE_CHECKING:
    from profkit.units import CaseName


ItemT = TypeVar("ItemT")
MemberT = TypeVar("MemberT")
Progress = Callable[[str], None]


class GivenBack(ProfkitError):
    """A member could not do an item for a reason that may be its own: another one tries it."""


@dataclass
class _Job(Generic[ItemT, MemberT]):
    item: ItemT
    tried: list[MemberT] = field(default_factory=list)  # those that gave it back


_Ended = SimpleQueue[tuple[MemberT, _Job[ItemT, MemberT], BaseException | None]]


@dataclass
class GpuPool(Generic[MemberT]):
    """Workers on GPUs that share the work between them."""

    members: list[MemberT]  # one a GPU
    # those that failed, with why; they get nothing more
    lost: list[tuple[MemberT, ProfkitError]] = field(default_factory=list)

    def share_items(
        self, items: Sequence[ItemT], do_item: Callable[[MemberT, ItemT, bool], None]
    ) -> None:
        """Do every item once, each in a thread of its own; all scheduling is done in the caller's.

        In their order: do_item(member, item, last); `last`: nobody is left who has not tried it.
        GivenBack leaves an item to another member; any other ProfkitError ends the member as well,
        and is raised if it was the last one; anything else ends all when what runs has ended.
        """
        if len(self.members) == 1:
            for item in items:
                do_item(self.members[0], item, True)
            return
        ended: _Ended[MemberT, ItemT] = SimpleQueue()
        free = list(self.members)
        waiting = deque(_Job[ItemT, MemberT](item) for item in items)
        broken: BaseException | None = None
        while len(free) < len(self.members) or (waiting and not broken):
            for member in () if broken else tuple(free):
                if taken := self._take_untried_job(member, waiting):
                    free.remove(member)
                    # Daemons: after Ctrl-C nobody waits for them.
                    given = do_item, member, taken, ended
                    threading.Thread(target=self._run_job, args=given, daemon=True).start()
            member, job, error = ended.get()
            if error:
                fatal = self._handle_error(member, job, error, waiting)
                broken = broken or fatal
            if member in self.members:
                free.append(member)
        if broken:
            raise broken

    def _run_job(
        self,
        do_item: Callable[[MemberT, ItemT, bool], None],
        member: MemberT,
        job: _Job[ItemT, MemberT],
        ended_jobs: _Ended[MemberT, ItemT],
    ) -> None:
        error: BaseException | None = None
        try:
            untried = [other for other in self.members if other not in job.tried]
            is_last = untried in ([], [member])
            do_item(member, job.item, is_last)
        except BaseException as caught:  # noqa: BLE001 - raised where the items were given
            error = caught
        ended_jobs.put((member, job, error))

    def _handle_error(
        self,
        member: MemberT,
        job: _Job[ItemT, MemberT],
        error: BaseException,
        waiting_jobs: deque[_Job[ItemT, MemberT]],
    ) -> BaseException | None:
        """Put a job that others can do back into the queue; return an error that ends all."""
        if isinstance(error, GivenBack):
            job.tried.append(member)
            waiting_jobs.append(job)
            return None
        if not isinstance(error, ProfkitError):
            return error
        self.members.remove(member)
        self.lost.append((member, error))
        waiting_jobs.appendleft(job)
        if self.members:
            return None
        return error

    def _take_untried_job(
        self, member: MemberT, waiting_jobs: deque[_Job[ItemT, MemberT]]
    ) -> _Job[ItemT, MemberT] | None:
        """Take out the first job that a member has not tried."""
        for job in tuple(waiting_jobs):
            if all(m in job.tried for m in self.members):
                job.tried.clear()  # the others were lost meanwhile
            if member not in job.tried:
                waiting_jobs.remove(job)
                return job
        return None


def check_and_time_run(
    run: TargetRun,
    cases_and_seeds: Sequence[tuple[CaseName, int]],
    progress: Progress,
    is_timed: bool = True,
) -> None:
    """Judge what was built on (case, seed) pairs, then time it, in as many workers as it takes.

    Each GPU takes the next variant to check as soon as it is free, and then the next case to time:
    all that is compared at a case takes turns on one GPU. Without `is_timed` the launches of each case
    are listed only.
    """
    target = run.target
    measured = run.measured
    setup = Setup(target.problem.path.parent, target.folder, run.support, tuple(cases_and_seeds))
    workers = []
    for v in target.visible:
        workers.append(Worker(setup, TIMEOUT, v, progress))
    builds = []
    for build in run.builds.values():
        if build.error is None:
            builds.append(build)
    pool = GpuPool(list(workers))
    session = _Session(run, builds, cases_and_seeds, is_timed)
    try:
        if not builds:
            session.open_worker(workers[0])
        pool.share_items(builds, session.check_build_on_worker)
        pool.share_items(target.cases, session.measure_case)
    finally:
        for worker in workers:
            worker.close()
    measured.lost += [f"{_name_gpu(w)} was left out: {why.message}" for w, why in pool.lost]
    # Several GPUs end in any order; what is said of a run is not to depend on it.
    order = (*run.builds, *target.references)
    measured.checks = {n: measured.checks[n] for n in order if n in measured.checks}


def _name_gpu(worker: Worker) -> str:
    if worker.gpu:
        return worker.gpu.pci
    if worker.visible is None:
        return "the GPU"
    return f"GPU {worker.visible}"


@dataclass
class _Session:
    run: TargetRun
    builds: Sequence[Build]  # those that compile
    checks: Sequence[tuple[str, int]]
    time: bool
    lock: threading.Lock = field(default_factory=threading.Lock)

    def open_worker(self, worker: Worker) -> None:
        worker.start_process()
        with self.lock:
            self.run.measured.gpu = self.run.measured.gpu or worker.gpu

    def check_build_on_worker(self, worker: Worker, build: Build, is_last_gpu: bool) -> None:
        """Judge one variant; one that takes a worker with it is tried on one GPU more."""
        name = build.variant.id
        try:
            self.open_worker(worker)
            reply = worker.check_variant_and_list_launches(
                make_worker_entry_of_build(build), self.checks
            )
        except WorkerLost as lost:
            self._mark_failed(worker, lost, "" if is_last_gpu or lost.at.name != name else name)
            return
        with self.lock:
            self.run.measured.checks[name] = reply.checks[name]

    def measure_case(self, worker: Worker, case: CaseName, is_last_gpu: bool) -> None:
        """Time everything that is correct at one case, in turns; what takes the worker with it not."""
        while True:
            try:
                self.open_worker(worker)
                return self._measure_case(worker, case)
            except WorkerLost as lost:
                self._mark_failed(
                    worker, lost, "" if is_last_gpu or not lost.at.name else f"case {case}"
                )

    def _mark_failed(self, worker: Worker, error: WorkerLost, tried_elsewhere: str) -> None:
        """Note that the variant that a worker was at has failed, unless another GPU tries it.

        Raises:
            GivenBack: The item that is named is tried elsewhere.
            ProfkitError: The worker was at none, or at one that had failed already.
        """
        name = error.at.name
        measured = self.run.measured
        with self.lock:
            if tried_elsewhere:
                measured.lost.append(
                    f"{tried_elsewhere} was given to another GPU: at {_name_gpu(worker)} {error.message}"
                )
                raise GivenBack(error.message, error.hint) from error
            why = error.message + (f"; {error.hint}" if error.hint else "")
            if name in measured.failed or not name:
                raise ProfkitError(f"measuring stopped: {why}", "run it again on fewer variants")
            measured.failed[name] = why
            check = measured.checks.get(name)
            if check is None or check.status == "right":
                fault = CaseCheck("?", 0, "failed", faults=(why,))
                measured.checks[name] = combine_case_checks(name, self.run.target.problem, [fault])

    def _measure_case(self, worker: Worker, case: CaseName) -> None:
        measured = self.run.measured
        entries = []
        for build in self.builds:
            if self._is_timed(build, case):
                entries.append(make_worker_entry_of_build(build))
        for name in self.run.target.references:
            if name not in measured.failed:
                entries.append(Entry(name))
        if not entries:
            return
        reply = worker.time_entries(entries, case, ROUNDS if self.time else None, cold=self.time)
        with self.lock:
            for name, check in reply.checks.items():  # a reference is judged case by case
                before = measured.checks.get(name)
                if before:
                    measured.checks[name] = merge_checks(before, check)
                else:
                    measured.checks[name] = check
            for name, launches in reply.launches.items():
                measured.launches[name, case] = launches
            for name, times in reply.times.items():
                measured.times[name, case] = times
            measured.failed |= reply.refused
            if worker.gpu:
                for entry in entries:
                    measured.gpus[entry.name, case] = worker.gpu

    def _is_timed(self, build: Build, case: CaseName) -> bool:
        """Return whether a build is correct at a case, and has not taken a worker with it."""
        name = build.variant.id
        measured = self.run.measured
        check = measured.checks.get(name)
        if check is None or name in measured.failed:
            return False
        return check.status == "right" and case in check.correct_cases


def make_worker_entry_of_build(build: Build, name_suffix: str = "") -> Entry:
    """Return a build as the protocol has it; `name_suffix` ends the name of one that is timed twice."""
    return Entry(build.variant.id + name_suffix, build.library, build.variant.header.inputs)
