"""Files for other viewers: Chrome's trace format and speedscope's."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from profkit.program.readers import injected, read_timeline
from profkit.program.triage import Triage, triage_timeline
from profkit.show.exports import write_speedscope, write_trace
from tests.conftest import ROOT
from tests.program.recorded_lines import MODEL, USER, record_training

TRACE = ROOT / "tests" / "program" / "data" / "copy_pageable.planted.json.gz"


@pytest.fixture
def answer(tmp_path: Path) -> Triage:
    return triage_timeline(injected.read_injected(record_training(tmp_path / "r", 12)))


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
        if track[1] >= 100_000:  # calls of the runtime hold calls of the driver
            continue
        ordered = sorted(times)
        for (_, end), (begin, _) in pairwise(ordered):
            assert begin >= end - 1e-6, track
    return [event for event in document["traceEvents"] if event["ph"] == "X"]


def test_a_trace_has_kernels_lines_steps_and_findings(answer: Triage, tmp_path: Path) -> None:
    file = tmp_path / "step.json.gz"
    write_trace(file, answer)
    events = check_trace(json.loads(gzip.decompress(file.read_bytes())))
    kernels = [event for event in events if event["cat"] == "kernel"]
    assert len(kernels) == len(answer.process.activities)
    assert kernels[0]["args"]["line"] == f"{MODEL}:64"
    assert kernels[0]["args"]["module"] == "h.0.attn"
    assert any(event["name"].startswith("model.py:64 Attention") for event in events)
    assert sum(event["name"].startswith("step ") for event in events) == len(answer.steps.steps)


def test_what_a_finding_covers_is_in_its_track(tmp_path: Path) -> None:
    answer = triage_timeline(read_timeline(TRACE))
    file = tmp_path / "step.json"
    write_trace(file, answer)
    events = check_trace(json.loads(file.read_text()))
    covered = [event for event in events if event["tid"] == 10]
    assert len(covered) == len(answer.findings[0].works)
    assert covered[0]["args"]["say"] == answer.findings[0].cause


def test_a_trace_is_read_back_as_the_same_program(answer: Triage, tmp_path: Path) -> None:
    file = tmp_path / "step.json"
    write_trace(file, answer)
    again = triage_timeline(read_timeline(file))
    assert [g.name for g in again.groups] == [g.name for g in answer.groups]
    assert again.split.busy == pytest.approx(answer.split.busy, rel=1e-3)


def test_speedscope_has_the_time_of_each_stack(answer: Triage, tmp_path: Path) -> None:
    file = tmp_path / "step.speedscope.json"
    write_speedscope(file, answer)
    document = json.loads(file.read_text())
    frames = document["shared"]["frames"]
    (profile,) = document["profiles"]
    assert document["$schema"].endswith("file-format-schema.json")
    assert profile["type"] == "sampled"
    assert profile["unit"] == "nanoseconds"
    assert len(profile["samples"]) == len(profile["weights"])
    assert sum(profile["weights"]) == profile["endValue"] - profile["startValue"]
    assert {index for stack in profile["samples"] for index in stack} == set(range(len(frames)))
    stacks = [[frames[index]["name"] for index in stack] for stack in profile["samples"]]
    caller = "called at train.py:88"
    line = "model.py:64 Attention.forward"
    assert [caller, "h", "h.0", "h.0.attn", line, "attention"] in stacks
    called = next(frame for frame in frames if frame["name"] == caller)
    assert called == {"name": caller, "file": USER, "line": 88}
