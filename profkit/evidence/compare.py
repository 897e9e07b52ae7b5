"""Two runs  ->  did the change help, what moved, what it cost, and did its header predict it.

Time is judged from samples taken without a profiler; counters explain it and never decide it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from math import isnan
from typing import Any, Literal

from profkit.errors import ProfkitError
from profkit.evidence.conditions import WAIVABLE, Incomparable, clock_of, refusals_of
from profkit.evidence.counters import LaunchChange, launch_change
from profkit.evidence.predictions import HeaderPrediction, header_predictions
from profkit.evidence.runs import MissingEvidence, Run
from profkit.evidence.stats import (
    THRESHOLDS,
    Taken,
    Thresholds,
    TimeComparison,
    compare_samples,
)
from profkit.records.record import Record
from profkit.records.store import digest
from profkit.reports.figures import seconds

SAME_CLOCK = 0.03  # clocks nearer than this are not worth a word
Untimed = Literal["", "one side", "both sides", "unchanged"]
SpreadOf = Callable[[str], float | None]  # a GPU (uuid) -> what its processes differ by, measured


def nobody_measured(_: str) -> None:
    """What processes differ by on a GPU that has no history."""


@dataclass(frozen=True)
class BetweenProcesses:
    """What a median is taken to differ by from one process to the next."""

    sigma: float  # relative standard deviation
    measured: bool  # whether the history knows it of this GPU; else it is assumed

    @property
    def sentence(self) -> str:
        """The same for people."""
        differ = f"processes differ by {self.sigma * 100:.2g} %"
        return f"{differ}, measured" if self.measured else f"{differ}, assumed"


@dataclass(frozen=True)
class ResourceChange:
    """A resource that differs: name, unit, and its value on each side (None: not known)."""

    name: str
    unit: str
    before: float | None
    after: float | None

    @property
    def worse(self) -> bool:
        """Whether more is used, or fewer blocks fit."""
        if self.before is None or self.after is None:
            return False
        return (
            self.after < self.before if self.name in _MORE_IS_BETTER else self.after > self.before
        )


@dataclass(frozen=True)
class RunComparison:
    """Two runs, compared."""

    before: str
    after: str
    refusals: tuple[Incomparable, ...]  # why they are not compared; waived ones stay here as notes
    compared: bool
    time: TimeComparison | None = None  # the verdict on time, None without timing of both
    time_note: str = ""  # where `time` comes from, or why it is None
    # what processes are taken to differ by; None where both were timed in one
    between_processes: BetweenProcesses | None = None
    # whether there are samples that no verdict can be made of: too few, or no times
    bad_samples: bool = False
    # which side has no samples: none, one, or both; of two, whether they are unchanged, by
    # machine code or report
    untimed: Untimed = ""
    launches: tuple[LaunchChange, ...] = ()  # launch by launch; empty without reports of both
    unmatched: tuple[str, ...] = ()  # kernels of one side that have no partner
    resources: tuple[ResourceChange, ...] = ()  # those that differ
    # what the header of AFTER said, if it changes BEFORE
    promises: tuple[HeaderPrediction, ...] = ()
    notes: tuple[str, ...] = ()  # what else to know: not checked, no sanitizer, no report


def compare_runs(
    before: Run,
    after: Run,
    anyway: bool = False,
    within: float = 0.01,
    thresholds: Thresholds = THRESHOLDS,
    spread_of: SpreadOf = nobody_measured,
) -> RunComparison:
    """Compare two runs.

    `anyway`: compare across GPUs, clocks, ncu versions and cases all the same. `within`: speed-ups
    inside 1 +- within are "same". `spread_of`: what the processes of a GPU differ by, where that
    was measured.
    """
    refusals = tuple(refusals_of(before, after))
    if any(not (anyway and r.code in WAIVABLE) for r in refusals):
        return RunComparison(before.name, after.name, refusals, compared=False)
    time, time_note = _time(before, after, within, thresholds, spread_of)
    pairs, unmatched = match(before, after)
    launches = tuple(
        launch_change(_named(b), _named(a), (before.verdict(b), after.verdict(a))) for b, a in pairs
    )
    return RunComparison(
        before.name,
        after.name,
        refusals,
        compared=True,
        time=time,
        time_note=time_note,
        between_processes=between_processes(before.record, after.record, thresholds, spread_of),
        bad_samples=_bad(before, after, time),
        untimed=_untimed(before, after),
        launches=launches,
        unmatched=unmatched,
        resources=_resources(before, after),
        promises=header_predictions(before, after),
        notes=_notes(before, after),
    )


# --- time ----------------------------------------------------------------------------------------


def _time(
    before: Run, after: Run, within: float, thresholds: Thresholds, spread_of: SpreadOf
) -> tuple[TimeComparison | None, str]:
    try:
        was, now = before.timed, after.timed
    except MissingEvidence as missing:
        return None, f"{missing.message}; a duration under ncu is no timing ({missing.hint})"
    try:
        time = compare_times(was, now, within, thresholds, spread_of)
    except ProfkitError as error:
        return None, error.message
    if _taken_once(before, after):
        sentence = "the same: one measurement stands on both sides"
        time = replace(time, answer="same", reason="identical", sentence=sentence)
    between = between_processes(was, now, thresholds, spread_of)
    note = f"warm L2, {how_taken(was, now)}"
    return time, f"{note}: {between.sentence}" if between else note


def _bad(before: Run, after: Run, time: TimeComparison | None) -> bool:
    there = all(run.record and run.record.warm for run in (before, after))
    return there and (time is None or time.reason == "too-few")


def _untimed(before: Run, after: Run) -> Untimed:
    timed = [bool(run.record and run.record.warm) for run in (before, after)]
    if any(timed):
        return "" if all(timed) else "one side"
    if before.record and after.record:
        same = before.record.machine_code.same_as(after.record.machine_code)
    else:
        reports = [digest(run.report) if run.report else "" for run in (before, after)]
        same = reports[0] == reports[1] != ""
    return "unchanged" if same else "both sides"


def how_taken(before: Record | None, after: Record | None) -> Taken:
    """Whether two runs were timed in one process; there, subjects take turns round by round."""
    if before is None or after is None or before.session is None:
        return "apart"
    if before.session != after.session:
        return "apart"
    return "interleaved" if len(before.warm) == len(after.warm) else "one process"


def between_processes(
    before: Record | None, after: Record | None, thresholds: Thresholds, spread_of: SpreadOf
) -> BetweenProcesses | None:
    """What two runs' processes are taken to differ by; None where both were timed in one.

    What was measured counts for the GPU that it was measured on: of two GPUs nobody has.
    """
    if how_taken(before, after) != "apart":
        return None
    gpus = {r.gpu.uuid if r and r.gpu else None for r in (before, after)}
    uuid = gpus.pop() if len(gpus) == 1 else None
    sigma = spread_of(uuid) if uuid else None
    assumed = BetweenProcesses(thresholds.process_spread, measured=False)
    return assumed if sigma is None else BetweenProcesses(sigma, measured=True)


def compare_times(
    before: Record,
    after: Record,
    within: float = 0.01,
    thresholds: Thresholds = THRESHOLDS,
    spread_of: SpreadOf = nobody_measured,
) -> TimeComparison:
    """Whether AFTER is faster, by the warm samples of two records: the one place that says so.

    A ladder, a gate, a claim and a summary differ in their thresholds, and in what they make of it.

    Raises:
        ProfkitError: As compare_samples.
    """
    between = between_processes(before, after, thresholds, spread_of)
    known = replace(thresholds, process_spread=between.sigma) if between else thresholds
    return compare_samples(before.warm, after.warm, within, how_taken(before, after), known)


# --- launches ------------------------------------------------------------------------------------

FrameRow = dict[Hashable, Any]


def match(before: Run, after: Run) -> tuple[list[tuple[FrameRow, FrameRow]], tuple[str, ...]]:
    """Pairs of launches, and the kernels left over.

    Launches of two variants belong together in order when there are as many; otherwise by NVTX
    range and kernel name, the n-th with the n-th. Where no name is on both sides, two variants'
    longest launches belong together, and so do two reports of one launch each.
    """
    usable = [run.rows for run in (before, after)]
    marked = all(r["variant"] is not None for side in usable for r in side)
    if marked and len(usable[0]) == len(usable[1]):
        return list(zip(*usable, strict=True)), ()
    keyed = [_keyed(side) for side in usable]
    common = [key for key in keyed[0] if key in keyed[1]]
    pairs = [(keyed[0][key], keyed[1][key]) for key in common]
    alone = all(len(side) == 1 for side in usable)
    if not pairs and all(usable) and (marked or alone):
        pairs = [(max(usable[0], key=_time_of), max(usable[1], key=_time_of))]
    paired = {id(row) for two in pairs for row in two}
    left = [row for row in chain.from_iterable(usable) if id(row) not in paired]
    return pairs, tuple(str(row["kernel"]) for row in left)


def _time_of(row: FrameRow) -> float:
    return 0.0 if isnan(row["time"]) else float(row["time"])


def _keyed(rows: list[FrameRow]) -> dict[tuple[Any, ...], FrameRow]:
    seen: Counter[tuple[Any, ...]] = Counter()
    keyed: dict[tuple[Any, ...], FrameRow] = {}
    for row in rows:
        # The mark carries the variant, which differs by intention; the kernel's name does not.
        nvtx = None if row["variant"] is not None else row["nvtx"]
        key = (nvtx, row["kernel"])
        keyed[(*key, seen[key])] = row
        seen[key] += 1
    return keyed


def _named(row: FrameRow) -> Mapping[str, Any]:
    return {str(k): v for k, v in row.items()}


# --- what it cost --------------------------------------------------------------------------------

_MORE_IS_BETTER = ("blocks_per_sm", "occupancy_limit")
_FROM_FRAME = {
    "registers": "count",
    "shared_static": "byte",
    "shared_dynamic": "byte",
    "blocks_per_sm": "count",
    "occupancy_limit": "share",
}


def _resources(before: Run, after: Run) -> tuple[ResourceChange, ...]:
    changes = [
        ResourceChange(name, unit, _resource(before, name), _resource(after, name))
        for name, unit in (*_FROM_FRAME.items(), ("spills", "byte"), ("stack", "byte"))
    ]
    return tuple(r for r in changes if r.before != r.after)


def _resource(run: Run, name: str) -> float | None:
    """What the record says, else the report: the record knows spills and stack, ncu occupancy."""
    value = getattr(run.record.most, name, None) if run.record else None
    if value is not None:
        return float(value)
    counted = run.column(name) if name in _FROM_FRAME else None
    return counted if isinstance(counted, float) and not isnan(counted) else None


def _taken_once(before: Run, after: Run) -> bool:
    """Whether both sides hold the very same timing samples of the same session."""
    was, now = before.record, after.record
    if was is None or now is None or not was.warm:
        return False
    return (was.session, was.warm) == (now.session, now.warm)


def _two_gpus(before: Record | None, after: Record | None) -> list[str]:
    """Where two runs are of two GPUs of one name: not refused, and said."""
    if before is None or after is None:
        return []
    uuids = [r.gpu.uuid if r.gpu else None for r in (before, after)]
    if all(uuids) and uuids[0] != uuids[1]:
        return [f"timed on two GPUs of one name: {uuids[0]} and {uuids[1]}"]
    seen = [r.ncu.visible if r.ncu else None for r in (before, after)]
    if seen[0] != seen[1]:
        words = [x if x is not None else "the first" for x in seen]
        return [f"counted on two GPUs of one host: {words[0]} and {words[1]}"]
    return []


def _notes(before: Run, after: Run) -> tuple[str, ...]:
    notes: list[str] = []
    if _taken_once(before, after):
        notes.append("both sides are one measurement: nothing was recorded anew")
    for run in (before, after):
        if run.record is None:
            notes.append(f"{run.name} has no run record: right or wrong is not known")
        elif run.record.correct is None:
            notes.append(f"{run.name} was not checked: profkit check --variant {run.variant}")
        if run.usable.empty:
            why = "no report" if run.launches.empty else "no launch that ncu could finish"
            notes.append(f"{run.name} has {why}: no counters")
    names = [set(run.usable["kernel"]) for run in (before, after)]
    if all(names) and not names[0] & names[1] and before.record is None and after.record is None:
        notes.append("no kernel has the same name on both sides: these may be different kernels")
    counts = len(before.usable), len(after.usable)
    if counts[0] != counts[1] and all(counts):
        sums = [seconds(float(run.usable["time"].sum())) for run in (before, after)]
        notes.append(
            f"{counts[0]} and {counts[1]} launches, together {sums[0]} and {sums[1]} under ncu"
        )
    notes += _two_gpus(before.record, after.record)
    was, now = clock_of(before), clock_of(after)
    if was and now and abs(was - now) > SAME_CLOCK * max(was, now):
        notes.append(
            f"the SM ran at {was / 1e6:.0f} and {now / 1e6:.0f} MHz under ncu: shares of peak "
            "compare, durations under ncu do not"
        )
    return tuple(notes)
