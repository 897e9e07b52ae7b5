"""Steps: marked, named or found by their period; warm-up left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from profkit.program import readers as recordings
from profkit.program.steps.cut import WHOLE, find_steps
from profkit.program.steps.idle import CAUSES, clean_operator_name, split_period_by_idle_cause
from profkit.program.steps.kinds import classify_kernel, find_product_precision, is_library_kernel
from profkit.program.steps.period import (
    _measure_turn_similarity,
    _shorten_turns,
    find_longest_repetition,
)
from tests.program.made import GEMM, MUL, SOFTMAX, Program, plain_ms, ran

LAYER = ["mm", "add", "norm", "mm", "gelu", "mm"]
STEP = ["embed", *LAYER * 12, "loss", *reversed(LAYER * 12), *["adam"] * 3]


@pytest.mark.parametrize(
    ("sequence", "found"),
    [
        (STEP * 8, (0, len(STEP), 8)),
        ([f"warm{i}" for i in range(50)] + STEP * 5, (50, len(STEP), 5)),
        (["a", "b", "c"] * 40, (0, 3, 40)),
        (["a"] * 30, (0, 1, 30)),
        (STEP * 2, (0, len(STEP), 2)),
    ],
    ids=["steps", "warm-up", "short", "one kernel", "two steps"],
)
def test_the_period_of_a_launch_sequence(sequence: list[str], found: tuple[int, int, int]) -> None:
    assert find_longest_repetition(sequence) == found


def test_what_follows_the_loop_is_no_step() -> None:
    found = find_longest_repetition([*STEP * 5, "evaluate", "print"])
    assert found is not None
    assert found[1:] == (len(STEP), 5)


@pytest.mark.parametrize("sequence", [[], ["a"], list(range(200)), STEP])
def test_what_does_not_repeat_has_no_period(sequence: list[object]) -> None:
    found = find_longest_repetition(sequence)  # type: ignore[arg-type]
    assert found is None or (sequence == STEP and found[1] % len(LAYER) == 0)


def test_a_step_may_differ_in_a_few_launches() -> None:
    other = list(STEP)
    other[5] = "copy"
    assert find_longest_repetition(STEP * 3 + other + STEP * 3) == (0, len(STEP), 7)


def _unmarked(p: Program) -> Program:
    p.events = [e for e in p.events if not e["name"].startswith("ProfilerStep")]
    return p


def test_found_steps_take_what_marked_ones_take(tmp_path: Path) -> None:
    def step(p: Program) -> None:
        p.work(300.0)
        for _ in range(8):
            p.launch(GEMM, 100.0)
        p.launch(SOFTMAX, 50.0)

    marked = find_steps(
        recordings.read_timeline(ran(step, 8).write(tmp_path / "a.json")).processes[0]
    )
    program = _unmarked(ran(step, 8))
    bare = find_steps(recordings.read_timeline(program.write(tmp_path / "b.json")).processes[0])
    assert marked.how == "ProfilerStep"
    assert bare.how == "9 launches that repeat 8 times"
    assert bare.typical.period == pytest.approx(marked.typical.period, rel=0.01)
    assert [w.activity.name for w in bare.typical.works] == [GEMM] * 8 + [SOFTMAX]


def start_long(p: Program) -> None:
    """A program that compiles and tunes for longer than it runs: candidates, each a few times."""
    if p.step_number == 1:
        for number in range(200):
            p.launch(f"candidate_{number * 7 % 61}_{number}", 3.0)
            if number % 50 == 0:
                p.launch(f"layer_{number // 50}", 100.0)
                p.launch(MUL, 10.0)
    for layer in range(4):
        p.launch(f"layer_{layer}", 100.0)
        p.launch(MUL, 10.0)


def start_with_another_update(p: Program) -> None:
    """A start as long, that launches all that steps launch but for one kernel."""
    if p.step_number == 1:
        for number in range(200):
            p.launch(f"candidate_{number * 7 % 61}_{number}", 30.0)
    for layer in range(12):
        p.launch(f"layer_{layer}", 10.0)
    if p.step_number == 1:  # the way back is tuned
        for number in range(20):
            p.launch(f"variant_{number}", 10.0)
    p.launch("first_update" if p.step_number == 1 else "update", 10.0)


def test_the_first_step_of_an_optimizer_may_be_another_kernel(tmp_path: Path) -> None:
    program = _unmarked(ran(start_with_another_update, 8))
    found = find_steps(recordings.read_timeline(program.write(tmp_path / "a.json")).processes[0])
    assert len(found.typical.works) == 13
    assert len(found.steps) >= 6


def update_at_the_end(p: Program) -> None:
    """One step, which ends with the same two kernels for each parameter."""
    for number in range(120):
        p.launch(f"forward_{number}", 10.0)
    for _ in range(40):
        p.launch(MUL, 20.0)
        p.launch(SOFTMAX, 20.0)


def test_steps_behind_a_long_start_are_found(tmp_path: Path) -> None:
    program = _unmarked(ran(start_long, 12))
    found = find_steps(recordings.read_timeline(program.write(tmp_path / "a.json")).processes[0])
    assert len(found.typical.works) == 8
    assert len(found.steps) >= 10


def test_what_repeats_at_the_end_of_the_only_step_is_no_step(tmp_path: Path) -> None:
    program = _unmarked(ran(update_at_the_end, 1))
    found = find_steps(recordings.read_timeline(program.write(tmp_path / "a.json")).processes[0])
    assert len(found.steps) == 1
    assert len(found.typical.works) == 200


def make_tensors_first(p: Program) -> None:
    """A program that fills many tensors, and then runs steps which do nothing of that kind."""
    if p.step_number == 1:
        for number in range(200):
            p.launch(f"fill_{number}", 3.0)
    for layer in range(4):
        p.launch(f"layer_{layer}", 100.0)
        p.launch(MUL, 10.0)


def test_steps_behind_a_start_that_makes_tensors_are_found(tmp_path: Path) -> None:
    program = _unmarked(ran(make_tensors_first, 12))
    found = find_steps(recordings.read_timeline(program.write(tmp_path / "a.json")).processes[0])
    assert len(found.typical.works) == 8
    assert len(found.steps) >= 10


def play_episodes(p: Program) -> None:
    """Environments of which some end in each step, and an update that is the same in all."""
    if p.step_number == 1:
        for number in range(50):
            p.launch(f"fill_{number}", 3.0)
    ends = Random(p.step_number)
    for _ in range(20):
        p.launch("forward", 10.0)
        for ended in range(ends.randrange(5)):
            p.launch("reset", 3.0)
            p.launch(f"draw_{ended}", 3.0)
    for name in ("loss", "backward", "clip", "adam"):
        p.launch(name, 20.0)


def test_steps_that_launch_something_else_each_time_are_found_by_what_does_not(
    tmp_path: Path,
) -> None:
    program = _unmarked(ran(play_episodes, 15))
    found = find_steps(recordings.read_timeline(program.write(tmp_path / "a.json")).processes[0])
    assert found.how.endswith("4 of which come once in each of 15")
    for step in found.steps:
        names = [work.activity.name for work in step.works]
        assert names.count("forward") == 20
        assert names.count("adam") == 1


def replay_graphs(p: Program) -> None:
    """Two graphs a step behind a long start; at some steps a value more is copied."""
    if p.step_number == 1:
        for number in range(900):
            p.launch(f"fill_{number * number % 97}", 2.0)
    p.work(200.0)
    p.copy(4096, 10.0, pageable=False)
    p.replay([("forward_a", 300.0), ("forward_b", 200.0)])
    p.launch(MUL, 5.0)
    p.replay([("backward_a", 400.0), ("backward_b", 300.0)])
    for _ in range(4):
        p.launch("adam", 10.0)
    if p.step_number % 7 == 3:
        p.launch("log_a", 2.0)
        p.launch("log_b", 2.0)


def test_replayed_graphs_are_steps_behind_a_long_start(tmp_path: Path) -> None:
    program = _unmarked(ran(replay_graphs, 24))
    found = find_steps(recordings.read_timeline(program.write(tmp_path / "a.json")).processes[0])
    assert found.how == "8 launches that repeat 24 times"
    assert len(found.steps) == 23  # the last one ends with the program
    for step in found.steps[:-1]:
        names = [work.activity.name for work in step.works if work.activity.name.startswith("for")]
        assert names == ["forward_a", "forward_b"]
        assert step.works[0].kind == "copy"  # behind the host's pause
    assert len(found.typical.works) == 10


def accumulate_gradients(p: Program) -> None:
    """One graph, four times a step, and an update that takes a tenth as long as all of them."""
    if p.step_number == 1:
        p.copy(2_000_000_000, 8.0)  # all data, for longer than the steps take
        for number in range(300):
            p.launch(f"fill_{number * number % 97}", 2.0)
    for _ in range(4):
        p.copy(4096, 10.0, pageable=False)
        p.replay([("forward", 300.0), ("backward", 500.0)])
    for name in ("norm", "adam_a", "adam_b"):
        p.launch(name, 100.0)


def log_each_tenth_step(p: Program) -> None:
    """One graph a step; a value is copied to the host at each tenth."""
    p.copy(4096, 10.0, pageable=False)
    p.replay([("forward", 300.0), ("backward", 500.0)])
    if p.step_number % 10 == 0:
        p.copy(4, 1.0, direction="DtoH")


def replay_equal_layers(p: Program) -> None:
    """Eight graphs alike a step, behind a start in which two kernels take turns."""
    if p.step_number == 1:
        for _ in range(100):
            p.launch("normal", 2.0)
            p.launch("scale", 2.0)
    p.copy(4096, 10.0, pageable=False)
    for _ in range(8):
        p.replay([("product", 100.0), ("gelu", 30.0)])


@pytest.mark.parametrize(
    ("step", "count", "replays"),
    [(accumulate_gradients, 24, 4), (log_each_tenth_step, 60, 1), (replay_equal_layers, 24, 8)],
)
def test_steps_that_replay_a_graph_several_times(
    step: Callable[[Program], None], count: int, replays: int, tmp_path: Path
) -> None:
    program = _unmarked(ran(step, count))
    found = find_steps(recordings.read_timeline(program.write(tmp_path / "a.json")).processes[0])
    assert len(found.steps) >= count - 2
    launched = [call for call in found.typical.calls if call.launches_graph]
    assert len(launched) == replays


@pytest.mark.parametrize(("every", "is_said"), [(5, True), (1, False)])
def test_waits_behind_some_replays_are_said(every: int, is_said: bool, tmp_path: Path) -> None:
    def step(p: Program) -> None:
        p.replay([("forward", 300.0)])
        if p.step_number % every == 0:
            p.wait()
            p.work(1000.0)

    program = _unmarked(ran(step, 60))
    found = find_steps(recordings.read_timeline(program.write(tmp_path / "a.json")).processes[0])
    assert found.how == "one launch that repeats 60 times"
    assert any("each replay of the graph is taken" in note for note in found.notes) == is_said


def test_a_turn_is_no_part_that_is_less_alike() -> None:
    """A copy and 29 replays: half of it is nearly the other half."""
    turn = ["copy", *["graph"] * 29]
    assert _measure_turn_similarity(turn * 4, 0, 30, 4) == 1.0
    assert _shorten_turns(turn * 4, 0, 30, 4, 1.0) == (0, 30, 4)
    assert _shorten_turns(turn * 4, 0, 60, 2, 1.0) == (0, 30, 4)


def test_two_turns_at_once_are_no_turn() -> None:
    start = [f"warm{i % 90}_{i * i % 7}" for i in range(400)]
    turn = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]
    assert _shorten_turns([*start, *turn * 20], 400, 20, 10) == (400, 10, 20)
    halves = [*turn, *turn[:9], "z"]  # what is alike in nine of ten is one step
    assert _shorten_turns(halves * 4, 0, 20, 4) == (0, 10, 8)
    halves = [*turn, *turn[:8], "y", "z"]
    assert _shorten_turns(halves * 4, 0, 20, 4) == (0, 20, 4)


def test_profiler_start_and_stop_mark_what_counts(tmp_path: Path) -> None:
    program = Program()
    for number in range(6):
        if number == 3:
            program._event("cudaProfilerStart", "cuda_runtime", program.now, 1.0, {})
        for _ in range(4):
            program.launch(GEMM if number >= 3 else MUL, 100.0)
    steps = find_steps(recordings.read_timeline(program.write(tmp_path / "t.json")).processes[0])
    assert {w.activity.name for s in steps.steps for w in s.works} == {GEMM}


def test_one_step_alone_is_its_own_span(tmp_path: Path) -> None:
    program = ran(lambda p: p.launch(GEMM, 500.0), 1)
    steps = find_steps(recordings.read_timeline(program.write(tmp_path / "t.json")).processes[0])
    assert steps.periods == [pytest.approx(500_000, rel=0.05)]


def test_work_of_earlier_steps_belongs_to_none(tmp_path: Path) -> None:
    program = ran(lambda p: p.launch(GEMM, 500.0), 4)
    first = next(e for e in program.events if e["cat"] == "cuda_runtime")
    program.events.remove(first)  # launched before recording began: its kernel is there, not it
    steps = find_steps(recordings.read_timeline(program.write(tmp_path / "t.json")).processes[0])
    assert sum(len(s.works) for s in steps.steps) == 3


def test_all_of_a_step_is_given_out(tmp_path: Path) -> None:
    def step(p: Program) -> None:
        p.work(200.0)
        p.copy(4_000_000, 8.0)
        p.launch(GEMM, 300.0)
        p.wait()
        p.launch("ncclDevKernel_AllReduce_Sum(args)", 150.0, stream=20)
        p.launch(GEMM, 100.0, after=20)

    typical = find_steps(
        recordings.read_timeline(ran(step).write(tmp_path / "t.json")).processes[0]
    ).typical
    found = split_period_by_idle_cause(typical)
    assert found.busy + sum(row.time for row in found.idle) == found.period
    times = {row.cause: row.time / 1e3 for row in found.idle}
    assert set(times) <= set(CAUSES)
    assert found.busy / 1e3 == pytest.approx(400, abs=1)
    assert times["copy"] == pytest.approx(500, abs=5)
    assert times["collective"] == pytest.approx(150, abs=5)
    assert times["host-sync"] > 10


def test_two_streams_compute_once(tmp_path: Path) -> None:
    def step(p: Program) -> None:
        p.launch(GEMM, 300.0)
        p.launch(GEMM, 300.0, stream=20)

    typical = find_steps(
        recordings.read_timeline(ran(step).write(tmp_path / "t.json")).processes[0]
    ).typical
    assert split_period_by_idle_cause(typical).busy / 1e3 < 330


def test_copies_that_run_ahead_do_not_shorten_the_step(tmp_path: Path) -> None:
    def step(p: Program) -> None:  # the next batch, on a stream that waits for nothing
        p.copy(10_000_000, 50.0, pageable=False, stream=21)
        for _ in range(10):
            p.launch(GEMM, 300.0)

    typical = find_steps(
        recordings.read_timeline(ran(step, 4).write(tmp_path / "t.json")).processes[0]
    ).typical
    assert typical.period / 1e6 == pytest.approx(plain_ms(step), rel=0.01)
    found = split_period_by_idle_cause(typical)
    assert found.busy / found.period > 0.99


def test_a_driver_s_call_inside_of_the_runtime_s_is_one(tmp_path: Path) -> None:
    program = ran(lambda p: p.launch(GEMM, 100.0))
    calls = [e for e in program.events if e["cat"] == "cuda_runtime"]
    for call in calls:
        program.events.append(
            {
                **call,
                "cat": "cuda_driver",
                "name": "cuLaunchKernel",
                "ts": call["ts"] + 1,
                "dur": call["dur"] - 2,
            }
        )
    process = recordings.read_timeline(program.write(tmp_path / "t.json")).processes[0]
    assert len(process.calls) == 12
    assert [c.name for c in find_steps(process).typical.calls] == ["cudaLaunchKernel"]


SCATTERS = (
    "void at::native::_scatter_gather_elementwise_kernel<128, 8, at::native::"
    "_cuda_scatter_gather_internal_kernel<{}>::operator()<at::native::{}>(at::TensorIterator&)>(int)"
)
KINDS = {
    "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT": ("gemm", "half"),
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize256x64x8_stage3_ffma_execute_kernel__5x_cublas": (
        "gemm",
        "fp32",
    ),
    "sm90_xmma_gemm_f32f32_tf32f32_f32_nt_n_tilesize128x256x32_execute_segment_k_off_kernel__5x": (
        "gemm",
        "tf32",
    ),
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nt_align1>(int)": ("gemm", "fp32"),
    "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_256x64_32x3_nn_align4>(int)": (
        "gemm",
        "tf32",
    ),
    "void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_relu_f16_256x128>(int)": (
        "gemm",
        "half",
    ),
    "ampere_sgemm_128x64_tn": ("gemm", "fp32"),
    "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn": ("gemm", "half"),
    "volta_dgemm_64x64_nn": ("gemm", "fp64"),
    "sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_cudnn": ("conv", "half"),
    "void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4> >(Flash_fwd_params)": (
        "attention",
        None,
    ),
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64": (
        "attention",
        None,
    ),
    "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(AttentionKernel::Params)": ("attention", None),
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": (
        "collective",
        None,
    ),
    "triton_poi_fused_add_mul_0": ("elementwise", None),
    "triton_red_fused_native_layer_norm_3": ("norm", None),
    "loop_multiply_fusion": ("fused", None),
    "my_kernel(float*, int)": ("unknown", None),
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::OpaqueType<2u> >(int)": (
        "concat",
        None,
    ),
    SCATTERS.format("false, at::native::OpaqueType<4>, long", "TensorAssign"): ("gather", None),
    SCATTERS.format("true, at::native::OpaqueType<4>, long", "TensorAssign"): ("gather", None),
    SCATTERS.format("true, float, long", "ReduceAdd"): ("scatter", None),
    "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<at::native::"
    "index_put_kernel_impl<at::native::OpaqueType<2> >(at::TensorIterator&)>(int)": (
        "gather",
        None,
    ),
    "void at::native::triu_tril_kernel<bool, int, false>(int)": ("other", None),
}


@pytest.mark.parametrize("name", KINDS)
def test_what_a_kernel_is_by_its_name(name: str) -> None:
    kind, precision = KINDS[name]
    assert classify_kernel(name) == kind
    if precision:
        assert find_product_precision(name) == precision
    assert is_library_kernel(name) == (name != "my_kernel(float*, int)")


def test_a_step_without_calls_cannot_be_cut(tmp_path: Path) -> None:
    from profkit.errors import ProfkitError

    process = recordings.read_timeline(
        ran(lambda p: p.launch(GEMM, 100.0)).write(tmp_path / "t.json")
    ).processes[0]
    with pytest.raises(ProfkitError, match="no kernel launch was recorded"):
        find_steps(replace(process, calls=[]))


def test_a_place_is_said_without_the_engine_s_words() -> None:
    assert clean_operator_name("autograd::engine::evaluate_function: MmBackward0") == "MmBackward0"
    assert clean_operator_name("aten::linear") == "aten::linear"


def test_copies_that_follow_each_other_are_no_steps_beside_kernels(tmp_path: Path) -> None:
    p = Program()
    for direction in ("HtoD", "DtoH"):
        for _ in range(4):
            p.copy(1_000_000, 10.0, direction=direction, pageable=False)
        if direction == "HtoD":
            p.launch(MUL, 30.0)
            p.launch(GEMM, 40.0)
    p.wait()
    steps = find_steps(recordings.read_timeline(p.write(tmp_path / "t.json")).processes[0])
    assert steps.how == WHOLE
    assert len(steps.typical.works) == 10


def test_copies_alone_may_be_steps(tmp_path: Path) -> None:
    p = Program()
    for _ in range(8):
        p.copy(1_000_000, 10.0, pageable=False)
    p.wait()
    steps = find_steps(recordings.read_timeline(p.write(tmp_path / "t.json")).processes[0])
    assert steps.how == "one launch that repeats 8 times"


def test_the_only_step_of_many_streams_begins_with_the_first(tmp_path: Path) -> None:
    """No stream stands for the others: the busiest one may be the last."""
    p = Program()
    begin = p.now
    with p.step():
        for number in range(8):
            p.launch(GEMM, 1000.0 + number, stream=10 + number)
            p.wait(10 + number)
    step = find_steps(recordings.read_timeline(p.write(tmp_path / "t.json")).processes[0]).typical
    assert step.period / 1e3 == pytest.approx(p.now - begin, rel=0.02)
    assert split_period_by_idle_cause(step).busy / 1e3 == pytest.approx(8 * 1000 + 28, rel=0.001)
