"""Equal launches of a loop, a cache that grows by concatenation: said where sizes prove it only."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from profkit.program.findings import StepCheck, moves
from profkit.program.findings.case import StepCase, StepFinding
from profkit.program.findings.loops import (
    estimate_ns_as_one_kernel,
    find_batchable_launches,
    find_cells_in_loops,
    list_independent_loops,
)
from profkit.program.readers import torch_trace
from profkit.program.replay.scenario import make_host_models
from profkit.program.steps.attribution import replace_place_of_origin
from profkit.program.steps.cut import find_steps
from profkit.program.timeline import SourcePlace
from profkit.program.triage import Triage, make_step_case, triage_timeline
from tests.program.made import GEMM, MUL, Program, ran

HALVES = ["c10::BFloat16", "c10::BFloat16"]
CAT = (
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::"
    "OpaqueType<2u>, unsigned int, 4, 64, 64>(at::native::OpaqueType<2u>*)"
)
SUM = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, sum_functor> >()"
EQUAL = "launched one by one"
GROWS = "the next step copies the result again"


def judge(step: Callable[[Program], None], folder: Path, host: float = 10.0) -> Triage:
    trace = ran(step, host=host).write(folder / "trace.json")
    return triage_timeline(torch_trace.read_torch_trace(trace))


def make(step: Callable[[Program], None], folder: Path, host: float = 10.0) -> StepCase:
    trace = ran(step, host=host).write(folder / "trace.json")
    timeline = torch_trace.read_torch_trace(trace)
    process = timeline.processes[0]
    steps = find_steps(process)
    return make_step_case(process, steps, make_host_models(timeline, process, steps.typical))


def list_said(of: Triage, words: str) -> list[StepFinding]:
    return [finding for finding in of.findings if words in finding.cause]


def multiply(p: Program, sizes: list[list[int]], us: float = 20.0, blocks: int = 4) -> None:
    p.work(1.0)  # made operators end a little after what is in them
    with p.op("aten::mm", sizes, types=HALVES):
        p.launch(GEMM, us, grid=(blocks, 1, 1))


def over_heads(p: Program) -> None:
    p.launch(GEMM, 500.0)
    for _ in range(32):
        multiply(p, [[128, 512], [512, 64]])


def over_parameters(p: Program) -> None:
    p.launch(GEMM, 500.0)
    for _ in range(48):
        p.work(1.0)
        with p.op("aten::linalg_vector_norm", [[1024, 1024], [], [], [], []], types=["float"]):
            p.launch(SUM, 25.0, grid=(16, 1, 1))


def to_powers(p: Program) -> None:
    """Each reads the result of the one before it."""
    p.launch(GEMM, 500.0)
    for _ in range(32):
        multiply(p, [[512, 512], [512, 512]])


def accumulated(p: Program) -> None:
    """The same sum is added to again and again."""
    p.launch(GEMM, 500.0)
    for _ in range(32):
        p.work(1.0)
        with p.op("aten::addmm", [[128, 64], [128, 512], [512, 64]], types=[*HALVES, HALVES[0]]):
            p.launch(GEMM, 20.0, grid=(4, 1, 1))


def waited_for(p: Program) -> None:
    """The host looks at each before it launches the next one."""
    p.launch(GEMM, 500.0)
    for _ in range(32):
        multiply(p, [[128, 512], [512, 64]])
        p.wait()


def projected(p: Program) -> None:
    """Queries, keys and values: three equal ones, and something that reads them."""
    for _ in range(12):
        for _ in range(3):
            multiply(p, [[128, 512], [512, 64]])
        p.launch(MUL, 10.0)


def without_sizes(p: Program) -> None:
    p.launch(GEMM, 500.0)
    for _ in range(32):
        p.work(1.0)
        with p.op("aten::mm"):
            p.launch(GEMM, 20.0, grid=(4, 1, 1))


def in_large_chunks(p: Program) -> None:
    """Chunks that each fill the GPU: one launch would save nothing."""
    for _ in range(16):
        multiply(p, [[8192, 4096], [4096, 8192]], us=800.0, blocks=2048)


def backward(p: Program) -> None:
    p.launch(GEMM, 500.0)
    for _ in range(32):
        p.work(1.0)
        with p.op("autograd::engine::evaluate_function: MmBackward0"):
            multiply(p, [[128, 512], [512, 64]])


def operate(
    p: Program, op: str, sizes: list[list[int]], kernel: str = GEMM, types: list[str] | None = None
) -> None:
    p.work(1.0)
    with p.op(f"aten::{op}", sizes, types=types or ["c10::BFloat16"] * len(sizes)):
        p.launch(kernel, 20.0, grid=(4, 1, 1))


def over_tasks(p: Program) -> None:
    """A small network for each of many tasks, of one input."""
    p.launch(GEMM, 500.0)
    for _ in range(24):
        operate(p, "addmm", [[64], [128, 512], [512, 64]])
        operate(p, "relu", [[128, 64]], MUL)
        operate(p, "addmm", [[10], [128, 64], [64, 10]])


def over_tasks_after_their_end(p: Program) -> None:
    """The same, behind a kernel that is like the last of each turn."""
    operate(p, "addmm", [[10], [128, 64], [64, 10]])
    over_tasks(p)


def over_groups_of_rows(p: Program) -> None:
    """Experts of a constant number of rows, whose results are put together behind the loop."""
    p.launch(GEMM, 500.0)
    for _ in range(16):
        operate(p, "index", [[1024, 512], []], MUL, ["c10::BFloat16", "TensorList"])
        operate(p, "mm", [[64, 512], [512, 128]])
        operate(p, "gelu", [[64, 128]], MUL)
        operate(p, "mm", [[64, 128], [128, 512]])


def through_layers(p: Program) -> None:
    """Each layer reads what the layer before has made."""
    for _ in range(24):
        operate(p, "mm", [[128, 512], [512, 64]])
        operate(p, "relu", [[128, 64]], MUL)
        operate(p, "mm", [[128, 64], [64, 512]])


def through_layers_from_their_middle(p: Program) -> None:
    """The same, cut so that the first kernel reads something narrow."""
    operate(p, "relu", [[128, 64]], MUL)
    operate(p, "mm", [[128, 64], [64, 512]])
    through_layers(p)


def through_time(p: Program) -> None:
    """A recurrent cell: its own product comes first, and the state's second."""
    for _ in range(24):
        operate(p, "mm", [[128, 512], [512, 64]])
        operate(p, "mm", [[128, 64], [64, 64]])
        operate(p, "add", [[128, 64], [128, 64]], MUL)
        operate(p, "tanh", [[128, 64]], MUL)


