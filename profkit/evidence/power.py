"""A comparison of times  ->  the smallest change that it would have seen, and what would see more."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, exp, isnan, log, nan

from profkit.evidence.samples import THRESHOLDS, SampleFault, two_sided
from profkit.evidence.stats import TimeComparison

ALPHA = 0.001  # one false alarm in a thousand comparisons
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


def smallest_change(time: TimeComparison, alpha: float = ALPHA, power: float = POWER) -> float:
    """The smallest relative change that a test at this level sees with this power.

    From the interval of the comparison itself, so with everything that widened it.

    Returns:
        0.02 for 2 %; NaN when there is no interval, or one that would not see a factor of a million.
    """
    reach = (_critical(time, alpha) + two_sided(2 * power - 1)) * max(_sigmas(time))
    return exp(reach) - 1 if reach < _BLIND else nan


def samples_for(
    wanted: float, smallest: float, samples: int, reason: SampleFault | str
) -> int | None:
    """How many samples a side would see a change of `wanted`; None where more of them do not help.

    An interval narrows with the square root of their number, below GATE_ROUNDS with the number
    itself as well: see there.
    """
    if isnan(smallest) or reason in _NOT_BY_MORE:
        return None
    wider: float = log(1 + smallest) / log(1 + wanted)
    few: float = samples * wider ** (2 / 3)
    if few <= GATE_ROUNDS:
        return ceil(few)
    enough = max(samples, GATE_ROUNDS)
    many: float = enough * (wider * (samples / enough) ** 1.5) ** 2
    return ceil(many)


def significant(time: TimeComparison, alpha: float = ALPHA) -> bool:
    """Whether the speed-up differs from 1 at this level, with everything that widened it."""
    below, above = _sigmas(time)
    distance = log(time.speedup.median)
    sigma = below if distance > 0 else above
    return abs(distance) > _critical(time, alpha) * sigma  # false where there is no interval


def _sigmas(time: TimeComparison) -> tuple[float, float]:
    """The standard deviation that the interval shows, below and above; NaN without one."""
    median, low, high = time.speedup.median, time.speedup.low, time.speedup.high
    if isnan(low):
        return nan, nan
    reach = two_sided(time.speedup.level)
    return log(median / low) / reach, log(high / median) / reach


def _critical(time: TimeComparison, alpha: float) -> float:
    """How many of its standard deviations a difference needs at this level.

    The interval is right at its own level, 95 %. Farther out, how wide it is is itself known from
    so few independent samples only: Student's t at 1 in 1,000 is 1.3 times the normal's at 13.
    """
    known = time.effective if time.effective >= 2 else 2.0  # also where it is not known
    return two_sided(1 - alpha, known - 1)
