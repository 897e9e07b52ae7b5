"""Do the gains come true? Bounds, expectations and intervals against every fix on record.

    python tools/gains.py              # what is held against what, and the numbers that the code uses
    python tools/gains.py FOLDER...    # first keeps the pairs of these folders (pairs.json, raw.json.xz)

Probes with their twins, steps of the ladder whose header says what they fix, and other people's kernels
before and after a fix (artifacts/pairs.json.xz: counters, no code). SPREAD and COVERAGE of
profkit/model/scenario.py are computed from the last two: each fix is held against an
interval that was made without its repository. Probes are left out: their twins remove all of a cause.
"""

from __future__ import annotations

import json
import lzma
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, isfinite, log
from pathlib import Path
from typing import Any

import numpy as np

from profkit import from_raw
from profkit.cli.sources import evidence_of
from profkit.diagnosis.rules import BY_ID
from profkit.diagnosis.verdict import judge_launch
from profkit.evidence.ledger import NAME, edges_today, read_ledger, score_ledger
from profkit.model.scenario import OFFSET, SPREAD, Kind, expectation
from profkit.reports.metrics import CATALOGUE

sys.path.insert(0, str(Path(__file__).parent))
import verdicts

ARTIFACTS = verdicts.ROOT / "artifacts"
KEPT = ARTIFACTS / "pairs.json.xz"
FASTER = 1.05  # a fix that gained less says nothing of how much its cause was worth
CLAIMS = 1.3  # what is promised of a fix that brought nothing is wrong from here on
FEW = 10  # fixes of a kind below which those of all kinds stand in for it
PROBES, LADDER = "probes", "ladder"


@dataclass(frozen=True)
class FixOnRecord:
    """What came of one fix, and what was said of it: speed-up factors."""

    group: str  # probes, ladder, or pairs, looked at or not when causes were priced
    repository: str  # what is left out at once
    name: str
    kind: Kind
    came: float
    expected: float
    gain: float | None

    @property
    def residual(self) -> float:
        """Ln came - ln expected, in units of the latter."""
        return log(self.came / self.expected) / (OFFSET + log(self.expected))


def _kind(rule: str) -> Kind | None:
    fix = BY_ID[rule].fix if rule in BY_ID else None
    return fix.kind if fix else None


def probes() -> Iterator[FixOnRecord]:
    """Probes with their twins."""
    for row in verdicts.rows():
        if row.gain and row.gain >= FASTER and row.expect and (kind := _kind(str(row.said[2]))):
            yield FixOnRecord(
                PROBES, PROBES, row.probe, kind, row.gain, row.expect.gain, row.estimate
            )


def ladder() -> Iterator[FixOnRecord]:
    """Steps whose header says what they fix."""
    today = edges_today(evidence_of(ARTIFACTS))
    for score in score_ledger(read_ledger(ARTIFACTS / NAME), today):
        made, came = score.prediction, score.outcome.speedup
        if score.tried and came >= FASTER and made.expect:
            kind = _kind(made.rule.split("+")[0])
            name = f"{made.variant} > {score.outcome.child}"
            yield FixOnRecord(LADDER, LADDER, name, kind, came, made.expect, made.gain)


def pairs() -> list[dict[str, Any]]:
    """What is kept of other people's kernels: pair, repository, rules, speedup, metrics before."""
    with lzma.open(KEPT, "rt") as file:
        return json.load(file)  # type: ignore[no-any-return]


def of_pairs(kept: Sequence[Mapping[str, Any]]) -> Iterator[FixOnRecord]:
    """Pairs that became faster and whose cause has a price."""
    for pair in kept:
        firing = [f for f in judge_launch(pair["before"]).findings if f.status == "fires"]
        found = next((f for f in firing if f.rule in pair["rules"]), None)
        if found and found.expect and pair["speedup"] >= FASTER:
            group = f"pairs, {'looked' if pair['seen'] else 'not looked'} at"
            yield FixOnRecord(
                group,
                pair["repository"],
                pair["pair"],
                _kind(found.rule),
                pair["speedup"],
                found.expect.gain,
                found.gain,
            )


