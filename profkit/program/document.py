"""A triage  <->  the JSON documents "profkit.triage/1" and "/2". Keys are added, never renamed.

Only findings and what is first differ in the two: in /2 they have the keys of a launch's. What is kept
is written in both, and either is read; profkit itself uses /1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

from profkit.errors import ProfkitError
from profkit.files import is_folder, read_json_or_toml_bytes
from profkit.judge import NO_SAVING, Estimate, Status
from profkit.program.counts import KernelVerdicts
from profkit.program.findings.case import StepFinding
from profkit.program.origins import sum_time_by_origin
from profkit.program.ranks import Rank
from profkit.program.replay.scenario import (
    ALL,
    EXPECT,
    HIGH,
    LOW,
    Range,
    StepChange,
    make_exact_range,
)
from profkit.program.steps.cut import KernelGroup
from profkit.program.steps.places import name_module
from profkit.program.timeline import SourcePlace
from profkit.program.triage import Triage
from profkit.records.store import get_schema_name
from profkit.reports.figures import get_base_name_of_kernel

if TYPE_CHECKING:
    from profkit.units import CommandText, Milliseconds, Sentence, TextOrEmpty, WorkIndex


SCHEMA: Final = "profkit.triage/1"
SECOND: Final = "profkit.triage/2"
NAME = "triage.json"
SECOND_NAME = "triage.2.json"


class ProgramEntry(TypedDict):
    """What was recorded."""

    command: str
    ranks: int
    device: str | None
    steps: int
    how: str


class RangeEntry(TypedDict):
    """What to expect, and the interval around it."""

    expect: float
    low: float
    high: float


class IdleEntry(TypedDict):
    """Why the GPU has nothing to do, and where most of it is."""

    cause: str
    ms: float
    where: str


class StepEntry(TypedDict):
    """A step of the program; plain_ms is what it takes without the recorder."""

    ms: float
    gpu_busy_ms: float
    idle_ms: float
    idle: list[IdleEntry]
    found: str
    min_ms: float
    max_ms: float
    plain_ms: RangeEntry


class FirstEntry(TypedDict):
    """What to do first."""

    category: str
    say: str
    saves_ms: RangeEntry


class ShareEntry(TypedDict):
    """What a fix leaves of a kernel's time: 1 is all of it, more where one does the work of others."""

    kernel: str
    calls: int
    left: RangeEntry


class CallsEntry(TypedDict):
    """Calls of the host that wait for nothing after a fix, and what is left of their time."""

    calls: int
    left: RangeEntry


class ChangeEntry(TypedDict):
    """What a fix does to the step as it was replayed; `merge`: of a launch's host time."""

    scale: list[ShareEntry]
    merge: list[ShareEntry]
    stream: list[ShareEntry]
    host: CallsEntry | None
    launches: RangeEntry | None
    pauses: RangeEntry | None


# In the form for keys that are words of Python.
ProgramFindingEntry = TypedDict(
    "ProgramFindingEntry",
    {
        "category": str,
        "say": str,
        "saves_ms": RangeEntry,
        "kernels": list[str],
        "try": str,
        "where": str,
        "on_top_ms": float,
        "change": ChangeEntry | None,
        "evidence": dict[str, float] | None,
        "at_most_ms": float | None,
    },
)


class KernelEntry(TypedDict):
    """One kernel or copy of a step; bound, limiter and headroom where it was counted."""

    id: str
    name: str
    category: str
    calls: int
    ms: float
    share: float
    bound: str | None
    limiter: str | None
    headroom: float | None
    counted: bool
    next: str | None
    missing: str | None
    op: str | None
    nvtx: str | None
    source: str | None
    line: str | None
    module: str | None
    grid: list[int] | None
    block: list[int] | None


class OriginEntry(TypedDict):
    """What of a step comes from one place; of the file's lines the function's first in a trace."""

    line: str | None
    function: str | None
    module: str | None
    kind: str | None
    called: str | None
    part: str | None
    op: str | None
    calls: int
    ms: float
    share: float
    kernels: list[str]


class RankEntry(TypedDict):
    """One rank of a distributed program, per step."""

    rank: int
    ms: float
    computing_ms: float
    collective_ms: float
    waiting_ms: float


