"""What people bring: one program recorded in several ways is one program; what is missing is said.

Recordings are built, by hypothesis where a property holds of all of them.
"""

from __future__ import annotations

import gzip
import io
import itertools
import json
import shutil
import sqlite3
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.errors import ProfkitError
from profkit.program import readers as recordings
from profkit.program.document import make_triage_document
from profkit.program.readers import injected, nsys, store
from profkit.program.readers.gathered import STANDARD_INPUT, read_recordings
from profkit.program.readers.others import OTHERS, list_unread_formats
from profkit.program.recorded import judge_recordings
from profkit.program.steps.cut import Steps, find_steps
from profkit.program.steps.idle import split_period_by_idle_cause
from profkit.program.steps.kinds import classify_by_name_then_operator, classify_kernel
from profkit.program.triage import Triage, triage_timeline
from profkit.show.exports import write_chrome_trace
from tests.conftest import ROOT
from tests.program.made import GEMM, MUL, SOFTMAX, Program, ran
from tests.program.made_nsys import Export, exported

LAYER = ("norm_kernel", "product_kernel", "attend_kernel", "act_kernel")


def read(program: Program, **header: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        return recordings.read_timeline(program.write(Path(folder) / "t.json", **header))


def steps_of(program: Program, named: str = "") -> Steps:
    return find_steps(read(program).processes[0], named)


def judged(program: Program, **header: Any) -> Triage:
    return triage_timeline(read(program, **header))


def close(first: Steps, second: Steps, rel: float = 0.02) -> bool:
    """Whether two typical steps take the same, and keep the GPU as busy."""
    periods = [s.typical.period for s in (first, second)]
    busy = [split_period_by_idle_cause(s.typical).busy for s in (first, second)]
    return periods[0] == pytest.approx(periods[1], rel=rel) and busy[0] == pytest.approx(
        busy[1], rel=rel
    )


# One program, recorded in three ways.

TIMES = st.lists(st.floats(20.0, 900.0), min_size=1, max_size=30)


def replaying(before: Sequence[float], inside: Sequence[float], after: Sequence[float]) -> Program:
    """A server that launches some kernels, replays a graph of the others, and waits."""

    def step(p: Program) -> None:
        for number, took in enumerate(before):
            p.launch(f"prepare_{number}", took)
        p.replay([(f"node_{number % 4}", took) for number, took in enumerate(inside)])
        for number, took in enumerate(after):
            p.launch(f"sample_{number}", took)
        p.wait()

    return ran(step, 7)


def unmarked(program: Program) -> Program:
    program.events = [e for e in program.events if not e["name"].startswith("ProfilerStep")]
    return program


@settings(max_examples=60, deadline=None)
@given(before=TIMES, inside=TIMES, after=TIMES, version=st.sampled_from(["", "_V2", "_V11"]))
def test_a_trace_and_an_export_by_node_or_by_graph_are_one_program(
    before: list[float], inside: list[float], after: list[float], version: str
) -> None:
    program = unmarked(replaying(before, inside, after))
    with tempfile.TemporaryDirectory() as folder:
        (process,) = read(program).processes
        every = [find_steps(process)]
        for graphs in ("node", "graph"):
            path = exported(process, Path(folder) / graphs, graphs=graphs, version=version)
            (own,) = recordings.read_timeline(path).processes
            every.append(find_steps(own))
    assert all(close(every[0], other) for other in every[1:])
    assert {s.how for s in every} == {every[0].how}
    assert len(every[2].typical.works) == len(before) + 1 + len(after)


def test_what_is_inside_of_a_graph_that_was_recorded_as_one_is_said_to_be_unknown(
    tmp_path: Path,
) -> None:
    (process,) = read(replaying([6.0], [900.0] * 10, [50.0])).processes
    of = triage_timeline(
        recordings.read_timeline(exported(process, tmp_path / "x.sqlite", graphs="graph"))
    )
    assert of.split.busy > 0.97 * of.split.period
    assert "host-launch" not in {f.rule for f in of.findings}
    assert of.groups[0].kind == "graph"
    assert any("--cuda-graph-trace=node" in note for note in of.notes)


@pytest.mark.parametrize(("seconds", "is_read"), [(60.0, True), (-1.0, False)])
def test_an_export_has_seconds_of_a_processor_and_not_of_a_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, is_read: bool
) -> None:
    """On a busy machine an honest export of 10 MB was "interrupted" after 1.6 s of a processor."""
    (process,) = read(replaying([300.0], [200.0], [100.0])).processes
    path = exported(process, tmp_path / "x.sqlite")
    clock = itertools.count(0, 1000)
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(nsys, "STEPS_APART", 10)
    monkeypatch.setattr(nsys, "SECONDS_MOST", seconds)
    if is_read:
        assert recordings.read_timeline(path).processes
    else:
        with pytest.raises(ProfkitError, match="cannot be read as an export"):
            recordings.read_timeline(path)


def test_a_recording_of_graphs_as_one_is_kept_and_exported(tmp_path: Path) -> None:
    (process,) = read(replaying([6.0], [900.0] * 10, [50.0])).processes
    path = exported(process, tmp_path / "x.sqlite", graphs="graph")
    of = triage_timeline(recordings.read_timeline(path))
    store.write_timeline(of.timeline, tmp_path / "kept")
    again = triage_timeline(recordings.read_timeline(tmp_path / "kept"))
    assert (again.split, again.groups) == (of.split, of.groups)
    write_chrome_trace(tmp_path / "step.json", of)
    names = {e.get("name") for e in json.loads((tmp_path / "step.json").read_text())["traceEvents"]}
    assert "CUDA graph 3" in names


