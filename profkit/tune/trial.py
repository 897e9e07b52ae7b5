"""One configuration on one GPU  ->  what came of it: gates, look, quick round, confirmation.

The look (10 samples) is what the pruner sees. The quick round (40) takes turns with the incumbent
and the reference. What is at least 5 % faster there, or moves the header's metrics as it wants
without being slower, is promoted: 100 more samples, and ncu.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from profkit.errors import ProfkitError
from profkit.measure.check.bench import Times
from profkit.measure.check.check import Check
from profkit.measure.worker import Reply, Worker, WorkerLost, entries_of
from profkit.tune import gates
from profkit.tune.result import Basis, Challenge, TrialDiagnosis, TrialResult, challenge
from profkit.tune.steer import Profiler
from profkit.tune.study import Study, Trial
from profkit.tune.task import ReadyBuild, Task, built_result

if TYPE_CHECKING:
    from profkit.evidence.stats import TimeComparison

LOOK, QUICK, CONFIRM = (10, 10), (40, 40), (100, 100)  # rounds: at first, and at most
PROMOTE = 1.05  # speed-up over the incumbent from which a quick round is worth confirming


@dataclass
class SearchState:
    """What the workers of one process share beside the study; lock what you change."""

    progress: Callable[[str], None] = lambda _: None  # told what is being done
    lock: threading.RLock = field(default_factory=threading.RLock)  # of everything here
    # set when the defaults have been measured
    based: threading.Event = field(default_factory=threading.Event)
    # identity of a build -> the number of the trial that measured it
    codes: dict[str, int] = field(default_factory=dict)

    def forget(self, number: int) -> None:
        """A trial came to nothing: what it wanted to measure is another's to measure."""
        with self.lock:
            self.codes = {code: n for code, n in self.codes.items() if n != number}


class TrialEnded(Exception):
    """A trial that came to its end before its time."""

    def __init__(self, outcome: str, reason: str, kind: str = "", value: float | None = None):
        super().__init__(reason)
        self.outcome, self.reason, self.kind, self.value = outcome, reason, kind, value


@dataclass
class _Attempt:
    trial: Trial
    build: ReadyBuild
    result: TrialResult  # what is known by now
    profiled: bool = False  # whether ncu was asked, also if it could not

    def note(self, **known: Any) -> None:
        """Put what was found out into the result."""
        self.result = replace(self.result, **known)


