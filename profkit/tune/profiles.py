"""A configuration worth a look  ->  ncu's report of it, its verdict, and the metrics to be moved."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from profkit.errors import ProfkitError
from profkit.measure import runs
from profkit.measure.build import toolchain
from profkit.measure.profile import collect
from profkit.measure.runs import Made
from profkit.measure.variants.tunables import Config
from profkit.measure.workers.lane import Lane
from profkit.measure.workers.session import Outcome
from profkit.records import store as record
from profkit.tune.task import Task

MOVED = 0.05  # relative: what a metric must change by to have moved; run to run it is 1 to 2 %


class Profiler:
    """Runs ncu on one lane's GPU."""

    def __init__(self, task: Task, lane: Lane) -> None:
        self.task, self.lane = task, lane
        self.without = ""  # why there are no counters, once that is known

    def verdict(self, config: Config, said: Mapping[str, Any]) -> dict[str, Any] | None:
        """Profile one call and diagnose it; None if ncu could not, which `without` then explains.

        Returns:
            bound, limiter, because, findings (firing, worst first: rule, gain, cause, evidence),
            metrics (those of `watch:`; None: not collected), report (its path) and seconds.
        """
        if self.without:
            return None
        try:
            got = self._collect(config, said)
            return {**self._diagnosed(got.path), "report": str(got.path), "seconds": got.seconds}
        except ProfkitError as error:
            self.without = error.message.splitlines()[0]
            return None

    def moved(self, mine: Mapping[str, Any] | None, theirs: Mapping[str, Any] | None) -> bool:
        """Whether the header's metrics moved as it wants: one at least did, and none went back."""
        wanted = self.task.space.watch
        if not wanted or mine is None or theirs is None:
            return False
        changes = []
        for wish in wanted:
            now, was = mine["metrics"].get(wish.name), theirs["metrics"].get(wish.name)
            if now is None or was is None:
                return False  # not collected is no movement
            changes.append(wish.way * (now - was) / max(abs(was), 1e-12))
        return bool(max(changes) >= MOVED and min(changes) > -MOVED)

    def _collect(self, config: Config, said: Mapping[str, Any]) -> collect.Collected:
        name = f"{self.task.variant.id}-tuned"
        ready = self.task.built(config)
        made = Made(
            self.task.target(ready.built.variant),
            {name: ready.built},
            self.task.support,
            Outcome(gpu=self.lane.gpu, launches={(name, self.task.case): said["launches"]}),
        )
        report = reports(self.task) / f"{self.task.name(config)}.{self.task.case}.ncu-rep"
        kernels = [x["kernel"] for x in said["launches"]]
        plan = runs.plan_of(made, name, self.task.case)
        ncu = toolchain.tool("ncu", self.task.folder)
        options = collect.Options(env=self._env())
        got = collect.launch(plan, kernels, report, ncu, options)
        record.save(report.with_suffix(".json"), runs.record_of(made, name, self.task.case))
        return got

    def _env(self) -> dict[str, str]:
        """The lane's GPU, and its own folder for temporary files: ncu locks others out of one."""
        own = reports(self.task) / f"tmp-{self.lane.visible or 0}"
        own.mkdir(parents=True, exist_ok=True)
        return {**self.lane.env, "TMPDIR": str(own)}

    def _diagnosed(self, report: Path) -> dict[str, Any]:
        from profkit.diagnosis.engine import judge
        from profkit.reports.reader import read

        rows = [row for part in read([report]).parts for row in part.launches()]
        row = max(rows, key=lambda r: r["time"] if r["time"] == r["time"] else 0.0)
        found = judge(row, str(row["status"]))
        firing = [f for f in found.findings if f.status == "fires"]
        plain = [
            {"rule": f.rule, "gain": f.gain, "cause": f.cause, "evidence": dict(f.evidence)}
            for f in firing
        ]
        names = {wish.name for wish in self.task.space.watch}
        verdict = {
            "bound": found.bound,
            "limiter": found.limiter,
            "because": found.because,
            "findings": plain,
            "metrics": {n: row[n] for n in sorted(names)},
        }
        cleaned: dict[str, Any] = record.clean(verdict)
        return cleaned


def reports(task: Task) -> Path:
    """Where reports of trials go: beside the builds, not in the repository."""
    return task.folder / "tune" / f"{task.problem.name}.{task.variant.id}.{task.case}"


def known_metrics(task: Task) -> None:
    """Fail if `watch:` names a metric that the catalogue does not have."""
    from difflib import get_close_matches

    from profkit.reports.metrics import CATALOGUE

    for wish in task.space.watch:
        if wish.name not in CATALOGUE:
            near = get_close_matches(wish.name, CATALOGUE, n=1)
            raise ProfkitError(
                f"{task.space.file}: 'watch:' names no metric: {wish.name}",
                f"did you mean {near[0]}?" if near else "profkit explain lists the metrics",
            )
