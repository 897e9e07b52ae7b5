"""Files for other viewers: Chrome's trace format and speedscope's."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from profkit.program.readers import injected, read_timeline
from profkit.program.timeline import FARTHEST
from profkit.program.triage import Triage, triage_timeline
from profkit.show.exports import write_chrome_trace, write_speedscope
from tests.conftest import ROOT
from tests.program.made import GEMM, Program, ran
from tests.program.recorded_lines import MODEL, USER, record_training

TRACE = ROOT / "tests" / "program" / "data" / "copy_pageable.planted.json.gz"


@pytest.fixture
def answer(tmp_path: Path) -> Triage:
    return triage_timeline(injected.read_injected_recording(record_training(tmp_path / "r", 12)))


# The part of speedscope's published file format that is written, as JSON Schema. What it leaves open
# (further keys) is closed here, so that a key with a wrong spelling is seen.
FRAME = {
    "type": "object",
    "required": ["name"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "file": {"type": "string"},
        "line": {"type": "integer", "minimum": 1},
    },
}
SAMPLED = {
    "type": "object",
    "required": ["type", "name", "unit", "startValue", "endValue", "samples", "weights"],
    "additionalProperties": False,
    "properties": {
        "type": {"const": "sampled"},
        "name": {"type": "string"},
        "unit": {
            "enum": ["none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes"]
        },
        "startValue": {"type": "number"},
        "endValue": {"type": "number"},
        "samples": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
        "weights": {"type": "array", "items": {"type": "number", "minimum": 0}},
    },
}
SPEEDSCOPE = {
    "type": "object",
    "required": ["$schema", "shared", "profiles"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"const": "https://www.speedscope.app/file-format-schema.json"},
        "exporter": {"type": "string"},
        "shared": {
            "type": "object",
            "required": ["frames"],
            "properties": {"frames": {"type": "array", "items": FRAME}},
        },
        "profiles": {"type": "array", "items": SAMPLED, "minItems": 1},
    },
}


def check_speedscope(document: dict[str, Any]) -> list[list[str]]:
    """Hold a document to the format, also in what a schema cannot say; the stacks, as names."""
    jsonschema.Draft202012Validator(SPEEDSCOPE).validate(document)
    frames = document["shared"]["frames"]
    stacks = []
    for profile in document["profiles"]:
        assert len(profile["samples"]) == len(profile["weights"])
        assert sum(profile["weights"]) == profile["endValue"] - profile["startValue"]
        for stack in profile["samples"]:
            assert stack
            assert all(0 <= index < len(frames) for index in stack)
            stacks.append([frames[index]["name"] for index in stack])
    return stacks


def check_trace(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Hold a document to the format: what Perfetto's importer asks of complete events and names."""
    assert set(document) == {"displayTimeUnit", "traceEvents"}
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = {}
    named = set()
    for event in document["traceEvents"]:
        assert isinstance(event["name"], str)
        assert type(event["pid"]) is int
        assert type(event["tid"]) is int
        if event["ph"] == "M":
            assert event["name"] in {"process_name", "thread_name"}
            assert isinstance(event["args"]["name"], str)
            named.add((event["pid"], event["tid"]))
            continue
        assert event["ph"] == "X"
        assert event["dur"] >= 0
        key = event["pid"], event["tid"]
        tracks.setdefault(key, []).append((event["ts"], event["ts"] + event["dur"]))
    assert set(tracks) <= named
    for track, times in tracks.items():
        if track[1] >= 100_000:
            check_nesting(times)  # calls of the runtime hold calls of the driver
            continue
        ordered = sorted(times)
        for (_, end), (begin, _) in pairwise(ordered):
            assert begin >= end - 1e-6, track
    return [event for event in document["traceEvents"] if event["ph"] == "X"]


def check_nesting(times: list[tuple[float, float]]) -> None:
    """Each event of a thread ends within those in which it began: others are cut when it is read."""
    within: list[float] = []
    for begin, end in sorted(times, key=lambda time: (time[0], -time[1])):
        while within and within[-1] <= begin + 1e-6:
            within.pop()
        assert not within or end <= within[-1] + 1e-6
        within.append(end)