@settings(max_examples=12, deadline=None)
@given(
    steps=st.integers(2, 6),
    unended=st.sets(st.integers(0, 5), min_size=1),
    around=st.booleans(),
    none=st.sampled_from([None, 0, -1]),
    took=st.floats(50.0, 900.0),
    kind=st.sampled_from([59, 60]),
)
def test_a_range_that_is_open_at_the_end_ends_there_and_changes_no_step(
    steps: int, unended: set[int], around: bool, none: int | None, took: float, kind: int
) -> None:
    def step(p: Program) -> None:
        for _ in range(3):
            p.launch(GEMM, took)
        p.wait()

    (process,) = read(unmarked(ran(step, steps))).processes
    last = max([a.end for a in process.activities] + [c.end for c in process.calls])
    with tempfile.TemporaryDirectory() as folder:
        before = recordings.read_timeline(exported(process, Path(folder) / "a.sqlite"))
        path = exported(process, Path(folder) / "b.sqlite")
        begins = [process.calls[0].start - 1] if around else []
        begins += [process.calls[4 * number].start for number in unended if number < steps]
        with sqlite3.connect(path) as base:
            for number, begin in enumerate(begins):
                row = (begin, none, 42 << 24, kind, f"open {number}", None)
                base.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?)", row)
            mark = (process.calls[0].start, None, 42 << 24, 34, "a mark", None)
            base.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?)", mark)
        base.close()
        after = recordings.read_timeline(path)
    (own,) = after.processes
    assert sorted((s.start, s.end) for s in own.spans) == sorted((b, last) for b in begins)
    assert any("still open when the recording ended" in note for note in after.notes) == bool(
        begins
    )
    assert find_steps(own).periods == find_steps(before.processes[0]).periods
    if begins:
        (named,) = find_steps(own, "open 0").steps
        launches = [call for call in process.calls if call.launches_kernels]
        assert len(named.works) == sum(call.start >= begins[0] for call in launches)


