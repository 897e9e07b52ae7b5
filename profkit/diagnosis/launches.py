"""What the reader found  ->  judged launches, alike ones in one row, the worst row first."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import isfinite, isnan
from typing import TYPE_CHECKING, Any

from profkit.diagnosis.engine import judge
from profkit.diagnosis.rule import Diagnosis, Finding, Line
from profkit.diagnosis.rules import BY_ID
from profkit.reports.metrics import CATALOGUE

if TYPE_CHECKING:
    from pandas import DataFrame

    from profkit.reports.frame import Part, Reports

Dims = tuple[int, int, int]
_IDENTITY = ("report", "status", "device", "cc", "grid", "block", "variant", "case")


@dataclass(frozen=True)
class NvidiaRule:
    """One result of NVIDIA's own rules; speedup as a share of the duration, None if not given."""

    rule: str
    title: str
    message: str
    speedup: float | None
    scope: str


@dataclass(frozen=True)
class HotLine:
    """A source line with many stall samples, or an instruction where there is no source.

    Attributes:
        file: Source file, None for an instruction.
        line: Its line, None for an instruction.
        text: The line, or the instruction where the report has no source.
        samples: Stall samples there.
        share: Of all samples of the launch, 0-1.
        stall: The leading warp state there; "" where no warp was found.
        stall_share: Of the line's samples, 0-1.
    """

    file: str | None
    line: int | None
    text: str
    samples: int
    share: float
    stall: str
    stall_share: float


@dataclass(frozen=True)
class Judged:
    """One launch and the verdict on it; values are the frame's, in SI, NaN if not collected."""

    report: str
    index: int
    kernel: str
    device: str | None
    cc: str | None
    grid: Dims | None
    block: Dims | None
    variant: str | None
    case: str | None
    status: str
    values: dict[str, float]
    diagnosis: Diagnosis
    nvidia: tuple[NvidiaRule, ...] = ()
    lines: tuple[HotLine, ...] = ()

    @property
    def time(self) -> float:
        """Duration under ncu in s; NaN when not collected."""
        return self.values.get("time", float("nan"))

    @property
    def top(self) -> Finding | None:
        """The finding that leads: the verdict's cause; None when nothing fires."""
        first = self.diagnosis.findings[:1]
        return first[0] if first and first[0].status == "fires" else None

    @property
    def saved(self) -> float:
        """Seconds that the leading finding could save: time x (1 - 1 / gain); 0 if not known."""
        gain = self.top.gain if self.top else None
        if gain is None or not isfinite(gain) or gain <= 1 or isnan(self.time):
            return 0.0
        return self.time * (1 - 1 / gain)


@dataclass(frozen=True)
class Row:
    """Launches of one kernel with one grid and block in one report."""

    launches: tuple[Judged, ...]

    @property
    def times(self) -> list[float]:
        """The durations that are known, in s, shortest first."""
        return sorted(run.time for run in self.launches if not isnan(run.time))

    @property
    def total(self) -> float:
        """All of its time in s."""
        return sum(self.times)

    @property
    def saved(self) -> float:
        """Seconds that its launches' leading findings could save."""
        return sum(run.saved for run in self.launches)

    @property
    def shown(self) -> Judged:
        """The launch that stands for the row: the one of median time."""
        if not self.times:
            return self.launches[0]
        median = statistics.median_low(self.times)
        return next(run for run in self.launches if run.time == median)

    def replaced(self, old: Judged, new: Judged) -> Row:
        """The row with one launch in the place of another."""
        return Row(tuple(new if run is old else run for run in self.launches))


def judged(reports: Reports) -> list[Judged]:
    """The verdict on every launch, in the order of the files; makes no frame."""
    return [run for part in reports.parts for run in _of_part(part)]


