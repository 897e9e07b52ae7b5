"""The files that the injection library wrote  ->  a Timeline.

Their structs stand in profkit/collect/injection.cpp; a file that ends in the middle of one
(a killed program) is read up to there.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profkit.errors import ProfkitError
from profkit.files import is_file
from profkit.program.readers.places import SourcePlaces
from profkit.program.timeline import (
    DIRECTIONS,
    FARTHEST,
    Activity,
    Call,
    Device,
    HostSpan,
    Process,
    Timeline,
    close_open_ranges,
    find_recording_end,
    make_activity,
    note_open_ranges,
    remove_version_suffix,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from profkit.units import (
        BeginAndEndNs,
        CallAndNodeStacks,
        CorrelationId,
        Nanoseconds,
        OperatorName,
        ProcessId,
        RankNumberOrZero,
        Sentence,
    )

# Of each file: the fields of its rows, little-endian, in numpy's words.
LAYOUTS = {
    "kernels": "start:u8 end:u8 node:u8 correlation:u4 device:u4 stream:u4 name:u4 graph:u4 "
    "grid:3i4 block:3i4 shared:u4 registers:u4",
    "copies": "start:u8 end:u8 node:u8 bytes:u8 correlation:u4 device:u4 stream:u4 graph:u4 "
    "kind:u1 source:u1 target:u1 flags:u1",
    "calls": "start:u8 end:u8 correlation:u4 thread:u4 name:u4",
    "ranges": "time:u8 id:u4 thread:u4 name:u4 phase:u4",
}
MEMORIES = {1: "Pageable", 2: "Pinned", 3: "Device", 4: "Array", 5: "Managed"}
MEMSET = 255
SHARE = 0.1  # of the GPU time of the busiest process: what has less is a helper of it
BEGINS = 2
ENDS = 4


def read_injected_recording(folder: Path) -> Timeline:
    """Read all processes in a folder.

    Raises:
        ProfkitError: No process of the program used a GPU, or what it did could not be recorded.
    """
    pids = sorted({int(p.stem) for p in folder.glob("*.meta") if p.stem.isdigit()})
    read_all = [_read_process(folder, pid) for pid in pids]
    processes = [p for p, _ in read_all if p.activities]
    notes = list(chain.from_iterable(own for _, own in read_all))
    if not processes:
        if not pids:
            raise ProfkitError(
                "the program did not use a GPU: none of its processes started CUDA",
                "check the command, and that it finds the GPU (nvidia-smi)",
            )
        why = ""
        if notes:
            why = f": {notes[0]}"
        raise ProfkitError(f"no kernel was recorded{why}", "profkit doctor says what is missing")
    return Timeline("cupti", _select_working_processes(processes), "", tuple(notes))


def _select_working_processes(processes: Sequence[Process]) -> list[Process]:
    """Return processes that do their share of the work, by rank.

    Numbered anew where two say one rank.
    """
    times: dict[int, int] = {}
    for process in processes:
        times[process.pid] = sum(activity.duration for activity in process.activities)
    least = SHARE * max(times.values())
    working = [p for p in processes if times[p.pid] >= least]
    working.sort(key=lambda p: (p.rank, p.pid))
    if len({p.rank for p in working}) == len(working):
        return working
    return [replace(p, rank=rank) for rank, p in enumerate(working)]


def _read_process(folder: Path, pid: ProcessId) -> tuple[Process, list[Sentence]]:
    """Return a process of a recording, and what is to be said of it."""
    about = _read_process_info(folder, pid)
    rows = {kind: _read_binary_rows(folder / f"{pid}.{kind}", kind) for kind in LAYOUTS}
    names = _read_lines(folder / f"{pid}.names")
    first = _find_first_time(rows)
    places = SourcePlaces(folder, pid)
    activities = _list_activities(rows, names, first, places)
    calls = _list_calls(rows["calls"], names, first, places)
    end = find_recording_end(activities, calls, [])
    spans = _make_nvtx_spans(rows["ranges"], names, first, end)
    operators, trouble = _list_operators(folder, pid, first, places, activities, calls)
    process = Process(
        pid=pid,
        rank=_find_rank(about),
        device=_read_most_used_device(about, activities),
        activities=activities,
        calls=calls,
        spans=_sort_outer_spans_first([*spans, *operators]),
        places=places.places,
        disturbed=_list_disturbed_spans(about, first),
    )
    missing = _say_what_is_missing(process, places, is_file(folder / f"{pid}.captured"))
    notes = _list_recorder_notes(process, about) + trouble
    return process, notes + [f"process {pid}: {text}" for text in missing]


def _sort_outer_spans_first(spans: list[HostSpan]) -> list[HostSpan]:
    return sorted(spans, key=lambda span: (span.start, -span.end))


def _say_what_is_missing(
    process: Process, places: SourcePlaces, is_captured: bool
) -> Iterator[Sentence]:
    """Say what the files lack of a process: lines, ends of ranges, operators of captured graphs."""
    yield from places.describe_missing_lines()
    yield from note_open_ranges([process])
    if is_captured:
        yield from _note_graphs_captured_before(process.activities, process.calls)


def _list_activities(
    rows: Mapping[str, Any],
    names: Sequence[str],
    first_time: Nanoseconds,
    source_places: SourcePlaces,
) -> list[Activity]:
    """List the kernels, copies and sets of a process by when they begin."""
    activities = [*_make_kernel_activities(rows["kernels"], names, first_time, source_places)]
    activities += _make_copy_activities(rows["copies"], first_time, source_places)
    activities.sort(key=lambda a: (a.start, a.end))
    return activities


def _find_rank(recorder_info: Mapping[str, Sequence[str]]) -> RankNumberOrZero:
    """Return the rank that the recorder was told; 0 where it was told none."""
    rank = recorder_info.get("rank", [""])[0]
    if rank.isdigit():
        return int(rank)
    return 0


def _find_first_time(rows: Mapping[str, Any]) -> Nanoseconds:
    """Return when the first of all records begins, by CUPTI's clock; 0 where there is none."""
    earliest = []
    for kind, records in rows.items():
        column = "start"
        if kind == "ranges":
            column = "time"
        if len(records):
            earliest.append(int(records[column].min()))
    return min(earliest, default=0)


