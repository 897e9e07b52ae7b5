"""torch.profiler's trace (Kineto's Chrome format)  ->  a Timeline."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from profkit.errors import ProfkitError
from profkit.files import BudgetSpent
from profkit.program.readers import COMPILED, RecordingKind
from profkit.program.readers.chrome import ChromeTrace, EventPairs
from profkit.program.readers.others import explain_known_kind
from profkit.program.timeline import (
    FARTHEST,
    Activity,
    Call,
    Device,
    Dims,
    HostSpan,
    Process,
    Timeline,
    close_open_ranges,
    find_recording_end,
    note_open_ranges,
    read_operand_sizes,
)

if TYPE_CHECKING:
    from profkit.units import (
        BeginAndEndNs,
        CountOrZero,
        FrameText,
        Nanoseconds,
        NanosecondsOrZero,
        ProcessId,
        RankNumberOrZero,
        Sentence,
        ThreadId,
    )


MOST = 4_000_000  # records kept: a trace of minutes is cut there, and says so
Shapes = tuple[tuple[int, ...], ...]
TWICE = 0.01  # of launches and kernels that stand there twice: then spans do too
Row = TypeVar("Row", Activity, Call, HostSpan)
CATEGORIES_MOST = 1000  # of those that are not read, and of names of processes
NAMES_MOST, NAME_MOST = 3, 60  # names of what is not read that are said, and characters of each
EVENTS_MOST = 2 * MOST  # looked at, also such as are of no use
# Bytes of the budget: of a record that is kept, of a size of a tensor, of a word that others have too.
_RECORD = 200
_NUMBER = 40
_REFERENCE = 8
# A profiler that records stacks stops at each call of a Python function, also of a built-in one, and at
# each return. The quickest frames do next to nothing: what they take, and what is between the quickest
# ones that follow each other, is the profiler's. On a processor without a GPU (PyTorch 2.13, four
# programs, timed with and without stacks) that was 0.8 to 2.3 times what a frame cost, 0.14 to 0.30 us.
FRAME_BYTES = 16  # what a frame takes here
LOOKED_AT = 100_000  # frames of a thread that tell what one costs
FEWEST = 100  # frames that call no other, and pairs of them: fewer tell nothing
QUICKEST = 0.05  # quantile of these

_CALLS = {"cuda_runtime", "cuda_driver"}
# As PyTorch wrote them up to 1.11 (Kineto's output_json.cpp of then).
_OLD = {"operator": "cpu_op", "runtime": "cuda_runtime"}
_OLD |= {"memcpy": "gpu_memcpy", "memset": "gpu_memset"}
_ACTIVITIES = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "set"}
_DIRECTION = re.compile(r"\b([HDP]to[HDP])\b")
# A Python frame of the user's own: a file that is neither an installed package nor Python's.
_FRAME = re.compile(r"^(?P<file>[^<].*\.py)\((?P<line>\d+)\): ")
_AMD = re.compile(r"\b(AMD|Radeon|Instinct|gfx\d+)\b")
# Keys of a trace by Chrome, or by torch.profiler.
_TRACE = re.compile(rb'"(?:traceEvents|deviceProperties|ph)"\s*:')
_NOT_USERS = re.compile(r"site-packages|dist-packages|/lib/python3|^torch/|^<|importlib|runpy\.py")


def read_torch_trace(path: Path) -> Timeline:
    """Read a trace.

    Raises:
        ProfkitError: It is no trace, or nothing in it ran on a GPU.
    """
    trace = ChromeTrace(path)
    taken = _TraceContent(trace)
    try:
        _take_events_into_content(trace, taken)
    except BudgetSpent as error:
        raise trace.make_unreadable_error(str(error)) from error
    taken.end_open_ranges()
    notes = taken.drop_events_without_time(path)
    _refuse_trace_without_gpu(path, taken, trace)
    rank, world = _read_rank_of_how_many(trace.header)
    device, of_amd = _find_device_and_notes(trace.header, taken)
    process, twice = _make_process_of_most_calls(taken, rank, device)
    notes += of_amd
    notes += _describe_left_out_events(path, trace, taken)
    notes += note_open_ranges([process])
    notes += _say_repeated(path, taken, process.pid, twice)
    if world > 1:
        notes.append(f"rank {rank} of {world}: the other ranks have their own traces")
    return Timeline("torch trace", [process], "", tuple(notes))


RECORDING = RecordingKind(
    name="a torch trace (.json, .json.gz)",
    suffixes=(".json", ".json.gz"),
    is_kind=lambda file: file.is_json and _TRACE.search(file.text) is not None,
    read=read_torch_trace,
)


def _refuse_trace_without_gpu(path: Path, content: _TraceContent, trace: ChromeTrace) -> None:
    """Raise a ProfkitError that says whose trace it is, or why nothing in it ran on a GPU."""
    other = explain_known_kind(path, categories=content.categories, processes=content.processes)
    if other and not (content.activities and content.calls):
        raise other
    if not content.activities:
        raise _make_no_gpu_error(path, content, trace)


def _make_process_of_most_calls(
    content: _TraceContent, rank: int, device: Device | None
) -> tuple[Process, int]:
    """Return the process with the most calls, and how many of its records were there twice."""
    pid = max(content.calls, key=lambda p: len(content.calls[p]), default=0)
    activities = sorted(content.activities, key=lambda a: (a.start, a.end, a.stream, a.correlation))
    calls = sorted(content.calls.get(pid, []), key=lambda c: (c.start, c.thread, c.correlation))
    calls = add_ns_spent_tracing_frames(calls, content.frames)
    records = len(activities) + len(calls)
    activities = _drop_repeated_records(activities)
    calls = _drop_repeated_records(calls)
    twice = records - len(activities) - len(calls)
    spans = content.sort_spans()
    if twice > TWICE * records:
        spans = _drop_repeated_records(spans)
    return Process(pid, rank, device, activities, calls, spans), twice


def _find_device_and_notes(
    header: Mapping[str, Any], content: _TraceContent
) -> tuple[Device | None, list[Sentence]]:
    """Return the GPU of a trace, and what is not checked where it is one of AMD's."""
    device = _find_most_used_device(header, content.activities)
    if not content.hip and not _is_amd(device):
        return device, []
    if device and device.name:
        device = replace(device, cc=None)
    else:
        device = Device("AMD GPU")
    note = (
        "an AMD GPU: judged by its operators, calls, times and bytes; findings about NVIDIA's "
        "units (tensor cores, tiles, precision by kernel name) are not checked"
    )
    return device, [note]


