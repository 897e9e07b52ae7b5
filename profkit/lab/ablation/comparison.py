"""Times of a change and of its control  ->  what taking the cause away brings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from statistics import median
from typing import TYPE_CHECKING

from profkit.evidence.stats import compare_samples
from profkit.lab.ablation.change import Ablation, CodeChange, Refused
from profkit.lab.measure.bench import Times
from profkit.records.ablation import MeasuredAblation

if TYPE_CHECKING:
    from profkit.units import Factor, Seconds, Share, UnitName


# Base and original run the same instructions: what they differ by more is not the kernel's.
REBUILT = 0.02
# What choosing costs is in control and ablation alike, but it hides what it overlaps with.
COSTLY = 1.5


def compute_gain_of_change(
    ablation: type[Ablation],
    change: CodeChange,
    times: Mapping[str, Times],
    executed_difference: float | None,
) -> MeasuredAblation:
    """Return the gain of one change that was timed; or Refused."""
    control = "base" if change.other_code else f"control:{ablation.id}"
    before = times[control].warm
    after = times[f"gone:{ablation.id}"].warm
    original = median(times["original"].warm)
    cost = median(before) / original
    refuse_base_slower_than_original(times["original"].warm, times["base"].warm)
    if not 1 / COSTLY <= cost <= COSTLY:
        raise _make_control_speed_refusal(cost)
    gain = compare_samples(before, after, taken="interleaved").speedup
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
        executed=executed_difference,
        changed=change.changed,
        kept=change.kept,
    )


def refuse_base_slower_than_original(original: Sequence[Seconds], base: Sequence[Seconds]) -> None:
    """Refuse a base that surely does not take as long as the original.

    Code that no cache holds varies by more from run to run: an interval that
    reaches the limit is let pass.
    """
    faster = compare_samples(original, base, taken="interleaved").speedup
    least = faster.low
    most = faster.high
    if isnan(least):  # too few samples
        least = most = faster.median
    if least > 1 + REBUILT or most < 1 - REBUILT:
        seen = f"the same code assembled here takes {1 / faster.median:.3f} times as long"
        remedy = "build it with the toolkit that is here"
        raise Refused("rebuilt-differs", seen, f"within {100 * REBUILT:.0f} %", remedy)


def _make_control_speed_refusal(time_ratio: float) -> Refused:
    """Return a control that takes much longer, or much less long, than the original."""
    if time_ratio > COSTLY:
        seen = f"the instructions that choose alone take {time_ratio:.2f} times as long"
        remedy = "look at the counters: the cost of choosing hides the gain"
        return Refused("costly", seen, f"{COSTLY} times", remedy)
    seen = f"with the instructions that choose, nothing removed, it takes {time_ratio:.2f} times as long"
    remedy = "look at the counters: the assembler has made other code of it"
    return Refused("other-work", seen, f"1/{COSTLY} times", remedy)


# Units whose work stays where fewer threads make wider accesses; integers are mostly addresses.
_ARITHMETIC = ("fp32", "fp64", "fp16", "xu", "tensor")


def refuse_gain_beyond_arithmetic(gain: Factor, busy: Mapping[UnitName, Share]) -> None:
    """Refuse a gain that leaves no time for the arithmetic of the threads that were left out."""
    unit = max(_ARITHMETIC, key=lambda name: busy.get(name, 0.0))
    share = busy.get(unit, 0.0)
    if gain * share > 1:
        raise Refused(
            "other-work",
            f"arithmetic ({unit}) that was left out with threads takes {100 * share:.0f} % of the "
            "time",
            f"less than the {100 * (1 / gain):.0f} % that are left",
            "its arithmetic is the limit once its accesses are wide",
        )


def refuse_gain_of_other_work(rows: Sequence[MeasuredAblation]) -> None:
    """Refuse a gain of wide accesses where accesses that are gone bring nothing for sure.

    Fewer threads do less of everything: the gain is of that.
    """
    of_memory = wide = 0.0
    for row in rows:
        if row.ablation in _OF_MEMORY:
            of_memory = max(of_memory, row.gain if row.low is None else row.low)
        if row.ablation == "wide":
            wide = row.gain
    if of_memory and of_memory - 1 <= REBUILT < wide - 1:
        raise Refused(
            "other-work",
            f"all accesses gone are worth {of_memory:.2f}x, wider ones {wide:.2f}x",
            f"a gain of accesses that are gone: more than {100 * REBUILT:.0f} %",
            "fewer threads do less of what is no access: write and time a wide version",
        )


_OF_MEMORY = ("hits-l1", "hits-l2", "no-stores", "no-memory")
