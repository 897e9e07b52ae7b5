"""Two runs  ->  did the change help, what moved, what it cost, and did its header predict it.

Time is judged from samples taken without a profiler; counters explain it and never decide it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import isnan, nan
from operator import eq
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from msgspec import structs

from profkit.errors import ProfkitError
from profkit.evidence import counters, stats
from profkit.evidence.causes import (
    ChangeCause,
    EstimateAndGain,
    compare_fix_with_measured_gain,
    find_cause_of_time_change,
)
from profkit.evidence.conditions import (
    WAIVABLE,
    ComparisonRefusal,
    get_gpu_uuid_of_timing,
    list_comparison_notes,
    list_comparison_refusals,
)
from profkit.evidence.counters import HeaderPrediction, LaunchChange
from profkit.evidence.runs import (
    Comparand,
    Evidence,
    MissingEvidence,
    Row,
    Run,
    load_runs_of_side,
    match_runs,
)
from profkit.evidence.stats import Taken, Thresholds, TimeAnswer, TimeComparison
from profkit.records.record import Record
from profkit.records.store import Document, Unprinted

if TYPE_CHECKING:
    from profkit.units import CaseName, Clause, FrameRow, KernelName, RangeName, Sentence


ExitStatusAndReason = tuple[int, str]  # 1: something is worse or wrong; 2: not compared

SidesWithoutTimes = Literal["", "one side", "both sides", "unchanged"]
SpreadOf = Callable[[str], float | None]  # a GPU (uuid) -> what its processes differ by, measured
nobody_measured: SpreadOf = dict[str, float]().get  # where there is no history


@dataclass(frozen=True)
class Policy:
    """What it takes to call two times different, and to compare two runs at all."""

    thresholds: Thresholds = stats.THRESHOLDS
    strict: bool = False  # whether a difference has to hold at stats.ALPHA too
    spread_of: SpreadOf = nobody_measured
    anyway: bool = False  # compare across GPUs, clocks, ncu versions and cases all the same

    def answer_comparison(self, time: TimeComparison) -> TimeAnswer:
        """Return a comparison's answer; "cannot tell" where it does not hold as strictly."""
        if time.answer == "same" or not self.strict or stats.is_speedup_significant(time):
            return time.answer
        return "cannot tell"


COMPARE = Policy()
STRICT = Policy(stats.GATE, strict=True)  # of what nobody looks at again: a gate, a history


class SpreadBetweenProcesses(Document, frozen=True, kw_only=True):
    """What a median is taken to differ by from one process to the next."""

    sigma: float = nan  # relative standard deviation
    measured: bool = False  # whether the history knows it of this GPU; else it is assumed

    @property
    def sentence(self) -> Sentence:
        """Return the spread as a sentence, and whether it was measured."""
        differ = f"processes differ by {self.sigma * 100:.2g} %"
        if self.measured:
            return f"{differ}, measured"
        return f"{differ}, assumed"


class ResourceChange(Document, frozen=True, kw_only=True):
    """A resource that differs: its value on each side, None where it is not known."""

    name: str = ""
    unit: str = ""
    before: float | None = None
    after: float | None = None
    worse: bool = False  # whether more is used, or fewer blocks fit


class RunComparison(Document, frozen=True, kw_only=True):
    """Two runs, compared; null where not known."""

    before: str = ""
    after: str = ""
    compared: bool = False
    refusals: tuple[ComparisonRefusal, ...] = ()  # why not; waived ones stay here as notes
    time: TimeComparison | None = None  # the verdict on time, None without timing of both
    time_note: str = ""  # where `time` comes from, or why it is None
    # what processes are taken to differ by; None where both were timed in one
    between_processes: SpreadBetweenProcesses | None = None
    # what BEFORE's diagnosis expected of the fix, and what was measured; of one launch, timed
    estimate: EstimateAndGain | None = None
    # the finding that explains why the time changed; of one launch, where one does
    cause: ChangeCause | None = None
    launches: tuple[LaunchChange, ...] = ()  # launch by launch; empty without reports of both
    unmatched: tuple[str, ...] = ()  # kernels of one side that have no partner
    only_before: tuple[str, ...] = ()  # those of BEFORE
    only_after: tuple[str, ...] = ()  # those of AFTER
    resources: tuple[ResourceChange, ...] = ()  # those that differ
    # what the header of AFTER said, if it changes BEFORE
    promises: tuple[HeaderPrediction, ...] = ()
    notes: tuple[str, ...] = ()  # what else to know: not checked, no sanitizer, no report
    # whether there are samples that no verdict can be made of: too few, or no times
    bad_samples: Unprinted[bool] = False
    # which side has no samples: none, one, or both; of two, whether they are unchanged, by
    # machine code or report
    untimed: Unprinted[SidesWithoutTimes] = ""

    @property
    def has_no_pair(self) -> bool:
        """Return whether both sides have launches, and no launch of one belongs to one of the other."""
        return bool(self.unmatched) and not self.launches and self.time is None


