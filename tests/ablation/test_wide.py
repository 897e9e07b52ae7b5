"""Narrow accesses of threads that work alone become wide ones of fewer, within what was touched."""

import re
from dataclasses import replace

import pytest

from profkit.lab.ablation.assemble import assemble_ptx
from profkit.lab.ablation.change import CodeChange, Refused, SurveyedCode
from profkit.lab.ablation.classes.wide import ABLATION
from profkit.lab.ablation.comparison import refuse_gain_beyond_arithmetic
from profkit.lab.ablation.footprint import replace_accesses_of_regions, write_marking_module
from profkit.lab.ablation.launches import rank_axes_longest_first, shrink_grid
from profkit.lab.ablation.ptx import PtxModule, parse_ptx_module
from profkit.lab.ablation.survey import (
    AccessCounts,
    count_executed_by_opcode,
    count_global_loads_and_stores,
)
from tests.ablation.test_rewriting import make_code

ADD_HALVES = """.version 8.0
.target sm_90
.address_size 64
.visible .entry add(.param .u64 x, .param .u64 y)
{
	.reg .pred %p<2>;
	.reg .b16 %h<3>;
	.reg .b64 %rd<4>;
	ld.global.nc.b16 %h1, [%rd1+2];
	@%p1 ld.global.b16 %h2, [%rd2];
	add.f16 %h1, %h1, %h2;
	MORE
	st.global.b16 [%rd3], %h1;
	ret;
}
"""
LOW, HIGH = 1 << 20, (1 << 20) + 3000


SIDE_BY_SIDE = AccessCounts(1, 32, 2, 0, LOW, HIGH)


def make_add(more: str = "", seen: AccessCounts = SIDE_BY_SIDE) -> SurveyedCode:
    code = make_code(parse_ptx_module(ADD_HALVES.replace("MORE", more)))
    return replace(code, survey=replace(code.survey, seen=(seen,) * len(code.accesses)))


def make_wide(code: SurveyedCode) -> CodeChange:
    return ABLATION(code).make_change()


def test_each_access_is_wide_and_keeps_its_guard_and_its_way() -> None:
    made = make_wide(make_add())
    opcodes = [s.opcode for s in parse_ptx_module(made.text).kernels["add"].statements]
    assert "ld.global.nc.v4.b32" in opcodes
    assert "st.global.v4.b32" in opcodes
    assert not [name for name in opcodes if name.endswith("global.b16")]
    assert re.search(r"@%p1 ld\.global\.v4\.b32 \{.*\}, \[%profkit_to\]", made.text)
    assert (made.part, made.other_code) == (8, True)


def walk_to(text: str, at: int) -> int:
    """Where an access at an address goes: the statements that stretch its way, done in Python."""
    first, times, mask, last, back = (
        int(re.search(pattern, text)[1])
        for pattern in (
            r"add\.s64 %profkit_to, %rd[12], (-?\d+)",
            r"mul\.lo\.u64 %profkit_to, %profkit_to, (\d+)",
            r"and\.b64 %profkit_wrapped, %profkit_to, (\d+)",
            r"setp\.gt\.u64 %profkit_past, %profkit_to, (\d+)",
            r"add\.s64 %profkit_to, %profkit_to, (\d+)",
        )
    )
    far = (at + first) * times
    return back + (far & mask if far > last else far)


@pytest.mark.parametrize("high", [LOW + 16, LOW + 20, LOW + 100, HIGH, LOW + (1 << 20) - 2])
def test_no_wide_access_leaves_what_the_narrow_ones_touched(high: int) -> None:
    text = make_wide(make_add(seen=AccessCounts(1, 32, 2, 0, LOW, high))).text
    places = [walk_to(text, at) for at in range(LOW, high - 1, 2)]
    assert min(places) >= LOW
    assert max(places) + 16 <= high
    assert not [place for place in places if place % 16]


COPY_ROWS = """.version 8.0
.target sm_90
.address_size 64
.visible .entry copy(.param .u64 x)
{
	.reg .b32 %f<3>;
	.reg .b64 %rd<4>;
	ld.global.f32 %f1, [%rd1];
	ld.global.f32 %f2, [%rd2];
	st.global.f32 [%rd3], %f1;
	ret;
}
"""


