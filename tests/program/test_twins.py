"""Twins of recordings that people bring: other names, counts, clocks and GPUs, the same truth."""

from __future__ import annotations

import gzip
import random
import sqlite3
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.errors import ProfkitError
from profkit.program import readers as recordings
from profkit.program.steps.kinds import classify_kernel
from profkit.program.triage import Triage, triage_timeline
from tests.program.made import EXP, GEMM, MUL, Program, ran
from tests.program.made_nsys import Export, exported


def judged(program: Program, **header: Any) -> Triage:
    with tempfile.TemporaryDirectory() as folder:
        path = program.write(Path(folder) / "t.json", **header)
        return triage_timeline(recordings.read_timeline(path))


BETWEEN = """
void moe_all2all::dispatch_a2a_kernel
all_gather_push_3d_kernel
void hybrid_ep::dispatch_kernel<4>
void pplx::a2a_combine_recv_kernel
void tensorrt_llm::kernels::moeAlltoAllDispatchKernel
void nvinfer1::kernels::AllToAll
vllm::moe::all2all
reduceScatterKernel
void deep_ep::intranode::dispatch<8, 768>
void sglang::cross_device_reduce_2stage<__half, 4>
""".strip().splitlines()
WITHIN = """
void at::native::block_all_reduce<2>
my_all_reduce_in_block
scatter_reduce_kernel
step_all_to_allocate
triton_poi_fused_all_gather_copy_0
triton_red_fused_all_any_reduce_0
void deep_ep::layout::get_dispatch_layout<256>
dispatch_tasks_kernel
combine_halves
""".strip().splitlines()


@pytest.mark.parametrize("name", BETWEEN)
def test_what_goes_between_gpus_is_a_collective_whoever_wrote_it(name: str) -> None:
    assert classify_kernel(name) == "collective"


@pytest.mark.parametrize("name", WITHIN)
def test_what_stays_on_one_gpu_is_none(name: str) -> None:
    assert classify_kernel(name) != "collective"


@pytest.mark.parametrize("op", ["mm", "bmm", "addmm", "baddbmm", "_scaled_mm"])
def test_a_template_of_inductor_s_is_the_product_that_it_names(op: str) -> None:
    assert classify_kernel(f"triton_tem_fused_{op}_relu_3") == "gemm"


# Several GPUs in one process.


@settings(max_examples=25, deadline=None)
@given(
    counts=st.lists(st.integers(2, 12), min_size=2, max_size=4),
    took=st.floats(50.0, 400.0),
    at_once=st.booleans(),
)
def test_gpus_that_take_turns_are_not_healthy(
    counts: list[int], took: float, at_once: bool
) -> None:
    """A model that is spread over GPUs layer by layer keeps one of them busy at a time."""
    if at_once:
        counts = counts[:1] * len(counts)

    def step(p: Program) -> None:
        for device, count in enumerate(counts):
            for number in range(count):
                waits_for = 7 + device - 1 if device and not number and not at_once else None
                p.launch(GEMM, took, stream=7 + device, after=waits_for)
                p.events[-1]["args"]["device"] = device
        for device in range(len(counts)):
            p.wait(7 + device)

    of = judged(ran(step, 5, host=1.0))
    assert any(f"runs on {len(counts)} GPUs" in note for note in of.notes)
    if not at_once:
        assert of.verdict.category != "healthy"


# What a busy GPU may save, and may not.


@pytest.mark.parametrize(
    ("long", "short", "says"), [(200.0, 200.0, "host-launch"), (200.0, 4.0, "healthy")]
)
def test_idle_time_that_quick_steps_do_not_have_is_not_blamed(
    long: float, short: float, says: str
) -> None:
    """The host is late in most steps of a full GPU; a fifth of them are quicker."""

    def step(p: Program) -> None:
        for number in range(4):
            p.launch(GEMM, 2_000.0)
            if number == 1:
                p.wait()
                p.work(5 * (short if p.step_number % 5 == 0 else long))

    program = ran(step, 20)
    with tempfile.TemporaryDirectory() as folder:
        timeline = recordings.read_timeline(program.write(Path(folder) / "t.json"))
    of = triage_timeline(replace(timeline, how="cupti"))
    assert (of.verdict.category or of.findings[0].rule) == says
    if says == "healthy":
        assert "nothing is sure to save more than two runs of a program differ by" in of.verdict.say
        assert (
            of.hosts.step_ms_without_recorder.low < 0.9 * of.hosts.step_ms_without_recorder.expect
        )
        assert of.findings[0].saving.expected > 0.05 * of.hosts.step_ms_without_recorder.expect


# What nothing in a recording explains.


@pytest.mark.parametrize("count", [8, 12, 30])
@pytest.mark.parametrize("share", [0.1, 0.4, 0.7])
def test_idle_time_of_no_known_reason_is_said_beside_a_finding(count: int, share: float) -> None:
    def step(p: Program) -> None:
        p.launch(GEMM, 200.0 * count)
        p.delay(share / (1 - share) * 290.0 * count)
        for _ in range(count):
            p.launch(EXP, 90.0)
        p.wait()

    of = judged(ran(step, 6))
    assert of.findings[0].rule == "elementwise-chain"
    assert any("is idle for a reason that was not recorded" in note for note in of.notes)


@pytest.mark.parametrize("lost", [0.1, 0.3, 0.5])
def test_a_step_whose_kernels_are_not_all_there_is_not_healthy(lost: float) -> None:
    def step(p: Program) -> None:
        for _ in range(30):
            p.launch(GEMM, 400.0)
            p.launch(MUL, 10.0)
        p.wait()

    program = ran(step, 8)
    chosen = random.Random(0)
    program.events = [
        event
        for event in program.events
        if event["cat"] != "kernel" or event["name"] != MUL or chosen.random() > 2 * lost
    ]
    of = judged(program)
    assert of.split.busy > 0.85 * of.split.period
    assert of.verdict.category == "unknown"


