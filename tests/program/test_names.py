"""Names of a known library's kernels are evidence: operators and their sizes only sharpen the answer.

A recording is judged as one of a program that runs (which has no operators), once with the operators
that a trace of it names and once without: where all kernels are a known library's, what stands first
is the same.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.program.readers import read_timeline
from profkit.program.steps.kinds import is_library_kernel
from profkit.program.timeline import Timeline
from profkit.program.triage import triage_timeline
from profkit.program.verdict import WORTH
from tests.found import find_files
from tests.program.made import ADDCDIV, GEMM, MUL, SGEMM, Program, ran
from tests.sweeps import take_part

DATA = Path(__file__).parent / "data"
RECORDED = sorted(find_files(DATA, "*.json.gz"))
# Programs with kernels of their own, or of a library that is not known; of all others names suffice.
WITH_OTHER_NAMES = {
    "fp64_inputs",
    "kernel_triton_small_grid",
    "loader_on_main_thread",
    "sync_conjugate_gradients",
}
LAYER_NORM = (
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int)"
)
WARP_SOFTMAX = (
    "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, %d, "
    "false, false>(c10::BFloat16*)"
)
INDEX_ADD = "void at::native::indexFuncLargeIndex<float, long, unsigned int, 2, 2, -2, true>(int)"
SORT = (
    "void at_cuda_detail::cub::detail::radix_sort::DeviceSegmentedRadixSortKernel<policy_hub>(int)"
)
STRIDED = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
    "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}> >(int)"
)
HALF = ["c10::BFloat16", "c10::BFloat16"]


def first_said(timeline: Timeline) -> tuple[str, float]:
    """What is said first, and the part of the step that it saves."""
    of = triage_timeline(timeline)
    if of.verdict.category:
        return of.verdict.category, 0.0
    return of.findings[0].rule, of.findings[
        0
    ].saving.expected / of.hosts.step_ms_without_recorder.expect


def agree(one: tuple[str, float], other: tuple[str, float]) -> bool:
    """Whether two say the same first; of what saves hardly enough to be named one may say nothing."""
    if one[0] == other[0]:
        return True
    nothing = {one[0], other[0]} & {"healthy", "unknown"}
    return bool(nothing) and max(one[1], other[1]) < 1.6 * WORTH


def without_operators(timeline: Timeline) -> Timeline:
    """The same without operators, lines and ranges; marks of steps stay, so that it is the same step."""
    processes = []
    for process in timeline.processes:
        marks = [span for span in process.spans if span.kind == "step"]
        processes.append(replace(process, spans=marks))
    return replace(timeline, processes=processes)


def names_are_known(timeline: Timeline) -> bool:
    activities = (a for process in timeline.processes for a in process.activities)
    return all(is_library_kernel(a.name) for a in activities if a.kind == "kernel")


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", take_part(RECORDED, one_of=3), ids=lambda path: path.name.removesuffix(".json.gz")
)
def test_a_recorded_program_is_told_by_names_as_by_operators(path: Path) -> None:
    live = replace(read_timeline(path), how="cupti")
    known = names_are_known(live)
    assert known or path.name.partition(".")[0] in WITH_OTHER_NAMES
    if known:
        assert agree(first_said(without_operators(live)), first_said(live))


def attend(p: Program, share: float, layers: int) -> None:
    """Attention that is written out: the scores take the time of their bytes."""
    rows, keys = 65536, 2048
    scores = [32, rows // 32, keys]
    for _ in range(layers):
        with p.op("aten::bmm", [[32, rows // 32, 64], [32, 64, keys]], types=HALF):
            p.launch(GEMM, 70.0 * share)
        with p.op("aten::mul", [scores, []], types=HALF):
            p.launch(MUL, 130.0 * share)
        with p.op("aten::_softmax", [scores], types=HALF):
            p.launch(WARP_SOFTMAX % 11, 130.0 * share)
        with p.op("aten::bmm", [scores, [32, keys, 64]], types=HALF):
            p.launch(GEMM, 70.0 * share)


def add_into_places(p: Program, share: float, layers: int) -> None:
    for _ in range(layers):
        with p.op("aten::index_add_", [[64, 64], [], [65536], [65536, 64]], types=["float"] * 4):
            p.launch(INDEX_ADD, 400.0 * share)


def sort_and_cut(p: Program, share: float, layers: int) -> None:
    sizes = [1024, 32000]
    for _ in range(layers):
        with p.op("aten::sort", [sizes], types=["float"]):
            p.launch(SORT, 400.0 * share)
        with p.op("aten::slice", [sizes], types=["float"]):
            p.work(1.0)


def multiply_in_float32(p: Program, share: float, layers: int) -> None:
    for _ in range(layers):
        with p.op("aten::mm", [[4096, 1024], [1024, 4096]], types=["float", "float"]):
            p.launch(SGEMM, 400.0 * share)


def copy_from_pageable(p: Program, share: float, layers: int) -> None:
    for _ in range(layers):
        with p.op("aten::copy_", [[1024, 1024], [1024, 1024]], types=["float", "float"]):
            p.copy(int(4e6 * share), 8.0)


def chain(p: Program, share: float, layers: int) -> None:
    sizes = [[4096, 8192], [4096, 8192]]
    for _ in range(5 * layers):
        with p.op("aten::mul", sizes, types=["float", "float"]):
            p.launch(MUL, 100.0 * share)


def put_in_order(p: Program, share: float, layers: int) -> None:
    sizes = [[64, 1024, 512], [64, 1024, 512]]
    for _ in range(2 * layers):
        with p.op("aten::contiguous", types=HALF), p.op("aten::copy_", sizes, types=HALF):
            p.launch(STRIDED, 200.0 * share)
        with p.op("aten::mm", [[4096, 1024], [1024, 4096]], types=HALF):
            p.launch(GEMM, 50.0 * share)


def update_one_by_one(p: Program, share: float, layers: int) -> None:
    with p.op("Optimizer.step#AdamW.step", kind="user_annotation"):
        for _ in range(32 * layers):
            with p.op("aten::addcdiv_", [[1024, 1024]] * 3, types=["float"] * 3):
                p.launch(ADDCDIV, 15.0 * share)


PLANTED: dict[str, Callable[[Program, float, int], None]] = {
    "attention-unfused": attend,
    "atomics": add_into_places,
    "kernel": sort_and_cut,
    "fp32-matmul": multiply_in_float32,
    "copy": copy_from_pageable,
    "elementwise-chain": chain,
    "layout": put_in_order,
    "optimizer": update_one_by_one,
}


def run_step(p: Program, what: str, share: float, layers: int, healthy: int) -> None:
    for _ in range(healthy):
        with p.op("aten::mm", [[8192, 4096], [4096, 4096]], types=HALF):
            p.launch(GEMM, 450.0)
        with p.op("aten::layer_norm", [[8192, 4096]], types=["float"]):
            p.launch(LAYER_NORM, 70.0)
    PLANTED[what](p, share, layers)


@settings(max_examples=120, deadline=None)
@given(
    what=st.sampled_from(sorted(PLANTED)),
    share=st.floats(1.0, 4.0),
    layers=st.integers(2, 6),
    healthy=st.integers(0, 1),
    steps=st.integers(2, 5),
    host=st.floats(1.0, 4.0),
)
def test_a_made_up_program_is_told_by_names_as_by_operators(
    what: str, share: float, layers: int, healthy: int, steps: int, host: float
) -> None:
    step = partial(run_step, what=what, share=share, layers=layers, healthy=healthy)
    with tempfile.TemporaryDirectory() as folder:
        path = ran(step, steps, host=host).write(Path(folder) / "trace.json")
        live = replace(read_timeline(path), how="cupti")
    assert names_are_known(live)
    assert first_said(live)[0] == what
    assert first_said(without_operators(live))[0] == what
