"""What a recording does not prove is not said; what it proves is said first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from profkit.program.readers import torch_trace
from profkit.program.triage import Triage, triage_timeline
from tests.program.made import GEMM, MUL, SGEMM, Program, ran
from tests.program.test_unsaid import Step

LAYER_NORM = (
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int)"
)


def judged(step: Step, tmp_path: Path, host: float = 10.0, **how: float) -> Triage:
    trace = ran(step, host=host).write(tmp_path / "trace.json.gz")
    return triage_timeline(torch_trace.read_torch_trace(trace), **how)


def round_trip(p: Program) -> None:
    """Arrays that go to the GPU and back around one kernel, each copy holding its call."""
    for _ in range(2):
        p.copy(400_000_000, 4.0)
    p.launch("advance_kernel(float*)", 20_000.0)
    for _ in range(2):
        p.copy(400_000_000, 4.0, direction="DtoH")


def test_a_launch_is_no_longer_for_the_copies_that_held_it(tmp_path: Path) -> None:
    """It was "the copies save 13 of 547 ms, because the host limits it next"."""
    of = judged(round_trip, tmp_path)
    first = of.findings[0]
    assert first.rule == "copy"
    assert first.saving.expected > 0.9 * 400.0
    assert "to the GPU and back through pageable memory" in first.cause
    assert first.advice.startswith("keep the arrays on the GPU between steps")
    assert "host limits it" not in first.cause


@pytest.mark.parametrize("pieces", [1, 8])
def test_pieces_between_kernels_may_stay_on_the_gpu(pieces: int, tmp_path: Path) -> None:
    """A batch of new data comes at once; what comes piece by piece is used by what is between."""

    def step(p: Program) -> None:
        for _ in range(pieces):
            p.copy(80_000_000 // pieces, 25.0, pageable=False)
            p.launch(GEMM, 1200.0 / pieces)

    of = judged(step, tmp_path)
    if pieces > 1:
        assert of.findings[0].rule == "copy"
        assert of.findings[0].saving.low < 0.5 * of.findings[0].saving.expected
        assert "keep the arrays on the GPU" in of.findings[0].advice
    else:
        assert not any("keep the arrays" in finding.advice for finding in of.findings)


def test_results_are_not_copied_a_step_ahead(tmp_path: Path) -> None:
    def step(p: Program) -> None:
        p.launch(GEMM, 2000.0)
        p.copy(40_000_000, 4.0, direction="DtoH")

    first = judged(step, tmp_path).findings[0]
    assert first.rule == "copy"
    assert "the host's pageable memory" in first.cause
    assert "one step ahead" not in first.advice


@pytest.mark.parametrize("count", [4, 12])
def test_a_delay_without_a_reason_is_nobody_s(count: int, tmp_path: Path) -> None:
    """It was "the chain saves 28.4 of 37.2 ms; 12 kernels take 1.2"."""

    def step(p: Program) -> None:
        p.launch(GEMM, 3000.0)
        p.graph([(MUL, 100.0)] * count, lag=2500.0)
        p.launch(GEMM, 3000.0)

    of = judged(step, tmp_path)
    assert of.verdict.category == "unknown"
    assert "the GPU is idle between kernels of one graph launch" in of.verdict.say
    for finding in of.findings:
        assert finding.saving.high <= 0.1 * count + 0.1


def test_a_busy_gpu_in_unknown_kernels_is_not_healthy(tmp_path: Path) -> None:
    def known(p: Program) -> None:
        for _ in range(10):
            p.launch(GEMM, 300.0)
            p.launch(LAYER_NORM, 60.0)

    def unknown(p: Program) -> None:
        for _ in range(10):
            p.launch("advance_kernel(float*)", 300.0)
            p.launch(GEMM, 60.0)

    assert judged(known, tmp_path).verdict.category == "healthy"
    of = judged(unknown, tmp_path)
    assert of.verdict.category == "unknown"
    assert "what limits advance_kernel, which takes 83 % of the step" in of.verdict.say


def test_a_gpu_that_is_idle_is_not_healthy_though_nothing_is_found(tmp_path: Path) -> None:
    def step(p: Program) -> None:
        for _ in range(4):
            p.launch(GEMM, 400.0)
            p.delay(400.0)

    of = judged(step, tmp_path)
    assert of.verdict.category == "unknown"
    assert of.why_healthy == ""


def test_a_replay_that_misses_the_recording_shows_no_saving(tmp_path: Path) -> None:
    """Work that is longer on the GPU's clock than the steps of it: two clocks, or lost records."""

    def step(p: Program) -> None:
        for _ in range(10):
            p.launch(SGEMM, 300.0)

    program = ran(step, steps=4)
    for event in program.events:
        if event["cat"] == "kernel":
            event["dur"] *= 1.4
    of = triage_timeline(torch_trace.read_torch_trace(program.write(tmp_path / "t.json")))
    assert abs(of.hosts.error) > 0.05
    assert of.findings == []
    assert of.verdict.category == "unknown"
    assert "a change would save is not known" in of.verdict.say


