"""A configuration worth a look  ->  ncu's report of it, its verdict, and the metrics to be moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from profkit.diagnosis.rule import Finding
from profkit.errors import ProfkitError, did_you_mean
from profkit.measure import runs
from profkit.measure.cuda.graph import GraphLaunch
from profkit.measure.profile import collect
from profkit.measure.variants import toolchain
from profkit.measure.variants.tunables import Config
from profkit.measure.workers.client import Worker
from profkit.measure.workers.session import Measurements
from profkit.records.record import write_record
from profkit.records.store import json_safe
from profkit.tune.result import FiringRule, TrialDiagnosis
from profkit.tune.task import Task

MOVED = 0.05  # relative: what a metric must change by to have moved; run to run it is 1 to 2 %


class Profiler:
    """Runs ncu on one worker's GPU."""

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
        plan = runs.plan_of(run, name, self.task.case)
        ncu = toolchain.tool("ncu", self.task.folder)
        options = collect.CollectOptions(env=self._env())
        collected = collect.start_ncu(plan, kernels, report, ncu, options)
        write_record(report.with_suffix(".json"), runs.record_of(run, name, self.task.case))
        return collected

    def _env(self) -> dict[str, str]:
        """The worker's GPU, and its own folder for temporary files: ncu locks others out of one."""
        own = reports(self.task) / f"tmp-{self.worker.visible or 0}"
        own.mkdir(parents=True, exist_ok=True)
        return {**self.worker.env, "TMPDIR": str(own)}

    def _diagnosed(self, report: Path) -> TrialDiagnosis:
        from profkit.diagnosis.engine import judge_launch
        from profkit.reports.reader import read_report

        rows = [row for part in read_report([report]).parts for row in part.launches()]
        row = max(rows, key=lambda r: r["time"] if r["time"] == r["time"] else 0.0)
        diagnosis = judge_launch(row, str(row["status"]))
        firing = [f for f in diagnosis.findings if f.status == "fires"]
        watched = sorted({direction.name for direction in self.task.space.watch})
        return TrialDiagnosis(
            bound=diagnosis.bound,
            limiter=diagnosis.limiter,
            because=diagnosis.because,
            findings=tuple(map(_firing, firing)),
            metrics=json_safe({name: row[name] for name in watched}),
        )


def _firing(finding: Finding) -> FiringRule:
    gain, evidence = json_safe(finding.gain), json_safe(finding.evidence)
    return FiringRule(finding.rule, gain, finding.cause, evidence)


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
