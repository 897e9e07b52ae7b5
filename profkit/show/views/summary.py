"""A summary of one variant  ->  blocks for a pull request: decision, figures, what changed, gates."""

from __future__ import annotations

from collections.abc import Iterator

from profkit.evidence.summary import METRICS, Summary, SummaryColumn
from profkit.show.text import figures
from profkit.show.text.blocks import Block, Grid, Heading, TextLine
from profkit.show.views.claims import gate_line
from profkit.show.views.comparison import changed_rules, factor, prediction_line

_NAMES = {"l2_hit": "L2 hit rate", "dram_busy": "DRAM, of peak", "tensor_busy": "tensor, of peak",
          "occupancy": "occupancy", "registers": "registers per thread",
          "shared_block": "shared memory per block"}  # fmt: skip


def ladder_summary(summary: Summary) -> Iterator[Block]:
    """Every part of the summary; the decision first."""
    sides, variant = summary.sides, summary.sides[0]
    yield Heading(f"{variant.name} at case {summary.case}")
    yield TextLine(summary.because, summary.decision)
    yield Grid(
        ("", *(f">{s.name} ({s.role})" for s in sides)),
        (
            ("time per call", *map(_time, sides)),
            (f"{variant.name} is faster by", *(factor(s.against) for s in sides)),
            *(
                (_NAMES[m], *(figures.metric_text(m, s.metrics.get(m)) for s in sides))
                for m in METRICS
            ),
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


def _time(side: SummaryColumn) -> str:
    if side.time is None:
        return "not timed"
    half = (side.time.high - side.time.low) / 2 / side.time.median
    return f"{figures.seconds(side.time.median)} ± {100 * half:.1f} %"
