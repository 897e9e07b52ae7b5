"""Traces that are cut, damaged, huge, of something else: one clear line, and what could be had."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from profkit.errors import ProfkitError
from profkit.files import ReadBudget
from profkit.program import readers as recordings
from profkit.program.readers import chrome, store, torch_trace
from profkit.program.steps.cut import find_steps
from profkit.program.triage import triage_timeline
from tests.program.made import GEMM, MUL, Program, ran


def step(p: Program) -> None:
    for _ in range(5):
        with p.op("aten::mm"):
            p.launch(GEMM, 100.0)


def error(path: Path) -> ProfkitError:
    with pytest.raises(ProfkitError) as caught:
        recordings.read_timeline(path)
    assert str(path) in caught.value.message
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("share", [0.3, 0.5, 0.9, 0.999])
def test_a_cut_trace_is_read_up_to_the_cut(share: float, packed: bool, tmp_path: Path) -> None:
    path = ran(step, 30).write(tmp_path / ("t.json.gz" if packed else "t.json"))
    whole = len(recordings.read_timeline(path).processes[0].activities)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    timeline = recordings.read_timeline(path)
    left = len(timeline.processes[0].activities)
    assert 0.8 * share * whole - 10 < left <= whole
    if share < 0.99:  # the last bytes are those after the list of events
        assert "cut" in timeline.notes[0]
    assert triage_timeline(timeline).why_healthy


def test_a_trace_cut_before_its_first_kernel(tmp_path: Path) -> None:
    path = ran(step).write(tmp_path / "t.json")
    path.write_bytes(path.read_bytes()[:300])
    assert "cut" in error(path).message


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "empty"),
        (b"hello", "not JSON"),
        (b"\x1f\x8bnot gzip at all", "damaged"),
        (b"\x00\x01\x02\x03" * 100, "not JSON"),
        (b'{"schema": "profkit.diagnosis/1"}', "no traceEvents"),
        (b'{"traceEvents": 7}', "not a list"),
        (b'{"traceEvents": []}', "no event"),
        (b'[1, 2, "x", null]', "no event"),
    ],
)
def test_what_is_no_trace_is_said_to_be_none(content: bytes, word: str, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content)
    assert word in error(path).message


@pytest.mark.slow
def test_a_gzip_bomb_ends_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.json.gz"
    blanks = b" " * 1_000_000
    with gzip.open(path, "wb") as file:
        file.write(b'{"traceEvents": [')
        for _ in range(200):
            file.write(blanks)
    assert path.stat().st_size < 300_000
    assert "unpacks to more than" in error(path).message


def test_an_endless_event_ends_early(tmp_path: Path) -> None:
    path = tmp_path / "t.json.gz"
    with gzip.open(path, "wb") as file:
        file.write(b'{"traceEvents": [{"name": "' + b"x" * (2 * chrome.EVENT_MOST))
    assert "longer than" in error(path).message


def test_a_trace_of_the_cpu_alone(tmp_path: Path) -> None:
    program = ran(lambda p: p.work(10.0))
    with program.op("aten::mm"):
        program.work(5.0)
    found = error(program.write(tmp_path / "t.json"))
    assert "nothing in it ran on a GPU" in found.message
    assert "ProfilerActivity.CUDA" in found.hint


def test_a_trace_of_amd(tmp_path: Path) -> None:
    program = Program()
    program._event("hipLaunchKernel", "cuda_runtime", 1.0, 2.0, {"correlation": 1})
    assert "AMD" in error(program.write(tmp_path / "t.json")).message


def test_damaged_events_are_left_out(tmp_path: Path) -> None:
    program = ran(step)
    program.events[3]["ts"] = "soon"
    program.events[5]["args"] = None
    program.events[7]["dur"] = float("nan")
    program.events.insert(0, {"ph": "X", "cat": ["kernel"]})
    program.events.insert(0, "text")  # type: ignore[arg-type]
    path = tmp_path / "t.json"
    path.write_text(program.text())  # with NaN, as Kineto writes it
    assert len(recordings.read_timeline(path).processes[0].activities) >= 28


@pytest.mark.parametrize(
    "grid", [["many", 1, 1], [None, 1, 1], [0, 0, 0], [4, 1], "4", [[4], 1, 1]]
)
def test_a_grid_that_is_no_number_is_unknown_and_not_zero(grid: object, tmp_path: Path) -> None:
    program = ran(lambda p: p.launch("my_kernel", 500.0, grid=(4, 1, 1)))
    for event in program.events:
        if event["cat"] == "kernel":
            event["args"]["grid"] = grid
    timeline = recordings.read_timeline(program.write(tmp_path / "t.json"))
    kernels = [a for a in timeline.processes[0].activities if a.kind == "kernel"]
    assert {(a.grid, a.block) for a in kernels} == {(None, (256, 1, 1))}
    assert not [f for f in triage_timeline(timeline).findings if "blocks on" in f.cause]


def test_a_header_without_its_commas_still_tells_the_gpu(tmp_path: Path) -> None:
    text = ran(step).text(cupti_version=1).replace(', "cupti_version"', ' "cupti_version"')
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="delimiter"):
        json.loads(text)
    device = recordings.read_timeline(path).processes[0].device
    assert device is not None
    assert (device.name, device.cc, device.multiprocessors) == ("NVIDIA H200", (9, 0), 132)


def test_control_characters_in_names_are_read(tmp_path: Path) -> None:
    path = ran(lambda p: p.launch("evil\x1b[31m<b>kernel", 50.0)).write(tmp_path / "t.json")
    path.write_bytes(path.read_bytes().replace(b"\\u001b", b"\x1b"))
    answer = triage_timeline(recordings.read_timeline(path))
    assert answer.groups[0].name == "evil\x1b[31m<b>kernel"


def test_a_trace_without_gpu_properties_claims_nothing_of_the_grid(tmp_path: Path) -> None:
    few = ran(lambda p: p.launch("my_kernel", 500.0, grid=(4, 1, 1)))
    timeline = recordings.read_timeline(few.write(tmp_path / "t.json", deviceProperties=[]))
    assert timeline.processes[0].device is None
    assert not [f for f in triage_timeline(timeline).findings if "blocks on" in f.cause]


def test_a_graph_s_kernels_share_its_launch(tmp_path: Path) -> None:
    program = ran(step)
    calls = [e for e in program.events if e["cat"] == "cuda_runtime"]
    kernels = [e for e in program.events if e["cat"] == "kernel"]
    for i, (call, kernel) in enumerate(zip(calls, kernels, strict=True)):
        kernel["args"]["correlation"] = 5 * (i // 5) + 1  # five kernels a graph
        kernel["args"]["graph node id"] = i + 1
        call["name"] = "cudaGraphLaunch"
    first = [c for i, c in enumerate(calls) if i % 5 == 0]
    kept = [e for e in program.events if e["cat"] != "cuda_runtime" or e in first]
    program.events = kept
    answer = triage_timeline(recordings.read_timeline(program.write(tmp_path / "t.json")))
    assert answer.groups[0].calls == 5
    assert answer.why_healthy


def test_two_steps_of_different_length_are_told(tmp_path: Path) -> None:
    program = Program()
    for number in range(9):
        with program.step():
            for _ in range(30 if number % 3 == 2 else 5):
                program.launch(GEMM, 100.0)
    answer = triage_timeline(recordings.read_timeline(program.write(tmp_path / "t.json")))
    assert any("take a different time: 0.500 to 3.00 ms" in note for note in answer.notes)
    assert answer.split.period / 1e6 == pytest.approx(0.5, rel=0.05)


@pytest.mark.slow
def test_twenty_thousand_launches_a_step(tmp_path: Path) -> None:
    from time import process_time

    def many(p: Program) -> None:
        for _ in range(20_000):
            p.launch(MUL, 2.0)

    path = ran(many, 2).write(tmp_path / "t.json.gz")
    began = process_time()
    answer = triage_timeline(recordings.read_timeline(path))
    assert answer.findings[0].rule == "host-launch"
    assert process_time() - began < 24


def test_a_folder_that_holds_no_timeline(tmp_path: Path) -> None:
    assert "contains no timeline.json" in error(tmp_path).message


def test_nsys_reports_want_exporting(tmp_path: Path) -> None:
    path = tmp_path / "x.nsys-rep"
    path.write_bytes(b"NSYS report of some kind")
    assert "nsys export --type sqlite" in error(path).hint


def test_work_without_a_launch_is_said_to_be_in_no_step(tmp_path: Path) -> None:
    def nested(p: Program) -> None:
        p.launch(GEMM, 300.0)
        p.launch("child_of_a_kernel()", 100.0)

    program = ran(nested)
    whole = triage_timeline(recordings.read_timeline(program.write(tmp_path / "whole.json")))
    gone = {e["args"]["correlation"] for e in program.events if e["name"] == "child_of_a_kernel()"}
    program.events = [
        e
        for e in program.events
        if e["cat"] != "cuda_runtime" or e["args"]["correlation"] not in gone
    ]
    cut = triage_timeline(recordings.read_timeline(program.write(tmp_path / "cut.json")))
    assert any("25 % of the GPU's work has no launch in the recording" in n for n in cut.notes)
    assert not any("no launch in" in n for n in whole.notes)


def test_events_of_no_use_end_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_trace, "EVENTS_MOST", 1000)
    empty = tmp_path / "t.json.gz"
    empty.write_bytes(gzip.compress(b'{"traceEvents": [' + b"{}," * 5000 + b"{}]}"))
    assert "longer than 1,000 events" in error(empty).message


def test_what_asks_for_more_than_its_bytes_can_need_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values of no use, names that unpack to a thousand times their bytes."""
    monkeypatch.setattr(ReadBudget, "SPARE", 1 << 16)
    numbers = tmp_path / "numbers.json.gz"
    numbers.write_bytes(gzip.compress(b'{"traceEvents": [' + b"0," * 500_000 + b"{}]}"))
    program = ran(step, 40)
    for number, event in enumerate(program.events):
        event["name"] = f"{number}{'n' * 10_000}"
    plain = program.write(tmp_path / "names.json")
    names = tmp_path / "names.json.gz"
    names.write_bytes(gzip.compress(plain.read_bytes()))
    for path in (numbers, names):
        assert "it asks for more memory than its bytes can need" in error(path).message
    assert recordings.read_timeline(plain).processes, "as plain text it has the bytes for its names"


