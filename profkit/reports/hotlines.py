"""Launches and the names of counters  ->  the source lines that have most of them.

A counter is of instructions (counters.py); a line has the sum over its own. Of warp states it is
laid to the line whose result the warps wait for (sass/): stalls say where, the producer says why.
"""

from __future__ import annotations

import os
from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from profkit.errors import OUT_OF_MEMORY, ProfkitError, is_memory_limited
from profkit.files import expand_home, make_temporary_folder
from profkit.records.paths import is_csv_table
from profkit.reports.addresses import CallSite, LaunchedCode, Layouts, Place
from profkit.reports.container import check_report_bytes, split_report
from profkit.reports.cubin import read_machine_code_of_report
from profkit.reports.instruction import COUNTERS, RAW_SAMPLES, Counter
from profkit.reports.isolated import (
    ROOM,
    MakeResultOfDead,
    choose_hint,
    count_processors_to_use,
    is_fault_of_file,
    run_in_child_processes,
)
from profkit.reports.metrics.warps import SAMPLES
from profkit.reports.reader import (
    LARGE,
    choose_process_count,
    estimate_unpacked_size,
    is_named_by_record,
    open_report_actions,
    prepare_child,
    remove_copy,
)

if TYPE_CHECKING:
    import pandas as pd

    from profkit.units import (
        Clause,
        InstructionAddress,
        LaunchIndex,
        ShareOrZero,
        StallState,
        TextOrEmpty,
    )

__all__ = ["prepare_child"]

# The warp was issuing: a sample like the others, but nothing that it waited for.
_ISSUING = "selected"
_FIXED = "wait"
_EXCESS = "excess-sectors"
_CONFLICTS = "excess-wavefronts"
_UNFUSED = "instructions unfused"
_TOO_MUCH = "its machine code asks for more memory than its bytes can need"
_OTHERS = "the process that read it answered other requests"


@dataclass(frozen=True)
class LinesRequest:
    """A launch, and which of its lines are asked for."""

    report: str  # its path
    launch: int  # index in it
    # Key (a rule) -> names of counters, the best first; the first that was collected and is not zero
    # answers.
    counters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    count: int = 3  # at most so many lines for each
    sampled: int = 0  # also at most so many lines by the samples of all warp states
    around: int = 0  # behind these so many lines of code before and after each
    sass: int = 0  # at most so many instructions of each of these, as text, which is slow


@dataclass(frozen=True)
class CounterLine:
    """A source line, or an instruction where the report knows no lines, and its part of a counter."""

    counter: str
    file: str | None  # None for an instruction, as its line
    line: int | None
    pc: int | None  # address of its instruction with the most, in bytes
    opcode: str  # of that instruction; "" when unknown
    share: float  # of the counter's sum over the launch, 0-1
    value: float  # the counter here, in its own unit (see counters.COUNTERS)
    stall: str = ""  # the leading warp state, of samples
    stall_share: float = 0.0  # of the line's samples in that state, 0-1
    # The instruction that is waited for; None and "" when none is known.
    producer_file: str | None = None
    producer_line: int | None = None
    producer_pc: int | None = None
    producer_opcode: str = ""
    source: str | None = None  # the line's text, None where the report has no source
    called_at: CallSite | None = None  # of a line that is inlined in several places
    # Where asked for, its instructions with most samples as SASS, and each one's part of the line's.
    sass: tuple[tuple[str, float], ...] = ()

    @property
    def place(self) -> tuple[TextOrEmpty, int]:
        """Return file and line, by which equals are ordered."""
        return self.file or "", self.line or 0


COLUMNS = tuple(c.name for c in fields(CounterLine) if c.name not in ("called_at", "sass"))