def _say_repeated(
    path: Path, content: _TraceContent, pid: ProcessId, repeated_record_count: int
) -> Iterator[Sentence]:
    """Yield what is said of records that are there twice, and of several processes in one trace."""
    if repeated_record_count:
        yield (
            f"{path}: {repeated_record_count:,} launches and kernels appear twice in it: "
            "they are read once"
        )
    if len(content.calls) > 1:
        yield (
            f"{path}: holds {len(content.calls)} processes, whose kernels cannot be separated: read "
            f"as process {pid}, which has the most calls; record each process into its own trace"
        )


def _read_rank_of_how_many(header: Mapping[str, Any]) -> tuple[RankNumberOrZero, CountOrZero]:
    """Return the rank of the process and how many there are; 0 where that is not said."""
    ranks = header.get("distributedInfo")
    if not isinstance(ranks, dict):
        ranks = {}
    return _convert_to_integer_or_zero(ranks.get("rank")), _convert_to_integer_or_zero(
        ranks.get("world_size")
    )


def _describe_left_out_events(
    path: Path, trace: ChromeTrace, content: _TraceContent
) -> Iterator[Sentence]:
    if trace.problem:
        yield f"{path}: {trace.problem}"
    if unmatched := content.pairs.unmatched:
        yield (
            f"{path}: {unmatched:,} of its begin and end events (B, E) have no counterpart: left out"
        )


def _take_events_into_content(trace: ChromeTrace, content: _TraceContent) -> None:
    for seen, event in enumerate(trace.read_events(), 1):
        content.add_event(event)
        if content.count >= MOST or seen >= EVENTS_MOST:
            if content.count >= MOST:
                most = f"{MOST:,} records"
            else:
                most = f"{EVENTS_MOST:,} events"
            trace.problem = f"longer than {most}: the rest was skipped"
            break


