"""A task and a storage  ->  a whole search: opened or resumed, run, concluded, written down.

It ends with the champion measured against the defaults, and keep or fall back; its history is a frame.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from profkit.collect import tools
from profkit.errors import ProfkitError
from profkit.evidence.commits import read_current_commit
from profkit.files import copy_file, is_file
from profkit.lab.measure import targets
from profkit.lab.measure.bench import Times
from profkit.lab.measure.check import Check
from profkit.lab.measure.cuda.library import GraphLaunch
from profkit.lab.tune.result import Basis, FinalMeasurement
from profkit.lab.tune.search import Search, SearchOutcome, open_study
from profkit.lab.tune.steer import map_rules_to_directions, require_watched_metrics
from profkit.lab.tune.study import SEED, Study, Trial
from profkit.lab.tune.task import Task
from profkit.lab.tune.trial import CONFIRM, Runner
from profkit.records.header import VariantHeader
from profkit.records.parts import RecordedReport
from profkit.records.record import write_record
from profkit.records.store import (
    Document,
    JsonObject,
    compute_sha256_of_file,
    make_json_safe,
    read_struct,
)

if TYPE_CHECKING:
    from pandas import DataFrame

FINALISTS = 3  # quicker than the champion in their quick round, by less than is promoted


@dataclass(frozen=True)
class Conclusion:
    """The fastest confirmed configuration, and whether it replaces the defaults."""

    champion: Trial  # the fastest confirmed configuration; the defaults' trial if none was faster
    default: Trial  # the defaults' trial
    keep: bool  # whether the champion passes the gate
    because: str
    measured: FinalMeasurement


def _conclude_search(runner: Runner) -> Conclusion:
    """Confirm what is nearly as fast as the incumbent, then measure the champion to the end."""
    study = runner.study
    runner.progress("finalists")
    _confirm_finalists(runner)
    measured = _time_champion_against_defaults(
        runner, runner.get_incumbent(), study.get_trial(runner.read_defaults_basis().number)
    )
    study.write_note("final", measured.to_json())
    return decide_on_champion(study, measured)


def _read_conclusion(study: Study) -> Conclusion | None:
    """Return how an earlier run of this search ended; None if none did, or trials came after it."""
    noted = study.read_note("final")
    if noted is None or noted["trials"] != study.count_distinct_ended_trials():
        return None
    return decide_on_champion(study, msgspec.convert(noted, FinalMeasurement))


def decide_on_champion(study: Study, measured: FinalMeasurement) -> Conclusion:
    """Keep the champion where it is faster than the defaults, and their intervals lie apart."""
    from profkit.evidence.samples import Interval

    champion = study.get_trial(measured.champion)
    default = study.get_trial(measured.default)
    if champion.number == default.number:
        tried = sum(t.outcome in ("measured", "pruned") for t in study.list_trials_but_waiting())
        because = f"of {tried} configurations that ran, none was confirmed faster than the defaults"
        return Conclusion(champion, default, False, because, measured)
    comparison = measured.comparison
    sentence = comparison["sentence"]
    if comparison["answer"] != "faster":
        return Conclusion(champion, default, False, sentence, measured)
    before = read_struct(Interval, comparison["before"])
    if before.overlaps(read_struct(Interval, comparison["after"])):
        because = f"{sentence}, but the two intervals overlap"
        return Conclusion(champion, default, False, because, measured)
    return Conclusion(champion, default, True, f"{sentence} than the defaults", measured)


def _confirm_finalists(runner: Runner) -> None:
    """Give the next best a hundred samples too: small gains are never promoted on the way."""
    incumbent = runner.get_incumbent()
    better = []
    for trial in runner.study.list_trials_but_waiting():
        is_measured = trial.outcome == "measured" and trial.value is not None
        if is_measured and (trial.value or 0) < (incumbent.value or 0):
            better.append(trial)
    for trial in sorted(better, key=lambda trial: trial.value or 0)[:FINALISTS]:
        try:
            confirmed = runner.time_trial_against_incumbent(trial, incumbent)
        except ProfkitError as error:
            runner.study.write_note(f"finalist {trial.number}", {"reason": error.message})
            continue
        runner.study.write_note(f"finalist {trial.number}", make_json_safe(confirmed))
        if confirmed.answer == "faster":
            runner.study.write_note("incumbent", trial.number)
            incumbent = trial


def _time_champion_against_defaults(
    runner: Runner, champion: Trial, default: Trial
) -> FinalMeasurement:
    task = runner.task
    worker = runner.worker
    runner.progress(f"champion {task.make_variant_name_of_config(champion.config)}")
    checks: dict[str, Check] = {}
    launches: dict[str, tuple[GraphLaunch, ...]] = {}
    entries = map(task.make_trial_entry, (champion.config, default.config))
    for entry in dict.fromkeys(entries):  # the champion may be the default
        reply = worker.check_variant_and_list_launches(
            entry, task.list_required_checks(), task.case
        )
        checks[entry.name] = reply.checks[entry.name]
        launches[entry.name] = reply.launches.get(entry.name, ())
    limits = CONFIRM[0], 2 * CONFIRM[0]
    compared, times = runner.compare_trials(champion, default, limits, cold=True)
    return FinalMeasurement(
        champion=champion.number,
        default=default.number,
        trials=runner.study.count_distinct_ended_trials(),
        comparison=compared.to_json(),
        times=times,
        checks=checks,
        launches=launches,
        gpu=worker.gpu,
    )


class TrialEntry(Document, frozen=True, kw_only=True):
    """A trial of a search: its configuration and the answer."""

    config: JsonObject = msgspec.field(default_factory=dict)
    number: int = 0
    name: str = ""
    said: JsonObject = msgspec.field(default_factory=dict)


class ChampionEntry(TrialEntry, frozen=True, kw_only=True):
    """The trial that the search ended with."""

    flags: tuple[str, ...] = ()
    source: str = ""


class TuneDocument(Document, frozen=True, kw_only=True, tag_field="schema", tag="profkit.tune/1"):
    """What `profkit tune --json` prints: how a search ended."""

    variant: str = ""
    problem: str = ""
    case: str = ""
    gpu: JsonObject = msgspec.field(default_factory=dict)
    space: dict[str, list[str]] = msgspec.field(default_factory=dict)
    possible: int = 0
    refused_by_arithmetic: dict[str, int] = msgspec.field(default_factory=dict)
    distinct: int = 0  # trials that are no other's double
    outcomes: dict[str, int] = msgspec.field(default_factory=dict)  # how many trials ended so
    refused: dict[str, int] = msgspec.field(default_factory=dict)  # why -> how many trials
    ended: str = ""
    lost: tuple[str, ...] = ()
    seconds: float = nan
    seed: int = 0
    champion: ChampionEntry = ChampionEntry()
    default: TrialEntry = TrialEntry()
    anchor: str | None = None
    no_anchor: Any = None
    no_counters: Any = None
    comparison: Any = None
    times: JsonObject = msgspec.field(default_factory=dict)
    keep: bool = False
    because: str = ""
    importances: dict[str, float] = msgspec.field(default_factory=dict)
    steered: bool = False
    steering: JsonObject | None = None
    output: str = ""
    history: str = ""


@dataclass(frozen=True)
class SearchResult:
    """A search that ended, with its decision."""

    task: Task
    study: Study
    outcome: SearchOutcome
    final: Conclusion  # the champion, and the decision

    def describe_search(self) -> TuneDocument:
        """Return the search as a document."""
        task = self.task
        study = self.study
        final = self.final
        measured = final.measured
        every = study.list_trials_but_waiting()
        trials = [trial for trial in every if trial.outcome != "repeated"]
        outcomes = Counter(trial.outcome for trial in trials)
        basis = msgspec.convert(study.read_note("basis"), Basis)
        default = self._describe_trial(final.default)
        return TuneDocument(
            variant=task.variant.id,
            problem=task.problem.name,
            case=task.case,
            gpu=asdict(measured.gpu) if measured.gpu else {},
            space=task.space.list_value_texts_by_macro(),
            possible=len(task.possible_configs),
            refused_by_arithmetic=dict(task.refusal_counts),
            distinct=study.count_distinct_ended_trials(),
            outcomes=dict(outcomes),
            refused=count_refusals_by_kind(trials),
            ended=self.outcome.why,
            lost=tuple(self.outcome.lost),
            seconds=self.outcome.seconds,
            seed=SEED,
            champion=self._describe_champion(),
            default=default,
            anchor=basis.reference,
            no_anchor=study.read_note("no_anchor"),
            no_counters=study.read_note("no_counters"),
            comparison=measured.comparison,
            times=_estimate_warm_and_cold_medians(measured.times),
            keep=final.keep,
            because=final.because,
            importances=study.estimate_importance_by_macro(),
            steered=task.options.profile,
            steering=count_proposals_by_fate(every),
        )

    def _describe_champion(self) -> ChampionEntry:
        champion = self.final.champion
        best = structs.asdict(self._describe_trial(champion))
        return ChampionEntry(**best, flags=champion.config.flags, source=champion.source)

    def _describe_trial(self, trial: Trial) -> TrialEntry:
        kept = trial.result.to_json()
        kept.pop("launches", None)
        return TrialEntry(
            config=trial.config.values_by_macro,
            number=trial.number,
            name=self.task.make_variant_name_of_config(trial.config),
            said=kept,
        )


def count_refusals_by_kind(trials: Iterable[Trial]) -> dict[str, int]:
    """Return how many trials were refused for each kind of reason."""
    kinds = Counter[str]()
    for trial in trials:
        if trial.outcome == "refused":
            kinds[str(trial.result.kind)] += 1
    return dict(kinds)


def _estimate_warm_and_cold_medians(times: Mapping[str, Times]) -> JsonObject:
    """Return name -> the medians of its times, with a warm L2 and a cold one."""
    from profkit.evidence.stats import estimate_median

    summaries: JsonObject = {}
    for name, taken in times.items():
        sides = {"warm": taken.warm, "cold": taken.cold}
        summaries[name] = {side: estimate_median(s).to_json() for side, s in sides.items() if s}
    return summaries


def get_default_storage_url(task: Task) -> str:
    """Return the database in which studies of this variant are kept by default."""
    folder = task.folder / "tune"
    folder.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{folder / f'{task.problem.name}.{task.subject}.db'}"


def search_fastest_config(
    task: Task,
    storage_url: str,
    is_resumed: bool,
    visible_gpus_of_workers: Sequence[str | None],
    progress: Callable[[str], None],
) -> SearchResult:
    """Search for the fastest configuration; `is_resumed`: go on with a search that is there.

    ProfkitError: the header is wrong, the storage has another search, nothing can be measured.
    """
    map_rules_to_directions(task.space)
    require_watched_metrics(task.space)
    study = open_study(task, storage_url, is_resumed)
    search = Search(task, study, visible_gpus_of_workers, progress)
    try:
        outcome = search.run_trials()
        final = _read_conclusion(study)
        if study.read_note("basis") is None:
            raise ProfkitError(
                "time was up before the defaults were measured",
                "continue with --resume and a longer --time",
            )
        if final is None:
            worker = outcome.workers[0]
            worker.start_process()
            final = _conclude_search(Runner(task, study, worker, progress))
    finally:
        search.close()
    return SearchResult(task, study, outcome, final)


def write_champion_record(result: SearchResult, folder: Path) -> Path:
    """Write the champion's <variant>-tuned.<case>.json, and its report beside it if there is one."""
    task = result.task
    final = result.final
    name = task.tuned_name
    run = _make_champion_run(result)
    record = structs.replace(
        targets.add_timing_of_run(targets.make_record_without_timing(run, name, task.case), run),
        git=read_current_commit(task.problem.path.parent),
        # It changes the variant that was tuned, and predicts nothing.
        header=VariantHeader(task.variant.header.title, keys={"after": task.variant.id}),
        tune={
            "variant": task.variant.id,
            "config": final.champion.config.values_by_macro,
            "keep": final.keep,
            "because": final.because,
            "trials": result.study.count_distinct_ended_trials(),
        },
    )
    verdict = final.champion.result.verdict
    if verdict and verdict.report and is_file(verdict.report):
        report = folder / f"{name}.{task.case}.ncu-rep"
        copy_file(verdict.report, report)
        ncu = tools.require_tool_with_version("ncu", task.folder).version
        kept = RecordedReport(file=report.name, sha256=compute_sha256_of_file(report))
        record = structs.replace(
            record, report=kept, versions=structs.replace(record.versions, ncu=ncu)
        )
    path = folder / f"{name}.{task.case}.json"
    write_record(path, record)
    return path