@dataclass(frozen=True)
class HotLines:
    """The lines of a launch by counter, with what its machine code shows."""

    counters: Mapping[str, tuple[CounterLine, ...]]
    sampled: tuple[CounterLine, ...]
    # Key -> share of its counter at loads whose index was loaded just for them; where it is of sectors
    # beyond the ideal.
    gathered: Mapping[str, float] = field(default_factory=dict)
    # Key -> layouts without bank conflicts; where its counter is of what these cost.
    layouts: Mapping[str, Layouts] = field(default_factory=dict)
    # Key -> share of the FP32 instructions that are adds of a single product; where its counter is of
    # what could be fused, and the machine code is known.
    fusable: Mapping[str, float] = field(default_factory=dict)
    refused: str = ""  # why its machine code was not looked into
    unread: str = ""  # why nothing was read, for a reason that says nothing of the file: no memory


def answer_line_requests(
    requests: Sequence[LinesRequest], *, is_unread_code_an_error: bool = True
) -> list[HotLines]:
    """Answer requests, in their order; each report is opened once.

    A ProfkitError where one cannot be read or has no such launch; with `is_unread_code_an_error` also
    where its machine code crashes the library, which else is only without lines. Where memory is short,
    lines are what is missing, and the answer says why.
    """
    answers: dict[int, HotLines] = {}
    by_report: dict[str, list[int]] = defaultdict(list)
    for n, request in enumerate(requests):
        if is_csv_table(request.report):
            if is_unread_code_an_error:
                raise ProfkitError(
                    f"{request.report}: a table has no source lines",
                    "give the .ncu-rep itself for its hot lines",
                )
            answers[n] = _answer_without_lines(request.counters)
        else:
            by_report[os.fspath(expand_home(request.report))].append(n)
    items = []
    for path, numbers in by_report.items():
        items.append([path, [vars(requests[n]) for n in numbers]])
    # Debug information that was overwritten passes the frame check and crashes the library.
    died = _raise_or_explain_dead_reader if is_unread_code_an_error else _answer_for_dead_reader
    read = _answer_each_report(items, died)
    for numbers, item, found in zip(by_report.values(), items, read, strict=True):
        if len(found) != len(numbers):
            found = died(item, _OTHERS)  # noqa: PLW2901
        if is_unread_code_an_error:
            _raise_if_code_was_skipped(str(item[0]), found)
        answers |= zip(numbers, found, strict=True)
    return [answers[n] for n in range(len(requests))]


def _answer_each_report(
    items: Sequence[Any], make_result_of_dead: MakeResultOfDead
) -> Iterator[list[HotLines]]:
    """Yield the answers of each report, read in this process where that is safe, else in forks."""
    inside = [_answer_in_process(item, make_result_of_dead) for item in items]
    others = [item for item, answer in zip(items, inside, strict=True) if answer is None]
    outside = iter(_answer_in_forks(others, make_result_of_dead))
    for answer in inside:
        yield next(outside) if answer is None else answer


def _raise_if_code_was_skipped(report: str, answers: Sequence[HotLines]) -> None:
    """Raise a ProfkitError if the machine code of one was not looked into."""
    for answer in answers:
        if answer.refused:
            hint = "--lines 0 diagnoses it without; record it again if ncu wrote it"
            raise ProfkitError(f"{report}: {answer.refused}", hint)


def _answer_without_lines(counters: Iterable[str] = ()) -> HotLines:
    """Return the answer for what knows no instructions: a table, a report that crashes the library."""
    return HotLines(dict.fromkeys(counters, ()), ())


def answer_requests_of_report(item: Sequence[Any]) -> list[HotLines]:
    """Answer [report, [the fields of a LinesRequest, ...]] in this process."""
    path, requests = item
    code = cache(lambda: read_machine_code_of_report(path))
    answers = []
    shared: dict[Any, Any] = {}
    with open_report_actions(path) as action_of:
        for fields in requests:
            kernel = LaunchedCode(
                action_of(fields["launch"]),
                lambda: code().functions,
                lambda: code().has_bounded_lines,
                shared,
            )
            try:
                answer = _answer_request(kernel, LinesRequest(**fields))
            finally:
                kernel.close()
            if not code().has_bounded_lines:
                answer = replace(answer, refused=_TOO_MUCH)
            answers.append(answer)
    return answers