def through_gates(p: Program) -> None:
    """A cell of which slices of one product are gates: who reads them is not known by sizes."""
    for _ in range(24):
        operate(p, "mm", [[128, 512], [512, 256]])
        operate(p, "addmm", [[128, 256], [128, 64], [64, 256]])
        operate(p, "sigmoid", [[128, 256]], MUL)
        operate(p, "mul", [[128, 64], [128, 64]], MUL)


def into_what_is_read(p: Program) -> None:
    """Steps of a simulation add to the places from which the next one reads."""
    for _ in range(24):
        operate(p, "index", [[1024, 512], []], MUL, ["c10::BFloat16", "TensorList"])
        operate(p, "mm", [[64, 512], [512, 128]])
        operate(p, "index_add_", [[1024, 512], [64], [64, 512]], MUL)


def by_kernels_of_one_operator(p: Program) -> None:
    """An operator that launches two kernels many times over."""
    p.launch(GEMM, 500.0)
    p.work(1.0)
    with p.op("aten::mm", [[128, 512], [512, 64]], types=HALVES):
        for _ in range(24):
            p.launch(GEMM, 20.0, grid=(4, 1, 1))
            p.launch(MUL, 20.0, grid=(4, 1, 1))


@pytest.mark.parametrize(
    ("step", "count"),
    [
        (over_heads, 32),
        (over_parameters, 48),
        (over_tasks, 72),
        (over_tasks_after_their_end, 72),
        (over_groups_of_rows, 64),
    ],
)
def test_equal_launches_are_said_first(
    step: Callable[[Program], None], count: int, tmp_path: Path
) -> None:
    of = judge(step, tmp_path)
    assert EQUAL in of.findings[0].cause
    assert of.findings[0].rule == "redundant"
    assert len(of.findings[0].works) == count


