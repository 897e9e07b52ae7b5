"""Timelines of every kind of recording, and profkit's own form of them."""

from __future__ import annotations

import shlex
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from profkit.errors import ProfkitError
from profkit.program import readers as recordings
from profkit.program.readers import injected, store
from profkit.program.timeline import Timeline
from profkit.program.triage import triage_timeline
from tests.conftest import ROOT
from tests.found import find_files
from tests.program.made import GEMM, SGEMM, Program, ran
from tests.program.made_nsys import exported

DATA = Path(__file__).parent / "data"


def test_an_injected_timeline_of_plain_cuda() -> None:
    timeline = injected.read_injected_recording(DATA / "strided.timeline")
    (process,) = timeline.processes
    assert timeline.how == "cupti"
    assert timeline.notes == ()
    assert process.device is not None
    assert (process.device.name, process.device.cc) == ("NVIDIA H200", (9, 0))
    kernels = [a for a in process.activities if a.kind == "kernel"]
    assert len(kernels) == 180
    assert {a.name.split("(")[0] for a in kernels} == {"scale_strided", "shift_rows"}
    assert {(a.grid, a.block) for a in kernels} == {((32, 8192, 1), (256, 1, 1))}
    assert {c.name for c in process.calls} >= {"cudaLaunchKernel", "cudaDeviceSynchronize"}


def test_its_step_is_found_and_its_kernel_named() -> None:
    answer = triage_timeline(injected.read_injected_recording(DATA / "strided.timeline"))
    assert answer.steps.how == "3 launches that repeat 60 times"
    assert answer.split.period / 1e6 == pytest.approx(1.7954, rel=0.03)  # plain, on another run
    assert "scale_strided" in answer.groups[0].name


def test_what_a_kernel_of_no_library_saves_is_said_with_counters_only() -> None:
    timeline = injected.read_injected_recording(DATA / "strided.timeline")
    bare = triage_timeline(timeline)
    worst = bare.groups[0].id
    assert not [f for f in bare.findings if worst in f.kernels]
    first = triage_timeline(timeline, gain_by_kernel_group={worst: 5.3}).findings[0]
    assert (first.rule, first.kernels) == ("kernel", (worst,))
    assert first.saving.expected == pytest.approx(1.7954 - 0.6152, rel=0.06)


def test_the_layouts_are_those_of_the_library() -> None:
    source = (ROOT / "profkit" / "collect" / "injection.cpp").read_text()
    width = {"uint64_t": 8, "uint32_t": 4, "int32_t": 4, "uint8_t": 1}
    for kind, struct in (
        ("kernels", "Kernel"),
        ("copies", "Copy"),
        ("calls", "Call"),
        ("ranges", "Range"),
    ):
        body = source.split(f"struct {struct} {{")[1].split("};")[0]
        size = 0
        for line in body.strip().splitlines():
            type_, *names = line.strip().rstrip(";").replace(",", " ").split()
            size += sum(width[type_] * (3 if "[3]" in name else 1) for name in names)
        assert injected.make_row_type(kind).itemsize == size