def told_nothing_came(kept: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """Of the pairs that brought nothing, how many were promised much by the first finding."""
    slow = [pair for pair in kept if pair["speedup"] < FASTER]
    tops = [judge_launch(pair["before"]).top for pair in slow]
    return sum(bool(top and top.expect and top.expect.gain > CLAIMS) for top in tops), len(slow)


def keep(folder: Path, *, seen: bool) -> Iterator[dict[str, Any]]:
    """The numbers of a folder's pairs: no name of a kernel, no code."""
    with lzma.open(folder / "raw.json.xz", "rt") as file:
        raw = json.load(file)
    launches = {run: _launch(counters) for run, counters in raw.items()}
    for pair in json.loads((folder / "pairs.json").read_text("utf-8")):
        before = launches[pair["before"]]
        if pair.get("before_us") and pair.get("after_us"):
            came = pair["before_us"] / pair["after_us"]
        else:
            came = before["time"] / launches[pair["after"]]["time"]
        yield {
            "pair": pair["id"],
            "repository": pair["repo"].split()[0],
            "seen": seen,
            "rules": pair["expected_rules"],
            "speedup": float(f"{came:.6g}"),
            "before": {name: float(f"{value:.6g}") for name, value in before.items()},
        }


def _launch(counters: Mapping[str, Any]) -> dict[str, float]:
    row = {"kernel": counters["name"]}
    for name, found in counters["m"].items():
        row |= {name: found["v"]} if "v" in found else {}
        row |= {f"{name}[{key}]": value for key, value in found.get("i", {}).items()}
    frame = from_raw([row]).iloc[0]
    return {name: float(frame[name]) for name in CATALOGUE if isfinite(frame[name])}


def spread(fixes: Sequence[FixOnRecord], kind: Kind) -> tuple[float, float]:
    """The 10th and 90th percentile that a further residual of a kind has: of n, ranks over n + 1."""
    own = [fix.residual for fix in fixes if fix.kind == kind]
    some = own if len(own) >= FEW else [fix.residual for fix in fixes]
    low, high = np.quantile(some, (0.1, 0.9), method="weibull")
    return round(float(low), 2), round(float(high), 2)


def left_out(fixes: Sequence[FixOnRecord]) -> dict[str, list[bool]]:
    """Repository -> for each of its fixes, whether it is in an interval made without them."""
    held: dict[str, list[bool]] = {}
    for name in Counter(fix.repository for fix in fixes):
        rest = [fix for fix in fixes if fix.repository != name]
        held[name] = [_inside(f, spread(rest, f.kind)) for f in fixes if f.repository == name]
    return held


def _inside(fix: FixOnRecord, ends: tuple[float, float]) -> bool:
    hope = expectation(fix.expected, ends, fix.gain)
    return hope.low <= fix.came <= hope.high


def report(fixes: Sequence[FixOnRecord], say: Callable[[str], object] = print) -> None:
    """One line per group, the coverage per repository, then the numbers per kind."""
    for group in dict.fromkeys(fix.group for fix in fixes):
        own = [fix for fix in fixes if fix.group == group]
        bounded = [fix for fix in own if fix.gain is not None]
        held = sum(fix.came <= FASTER * (fix.gain or 0.0) for fix in bounded)
        near = sum(1 / 1.5 <= fix.expected / fix.came <= 1.5 for fix in own)
        errors = [log((fix.expected - 1) / (fix.came - 1)) for fix in own if fix.expected > 1]
        factor = exp(sum(min(abs(e), log(20)) for e in errors) / max(len(errors), 1))
        say(
            f"{group}: bound held {held} of {len(bounded)}; expected within 1.5x {near} of "
            f"{len(own)}; factor error of the gain {factor:.2f}"
        )
    claimed, nothing = told_nothing_came(pairs())
    say(f"pairs that brought nothing: {claimed} of {nothing} were promised more than {CLAIMS:g}x")
    own = [fix for fix in fixes if fix.group != PROBES]
    of = left_out(own)
    every = [inside for several in of.values() for inside in several]
    say(f"in an interval made without its repository: {sum(every)} of {len(every)}")
    for name, several in of.items():
        say(f"  {name}: {sum(several)} of {len(several)}")
    for kind in SPREAD:
        low, high = spread(own, kind)
        say(f"{kind}: {low:+.2f} to {high:+.2f}, {sum(fix.kind == kind for fix in own)} fixes")


def main(folders: Sequence[str]) -> None:
    """Keep the pairs of folders, if any are named: the first was looked at. Then report."""
    if folders:
        kept = [p for n, folder in enumerate(folders) for p in keep(Path(folder), seen=n == 0)]
        KEPT.write_bytes(lzma.compress(json.dumps(kept, separators=(",", ":")).encode(), preset=9))
    report([*probes(), *ladder(), *of_pairs(pairs())])


if __name__ == "__main__":
    main(sys.argv[1:])
