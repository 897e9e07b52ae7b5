"""One planted problem each, in programs that never ran: it is first, and saves what it saves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from profkit.program.example import Copy, Kernel, View, run_example
from profkit.program.findings import ORDER, products
from profkit.program.findings.case import StepCase
from profkit.program.findings.floors import SHARES
from profkit.program.operators import Product
from profkit.program.readers import torch_trace
from profkit.program.replay.scenario import LONGER, WATCHED
from profkit.program.rules import PRODUCT, RULES
from profkit.program.steps.kinds import find_product_precision
from profkit.program.timeline import Activity
from profkit.program.triage import Triage, triage_timeline
from profkit.records import gpus
from profkit.reports.figures import format_seconds
from tests.program.made import ADDCDIV, EXP, GEMM, MUL, SGEMM, SOFTMAX, Program, plain_ms, ran
from tests.program.test_equal_work import decode, generate
from tests.program.test_rerun import BACKWARD, FORWARD, run_training, train_table

Step = Callable[[Program], None]
ALIGN1 = (
    "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>("
    "cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1::Params)"
)
NCHW = "void cudnn::engines_precompiled::nchwToNhwcKernel<__half, __half, float, false>(int)"
CONV = "sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_cudnn"
VECTORIZED = "void at::native::vectorized_elementwise_kernel<8, at::native::{}, std::array>(int)"
ADDCMUL, ROOT, DIVIDE = (
    VECTORIZED.format(what)
    for what in ("addcmul_cuda_kernel", "sqrt_kernel_cuda", "binary_internal::DivFunctor<float>")
)
FUSED_ADAM = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous "
    "namespace)::FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<c10::BFloat16, 4> >(int)"
)
ADDED = MUL.replace("BinaryFunctor", "CUDAFunctor_add")
COPIED = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
    "at::native::direct_copy_kernel_cuda>(at::TensorIteratorBase&)>(int)"
)
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SUM = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, sum_functor> >()"
BATCH_NORM = (
    "void at::native::batch_norm_transform_input_channels_last_kernel<c10::BFloat16, float, "
    "c10::BFloat16, 4>(c10::BFloat16 const*, c10::BFloat16 const*, float const*)"
)
ADD = "void at::native::indexFuncLargeIndex<float, long, unsigned int, 2, 2, -2, true>(int)"


def judged(step: Step, tmp_path: Path, host: float = 10.0, **more: float) -> Triage:
    trace = ran(step, host=host).write(tmp_path / "trace.json.gz")
    return triage_timeline(torch_trace.read_torch_trace(trace), **more)  # type: ignore[arg-type]


def large(p: Program, count: int = 10) -> None:
    for _ in range(count):
        p.launch(GEMM, 200.0)


def small(p: Program) -> None:
    for _ in range(200):
        p.launch(MUL, 2.0)


def looking(p: Program) -> None:
    for _ in range(10):
        p.launch(GEMM, 60.0)
        with p.op("aten::item"):
            p.wait()


def copying(p: Program) -> None:
    with p.op("aten::to"):
        p.copy(40_000_000, 8.0)
    large(p)


def reading_back(p: Program) -> None:
    large(p)
    with p.op("aten::to"):
        p.copy(40_000_000, 4.0, direction="DtoH")


def one_by_one(p: Program) -> None:
    large(p)
    with p.op("Optimizer.step#AdamW.step", kind="user_annotation"):
        for _ in range(60):
            for _ in range(5):
                p.launch(MUL, 3.0)
            p.launch(ADDCDIV, 3.0)


def attending(p: Program) -> None:
    for _ in range(4):
        p.launch(GEMM, 100.0)
        with p.op("aten::bmm", [[64, 2048, 64], [64, 64, 2048]]):
            p.launch(GEMM, 150.0)
        with p.op("aten::div"):
            p.launch(MUL, 250.0)
        with p.op("aten::softmax", [[4, 16, 2048, 2048]]):
            p.launch(SOFTMAX, 400.0)
        with p.op("aten::bmm", [[64, 2048, 2048], [64, 2048, 64]]):
            p.launch(GEMM, 150.0)


def in_float32(p: Program) -> None:
    for _ in range(8):
        p.launch(SGEMM, 600.0)


def chained(p: Program) -> None:
    large(p, 2)
    for _ in range(6):
        p.launch(MUL, 60.0)
        p.launch(EXP, 40.0)


def converting(p: Program) -> None:
    for _ in range(6):
        p.launch(NCHW, 60.0)
        p.launch(CONV, 150.0)


def adding(p: Program) -> None:
    large(p, 2)
    with p.op(
        "aten::index_add_",
        [[64, 256], [], [262144], [262144, 256]],
        types=["float", "Scalar", "long int", "float"],
    ):
        p.launch(ADD, 900.0, grid=(1056, 1, 1))


def few_blocks(p: Program) -> None:
    large(p, 2)
    p.launch("my_softmax", 1500.0, grid=(16, 1, 1))


def strided_reads(p: Program) -> None:
    large(p, 2)
    with p.op("aten::softmax", [[8192, 8192]], types=["float"]):
        p.launch(SOFTMAX, 1500.0)


def reducing(p: Program) -> None:
    large(p, 5)
    p.launch(NCCL, 800.0, stream=20, after=7)
    p.launch(GEMM, 50.0, after=20)


def host_computes(p: Program) -> None:
    with p.op("train.py(42): augment", kind="python_function"):
        p.work(6000.0)
    large(p)


def allocating(p: Program) -> None:
    large(p, 4)
    for call in ("cudaFree", "cudaMalloc"):
        p._event(call, "cuda_runtime", p.now, 900.0, {}, tid=1)
        p.work(900.0)
    p.wait()


ODD = "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x128_32x4_nn_align1"
HALVES = ["c10::BFloat16", "c10::BFloat16"]


def product(p: Program, rows: int, inner: int, columns: int, name: str, rate: float) -> None:
    with p.op("aten::mm", [[rows, inner], [inner, columns]], types=HALVES):
        p.launch(name, 2e6 * rows * inner * columns / rate)


def sorting(p: Program) -> None:
    p.launch(GEMM, 300.0)
    with p.op("aten::sort", [[1024, 32000]], types=["c10::BFloat16"]):
        p.launch("cub::DeviceSegmentedRadixSortKernel", 1000.0)
    with p.op("aten::slice", [[1024, 32000], [], [], [], []]):
        p.work(1.0)


def sizing(p: Program) -> None:
    """Pieces whose sizes are looked up one by one: few launches of each, and the host is slow."""
    for _ in range(40):
        p.launch(GEMM, 8.0)
        with p.op("aten::nonzero"):
            p.wait()
        for _ in range(6):
            p.launch(GEMM, 8.0)


def tailed(p: Program, rows: int = 1536) -> None:
    """Twelve by twelve tiles on 132 multiprocessors: a second round for twelve of them."""
    for _ in range(12):
        with p.op("aten::mm", [[rows, 4096], [4096, 3072]], types=HALVES):
            p.launch(GEMM, 90.0, **{"block": [384, 1, 1], "registers per thread": 168})


def autocasting(p: Program) -> None:
    """One weight used eight times: cast each time, its gradients cast back and added."""
    shapes = [[4096, 8192], [4096, 8192], []]
    for _ in range(8):
        with p.op("aten::linear"):
            with p.op("aten::copy_", shapes, types=["c10::BFloat16", "float", "Scalar"]):
                p.launch(CAST, 60.0)
            p.launch(GEMM, 200.0)
    for n in range(8):
        p.launch(GEMM, 200.0)
        with p.op("autograd::engine::evaluate_function: ToCopyBackward0"):
            with p.op("aten::copy_", shapes, types=["float", "c10::BFloat16", "Scalar"]):
                p.launch(CAST, 60.0)
            if n:
                with p.op("aten::add_", shapes, types=["float", "float", "Scalar"]):
                    p.launch(MUL, 100.0)


def odd_sizes(p: Program) -> None:
    product(p, 8192, 1024, 50257, ODD, 1.5e14)
    product(p, 8192, 1024, 1024, GEMM, 6e14)


def uploading(p: Program) -> None:
    for _ in range(200):
        with p.op("aten::to"):
            p.copy(32_768, 8.0)
    large(p, 4)


CAST = (
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::"
    "TensorIteratorBase&)::{lambda()#3}, std::array<char*, 2ul>, 4>(int)"
)


def casting(p: Program) -> None:
    for _ in range(12):
        with p.op(
            "aten::copy_",
            [[4096, 8192], [4096, 8192], []],
            types=["c10::BFloat16", "float", "Scalar"],
        ):
            p.launch(CAST, 60.0)
        p.launch(GEMM, 200.0)


DGEMM = "void cutlass::Kernel2<cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1>(Params)"
CAT = (
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig<OpaqueType<2u>>()"
)
DEPTHWISE = (
    "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel_generic<c10::Half>()"
)


def in_doubles(p: Program) -> None:
    for _ in range(4):
        with p.op("aten::mm", [[2048, 2048], [2048, 2048]], types=["double", "double"]):
            p.launch(DGEMM, 550.0)
        with p.op("aten::mul", [[2048, 2048], [2048, 2048]], types=["double", "double"]):
            p.launch(MUL, 30.0)


def growing(p: Program) -> None:
    for _ in range(8):
        p.launch(GEMM, 60.0)
        with p.op("aten::cat"):
            p.launch(CAT, 70.0)


def depthwise(p: Program, sizes: tuple[int, ...] = (64, 512, 56, 56), blocks: int = 4096) -> None:
    large(p, 2)
    with p.op(
        "aten::_conv_depthwise2d", [[*sizes], [sizes[1], 1, 7, 7]], types=["c10::Half", "c10::Half"]
    ):
        p.launch(DEPTHWISE, 1200.0, grid=(blocks, 1, 1))


def rotating(p: Program) -> None:
    """Rotary embeddings by hand: half of a vector negated and put before the other half."""
    for _ in range(4):
        p.launch(GEMM, 100.0)
        for name in (MUL, EXP, CAT, MUL, MUL):
            p.launch(name, 40.0)


def unaligned(p: Program) -> None:
    """What own timelines say of a vocabulary of 50,257: names."""
    large(p, 2)
    for _ in range(3):
        p.launch(ALIGN1, 1500.0)


PLANTED: dict[str, tuple[Step, str]] = {
    f.__name__: (f, category)
    for f, category in (
        (small, "host-launch"),
        (host_computes, "host-launch"),
        (looking, "host-sync"),
        (allocating, "host-sync"),
        (copying, "copy"),
        (reading_back, "copy"),
        (one_by_one, "optimizer"),
        (attending, "attention-unfused"),
        (in_float32, "fp32-matmul"),
        (chained, "elementwise-chain"),
        (converting, "layout"),
        (adding, "atomics"),
        (few_blocks, "kernel"),
        (strided_reads, "kernel"),
        (odd_sizes, "kernel"),
        (uploading, "copy"),
        (casting, "elementwise-chain"),
        (autocasting, "elementwise-chain"),
        (tailed, "kernel"),
        (sorting, "kernel"),
        (sizing, "host-sync"),
        (reducing, "collective"),
        (in_doubles, "fp32-matmul"),
        (growing, "layout"),
        (depthwise, "kernel"),
        (rotating, "elementwise-chain"),
        (unaligned, "kernel"),
    )
}


@pytest.mark.parametrize("name", PLANTED)
def test_the_planted_problem_is_first(name: str, tmp_path: Path) -> None:
    step, category = PLANTED[name]
    of = judged(step, tmp_path)
    assert not of.why_healthy
    assert of.findings[0].rule == category
    saves = of.findings[0].saving
    assert 0 <= saves.low <= saves.expected <= saves.high <= of.split.period / 1e6
    assert saves.high - saves.low > 0  # nobody knows it to the nanosecond


def test_the_line_that_keeps_the_host_is_named(tmp_path: Path) -> None:
    first = judged(host_computes, tmp_path).findings[0]
    assert first.place == "in augment (train.py:42)"
    assert first.cause.startswith("for 6")


def test_every_rule_finds_something_here(tmp_path: Path) -> None:
    silent = {check.__name__ for check in ORDER}
    silent.remove("find_waits_for_pages")  # needs an export of nsys: tests/program/test_inputs.py
    silent.remove(
        "find_cells_in_loops"
    )  # needs lines and modules: tests/program/test_equal_work.py
    answers = [judged(step, tmp_path) for step, _ in PLANTED.values()]
    answers.append(judged(averaging, tmp_path))
    answers.append(judged(decode, tmp_path))
    answers.append(judged(lambda p: generate(p, more=16), tmp_path))
    answers.append(triage_timeline(run_training(FORWARD, [*FORWARD, *BACKWARD])))
    answers.append(triage_timeline(train_table(used=8192)))
    for rule in RULES:
        answers += [triage_timeline(run_example(example)) for example in rule.fires]
    for answer in answers:
        silent -= {check.__name__ for check in ORDER if _fires(check, answer)}
    assert silent == set()


def _fires(rule: object, of: Triage) -> bool:
    case = StepCase(
        of.steps.typical, of.split, of.hosts, of.groups, of.process.device, of.process.spans
    )
    return next(rule(case, frozenset()), None) is not None  # type: ignore[operator]


@pytest.mark.parametrize("mended", [large, in_float32])
def test_what_is_only_large_products_saves_nothing_on_the_host(
    mended: Step, tmp_path: Path
) -> None:
    of = judged(mended, tmp_path)
    assert not {f.rule for f in of.findings} & {"host-launch", "host-sync", "copy", "layout"}


def test_large_products_are_healthy(tmp_path: Path) -> None:
    of = judged(large, tmp_path)
    assert of.findings == []
    assert "100 % in gemm kernels" in of.why_healthy


def test_a_saving_is_cut_where_the_host_binds_next(tmp_path: Path) -> None:
    def step(p: Program) -> None:
        for _ in range(20):
            p.launch(SGEMM, 40.0)

    # A recorder that does not slow the host: it takes 30 us a launch, the kernels 40.
    trace = torch_trace.read_torch_trace(ran(step, host=26.0).write(tmp_path / "t.json"))
    first = triage_timeline(replace(trace, how="nsys")).findings[0]
    assert first.rule == "fp32-matmul"
    assert first.saving.high == pytest.approx(0.2, abs=0.03)  # 0.8 ms of kernels, 0.6 ms of host
    assert "the host limits it next" in first.cause


def test_our_own_recording_is_taken_off_each_launch(tmp_path: Path) -> None:
    trace = torch_trace.read_torch_trace(ran(small, host=10.0).write(tmp_path / "t.json"))
    of = triage_timeline(replace(trace, how="cupti"))
    low, expect, high = of.hosts.step_ms_without_recorder
    assert high - expect == pytest.approx(200 * WATCHED / 1e6, rel=0.02)
    assert (low, of.hosts.checked) == (expect, True)
    given = triage_timeline(replace(trace, how="cupti"), unprofiled_step_ms=1.0)
    assert given.hosts.step_ms_without_recorder.expect == pytest.approx(
        1.0
    )  # a plain run was measured: it holds


def test_idle_time_under_a_profiler_may_be_all_its_own(tmp_path: Path) -> None:
    unchecked = judged(small, tmp_path).findings[0].saving
    checked = judged(small, tmp_path, unprofiled_step_ms=plain_ms(small)).findings[0].saving
    assert unchecked.low == 0.0
    assert checked.low > 0.5 * checked.expected


def test_a_plain_run_fits_the_host(tmp_path: Path) -> None:
    of = judged(small, tmp_path, unprofiled_step_ms=1.5)
    assert of.hosts.step_ms_without_recorder.expect == pytest.approx(1.5, rel=0.01)
    assert of.findings[0].saving.expected == pytest.approx(
        1.5 - 0.4, abs=0.05
    )  # 200 kernels of 2 us


def test_mends_that_share_an_obstacle_are_not_added_up(tmp_path: Path) -> None:
    def step(p: Program) -> None:
        with p.op("Optimizer.step#Adam.step", kind="user_annotation"):
            for _ in range(100):
                p.launch(MUL, 3.0)
                p.launch(ADDCDIV, 3.0)
        large(p, 2)

    of = judged(step, tmp_path)
    both = {f.rule: f for f in of.findings}
    assert [f.rule for f in of.findings][:2] == ["optimizer", "host-launch"]
    assert both["host-launch"].on_top < 0.2 * both["host-launch"].saving.expected


def test_no_advice_for_tensor_cores_that_are_not_there(tmp_path: Path) -> None:
    old = {"id": 0, "name": "Tesla P100", "computeMajor": 6, "computeMinor": 0, "numSms": 56}
    trace = ran(in_float32).write(tmp_path / "t.json", deviceProperties=[old])
    assert [f.rule for f in triage_timeline(torch_trace.read_torch_trace(trace)).findings] == []
    half = {"id": 0, "name": "Tesla V100", "computeMajor": 7, "computeMinor": 0, "numSms": 80}
    trace = ran(in_float32).write(tmp_path / "t.json", deviceProperties=[half])
    (found,) = triage_timeline(torch_trace.read_torch_trace(trace)).findings
    assert "float16" in found.advice
    assert "bfloat16" not in found.advice


def test_a_loss_at_the_end_is_no_attention(tmp_path: Path) -> None:
    def step(p: Program) -> None:
        large(p, 4)
        with p.op("aten::log_softmax"):
            p.launch(SOFTMAX, 300.0)
        p.launch("void at::native::nll_loss_forward_reduce_cuda_kernel_2d<float>(float*)", 20.0)
        large(p, 4)

    assert "attention-unfused" not in {f.rule for f in judged(step, tmp_path).findings}


def test_a_simulation_that_repeats_itself_is_no_optimiser(tmp_path: Path) -> None:
    """One sequence with a root and a quotient, 40 times: over tensors of one size, it is no Adam."""

    def turns(p: Program, sizes: tuple[int, ...]) -> None:
        large(p, 4)
        for turn in range(40):
            for name in (MUL, ADDCMUL, ROOT, DIVIDE, MUL):
                p.launch(name, 6.0, grid=(sizes[turn % len(sizes)], 1, 1))

    one = judged(lambda p: turns(p, (4096,)), tmp_path)
    assert "optimizer" not in {f.rule for f in one.findings}
    first = judged(lambda p: turns(p, (4096, 2)), tmp_path).findings[0]
    assert first.rule == "optimizer"
    assert "200 kernels" in first.cause


def test_products_of_odd_sizes_are_told_from_those_that_fit(tmp_path: Path) -> None:
    def even(p: Program) -> None:
        product(p, 8192, 1024, 50304, GEMM, 6e14)
        product(p, 8192, 1024, 1024, GEMM, 6e14)

    found = judged(odd_sizes, tmp_path)
    first = found.findings[0]
    assert first.rule == "kernel"
    assert "pad the size to a multiple of 64 (50304 for 50257)" in first.advice
    truth = (2e6 * 8192 * 1024 * 50257 / 1.5e14 - 2e6 * 8192 * 1024 * 50304 / 6e14) / 1e3
    assert first.saving.low <= truth <= first.saving.high
    assert first.saving.expected == pytest.approx(truth, rel=0.25)
    assert not [f for f in judged(even, tmp_path).findings if "16-byte" in f.cause]


def test_a_round_of_few_tiles_is_told_from_full_ones(tmp_path: Path) -> None:
    first = judged(tailed, tmp_path).findings[0]
    assert "use 55 % of their tiles' capacity: 1536 x 3072 is 144 tiles of 256 x 128" in first.cause
    assert "2 rounds on 132 multiprocessors, 12 in the last" in first.cause
    used = 144 / 264  # of the tiles that two rounds hold
    assert first.saving.high == pytest.approx(12 * 0.09 * (1 - used), abs=0.03)
    assert first.saving.expected == pytest.approx(12 * 0.09 * (1 - used / 0.95), abs=0.005)
    assert "binds" not in first.cause
    full = judged(lambda p: tailed(p, 1408), tmp_path)  # 132 tiles
    assert not [f for f in full.findings if "tiles hold" in f.cause]


def test_padding_inside_of_tiles_is_said_without_rounds_where_several_blocks_fit() -> None:
    odd = Product(rows=130, inner=4096, columns=130, batch=64, size=2, seconds=1e-4)
    name = "ampere_bf16_s16816gemm_bf16_64x64_ldg8_f2f_stages_64x3_nn"
    small = Activity("kernel", name, 0, 100_000, grid=(3, 3, 64), block=(128, 1, 1), registers=96)
    cut = products.find_tiling(odd, small, 132)
    assert cut is not None
    assert (cut.tile, cut.tiles, cut.rounds) == ((64, 64), 576, 0)
    assert cut.used == pytest.approx((130 / 192) ** 2)
    assert products.find_tiling(odd, replace(small, name=name + "_splitK_nn"), 132) is None
    assert products.find_tiling(odd, replace(small, name="my_own_gemm"), 132) is None


@pytest.mark.parametrize("cc", [None, (7, 0)], ids=["no cc", "no rate"])
def test_a_gpu_whose_rate_is_not_known_wins_nothing_from_full_tiles(
    cc: tuple[int, int] | None,
) -> None:
    """What products could reach there is not known: neither is what full tiles would save."""
    assert getattr(gpus.find_nearest_of_generation(cc), "half", None) is None
    case = SimpleNamespace(gpu=gpus.find_nearest_of_generation(cc), bandwidth=1e12)
    product = Product(rows=1536, inner=4096, columns=3072, batch=1, size=2, seconds=1e-4)
    assert StepCase.compute_product_floor_seconds(case, product) == product.seconds


def test_what_is_bound_by_bytes_wins_nothing_from_full_tiles(tmp_path: Path) -> None:
    def thin(p: Program) -> None:  # 16 rows: the weights' bytes take as long as it does
        with p.op("aten::mm", [[16, 8192], [8192, 28672]], types=HALVES):
            p.launch(GEMM, 150.0, **{"block": [384, 1, 1], "registers per thread": 168})

    assert not [f for f in judged(thin, tmp_path).findings if "tiles hold" in f.cause]


def test_sums_of_gradients_tell_how_often_one_tensor_was_cast(tmp_path: Path) -> None:
    first = judged(autocasting, tmp_path).findings[0]
    # Seven of eight casts go on both sides, and half of seven sums' bytes.
    assert first.saving.expected == pytest.approx(14 * 0.06 + 7 * 0.05, rel=0.03)
    assert first.saving.low < first.saving.expected < first.saving.high


def test_a_whole_order_that_is_read_is_no_problem(tmp_path: Path) -> None:
    def whole(p: Program) -> None:
        with p.op("aten::sort", [[1024, 32000]], types=["c10::BFloat16"]):
            p.launch("cub::DeviceSegmentedRadixSortKernel", 1000.0)
        with p.op("aten::slice", [[4, 4], [], [], [], []]):
            p.work(1.0)

    assert "topk" in judged(sorting, tmp_path).findings[0].advice
    verdict = judged(whole, tmp_path).verdict
    assert verdict.category == "unknown"  # nothing tells how fast a sort could be
    assert "what limits DeviceSegmentedRadixSortKernel" in verdict.say


@pytest.mark.parametrize(("kind", "named"), [("float", True), ("c10::BFloat16", False)])
def test_attention_on_float32_is_named(kind: str, named: bool, tmp_path: Path) -> None:
    def step(p: Program) -> None:
        shapes = [[8, 2048, 16, 64]] * 3
        with p.op("aten::_efficient_attention_forward", shapes, types=[kind] * 3):
            p.launch("fmha_cutlassF_f32_aligned_64x64_rf_sm80(AttentionKernel::Params)", 2000.0)

    found = judged(step, tmp_path).findings
    assert ["attention kernels run in float32" in f.cause for f in found] == [True] * named


def test_sizes_that_the_host_waits_for_are_named_before_launches(tmp_path: Path) -> None:
    def looked_at(p: Program) -> None:  # the same, of values that nothing's size depends on
        for _ in range(40):
            p.launch(GEMM, 8.0)
            with p.op("aten::item"):
                p.wait()
            for _ in range(6):
                p.launch(GEMM, 8.0)

    first = judged(sizing, tmp_path).findings[0]
    assert "nonzero (40x)" in first.cause
    assert "use fixed sizes" in first.advice
    # Batched, the GPU's own 2.24 ms are left at best of what the step takes without the profiler.
    most = (1 + LONGER) * judged(
        sizing, tmp_path
    ).hosts.step_ms_without_recorder.expect - 280 * 0.008
    assert first.saving.high == pytest.approx(most, rel=0.05)
    first, second = judged(looked_at, tmp_path).findings[:2]
    assert (first.rule, second.rule) == ("host-sync", "host-launch")
    assert "prevent the capture of a CUDA graph" in first.cause
    assert "because no graph can be captured until these waits are removed" in first.cause
    assert first.advice.startswith("keep the value on the GPU")
    assert second.saving.low == 0.0, "alone it cannot be had"
    assert "no graph can be captured while the host waits for the GPU" in second.cause


@pytest.mark.parametrize("read_whole", [False, True])
def test_rows_of_a_product_are_known_by_sizes_where_slices_are_not_recorded(
    read_whole: bool, tmp_path: Path
) -> None:
    halves = ["c10::BFloat16"] * 2

    def predict(p: Program) -> None:
        large(p, 4)
        with p.op("aten::mm", [[8192, 1024], [1024, 32000]], types=halves):
            p.launch(GEMM, 900.0)
        with p.op("aten::index", [[4, 32000], []], types=halves):
            p.launch(MUL, 5.0)
        if read_whole:
            with p.op("aten::mul", [[8192, 32000], [8192, 32000]], types=halves):
                p.launch(MUL, 400.0)

    found = [row for row in judged(predict, tmp_path).findings if row.rule == "redundant"]
    assert bool(found) != read_whole
    if found:
        assert "only 128,000 of 262,144,000 computed values are used" in found[0].cause


def test_a_small_pageable_copy_begins_as_soon_behind_a_slow_launch(tmp_path: Path) -> None:
    def first_pass(
        p: Program,
    ) -> None:  # 60 microseconds of a copy, and code that takes 150 to load
        p.copy(400_000, 6.0)
        p.load("saxpy", 20.0, 150.0)
        p.copy(400_000, 6.0, direction="DtoH")

    assert abs(judged(first_pass, tmp_path).hosts.error) < 0.02


def test_waits_at_one_end_of_a_step_leave_most_of_it_to_a_graph(tmp_path: Path) -> None:
    def prepared(p: Program) -> None:  # 40 launches between waits, and 400 behind the last
        for _ in range(8):
            for _ in range(5):
                p.launch(GEMM, 8.0)
            with p.op("aten::item"):
                p.wait()
        for _ in range(400):
            p.launch(GEMM, 8.0)

    answer = judged(prepared, tmp_path)
    assert answer.findings[0].rule == "host-launch"


def test_a_graph_is_said_to_end_at_each_line_that_waits(tmp_path: Path) -> None:
    def measured(p: Program) -> None:  # two lines wait, one of them twice
        for line, waits in ((12, 2), (13, 1)):
            for _ in range(20):
                p.launch(GEMM, 3.0)
            with p.op(f"train.py({line}): step", kind="python_function"):
                for _ in range(waits):
                    p.launch(GEMM, 3.0)
                    p.wait()

    slow, waits = judged(measured, tmp_path).findings
    places = "in step (train.py:12) (2x), in step (train.py:13)"
    assert f"a graph cannot contain a host wait: {places}" in slow.cause
    assert waits.where == ("in step (train.py:12)", "in step (train.py:13)")
    assert "3 times per step, also in step (train.py:13): " in waits.cause


@pytest.mark.parametrize(("call", "held"), [("cudaMemcpyAsync", False), ("cudaMemcpy", True)])
def test_an_asynchronous_copy_within_the_gpu_holds_no_host(
    call: str, held: bool, tmp_path: Path
) -> None:
    def copied(p: Program) -> None:
        for _ in range(20):
            p.launch(GEMM, 60.0)
            p.copy(4, 0.003, direction="DtoD")  # its call ends with it, and takes as long
            p.events[-2]["name"] = call

    events = judged(copied, tmp_path).hosts.usual.events
    assert any(event.awaits >= 0 for event in events) == held


@pytest.mark.parametrize(("op", "batch"), [("aten::where", True), ("aten::item", False)])
def test_a_line_that_waits_for_the_rows_of_each_part_is_one_batch(
    op: str, batch: bool, tmp_path: Path
) -> None:
    def routed(p: Program) -> None:
        for _ in range(16):
            with p.op("model.py(12): forward", kind="python_function"), p.op(op):
                p.launch(GEMM, 3.0)
                p.wait()
            with p.op("model.py(13): forward", kind="python_function"):
                for _ in range(12):
                    p.launch(GEMM, 3.0)

    first = judged(routed, tmp_path).findings[0]
    plain = judged(routed, tmp_path).hosts.step_ms_without_recorder.expect
    assert first.rule == "host-sync"
    assert (first.saving.expected > 0.5 * plain) == batch
    assert first.saving.high > 0.5 * plain, "at best no part needs the one before it"
    assert "for one part after another" in first.advice


@pytest.mark.parametrize("between", [0, 3])
def test_values_that_a_loop_reads_become_one_launch_and_one_copy(
    between: int, tmp_path: Path
) -> None:
    def monitored(p: Program) -> None:
        for _ in range(40):
            p.launch(GEMM, 60.0)
        for _ in range(40):  # a norm of each gradient; or of what some layers have just given
            for _ in range(between):
                p.launch(GEMM, 8.0)
            p.launch(SUM, 3.0)
            with p.op("aten::item"):
                p.copy(4, 0.003, direction="DtoH", pageable=False)
                p.wait()

    first = next(f for f in judged(monitored, tmp_path).findings if f.rule == "host-sync")
    assert ("torch._foreach_norm" in first.advice) == (between == 0)


@pytest.mark.parametrize(
    ("column", "cc", "gains"),
    [
        ("tensor", (8, 9), (1.0, 1.6, 2.2)),
        ("tensor", (10, 3), (3.5, 7.0, 20.0)),  # as the nearest that is no newer
        ("tensor", None, (1.0, 1.5, 20.0)),
        ("double", (8, 9), (20.0, 40.0, 64.0)),
        ("double", None, (1.0, 2.0, 64.0)),
        ("double", (6, 1), (1.0, 2.0, 64.0)),
    ],
)
def test_a_gpu_that_is_not_known_gains_what_holds_on_every_one(column, cc, gains) -> None:
    assert gpus.get_measured_levels(column, cc) == gains


def test_float64_becomes_products_of_float32_and_half_of_the_bytes(tmp_path: Path) -> None:
    first = judged(in_doubles, tmp_path).findings[0]
    assert (
        "8 kernels per step compute in float64: 2.32 ms, 4 of them matrix products" in first.cause
    )
    # Products 5.5 times as fast with TF32, as in float32 on this GPU; the rest moves half.
    assert first.saving.expected == pytest.approx(
        SHARES["kernel"].expect * (4 * 0.55 * (1 - 1 / 5.5) + 4 * 0.015), abs=0.02
    )
    assert first.saving.low < 0.1  # without TF32 the pipes do both at one rate


@pytest.mark.parametrize(
    ("name", "double"),
    [
        ("vectorized_elementwise_kernel<2, at::native::AUnaryFunctor<{0}, {0}, {0}>", "double"),
        ("elementwise_kernel<128, 2, BinaryFunctor<{0}, {0}, {0}>", "c10::complex<double>"),
        ("reduce_kernel<512, 1, at::native::ReduceOp<{0}, at::native::ArgMaxOps<{0}>", "double"),
    ],
)
def test_float64_is_known_by_names_where_no_operator_is(
    name: str, double: str, tmp_path: Path
) -> None:
    """A spectral solver in float64 was said to be a chain; a graph's kernels have no operators."""
    fft = "void vector_fft<2048u, EPT<16u>, 1u, (layout_t)0, unsigned int, {}, HostConfigPlaceholder>()"

    def solve(p: Program, of: str, values: str) -> None:
        for _ in range(4):
            p.launch(fft.format(values), 300.0)
            p.launch(f"void at::native::{name.format(of)} >()", 200.0)

    first = judged(lambda p: solve(p, double, "double"), tmp_path).findings[0]
    assert "8 kernels per step compute in float64: 2.00 ms" in first.cause
    single = judged(lambda p: solve(p, double.replace("double", "float"), "float"), tmp_path)
    assert not any("float64" in finding.cause for finding in single.findings)