def compare_runs(before: Run, after: Run, policy: Policy = COMPARE) -> RunComparison:
    """Compare the times, launches and resources of two runs; with refusals, only those."""
    refusals = tuple(list_comparison_refusals(before, after))
    if any(not (policy.anyway and r.code in WAIVABLE) for r in refusals):
        return RunComparison(before=before.name, after=after.name, refusals=refusals)
    time, time_note = compare_recorded_times(before, after, policy)
    untimed = find_sides_without_times(before, after)
    pairs, unmatched = match_launches(before, after)
    launches = tuple(_compare_pairs(before, after, pairs))
    estimate = None
    cause = None
    if not any(unmatched):
        estimate, cause = _explain_gain_of_single_launch(before, pairs, launches, time)
    return RunComparison(
        before=before.name,
        after=after.name,
        refusals=refusals,
        compared=True,
        time=time,
        time_note=time_note,
        between_processes=get_spread_of_processes(before.record, after.record, policy),
        bad_samples=not untimed and (time is None or time.reason == "too-few"),
        untimed=untimed,
        estimate=estimate,
        cause=cause,
        launches=launches,
        unmatched=tuple(chain.from_iterable(unmatched)),
        only_before=unmatched[0],
        only_after=unmatched[1],
        resources=compare_resources(before, after),
        promises=counters.judge_predictions_of_header(before, after),
        notes=_list_all_notes(before, after),
    )


def _explain_gain_of_single_launch(
    before: Run,
    pairs: Sequence[tuple[FrameRow, FrameRow]],
    launches: Sequence[LaunchChange],
    time: TimeComparison | None,
) -> tuple[EstimateAndGain | None, ChangeCause | None]:
    """Return how the estimate for a single launch came out, and what explains its change."""
    if len(launches) != 1:
        return None, None
    estimate = compare_fix_with_measured_gain(launches[0], before.judge_row(pairs[0][0]), time)
    return estimate, find_cause_of_time_change(launches[0], time)


def _compare_pairs(
    before: Run, after: Run, pairs: Iterable[tuple[FrameRow, FrameRow]]
) -> Iterator[LaunchChange]:
    """Yield the change of each pair of launches."""
    for old, new in pairs:
        verdicts = before.judge_row(old), after.judge_row(new)
        yield counters.compare_launches(old, new, verdicts)


def _list_all_notes(before: Run, after: Run) -> tuple[str, ...]:
    """Return what to know of a comparison; first, that both sides are one measurement."""
    notes = list_comparison_notes(before, after)
    if is_same_timing(before.record, after.record):
        notes.insert(0, "both sides are the same measurement: record the change first")
    return tuple(notes)


# --- two sides, as a user names them --------------------------------------------------------------


class Compared(Document, frozen=True, kw_only=True, tag_field="schema", tag="profkit.compare/1"):
    """What two sides have in common, compared: what `profkit compare BEFORE AFTER --json` prints."""

    changes: tuple[RunComparison, ...] = ()  # one per pair of runs
    alone: tuple[str, ...] = ()  # runs that only one side has
    problems: tuple[ProfkitError, ...] = ()  # what in a folder cannot be read


