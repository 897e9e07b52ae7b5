"""Timing samples  ->  their medians and intervals as a run record keeps them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from typing import Any


def timing(times: Mapping[str, Any]) -> dict[str, Any]:
    """Timing samples with their medians and bootstrap intervals, in seconds per call.

    Args:
        times: bench.Times as JSON.
    """
    from profkit.measure.bench.bench import METHOD, WIDTH

    found = {k: _summary(times[k]) for k in ("warm", "cold")}
    widths = {k: v["width"] for k, v in found.items() if v}
    wide = [k for k, width in widths.items() if width is not None and width > WIDTH]
    reason = times["rounds_short"] or "neighbouring samples hang together"
    short = [f"{' and '.join(wide)}: wider than {WIDTH:.0%}, {reason}"] if wide else []
    none = [k for k, width in widths.items() if width is None]
    why = "; ".join(short + [f"{k}: no interval, {_unusable(times[k])}" for k in none])
    kept = ("session", "per_sample", "eager", "host", "bare", "host_bound", "before", "after")
    return {"method": METHOD, "l2": found, "why_wide": why, **{k: times[k] for k in kept}}


def _unusable(samples: Sequence[float]) -> str:
    from profkit.evidence.timing.samples import THRESHOLDS, as_groups, summarize

    fault = summarize(as_groups(samples, "the samples"), THRESHOLDS).unusable
    return {
        "too-few": f"{len(samples)} samples are too few",
        "constant": "all samples are equal",
        "autocorrelated": "neighbouring samples hang together",
    }.get(str(fault), str(fault))


def _summary(samples: Sequence[float]) -> dict[str, Any] | None:
    if not samples:
        return None
    from profkit.evidence.timing.stats import median_interval

    found = median_interval(list(samples))
    half = (found.high - found.low) / 2
    known = found.median and not isnan(half)
    width = half / found.median if known else None
    return {**found.to_json(), "width": width, "samples": list(samples)}