@pytest.mark.parametrize("how", ["torch trace", "nsys", "cupti"])
@pytest.mark.parametrize("plain", [0.02, 1.0, 3.0, 20.0])
def test_what_was_measured_holds(plain: float, how: str, tmp_path: Path) -> None:
    def step(p: Program) -> None:
        for _ in range(10):
            p.launch(GEMM, 100.0)
        p.wait()
        p.work(1000.0)

    trace = torch_trace.read_torch_trace(ran(step).write(tmp_path / "t.json"))
    of = triage_timeline(replace(trace, how=how), unprofiled_step_ms=plain)
    assert list(of.hosts.step_ms_without_recorder) == [pytest.approx(plain)] * 3
    assert all(finding.saving.high <= plain + 1e-9 for finding in of.findings)
    assert "host times are scaled to the step time given with --step-ms" in of.notes


def test_what_the_host_does_after_a_wait_is_not_the_wait_s(tmp_path: Path) -> None:
    """A loader behind the loss that is read: the bar said that the host waits itself."""

    def step(p: Program) -> None:
        with p.op("enumerate(DataLoader)#_Iter.__next__", kind="user_annotation"):
            p.work(42_000.0)
        for _ in range(100):
            p.launch(GEMM, 580.0)
        p.wait()

    of = judged(step, tmp_path, unprofiled_step_ms=105.0)
    assert {row.cause for row in of.split.idle if row.time > 0.1 * of.split.period} == {
        "host-launch"
    }
    assert of.findings[0].rule == "host-launch"
    assert "load data in advance" in of.findings[0].advice


def test_the_largest_is_first_where_a_small_one_is_sure(tmp_path: Path) -> None:
    """It was attention that saves 0.15 ms before launches that save 3.7."""

    def step(p: Program) -> None:
        for _ in range(40):
            p.launch(GEMM, 4.0)
        p.launch(SGEMM, 60.0)

    of = judged(step, tmp_path, host=60.0)
    assert of.findings[0].rule == "host-launch"


def test_a_launch_that_loads_code_is_no_graph_s_to_save(tmp_path: Path) -> None:
    def step(p: Program) -> None:
        p.load(GEMM, 100.0, loading=200_000.0)
        for _ in range(20):
            p.launch(GEMM, 100.0)

    of = judged(step, tmp_path)
    assert abs(of.hosts.error) < 0.02
    assert all(
        finding.saving.high < 0.1 * of.hosts.step_ms_without_recorder.expect
        for finding in of.findings
    )
    assert any("launches that load code" in note for note in of.notes)


@pytest.mark.parametrize("count", [1, 6])
def test_one_convolution_is_no_reason_for_another_order(count: int, tmp_path: Path) -> None:
    strided = (
        "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
        "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}> >(int)"
    )

    def step(p: Program) -> None:
        for _ in range(count):
            p.launch("sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc", 300.0)
            p.launch(strided, 200.0)
        p.launch(strided, 200.0)

    found = [f for f in judged(step, tmp_path).findings if f.rule == "layout"]
    assert found
    advised = {"the layout that the convolutions use", "channels_last"}
    assert any(words in found[0].advice for words in advised) == (count > 1)