def test_a_trace_has_kernels_lines_steps_and_findings(answer: Triage, tmp_path: Path) -> None:
    file = tmp_path / "step.json.gz"
    write_chrome_trace(file, answer)
    events = check_trace(json.loads(gzip.decompress(file.read_bytes())))
    kernels = [event for event in events if event["cat"] == "kernel"]
    assert len(kernels) == len(answer.process.activities)
    assert kernels[0]["args"]["line"] == f"{MODEL}:64"
    assert kernels[0]["args"]["module"] == "h.0.attn"
    assert any(event["name"].startswith("model.py:64 Attention") for event in events)
    assert sum(event["name"].startswith("step ") for event in events) == len(answer.steps.steps)


def test_a_trace_shows_when_the_host_was_slowed(answer: Triage, tmp_path: Path) -> None:
    """By recording operators: of steps, of a graph meanwhile, and until the program was killed."""
    slowed = [(100_000, 900_000), (300_000, 400_000), (800_000, 1_000_000), (2_000_000, FARTHEST)]
    process = replace(answer.process, disturbed=slowed)
    timeline = replace(answer.timeline, processes=[process])
    file = tmp_path / "step.json"
    write_chrome_trace(file, replace(answer, timeline=timeline))
    shown = [event for event in check_trace(json.loads(file.read_text())) if event["tid"] == 3]
    last = max(activity.end for activity in process.activities)
    times = [(event["ts"], event["dur"]) for event in shown]
    assert times == [(100, 800), (900, 100), (2_000, pytest.approx(last / 1e3 - 2_000))]
    assert {event["name"] for event in shown} == {
        "torch's operators are recorded: the host is slowed"
    }


def test_what_a_finding_covers_is_in_its_track(tmp_path: Path) -> None:
    answer = triage_timeline(read_timeline(TRACE))
    file = tmp_path / "step.json"
    write_chrome_trace(file, answer)
    events = check_trace(json.loads(file.read_text()))
    covered = [event for event in events if event["tid"] == 10]
    assert len(covered) == len(answer.findings[0].works)
    assert covered[0]["args"]["say"] == answer.findings[0].cause


def test_a_trace_is_read_back_as_the_same_program(answer: Triage, tmp_path: Path) -> None:
    file = tmp_path / "step.json"
    write_chrome_trace(file, answer)
    again = triage_timeline(read_timeline(file))
    assert [g.name for g in again.groups] == [g.name for g in answer.groups]
    assert again.split.busy == pytest.approx(answer.split.busy, rel=1e-3)


def test_speedscope_has_the_time_of_each_stack(answer: Triage, tmp_path: Path) -> None:
    file = tmp_path / "step.speedscope.json"
    write_speedscope(file, answer)
    document = json.loads(file.read_text())
    stacks = check_speedscope(document)
    frames = document["shared"]["frames"]
    (profile,) = document["profiles"]
    assert profile["unit"] == "nanoseconds"
    assert {index for stack in profile["samples"] for index in stack} == set(range(len(frames)))
    caller = "called at train.py:88"
    line = "model.py:64 Attention.forward"
    assert [caller, "h", "h.0", "h.0.attn", line, "attention"] in stacks
    called = next(frame for frame in frames if frame["name"] == caller)
    assert called == {"name": caller, "file": USER, "line": 88}


def test_speedscope_of_a_trace_has_its_functions_and_operators(tmp_path: Path) -> None:
    def step(program: Program) -> None:
        for folder in ("a", "b"):  # two files of one name are two frames
            frame = f"/src/{folder}/model.py(10): forward"
            with program.op(frame, kind="python_function"), program.op("aten::mm"):
                program.launch(GEMM, 50.0)

    trace = read_timeline(ran(step).write(tmp_path / "t.json"))
    write_speedscope(tmp_path / "s.json", triage_timeline(trace))
    document = json.loads((tmp_path / "s.json").read_text())
    stacks = check_speedscope(document)
    assert [stack[-2] for stack in stacks] == ["aten::mm", "aten::mm"]
    files = [f["file"] for f in document["shared"]["frames"] if "file" in f]
    assert files == ["/src/a/model.py", "/src/b/model.py"]
