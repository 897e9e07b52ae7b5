"""One variant, its baseline and the references  ->  what a pull request has to say of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

from profkit.errors import ProfkitError
from profkit.evidence.claims import GateResult
from profkit.evidence.compare import RunComparison, compare_runs, compare_times
from profkit.evidence.runs import Evidence, Run
from profkit.evidence.samples import Interval, IntervalEntry
from profkit.evidence.sides import ChangeEntry
from profkit.evidence.stats import (
    TimeComparison,
    TimeEntry,
    median_interval,
)
from profkit.records.store import as_document

Decision = Literal["keep", "reject", "no gain proven", "undecided"]
METRICS = ("l2_hit", "dram_busy", "tensor_busy", "occupancy", "registers", "shared_block")


class SideEntry(TypedDict):
    """One column of the summary; null where not known."""

    name: str
    role: str
    time_s: IntervalEntry | None
    against: TimeEntry | None
    metrics: dict[str, float]
    bound: str | None


class GateEntry(TypedDict):
    """An acceptance gate, and the claims that do not hold."""

    name: str
    met: bool
    failing: list[str]


class SummaryEntry(TypedDict):
    """A variant at one case."""

    case: str
    decision: str
    because: str
    sides: list[SideEntry]
    change: ChangeEntry | None
    gates: list[GateEntry]


class SummaryDocument(TypedDict):
    """What `profkit compare VARIANT --decide --json` prints: one variant against others."""

    schema: Literal["profkit.summary/1"]
    summaries: list[SummaryEntry]


@dataclass(frozen=True)
class SummaryColumn:
    """One column of the summary."""

    name: str  # variant or reference
    role: Literal["variant", "baseline", "reference"]
    time: Interval | None  # median with a warm L2, None without timing
    # the variant's speed-up over this one; None for the variant itself
    against: TimeComparison | None
    metrics: dict[str, float]  # of METRICS, those that were collected, on its longest launch
    bound: str = ""  # "bound: limiter", "" without counters
    because: str = ""  # the verdict's sentence


@dataclass(frozen=True)
class Summary:
    """A variant at one case."""

    case: str
    # the variant, its baseline, then the references, fastest first
    sides: tuple[SummaryColumn, ...]
    change: RunComparison | None  # against the baseline; None for a variant that changes nothing
    decision: Decision  # keep, reject, no gain proven or undecided
    because: str
    gates: tuple[GateResult, ...] = ()  # acceptance gates that were asked for

    def to_json(self) -> SummaryEntry:
        """The document that `profkit compare --decide --json` prints for one case."""
        return as_document(SummaryEntry, self)


def summarize_variant(
    evidence: Evidence,
    variant: str,
    case: str,
    against: str | None = None,
    gates: Sequence[GateResult] = (),
    anyway: bool = False,
) -> Summary:
    """What a variant came to at a case.

    `against`: the baseline; what its header says it changes when None. `gates`: acceptance gates
    that were tried. `anyway`: compare across GPUs, clocks and ncu versions, and with stale runs
    too.

    Raises:
        MissingEvidence: The variant or its baseline was not recorded at this case.
    """
    run = evidence.load(variant, case)
    name = against or (run.record.header.after if run.record else None)
    baseline = evidence.load(name, case) if name else None
    change = compare_runs(baseline, run, anyway) if baseline else None
    sides = [_side(run, "variant", None)]
    if baseline is not None:
        sides.append(_side(baseline, "baseline", change.time if change else None))
    references = [_side(r, "reference", _against(r, run)) for r in _references(evidence, case)]
    references.sort(key=lambda s: s.time.median if s.time else 0.0)
    decision, because = decide_variant(run, change, gates)
    return Summary(case, (*sides, *references), change, decision, because, tuple(gates))


def decide_variant(
    run: Run, change: RunComparison | None, gates: Sequence[GateResult] = ()
) -> tuple[Decision, str]:
    """Whether to keep a variant, and why: right first, then the gates, then time."""
    fault = _fault(run, gates)
    if fault:
        return "reject", fault
    if change is None:
        return "undecided", "it changes no other variant: name a baseline with --against"
    if not change.compared or change.time is None:
        return "undecided", "; ".join(r.sentence for r in change.refusals) or change.time_note
    measured = f"against {change.before} {change.time.sentence}"
    if change.time.answer == "faster" and (run.record is None or run.record.correct is None):
        return "undecided", f"{measured}, but it was not checked"
    decisions: dict[str, Decision] = {"faster": "keep", "slower": "reject"}
    decision = decisions.get(change.time.answer, "no gain proven")
    return decision, f"right, and {measured}" if decision == "keep" else measured


def _fault(run: Run, gates: Sequence[GateResult]) -> str:
    """What rules a variant out whatever its time; "" if nothing does."""
    record = run.record
    if record and record.correct is False:
        return f"{run.name} gives wrong results"
    if record and record.sanitizer_errors:
        return f"{', '.join(record.sanitizer_errors)} found errors"
    closed = [g for g in gates if g.gate.binding and not g.met]
    failing = "; ".join(f"{g.gate.name}: {', '.join(g.failing)}" for g in closed)
    return f"gate not met: {failing}" if closed else ""


def _references(evidence: Evidence, case: str) -> list[Run]:
    runs, _ = evidence.readable(case)
    return [r for r in runs if r.record and r.record.reference and r.record.warm]


def _against(reference: Run, run: Run) -> TimeComparison | None:
    try:
        return compare_times(reference.timed, run.timed)
    except ProfkitError:
        return None


def _side(
    run: Run, role: Literal["variant", "baseline", "reference"], against: TimeComparison | None
) -> SummaryColumn:
    try:
        time = median_interval(run.samples)
    except ProfkitError:
        time = None
    if run.usable.empty:
        return SummaryColumn(run.variant, role, time, against, {})
    values = {m: float(run.column(m)) for m in METRICS}
    diagnosis = run.diagnosis()
    return SummaryColumn(
        run.variant,
        role,
        time,
        against,
        {m: v for m, v in values.items() if v == v},  # noqa: PLR0124 - NaN is not collected
        diagnosis.label,
        diagnosis.because,
    )