@pytest.mark.parametrize(
    "step",
    [
        to_powers,
        accumulated,
        waited_for,
        projected,
        without_sizes,
        in_large_chunks,
        backward,
        through_layers,
        through_layers_from_their_middle,
        through_time,
        through_gates,
        into_what_is_read,
        by_kernels_of_one_operator,
    ],
)
def test_what_may_be_needed_one_by_one_is_not_said(
    step: Callable[[Program], None], tmp_path: Path
) -> None:
    assert not list_said(judge(step, tmp_path), EQUAL)


def test_what_a_batch_would_not_save_is_left_to_other_findings(tmp_path: Path) -> None:
    case = make(in_large_chunks, tmp_path)
    assert list_independent_loops(case, frozenset())
    assert not list(find_batchable_launches(case, frozenset()))


@pytest.mark.parametrize("seed", range(12))
def test_a_batch_saves_no_more_than_its_kernels_and_launches(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    count, blocks = chance.randint(8, 40), chance.choice([1, 4, 32, 132, 600])
    us, host = chance.uniform(2.0, 60.0), chance.uniform(1.0, 40.0)
    rows, pause = chance.choice([16, 128, 1024]), chance.choice([0.0, 200.0])

    def step(p: Program) -> None:
        p.launch(GEMM, 100.0)
        for _ in range(count):
            p.work(pause)  # the program's own, which a batch may need as well
            multiply(p, [[rows, 512], [512, 64]], us, blocks)

    case = make(step, tmp_path, host)
    (loop,) = list_independent_loops(case, frozenset())
    (run,) = loop.list_works_by_place_in_turn()
    together, least = estimate_ns_as_one_kernel(case, run)
    kernels = case.sum_work_ms(run)
    assert 0 < together <= least <= kernels * 1e6
    # Together they take no less than the operations and bytes of all, and no less than one of them.
    rate = case.find_reachable_product_rate("half")
    assert rate is not None
    computed = 2e9 * count * rows * 512 * 64 / rate
    assert together >= min(computed, kernels * 1e6 - 1_200 * (count - 1))
    assert together >= min(0.99e3 * us, least)
    for finding in list_said(judge(step, tmp_path, host), EQUAL):
        saving = finding.saving
        assert saving.low <= saving.expected <= saving.high
        launches = count * (host + 4.0) / 1e3
        assert saving.expected <= kernels + launches


EMBED = "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int)"


def embed(p: Program) -> None:
    """A sentence of 64 numbers becomes rows; they are read by three products and added again."""
    types = ["c10::BFloat16", "Scalar", "long int"]
    operate(p, "index_select", [[30000, 256], [], [64]], EMBED, types)
    for _ in range(3):
        operate(p, "mm", [[64, 256], [256, 256]])
    operate(p, "add", [[64, 256], [64, 256]], MUL)
    operate(p, "mm", [[64, 256], [256, 256]])


def advance(p: Program) -> None:
    """A step of a solver: what it makes is what the next one begins with."""
    operate(p, "mm", [[64, 256], [256, 1024]])
    operate(p, "mm", [[64, 1024], [1024, 256]])
    operate(p, "add", [[64, 256], [64, 256]], MUL)


def attend(p: Program) -> None:
    """A head of an attention under autocast: weights and input are converted again for each."""
    types = ["c10::BFloat16", "float"]
    operate(p, "copy_", [[64, 384], [64, 384]], MUL, types)
    operate(p, "copy_", [[8192, 384], [8192, 384]], MUL, types)
    operate(p, "mm", [[8192, 384], [384, 64]])
    for _ in range(2):
        operate(p, "add", [[8192, 64], [8192, 64]], MUL)


def pass_on(p: Program) -> None:
    """A layer with weights that are converted first, and a result that is as large as its input."""
    operate(p, "_to_copy", [[256, 256]], MUL, ["float"])
    with p.op("aten::linear", [[64, 256], [256, 256]], types=HALVES):
        operate(p, "mm", [[64, 256], [256, 256]])
    operate(p, "add", [[64, 256], [64, 256]], MUL)


def find_loop(
    turn: Callable[[Program], None],
    turns: int,
    module: str,
    folder: Path,
    kind: str = "Part",
    trains: bool = False,
    find: StepCheck = find_batchable_launches,
) -> list[StepFinding]:
    """Find loops in turns of a module; a {} in its path is the number of the turn."""
    times = 2 * turns if trains else turns  # the second half is the way back

    def step(p: Program) -> None:
        p.launch(GEMM, 100.0)
        for _ in range(times):
            turn(p)

    case = make(step, folder)
    length = (len(case.works) - 1) // times
    works = list(case.works)
    for index, work in enumerate(works[1:]):
        number, at = divmod(index, length)
        part = "backward" if number >= turns else "forward"
        path = module.format(number % turns)
        place = SourcePlace(f"model.py:{10 + at}", "f", path, kind, "train.py:7", part)
        works[index + 1] = replace(work, maker=replace_place_of_origin(work.maker, place))
    made = replace(case, step=replace(case.step, works=works))
    return list(find(made, frozenset()))


@pytest.mark.parametrize(
    ("turns", "kind", "found"),
    [(8, "LSTMCell", 1), (64, "GRUCell", 1), (7, "LSTMCell", 0), (64, "Linear", 0)],
)
@pytest.mark.parametrize("trains", [False, True])
def test_cells_that_a_loop_calls_may_be_one_call(
    turns: int, kind: str, found: int, trains: bool, tmp_path: Path
) -> None:
    """The products of the state stay; launches and what is elementwise go, on the way back too."""
    drafts = find_loop(advance, turns, "cell", tmp_path, kind, trains, find_cells_in_loops)
    assert len(drafts) == found
    for draft in drafts:
        assert f"{kind} runs {turns} times per step" in draft.cause
        assert len(draft.works) % turns == 0
        assert len(draft.works) // turns >= 2 * (1 + trains)
        (left,) = draft.change.scale.values()
        assert left.low == 2 * left.expect == 4 * left.high


@pytest.mark.parametrize(
    ("turn", "turns", "module"), [(embed, 8, "model"), (attend, 6, "heads.{}")]
)
def test_modules_that_begin_with_what_none_makes_may_be_one_batch(
    turn: Callable[[Program], None], turns: int, module: str, tmp_path: Path
) -> None:
    (found,) = find_loop(turn, turns, module, tmp_path)
    length = len(found.works) // turns
    assert f"{turns} x {length} kernels" in found.cause
    assert "can be one batch if none needs the result" in found.cause
    assert "larger batch" in found.advice
    (trained,) = find_loop(turn, turns, module, tmp_path, trains=True)
    assert len(trained.works) == 2 * len(found.works)


@pytest.mark.parametrize(
    ("turn", "turns", "module", "kind"),
    [
        (embed, 7, "model", "Part"),  # too few of them
        (embed, 8, "", "Part"),  # no module: layers of a function look the same
        (embed, 8, "cell", "GRUCell"),
        (advance, 16, "model", "Part"),
        (advance, 16, "layers.{}", "Part"),
        (pass_on, 16, "layers.{}", "Part"),
        (attend, 3, "heads.{}", "Part"),  # queries, keys and values
    ],
)
def test_modules_that_may_need_each_other_are_no_batch(
    turn: Callable[[Program], None], turns: int, module: str, kind: str, tmp_path: Path
) -> None:
    assert find_loop(turn, turns, module, tmp_path, kind) == []


def decode(p: Program, first: int = 4096, grows: int = 1, kernel: str = CAT) -> None:
    """A token more behind those of the steps before, in eight layers."""
    length = first + grows * p.step_number
    for _ in range(8):
        p.launch(GEMM, 10.0)
        for _ in range(2):
            p.work(1.0)
            parts = [[16, 16, length, 64], [16, 16, 1, 64]]
            with p.op("aten::cat", [parts, []], types=["TensorList", "Scalar"]):
                p.launch(kernel, 70.0)
        p.launch("pytorch_flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<64> >", 40.0)


def test_a_cache_that_grows_is_said_with_its_bytes(tmp_path: Path) -> None:
    of = judge(decode, tmp_path)
    (found,) = list_said(of, GROWS)
    assert of.findings[0] is found
    assert found.rule == "layout"
    assert len(found.works) == 16
    assert "allocate the cache once" in found.advice
    written = 16 * 16 * 16 * 4100 * 64 * 2 / 1e6  # in the middle of six steps
    said = float(found.cause.split(" MB are written")[0].split()[-1].replace(",", ""))
    assert said == pytest.approx(written, rel=0.01)
    assert found.saving.expected <= 16 * 70.0 / 1e3


@pytest.mark.parametrize(
    ("grows", "kernel"),
    [
        (0, CAT),  # a class token, or a window that slides: as long in each step
        (64, CAT),  # something of another length in each step
        (1, CAT.replace("OpaqueType<2u>", "Unheard")),  # bytes are not known
    ],
)
def test_a_concatenation_that_does_not_grow_is_no_cache(
    grows: int, kernel: str, tmp_path: Path
) -> None:
    of = judge(lambda p: decode(p, grows=grows, kernel=kernel), tmp_path)
    assert not list_said(of, GROWS)
    assert list_said(of, "to concatenate tensors")


def test_layers_that_append_within_a_step_are_no_cache(tmp_path: Path) -> None:
    def dense(p: Program) -> None:
        # A step of one more layer at the end: counted from behind, concatenations are out of step.
        for layer in range(8 + (p.step_number % 2)):
            p.launch(GEMM, 10.0)
            parts = [[64, 256 + 32 * layer, 32, 32], [64, 32, 32, 32]]
            with p.op("aten::cat", [parts, []], types=["TensorList", "Scalar"]):
                p.launch(CAT, 70.0)

    assert not list_said(judge(dense, tmp_path), GROWS)


@pytest.mark.parametrize(
    ("parts", "result"),
    [
        (((4, 100, 8), (4, 1, 8)), (4, 101, 8)),
        (((4, 1, 8), (4, 100, 8)), (4, 101, 8)),
        (((0,), (4, 100, 8), (4, 2, 8)), (4, 102, 8)),
        (((4, 50, 8), (4, 50, 8)), None),  # halves of a rotation
        (((4, 100, 8), (1, 1, 8)), None),
        (((4, 100, 8),), None),
        ((), None),
    ],
)
def test_the_sizes_of_a_concatenation(
    parts: tuple[tuple[int, ...], ...], result: tuple[int, ...] | None
) -> None:
    join = moves.read_sizes_of_appending(parts)
    assert (join.result if join else None) == result


NORM = (
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float, false>"
    "(int, float, c10::BFloat16 const*, c10::BFloat16 const*, c10::BFloat16 const*, float*, float*)"
)


def generate(p: Program, more: int, passes: int = 10) -> None:
    """A norm, whose blocks are its rows, and the product that reads them, layer by layer."""
    for number in range(passes):
        for _ in range(4):
            p.launch(NORM, 20.0, grid=(4096 + more * number, 1, 1))
            p.launch(GEMM, 300.0, grid=(2, 66, 1))


def test_rows_that_are_computed_again_in_each_pass_are_said(tmp_path: Path) -> None:
    """Ten passes over 4,096 rows and 16 more each time: nine could have computed their 16 alone."""
    first = judge(lambda p: generate(p, more=16), tmp_path).findings[0]
    assert first.rule == "redundant"
    assert "10 passes" in first.cause
    assert "16 rows more than the one before (4,096 to 4,240)" in first.cause
    assert "use_cache=True" in first.advice
    assert first.saving.expected == pytest.approx(9 * 4 * 0.320, rel=0.05)


@pytest.mark.parametrize(("more", "passes"), [(0, 10), (1024, 10), (16, 3), (-16, 10)])
def test_passes_over_other_rows_are_not(more: int, passes: int, tmp_path: Path) -> None:
    """The same number of rows, buckets of far larger ones, too few passes, fewer and fewer rows."""
    of = judge(lambda p: generate(p, more, passes), tmp_path)
    assert list_said(of, "computed before") == []