class Runner:
    """Does trials on one worker."""

    def __init__(self, task: Task, study: Study, worker: Worker, state: SearchState) -> None:
        self.task, self.study, self.worker, self.state = task, study, worker, state
        self.profiler = Profiler(task, worker)

    def run(self, trial: Trial, build: ReadyBuild) -> str:
        """Do one trial and write down what came of it; its outcome.

        Raises:
            WorkerLost: The worker went away (nothing is written down: whose fault it is, the caller
                finds out).
        """
        attempt = _Attempt(trial, build, built_result(build))
        attempt.note(gpu=self.worker.visible)
        began, value = time.monotonic(), None
        try:
            value = self._stages(attempt)
            outcome = "measured"
        except TrialEnded as end:
            outcome, value = end.outcome, end.value
            attempt.note(reason=end.reason, kind=end.kind, value=end.value)
        except WorkerLost:
            raise
        except ProfkitError as error:
            outcome = "failed"
            attempt.note(reason=error.message, kind="failed")
        attempt.note(gpu_seconds=time.monotonic() - began)
        kept = value if outcome != "pruned" else None
        self.study.finish(trial.number, outcome, kept, attempt.result)
        if outcome == "measured":
            self._consider(attempt)
        return outcome

    # --- gates -----------------------------------------------------------------------------------

    def _stages(self, attempt: _Attempt) -> float:
        """Through all gates and rounds; seconds per call, normalised by the reference."""
        built, trial = attempt.build.built, attempt.trial
        if refusal := gates.built(built, attempt.build.used):
            raise TrialEnded("refused", refusal.detail, refusal.kind)
        attempt.note(code=gates.machine_code_identity(built))
        self._same(trial, attempt.result.code)
        name, library = self.task.name(trial.config), built.library
        assert library is not None  # noqa: S101 - gates.built refuses a build without one
        is_default = trial.config == self.task.space.default
        basis = None if is_default else self.basis()
        (entry,) = entries_of({name: library}, self._grid)
        reply = self.worker.judge(entry, self.task.checks(), self.task.case)
        check, launches = reply.checks[name], reply.launches.get(name, ())
        attempt.note(max_abs=check.max_abs)
        if refusal := gates.checked(check, basis.supported if basis else None):
            outcome = "refused" if refusal.kind == "not supported" else refusal.kind
            raise TrialEnded(outcome, refusal.detail, refusal.kind)
        attempt.note(launches=launches, **gates.footprint(built, launches))
        if refusal := gates.refuse_launches(built, launches, self.task.options.occupancy):
            raise TrialEnded("refused", refusal.detail, refusal.kind)
        if basis is None:
            return self._default(attempt, check, library)
        return self._measured(attempt, basis, {name: library})

    def _same(self, trial: Trial, code: str | None) -> None:
        """End a trial whose machine code another trial has measured or is measuring."""
        if code is None:
            return
        with self.state.lock:
            first = self.state.codes.setdefault(code, trial.number)
        if first != trial.number:
            known = {t.number: t for t in self.study.trials()}
            value = known[first].value if first in known else None
            reason = f"its machine code is that of trial {first}"
            raise TrialEnded("same", reason, "same machine code", value)

    # --- rounds ----------------------------------------------------------------------------------

    def basis(self) -> Basis:
        """What is known of the defaults: supported cases, the reference and its time."""
        return Basis.from_json(self.study.noted("basis"))

    def _default(self, attempt: _Attempt, check: Check, library: Path) -> float:
        """Measure the defaults: they are the first incumbent, and what trials are held to."""
        trial, reference = attempt.trial, self.task.reference
        name = self.task.name(trial.config)
        calls = {reference: None} if reference else {}
        reply = self._ask({name: library, **calls}, QUICK)
        if reference in reply.refused:
            self.study.note("no_anchor", reply.refused[reference])
            reference = None
        if name in reply.refused:
            raise ProfkitError(reply.refused[name])
        self._all_timed({name: library}, reply)
        times = reply.times
        time = float(median(times[name].warm))
        basis = Basis(
            number=trial.number,
            supported=tuple(sorted(set(check.correct_cases))),
            reference=reference,
            reference_time=float(median(times[reference].warm)) if reference else time,
            gpu=self.worker.gpu,
        )
        self.study.note("basis", basis.to_json())
        best = {t.number for t in self.study.trials() if t.result.became_incumbent}
        if self.study.noted("incumbent") not in best:  # a killed search may have got further
            self.study.note("incumbent", trial.number)
        attempt.note(time=time, reference_time=basis.reference_time)
        self.state.based.set()  # the other workers have what they compare with
        self._profile(attempt)
        return time

    def _measured(self, attempt: _Attempt, basis: Basis, candidate: Mapping[str, Path]) -> float:
        """Look, quick round, confirmation."""
        calls, reference = self.reference(basis)
        (name,), unit = candidate, basis.reference_time
        times = self.time({**candidate, **calls}, LOOK)
        value = round_ratio(times, name, reference) * unit
        if self.study.report(attempt.trial.number, value, LOOK[0]):
            attempt.note(time=median(times[name].warm))
            raise TrialEnded(
                "pruned", "slower than half of the trials at its first look", "", value
            )
        while True:
            incumbent = self.incumbent()
            baseline = self.library(incumbent)
            comparison, times = self.compare(candidate, baseline, calls, QUICK)
            value = round_ratio(times, name, reference) * unit
            self._note_quick(attempt, challenge(comparison, incumbent.number))
            attempt.note(
                time=median(times[name].warm), reference_time=median(times[reference].warm)
            )
            self._promote(attempt, comparison, incumbent)
            if not attempt.result.promoted:
                return value
            confirmation, times = self.compare(candidate, baseline, calls, CONFIRM)
            samples = fewest_samples(times)
            attempt.note(confirmed=challenge(confirmation, incumbent.number, samples))
            if confirmation.answer != "faster" or self._succeeds(attempt, incumbent):
                return value
            # Another worker was faster to find a faster one: now against that.

    def _note_quick(self, attempt: _Attempt, quick: Challenge) -> None:
        names = ("against", "answer", "sentence", "speedup", "hedges_g", "p_value")
        attempt.note(**{name: getattr(quick, name) for name in names})

    def _succeeds(self, attempt: _Attempt, incumbent: Trial) -> bool:
        """Make a trial the incumbent, if the one that it beat still is."""
        with self.state.lock:
            if self.study.noted("incumbent") != incumbent.number:
                return False
            self.study.note("incumbent", attempt.trial.number)
        attempt.note(became_incumbent=True)
        return True

    def reference(self, basis: Basis) -> tuple[dict[str, Path | None], str]:
        """The subject that every trial is timed beside, and its name."""
        if basis.reference:
            return {basis.reference: None}, basis.reference
        default = self.task.space.default
        name = self.task.name(default)
        return {name: self.task.built(default).built.library}, name

    def confirm(self, trial: Trial, incumbent: Trial) -> Challenge:
        """A hundred samples of a finished trial against the incumbent."""
        calls, _ = self.reference(self.basis())
        libraries = self.library(trial), self.library(incumbent)
        comparison, times = self.compare(*libraries, calls, CONFIRM)
        return challenge(comparison, incumbent.number, fewest_samples(times))

    def incumbent(self) -> Trial:
        """The fastest confirmed so far."""
        number = self.study.noted("incumbent")
        return next(t for t in self.study.trials() if t.number == number)

    def library(self, trial: Trial) -> dict[str, Path]:
        """A trial's name and its library."""
        library = self.task.built(trial.config).built.library
        if library is None:
            raise ProfkitError(f"{self.task.name(trial.config)} does not build any more")
        return {self.task.name(trial.config): library}

    def time(
        self, subjects: Mapping[str, Path | None], limits: tuple[int, int], cold: bool = False
    ) -> dict[str, Times]:
        """Time subjects in turns.

        Raises:
            ProfkitError: One of them cannot run.
        """
        reply = self._ask(subjects, limits, cold)
        if reply.refused:
            raise ProfkitError(next(iter(reply.refused.values())))
        self._all_timed(subjects, reply)
        return reply.times

    def _all_timed(self, subjects: Mapping[str, Path | None], reply: Reply) -> None:
        """What was wrong after many launches has no times."""
        for name in subjects:
            if name not in reply.times:
                faults = reply.checks[name].faults if name in reply.checks else ()
                raise ProfkitError(f"{name}: {faults[0] if faults else 'was not timed'}")

    @property
    def _grid(self) -> str | None:
        return self.task.variant.header.inputs

    def _ask(
        self, subjects: Mapping[str, Path | None], limits: tuple[int, int], cold: bool = False
    ) -> Reply:
        return self.worker.time(entries_of(subjects, self._grid), self.task.case, limits, cold)

    def compare(
        self,
        candidate: Mapping[str, Path],
        baseline: Mapping[str, Path],
        calls: Mapping[str, Path | None],
        limits: tuple[int, int],
        cold: bool = False,
    ) -> tuple[TimeComparison, dict[str, Times]]:
        """Time the baseline against the candidate, in turns with the reference."""
        from profkit.evidence.stats import compare_samples

        times = self.time({**calls, **baseline, **candidate}, limits, cold)
        (after,), (before,) = candidate, baseline
        warm = times[before].warm, times[after].warm
        return compare_samples(*warm, taken="interleaved"), times

    # --- promotion -------------------------------------------------------------------------------

    def _promote(self, attempt: _Attempt, quick: TimeComparison, incumbent: Trial) -> None:
        """Decide whether a quick round is worth more samples and ncu."""
        promoted = None
        if quick.answer == "faster" and quick.speedup.median >= PROMOTE:
            promoted = "faster"
        elif quick.answer != "slower" and self.task.space.watch and not attempt.profiled:
            self._profile(attempt)
            if self.profiler.moved(attempt.result.verdict, incumbent.result.verdict):
                promoted = "metrics"
        attempt.note(promoted=promoted)
        if promoted and not attempt.profiled:
            self._profile(attempt)

    def _profile(self, attempt: _Attempt) -> None:
        if not self.task.options.profile:
            return
        config = attempt.trial.config
        self.state.progress(f"ncu {self.task.name(config)}")
        attempt.profiled = True
        attempt.note(verdict=self.profiler.verdict(config, attempt.result.launches or ()))
        if self.profiler.without:
            self.study.note("no_counters", self.profiler.without)

    def _consider(self, attempt: _Attempt) -> None:
        """Let the diagnosis of a new incumbent propose what comes next."""
        is_default = attempt.trial.config == self.task.space.default
        if is_default or attempt.result.became_incumbent:
            self.steer(attempt.trial, attempt.result.verdict)

    def steer(self, trial: Trial, verdict: TrialDiagnosis | None) -> None:
        """Propose what the rules that fire ask for."""
        from profkit.tune.steer import proposals

        if verdict is None or not self.task.options.steer:
            return
        free = self.study.free()
        for proposal in proposals(self.task.space, trial.config, verdict.findings, free):
            self.study.propose(proposal.config, f"steer:{proposal.rule}")


def round_ratio(times: Mapping[str, Times], name: str, reference: str) -> float:
    """The median over rounds of a subject's time over the reference's: clocks cancel."""
    rounds = zip(times[name].warm, times[reference].warm, strict=True)
    return float(median(own / other for own, other in rounds))


def fewest_samples(times: Mapping[str, Times]) -> int:
    """How many samples the shortest series has."""
    return min(len(t.warm) for t in times.values())
