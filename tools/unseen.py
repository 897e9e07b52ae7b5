"""Findings for changes that nobody here had seen: how often were they right?

    python tools/score.py gains --unseen

artifacts/unseen.json keeps it: for each change its repository, its causes as they were written down
before a number was known, both plain times, and the findings of that date. Nothing is computed
anew: once the misses are looked at, these launches are no longer unseen.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from statistics import median

KEPT = Path(__file__).resolve().parents[1] / "artifacts" / "unseen.json"
FASTER = 1.05  # a fix that gained less says nothing of how much its cause was worth
CLAIMS = 1.3  # what is promised of a fix that brought nothing is wrong from here on


@dataclass(frozen=True)
class Change:
    """One change of somebody's kernel, and the findings for the kernel before it."""

    id: str
    repository: str
    before_us: float
    after_us: float
    rules: tuple[str, ...]
    said: tuple[str, ...]
    place: int | None  # of the first finding that is one of the rules
    promised: float  # by the finding that led
    expected: float | None
    low: float | None
    high: float | None
    bound: float | None

    @property
    def came(self) -> float:
        return self.before_us / self.after_us

    @property
    def said_to_gain(self) -> float | None:
        """The expectation; the bound where there is none."""
        return self.expected or self.bound


def read_changes(path: Path = KEPT) -> dict[str, list[Change]]:
    """Return the changes of each set, by its date."""
    sets = json.loads(path.read_text("utf-8"))["sets"]
    changes: dict[str, list[Change]] = {}
    for one in sets:
        own = []
        for row in one["changes"]:
            own.append(Change(**{**row, "rules": tuple(row["rules"]), "said": tuple(row["said"])}))
        changes[one["date"]] = own
    return changes


def describe(name: str, changes: Sequence[Change]) -> str:
    """Return one line: places of the cause, bounds, expectations, intervals, broken promises."""
    faster = [c for c in changes if c.came >= FASTER and c.rules]
    slower = [c for c in changes if c.came < FASTER]
    first = sum(c.place == 1 for c in faster)
    three = sum(c.place is not None and c.place <= 3 for c in faster)
    bounds = [c.bound for c in faster if c.bound is not None]
    held = sum(c.came <= FASTER * c.bound for c in faster if c.bound is not None)
    pairs = [(c.came, c.said_to_gain) for c in faster if c.said_to_gain is not None]
    within = sum(0.5 <= (said - 1) / (came - 1) <= 2 for came, said in pairs)
    factor = exp(sum(abs(log(said / came)) for came, said in pairs) / len(pairs))
    ends = [(c.came, c.low, c.high) for c in faster if c.low is not None and c.high is not None]
    inside = sum(low <= came <= high for came, low, high in ends)
    width = median(high / low for _, low, high in ends)
    broken = [c for c in slower if c.promised > CLAIMS]
    refuted = sum(c.place == 1 for c in broken)  # the change was against the very finding
    return (
        f"{name:18} first {first:2} of {len(faster):2}, among three {three:2}; bound held {held:2} of "
        f"{len(bounds):2}; within two {within:2} of {len(pairs):2}, factor {factor:.2f}; interval "
        f"{inside:2} of {len(ends):2} ({width:.2f} wide); promised {CLAIMS:g}x "
        f"{len(broken)} of {len(slower)}, {refuted} for what the change was against"
    )


def main() -> int:
    """Print a line for each set, and one for its Triton kernels."""
    for date, changes in read_changes().items():
        repositories = len({c.repository for c in changes})
        print(f"{date}: {len(changes)} changes of {repositories} repositories")
        print(describe("all", changes))
        triton = [c for c in changes if c.id.startswith("t-")]
        if triton:
            print(describe("of these in Triton", triton))
    return 0
