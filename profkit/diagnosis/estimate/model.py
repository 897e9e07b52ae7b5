"""A launch and a mend  ->  how many times faster: what to expect, and what cannot be passed.

Time has two parts. Units need their work done: the fullest one after the mend is a floor. Warps need
their latencies: what is left of the time between two of a warp's issues, over the warps at work at
once. How much of today's time is which is read from how full the fullest unit is: at its roof the
launch is all throughput, far from it all latency. In between the two add as powers, the way two
servers in turn do: smooth, and never below either.
"""

from __future__ import annotations

from math import inf

from profkit.diagnosis.estimate.load import REACH, loads, reach, scattered
from profkit.diagnosis.estimate.mend import Mend
from profkit.diagnosis.rule import Launch

SHARPNESS = 4.0  # how sharply throughput and latency take over from each other
LEAST = 1e-3  # share of a warp's time that always stays: no estimate passes 1,000
_BARRIER = "barrier"


def modelled_gain(launch: Launch, mend: Mend) -> float:
    """The speed-up that the model gives for a mend, at least 1."""
    before, after = fullest(launch, Mend()), fullest(launch, mend)
    faster = latency(launch, mend) * mend.places
    if faster == inf:  # no warp states: the waits go as the work of the fullest unit goes
        faster = max(1.0, before / max(after, LEAST))
    waiting = mend.ends + (1 - mend.ends) / max(faster, 1.0)
    power = SHARPNESS
    left = (1 - before**power) * waiting**power + after**power
    return float(max(1.0, left ** (-1 / power)))


def limit(launch: Launch, mend: Mend) -> float:
    """The speed-up that cannot be passed when no more than the mend's share goes; inf if none.

    Units count with their whole peak here, not with what they reach: a bound has to hold.
    """
    stays = [mend.units.get(unit, 1.0) * share for unit, share in loads(launch).items()]
    if scattered(launch) and mend.units.get("dram", 1.0) == 1.0 and "dram_busy" in launch:
        stays.append(launch["dram_busy"] / reach("dram", launch))
    floor = max(stays, default=0.0)
    waiting = mend.ends + (1 - mend.ends) / (latency(launch, mend) * mend.places)
    least = max(floor, waiting)
    return max(1.0, 1 / least) if least > 0 else inf


def fullest(launch: Launch, mend: Mend) -> float:
    """Share of what it can reach that the fullest unit is at, in today's time, after a mend."""
    shares = loads(launch)
    full = 0.0
    for unit, share in shares.items():
        stays = mend.units.get(unit, 1.0)
        # Mended access patterns let DRAM run at its full rate.
        most = reach(unit, launch) if stays == 1.0 else REACH[unit]
        full = max(full, share * stays / most)
    return min(full, 1.0)


def latency(launch: Launch, mend: Mend) -> float:
    """How many times less often a warp waits between two issues; inf without warp states."""
    if "stall_selected" not in launch:
        return inf if mend.waits else 1.0
    states = {name.removeprefix("stall_"): launch[name] for name in launch.present("stall_")}
    total = sum(states.values())
    barrier = states.pop(_BARRIER, 0.0)
    rest = sum(states.values())
    stays = sum(mend.waits.get(state, 1.0) * share for state, share in states.items())
    if _BARRIER in mend.waits:
        barrier *= mend.waits[_BARRIER]
    elif rest > 0:  # it shrinks with what the other warps wait for
        barrier *= stays / rest
    left = (stays + barrier) / total if total > 0 else 1.0
    return 1 / max(left, LEAST)