def _drop_repeated_records(rows: list[Row]) -> list[Row]:
    """Return sorted rows without those that are the one before once more."""
    out = rows[:1]
    for before, row in pairwise(rows):
        if row.start != before.start or row != before:  # equality makes two tuples of all fields
            out.append(row)
    return out


def _read_event_times(event: Mapping[str, Any]) -> BeginAndEndNs | None:
    """Return when an event began and ended, in ns; None where it does not say."""
    try:
        start = round(float(event["ts"]) * 1000)
        return start, start + max(0, round(float(event.get("dur") or 0) * 1000))
    except (TypeError, ValueError, KeyError, OverflowError):
        return None


class TracedFrames:
    """When Python frames began, by thread; of the first ones also when they ended."""

    def __init__(self) -> None:
        self.starts: dict[int, array[int]] = {}
        self.ends: dict[int, array[int]] = {}

    def add_frame(self, thread: ThreadId, start: Nanoseconds, end: Nanoseconds) -> None:
        """Take in a frame."""
        if thread not in self.starts:
            self.starts[thread] = array("q")
            self.ends[thread] = array("q")
        self.starts[thread].append(start)
        if len(self.ends[thread]) < LOOKED_AT:
            self.ends[thread].append(end)


def add_ns_spent_tracing_frames(calls: Sequence[Call], frames: TracedFrames) -> list[Call]:
    """Return calls with what recording the frames before each took."""
    if not frames.starts:
        return list(calls)
    costs = {}
    begins = {}
    for thread, starts in frames.starts.items():
        costs[thread] = estimate_frame_cost_ns(starts, frames.ends[thread])
        begins[thread] = sorted(starts)
    counted: dict[int, int] = {}
    out = []
    for call in calls:
        own = begins.get(call.thread)
        if own is None:
            out.append(call)
            continue
        count = bisect_left(own, call.start)
        new = count - counted.get(call.thread, 0)
        counted[call.thread] = count
        out.append(replace(call, traced=round(new * costs[call.thread])))
    return out


def estimate_frame_cost_ns(
    starts: Sequence[Nanoseconds], ends: Sequence[Nanoseconds]
) -> NanosecondsOrZero:
    """Return the nanoseconds that recording a frame costs at least; 0 where too few tell."""
    frames = sorted(zip(starts, ends, strict=False), key=lambda frame: (frame[0], -frame[1]))
    lengths = []
    between = []
    for (start, end), (after, _) in pairwise(frames):
        if after >= end:  # it calls no other
            lengths.append(end - start)
            between.append(after - end)
    if len(lengths) < FEWEST:
        return 0.0
    lengths.sort()
    between.sort()
    quick = int(QUICKEST * len(lengths))
    return float(lengths[quick] + between[quick])


