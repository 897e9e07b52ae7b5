"""What the header of a variant promised against its parent  ->  kept, broken or not decidable."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal

from profkit.errors import ProfkitError
from profkit.evidence.predictions.moves import parse, values
from profkit.evidence.runs.runs import Run
from profkit.reports.metrics import CATALOGUE

Said = Literal["fixes", "fixes-not", "moves", "moves-not"]


@dataclass(frozen=True)
class Promise:
    """What the AFTER header said, and whether the counters agree.

    Attributes:
        rule: The rule's id; of a move the prediction as written: stall_barrier<0.5x.
        said: "fixes", "fixes-not", "moves" or "moves-not".
        kept: None when it is not decidable on one side.
        because: One sentence.
    """

    rule: str
    said: Said
    kept: bool | None
    because: str


def promises_of(before: Run, after: Run) -> tuple[Promise, ...]:
    """Every promise of AFTER's header; none when it does not change BEFORE."""
    record = after.record
    if record is None or record.after != before.variant:
        return ()
    said: list[tuple[str, Said]] = [(rule, "fixes") for rule in record.fixes]
    said += [(rule, "fixes-not") for rule in record.fixes_not]
    said += [(word, "moves") for word in record.moves]
    said += [(word, "moves-not") for word in record.moves_not]
    if record.said_of not in (None, after.case):
        return tuple(Promise(r, w, None, f"said of case {record.said_of}") for r, w in said)
    if not said or before.usable.empty or after.usable.empty:
        return tuple(Promise(r, w, None, "no report on both sides") for r, w in said)
    was, now = ({f.rule: f.status for f in run.diagnosis().findings} for run in (before, after))
    return tuple(
        _move(rule, what, before, after)
        if what in ("moves", "moves-not")
        else _promise(rule, what, was.get(rule), now.get(rule))
        for rule, what in said
    )


def _promise(rule: str, said: Said, was: str | None, now: str | None) -> Promise:
    if was is None or now is None:
        return Promise(rule, said, None, "no rule has this name")
    if "unknown" in (was, now):
        return Promise(rule, said, None, "what the rule needs was not collected")
    if was == "clear":
        return Promise(rule, said, False, "it did not fire before: there was nothing to fix")
    if said == "fixes":
        because = "it is clear now" if now == "clear" else "it still fires"
        return Promise(rule, said, now == "clear", because)
    return Promise(
        rule, said, now == "fires", "it fires as before" if now == "fires" else "it is clear now"
    )


def _move(word: str, said: Said, before: Run, after: Run) -> Promise:
    """What the counters of the longest launch of each side say."""
    try:
        (move,) = parse(word, "its header")
    except ProfkitError as error:
        return Promise(word, said, None, error.message)
    sides = [{str(k): v for k, v in run.row.items()} for run in (before, after)]
    pair = values(move, sides[0], sides[1])
    if pair is None:
        return Promise(word, said, None, f"{move.metric} was not collected")
    factor = pair[1] / pair[0] if pair[0] else inf if pair[1] else 1.0
    one, other = (_text(move.metric, value) for value in pair)
    because = f"{one} -> {other}" + (f", {factor:.2g}x" if factor < inf else "")
    return Promise(word, said, move.holds(*pair) == (said == "moves"), because)


def _text(metric: str, value: float) -> str:
    return f"{value:.1%}" if CATALOGUE[metric].unit == "share" else f"{value:,.4g}"
