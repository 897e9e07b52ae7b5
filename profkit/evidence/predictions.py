"""What the header of a variant predicted against its parent  ->  kept, broken or not decidable.

Written before the variant is profiled: `fixes: rule`, or `moves: stall_barrier<0.5x`: metric, < or >
or ~, and the factor of the parent's value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isnan
from typing import TYPE_CHECKING, Any, Literal, cast

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
        """Whether it moved so; from 0 to anything is an infinite factor, from 0 to 0 none."""
        came = after / before if before else inf if after else 1.0
        if self.way == "~":
            return abs(came - self.factor) <= ABOUT * self.factor
        return came <= self.factor if self.way == "<" else came >= self.factor


def parse_moves(value: str, name: str) -> tuple[Move, ...]:
    """`stall_barrier<0.5x inst_matrix>2x`  ->  predictions."""
    return tuple(_parse(word, name) for word in re.split(r"[,\s]+", value) if word)


def _parse(word: str, name: str) -> Move:
    match = _MOVE.fullmatch(word)
    if not match:
        raise ProfkitError(
            f"{name}: cannot read '{word}' in 'moves:'",
            "write e.g. stall_long_scoreboard<0.5x inst_matrix>2x instructions~1x",
        )
    if match[1] not in CATALOGUE:
        raise ProfkitError(
            f"{name}: no metric is called '{match[1]}' in 'moves:'", "profkit explain lists them"
        )
    return Move(match[1], cast(Literal["<", ">", "~"], match[2]), float(match[3]))


def values(
    move: Move, before: Mapping[str, Any], after: Mapping[str, Any]
) -> tuple[float, float] | None:
    """The metric's value on both rows of the frame; None where one was not collected."""
    pair = (float(row.get(move.metric, float("nan"))) for row in (before, after))
    one, other = pair
    return None if isnan(one) or isnan(other) else (one, other)


PredictionKind = Literal["fixes", "fixes-not", "moves", "moves-not"]


@dataclass(frozen=True)
class HeaderPrediction:
    """What the AFTER header said, and whether the counters agree."""

    rule: str  # the rule's id; of a move the prediction as written: stall_barrier<0.5x
    said: PredictionKind
    kept: bool | None  # None when it is not decidable on one side
    because: str


def header_predictions(before: Run, after: Run) -> tuple[HeaderPrediction, ...]:
    """Every prediction of AFTER's header; none when it does not change BEFORE."""
    record = after.record
    if record is None or record.header.after != before.variant:
        return ()
    header = record.header
    declared: list[tuple[str, PredictionKind]] = [(rule, "fixes") for rule in header.fixes]
    declared += [(rule, "fixes-not") for rule in header.fixes_not]
    declared += [(word, "moves") for word in header.moves]
    declared += [(word, "moves-not") for word in header.moves_not]
    if header.case not in (None, after.case):
        return tuple(
            HeaderPrediction(r, w, None, f"said of case {header.case}") for r, w in declared
        )
    if not declared or before.usable.empty or after.usable.empty:
        return tuple(HeaderPrediction(r, w, None, "no report on both sides") for r, w in declared)
    was, now = ({f.rule: f.status for f in run.diagnosis().findings} for run in (before, after))
    return tuple(
        _move(rule, what, before, after)
        if what in ("moves", "moves-not")
        else _of_rule(rule, what, was.get(rule), now.get(rule))
        for rule, what in declared
    )


def _of_rule(rule: str, kind: PredictionKind, was: str | None, now: str | None) -> HeaderPrediction:
    if was is None or now is None:
        return HeaderPrediction(rule, kind, None, "no rule has this name")
    if "unknown" in (was, now):
        return HeaderPrediction(rule, kind, None, "what the rule needs was not collected")
    if was == "clear":
        return HeaderPrediction(
            rule, kind, False, "it did not fire before: there was nothing to fix"
        )
    if kind == "fixes":
        because = "it is clear now" if now == "clear" else "it still fires"
        return HeaderPrediction(rule, kind, now == "clear", because)
    return HeaderPrediction(
        rule, kind, now == "fires", "it fires as before" if now == "fires" else "it is clear now"
    )


def _move(word: str, kind: PredictionKind, before: Run, after: Run) -> HeaderPrediction:
    """What the counters of the longest launch of each side say."""
    try:
        (move,) = parse_moves(word, "its header")
    except ProfkitError as error:
        return HeaderPrediction(word, kind, None, error.message)
    sides = [{str(k): v for k, v in run.row.items()} for run in (before, after)]
    pair = values(move, sides[0], sides[1])
    if pair is None:
        return HeaderPrediction(word, kind, None, f"{move.metric} was not collected")
    factor = pair[1] / pair[0] if pair[0] else inf if pair[1] else 1.0
    was, now = (_text(move.metric, value) for value in pair)
    because = f"{was} -> {now}" + (f", {speedup(factor)}" if factor < inf else "")
    return HeaderPrediction(word, kind, move.holds(*pair) == (kind == "moves"), because)


def _text(metric: str, value: float) -> str:
    return quantity(value, CATALOGUE[metric].unit)