def compare_sides(
    before: Comparand,
    after: Comparand,
    case: CaseName | None = None,
    artifacts: str | Path | Evidence = "artifacts",
    policy: Policy = COMPARE,
) -> Compared:
    """Compare two sides; a ProfkitError where one cannot be found, or they have nothing in common.

    Each is a variant's id ("stage1", "stage1.B"), a run record, a report, a folder, or a Run.
    `artifacts`: where variants' records and reports are: a folder, or what was read of it.
    """
    if isinstance(artifacts, Evidence):
        evidence = artifacts
    else:
        evidence = Evidence(Path(artifacts))
    problems: list[ProfkitError] = []
    sides = [load_runs_of_side(side, evidence, case, problems) for side in (before, after)]
    pairs, alone = match_runs(sides[0], sides[1])
    if not pairs:
        hint = "record both at one case: profkit profile --variant ... --case ..."
        why = f"nothing to compare: {_join_run_names(sides[0])} and {_join_run_names(sides[1])}"
        raise ProfkitError(why, hint)
    changes = tuple(compare_runs(b, a, policy) for b, a in pairs)
    return Compared(changes=changes, alone=alone, problems=tuple(problems))


# --- time ----------------------------------------------------------------------------------------


def _join_run_names(runs: Iterable[Run]) -> str:
    return "; ".join(run.name for run in runs)


class ComparedTimes(NamedTuple):
    """Say how two runs' times compare, and how they were taken; or why they do not compare."""

    comparison: TimeComparison | None
    how_or_why_not: str


def compare_recorded_times(before: Run, after: Run, policy: Policy) -> ComparedTimes:
    """Return how the times of two runs compare, or None and why they do not."""
    try:
        was = before.timed
        now = after.timed
    except MissingEvidence as missing:
        why = f"{missing.message}; a duration under ncu is not a timing ({missing.hint})"
        return ComparedTimes(None, why)
    try:
        time = compare_warm_times(was, now, policy)
    except ProfkitError as error:
        return ComparedTimes(None, error.message)
    if is_same_timing(was, now):
        sentence = "both sides are the same measurement: there is no change to judge"
        time = structs.replace(time, answer="same", reason="identical", sentence=sentence)
    between = get_spread_of_processes(was, now, policy)
    note = f"warm L2, {classify_timing_processes(was, now)}"
    if between:
        note = f"{note}: {between.sentence}"
    return ComparedTimes(time, note)


def is_same_timing(before: Record | None, after: Record | None) -> bool:
    """Return whether both hold the very same timing samples of the same session; NaN is no sample."""
    if (
        before is None
        or after is None
        or not before.warm_samples
        or before.timing_session != after.timing_session
    ):
        return False
    same = len(before.warm_samples) == len(after.warm_samples)
    return same and all(map(eq, before.warm_samples, after.warm_samples))


def find_sides_without_times(before: Run, after: Run) -> SidesWithoutTimes:
    """Return which sides have no times; empty where both have them."""
    timed = [bool(run.record and run.record.warm_samples) for run in (before, after)]
    if any(timed):
        if all(timed):
            return ""
        return "one side"
    if is_surely_same_code(before, after):
        return "unchanged"
    return "both sides"


def is_surely_same_code(before: Run, after: Run) -> bool:
    """Return whether both ran one machine code; without records, whether both are one report."""
    if before.record and after.record:
        return before.record.code_identity.is_surely_same(after.record.code_identity)
    return before.sha256 == after.sha256 != ""


def classify_timing_processes(before: Record | None, after: Record | None) -> Taken:
    """Return whether two runs were timed in one process; there, subjects take turns round by round."""
    if before is None or after is None or before.timing_session is None:
        return "apart"
    if before.timing_session != after.timing_session:
        return "apart"
    if len(before.warm_samples) == len(after.warm_samples):
        return "interleaved"
    return "one process"