def _of_part(part: Part) -> Iterator[Judged]:
    rules: dict[int, list[NvidiaRule]] = {}
    for _, launch, rule, title, message, speedup, scope in part.rules:
        about = NvidiaRule(rule, title, message, speedup if isfinite(speedup) else None, scope)
        rules.setdefault(launch, []).append(about)
    for run in part.launches():
        values = {name: run[name] for name in CATALOGUE}
        yield Judged(
            **{name: run[name] for name in _IDENTITY},
            index=run["launch"],
            kernel=run["kernel"] or "",
            values=values,
            diagnosis=judge(values, run["status"]),
            nvidia=tuple(rules.get(run["launch"], ())),
        )


def rows(launches: Iterable[Judged], *, every: bool = False) -> list[Row]:
    """Alike launches in one row, worst first.

    Args:
        launches: Judged launches.
        every: One row per launch instead.

    Returns:
        Rows by the time that their leading findings could save, then by their time.
    """
    alike: dict[tuple[Any, ...], list[Judged]] = {}
    for n, run in enumerate(launches):
        key = (run.report, run.kernel, run.grid, run.block, run.status)
        alike.setdefault((*key, n) if every else key, []).append(run)
    found = [Row(tuple(group)) for group in alike.values()]
    return sorted(found, key=lambda row: (-row.saved, -row.total))


def table(reports: Reports, launches: Sequence[Judged]) -> DataFrame:
    """The frame with what was judged beside it.

    Returns:
        A copy of reports.launches with bound, limiter, because, finding (the leading one) and gain
        (speed-up factor, NaN when none is given) behind the identity columns.
    """
    frame = reports.launches.copy()
    frame.attrs = {}  # the files' status is not the table's, and no file format can hold it
    at = list(frame.columns).index(next(iter(CATALOGUE)))
    tops = [run.top for run in launches]
    judgement: dict[str, list[Any]] = {
        "bound": [run.diagnosis.bound for run in launches],
        "limiter": [run.diagnosis.limiter for run in launches],
        "because": [run.diagnosis.because for run in launches],
        "finding": [top.rule if top else None for top in tops],
        "gain": [float("nan") if not top or top.gain is None else top.gain for top in tops],
    }
    for offset, (name, column) in enumerate(judgement.items()):
        frame.insert(at + offset, name, column)
    return frame


def with_lines(runs: Sequence[Judged], count: int, around: int = 0) -> list[Judged]:
    """The launches with their hottest lines, which their firing findings point at.

    Args:
        runs: Judged launches.
        count: How many lines of each.
        around: So many lines of code before and after each, behind them.
    """
    from profkit.reports.hotlines import hot_lines_each

    frames = hot_lines_each([(run.report, run.index) for run in runs], count, around=around)
    return [_lined(run, frame) for run, frame in zip(runs, frames, strict=True)]


def _lined(run: Judged, frame: DataFrame) -> Judged:
    lines = tuple(
        HotLine(x["file"] or None, x["line"] if isinstance(x["line"], int) else None,
                x["text"] or x["sass"] or "", x["samples"], x["share"], x["stall"] or "",
                x["stall_share"])
        for x in frame.to_dict("records")
    )  # fmt: skip
    on_lines = run.diagnosis.bound != "launch"  # no line makes a grid too small
    findings = tuple(
        replace(f, where=_where(f, lines, leads=f is run.top and on_lines))
        if f.status == "fires"
        else f
        for f in run.diagnosis.findings
    )
    return replace(run, lines=lines, diagnosis=replace(run.diagnosis, findings=findings))


def _where(finding: Finding, lines: Sequence[HotLine], *, leads: bool) -> tuple[Line, ...]:
    """The lines that stall on what the finding is about; all of them for the leading one."""
    about = {finding.rule.replace("-", "_"), *BY_ID[finding.rule].explains}
    known = [
        Line(x.file, x.line, x.stall, x.share)
        for x in lines
        if x.stall and x.file and x.line is not None
    ]
    return tuple([x for x in known if x.stall in about] or (known if leads else []))
