"""Launches and the names of counters  ->  the source lines that have most of them.

A counter stands at instructions (counters.py); a line has the sum over its own. Of warp states it is
laid to the line whose result the warps wait for (sass/): stalls say where, the producer says why.
"""

from __future__ import annotations

import os
from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profkit.errors import ProfkitError
from profkit.files import temporary_folder
from profkit.records.paths import is_table
from profkit.records.record import record_beside, recorded_sha256
from profkit.reports.addresses import LaunchedCode, Place
from profkit.reports.container.container import check, split
from profkit.reports.counters import COUNTERS, samples_metric
from profkit.reports.isolated import is_limited, isolated, processors
from profkit.reports.library import LARGE, children_for
from profkit.reports.metrics.warps import SAMPLES
from profkit.reports.reader import opened_launches, prepare_child, report_weight
from profkit.reports.sass import images

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "COLUMNS", "CounterLine", "HotLines", "LinesRequest", "hot_lines", "lines_of", "prepare_child",
]  # fmt: skip

# The warp was issuing: a sample like the others, but nothing that it waited for.
_ISSUING = "selected"
_FIXED = "wait"
_OTHERS = "the process that read it answered other requests"


@dataclass(frozen=True)
class LinesRequest:
    """What is asked of one launch.

    Attributes:
        report: Its path.
        launch: Index in it.
        counters: Key (a rule) -> names of counters, the best first; the first that was collected
            and is not zero answers.
        count: At most so many lines for each.
        sampled: Also at most so many lines by the samples of all warp states.
        around: Behind these so many lines of code before and after each.
    """

    report: str
    launch: int
    counters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    count: int = 3
    sampled: int = 0
    around: int = 0


@dataclass(frozen=True)
class CounterLine:
    """A source line, or an instruction where the report knows no lines, and its part of a counter.

    Attributes:
        counter: Name of the counter.
        file: Source file, None for an instruction.
        line: Its line, None for an instruction.
        pc: Address of its instruction with the most, in bytes.
        opcode: Of that instruction; "" when it cannot be told.
        share: Of the counter's sum over the launch, 0-1.
        value: The counter here, in its own unit (see counters.COUNTERS).
        stall: The leading warp state, of samples; "" of anything else.
        stall_share: Of the line's samples in that state, 0-1; 0 of anything else.
        producer_file: File of the instruction that is waited for; None when none is known.
        producer_line: Its line.
        producer_pc: Its address in bytes.
        producer_opcode: Its opcode; "" when none is known.
        source: The line's text, None where the report has no source.
    """

    counter: str
    file: str | None
    line: int | None
    pc: int | None
    opcode: str
    share: float
    value: float
    stall: str = ""
    stall_share: float = 0.0
    producer_file: str | None = None
    producer_line: int | None = None
    producer_pc: int | None = None
    producer_opcode: str = ""
    source: str | None = None


COLUMNS = tuple(column.name for column in fields(CounterLine))


@dataclass(frozen=True)
class HotLines:
    """The answer to a request: lines of each key's counter, and lines by samples."""

    counters: Mapping[str, tuple[CounterLine, ...]]
    sampled: tuple[CounterLine, ...]


def lines_of(requests: Sequence[LinesRequest], *, strict: bool = True) -> list[HotLines]:
    """Answer requests; each report is opened once.

    Args:
        requests: Of one launch each.
        strict: Machine code that crashes the library is an error, and not only without lines.

    Returns:
        One answer per request, in their order.

    Raises:
        ProfkitError: A report cannot be read or has no such launch.
    """
    answers: dict[int, HotLines] = {}
    by_report: dict[str, list[int]] = defaultdict(list)
    for n, request in enumerate(requests):
        if is_table(request.report):
            answers[n] = _no_lines(request, strict=strict)
        else:
            by_report[os.path.expanduser(request.report)].append(n)
    items = [
        [path, [[w.launch, {k: list(v) for k, v in w.counters.items()}, w.count, w.sampled, w.around]
                for w in (requests[n] for n in numbers)]]
        for path, numbers in by_report.items()
    ]  # fmt: skip
    # Debug information that was overwritten passes the frame check and crashes the library.
    died = _died if strict else _without
    inside = [_read_apart(item, died) if report_weight(item[0]) > LARGE  # type: ignore[arg-type]
              else read_lines(item) if _is_recorded(item[0]) and not is_limited() else None  # type: ignore[arg-type]
              for item in items]  # fmt: skip
    others = [item for item, answer in zip(items, inside, strict=True) if answer is None]
    outside = iter(isolated(f"{__name__}:read_lines", others, processors(), died) if others else ())
    for numbers, item, answer in zip(by_report.values(), items, inside, strict=True):
        found: Sequence[HotLines] = next(outside) if answer is None else answer
        if len(found) != len(numbers):
            found = died(item, _OTHERS)  # type: ignore[assignment]
        answers |= zip(numbers, found, strict=True)
    return [answers[n] for n in range(len(requests))]


