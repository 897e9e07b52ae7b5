"""A gate's report  ->  blocks: the counts, every reason to close it, and a table of what moved."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan

from profkit.evidence.gate.report import GateReport, GateSubject
from profkit.show.text import figures
from profkit.show.text.blocks import Block, Grid, Heading, Line

_QUIET = ("same",)  # counted, not listed


def gate(report: GateReport) -> Iterator[Block]:
    """The summary first; then why it is closed, what moved, and what would have been seen."""
    state = {0: "open", 1: "closed", 2: "could not tell"}[report.status]
    yield Heading(f"Gate {state}: {report.summary}")
    for status, subjects in report.closing.items():
        for subject in subjects:
            yield Line(f"{subject.name}: {subject.because}", f"exit {status}")
    for problem in report.problems:
        yield Line(problem.message, "exit 2")
    listed = [s for s in report.subjects if s.answer not in _QUIET]
    if listed:
        head = ("subject", "answer", ">before", ">after", ">seen from", "cause", "because")
        yield Grid(head, tuple(_row(subject) for subject in listed), wraps=6)
    judged = [s.smallest for s in report.subjects if not isnan(s.smallest)]
    if judged:
        yield Line(
            f"changes of {min(judged):.2%} to {max(judged):.2%} would have been seen with 95 % "
            "power, at one false alarm in 1,000"
        )
    same = [s for s in report.subjects if s.answer == "same"]
    unchanged = [s for s in same if s.time is None]
    if unchanged:
        yield Line(f"{len(unchanged)} of the {len(same)} that are the same are the same machine "
                   "code or the same record: their time was not looked at")  # fmt: skip


def _row(subject: GateSubject) -> tuple[str, ...]:
    time = subject.time
    sides = (figures.seconds(x.median) for x in (time.before, time.after)) if time else ("", "")
    seen = "" if isnan(subject.smallest) else f"{subject.smallest:.2%}"
    return (subject.name, subject.answer, *sides, seen, subject.cause, subject.because)
