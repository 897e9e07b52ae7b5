"""What a name, a share or a neighbour alone does not tell is not said: no evidence, no saving.

Beside each program that was once told something false stands a second of its sort.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profkit.program.document import make_triage_document
from profkit.program.readers import torch_trace
from profkit.program.steps.kinds import classify_kernel, find_product_precision
from profkit.program.triage import Triage, triage_timeline
from profkit.reports.figures import make_kernel_name_readable
from tests.program.made import EXP, GEMM, MUL, SGEMM, SOFTMAX, Program, ran

Step = Callable[[Program], None]
SUM = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, sum_functor> >()"
DGEMM = "void cutlass::Kernel2<cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1>(Params)"
# PyTorch's kernel for rows of 2 ** n columns at most, which is the number in its name.
WARP_SOFTMAX = (
    "void (anonymous namespace)::softmax_warp_forward<float, float, float, %d, false, "
    "false>(float*)"
)
BACK = "autograd::engine::evaluate_function: "


def said(step: Step, tmp_path: Path, host: float = 10.0) -> dict[str, Any]:
    trace = ran(step, host=host).write(tmp_path / "trace.json.gz")
    return make_triage_document(triage_timeline(torch_trace.read_torch_trace(trace)))


def categories(of: dict[str, Any]) -> set[str]:
    return {f["category"] for f in of["findings"]}


def named(*kernels: str) -> Step:
    """Products, and kernels of which nothing but name and time is known."""

    def step(p: Program) -> None:
        for kernel in kernels:
            p.launch(GEMM, 100.0)
            p.launch(kernel, 400.0)

    return step


# name, sizes, kernel, microseconds; a name of the backward pass is put inside of its node
Made = tuple[str, Sequence[Sequence[int]], str, float]


def of_operators(*made: Made) -> Step:
    def step(p: Program) -> None:
        for op, sizes, kernel, took in made:
            node, _, name = op.rpartition("/")
            with p.op(BACK + node if node else name), p.op(name, [list(s) for s in sizes]):
                p.launch(kernel, took)

    return step


COMPILED = [
    "triton_poi_fused_add_gelu_permute_3",
    "triton_poi_fused_transpose_view_7",
    "triton_red_fused_add_native_layer_norm_permute_5",
    "triton_poi_fused_index_put_embedding_2",
    "triton_per_fused_atomic_add_histogram_1",
    "triton_poi_fused_nchwToNhwc_cat_0",
]


@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_kernel_is_what_its_template_is(name: str, tmp_path: Path) -> None:
    """Inductor puts each operator that it fused into the name."""
    assert classify_kernel(name) in {"elementwise", "reduce", "norm"}
    assert said(named(name, name, name, name), tmp_path)["findings"] == []


THIRD_PARTY = [
    "fused_moe_kernel",
    "_chunk_scan_fwd_kernel",
    "liger_cross_entropy_kernel",
    "main_kernel",
    "_layer_norm_fwd_1pass_kernel",
    "_ZN4vllm20paged_attention_v1_kIfLi64EEEvPf",
    "void marlin::Marlin<256, 4, true>(int4 const*)",
    "physics::transpose_and_scatter<float>(float*)",
    "my_all_reduce_of_a_block",
    "segment_csr_kernel",
    "sgemm_mine",
    "half64x64_solver",
]


@pytest.mark.parametrize("name", THIRD_PARTY)
def test_of_a_kernel_known_by_its_name_alone_it_is_said_what_to_record(
    name: str, tmp_path: Path
) -> None:
    of = said(named(name), tmp_path)
    assert of["findings"] == []
    row = next(r for r in of["kernels"] if r["ms"] > 0.3)
    assert "its limit is unknown because no counters were taken" in row["missing"]
    assert re.search(r"profkit profile --kernel \S+ --count 1 -- COMMAND", row["missing"])


WORDS = [
    "fused",
    "permute",
    "transpose",
    "atomic",
    "softmax",
    "gather",
    "scatter",
    "histogram",
    "cat",
    "all_reduce",
    "elementwise_kernel",
    "f64",
    "sgemm",
    "scan",
    "dropout",
    "nchwToNhwc",
    "conv2d",
    "direct_copy",
    "index_add",
    "attention",
    "layer_norm",
    "adam",
    "embedding",
]


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=4),
    prefix=st.sampled_from(["", "lib::", "_"]),
)
def test_no_word_in_a_name_of_nobody_s_is_a_finding(
    words: list[str], prefix: str, tmp_path: Path
) -> None:
    name = f"{prefix}my_{'_'.join(words)}_kernel"
    assert said(named(*[name] * 4), tmp_path)["findings"] == []


@pytest.mark.parametrize(
    ("mangled", "kind", "short"),
    [
        (
            "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_13BinaryFunctorIfffNS0_15binary_internal"
            "10MulFunctorIfEEEESt5arrayIPcLm3EEEEviT0_T1_",
            "elementwise",
            "at::native::vectorized_elementwise_kernel<",
        ),
        (
            "_ZN2at6native39_GLOBAL__N__0123abcd_4_copy_cu_0123456719CatArrayBatchedCopyIfEEvPf",
            "concat",
            "at::native::(anonymous namespace)::CatArrayBatchedCopy",
        ),
        (
            "_ZN17cutlass__5x_cudnn6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS_4gemm9GemmShape"
            "ILi128EEENS_9transform11PitchLinearE18permuteEEEvNT_6ParamsE",
            "conv",
            "cutlass__5x_cudnn::Kernel<",
        ),
        ("_Z9my_kernelPfi", "unknown", "my_kernel"),
        ("_Z", "unknown", "_Z"),
        ("_ZN9999", "unknown", ""),
    ],
)
def test_a_mangled_name_is_read(mangled: str, kind: str, short: str) -> None:
    assert classify_kernel(make_kernel_name_readable(mangled)) == kind
    assert make_kernel_name_readable(mangled).startswith(short)


def test_a_mangled_kernel_is_told_as_the_demangled_one(tmp_path: Path) -> None:
    name = "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfEEEEvT1_"
    (row,) = (r for r in said(named(name), tmp_path)["kernels"] if r["category"] == "reduce")
    assert row["name"].startswith("at::native::reduce_kernel<512 1 ReduceOp")
    assert "--kernel reduce_kernel " in row["missing"], "as ncu calls it"


X, XT, K = [8192, 64], [64, 8192], [8192, 8192]
RBF: list[Made] = [
    ("aten::mm", [X, XT], GEMM, 100.0),
    ("aten::sub", [K, K], MUL, 400.0),
    ("aten::exp", [K], EXP, 400.0),
    ("aten::mean", [K], SUM, 200.0),
    ("MeanBackward0/aten::div", [K], MUL, 300.0),
    ("ExpBackward0/aten::mul", [K, K], MUL, 400.0),
    ("SubBackward0/aten::neg", [K], MUL, 300.0),
    ("MmBackward0/aten::mm", [K, X], GEMM, 100.0),
    ("MmBackward0/aten::mm", [XT, K], GEMM, 100.0),
]
CONTRASTS: list[Made] = [  # exp and sum of likenesses by hand: a loss
    ("aten::mm", [X, XT], GEMM, 100.0),
    ("aten::exp", [K], EXP, 400.0),
    ("aten::sum", [K], SUM, 200.0),
    ("aten::mm", [[8192, 64], [64, 64]], GEMM, 100.0),
]
POOLS: list[Made] = [
    ("aten::bmm", [[32, 4096, 128], [32, 128, 64]], GEMM, 100.0),
    ("aten::_softmax", [[32, 4096, 64]], WARP_SOFTMAX % 6, 400.0),
    ("aten::bmm", [[32, 64, 4096], [32, 4096, 128]], GEMM, 100.0),
]
CLUSTERS: list[Made] = [  # assignments of one flat batch, summed over its members
    ("aten::mm", [[131072, 128], [128, 256]], GEMM, 100.0),
    ("aten::_softmax", [[131072, 256]], WARP_SOFTMAX % 8, 400.0),
    ("aten::mm", [[256, 131072], [131072, 128]], GEMM, 100.0),
]
HIDDEN, HEAD, LOGITS = [8192, 2048], [2048, 32000], [8192, 32000]
TEACHES: list[Made] = [
    ("aten::mm", [HIDDEN, HEAD], GEMM, 300.0),
    ("aten::_softmax", [LOGITS], SOFTMAX, 400.0),
    ("aten::mul", [LOGITS, LOGITS], MUL, 300.0),
    ("MulBackward0/aten::mul", [LOGITS, LOGITS], MUL, 300.0),
    ("MmBackward0/aten::mm", [LOGITS, [32000, 2048]], GEMM, 300.0),
]
SAMPLES: list[Made] = [
    ("aten::mm", [HIDDEN, HEAD], GEMM, 300.0),
    ("aten::_softmax", [LOGITS], SOFTMAX, 400.0),
    ("aten::mm", [HIDDEN, [2048, 2048]], GEMM, 300.0),
]
NO_ATTENTION = {
    "MMD": RBF,
    "contrast": CONTRASTS,
    "DiffPool": POOLS,
    "clusters": CLUSTERS,
    "teacher": TEACHES,
    "sampling": SAMPLES,
}


@pytest.mark.parametrize("name", NO_ATTENTION)
@pytest.mark.parametrize("known", ["operators", "names"])
def test_a_softmax_that_mixes_no_values_is_no_attention(
    name: str, known: str, tmp_path: Path
) -> None:
    def bare(p: Program) -> None:
        for _, _, kernel, took in NO_ATTENTION[name]:
            p.launch(kernel, took)

    step = of_operators(*NO_ATTENTION[name]) if known == "operators" else bare
    assert "attention-unfused" not in categories(said(step, tmp_path))


HEADS, TURNED, SCORES = [64, 2048, 64], [64, 64, 2048], [64, 2048, 2048]


@pytest.mark.parametrize(
    ("scores", "second", "attends"),
    [
        (SCORES, [SCORES, HEADS], True),
        ([8, 8, 2048, 2048], [TURNED, SCORES], True),  # values on the left
        (SCORES, [[64, 64, 2048], [64, 2048, 512]], False),  # over something else
        ([64, 2048, 64], [SCORES, HEADS], False),  # another softmax
        ([], [SCORES, HEADS], False),  # its sizes are not known
    ],
)
def test_attention_is_a_product_a_softmax_over_keys_and_a_product_over_them(
    scores: list[int], second: list[list[int]], attends: bool, tmp_path: Path
) -> None:
    step = of_operators(
        ("aten::bmm", [HEADS, TURNED], GEMM, 150.0),
        ("aten::_softmax", [scores] if scores else [], SOFTMAX, 400.0),
        ("aten::bmm", second, GEMM, 150.0),
    )
    assert ("attention-unfused" in categories(said(step, tmp_path))) == attends


SEGMENTS = [
    "void segment_csr_kernel<float, 4>(float const*, long const*)",
    "void cub::DeviceHistogramSweepKernel<Policy, 4, 1>(int)",
    "void at::native::deterministic_embedding_grad_sorted_kernel<float>(long*)",
    "void at::native::kernelHistogram1D<float, float, long, 1, 2, -1>(int)",
    "void cub::DeviceSegmentedReduceKernel<Policy, float const*>(int)",
]


@pytest.mark.parametrize("name", SEGMENTS)
@pytest.mark.parametrize("shapes", [None, [[4096, 64]]], ids=["names", "sizes"])
def test_what_sorts_or_reduces_by_segments_adds_into_no_shared_places(
    name: str, shapes: list[list[int]] | None, tmp_path: Path
) -> None:
    def step(p: Program) -> None:
        p.launch(GEMM, 100.0)
        with p.op("aten::bincount", shapes, types=["float"]):
            p.launch(name, 900.0)

    assert "atomics" not in categories(said(step, tmp_path))


def test_sums_into_places_of_unknown_sizes_may_save_nothing(tmp_path: Path) -> None:
    """PyTorch's name tells what its kernel does; how contended the places are it does not tell."""
    add = "void at::native::indexFuncLargeIndex<float, long, unsigned int, 2, 2, -2, true>(int)"
    of = said(named(add), tmp_path)
    (found,) = of["findings"]
    assert found["category"] == "atomics"
    assert found["saves_ms"]["low"] == 0.0
    assert "unknown without operator sizes" in found["say"]
    assert "sizes" in next(r["missing"] for r in of["kernels"] if r["category"] == "scatter")