def _make_champion_run(result: SearchResult) -> targets.TargetRun:
    """Return the champion's last measurement as other verbs have a variant's."""
    task = result.task
    measured = result.final.measured
    config = result.final.champion.config
    champion = task.make_variant_name_of_config(config)
    at_case = (task.tuned_name, task.case)
    measurements = targets.Measurements(
        gpu=measured.gpu,
        checks={task.tuned_name: replace(measured.checks[champion], variant=task.tuned_name)},
        times={at_case: measured.times[champion]},
        launches={at_case: measured.launches[champion]},
    )
    return task.make_config_run(config, measurements)


# Column -> where it is in a trial's result as JSON. Times in seconds, memory in bytes, shares of 1.
_COLUMNS = {
    "reason": "result.reason",
    "kind": "result.kind",
    "time": "result.time",
    "anchor_time": "result.anchor_time",
    "against": "result.against",
    "speedup": "result.speedup.median",
    "speedup_low": "result.speedup.low",
    "speedup_high": "result.speedup.high",
    "hedges_g": "result.hedges_g",
    "p_value": "result.p_value",
    "promoted": "result.promoted",
    "confirmed": "result.confirmed.answer",
    "confirmed_speedup": "result.confirmed.speedup.median",
    "confirmed_low": "result.confirmed.speedup.low",
    "confirmed_high": "result.confirmed.speedup.high",
    "confirmed_g": "result.confirmed.hedges_g",
    "confirmed_p": "result.confirmed.p_value",
    "became_incumbent": "result.became_incumbent",
    "blocks": "result.blocks",
    "threads": "result.threads",
    "regs": "result.regs",
    "smem": "result.smem",
    "blocks_per_sm": "result.blocks_per_sm",
    "occupancy": "result.occupancy",
    "spills": "result.spills",
    "max_abs": "result.max_abs",
    "build_seconds": "result.build_seconds",
    "gpu_seconds": "result.gpu_seconds",
    "gpu": "result.gpu",
    "bound": "result.verdict.bound",
    "limiter": "result.verdict.limiter",
    "code": "result.code",
}
_BEFORE_MACROS = ("number", "source", "outcome", "value")  # columns of the trial itself
_LAST = ("seconds", "ended")
_TEXTS = frozenset(
    {
        *("source", "outcome", "reason", "kind", "promoted", "confirmed"),
        *("gpu", "bound", "limiter", "code", "ended"),
    }
)