def _answer_in_forks(
    items: Sequence[Any], make_result_of_dead: MakeResultOfDead
) -> list[list[HotLines]]:
    """Return the answers that forks give; where there is no memory to begin, they have no lines."""
    if not items:
        return []
    try:
        return run_in_child_processes(
            f"{__name__}:answer_requests_of_report",
            items,
            count_processors_to_use(),
            make_result_of_dead,
        )
    except ProfkitError as error:
        if error.message != OUT_OF_MEMORY:
            raise
        return [_answer_with_reason(item, OUT_OF_MEMORY) for item in items]


def _answer_in_process(
    item: Sequence[Any], make_result_of_dead: MakeResultOfDead
) -> list[HotLines] | None:
    """Return the answers of a report that is large or known to be whole; None of another.

    Where the library is to write machine code as text, only in a process that is known to make no
    forks that do so too (a notebook's pool): see InProcessReadBudget.
    """
    path, requests = item
    if estimate_unpacked_size(path) > LARGE:
        try:
            return _answer_large_report(item, make_result_of_dead)
        except (MemoryError, ProfkitError) as error:
            if isinstance(error, ProfkitError) and error.message != OUT_OF_MEMORY:
                raise
            return _answer_with_reason(item, OUT_OF_MEMORY)
    if not is_named_by_record(path) or is_memory_limited():
        return None
    if _needs_disassembly(requests) and not ROOM.may_write_text:
        return None
    if not ROOM.reserve_read_here(check_report_bytes(path).size):
        return None
    return answer_requests_of_report(item)


