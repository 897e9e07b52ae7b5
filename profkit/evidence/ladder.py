"""Runs of one case  ->  the ablation table, or one variant as a pull request has to tell of it.

The table has each variant against its parent and every reference; the summary one variant, its
baseline, the references, and whether to keep it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import isnan
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec
from msgspec import structs

from profkit.errors import ProfkitError
from profkit.evidence import compare
from profkit.evidence.compare import COMPARE, GateResult, Policy, RunComparison
from profkit.evidence.runs import Evidence, Run
from profkit.evidence.samples import Interval, group_samples_by_process
from profkit.evidence.stats import TimeComparison, estimate_median
from profkit.records.header import VariantHeader
from profkit.records.store import Document, Unprinted

if TYPE_CHECKING:
    from profkit.units import CaseName, Sentence, SentenceOrEmpty, VariantName


Decision = Literal["keep", "reject", "no gain proven", "undecided"]
Role = Literal["variant", "baseline", "reference"]
METRICS = ("l2_hit", "dram_busy", "tensor_busy", "occupancy", "registers", "shared_block")


class LadderStep(Document, frozen=True, kw_only=True):
    """One variant of the ladder; null where not known."""

    variant: str = ""
    title: str = ""  # first line of its header
    parent: str | None = None  # the variant it changes, None for a first one
    depth: int = 0  # steps from the first one
    # median with a warm L2, seconds; None without timing
    time: Interval | None = msgspec.field(default=None, name="time_s")
    bound: str | None = None  # "bound: limiter", None without a report
    # against the parent; None for a first one or when the parent was not recorded
    change: RunComparison | None = None
    # reference -> this variant compared to it: its speed-up is reference over variant, above
    # 1 where the variant is faster
    references: Mapping[str, TimeComparison] = msgspec.field(default_factory=dict)
    note: str | None = None  # what is missing

    @property
    def compare_with_fastest_reference(self) -> TimeComparison | None:
        """Return the comparison with the fastest reference."""
        return min(self.references.values(), key=lambda c: c.before.median, default=None)


class Ladder(Document, frozen=True, kw_only=True, tag_field="schema", tag="profkit.ladder/1"):
    """All variants of a case, each after its parent."""

    case: str = ""  # the problem's case
    steps: tuple[LadderStep, ...] = ()  # in ladder order
    # records and reports that cannot be read, headers that go round in a circle
    problems: tuple[ProfkitError, ...] = ()


class LaddersDocument(
    Document, frozen=True, kw_only=True, tag_field="schema", tag="profkit.ladders/1"
):
    """What `profkit ladder --json` prints: each variant against its parent."""

    ladders: tuple[Ladder, ...] = ()


def build_ladder(evidence: Evidence, case: CaseName, policy: Policy = COMPARE) -> Ladder:
    """Return the ablation table of a case; a ProfkitError where nothing was recorded at it."""
    runs, problems = evidence.load_all_usable_runs(lambda name: name[1] == case)
    if not problems and not any(run.record and not run.record.is_reference for run in runs):
        cases = sorted({c for _, c in evidence.list_names()})
        hint = "profkit profile --all"
        if cases:
            hint = f"recorded cases: {', '.join(cases)}"
        raise ProfkitError(f"no run record at case {case} in {evidence.root}", hint)
    return build_ladder_of_runs(runs, case, policy, problems)


def build_ladder_of_runs(
    runs: Sequence[Run],
    case: CaseName,
    policy: Policy = COMPARE,
    unreadable: Iterable[ProfkitError] = (),
) -> Ladder:
    """Return the same of runs that are there already; those without a record have no place in it."""
    problems = list(unreadable)
    recorded = {}
    parents = {}
    references = []
    for run in runs:
        if run.record is None:
            continue
        fault = make_error_of_unusable_samples(run)
        if fault is not None:
            problems.append(fault)
        if not run.record.is_reference:
            recorded[run.variant] = run if fault is None else copy_run_without_times(run)
            parents[run.variant] = run.record.header.after
        elif run.record.warm_samples and fault is None:
            references.append(run)
    order = order_variants_after_parents(parents)
    if order.circular:
        problems.append(
            ProfkitError(
                f"case {case}: the `after:` headers form a cycle: {', '.join(order.circular)}",
                "let one of these headers name a variant outside the cycle, or none",
            )
        )
    steps = tuple(build_ladder_step(recorded, references, place, policy) for place in order.places)
    return Ladder(case=case, steps=steps, problems=tuple(problems))


def list_timed_references(runs: Iterable[Run]) -> list[Run]:
    """Return the library calls that have times."""
    timed = []
    for r in runs:
        if r.record and r.record.is_reference and r.record.warm_samples:
            timed.append(r)
    return timed


def make_error_of_unusable_samples(run: Run) -> ProfkitError | None:
    """Return why a run's samples are no times; None if they are, or if there are none."""
    if run.record is None or not run.record.warm_samples:
        return None
    try:
        group_samples_by_process(
            run.record.warm_samples, f"warm samples of {run.name}", must_be_positive=True
        )
    except ProfkitError as error:
        return error
    return None


