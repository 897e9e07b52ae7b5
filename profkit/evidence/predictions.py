"""What the header of a variant predicted against its parent  ->  kept, broken or not decidable.

Written before the variant is profiled: `fixes: rule`, or `moves: stall_barrier<0.5x`: metric, < or >
or ~, and the factor of the parent's value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import inf, isnan, nan
from typing import TYPE_CHECKING, Literal, cast, get_args

from profkit.errors import ProfkitError
from profkit.reports.figures import quantity, speedup
from profkit.reports.metrics import CATALOGUE

if TYPE_CHECKING:
    from profkit.evidence.runs import Run

ABOUT = 0.1  # ~1x is this near to it, relatively
_MOVE = re.compile(r"([a-z][a-z0-9_]*)([<>~])(\d+(?:\.\d+)?)x")


@dataclass(frozen=True)
class Move:
    """One prediction."""

    metric: str  # short name in the catalogue
    # < at most, > at least, ~ within a tenth of `factor` times the parent's value
    way: Literal["<", ">", "~"]
    factor: float  # value after over value before

    def __str__(self) -> str:
        return f"{self.metric}{self.way}{self.factor:g}x"

    def holds(self, before: float, after: float) -> bool:
        """Whether it moved so."""
        came = _factor(before, after)
        if self.way == "~":
            return abs(came - self.factor) <= ABOUT * self.factor
        return came <= self.factor if self.way == "<" else came >= self.factor


def _factor(before: float, after: float) -> float:
    """From 0 to anything is an infinite factor, from 0 to 0 none."""
    return after / before if before else inf if after else 1.0


def parse_moves(value: str, name: str) -> tuple[Move, ...]:
    """`stall_barrier<0.5x inst_matrix>2x`  ->  predictions."""
    return tuple(_parse(word, name) for word in re.split(r"[,\s]+", value) if word)


def _parse(word: str, name: str) -> Move:
    match = _MOVE.fullmatch(word)
    if not match:
        hint = "write e.g. stall_long_scoreboard<0.5x inst_matrix>2x instructions~1x"
        raise ProfkitError(f"{name}: cannot read '{word}' in 'moves:'", hint)
    if match[1] not in CATALOGUE:
        hint = "profkit explain lists them"
        raise ProfkitError(f"{name}: no metric is called '{match[1]}' in 'moves:'", hint)
    return Move(match[1], cast(Literal["<", ">", "~"], match[2]), float(match[3]))


PredictionKind = Literal["fixes", "fixes-not", "moves", "moves-not"]


@dataclass(frozen=True)
class HeaderPrediction:
    """What the AFTER header said, and whether the counters agree."""

    rule: str  # the rule's id; of a move the prediction as written: stall_barrier<0.5x
    said: PredictionKind
    kept: bool | None  # None when it is not decidable on one side
    because: str


def header_predictions(before: Run, after: Run) -> tuple[HeaderPrediction, ...]:
    """Return every prediction of AFTER's header; none when it does not change BEFORE."""
    record = after.record
    if record is None or record.header.after != before.variant:
        return ()
    header = record.header
    declared: list[tuple[str, PredictionKind]] = []
    for kind in get_args(PredictionKind):
        declared += [(rule, kind) for rule in getattr(header, kind.replace("-", "_"))]
    why = "no report on both sides" if before.usable.empty or after.usable.empty else ""
    if header.case not in (None, after.case):
        why = f"said of case {header.case}"
    if why or not declared:
        return tuple(HeaderPrediction(rule, kind, None, why) for rule, kind in declared)
    was, now = ({f.rule: f.status for f in run.diagnosis().findings} for run in (before, after))
    return tuple(
        _move(rule, kind, before, after)
        if kind in ("moves", "moves-not")
        else HeaderPrediction(rule, kind, *_of_rule(kind, was.get(rule), now.get(rule)))
        for rule, kind in declared
    )


def _of_rule(kind: PredictionKind, was: str | None, now: str | None) -> tuple[bool | None, str]:
    if was is None or now is None:
        return None, "no rule has this name"
    if "unknown" in (was, now):
        return None, "what the rule needs was not collected"
    if was == "clear":
        return False, "it did not fire before: there was nothing to fix"
    if now == "clear":
        return kind == "fixes", "it is clear now"
    return kind != "fixes", "it still fires" if kind == "fixes" else "it fires as before"


def _move(word: str, kind: PredictionKind, before: Run, after: Run) -> HeaderPrediction:
    try:
        (move,) = parse_moves(word, "its header")
    except ProfkitError as error:
        return HeaderPrediction(word, kind, None, error.message)
    pair = [float(run.row.get(move.metric, nan)) for run in (before, after)]
    if any(map(isnan, pair)):
        return HeaderPrediction(word, kind, None, f"{move.metric} was not collected")
    was, now = (quantity(value, CATALOGUE[move.metric].unit) for value in pair)
    factor = _factor(*pair)
    because = f"{was} -> {now}" + (f", {speedup(factor)}" if factor < inf else "")
    return HeaderPrediction(word, kind, move.holds(*pair) == (kind == "moves"), because)