@pytest.mark.parametrize("kind", ["kernels", "calls"])
def test_a_killed_program_leaves_what_is_whole(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "cut"
    shutil.copytree(DATA / "strided.timeline", folder)
    (file,) = folder.glob(f"*.{kind}")
    file.write_bytes(file.read_bytes()[:-13])
    (meta,) = folder.glob("*.meta")
    meta.write_text(meta.read_text().replace("whole\t1\n", ""))
    timeline = injected.read_injected_recording(folder)
    assert "was killed" in timeline.notes[0]
    assert len(timeline.processes[0].activities) + len(timeline.processes[0].calls) > 0
    # What operators read is written at the end, which a killed program does not reach.
    meta.with_suffix(".operators").write_text('{"clocks": [[1, 2, 3]]}\n')
    assert "same in each step is not known" in injected.read_injected_recording(folder).notes[-1]
    meta.with_suffix(".tensors").write_text('{"recording": 1}\n')
    notes = injected.read_injected_recording(folder).notes
    assert not [note for note in notes if "same in each step" in note]


def test_no_gpu_and_no_kernels_are_two_answers(tmp_path: Path) -> None:
    with pytest.raises(ProfkitError, match="did not use a GPU"):
        injected.read_injected_recording(tmp_path)
    (tmp_path / "7.meta").write_text("cupti\t130001\nrank\t\nerror\tanother profiler is at work\n")
    with pytest.raises(ProfkitError, match="another profiler is at work"):
        injected.read_injected_recording(tmp_path)


def test_kept_and_read_again_it_is_the_same(tmp_path: Path) -> None:
    trace = recordings.read_timeline(DATA / "copy_pageable.planted.json.gz")
    store.write_timeline(trace, tmp_path / "kept")
    again = recordings.read_timeline(tmp_path / "kept")
    assert again.how == trace.how
    assert again.processes[0].device == trace.processes[0].device
    for table in store.TABLES:
        assert getattr(again.processes[0], table) == list(getattr(trace.processes[0], table))
    assert triage_timeline(again).findings == triage_timeline(trace).findings


def test_a_kept_folder_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "timeline.json").write_text('{"schema": "profkit.timeline/9"}')
    with pytest.raises(ProfkitError, match=r"profkit\.timeline/9"):
        recordings.read_timeline(tmp_path)


def _copying(p: Program) -> None:
    p.copy(40_000_000, 8.0)
    for _ in range(10):
        p.launch(GEMM, 200.0)


def test_an_export_of_nsight_systems(tmp_path: Path) -> None:
    trace = recordings.read_timeline(ran(_copying).write(tmp_path / "t.json"))
    export = exported(trace.processes[0], tmp_path / "x.sqlite")
    timeline = recordings.read_timeline(export)
    assert timeline.how == "nsys"
    (process,) = timeline.processes
    assert (process.pid, process.device) == (42, trace.processes[0].device)
    assert process.activities == trace.processes[0].activities
    assert [c.name for c in process.calls] == [c.name for c in trace.processes[0].calls]
    answer = triage_timeline(timeline)
    assert answer.steps.how == "range train_step"
    assert [f.rule for f in answer.findings] == ["copy"]
    named = triage_timeline(timeline, "train_step")
    assert named.steps.how == "range train_step"
    assert named.split.period / 1e6 == pytest.approx(7.02, rel=0.02)  # 5 of copy, 10 x 0.2