def test_an_open_range_of_our_own_recorder_ends_with_the_recording(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    shutil.copytree(ROOT / "tests/program/data/strided.timeline", folder)
    before = injected.read_injected_recording(folder).processes[0]
    (names,) = folder.glob("*.names")
    known = names.read_text("utf-8").rstrip("\n")
    names.write_text(f"{known}\nserve\n", "utf-8")
    number = len(known.split("\n"))
    layout = injected.make_row_type("ranges")
    calls = next(folder.glob("*.calls"))
    begin = np.fromfile(calls, injected.make_row_type("calls"))["start"].min()
    rows = np.zeros(1, layout)
    rows[0] = (begin, 1, 7, number, injected.BEGINS)
    with calls.with_suffix(".ranges").open("ab") as file:
        file.write(rows.tobytes())
    timeline = injected.read_injected_recording(folder)
    (span,) = [s for s in timeline.processes[0].spans if s.name == "serve"]
    assert span.end == max(a.end for a in (*before.activities, *before.calls))
    assert any("1 range was still open" in note for note in timeline.notes)
    store.write_timeline(timeline, tmp_path / "kept")
    assert (
        store.read_saved_timeline(tmp_path / "kept").processes[0].spans
        == timeline.processes[0].spans
    )


@pytest.mark.parametrize("newest", ["_V2", "_V3"])
def test_of_several_versions_of_a_table_the_newest_that_has_rows_is_read(
    newest: str, tmp_path: Path
) -> None:
    (process,) = read(replaying([6.0], [90.0], [50.0])).processes
    path = exported(process, tmp_path / "x.sqlite", version=newest)
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE NVTX_EVENTS (start, end, globalTid, eventType, text, textId)")
        base.execute("CREATE TABLE NVTX_EVENTS_V9 (start, end, globalTid, eventType, text, textId)")
    (own,) = recordings.read_timeline(path).processes
    assert {span.name for span in own.spans} == {"train_step"}


MAYBE = ["gridX", "registersPerThread", "graphNodeId", "staticSharedMemory", "globalPid"]


@pytest.mark.parametrize("column", MAYBE)
def test_a_column_that_a_version_lacks_is_unknown_and_nothing_else(
    column: str, tmp_path: Path
) -> None:
    (process,) = read(ran(lambda p: p.launch(GEMM, 100.0))).processes
    path = exported(process, tmp_path / "x.sqlite")
    with sqlite3.connect(path) as base:
        base.execute(f'ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN "{column}"')
    (own,) = recordings.read_timeline(path).processes
    assert [a.start for a in own.activities] == [a.start for a in process.activities]
    assert close(find_steps(own), find_steps(process))


def test_what_nsys_says_of_itself_is_passed_on(tmp_path: Path) -> None:
    export = Export(tmp_path / "x.sqlite")
    export.add("DIAGNOSTIC_EVENT", 0, 1, "Profiling has started.")
    export.add("DIAGNOSTIC_EVENT", 0, 2, "Some CUDA events were lost.")
    export.add("DIAGNOSTIC_EVENT", 0, 3, "The driver is newer than this build.")
    export.add("CUPTI_ACTIVITY_KIND_RUNTIME", 1, 2, 7, 1, export.number("cudaLaunchKernel_v7000"))
    export.close()
    with pytest.raises(ProfkitError, match=r"driver is newer than this build.*events were lost"):
        recordings.read_timeline(tmp_path / "x.sqlite")
    (process,) = read(ran(lambda p: p.launch(GEMM, 100.0))).processes
    path = exported(process, tmp_path / "y.sqlite")
    with sqlite3.connect(path) as base:
        base.execute("INSERT INTO DIAGNOSTIC_EVENT VALUES (0, 2, '12 events were dropped')")
    assert recordings.read_timeline(path).notes == ("nsys: 12 events were dropped",)


def test_pages_that_are_not_recorded_do_not_explain_lost_kernels(tmp_path: Path) -> None:
    export = Export(tmp_path / "x.sqlite")
    text = (
        "CUDA device 0: Unified Memory cannot be traced on devices that don't support peer-to-peer"
    )
    export.add("DIAGNOSTIC_EVENT", 0, 3, text)
    export.add("CUPTI_ACTIVITY_KIND_RUNTIME", 1, 2, 7, 1, export.number("cudaLaunchKernel_v7000"))
    export.close()
    with pytest.raises(ProfkitError, match="one launch was recorded") as caught:
        recordings.read_timeline(tmp_path / "x.sqlite")
    assert caught.value.message.endswith("but not its kernel")
    assert "newer nsys" in caught.value.hint


def test_what_nsys_says_of_cpu_samples_is_not_the_gpu_s(tmp_path: Path) -> None:
    (process,) = read(ran(lambda p: p.launch(GEMM, 100.0))).processes
    path = exported(process, tmp_path / "x.sqlite")
    with sqlite3.connect(path) as base:
        for level, text in (
            (
                2,
                "Unable to collect CPU kernel IP/backtrace samples. perf event paranoid level is 2.",
            ),
            (2, "No OpenGL events collected. Does the process use OpenGL?"),
            (1, "CUDA injection initialized successfully."),
            (1, "Number of CUPTI events produced: 31. Some CUPTI events might be missing."),
        ):
            base.execute("INSERT INTO DIAGNOSTIC_EVENT VALUES (0, ?, ?)", (level, text))
    (note,) = recordings.read_timeline(path).notes
    assert "might be missing" in note


def test_pages_of_unified_memory_that_move_are_said(tmp_path: Path) -> None:
    (process,) = read(ran(lambda p: p.launch(GEMM, 100.0))).processes
    path = exported(process, tmp_path / "x.sqlite")
    start = process.activities[2].start
    with sqlite3.connect(path) as base:
        row = (start, start + 90_000, 0, 7, 0, 42 << 24, 65536, 11, 7, 7)
        base.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES ({'?,' * 9}?)", row)
    notes = triage_timeline(recordings.read_timeline(path)).notes
    assert any("pages of unified memory" in note for note in notes)


def test_a_kernel_that_touches_pages_of_unified_memory_is_told_to_prefetch(tmp_path: Path) -> None:
    """Of each kernel of 10 ms, pages take 6 that come between its second and its ninth."""
    (process,) = read(ran(lambda p: p.launch(GEMM, 10_000.0))).processes
    path = exported(process, tmp_path / "x.sqlite")
    with sqlite3.connect(path) as base:
        for kernel in process.activities:
            for start in (2_000_000, 6_000_000):
                begin = kernel.start + start
                row = (begin, begin + 3_000_000, 0, 7, 0, 42 << 24, 1 << 20, 11, 7, 7)
                base.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES ({'?,' * 9}?)", row)
    first = triage_timeline(recordings.read_timeline(path)).findings[0]
    assert first.rule == "copy"
    assert "2 transfers bring 2.10 MB while they run, and take 6.00 of their 10.0 ms" in first.cause
    assert first.saving.expected == pytest.approx(6.0, rel=0.01)
    # 2.1 MB of pinned memory come at once, but fixes of kernels bring down to 0.88 of what is expected.
    assert first.saving.low == pytest.approx(0.88 * 6.0, rel=0.05)
    assert first.saving.high == pytest.approx(7.0, rel=0.05)


def test_a_program_that_runs_once_is_not_told_to_capture_a_graph(tmp_path: Path) -> None:
    """A C program that adds two vectors, and one that does so again and again."""

    def add_vectors(p: Program) -> None:
        p.copy(32_768, 5.0)
        p.launch("vecAdd(double *, double *, double *, int)", 4.0)
        p.work(200.0)

    once = judged_without_marks(add_vectors, 1, tmp_path)
    assert once.findings == []
    assert once.verdict.category == "unknown"
    assert "whether this work runs again. The recording has it once (2 launches" in once.verdict.say
    again = judged_without_marks(add_vectors, 40, tmp_path)
    assert "host-launch" in {finding.rule for finding in again.findings}


def judged_without_marks(step: Callable[[Program], None], steps: int, folder: Path) -> Triage:
    """What is said of an export in which no range marks the steps."""
    (process,) = read(ran(step, steps)).processes
    path = exported(process, folder / f"{steps}.sqlite", ranges=False)
    return triage_timeline(recordings.read_timeline(path))


# Names mean nothing but that they are the same or not.


def serving(
    names: Callable[[int], str], layers: int, passes: int, kernels: Sequence[str] = LAYER
) -> Program:
    """Passes of a model, each a range, of many layers alike; the host waits after each."""
    program = Program(host=2.0)
    for number in range(passes):
        with program.op(names(number), kind="user_annotation"):
            program.launch("embed_kernel", 20.0)
            for _ in range(layers):
                for position, kernel in enumerate(kernels):
                    program.launch(kernel, 100.0 + 10 * position)
            program.launch("head_kernel", 200.0)
        program.wait()
    return program


@settings(max_examples=60, deadline=None)
@given(
    layers=st.integers(2, 60),
    passes=st.integers(1, 6),
    words=st.lists(st.text("abcxyz_", min_size=1, max_size=8), min_size=6, max_size=6, unique=True),
)
def test_a_pass_is_a_step_and_its_layers_are_none_whatever_they_are_called(
    layers: int, passes: int, words: list[str]
) -> None:
    by_number = serving(lambda n: f"{words[0]}_{n}(sq{n + 3})", layers, passes)
    by_one_name = serving(lambda n: words[1], layers, passes)
    renamed = serving(lambda n: f"step[{words[1]} bs={n}]", layers, passes, words[2:])
    alone = 20.0 + layers * 460.0 + 200.0
    for program in (by_number, by_one_name, renamed):
        found = steps_of(program)
        assert found.typical.period / 1e3 == pytest.approx(alone, rel=0.05)
        assert len(found.typical.works) == 2 + 4 * layers
        assert not found.others


@settings(max_examples=30, deadline=None)
@given(steps=st.integers(3, 12), marked=st.booleans(), outer=st.integers(1, 2))
def test_a_range_round_many_steps_is_no_step(steps: int, marked: bool, outer: int) -> None:
    """An epoch, or the whole program: each of its steps waits or copies, as no layer does."""
    program = Program()
    for _ in range(outer):
        with program.op("epoch", kind="user_annotation"):
            for number in range(steps):
                inner = f"batch {number}" if marked else "aten::zero_"
                with program.op(inner, kind="user_annotation" if marked else "cpu_op"):
                    program.copy(1 << 22, 20.0)
                    for kernel in (GEMM, MUL, SOFTMAX, GEMM):
                        program.launch(kernel, 300.0)
    found = steps_of(program)
    assert found.typical.period / 1e3 == pytest.approx(1200 + 210, rel=0.05)


def prefill(program: Program, name: str, kernel: str = "prefill_attention") -> None:
    with program.op(name, kind="user_annotation"):
        for _ in range(8):
            program.launch(kernel, 4000.0)
    program.wait()


def decode(program: Program, name: str, kernel: str = "decode_attention") -> None:
    with program.op(name, kind="user_annotation"):
        program.replay([(kernel, 500.0)] * 8)
    program.wait()


def server(
    one_kernel: bool = False, names: tuple[str, str] = ("ctx_1(sq{})", "ctx_0(gen{})")
) -> Program:
    program = Program()
    kernels = ("attention",) * 2 if one_kernel else ("prefill_attention", "decode_attention")
    for number in range(4):
        prefill(program, names[0].format(number), kernels[0])
        for token in range(20):
            decode(program, names[1].format(token), kernels[1])
    return program


@pytest.mark.parametrize("one_kernel", [False, True])
@pytest.mark.parametrize("names", [("ctx_1(sq{})", "ctx_0(gen{})"), ("execute_model",) * 2])
def test_prefill_and_decode_are_two_steps(one_kernel: bool, names: tuple[str, str]) -> None:
    found = steps_of(server(one_kernel, names))
    kinds = [found, *found.others]
    assert sorted(round(kind.typical.period / 1e6) for kind in kinds) == [4, 32]
    assert sorted(len(kind.steps) for kind in kinds) == [4, 80]


def test_each_kind_of_step_has_its_answer() -> None:
    of = judged(server())
    (other,) = [note for note in of.notes if note.startswith("another kind of step")]
    assert other.startswith("another kind of step: 4 x ctx_1(sq")
    assert "32.0 ms each" in other
    assert "--range 'ctx_1(sq*'" in other


def test_a_pattern_names_ranges_whose_names_differ() -> None:
    program = server()
    only = steps_of(program, "ctx_1*")
    assert round(only.typical.period / 1e6) == 32
    assert len(only.steps) == 4
    assert round(steps_of(program, "ctx_?(gen*").typical.period / 1e6) == 4
    assert len(steps_of(program, "ctx_0(gen3)").steps) == 4


def test_a_name_with_brackets_is_no_pattern() -> None:
    program = serving(lambda n: f"step[DECODE bs={n % 2}]", 4, 6)
    assert len(steps_of(program, "step[DECODE bs=1]").steps) == 3
    assert len(steps_of(program, "step[DECODE*").steps) == 6


@settings(max_examples=25, deadline=None)
@given(
    warm=st.integers(1, 3),
    steady=st.integers(4, 8),
    tried=st.integers(12, 60),
    took=st.floats(200.0, 3000.0),
    compiled=st.floats(0.0, 2e6),
    numbered=st.booleans(),
    named=st.booleans(),
)
def test_passes_that_are_tuned_are_warm_up_and_no_step(
    warm: int,
    steady: int,
    tried: int,
    took: float,
    compiled: float,
    numbered: bool,
    named: bool,
) -> None:
    """The first ones take most of the time and run candidates that never come again."""
    program = Program()
    for number in range(warm + steady):
        name = f"pass {number}" if numbered else "pass"
        with program.op(name, kind="user_annotation"):
            for candidate in range(tried if number < warm else 0):
                program.launch(f"candidate_{number}_{candidate}", took)
                program.work(compiled / tried)
            for kernel in (GEMM, MUL, SOFTMAX, GEMM):
                program.launch(kernel, 300.0)
            program.wait()
    found = steps_of(program, "pass*" if named else "")
    assert found.typical.period / 1e3 == pytest.approx(1200, rel=0.05)
    assert len(found.steps) == steady
    assert not found.others
    assert any(f"{warm} of {warm + steady} steps were treated as" in n for n in found.notes)


# What a program does once is no step.

SETUP = ["cuModuleLoadData", "cuLibraryLoadData", "cuModuleLoadDataEx", "cuCtxCreate_v2"]
TEARDOWN = ["cuModuleUnload", "cuLibraryUnload", "cudaDeviceReset", "cuDevicePrimaryCtxRelease"]


@settings(max_examples=60, deadline=None)
@given(
    times=st.lists(st.floats(30.0, 400.0), min_size=3, max_size=40),
    ends=st.integers(0, 500),
    load=st.lists(st.tuples(st.integers(0, 39), st.sampled_from(SETUP)), max_size=8),
    unload=st.sampled_from(TEARDOWN),
    long=st.floats(500.0, 5e4),
)
def test_start_up_and_teardown_change_no_step(
    times: list[float], ends: int, load: list[tuple[int, str]], unload: str, long: float
) -> None:
    def once(with_them: bool) -> Program:
        program = Program(host=2.0)
        for number, took in enumerate(times):
            for at, name in load if with_them else ():
                if at == number:
                    program.call(name, long)
            program.launch(f"layer_{number}", took)
        program.wait()
        for _ in range(ends if with_them else 0):
            program.call(unload, 800.0)
        return program

    bare, whole = steps_of(once(False)), steps_of(once(True))
    assert bare.how == whole.how == "the whole recording"
    assert whole.typical.period == pytest.approx(bare.typical.period, rel=0.08)
    if ends * 800.0 > 0.1 * sum(times):
        assert any("the end of the program is left out of the step" in note for note in whole.notes)


def test_a_first_call_that_loads_its_kernel_is_start_up() -> None:
    program = Program(host=2.0)
    for number in range(30):
        program.launch(f"layer_{number}", 50.0)
        if number == 3:  # the code of this one came with its launch
            program.events[-2]["dur"] = 9e4
            program.now += 9e4
    program.wait()
    found = steps_of(program)
    assert found.typical.period / 1e3 < 2200
    assert "start-up is left out of the step" in found.notes[0]


@settings(max_examples=15, deadline=None)
@given(
    loads=st.lists(st.integers(1, 29), min_size=1, max_size=6),
    name=st.sampled_from(SETUP),
    took=st.floats(2e3, 1e5),
    before=st.booleans(),
)
def test_start_up_inside_of_a_named_range_is_no_part_of_it(
    loads: list[int], name: str, took: float, before: bool
) -> None:
    def once(with_them: bool) -> Program:
        program = Program(host=2.0)
        if before:
            program.launch("before_0", 50.0)
            program.call(name, took)
            program.launch("before_1", 50.0)
            program.wait()
        with program.op("measure", kind="user_annotation"):
            for number in range(30):
                for _ in range(loads.count(number) if with_them else 0):
                    program.call(name, took)
                program.launch(f"layer_{number}", 50.0)
            program.wait()
        return program

    bare, whole = steps_of(once(False), "measure"), steps_of(once(True), "measure")
    assert whole.typical.period == pytest.approx(bare.typical.period, rel=0.1)
    assert len(whole.typical.works) == 30
    assert any("start-up is left out of the step" in note for note in whole.notes)
    assert not any("start-up is left out of the step" in note for note in bare.notes)


def test_one_launch_of_a_graph_is_no_steps() -> None:
    program = Program(host=2.0)
    program.launch("embed", 6.0)
    program.replay([(LAYER[n % 4], 40.0) for n in range(96)])
    program.launch("argmax", 20.0)
    program.wait()
    found = steps_of(program)
    assert found.how == "the whole recording"
    assert len(found.typical.works) == 98


# What is missing is said, and nothing is made of it.


@settings(max_examples=60, deadline=None)
@given(count=st.integers(3, 10), data=st.data())
def test_steps_without_their_kernels_are_left_out_and_said(count: int, data: Any) -> None:
    lost = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=count - 1))
    whole = ran(lambda p: [p.launch(GEMM, 300.0) for _ in range(10)], count)  # type: ignore[func-returns-value]
    program = ran(lambda p: [p.launch(GEMM, 300.0) for _ in range(10)], count)  # type: ignore[func-returns-value]
    kernels = [e for e in program.events if e["cat"] == "kernel"]
    gone = {id(e) for n in lost for e in kernels[10 * n : 10 * n + 10]}
    program.events = [e for e in program.events if id(e) not in gone]
    found = steps_of(program)
    assert f"{len(lost)} of {count} steps lack kernels" in found.notes[0]
    assert any(f"{10 * len(lost):,} of {10 * count:,} launches" in note for note in found.notes)
    assert found.typical.period == pytest.approx(steps_of(whole).typical.period, rel=0.02)