def test_a_copy_in_a_run_is_one_more_link_of_the_chain(tmp_path: Path) -> None:
    first = judged(rotating, tmp_path).findings[0]
    assert "20 elementwise kernels per step in 4 chains" in first.cause


def test_what_only_puts_tensors_together_is_named(tmp_path: Path) -> None:
    first = judged(growing, tmp_path).findings[0]
    assert "8 kernels per step to concatenate tensors: 560 µs" in first.cause
    assert first.saving.expected == pytest.approx(0.56, rel=0.03)


@pytest.mark.parametrize(("blocks", "named"), [(4096, True), (1 << 22, False)])
def test_a_loop_of_pytorch_s_is_held_against_its_bytes(
    blocks: int, named: bool, tmp_path: Path
) -> None:
    # 206 MB read and at least a value a thread written: 100 million values of 2 bytes, or a billion.
    found = judged(lambda p: depthwise(p, blocks=blocks), tmp_path).findings
    assert bool(found) == named
    if named:
        assert "conv_depthwise2d_forward_kernel_generic takes 1.20 ms per step" in found[0].cause
        assert found[0].saving.expected == pytest.approx(1.2 - 1.6 * 0.411 / 3.2, abs=0.03)


def test_the_number_of_rows_is_waited_for_by_what_ran_before(tmp_path: Path) -> None:
    """nonzero without its operator's name: the kernel that counts stands before the copy back."""
    counts = (
        "void cub::DeviceReduceSingleTileKernel<Policy, at::native::NonZeroOp<bool>, int*>(int)"
    )

    def sized(p: Program) -> None:
        for _ in range(40):
            p.launch(GEMM, 8.0)
            p.launch(counts, 4.0)
            p.wait()
            for _ in range(6):
                p.launch(GEMM, 8.0)

    waits = next(f for f in judged(sized, tmp_path).findings if f.rule == "host-sync")
    assert "use fixed sizes" in waits.advice


