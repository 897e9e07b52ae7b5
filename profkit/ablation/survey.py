"""A module  ->  the same that counts what it does; its counters  ->  what each access did.

Each basic block counts the threads and the warps that enter it. Each access counts its requests, the
sectors of 32 bytes that they touch, or how many passes over the banks of shared memory they need, and
the lowest and highest address.
This needs no permission: it is ordinary code, and it runs once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from profkit.ablation import ptx
from profkit.ablation.accesses import Access
from profkit.ablation.ptx import Changes, Module

COUNTS = "profkit_counts"
_FIELDS = 6  # requests, threads, units, ways, lowest, highest
_BYTES = 8
_WARPS = 32  # of a block at most: each has a counter of its own
NOTHING = (1 << 64) - 1  # what a lowest address begins with


@dataclass(frozen=True)
class Seen:
    """What one access did in one call."""

    requests: int = 0  # executions by a warp
    threads: int = 0  # executions by a thread
    units: int = 0  # sectors, or distinct words of shared memory, of all requests
    ways: int = (
        0  # passes over the banks of shared memory, of all requests, over those of none in conflict
    )
    lowest: int = 0  # address
    highest: int = 0  # address of the last access, plus its width

    @property
    def bytes(self) -> int:
        """The length of what it touched, from end to end."""
        return max(0, self.highest - self.lowest)


@dataclass(frozen=True)
class Survey:
    blocks: tuple[int, ...]  # threads that entered each basic block of the module
    seen: tuple[Seen, ...]  # of each access
    executed: Counter[str]  # PTX instructions by opcode, executed by threads
    issued: Counter[str]  # the same by warps
    entries: tuple[tuple[int, ...], ...]  # of each basic block: by warps at each place of a block
    by_warp: tuple[int, ...]  # instructions of all first warps of blocks, of all second ones ...


def count_counters(module: Module, accesses: Sequence[Access]) -> int:
    """How many counters there are."""
    return (1 + _WARPS) * count_basic_blocks(module) + _FIELDS * len(accesses)


def count_basic_blocks(module: Module) -> int:
    return sum(kernel.blocks for kernel in module.kernels.values())


def first_counters(module: Module, accesses: Sequence[Access]) -> list[int]:
    """What the counters hold before a call."""
    return [0] * ((1 + _WARPS) * count_basic_blocks(module)) + [0, 0, 0, 0, NOTHING, 0] * len(
        accesses
    )


def write_counting(module: Module, accesses: Sequence[Access]) -> str:
    """The module's text with counters in it; of no accesses, only the blocks are counted."""
    changes = Changes(module)
    total, blocks = count_counters(module, accesses), count_basic_blocks(module)
    changes.outside[f".visible .global .align 8 .b64 {COUNTS}[{max(1, total)}];"] = None
    first = 0
    for kernel in module.kernels.values():
        counted: set[int] = set()
        for statement in kernel.statements:
            if statement.block not in counted:
                counted.add(statement.block)
                number = first + statement.block
                lines = _count_block(_BYTES * number, _BYTES * (blocks + _WARPS * number))
                changes.put_before(statement, lines)
        first += kernel.blocks
    for access in accesses:
        place = _BYTES * ((1 + _WARPS) * blocks + _FIELDS * access.number)
        changes.put_before(access.statement, _count_access(module, access, place))
    return changes.write()


def _count_block(place: int, warps: int) -> list[str]:
    """Statements that count who enters a block: threads, and warps by their place in the block."""
    return [
        "{",
        ".reg .pred %pk_first;",
        ".reg .b32 %pk_mask, %pk_below, %pk_x, %pk_y;",
        ".reg .b64 %pk_at, %pk_all;",
        "activemask.b32 %pk_mask;",
        "mov.u32 %pk_below, %lanemask_lt;",
        "and.b32 %pk_below, %pk_below, %pk_mask;",
        "setp.eq.u32 %pk_first, %pk_below, 0;",
        f"red.global.add.u64 [{COUNTS}+{place}], 1;",
        "mov.u32 %pk_x, %ntid.y;",
        "mov.u32 %pk_y, %tid.z;",
        "mad.lo.u32 %pk_y, %pk_y, %pk_x, 0;",
        "mov.u32 %pk_x, %tid.y;",
        "add.u32 %pk_y, %pk_y, %pk_x;",
        "mov.u32 %pk_x, %ntid.x;",
        "mul.lo.u32 %pk_y, %pk_y, %pk_x;",
        "mov.u32 %pk_x, %tid.x;",
        "add.u32 %pk_y, %pk_y, %pk_x;",
        "shr.u32 %pk_y, %pk_y, 5;",
        f"mov.u64 %pk_all, {COUNTS};",
        f"mad.wide.u32 %pk_at, %pk_y, {_BYTES}, %pk_all;",
        f"@%pk_first red.global.add.u64 [%pk_at+{warps}], 1;",
        "}",
    ]


