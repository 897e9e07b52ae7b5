"""A gate's report, the history, the answer to a question  ->  blocks: what changed, and was it real."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite, isnan
from typing import TYPE_CHECKING, Any

from profkit.evidence.gate_report import GateReport, GateSubject
from profkit.evidence.history.noise import MachineNoise
from profkit.evidence.history.steps import HistoryStep
from profkit.reports import figures
from profkit.show.text.blocks import Block, Grid, Heading, TextLine

if TYPE_CHECKING:
    import pandas as pd

_QUIET = ("same",)  # counted, not listed
_HEAD = ("measured", "commit", "GPU", ">time", ">speed-up", "", ">seen from")


def history_blocks(steps: Sequence[HistoryStep]) -> Iterator[Block]:
    """Every subject's runs, oldest first, each against the one before it."""
    if not steps:
        yield TextLine("nothing was measured: profkit history --add, or --log")
    subjects = dict.fromkeys(step.run.subject for step in steps)
    for subject in subjects:
        yield Heading(subject)
        rows = tuple(_row(step) for step in steps if step.run.subject == subject)
        yield Grid(_HEAD, rows, wraps=5)
    if any(step.run.dirty for step in steps):
        yield TextLine("*: files differed from the commit when it was measured")


def _row(step: HistoryStep) -> tuple[str, ...]:
    run, time = step.run, step.time
    return (
        (run.made or "")[:16].replace("T", " "),
        (run.commit or "")[:10] + (" *" if run.dirty else ""),
        run.gpu or "",
        figures.seconds(run.median) if run.median else "",
        f"{time.speedup.median:.3g}x" if time else "",
        f"{step.answer}; {step.note}" if step.note else step.answer,
        f"{step.smallest_change:.2%}" if step.smallest_change is not None else "",
    )


def noise_blocks(machines: Sequence[MachineNoise]) -> Iterator[Block]:
    """What A/A runs found on each GPU."""
    if not machines:
        yield TextLine("no A/A comparison: nothing was timed twice")
        return
    head = (
        "GPU",
        ">processes",
        ">A/A pairs",
        ">rounds",
        ">within",
        ">between",
        ">compare",
        ">gate",
    )
    yield Grid(head, tuple(_noise_row(machine) for machine in machines))
    yield TextLine(
        "within, between: relative standard deviation of the ratio of two medians in a process, "
        "and of a median from process to process; compare, gate: false alarms"
    )


def _noise_row(machine: MachineNoise) -> tuple[str, ...]:
    between = f"{machine.between:.2%}" if machine.between is not None else "not known"
    counts = machine.processes, machine.pairs, machine.rounds
    alarms = machine.compare_alarms, machine.gate_alarms
    return (machine.gpu, *map(str, counts), f"{machine.within:.2%}", between, *map(str, alarms))


def schema_blocks(version: str, columns: Sequence[Mapping[str, str]]) -> Iterator[Block]:
    """The tables of a history and their columns."""
    yield Heading(f"{version}: times in seconds, clocks in Hz; null where not known")
    head = ("table", "column", "type", "key")
    yield Grid(head, tuple(tuple(row[name] for name in head) for row in columns))


def answer_blocks(frame: pd.DataFrame) -> Iterator[Block]:
    """The rows of an answer."""
    numeric = [kind.kind in "iuf" for kind in frame.dtypes]
    head = tuple(
        f"{'>' * number}{name}" for name, number in zip(frame.columns, numeric, strict=True)
    )
    cells = ([_cell(value) for value in row] for row in frame.itertuples(index=False))
    yield Grid(head, tuple(map(tuple, cells)), asked=True)


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows as plain values; null where not known."""
    return [{str(k): _plain(v) for k, v in row.items()} for row in frame.to_dict("records")]


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, float):
        return value if isfinite(value) else None
    known = value is None or isinstance(value, str | int | bool)
    return value if known else None if str(value) in ("NaT", "<NA>") else str(value)


def _cell(value: Any) -> str:
    plain = _plain(value)
    if plain is None:
        return ""
    return f"{plain:.6g}" if isinstance(plain, float) else str(plain)


def gate_blocks(report: GateReport) -> Iterator[Block]:
    """The summary first; then why it is closed, what moved, and what would have been seen."""
    state = {0: "open", 1: "closed", 2: "could not tell"}[report.status]
    yield Heading(f"Gate {state}: {report.summary}")
    for status, subjects in report.closing.items():
        for subject in subjects:
            yield TextLine(f"{subject.name}: {subject.because}", f"exit {status}")
    for problem in report.problems:
        yield TextLine(problem.message, "exit 2")
    listed = [s for s in report.subjects if s.answer not in _QUIET]
    if listed:
        head = ("subject", "answer", ">before", ">after", ">seen from", "cause", "because")
        yield Grid(head, tuple(_gate_row(subject) for subject in listed), wraps=6)
    judged = [s.smallest_change for s in report.subjects if not isnan(s.smallest_change)]
    if judged:
        yield TextLine(
            f"changes of {min(judged):.2%} to {max(judged):.2%} would have been seen with 95 % "
            "power, at one false alarm in 1,000"
        )
    if assumed := report.assumed:
        yield TextLine(f"{assumed.sentence}: profkit bench --aa measures it on this GPU")
    same = [s for s in report.subjects if s.answer == "same"]
    unchanged = [s for s in same if s.time is None]
    if unchanged:
        yield TextLine(f"{len(unchanged)} of the {len(same)} that are the same are the same machine "
                   "code or the same record: their time was not looked at")  # fmt: skip


def _gate_row(subject: GateSubject) -> tuple[str, ...]:
    time = subject.time
    sides = (figures.seconds(x.median) for x in (time.before, time.after)) if time else ("", "")
    seen = "" if isnan(subject.smallest_change) else f"{subject.smallest_change:.2%}"
    return (subject.name, subject.answer, *sides, seen, subject.cause, subject.because)
