"""PTX is read statement by statement, and what is not changed stays letter for letter."""

from pathlib import Path

import pytest

from profkit.errors import ProfkitError
from profkit.lab.ablation import ptx
from profkit.lab.ablation.accesses import find_memory_accesses
from profkit.lab.ablation.ptx import PtxEdits, keep_only_named_entries, parse_ptx_module

KERNEL = Path(__file__).parents[1] / "measure/standin/kernel.ptx"
HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n"


def entry(
    body: str, registers: str = ".reg .b32 %r<9>;\n.reg .b64 %rd<9>;\n.reg .pred %p<3>;"
) -> str:
    return f"{HEAD}.visible .entry k(.param .u64 a)\n{{\n{registers}\n{body}\nret;\n}}\n"


def test_nothing_changed_is_the_same_text() -> None:
    text = KERNEL.read_text()
    assert PtxEdits(parse_ptx_module(text)).write_edited_module() == text


@pytest.mark.parametrize(
    ("line", "opcode", "operands"),
    [
        ("ld.global.v2.f32 {%r1, %r2}, [%rd1+-8]; // end", "ld.global.v2.f32", 2),
        ("@!%p1 st.shared.u32 [%r3], %r1;", "st.shared.u32", 2),
        ("{ .reg .b32 t; mov.b32 t, %r1; }", "mov.b32", 2),
        ("atom.global.add.u32 %r1, [%rd1], /* one */ 1;", "atom.global.add.u32", 3),
        ("bar.sync 0;", "bar.sync", 1),
    ],
)
def test_a_statement_is_its_opcode_and_operands(line: str, opcode: str, operands: int) -> None:
    (first, *_) = parse_ptx_module(entry(line)).kernels["k"].statements
    assert first.opcode == opcode
    assert len(first.operands) == operands


def test_registers_of_inline_assembly_are_declared_without_a_blank() -> None:
    """The bfloat16 and half functions of CUDA's headers write `{.reg.b32 h,r;`."""
    types = parse_ptx_module(entry("{ .reg.b16 h,fl; mov.b16 h, fl; }")).kernels["k"].types
    assert (types["h"], types["fl"]) == ("b16", "b16")


def test_places_are_those_of_the_text() -> None:
    text = entry("// ld.global.u32 %r1, [%rd1];\nld.global.u32 %r2, [%rd2+4];")
    statement = parse_ptx_module(text).kernels["k"].statements[0]
    assert text[statement.start : statement.end] == "ld.global.u32 %r2, [%rd2+4];"
    assert statement.list_addresses() == [ptx.Address(1, "%rd2", 4)]


def test_blocks_end_at_labels_and_branches() -> None:
    module = parse_ptx_module(
        entry("mov.u32 %r1, 0;\n$L: add.s32 %r1, %r1, 1;\n@%p1 bra $L;\nmov.u32 %r2, 1;")
    )
    blocks = [statement.block for statement in module.kernels["k"].statements]
    assert blocks == [0, 1, 1, 2, 2]


def test_a_function_that_kernels_call_is_no_entry() -> None:
    text = HEAD + ".func (.param .b32 r) f(.param .b32 x)\n{\nret;\n}\n"
    module = parse_ptx_module(text + entry("mov.u32 %r1, 0;").removeprefix(HEAD))
    assert {name: kernel.is_entry for name, kernel in module.kernels.items()} == {
        "k": True,
        "f": False,
    }


def test_only_what_is_launched_is_kept() -> None:
    text = KERNEL.read_text()
    second = entry("mov.u32 %r1, 0; // }").removeprefix(HEAD)
    assert (
        keep_only_named_entries(text + second, ["_Z16attention_scalarv"]).rstrip() == text.rstrip()
    )
    assert parse_ptx_module(keep_only_named_entries(text + second, ["k"])).kernels.keys() == {"k"}


CALLS = """.func  (.param .b32 r) slow (.param .b32 a)
;
.visible .func unused (.param .b32 a)
{
	ld.local.u32 %r1, [%rd1];
	ret;
}
.func inner (.param .b32 a)
{
	ret;
}
.global .align 8 .u64 table[1] = {inTable};
.visible .func inTable (.param .b32 a)
{
	ret;
}
"""
CALLED = """.func  (.param .b32 r) slow (.param .b32 a)
{
	call.uni inner, (a);
	ret;
}
"""


def test_a_function_is_kept_where_what_is_launched_calls_it() -> None:
    caller = entry("call.uni (%r1), slow, (%r2);").removeprefix(HEAD)
    other = caller.replace("entry k", "entry other")
    text = f"{HEAD}{CALLS}{caller}{other.replace('slow', 'unused')}{CALLED}"
    kept = parse_ptx_module(keep_only_named_entries(text, ["k"])).kernels
    assert kept.keys() == {"k", "slow", "inner", "inTable"}, "through others, and by an array"
    assert parse_ptx_module(keep_only_named_entries(text, ["other"])).kernels.keys() == {
        "other",
        "unused",
        "inTable",
    }
    assert ".visible ;" not in " ".join(keep_only_named_entries(text, ["k"]).split())


