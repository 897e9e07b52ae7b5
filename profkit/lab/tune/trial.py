"""One configuration on one GPU  ->  what came of it: gates, look, quick round, confirmation.

The look (10 samples) is what the pruner sees. The quick round (40) takes turns with the incumbent
and the reference. What is at least 5 % faster there, or moves the header's metrics as it wants
without being slower, is promoted: 100 more samples, and ncu.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import isnan
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from profkit.collect import profiler, tools
from profkit.errors import ProfkitError
from profkit.lab.measure import targets
from profkit.lab.measure.bench import Times
from profkit.lab.measure.check import Check
from profkit.lab.measure.cuda.library import GraphLaunch
from profkit.lab.measure.variants.tunables import Config, InvalidConfig
from profkit.lab.measure.worker import Entry, Reply, Worker, WorkerLost
from profkit.lab.tune import task as gates
from profkit.lab.tune.result import Basis, Challenge, FiringRule, TrialDiagnosis, TrialResult
from profkit.lab.tune.steer import list_proposals_of_findings
from profkit.lab.tune.study import Study, Trial
from profkit.lab.tune.task import ReadyBuild, Task
from profkit.records.record import write_record
from profkit.records.store import make_json_safe

if TYPE_CHECKING:
    from profkit.evidence.stats import TimeComparison
    from profkit.units import FirstAndMostRounds, FrameRow, Seconds, SecondsOrZero

    ComparisonAndTimes = tuple[TimeComparison, dict[str, Times]]  # times by subject

LOOK, QUICK, CONFIRM = (10, 10), (40, 40), (100, 100)  # rounds: at first, and at most
# What is kept of the quick round, as a trial's result has it.
_QUICK = ("against", "answer", "sentence", "speedup", "hedges_g", "p_value")
MOVED = 0.05  # relative: what a metric must change by to have moved; run to run it is 1 to 2 %
PROMOTE = 1.05  # speed-up over the incumbent from which a quick round is worth confirming


class TrialEnded(Exception):
    """A trial ended before it was measured."""

    def __init__(self, outcome: str, reason: str, kind: str = "", value: float | None = None):
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason
        self.kind = kind
        self.value = value


@dataclass
class _Attempt:
    trial: Trial
    build: ReadyBuild
    result: TrialResult  # what is known by now
    profiled: bool = False  # whether ncu was asked, also if it could not

    def note_result(self, **known: Any) -> None:
        self.result = structs.replace(self.result, **known)


class Profiler:
    """Profiles calls of configurations, as long as ncu can."""

    def __init__(self, task: Task, worker: Worker) -> None:
        self.task = task
        self.worker = worker
        self.without = ""  # why there are no counters, once that is known

    def profile_and_diagnose_config(
        self, config: Config, launches: Sequence[GraphLaunch]
    ) -> TrialDiagnosis | None:
        """Profile one call and diagnose it; None if ncu could not, which `without` then explains."""
        if self.without:
            return None
        try:
            collected = self._collect_report(config, launches)
            diagnosis = self._diagnose_report(collected.path)
            return replace(diagnosis, report=str(collected.path), seconds=collected.seconds)
        except ProfkitError as error:
            self.without = error.message.splitlines()[0]
            return None

    def has_improved_watched_metrics(
        self, candidate: TrialDiagnosis | None, incumbent: TrialDiagnosis | None
    ) -> bool:
        """Return whether the header's metrics moved as it wants: one did, and none went back."""
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

    def _collect_report(
        self, config: Config, launches: Sequence[GraphLaunch]
    ) -> profiler.CollectedReport:
        name = self.task.tuned_name
        seen = {(name, self.task.case): tuple(launches)}
        run = self.task.make_config_run(
            config, targets.Measurements(gpu=self.worker.gpu, launches=seen)
        )
        # Reports of trials go beside the builds, not into the repository.
        place = self.task.folder / "tune" / f"{self.task.problem.name}.{self.task.subject}"
        report = place / f"{self.task.make_variant_name_of_config(config)}.{self.task.case}.ncu-rep"
        kernels = [launch.kernel for launch in launches]
        plan = targets.make_profile_plan(run, name, self.task.case)
        ncu = tools.require_tool("ncu")
        options = profiler.CollectOptions(env=self.make_ncu_environment(place))
        collected = profiler.profile_one_call(plan, kernels, report, ncu, options)
        write_record(
            report.with_suffix(".json"),
            targets.make_record_without_timing(run, name, self.task.case),
        )
        return collected

    def make_ncu_environment(self, temporary_folder: Path) -> dict[str, str]:
        """Return the worker's environment, and temporary files of its own where it has a GPU of several.

        ncu locks others out of such a folder. On different GPUs two may count at a time; on the only one
        they may not, so the lock there is the one that all share.
        """
        if self.worker.visible is None:
            return self.worker.environment
        own = temporary_folder / f"tmp-{self.worker.visible}"
        own.mkdir(parents=True, exist_ok=True)
        return {**self.worker.environment, "TMPDIR": str(own)}

    def _diagnose_report(self, report: Path) -> TrialDiagnosis:
        from profkit.diagnosis.verdict import judge_launch
        from profkit.reports.reader import read_report_files

        rows = chain.from_iterable(
            part.iterate_launches() for part in read_report_files([report]).parts
        )
        longest = max(rows, key=_get_launch_seconds)
        diagnosis = judge_launch(longest)
        firing = []
        for finding in diagnosis.findings:
            if finding.status == "fires":
                firing.append(
                    FiringRule(
                        rule=finding.rule,
                        gain=make_json_safe(finding.gain),
                        cause=finding.cause,
                        evidence=make_json_safe(finding.evidence),
                    )
                )
        watched = sorted({direction.name for direction in self.task.space.watch})
        return TrialDiagnosis(
            bound=diagnosis.bound,
            limiter=diagnosis.limiter,
            because=diagnosis.because,
            findings=tuple(firing),
            metrics=make_json_safe({name: longest[name] for name in watched}),
        )