def test_accesses_of_one_array_are_stretched_from_one_first_byte_and_touch_all_of_it() -> None:
    """One that begins a row behind the other would else go over what that one touches."""
    row, size = 128, 1 << 14
    code = make_code(parse_ptx_module(COPY_ROWS))
    seen = []
    for low, high in (
        (LOW, LOW + size - row),
        (LOW + row, LOW + size),
        (LOW + 2 * size, LOW + 3 * size),
    ):
        seen.append(AccessCounts(1, 32, 4, 0, low, high))
    change = make_wide(replace(code, survey=replace(code.survey, seen=tuple(seen))))
    assert [(region.low, region.high) for region in change.regions[:1]] == [(LOW, LOW + size)]
    assert [len(region.accesses) for region in change.regions] == [2, 1]
    touched = set()
    for begin in range(LOW, LOW + size // change.part, 2 * row):  # the first quarter of the blocks
        for at in range(begin, begin + 2 * row, 4):
            touched.update(range(walk_to(change.text, at), walk_to(change.text, at) + 16, 4))
    assert touched == set(range(LOW, LOW + size, 4))
    again = replace_accesses_of_regions(change.regions, parse_ptx_module(change.text))
    marking = write_marking_module(parse_ptx_module(change.text), again)
    assert marking.count("st.global.u8 [%pk_at], %pk_one;") == 3
    assert marking.count(f"sub.s64 %pk_at, %pk_at, {LOW};") == 2
    assert {access.width for region in again for access in region.accesses} == {16}


def test_a_part_of_the_blocks_is_taken_along_any_axis() -> None:
    assert rank_axes_longest_first((6, 64, 1)) == [1, 0, 2]
    assert shrink_grid((128, 128, 1), 4) == (32, 128, 1)
    assert shrink_grid((128, 128, 1), 4, axis=1) == (128, 32, 1)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (make_add("bar.sync 0;"), "work together"),
        (make_add("st.shared.b16 [%rd1], %h1;"), "work together"),
        (make_add(seen=AccessCounts(1, 32, 32, 0, LOW, HIGH)), "narrower than 16"),
        (make_add(seen=AccessCounts(1, 32, 2, 0, LOW + 2, HIGH)), "narrower than 16"),
        (make_add(seen=AccessCounts(1, 32, 2, 0, LOW, LOW + 8)), "few bytes"),
    ],
)
def test_what_fewer_threads_cannot_do_is_refused(code: SurveyedCode, why: str) -> None:
    with pytest.raises(Refused, match=why):
        make_wide(code)


def test_a_scattered_access_beside_it_would_be_taken_away_too() -> None:
    code = make_add()
    scattered = AccessCounts(1, 32, 32, 0, LOW, HIGH)
    seen = (scattered, *code.survey.seen[1:])
    with pytest.raises(Refused, match="not of neighbours"):
        make_wide(replace(code, survey=replace(code.survey, seen=seen)))


def count_once(module: PtxModule) -> dict[str, int]:
    return dict(
        count_global_loads_and_stores(
            count_executed_by_opcode(module, [1] * module.basic_block_count)
        )
    )


def test_one_part_of_the_blocks_makes_that_part_of_the_accesses() -> None:
    code = make_add()
    assert count_once(code.module) == {"ld": 2, "st": 1}
    assert count_once(parse_ptx_module(make_wide(code).text)) == {"ld": 2, "st": 1}
    assert shrink_grid((6, 64, 1), 8) == (6, 8, 1)


def test_a_gain_that_leaves_no_time_for_the_arithmetic_is_refused() -> None:
    refuse_gain_beyond_arithmetic(3.0, {"fp32": 0.3, "int": 0.9})
    with pytest.raises(Refused, match="fp32"):
        refuse_gain_beyond_arithmetic(4.0, {"fp32": 0.3, "int": 0.9})


def test_ptx_of_one_gpus_features_is_assembled_for_that_gpu(tmp_path, monkeypatch) -> None:
    """Triton writes `.target sm_90a`, which ptxas takes for sm_90a alone."""
    tool = tmp_path / "ptxas"
    tool.write_text('#!/bin/sh\necho "$@" >> ${0%/*}/asked\nfor to; do :; done\n: > "$to"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    (tmp_path / "build").mkdir()
    for target in ("sm_90a", "sm_90", "sm_80"):
        assemble_ptx(f".version 8.0\n.target {target}\n", "90", [], tmp_path / "build")
    asked = [line.split()[0] for line in (tmp_path / "asked").read_text().splitlines()]
    assert asked == ["-arch=sm_90a", "-arch=sm_90", "-arch=sm_90"]