def _needs_disassembly(requests: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether an answer is worked out from the text of machine code."""
    if any(fields["sass"] for fields in requests):
        return True
    for request in requests:
        for names in request["counters"].values():
            if _CONFLICTS in names or _UNFUSED in names:
                return True
    return False


def _answer_large_report(
    item: Sequence[Any], make_result_of_dead: MakeResultOfDead
) -> list[HotLines]:
    """Answer for a large report: in children, from copies of the launches that are asked for."""
    path, requests = item
    frames = check_report_bytes(path)
    if frames.message == OUT_OF_MEMORY:
        return _answer_with_reason(item, OUT_OF_MEMORY)
    launches = [request["launch"] for request in requests]
    _refuse_unknown_launches(path, launches, frames.launches)
    places: list[int] = []  # in `requests`, in the order of the answers

    def iterate_copies_with_requests() -> Iterator[list[Any]]:
        split = split_report(path, folder, set(launches), metrics_only=frames.risky, code=True)
        for copy, inside in split:
            asked = _renumber_requests_for_copy(requests, inside)
            places.extend(asked)
            yield [os.fspath(copy), list(asked.values())]

    def died_in_copy(copied: Sequence[Any], why: Clause) -> Any:
        return make_result_of_dead([path, copied[1]], why)

    function = f"{__name__}:answer_requests_of_report"
    with make_temporary_folder() as folder:
        most = choose_process_count(frames.size)
        read = run_in_child_processes(
            function, iterate_copies_with_requests(), most, died_in_copy, remove_copy
        )
    answers = [_answer_without_lines()] * len(requests)
    for place, answer in zip(places, chain.from_iterable(read), strict=False):
        answers[place] = answer
    return answers


def _refuse_unknown_launches(path: str, launches: Iterable[LaunchIndex], launch_count: int) -> None:
    for launch in launches:
        if not 0 <= launch < launch_count:
            raise ProfkitError(f"{path}: has no launch {launch}", "launches are counted from 0")


def _renumber_requests_for_copy(
    requests: Sequence[Mapping[str, Any]], launches: Sequence[LaunchIndex]
) -> dict[int, dict[str, Any]]:
    """Return number of a request -> the request of a copy that has only these launches."""
    taken = {}
    for n, request in enumerate(requests):
        if request["launch"] in launches:
            taken[n] = {**request, "launch": launches.index(request["launch"])}
    return taken


def make_lines_frame(lines: Sequence[CounterLine]) -> pd.DataFrame:
    """Return lines as a frame, one row each, with the columns of CounterLine.

    A warp is sampled at the instruction that it cannot issue yet: what it waits for there is in the
    columns of the producer. Where the report knows no source (no -lineinfo), a row is an instruction.
    """
    import pandas as pd

    data = list(map(attrgetter(*COLUMNS), lines))
    kinds = dict.fromkeys(("line", "pc", "producer_line", "producer_pc"), "Int64")
    kinds |= dict.fromkeys(("share", "value", "stall_share"), "float64")
    return pd.DataFrame(data, columns=list(COLUMNS), dtype=object).astype(kinds)


def _raise_or_explain_dead_reader(item: Sequence[Any], why: Clause) -> list[HotLines]:
    if not is_fault_of_file(why):
        return _answer_with_reason(item, why)
    hint = choose_hint(why, hint_about_file="its machine code is damaged: record it again")
    raise ProfkitError(f"{item[0]}: {why}", hint)


def _answer_for_dead_reader(item: Sequence[Any], why: Clause) -> list[HotLines]:
    # Where memory is limited, what the library crashed on may be that.
    if not is_fault_of_file(why) or is_memory_limited():
        return _answer_with_reason(item, why)
    return [_answer_without_lines()] * len(item[1])


def _answer_with_reason(item: Sequence[Any], why: Clause) -> list[HotLines]:
    """Return answers without lines, and why: that costs a report no more than its lines."""
    return [replace(_answer_without_lines(), unread=why)] * len(item[1])


def _answer_request(kernel: LaunchedCode, request: LinesRequest) -> HotLines:
    @cache
    def list_first_lines(names: tuple[str, ...]) -> tuple[CounterLine, ...]:
        lines = _list_lines_of_first_counter(kernel, names, request.count)
        return tuple(_add_source_text(kernel, line) for line in lines)

    listed = []
    if request.sampled:
        listed = _rank_lines_by_stall_samples(kernel, request.sampled, request.sass)
    rows = [*listed, *_list_context_lines(kernel, listed, request.around)]
    # A listing needs its indentation; a line alone does not.
    sampled = tuple(_add_source_text(kernel, x, is_indent_removed=not request.around) for x in rows)
    counters = {}
    gathered = {}
    layouts = {}
    fusable = {}
    for key, names in request.counters.items():
        counters[key] = list_first_lines(tuple(names))
        if _EXCESS in names:
            gathered[key] = _compute_gathered_sector_share(kernel)
        if _CONFLICTS in names:
            from profkit.reports.banks import find_conflict_free_layouts

            layouts[key] = find_conflict_free_layouts(kernel)
        if _UNFUSED in names:
            from profkit.reports.fusing import compute_fusable_share

            share = compute_fusable_share(kernel)
            if share is not None:
                fusable[key] = share
    return HotLines(
        counters=counters, sampled=sampled, gathered=gathered, layouts=layouts, fusable=fusable
    )


def _compute_gathered_sector_share(kernel: LaunchedCode) -> ShareOrZero:
    """Return the share of the sectors beyond the ideal that gathers have; 0 where nothing is known."""
    excess = gathers = 0.0
    for pc, value in _sum_first_collected(kernel, COUNTERS[_EXCESS]).items():
        if value > 0:
            excess += value
            if kernel.is_gather(pc):
                gathers += value
    return gathers / excess if excess else 0.0


def _sum_first_collected(kernel: LaunchedCode, counter: Counter) -> dict[InstructionAddress, float]:
    """Return address -> a counter's value, of the first of its alternatives that was collected."""
    for terms in counter.alternatives:
        values = kernel.sum_metrics_by_address(terms)
        if values is not None:
            return values
    return {}


def _list_lines_of_first_counter(
    kernel: LaunchedCode, names: Sequence[str], most_lines: int
) -> list[CounterLine]:
    """Return the lines of the first counter that was collected and is not zero."""
    for name in names:
        counter = COUNTERS[name]
        if counter.states:
            sums = _sum_stalls_by_awaited_line(kernel, counter)
        else:
            sums = _sum_counter_by_line(kernel, counter)
        if sums:
            return _rank_lines_by_sum(kernel, name, sums, most_lines)
    return []


@dataclass
class _LineSum:
    """A line while its instructions are added up: the one with the most represents it."""

    value: float = 0.0
    most: float = 0.0
    pc: int = 0
    by_pc: dict[int, float] = field(default_factory=dict)
    producer: int | None = None
    states: Tally[str] = field(default_factory=Tally)

    def add_value(
        self,
        value: float,
        pc: InstructionAddress,
        producer: InstructionAddress | None = None,
        state: str = "",
    ) -> None:
        self.value += value
        self.by_pc[pc] = self.by_pc.get(pc, 0.0) + value
        if state:
            self.states[state] += value  # type: ignore[assignment]
        if value > self.most:
            self.most = value
            self.pc = pc
            self.producer = producer


def _sum_counter_by_line(kernel: LaunchedCode, counter: Counter) -> dict[Place, _LineSum]:
    sums: dict[Place, _LineSum] = defaultdict(_LineSum)
    for pc, value in _sum_first_collected(kernel, counter).items():
        if value > 0 and (not counter.opcodes or kernel.get_opcode(pc) in counter.opcodes):
            sums[kernel.place(pc)].add_value(value, pc)
    return sums


def _sum_stalls_by_awaited_line(kernel: LaunchedCode, counter: Counter) -> dict[Place, _LineSum]:
    """Return samples by the line that is waited for; by where the warps are when that is not known.

    One sample that waits for several lines is divided among them. A fixed latency is waited for
    from one instruction to the next: there the line is the thing.
    """
    sums: dict[Place, _LineSum] = defaultdict(_LineSum)
    for state in counter.states:
        samples = kernel.sum_metrics_by_address({RAW_SAMPLES[state]: 1.0}) or {}
        for pc, value in samples.items():
            sources = {kernel.place(source): source for source in kernel.producers(pc, state)}
            if state == _FIXED or not sources:
                first_source = next(iter(sources.values()), None)
                sums[kernel.place(pc)].add_value(value, pc, first_source, state)
                continue
            for place, source in sources.items():
                sums[place].add_value(value / len(sources), pc, source, state)
    return sums


def _rank_lines_by_stall_samples(
    kernel: LaunchedCode, most_lines: int, most_instructions: int
) -> list[CounterLine]:
    sums: dict[Place, _LineSum] = defaultdict(_LineSum)
    by_pc: dict[int, Tally[str]] = defaultdict(Tally)
    for raw, state in SAMPLES.items():
        for pc, value in (kernel.sum_metrics_by_address({raw: 1.0}) or {}).items():
            by_pc[pc][state] += int(value)
    for pc, states in sorted(by_pc.items()):  # of equals, the first instruction represents the line
        place = kernel.place(pc)
        sums[place].add_value(states.total(), pc)
        sums[place].states.update(states)
    return _rank_lines_by_sum(kernel, "samples", sums, most_lines, most_instructions)


def _rank_lines_by_sum(
    kernel: LaunchedCode,
    name: str,
    sums: Mapping[Place, _LineSum],
    most_lines: int,
    most_instructions: int = 0,
) -> list[CounterLine]:
    """Return the largest sums as lines, the largest first."""
    total = sum(line_sum.value for line_sum in sums.values())
    lines: list[tuple[CounterLine, _LineSum]] = []
    for line_sum in sums.values():
        lines.append((_make_counter_line(kernel, name, line_sum, total), line_sum))
    lines.sort(key=lambda pair: (-pair[0].value, *pair[0].place, pair[0].pc or 0))
    listed = []
    for line, line_sum in lines[:most_lines]:
        called_at = kernel.find_call_with_most_of_line(line_sum.by_pc)
        instructions = _list_heaviest_instructions_of_line(kernel, line_sum, most_instructions)
        listed.append(replace(line, called_at=called_at, sass=instructions))
    return listed


def _make_counter_line(
    kernel: LaunchedCode, name: str, line_sum: _LineSum, total: float
) -> CounterLine:
    """Return a sum as a line; `total`: of the counter over the launch."""
    stall, samples_there = _find_stall_with_most_samples(line_sum.states)
    location = _locate_instruction(kernel, line_sum.pc)
    producer = _locate_instruction(kernel, line_sum.producer)
    return CounterLine(
        counter=name,
        file=location.file,
        line=location.line,
        pc=location.pc,
        opcode=location.opcode,
        share=line_sum.value / total,
        value=line_sum.value,
        stall=stall,
        stall_share=samples_there / line_sum.value,
        producer_file=producer.file,
        producer_line=producer.line,
        producer_pc=producer.pc,
        producer_opcode=producer.opcode,
    )


StateAndSamples = tuple[str, int]


def _find_stall_with_most_samples(states: Tally[StallState]) -> StateAndSamples:
    """Return the state with most samples, issuing only where there is no other; "" of none."""
    waiting = states.copy()
    del waiting[_ISSUING]
    return next(iter((waiting or states).most_common(1)), ("", 0))


def _list_heaviest_instructions_of_line(
    kernel: LaunchedCode, sums: _LineSum, most_instructions: int
) -> tuple[tuple[str, float], ...]:
    """Return a line's instructions with most of it, as text."""
    hottest = sorted(sums.by_pc.items(), key=lambda pair: (-pair[1], pair[0]))
    listed = []
    for pc, value in hottest[:most_instructions]:
        text = " ".join(kernel.disassemble_instruction(pc).split())
        if text:
            listed.append((text, value / sums.value))
    return tuple(listed)


class _Location(NamedTuple):
    """Where an instruction is, and what; of none, that nothing is known."""

    file: str | None = None
    line: int | None = None
    pc: int | None = None
    opcode: str = ""


def _locate_instruction(kernel: LaunchedCode, pc: InstructionAddress | None) -> _Location:
    if pc is None:
        return _Location()
    file, line = kernel.place(pc)
    return _Location(file, line if file else None, pc, kernel.get_opcode(pc))


def _add_source_text(
    kernel: LaunchedCode, line: CounterLine, *, is_indent_removed: bool = True
) -> CounterLine:
    text = kernel.get_line_or_python_statement(
        line.file, line.line, are_python_statements_joined=is_indent_removed
    )
    if text is None:
        return line
    return replace(line, source=text.strip() if is_indent_removed else text.rstrip())


def _list_context_lines(
    kernel: LaunchedCode, hot_lines: Sequence[CounterLine], lines_around: int
) -> Iterator[CounterLine]:
    """Yield the lines of code near hot ones, in order; nothing was sampled in them."""
    if not lines_around:
        return
    sampled = {(line.file, line.line) for line in hot_lines}
    near: set[tuple[str, int | None]] = set()
    for file, line in sampled:
        if file in kernel.sources and line is not None:
            first = max(line - lines_around, 1)
            last = min(line + lines_around, len(kernel.sources[file]))
            for number in range(first, last + 1):
                near.add((file, number))
    for file, line in sorted(near - sampled):
        yield CounterLine("samples", file, line, None, "", 0.0, 0.0)