def test_launches_without_any_kernel_are_another_profiler_s(tmp_path: Path) -> None:
    program = ran(lambda p: p.launch(GEMM, 100.0))
    program.events = [e for e in program.events if e["cat"] != "kernel"]
    with pytest.raises(ProfkitError, match="holds 6 launches, but none of their kernels") as caught:
        read(program)
    assert "another profiler" in caught.value.hint


@settings(max_examples=30, deadline=None)
@given(share=st.integers(2, 10), none=st.sampled_from([0, None, "", "n/a"]))
def test_kernels_without_a_time_are_left_out_and_said(share: int, none: Any) -> None:
    program = ran(lambda p: [p.launch(GEMM, 300.0) for _ in range(20)], 6)  # type: ignore[func-returns-value]
    kernels = [e for e in program.events if e["cat"] == "kernel"]
    for event in kernels[::share]:
        event["ts"], event["dur"] = none, 0
    timeline = read(program)
    timeless = len(kernels[::share])
    assert len(timeline.processes[0].activities) == len(kernels) - timeless
    assert f"{timeless} of {len(kernels)} kernels and copies have no time" in timeline.notes[0]
    of = triage_timeline(timeline)
    assert "host-launch" not in {row.cause for row in of.split.idle if row.time > 1e5}


def test_all_kernels_without_a_time_are_no_recording() -> None:
    program = ran(lambda p: p.launch(GEMM, 100.0))
    for event in program.events:
        if event["cat"] == "kernel":
            event["ts"] = event["dur"] = 0
    with pytest.raises(ProfkitError, match="none of its 6 kernels and copies has a time"):
        read(program)


