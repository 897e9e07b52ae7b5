"""Timing samples of two kernels  ->  faster, slower, same or cannot tell, why, and what was seen.

A comparison only puts two intervals together, and each has its own sample's faults in it
(samples.py), so nothing can be significant in one place and doubtful in another.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, exp, hypot, isnan, log, nan, sqrt
from typing import TYPE_CHECKING, Literal

import numpy as np

from profkit.errors import ProfkitError
from profkit.evidence.samples import (
    THRESHOLDS,
    TIMES,
    Array,
    Interval,
    Sample,
    SampleFault,
    Samples,
    Spread,
    Thresholds,
    count_samples,
    estimate_process_spread,
    find_two_sided_quantile,
    group_samples_by_process,
    normal_cdf,
    summarize_samples,
)
from profkit.records.store import Document

if TYPE_CHECKING:
    from profkit.units import (
        BelowAndAbove,
        FloatOrNan,
        Sentence,
        Share,
        StandardDeviations,
    )


__all__ = ["THRESHOLDS", "Interval", "Samples", "Thresholds", "TimeComparison", "compare_samples"]

TimeAnswer = Literal["faster", "slower", "same", "cannot tell"]
Reason = SampleFault | Literal["difference", "within", "wide", "identical"]
Taken = Literal["interleaved", "one process", "apart"]
# Of a gate and a history: one false alarm in a thousand comparisons, and what would have been seen.
ALPHA = 0.001
POWER = 0.95
# Relative standard deviation of a median from process to process, where a GPU never measured one
# machine code in several sessions: assumed at 1 %, processes 3 % apart gave 23 % false alarms.
PROCESS_SPREAD = 0.03
# So many rounds show whether neighbours hang together at one in a thousand; an interval from n fewer
# is widened by GATE_ROUNDS / n. AR(0.8) noise that the sides do not share gave 0.5 % at 30.
GATE_ROUNDS = 120
GATE = replace(THRESHOLDS, enough=GATE_ROUNDS, process_spread=PROCESS_SPREAD)
_BLIND = log(1e6)
# Widened by these, an interval does not get narrower with the square root of more samples.
_NOT_BY_MORE: frozenset[str] = frozenset({"drift", "levels", "processes", "constant"})


class TimeComparison(Document, frozen=True, kw_only=True):
    """Whether AFTER is faster than BEFORE."""

    answer: TimeAnswer = "cannot tell"  # faster, slower, same (within the tolerance) or cannot tell
    # code of what decided: difference, within, too-few, constant, drift, autocorrelated,
    # processes or wide
    reason: Reason = "too-few"
    sentence: str = ""  # the same with its figures, for people
    # median(before) / median(after) with its interval; 1.8 is 1.8 times faster
    speedup: Interval = Interval()
    # the same with what sessions on other GPUs of the model differ by: where another one would find
    # it, at the same level; `speedup` itself where the two sides are already of two sessions
    across_sessions: Interval = Interval()
    # standardised difference of the means (positive: faster), corrected for small samples;
    # NaN when there is no spread to measure it in
    hedges_g: float = nan
    # two-sided, from the speed-up's interval, so that it carries everything that widened it;
    # NaN when there is no interval
    p_value: float = nan
    before: Interval = Interval()  # median of BEFORE in its unit
    after: Interval = Interval()  # median of AFTER in its unit
    within: float = nan  # the tolerance that was asked for
    # how many independent samples a side, or rounds, the interval rests on: a level beyond
    # its own has to allow for as few
    effective: float = nan


def estimate_median(samples: Samples, level: Share = 0.95) -> Interval:
    """Return the median of timing samples, in their unit, with a bootstrap interval.

    `samples`: in the order taken; or one such list per process, and then the interval is that of
    the mean of the processes' medians. Without ends (NaN) for fewer than six samples, or equal
    ones; a ProfkitError where one is not a finite number, or there is none.
    """
    groups = group_samples_by_process(samples, "the samples")
    return summarize_samples(
        groups, replace(THRESHOLDS, level=level), estimate_process_spread(groups)
    ).interval


def compare_samples(
    before: Samples,
    after: Samples,
    within: Share = 0.01,
    taken: Taken = "one process",
    thresholds: Thresholds = THRESHOLDS,
) -> TimeComparison:
    """Return whether `after` is faster than `before`, from timing samples of each.

    `before`: times in any unit, in the order taken; or one list per process. `after`: times in the
    same unit, likewise. `within`: speed-ups whose whole interval is inside 1 +- within are "same".
    `taken`: "interleaved": before[i] and after[i] side by side, so that the ratio of each round is
    judged and a drift that both share cancels; "one process"; or "apart": each side in a process of
    its own.

    Raises:
        ProfkitError: A sample is no time (a finite positive number), there is none, or interleaved
            samples differ in number.
    """
    _require_tolerance_below_one(within)
    groups = (
        group_samples_by_process(before, "BEFORE", must_be_positive=True),
        group_samples_by_process(after, "AFTER", must_be_positive=True),
    )
    logs = []
    for side in groups:
        logs.append([np.log(g) for g in side])
    spread = estimate_process_spread(*logs)
    if spread is None and taken == "apart":
        spread = Spread(thresholds.process_spread)
    sides = [summarize_samples(side, thresholds, spread) for side in logs]
    ratio = estimate_log_speedup(logs, sides, taken, spread, thresholds)
    speedup = exponentiate_interval(ratio.interval)
    answer, reason = decide_time_answer(speedup, ratio, within)
    across = speedup
    if taken != "apart":
        wider = widen_estimate(ratio, thresholds.session_ratio)
        across = exponentiate_interval(wider.interval)
    return TimeComparison(
        answer=answer,
        reason=reason,
        sentence=write_answer_sentence(answer, reason, speedup, within, groups),
        speedup=speedup,
        across_sessions=across,
        hedges_g=compute_hedges_g(np.concatenate(groups[0]), np.concatenate(groups[1])),
        p_value=compute_p_value(ratio.interval),
        before=exponentiate_interval(sides[0].interval),
        after=exponentiate_interval(sides[1].interval),
        within=within,
        effective=ratio.effective,
    )


def _require_tolerance_below_one(within: Share) -> None:
    """Raise a ProfkitError for a tolerance that is no share of the time."""
    if 0 <= within < 1:  # NaN is not
        return
    why = "within: too large"
    if abs(within) < 1e9:
        why = f"within {within:.3g}: not a tolerance"
    raise ProfkitError(why, "give a share of the time, 0.01 for one percent")


def compute_hedges_g(before: Array, after: Array) -> FloatOrNan:
    """Return (mean before - mean after) over the pooled standard deviation, corrected for bias."""
    dof = before.size + after.size - 2
    if dof < 1:
        return nan
    sigma = sqrt(sum(float(((x - x.mean()) ** 2).sum()) for x in (before, after)) / dof)
    if sigma == 0:
        return nan
    return float(before.mean() - after.mean()) / sigma * (1 - 3 / (4 * dof - 1))


def compute_log_ratios_of_rounds(before: list[Array], after: list[Array]) -> list[Array]:
    """Return the log ratio of each round of interleaved samples, process by process."""
    if [g.size for g in before] != [g.size for g in after]:
        counts = f"{count_samples(before)} before, {count_samples(after)} after"
        raise ProfkitError(
            f"interleaved samples differ in number: {counts}",
            "a round is missing: measure again, or compare them as not interleaved",
        )
    return [b - a for b, a in zip(before, after, strict=True)]


def estimate_log_speedup(
    logs: list[list[Array]],
    sides: list[Sample],
    taken: Taken,
    spread: Spread | None,
    thresholds: Thresholds,
) -> Sample:
    """Return the log of the speed-up, with what so few samples cannot show."""
    fewest = min(map(count_samples, logs))
    if taken == "interleaved":
        rounds = compute_log_ratios_of_rounds(*logs)
        ratio = summarize_samples(rounds, thresholds, estimate_process_spread(rounds))
    else:
        ratio = estimate_difference(sides[0], sides[1])
        if fewest < thresholds.alone and (spread is None or spread.dof is None):
            ratio = widen_estimate(ratio, sqrt(2) * thresholds.alone_spread)
    if fewest < thresholds.enough:
        ratio = widen_estimate(ratio, width_factor=thresholds.enough / fewest)
    return ratio


def estimate_difference(before: Sample, after: Sample) -> Sample:
    """Return the interval of before - after from the interval of each.

    Half-widths add in quadrature, each from the side that it bounds, so that skew is kept
    (Zou and Donner, "Construction of confidence limits about effect measures", 2008).
    """
    b = before.interval
    a = after.interval
    centre = b.median - a.median
    low = centre - hypot(b.median - b.low, a.high - a.median)
    high = centre + hypot(b.high - b.median, a.median - a.low)
    faults = tuple(dict.fromkeys(before.faults + after.faults))
    interval = Interval(centre, low, high, b.level)
    effective = min(before.effective, after.effective)
    return Sample(interval, faults, before.unusable or after.unusable, effective)


def widen_estimate(
    log_ratio: Sample, added_deviation: float = 0.0, width_factor: float = 1.0
) -> Sample:
    """Return an interval with what so few samples cannot show: a standard deviation, or a factor."""
    if log_ratio.unusable:
        return log_ratio
    x = log_ratio.interval
    half = find_two_sided_quantile(x.level) * added_deviation
    low = x.median - hypot(width_factor * (x.median - x.low), half)
    high = x.median + hypot(width_factor * (x.high - x.median), half)
    wider = Interval(x.median, low, high, x.level)
    return replace(log_ratio, interval=wider, faults=(*log_ratio.faults, "unseen"))


def exponentiate_interval(log_interval: Interval) -> Interval:
    """Return the interval of a logarithm; without ends where no two times differ by so much."""
    shortest, longest = TIMES
    largest = log(longest / shortest)
    low = high = nan
    if abs(log_interval.low) <= largest and abs(log_interval.high) <= largest:
        low = exp(log_interval.low)
        high = exp(log_interval.high)
    return Interval(exp(log_interval.median), low, high, log_interval.level)


def decide_time_answer(
    speedup: Interval, log_ratio: Sample, within: Share
) -> tuple[TimeAnswer, Reason]:
    """Return the answer on a speed-up, and why; "same" is inside 1 +- within."""
    if log_ratio.unusable:
        return "cannot tell", log_ratio.unusable
    if speedup.low >= 1 / (1 + within) and speedup.high <= 1 + within:
        return "same", "within"
    if speedup.low > 1:
        return "faster", "difference"
    if speedup.high < 1:
        return "slower", "difference"
    return "cannot tell", log_ratio.faults[0] if log_ratio.faults else "wide"


def compute_p_value(log_ratio: Interval) -> FloatOrNan:
    """Return two-sided p of no difference: below 1 - level exactly where the interval leaves out 0."""
    if isnan(log_ratio.low):
        return nan
    if log_ratio.median > 0:
        half = log_ratio.median - log_ratio.low
    else:
        half = log_ratio.high - log_ratio.median
    sigma = half / find_two_sided_quantile(log_ratio.level)
    return 2 * normal_cdf(-abs(log_ratio.median) / sigma)


_WHY_NOT: dict[Reason, str] = {
    "too-few": "too few samples ({n}) for an interval: take at least 6, better 40",
    "constant": (
        "all samples of one side are equal: the timer's resolution hides the spread, so time more "
        "calls per sample"
    ),
    "drift": "the samples drift: warm up longer, or interleave the two sides",
    "autocorrelated": (
        "neighbouring samples are correlated, so {n} count as far fewer: take more with pauses, "
        "or interleave the two sides"
    ),
    "levels": (
        "the times jump between levels (clock states?): interleave the two sides, or take more "
        "than {n} samples"
    ),
    "unseen": "{n} samples cannot show whether clocks changed between the sides: interleave them, "
    "or take at least 120 of each",
    "processes": (
        "the difference is within the variation between processes: measure both sides in one "
        "process, or in several processes each"
    ),
    "wide": "the noise is larger than the difference: take more than {n} samples",
}


def write_answer_sentence(
    answer: TimeAnswer,
    reason: Reason,
    speedup: Interval,
    within: Share,
    groups: tuple[list[Array], list[Array]],
) -> Sentence:
    """Return the answer as a sentence; where it is open, with the reason."""
    if answer == "slower":
        return format_ratio(invert_interval(speedup), " slower")
    ratio = format_ratio(speedup)
    if answer == "faster":
        return format_ratio(speedup, " faster")
    if answer == "same":
        return f"the same within {within * 100:g} %: {ratio}"
    n = f"{count_samples(groups[0])} and {count_samples(groups[1])}"
    return f"{ratio}, but {_WHY_NOT[reason].format(n=n)}"


def invert_interval(ratio: Interval) -> Interval:
    """Return a slow-down of a speed-up, or the other way round."""
    return Interval(1 / ratio.median, 1 / ratio.high, 1 / ratio.low, ratio.level)


def format_ratio(ratio: Interval, word_of_change: str = "") -> str:
    """Return a ratio with its interval in the same digits: "1.012x slower (1.012 to 1.013)".

    Two decimals where the interval is wide enough for them, else three.
    """
    if isnan(ratio.low):
        return f"{ratio.median:.3g}x{word_of_change}"
    decimals = 3
    if ratio.high - ratio.low >= 0.02:
        decimals = 2
    ends = f"{ratio.low:.{decimals}f} to {ratio.high:.{decimals}f}"
    return f"{ratio.median:.{decimals}f}x{word_of_change} ({ends})"


def compute_detectable_change(time: TimeComparison) -> FloatOrNan:
    """Return the smallest relative change (0.02 for 2 %) that a test at ALPHA sees with POWER.

    From the interval of the comparison itself, so with everything that widened it; NaN without one,
    or of one that would not see a factor of a million.
    """
    reach = (find_critical_value(time) + find_two_sided_quantile(2 * POWER - 1)) * max(
        derive_standard_deviations(time)
    )
    if reach < _BLIND:
        return exp(reach) - 1
    return nan


def count_samples_needed_per_side(
    wanted_change: Share,
    smallest_change_now: FloatOrNan,
    samples_now: int,
    reason: SampleFault | str,
) -> int | None:
    """Return how many samples a side show a change of `wanted_change`; None where more do not help.

    An interval narrows with the square root of their number, below GATE_ROUNDS with the number
    itself as well: see there.
    """
    if isnan(smallest_change_now) or reason in _NOT_BY_MORE:
        return None
    wider: float = log(1 + smallest_change_now) / log(1 + wanted_change)
    few: float = samples_now * wider ** (2 / 3)
    if few <= GATE_ROUNDS:
        return ceil(few)
    enough = max(samples_now, GATE_ROUNDS)
    many: float = enough * (wider * (samples_now / enough) ** 1.5) ** 2
    return ceil(many)


def is_speedup_significant(time: TimeComparison) -> bool:
    """Return whether the speed-up differs from 1 at ALPHA, with everything that widened it."""
    below, above = derive_standard_deviations(time)
    distance = log(time.speedup.median)
    if distance > 0:
        sigma = below
    else:
        sigma = above
    return abs(distance) > find_critical_value(time) * sigma  # false where there is no interval


def derive_standard_deviations(time: TimeComparison) -> BelowAndAbove:
    """Return the standard deviation that the interval shows, below and above; NaN without one."""
    median = time.speedup.median
    low = time.speedup.low
    high = time.speedup.high
    if isnan(low):
        return nan, nan
    reach = find_two_sided_quantile(time.speedup.level)
    return log(median / low) / reach, log(high / median) / reach


def find_critical_value(time: TimeComparison) -> StandardDeviations:
    """Return how many of its standard deviations a difference needs at ALPHA.

    The interval is right at its own level, 95 %. Farther out, how wide it is is itself known from
    so few independent samples only: Student's t at 1 in 1,000 is 1.3 times the normal's at 13.
    """
    # also where it is not known
    known = 2.0
    if time.effective >= 2:
        known = time.effective
    return find_two_sided_quantile(1 - ALPHA, known - 1)
