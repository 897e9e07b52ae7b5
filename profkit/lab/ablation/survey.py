"""A module  ->  the same that counts what it does; its counters  ->  what each access did.

Each basic block counts the threads and the warps that enter it. Each access counts its requests, the
sectors of 32 bytes that they touch, or how many passes over the banks of shared memory they need, and
the lowest and highest address.
This needs no permission: it is ordinary code, and it runs once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profkit.lab.ablation.accesses import PtxAccess
from profkit.lab.ablation.ptx import PtxEdits, PtxKernel, PtxModule

if TYPE_CHECKING:
    from profkit.units import Opcode, PtxText, Share


COUNTS = "profkit_counts"
_BYTES = 8
_WARPS = 32  # of a block at most: each has a counter of its own
# What the six counters of an access begin with: requests, threads, units, ways, lowest, highest.
_FIRST = [0, 0, 0, 0, (1 << 64) - 1, 0]


@dataclass(frozen=True)
class AccessCounts:
    """What one access did in one call."""

    requests: int = 0  # executions by a warp
    threads: int = 0  # executions by a thread
    units: int = 0  # sectors, or distinct words of shared memory, of all requests
    ways: int = 0  # passes over the banks of shared memory, over those of none in conflict
    lowest: int = 0  # address
    highest: int = 0  # address of the last access, plus its width


@dataclass(frozen=True)
class Survey:
    blocks: tuple[int, ...]  # threads that entered each basic block of the module
    seen: tuple[AccessCounts, ...]  # of each access
    executed: Counter[str]  # PTX instructions by opcode, executed by threads
    issued: Counter[str]  # the same by warps
    entries: tuple[tuple[int, ...], ...]  # of each basic block: by warps at each place of a block
    by_warp: tuple[int, ...]  # instructions of all first warps of blocks, of all second ones ...


def make_initial_counters(module: PtxModule, accesses: Sequence[PtxAccess]) -> list[int]:
    """Return what the counters hold before a call."""
    return [0] * ((1 + _WARPS) * module.basic_block_count) + _FIRST * len(accesses)


# Statements that count who enters a block: threads, and warps by their place in the block.
_COUNT_BLOCK = """{{
.reg .pred %pk_first;
.reg .b32 %pk_mask, %pk_below, %pk_x, %pk_y;
.reg .b64 %pk_at, %pk_all;
activemask.b32 %pk_mask;
mov.u32 %pk_below, %lanemask_lt;
and.b32 %pk_below, %pk_below, %pk_mask;
setp.eq.u32 %pk_first, %pk_below, 0;
red.global.add.u64 [profkit_counts+{threads}], 1;
mov.u32 %pk_x, %ntid.y;
mov.u32 %pk_y, %tid.z;
mad.lo.u32 %pk_y, %pk_y, %pk_x, 0;
mov.u32 %pk_x, %tid.y;
add.u32 %pk_y, %pk_y, %pk_x;
mov.u32 %pk_x, %ntid.x;
mul.lo.u32 %pk_y, %pk_y, %pk_x;
mov.u32 %pk_x, %tid.x;
add.u32 %pk_y, %pk_y, %pk_x;
shr.u32 %pk_y, %pk_y, 5;
mov.u64 %pk_all, profkit_counts;
mad.wide.u32 %pk_at, %pk_y, 8, %pk_all;
@%pk_first red.global.add.u64 [%pk_at+{warps}], 1;
}}"""
# Statements that count one access, done by the threads that are about to do it.
_COUNT_ACCESS = """.reg .pred %pk_first, %pk_new;
.reg .b32 %pk_mask, %pk_below, %pk_same, %pk_n, %pk_lane, %pk_bank, %pk_firsts;
.reg .b64 %pk_at, %pk_key, %pk_old, %pk_count;
{address}
activemask.b32 %pk_mask;
mov.u32 %pk_below, %lanemask_lt;
and.b32 %pk_n, %pk_below, %pk_mask;
setp.eq.u32 %pk_first, %pk_n, 0;
popc.b32 %pk_n, %pk_mask;
cvt.u64.u32 %pk_count, %pk_n;
@%pk_first red.global.add.u64 [profkit_counts+{requests}], 1;
@%pk_first red.global.add.u64 [profkit_counts+{threads}], %pk_count;
{units}
ld.volatile.global.u64 %pk_old, [profkit_counts+{lowest}];
setp.lt.u64 %pk_new, %pk_at, %pk_old;
@%pk_new red.global.min.u64 [profkit_counts+{lowest}], %pk_at;
add.u64 %pk_at, %pk_at, {width};
ld.volatile.global.u64 %pk_old, [profkit_counts+{highest}];
setp.gt.u64 %pk_new, %pk_at, %pk_old;
@%pk_new red.global.max.u64 [profkit_counts+{highest}], %pk_at;
}}"""
# How many different pieces of memory a request touches, each 2^shift bytes long.
_COUNT_PIECES = """shr.u64 %pk_key, %pk_at, {shift};
match.any.sync.b64 %pk_same, %pk_key, %pk_mask;
and.b32 %pk_same, %pk_same, %pk_below;
setp.eq.u32 %pk_new, %pk_same, 0;
@%pk_new red.global.add.u64 [profkit_counts+{units}], 1;"""
# How many distinct words of a request lie on one bank, of the bank with most of them.
_COUNT_WAYS = """mov.u32 %pk_lane, %laneid;
shr.u32 %pk_lane, %pk_lane, {group};
shr.u64 %pk_key, %pk_at, {shift};
cvt.u32.u64 %pk_bank, %pk_key;
and.b32 %pk_bank, %pk_bank, {banks};
mad.lo.u32 %pk_bank, %pk_lane, 256, %pk_bank;
mov.b64 %pk_old, {{%pk_n, %pk_lane}};
and.b64 %pk_old, %pk_old, -4294967296;
or.b64 %pk_key, %pk_key, %pk_old;
match.any.sync.b64 %pk_same, %pk_key, %pk_mask;
and.b32 %pk_same, %pk_same, %pk_below;
setp.eq.u32 %pk_new, %pk_same, 0;
@%pk_new red.global.add.u64 [profkit_counts+{units}], 1;
vote.sync.ballot.b32 %pk_firsts, %pk_new, %pk_mask;
match.any.sync.b32 %pk_same, %pk_bank, %pk_mask;
and.b32 %pk_same, %pk_same, %pk_firsts;
popc.b32 %pk_n, %pk_same;
redux.sync.max.u32 %pk_n, %pk_n, %pk_mask;
cvt.u64.u32 %pk_count, %pk_n;
@%pk_first red.global.add.u64 [profkit_counts+{ways}], %pk_count;"""
_SECTOR_SHIFT = 5
_WORD_SHIFT = 2


def write_counting_module(module: PtxModule, accesses: Sequence[PtxAccess]) -> PtxText:
    """Return the module's text with counters in it; of no accesses, only the blocks are counted."""
    changes = PtxEdits(module)
    total = len(make_initial_counters(module, accesses))
    changes.outside[f".visible .global .align 8 .b64 {COUNTS}[{max(1, total)}];"] = None
    counted: set[int] = set()
    for block, _, statement in module.iterate_statements_with_block_numbers():
        if block not in counted:
            counted.add(block)
            warps = _BYTES * (module.basic_block_count + _WARPS * block)
            text = _COUNT_BLOCK.format(threads=_BYTES * block, warps=warps)
            changes.insert_before(statement, text)
    place = _BYTES * (1 + _WARPS) * module.basic_block_count
    for access in accesses:
        text = _write_code_counting_access(module.kernels[access.kernel], access, place)
        changes.insert_before(access.statement, text)
        place += _BYTES * len(_FIRST)
    return changes.write_edited_module()