def test_a_pause_is_not_said_again_as_slow_launches(tmp_path: Path) -> None:
    def both(p: Program) -> None:  # 6 ms of its own, then 0.84 ms for kernels of 0.12
        p.work(6000.0)
        for _ in range(60):
            p.launch(MUL, 2.0)

    own, launches = judged(both, tmp_path).findings
    assert "busy with other work" in own.cause
    assert "idle for 10 % of the recorded step" in launches.cause


def test_the_host_waits_for_no_more_copies_than_there_are(tmp_path: Path) -> None:
    def twice(p: Program) -> None:  # the call waits, and so does the one that follows it
        for _ in range(50):
            with p.op("aten::to"):
                p.copy(32_768, 1.8, pageable=False)
                p.events[-2]["dur"] = 20.0  # the copy ends 3 microseconds later
                p.now += 16.0
                p.wait()
        large(p, 4)

    first = judged(twice, tmp_path).findings[0]
    assert "50 small copies" in first.cause
    assert "the host waits for 50 of them" in first.cause


def test_a_wait_that_the_program_asks_for_gets_its_own_advice(tmp_path: Path) -> None:
    def timed(p: Program) -> None:
        for _ in range(10):
            p.launch(GEMM, 60.0)
            p.wait(call="cudaDeviceSynchronize")

    assert "time with events" in judged(timed, tmp_path).findings[0].advice
    assert "keep the value" in judged(looking, tmp_path).findings[0].advice


