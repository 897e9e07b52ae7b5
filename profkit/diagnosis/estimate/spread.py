"""An expected speed-up  ->  the interval that holds four times of five.

How far the mends on record came from the model: the logarithm of what came over the logarithm of
what was expected, in units of the latter. `python tools/gains.py` works the numbers out again.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, log

from profkit.diagnosis.estimate.causes import Kind
from profkit.diagnosis.rule import Expectation

OFFSET = 0.1  # of the unit: a mend expected to bring nothing still scatters by a few per cent

# Kind -> the 10th and the 90th percentile of (ln came - ln expected) / (OFFSET + ln expected), over
# ladder steps, other people's before-and-after kernels and, at a tenth of the weight, probes with their
# twins: those are built to remove all of a cause. A kind with few of them leans on the rest. Rounded
# outwards: a program that nobody looked at is farther off than those the model was made on.
SPREAD: Mapping[Kind, tuple[float, float]] = {
    "throughput": (-0.38, 0.40),
    "waste": (-0.36, 0.22),
    "wait": (-0.32, 0.45),
    "places": (-0.35, 0.40),
    "shape": (-0.40, 0.30),
    "instructions": (-0.27, 0.46),
    "atomics": (-0.45, 0.45),
}


def expectation(gain: float, kind: Kind, bound: float | None) -> Expectation:
    """The interval around an expected speed-up; no part of it is above the bound."""
    low, high = SPREAD[kind]
    size = log(max(gain, 1.0))
    ends = (exp(size + end * (OFFSET + size)) for end in (low, high))
    most = float("inf") if bound is None else bound
    below, above = (min(end, most) for end in ends)
    return Expectation(min(gain, most), below, above)
