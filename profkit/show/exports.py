"""A triage  ->  files that other viewers open: Chrome's trace format, and speedscope's."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profkit.files import write_bytes
from profkit.program.origins import find_origin_of_work
from profkit.program.steps.attribution import describe_source
from profkit.program.steps.cut import StepWork
from profkit.program.steps.places import (
    describe_place,
    list_line_runs,
    name_module,
    shorten_line_path,
)
from profkit.program.timeline import Activity, Process, find_recording_end
from profkit.program.triage import Triage
from profkit.reports.figures import get_base_name_of_kernel

if TYPE_CHECKING:
    from profkit.units import FileAndLine, Nanoseconds


# Tracks of a process in a trace: what is above the GPU's streams, and from where its numbers go.
STEPS = 1
LINES = 2
LEFT_OUT = 3
FINDINGS = 10
STREAMS = 1_000
THREADS = 100_000
KINDS = {"kernel": "kernel", "copy": "gpu_memcpy", "set": "gpu_memset", "graph": "kernel"}
SPEEDSCOPE = "https://www.speedscope.app/file-format-schema.json"


def write_chrome_trace(path: Path, answer: Triage) -> None:
    """Write the whole timeline in Chrome's trace format, which Perfetto opens; packed if named .gz.

    The process that was judged has tracks of its own above its streams: its steps, the lines of
    Python that its kernels are of, and each finding with what it covers in the step looked at. Each
    process has a track of when its host was slowed by recording torch's operators: steps in that
    time are left out of the answer.

    Raises:
        ProfkitError: It cannot be written.
    """
    events: list[dict[str, Any]] = []
    for process in answer.timeline.processes:
        events += _list_process_events(process)
    events += _list_answer_events(answer)
    _write_json(path, {"displayTimeUnit": "ms", "traceEvents": events})


def write_speedscope(path: Path, answer: Triage) -> None:
    """Write the GPU time of the step looked at by stack: caller, modules, line, kernel.

    Raises:
        ProfkitError: It cannot be written.
    """
    numbers: dict[tuple[str, str], int] = {}  # of frames, by name and file
    frames: list[dict[str, Any]] = []
    samples: list[list[int]] = []
    weights: list[int] = []
    for work in answer.steps.typical.works:
        stack = []
        for frame in _list_stack_frames(work):
            key = frame["name"], frame.get("file", "")
            if key not in numbers:
                numbers[key] = len(frames)
                frames.append(frame)
            stack.append(numbers[key])
        samples.append(stack)
        weights.append(work.activity.duration)
    profile = {
        "type": "sampled",
        "name": f"GPU time of one step, rank {answer.process.rank}",
        "unit": "nanoseconds",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }
    document = {
        "$schema": SPEEDSCOPE,
        "exporter": "profkit",
        "shared": {"frames": frames},
        "profiles": [profile],
    }
    _write_json(path, document)


def _list_stack_frames(work: StepWork) -> Iterator[dict[str, Any]]:
    """Yield frames from the outermost one to the kernel."""
    place = work.maker.place
    origin = find_origin_of_work(work)
    if place is not None and place.line:
        if place.called:
            yield _make_stack_frame(f"called at {shorten_line_path(place.called)}", place.called)
        names = []
        if place.module:
            names = place.module.split(".")
        for count in range(1, len(names) + 1):
            yield {"name": ".".join(names[:count])}
        yield _make_stack_frame(
            f"{shorten_line_path(place.line)} {place.function}".rstrip(), place.line
        )
    elif origin.function:  # of a trace, whose line is that of the function's def
        yield _make_stack_frame(describe_source(work.maker), origin.line)
    if origin.op and not (place is not None and place.line):
        yield {"name": origin.op}
    yield {"name": work.activity.name}


def _make_stack_frame(name: str, line: FileAndLine) -> dict[str, Any]:
    file, _, number = line.rpartition(":")
    frame: dict[str, Any] = {"name": name, "file": file}
    if number.isdigit():
        frame["line"] = int(number)
    return frame


def _list_process_events(process: Process) -> Iterator[dict[str, Any]]:
    """Yield what the GPU did, a track a stream, and what the host called, a track a thread."""
    pid = process.rank
    yield _make_track_name_event(pid, None, f"rank {process.rank} (process {process.pid})")
    streams = sorted({activity.stream for activity in process.activities})
    for stream in streams:
        yield _make_track_name_event(pid, STREAMS + stream, f"stream {stream}")
    for activity in process.activities:
        event = _make_event(
            pid, STREAMS + activity.stream, activity.name, activity.start, activity.end
        )
        event["cat"] = KINDS[activity.kind]
        event["args"] = _describe_activity(process, activity)
        yield event
    yield from _list_slowed_span_events(process)
    threads = sorted({call.thread for call in process.calls})
    tracks = {thread: THREADS + at for at, thread in enumerate(threads)}
    for thread, track in tracks.items():
        yield _make_track_name_event(pid, track, f"thread {thread}")
    for call in process.calls:
        event = _make_event(pid, tracks[call.thread], call.name, call.start, call.end)
        event["cat"] = "cuda_runtime"
        event["args"] = {"correlation": call.correlation}
        yield event


def _list_slowed_span_events(process: Process) -> Iterator[dict[str, Any]]:
    """Yield from when to when recording torch's operators slowed the host."""
    if not process.disturbed:
        return
    pid = process.rank
    yield _make_track_name_event(pid, LEFT_OUT, "left out")
    last = find_recording_end(process.activities, process.calls, ())
    until = 0
    for slowed_from, slowed_until in sorted(process.disturbed):
        begin = max(slowed_from, until)  # a graph may be captured in a time that is left out anyway
        end = min(slowed_until, last)
        if end > begin:
            said = "torch's operators are recorded: the host is slowed"
            yield _make_event(pid, LEFT_OUT, said, begin, end)
            until = end