def _count_access(module: Module, access: Access, place: int) -> list[str]:
    """Statements that count one access, done by the threads that are about to do it."""
    kernel, statement = module.kernels[access.kernel], access.statement
    skip = f"$profkit_counted_{access.number}"
    units = _count_units(access, place)
    lines = ["{"]
    if statement.guard:
        opposite = "" if statement.negated else "!"
        lines.append(f"@{opposite}{statement.guard} bra {skip};")
    lines += [
        ".reg .pred %pk_first, %pk_new;",
        ".reg .b32 %pk_mask, %pk_below, %pk_same, %pk_n, %pk_lane, %pk_bank, %pk_firsts;",
        ".reg .b64 %pk_at, %pk_key, %pk_old, %pk_count;",
        *_write_address(kernel, access),
        "activemask.b32 %pk_mask;",
        "mov.u32 %pk_below, %lanemask_lt;",
        "and.b32 %pk_n, %pk_below, %pk_mask;",
        "setp.eq.u32 %pk_first, %pk_n, 0;",
        "popc.b32 %pk_n, %pk_mask;",
        "cvt.u64.u32 %pk_count, %pk_n;",
        f"@%pk_first red.global.add.u64 [{COUNTS}+{place}], 1;",
        f"@%pk_first red.global.add.u64 [{COUNTS}+{place + 8}], %pk_count;",
        *units,
        f"ld.volatile.global.u64 %pk_old, [{COUNTS}+{place + 32}];",
        "setp.lt.u64 %pk_new, %pk_at, %pk_old;",
        f"@%pk_new red.global.min.u64 [{COUNTS}+{place + 32}], %pk_at;",
        f"add.u64 %pk_at, %pk_at, {access.width};",
        f"ld.volatile.global.u64 %pk_old, [{COUNTS}+{place + 40}];",
        "setp.gt.u64 %pk_new, %pk_at, %pk_old;",
        f"@%pk_new red.global.max.u64 [{COUNTS}+{place + 40}], %pk_at;",
        "}",
    ]
    if statement.guard:
        lines.append(f"{skip}:")
    return lines


def _write_address(kernel: ptx.Kernel, access: Access) -> list[str]:
    """Statements that put the address of an access into %pk_at."""
    base, offset = access.address.base, access.address.offset
    if access.address.in_register and not kernel.is_wide(base):
        return [f"cvt.u64.u32 %pk_at, {base};", f"add.s64 %pk_at, %pk_at, {offset};"]
    if access.address.in_register:
        return [f"add.s64 %pk_at, {base}, {offset};"]
    return [f"mov.u64 %pk_at, {base};", f"add.s64 %pk_at, %pk_at, {offset};"]


def _count_units(access: Access, place: int) -> list[str]:
    if access.space == "shared":
        return _count_ways(access.width, place)
    if access.space == "const":
        return _count_different(2, place)
    return _count_different(5, place)


def _count_different(shift: int, place: int) -> list[str]:
    """How many different pieces of memory a request touches, each 2^shift bytes long."""
    return [
        f"shr.u64 %pk_key, %pk_at, {shift};",
        "match.any.sync.b64 %pk_same, %pk_key, %pk_mask;",
        "and.b32 %pk_same, %pk_same, %pk_below;",
        "setp.eq.u32 %pk_new, %pk_same, 0;",
        f"@%pk_new red.global.add.u64 [{COUNTS}+{place + 16}], 1;",
    ]