def _list_disturbed_spans(
    recorder_info: Mapping[str, Sequence[str]], first_time: Nanoseconds
) -> list[BeginAndEndNs]:
    """Return when operators were recorded; a program that was ended meanwhile says no end.

    Those of a graph, which is captured at any time, are said as one pair.
    """
    ends = _parse_times(recorder_info.get("undisturbed", ()), first_time)
    spans = []
    for begin in _parse_times(recorder_info.get("disturbed", ()), first_time):
        later = [end for end in ends if end >= begin]
        spans.append((begin, min(later, default=FARTHEST)))
    for text in recorder_info.get("slowed", ()):
        words = text.split()
        if len(words) == 2 and all(word.isdigit() for word in words):
            spans.append((int(words[0]) - first_time, int(words[1]) - first_time))
    return sorted(spans)


def _parse_times(time_words: Sequence[str], first_time: Nanoseconds) -> list[Nanoseconds]:
    """Return the times that words tell, from the first record on; what is no number is left out."""
    return [int(word) - first_time for word in time_words if word.isdigit()]


def _read_process_info(folder: Path, pid: ProcessId) -> dict[str, list[str]]:
    """Return what the recorder says of a process: key to its values, in order."""
    about: dict[str, list[str]] = {}
    for line in (*_read_lines(folder / f"{pid}.meta"), *_read_lines(folder / f"{pid}.hook")):
        key, _, value = line.partition("\t")
        about.setdefault(key, []).append(value)
    return about


def _list_calls(
    rows: Any, names: Sequence[str], first_time: Nanoseconds, source_places: SourcePlaces
) -> list[Call]:
    calls = []
    for start, end, correlation, thread, name in rows.tolist():
        place = source_places.find_place_number(correlation)
        call = Call(
            _get_cleaned_name(names, name),
            start - first_time,
            end - first_time,
            thread,
            correlation,
            place,
        )
        calls.append(call)
    calls.sort(key=lambda c: c.start)
    return calls


def _read_needless_operators(
    folder: Path, pid: ProcessId
) -> tuple[Mapping[tuple[Nanoseconds, OperatorName], str], list[Sentence]]:
    """Return which operators are needless and why, and what is to be said where that is not known."""
    path = folder / f"{pid}.tensors"
    unknown = f"process {pid}: which work is the same in each step is not known"
    if not is_file(path):
        was_killed = "whole" not in _read_process_info(folder, pid)
        if was_killed and is_file(folder / f"{pid}.operators"):
            return {}, [f"{unknown}: the recorder writes it when the program ends by itself"]
        return {}, []
    from profkit.program.readers.tensors import read_needless_operators

    try:
        return read_needless_operators(path), []
    except ValueError as error:
        return {}, [f"{unknown}: {error}"]


