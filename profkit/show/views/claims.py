"""Claims, gates, the ledger and the summary of a variant  ->  blocks for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from profkit.evidence.calibration import Calibration, Score
from profkit.evidence.claims import GateResult, TriedClaim, Verified
from profkit.evidence.ledger import Ledger
from profkit.evidence.runs import Run
from profkit.evidence.summary import METRICS, Summary, SummaryColumn
from profkit.model.scenario import Expectation
from profkit.model.whatif import CounterChange
from profkit.reports import figures
from profkit.show.text import words
from profkit.show.text.blocks import Block, Grid, Heading, TextLine
from profkit.show.views.comparison import changed_rules, factor, prediction_line


def verified(files: Iterable[Verified]) -> Iterator[Block]:
    """Every file with its claims, what decides them, and its gates."""
    counted: dict[str, int] = {}
    collect: dict[str, None] = {}
    for file in files:
        if file.error:
            yield Heading(str(file.path))
            yield TextLine(file.error, "errored")
            counted["errored"] = counted.get("errored", 0) + 1
        elif file.claims or file.gates:
            yield Heading(f"{file.title} ({file.path.name})")
        for judged in file.claims:
            counted[judged.outcome] = counted.get(judged.outcome, 0) + 1
            yield from _claim(judged)
            collect |= dict.fromkeys(judged.answer.collect if judged.answer else ())
        yield from map(gate_line, file.gates)
    yield Heading("In all")
    yield TextLine(
        ", ".join(f"{outcome} {n}" for outcome, n in sorted(counted.items())) or "no claims"
    )
    yield from (TextLine(command, "would decide more") for command in collect)


def gate_line(result: GateResult) -> TextLine:
    """An acceptance gate: met or not, and what does not hold."""
    binding = "" if result.gate.binding else " (told, not asked)"
    failing = f": not holding are {', '.join(result.failing)}" if result.failing else ""
    return TextLine(
        f"gate {result.gate.name}{binding}{failing}", "met" if result.met else "not met"
    )


def _claim(judged: TriedClaim) -> Iterator[Block]:
    yield TextLine(f"{judged.claim.sentence} [{judged.claim.who}]", judged.outcome)
    answer = judged.answer
    yield TextLine(answer.because if answer else judged.error, indent=2)
    for line in answer.computed if answer else ():
        yield TextLine(line, "computed", indent=2)


def ledger_table(
    kept: Ledger, scores: Sequence[Score], table: Sequence[Calibration]
) -> Iterator[Block]:
    """Predicted against measured, and how each rule's gains came out."""
    yield Heading("Predicted against measured")
    tried = [score for score in scores if score.tried]
    yield Grid(
        ("variant", "case", "rule", ">at most", ">expected", "child", ">measured", ""),
        tuple(_score(score) for score in tried),
    )
    if not tried:
        yield TextLine("no child variant has removed a predicted cause yet")
    yield Heading("Per rule, where a child meant to remove the cause and did")
    yield Grid(
        ("rule", ">tried", ">bound held", ">within 1.5x", ">in interval", ">factor", ">slower"),
        tuple(
            (c.rule, str(c.tried), f"{c.bounded} of {c.bounds}", f"{c.near} of {c.expected}",
             f"{c.inside} of {c.expected}",
             figures.figures(c.factor) if c.factor is not None else "-", str(c.slower))
            for c in table
            if c.tried or c.slower
        ),
    )  # fmt: skip
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


def _score(score: Score) -> tuple[str, ...]:
    prediction, outcome = score.prediction, score.outcome
    expect, low, high = prediction.expect, prediction.low, prediction.high
    expected = "-"
    if expect is not None and low is not None and high is not None:
        expected = words.expect(Expectation(expect, low, high))
    verdict = "slower" if score.slower else _VERDICTS[score.held is False, score.inside is False]
    return (
        prediction.variant, prediction.case, prediction.rule,
        figures.speedup(prediction.gain) or "-", expected, outcome.child,
        f"{outcome.speedup:.2f}x", verdict,
    )  # fmt: skip


# (passed its bound, outside its interval) -> how a prediction came out.
_VERDICTS = {
    (False, False): "as expected",
    (False, True): "within the bound",
    (True, True): "above",
    (True, False): "above",
}


def answers(
    variant: str, changes: Iterable[CounterChange], estimates: Sequence[tuple[Run, Expectation]]
) -> Iterator[Block]:
    """One row per case: its time now, and what to expect of the changes."""
    condition = ", ".join(f"{c.metric} {c.op} {c.value:g}" for c in changes)
    yield Heading(f"{variant}, if {condition}")
    yield Grid(
        ("case", ">time now", ">expected", ">time then"),
        tuple(
            (str(run.case), figures.seconds(run.row["time"]), words.expect(expect),
             figures.seconds(run.row["time"] / expect.gain))
            for run, expect in estimates
        ),
    )  # fmt: skip
    yield TextLine(
        "time under ncu; the interval is how far off it was on programs that it was not fitted to"
    )


_NAMES = {"l2_hit": "L2 hit rate", "dram_busy": "DRAM, of peak", "tensor_busy": "tensor, of peak",
          "occupancy": "occupancy", "registers": "registers per thread",
          "shared_block": "shared memory per block"}  # fmt: skip


def ladder_summary(summary: Summary) -> Iterator[Block]:
    """A variant for a pull request: decision, figures, what changed, gates."""
    sides, variant = summary.sides, summary.sides[0]
    yield Heading(f"{variant.name} at case {summary.case}")
    yield TextLine(summary.because, summary.decision)
    yield Grid(
        ("", *(f">{s.name} ({s.role})" for s in sides)),
        (
            ("time per call", *map(_time_of, sides)),
            (f"{variant.name} is faster by", *(factor(s.against) for s in sides)),
            *((_NAMES[m], *(words.metric(m, s.metrics.get(m)) for s in sides)) for m in METRICS),
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


def _time_of(side: SummaryColumn) -> str:
    if side.time is None:
        return "not timed"
    half = (side.time.high - side.time.low) / 2 / side.time.median
    return f"{figures.seconds(side.time.median)} ± {100 * half:.1f} %"