@pytest.mark.parametrize(
    "call", ["cudaStreamSynchronize", "hipDeviceSynchronize", "hipMemcpyWithStream"]
)
def test_of_the_host_s_own_work_it_is_said_that_it_waits_before_it(call: str) -> None:
    def step(p: Program) -> None:
        for _ in range(20):
            p.launch(GEMM, 200.0)
        p.wait(call=call)
        p.work(1500.0)

    (finding, *_) = judged(ran(step, 8)).findings
    assert finding.rule == "host-launch"
    assert f"the GPU runs out of work at {call}" in finding.cause
    assert "before that wait" in finding.advice


# Clocks.


@pytest.mark.parametrize("time", [0, -1, -1e6, "-5", None])
def test_a_kernel_at_no_time_is_left_out(time: object) -> None:
    def step(p: Program) -> None:
        for _ in range(30):
            p.launch(GEMM, 200.0)
        p.wait()

    program = ran(step, 8)
    kernels = [event for event in program.events if event["cat"] == "kernel"]
    for event in kernels[::3]:
        event["ts"], event["dur"] = time, 0
    of = judged(program)
    assert of.split.period / 1e6 == pytest.approx(6.02, rel=0.02)
    assert "have no time" in of.notes[0]
    assert of.verdict.category == "unknown"


# Steps.


@settings(max_examples=25, deadline=None)
@given(
    nodes=st.integers(4, 60),
    took=st.floats(50.0, 500.0),
    before=st.integers(0, 4),
    after=st.integers(0, 4),
)
def test_a_few_alike_launches_beside_one_large_one_are_no_steps(
    nodes: int, took: float, before: int, after: int
) -> None:
    program = Program(host=20.0)
    for _ in range(before):
        program.launch("embed_kernel<bf16>", 6.0)
    program.replay([(f"layer_{number % 4}", took) for number in range(nodes)])
    for _ in range(after):
        program.launch("argmax_kernel<float>", 20.0)
    program.wait()
    of = judged(program)
    assert of.split.period / 1e3 == pytest.approx(nodes * (took + 1), rel=0.1, abs=200.0)
    assert len(of.steps.steps) == 1


# Exports.


@pytest.mark.parametrize("graphs", [1, 7, 40])
def test_graphs_that_name_no_launch_are_joined_in_order(graphs: int, tmp_path: Path) -> None:
    def step(p: Program) -> None:
        for number in range(graphs):
            p.replay([(f"node_{number}", 3000.0 / graphs)] * 3)
        p.launch("sample_kernel", 50.0)
        p.wait()

    (process,) = recordings.read_timeline(ran(step, 8).write(tmp_path / "t.json")).processes
    path = exported(process, tmp_path / "x.sqlite", graphs="graph", ranges=False)
    named = triage_timeline(recordings.read_timeline(path))
    with sqlite3.connect(path) as base:
        base.execute("UPDATE CUPTI_ACTIVITY_KIND_GRAPH_TRACE SET correlationId = 0")
    nameless = triage_timeline(recordings.read_timeline(path))
    assert nameless.split == named.split
    assert nameless.split.busy > 0.9 * nameless.split.period


@pytest.mark.parametrize("version", ["", "_V2"])
def test_an_export_without_names_is_one(version: str, tmp_path: Path) -> None:
    export = Export(tmp_path / "x.sqlite", version)
    export.add("DIAGNOSTIC_EVENT", 0, 3, "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES")
    export.close()
    with pytest.raises(ProfkitError, match="INSUFFICIENT_PRIVILEGES"):
        recordings.read_timeline(tmp_path / "x.sqlite")


@pytest.mark.parametrize("missing", [1, 100, 4095, 4096, 4097, 9000])
def test_an_export_that_is_cut_is_refused(missing: int, tmp_path: Path) -> None:
    (process,) = recordings.read_timeline(
        ran(lambda p: p.launch(GEMM, 100.0), 40).write(tmp_path / "t.json")
    ).processes
    path = exported(process, tmp_path / "x.sqlite")
    path.write_bytes(path.read_bytes()[:-missing])
    with pytest.raises(ProfkitError, match="is cut"):
        recordings.read_timeline(path)


# Traces.


@pytest.mark.parametrize("between", ["", "\n", " junk "])
@pytest.mark.parametrize("packed", [False, True])
def test_of_two_traces_in_one_file_it_is_said(between: str, packed: bool, tmp_path: Path) -> None:
    text = ran(lambda p: p.launch(GEMM, 100.0)).text()
    path = tmp_path / ("x.json.gz" if packed else "x.json")
    parts = [(text + between).encode(), text.encode()]
    path.write_bytes(b"".join(gzip.compress(part) if packed else part for part in parts))
    (note,) = recordings.read_timeline(path).notes
    assert "more than one trace" in note


def test_a_trace_that_ends_before_its_first_kernel_is_called_damaged(tmp_path: Path) -> None:
    text = ran(lambda p: p.launch(GEMM, 100.0)).text()
    at = text.index('"kernel"')
    for end in (text[:at], text[:at] + "}]" + text[at:]):
        (tmp_path / "x.json").write_text(end)
        with pytest.raises(ProfkitError, match="damaged") as caught:
            recordings.read_timeline(tmp_path / "x.json")
        assert "another profiler" not in caught.value.hint
