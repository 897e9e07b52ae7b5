"""Each rewritten text does what its table says: read as PTX here, and assembled where there is ptxas."""

import json
import re
import struct
import subprocess
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from profkit.collect.tools import find_tool
from profkit.lab.ablation import survey, timeline
from profkit.lab.ablation.accesses import find_memory_accesses
from profkit.lab.ablation.change import CodeChange, Refused, SurveyedCode
from profkit.lab.ablation.classes import list_ablations
from profkit.lab.ablation.ptx import PtxEdits, PtxModule, parse_ptx_module
from profkit.lab.ablation.rows import find_rows_within_touched_memory
from profkit.lab.ablation.streams import (
    ROW,
    assign_places_within_path,
    group_accesses_into_streams,
    make_full_walk,
    make_window_walk,
)
from tests.found import find_files
from tests.kernels import passed
from tests.sweeps import take_part

ROOT = Path(__file__).parents[2]
KERNEL = ROOT / "tests/measure/standin/kernel.ptx"
PROBES = (
    "fp64",
    "tensor-mma",
    "dram-copy",
    "xu-exp",
    "conflict8",
    "gather-l2",
    "atomic-bins",
    "histogram",
    "constant",
    "tensor-wgmma",
)
LOW, HIGH = 1 << 20, 1 << 25


def make_code(module: PtxModule, low: int = LOW, high: int = HIGH) -> SurveyedCode:
    """A kernel of which every access was executed, scattered and in conflict, within some megabytes."""
    accesses = find_memory_accesses(module)
    blocks = module.basic_block_count
    words = [1] * (33 * blocks) + [1, 32, 40, 2, low, high] * len(accesses)
    seen = survey.parse_survey_counters(module, accesses, words)
    anchored = frozenset(access.number for access in accesses if access.in_global)
    names = [name for name, kernel in module.kernels.items() if kernel.is_entry]
    return SurveyedCode(
        module=module,
        accesses=accesses,
        survey=seen,
        threads=dict.fromkeys(names, 1 << 20),
        grids=dict.fromkeys(names, (1 << 12, 1, 1)),
        l2=1 << 20,
        room=1 << 30,
        local_bytes=8,
        capped=True,
        fast=f"{module.text}// of the same source",
        anchored=anchored,
    )


def make_changes(code: SurveyedCode) -> dict[str, CodeChange]:
    made = {}
    for ablation in list_ablations():
        with suppress(Refused):
            made[ablation.id] = ablation(code).make_change()
    return made


def test_every_change_reads_as_ptx_and_has_two_tables() -> None:
    changes = make_changes(make_code(parse_ptx_module(KERNEL.read_text())))
    assert {"no-barriers", "no-stores", "conflict-free", "hits-l1", "hits-l2"} <= changes.keys()
    for name, found in changes.items():
        rewritten = parse_ptx_module(found.text)
        assert rewritten.kernels.keys() == {"_Z16attention_scalarv"}, name
        if not found.other_code:
            assert found.table != found.control, name
            assert len(found.table) == len(found.control), name


def test_what_is_not_changed_stays_in_its_order() -> None:
    text = KERNEL.read_text()
    for name, found in make_changes(make_code(parse_ptx_module(text))).items():
        before = [
            s.opcode for s in parse_ptx_module(text).kernels["_Z16attention_scalarv"].statements
        ]
        after = [
            s.opcode
            for s in parse_ptx_module(found.text).kernels["_Z16attention_scalarv"].statements
        ]
        left = iter(after)
        assert all(opcode in left for opcode in before), name


def test_streams_lie_within_what_was_touched() -> None:
    for low, high in ((LOW, HIGH), (LOW + 100, LOW + 100 + 3 * ROW), (LOW + 511, LOW + 2000)):
        code = make_code(parse_ptx_module(KERNEL.read_text()), low, high)
        for stream in group_accesses_into_streams(code.accesses, code.survey):
            assert low <= stream.base
            assert stream.base + stream.length <= high
            assert stream.base % ROW == 0
            assert stream.length % ROW == 0