def _list_operators(
    folder: Path,
    pid: ProcessId,
    first_time: Nanoseconds,
    source_places: SourcePlaces,
    activities: Sequence[Activity],
    calls: Sequence[Call],
) -> tuple[list[HostSpan], list[Sentence]]:
    """List operators round all launches, also of steps that were not seen, and round captured ones.

    And what is to be said of what is not known of them.
    """
    of_steps_file = folder / f"{pid}.operators"
    of_captures_file = folder / f"{pid}.captured"
    if not is_file(of_steps_file) and not is_file(of_captures_file):
        return [], []
    from profkit.program.readers.operators import (
        assign_operators_to_all_steps,
        make_spans_around_captured_calls,
        read_recorded_operators,
    )

    needless, trouble = _read_needless_operators(folder, pid)
    of_steps = read_recorded_operators(of_steps_file, first_time, needless)
    of_captures = read_recorded_operators(of_captures_file, first_time)
    launched = _get_kernels_by_launching_call(activities)
    made = [call for call in calls if call.correlation in launched]
    stacks = _find_stacks_of_calls(made, source_places)
    spans = assign_operators_to_all_steps(of_steps, made, stacks, source_places.threads, launched)
    captured = {activity.captured for activity in activities}
    kept = [call for call in calls if call.correlation in captured]
    seen = [*chain.from_iterable(of_steps), *chain.from_iterable(of_captures)]
    spans += make_spans_around_captured_calls(seen, kept, source_places.threads)
    return spans, trouble


def _get_kernels_by_launching_call(activities: Sequence[Activity]) -> dict[CorrelationId, Hashable]:
    """Return what each call launched: a kernel, its grid and its block."""
    launched: dict[int, Hashable] = {}
    for activity in activities:
        launched[activity.correlation] = activity.name, activity.grid, activity.block
    return launched


def _find_stacks_of_calls(
    calls: Sequence[Call], places: SourcePlaces
) -> tuple[dict[CorrelationId, CallAndNodeStacks], dict[CorrelationId, tuple[int, int]]]:
    """Find the stacks of calls, by their correlation numbers: exact ones, and similar ones."""
    exact = {}
    similar = {}
    for call in calls:
        exact[call.correlation] = places.find_stack_numbers(call.correlation)
        similar[call.correlation] = places.find_similar_stack_numbers(call.correlation)
    return exact, similar


def _note_graphs_captured_before(
    activities: Sequence[Activity], calls: Sequence[Call]
) -> Iterator[Sentence]:
    """Say so where what is replayed was captured before what is kept of the recording (--after)."""
    kept = {call.correlation for call in calls}
    nodes = set()
    for activity in activities:
        if activity.captured and activity.captured not in kept:
            nodes.add(activity.captured)
    if nodes:
        yield (
            f"the operators of {len(nodes)} nodes of CUDA graphs are not known: the graphs were "
            "captured before --after"
        )


def _list_recorder_notes(
    process: Process, recorder_info: Mapping[str, Sequence[str]]
) -> list[Sentence]:
    """List what the recorder could not record of a process."""
    pid = process.pid
    notes = [f"process {pid}: {text}" for text in recorder_info.get("error", ())]
    if why := recorder_info.get("lines"):
        notes.append(f"process {pid}: no Python lines are known: {why[-1]}")
    if why := recorder_info.get("backward"):
        notes.append(f"process {pid}: a backward pass has no lines: {why[-1]}")
    why = recorder_info.get("operators")
    if why and process.activities:  # a process that computes nothing has none to be missed
        notes.append(f"process {pid}: its operators are not known: {why[-1]}")
    if why := recorder_info.get("captures"):
        notes.append(f"process {pid}: of some CUDA graphs no operators are known: {why[-1]}")
    if dropped := recorder_info.get("dropped"):
        notes.append(f"process {pid}: CUPTI dropped {dropped[-1]} records")
    if "profiler" in recorder_info:
        notes.append(
            "the program uses torch.profiler itself: while profkit records it, its own profile has "
            "no GPU events"
        )
    if "whole" not in recorder_info:
        notes.append(f"process {pid} was killed: its last half second may be missing")
    return notes


def _read_lines(path: Path) -> list[str]:
    if is_file(path):
        return path.read_text("utf-8", "backslashreplace").split("\n")
    return []


