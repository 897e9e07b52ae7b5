"""One configuration on one GPU  ->  what came of it: gates, look, quick round, confirmation.

The look (10 samples) is what the pruner sees. The quick round (40) takes turns with the incumbent
and the anchor. What is at least 5 % faster there, or moves the header's metrics as it wants without
being slower, is promoted: 100 more samples, and ncu.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from profkit.errors import ProfkitError
from profkit.measure.workers.lane import Lane, Lost
from profkit.tune import gates, rounds, task
from profkit.tune.profiles import Profiler
from profkit.tune.study.study import Study, Trial
from profkit.tune.task import Ready, Task

if TYPE_CHECKING:
    from profkit.evidence.timing.stats import Comparison

LOOK, QUICK, CONFIRM = (10, 10), (40, 40), (100, 100)  # rounds: at first, and at most
PROMOTE = 1.05  # speed-up over the incumbent from which a quick round is worth confirming


@dataclass
class Board:
    """What the lanes of one process share beside the study; lock what you change.

    Attributes:
        lock: Of everything here.
        based: Set when the defaults have been measured.
        codes: Identity of a build -> the number of the trial that measured it.
        progress: Told what is being done.
    """

    progress: Callable[[str], None] = lambda _: None
    lock: threading.RLock = field(default_factory=threading.RLock)
    based: threading.Event = field(default_factory=threading.Event)
    codes: dict[str, int] = field(default_factory=dict)

    def forget(self, number: int) -> None:
        """A trial came to nothing: what it wanted to measure is another's to measure."""
        with self.lock:
            self.codes = {code: n for code, n in self.codes.items() if n != number}


class Ended(Exception):
    """A trial that came to its end before its time."""

    def __init__(self, outcome: str, reason: str, kind: str = "", value: float | None = None):
        super().__init__(reason)
        self.outcome, self.reason, self.kind, self.value = outcome, reason, kind, value


