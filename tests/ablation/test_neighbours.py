"""Accesses that the assembler makes together stay together where a table chooses their addresses."""

from dataclasses import replace

import pytest

from profkit.lab.ablation import survey
from profkit.lab.ablation.change import CodeChange
from profkit.lab.ablation.classes.conflict_free import ConflictsGone
from profkit.lab.ablation.neighbours import (
    find_alignments_of_offsets,
    find_widths_with_neighbours,
)
from profkit.lab.ablation.ptx import parse_ptx_module
from tests.ablation.test_rewriting import make_code

KERNEL = """.version 8.0
.target sm_90
.address_size 64
.visible .entry rows(.param .u64 x)
{{
	.reg .f32 %f<9>;
	.reg .b32 %r<9>;
	.reg .b64 %rd<4>;
	.shared .align 4 .b8 tile[4096];
	mov.u32 %r1, %tid.x;
	{}
	mov.u32 %r3, tile;
	add.s32 %r4, %r3, %r2;
	ld.shared.f32 %f1, [%r4];
	ld.shared.f32 %f2, [%r4+4];
	ld.shared.f32 %f3, [%r4+8];
	ld.shared.f32 %f4, [%r4+12];
	ld.shared.f32 %f5, [%r4+16];
	st.global.f32 [%rd1], %f1;
	ret;
}}
"""


def make_rows(line: str, low: int = 4096) -> tuple[dict[int, int], CodeChange]:
    """The strides of the loads, which are in conflict, and the change that puts their lanes apart."""
    module = parse_ptx_module(KERNEL.format(line))
    code = make_code(module)
    words = [1] * (33 * module.basic_block_count)
    for access in code.accesses:
        first = low + access.address.offset
        words += [1, 32, 40, 2, first, first + 4000]
    code = replace(code, survey=survey.parse_survey_counters(module, code.accesses, words))
    loads = [access for access in code.accesses if access.space == "shared"]
    return find_widths_with_neighbours(module, loads, code.survey), ConflictsGone(
        code
    ).make_change()


@pytest.mark.parametrize(
    ("line", "low", "strides"),
    [
        ("shl.b32 %r2, %r1, 7;", 4096, {0: 16, 1: 16, 2: 16, 3: 16}),
        ("mul.lo.s32 %r2, %r1, 48;", 4096, {0: 16, 1: 16, 2: 16, 3: 16}),
        ("and.b32 %r2, %r1, -8;", 4096, {0: 8, 1: 8, 2: 8, 3: 8}),
        ("shl.b32 %r2, %r1, 7;", 4104, {0: 8, 1: 8, 2: 8, 3: 8}),
        ("shl.b32 %r2, %r1, 2;", 4096, {}),
        ("shl.b32 %r2, %r1, 7;", 4100, {}),
        ("shl.b32 %r2, %r1, 7;\n@%p1 add.s32 %r2, %r2, 4;", 4096, {}),
        ("mul.hi.s32 %r2, %r1, 64;", 4096, {}),
    ],
)
def test_neighbours_begin_at_a_multiple_of_what_they_are_together(
    line: str, low: int, strides: dict[int, int]
) -> None:
    assert make_rows(line, low)[0] == strides, "the fifth load fills no wider access"


def test_a_lane_is_sent_as_far_apart_as_an_access_is_wide() -> None:
    _, change = make_rows("shl.b32 %r2, %r1, 7;")
    assert change.text.count("and.b32 %profkit_x, %profkit_x, -16;") == 4
    assert "mad.lo.s32 %profkit_r0, %profkit_r0, 16, 4096;" in change.text
    _, alone = make_rows("shl.b32 %r2, %r1, 2;")
    assert "and.b32 %profkit_x" not in alone.text


@pytest.mark.parametrize("word", ["volatile", "relaxed.cta"])
def test_what_other_threads_may_see_is_accessed_alone(word: str) -> None:
    text = KERNEL.format("shl.b32 %r2, %r1, 7;").replace("ld.shared", f"ld.{word}.shared")
    module = parse_ptx_module(text)
    code = make_code(module)
    words = [1] * (33 * module.basic_block_count)
    for _ in code.accesses:
        words += [1, 32, 40, 2, 4096, 8192]
    seen = survey.parse_survey_counters(module, code.accesses, words)
    assert not find_widths_with_neighbours(module, code.accesses, seen)


def test_a_multiple_is_known_of_what_is_written_once() -> None:
    (kernel,) = parse_ptx_module(KERNEL.format("shl.b32 %r2, %r1, 3;")).kernels.values()
    found = find_alignments_of_offsets(kernel)
    assert (found["%r1"], found["%r2"], found["%r3"], found["%r4"]) == (1, 8, 16, 8)