class _TraceContent:
    """What was taken out of the events so far."""

    def __init__(self, trace: ChromeTrace) -> None:
        self._trace = trace
        self.activities: list[Activity] = []
        self.calls: dict[int, list[Call]] = {}
        self.spans: list[HostSpan] = []
        self.count = 0  # of all of them
        self.hip = False
        self.timeless: list[Activity] = []  # at 0 or before, which is no time of a running clock
        self.untimed = 0  # kernels and copies that have no time at all
        self.categories: set[str] = set()  # of events that are not read
        self.processes: set[str] = set()  # names of processes and of groups of tracks
        self.shapes: dict[Shapes, Shapes] = {}  # each once: operators of one size are many
        self.frames = TracedFrames()  # all Python frames, also those that are not kept
        self.pairs = EventPairs()  # events that are written as a begin and an end
        self._seen = 0
        self._numbers = array("q")  # of each span: where in the file it begins

    def add_event(self, event: Mapping[str, Any]) -> None:
        """Keep an event if it is of use: a whole one, or a begin until its end comes."""
        phase = event.get("ph")
        self._seen += 1
        if phase == "B":
            self.pairs.begin_event(event, self._seen, self._trace.characters)
        elif phase == "E":
            ended = self.pairs.end_event(event)
            if ended is not None:
                number, whole = ended
                self._add_complete_event(whole, number)
        else:
            self._add_complete_event(event, self._seen)

    def end_open_ranges(self) -> None:
        """Take ranges that were begun and not ended as ones until the end; what else was, is nothing."""
        named = len(self.spans)
        for number, event in self.pairs.list_open_events():
            if event.get("cat") == "user_annotation":
                self._add_complete_event({**event, "ph": "X", "dur": 0}, number)
            else:
                self.pairs.unmatched += 1
        begun = self.spans[named:]
        del self.spans[named:]
        del self._numbers[named:]
        if not begun:
            return
        calls = list(chain.from_iterable(self.calls.values()))
        for span in close_open_ranges(
            begun, find_recording_end(self.activities, calls, self.spans)
        ):
            self._seen += 1
            self._keep_span(span, self._seen)

    def describe_other_content(self) -> str:
        """Say what the file holds where none of its events is of a GPU or of PyTorch."""
        if not self._seen:
            return "holds no events"
        named = sorted(self.processes) or sorted(self.categories)
        of = ""
        if named:
            of = f" ({', '.join(name[:NAME_MOST] for name in named[:NAMES_MOST])})"
        return (
            f"is a recording of something else{of}: none of its {self._seen:,} events is of a GPU "
            "or of PyTorch"
        )

    def sort_spans(self) -> list[HostSpan]:
        """Return spans by start, outer before inner; of two equally long ones, the one begun first."""
        numbered = zip(self._numbers, self.spans, strict=True)
        ordered = sorted(numbered, key=lambda pair: (pair[1].start, -pair[1].end, pair[0]))
        return [span for _, span in ordered]

    def _keep_span(self, span: HostSpan, place_in_file: int) -> None:
        self.spans.append(span)
        self._numbers.append(place_in_file)

    def _add_complete_event(self, event: Mapping[str, Any], place_in_file: int) -> None:
        """Keep an event, whose begin has a number in the file, if it is of use."""
        kind = event.get("cat")
        if event.get("ph") != "X" or not isinstance(kind, str):
            self._keep_process_name(event)
            return
        kind = _OLD.get(kind.lower(), kind.lower())
        times = _read_event_times(event)
        if times is None:
            self.untimed += kind in _ACTIVITIES
            return
        start, end = times
        if not -FARTHEST < start <= end < FARTHEST:
            return
        if self._keep_event(kind, event, times, place_in_file):
            self._trace.budget.spend_bytes(_RECORD)
            self.count += 1

    def _keep_event(
        self,
        event_category: str,
        event: Mapping[str, Any],
        times: BeginAndEndNs,
        place_in_file: int,
    ) -> bool:
        """Keep an event by its kind; return whether it takes a record of memory."""
        start, end = times
        details = event.get("args")
        args = {}
        if isinstance(details, dict):
            args = details
        name = self._trace.budget.intern_text(_clean_name(event.get("name", "")))
        if event_category in _ACTIVITIES:
            if start <= 0:
                own = self.timeless
            else:
                own = self.activities
            own.append(_make_activity(_ACTIVITIES[event_category], name, args, start, end))
            return True
        thread = _convert_to_integer_or_zero(event.get("tid"))
        if event_category in _CALLS:
            correlation = _convert_to_integer_or_zero(args.get("correlation"))
            call = Call(name, start, end, thread, correlation)
            self._keep_call(call, _convert_to_integer_or_zero(event.get("pid")))
            return True
        if event_category in {"cpu_op", "user_annotation"}:
            self._keep_span(
                self._make_span(event_category, name, args, times, thread), place_in_file
            )
            return True
        if event_category == "python_function":
            return self._keep_frame(name, times, thread, place_in_file)
        if len(self.categories) < CATEGORIES_MOST:
            self.categories.add(self._trace.budget.intern_text(event_category))
        return False

    def _keep_call(self, call: Call, pid: ProcessId) -> None:
        """Keep a call of the runtime with those of its process."""
        self.hip |= call.name.startswith("hip")
        self.calls.setdefault(pid, []).append(call)

    def _keep_frame(
        self, name: str, times: BeginAndEndNs, thread: ThreadId, place_in_file: int
    ) -> bool:
        """Count a function of Python as traced time; return whether it is the user's, which is kept."""
        start, end = times
        self.frames.add_frame(thread, start, end)
        if not _is_user_frame(name):
            self._trace.budget.spend_bytes(FRAME_BYTES)
            return False
        self._keep_span(HostSpan("python", name, start, end, thread), place_in_file)
        return True

    def _keep_process_name(self, event: Mapping[str, Any]) -> None:
        """Keep what a process is called: that tells who wrote a trace that cannot be read."""
        details = event.get("args")
        if event.get("name") != "process_name" or not isinstance(details, dict):
            return
        if len(self.processes) < CATEGORIES_MOST:
            name = _clean_name(details.get("name", ""))
            self.processes.add(self._trace.budget.intern_text(name))

    def drop_events_without_time(self, path: Path) -> list[str]:
        """Leave out what has no time, and say so; a clock that begins at 0 has such times too."""
        begins = []
        for calls in self.calls.values():
            for call in calls[:1]:
                begins.append(call.start)
        if min(begins, default=0) <= 0:
            self.activities += self.timeless
            self.timeless = []
        timeless = self.untimed + len(self.timeless)
        if not timeless:
            return []
        whole = len(self.activities) + timeless
        if not self.activities:
            raise ProfkitError(
                f"{path}: none of its {whole:,} kernels and copies has a time (ts is 0 or none)",
                "the recorder lost them: record again, with nothing else that profiles the GPU",
            )
        return [
            f"{path}: {timeless:,} of {whole:,} kernels and copies have no time (ts is 0 or none): "
            "left out"
        ]

    def _make_span(
        self,
        event_category: str,
        name: str,
        args: Mapping[str, Any],
        times: BeginAndEndNs,
        thread: ThreadId,
    ) -> HostSpan:
        """Make the span of an operator or a range."""
        label = "range"
        inputs: tuple[Shapes, tuple[str, ...]] = ((), ())
        # torch.compile writes the name of a graph as an annotation: no program named that.
        if event_category == "cpu_op" or name.startswith(COMPILED):
            label = "op"
            inputs = self._read_inputs(name, args)
        if name.startswith("ProfilerStep"):  # up to 1.10 as an operator
            label = "step"
        sequence = args.get("Sequence number")
        return HostSpan(
            label,
            name,
            *times,
            thread,
            *inputs,
            sequence=_convert_to_integer_or_zero(sequence) if sequence is not None else -1,
            backward=_convert_to_integer_or_zero(args.get("Fwd thread id")) != 0,
        )

    def _read_inputs(self, name: str, args: Mapping[str, Any]) -> tuple[Shapes, tuple[str, ...]]:
        """Return sizes and types of an operator's inputs."""
        listed = args.get("Input Dims", args.get("Input dims"))
        types = args.get("Input type")
        if isinstance(listed, list):
            shapes = read_operand_sizes(name, listed)
        else:
            shapes = ()
        budget = self._trace.budget
        if isinstance(types, list):
            words = tuple(budget.intern_text(_clean_name(word)) for word in types)
        else:
            words = ()
        if shapes not in self.shapes:
            budget.spend_bytes(_NUMBER * sum(map(len, shapes)))
        budget.spend_bytes(_REFERENCE * len(words))
        return self.shapes.setdefault(shapes, shapes), words