def test_a_long_call_is_the_driver_s_own_and_not_the_recorder_s(tmp_path: Path) -> None:
    def kept(p: Program) -> None:
        large(p, 4)
        p.wait()

    first = judged(allocating, tmp_path).findings[0]
    assert "allocates" in first.cause
    # A recorder adds microseconds to a call, also to one of 0.9 ms.
    assert first.saving.expected == pytest.approx(plain_ms(allocating) - plain_ms(kept), rel=0.05)


def test_an_odd_size_that_costs_nothing_is_not_named(tmp_path: Path) -> None:
    found = judged(lambda p: product(p, 8192, 1024, 50257, GEMM, 6e14), tmp_path)
    assert not [f for f in found.findings if "16-byte" in f.cause]


@pytest.mark.parametrize(
    ("keys", "width", "attends"), [(4096, 128, True), (8, 2048, False), (4096, 4096, False)]
)
def test_a_single_head_is_attention_and_a_choice_of_experts_is_none(
    keys: int, width: int, attends: bool, tmp_path: Path
) -> None:
    """Two matrices, not many: told by the softmax's sizes, and by how wide the head is."""

    def step(p: Program) -> None:
        rows = 4096
        for op, name, shapes in (
            ("aten::mm", GEMM, [[rows, width], [width, keys]]),
            ("aten::_softmax", SOFTMAX, [[rows, keys]]),
            ("aten::mm", GEMM, [[rows, keys], [keys, width]]),
        ):
            with p.op(op, shapes, types=["c10::BFloat16"] * len(shapes)):
                p.launch(name, 300.0)

    found = {f.rule for f in judged(step, tmp_path).findings}
    assert ("attention-unfused" in found) == attends


