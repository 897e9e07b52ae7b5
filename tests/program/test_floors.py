"""What a rule finds is priced by what its operators need."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit.program.example import Kernel, run_example
from profkit.program.findings import Example, draft_findings
from profkit.program.findings.case import StepCase
from profkit.program.findings.floors import SHARES, estimate_saving_of_floor
from profkit.program.operators import TABLE, find_operator_needs
from profkit.program.readers import torch_trace
from profkit.program.replay.scenario import EXPECT, make_host_models
from profkit.program.rules import BY_ID, GEMM, MULTIPLY, PRODUCT, RULES, SGEMM
from profkit.program.steps.cut import find_steps
from profkit.program.triage import make_step_case, triage_timeline
from tests.program.made import Program, ran

EXAMPLES = [(rule.id, number) for rule in RULES for number in range(len(rule.fires))]
JOIN = (
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::OpaqueType<2u> >(int)"
)
HALF = "c10::BFloat16"


def read_case(example: Example) -> StepCase:
    timeline = run_example(example)
    process = timeline.processes[0]
    steps = find_steps(process)
    return make_step_case(process, steps, make_host_models(timeline, process, steps.typical))


@pytest.mark.parametrize(("rule", "number"), EXAMPLES)
def test_floors_save_no_more_than_the_step_together(rule: str, number: int) -> None:
    case = read_case(BY_ID[rule].fires[number])
    model = case.hosts.usual
    for draft in draft_findings(case):
        after = draft.change.apply_to_model(model, EXPECT)
        assert after.period <= model.period * (1 + 1e-9)
        model = after
    assert model.period >= 0


def test_a_kernel_is_in_one_finding() -> None:
    example = (*BY_ID["attention-unfused"].fires[0], *BY_ID["elementwise-chain"].fires[0])
    drafts = draft_findings(read_case(example))
    works = [index for draft in drafts for index in draft.works]
    assert len(works) == len(set(works))


@pytest.mark.parametrize(
    ("operator", "sizes", "types", "reads", "writes", "operations"),
    [
        ("aten::mm", ((64, 128), (128, 32)), (HALF, HALF), 24_576, 4_096, 524_288),
        ("aten::addmm", ((32,), (64, 128), (128, 32)), (HALF,) * 3, 24_576, 4_096, 524_288),
        ("aten::bmm", ((8, 64, 16), (8, 16, 64)), (HALF, HALF), 32_768, 65_536, 1_048_576),
        ("aten::add", ((100, 100), (100,)), ("float", "float"), 40_400, 40_000, 10_000),
        ("aten::copy_", ((100,), (100,)), (HALF, "float"), 400, 200, 0),
        ("aten::sum", ((1000, 10),), ("float",), 40_000, 0, 0),
        ("aten::zero_", ((1000,),), ("double",), 0, 8_000, 0),
        ("aten::sort", ((1000,),), ("float",), 4_000, 12_000, 0),
        ("aten::topk", ((1000,),), ("float",), 4_000, 0, 0),
    ],
)
def test_an_operator_needs_its_outer_bytes_and_operations(
    operator: str,
    sizes: tuple[tuple[int, ...], ...],
    types: tuple[str, ...],
    reads: int,
    writes: int,
    operations: float,
) -> None:
    needs = find_operator_needs(operator, sizes, types)
    assert needs is not None
    assert (needs.reads, needs.writes, needs.operations) == (reads, writes, operations)


@pytest.mark.parametrize(
    ("operator", "sizes", "types"),
    [
        ("aten::mm", ((64, 128), (64, 32)), (HALF, HALF)),  # they do not fit
        ("aten::mm", ((64, 128),), (HALF,)),
        ("aten::add", ((),), ("Scalar",)),
        ("mine::add", ((64,),), (HALF,)),
        ("aten::scaled_dot_product_attention", ((64,),), (HALF,)),
    ],
)
def test_what_is_not_known_needs_nothing_known(
    operator: str, sizes: tuple[tuple[int, ...], ...], types: tuple[str, ...]
) -> None:
    assert find_operator_needs(operator, sizes, types) is None


def test_the_table_has_an_operator_once() -> None:
    assert len(TABLE) > 60
    assert all(name.startswith("aten::") for name in TABLE)


def test_a_run_is_priced_by_its_outer_bytes() -> None:
    """Four kernels over 64 MiB: one that reads it once and writes it once is left."""
    size, types = ((4096, 4096),), ("float",)
    chain = Kernel(name=MULTIPLY, us=45.0, op="aten::exp", sizes=size, types=types)
    case = read_case((PRODUCT, *(chain,) * 4))
    found = next(row for row in draft_findings(case) if row.rule == "elementwise-chain")
    left = found.change.scale[found.works[0]].expect * 45e3
    assert left == pytest.approx(2 * 4096 * 4096 * 4 / case.bandwidth * 1e9, rel=0.01)
    assert set(found.change.merge) == set(found.works[1:])


@pytest.mark.parametrize("outer", ["", "autograd::engine::evaluate_function: UnbindBackward0"])
def test_gradients_that_autograd_puts_together_are_no_finding(outer: str, tmp_path: Path) -> None:
    """One tensor was cut into queries, keys and values: its gradient is needed as a whole."""

    def step(program: Program) -> None:
        for _ in range(10):
            program.launch(GEMM, 200.0)
        sizes = [[4, 16, 2048, 64]] * 2
        with program.op(outer or "aten::cat", sizes), program.op("aten::cat", sizes):
            program.launch(JOIN, 400.0)

    trace = ran(step).write(tmp_path / "trace.json.gz")
    of = triage_timeline(torch_trace.read_torch_trace(trace))
    assert [row.rule for row in of.findings if "concatenate" in row.cause] == ["layout"] * (
        not outer
    )


def test_no_saving_is_more_than_what_binds_next_leaves() -> None:
    """Half of the step is the host's: ten times faster kernels save no more than twice faster ones."""
    case = read_case((Kernel(name=SGEMM, us=40.0, host_us=26.0),) * 20)
    draft = next(row for row in draft_findings(case) if row.rule == "fp32-matmul")
    fast = estimate_saving_of_floor(case, "kernel", draft.change)
    assert fast.expected <= 0.3 * case.hosts.step_ms_without_recorder.expect


def test_there_are_nine_numbers() -> None:
    assert sorted(SHARES) == ["kernel", "run", "transfer"]
    assert all(low <= expect <= high for low, expect, high in SHARES.values())