class TriageDocument(TypedDict):
    """What `profkit triage --json` prints: a program's step, and what to do first."""

    schema: Literal["profkit.triage/1"]
    program: ProgramEntry
    step: StepEntry
    first: FirstEntry
    findings: list[ProgramFindingEntry]
    kernels: list[KernelEntry]
    origins: list[OriginEntry]
    ranks: list[RankEntry]
    notes: list[str]


class SavingEntry(TypedDict):
    """Milliseconds of the step that a fix saves, and what it cannot exceed; null: nothing is known."""

    expected: float
    low: float
    high: float
    bound: float | None


class FirstRuleEntry(TypedDict):
    """What to do first: the rule of the first finding, or healthy or unknown."""

    rule: str
    cause: str
    saving: SavingEntry


class StepFindingEntry(TypedDict):
    """What a rule says of a step."""

    rule: str
    status: Status
    cause: str
    advice: str
    where: list[str]
    evidence: dict[str, float] | None
    saving: SavingEntry
    on_top_ms: float
    kernels: list[str]
    change: ChangeEntry | None


class SecondTriageDocument(TypedDict):
    """What `profkit triage -o` keeps as triage.2.json: findings have the keys of a launch's."""

    schema: Literal["profkit.triage/2"]
    program: ProgramEntry
    step: StepEntry
    first: FirstRuleEntry
    findings: list[StepFindingEntry]
    kernels: list[KernelEntry]
    origins: list[OriginEntry]
    ranks: list[RankEntry]
    notes: list[str]


def make_triage_document(answer: Triage, counts: KernelVerdicts | None = None) -> TriageDocument:
    """Return the document as plain lists and dicts."""
    counts = counts or KernelVerdicts()
    ranks: list[RankEntry] = []
    if answer.ranks:
        ranks = [_describe_rank(row) for row in answer.ranks.rows]
    return {
        "schema": SCHEMA,
        "program": _describe_program(answer),
        "step": _describe_step(answer),
        "first": _describe_first_finding(answer),
        "findings": [_describe_finding(answer, row) for row in answer.findings],
        "kernels": [_describe_kernel(answer, row, counts) for row in answer.groups],
        "origins": _list_origins(answer),
        "ranks": ranks,
        "notes": [*answer.notes, *counts.notes],
    }


def _describe_program(answer: Triage) -> ProgramEntry:
    device = answer.process.device
    return {
        "command": answer.timeline.command,
        "ranks": len(answer.timeline.processes),
        "device": device.name if device else None,
        "steps": len(answer.steps.periods),
        "how": answer.timeline.how,
    }


def _describe_step(answer: Triage) -> StepEntry:
    """Return the typical step's time; the shortest and the longest of all steps of its kind."""
    periods = answer.steps.periods
    idle: list[IdleEntry] = []
    for row in answer.split.idle:
        idle.append({"cause": row.cause, "ms": _convert_to_ms(row.time), "where": row.where})
    return {
        "ms": _convert_to_ms(answer.split.period),
        "gpu_busy_ms": _convert_to_ms(answer.split.busy),
        "idle_ms": _convert_to_ms(answer.split.period - answer.split.busy),
        "idle": idle,
        "found": answer.steps.how,
        "min_ms": _convert_to_ms(min(periods)),
        "max_ms": _convert_to_ms(max(periods)),
        "plain_ms": _describe_time_without_recorder(answer),
    }


def _describe_first_finding(answer: Triage) -> FirstEntry:
    """Return the first finding; the verdict where it is that none is to be acted on."""
    verdict = answer.verdict
    if verdict.category:
        return {
            "category": verdict.category,
            "say": verdict.say,
            "saves_ms": _describe_estimate(NO_SAVING),
        }
    first = answer.findings[0]
    return {
        "category": first.rule,
        "say": first.cause,
        "saves_ms": _describe_estimate(first.saving),
    }


def _convert_to_ms(nanoseconds: float) -> Milliseconds:
    return round(nanoseconds / 1e6, 6)


