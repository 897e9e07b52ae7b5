"""A configuration worth a look  ->  ncu's report of it, its diagnosis, and what that asks to try next.

A rule names a tunable where the header's `steer:` says so; rules about what limits occupancy name
the quantities of `takes:` by themselves. A proposal is one step that way: the untried configuration
that differs from the incumbent in the fewest tunables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from profkit.errors import ProfkitError, did_you_mean
from profkit.measure import collect, targets
from profkit.measure.cuda.library import GraphLaunch
from profkit.measure.targets import Measurements
from profkit.measure.variants import toolchain
from profkit.measure.variants.tunables import Config, Direction, Space
from profkit.measure.worker import Worker
from profkit.records.record import write_record
from profkit.records.store import json_safe
from profkit.tune.result import FiringRule, TrialDiagnosis
from profkit.tune.task import Task

# What a rule asks of any kernel, where `takes:` has the quantity and `steer:` says nothing else.
ALWAYS = (
    Direction("occupancy-shared", "smem", -1),
    Direction("occupancy-registers", "regs", -1),
    Direction("occupancy-blocks", "threads", +1),
)
MOST = 4  # proposals from one diagnosis: the next ones come from the next incumbent's
_EACH = 2  # of one rule: one step, and one further
# A finding's evidence that says how much less of a quantity admits one more block per SM.
_STEPS = {"occupancy-shared": "shared_step"}


@dataclass(frozen=True)
class Proposal:
    config: Config
    rule: str


def directions(space: Space) -> dict[str, list[Direction]]:
    """Return rule -> which way it asks to go; ProfkitError if `steer:` names no rule."""
    from profkit.diagnosis.rules import ALL

    known = {rule.id for rule in ALL}
    by_rule: dict[str, list[Direction]] = {}
    for direction in space.steer:
        if direction.rule not in known:
            raise ProfkitError(
                f"{space.file}: 'steer:' names no rule: {direction.rule}",
                did_you_mean(direction.rule, known, "profkit explain lists the rules"),
            )
        by_rule.setdefault(direction.rule, []).append(direction)
    for direction in ALWAYS:
        if direction.rule not in by_rule and direction.name in space.quantities:
            by_rule[direction.rule] = [direction]
    return by_rule


def proposals(
    space: Space, incumbent: Config, findings: Sequence[FiringRule], free: Iterable[Config]
) -> list[Proposal]:
    """Return what to try next; `findings` fire for the incumbent, its verdict's cause first."""
    by_rule, left = directions(space), set(free)
    proposed: list[Proposal] = []
    for finding in findings:
        for direction in by_rule.get(finding.rule, ()):
            least = finding.evidence.get(_STEPS.get(direction.rule, "")) or 0
            for config in _steps(space, incumbent, direction, sorted(left), least):
                proposed.append(Proposal(config, direction.rule))
                left.discard(config)
    return proposed[:MOST]


def _steps(
    space: Space, incumbent: Config, direction: Direction, free: Sequence[Config], least: float
) -> list[Config]:
    """One step and one further: the nearest configurations with the quantity moved that way."""
    here = space.numbers(incumbent)[direction.name]

    def moved(config: Config) -> int:
        return direction.way * (space.numbers(config)[direction.name] - here)

    def changes(config: Config) -> tuple[int, int, int]:
        steps = [abs(a - b) for a, b in zip(config.ranks, incumbent.ranks, strict=True)]
        return sum(map(bool, steps)), moved(config), sum(steps)

    candidates = sorted((c for c in free if moved(c) >= max(least, 1)), key=changes)
    picked: list[Config] = []
    for config in candidates:
        if len(picked) < _EACH and moved(config) not in [moved(p) for p in picked]:
            picked.append(config)
    return picked


MOVED = 0.05  # relative: what a metric must change by to have moved; run to run it is 1 to 2 %


class Profiler:
    def __init__(self, task: Task, worker: Worker) -> None:
        self.task, self.worker = task, worker
        self.without = ""  # why there are no counters, once that is known

    def verdict(self, config: Config, launches: Sequence[GraphLaunch]) -> TrialDiagnosis | None:
        """Profile one call and diagnose it; None if ncu could not, which `without` then explains."""
        if self.without:
            return None
        try:
            collected = self._collect(config, launches)
            diagnosis = self._diagnosed(collected.path)
            return replace(diagnosis, report=str(collected.path), seconds=collected.seconds)
        except ProfkitError as error:
            self.without = error.message.splitlines()[0]
            return None

    def moved(self, candidate: TrialDiagnosis | None, incumbent: TrialDiagnosis | None) -> bool:
        """Whether the header's metrics moved as it wants: one at least did, and none went back."""
        watched = self.task.space.watch
        if not watched or candidate is None or incumbent is None:
            return False
        changes = []
        for direction in watched:
            now, was = (d.metrics.get(direction.name) for d in (candidate, incumbent))
            if now is None or was is None:
                return False  # not collected is no movement
            changes.append(direction.way * (now - was) / max(abs(was), 1e-12))
        return bool(max(changes) >= MOVED and min(changes) > -MOVED)

    def _collect(self, config: Config, launches: Sequence[GraphLaunch]) -> collect.Collected:
        name = self.task.tuned
        seen = {(name, self.task.case): tuple(launches)}
        run = self.task.run(config, Measurements(gpu=self.worker.gpu, launches=seen))
        report = reports(self.task) / f"{self.task.name(config)}.{self.task.case}.ncu-rep"
        kernels = [launch.kernel for launch in launches]
        plan = targets.plan_of(run, name, self.task.case)
        ncu = toolchain.tool("ncu", self.task.folder)
        # The worker's GPU, and its own folder for temporary files: ncu locks others out of one.
        own = report.with_name(f"tmp-{self.worker.visible or 0}")
        own.mkdir(parents=True, exist_ok=True)
        options = collect.CollectOptions(env={**self.worker.env, "TMPDIR": str(own)})
        collected = collect.start_ncu(plan, kernels, report, ncu, options)
        write_record(report.with_suffix(".json"), targets.record_of(run, name, self.task.case))
        return collected

    def _diagnosed(self, report: Path) -> TrialDiagnosis:
        from profkit.diagnosis.verdict import judge_launch
        from profkit.reports.reader import read_report

        rows = chain.from_iterable(part.launches() for part in read_report([report]).parts)
        row = max(rows, key=lambda r: r["time"] if r["time"] == r["time"] else 0.0)
        diagnosis = judge_launch(row)
        findings = (
            FiringRule(f.rule, json_safe(f.gain), f.cause, json_safe(f.evidence))
            for f in diagnosis.findings
            if f.status == "fires"
        )
        watched = sorted({direction.name for direction in self.task.space.watch})
        return TrialDiagnosis(
            bound=diagnosis.bound,
            limiter=diagnosis.limiter,
            because=diagnosis.because,
            findings=tuple(findings),
            metrics=json_safe({name: row[name] for name in watched}),
        )


def reports(task: Task) -> Path:
    """Where reports of trials go: beside the builds, not in the repository."""
    return task.folder / "tune" / f"{task.problem.name}.{task.subject}"


def known_metrics(task: Task) -> None:
    """Fail if `watch:` names a metric that the catalogue does not have."""
    from profkit.reports.metrics import CATALOGUE

    for direction in task.space.watch:
        if direction.name not in CATALOGUE:
            raise ProfkitError(
                f"{task.space.file}: 'watch:' names no metric: {direction.name}",
                did_you_mean(direction.name, CATALOGUE, "profkit explain lists the metrics"),
            )