@pytest.mark.parametrize(
    "name", ["my_index_add", "fused_scatter_reduce", "ns::indexFuncLargeIndex"]
)
def test_a_name_of_nobody_s_adds_into_no_places(name: str, tmp_path: Path) -> None:
    assert said(named(name, name), tmp_path)["findings"] == []


def beside(*blocks: int) -> Step:
    def step(p: Program) -> None:
        for stream, n in enumerate(blocks):
            p.launch(f"part_{stream}", 2500.0, stream=7 + stream, grid=(n, 1, 1))
        p.launch(GEMM, 100.0, stream=7)

    return step


@pytest.mark.parametrize(
    ("blocks", "idle"),
    [
        ((66, 66), False),
        ((33,) * 8, False),
        ((50, 20, 40), False),
        ((66, 1056), False),
        ((66,), True),
        ((20, 20), True),
    ],
)
def test_blocks_are_counted_with_those_of_what_runs_beside(
    blocks: tuple[int, ...], idle: bool, tmp_path: Path
) -> None:
    found = said(beside(*blocks), tmp_path, host=1.0)["findings"]
    assert any("most of the GPU is idle" in f["say"] for f in found) == idle


@pytest.mark.parametrize(
    "name",
    [
        "ampere_half64x64_gemm_tn",
        "cutlass_80_wmma_tensorop_half64x64_nn",
        "sm80_buf64_gemm",
        "sm90_gemm_bf64x128_nn",
    ],
)
def test_a_tile_of_half_precision_is_no_float64(name: str) -> None:
    assert find_product_precision(name) != "fp64"


