"""Samples of subjects that took turns  ->  what a trial's history keeps of them."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from profkit.evidence.timing.stats import Comparison


def ratio(times: Mapping[str, Mapping[str, Any]], name: str, anchor: str) -> float:
    """The median over rounds of a subject's time over the anchor's: clocks cancel."""
    rounds = zip(times[name]["warm"], times[anchor]["warm"], strict=True)
    return float(median(mine / theirs for mine, theirs in rounds))


def said(found: Comparison, incumbent: int) -> dict[str, Any]:
    """A comparison with the incumbent, as the history keeps it."""
    plain = found.to_json()
    return {
        "against": incumbent,
        "answer": found.answer,
        "sentence": found.sentence,
        "speedup": plain["speedup"],
        "hedges_g": plain["hedges_g"],
        "p_value": plain["p_value"],
    }


def samples(times: Mapping[str, Mapping[str, Any]]) -> int:
    """How many samples the shortest series has."""
    return min(len(t["warm"]) for t in times.values())


def worst(check: Mapping[str, Any] | None) -> float | None:
    """The largest absolute error of all cases."""
    errors = [c["max_abs"] for c in (check or {}).get("cases", []) if c.get("max_abs") is not None]
    return max(errors, default=None)
