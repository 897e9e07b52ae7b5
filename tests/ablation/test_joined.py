"""Blocks that are joined do what each of them did: the same accesses, and the same results."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from profkit.lab.ablation import assemble, preparation
from profkit.lab.ablation.assemble import assemble_ptx
from profkit.lab.ablation.change import CodeChange, Refused
from profkit.lab.ablation.classes.joined import ABLATION
from profkit.lab.ablation.ptx import parse_ptx_module
from profkit.lab.ablation.survey import keep_comparable_instructions
from profkit.lab.measure.cuda import device
from tests.ablation.run_ptx import Machine
from tests.ablation.test_rewriting import make_code

# A sum of each block's words, by a tree in shared memory; words behind the end are not read.
SUMS = """.version 8.0
.target sm_90
.address_size 64
.extern .shared .align 4 .b8 more[];
.visible .entry sums(.param .u64 x, .param .u64 y, .param .u32 n)
{
	.reg .pred %p<5>;
	.reg .b32 %r<20>;
	.reg .b64 %rd<9>;
	.shared .align 4 .b8 tile[32];
	ld.param.u64 %rd1, [x];
	ld.param.u64 %rd2, [y];
	ld.param.u32 %r9, [n];
	mov.u32 %r1, %tid.x;
	mov.u32 %r2, %ctaid.x;
	mov.u32 %r3, %ntid.x;
	mad.lo.s32 %r4, %r2, %r3, %r1;
	mov.u32 %r10, %nctaid.x;
	setp.ge.s32 %p1, %r4, %r9;
	@%p1 bra END;
	mul.wide.u32 %rd3, %r4, 4;
	add.s64 %rd4, %rd1, %rd3;
	ld.global.u32 %r5, [%rd4];
	add.s32 %r5, %r5, %r10;
	mov.u32 %r6, tile;
	shl.b32 %r7, %r1, 2;
	add.s32 %r8, %r6, %r7;
	st.shared.u32 [%r8], %r5;
	shr.u32 %r11, %r3, 1;
LOOP:
	bar.sync 0;
	setp.ge.u32 %p2, %r1, %r11;
	@%p2 bra SKIP;
	shl.b32 %r12, %r11, 2;
	add.s32 %r13, %r8, %r12;
	ld.shared.u32 %r14, [%r13];
	ld.shared.u32 %r15, [%r8];
	add.s32 %r16, %r14, %r15;
	st.shared.u32 [%r8], %r16;
SKIP:
	shr.u32 %r11, %r11, 1;
	setp.ne.s32 %p3, %r11, 0;
	@%p3 bra LOOP;
	setp.ne.s32 %p4, %r1, 0;
	@%p4 bra END;
	ld.shared.u32 %r17, [tile];
	st.shared.u32 [more+4], %r17;
	ld.shared.u32 %r18, [more+4];
	mul.wide.u32 %rd5, %r2, 4;
	add.s64 %rd6, %rd2, %rd5;
	st.global.u32 [%rd6], %r18;
END:
	ret;
}
"""
FROM, TO = 1 << 20, 1 << 21
BLOCKS, THREADS = 6, 8


def make_joined(text: str = SUMS, blocks: int = BLOCKS) -> CodeChange:
    code = make_code(parse_ptx_module(text))
    grids = dict.fromkeys(code.grids, (blocks, 1, 1))
    return ABLATION(replace(code, grids=grids, dynamic_shared=8)).make_change()


def run(text: str, blocks: int, words: int = BLOCKS * THREADS) -> Machine:
    """Run it over so many words, of which each is another number."""
    memory = {FROM + 4 * number: number * number for number in range(words)}
    machine = Machine(memory, {"x": FROM, "y": TO, "n": words})
    machine.run_grid(text, blocks, THREADS)
    return machine


def test_joined_blocks_read_and_write_what_each_of_them_did() -> None:
    made = make_joined()
    assert (made.part, made.axis, made.more_shared, made.other_code) == (2, 0, 128, True)
    apart, joined = run(SUMS, BLOCKS), run(made.text, BLOCKS // made.part)
    sums = [joined.memory[TO + 4 * block] for block in range(BLOCKS)]
    expected = [
        sum(n * n + BLOCKS for n in range(THREADS * block, THREADS * (block + 1)))
        for block in range(BLOCKS)
    ]
    assert sums == expected, "each block's own sum, at its own place"
    assert joined.memory == apart.memory
    touched = [
        Counter(access for access in run.accesses if access[1] == "global")
        for run in (apart, joined)
    ]
    assert touched[0] == touched[1], "the same accesses of global memory, each as often"
    assert len(joined.accesses) == len(apart.accesses)


def test_a_thread_whose_blocks_part_ways_ends_and_touches_nothing() -> None:
    """Of the last two blocks one has no words: what both would do is not done, and nothing else."""
    words = (BLOCKS - 1) * THREADS
    made = make_joined()
    joined, apart = run(made.text, BLOCKS // 2, words), run(SUMS, BLOCKS, words)
    touched = {access for access in joined.accesses if access[1] == "global"}
    assert touched < set(apart.accesses)
    missing = {place for place in apart.memory if place not in joined.memory}
    assert missing == {TO + 4 * (BLOCKS - 2)}
    assert all(apart.memory[place] == value for place, value in joined.memory.items())


def test_what_blocks_have_in_common_is_done_once() -> None:
    opcodes = Counter(
        s.opcode for s in parse_ptx_module(make_joined().text).kernels["sums"].statements
    )
    assert opcodes["bar.sync"] == 1
    assert opcodes["bra"] == 4
    assert opcodes["ld.global.u32"] == opcodes["st.global.u32"] == 2
    assert opcodes["ld.param.u64"] == 2
    assert opcodes["exit"] == 1, "the bound of the words is the only branch that may differ"


def test_barriers_of_joined_blocks_are_not_compared() -> None:
    counted = Counter({"bar.sync": 8, "cp.async.wait_all": 2, "ld.global.f32": 4, "add.f32": 9})
    assert keep_comparable_instructions(counted) == Counter(
        {"bar.sync": 8, "cp.async.wait_all": 2, "ld.global.f32": 4}
    )
    assert keep_comparable_instructions(counted, 2) == Counter({"ld.global.f32": 4})


@pytest.mark.parametrize(
    ("before", "after", "code", "seen"),
    [
        ("bar.sync 0;", "mbarrier.init.shared.b64 [%r6], 1;", "other-work", "mbarrier.init"),
        ("tile[32]", "tile[40000]", "other-work", "80064 bytes"),
    ],
)
def test_what_cannot_be_joined_is_refused(before: str, after: str, code: str, seen: str) -> None:
    with pytest.raises(Refused) as refused:
        make_joined(SUMS.replace(before, after))
    said = refused.value.make_refusal("joined")
    assert said.code == code
    assert seen in said.observed
    assert said.threshold
    assert said.remedy


def test_blocks_that_are_all_there_at_once_have_nothing_to_gain() -> None:
    code = make_code(parse_ptx_module(SUMS))
    with pytest.raises(Refused) as refused:
        ABLATION(replace(code, blocks_at_once=1 << 12)).make_change()
    said = refused.value.make_refusal("joined")
    assert (said.code, said.observed) == (
        "nothing-to-take-away",
        "4096 blocks, of which 4096 are on the GPU at once",
    )
    with pytest.raises(Refused, match="no side of its grid"):
        make_joined(blocks=1)


def test_what_the_driver_does_not_launch_is_refused_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight blocks may have more shared memory together than one can: the others are measured."""
    code = make_code(parse_ptx_module(SUMS))
    lab = SimpleNamespace(
        on=SimpleNamespace(refused={}, arch="90", flags=(), folder=Path()),
        call=None,
        assemble_text=lambda text: b"",
        load_module=lambda *of: SimpleNamespace(functions={}),
        limit_registers=parse_ptx_module,
    )
    monkeypatch.setattr(device, "get_error_name", lambda code: "refused")
    monkeypatch.setattr(assemble, "assemble_all_ptx_in_parallel", lambda *of: {})
    monkeypatch.setattr(preparation, "_load_control_and_changed", lambda *of: None)

    def fail(error: int) -> None:
        def launch(*of: object) -> None:
            raise device.CudaError(error, "cuFuncSetAttribute")

        monkeypatch.setattr(preparation, "_load_code_for_same_work", launch)

    fail(1)
    refused = preparation.prepare_changes(lab, code, lambda _: None).refused
    (said,) = [refusal for refusal in refused if refusal.ablation == "joined"]
    assert (said.code, said.observed) == (
        "does-not-launch",
        "cuFuncSetAttribute: refused (1)",
    )
    fail(700)
    with pytest.raises(device.CudaError, match="700"):
        preparation.prepare_changes(lab, code, lambda _: None)


@pytest.mark.nvcc
def test_joined_blocks_assemble(tmp_path: Path) -> None:
    assert assemble_ptx(make_joined().text, "90", (), tmp_path)