def test_a_chain_is_held_against_the_bytes_of_one_kernel(tmp_path: Path) -> None:
    """float32 in the middle, half of it at both ends, and rows' sums that are nothing beside."""
    size, rate = [8192, 32000], 4.2e6  # bytes a microsecond
    whole = 4 * 8192 * 32000

    def step(p: Program) -> None:
        large(p, 2)
        for op, shapes, types, moved in (
            ("aten::copy_", [size, size], ["float", "c10::BFloat16"], 1.5),
            ("aten::sub", [size, [8192, 1]], ["float", "float"], 2.0),
            ("aten::exp", [size], ["float"], 2.0),
            ("aten::div", [size, [8192, 1]], ["float", "float"], 2.0),
            ("aten::copy_", [size, size], ["c10::BFloat16", "float"], 1.5),
        ):
            with p.op(op, shapes, types=types):
                p.launch(MUL, moved * whole / rate)

    first = judged(step, tmp_path).findings[0]
    assert first.rule == "elementwise-chain"
    assert first.saving.expected == pytest.approx(
        8 * SHARES["run"].expect * whole / rate / 1e3, rel=0.05
    )


def test_a_value_that_nobody_wants_may_go_with_what_makes_it(tmp_path: Path) -> None:
    def looks(p: Program) -> None:
        for _ in range(10):
            p.launch(GEMM, 60.0)
            for name, op in ((MUL, "aten::abs"), (SUM, "aten::max")):
                with p.op(op):
                    p.launch(name, 50.0)
            with p.op("aten::item"):
                p.copy(4, 1e-3, direction="DtoH", pageable=False)
                p.wait()

    of = judged(looks, tmp_path)
    saves, busy = of.findings[0].saving, of.split.busy / 1e6
    recorded = of.split.period / 1e6 - busy
    # Both kernels take 1 ms of the step; but what waiting costs is the time that the GPU is idle.
    assert saves.expected <= of.hosts.step_ms_without_recorder.expect - busy
    most = min(recorded, (1 + LONGER) * of.hosts.step_ms_without_recorder.expect - busy)
    assert saves.expected <= saves.high == pytest.approx(most)


