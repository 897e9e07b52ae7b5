"""The trials of a search  ->  its champion, measured against the defaults, and keep or fall back."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from profkit.errors import ProfkitError
from profkit.measure.check.check import Check
from profkit.measure.cuda.graph import GraphLaunch
from profkit.measure.workers.client import Worker, entries_of
from profkit.records.store import JsonObject, json_safe
from profkit.tune.result import Basis, FinalMeasurement
from profkit.tune.study import Study, Trial
from profkit.tune.task import Task
from profkit.tune.trial import CONFIRM, Runner, SearchState

FINALISTS = 3  # quicker than the champion in their quick round, by less than is promoted


@dataclass(frozen=True)
class Conclusion:
    """How the champion does against the defaults."""

    champion: Trial  # the fastest confirmed configuration; the defaults' trial if none was faster
    default: Trial  # the defaults' trial
    keep: bool  # whether the champion passes the gate
    because: str
    measured: FinalMeasurement


def conclude(task: Task, study: Study, worker: Worker, state: SearchState) -> Conclusion:
    """Confirm what is nearly as fast as the incumbent, then measure the champion to the end."""
    runner = Runner(task, study, worker, state)
    state.progress("finalists")
    _finalists(runner)
    champion, default = runner.incumbent(), _default(study)
    measured = _measure(runner, champion, default)
    study.note("final", measured.to_json())
    return decide_search(study, measured)


def noted_conclusion(study: Study) -> Conclusion | None:
    """The end of an earlier run of this search; None if there is none, or trials came after it."""
    noted = study.noted("final")
    if noted is None or noted["trials"] != sum(t.counts for t in study.trials()):
        return None
    return decide_search(study, FinalMeasurement.from_json(noted))


def decide_search(study: Study, measured: FinalMeasurement) -> Conclusion:
    """The decision, from what was measured."""
    by_number = {t.number: t for t in study.trials()}
    champion, default = by_number[measured.champion], by_number[measured.default]
    comparison = measured.comparison
    if champion.number == default.number:
        tried = sum(t.outcome in ("measured", "pruned") for t in study.trials())
        because = f"of {tried} configurations that ran, none was confirmed faster than the defaults"
        return Conclusion(champion, default, False, because, measured)
    apart = not _overlap(comparison["before"], comparison["after"])
    faster = comparison["answer"] == "faster"
    because = str(comparison["sentence"])
    if faster:
        because += " than the defaults" if apart else ", but the two intervals overlap"
    return Conclusion(champion, default, faster and apart, because, measured)


def _overlap(before: JsonObject, after: JsonObject) -> bool:
    """Whether two intervals share a value; unknown ends count as overlapping."""
    if None in (before["low"], before["high"], after["low"], after["high"]):
        return True
    return not (before["low"] > after["high"] or after["low"] > before["high"])


def _default(study: Study) -> Trial:
    number = Basis.from_json(study.noted("basis")).number
    return next(t for t in study.trials() if t.number == number)


def _finalists(runner: Runner) -> None:
    """Give the next best a hundred samples too: small gains are never promoted on the way."""
    incumbent = runner.incumbent()
    done = (t for t in runner.study.trials() if t.outcome == "measured")
    better = [t for t in done if t.value is not None and t.value < (incumbent.value or 0)]
    for trial in sorted(better, key=lambda t: t.value or 0)[:FINALISTS]:
        try:
            confirmed = runner.confirm(trial, incumbent)
        except ProfkitError as error:
            runner.study.note(f"finalist {trial.number}", {"reason": error.message})
            continue
        runner.study.note(f"finalist {trial.number}", json_safe(asdict(confirmed)))
        if confirmed.answer == "faster":
            runner.study.note("incumbent", trial.number)
            incumbent = trial


def _measure(runner: Runner, champion: Trial, default: Trial) -> FinalMeasurement:
    """Check and time champion and defaults beside the reference, L2 warm and cold."""
    from profkit.evidence.timing.stats import compare_samples

    task, worker = runner.task, runner.worker
    runner.state.progress(f"champion {task.name(champion.config)}")
    calls, _ = runner.reference(runner.basis())
    candidate, baseline = runner.library(champion), runner.library(default)
    checks: dict[str, Check] = {}
    launches: dict[str, tuple[GraphLaunch, ...]] = {}
    for entry in entries_of({**candidate, **baseline}, task.variant.header.inputs):
        reply = worker.judge(entry, task.checks(), task.case)
        checks[entry.name] = reply.checks[entry.name]
        launches[entry.name] = reply.launches.get(entry.name, ())
    subjects = {**calls, **baseline, **candidate}
    times = runner.time(subjects, (CONFIRM[0], 2 * CONFIRM[0]), cold=True)
    (after,), (before,) = candidate, baseline
    compared = compare_samples(times[before].warm, times[after].warm, taken="interleaved")
    return FinalMeasurement(
        champion=champion.number,
        default=default.number,
        trials=sum(t.counts for t in runner.study.trials()),
        comparison=dict(compared.to_json()),
        times=times,
        checks=checks,
        launches=launches,
        gpu=worker.gpu,
    )