@pytest.mark.parametrize("far", [1 << 62, (1 << 63) - 1, -(1 << 63)])
def test_times_that_no_clock_shows_are_left_out(far: int, tmp_path: Path) -> None:
    trace = recordings.read_timeline(ran(_copying).write(tmp_path / "t.json"))
    export = exported(trace.processes[0], tmp_path / "x.sqlite")
    before = recordings.read_timeline(export)
    with sqlite3.connect(export) as base:
        base.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({far},{far},{42 << 24},1,1)")
    assert recordings.read_timeline(export) == before
    with sqlite3.connect(export) as base:
        base.execute(f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = {far}, end = {far}")
        base.execute("DELETE FROM CUPTI_ACTIVITY_KIND_MEMCPY")
    with pytest.raises(ProfkitError, match="60 launches were recorded, but none of their kernels"):
        recordings.read_timeline(export)


def test_ranges_that_are_not_there_are_listed(tmp_path: Path) -> None:
    trace = recordings.read_timeline(ran(_copying).write(tmp_path / "t.json"))
    timeline = recordings.read_timeline(exported(trace.processes[0], tmp_path / "x.sqlite"))
    with pytest.raises(ProfkitError, match="--range epoch") as caught:
        triage_timeline(timeline, "epoch")
    assert caught.value.hint == "there are: train_step"


def test_sqlite_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE cookies (id INT)")
    with pytest.raises(ProfkitError, match="not an export of Nsight Systems"):
        recordings.read_timeline(path)
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(ProfkitError, match=r"x\.sqlite"):
        recordings.read_timeline(path)


def test_a_timeline_s_own_recorder_does_not_slow_the_host(tmp_path: Path) -> None:
    trace = recordings.read_timeline(ran(_copying).write(tmp_path / "t.json"))
    assert trace.is_host_slowed
    own = replace(trace, how="cupti")
    assert isinstance(own, Timeline)
    assert not own.is_host_slowed
    low, expect, high = triage_timeline(own).hosts.step_ms_without_recorder
    assert expect == low == high


def test_two_processes_are_ranks_and_a_helper_is_none(tmp_path: Path) -> None:
    (source,) = {p.stem for p in find_files(DATA / "strided.timeline", "*.meta")}
    for pid in ("7", "8", "9"):
        for file in find_files(DATA / "strided.timeline", f"{source}.*"):
            content = file.read_bytes()
            if pid == "9" and file.suffix == ".kernels":
                content = content[: 5 * 76]
            (tmp_path / f"{pid}{file.suffix}").write_bytes(content)
    timeline = injected.read_injected_recording(tmp_path)
    assert [(p.rank, p.pid) for p in timeline.processes] == [(0, 7), (1, 8)]
    assert len(triage_timeline(timeline).ranks.rows) == 2  # type: ignore[union-attr]


def test_each_kernel_says_how_to_look_at_it() -> None:
    from profkit.program.document import make_triage_document

    timeline = replace(
        injected.read_injected_recording(DATA / "strided.timeline"), command="./strided 5"
    )
    rows = make_triage_document(triage_timeline(timeline))["kernels"]
    assert rows[0]["next"] == "profkit profile --kernel scale_strided --count 1 -- ./strided 5"
    assert {r["next"] is None for r in rows if r["grid"] is None} <= {True}


def test_a_kernel_s_name_is_one_word_of_the_command() -> None:
    from profkit.program.document import make_triage_document

    timeline = replace(
        injected.read_injected_recording(DATA / "strided.timeline"), command="./strided 5"
    )
    (process,) = timeline.processes
    named = [replace(a, name="evil'; rm -rf x;'") for a in process.activities]
    hostile = replace(timeline, processes=(replace(process, activities=named),))
    rows = make_triage_document(triage_timeline(hostile))["kernels"]
    asked = [shlex.split(r["next"]) for r in rows if r["next"]]
    assert asked
    assert all(words[4:] == ["--count", "1", "--", "./strided", "5"] for words in asked), asked


def test_an_old_trace_s_words_are_read_as_the_new_ones(tmp_path: Path) -> None:
    old = {
        "cpu_op": "Operator",
        "cuda_runtime": "Runtime",
        "kernel": "Kernel",
        "gpu_memcpy": "Memcpy",
    }

    def step(p: Program) -> None:
        with p.op("aten::mm", [[512, 512], [512, 512]]):
            p.launch(GEMM, 100.0)
        p.copy(1 << 20, 10.0)

    program = ran(step)
    new = recordings.read_timeline(program.write(tmp_path / "new.json"))
    for event in program.events:
        event["cat"] = old.get(event["cat"], event["cat"])
        if "Input Dims" in event["args"]:
            event["args"]["Input dims"] = event["args"].pop("Input Dims")
    assert recordings.read_timeline(program.write(tmp_path / "old.json")) == new


def test_a_name_that_the_compiler_gives_is_no_place(tmp_path: Path) -> None:
    graph = "## Call CompiledFxGraph f537jgmuzipf4equdxsp7axl54dfxc6yzi4xw4km2 ##"

    def step(p: Program) -> None:
        region = p.op("Torch-Compiled Region: 0/0")
        with region, p.op(graph, kind="user_annotation"):
            for _ in range(8):
                with p.op("aten::mm", [[512, 512], [512, 512]]):
                    p.launch(SGEMM, 400.0)

    timeline = recordings.read_timeline(ran(step).write(tmp_path / "trace.json"))
    (found,) = triage_timeline(timeline).findings
    assert found.rule == "fp32-matmul"
    assert found.place == "Torch-Compiled Region: 0/0"
