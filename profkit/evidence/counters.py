"""One launch before and after  ->  the metrics that moved, findings gone and new; as its header said?

Two rows of the frame and two diagnoses go in; nothing here knows of files or of time. A prediction is
in the header of a variant before it is profiled: `fixes: rule`, or `moves: stall_barrier<0.5x`: metric,
< or > or ~, and the factor of the parent's value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isnan, log, nan
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import msgspec

from profkit.diagnosis.rule import Diagnosis, LaunchFinding
from profkit.errors import ProfkitError
from profkit.judge import Status
from profkit.records.store import Document, Unprinted
from profkit.reports.figures import quantity, speedup
from profkit.reports.metrics import CATALOGUE

if TYPE_CHECKING:
    from profkit.evidence.runs import Run

# What a change has to come to before it is shown. ncu measures in several passes: on launches of a
# few microseconds, shares of one binary differ by about a point and counts by a per cent.
POINTS = 0.01
RELATIVE = 0.02
GAIN = 0.1  # a finding whose gain differs by less than a tenth has not changed
# How the names of facts about the device or about ncu begin, which are not about the kernel.
_DEVICE = ("peak_", "sm_count", "sm_clock_max", "dram_clock_max", "l2_size", "max_warps")
NOT_THE_KERNEL = (*_DEVICE, "replay_passes", "limit_blocks", "limit_warps")


class Moved(Document, frozen=True, kw_only=True):
    """A metric that differs."""

    metric: str = ""
    unit: str = ""  # its unit; "share" is a fraction of 1
    before: float = nan
    after: float = nan
    points: float | None = None  # the difference in percentage points, None for what is not a share
    factor: float = nan  # the value after over the one before; infinite when it was 0

    @property
    def weight(self) -> float:
        """Return how far it moved, to sort by: a doubling weighs as much as 25 percentage points.

        From 16x on everything is far: what appears from nothing does not hide what decided. So few
        digits that equal moves of counters that go together are equal, not in the order of noise.
        """
        if self.unit == "share":
            return round(abs(self.after - self.before) * 4, 6)
        known = 0 < self.factor < inf
        if known:
            return min(round(abs(log(self.factor) / log(2)), 6), 4.0)
        return 4.0


# gone (fired, is clear), new (fires, was clear), changed (fires on both, its gain differs), unknown
# (it fires on one side and was not decidable on the other), or stays; in the order of documents.
Became = Literal["gone", "new", "changed", "unknown", "stays"]


def measure_move(metric: str, unit: str, before: float, after: float) -> Moved:
    points = None
    if unit == "share":
        points = 100 * (after - before)
    factor = inf
    if before:
        factor = after / before
    return Moved(metric=metric, unit=unit, before=before, after=after, points=points, factor=factor)


class TextChange(Document, frozen=True, kw_only=True):
    """The words of either side."""

    before: str = ""
    after: str = ""


class SecondsChange(Document, frozen=True, kw_only=True):
    """The times of either side; NaN where not collected."""

    before: float = nan
    after: float = nan


class FindingSide(Document, frozen=True, kw_only=True):
    """One rule's finding on one side."""

    status: Status = "unknown"
    cause: str = ""
    gain: float | None = None
    looked_at: Unprinted[tuple[str, ...]] = ()  # the metrics of its evidence


class FindingChange(Document, frozen=True, kw_only=True):
    """What became of one rule."""

    rule: str = ""
    what: Became = "unknown"
    before: FindingSide = FindingSide()
    after: FindingSide = FindingSide()


class LaunchChange(Document, frozen=True, kw_only=True):
    """One launch before and after."""

    kernel: TextChange = TextChange()
    bound: TextChange = TextChange()  # "bound: limiter"
    # duration under ncu, seconds: at ncu's clocks and cache control, one sample each. Never a verdict
    profiled_time: SecondsChange = msgspec.field(default=SecondsChange(), name="profiled_time_s")
    moved: tuple[Moved, ...] = ()
    only_before: tuple[str, ...] = ()  # metrics that only BEFORE has
    only_after: tuple[str, ...] = ()  # metrics that only AFTER has
    findings: tuple[FindingChange, ...] = ()  # those that fire on either side