def make_row_type(row_kind: str) -> np.dtype[Any]:
    """Return the type of the rows of a file as numpy reads them."""
    import numpy as np

    columns = []
    for column in LAYOUTS[row_kind].split():
        name, form = column.split(":")
        columns.append((name, f"<{form}"))
    return np.dtype(columns)


def _read_binary_rows(path: Path, row_kind: str) -> NDArray[Any]:
    import numpy as np

    layout = make_row_type(row_kind)
    if not is_file(path):
        return np.zeros(0, layout)
    content = path.read_bytes()
    return np.frombuffer(content[: len(content) // layout.itemsize * layout.itemsize], layout)


def _get_cleaned_name(names: Sequence[str], name_number: int) -> str:
    name = "unknown"
    if name_number < len(names):
        name = names[name_number]
    return remove_version_suffix(name)


def _make_kernel_activities(
    rows: NDArray[Any], names: Sequence[str], first_time: Nanoseconds, source_places: SourcePlaces
) -> Iterator[Activity]:
    for start, end, node, correlation, device, stream, number, graph, *rest in rows.tolist():
        if end <= start:
            continue
        grid, block, shared, registers = rest
        name = _get_cleaned_name(names, number)
        about: dict[str, Any] = {
            "grid": tuple(grid.tolist()),
            "block": tuple(block.tolist()),
            "shared": shared,
            "registers": registers,
            "graph": bool(graph),
        }
        made = 0
        if graph:
            made = node
            about["captured"] = source_places.find_capturing_call_or_zero(node)
        if name.startswith("nccl") and not source_places.is_called_from_python(correlation, made):
            about["origin"] = source_places.find_place_of_gradient_bucket(correlation, made)
        else:
            about["origin"] = source_places.find_place_number(correlation, made)
        times = start - first_time, end - first_time, device, stream, correlation
        yield make_activity("kernel", name, times, **about)


def _make_copy_activities(
    rows: NDArray[Any], first_time: Nanoseconds, source_places: SourcePlaces
) -> Iterator[Activity]:
    for start, end, node, size, correlation, device, stream, graph, *kinds in rows.tolist():
        number, source, target, _ = kinds
        read_from = MEMORIES.get(source, "unknown")
        written_to = MEMORIES.get(target, "unknown")
        direction = DIRECTIONS.get(number, "")
        kind = "set"
        name = "Memset"
        if number != MEMSET:
            kind = "copy"
            name = f"Memcpy {direction} ({read_from} -> {written_to})"
        about: dict[str, Any] = {
            "bytes": size,
            "direction": direction,
            "pageable": "Pageable" in {read_from, written_to},
            "graph": bool(graph),
        }
        made = 0
        if graph:
            made = node
            about["captured"] = source_places.find_capturing_call_or_zero(node)
        about["origin"] = source_places.find_place_number(correlation, made)
        times = start - first_time, end - first_time, device, stream, correlation
        yield make_activity(kind, name, times, **about)


def _make_nvtx_spans(
    rows: NDArray[Any], names: Sequence[str], first_time: Nanoseconds, last_time: Nanoseconds
) -> list[HostSpan]:
    """Return NVTX ranges from their begin and end marks; those that are open at the end end there."""
    begun: dict[tuple[int, int], tuple[int, str]] = {}
    out = []
    for time, number, thread, name, phase in rows.tolist():
        key = number, thread
        if phase & BEGINS:
            begun[key] = time - first_time, _get_cleaned_name(names, name)
        elif phase & ENDS and key in begun:
            begin, begun_name = begun.pop(key)
            out.append(HostSpan("range", begun_name, begin, time - first_time, thread))
        last_time = max(last_time, time - first_time)
    still_open = []
    for (_, thread), (begin, name) in begun.items():
        still_open.append(HostSpan("range", name, begin, begin, thread))
    out += close_open_ranges(still_open, last_time)
    return sorted(out, key=lambda s: (s.start, -s.end))


def _read_most_used_device(
    recorder_info: Mapping[str, Sequence[str]], activities: Sequence[Activity]
) -> Device | None:
    used = 0
    if activities:
        used = activities[len(activities) // 2].device
    for line in recorder_info.get("device", ()):
        words = line.split("\t")
        if len(words) >= 4 and words[0] == str(used):
            major, _, minor = words[2].partition(".")
            return Device(words[1], (int(major), int(minor)), int(words[3]))
    return None