def test_launches_that_arrive_one_after_another_wait_for_the_host(tmp_path: Path) -> None:
    """Each begins while the kernel before still runs, and arrives when that is over."""

    def tight(p: Program) -> None:
        for _ in range(500):
            p.launch(MUL, 2.0)

    idle = {row.cause: row.time for row in judged(tight, tmp_path, host=0.5).split.idle}
    assert idle["host-launch"] > 10 * idle.get("other", 0)
    assert judged(tight, tmp_path, host=0.5).findings[0].rule == "host-launch"


def test_healthy_says_what_a_host_that_is_slower_than_thought_would_cost(tmp_path: Path) -> None:
    def step(p: Program) -> None:
        for _ in range(200):
            with p.op("aten::mm"):
                p.launch(GEMM, 9.0)

    judgement = judged(step, tmp_path, host=8.0)
    assert judgement.findings == []
    assert "up to" in judgement.why_healthy
    assert "--step-ms" in judgement.why_healthy
    assert "--step-ms" not in judged(step, tmp_path, host=8.0, unprofiled_step_ms=1.9).why_healthy


@pytest.mark.parametrize("rows", [1_600_000, 20_000])
def test_rows_that_are_taken_are_not_held_against_the_table_s_bytes(
    rows: int, tmp_path: Path
) -> None:
    """How much of a table is read, and how often, no trace says."""
    gather = (
        "void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long>(int)"
    )

    def step(p: Program) -> None:
        large(p, 4)
        with p.op(
            "aten::index_select",
            [[200_000, 128], [], [rows]],
            types=["c10::BFloat16", "Scalar", "long int"],
        ):
            p.launch(gather, 400.0)

    assert not any(
        "times the minimum for the bytes" in f.cause for f in judged(step, tmp_path).findings
    )


@pytest.mark.parametrize("between", [8.0, 500.0])
def test_tensors_of_another_size_do_not_break_a_chain(between: float, tmp_path: Path) -> None:
    def collided(p: Program) -> None:  # sums, what is computed of them, and what takes it again
        p.launch(GEMM, 400.0)
        for _ in range(2):
            p.launch(MUL, 80.0)
        p.launch(MUL, between)
        for _ in range(2):
            p.launch(MUL, 80.0)

    found = [f for f in judged(collided, tmp_path).findings if f.rule == "elementwise-chain"]
    time = format_seconds(0.32e-3 + between / 1e6)
    assert [f.cause.split(";")[0] for f in found] == [
        f"5 elementwise kernels per step in 1 chain take {time}"
    ]


def averaging(p: Program, count: int = 800) -> None:
    """Moving averages of all parameters, one after another, in a graph."""
    large(p, 4)
    p.graph([(MUL, 1.4)] * count)


def test_small_kernels_in_a_graph_are_said_with_their_launches(tmp_path: Path) -> None:
    first = judged(averaging, tmp_path).findings[0]
    assert first.rule == "elementwise-chain"
    assert "800 elementwise kernels" in first.cause
    # 800 of 1.4 us with 1 us between them; one kernel in their place takes what they do beyond 1.2 us.
    assert first.saving.expected == pytest.approx(0.8 * 2.4 - 0.8 * 0.2 - 0.0025, rel=0.1)
    assert judged(lambda p: averaging(p, 12), tmp_path).findings == []