@lru_cache(maxsize=65536)
def _is_user_frame(frame: FrameText) -> bool:
    """Return whether a Python frame is in the user's own code."""
    parts = _FRAME.match(frame)
    return parts is not None and not _NOT_USERS.search(parts["file"])


def _clean_name(value: object) -> str:
    """Return a name; half a pair of surrogates, which is no character, is escaped."""
    return _escape_surrogates(value if isinstance(value, str) else str(value))


@lru_cache(maxsize=65536)  # and each name once: a trace says the same few a million times
def _escape_surrogates(text: str) -> str:
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _make_activity(
    kind: str, name: str, args: dict[str, Any], start: Nanoseconds, end: Nanoseconds
) -> Activity:
    """Make an activity of the GPU from what an event says of it."""
    direction = ""
    if kind == "copy":
        found = _DIRECTION.search(name)
        if found:
            direction = found[1]
    node = _convert_to_integer_or_zero(args.get("graph node id"))
    graph = _convert_to_integer_or_zero(args.get("graph id"))
    return Activity(
        kind,
        name,
        start,
        end,
        device=_convert_to_integer_or_zero(args.get("device")),
        stream=_convert_to_integer_or_zero(args.get("stream")),
        correlation=_convert_to_integer_or_zero(args.get("correlation")),
        grid=_parse_three_sizes(args.get("grid")),
        block=_parse_three_sizes(args.get("block")),
        shared=_convert_to_integer_or_zero(args.get("shared memory")),
        registers=_convert_to_integer_or_zero(args.get("registers per thread")),
        bytes=_convert_to_integer_or_zero(args.get("bytes")),
        direction=direction,
        pageable="ageable" in name,
        graph=bool(node or graph),
    )


