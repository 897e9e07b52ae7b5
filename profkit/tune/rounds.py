"""Samples of subjects that took turns  ->  what a trial's history keeps of them."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from profkit.measure.bench.bench import Times


def round_ratio(times: Mapping[str, Times], name: str, reference: str) -> float:
    """The median over rounds of a subject's time over the reference's: clocks cancel."""
    rounds = zip(times[name].warm, times[reference].warm, strict=True)
    return float(median(own / other for own, other in rounds))


def fewest_samples(times: Mapping[str, Times]) -> int:
    """How many samples the shortest series has."""
    return min(len(t.warm) for t in times.values())
