"""Do the gains come true? Bounds, expectations and intervals against every mend on record.

    python tools/gains.py [FOLDER]

Probes with their twins, steps of the ladder whose header says what they fix, and, with FOLDER, other
people's kernels before and after a mend (pairs.json, and their counters in raw.json.xz). Then the
spread of each kind anew: the numbers of profkit/diagnosis/estimate/estimate.py; and how often an
interval holds whose program was left out.
"""

from __future__ import annotations

import json
import lzma
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path

import numpy as np

from profkit import from_raw
from profkit.cli.inputs.sources import evidence_of
from profkit.diagnosis.engine import judge_launch
from profkit.diagnosis.estimate.causes import CAUSES, Kind
from profkit.diagnosis.estimate.estimate import OFFSET, SPREAD
from profkit.evidence.ledger.calibration import edges_today, score_ledger
from profkit.evidence.ledger.ledger import NAME, read_ledger

sys.path.insert(0, str(Path(__file__).parent))
import verdicts

ARTIFACTS = verdicts.ROOT / "artifacts"
FASTER = 1.05  # a mend that gained less says nothing of how much its cause was worth
PROBE = 0.1  # weight of a probe: its twin is built to remove all of the cause
LEANS = 10.0  # weight of all kinds together beside a kind's own
FARTHEST = 1.0  # a residual counts as this at most: a rewrite is no spread


@dataclass(frozen=True)
class MendOnRecord:
    """What came of one mend, and what was said of it: speed-up factors."""

    group: str
    program: str
    kind: Kind
    came: float
    expected: float
    gain: float | None

    @property
    def residual(self) -> float:
        """Ln came - ln expected, in units of the latter."""
        unit = OFFSET + log(self.expected)
        return max(-FARTHEST, min(FARTHEST, log(self.came / self.expected) / unit))


def probes() -> Iterator[MendOnRecord]:
    """Probes with their twins."""
    for row in verdicts.rows():
        if row.gain and row.gain >= FASTER and row.expect and row.said[2] in CAUSES:
            kind = CAUSES[str(row.said[2])].kind
            yield MendOnRecord("probes", row.probe, kind, row.gain, row.expect.gain, row.estimate)


def ladder() -> Iterator[MendOnRecord]:
    """Steps whose header says what they fix."""
    today = edges_today(evidence_of(ARTIFACTS))
    for score in score_ledger(read_ledger(ARTIFACTS / NAME), today):
        made, came = score.prediction, score.outcome.speedup
        if score.tried and came >= FASTER and made.expect:
            kind = CAUSES[made.rule.split("+")[0]].kind
            name = f"{made.variant} > {score.outcome.child}"
            yield MendOnRecord("ladder", name, kind, came, made.expect, made.gain)


def pairs(folder: Path) -> Iterator[MendOnRecord]:
    """Other people's kernels; a program is what the launch's name begins with."""
    with lzma.open(folder / "raw.json.xz", "rt") as file:
        kept = json.load(file)
    launches = {}
    for run, counters in kept.items():
        row = {"kernel": counters["name"]}
        for name, found in counters["m"].items():
            row |= {name: found["v"]} if "v" in found else {}
            row |= {f"{name}[{key}]": value for key, value in found.get("i", {}).items()}
        launches[run] = {str(k): v for k, v in from_raw([row]).iloc[0].items()}
    for pair in json.loads((folder / "pairs.json").read_text("utf-8")):
        before, after = (launches[pair[side]] for side in ("before", "after"))
        came = before["time"] / after["time"]
        firing = [f for f in judge_launch(before).findings if f.status == "fires"]
        found = next((f for f in firing if f.rule in pair["expected_rules"]), None)
        if found and found.expect and came >= FASTER:
            program = pair["before"].rstrip("0123456789bn")
            kind = CAUSES[found.rule].kind
            yield MendOnRecord("pairs", program, kind, came, found.expect.gain, found.gain)


def spread(mends: Sequence[MendOnRecord], kind: Kind) -> tuple[float, float]:
    """10th and 90th percentile of a kind's residuals, leaning on those of all kinds."""
    own = [m for m in mends if m.kind == kind]
    size = sum(_weights(mends, own)) if own else 0.0
    every = _percentiles(mends, mends)
    mine = _percentiles(mends, own) if own else every
    low, high = ((size * a + LEANS * b) / (size + LEANS) for a, b in zip(mine, every, strict=True))
    return low, high


def _weights(mends: Sequence[MendOnRecord], some: Sequence[MendOnRecord]) -> list[float]:
    of = Counter(m.program for m in mends)
    return [(PROBE if m.group == "probes" else 1.0) / of[m.program] ** 0.5 for m in some]


def _percentiles(
    mends: Sequence[MendOnRecord], some: Sequence[MendOnRecord]
) -> tuple[float, float]:
    values, weights = np.array([m.residual for m in some]), np.array(_weights(mends, some))
    order = np.argsort(values)
    at = np.cumsum(weights[order]) - weights[order] / 2
    low, high = np.interp([0.1 * weights.sum(), 0.9 * weights.sum()], at, values[order])
    return float(low), float(high)


def report(mends: Sequence[MendOnRecord]) -> None:
    """One line per group, then per kind."""
    for group in dict.fromkeys(m.group for m in mends):
        own = [m for m in mends if m.group == group]
        bounded = [m for m in own if m.gain is not None]
        held = sum(m.came <= 1.05 * (m.gain or 0.0) for m in bounded)
        near = sum(1 / 1.5 <= m.expected / m.came <= 1.5 for m in own)
        errors = [log((m.expected - 1) / (m.came - 1)) for m in own if m.expected > 1]
        factor = exp(sum(min(abs(e), log(20)) for e in errors) / max(len(errors), 1))
        inside = sum(_inside(m, [x for x in mends if x.program != m.program]) for m in own)
        print(f"{group}: bound held {held} of {len(bounded)}; expected within 1.5x {near} of "
              f"{len(own)}; factor error of the gain {factor:.2f}; inside an interval that was made "
              f"without the program {inside} of {len(own)}")  # fmt: skip
    for kind, (low, high) in SPREAD.items():
        now = spread(mends, kind)
        print(f"{kind}: {now[0]:+.2f} to {now[1]:+.2f} (in use {low:+.2f} to {high:+.2f}), "
              f"{sum(m.kind == kind for m in mends)} mends")  # fmt: skip


def _inside(mend: MendOnRecord, others: Sequence[MendOnRecord]) -> bool:
    size = log(mend.expected)
    low, high = (exp(size + end * (OFFSET + size)) for end in spread(others, mend.kind))
    return low <= mend.came <= high


if __name__ == "__main__":
    recorded = [*probes(), *ladder()]
    for argument in sys.argv[1:]:
        recorded += pairs(Path(argument))
    report(recorded)
