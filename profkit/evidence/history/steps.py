"""The runs of one subject over time  ->  what changed at each, by which commit, and was it real."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan
from typing import Any, Literal, TypedDict

from profkit.evidence.history.noise import process_spreads, spread_for
from profkit.evidence.history.tables import HistoryRun
from profkit.evidence.power import GATE, significant, smallest_change
from profkit.evidence.samples import Spread, Thresholds
from profkit.evidence.stats import Taken, TimeComparison, TimeEntry, compare_samples
from profkit.records.store import as_document

StepAnswer = Literal[
    "first", "faster", "slower", "same", "cannot tell", "same code", "other machine", "no time"
]


class HistoryEntry(TypedDict):
    """One run against the one before it; null where not known."""

    subject: str
    commit: str | None
    commit_from: str | None
    made: str | None
    gpu: str | None
    median_s: float | None
    low_s: float | None
    high_s: float | None
    sass: str | None
    answer: StepAnswer
    time: TimeEntry | None
    smallest_change: float | None
    note: str | None


class HistoryDocument(TypedDict):
    """What `profkit history --json` prints."""

    schema: Literal["profkit.history/1"]
    steps: list[HistoryEntry]


class ColumnsDocument(TypedDict):
    """What `profkit history --sql --json` without a question prints: the columns that there are."""

    schema: Literal["profkit.history/1"]
    columns: list[dict[str, str]]


class QueryDocument(TypedDict):
    """What `profkit history --sql QUESTION --json` prints."""

    schema: Literal["profkit.query/1"]
    rows: list[dict[str, Any]]


@dataclass(frozen=True)
class HistoryStep:
    """One run against the one before it on the same GPU."""

    run: HistoryRun  # what was measured
    answer: StepAnswer  # what became of its time; "same code" where the machine code is unchanged
    time: TimeComparison | None = None  # the comparison; None where none was made
    # the smallest change that would have been seen; None without a comparison
    smallest_change: float | None = None
    # what else is odd: one machine code with two times, or known by another name before
    note: str = ""

    def to_json(self) -> HistoryEntry:
        """Plain values, without the samples."""
        return as_document(HistoryEntry, self, self.run)


def steps(
    runs: Iterable[HistoryRun], spreads: Mapping[str, Spread] | None = None
) -> list[HistoryStep]:
    """Each run of each subject against the one before it, subject by subject, oldest first.

    `spreads`: GPU (uuid) -> what its processes differ by; None asks the runs themselves.
    """
    ordered = list(runs)
    spreads = process_spreads(ordered) if spreads is None else spreads
    by_subject: dict[str, list[HistoryRun]] = {}
    known: dict[tuple[str, str], list[HistoryRun]] = {}  # SASS and case -> who had it, in order
    for run in ordered:
        mine = by_subject.setdefault(run.subject, [])
        if run.sass:
            known.setdefault((run.sass, run.case), []).append(run)
        # A record whose header was mended is another file of one measurement: the first counts.
        if not any((r.session, r.made) == (run.session, run.made) and r.made for r in mine):
            mine.append(run)
    return [
        _noted(_step(mine[:number], run, spreads), known)
        for _, mine in sorted(by_subject.items())
        for number, run in enumerate(mine)
    ]


def _step(
    earlier: Sequence[HistoryRun], run: HistoryRun, spreads: Mapping[str, Spread]
) -> HistoryStep:
    """A run against the latest one before it on the same GPU."""
    if not earlier:
        return HistoryStep(run, "first")
    machine = run.gpu_uuid or run.gpu
    before = next((r for r in reversed(earlier) if (r.gpu_uuid or r.gpu) == machine), None)
    same_code = run.machine_code.same_as((before or earlier[-1]).machine_code)
    if before is None:
        return HistoryStep(run, "same code" if same_code else "other machine")
    if not (before.samples and run.samples):
        return HistoryStep(run, "same code" if same_code else "no time")
    thresholds = _thresholds(spreads.get(run.gpu_uuid or ""))
    time = compare_samples(before.samples, run.samples, taken=_taken(before, run),
                           thresholds=thresholds)  # fmt: skip
    smallest = smallest_change(time)
    moved = time.answer in ("faster", "slower") and significant(time)
    if same_code:
        odd = f"one machine code, and {time.sentence}: the method or the machine" if moved else ""
        return HistoryStep(run, "same code", note=odd)
    answer = "cannot tell" if time.answer in ("faster", "slower") and not moved else time.answer
    return HistoryStep(run, answer, time, None if isnan(smallest) else smallest)


def _noted(step: HistoryStep, known: Mapping[tuple[str, str], Sequence[HistoryRun]]) -> HistoryStep:
    """A subject's first run, where its machine code was measured under another name before."""
    run = step.run
    if step.answer != "first":
        return step
    alike = known.get((run.sass or "", run.case), ())
    old = next((r for r in alike if r.machine_code.same_as(run.machine_code)), run)
    return (
        step
        if old.subject == run.subject
        else replace(step, note=f"the machine code of {old.subject}")
    )


def _thresholds(spread: Spread | None) -> Thresholds:
    return GATE if spread is None else replace(GATE, process_spread=spread_for(spread))


def _taken(before: HistoryRun, run: HistoryRun) -> Taken:
    if before.session is None or before.session != run.session:
        return "apart"
    return "interleaved" if len(before.samples) == len(run.samples) else "one process"
