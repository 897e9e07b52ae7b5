"""A summary of one variant  ->  blocks for a pull request: decision, figures, what changed, gates."""

from __future__ import annotations

from collections.abc import Iterator

from profkit.evidence.summary import METRICS, Summary, SummaryColumn
from profkit.show.text import figures
from profkit.show.text.blocks import Block, Grid, Heading, TextLine

_NAMES = {"l2_hit": "L2 hit rate", "dram_busy": "DRAM, of peak", "tensor_busy": "tensor, of peak",
          "occupancy": "occupancy", "registers": "registers per thread",
          "shared_block": "shared memory per block"}  # fmt: skip
_KEPT = {True: "kept", False: "broken", None: "unknown"}


def ladder_summary(found: Summary) -> Iterator[Block]:
    """Every part of the summary; the decision first."""
    variant = found.sides[0]
    yield Heading(f"{variant.name} at case {found.case}")
    yield TextLine(found.because, found.decision)
    yield Grid(
        ("", *(f">{s.name} ({s.role})" for s in found.sides)),
        (
            ("time per call", *map(_time, found.sides)),
            (f"{variant.name} is faster by", *map(_against, found.sides)),
            *((_NAMES[m], *(_metric(s, m) for s in found.sides)) for m in METRICS),
            ("bound: limiter", *(s.bound or figures.NOT_COLLECTED for s in found.sides)),
        ),
        bands=True,
    )
    if variant.because:
        yield TextLine(variant.because, "verdict")
    yield from _changes(found)
    for gate in found.gates:
        asked = "" if gate.gate.binding else " (told, not asked)"
        failing = f": not holding are {', '.join(gate.failing)}" if gate.failing else ""
        yield TextLine(f"gate {gate.gate.name}{asked}{failing}", "met" if gate.met else "not met")


def _changes(found: Summary) -> Iterator[Block]:
    change = found.change
    if change is None:
        return
    findings = [f for launch in change.launches for f in launch.findings]
    for what in ("gone", "new"):
        rules = [f.rule for f in findings if f.what == what]
        if rules:
            yield TextLine(", ".join(rules), what)
    for p in change.predictions:
        yield TextLine(f"{p.because} ({p.said}: {p.rule})", _KEPT[p.kept])
    yield from (TextLine(note, "note") for note in change.notes)


def _time(side: SummaryColumn) -> str:
    if side.time is None:
        return "not timed"
    half = (side.time.high - side.time.low) / 2 / side.time.median
    return f"{figures.seconds(side.time.median)} ± {100 * half:.1f} %"


def _against(side: SummaryColumn) -> str:
    if side.against is None:
        return ""
    mark = "~" if side.against.answer == "cannot tell" else ""
    return f"{mark}{side.against.speedup.median:.2f}x"


def _metric(side: SummaryColumn, name: str) -> str:
    return figures.metric_text(name, side.metrics.get(name))
