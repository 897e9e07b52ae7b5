"""What the cost model answers  ->  blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from profkit.diagnosis.estimate.whatif import Change
from profkit.diagnosis.rule import Expectation
from profkit.evidence.runs.runs import Run
from profkit.show.text import figures
from profkit.show.text.blocks import Block, Grid, Heading, Line


def answers(
    variant: str, changes: Iterable[Change], said: Sequence[tuple[Run, Expectation]]
) -> Iterator[Block]:
    """One row per case: its time now, and what to expect of the changes."""
    asked = ", ".join(f"{c.metric} {c.op} {c.value:g}" for c in changes)
    yield Heading(f"{variant}, if {asked}")
    yield Grid(
        ("case", ">time now", ">expected", ">time then"),
        tuple(
            (str(run.case), figures.seconds(run.row["time"]), figures.expect(expect),
             figures.seconds(run.row["time"] / expect.gain))
            for run, expect in said
        ),
    )  # fmt: skip
    yield Line("time under ncu; four times of five the speed-up is in the interval")