def _parse_three_sizes(value: object) -> Dims | None:
    """Return three sizes; None, which is unknown and not zero, where one of them is none."""
    if not isinstance(value, list) or len(value) != 3:
        return None
    for size in value:
        if not isinstance(size, int | float) or _convert_to_integer_or_zero(size) <= 0:
            return None
    x, y, z = map(_convert_to_integer_or_zero, value)
    return (x, y, z)


def _convert_to_integer_or_zero(value: object) -> int:
    """Return an integer of 64 bits; 0 for what is none."""
    if type(value) is int and -FARTHEST < value < FARTHEST:  # nearly all: asked millions of times
        return value
    try:
        number: int = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return 0
    if -FARTHEST < number < 4 * FARTHEST:
        return number
    return 0


def _find_most_used_device(header: Mapping[str, Any], activities: list[Activity]) -> Device | None:
    """Return the GPU on which most of the kernels ran."""
    listed = header.get("deviceProperties")
    used = activities[len(activities) // 2].device
    rows = []
    for row in listed if isinstance(listed, list) else []:
        if isinstance(row, dict):
            rows.append(row)
    for row in rows:
        if _convert_to_integer_or_zero(row.get("id")) == used:
            return _make_device(row)
    # The list counts what the process may see, the activities what the machine has: where all
    # that are listed are of one kind, so is the one that ran.
    devices = {_make_device(row) for row in rows}
    if len(devices) == 1:
        return devices.pop()
    return None


def _make_device(row: Mapping[str, Any]) -> Device:
    """Return a GPU as the trace's header describes it."""
    major = _convert_to_integer_or_zero(row.get("computeMajor"))
    cc = None
    if major:
        cc = (major, _convert_to_integer_or_zero(row.get("computeMinor")))
    return Device(
        _clean_name(row.get("name", "")), cc, _convert_to_integer_or_zero(row.get("numSms")) or None
    )


def _is_amd(device: Device | None) -> bool:
    """Return whether a GPU is one of AMD's, by its name: its capability in PyTorch is no CUDA one."""
    return device is not None and _AMD.search(device.name) is not None


def _make_no_gpu_error(path: Path, content: _TraceContent, trace: ChromeTrace) -> ProfkitError:
    launches = sum(call.launches_kernels for own in content.calls.values() for call in own)
    if launches and trace.problem:
        why = f"{trace.problem}; before that it holds {launches:,} launches, and no kernel"
        hint = "copy it again, or record again"
    elif launches:
        if content.hip:
            where = " on an AMD GPU"
        else:
            where = ""
        why = f"holds {launches:,} launches{where}, but none of their kernels"
        if content.hip:
            holder = "roctracer or rocprof"
        else:
            holder = "nsys, ncu, DCGM"
        hint = (
            f"another profiler held the GPU ({holder}), or the records were lost: record again "
            "with nothing else that profiles it"
        )
    elif trace.problem and not content.count:
        why = trace.problem
        hint = "copy it again, or record again"
    elif content.count and trace.problem:
        why = f"{trace.problem}; nothing before that ran on a GPU"
        hint = "copy it again, or record it again: the file is not whole"
    elif content.count:
        why = "nothing in it ran on a GPU"
        hint = "record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
    else:
        why = content.describe_other_content()
        hint = (
            "profkit triage -- COMMAND records a program that uses the GPU; torch.profiler writes one "
            "with export_chrome_trace"
        )
    return ProfkitError(f"{path}: {why}", hint)