def copying(p: Program) -> None:
    p.copy(40_000_000, 8.0)
    p.launch(GEMM, 900.0)


def waiting(p: Program) -> None:
    for _ in range(10):
        p.launch(GEMM, 60.0)
        p.wait()


def pausing(p: Program) -> None:
    p.work(15_000.0)
    p.launch(GEMM, 5000.0)


def launching(p: Program) -> None:
    for _ in range(200):
        p.launch(GEMM, 2.0)


def reducing(kernel: str) -> Step:
    def step(p: Program) -> None:
        for _ in range(4):
            p.launch(GEMM, 300.0)
        p.launch(kernel, 1200.0, stream=20, after=7)
        p.launch(GEMM, 50.0, after=20)

    return step


ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
PLAIN = {
    "float64": named(DGEMM, DGEMM),
    "float32": named(SGEMM, SGEMM),
    "copies": copying,
    "waits": waiting,
    "pauses": pausing,
    "launches": launching,
    "sums": reducing(ALL_REDUCE),
}


@pytest.mark.parametrize("name", PLAIN)
def test_a_program_without_pytorch_is_not_told_of_it(name: str, tmp_path: Path) -> None:
    found = said(PLAIN[name], tmp_path)["findings"]
    assert found
    assert not re.search(r"torch|numpy|DataLoader|Distributed|non_blocking", json.dumps(found))