def _describe_time_without_recorder(answer: Triage) -> RangeEntry:
    """Return what the step takes without the recorder.

    As recorded where a replay of it does not show that.
    """
    if answer.hosts.matches_recording:
        return _describe_range(answer.hosts.step_ms_without_recorder)
    return _describe_range(make_exact_range(answer.split.period / 1e6))


def _describe_range(interval: Range) -> RangeEntry:
    return {
        "expect": round(interval.expect, 6),
        "low": round(interval.low, 6),
        "high": round(interval.high, 6),
    }


def _describe_estimate(estimate: Estimate) -> RangeEntry:
    return _describe_range(Range(estimate.low, estimate.expected, estimate.high))


def _describe_rank(rank: Rank) -> RankEntry:
    return {
        "rank": rank.rank,
        "ms": _convert_to_ms(rank.period),
        "computing_ms": _convert_to_ms(rank.computing),
        "collective_ms": _convert_to_ms(rank.collective),
        "waiting_ms": _convert_to_ms(rank.waiting),
    }


def _list_origins(answer: Triage) -> list[OriginEntry]:
    out: list[OriginEntry] = []
    for row in sum_time_by_origin(answer.steps.typical.works, answer.groups):
        origin = row.origin
        kernels = sorted(row.kernels, key=lambda name: -row.kernels[name])
        entry = OriginEntry(
            line=origin.line or None,
            function=origin.function or None,
            module=name_module(origin) or None,
            kind=origin.kind or None,
            called=origin.called or None,
            part=origin.part or None,
            op=origin.op or None,
            calls=row.calls,
            ms=_convert_to_ms(row.time),
            share=round(row.time / answer.split.period, 6),
            kernels=kernels,
        )
        out.append(entry)
    return out


def _describe_finding(answer: Triage, row: StepFinding) -> ProgramFindingEntry:
    return {
        "category": row.rule,
        "say": row.cause,
        "saves_ms": _describe_estimate(row.saving),
        "kernels": list(row.kernels),
        "try": row.advice,
        "where": row.place,
        "on_top_ms": round(row.on_top, 6),
        "change": _describe_change(answer, row.change) if row.change != StepChange() else None,
        "evidence": {name: round(value, 6) for name, value in row.evidence.items()},
        "at_most_ms": None if row.saving.bound is None else round(row.saving.bound, 6),
    }


def _describe_change(answer: Triage, change: StepChange) -> ChangeEntry:
    """Return what a fix changes of kernels, launches and calls.

    None where it changes nothing of a part.
    """
    moved = {index: row.left for index, row in change.stream.items()}
    return {
        "scale": _describe_shares(answer, change.scale),
        "merge": _describe_shares(answer, change.merge),
        "stream": _describe_shares(answer, moved),
        "host": _describe_host_calls(answer, change),
        "launches": _describe_range_if_changed(change.launches),
        "pauses": _describe_range_if_changed(change.pauses),
    }


def _describe_host_calls(answer: Triage, change: StepChange) -> CallsEntry | None:
    """Return the calls that wait less, with what is left of each and of the gap before it."""
    if not change.host:
        return None
    gaps = []
    busy = []
    for index, share in change.host.items():
        call = answer.hosts.usual.events[index]
        gaps.append((share.gap, call.gap))
        busy.append((share.busy, call.busy))
    left = _average_shares([*gaps, *busy])
    return {"calls": len(change.host), "left": _describe_range(left)}


def _describe_range_if_changed(left: Range) -> RangeEntry | None:
    """Return what is left; None where all is."""
    if left == ALL:
        return None
    return _describe_range(left)


def _average_shares(shares: Sequence[tuple[Range, float]]) -> Range:
    """Return the mean of shares, each weighted with its time."""
    whole = sum(time for _, time in shares)
    if not whole:
        return ALL
    means = []
    for end in (LOW, EXPECT, HIGH):
        means.append(sum(time * share[end] for share, time in shares) / whole)
    return Range(*means)


def _describe_shares(answer: Triage, ranges: Mapping[WorkIndex, Range]) -> list[ShareEntry]:
    """Return each kernel's share, each work's share weighted with its time."""
    works = answer.steps.typical.works
    out: list[ShareEntry] = []
    for group in answer.groups:
        shares = []
        for i in group.works:
            if i in ranges:
                shares.append((ranges[i], max(1, works[i].activity.duration)))
        if shares:
            left = _describe_range(_average_shares(shares))
            out.append({"kernel": group.id, "calls": len(shares), "left": left})
    return out