def test_a_name_that_many_share_is_there_once(tmp_path: Path) -> None:
    program = ran(step, 20)
    traced = recordings.read_timeline(program.write(tmp_path / "t.json"))
    store.write_timeline(traced, tmp_path / "t.timeline")
    for timeline in (traced, recordings.read_timeline(tmp_path / "t.timeline")):
        names = [row.name for row in timeline.processes[0].activities]
        assert len({id(name) for name in names}) == len(set(names)) < len(names)


@pytest.mark.parametrize("sizes", [[10**4000, 3], [1 << 61] * 20, [-1, 3], [True, 3], ["3", 3]])
def test_sizes_that_no_memory_holds_are_unknown(sizes: list[object], tmp_path: Path) -> None:
    program = ran(step, 3)
    for event in program.events:
        if event["cat"] == "cpu_op":
            event["args"] = {"Input Dims": [sizes, [3, 3]], "Input type": ["float", "float"]}
    timeline = recordings.read_timeline(program.write(tmp_path / "t.json"))
    assert {s.shapes for s in timeline.processes[0].spans if s.kind == "op"} == {((), (3, 3))}
    triage_timeline(timeline)


def test_half_a_character_is_kept_as_its_escape(tmp_path: Path) -> None:
    program = ran(lambda p: p.launch("\ud800k", 100.0), 3)
    timeline = recordings.read_timeline(program.write(tmp_path / "t.json"))
    store.write_timeline(timeline, tmp_path / "t.timeline")
    kept = recordings.read_timeline(tmp_path / "t.timeline").processes[0].activities
    assert {a.name for a in kept} == {"\\ud800k"}