def _write_code_counting_access(
    kernel: PtxKernel, access: PtxAccess, counter_place: int
) -> PtxText:
    text = _COUNT_ACCESS.format(
        address=write_code_computing_address(kernel, access),
        units=_write_code_counting_units(access, counter_place),
        width=access.width,
        requests=counter_place,
        threads=counter_place + 8,
        lowest=counter_place + 32,
        highest=counter_place + 40,
    )
    statement = access.statement
    if not statement.guard:
        return "{\n" + text
    opposite = "" if statement.negated else "!"
    skip = f"$profkit_counted_{access.number}"
    return f"{{\n@{opposite}{statement.guard} bra {skip};\n{text}\n{skip}:"


def write_code_computing_address(kernel: PtxKernel, access: PtxAccess) -> PtxText:
    """Return statements that put the address of an access into %pk_at."""
    base = access.address.base
    offset = access.address.offset
    if not access.address.in_register:
        return f"mov.u64 %pk_at, {base};\nadd.s64 %pk_at, %pk_at, {offset};"
    if kernel.is_64_bit_register(base):
        return f"add.s64 %pk_at, {base}, {offset};"
    return f"cvt.u64.u32 %pk_at, {base};\nadd.s64 %pk_at, %pk_at, {offset};"


def _write_code_counting_units(access: PtxAccess, counter_place: int) -> PtxText:
    units = counter_place + 16
    ways = counter_place + 24
    if access.space == "const":
        return _COUNT_PIECES.format(shift=_WORD_SHIFT, units=units)
    if access.space != "shared":
        return _COUNT_PIECES.format(shift=_SECTOR_SHIFT, units=units)
    # Accesses of 8 bytes are served half a warp at a time, those of 16 a quarter of a warp.
    width = max(access.width, 4)
    lanes = 128 // width
    group = lanes.bit_length() - 1
    shift = width.bit_length() - 1
    return _COUNT_WAYS.format(group=group, shift=shift, banks=lanes - 1, units=units, ways=ways)