def _describe_kernel(answer: Triage, row: KernelGroup, counts: KernelVerdicts) -> KernelEntry:
    """Return one kernel or copy; what only counters tell is None where it was not counted."""
    bound = limiter = headroom = missing = None
    report = ""
    count = counts.groups.get(row.id)
    if count:
        bound = count.bound
        limiter = count.limiter
        headroom = count.headroom
        report = counts.report
    else:
        missing = _explain_unrecorded(answer, row)
    place = row.place or SourcePlace()
    return {
        "id": row.id,
        "name": row.name,
        "category": row.kind,
        "calls": row.calls,
        "ms": _convert_to_ms(row.time),
        "share": round(row.time / answer.split.period, 6),
        "bound": bound,
        "limiter": limiter,
        "headroom": headroom,
        "counted": count is not None,
        "next": _suggest_kernel_command(answer, row, report),
        "missing": missing,
        "op": row.op or None,
        "nvtx": row.range or None,
        "source": row.source or None,
        "line": place.line or None,
        "module": name_module(place) or None,
        "grid": list(row.grid) if row.grid else None,
        "block": list(row.block) if row.block else None,
    }


def _suggest_kernel_command(
    answer: Triage, row: KernelGroup, counters_report_or_empty: str
) -> CommandText | None:
    """Return the command that looks at one kernel.

    None for what is none, or where no command is known.
    """
    if counters_report_or_empty:
        return (
            f"profkit diagnose {quote(counters_report_or_empty)} --kernel "
            f"{quote(get_base_name_of_kernel(row.name))}"
        )
    if row.grid is None or not answer.timeline.command:
        return None
    return _write_profile_command(answer, row)


def _explain_unrecorded(answer: Triage, row: KernelGroup) -> Sentence | None:
    """Return what was not recorded of a kernel, without which no more can be said of it."""
    if row.grid is None:
        return None
    if row.kind == "collective":
        if answer.ranks:
            return None
        return "it transfers or waits for another rank: record every rank to know which"
    lack = "its limit is unknown because no counters were taken"
    is_sized = any(answer.steps.typical.works[i].maker.shapes for i in row.works)
    if row.kind in {"scatter", "softmax"} and not is_sized:
        lack += ", nor were its operator's sizes recorded (record_shapes=True)"
    return f"{lack}; {_write_profile_command(answer, row)} takes them"


def _write_profile_command(answer: Triage, row: KernelGroup) -> CommandText:
    kernel = quote(get_base_name_of_kernel(row.name))  # a name out of a trace may hold anything
    return f"profkit profile --kernel {kernel} --count 1 -- {answer.timeline.command or 'COMMAND'}"


def convert_to_second_form(document: TriageDocument) -> SecondTriageDocument:
    """Return a document in the second form."""
    first = document["first"]
    bound = None
    for row in document["findings"]:
        if row["say"] == first["say"]:
            bound = row["at_most_ms"]
    return SecondTriageDocument(
        schema=SECOND,
        program=document["program"],
        step=document["step"],
        first=FirstRuleEntry(
            rule=first["category"],
            cause=first["say"],
            saving=_convert_saving_to_second_form(first["saves_ms"], bound),
        ),
        findings=[_convert_finding_to_second_form(row) for row in document["findings"]],
        kernels=document["kernels"],
        origins=document["origins"],
        ranks=document["ranks"],
        notes=document["notes"],
    )


def _convert_finding_to_second_form(row: ProgramFindingEntry) -> StepFindingEntry:
    return StepFindingEntry(
        rule=row["category"],
        status="fires",
        cause=row["say"],
        advice=row["try"],
        where=[row["where"]] if row["where"] else [],
        evidence=row["evidence"],
        saving=_convert_saving_to_second_form(row["saves_ms"], row["at_most_ms"]),
        on_top_ms=row["on_top_ms"],
        kernels=row["kernels"],
        change=row["change"],
    )


