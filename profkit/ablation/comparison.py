"""Times of a change and of its control  ->  what taking the cause away brings, or a refusal."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from statistics import median

from profkit.ablation.change import Ablation, Change
from profkit.evidence.samples import Interval
from profkit.evidence.stats import compare_samples
from profkit.measure.bench import Times
from profkit.records.ablation import MeasuredAblation, Refusal

# Base and original run the same instructions: what they differ by more is not the kernel's.
REBUILT = 0.02
# What choosing costs is in control and ablation alike, but it hides what it overlaps with.
COSTLY = 1.5


def compare_change(
    ablation: Ablation, change: Change, times: Mapping[str, Times], executed: float | None
) -> MeasuredAblation | Refusal | None:
    """The gain of one change; None where it was not timed."""
    before = times.get("base" if change.other_code else f"control:{ablation.id}")
    after = times.get(f"gone:{ablation.id}")
    if before is None or after is None:
        return None
    original = median(times["original"].warm)
    rebuilt, cost = median(times["base"].warm) / original, median(before.warm) / original
    if abs(rebuilt - 1) > REBUILT:
        seen = f"the same code assembled here takes {rebuilt:.3f} times as long"
        remedy = "build it with the toolkit that is here"
        return ablation.refuse("rebuilt-differs", seen, f"within {REBUILT:.0%}", remedy)
    if cost > COSTLY:
        seen = f"the instructions that choose alone take {cost:.2f} times as long"
        return ablation.refuse("costly", seen, f"{COSTLY} times", "")
    gain = compare_samples(before.warm, after.warm, taken="interleaved").speedup
    return _describe_gain(ablation, change, gain, original, cost, executed)


def _describe_gain(
    ablation: Ablation,
    change: Change,
    gain: Interval,
    original: float,
    cost: float,
    executed: float | None,
) -> MeasuredAblation:
    return MeasuredAblation(
        ablation=ablation.id,
        title=ablation.title,
        reachable=ablation.reachable,
        rules=ablation.rules,
        time=original / gain.median,
        gain=gain.median,
        low=None if isnan(gain.low) else gain.low,
        high=None if isnan(gain.high) else gain.high,
        control=cost,
        executed=executed,
        changed=change.changed,
        kept=change.kept,
    )