def get_spread_of_processes(
    before: Record | None, after: Record | None, policy: Policy
) -> SpreadBetweenProcesses | None:
    """Return what two runs' processes are taken to differ by; None where both were timed in one.

    What was measured counts for the GPU that it was measured on: of two GPUs nobody has.
    """
    if classify_timing_processes(before, after) != "apart":
        return None
    uuid = get_gpu_uuid_of_timing(before)
    if uuid and uuid == get_gpu_uuid_of_timing(after):
        sigma = policy.spread_of(uuid)
        if sigma is not None:
            return SpreadBetweenProcesses(sigma=sigma, measured=True)
    return SpreadBetweenProcesses(sigma=policy.thresholds.process_spread, measured=False)


def compare_warm_times(before: Record, after: Record, policy: Policy = COMPARE) -> TimeComparison:
    """Return whether AFTER is faster, by the warm samples of two records: the one place that says so."""
    between = get_spread_of_processes(before, after, policy)
    known = policy.thresholds
    if between:
        known = replace(known, process_spread=between.sigma)
    taken = classify_timing_processes(before, after)
    return stats.compare_samples(
        before.warm_samples, after.warm_samples, taken=taken, thresholds=known
    )


# --- launches ------------------------------------------------------------------------------------


class MatchedLaunches(NamedTuple):
    """List launches that belong together, BEFORE's first, and each side's kernels without a partner."""

    pairs: list[tuple[Row, Row]]
    leftover_kernels: tuple[tuple[str, ...], tuple[str, ...]]


def match_launches(before: Run, after: Run) -> MatchedLaunches:
    """Return pairs of launches, and the kernels left over on each side.

    Launches of two variants belong together in order when there are as many; otherwise by NVTX
    range and kernel name, the n-th with the n-th. Where no name is on both sides, two variants'
    longest launches belong together. So do the launches of two reports of one kernel each, which got
    another name: in order where there are as many, else the longest ones.
    """
    old = before.rows
    new = after.rows
    marked = all(row["variant"] is not None for row in chain(old, new))
    if marked and len(old) == len(new):
        return MatchedLaunches(list(zip(old, new, strict=True)), ((), ()))
    pairs = _pair_launches_of_one_name(old, new)
    renamed = _has_one_kernel(old) and _has_one_kernel(new)
    if not pairs and renamed and len(old) == len(new):
        pairs = list(zip(old, new, strict=True))
    elif not pairs and old and new and (marked or renamed):
        pairs = [(before.row, after.row)]
    leftover = _list_unpaired_kernels(old, pairs), _list_unpaired_kernels(new, pairs)
    return MatchedLaunches(pairs, leftover)


def _pair_launches_of_one_name(
    old: Sequence[FrameRow], new: Sequence[FrameRow]
) -> list[tuple[FrameRow, FrameRow]]:
    """Return the n-th launch of a range and a kernel with the n-th of the same."""
    new_by_key = index_launches_by_range_and_kernel(new)
    pairs = []
    for key, row in index_launches_by_range_and_kernel(old).items():
        if key in new_by_key:
            pairs.append((row, new_by_key[key]))
    return pairs


def _has_one_kernel(rows: Iterable[FrameRow]) -> bool:
    return len({row["kernel"] for row in rows}) == 1


def _list_unpaired_kernels(
    rows: Iterable[FrameRow], pairs: Sequence[tuple[FrameRow, FrameRow]]
) -> tuple[KernelName, ...]:
    """Return the kernels of the rows that are in no pair."""
    paired: set[int] = set()
    for pair in pairs:
        paired.update(map(id, pair))
    return tuple(str(row["kernel"]) for row in rows if id(row) not in paired)


def index_launches_by_range_and_kernel(
    rows: Iterable[FrameRow],
) -> dict[tuple[RangeName | None, KernelName, int], FrameRow]:
    """Return (NVTX range or None, kernel, how many of these before it) -> row."""
    seen: Counter[tuple[Any, ...]] = Counter()
    keyed: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        # The mark carries the variant, which differs by intention; the kernel's name does not.
        nvtx = row["nvtx"] if row["variant"] is None else None
        key = (nvtx, row["kernel"])
        keyed[(*key, seen[key])] = row
        seen[key] += 1
    return keyed


# --- what it cost --------------------------------------------------------------------------------

_MORE_IS_BETTER = ("blocks_per_sm", "occupancy_limit")
_FROM_FRAME = {
    "registers": "count",
    "shared_static": "byte",
    "shared_dynamic": "byte",
    "blocks_per_sm": "count",
    "occupancy_limit": "share",
}


