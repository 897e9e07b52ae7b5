"""Claims, gates and the ledger  ->  blocks for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from profkit.evidence.claims.verify import TriedClaim, Verified
from profkit.evidence.ledger.calibration import Calibration, Score
from profkit.evidence.ledger.ledger import Ledger
from profkit.show.text import figures
from profkit.show.text.blocks import Block, Grid, Heading, Line


def verified(files: Iterable[Verified]) -> Iterator[Block]:
    """Every file with its claims, what decides them, and its gates."""
    counted: dict[str, int] = {}
    collect: dict[str, None] = {}
    for file in files:
        if file.error:
            yield Heading(str(file.path))
            yield Line(file.error, "errored")
            counted["errored"] = counted.get("errored", 0) + 1
        elif file.claims or file.gates:
            yield Heading(f"{file.title} ({file.path.name})")
        for judged in file.claims:
            counted[judged.outcome] = counted.get(judged.outcome, 0) + 1
            yield from _claim(judged)
            collect |= dict.fromkeys(judged.answer.collect if judged.answer else ())
        for result in file.gates:
            asked = "" if result.gate.binding else " (told, not asked)"
            failing = f": not holding are {', '.join(result.failing)}" if result.failing else ""
            mark = "met" if result.met else "not met"
            yield Line(f"gate {result.gate.name}{asked}{failing}", mark)
    yield Heading("In all")
    yield Line(", ".join(f"{outcome} {n}" for outcome, n in sorted(counted.items())) or "no claims")
    yield from (Line(command, "would decide more") for command in collect)


def _claim(judged: TriedClaim) -> Iterator[Block]:
    yield Line(f"{judged.claim.sentence} [{judged.claim.who}]", judged.outcome)
    answer = judged.answer
    yield Line(answer.because if answer else judged.error, indent=2)
    for line in answer.computed if answer else ():
        yield Line(line, "computed", indent=2)


def ledger(kept: Ledger, found: Sequence[Score], table: Sequence[Calibration]) -> Iterator[Block]:
    """Predicted against measured, and how each rule's gains came out."""
    yield Heading("Predicted against measured")
    tried = [score for score in found if score.tried]
    yield Grid(
        ("variant", "case", "rule", ">at most", "child", ">measured", "", "meant"),
        tuple(_score(score) for score in tried),
    )
    if not tried:
        yield Line("no child variant has removed a predicted cause yet")
    yield Heading("Per rule, where a child removed the cause")
    yield Grid(
        ("rule", ">tried", ">at most right", ">within 2x", ">measured / predicted"),
        tuple(
            (c.rule, str(c.tried), str(c.bounded), str(c.close),
             figures.figures(c.ratio) if c.ratio is not None else "-")
            for c in table
            if c.tried
        ),
    )  # fmt: skip
    yield Line(
        f"{figures.count(len(kept.predictions), 'prediction')}, "
        f"{figures.count(len(kept.outcomes), 'outcome')}; {len(found) - len(tried)} outcomes are "
        "of children that left the cause in place"
    )
    if kept.damaged:
        lines = ", ".join(map(str, kept.damaged))
        yield Line(f"lines that are no entry and were left alone: {lines}", "note")


def _score(score: Score) -> tuple[str, ...]:
    made, came = score.prediction, score.outcome
    verdict = "within" if came.speedup <= made.gain else "above"
    return (
        made.variant, made.case, made.rule, figures.times(made.gain), came.child,
        f"{came.speedup:.2f}x", verdict, "yes" if came.meant else "no",
    )  # fmt: skip