def _describe_activity(process: Process, activity: Activity) -> dict[str, Any]:
    about: dict[str, Any] = {
        "device": activity.device,
        "stream": activity.stream,
        "correlation": activity.correlation,
    }
    if activity.grid is not None:
        about["grid"] = list(activity.grid)
    if activity.block is not None:
        about["block"] = list(activity.block)
    if activity.kind == "kernel":
        about["registers per thread"] = activity.registers
        about["shared memory"] = activity.shared
    else:
        about["bytes"] = activity.bytes
    if activity.origin >= 0:
        place = process.places[activity.origin]
        about |= {"line": place.line, "function": place.function, "module": name_module(place)}
        about |= {"called": place.called, "part": place.part}
    return about


def _list_answer_events(answer: Triage) -> Iterator[dict[str, Any]]:
    """Yield tracks of the process that was judged: its steps, lines, and findings."""
    pid = answer.process.rank
    yield _make_track_name_event(pid, STEPS, "steps")
    for number, step in enumerate(answer.steps.steps):
        said = f"step {number}" + (" (looked at)" if number == answer.steps.chosen else "")
        yield _make_event(pid, STEPS, said, step.first, step.first + step.period)
    yield _make_track_name_event(pid, LINES, "lines")
    yield from _list_line_events(answer.process, pid)
    works = answer.steps.typical.works
    for number, finding in enumerate(answer.findings):
        track = FINDINGS + number
        yield _make_track_name_event(pid, track, f"finding {number + 1}: {finding.rule}")
        for index in sorted(finding.works, key=lambda index: works[index].activity.start):
            activity = works[index].activity
            name = f"{finding.rule}: {get_base_name_of_kernel(activity.name)}"
            event = _make_event(pid, track, name, activity.start, activity.end)
            event["args"] = {"say": finding.cause, "try": finding.advice}
            yield event


def _list_line_events(process: Process, pid: int) -> Iterator[dict[str, Any]]:
    """Yield runs of kernels of one line on the busiest stream, each one event."""
    times: dict[int, int] = {}
    for activity in process.activities:
        times[activity.stream] = times.get(activity.stream, 0) + activity.duration
    busiest = max(times, key=lambda stream: times[stream])
    parts = []
    for activity in process.activities:
        if activity.stream == busiest:
            place = None
            if activity.origin >= 0:
                place = process.places[activity.origin]
            parts.append((place, activity.start, activity.end))
    for run in list_line_runs(parts):
        if run.place is not None:
            yield _make_event(pid, LINES, describe_place(run.place), run.begin, run.end)


def _make_event(
    pid: int, track: int, name: str, start: Nanoseconds, end: Nanoseconds
) -> dict[str, Any]:
    """Return a complete event; its times are microseconds."""
    return {
        "ph": "X",
        "cat": "profkit",
        "name": name,
        "pid": pid,
        "tid": track,
        "ts": start / 1e3,
        "dur": max(0, end - start) / 1e3,
    }


def _make_track_name_event(pid: int, track: int | None, name: str) -> dict[str, Any]:
    if track is None:
        kind = "process_name"
    else:
        kind = "thread_name"
    return {"ph": "M", "name": kind, "pid": pid, "tid": track or 0, "args": {"name": name}}


def _write_json(path: Path, document: dict[str, Any]) -> None:
    content = json.dumps(document, allow_nan=False, separators=(",", ":")).encode("utf-8")
    if path.suffix == ".gz":
        content = gzip.compress(content, 5, mtime=0)
    write_bytes(path, content)