def compare_resources(before: Run, after: Run) -> tuple[ResourceChange, ...]:
    """Return registers, bytes of memory and the like that differ between two runs."""
    changes = []
    for name, unit in (*_FROM_FRAME.items(), ("spills", "byte"), ("stack", "byte")):
        was = get_resource_of_run(before, name)
        now = get_resource_of_run(after, name)
        if was != now:
            worse = is_resource_worse(name, was, now)
            changes.append(ResourceChange(name=name, unit=unit, before=was, after=now, worse=worse))
    return tuple(changes)


def is_resource_worse(name: str, before: float | None, after: float | None) -> bool:
    """Return whether more of a resource is used, or fewer blocks fit; of what is not known, no."""
    if before is None or after is None:
        return False
    if name in _MORE_IS_BETTER:
        return after < before
    return after > before


def get_resource_of_run(run: Run, name: str) -> float | None:
    """Return what the record says, else the report: the record knows spills and stack, ncu occupancy."""
    value = None
    if run.record:
        value = getattr(run.record.largest_resources, name, None)
    if value is not None:
        return float(value)
    counted = None
    if name in _FROM_FRAME:
        counted = run.get_value_of_longest_launch(name)
    if isinstance(counted, float) and not isnan(counted):
        return counted
    return None


class GateResult(Document, frozen=True, kw_only=True):
    """A gate, whether it is met, and the names of the claims that do not hold."""

    name: str = ""
    met: bool = False
    binding: bool = True
    failing: tuple[str, ...] = ()


def list_exit_reasons(
    changes: Iterable[RunComparison], what_is_bad: Collection[str]
) -> list[ExitStatusAndReason]:
    """Return exit status -> why a change asks for it; `what_is_bad`: what is asked to be bad.

    2 when something could not be compared, 1 when AFTER is bad as asked. An AFTER that is wrong is
    bad, whether asked or not. What neither side timed is named with 0 where it is unchanged, or
    where something else was timed. Where nothing was, or one side lost its time, a gate on it has
    not been tried: 2. Samples that are no times are nothing to compare.
    """
    every = list(changes)
    reasons = list[ExitStatusAndReason]()
    tried = any(change.time or change.untimed == "unchanged" for change in every)
    for change in every:
        if not change.compared:
            said = [_explain_uncompared_with_exit_status(change)]
        elif change.has_no_pair:
            said = [(2, "no kernel is on both sides")]
        elif change.bad_samples:
            said = [(2, change.time.sentence if change.time else change.time_note)]
        else:
            said = [(1, what) for what in iterate_asked_regressions(change, what_is_bad)]
            if "slower" in what_is_bad and change.untimed:
                harmless = change.untimed == "unchanged" or (
                    change.untimed == "both sides" and tried
                )
                said.insert(0, (0 if harmless else 2, change.time_note))
        reasons += [(status, f"{change.after}: {what}") for status, what in said]
    return reasons


def _explain_uncompared_with_exit_status(change: RunComparison) -> ExitStatusAndReason:
    """Return why two runs were not compared; with 1 where it is AFTER that is wrong, else 2."""
    status = 2
    for reason in change.refusals:
        if reason.code in ("wrong", "sanitizer") and reason.sentence.startswith(change.after):
            status = 1
    return status, "; ".join(reason.sentence for reason in change.refusals)


def iterate_asked_regressions(
    change: RunComparison, what_is_bad: Collection[str]
) -> Iterator[Clause]:
    """Yield what of that which was asked for is worse."""
    if "slower" in what_is_bad and change.time is not None and change.time.answer == "slower":
        yield change.time.sentence
    findings = chain.from_iterable(launch.findings for launch in change.launches)
    new = [finding.rule for finding in findings if finding.what == "new"]
    if "finding" in what_is_bad and new:
        yield f"new finding {', '.join(dict.fromkeys(new))}"
    worse = [r.name for r in change.resources if r.worse]
    if "resource" in what_is_bad and worse:
        yield f"more {', '.join(worse)}"
