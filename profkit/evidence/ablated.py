"""Records of two ablations  ->  what each cause cost before a change and after it, without counters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profkit.records.ablation import WORTH, AblationRecord, MeasuredAblation
from profkit.records.record import Record
from profkit.reports.figures import format_seconds, format_speedup

if TYPE_CHECKING:
    from profkit.units import AblationName, Clause, RuleName, Sha256


IsGoneAndWhy = tuple[bool | None, str]  # None: it is not known

_ABSENT = "nothing-to-take-away"  # a refusal: the cause was looked for and is not there
_NOTHING = 1.05  # below, nothing is left to win: clocks and inputs do as much


@dataclass(frozen=True)
class HistoryAblation:
    """One cause of one run, removed by `profkit ablate`. Seconds; null where it was refused."""

    record: str  # sha256 of the run record, to join `runs`
    ablation: str
    variant: str
    case: str
    title: str | None = None
    reachable: bool | None = None  # whether a fix could get there; else the gain is only a bound
    base: float | None = None  # of a call as it is
    time: float | None = None  # of a call without the cause
    gain: float | None = None
    high: float | None = None  # the end of the gain's interval
    # by the interval's low end, over the original itself; null where too few times were taken
    sure_gain: float | None = None
    refused: str | None = None  # why it was not measured: `nothing-to-take-away`, `steers` ...


def make_history_rows_of_ablation(
    record: Record, record_sha256: Sha256
) -> Iterator[HistoryAblation]:
    """Yield what each cause costs a run that was ablated, and which causes could not be removed."""
    found = _get_ablation_of_record(record)
    if found is None:
        return
    for row in found.measured:
        yield HistoryAblation(
            record=record_sha256,
            ablation=row.ablation,
            variant=record.variant,
            case=record.case,
            title=row.title,
            reachable=row.reachable,
            base=found.base,
            time=row.time,
            gain=row.gain,
            high=row.high,
            sure_gain=None if row.low is None else row.sure_gain,
        )
    for refusal in found.refused:
        yield HistoryAblation(
            record=record_sha256,
            ablation=refusal.ablation,
            variant=record.variant,
            case=record.case,
            base=found.base,
            refused=refusal.code,
        )


def describe_changed_ablation_gains(before: Record | None, after: Record | None) -> Iterator[str]:
    """Yield what removing each cause that a fix can reach brought, where it was worth it on a side.

    Of one that costs more than before, what it cost.
    """
    was = _get_ablation_of_record(before)
    now = _get_ablation_of_record(after)
    if before is None or after is None or was is None or now is None:
        return
    dearer: dict[str, str] = {}
    if was.gpu == now.gpu:
        dearer = describe_causes_that_cost_more(
            make_history_rows_of_ablation(before, ""), make_history_rows_of_ablation(after, "")
        )
    rows = {row.ablation: row for row in now.measured if row.reachable}
    for row in was.measured:
        later = rows.get(row.ablation)
        if row.ablation in dearer or not row.reachable or later is None:
            continue
        if max(row.sure_gain, later.sure_gain) >= WORTH:
            yield (
                f"ablated: without {row.title} {format_speedup(row.gain)} before the change, "
                f"{format_speedup(later.gain)} after it"
            )
    for said in dearer.values():
        yield f"ablated: {said}"


def describe_causes_that_cost_more(
    before: Iterable[HistoryAblation], after: Iterable[HistoryAblation]
) -> dict[AblationName, Clause]:
    """Return ablation -> in words, what its cause costs after a change, if it surely cost less before.

    Only of causes that a fix can reach and that are worth one. A cause that was looked for and not
    there cost nothing; one that could not be removed cost nobody knows what.
    """
    most = {}
    for row in before:
        if row.refused == _ABSENT:
            most[row.ablation] = (0.0, 0.0)
        elif row.base is not None and row.gain and row.high:  # without an interval nothing is sure
            high = max(row.gain, row.high)
            most[row.ablation] = (row.base * (1 - 1 / row.gain), row.base * (1 - 1 / high))
    said = {}
    for row in after:
        if not row.reachable or row.base is None or not row.gain or row.ablation not in most:
            continue
        sure_gain = row.sure_gain or 1.0
        cost, highest = most[row.ablation]
        if sure_gain >= WORTH and row.base * (1 - 1 / sure_gain) > highest:
            now = format_seconds(row.base * (1 - 1 / row.gain))
            said[row.ablation] = f"{row.title} cost {now} of a call, {_say_cost(cost)} before"
    return said


def _say_cost(cost: float) -> Clause:
    if cost <= 0:
        return "nothing"
    return format_seconds(cost)


def judge_fix_by_ablation(
    rule: RuleName, before: Record | None, after: Record | None
) -> IsGoneAndWhy:
    """Return whether a rule's cause is gone, by what removing it brings, and why; None: not known."""
    was = _get_ablation_of_record(before)
    now = _get_ablation_of_record(after)
    row = _find_ablation_of_largest_reachable_gain(was, rule)
    if now is None or row is None or row.sure_gain < WORTH:
        return None, ""
    later = _find_ablation_of_largest_reachable_gain(now, rule)
    said = f"removing it brought {format_speedup(row.gain)}"
    if later is None:
        refused = {refusal.ablation: refusal.code for refusal in now.refused}
        if refused.get(row.ablation) == _ABSENT:
            return True, f"{said}, and there is nothing left of it"
        return None, ""
    because = f"{said}, and brings {format_speedup(later.gain)} now"
    if later.gain < _NOTHING:
        return True, because
    return (False if later.sure_gain >= WORTH else None), because


def _get_ablation_of_record(record: Record | None) -> AblationRecord | None:
    if record is None or record.ablation is None:
        return None
    return AblationRecord.from_record(record.ablation)


def _find_ablation_of_largest_reachable_gain(
    ablation: AblationRecord | None, rule: RuleName
) -> MeasuredAblation | None:
    """Find the largest gain that a fix of a rule can reach."""
    largest = None
    for row in ablation.measured if ablation else ():
        if row.reachable and rule in row.rules and (largest is None or row.gain > largest.gain):
            largest = row
    return largest