def test_every_event_twice_is_said_and_read_once(tmp_path: Path) -> None:
    program = ran(step, 4)
    one = recordings.read_timeline(program.write(tmp_path / "one.json"))
    program.events = [*program.events, *program.events]
    two = recordings.read_timeline(program.write(tmp_path / "two.json"))
    assert two.processes == one.processes
    assert one.notes == ()
    assert "40 launches and kernels appear twice in it" in two.notes[0]


def test_two_processes_in_one_trace_are_said(tmp_path: Path) -> None:
    program, other = ran(step, 4), ran(step, 3)
    for event in other.events:
        event["pid"] = 43 if event["pid"] == 42 else event["pid"]
        event["args"].pop("correlation", None)
    program.events += other.events
    timeline = recordings.read_timeline(program.write(tmp_path / "t.json"))
    assert (timeline.processes[0].pid, len(timeline.processes[0].calls)) == (42, 20)
    assert "holds 2 processes" in timeline.notes[0]
    # Kernels without a number are nobody's, not the first call's without one.
    of = triage_timeline(timeline)
    assert [len(s.works) for s in of.steps.steps] == [5] * 4
    assert any("has no launch in the recording" in note for note in of.notes)


def test_without_any_number_no_launch_is_known(tmp_path: Path) -> None:
    program = ran(step, 4)
    for event in program.events:
        event["args"].pop("correlation", None)
    timeline = recordings.read_timeline(program.write(tmp_path / "t.json"))
    with pytest.raises(ProfkitError, match="no kernel launch was recorded"):
        find_steps(timeline.processes[0])