def _get_launch_seconds(row: FrameRow) -> SecondsOrZero:
    """Return the time of a launch; 0 where it was not collected."""
    return 0.0 if isnan(row["time"]) else float(row["time"])


class Runner:
    """Runs the trials of one worker."""

    def __init__(
        self, task: Task, study: Study, worker: Worker, progress: Callable[[str], None]
    ) -> None:
        self.task = task
        self.study = study
        self.worker = worker
        self.progress = progress
        self.profiler = Profiler(task, worker)

    def run_trial(self, trial: Trial, build: ReadyBuild) -> str:
        """Do one trial and write down its outcome, unless the worker is lost; return it."""
        attempt = _Attempt(trial, build, gates.make_result_of_build(build))
        attempt.note_result(gpu=self.worker.visible)
        began = time.monotonic()
        value = None
        try:
            value = self._judge_and_measure_trial(attempt)
            outcome = "measured"
        except TrialEnded as end:
            outcome = end.outcome
            value = end.value
            attempt.note_result(reason=end.reason, kind=end.kind, value=end.value)
        except WorkerLost:
            raise
        except ProfkitError as error:
            outcome = "failed"
            attempt.note_result(reason=error.message, kind="failed")
        attempt.note_result(gpu_seconds=time.monotonic() - began)
        self.study.finish_trial(trial.number, outcome, value, attempt.result)
        if outcome == "measured":
            self._propose_next(attempt)
        return outcome

    # --- gates -----------------------------------------------------------------------------------

    def _judge_and_measure_trial(self, attempt: _Attempt) -> Seconds:
        """Pass all gates and rounds; return seconds per call, normalised by the reference."""
        built = attempt.build.built
        trial = attempt.trial
        _end_trial_if_refused(gates.find_build_refusal(attempt.build))
        attempt.note_result(code=gates.make_machine_code_key(built))
        self._end_duplicate(trial, attempt.result.code)
        is_default = trial.config == self.task.space.default
        basis = None if is_default else self.read_defaults_basis()
        entry = self.task.make_trial_entry(trial.config)
        reply = self.worker.check_variant_and_list_launches(
            entry, self.task.list_required_checks(), self.task.case
        )
        check = reply.checks[entry.name]
        launches = reply.launches.get(entry.name, ())
        attempt.note_result(max_abs=check.max_abs)
        _end_trial_if_refused(gates.find_check_refusal(check, basis.supported if basis else None))
        attempt.note_result(
            launches=launches, **gates.measure_launch_of_most_blocks(built, launches)
        )
        _end_trial_if_refused(gates.find_launch_refusal(built, launches))
        if basis is None:
            return self._measure_defaults(attempt, check)
        return self._measure_value(attempt, basis)

    def _end_duplicate(self, trial: Trial, code: str | None) -> None:
        """End a trial whose machine code another trial has measured or is measuring."""
        if code is None:
            return
        first = self.study.claim_machine_code(code, trial.number)
        if first != trial.number:
            value = self.study.get_trial(first).value
            reason = f"its machine code is that of trial {first}"
            raise TrialEnded("same", reason, "same machine code", value)

    # --- rounds ----------------------------------------------------------------------------------

    def read_defaults_basis(self) -> Basis:
        """Return what is known of the defaults: supported cases, the reference and its time."""
        return msgspec.convert(self.study.read_note("basis"), Basis)

    def _set_first_incumbent(self, trial_number: int) -> None:
        """Make a trial the incumbent, unless a search that was killed has got further."""
        noted = self.study.read_note("incumbent")
        for trial in self.study.list_trials_but_waiting():
            if trial.number == noted and trial.result.became_incumbent:
                return
        self.study.write_note("incumbent", trial_number)

    def _measure_defaults(self, attempt: _Attempt, check: Check) -> Seconds:
        """Measure the defaults: they are the first incumbent, and what trials are held to."""
        trial = attempt.trial
        reference = self.task.reference
        entry = self.task.make_trial_entry(trial.config)
        reply = self._ask_worker(
            [entry, *([self.task.make_reference_entry(reference)] if reference else [])], QUICK
        )
        if reference in reply.refused:
            self.study.write_note("no_anchor", reply.refused[reference])
            reference = None
        times = self._require_times([entry], reply)
        time = float(median(times[entry.name].warm))
        basis = Basis(
            number=trial.number,
            supported=tuple(sorted(set(check.correct_cases))),
            reference=reference,
            reference_time=float(median(times[reference].warm)) if reference else time,
            gpu=self.worker.gpu,
        )
        self.study.write_note("basis", basis.to_json())
        self._set_first_incumbent(trial.number)
        attempt.note_result(time=time, reference_time=basis.reference_time)
        self.study.based.set()  # the other workers have what they compare with
        self._profile_trial(attempt)
        return time

    def _measure_value(self, attempt: _Attempt, basis: Basis) -> Seconds:
        """Return a trial's time in seconds, confirmed if it is faster than all before it.

        Raises:
            TrialEnded: It is slower than most at its first look.
        """
        trial = attempt.trial
        unit = basis.reference_time
        reference = self.choose_reference(basis)
        name = self.task.make_variant_name_of_config(trial.config)
        self._time_briefly_or_prune(attempt, reference, unit)
        while True:
            incumbent = self.get_incumbent()
            comparison, times = self.compare_trials(trial, incumbent, QUICK)
            value = compute_median_ratio(times, name, reference.name) * unit
            quick = _make_challenge(comparison, incumbent.number)
            attempt.note_result(**{key: getattr(quick, key) for key in _QUICK})
            attempt.note_result(
                time=median(times[name].warm), reference_time=median(times[reference.name].warm)
            )
            self._promote_trial(attempt, comparison, incumbent)
            if not attempt.result.promoted:
                return value
            confirmed = self.time_trial_against_incumbent(trial, incumbent)
            attempt.note_result(confirmed=confirmed)
            if confirmed.answer != "faster":
                return value
            if self.study.replace_incumbent(incumbent.number, trial.number):
                attempt.note_result(became_incumbent=True)
                return value
            # Another worker was faster to find a faster one: now against that.

    def _time_briefly_or_prune(
        self, attempt: _Attempt, reference: Entry, seconds_of_reference: Seconds
    ) -> None:
        """Time a trial shortly; TrialEnded if it is slower than half of the trials before it."""
        trial = attempt.trial
        name = self.task.make_variant_name_of_config(trial.config)
        times = self.time_entries([self.task.make_trial_entry(trial.config), reference], LOOK)
        value = compute_median_ratio(times, name, reference.name) * seconds_of_reference
        if self.study.report_value_and_ask_to_prune(trial.number, value, LOOK[0]):
            attempt.note_result(time=median(times[name].warm))
            raise TrialEnded(
                "pruned", "slower than half of the trials at its first look", "", value
            )

    def choose_reference(self, basis: Basis) -> Entry:
        """Return the subject that every trial is timed beside."""
        if basis.reference:
            return self.task.make_reference_entry(basis.reference)
        return self.task.make_trial_entry(self.task.space.default)

    def time_trial_against_incumbent(self, trial: Trial, incumbent: Trial) -> Challenge:
        """Time a trial and the incumbent in turns, and return how they compare."""
        comparison, times = self.compare_trials(trial, incumbent, CONFIRM)
        return _make_challenge(
            comparison, incumbent.number, min(len(t.warm) for t in times.values())
        )

    def get_incumbent(self) -> Trial:
        """Return the trial that is the fastest confirmed one so far."""
        return self.study.get_trial(self.study.read_note("incumbent"))

    def time_entries(
        self,
        subjects: Sequence[Entry],
        first_and_most_rounds: FirstAndMostRounds,
        cold: bool = False,
    ) -> dict[str, Times]:
        """Time subjects in turns; ProfkitError if one of them cannot run."""
        return self._require_times(
            subjects, self._ask_worker(subjects, first_and_most_rounds, cold)
        )

    def _require_times(self, subjects: Sequence[Entry], reply: Reply) -> dict[str, Times]:
        names = [entry.name for entry in subjects]
        for name in names:
            if name in reply.refused:
                raise ProfkitError(reply.refused[name])
        for name in names:
            if name not in reply.times:  # it was wrong after many launches
                why = "was not timed"
                if name in reply.checks and reply.checks[name].faults:
                    why = reply.checks[name].faults[0]
                raise ProfkitError(f"{name}: {why}")
        return reply.times

    def _ask_worker(
        self,
        subjects: Sequence[Entry],
        first_and_most_rounds: FirstAndMostRounds,
        cold: bool = False,
    ) -> Reply:
        once = tuple(dict.fromkeys(subjects))  # the incumbent may be the defaults
        return self.worker.time_entries(once, self.task.case, first_and_most_rounds, cold)

    def compare_trials(
        self,
        candidate: Trial,
        baseline: Trial,
        first_and_most_rounds: FirstAndMostRounds,
        cold: bool = False,
    ) -> ComparisonAndTimes:
        """Time the baseline against the candidate, in turns with the reference."""
        from profkit.evidence.stats import compare_samples

        sides = []
        for trial in (baseline, candidate):
            sides.append(self.task.make_trial_entry(trial.config))
        times = self.time_entries(
            [self.choose_reference(self.read_defaults_basis()), *sides], first_and_most_rounds, cold
        )
        before, after = (times[entry.name].warm for entry in sides)
        return compare_samples(before, after, taken="interleaved"), times

    # --- promotion -------------------------------------------------------------------------------

    def _promote_trial(self, attempt: _Attempt, quick: TimeComparison, incumbent: Trial) -> None:
        promoted = None
        if quick.answer == "faster" and quick.speedup.median >= PROMOTE:
            promoted = "faster"
        elif quick.answer != "slower" and self.task.space.watch and not attempt.profiled:
            self._profile_trial(attempt)
            if self.profiler.has_improved_watched_metrics(
                attempt.result.verdict, incumbent.result.verdict
            ):
                promoted = "metrics"
        attempt.note_result(promoted=promoted)
        if promoted and not attempt.profiled:
            self._profile_trial(attempt)

    def _profile_trial(self, attempt: _Attempt) -> None:
        if not self.task.options.profile:
            return
        config = attempt.trial.config
        self.progress(f"ncu {self.task.make_variant_name_of_config(config)}")
        attempt.profiled = True
        attempt.note_result(
            verdict=self.profiler.profile_and_diagnose_config(config, attempt.result.launches or ())
        )
        if self.profiler.without:
            self.study.write_note("no_counters", self.profiler.without)

    def _propose_next(self, attempt: _Attempt) -> None:
        """Let the rules that fire for a new incumbent propose what comes next."""
        config = attempt.trial.config
        space = self.task.space
        verdict = attempt.result.verdict
        is_new = config == space.default or attempt.result.became_incumbent
        if not is_new or verdict is None:
            return
        for proposal in list_proposals_of_findings(
            space, config, verdict.findings, self.study.list_untried_configs()
        ):
            self.study.propose_new_config(proposal.config, f"steer:{proposal.rule}")


def _end_trial_if_refused(refusal: InvalidConfig | None) -> None:
    """End a trial that a gate does not let through: refused, wrong or failed."""
    if refusal is not None:
        outcome = "refused"
        if refusal.kind in ("wrong", "failed"):
            outcome = refusal.kind
        raise TrialEnded(outcome, refusal.detail, refusal.kind)


def _make_challenge(
    comparison: TimeComparison, incumbent_number: int, samples_per_side: int | None = None
) -> Challenge:
    plain = comparison.to_json()
    figures = plain["speedup"], plain["hedges_g"], plain["p_value"], samples_per_side
    return Challenge(incumbent_number, comparison.answer, comparison.sentence, *figures)


def compute_median_ratio(times: Mapping[str, Times], name: str, reference: str) -> float:
    """Return the median over rounds of a subject's time over the reference's: clocks cancel."""
    rounds = zip(times[name].warm, times[reference].warm, strict=True)
    return float(median(own / other for own, other in rounds))
