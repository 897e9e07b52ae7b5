"""Timing samples  ->  their medians and intervals as a run record keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan

from profkit.measure.bench.bench import METHOD, WIDTH, Times
from profkit.records.store import JsonObject


def timing(times: Times) -> JsonObject:
    """Timing samples with their medians and bootstrap intervals, in seconds per call."""
    samples = {"warm": times.warm, "cold": times.cold}
    medians = {k: _summary(v) for k, v in samples.items()}
    widths = {k: v["width"] for k, v in medians.items() if v}
    wide = [k for k, width in widths.items() if width is not None and width > WIDTH]
    reason = times.rounds_short or "neighbouring samples hang together"
    short = [f"{' and '.join(wide)}: wider than {WIDTH:.0%}, {reason}"] if wide else []
    none = [k for k, width in widths.items() if width is None]
    why = "; ".join(short + [f"{k}: no interval, {_unusable(samples[k])}" for k in none])
    kept = ("session", "per_sample", "eager", "host", "bare", "host_bound", "before", "after")
    plain = times.to_json()
    return {"method": METHOD, "l2": medians, "why_wide": why, **{k: plain[k] for k in kept}}


def _unusable(samples: Sequence[float]) -> str:
    from profkit.evidence.timing.samples import THRESHOLDS, as_groups, summarize_samples

    fault = summarize_samples(as_groups(samples, "the samples"), THRESHOLDS).unusable
    return {
        "too-few": f"{len(samples)} samples are too few",
        "constant": "all samples are equal",
        "autocorrelated": "neighbouring samples hang together",
    }.get(str(fault), str(fault))


def _summary(samples: Sequence[float]) -> JsonObject | None:
    if not samples:
        return None
    from profkit.evidence.timing.stats import median_interval

    interval = median_interval(list(samples))
    half = (interval.high - interval.low) / 2
    known = interval.median and not isnan(half)
    width = half / interval.median if known else None
    return {**interval.to_json(), "width": width, "samples": list(samples)}