def test_attention_in_pieces_takes_the_launches_of_its_products_with_it(tmp_path: Path) -> None:
    """Sliced attention on a host that binds: one call in place of four."""

    def sliced(p: Program) -> None:
        for _ in range(40):
            with p.op("aten::bmm", [[8, 256, 64], [8, 64, 256]]):
                p.launch(GEMM, 9.0)
            with p.op("aten::softmax", [[8, 256, 256]]):
                p.launch(SOFTMAX, 9.0)
            with p.op("aten::bmm", [[8, 256, 256], [8, 256, 64]]):
                p.launch(GEMM, 9.0)

    found = {
        f.rule: f for f in judged(sliced, tmp_path, unprofiled_step_ms=plain_ms(sliced)).findings
    }
    attention = found["attention-unfused"]
    assert attention.saving.expected > 0.5 * 40 * 2 * 0.014, "two of three launches go"


def test_copies_within_the_gpu_are_said_where_only_they_are_known() -> None:
    """Weights into the buffers of a graph: the driver copies, and no operator says for what."""
    weights = (Copy(bytes=64 << 20, us=40.0, direction="DtoD", pageable=False),) * 10
    of = triage_timeline(run_example((*weights, *(PRODUCT,) * 4)))
    first = of.findings[0]
    assert (first.rule, first.saving.low) == ("redundant", 0.0)
    assert first.saving.expected == pytest.approx(0.5 * 10 * 0.04, rel=0.01)
    assert "671 MB are copied unchanged within the GPU" in first.cause


def test_a_projection_that_is_cut_into_parts_is_used() -> None:
    """Queries, keys and values of one product: each is a third of it, and read."""
    sizes = ((8192, 1024), (1024, 3072))
    project = Kernel(name=GEMM, us=900.0, op="aten::mm", sizes=sizes, types=("c10::Half",) * 2)
    cut = View(op="aten::slice", sizes=((4, 2048, 3072),))
    heads = ((4, 16, 2048, 64),) * 3
    attend = Kernel(name="pytorch_flash::flash_fwd_kernel", us=200.0, op="mine", sizes=heads)
    of = triage_timeline(run_example((project, cut, cut, cut, attend) * 3))
    assert "redundant" not in {finding.rule for finding in of.findings}


def time_layers(p: Program) -> None:
    """Layers between waits, a loss, and a backward pass before which the host pauses longest."""
    half = ["c10::BFloat16", "c10::BFloat16"]
    for _ in range(24):
        p.wait(call="cudaDeviceSynchronize")
        p.work(1.0)
        with p.op("aten::linear", [[3072, 3072], [3072, 3072]], types=half):
            p.launch(GEMM, 60.0)
        p.work(1.0)
        with p.op("aten::relu", [[3072, 3072]], types=half[:1]):
            p.launch(MUL, 12.0)
        p.wait(call="cudaDeviceSynchronize")
    p.work(1.0)
    with p.op("aten::square", [[3072, 3072]], types=["float"]):
        p.launch(MUL, 20.0)
    p.work(600.0)
    for _ in range(24):
        p.work(1.0)
        with p.op("autograd::engine::evaluate_function: ReluBackward0"):
            p.launch(MUL, 12.0)
        p.work(1.0)
        with p.op("autograd::engine::evaluate_function: MmBackward0"):
            p.launch(GEMM, 120.0)


@pytest.mark.parametrize("host", [10.0, 30.0, 60.0])
def test_layers_after_a_backward_pass_are_no_optimizer(host: float, tmp_path: Path) -> None:
    """Nothing marks the steps, so each is cut before the backward pass and ends with the forward one."""
    p = Program(host)
    for _ in range(7):
        time_layers(p)
    of = triage_timeline(torch_trace.read_torch_trace(p.write(tmp_path / "trace.json")))
    backward = [work.maker.top.startswith("autograd::") for work in of.steps.typical.works]
    assert not backward[-1], "forward comes last"
    rules = [finding.rule for finding in of.findings]
    assert "optimizer" not in rules
    assert "host-sync" in rules
    if host < 60.0:
        assert rules[0] == "host-sync"


def reduce_on_host(p: Program, values: int = 16 << 20, launches: bool = False) -> None:
    """Results go to the host, and an operator there makes one value of each million."""
    p.work(1.0)
    with p.op("aten::mm", [[4096, 4096], [4096, 4096]], types=["float", "float"]):
        p.launch(GEMM, 900.0)
    p.copy(64 << 20, 20.0, direction="DtoH")
    p.work(1.0)
    with p.op("aten::mean", [[values]], types=["float"]):
        p.work(300.0)
        if launches:
            p.launch(SUM, 25.0)


def test_results_that_the_host_reduces_are_reduced_on_the_gpu(tmp_path: Path) -> None:
    def reduce_on_gpu(p: Program) -> None:
        p.launch(GEMM, 900.0)
        p.launch(SUM, 25.0)
        p.copy(4, 1e-3, direction="DtoH", pageable=False)

    of = judged(reduce_on_host, tmp_path)
    first = of.findings[0]
    assert first.rule == "copy"
    assert first.advice.startswith("reduce on the GPU what aten::mean reduces on the host")
    on_host = 0.3  # milliseconds of the operator, which another finding tells
    saved = plain_ms(reduce_on_host) - plain_ms(reduce_on_gpu) - on_host
    assert first.saving.expected == pytest.approx(saved, rel=0.25)


@pytest.mark.parametrize("waits", [True, False])
def test_what_the_host_works_out_of_results_goes_with_their_copy(
    waits: bool, tmp_path: Path
) -> None:
    """As metrics by numpy do; where something was launched in between, it is work for something else."""

    def count_on_host(p: Program) -> None:
        p.launch(GEMM, 900.0)
        p.copy(64 << 20, 3.0, direction="DtoH")
        if not waits:
            p.launch(GEMM, 900.0)
        p.work(30_000.0)

    def count_on_gpu(p: Program) -> None:
        p.launch(GEMM, 900.0)
        p.launch(SUM, 25.0)
        p.copy(4, 1e-3, direction="DtoH", pageable=False)

    of = judged(count_on_host, tmp_path)
    (copies,) = [finding for finding in of.findings if finding.rule == "copy"]
    assert ("what the host computes" in copies.advice) == waits
    assert ("then the host works for" in copies.cause) == waits
    if waits:
        assert of.findings[0] is copies
        saved = plain_ms(count_on_host) - plain_ms(count_on_gpu)
        assert copies.saving.expected == pytest.approx(saved, rel=0.25)
        assert copies.saving.low < 23 < copies.saving.expected, "the work may be for something else"


@pytest.mark.parametrize("trains", [False, True])
def test_two_in_a_row_are_a_chain_where_nothing_is_kept_for_a_way_back(
    trains: bool, tmp_path: Path
) -> None:
    def step(p: Program) -> None:
        for _ in range(6):
            p.launch(CONV, 300.0)
            p.launch(BATCH_NORM, 60.0)
            p.launch(MUL, 60.0)
        if trains:
            with p.op("autograd::engine::evaluate_function: MmBackward0"):
                p.launch(GEMM, 300.0)

    rules = [finding.rule for finding in judged(step, tmp_path).findings]
    assert ("elementwise-chain" in rules) == (not trains)