@settings(max_examples=30, deadline=None)
@given(nodes=st.integers(4, 40), first=st.integers(1, 3), kept=st.integers(1, 3))
def test_kernels_that_are_missing_in_a_graph_are_said(nodes: int, first: int, kept: int) -> None:
    def step(p: Program) -> None:
        p.replay([(f"node_{n}", 400.0) for n in range(nodes + first + kept)])
        p.wait()

    program = ran(step)
    left = [f"node_{n}" for n in range(first, first + nodes)]
    program.events = [e for e in program.events if e["name"] not in left]
    notes = steps_of(program).notes
    assert "kernels of it are missing, or wait" in notes[0]
    assert "missing" not in "".join(steps_of(ran(step)).notes)


def test_a_capture_is_not_told_to_capture() -> None:
    def capturing(captures: bool) -> Program:
        program = Program(host=40.0)
        for _ in range(6):
            for number in range(40):
                program.launch(f"layer_{number}", 5.0)
            program.wait()
            if captures:
                program.call("cudaStreamBeginCapture", 2.0, "cuda_runtime")
                for _ in range(40):
                    program.call("cudaLaunchKernel", 5.0, "cuda_runtime")
                program.call("cudaStreamEndCapture", 2.0, "cuda_runtime")
        return program

    bare, captured = judged(capturing(False)), judged(capturing(True))
    assert "capture the step in a CUDA graph" in bare.findings[0].advice
    assert all("capture the step" not in finding.advice for finding in captured.findings)
    causes = {row.cause: row.time for row in captured.split.idle}
    assert causes["other"] >= 6 * 200_000 / 6, "what the capture takes is nobody's"
    assert any("6 graphs are captured in the recording" in note for note in captured.notes)
    assert not any("have no kernel" in note for note in captured.notes)


# What kind of work it is.

