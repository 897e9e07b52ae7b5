"""What each cause of a kernel costs, measured by taking it away  ->  blocks for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from profkit.evidence.samples import Interval
from profkit.records.ablation import AblationRecord, MeasuredAblation, MeasuredPair, Refusal
from profkit.records.record import Record
from profkit.reports import figures
from profkit.show.text import words
from profkit.show.text.blocks import Block, Grid, Heading, TextLine, TextSpan

if TYPE_CHECKING:
    from profkit.units import TextOrEmpty


_NOTHING = "nothing-to-take-away"
_CLOSE = 1.02  # gains below are within what rounds differ by
_COSTS = 1.05  # of a control over the original, from here on it is shown as a range
_ALONE = 1.1  # of a bound, from here on it says something


def show_ablations(records: Sequence[Record]) -> Iterator[Block]:
    for record in records:
        found = AblationRecord.from_record(record.ablation)
        if found:
            yield from _show_ablation(f"{record.variant}.{record.case}", found)


def _show_ablation(name: str, ablation: AblationRecord) -> Iterator[Block]:
    yield Heading(
        f"{name}  {figures.format_seconds(ablation.base)}{format_spread(ablation)}, {ablation.gpu}"
    )
    rows = tuple(_make_ablation_row(row) for row in ablation.measured)
    if rows:
        yield Grid(("without", ">time", ">speed-up", "what was changed"), rows, wraps=3)
    for row in ablation.measured:
        for line in row.lines:
            if line.gain >= _CLOSE:
                text = f"{line.line}: {figures.format_speedup(line.gain)} of that alone"
                yield TextLine(text, row.title, indent=1)
    for pair in ablation.pairs:
        yield _show_pair(pair)
    yield from _show_shape_changes(ablation)
    for refusal in ablation.refused:
        if refusal.code != _NOTHING:
            yield _show_refusal(refusal)
    yield _show_verdict(ablation)


def format_spread(ablation: AblationRecord) -> TextOrEmpty:
    """Return half of the 95 % interval of the time before, in brackets; "" where it is not known."""
    if ablation.low is None or ablation.high is None:
        return ""
    spread = words.format_half_width(Interval(ablation.base, ablation.low, ablation.high))
    if not spread:
        return ""
    return f" ({spread})"


def _make_ablation_row(row: MeasuredAblation) -> tuple[str, ...]:
    gain = figures.format_speedup(row.gain)
    if not row.reachable:
        gain = f"at most {gain}"
    elif row.control > _COSTS:  # choosing costs: so much is sure, and no more than the other
        gain = f"{figures.format_speedup(row.gain / row.control)} to {gain}"
    if not row.kept:
        code = row.changed
    else:
        code = f"{row.changed}; {row.kept}"
    return (row.title, figures.format_seconds(row.time), gain, code)


def _show_pair(pair: MeasuredPair) -> Block:
    alone = " and ".join(figures.format_speedup(gain) for gain in pair.alone)
    if pair.hidden:
        why = "each hides the other"
    else:
        why = "they overlap, and do not add up"
    text = f"at most {figures.format_speedup(pair.gain)}, alone {alone}: {why}"
    return TextLine(text, f"without {pair.titles[0]} and {pair.titles[1]}")


def _show_shape_changes(ablation: AblationRecord) -> Iterator[Block]:
    shape = ablation.shape
    words = []
    for ratio, what in (
        (shape.half_occupancy, "half of the warps"),
        (shape.quarter_occupancy, "a quarter of them"),
        (shape.half_grid, "half of the blocks"),
        (shape.double_grid, "twice the blocks"),
        (shape.cold, "a cold L2"),
    ):
        if ratio is not None:
            words.append(f"{what} {ratio:.2f}")
    if words:
        yield TextLine(f"times as long with {', '.join(words)}", "launch")
    if shape.idle is not None and shape.longest_block is not None:
        yield TextLine(
            f"SMs had no block for {figures.format_share(shape.idle)} of their time; "
            f"the longest block took {shape.longest_block:.2f} times the median",
            "blocks",
        )


def _show_refusal(refusal: Refusal) -> Block:
    how = "together" if " and " in refusal.ablation else "separately"  # of a pair, or of one
    text = f"could not be removed {how}: {refusal.observed}"
    if refusal.threshold:
        text += f" (needed: {refusal.threshold})"
    if refusal.remedy:
        text += f"; {refusal.remedy}"
    return TextLine((TextSpan(text, "dim"),), refusal.ablation)


def _show_verdict(ablation: AblationRecord) -> Block:
    verdict = ablation.verdict
    if not verdict.cause and verdict.missing:
        text = f"cannot tell: {verdict.missing.observed}; {verdict.missing.remedy}"
        return TextLine(text, verdict.bound if verdict.bound != "unknown" else "")
    if verdict.limiter:
        limiter = f" ({verdict.limiter})"
    else:
        limiter = ""
    text = f"{verdict.cause}{limiter}: {verdict.because}"
    other = _describe_overlap(ablation)
    return TextLine(f"{text}{other}", verdict.bound)


def _describe_overlap(ablation: AblationRecord) -> TextOrEmpty:
    """Return which two causes do not add up: each is worth something, and together more than all."""
    reachable = [row for row in ablation.measured if row.reachable and row.sure_gain >= _ALONE]
    if len(reachable) < 2 or ablation.pairs:
        return ""
    saved = sum(1 - 1 / row.gain for row in reachable)
    names = " and ".join(row.title for row in reachable[:2])
    if saved > 1:
        return f"; {names} overlap: their separate gains add up to more than the total time"
    return f"; {names} are measured one at a time: each hides part of the other"
