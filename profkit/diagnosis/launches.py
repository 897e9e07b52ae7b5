"""What the reader found  ->  judged launches, alike ones in one row, the worst row first."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from math import isfinite, isnan, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profkit.diagnosis.rule import (
    Caller,
    Diagnosis,
    LaunchFinding,
    LaunchRule,
    Producer,
    SourceShare,
)
from profkit.diagnosis.rules import BY_ID
from profkit.diagnosis.verdict import (
    clear_negligible_finding,
    convert_to_number_or_nan,
    judge_launch,
    make_clear_finding,
)
from profkit.errors import ProfkitError
from profkit.files import expand_home, is_file
from profkit.judge import NOT_PRICED
from profkit.model.launch import StrictLaunch, is_impossible_value
from profkit.records.record import Record, read_record_beside
from profkit.reports import figures
from profkit.reports.frame import drop_file_status_attribute, list_frame_rows_as_dicts
from profkit.reports.metrics import CATALOGUE

if TYPE_CHECKING:
    from pandas import DataFrame

    from profkit.reports.addresses import Layouts
    from profkit.reports.frame import ReportLaunches, Reports
    from profkit.reports.hotlines import CounterLine, HotLines, LinesRequest
    from profkit.units import (
        FloatOrNan,
        FrameCell,
        FrameRow,
        GpuName,
        KernelName,
        LaunchIndex,
        MetricValues,
        NcuMetricName,
        RuleName,
        Seconds,
        SecondsOrNan,
        SecondsOrZero,
        Sentence,
        Share,
    )

Dims = tuple[int, int, int]
LINES = 3  # of source that a finding names unless more are asked for
INSTRUCTIONS = 3  # of a line, that are shown beside it


@dataclass(frozen=True)
class NvidiaRule:
    """One result of NVIDIA's own rules; speedup as a share of the duration, None if not given."""

    rule: str
    title: str
    message: str
    speedup: float | None
    scope: str


@dataclass(frozen=True)
class SassInstruction:
    """An instruction of a line as SASS, and its part of the line's samples."""

    text: str
    share: float  # of the line's samples, 0-1


@dataclass(frozen=True)
class HotLine:
    """A source line with many stall samples, or an instruction where there is no source."""

    file: str | None  # None for an instruction
    line: int | None
    text: str  # the line, or the instruction
    samples: int  # stall samples there
    share: float  # of all samples of the launch, 0-1
    stall: str  # the leading warp state there; "" where no warp was found
    stall_share: float  # of the line's samples, 0-1
    # Of a line that is inlined in several places, the call with most of it.
    called_at: Caller | None = None
    sass: tuple[SassInstruction, ...] = ()  # its hottest, where a number of lines was asked for


@dataclass(frozen=True)
class JudgedLaunch:
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
    unread: str = ""  # why its source lines were not read: memory was short, say
    lead_is_left_out: bool = False  # what found the verdict's cause was ignored, as somebody asked

    @property
    def time(self) -> SecondsOrNan:
        """Return duration under ncu in s; NaN when not collected, or when no launch takes that long."""
        time = self.values.get("time", nan)
        return nan if is_impossible_value("time", time) else time

    @property
    def top(self) -> LaunchFinding | None:
        """Return the finding that leads: the verdict's cause; None when nothing fires but notes."""
        return self.diagnosis.top

    @property
    def seconds_saved(self) -> SecondsOrZero:
        """Return seconds that fixing the leading finding is expected to save.

        0 at a roof, or not known.
        """
        return _replace_nan_by_zero(self.diagnosis.estimate_saved_time(self.time))


MOST = 0.5  # of the time of all rows
# Of the largest saving: from this share on a sure one goes before one that may be nothing.
ENOUGH = 1 / 3