def _no_lines(request: LinesRequest, *, strict: bool) -> HotLines:
    """The answer for a table that ncu printed: it knows no instructions."""
    if strict:
        raise ProfkitError(
            f"{request.report}: a table has no source lines",
            "give the .ncu-rep itself for its hot lines",
        )
    return HotLines(dict.fromkeys(request.counters, ()), ())


def read_lines(item: Sequence[Any]) -> list[HotLines]:
    """The answers for [report, [[launch, counters, count, sampled, around], ...]], read here."""
    path, requests = item
    code = cache(lambda: images.functions(path))
    with opened_launches(path) as action_of:
        return [_answer(LaunchedCode(action_of(launch), code), *more) for launch, *more in requests]


def _read_apart(item: Sequence[Any], died: Callable[[Any, str], Any]) -> list[HotLines]:
    """The same of a large report: in children, from copies of the launches that are asked for."""
    path, requests = item
    frames = check(path)
    for launch, *_ in requests:
        if not 0 <= launch < frames.launches:
            raise ProfkitError(f"{path}: has no launch {launch}", "launches are counted from 0")
    places: list[int] = []  # in `requests`, in the order of the answers

    def copies() -> Iterator[list[Any]]:
        launches = {launch for launch, *_ in requests}
        for copy, indices in split(path, folder, launches, metrics_only=frames.risky, code=True):
            here = [n for n, (launch, *_) in enumerate(requests) if launch in indices]
            places.extend(here)
            yield [
                os.fspath(copy),
                [[indices.index(requests[n][0]), *requests[n][1:]] for n in here],
            ]

    with temporary_folder() as folder:
        read = isolated(f"{__name__}:read_copied_lines", copies(), children_for(frames.size),
                      lambda copied, why: died([path, copied[1]], why))  # fmt: skip
    found = dict(zip(places, (x for some in read for x in some), strict=False))
    return [found.get(n, HotLines({}, ())) for n in range(len(requests))]


def read_copied_lines(item: Sequence[Any]) -> list[HotLines]:
    """As read_lines, of a file that split made, which goes."""
    answers = read_lines(item)
    os.unlink(item[0])
    return answers


def hot_lines(path: str | Path, launch: int, n: int = 10) -> pd.DataFrame:
    """The source lines of a launch with the most samples of warp states.

    Args:
        path: A report.
        launch: Index of the launch in it.
        n: At most so many lines.

    Returns:
        One row per line, most samples first, with the columns of CounterLine; stall is the leading
        warp state there, in Nsight Compute's words. A warp is sampled at the instruction that it
        cannot issue yet: what it waits for there is in the columns of the producer. Where the
        report knows no source (no -lineinfo), one row per instruction. No rows when warp states
        were not sampled (section SourceCounters).

    Raises:
        ProfkitError: The report cannot be read, or has no such launch.
    """
    return lines_frame(lines_of([LinesRequest(os.fspath(path), launch, sampled=n)])[0].sampled)


def lines_frame(lines: Sequence[CounterLine]) -> pd.DataFrame:
    """Lines as a frame: one row each, the attributes as columns."""
    import pandas as pd

    data = [[getattr(line, name) for name in COLUMNS] for line in lines]
    return pd.DataFrame(data, columns=list(COLUMNS), dtype=object).astype(
        {"line": "Int64", "pc": "Int64", "producer_line": "Int64", "producer_pc": "Int64",
         "share": float, "value": float, "stall_share": float}
    )  # fmt: skip


def _is_recorded(path: str) -> bool:
    """Whether the run record beside a report says that it is whole."""
    recorded = recorded_sha256(record_beside(path))
    return recorded is not None and recorded == check(path).sha256


def _died(item: Sequence[Any], why: str) -> None:
    raise ProfkitError(f"{item[0]}: {why}", "its machine code is damaged: record it again")


def _without(item: Sequence[Any], _why: str) -> list[HotLines]:
    return [HotLines({}, ()) for _ in item[1]]


def _answer(
    kernel: LaunchedCode,
    counters: Mapping[str, Sequence[str]],
    count: int,
    sampled: int,
    around: int,
) -> HotLines:
    answered: dict[tuple[str, ...], tuple[CounterLine, ...]] = {}
    for names in {tuple(names) for names in counters.values()}:
        answered[names] = tuple(_sourced(kernel, x) for x in _first(kernel, names, count))
    listed = _by_samples(kernel)[:sampled] if sampled else []
    # A listing needs its indentation; a line alone does not.
    rows = [
        _sourced(kernel, x, strip=not around) for x in (*listed, *_between(kernel, listed, around))
    ]
    return HotLines({key: answered[tuple(names)] for key, names in counters.items()}, tuple(rows))