@pytest.mark.parametrize("took", [0.0, 1e-9])
def test_a_clock_that_stands_still_times_no_step(took: float, tmp_path: Path) -> None:
    program = ran(step, 4)
    for event in program.events:
        event["ts"], event["dur"] = 4.0, took
    with pytest.raises(ProfkitError, match=r"launched inside of a step|take no time"):
        triage_timeline(recordings.read_timeline(program.write(tmp_path / "t.json")))


def rewrite(path: Path, *, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Path:
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    return path


@pytest.mark.parametrize("rest", ["", '{"traceEvents": []}'])
def test_a_header_behind_the_events_still_tells_the_gpu(rest: str, tmp_path: Path) -> None:
    path = ran(step).write(tmp_path / "t.json")
    rewrite(path, change=lambda trace: {"traceEvents": trace.pop("traceEvents"), **trace})
    path.write_text(path.read_text() + rest)
    timeline = recordings.read_timeline(path)
    device = timeline.processes[0].device
    if rest:  # whose header would that be?
        assert device is None
        assert "more than one trace" in timeline.notes[0]
    else:
        assert device is not None
        assert (device.name, device.cc) == ("NVIDIA H200", (9, 0))
        assert not timeline.notes


@pytest.mark.parametrize("names", [["A"], ["A", "A"], ["A", "B"]])
def test_a_gpu_that_is_listed_under_another_number_is_known_if_all_are_alike(
    names: list[str], tmp_path: Path
) -> None:
    """A process that may see some GPUs lists those from 0; the records have the machine's numbers."""
    listed = []
    for number, name in enumerate(names):
        listed.append({"id": number + 5, "name": name, "numSms": 100})
    path = ran(step).write(tmp_path / "t.json")
    rewrite(path, change=lambda trace: {**trace, "deviceProperties": listed})
    device = recordings.read_timeline(path).processes[0].device
    if "B" in names:
        assert device is None
    else:
        assert device is not None
        assert (device.name, device.multiprocessors) == ("A", 100)


@pytest.mark.parametrize(
    ("events", "said"),
    [
        (
            [{"ph": "X", "cat": "Browser", "name": "Paint", "ts": 1, "dur": 5}],
            "something else (browser)",
        ),
        ([{"ph": "X", "name": "work", "ts": 1, "dur": 5}], "something else: none of its 1 events"),
        ([{"id": "08", "duration": 7}], "something else: none of its 1 events"),
        ([{"ph": "M", "name": "process_name", "args": {"name": "Renderer"}}], "(Renderer)"),
        (
            [
                {
                    "ph": "M",
                    "name": "process_name",
                    "args": {"name": "/job:localhost/task:0/device:CPU:0"},
                }
            ],
            "JAX or TensorFlow",
        ),
        ([], "no events"),
    ],
)
def test_a_trace_of_another_program_is_named(
    events: list[dict[str, Any]], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": events}))
    assert said in error(path).message