@dataclass(frozen=True)
class LaunchRow:
    """Launches of one kernel with one grid and block in one report."""

    launches: tuple[JudgedLaunch, ...]

    @property
    def known_times_sorted(self) -> list[Seconds]:
        """Return the durations that are known, in s, shortest first."""
        known = []
        for run in self.launches:
            if not isnan(run.time):
                known.append(run.time)
        return sorted(known)

    @property
    def total(self) -> Seconds:
        """Return the sum of the durations that are known, in s."""
        return sum(self.known_times_sorted)

    @property
    def seconds_saved(self) -> SecondsOrZero:
        """Return seconds of all its time that fixing what is said of the launch shown should save.

        Else 0.
        """
        return _replace_nan_by_zero(self.median_launch.diagnosis.estimate_saved_time(self.total))

    @property
    def sure_seconds_saved(self) -> SecondsOrZero:
        """Return seconds of all its time that fixing the leading finding should save at least.

        Else 0.
        """
        return _replace_nan_by_zero(
            self.median_launch.diagnosis.estimate_least_saved_time(self.total)
        )

    def leads_with_uncollected_cause(self, total_seconds: Seconds) -> bool:
        """Return whether it takes most of a total and what would tell its cause was not collected."""
        said = self.median_launch.diagnosis
        unknown = isnan(said.estimate_saved_time(self.total)) and bool(said.missing)
        return unknown and self.median_launch.status == "ok" and self.total > MOST * total_seconds

    @property
    def median_launch(self) -> JudgedLaunch:
        """Return the launch that is shown for the row: the one of median time."""
        times = self.known_times_sorted
        if times:
            median = times[(len(times) - 1) // 2]
            for run in self.launches:
                if run.time == median:
                    return run
        return self.launches[0]

    def replace_launch(self, old: JudgedLaunch, new: JudgedLaunch) -> LaunchRow:
        """Return the row with one launch in the place of another."""
        return LaunchRow(tuple(new if run is old else run for run in self.launches))


def _make_build_key(run: JudgedLaunch) -> tuple[float | None, ...]:
    """Return what tells builds of one name apart: Triton builds a kernel for each constant and type."""
    build: list[float | None] = []
    for name in ("registers", "shared_block"):
        value = run.values.get(name, nan)
        if isnan(value):
            build.append(None)
        else:
            build.append(value)
    return tuple(build)


def _replace_nan_by_zero(seconds: float) -> float:
    return 0.0 if isnan(seconds) else seconds


def judge_reports(reports: Reports) -> list[JudgedLaunch]:
    """Return the verdict on every launch, in the order of the files; makes no frame."""
    return list(chain.from_iterable(map(_judge_launches_of_report, reports.parts)))


def _judge_launches_of_report(part: ReportLaunches) -> Iterator[JudgedLaunch]:
    rules: dict[int, list[NvidiaRule]] = {}
    for _, launch, rule, title, message, speedup, scope in part.rules:
        known = speedup if isfinite(speedup) else None
        rules.setdefault(launch, []).append(NvidiaRule(rule, title, message, known, scope))
    record = read_record_beside(part.file.path)
    for run, values in zip(part.iterate_launches(), part.iterate_metric_rows(), strict=True):
        nvidia = tuple(rules.get(run["launch"], ()))
        diagnosis = judge_launch(run)
        if record and record.ablation:
            diagnosis = _add_ablation_gains(diagnosis, record, run.get("device"))
        yield _make_judged_launch(run, values, diagnosis, nvidia)


def _add_ablation_gains(diagnosis: Diagnosis, record: Record, device: GpuName | None) -> Diagnosis:
    from profkit.diagnosis.ablated import add_measured_gains, find_ablation_of_same_gpu

    found = find_ablation_of_same_gpu(record, device)
    return add_measured_gains(diagnosis, found) if found else diagnosis


def _make_judged_launch(
    run: FrameRow,
    values: MetricValues,
    diagnosis: Diagnosis,
    nvidia: tuple[NvidiaRule, ...] = (),
) -> JudgedLaunch:
    """Return a row of a frame, which may be anybody's: what it lacks is None."""
    return JudgedLaunch(
        report=run.get("report"),  # type: ignore[arg-type]
        index=run.get("launch", 0),
        kernel=run.get("kernel") or "",
        device=run.get("device"),
        cc=run.get("cc"),
        grid=run.get("grid"),
        block=run.get("block"),
        variant=run.get("variant"),
        case=run.get("case"),
        status=str(run.get("status") or "ok"),
        values=values,
        diagnosis=diagnosis,
        nvidia=nvidia,
    )


def group_and_rank_launches(
    launches: Iterable[JudgedLaunch], *, one_row_per_launch: bool = False
) -> list[LaunchRow]:
    """Return alike launches in one row each, or with `one_row_per_launch` one row per launch.

    The rows come by the time that fixing the finding they are shown with should save, then by
    their time; in front a saving that is sure, where the largest one may be nothing, and before that
    one that takes most of all time and whose cause was not collected.
    """
    alike: dict[tuple[Any, ...], list[JudgedLaunch]] = {}
    for n, run in enumerate(launches):
        key = (run.report, run.kernel, run.grid, run.block, run.status, *_make_build_key(run))
        alike.setdefault((*key, n) if one_row_per_launch else key, []).append(run)
    rows = []
    total = 0.0
    for group in alike.values():
        row = LaunchRow(tuple(group))
        rows.append(row)
        total += row.total
    rows.sort(key=lambda row: (-row.seconds_saved, -row.total))
    sure = find_leading_row_with_sure_saving(rows)

    def rank_row(row: LaunchRow) -> tuple[bool, bool]:
        return not row.leads_with_uncollected_cause(total), row is not sure

    return sorted(rows, key=rank_row)


def find_leading_row_with_sure_saving(rows: Sequence[LaunchRow]) -> LaunchRow | None:
    """Return the row whose saving is sure, and which leads where the largest may save nothing.

    Of rows that should save at least a third of the most, the one with the largest low end; None where
    the largest saving is sure itself, or where no such row is.
    """
    if not rows:
        return None
    largest = max(rows, key=lambda row: row.seconds_saved)
    if largest.sure_seconds_saved > 0:
        return None
    enough = []
    for row in rows:
        if row.sure_seconds_saved > 0 and row.seconds_saved >= ENOUGH * largest.seconds_saved:
            enough.append(row)
    return max(enough, key=lambda row: row.sure_seconds_saved, default=None)


# Frames.

_VERDICT = ("bound", "limiter", "because", "headroom", "saves")
_GAINS = ("gain", "expect", "expect_low", "expect_high")
_IDENTIFIED = ("report", "launch", "kernel", "variant", "case", "time")
_SAID = ("rule", "status", "cause", *_GAINS, "evidence", "where", "try")


def _make_verdict_cells(run: JudgedLaunch) -> tuple[FrameCell, ...]:
    said = run.diagnosis
    return (
        said.bound,
        said.limiter,
        said.because,
        _replace_none_by_nan(said.headroom),
        said.estimate_saved_time(run.time),
    )


def _make_gain_cells(finding: LaunchFinding | None) -> tuple[FloatOrNan, ...]:
    if finding is None:
        return nan, nan, nan, nan
    hope = finding.expect
    factors = (finding.gain, *((hope.gain, hope.low, hope.high) if hope else (nan, nan, nan)))
    return tuple(map(_replace_none_by_nan, factors))


def _replace_none_by_nan(value: float | None) -> FloatOrNan:
    return nan if value is None else value


def judge_frame(runs: DataFrame, rules: Sequence[LaunchRule] = ()) -> list[JudgedLaunch]:
    """Judge every launch of a frame; with source lines where its report is still there."""
    launches = []
    places = []  # of the launches whose report is still there
    for place, row in enumerate(list_frame_rows_as_dicts(runs)):
        also = UserRuleColumns(row) if rules else None
        diagnosis = judge_launch(row, rules, also)
        values = {}
        for name in CATALOGUE:
            values[name] = convert_to_number_or_nan(row.get(name))
        launches.append(_make_judged_launch(row, values, diagnosis))
        if is_file(str(launches[place].report)):
            places.append(place)
    lined, _ = add_source_lines_and_explain_missing([launches[place] for place in places])
    for place, run in zip(places, lined, strict=True):
        launches[place] = run
    return launches


def make_findings_frame(launches: Iterable[JudgedLaunch]) -> DataFrame:
    """Do `pk.diagnose`: return every finding of judged launches."""
    import pandas as pd

    table = []
    for run in launches:
        identity = run.report, run.index, run.kernel, run.variant, run.case, run.time
        verdict = _make_verdict_cells(run)
        for f in run.diagnosis.findings:
            said = (
                f.rule,
                f.status,
                f.cause,
                *_make_gain_cells(f),
                dict(f.evidence),
                f.where,
                f.advice,
            )
            table.append((*identity, *verdict, *said))
    return pd.DataFrame(table, columns=[*_IDENTIFIED, *_VERDICT, *_SAID])


def add_verdict_columns(reports: Reports, launches: Sequence[JudgedLaunch]) -> DataFrame:
    """Return a copy of the frame with what was judged behind its identity columns.

    That is bound, limiter, because, headroom, saves (s), finding (the leading one) and its gain,
    expect, expect_low and expect_high (speed-up factors); NaN for what is not known.
    """
    # The files' status is not the table's, and no file format can hold it. Its columns are shared.
    frame = drop_file_status_attribute(reports.launches)
    at = list(frame.columns).index(next(iter(CATALOGUE)))
    rows = []
    for run in launches:
        rows.append(
            (
                *_make_verdict_cells(run),
                run.top.rule if run.top else None,
                *_make_gain_cells(run.top),
            )
        )
    for offset, name in enumerate((*_VERDICT, "finding", *_GAINS)):
        frame.insert(at + offset, name, [row[offset] for row in rows])
    return frame


class UserRuleColumns(Mapping[str, float]):
    """What a rule of one's own may index besides metrics: the row's numbers, then raw counters.

    The report is read when the first name is asked for that the row has not.
    """

    def __init__(self, row: Mapping[str, Any]) -> None:
        self._row = row

    def __getitem__(self, name: str) -> float:
        value = self._row.get(name)
        if value is None and "__" in name:  # as all of Nsight Compute's names have
            launches = _read_raw_counters(str(self._row.get("report")))
            value = launches.get(self._row.get("launch", 0), {}).get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise KeyError(name)
        return float(value)

    def __iter__(self) -> Iterator[str]:
        for name, value in self._row.items():
            if isinstance(value, int | float):
                yield name

    def __len__(self) -> int:
        return len(list(iter(self)))


@lru_cache(maxsize=4)
def _read_raw_counters(report: str) -> dict[LaunchIndex, dict[NcuMetricName, Any]]:
    """Return launch -> raw name -> value of a report; nothing where it is not there any more."""
    from profkit.reports.reader import read_raw_frame

    if not is_file(report):
        return {}
    try:
        rows = read_raw_frame(report).to_dict("records")
    except ProfkitError:
        return {}
    counters: dict[int, dict[str, Any]] = {}
    for n, row in enumerate(rows):
        counters[n] = {}
        for name, value in row.items():
            counters[n][str(name)] = value
    return counters


# Source lines.


def add_source_lines(
    runs: Sequence[JudgedLaunch],
    most_lines_per_finding: int | None = None,
    most_sampled_lines: int = 0,
    context_lines: int = 0,
) -> list[JudgedLaunch]:
    """Return the launches with the source lines of their firing findings.

    `most_lines_per_finding`: at most so many lines a finding; when None three, and a report whose
    machine code is damaged is left without, which is an error where a number was asked for.
    `most_sampled_lines`: also the launch's own lines with the most samples, at most so many;
    `context_lines`: and behind them so many lines of code before and after each. A ProfkitError where a
    report cannot be read.
    """
    from profkit.reports.hotlines import answer_line_requests

    most = LINES if most_lines_per_finding is None else most_lines_per_finding
    lined = list(runs)
    places, asked = [], []  # of the launches that have something to ask for
    for place, run in enumerate(runs):
        request = _make_lines_request(run, most, most_sampled_lines, context_lines)
        if request.counters or request.sampled:
            places.append(place)
            asked.append(request)
    answers = answer_line_requests(
        asked, is_unread_code_an_error=most_lines_per_finding is not None
    )
    for place, answer in zip(places, answers, strict=True):
        lined[place] = _add_lines_and_correct_gains(runs[place], answer)
    return lined


def explain_unread_lines(runs: Iterable[JudgedLaunch]) -> list[Sentence]:
    """Return of which reports the source lines could not be read, and why, each once."""
    said: dict[str, None] = {}
    for run in runs:
        if run.unread:
            said[f"{run.report}: without source lines: {run.unread}"] = None
    return list(said)


def add_source_lines_and_explain_missing(
    runs: Sequence[JudgedLaunch], *how: Any
) -> tuple[list[JudgedLaunch], list[Sentence]]:
    """Return the launches with their lines (`how` as above), and why some are left without."""
    try:
        lined = add_source_lines(runs, *how)
        return lined, explain_unread_lines(lined)
    except ProfkitError as error:
        if len(runs) == 1:
            return list(runs), [error.message]
    lined = []
    unread = []
    for run in runs:
        alone, why = add_source_lines_and_explain_missing([run], *how)
        lined += alone
        unread += why
    return lined, unread


def _make_lines_request(
    run: JudgedLaunch, most_lines_per_finding: int, most_sampled_lines: int, context_lines: int
) -> LinesRequest:
    from profkit.reports.hotlines import LinesRequest

    chosen = {}
    for finding in run.diagnosis.findings:
        rule = BY_ID.get(finding.rule)  # a rule of somebody's own has no lines
        if finding.status == "fires" and rule and rule.lines:
            chosen[finding.rule] = rule.lines
    instructions = 0
    if most_sampled_lines and not context_lines:  # a page has the lines around instead
        instructions = INSTRUCTIONS
    return LinesRequest(
        run.report,
        run.index,
        chosen,
        most_lines_per_finding,
        most_sampled_lines,
        context_lines,
        instructions,
    )


def _add_lines_and_correct_gains(run: JudgedLaunch, answer: HotLines) -> JudgedLaunch:
    listed = tuple(map(_make_hot_line, answer.sampled))
    findings = []
    for finding in run.diagnosis.findings:
        lines = answer.counters.get(finding.rule)
        if lines:
            finding = replace(finding, where=tuple(_iterate_lines_with_source(lines)))  # noqa: PLW2901
        gathered = answer.gathered.get(finding.rule)
        if gathered:
            finding = _price_unused_sectors_without_gathers(run, finding, gathered)  # noqa: PLW2901
        findings.append(finding)
    for rule, share in answer.fusable.items():
        findings = _correct_gain_of_unfused_arithmetic(run, findings, rule, share)
    is_triton = _is_triton(run.kernel, findings)
    advised = []
    for finding in findings:
        if is_triton:
            advised.append(_replace_advice_for_triton(finding))
        else:
            advised.append(_add_conflict_free_layouts(finding, answer.layouts.get(finding.rule)))
    diagnosis = replace(run.diagnosis, findings=tuple(advised))
    return replace(run, lines=listed, diagnosis=diagnosis, unread=answer.unread)


def _make_hot_line(line: CounterLine) -> HotLine:
    instructions = []
    for text, share in line.sass:
        instructions.append(SassInstruction(text, share))
    return HotLine(
        file=line.file,
        line=line.line,
        text=line.source or line.opcode,
        samples=int(line.value),
        share=line.share,
        stall=line.stall,
        stall_share=line.stall_share,
        called_at=_get_call_of_inlined_line(line),
        sass=tuple(instructions),
    )


def _correct_gain_of_unfused_arithmetic(
    run: JudgedLaunch, findings: Sequence[LaunchFinding], rule: RuleName, fusable_share: Share
) -> list[LaunchFinding]:
    """Return findings with one of unfused arithmetic priced by what the machine code could fuse.

    Where that is nothing to speak of it is clear, and comes after those that fire.
    """
    asked = BY_ID[rule].evaluate_launch(StrictLaunch({**run.values, "fp32_fusable": fusable_share}))
    leading = [findings[0].rule]
    fires = []
    others = []
    for finding in findings:
        judged = finding
        if finding.rule == rule and finding.status == "fires":
            judged = make_clear_finding(rule, finding.note, BY_ID[rule].title)
            if asked:
                priced = replace(finding, saving=asked[1])
                judged = clear_negligible_finding(BY_ID[rule], priced, leading)
        if judged.status == "fires":
            fires.append(judged)
        else:
            others.append(judged)
    return [*fires, *others]


def _add_conflict_free_layouts(finding: LaunchFinding, layouts: Layouts | None) -> LaunchFinding:
    """Return a finding of bank conflicts with the layouts that have none; of other rules as it is."""
    if layouts is None:
        return finding
    from profkit.diagnosis.layouts import write_layout_advice

    advice = finding.advice
    if layouts.found:
        advice = write_layout_advice(layouts, advice)
    return replace(finding, layouts=layouts, advice=advice)


_GATHERS = (
    "Sort or group the indices so that neighbouring lanes read neighbouring elements, keep the "
    "gathered data in shared memory or small enough for L2, or gather whole records of 32 bytes."
)


def _price_unused_sectors_without_gathers(
    run: JudgedLaunch, finding: LaunchFinding, gathered_share: Share
) -> LaunchFinding:
    """Return a finding of unused sectors priced without those of gathers, which a layout cannot fix."""
    waste = run.values.get("excess_sectors", nan)
    if finding.status != "fires" or isnan(waste):
        return finding
    rest = StrictLaunch({**run.values, "excess_sectors": waste * (1 - gathered_share)})
    asked = BY_ID[finding.rule].evaluate_launch(rest)
    saving = asked[1] if asked else NOT_PRICED
    part = figures.format_share(gathered_share)
    why = f"{part} of them at gathers (an index loaded just before), which a layout cannot fix"
    cause = f"{finding.cause}; {why}"
    advice = finding.advice if asked else _GATHERS
    return replace(finding, cause=cause, advice=advice, saving=saving)


def _is_triton(kernel: KernelName, findings: Iterable[LaunchFinding]) -> bool:
    """Return whether a kernel is Triton's: lines of Python, and a name without what Numba and CuTe add.

    Triton calls it as its function is called; Numba mangles the name, CuTe's begins with its own word.
    """
    if not kernel.isidentifier() or kernel.startswith(("_Z", "kernel_cutlass")):
        return False
    for finding in findings:
        for line in finding.where:
            if line.file.endswith(".py"):
                return True
    return False


def _replace_advice_for_triton(finding: LaunchFinding) -> LaunchFinding:
    rule = BY_ID.get(finding.rule)
    if finding.status == "fires" and rule and rule.triton:
        return replace(finding, advice=rule.triton)
    return finding


def _iterate_lines_with_source(lines: Iterable[CounterLine]) -> Iterator[SourceShare]:
    """Yield the lines of source; an instruction without one says nothing to a reader."""
    for line in lines:
        if line.file is None or line.line is None:
            continue
        producer = None
        if line.producer_file is not None and line.producer_line is not None:
            producer = Producer(line.producer_file, line.producer_line, line.producer_opcode)
        yield SourceShare(
            line.file,
            line.line,
            line.stall,
            line.share,
            line.counter,
            line.value,
            line.opcode,
            line.source,
            producer,
            _get_call_of_inlined_line(line),
        )


def _get_call_of_inlined_line(line: CounterLine) -> Caller | None:
    call = line.called_at
    if call is None:
        return None
    return Caller(call.file, call.line, call.share)


def make_launch_lines_frame(
    report: str | Path, launch: LaunchIndex = 0, most_lines: int = 10
) -> DataFrame:
    """Do `pk.lines` of one launch; a ProfkitError where the report cannot be read or has it not.

    No rows for findings that happen at no line, or whose counter was not collected.
    """
    from profkit.reports.hotlines import LinesRequest, answer_line_requests, make_lines_frame
    from profkit.reports.reader import read_report_files

    path = os.fspath(expand_home(report))
    runs = judge_reports(read_report_files([path], lines_follow=True))
    # The reader of lines says which of them cannot be read or is not there.
    there = 0 <= launch < len(runs)
    if there:
        asked = _make_lines_request(runs[launch], most_lines, 0, 0)
    else:
        asked = LinesRequest(path, launch)
    answer = answer_line_requests([asked])[0].counters
    rules: list[str] = []
    lines: list[CounterLine] = []
    for rule, found in answer.items():
        rules += [rule] * len(found)
        lines += found
    rows = make_lines_frame(lines)
    rows.insert(0, "rule", rules)
    return rows