def compare_launches(
    before: Mapping[str, Any], after: Mapping[str, Any], verdicts: tuple[Diagnosis, Diagnosis]
) -> LaunchChange:
    one_sided = [
        m for m in CATALOGUE if isnan(read_metric(before, m)) != isnan(read_metric(after, m))
    ]
    return LaunchChange(
        kernel=TextChange(before=str(before["kernel"]), after=str(after["kernel"])),
        bound=TextChange(before=verdicts[0].label, after=verdicts[1].label),
        profiled_time=SecondsChange(
            before=read_metric(before, "time"), after=read_metric(after, "time")
        ),
        moved=list_moved(before, after),
        only_before=tuple(m for m in one_sided if isnan(read_metric(after, m))),
        only_after=tuple(m for m in one_sided if isnan(read_metric(before, m))),
        findings=compare_findings(verdicts[0], verdicts[1]),
    )


def list_moved(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Moved, ...]:
    """Return every catalogue metric that both have and that differs, farthest first."""
    found = [
        measure_move(m.name, m.unit, b, a)
        for m in CATALOGUE.values()
        if not m.name.startswith(NOT_THE_KERNEL)
        and not isnan(b := read_metric(before, m.name))
        and not isnan(a := read_metric(after, m.name))
        and is_different(m.unit, b, a)
    ]
    return tuple(sorted(found, key=lambda m: -m.weight))


def compare_findings(before: Diagnosis, after: Diagnosis) -> tuple[FindingChange, ...]:
    """Return what became of each rule that fires on either side: gone and new ones first."""
    was, now = ({f.rule: f for f in d.findings} for d in (before, after))
    found = []
    for rule, old in was.items():
        new = now.get(rule)
        if new is None or "fires" not in (old.status, new.status):
            continue
        before_side, after_side = describe_side(old), describe_side(new)
        what = judge_finding(before_side, after_side)
        found.append(FindingChange(rule=rule, what=what, before=before_side, after=after_side))
    order = get_args(Became)
    return tuple(
        sorted(found, key=lambda f: (order.index(f.what), -find_largest_gain(f.before, f.after)))
    )


def describe_side(finding: LaunchFinding) -> FindingSide:
    return FindingSide(
        status=finding.status,
        cause=finding.cause,
        gain=finding.gain,
        looked_at=tuple(finding.evidence),
    )


def judge_finding(before: FindingSide, after: FindingSide) -> Became:
    if "unknown" in (before.status, after.status):
        return "unknown"
    if after.status == "clear":
        return "gone"
    if before.status == "clear":
        return "new"
    if (before.gain is None) != (after.gain is None):
        return "changed"
    if before.gain and after.gain and abs(log(before.gain / after.gain)) > GAIN:
        return "changed"
    return "stays"


def find_largest_gain(*findings: FindingSide) -> float:
    return max((f.gain or 1.0 for f in findings if f.status == "fires"), default=1.0)


def read_metric(row: Mapping[str, Any], metric: str) -> float:
    return float(row.get(metric, float("nan")))


def is_different(unit: str, before: float, after: float) -> bool:
    if unit == "share":
        return abs(after - before) >= POINTS
    return abs(after - before) > RELATIVE * max(abs(before), abs(after))


# What the header of the variant predicted.

ABOUT = 0.1  # ~1x is this near to it, relatively
_MOVE = re.compile(r"([a-z][a-z0-9_]*)([<>~])(\d+(?:\.\d+)?)x")


@dataclass(frozen=True)
class Move:
    metric: str  # short name in the catalogue
    # < at most, > at least, ~ within a tenth of `factor` times the parent's value
    way: Literal["<", ">", "~"]
    factor: float  # value after over value before

    def __str__(self) -> str:
        return f"{self.metric}{self.way}{self.factor:g}x"

    def is_fulfilled(self, before: float, after: float) -> bool:
        came = compute_factor(before, after)
        if self.way == "~":
            return abs(came - self.factor) <= ABOUT * self.factor
        if self.way == "<":
            return came <= self.factor
        return came >= self.factor


