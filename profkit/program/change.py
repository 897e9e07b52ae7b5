"""Two triages of one program  ->  what became of each promise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

SAME = 0.02  # of the step: a difference that two runs of one program show


class Promise(TypedDict):
    """A finding of the first triage, and what the second one says of it."""

    category: str
    say: str
    said: tuple[float, float, float]  # milliseconds it was said to save: expect, low, high
    state: str  # gone, smaller, or there as before
    left: float  # milliseconds that the second triage still says


class TriagesDocument(TypedDict):
    """What `profkit compare A.triage B.triage --json` prints: what became of each promise."""

    schema: Literal["profkit.triages/1"]
    answer: str  # faster, slower or same
    before_ms: float  # the step without a recorder
    after_ms: float
    saved_ms: float  # negative if it is slower
    promises: list[Promise]
    # whether what was saved is in the interval that the gone ones promised; None if none is gone
    kept: bool | None
    new: list[str]  # categories that only the second has
    notes: list[str]  # what makes the two hard to compare


def compare_triages(before: Mapping[str, Any], after: Mapping[str, Any]) -> TriagesDocument:
    """Compare two "profkit.triage/1" documents."""
    first, second = (_read_plain_ms(of) for of in (before, after))
    saved, slack = first - second, SAME * first
    left = {row["category"]: row["saves_ms"]["expect"] for row in after["findings"]}
    promises = [_make_promise(row, left.get(row["category"], 0.0)) for row in before["findings"]]
    gone = [p["said"] for p in promises if p["state"] == "gone"]
    # Fixes that share an obstacle do not add up: the largest alone up to all of them together.
    low, high = max((said[1] for said in gone), default=0.0), sum(said[2] for said in gone)
    return {
        "schema": "profkit.triages/1",
        "answer": "same" if abs(saved) <= slack else "faster" if saved > 0 else "slower",
        "before_ms": first,
        "after_ms": second,
        "saved_ms": saved,
        "promises": promises,
        "kept": low - slack <= saved <= high + slack if gone else None,
        "new": sorted(left.keys() - {row["category"] for row in before["findings"]}),
        "notes": _list_differences(before["program"], after["program"]),
    }


def _read_plain_ms(of: Mapping[str, Any]) -> float:
    plain = of["step"].get("plain_ms") or {}
    return float(plain.get("expect") or of["step"]["ms"])


def _make_promise(row: Mapping[str, Any], left: float) -> Promise:
    saves = row["saves_ms"]
    expect = saves["expect"]
    return {
        "category": row["category"],
        "say": row["say"],
        "said": (expect, saves["low"], saves["high"]),
        "state": "gone" if left < 0.25 * expect else "smaller" if left < 0.75 * expect else "there",
        "left": left,
    }


def _list_differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    pairs = {key: (before.get(key), after.get(key)) for key in ("device", "how", "ranks")}
    return [f"{key}: {a} before, {b} after" for key, (a, b) in pairs.items() if a != b]