def make_trials_frame(study: Study) -> DataFrame:
    """Return the history, a row per trial: SI units, NaN where not known, macros as whole numbers."""
    import pandas as pd

    rows = []
    for trial in study.list_trials_but_waiting():
        if trial.outcome != "repeated":
            row = {name: getattr(trial, name) for name in (*_BEFORE_MACROS, *_LAST)}
            row |= trial.config.values_by_macro
            row["result"] = trial.result.to_json()
            rows.append(row)
    columns = [*_BEFORE_MACROS, *study.space.macros, *_COLUMNS, *_LAST]
    places = [_COLUMNS.get(name, name) for name in columns]
    table = pd.json_normalize(rows).reindex(columns=places).set_axis(columns, axis=1)
    for name in columns:
        if name in _TEXTS:
            table[name] = table[name].astype("string")
        elif name == "became_incumbent":
            table[name] = table[name].fillna(False).astype(bool)
        elif name not in study.space.values or name in study.space.numeric_macros:
            table[name] = pd.to_numeric(table[name], errors="coerce")
    return table


def count_proposals_by_fate(trials: Sequence[Trial]) -> JsonObject:
    """Return what diagnoses proposed, what of it was measured, and what became the incumbent."""
    steered = []
    for t in trials:
        if t.source.startswith("steer:"):
            steered.append(t)
    return {
        "proposed": len(steered),
        "measured": sum(t.outcome == "measured" for t in steered),
        "incumbents": sum(t.result.became_incumbent for t in steered),
        "by_rule": dict(Counter(t.source.removeprefix("steer:") for t in steered)),
    }