def _count_ways(width: int, place: int) -> list[str]:
    """How many distinct words of a request lie on one bank, of the bank with most of them.

    Accesses of 8 bytes are served half a warp at a time, those of 16 a quarter of a warp.
    """
    unit = max(width, 4)
    shift = unit.bit_length() - 1
    lanes_together = 128 // unit
    group_shift = lanes_together.bit_length() - 1
    return [
        "mov.u32 %pk_lane, %laneid;",
        f"shr.u32 %pk_lane, %pk_lane, {group_shift};",
        f"shr.u64 %pk_key, %pk_at, {shift};",
        "cvt.u32.u64 %pk_bank, %pk_key;",
        f"and.b32 %pk_bank, %pk_bank, {lanes_together - 1};",
        "mad.lo.u32 %pk_bank, %pk_lane, 256, %pk_bank;",
        "mov.b64 %pk_old, {%pk_n, %pk_lane};",
        "and.b64 %pk_old, %pk_old, -4294967296;",
        "or.b64 %pk_key, %pk_key, %pk_old;",
        "match.any.sync.b64 %pk_same, %pk_key, %pk_mask;",
        "and.b32 %pk_same, %pk_same, %pk_below;",
        "setp.eq.u32 %pk_new, %pk_same, 0;",
        f"@%pk_new red.global.add.u64 [{COUNTS}+{place + 16}], 1;",
        "vote.sync.ballot.b32 %pk_firsts, %pk_new, %pk_mask;",
        "match.any.sync.b32 %pk_same, %pk_bank, %pk_mask;",
        "and.b32 %pk_same, %pk_same, %pk_firsts;",
        "popc.b32 %pk_n, %pk_same;",
        "redux.sync.max.u32 %pk_n, %pk_n, %pk_mask;",
        "cvt.u64.u32 %pk_count, %pk_n;",
        f"@%pk_first red.global.add.u64 [{COUNTS}+{place + 24}], %pk_count;",
    ]


def read_counters(module: Module, accesses: Sequence[Access], words: Sequence[int]) -> Survey:
    blocks = count_basic_blocks(module)
    seen = []
    for access in accesses:
        first = (1 + _WARPS) * blocks + _FIELDS * access.number
        requests, threads, units, ways, lowest, highest = words[first : first + _FIELDS]
        if requests == 0:
            seen.append(Seen())
        else:
            seen.append(Seen(requests, threads, units, ways, lowest, highest))
    return Survey(
        blocks=tuple(words[:blocks]),
        seen=tuple(seen),
        executed=count_executed(module, words[:blocks]),
        issued=count_executed(module, _sum_warps(words, blocks)),
        entries=_split_warps(words, blocks),
        by_warp=_count_by_warp(module, words, blocks),
    )


def _split_warps(words: Sequence[int], blocks: int) -> tuple[tuple[int, ...], ...]:
    """Warps that entered each block, by their place."""
    entries = []
    for block in range(blocks):
        first = blocks + _WARPS * block
        entries.append(tuple(words[first : first + _WARPS]))
    return tuple(entries)


def _sum_warps(words: Sequence[int], blocks: int) -> list[int]:
    """Warps that entered each block."""
    return [sum(entry) for entry in _split_warps(words, blocks)]


def _count_by_warp(module: Module, words: Sequence[int], blocks: int) -> tuple[int, ...]:
    """Instructions that the first warps of blocks executed, the second ones, and so on."""
    lengths = [0] * blocks
    first = 0
    for kernel in module.kernels.values():
        for statement in kernel.statements:
            lengths[first + statement.block] += 1
        first += kernel.blocks
    done = [0] * _WARPS
    for block, length in enumerate(lengths):
        for warp in range(_WARPS):
            done[warp] += length * words[blocks + _WARPS * block + warp]
    return tuple(done)


def count_executed(module: Module, blocks: Sequence[int]) -> Counter[str]:
    """PTX instructions by opcode that were executed by those who entered the blocks."""
    executed: Counter[str] = Counter()
    first = 0
    for kernel in module.kernels.values():
        for statement in kernel.statements:
            executed[statement.opcode] += blocks[first + statement.block]
        first += kernel.blocks
    return executed


def largest_difference(module: Module, before: Sequence[int], after: Iterable[int]) -> float:
    """By what share of itself the count of any opcode differs between two calls, the largest."""
    counted, again = count_executed(module, before), count_executed(module, list(after))
    worst = 0.0
    for opcode, number in counted.items():
        if number or again[opcode]:
            worst = max(worst, abs(again[opcode] - number) / max(number, 1))
    return worst
