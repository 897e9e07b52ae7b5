"""Variants  ->  A/A runs: each timed twice in turns, in many processes, where nothing differs.

What two sides of one process differ by, and what a process differs by from the next, is what a
comparison on this machine has to allow for. Both sides have their own memory, as two variants have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime

from profkit.errors import ProfkitError
from profkit.evidence.history.tables import HistoryTwin
from profkit.measure.bench.bench import ROUNDS, Times
from profkit.measure.cuda.device import Gpu
from profkit.measure.targets import Target, build_target
from profkit.measure.variants.build import Build
from profkit.measure.workers.client import TIMEOUT, Reply, Setup, Worker
from profkit.measure.workers.protocol import Prepare
from profkit.measure.workers.session import entry_of

_AGAIN = "~again"  # no variant's id holds a ~


@dataclass(frozen=True)
class AaRun:
    """What one process is asked for."""

    target: Target
    processes: int  # how many, one after another
    rounds: int = ROUNDS[0]  # of each process


def run_twins(run: AaRun, progress: Callable[[str], None]) -> Iterator[list[HistoryTwin]]:
    """The A/A comparisons of each process as soon as it has ended.

    Raises:
        ProfkitError: A variant does not compile or is not right: its time is no noise.
    """
    progress("build")
    builds, support = build_target(run.target)
    if broken := next((b for b in builds if b.error), None):
        raise ProfkitError(f"{broken.variant.path} does not compile\n{broken.error}")
    if not builds:
        raise ProfkitError("an A/A run needs variants: references are not timed", "--variant ID")
    problem = run.target.problem
    checks = tuple((case, 0) for case in run.target.cases)
    setup = Setup(problem.path.parent, run.target.folder, support, Prepare(checks))
    for number in range(run.processes):
        progress(f"process {number + 1} of {run.processes}")
        with closing(Worker(setup, TIMEOUT)) as worker:
            if not number:
                _need_right(worker, builds, checks)
            yield list(_of_a_process(worker, builds, run))


def _need_right(worker: Worker, builds: list[Build], checks: tuple[tuple[str, int], ...]) -> None:
    for built in builds:
        name = built.variant.id
        check = worker.judge(entry_of(built), checks).checks[name]
        if check.status != "right":
            why = check.faults[0] if check.faults else check.status
            raise ProfkitError(f"{name} is {check.status}: {why}", "profkit check says more")


def _of_a_process(worker: Worker, builds: list[Build], run: AaRun) -> Iterator[HistoryTwin]:
    rounds = run.rounds, run.rounds
    for case in run.target.cases:
        entries = [entry_of(b, again) for again in ("", _AGAIN) for b in builds]
        reply = worker.time(entries, case, rounds)
        for built in builds:
            if twin := _twin(built, reply, worker.gpu, run.target):
                yield twin


def _twin(built: Build, reply: Reply, gpu: Gpu | None, target: Target) -> HistoryTwin | None:
    name = built.variant.id
    sides: tuple[Times | None, ...] = reply.times.get(name), reply.times.get(name + _AGAIN)
    first, again = sides
    if first is None or again is None:
        return None
    return HistoryTwin(
        session=first.session,
        variant=name,
        case=first.case,
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