COLLECTIVES = [
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)",
    "void sglang::cross_device_reduce_2stage<half, 8>(int)",
    "multimem_all_reduce_kernel",
    "two_shot_all_reduce_kernel_inplace",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<int>(int)",
    "void tensorrt_llm::kernels::oneShotAllReduceKernel<float>(int)",
    "userbuffers_fp16_sum_inplace_gpu_rr_rs_oop",
    "kuserbuffers_pushsend",
    "void deep_ep::intranode::dispatch<8, 768>(int*)",
    "void deep_ep::internode_ll::combine<true>(int)",
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
]
NOT_WHAT_A_WORD_SAYS = {
    "void fbgemm_gpu::jagged_dense_bmm_kernel_of<int>(int)": "gemm",
    "void fbgemm_gpu::jagged_to_padded_dense_kernel<int>(int)": "unknown",
    "void flashinfer::activation::act_and_mul_kernel<int>(int)": "unknown",
    "void vllm::reshape_and_cache_flash_kernel<int>(int)": "unknown",
    "void deep_ep::layout::get_dispatch_layout<int>(int)": "unknown",
    "void my::all_reduce_in_a_block<4>(float*)": "unknown",
    "normalize_weights_by_sum": "unknown",
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_collective_of_any_library_is_one(name: str) -> None:
    assert classify_kernel(name) == "collective"


@pytest.mark.parametrize("name", NOT_WHAT_A_WORD_SAYS)
def test_a_part_of_a_word_is_no_word(name: str) -> None:
    assert classify_kernel(name) == NOT_WHAT_A_WORD_SAYS[name]


@pytest.mark.parametrize("name", COLLECTIVES)
def test_ranks_wait_in_a_collective_of_any_library(name: str, tmp_path: Path) -> None:
    paths = []
    for rank, product in enumerate((60.0, 100.0)):

        def step(p: Program, product: float = product) -> None:
            for _ in range(24):
                p.launch(GEMM, product)
                p.launch(name, 112.0 - product, grid=(36, 1, 1))

        info = {"backend": "nccl", "rank": rank, "world_size": 2}
        paths.append(ran(step, host=1.0).write(tmp_path / f"{rank}.json", distributedInfo=info))
    of, _ = judge_recordings(paths)
    assert of.ranks is not None
    assert of.ranks.slowest == 1
    waiting = [row.waiting / 1e6 for row in of.ranks.rows]
    assert waiting == [pytest.approx(0.96, rel=0.05), 0.0]
    assert {f.rule for f in of.findings} == {"collective"}


PRODUCTS = [
    "Cijk_Ailk_Bjlk_BBS_BH_MT128x256x32",
    "bmm_Bfloat16_Fp32_t128x16x256",
    "marlin_mm_kernel",
]


@settings(max_examples=40, deadline=None)
@given(name=st.one_of(st.sampled_from(PRODUCTS), st.text("abcdxyz_", min_size=3, max_size=20)))
def test_what_a_product_is_its_operator_says(name: str) -> None:
    def step(p: Program, product: str) -> None:
        for op, shapes in (
            ("aten::bmm", [[64, 2048, 64], [64, 64, 2048]]),
            ("aten::_softmax", [[64, 2048, 2048]]),
            ("aten::bmm", [[64, 2048, 2048], [64, 2048, 64]]),
        ):
            with p.op(op, shapes):
                softmax = op == "aten::_softmax"
                p.launch(SOFTMAX if softmax else product, 400.0 if softmax else 150.0)

    known = judged(ran(lambda p: step(p, GEMM)))
    other = judged(ran(lambda p: step(p, f"{name}_kernel")))
    assert known.findings[0].rule == "attention-unfused"
    first = other.findings[0]
    assert (first.rule, first.saving) == (known.findings[0].rule, known.findings[0].saving)


def test_what_an_operator_of_a_server_launches_besides_is_no_attention() -> None:
    op = "vllm::unified_attention_with_output"
    assert classify_by_name_then_operator("kernel_2d_of_ours", op) == "attention"
    assert classify_by_name_then_operator("reshape_and_cache_kernel", op) == "unknown"
    assert classify_by_name_then_operator(MUL, "aten::bmm") == "elementwise"


# AMD, and what is not read.

MI300X = {
    "id": 0,
    "name": "AMD Instinct MI300X",
    "computeMajor": 9,
    "computeMinor": 4,
    "numSms": 304,
}


@pytest.mark.parametrize(
    "call", ["hipStreamSynchronize", "hipDeviceSynchronize", "hipMemcpyWithStream"]
)
def test_a_wait_on_an_amd_gpu_is_a_wait(call: str) -> None:
    def step(p: Program, waits: str) -> None:
        for _ in range(10):
            p.launch(GEMM, 60.0)
            p.wait(call=waits)
            p.work(30.0)

    of = judged(ran(lambda p: step(p, call)), deviceProperties=[MI300X])
    cuda = judged(ran(lambda p: step(p, "cudaStreamSynchronize")))
    assert [f.rule for f in of.findings] == [f.rule for f in cuda.findings]
    assert of.process.device is not None
    assert of.process.device.cc is None, "9.4 is no compute capability of NVIDIA's"
    assert of.notes[0].startswith("an AMD GPU")


def test_a_copy_that_holds_the_host_while_nothing_runs_is_nobody_s() -> None:
    """It waits for something that was not recorded: the host launches no more slowly for that."""

    def step(p: Program) -> None:
        p.launch(GEMM, 50.0)
        p.work(5.0)
        p.copy(40_000, 20.0, direction="DtoH")
        call, copy = p.events[-2:]
        call["name"] = "hipMemcpyWithStream"
        call["dur"] += 9e4
        copy["ts"] += 9e4
        p.free[7] += 9e4
        p.now += 9e4

    of = judged(ran(step), deviceProperties=[MI300X])
    assert of.split.idle[0].cause == "other"
    assert of.split.idle[0].time > 0.95 * of.split.period
    assert of.findings == []


@pytest.mark.parametrize(
    ("category", "what"),
    [
        ("xpu_runtime", "Intel XPU"),
        ("mtia_runtime", "MTIA"),
        ("hpu_op", "Gaudi"),
        ("privateuse1_runtime", "PrivateUse1"),
    ],
)
def test_a_trace_of_another_accelerator_is_named(category: str, what: str) -> None:
    program = ran(lambda p: p.launch(GEMM, 100.0))
    for event in program.events:
        if event["cat"] == "cuda_runtime":
            event["cat"] = category
    with pytest.raises(ProfkitError, match=what):
        read(program)


FILES = {
    "t.xplane.pb": (b"\x0a\x12", "XPlane"),
    "module.txt": (b"HloModule jit_step", "an XLA program"),
    "p.json": (b'[{"children": [], "frame": {"name": "ROOT"}, "metrics": {}}]', "Proton"),
    "et.json": (b'{"schema": "1.1.0", "nodes": [{"inputs": []}]}', "execution trace"),
    "x.qdrep": (b"\x00\x01", "report of Nsight Systems"),
    "kept.triage.txz": (b"\xfd7zXZ\0\0", "a packed archive"),
    "kept": (b"\xfd7zXZ\0\0", "a packed archive"),
    "jax.json": (
        b'{"traceEvents": [{"ph": "M", "name": "process_name", "args": {"name": "/device:GPU:0"}},'
        b'{"ph": "X", "name": "fusion", "ts": 1, "dur": 2}]}',
        "JAX",
    ),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("packed", [False, True])
def test_what_is_not_read_is_named_with_what_works(name: str, packed: bool, tmp_path: Path) -> None:
    content, what = FILES[name]
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(ProfkitError, match=what) as caught:
        recordings.read_timeline(path)
    assert caught.value.hint in {other.instead for other in OTHERS}


def test_the_docs_have_the_table_of_what_is_not_read() -> None:
    page = (ROOT / "docs/howto/triage.md").read_text("utf-8")
    for what, instead in list_unread_formats():
        assert f"| {what} | {instead} |" in page


# Folders, zips, standard input.


def two_ranks(folder: Path) -> list[Path]:
    paths = []
    for rank in range(2):
        info = {"rank": rank, "world_size": 2}
        program = ran(lambda p: p.launch(GEMM, 100.0))
        paths.append(program.write(folder / f"host_{rank}.pt.trace.json.gz", distributedInfo=info))
    return paths


def test_a_folder_and_a_zip_of_ranks_are_the_ranks(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    paths = two_ranks(folder)
    (folder / "settings.json").write_text('{"batch": 4}')
    packed = tmp_path / "ranks.zip"
    with zipfile.ZipFile(packed, "w") as file:
        for path in paths:
            file.write(path, f"log/{path.name}")
    named = [t.processes for t in read_recordings(paths)]
    assert [t.processes for t in read_recordings([folder])] == named
    assert [t.processes for t in read_recordings([packed])] == named
    assert "settings.json" in read_recordings([folder])[0].notes[0]


def test_a_folder_of_one_process_s_recordings_is_not_ranks(tmp_path: Path) -> None:
    for number, name in enumerate(("a.json", "b.json")):
        ran(lambda p: p.launch(GEMM, 100.0), host=10.0 + number).write(tmp_path / name)
    with pytest.raises(ProfkitError, match="several recordings of one process"):
        read_recordings([tmp_path])


@settings(max_examples=25, deadline=None)
@given(
    times=st.lists(st.floats(20.0, 900.0), min_size=1, max_size=8),
    steps=st.integers(3, 6),
    suffix=st.sampled_from(["json", "json.gz"]),
    how=st.sampled_from(["trace", "export"]),
    lost=st.integers(0, 40),
    first=st.booleans(),
    rank=st.integers(0, 7),
)
def test_a_copy_of_a_recording_is_no_second_rank(
    times: list[float],
    steps: int,
    suffix: str,
    how: str,
    lost: int,
    first: bool,
    rank: int,
) -> None:
    """The same file once more, packed or not, under another name, or with its end cut off."""

    def step(p: Program) -> None:
        for number, took in enumerate(times):
            p.launch(f"kernel_{number}", took)
        p.wait()

    program = ran(step, steps)
    info = {"rank": rank, "world_size": 8}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole = program.write(folder / "a.json", distributedInfo=info)
        if how == "export":
            (process,) = recordings.read_timeline(whole).processes
            whole.unlink()
            whole = exported(process, folder / "a.sqlite")
            copy = folder / "b.sqlite"
            copy.write_bytes(whole.read_bytes())
        else:
            kept = len(program.events) - min(lost, len(program.events) // 3)
            program.events = program.events[:kept]
            copy = program.write(folder / f"b.{suffix}", distributedInfo=info)
        paths = [copy, whole] if first else [whole, copy]
        alone, _ = judge_recordings([whole])
        for given_paths in (paths, [folder], [whole, whole]):
            both, _ = judge_recordings(given_paths)
            assert both.ranks is None
            assert both.split == alone.split
            (said,) = [note for note in both.notes if "is the same recording as" in note]
            assert f"{whole}" in said


def test_ranks_that_do_the_same_at_other_times_are_ranks(tmp_path: Path) -> None:
    paths = []
    for number in range(3):  # no recorder says their rank, and each has its container's process 42
        program = ran(lambda p: p.launch(GEMM, 100.0))
        for event in program.events:
            event["ts"] += 0.001 * number
        paths.append(program.write(tmp_path / f"{number}.json"))
    answer, _ = judge_recordings(paths)
    assert answer.ranks is not None
    assert len(answer.ranks.rows) == 3


def test_a_trace_comes_from_standard_input(tmp_path: Path) -> None:
    path = ran(lambda p: p.launch(GEMM, 100.0)).write(tmp_path / "t.json.gz")
    given_bytes = mock.Mock(buffer=io.BytesIO(path.read_bytes()))
    with mock.patch("sys.stdin", given_bytes):
        (timeline,) = read_recordings([STANDARD_INPUT])
    assert timeline.processes == recordings.read_timeline(path).processes


@pytest.mark.parametrize("content", [b"", b"no trace"])
def test_what_is_wrong_with_standard_input_names_it(content: bytes) -> None:
    nothing = mock.Mock(buffer=io.BytesIO(content))
    with mock.patch("sys.stdin", nothing), pytest.raises(ProfkitError) as caught:
        read_recordings([STANDARD_INPUT])
    assert "standard input" in caught.value.message
    assert tempfile.gettempdir() not in caught.value.message


def test_a_zip_that_unpacks_to_much_more_is_refused(tmp_path: Path) -> None:
    packed = tmp_path / "bomb.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("t.json", b"0" * (100 << 20))
    with pytest.raises(ProfkitError, match=r"bomb\.zip/t\.json: unpacks to more than"):
        read_recordings([packed])


# Kineto of 2021 to today.


def test_tracks_and_arguments_that_newer_versions_add_change_nothing() -> None:
    program = ran(lambda p: p.launch(GEMM, 100.0))
    before = read(program)
    for event in list(program.events):
        if event["cat"] == "cuda_runtime":
            event["args"] |= {"kernel_file": "a.py", "kernel_hash": "x", "kernel_kwargs": {"B": 4}}
            counter = {"ph": "C", "name": "GPU 0 power", "ts": event["ts"], "args": {"W": 500}}
            program.events.append(counter)
            counted = {**event, "cat": "cuda_profiler_range", "args": {"sm__cycles.sum": 1.0}}
            program.events.append(counted)
    assert read(program) == before


def in_pairs(events: Sequence[dict[str, Any]], named: bool) -> list[dict[str, Any]]:
    """Whole events as others write them: a begin and an end each, nested within a thread."""
    out: list[dict[str, Any]] = []
    threads: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for event in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
        threads.setdefault((event["pid"], event["tid"]), []).append(event)

    def end(event: dict[str, Any]) -> None:
        about = {"name": event["name"]} if named else {}
        args = (
            {"correlation": event["args"]["correlation"]} if "correlation" in event["args"] else {}
        )
        place = {key: event[key] for key in ("pid", "tid")}
        last = event["ts"] + event["dur"]
        out.append({"ph": "E", "ts": last, "args": args, **place, **about})

    for own in threads.values():
        stack: list[dict[str, Any]] = []
        for event in own:
            while stack and stack[-1]["ts"] + stack[-1]["dur"] <= event["ts"]:
                end(stack.pop())
            begin = {key: value for key, value in event.items() if key != "dur"}
            args = {key: v for key, v in event["args"].items() if key != "correlation"}
            out.append({**begin, "ph": "B", "args": args})
            stack.append(event)
        while stack:
            end(stack.pop())
    return sorted(out, key=lambda event: event["ts"])  # the order within a thread stays


@settings(max_examples=40, deadline=None)
@given(
    times=st.lists(st.integers(20, 900), min_size=1, max_size=6),
    named=st.booleans(),
    host=st.integers(1, 60),
    ends=st.integers(0, 3),
    begins=st.integers(0, 3),
    is_open=st.booleans(),
)
def test_events_in_pairs_are_whole_events(
    times: list[int], named: bool, host: int, ends: int, begins: int, is_open: bool
) -> None:
    def step(p: Program) -> None:
        for number, took in enumerate(times):
            with p.op("aten::mm", [[64, 64], [64, 64]]), p.op("aten::out"):
                p.launch(f"kernel_{number}", took)
        p.wait()

    program = ran(step, 4, host=float(host))
    for event in program.events:  # whole numbers, whose sums are exact; operators that only nest
        is_range = event["cat"] in {"cpu_op", "user_annotation"}
        took = event["dur"] - 0.5 if is_range else event["dur"]
        event["ts"], event["dur"] = round(2 * event["ts"]), round(2 * took)
    whole = read(program)
    program.events = in_pairs(program.events, named)
    place = {"pid": 42, "tid": 99}
    for number in range(ends):  # of what began before the recording
        program.events.insert(number, {"ph": "E", "ts": 5, "name": "before", **place})
    for number in range(begins):  # of what the recording's end cut
        event = {"ph": "B", "ts": 1e5 + number, "name": "cut", "cat": "cpu_op", **place}
        program.events.append(event)
    if is_open:
        event = {"ph": "B", "ts": 9, "name": "serve", "cat": "user_annotation", "pid": 42, "tid": 1}
        program.events.insert(0, event)
    paired = read(program)
    (own,), (process,) = paired.processes, whole.processes
    opened = [span for span in own.spans if not span.ended]
    assert [span.name for span in opened] == ["serve"] * is_open
    spans = [span for span in own.spans if span.ended]
    assert replace(own, spans=spans) == process
    said = [note for note in paired.notes if "have no counterpart" in note]
    assert len(said) == bool(ends + begins)
    if said:
        assert f" {ends + begins} of its begin and end events (B, E)" in said[0]
    assert triage_timeline(paired).split == triage_timeline(whole).split


def test_a_step_that_old_versions_wrote_as_an_operator_is_a_step() -> None:
    program = ran(lambda p: p.launch(GEMM, 100.0))
    for event in program.events:
        if event["cat"] == "user_annotation":
            event["cat"] = "Operator"
    assert steps_of(program).how == "ProfilerStep"


def test_a_python_frame_is_a_function_and_its_line_the_def_s() -> None:
    def step(p: Program) -> None:
        with p.op("model.py(45): forward", kind="python_function"):
            p.launch(MUL, 100.0)

    (row,) = make_triage_document(judged(ran(step)))["kernels"]
    assert row["source"] == "in forward (model.py:45)"
    assert json.dumps(row).count("model.py:45") == 1


@settings(max_examples=30, deadline=None)
@given(
    held=st.floats(5e3, 5e5),
    host=st.floats(0.0, 2e3),
    took=st.floats(3e3, 2e4),
    after=st.floats(0.0, 2e3),
)
def test_one_pass_of_a_server_does_not_take_what_the_pass_before_it_took(
    held: float, host: float, took: float, after: float
) -> None:
    """Its host runs a pass ahead, and waits for one that is not in the recording."""
    program = Program(host=2.0)
    with program.op("execute_7", kind="user_annotation"):
        program.work(host)
        program.call("hipMemcpyWithStream", held, "cuda_runtime")
        for number in range(20):
            program.launch(f"layer_{number}", took / 20)
        program.work(after)
    found = steps_of(program)
    assert found.typical.period / 1e3 < took + host + after + 1000
    assert found.typical.period / 1e3 > 0.99 * took


def test_what_starts_a_library_in_one_pass_is_start_up() -> None:
    def once(starts: bool) -> Program:
        program = Program(host=2.0)
        with program.op("bench", kind="user_annotation"):
            for number in range(20):
                if starts and number == 5:
                    program.call("cudaMalloc", 8e5, "cuda_runtime")
                program.launch(f"layer_{number}", 200.0)
            program.wait()
        return program

    bare, whole = steps_of(once(False)), steps_of(once(True))
    assert whole.typical.period == pytest.approx(bare.typical.period, rel=0.05)
    assert "start-up is left out of the step" in whole.notes[0]