def compute_factor(before: float, after: float) -> float:
    """From 0 to anything is an infinite factor, from 0 to 0 none."""
    if before:
        return after / before
    if after:
        return inf
    return 1.0


def parse_moves(value: str, name: str) -> tuple[Move, ...]:
    """`stall_barrier<0.5x inst_matrix>2x`  ->  predictions."""
    moves = []
    for word in filter(None, re.split(r"[,\s]+", value)):
        match = _MOVE.fullmatch(word)
        if not match:
            hint = "write e.g. stall_long_scoreboard<0.5x inst_matrix>2x instructions~1x"
            raise ProfkitError(f"{name}: cannot read '{word}' in 'moves:'", hint)
        if match[1] not in CATALOGUE:
            hint = "profkit explain lists them"
            raise ProfkitError(f"{name}: unknown metric '{match[1]}' in 'moves:'", hint)
        moves.append(Move(match[1], cast(Literal["<", ">", "~"], match[2]), float(match[3])))
    return tuple(moves)


PredictionKind = Literal["fixes", "fixes-not", "moves", "moves-not"]


class HeaderPrediction(Document, frozen=True, kw_only=True):
    """What the AFTER header said, and whether the counters agree."""

    rule: str = ""  # the rule's id; of a move the prediction as written: stall_barrier<0.5x
    said: PredictionKind = "fixes"
    kept: bool | None = None  # None when it is not decidable on one side
    because: str = ""


def check_predictions(before: Run, after: Run) -> tuple[HeaderPrediction, ...]:
    """Return every prediction of AFTER's header; none when it does not change BEFORE."""
    record = after.record
    if record is None or record.header.after != before.variant:
        return ()
    header = record.header
    declared: list[tuple[str, PredictionKind]] = []
    for kind in get_args(PredictionKind):
        declared += [(rule, kind) for rule in getattr(header, kind.replace("-", "_"))]
    why = ""
    if before.usable.empty or after.usable.empty:
        why = "no report on both sides"
    if header.case not in (None, after.case):
        why = f"applies to case {header.case}"
    if why or not declared:
        return tuple(HeaderPrediction(rule=rule, said=kind, because=why) for rule, kind in declared)
    was, now = ({f.rule: f.status for f in run.diagnosis().findings} for run in (before, after))
    predictions = []
    for rule, kind in declared:
        if kind in ("moves", "moves-not"):
            predictions.append(check_move(rule, kind, before, after))
        else:
            kept, because = check_rule(kind, was.get(rule), now.get(rule))
            predictions.append(HeaderPrediction(rule=rule, said=kind, kept=kept, because=because))
    return tuple(predictions)


def check_rule(kind: PredictionKind, was: str | None, now: str | None) -> tuple[bool | None, str]:
    if was is None or now is None:
        return None, "unknown rule"
    if "unknown" in (was, now):
        return None, "the rule's counters were not collected"
    if was == "clear":
        return False, "it did not fire before, so there was nothing to fix"
    if now == "clear":
        return kind == "fixes", "clear now"
    return kind != "fixes", "it still fires" if kind == "fixes" else "it fires as before"


def check_move(word: str, kind: PredictionKind, before: Run, after: Run) -> HeaderPrediction:
    try:
        (move,) = parse_moves(word, "its header")
    except ProfkitError as error:
        return HeaderPrediction(rule=word, said=kind, because=error.message)
    pair = []
    for run in (before, after):
        pair.append(float(run.row.get(move.metric, nan)))
    if any(map(isnan, pair)):
        because = f"{move.metric} was not collected"
        return HeaderPrediction(rule=word, said=kind, because=because)
    was, now = (quantity(value, CATALOGUE[move.metric].unit) for value in pair)
    factor = compute_factor(*pair)
    because = f"{was} -> {now}" + (f", {speedup(factor)}" if factor < inf else "")
    kept = move.is_fulfilled(*pair) == (kind == "moves")
    return HeaderPrediction(rule=word, said=kind, kept=kept, because=because)