def parse_survey_counters(
    module: PtxModule, accesses: Sequence[PtxAccess], counters: Sequence[int]
) -> Survey:
    blocks = counters[: module.basic_block_count]
    rest = counters[module.basic_block_count :]
    entries = []
    for block in range(module.basic_block_count):
        entries.append(tuple(rest[_WARPS * block : _WARPS * (block + 1)]))
    rest = rest[_WARPS * module.basic_block_count :]
    seen = []
    for number in range(len(accesses)):
        fields = rest[len(_FIRST) * number : len(_FIRST) * (number + 1)]
        seen.append(AccessCounts(*fields) if fields[0] else AccessCounts())
    return Survey(
        blocks=tuple(blocks),
        seen=tuple(seen),
        executed=count_executed_by_opcode(module, blocks),
        issued=count_executed_by_opcode(module, [sum(entry) for entry in entries]),
        entries=tuple(entries),
        by_warp=_sum_instructions_by_warp(module, entries),
    )


def _sum_instructions_by_warp(
    module: PtxModule, entries: Sequence[Sequence[int]]
) -> tuple[int, ...]:
    """Return instructions that the first warps of blocks executed, the second ones, and so on."""
    lengths = Counter(block for block, _, _ in module.iterate_statements_with_block_numbers())
    done = [0] * _WARPS
    for block, length in lengths.items():
        for warp, times in enumerate(entries[block]):
            done[warp] += length * times
    return tuple(done)


def count_executed_by_opcode(module: PtxModule, blocks: Sequence[int]) -> Counter[Opcode]:
    """Return PTX instructions by opcode that were executed by those who entered the blocks."""
    executed: Counter[str] = Counter()
    for block, _, statement in module.iterate_statements_with_block_numbers():
        executed[statement.opcode] += blocks[block]
    return executed


# Opcodes that move memory of others than the thread itself, or wait for others.
_OUTWARD = re.compile(
    r"(ld|st|atom|red|cp|ldmatrix|stmatrix|bar|barrier|mma|wmma|wgmma\.mma_async)\b"
)
_OWN = re.compile(r"\.(param|local|const)\b")


# What blocks that are joined have in common.
_SHARED = re.compile(r"(bar|barrier|cp\.async\.(commit|wait))\w*\b")


def keep_comparable_instructions(executed: Counter[Opcode], joined: int = 1) -> Counter[Opcode]:
    """Return of counted instructions those that other code for the same work has as many of.

    `joined`: so many blocks in one, with barriers in common.
    """
    kept: Counter[str] = Counter()
    for opcode, number in executed.items():
        if joined > 1 and _SHARED.match(opcode):
            continue
        if _OUTWARD.match(opcode) and not _OWN.search(opcode):
            kept[opcode] = number
    return kept


def count_global_loads_and_stores(executed: Counter[Opcode]) -> Counter[Opcode]:
    """Return of counted instructions the loads and the stores of global memory, however wide."""
    counted: Counter[str] = Counter()
    for opcode, number in executed.items():
        words = opcode.split(".")
        if words[0] in ("ld", "st") and _OWN.search(opcode) is None:
            counted[words[0]] += number
    return counted


def compute_largest_difference(counted: Counter[Opcode], again: Counter[Opcode]) -> Share:
    """Return by what share of itself the count of any opcode differs between two calls, the largest."""
    worst = 0.0
    for opcode, number in counted.items():
        worst = max(worst, abs(again[opcode] - number) / max(number, 1))
    return worst