@pytest.mark.parametrize("text", ["", "\x7fELF", "hello"])
def test_what_is_no_ptx_is_said(text: str) -> None:
    with pytest.raises(ProfkitError, match="this is not PTX"):
        parse_ptx_module(text)


@pytest.mark.parametrize("cut", [120, 260, 400, 500])
def test_a_cut_file_is_an_error_or_has_no_kernel(cut: int) -> None:
    try:
        module = parse_ptx_module(KERNEL.read_text()[:cut])
    except ProfkitError:
        return
    assert not module.kernels


def steering(body: str) -> list[bool]:
    return [
        access.steers
        for access in find_memory_accesses(parse_ptx_module(entry(body)))
        if access.kind == "load"
    ]


AROUND = "@%p1 bra $E;\nst.global.u32 [%rd9], 0;\n$E:"  # a branch that decides about a store


def test_a_value_steers_where_it_reaches_an_address_or_a_branch() -> None:
    assert steering("ld.global.u32 %r1, [%rd1];\nst.global.u32 [%rd2], %r1;") == [False]
    address = "ld.global.u64 %rd3, [%rd1];\nadd.s64 %rd4, %rd3, 8;\nld.global.u32 %r1, [%rd4];"
    assert steering(address) == [True, False]
    branch = f"ld.global.u32 %r1, [%rd1];\nsetp.eq.u32 %p1, %r1, 0;\n{AROUND}"
    assert steering(branch) == [True]


SLOW = """ld.global.f32 %f1, [%rd1];
setp.lt.f32 %p1, %f1, 0f00800000;
@%p1 bra $S;
bra.uni $F;
$S:
mul.f32 %f2, %f1, %f1;
{}
bra.uni $E;
$F:
rsqrt.approx.f32 %f2, %f1;
$E:
st.global.f32 [%rd2], %f2;
"""


@pytest.mark.parametrize(
    ("inside", "steers"),
    [
        ("add.f32 %f2, %f2, %f1;", False),
        ("ld.local.f32 %f3, [%r9];", False),
        ("cvta.to.global.u64 %rd2, %rd3;", True),  # the place of the store behind
        ("st.shared.f32 [%r9], %f2;", True),
        ("shfl.sync.bfly.b32 %r1, %r2, 1, 31, -1;", True),
        ("bar.sync 0;", True),
        ("ret;", True),
        ("bra.uni $B;", True),  # before the branch: a loop
    ],
)
def test_a_branch_around_arithmetic_decides_what_follows_from_it(inside: str, steers: bool) -> None:
    assert steering("$B:\n" + SLOW.format(inside))[0] is steers


def test_a_value_steers_through_shared_memory() -> None:
    body = (
        "ld.global.u32 %r1, [%rd1];\nst.shared.u32 [%r5], %r1;\nld.shared.u32 %r2, [%r6];\n"
        f"setp.eq.u32 %p1, %r2, 0;\n{AROUND}"
    )
    assert steering(body) == [True, True]


def test_a_guarded_access_is_steered_by_its_guard() -> None:
    guarded = "ld.global.u32 %r1, [%rd1];\nld.global.u32 %r2, [%rd1];\n"
    guarded += "setp.eq.u32 %p1, %r1, 0;\n@%p1 st.global.u32 [%rd1], %r2;"
    assert steering(guarded) == [True, False]


LOOP = """mov.u32 %r1, 0;
mov.u32 %r2, %r1;
$L:
ld.global.u32 %r3, [%rd1];
add.s32 %r1, %r1, %r3;
add.s32 %r2, %r2, 1;
setp.lt.u32 %p1, %r2, 100;
@%p1 bra $L;
st.global.u32 [%rd2], %r1;
"""


def test_a_sum_that_begins_with_the_zero_of_a_counter_decides_nothing() -> None:
    assert steering(LOOP) == [False]
    assert steering(LOOP.replace("add.s32 %r2, %r2, 1", "add.s32 %r2, %r1, 1")) == [True]


def test_a_value_of_the_round_before_decides() -> None:
    carried = LOOP.replace("[%rd1]", "[%rd3]").replace("$L:", "$L:\ncvt.u64.u32 %rd3, %r1;")
    assert steering(carried) == [True]


def test_a_register_that_is_written_under_a_guard_may_still_hold_the_value_before() -> None:
    body = "ld.global.u32 %r1, [%rd1];\n{}mov.u32 %r1, 0;\nsetp.eq.u32 %p1, %r1, 0;\n" + AROUND
    assert steering(body.format("")) == [False]
    assert steering(body.format("@%p2 ")) == [True]


def test_a_label_that_stands_in_several_scopes_may_be_any_block() -> None:
    twice = "{{\n$W:\n{}@%p1 bra $W;\n}}\n"
    body = twice.format("ld.global.u32 %r1, [%r9];\n") + twice.format("mov.u32 %r9, %r1;\n")
    assert steering(body) == [True]