def copy_run_without_times(run: Run) -> Run:
    """Return the run without its times."""
    if run.record:
        return replace(run, record=structs.replace(run.record, timing=None))
    return run


class LadderPlace(NamedTuple):
    """A variant, and how many steps it is from a first one."""

    variant: str
    depth: int


class LadderOrder(NamedTuple):
    """Variants, each after its parent; and those of them that come, through others, after themselves."""

    places: list[LadderPlace]
    circular: list[str]


def order_variants_after_parents(parents: Mapping[VariantName, VariantName | None]) -> LadderOrder:
    """Order variants, siblings as they are given; those that lead in a circle are the last."""
    children: dict[str | None, list[str]] = {}
    for variant, parent in parents.items():
        known_parent = parent if parent in parents else None
        children.setdefault(known_parent, []).append(variant)
    places = []
    waiting = [LadderPlace(variant, 0) for variant in reversed(children.get(None, ()))]
    while waiting:
        place = waiting.pop()
        places.append(place)
        for child in reversed(children.get(place.variant, ())):
            waiting.append(LadderPlace(child, place.depth + 1))
    circular = sorted(parents.keys() - {place.variant for place in places})
    places += [LadderPlace(variant, 0) for variant in circular]
    return LadderOrder(places, circular)


def build_ladder_step(
    runs: Mapping[VariantName, Run], references: Iterable[Run], place: LadderPlace, policy: Policy
) -> LadderStep:
    """Return a variant's step: its time, and the comparison with the one that it changes."""
    run = runs[place.variant]
    header = run.record.header if run.record else VariantHeader()
    parent = runs.get(header.after or "")
    time = None
    compared = {}
    # A kernel that is wrong gets no time: what it saved it may have saved by being wrong.
    if run.record and run.record.warm_samples and not run.record.faults:
        time = estimate_median(run.samples)
        for reference in references:
            compared[reference.variant] = compare.compare_warm_times(
                reference.timed, run.timed, policy
            )
    note = None
    if header.after and not parent:
        note = f"its parent {header.after} is not among these runs"
    return LadderStep(
        variant=place.variant,
        title=header.title,
        parent=header.after,
        depth=place.depth,
        time=time,
        bound=None if run.usable.empty else run.diagnosis().label,
        change=compare.compare_runs(parent, run, policy) if parent else None,
        references=compared,
        note=note,
    )


class SummaryColumn(Document, frozen=True, kw_only=True):
    """One column of the summary; null where not known."""

    name: str = ""  # variant or reference
    role: Role = "variant"
    # median with a warm L2, None without timing
    time: Interval | None = msgspec.field(default=None, name="time_s")
    # the variant's speed-up over this one; None for the variant itself
    against: TimeComparison | None = None
    # of METRICS, those that were collected, on its longest launch
    metrics: dict[str, float] = msgspec.field(default_factory=dict)
    bound: str | None = None  # "bound: limiter", None without counters
    because: Unprinted[str] = ""  # the verdict's sentence


class SummaryGate(Document, frozen=True, kw_only=True):
    """An acceptance gate that was asked for."""

    name: str = ""
    met: bool = False
    failing: tuple[str, ...] = ()  # the claims that do not hold
    binding: Unprinted[bool] = True


class Summary(Document, frozen=True, kw_only=True):
    """A variant at one case."""

    case: str = ""
    decision: Decision = "undecided"
    because: str = ""
    # the variant, its baseline, then the references, fastest first
    sides: tuple[SummaryColumn, ...] = ()
    # against the baseline; None for a variant that changes nothing
    change: RunComparison | None = None
    gates: tuple[SummaryGate, ...] = ()


