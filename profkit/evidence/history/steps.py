"""The runs of one subject over time  ->  what changed at each, by which commit, and was it real."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan
from typing import Literal

from profkit.evidence.compare import STRICT, Policy, compare_times
from profkit.evidence.history.noise import process_spreads, spread_for
from profkit.evidence.history.tables import HistoryRun
from profkit.evidence.samples import Spread
from profkit.evidence.stats import TimeComparison, smallest_change
from profkit.records.store import Document

StepAnswer = Literal[
    "first", "faster", "slower", "same", "cannot tell", "same code", "other machine", "no time"
]


@dataclass(frozen=True)
class HistoryStep(Document):
    """One run against the one before it on the same GPU; null where not known."""

    JSON = (
        "run.subject run.commit run.commit_from run.made run.gpu run.median_s run.low_s run.high_s "
        "run.sass answer time smallest_change note?"
    )

    run: HistoryRun  # what was measured
    answer: StepAnswer  # what became of its time; "same code" where the machine code is unchanged
    time: TimeComparison | None = None  # the comparison; None where none was made
    # the smallest change that would have been seen; None without a comparison
    smallest_change: float | None = None
    # what else is odd: one machine code with two times, or known by another name before
    note: str = ""


def steps(
    runs: Iterable[HistoryRun], spreads: Mapping[str, Spread] | None = None
) -> list[HistoryStep]:
    """Each run of each subject against the one before it, subject by subject, oldest first.

    `spreads`: GPU (uuid) -> what its processes differ by; None asks the runs themselves.
    """
    ordered = list(runs)
    spreads = process_spreads(ordered) if spreads is None else spreads
    known = {gpu: spread_for(spread) for gpu, spread in spreads.items()}
    policy = replace(STRICT, spread_of=known.get)
    by_subject: dict[str, list[HistoryRun]] = {}
    had: dict[tuple[str, str], list[HistoryRun]] = {}  # SASS and case -> who had it, in order
    for run in ordered:
        mine = by_subject.setdefault(run.subject, [])
        if run.sass:
            had.setdefault((run.sass, run.case), []).append(run)
        # A record whose header was mended is another file of one measurement: the first counts.
        if not any((r.session, r.made) == (run.session, run.made) and r.made for r in mine):
            mine.append(run)
    found: list[HistoryStep] = []
    for _, mine in sorted(by_subject.items()):
        found += (_noted(_step(mine[:n], run, policy), had) for n, run in enumerate(mine))
    return found


def _step(earlier: Sequence[HistoryRun], run: HistoryRun, policy: Policy) -> HistoryStep:
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
    time = compare_times(before.timed, run.timed, policy)
    answer = policy.answer(time)
    if same_code:
        moved = answer in ("faster", "slower")
        odd = f"one machine code, and {time.sentence}: the method or the machine" if moved else ""
        return HistoryStep(run, "same code", note=odd)
    smallest = smallest_change(time)
    return HistoryStep(run, answer, time, None if isnan(smallest) else smallest)


def _noted(step: HistoryStep, known: Mapping[tuple[str, str], Sequence[HistoryRun]]) -> HistoryStep:
    """A subject's first run, where its machine code was measured under another name before."""
    run = step.run
    if step.answer != "first":
        return step
    alike = known.get((run.sass or "", run.case), ())
    old = next((r for r in alike if r.machine_code.same_as(run.machine_code)), run)
    known_by = "" if old.subject == run.subject else f"the machine code of {old.subject}"
    return replace(step, note=known_by)
