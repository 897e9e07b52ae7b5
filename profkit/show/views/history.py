"""A gate's report, the history, the answer to a question  ->  blocks: what changed, and was it real."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite, isnan
from typing import TYPE_CHECKING, Any

from profkit.evidence.gate import GateReport, GateSubject
from profkit.evidence.noise import HistoryStep, MachineNoise
from profkit.reports import figures
from profkit.show.text.blocks import Block, Columns, Grid, Heading, TextLine, make_grid

if TYPE_CHECKING:
    import pandas as pd


def show_history_steps(steps: Sequence[HistoryStep]) -> Iterator[Block]:
    """Yield every subject's runs, oldest first, each against the one before it."""
    if not steps:
        yield TextLine("the history is empty: profkit history --add, or --log")
    columns: Columns[HistoryStep] = {
        "measured": lambda step: (step.run.made or "")[:16].replace("T", " "),
        "commit": lambda step: (step.run.commit or "")[:10] + " *" * bool(step.run.dirty),
        "GPU": lambda step: step.run.gpu or "",
        ">time": lambda step: figures.seconds(step.run.median) if step.run.median else "",
        ">speed-up": lambda step: f"{step.time.speedup.median:.3g}x" if step.time else "",
        "": lambda step: f"{step.answer}; {step.note}" if step.note else step.answer,
        ">seen from": lambda step: say_difference(step.smallest_change),
    }
    for subject in dict.fromkeys(step.run.subject for step in steps):
        yield Heading(subject)
        yield make_grid((step for step in steps if step.run.subject == subject), columns, wraps=5)
    if any(step.run.dirty for step in steps):
        yield TextLine("*: files differed from the commit when it was measured")


def say_difference(share: float | None, unknown: str = "") -> str:
    if share is None or isnan(share):
        return unknown
    return figures.format_percent(share, 2)


def show_noise(machines: Sequence[MachineNoise]) -> Iterator[Block]:
    if not machines:
        yield TextLine("no A/A comparison: no variant was timed against itself")
        return
    columns: Columns[MachineNoise] = {
        "GPU": lambda machine: machine.gpu,
        ">processes": lambda machine: str(machine.processes),
        ">A/A pairs": lambda machine: str(machine.pairs),
        ">rounds": lambda machine: str(machine.rounds),
        ">within": lambda machine: figures.format_percent(machine.within, 2),
        ">between": lambda machine: say_difference(machine.between, "not known"),
        ">compare": lambda machine: str(machine.compare_alarms),
        ">gate": lambda machine: str(machine.gate_alarms),
    }
    yield make_grid(machines, columns)
    yield TextLine(
        "within, between: relative standard deviation of the ratio of two medians in a process, "
        "and of a median from process to process; compare, gate: false alarms"
    )


def show_schema(version: str, columns: Sequence[Mapping[str, str]]) -> Iterator[Block]:
    yield Heading(f"{version}: times in seconds, clocks in Hz; null where not known")
    head = ("table", "column", "type", "key")
    yield Grid(head, tuple(tuple(row[name] for name in head) for row in columns))


def show_query_answer(frame: pd.DataFrame) -> Iterator[Block]:
    kinds = zip(frame.columns, frame.dtypes, strict=True)
    head = tuple(f">{name}" if kind.kind in "iuf" else str(name) for name, kind in kinds)
    rows = (tuple(map(format_table_cell, row)) for row in frame.itertuples(index=False))
    yield Grid(head, tuple(rows), asked=True)


def list_plain_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows as plain values; null where not known."""
    return [
        {str(k): convert_to_plain(v) for k, v in row.items()} for row in frame.to_dict("records")
    ]


def convert_to_plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        return [convert_to_plain(v) for v in value]
    if isinstance(value, float):
        if isfinite(value):
            return value
        return None
    known = value is None or isinstance(value, str | int | bool)
    if known:
        return value
    if str(value) in ("NaT", "<NA>"):
        return None
    return str(value)


def format_table_cell(value: Any) -> str:
    plain = convert_to_plain(value)
    if plain is None:
        return ""
    if isinstance(plain, float):
        return f"{plain:.6g}"
    return str(plain)


def show_gate_report(report: GateReport) -> Iterator[Block]:
    """Yield the summary; then why it is closed, what moved, and what would have been seen."""
    state = {0: "open", 1: "closed", 2: "could not tell"}[report.status]
    yield Heading(f"Gate {state}: {report.summary}")
    for status, subjects in report.closing.items():
        for subject in subjects:
            yield TextLine(f"{subject.name}: {subject.because}", f"exit {status}")
    for problem in report.problems:
        yield TextLine(problem.message, "exit 2")
    if listed := [subject for subject in report.subjects if subject.answer != "same"]:
        columns: Columns[GateSubject] = {
            "subject": lambda s: s.name,
            "answer": lambda s: s.answer,
            ">before": lambda s: figures.seconds(s.time.before.median) if s.time else "",
            ">after": lambda s: figures.seconds(s.time.after.median) if s.time else "",
            ">seen from": lambda s: say_difference(s.smallest_change),
            "cause": lambda s: s.cause or "",
            "because": lambda s: s.because,
        }
        yield make_grid(listed, columns, wraps=6)
    judged = [s.smallest_change for s in report.subjects if not isnan(s.smallest_change)]
    if judged:
        smallest, largest = (figures.format_percent(f(judged), 2) for f in (min, max))
        yield TextLine(
            f"changes of {smallest} to {largest} would have been detected with 95 % power, at one "
            "false alarm in 1,000"
        )
    if assumed := report.assumed:
        yield TextLine(f"{assumed.sentence}: profkit bench --aa measures it on this GPU")
    same = [s for s in report.subjects if s.answer == "same"]
    if unchanged := [s for s in same if s.time is None]:
        yield TextLine(
            f"{len(unchanged)} of {len(same)} unchanged runs have the same machine code or the "
            "same record: their times were not compared"
        )
