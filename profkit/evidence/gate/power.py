"""A comparison of times  ->  the smallest change that it would have seen, and what would see more."""

from __future__ import annotations

from math import ceil, exp, isnan, log, nan

from profkit.evidence.timing.samples import SampleFault, two_sided
from profkit.evidence.timing.stats import TimeComparison

ALPHA = 0.001  # one false alarm in a thousand comparisons
POWER = 0.95
# Relative standard deviation of a median from process to process, where a GPU never measured one
# machine code in several sessions: assumed at 1 %, processes 3 % apart gave 23 % false alarms.
PROCESS_SPREAD = 0.03
# Widened by these, an interval does not get narrower with the square root of more samples.
_NOT_BY_MORE: frozenset[str] = frozenset({"drift", "levels", "processes", "constant"})


def smallest_change(time: TimeComparison, alpha: float = ALPHA, power: float = POWER) -> float:
    """The smallest relative change that a test at this level sees with this power.

    From the interval of the comparison itself, so with everything that widened it.

    Returns:
        0.02 for 2 %; NaN when there is no interval.
    """
    if isnan(time.speedup.low):
        return nan
    median, low, high = (log(x) for x in (time.speedup.median, time.speedup.low, time.speedup.high))
    sigma = max(median - low, high - median) / two_sided(time.speedup.level)
    return exp((two_sided(1 - alpha) + _one_sided(power)) * sigma) - 1


def samples_for(
    wanted: float, smallest: float, samples: int, reason: SampleFault | str
) -> int | None:
    """How many samples a side would see a change of `wanted`; None where more of them do not help."""
    if isnan(smallest) or reason in _NOT_BY_MORE:
        return None
    return ceil(samples * (log(1 + smallest) / log(1 + wanted)) ** 2)


def significant(time: TimeComparison, alpha: float = ALPHA) -> bool:
    """Whether the speed-up differs from 1 at this level, with everything that widened it."""
    return not isnan(time.p_value) and time.p_value < alpha


def _one_sided(power: float) -> float:
    return two_sided(2 * power - 1)