def _convert_saving_to_second_form(saves: RangeEntry, bound: float | None) -> SavingEntry:
    return SavingEntry(expected=saves["expect"], low=saves["low"], high=saves["high"], bound=bound)


def convert_from_second_form(document: SecondTriageDocument) -> TriageDocument:
    """Return a document of the second form in the first one; what no rule found is not in it."""
    first = document["first"]
    return TriageDocument(
        schema=SCHEMA,
        program=document["program"],
        step=document["step"],
        first=FirstEntry(
            category=first["rule"],
            say=first["cause"],
            saves_ms=_convert_saving_from_second_form(first["saving"]),
        ),
        findings=[
            _convert_finding_from_second_form(row)
            for row in document["findings"]
            if row["status"] == "fires"
        ],
        kernels=document["kernels"],
        origins=document["origins"],
        ranks=document["ranks"],
        notes=document["notes"],
    )


def _convert_finding_from_second_form(row: StepFindingEntry) -> ProgramFindingEntry:
    return {
        "category": row["rule"],
        "say": row["cause"],
        "saves_ms": _convert_saving_from_second_form(row["saving"]),
        "kernels": row["kernels"],
        "try": row["advice"],
        "where": row["where"][0] if row["where"] else "",
        "on_top_ms": row["on_top_ms"],
        "change": row["change"],
        "evidence": row["evidence"],
        "at_most_ms": row["saving"]["bound"],
    }


def _convert_saving_from_second_form(saving: SavingEntry) -> RangeEntry:
    return RangeEntry(expect=saving["expected"], low=saving["low"], high=saving["high"])


# Keys that documents of 0.1 do not have: rows of which part, and their names.
LATER = {
    "kernels": ("next", "missing", "line", "module"),
    "findings": ("change", "evidence", "at_most_ms"),
}
IDLE = ("host-launch", "host-sync", "copy", "collective", "other")  # the causes of idle time
HINT = "profkit triage -o NAME.triage ..."


def read_triage_document(path: Path) -> TriageDocument:
    """Return a document that was kept: a file, or the folder it is in.

    Raises:
        ProfkitError: It is none, or has another form: where in it is said.
    """
    import msgspec

    file = path
    if is_folder(path):
        file = path / NAME
    schema = None
    try:
        content = msgspec.json.decode(read_json_or_toml_bytes(file))
        if isinstance(content, dict):
            schema = content.get("schema")
        document = _convert_to_first_form(content, schema)
        if document is None:
            raise ProfkitError(f"{file}: is {get_schema_name(schema)}, not {SCHEMA}", HINT)
    except FileNotFoundError as error:
        raise ProfkitError(f"{file}: no such file", HINT) from error
    except RecursionError as error:
        raise ProfkitError(f"{file}: not a triage document: nested too deeply", HINT) from error
    except (OSError, ValueError, OverflowError) as error:
        raise ProfkitError(f"{file}: not a triage document: {error}", HINT) from error
    if why := _find_impossible_value(document):
        raise ProfkitError(f"{file}: not a triage document: {why}", HINT)
    return document


def _convert_to_first_form(content: dict[str, Any], schema: object) -> TriageDocument | None:
    """Return the document of either form in the first one; None of what is neither."""
    import msgspec

    if schema == SECOND:
        return convert_from_second_form(msgspec.convert(content, SecondTriageDocument))
    if schema != SCHEMA:
        return None
    _add_missing_keys(content)
    return msgspec.convert(content, TriageDocument)


def _add_missing_keys(content: dict[str, Any]) -> None:
    """Give a document of an older profkit the keys that it does not have yet."""
    content.setdefault("origins", [])
    for part, names in LATER.items():
        rows = content.get(part)
        if not isinstance(rows, list):
            continue
        for row in rows:
            if isinstance(row, dict):
                for name in names:
                    row.setdefault(name, None)


def _find_impossible_value(document: TriageDocument) -> TextOrEmpty:
    """Return what has the right type and cannot be; empty where nothing is."""
    step = document["step"]
    if not step["ms"] > 0:
        return f"a step of {step['ms']} ms - at `$.step.ms`"
    for row in step["idle"]:
        if row["cause"] not in IDLE:
            return "an unknown cause of idle time - at `$.step.idle[...].cause`"
    return ""