@pytest.mark.parametrize("length", [ROW, 3 * ROW, 1 << 20, (1 << 32) - ROW])
@pytest.mark.parametrize("width", [1, 4, 16])
def test_a_stream_never_leaves_its_length(length: int, width: int) -> None:
    """What the rewritten code computes, in its 32 bits: s = t * w mod length, then s + step wrapped."""
    word = 1 << 32
    for step in {0, ROW % length, length // 2 // ROW * ROW, length - ROW}:
        for thread in (0, 1, 31, 1000, (1 << 28) - 1, (1 << 32) - 1):
            at = thread * width % word % length
            for _ in range(50):
                assert at + width <= length
                assert at % width == 0
                moved = (at + step) % word
                at = min(moved, (moved - length) % word)


MOVED = """.version 8.0
.target sm_90
.address_size 64
.visible .entry moved(.param .u64 x)
{
	.reg .b32 %r<9>;
	.reg .b64 %rd<4>;
	.loc 1 8 1
	ld.global.u32 %r1, [%rd1];
	ld.global.u32 %r4, [%rd1+4096];
	.loc 1 9 1
	ld.global.u32 %r2, [%rd2];
	add.s32 %r3, %r1, %r2;
	st.global.u32 [%rd3], %r3;
	ret;
}
.file 1 "kernel.cu"
"""


OPERATIONS = {
    "cvt": lambda v: v[0],
    "mov": lambda v: v[0],
    "lop3": lambda v: (v[0] & v[2]) | (v[1] & ~v[2]),
    "and": lambda v: v[0] & v[1],
    "add": sum,
    "sub": lambda v: v[0] - v[1],
    "min": min,
}


def follow_lead(text: str, table: bytes, held: dict[str, int]) -> list[int]:
    """Addresses of the loads, worked out of the statements that choose them."""
    addresses: list[int] = []
    (kernel,) = parse_ptx_module(text).kernels.values()
    for statement in kernel.statements:
        to, *names = statement.operands or ("",)
        size = 8 if statement.words[-1].endswith("64") or ".u64." in statement.opcode else 4
        if statement.opcode.startswith("ld.const"):
            place = int(names[0].partition("+")[2].rstrip("]") or 0)
            held[to] = int.from_bytes(table[place : place + size], "little")
        elif statement.opcode.startswith("ld.global"):
            base, _, offset = names[0].strip("[]").partition("+")
            addresses.append(held[base] + int(offset or 0))
        elif to.startswith("{"):
            low, high = (name.strip() for name in to.strip("{}").split(","))
            held[low], held[high] = held[names[0]] % (1 << 32), held[names[0]] >> 32
        elif names and names[0].startswith("{"):
            low, high = (name.strip() for name in names[0].strip("{}").split(","))
            held[to] = held[low] + (held[high] << 32)
        elif statement.words[0] in OPERATIONS and "profkit_" in to:
            given = [int(name) if name.isdigit() else held.get(name, 0) for name in names]
            held[to] = OPERATIONS[statement.words[0]](given) % (1 << 8 * size)
    return addresses


def test_an_access_that_stays_is_where_it_was_while_its_neighbours_are_led() -> None:
    code = make_code(parse_ptx_module(MOVED), low=1 << 20, high=(1 << 20) + 65536)
    found = make_changes(code)["coalesced"]
    first, other = (1 << 20) + 40, (1 << 20) + 60000
    given = {"%rd1": first, "%rd2": other, "%tid.x": 512}
    assert follow_lead(found.text, found.control, dict(given)) == [first, first + 4096, other]
    led, next_led, stays = follow_lead(found.text, found.lines["kernel.cu:8"], dict(given))
    assert stays == other, "the other line's load is not led"
    assert 0 <= led - (1 << 20) < next_led - (1 << 20) < 65536, "one is a gap behind the other"


@pytest.mark.parametrize("size", [ROW, 3 * ROW, 65536, (1 << 25) + ROW])
def test_no_access_of_a_turn_is_behind_the_end(size: int) -> None:
    code = make_code(parse_ptx_module(MOVED), low=1 << 20, high=(1 << 20) + size)
    for walk in (make_full_walk(code), make_window_walk(2 * ROW)):
        for stream in group_accesses_into_streams(code.accesses, code.survey):
            one = assign_places_within_path(stream, walk(stream))
            assert 0 <= one.step < one.room
            for place in one.places.values():
                assert one.room + place <= one.path.length <= stream.length
                assert place % ROW == one.room % ROW == 0


def test_a_row_lies_within_what_each_of_its_accesses_touched() -> None:
    for low, high in ((0, 4096), (64, 200), (4, 132), (0, 127)):
        code = make_code(parse_ptx_module(KERNEL.read_text()), low, high)
        moved = [access for access in code.accesses if access.space == "shared"]
        for row in find_rows_within_touched_memory(moved, code.survey):
            for access in row.accesses:
                begin = row.base + access.address.offset
                assert low <= begin
                assert begin + 32 * row.width <= high
    assert not find_rows_within_touched_memory(moved, code.survey), (
        "127 bytes have no room for 32 words"
    )


MIXED = """.version 8.0
.target sm_90
.address_size 64
.visible .entry mixed(.param .u64 x)
{
	.reg .pred %p<3>;
	.reg .f32 %f<9>;
	.reg .b32 %r<9>;
	.reg .b64 %rd<4>;
	mov.u32 %r1, %ctaid.x;
	mov.u32 %r2, %nctaid.x;
	ld.global.f32 %f1, [%rd1];
	fma.rn.f32 %f2, %f1, %f1, %f3;
	add.f32 %f3, %f3, %f2;
	@!%p1 mul.f32 %f4, %f1, 0f40000000;
	min.f32 %f5, %f1, %f1;
	setp.gt.f32 %p2, %f5, 0f00000000;
	@%p2 bra DONE;
	mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f6, %f7}, {%r3}, {%r4}, {%f6, %f8};
	st.global.f32 [%rd1], %f3;
DONE:
	ret;
}
"""


def test_all_accesses_are_issued_and_not_done() -> None:
    code = make_code(parse_ptx_module(MIXED))
    assert "no-memory" not in make_changes(code), "a load decides a branch, and may be of a store"
    straight = parse_ptx_module(MIXED.replace("@%p2 bra DONE;", ""))
    memory = make_changes(make_code(straight))["no-memory"]
    assert memory.text.count("@%profkit_all ") == memory.text.count(".global.f32") == 2
    assert len(memory.table) == 4


def test_the_table_of_a_line_moves_that_line_alone() -> None:
    found = make_changes(make_code(parse_ptx_module(KERNEL.read_text())))["conflict-free"]
    assert found.lines.keys() == {"kernel.cu:8", "kernel.cu:9"}
    words = {place: struct.unpack("<2I", table[:8]) for place, table in found.lines.items()}
    assert words == {"kernel.cu:8": (0, 0xFFFFFFFF), "kernel.cu:9": (0xFFFFFFFF, 0)}
    assert struct.unpack("<2I", found.table[:8]) == (0, 0)


def test_a_refusal_says_four_things() -> None:
    """Of a kernel in which nothing was executed, nothing can be taken away: each says so, whole."""
    module = parse_ptx_module(KERNEL.read_text())
    code = make_code(module)
    nothing = [0] * len(survey.make_initial_counters(module, code.accesses))
    seen = survey.parse_survey_counters(module, code.accesses, nothing)
    code = replace(code, survey=seen, local_bytes=0, fast="")
    for ablation in list_ablations():
        with pytest.raises(Refused) as refused:
            ablation(code).make_change()
        said = refused.value.make_refusal(ablation.id)
        assert said.ablation == ablation.id
        assert all((said.code, said.observed, said.threshold, said.remedy)), said


def test_every_ablation_has_its_words_rules_and_probes() -> None:
    from profkit.diagnosis.rules import ALL
    from profkit.records.ablation import read_ablations_by_rule

    known = {rule.id for rule in ALL}
    probes = {path.stem.split("_")[0] for path in find_files(ROOT / "kernels/probes", "**/*.cu")}
    named = {name for group in read_ablations_by_rule().values() for name in group}
    for ablation in list_ablations():
        assert ablation.title, ablation.id
        assert set(ablation.rules) <= known, ablation.id
        assert ablation.probes or ablation.id == "fast-math", "no probe has accurate functions"
        assert set(ablation.probes) <= probes, ablation.id
        assert set(ablation.rules) <= named, ablation.id
    assert named <= known
    causes = {rule.id for rule in ALL if not rule.note and not rule.otherwise}
    assert causes <= named, "explain says of each cause what measures it, or why nothing does"


@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.parametrize("probe", PROBES)
def test_every_change_of_a_probe_assembles(probe: str, tmp_path: Path) -> None:
    (source,) = find_files(ROOT / "kernels/probes", f"**/{probe}_*.cu")
    arch = "90a" if "90a" in source.read_text().split("*/")[0] else "90"
    file = tmp_path / "k.ptx"
    target = f"-gencode=arch=compute_{arch},code=compute_{arch}"
    nvcc = find_tool("nvcc")
    flags = ["-O3", "-std=c++17", "-lineinfo", target, "-ptx"]
    subprocess.run([nvcc, *flags, "-o", file, source], check=True)
    module = parse_ptx_module(file.read_text())
    code = make_code(module)
    texts = {"base": module.text, "count": survey.write_counting_module(module, code.accesses)}
    texts["timeline"] = timeline.write_module_recording_times(module)
    for name, found in make_changes(code).items():
        rewritten = parse_ptx_module(found.text)
        texts[f"{name}, counting"] = survey.write_counting_module(rewritten, [])
        pinned = PtxEdits(rewritten)
        for kernel in rewritten.kernels.values():
            if kernel.is_entry:
                pinned.require_min_blocks(kernel, 256, 1)
        texts[name] = pinned.write_edited_module()
    if probe == "tensor-wgmma":  # ptxas takes most of a second for each text
        texts = {"base": texts["base"], **dict(take_part(texts.items(), one_of=12))}
    # Names of files are in what nvcc writes.
    written = json.dumps(texts).replace(str(tmp_path), "").replace(str(ROOT), "")
    made_of = passed.hash_run(written, "assembles", arch, bool(find_tool("nvdisasm")))
    if passed.is_kept(f"changes of {probe}", made_of):
        return
    for name, text in texts.items():
        file.write_text(text)
        command = [find_tool("ptxas"), f"-arch=sm_{arch}", file, "-o", tmp_path / "k.cubin"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{probe} {name}: {done.stdout}{done.stderr}"
        (tmp_path / "k.cubin").rename(tmp_path / f"{name}.cubin")
    if find_tool("nvdisasm"):
        compare_opcodes(probe, tmp_path, texts)
    passed.keep_pass(f"changes of {probe}", made_of)


def compare_opcodes(probe: str, folder: Path, names: Iterable[str]) -> None:
    """Hold what an ablation keeps of a probe's machine code to be there as often as before."""
    before = count_opcodes(folder / "base.cubin")
    for ablation in list_ablations():
        if ablation.id in names and probe in ablation.probes:
            after = count_opcodes(folder / f"{ablation.id}.cubin")
            kept = {opcode: (before[opcode], after[opcode]) for opcode in ablation.keeps.split()}
            assert all(one == other for one, other in kept.values()), (ablation.id, kept)


def count_opcodes(cubin: Path) -> Counter[str]:
    command = [find_tool("nvdisasm"), "-c", cubin]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return Counter(
        re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)", done.stdout)
    )


def test_the_ptx_of_a_compiler_that_leaves_one_is_kept(tmp_path: Path) -> None:
    from profkit.lab.measure.languages.triton import _move_only_ptx

    place = tmp_path / "kernel.ptx"
    for number in range(2):
        folder = tmp_path / "cache" / str(number)
        folder.mkdir(parents=True)
    _move_only_ptx(tmp_path / "cache", place)
    assert not place.exists(), "none is there"
    (tmp_path / "cache" / "0" / "k.ptx").write_text("one")
    _move_only_ptx(tmp_path / "cache", place)
    assert place.read_text() == "one"
    place.unlink()
    for number in range(2):
        (tmp_path / "cache" / str(number) / "k.ptx").write_text("of two")
    _move_only_ptx(tmp_path / "cache", place)
    assert not place.exists(), "of two nobody knows which is launched"


def test_atomics_are_issued_and_change_nothing() -> None:
    text = MIXED.replace("st.global.f32 [%rd1]", "red.global.add.f32 [%rd1]")
    made = make_changes(make_code(parse_ptx_module(text.replace("@%p2 bra DONE;", ""))))
    rewritten = " ".join(made["no-atomics"].text.split())
    assert "@%profkit_done red.global.add.f32 [%rd1], %f3;" in rewritten


def test_accesses_that_one_register_leads_to_are_chosen_for_once() -> None:
    text = """.version 8.0
.target sm_90
.address_size 64
.visible .entry sums(.param .u64 p)
{
	.reg .b32 %r<9>;
	.shared .align 4 .b8 tile[4096];
	mov.u32 %r1, tile;
	add.s32 %r2, %r1, 8;
	add.s32 %r3, %r2, 16;
	ld.shared.u32 %r4, [%r2+4];
	ld.shared.u32 %r5, [%r3];
	mov.u32 %r6, %r4;
	mov.u32 %r6, %r5;
	add.s32 %r7, %r6, 4;
	ld.shared.u32 %r8, [%r7];
	ret;
}
"""
    places = [
        (a.address.base, a.address.offset) for a in find_memory_accesses(parse_ptx_module(text))
    ]
    assert places == [("%r1", 12), ("%r1", 24), ("%r7", 0)], (
        "what is written twice is followed no further"
    )
