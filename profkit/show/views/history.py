"""A gate's report, the history, the answer to a question  ->  blocks: what changed, and was it real."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite, isnan
from typing import TYPE_CHECKING, Any

from profkit.evidence.gate import GateReport, GateSubject
from profkit.evidence.noise import HistoryStep, MachineNoise
from profkit.reports import figures
from profkit.show.text.blocks import Block, Columns, Grid, Heading, TextLine, make_grid

if TYPE_CHECKING:
    import pandas as pd

    from profkit.units import Share, TextOrEmpty


def show_history_steps(steps: Sequence[HistoryStep]) -> Iterator[Block]:
    """Yield every subject's runs, oldest first, each against the one before it."""
    if not steps:
        yield TextLine("the history is empty: profkit history --add, or --log")
    subjects: dict[str, list[tuple[str, ...]]] = {}
    for step in steps:
        subjects.setdefault(step.run.subject, []).append(_list_history_cells(step))
    head = ("measured", "commit", "GPU", ">time", ">speed-up", "", ">seen from")
    for subject, cells in subjects.items():
        yield Heading(subject)
        yield Grid(head, tuple(cells), wraps=5)
    if any(step.run.dirty for step in steps):
        yield TextLine("*: files differed from the commit when it was measured")


def _list_history_cells(step: HistoryStep) -> tuple[str, ...]:
    run = step.run
    commit = (run.commit or "")[:10]
    if run.dirty:
        commit += " *"
    time = speedup = ""
    if run.median:
        time = figures.format_seconds(run.median)
    if step.time:
        speedup = f"{step.time.speedup.median:.3g}x"
    answer: str = step.answer
    if step.note:
        answer = f"{step.answer}; {step.note}"
    measured = (run.made or "")[:16]
    seen_from = format_percent_or_unknown(step.smallest_change)
    return measured.replace("T", " "), commit, run.gpu or "", time, speedup, answer, seen_from


def format_percent_or_unknown(share: Share | None, unknown: str = "") -> str:
    if share is None or isnan(share):
        return unknown
    return figures.format_percent(share, 2)


def show_noise(machines: Sequence[MachineNoise]) -> Iterator[Block]:
    """Yield how much times vary on each machine, and the false alarms that come of it."""
    if not machines:
        yield TextLine("no A/A comparison: no variant was timed against itself")
        return
    columns: Columns[MachineNoise] = {
        "GPU": lambda machine: machine.gpu,
        ">processes": lambda machine: str(machine.processes),
        ">A/A pairs": lambda machine: str(machine.pairs),
        ">rounds": lambda machine: str(machine.rounds),
        ">within": lambda machine: figures.format_percent(machine.within, 2),
        ">between": lambda machine: format_percent_or_unknown(machine.between, "not known"),
        ">compare": lambda machine: str(machine.compare_alarms),
        ">gate": lambda machine: str(machine.gate_alarms),
    }
    yield make_grid(machines, columns)
    yield TextLine(
        "within, between: relative standard deviation of the ratio of two medians in a process, "
        "and of a median from process to process; compare, gate: false alarms"
    )


def show_history_schema(version: str, columns: Sequence[Mapping[str, str]]) -> Iterator[Block]:
    """Yield the tables and columns of the history, as a query names them."""
    yield Heading(f"{version}: times in seconds, clocks in Hz; null where not known")
    head = ("table", "column", "type", "key")
    yield Grid(head, tuple(tuple(row[name] for name in head) for row in columns))


def show_query_answer(frame: pd.DataFrame) -> Iterator[Block]:
    """Yield the rows of an answer as a table, all its columns."""
    kinds = zip(frame.columns, frame.dtypes, strict=True)
    head = tuple(f">{name}" if kind.kind in "iuf" else str(name) for name, kind in kinds)
    rows = (tuple(map(format_table_cell, row)) for row in frame.itertuples(index=False))
    yield Grid(head, tuple(rows), asked=True)


def list_plain_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows as plain values; null where not known."""
    return [
        {str(k): convert_to_json_value(v) for k, v in row.items()}
        for row in frame.to_dict("records")
    ]


def convert_to_json_value(value: Any) -> Any:
    """Return a value of a frame as one that JSON has; None where it is not known."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        return [convert_to_json_value(v) for v in value]
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


def format_table_cell(value: Any) -> TextOrEmpty:
    plain = convert_to_json_value(value)
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
    yield from _show_moved_subjects(report.subjects)
    judged = [s.smallest_change for s in report.subjects if not isnan(s.smallest_change)]
    if judged:
        smallest = format_percent_or_unknown(min(judged))
        largest = format_percent_or_unknown(max(judged))
        changes = f"a change of {largest}"
        if smallest != largest:
            changes = f"changes of {smallest} to {largest}"
        yield TextLine(
            f"{changes} would have been detected with 95 % power, at one false alarm in 1,000"
        )
    if assumed := report.assumed_spread:
        yield TextLine(f"{assumed.sentence}: profkit bench --aa measures it on this GPU")
    same = [subject for subject in report.subjects if subject.answer == "same"]
    if unchanged := [subject for subject in same if subject.time is None]:
        yield TextLine(
            f"{len(unchanged)} of {len(same)} unchanged runs have the same machine code or the "
            "same record: their times were not compared"
        )


def _show_moved_subjects(subjects: Iterable[GateSubject]) -> Iterator[Block]:
    """Yield the subjects that are not the same as before, with their times where both were timed."""
    cells = []
    for subject in subjects:
        if subject.answer == "same":
            continue
        before = after = ""
        if subject.time:
            before = figures.format_seconds(subject.time.before.median)
            after = figures.format_seconds(subject.time.after.median)
        seen_from = format_percent_or_unknown(subject.smallest_change)
        cause = subject.cause or ""
        row = (subject.name, subject.answer, before, after, seen_from, cause, subject.because)
        cells.append(row)
    head = ("subject", "answer", ">before", ">after", ">seen from", "cause", "because")
    if cells:
        yield Grid(head, tuple(cells), wraps=6)