class Runner:
    """Does trials on one lane."""

    def __init__(self, what: Task, study: Study, lane: Lane, board: Board) -> None:
        self.task, self.study, self.lane, self.board = what, study, lane, board
        self.profiler = Profiler(what, lane)

    def run(self, trial: Trial, ready: Ready) -> str:
        """Do one trial and write down what came of it; its outcome.

        Raises:
            Lost: The worker went away (nothing is written down: whose fault it is, the caller
                finds out).
        """
        said: dict[str, Any] = {**task.resources(ready), "gpu": self.lane.visible}
        began, value = time.monotonic(), None
        try:
            value = self._stages(trial, ready, said)
            outcome = "measured"
        except Ended as end:
            outcome, value = end.outcome, end.value
            said |= {"reason": end.reason, "kind": end.kind, "value": end.value}
        except Lost:
            raise
        except ProfkitError as error:
            outcome = "failed"
            said |= {"reason": error.message, "kind": "failed"}
        said["gpu_seconds"] = time.monotonic() - began
        self.study.finish(trial.number, outcome, value if outcome != "pruned" else None, said)
        if outcome == "measured":
            self._consider(trial, said)
        return outcome

    # --- gates -----------------------------------------------------------------------------------

    def _stages(self, trial: Trial, ready: Ready, said: dict[str, Any]) -> float:
        """Through all gates and rounds; seconds per call, normalised by the anchor."""
        built = ready.built
        if reason := gates.built(built, ready.used):
            raise Ended("refused", reason.detail, reason.kind)
        said["code"] = gates.identity(built)
        self._same(trial, said["code"])
        name, library = self.task.name(trial.config), built.library
        assert library is not None  # noqa: S101 - gates.built refuses a build without one
        is_default = trial.config == self.task.space.default
        basis = {} if is_default else self.basis()
        checked = self.lane.check(name, library, self.task.case)
        said["max_abs"] = rounds.worst(checked.check)
        judged = checked.check or {"status": "failed", "cases": []}
        if reason := gates.checked(judged, basis.get("supported")):
            outcome = "refused" if reason.kind == "not supported" else reason.kind
            raise Ended(outcome, reason.detail, reason.kind)
        launches = checked.launches or []
        said |= {**gates.shape(built, launches), "launches": launches}
        if reason := gates.launched(built, launches, self.task.options.occupancy):
            raise Ended("refused", reason.detail, reason.kind)
        if is_default:
            return self._default(trial, said, judged, library)
        return self._measured(trial, said, basis, {name: library})

    def _same(self, trial: Trial, code: str | None) -> None:
        """End a trial whose machine code another trial has measured or is measuring."""
        if code is None:
            return
        with self.board.lock:
            first = self.board.codes.setdefault(code, trial.number)
        if first != trial.number:
            known = {t.number: t for t in self.study.trials()}
            value = known[first].value if first in known else None
            reason = f"its machine code is that of trial {first}"
            raise Ended("same", reason, "same machine code", value)

    # --- rounds ----------------------------------------------------------------------------------

    def basis(self) -> dict[str, Any]:
        """What is known of the defaults: supported cases, the anchor and its time."""
        found: dict[str, Any] = self.study.noted("basis")
        return found

    def _default(
        self, trial: Trial, said: dict[str, Any], check: Mapping[str, Any], library: Path
    ) -> float:
        """Measure the defaults: they are the first incumbent, and what trials are held to."""
        name, anchor = self.task.name(trial.config), self.task.anchor
        if anchor is not None:
            try:
                times = self.lane.time({name: library, anchor: None}, self.task.case, QUICK).times
            except Lost:
                raise
            except ProfkitError as error:
                self.study.note("no_anchor", f"{anchor} cannot run here: {error.message}")
                anchor = None
        if anchor is None:
            times = self.lane.time({name: library}, self.task.case, QUICK).times
        mine = float(median(times[name]["warm"]))
        right = [c["case"] for c in check["cases"] if c["status"] == "right"]
        basis = {
            "supported": sorted(set(right)),
            "anchor": anchor,
            "anchor_time": median(times[anchor]["warm"]) if anchor else mine,
            "number": trial.number,
            "gpu": self.lane.gpu,
        }
        self.study.note("basis", basis)
        best = {t.number for t in self.study.trials() if t.said.get("became_incumbent")}
        if self.study.noted("incumbent") not in best:  # a killed search may have got further
            self.study.note("incumbent", trial.number)
        said |= {"time": mine, "anchor_time": basis["anchor_time"]}
        self.board.based.set()  # the other lanes have what they compare with
        self._profile(trial, said)
        return mine

    def _measured(
        self,
        trial: Trial,
        said: dict[str, Any],
        basis: Mapping[str, Any],
        own: Mapping[str, Path],
    ) -> float:
        """Look, quick round, confirmation."""
        anchor, anchored = self.anchor(basis)
        (name,) = own
        times = self.lane.time({**own, **anchor}, self.task.case, LOOK).times
        unit = float(basis["anchor_time"])
        value = rounds.ratio(times, name, anchored) * unit
        if self.study.report(trial.number, value, LOOK[0]):
            said["time"] = median(times[name]["warm"])
            raise Ended("pruned", "slower than half of the trials at its first look", "", value)
        while True:
            incumbent = self.incumbent()
            held = self.library(incumbent)
            found, times = self._compare(own, held, anchor, QUICK)
            value = rounds.ratio(times, name, anchored) * unit
            said |= {"time": median(times[name]["warm"]), **rounds.said(found, incumbent.number)}
            said["anchor_time"] = median(times[anchored]["warm"])
            self._promote(trial, said, found, incumbent)
            if not said.get("promoted"):
                return value
            sure, times = self._compare(own, held, anchor, CONFIRM)
            said["confirmed"] = {
                **rounds.said(sure, incumbent.number),
                "samples": rounds.samples(times),
            }
            if sure.answer != "faster":
                return value
            with self.board.lock:
                if self.study.noted("incumbent") == incumbent.number:
                    self.study.note("incumbent", trial.number)
                    said["became_incumbent"] = True
                    return value
            # Another lane was faster to find a faster one: now against that.

    def anchor(self, basis: Mapping[str, Any]) -> tuple[dict[str, Path | None], str]:
        """The subject that every trial is timed beside, and its name."""
        if basis["anchor"]:
            return {basis["anchor"]: None}, basis["anchor"]
        default = self.task.space.default
        name = self.task.name(default)
        return {name: self.task.built(default).built.library}, name

    def confirm(self, trial: Trial, held: Trial) -> dict[str, Any]:
        """A hundred samples of a finished trial against the incumbent."""
        anchor, _ = self.anchor(self.basis())
        found, times = self._compare(self.library(trial), self.library(held), anchor, CONFIRM)
        return {**rounds.said(found, held.number), "samples": rounds.samples(times)}

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

    def _compare(
        self,
        own: Mapping[str, Path],
        held: Mapping[str, Path],
        anchor: Mapping[str, Path | None],
        rounds: tuple[int, int],
    ) -> tuple[Comparison, dict[str, dict[str, Any]]]:
        """The incumbent against the candidate, in turns with the anchor."""
        from profkit.evidence.timing.stats import compare_samples

        times = self.lane.time({**anchor, **held, **own}, self.task.case, rounds).times
        (mine,), (theirs,) = own, held
        warm = times[theirs]["warm"], times[mine]["warm"]
        return compare_samples(*warm, taken="interleaved"), times

    # --- promotion -------------------------------------------------------------------------------

    def _promote(
        self, trial: Trial, said: dict[str, Any], found: Comparison, incumbent: Trial
    ) -> None:
        """Decide whether a quick round is worth more samples and ncu."""
        said["promoted"] = None
        if found.answer == "faster" and found.speedup.median >= PROMOTE:
            said["promoted"] = "faster"
        elif found.answer != "slower" and self.task.space.watch and "verdict" not in said:
            self._profile(trial, said)
            if self.profiler.moved(said.get("verdict"), incumbent.said.get("verdict")):
                said["promoted"] = "metrics"
        if said["promoted"] and "verdict" not in said:
            self._profile(trial, said)

    def _profile(self, trial: Trial, said: dict[str, Any]) -> None:
        if not self.task.options.profile:
            return
        self.board.progress(f"ncu {self.task.name(trial.config)}")
        said["verdict"] = self.profiler.verdict(trial.config, said)
        if self.profiler.without:
            self.study.note("no_counters", self.profiler.without)

    def _consider(self, trial: Trial, said: Mapping[str, Any]) -> None:
        """Let the diagnosis of a new incumbent propose what comes next."""
        if trial.config == self.task.space.default or said.get("became_incumbent"):
            self.steer(trial, said.get("verdict"))

    def steer(self, trial: Trial, verdict: Mapping[str, Any] | None) -> None:
        """Propose what the rules that fire ask for."""
        from profkit.tune.steer import proposals

        if verdict is None or not self.task.options.steer:
            return
        firing = verdict.get("findings", [])
        for one in proposals(self.task.space, trial.config, firing, self.study.free()):
            self.study.propose(one.config, f"steer:{one.rule}")