def test_float64_that_somebody_chose_may_be_needed(tmp_path: Path) -> None:
    assert said(PLAIN["float64"], tmp_path)["findings"][0]["saves_ms"]["low"] == 0.0


@pytest.mark.parametrize(
    "inside", ["env.step", "queue.get", "enumerate(DataLoader)#_Iter.__next__"]
)
def test_workers_are_for_what_a_loader_does(inside: str, tmp_path: Path) -> None:
    """A server waits for requests, a simulation is computed: neither has workers to ask for."""

    def step(p: Program) -> None:
        with p.op(inside, kind="user_annotation"):
            p.work(15_000.0)
        with p.op("aten::mm"):
            p.launch(GEMM, 5000.0)

    first = said(step, tmp_path)["findings"][0]
    assert first["where"] == inside
    assert ("workers" in first["try"]) == ("DataLoader" in inside)
    assert "or waits for something" in first["say"], "which of both no recording tells"


@pytest.mark.parametrize(
    "name", ["ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "ncclKernel_AllToAll_RING"]
)
def test_what_one_rank_sends_another_is_no_bucket_of_gradients(name: str, tmp_path: Path) -> None:
    of = said(reducing(name), tmp_path)
    assert "collective" not in categories(of)
    assert "buckets" not in json.dumps(of)
    assert "record every rank" in next(
        r["missing"] for r in of["kernels"] if r["category"] == "collective"
    )


@pytest.mark.parametrize(
    ("kernel", "learns", "buckets"),
    [
        (ALL_REDUCE, True, True),
        (ALL_REDUCE, False, False),
        (ALL_REDUCE.replace("AllReduce_Sum", "AllGather"), True, False),
    ],
)
def test_buckets_are_for_gradients(
    kernel: str, learns: bool, buckets: bool, tmp_path: Path
) -> None:
    def step(p: Program) -> None:
        with p.op(BACK + "MmBackward0" if learns else "aten::mm"):
            p.launch(GEMM, 300.0)
        reducing(kernel)(p)

    (first,) = (f for f in said(step, tmp_path)["findings"] if f["category"] == "collective")
    assert ("buckets" in first["try"]) == buckets
    assert (first["saves_ms"]["low"] > 0) == learns


def allocate(p: Program) -> None:
    for number in range(12):
        p.call("cudaMalloc", 900.0, "cuda_runtime")
        p.launch(f"layer_{number}", 100.0)
    p.wait()


@pytest.mark.parametrize(("steps", "category"), [(1, "unknown"), (6, "host-sync")])
def test_what_allocates_once_is_a_start_and_what_always_does_is_a_step(
    steps: int, category: str, tmp_path: Path
) -> None:
    trace = ran(allocate, steps).write(tmp_path / "trace.json")
    of = make_triage_document(triage_timeline(torch_trace.read_torch_trace(trace)))
    assert of["first"]["category"] == category
    assert ("record several steps after a warm-up" in of["first"]["say"]) == (steps == 1)


def read_between(p: Program) -> None:
    """The host looks at a value again and again, and launches slowly after each look."""
    for _ in range(6):
        for number in range(12):
            p.launch(f"layer_{number}", 4.0)
        p.wait()


def test_a_graph_behind_waits_says_what_each_saves(tmp_path: Path) -> None:
    """A title that needs two changes says what the first saves alone, and what both do."""
    of = said(read_between, tmp_path, host=20.0)
    graph = next(f for f in of["findings"] if "remove those waits first" in f["say"])
    told = re.search(
        r"alone saves about ([\d.,]+) ms; both together save about ([\d.,]+)", graph["say"]
    )
    assert told
    alone, both = (float(text.replace(",", "")) for text in told.groups())
    assert both == pytest.approx(alone + graph["saves_ms"]["expect"], rel=0.01)


def wait_for_sizes(p: Program) -> None:
    """What follows each size is launched piece by piece."""
    for _ in range(6):
        for number in range(12):
            p.launch(f"layer_{number}", 4.0)
        with p.op("aten::nonzero"):
            p.launch(SUM, 4.0)
            p.wait()


def test_idle_time_of_another_cause_is_said_with_its_amount(tmp_path: Path) -> None:
    """A finding that saves more idle time than the bar gives its cause says where the rest is."""
    of = said(wait_for_sizes, tmp_path, host=20.0)
    waits = next(f for f in of["findings"] if f["category"] == "host-sync")
    own = next(row["ms"] for row in of["step"]["idle"] if row["cause"] == "host-sync")
    assert waits["saves_ms"]["expect"] > own + 0.02 * of["step"]["ms"]
    assert "to waiting for launches, part of which this fix also removes" in waits["say"]


def launch_short(p: Program) -> None:
    for _ in range(40):
        with p.op("aten::mm"):
            p.launch(GEMM, 10.0)


def test_a_gpu_that_was_idle_for_most_of_the_recording_is_healthy_only_if_measured(
    tmp_path: Path,
) -> None:
    """What the profiler has added is an estimate: it may be the profiler, or the program."""
    trace = ran(launch_short, host=18.0).write(tmp_path / "trace.json")
    timeline = torch_trace.read_torch_trace(trace)
    answer = triage_timeline(timeline)
    assert answer.split.busy < 0.5 * answer.split.period
    assert answer.verdict.category == "unknown"
    assert "--step-ms" in answer.verdict.say
    assert triage_timeline(timeline, unprofiled_step_ms=0.41).why_healthy


def wait_for_nobody(p: Program) -> None:
    """The GPU begins late, and nothing says why: code that is loaded, a graph that is captured."""
    for _ in range(10):
        p.launch(GEMM, 20.0)
        p.wait()
    p.delay(2000.0)
    p.launch(GEMM, 20.0)
    p.wait()


def test_a_graph_does_not_save_what_nobody_explains(tmp_path: Path) -> None:
    trace = ran(wait_for_nobody).write(tmp_path / "trace.json")
    answer = triage_timeline(torch_trace.read_torch_trace(trace))
    unexplained = sum(row.time for row in answer.split.idle if row.cause == "other") / 1e6
    idle = (answer.split.period - answer.split.busy) / 1e6
    assert unexplained > 1.9
    for finding in answer.findings:
        if finding.idle:
            assert finding.saving.high <= idle - unexplained + 0.04
            assert finding.saving.low < finding.saving.high


def test_a_long_recording_of_which_nothing_repeats_and_the_host_pauses_is_a_start(
    tmp_path: Path,
) -> None:
    """A program that compiles for most of what was recorded is not told to do that ahead of time."""

    def record(count: int, pause: float) -> Triage:
        program, chance = Program(), Random(1)
        for number in range(count):
            if number == count // 2:
                program.work(pause)
            program.launch(f"kernel_{chance.randrange(1000)}", 20.0)
        return triage_timeline(torch_trace.read_torch_trace(program.write(tmp_path / "t.json")))

    of = record(1_200, 60_000.0)
    assert of.verdict.category == "unknown"
    assert "as a program does that loads or compiles" in of.verdict.say
    assert "loads or compiles" not in record(1_200, 1_000.0).verdict.say
    assert "loads or compiles" not in record(100, 60_000.0).verdict.say