@pytest.mark.parametrize(("values", "launches"), [(1 << 20, False), (16 << 20, True)])
def test_what_the_host_does_not_reduce_is_only_copied(
    values: int, launches: bool, tmp_path: Path
) -> None:
    of = judged(lambda p: reduce_on_host(p, values, launches), tmp_path)
    (copies,) = [finding for finding in of.findings if finding.rule == "copy"]
    assert "reduce on the GPU" not in copies.advice


def launch_chains(p: Program, around: str = "", copies: bool = False) -> None:
    large(p, 2)
    with p.op(around or "aten::mul"):
        for _ in range(12):
            p.launch(COPIED if copies else MUL, 60.0)


@pytest.mark.parametrize(
    ("around", "compiled"),
    [
        ("aten::mul", False),
        ("CompiledFunctionBackward", True),
        ("Torch-Compiled Region: 0/0", True),
        ("my::CompiledFunctionTable", False),
    ],
)
def test_what_is_compiled_is_not_to_be_compiled(
    around: str, compiled: bool, tmp_path: Path
) -> None:
    first = judged(lambda p: launch_chains(p, around), tmp_path).findings[0]
    assert first.rule == "elementwise-chain"
    assert ("torch.compile the function" in first.advice) != compiled
    assert ("graph breaks" in first.advice) == compiled

    def launch(p: Program) -> None:
        with p.op(around):
            small(p)

    first = judged(launch, tmp_path).findings[0]
    assert first.rule == "host-launch"
    assert ("or torch.compile" in first.advice) != compiled


def test_copies_in_a_row_are_no_chain(tmp_path: Path) -> None:
    found = judged(lambda p: launch_chains(p, copies=True), tmp_path).findings
    assert "elementwise-chain" not in {finding.rule for finding in found}


def test_captured_graphs_have_the_name_that_the_gpus_maker_gave_them(tmp_path: Path) -> None:
    said = {}
    for maker in ("cuda", "hip"):
        program = ran(small)
        for event in program.events:
            event["name"] = event["name"].replace("cudaLaunchKernel", f"{maker}LaunchKernel")
        timeline = torch_trace.read_torch_trace(program.write(tmp_path / f"{maker}.json.gz"))
        said[maker] = triage_timeline(timeline).findings[0].advice
    assert "CUDA graph" in said["cuda"]
    assert said["hip"] == said["cuda"].replace("CUDA graph", "HIP graph")


@pytest.mark.parametrize(("stream", "pageable"), [(7, True), (7, False), (22, False)])
def test_copies_are_not_told_to_be_what_they_are(
    stream: int, pageable: bool, tmp_path: Path
) -> None:
    def load(p: Program) -> None:
        p.copy(40_000_000, 8.0, pageable=pageable, stream=stream)
        p.launch(GEMM, 200.0, after=stream)
        large(p)
        p.wait()

    first = next(found for found in judged(load, tmp_path).findings if found.rule == "copy")
    assert ("pin the host memory" in first.advice) == pageable
    assert ("on a separate stream" in first.advice) == (stream == 7)
    assert ("start each copy earlier" in first.advice) == (stream != 7)


def test_a_host_that_waits_for_what_it_sends_pins_it(tmp_path: Path) -> None:
    def send(p: Program) -> None:
        for _ in range(8):
            p.launch(GEMM, 100.0)
            with p.op("aten::copy_"):
                p.copy(1_000, 1.0)
                p.wait()

    found = judged(send, tmp_path, host=30.0).findings
    advised = [finding.advice for finding in found if finding.rule == "host-sync"]
    assert ["pin the host memory" in advice for advice in advised] == [True]


@pytest.mark.parametrize(
    "name",
    [
        "cudnn_infer_volta_scudnn_128x64_relu_medium_nn_v1",
        "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int, int)",
        "void wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>(int, int)",
        "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(int)",
    ],
)
def test_convolutions_of_cudnns_in_float32_are_named(name: str, tmp_path: Path) -> None:
    first = judged(lambda p: [p.launch(name, 300.0) for _ in range(8)] and None, tmp_path).findings[
        0
    ]
    assert first.rule == "fp32-matmul"
    assert "8 convolution kernels run in float32" in first.cause
    assert find_product_precision(name.replace("float", "__half")) in {"fp32", "unknown"}


def update_by_hand(p: Program, named: str = "") -> None:
    large(p)
    with p.op(named or "my_update", kind="user_annotation"):
        for _ in range(60):
            for kernel in (MUL, MUL, ADDCDIV):
                with p.op("aten::mul_"):
                    p.launch(kernel, 3.0)


@pytest.mark.parametrize(("named", "by_hand"), [("", True), ("Optimizer.step#AdamW.step", False)])
def test_an_update_by_hand_has_no_option_to_pass(named: str, by_hand: bool, tmp_path: Path) -> None:
    found = judged(lambda p: update_by_hand(p, named), tmp_path).findings
    (advice,) = [finding.advice for finding in found if finding.rule == "optimizer"]
    assert advice.startswith("replace the update written by hand") == by_hand
    assert advice.startswith("pass fused=True") != by_hand


@pytest.mark.parametrize(("lines", "parts"), [(1, True), (20, False)])
def test_a_loop_over_parts_of_the_input_is_run_once_for_all(
    lines: int, parts: bool, tmp_path: Path
) -> None:
    def route(p: Program) -> None:
        for number in range(20):
            frame = f"model.py({10 + number % lines}): forward"
            with p.op(frame, kind="python_function"):
                with p.op("aten::nonzero"):
                    p.launch(MUL, 5.0)
                    p.wait()
                for _ in range(6):
                    p.launch(GEMM, 8.0)

    found = judged(route, tmp_path).findings
    (advice,) = [finding.advice for finding in found if finding.rule == "host-sync"]
    assert ("20 times per step, for one part after another" in advice) == parts
    assert ("use fixed sizes" in advice) is True


def test_what_is_first_in_spite_of_a_smaller_saving_says_why(tmp_path: Path) -> None:
    def load(p: Program) -> None:
        copying(p)
        small(p)
        small(p)

    first, *others = judged(load, tmp_path, host=20.0).findings
    more = [finding.rule for finding in others if finding.saving.expected > first.saving.expected]
    assert more == ["host-launch"]
    assert "named before host-launch, which may save more, because" in first.cause
    assert "named before" not in "".join(finding.cause for finding in others)


@pytest.mark.parametrize(
    ("frame", "told"),
    [
        ("triton/backends/amd/driver.py(662): __call__", False),
        ("/tmp/torchinductor_me/ov/cov463qh.py(2533): call", False),
        ("vllm/model_executor/parameter.py(122): __torch_function__", False),
        ("scipy/ndimage/_interpolation.py(739): zoom", False),
        ("models/resnet.py(12): forward", True),
    ],
)
def test_frames_through_which_everything_goes_are_nobodys_place(
    frame: str, told: bool, tmp_path: Path
) -> None:
    def launch(p: Program) -> None:
        kind = "python_function"
        with p.op("train.py(8): step", kind=kind), p.op(frame, kind=kind):
            small(p)

    first = judged(launch, tmp_path).findings[0]
    assert ("train.py:8" not in first.place) == told
