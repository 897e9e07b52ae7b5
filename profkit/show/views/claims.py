"""Claims, gates, the ledger and the summary of a variant  ->  blocks for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from profkit.evidence.calibration import Calibration, Score
from profkit.evidence.claims import TriedClaim, Verified
from profkit.evidence.compare import GateResult
from profkit.evidence.ladder import Summary
from profkit.evidence.ledger import Ledger
from profkit.evidence.runs import Run
from profkit.model.scenario import Expectation
from profkit.model.whatif import CounterChange
from profkit.reports import figures
from profkit.show.text import words
from profkit.show.text.blocks import Block, Columns, Grid, Heading, TextLine, grid
from profkit.show.views.comparison import changed_rules, factor, prediction_line


def verified(files: Iterable[Verified]) -> Iterator[Block]:
    """Yield every file with its claims, what decides them, and its gates."""
    counted: Counter[str] = Counter()
    collect: dict[str, None] = {}
    for file in files:
        if file.error:
            yield Heading(str(file.path))
            yield TextLine(file.error, "errored")
            counted["errored"] += 1
        elif file.claims or file.gates:
            yield Heading(f"{file.title} ({file.path.name})")
        for judged in file.claims:
            counted[judged.outcome] += 1
            yield from _claim(judged)
            collect |= dict.fromkeys(judged.answer.collect if judged.answer else ())
        yield from map(gate_line, file.gates)
    yield Heading("In all")
    outcomes = (f"{outcome} {n}" for outcome, n in sorted(counted.items()))
    yield TextLine(", ".join(outcomes) or "no claims")
    yield from (TextLine(command, "would decide more") for command in collect)


def gate_line(result: GateResult) -> TextLine:
    """Return an acceptance gate: met or not, and what does not hold."""
    binding = "" if result.binding else " (reported, not required)"
    failing = f": not holding are {', '.join(result.failing)}" if result.failing else ""
    return TextLine(f"gate {result.name}{binding}{failing}", "met" if result.met else "not met")


def _claim(judged: TriedClaim) -> Iterator[Block]:
    yield TextLine(f"{judged.claim.sentence} [{judged.claim.who}]", judged.outcome)
    answer = judged.answer
    yield TextLine(answer.because if answer else judged.error, indent=2)
    for line in answer.computed if answer else ():
        yield TextLine(line, "computed", indent=2)


def ledger_table(
    kept: Ledger, scores: Sequence[Score], table: Sequence[Calibration]
) -> Iterator[Block]:
    """Yield predicted against measured, and how each rule's gains came out."""
    yield Heading("Predicted against measured")
    tried = [score for score in scores if score.tried]
    of_scores: Columns[Score] = {
        "variant": lambda score: score.prediction.variant,
        "case": lambda score: score.prediction.case,
        "rule": lambda score: score.prediction.rule,
        ">at most": lambda score: figures.speedup(score.prediction.gain) or "-",
        ">expected": _expected,
        "child": lambda score: score.outcome.child,
        ">measured": lambda score: f"{score.outcome.speedup:.2f}x",
        "": _came_out,
    }
    yield grid(tried, of_scores)
    if not tried:
        yield TextLine("no child variant has removed a predicted cause yet")
    yield Heading("Per rule, where a child meant to remove the cause and did")
    of_rules: Columns[Calibration] = {
        "rule": lambda c: c.rule,
        ">tried": lambda c: str(c.tried),
        ">bound held": lambda c: f"{c.bounded} of {c.bounds}",
        ">within 1.5x": lambda c: f"{c.near} of {c.expected}",
        ">in interval": lambda c: f"{c.inside} of {c.expected}",
        ">factor": lambda c: figures.figures(c.factor) if c.factor is not None else "-",
        ">slower": lambda c: str(c.slower),
    }
    yield grid((c for c in table if c.tried or c.slower), of_rules)
    yield TextLine(
        "factor: of what was gained, exp(mean |ln((expected - 1) / (measured - 1))|); slower: the "
        "cause went and something else went wrong, not counted in the others"
    )
    yield TextLine(
        f"{figures.counted(len(kept.predictions), 'prediction')}, "
        f"{figures.counted(len(kept.outcomes), 'outcome')}; {len(scores) - len(tried)} outcomes are "
        "of causes that the child did not mean, or left in place"
    )
    if kept.damaged:
        lines = ", ".join(map(str, kept.damaged))
        yield TextLine(f"lines that are no entry and were left alone: {lines}", "note")


def _expected(score: Score) -> str:
    expect, low, high = (getattr(score.prediction, name) for name in ("expect", "low", "high"))
    known = expect is not None and low is not None and high is not None
    return words.expect(Expectation(expect, low, high)) if known else "-"


def _came_out(score: Score) -> str:
    if score.slower:
        return "slower"
    if score.held is False:
        return "above"
    return "within the bound" if score.inside is False else "as expected"


def answers(
    variant: str, changes: Iterable[CounterChange], estimates: Sequence[tuple[Run, Expectation]]
) -> Iterator[Block]:
    """Yield one row per case: its time now, and what to expect of the changes."""
    condition = ", ".join(f"{c.metric} {c.op} {c.value:g}" for c in changes)
    yield Heading(f"{variant}, if {condition}")
    columns: Columns[tuple[Run, Expectation]] = {
        "case": lambda of: str(of[0].case),
        ">time now": lambda of: figures.seconds(of[0].row["time"]),
        ">expected": lambda of: words.expect(of[1]),
        ">time then": lambda of: figures.seconds(of[0].row["time"] / of[1].gain),
    }
    yield grid(estimates, columns)
    yield TextLine(
        "time under ncu; the interval is how far off it was on programs that it was not fitted to"
    )


_NAMES = {
    "l2_hit": "L2 hit rate",
    "dram_busy": "DRAM, of peak",
    "tensor_busy": "tensor, of peak",
    "occupancy": "occupancy",
    "registers": "registers per thread",
    "shared_block": "shared memory per block",
}


def ladder_summary(summary: Summary) -> Iterator[Block]:
    """Yield a variant for a pull request: decision, figures, what changed, gates."""
    sides, variant = summary.sides, summary.sides[0]
    yield Heading(f"{variant.name} at case {summary.case}")
    yield TextLine(summary.because, summary.decision)
    yield Grid(
        ("", *(f">{s.name} ({s.role})" for s in sides)),
        (
            ("time per call", *(words.timed(s.time) or "not timed" for s in sides)),
            (f"{variant.name} is faster by", *(factor(s.against) for s in sides)),
            *((_NAMES[m], *(words.metric(m, s.metrics.get(m)) for s in sides)) for m in _NAMES),
            ("bound: limiter", *(s.bound or figures.NOT_COLLECTED for s in sides)),
        ),
        bands=True,
    )
    if variant.because:
        yield TextLine(variant.because, "verdict")
    if change := summary.change:
        yield from changed_rules(change.launches)
        yield from map(prediction_line, change.promises)
        yield from (TextLine(note, "note") for note in change.notes)
    yield from map(gate_line, summary.gates)
