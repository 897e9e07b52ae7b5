"""What the reader found  ->  judged launches, alike ones in one row, the worst row first."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import isfinite, isnan, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profkit.diagnosis.engine import gains, judge_launch, or_nan
from profkit.diagnosis.rule import Diagnosis, Finding, Producer, Rule, SourceShare
from profkit.diagnosis.rules import BY_ID
from profkit.errors import ProfkitError
from profkit.reports.frame import frame_rows, without_attrs
from profkit.reports.metrics import CATALOGUE

if TYPE_CHECKING:
    from pandas import DataFrame

    from profkit.reports.frame import Part, Reports
    from profkit.reports.hotlines import CounterLine, HotLines, LinesRequest

Dims = tuple[int, int, int]
LINES = 3  # of source that a finding names unless more are asked for
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
    values: Mapping[str, float]
    diagnosis: Diagnosis
    nvidia: tuple[NvidiaRule, ...] = ()
    lines: tuple[HotLine, ...] = ()

    @property
    def time(self) -> float:
        """Duration under ncu in s; NaN when not collected."""
        return self.values.get("time", float("nan"))

    @property
    def top(self) -> Finding | None:
        """The finding that leads: the verdict's cause; None when nothing fires but notes."""
        return self.diagnosis.top

    @property
    def saved(self) -> float:
        """Seconds that mending the leading finding is expected to save; 0 at a roof, or not known."""
        saves = self.diagnosis.saves(self.time)
        return 0.0 if isnan(saves) else saves


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
        """Seconds of all its time that fixing what is said of the launch shown should save; else 0."""
        saves = self.shown.diagnosis.saves(self.total)
        return 0.0 if isnan(saves) else saves

    @property
    def shown(self) -> Judged:
        """The launch that stands for the row: the one of median time."""
        if not self.times:
            return self.launches[0]
        median = sorted(self.times)[(len(self.times) - 1) // 2]
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
        nvidia_rule = NvidiaRule(
            rule, title, message, speedup if isfinite(speedup) else None, scope
        )
        rules.setdefault(launch, []).append(nvidia_rule)
    for run, values in zip(part.launches(), part.metrics(), strict=True):
        yield Judged(
            **{name: run[name] for name in _IDENTITY},
            index=run["launch"],
            kernel=run["kernel"] or "",
            values=values,
            diagnosis=judge_launch(run, run["status"]),
            nvidia=tuple(rules.get(run["launch"], ())),
        )


def diagnose_frame(runs: DataFrame, rules: Sequence[Rule] = ()) -> DataFrame:
    """Every finding of every launch.

    Args:
        runs: A frame from `profkit.load`, one row per launch.
        rules: Rules of your own, asked beside profkit's.

    Returns:
        One row per launch and rule, in the order of the launches: report, launch, kernel, variant,
        case, time (s), bound, limiter, because, headroom (speed-up left with the same work), saves (s
        that the leading finding is expected to save; all of the launch), rule, status (fires, clear,
        unknown), cause, gain (speed-up factor, an upper bound), expect, expect_low, expect_high (what
        people got who fixed it, and the interval, which is to hold four times of five), evidence, where
        (the source lines of a finding that fires, most of its cause first, three at most; empty where
        the report is not there, or has no lines), try. NaN where a number is not known.
    """
    import pandas as pd

    launches = [_of_row(row, rules) for row in frame_rows(runs)]
    table = [
        {
            "report": run.report, "launch": run.index, "kernel": run.kernel, "variant": run.variant,
            "case": run.case, "time": run.time, "bound": run.diagnosis.bound,
            "limiter": run.diagnosis.limiter,
            "because": run.diagnosis.because, "headroom": or_nan(run.diagnosis.headroom),
            "saves": run.diagnosis.saves(run.time), "rule": f.rule, "status": f.status,
            "cause": f.cause, **gains(f), "evidence": dict(f.evidence), "where": f.where,
            "try": f.advice,
        }
        for run in _with_known_lines(launches)
        for f in run.diagnosis.findings
    ]  # fmt: skip
    return pd.DataFrame(table, columns=_COLUMNS)


_COLUMNS = ["report", "launch", "kernel", "variant", "case", "time", "bound", "limiter", "because",
            "headroom", "saves", "rule", "status", "cause", "gain", "expect", "expect_low",
            "expect_high", "evidence", "where", "try"]  # fmt: skip


def _of_row(run: Mapping[str, Any], rules: Sequence[Rule]) -> Judged:
    """A row of a frame, which may be anybody's: what it lacks is None."""
    status = str(run.get("status") or "ok")
    identity = {name: run.get(name) for name in _IDENTITY} | {
        "index": run.get("launch", 0),
        "kernel": run.get("kernel", ""),
        "status": status,
    }
    values = {name: float(run.get(name, nan)) for name in CATALOGUE}
    verdict = judge_launch(run, status, rules, _own_columns(run) if rules else None)
    return Judged(**identity, values=values, diagnosis=verdict)  # type: ignore[arg-type]


def _own_columns(run: Mapping[str, Any]) -> Mapping[str, float]:
    from profkit.diagnosis.own import OwnColumns

    return OwnColumns(run)


def _with_known_lines(launches: Sequence[Judged]) -> list[Judged]:
    """The launches with their lines, as far as their reports are still there and hold them."""
    there = [n for n, run in enumerate(launches) if os.path.isfile(str(run.report))]
    lined = list(launches)
    try:
        located = with_lines([launches[n] for n in there])
    except ProfkitError:  # one of the files is another by now: the others have lines
        located = []
        for n in there:
            with suppress(ProfkitError):
                lined[n] = with_lines([launches[n]])[0]
    for n, run in zip(there, located, strict=False):
        lined[n] = run
    return lined


def judged_rows(launches: Iterable[Judged], *, every: bool = False) -> list[Row]:
    """Alike launches in one row, worst first.

    Args:
        launches: Judged launches.
        every: One row per launch instead.

    Returns:
        Rows by the time that fixing the finding they are shown with should save, then by their time.
    """
    alike: dict[tuple[Any, ...], list[Judged]] = {}
    for n, run in enumerate(launches):
        key = (run.report, run.kernel, run.grid, run.block, run.status)
        alike.setdefault((*key, n) if every else key, []).append(run)
    rows = [Row(tuple(group)) for group in alike.values()]
    return sorted(rows, key=lambda row: (-row.saved, -row.total))


def table(reports: Reports, launches: Sequence[Judged]) -> DataFrame:
    """The frame with what was judged beside it.

    Returns:
        A copy of reports.launches with bound, limiter, because, headroom, saves (s), finding (the
        leading one) and its gain, expect, expect_low and expect_high (speed-up factors) behind the
        identity columns; NaN for what is not known.
    """
    # The files' status is not the table's, and no file format can hold it.
    frame = without_attrs(reports.launches).copy()
    at = list(frame.columns).index(next(iter(CATALOGUE)))
    tops = [run.top for run in launches]
    judgement: dict[str, list[Any]] = {
        "bound": [run.diagnosis.bound for run in launches],
        "limiter": [run.diagnosis.limiter for run in launches],
        "because": [run.diagnosis.because for run in launches],
        "headroom": [or_nan(run.diagnosis.headroom) for run in launches],
        "saves": [run.diagnosis.saves(run.time) for run in launches],
        "finding": [top.rule if top else None for top in tops],
        **{name: [gains(top)[name] for top in tops] for name in gains(None)},
    }
    for offset, (name, column) in enumerate(judgement.items()):
        frame.insert(at + offset, name, column)
    return frame


def with_lines(
    runs: Sequence[Judged], count: int | None = None, listed: int = 0, around: int = 0
) -> list[Judged]:
    """The launches with the source lines of their firing findings.

    Args:
        runs: Judged launches.
        count: At most so many lines a finding. When None: three, and a report whose machine code
            is damaged is left without, which is an error where a number was asked for.
        listed: Also the launch's own lines with the most samples, at most so many.
        around: So many lines of code before and after each of these, behind them.

    Raises:
        ProfkitError: A report cannot be read, or its machine code is damaged.
    """
    from profkit.reports.hotlines import lines_of

    most = LINES if count is None else count
    wishes = [_wish(run, most, listed, around) for run in runs]
    asked = [wish for wish in wishes if wish.counters or wish.sampled]
    answers = iter(lines_of(asked, strict=count is not None))
    return [
        _lined(run, next(answers)) if wish.counters or wish.sampled else run
        for run, wish in zip(runs, wishes, strict=True)
    ]


def _wish(run: Judged, count: int, listed: int, around: int) -> LinesRequest:
    from profkit.reports.hotlines import LinesRequest

    firing = [f.rule for f in run.diagnosis.findings if f.status == "fires"]
    # A rule of somebody's own has none.
    chosen = {rule: BY_ID[rule].lines for rule in firing if rule in BY_ID and BY_ID[rule].lines}
    return LinesRequest(run.report, run.index, chosen, count, listed, around)


def _lined(run: Judged, answer: HotLines) -> Judged:
    listed = tuple(
        HotLine(x.file, x.line, x.source or x.opcode, int(x.value), x.share, x.stall, x.stall_share)
        for x in answer.sampled
    )
    findings = tuple(
        replace(f, where=tuple(_where(lines))) if (lines := answer.counters.get(f.rule)) else f
        for f in run.diagnosis.findings
    )
    return replace(run, lines=listed, diagnosis=replace(run.diagnosis, findings=findings))


def _where(lines: Iterable[CounterLine]) -> Iterator[SourceShare]:
    """Lines of source; an instruction without one says nothing to a reader."""
    for x in lines:
        if x.file is None or x.line is None:
            continue
        known = x.producer_file is not None and x.producer_line is not None
        producer = Producer(x.producer_file or "", x.producer_line or 0, x.producer_opcode)
        yield SourceShare(
            x.file, x.line, x.stall, x.share, x.counter, x.value, x.opcode, x.source,
            producer if known else None,
        )  # fmt: skip


def launch_lines(report: str | Path, launch: int = 0, count: int = 10) -> DataFrame:
    """Where the findings of one launch happen, and what is waited for there.

    Args:
        report: A report.
        launch: Index of the launch in it.
        count: At most so many lines a finding.

    Returns:
        One row per finding that fires and line, in the order of the findings, most first: rule,
        counter (what chose the lines: profkit.reports.counters), file, line, pc (bytes), opcode,
        share (of the counter over the launch, 0-1), value (in the counter's unit), stall,
        stall_share, producer_file, producer_line, producer_pc, producer_opcode (the instruction
        whose result is waited for), source. An instruction without a line has no file. No rows for
        findings that happen at no line, or whose counter was not collected.

    Raises:
        ProfkitError: The report cannot be read or has no such launch.
    """
    from profkit.reports.hotlines import LinesRequest, lines_frame, lines_of
    from profkit.reports.reader import read_report

    path = os.path.expanduser(report)
    runs = judged(read_report([path]))
    # The reader of lines says which of them cannot be read or is not there.
    wish = (
        _wish(runs[launch], count, 0, 0) if 0 <= launch < len(runs) else LinesRequest(path, launch)
    )
    answer = lines_of([wish])[0].counters
    rules = [rule for rule, lines in answer.items() for _ in lines]
    rows = lines_frame([line for lines in answer.values() for line in lines])
    rows.insert(0, "rule", rules)
    return rows