def _first(kernel: LaunchedCode, names: Sequence[str], count: int) -> list[CounterLine]:
    """The lines of the first counter that was collected and is not zero."""
    for name in names:
        counter = COUNTERS[name]
        lines = _stalled(kernel, name) if counter.states else _counted(kernel, name)
        if lines:
            return sorted(lines, key=_rank)[:count]
    return []


def _rank(line: CounterLine) -> tuple[float, str, int, int]:
    return -line.value, line.file or "", line.line or 0, line.pc or 0


@dataclass
class _Sum:
    """A line while its instructions are added up: the one with the most stands for it."""

    value: float = 0.0
    most: float = 0.0
    pc: int = 0
    producer: int | None = None
    states: Tally[str] = field(default_factory=Tally)

    def add(self, value: float, pc: int, producer: int | None = None, state: str = "") -> None:
        self.value += value
        if state:
            self.states[state] += value  # type: ignore[assignment]
        if value > self.most:
            self.most, self.pc, self.producer = value, pc, producer


def _counted(kernel: LaunchedCode, name: str) -> list[CounterLine]:
    counter = COUNTERS[name]
    sums: dict[Place, _Sum] = defaultdict(_Sum)
    collected = (kernel.values(terms) for terms in counter.alternatives)
    for pc, value in (next((v for v in collected if v is not None), None) or {}).items():
        if value > 0 and (not counter.opcodes or kernel.opcode(pc) in counter.opcodes):
            sums[kernel.place(pc)].add(value, pc)
    return list(_lines(kernel, name, sums))


def _stalled(kernel: LaunchedCode, name: str) -> list[CounterLine]:
    """Samples by the line that is waited for; by where the warps are when that is not known.

    One sample that waits for several lines is divided among them. A fixed latency is waited for
    from one instruction to the next: there the line is the thing.
    """
    sums: dict[Place, _Sum] = defaultdict(_Sum)
    for state in COUNTERS[name].states:
        for pc, value in (kernel.values({samples_metric(state): 1.0}) or {}).items():
            sources = {kernel.place(p): p for p in kernel.producers(pc, state)}
            if state == _FIXED or not sources:
                sums[kernel.place(pc)].add(value, pc, next(iter(sources.values()), None), state)
                continue
            for place, source in sources.items():
                sums[place].add(value / len(sources), pc, source, state)
    return list(_lines(kernel, name, sums))


def _by_samples(kernel: LaunchedCode) -> list[CounterLine]:
    """Lines where warps were sampled in any state, the most first."""
    sums: dict[Place, _Sum] = defaultdict(_Sum)
    by_pc: dict[int, Tally[str]] = defaultdict(Tally)
    for raw, state in SAMPLES.items():
        for pc, value in (kernel.values({raw: 1.0}) or {}).items():
            by_pc[pc][state] += int(value)
    for pc, states in sorted(by_pc.items()):  # of equals, the first instruction stands for the line
        place = kernel.place(pc)
        sums[place].add(states.total(), pc)
        sums[place].states.update(states)
    return sorted(_lines(kernel, "samples", sums), key=_rank)


def _lines(kernel: LaunchedCode, name: str, sums: Mapping[Place, _Sum]) -> Iterator[CounterLine]:
    total = sum(x.value for x in sums.values())
    for x in sums.values():
        file, line = kernel.place(x.pc)
        waiting = Tally({state: n for state, n in x.states.items() if state != _ISSUING})
        stall, samples_there = next(iter((waiting or x.states).most_common(1)), ("", 0))
        yield CounterLine(
            counter=name,
            file=file,
            line=line if file else None,
            pc=x.pc,
            opcode=kernel.opcode(x.pc),
            share=x.value / total,
            value=x.value,
            stall=stall,
            stall_share=samples_there / x.value,
            **_producer(kernel, x.producer),
        )


def _producer(kernel: LaunchedCode, pc: int | None) -> dict[str, Any]:
    if pc is None:
        return {}
    file, line = kernel.place(pc)
    return {
        "producer_file": file,
        "producer_line": line if file else None,
        "producer_pc": pc,
        "producer_opcode": kernel.opcode(pc),
    }


def _sourced(kernel: LaunchedCode, line: CounterLine, *, strip: bool = True) -> CounterLine:
    text = kernel.source(line.file, line.line)
    if text is None:
        return line
    return replace(line, source=text.strip() if strip else text.rstrip())


def _between(
    kernel: LaunchedCode, hot: Sequence[CounterLine], around: int
) -> Iterator[CounterLine]:
    """The lines of code near hot ones, in order; nothing was sampled in them."""
    at = {(x.file, x.line) for x in hot}
    near: set[tuple[str, int | None]] = set()
    for file, line in at:
        if file in kernel.sources and line is not None:
            last = min(line + around, len(kernel.sources[file]))
            near |= {(file, number) for number in range(max(line - around, 1), last + 1)}
    for file, line in sorted(near - at) if around else ():
        yield CounterLine("samples", file, line, None, "", 0.0, 0.0)