class SummaryDocument(
    Document, frozen=True, kw_only=True, tag_field="schema", tag="profkit.summary/1"
):
    """What `profkit decide VARIANT --json` prints: one variant against others."""

    summaries: tuple[Summary, ...] = ()


def summarize_variant(
    evidence: Evidence,
    variant: VariantName,
    case: CaseName,
    against: str | None = None,
    gates: Sequence[GateResult] = (),
    policy: Policy = COMPARE,
) -> Summary:
    """Return what a variant came to at a case; MissingEvidence where it was not recorded at it.

    `against`: the baseline, else what its header says it changes. `gates`: those that were tried.
    """
    run = evidence.load(variant, case)
    name = against or (run.record.header.after if run.record else None)
    change = None
    sides = [build_summary_column(run, "variant", None)]
    if name:
        baseline = evidence.load(name, case)
        change = compare.compare_runs(baseline, run, policy)
        sides.append(build_summary_column(baseline, "baseline", change.time))
    runs, _ = evidence.load_all_usable_runs(lambda name: name[1] == case)
    references = []
    for r in list_timed_references(runs):
        references.append(
            build_summary_column(r, "reference", compare_times_with_reference(r, run))
        )
    references.sort(key=lambda s: s.time.median if s.time else 0.0)
    decision, because = decide_variant(run, change, gates)
    return Summary(
        case=case,
        decision=decision,
        because=because,
        sides=(*sides, *references),
        change=change,
        gates=tuple(map(summarize_gate, gates)),
    )


def summarize_gate(gate: GateResult) -> SummaryGate:
    """Return a gate as the summary has it."""
    return SummaryGate(name=gate.name, met=gate.met, failing=gate.failing, binding=gate.binding)


def decide_variant(
    run: Run, change: RunComparison | None, gates: Sequence[GateResult] = ()
) -> tuple[Decision, Sentence]:
    """Return whether to keep a variant, and why: right first, then the gates, then time."""
    fault = find_exclusion_reason(run, gates)
    if fault:
        return "reject", fault
    if change is None:
        return "undecided", "it has no parent: name a baseline with --against"
    if not change.compared or change.time is None:
        return "undecided", "; ".join(r.sentence for r in change.refusals) or change.time_note
    measured = f"against {change.before} {change.time.sentence}"
    if change.time.answer == "faster" and (run.record is None or run.record.correct is None):
        return "undecided", f"{measured}, but it was not checked"
    decisions: dict[str, Decision] = {"faster": "keep", "slower": "reject"}
    decision = decisions.get(change.time.answer, "no gain proven")
    return decision, f"right, and {measured}" if decision == "keep" else measured


def find_exclusion_reason(run: Run, gates: Sequence[GateResult]) -> SentenceOrEmpty:
    """Return what rules a variant out whatever its time; "" if nothing does."""
    record = run.record
    if record and record.correct is False:
        return f"{run.name} gives wrong results"
    if record and record.sanitizer_errors:
        return f"{', '.join(record.sanitizer_errors)} found errors"
    closed = []
    for gate in gates:
        if gate.binding and not gate.met:
            closed.append(f"{gate.name}: {', '.join(gate.failing)}")
    return f"gate not met: {'; '.join(closed)}" if closed else ""


def compare_times_with_reference(reference: Run, run: Run) -> TimeComparison | None:
    """Compare a run's time with a reference's; None where one of them has no times."""
    try:
        return compare.compare_warm_times(reference.timed, run.timed)
    except ProfkitError:
        return None


def estimate_warm_median(run: Run) -> Interval | None:
    """Return the median with a warm L2; None where it was not timed, or where samples are no times."""
    try:
        return estimate_median(run.samples)
    except ProfkitError:
        return None


def build_summary_column(run: Run, role: Role, against: TimeComparison | None) -> SummaryColumn:
    """Return a variant's column; only its time without a launch that ncu finished."""
    name = run.variant
    time = estimate_warm_median(run)
    if run.usable.empty:
        return SummaryColumn(name=name, role=role, time=time, against=against)
    metrics = {}
    for metric in METRICS:
        value = float(run.get_value_of_longest_launch(metric))
        if not isnan(value):
            metrics[metric] = value
    found = run.diagnosis()
    return SummaryColumn(
        name=name,
        role=role,
        time=time,
        against=against,
        metrics=metrics,
        bound=found.label or None,
        because=found.because,
    )
