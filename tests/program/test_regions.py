"""Regions of a step are found by what they are, and priced by what their operators need."""

from __future__ import annotations

import pytest

from profkit.program.example import Kernel, run_example
from profkit.program.findings.case import Case
from profkit.program.operators import TABLE, find_needs
from profkit.program.regions.find import find_regions
from profkit.program.regions.judge import SHARES, name_first, price_regions
from profkit.program.regions.pricing import price_kernel
from profkit.program.replay.scenario import EXPECT, hosts
from profkit.program.rules import BY_ID, GEMM, MULTIPLY, PRODUCT, RULES, Example
from profkit.program.steps.cut import find_steps
from profkit.program.triage import make_case

EXAMPLES = [(rule.id, number) for rule in RULES for number in range(len(rule.fires))]
COUNTEREXAMPLES = [(rule.id, number) for rule in RULES for number in range(len(rule.clear))]
HALF = "c10::BFloat16"


def read_case(example: Example) -> Case:
    timeline = run_example(example)
    process = timeline.processes[0]
    steps = find_steps(process)
    return make_case(process, steps, hosts(timeline, process, steps.typical))


@pytest.mark.parametrize(("rule", "number"), EXAMPLES)
def test_a_rules_example_is_the_first_region(rule: str, number: int) -> None:
    case = read_case(BY_ID[rule].fires[number])
    assert name_first(case, price_regions(case)) == rule


@pytest.mark.parametrize(("rule", "number"), COUNTEREXAMPLES)
def test_an_example_that_is_none_is_not_the_first_region(rule: str, number: int) -> None:
    case = read_case(BY_ID[rule].clear[number])
    assert name_first(case, price_regions(case)) != rule


@pytest.mark.parametrize(("rule", "number"), EXAMPLES)
def test_regions_save_no_more_than_the_step_together(rule: str, number: int) -> None:
    case = read_case(BY_ID[rule].fires[number])
    model = case.hosts.usual
    for region in find_regions(case):
        after = region.change.apply(model, EXPECT)
        assert after.period <= model.period * (1 + 1e-9)
        model = after
    assert model.period >= 0


def test_a_kernel_is_in_one_region() -> None:
    example = (*BY_ID["attention-unfused"].fires[0], *BY_ID["elementwise-chain"].fires[0])
    regions = find_regions(read_case(example))
    works = [index for region in regions for index in region.works]
    assert len(works) == len(set(works))


def test_a_floor_is_no_longer_than_its_kernel() -> None:
    for rule in RULES:
        case = read_case(rule.fires[0])
        for index, work in enumerate(case.works):
            floor = price_kernel(case, index)
            assert floor is None or 0 < floor <= work.activity.duration


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
    needs = find_needs(operator, sizes, types)
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
    assert find_needs(operator, sizes, types) is None


def test_the_table_has_an_operator_once() -> None:
    assert len(TABLE) > 60
    assert all(name.startswith("aten::") for name in TABLE)


def test_a_run_is_priced_by_its_outer_bytes() -> None:
    """Four kernels over 64 MiB: one that reads it once and writes it once is left."""
    size, types = ((4096, 4096),), ("float",)
    chain = Kernel(name=MULTIPLY, us=45.0, op="aten::exp", sizes=size, types=types)
    case = read_case((PRODUCT, *(chain,) * 4))
    region = next(r for r in find_regions(case) if r.rule == "elementwise-chain")
    left = region.change.scale[region.works[0]].expect * 45e3
    assert left == pytest.approx(2 * 4096 * 4096 * 4 / case.bandwidth * 1e9, rel=0.01)
    assert set(region.change.merge) == set(region.works[1:])


def test_there_are_twelve_numbers() -> None:
    assert sorted(SHARES) == ["host", "kernel", "run", "transfer"]
    assert all(low <= expect <= high for low, expect, high in SHARES.values())


def test_products_at_their_floor_are_no_region() -> None:
    case = read_case((Kernel(name=GEMM, us=300.0),) * 6)
    assert [row for row in price_regions(case) if row.floor > 0.01] == []
