"""Records of two ablations  ->  what each cause cost before a change and after it, without counters."""

from __future__ import annotations

from collections.abc import Iterator

from profkit.records.ablation import WORTH, AblationRecord, MeasuredAblation
from profkit.records.record import Record
from profkit.reports.figures import speedup

_NOTHING = 1.05  # below, nothing is left to win: clocks and inputs do as much


def list_ablation_notes(before: Record | None, after: Record | None) -> Iterator[str]:
    """Yield what removing each cause that a fix can reach brought, where it was worth it on a side."""
    was, now = _read_ablation(before), _read_ablation(after)
    if was is None or now is None:
        return
    rows = {row.ablation: row for row in now.measured if row.reachable}
    for row in was.measured:
        later = rows.get(row.ablation)
        if row.reachable and later and max(row.sure_gain, later.sure_gain) >= WORTH:
            yield (
                f"ablated: without {row.title} {speedup(row.gain)} before the change, "
                f"{speedup(later.gain)} after it"
            )


def check_fix_by_ablation(
    rule: str, before: Record | None, after: Record | None
) -> tuple[bool | None, str]:
    """Return whether a rule's cause is gone, by what removing it brings, and why; None: not known."""
    was, now = _read_ablation(before), _read_ablation(after)
    row = _find_reachable_gain(was, rule)
    if now is None or row is None or row.sure_gain < WORTH:
        return None, ""
    later = _find_reachable_gain(now, rule)
    said = f"removing it brought {speedup(row.gain)}"
    if later is None:
        refused = {refusal.ablation: refusal.code for refusal in now.refused}
        if refused.get(row.ablation) == "nothing-to-take-away":
            return True, f"{said}, and there is nothing left of it"
        return None, ""
    because = f"{said}, and brings {speedup(later.gain)} now"
    if later.gain < _NOTHING:
        return True, because
    return (False if later.sure_gain >= WORTH else None), because


def _read_ablation(record: Record | None) -> AblationRecord | None:
    if record is None or record.ablation is None:
        return None
    return AblationRecord.from_record(record.ablation)


def _find_reachable_gain(ablation: AblationRecord | None, rule: str) -> MeasuredAblation | None:
    """Find the largest gain that a fix of a rule can reach."""
    rows = []
    for row in ablation.measured if ablation else ():
        if row.reachable and rule in row.rules:
            rows.append(row)
    return max(rows, key=lambda row: row.gain, default=None)
