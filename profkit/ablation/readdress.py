"""Accesses and where they shall go  ->  a module in which a table says whether they do.

One piece of machine code serves the original addresses and every other choice of them: with the table
empty it does what the kernel did, at the price of the instructions that choose, and with the table
filled the same instructions go elsewhere. So the two differ in nothing but in where memory is touched.

An access of global memory is sent along a stream: of all threads in order, each the next bytes, one
width after the other, again from the beginning when the stream has ended. A stream lies within what the
same accesses touched anyway. An access of shared memory is sent to its lane's place in a row.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from profkit.ablation import ptx
from profkit.ablation.accesses import Access
from profkit.ablation.ptx import Changes, Kernel, Module
from profkit.ablation.survey import Survey

TABLE = "profkit_table"
ROW = 512  # bytes of a warp's widest access: a stream is whole rows
_STREAM = struct.Struct("<II")  # length, step
_ACCESS = struct.Struct("<QQ")  # which bits of the original address stay, what is added instead
_KEEP = (1 << 64) - 1


@dataclass(frozen=True)
class Stream:
    """Accesses of one kernel that go through the same bytes with the same width."""

    number: int
    kernel: str
    width: int
    accesses: tuple[int, ...]  # their numbers
    base: int  # the first byte: a whole line
    length: int  # whole rows


@dataclass(frozen=True)
class Path:
    """How a stream is walked through: from where, how far, and in steps of how many bytes."""

    base: int
    length: int
    step: int


def find_streams(accesses: Sequence[Access], survey: Survey, least: int = ROW) -> list[Stream]:
    """Group accesses of global memory by the bytes that they touch, `least` bytes or more."""
    groups: list[tuple[Access, list[Access], int, int]] = []
    for access in accesses:
        seen = survey.seen[access.number]
        if not seen.requests:
            continue
        for at, (first, members, low, high) in enumerate(groups):
            alike = (first.kernel, first.kind, first.width) == (
                access.kernel,
                access.kind,
                access.width,
            )
            if alike and seen.lowest < high and low < seen.highest:
                begin, end = min(low, seen.lowest), max(high, seen.highest)
                groups[at] = (first, [*members, access], begin, end)
                break
        else:
            groups.append((access, [access], seen.lowest, seen.highest))
    streams: list[Stream] = []
    for first, members, low, high in groups:
        base = -(-low // ROW) * ROW
        length = min((high - base) // ROW * ROW, (1 << 32) - ROW)
        if length >= least:
            numbers = tuple(member.number for member in members)
            streams.append(Stream(len(streams), first.kernel, first.width, numbers, base, length))
    return streams


def write_streams(
    module: Module, accesses: Sequence[Access], streams: Sequence[Stream], cached: bool = False
) -> str:
    """The module with the accesses of the streams led by the table.

    `cached`: loads that pass by the L1 are made through it.
    """
    changes = Changes(module)
    moved = [number for stream in streams for number in stream.accesses]
    _declare_table(changes, len(streams), len(moved))
    for name, kernel in module.kernels.items():
        own = [stream for stream in streams if stream.kernel == name]
        if own:
            changes.begin(kernel, _write_beginning(changes, own))
    row = 0
    for stream in streams:
        for number in stream.accesses:
            place = _STREAM.size * len(streams) + _ACCESS.size * row
            _lead_access(changes, accesses[number], stream, place, cached)
            row += 1
    return changes.write()


def fill_table(
    streams: Sequence[Stream], paths: Mapping[int, Path], on: set[int], accesses: Sequence[Access]
) -> bytes:
    """The table that sends the accesses `on` along the paths of their streams; none: where they went."""
    parts = []
    for stream in streams:
        path = paths.get(stream.number)
        walked = path is not None and not on.isdisjoint(stream.accesses)
        parts.append(
            _STREAM.pack(path.length, path.step) if path and walked else _STREAM.pack(1, 0)
        )
    for stream in streams:
        path = paths.get(stream.number)
        for number in stream.accesses:
            if path and number in on:
                begin = (path.base - accesses[number].address.offset) % (1 << 64)
                parts.append(_ACCESS.pack(0, begin))
            else:
                parts.append(_ACCESS.pack(_KEEP, 0))
    return b"".join(parts)


def _declare_table(changes: Changes, streams: int, accesses: int) -> None:
    size = _STREAM.size * streams + _ACCESS.size * accesses
    changes.outside[f".visible .const .align 16 .b8 {TABLE}[{max(16, size)}];"] = None


# The number of a thread in the whole grid.
_THREAD = """
mov.u32 %profkit_t, %ctaid.z;
mov.u32 %profkit_u, %nctaid.y;
mov.u32 %profkit_v, %ctaid.y;
mad.lo.u32 %profkit_t, %profkit_t, %profkit_u, %profkit_v;
mov.u32 %profkit_u, %nctaid.x;
mov.u32 %profkit_v, %ctaid.x;
mad.lo.u32 %profkit_t, %profkit_t, %profkit_u, %profkit_v;
mov.u32 %profkit_u, %ntid.z;
mov.u32 %profkit_v, %tid.z;
mad.lo.u32 %profkit_t, %profkit_t, %profkit_u, %profkit_v;
mov.u32 %profkit_u, %ntid.y;
mov.u32 %profkit_v, %tid.y;
mad.lo.u32 %profkit_t, %profkit_t, %profkit_u, %profkit_v;
mov.u32 %profkit_u, %ntid.x;
mov.u32 %profkit_v, %tid.x;
mad.lo.u32 %profkit_t, %profkit_t, %profkit_u, %profkit_v;
""".split("\n")[1:-1]


def _write_beginning(changes: Changes, streams: Sequence[Stream]) -> list[str]:
    """Statements that put each thread at its place of each stream."""
    for name in ("%profkit_t", "%profkit_u", "%profkit_v"):
        changes.registers[name] = "b32"
    lines = list(_THREAD)
    for stream in streams:
        at = f"%profkit_s{stream.number}"
        changes.registers[at] = "b32"
        lines += [
            f"mul.lo.u32 {at}, %profkit_t, {stream.width};",
            f"ld.const.u32 %profkit_u, [{TABLE}+{_STREAM.size * stream.number}];",
            f"rem.u32 {at}, {at}, %profkit_u;",
        ]
    return lines


def _lead_access(
    changes: Changes, access: Access, stream: Stream, place: int, cached: bool
) -> None:
    """Let the table choose an access's address, and go on in the stream behind it.

    (original & stays) | (where in the stream + begin), with one of the two empty.
    """
    kernel = changes.module.kernels[access.kernel]
    at, entry = f"%profkit_s{stream.number}", _STREAM.size * stream.number
    new, length, step = "%profkit_x", "%profkit_l", "%profkit_d"
    stays, begin, kept = "%profkit_m", "%profkit_b", "%profkit_k"
    for name in (new, stays, begin, kept):
        changes.registers[name] = "b64"
    for name in (length, step):
        changes.registers[name] = "b32"
    lines = _put_base(kernel, access, kept)
    lines += [
        f"ld.const.u64 {stays}, [{TABLE}+{place}];",
        f"ld.const.u64 {begin}, [{TABLE}+{place + 8}];",
        f"cvt.u64.u32 {new}, {at};",
        f"and.b64 {kept}, {kept}, {stays};",
        f"add.s64 {new}, {new}, {begin};",
        f"add.s64 {new}, {new}, {kept};",
        f"ld.const.u32 {length}, [{TABLE}+{entry}];",
        f"ld.const.u32 {step}, [{TABLE}+{entry + 4}];",
        f"add.u32 {at}, {at}, {step};",
        f"sub.u32 {length}, {at}, {length};",
        f"min.u32 {at}, {at}, {length};",
    ]
    changes.put_before(access.statement, lines)
    changes.replace(access.statement, _move_access(access, new, cached))


_PAST_L1 = (".cg", ".cv", ".L1::no_allocate")


def passes_by_l1(access: Access) -> bool:
    """Whether a load goes past the L1 for no other reason than that it was told to."""
    words = access.statement.words
    return words[0] == "ld" and any(f".{word}" in _PAST_L1 for word in words)


def _put_base(kernel: Kernel, access: Access, register: str) -> list[str]:
    base = access.address.base
    if access.address.in_register and not kernel.is_wide(base):
        return [f"cvt.u64.u32 {register}, {base};"]
    return [f"mov.u64 {register}, {base};"]


def _move_access(access: Access, register: str, cached: bool = False) -> str:
    """The statement of an access with its base in another register."""
    statement, operands = access.statement, list(access.statement.operands)
    if cached and passes_by_l1(access):
        through = [word for word in statement.words if f".{word}" not in _PAST_L1]
        statement = replace(statement, opcode=".".join(through))
    offset = f"+{access.address.offset}" if access.address.offset else ""
    operands[access.address.operand] = f"[{register}{offset}]"
    return ptx.write_statement(statement, ptx.write_guard(statement), operands)


_NEW_ROW = "profkit_row"
_MASK = struct.Struct("<I")  # which bits of the original address stay: all or none
_LANES = 32


@dataclass(frozen=True)
class Row:
    """Accesses of one kernel and width that are sent to one row: each lane to its own place of it."""

    number: int
    kernel: str
    width: int
    accesses: tuple[int, ...]
    base: int  # what the address register of lane 0 holds; each access adds its own offset


def find_rows(
    accesses: Sequence[Access], survey: Survey, moved: Sequence[int], one_place: bool = False
) -> list[Row]:
    """Rows within what each of their accesses touched; accesses that touched too little have none."""
    open_rows: list[tuple[Access, list[int], int, int]] = []
    for number in moved:
        access, seen = accesses[number], survey.seen[number]
        length = access.width if one_place else _LANES * access.width
        lowest = seen.lowest - access.address.offset
        highest = seen.highest - length - access.address.offset
        if highest < lowest:
            continue
        for at, (first, members, low, high) in enumerate(open_rows):
            alike = first.kernel == access.kernel and first.width == access.width
            if alike and max(low, lowest) <= min(high, highest):
                open_rows[at] = (first, [*members, number], max(low, lowest), min(high, highest))
                break
        else:
            open_rows.append((access, [number], lowest, highest))
    rows: list[Row] = []
    for first, members, low, high in open_rows:
        aligned = -(-low // first.width) * first.width
        base = aligned if aligned <= high else low
        rows.append(Row(len(rows), first.kernel, first.width, tuple(members), base))
    return rows


def make_new_rows(accesses: Sequence[Access], moved: Sequence[int]) -> list[Row]:
    """Rows in memory of their own, one for each access."""
    rows: list[Row] = []
    for number in moved:
        access = accesses[number]
        base = -access.address.offset
        rows.append(Row(len(rows), access.kernel, access.width, (number,), base))
    return rows


def write_rows(
    module: Module,
    accesses: Sequence[Access],
    rows: Sequence[Row],
    new_memory: bool = False,
    one_place: bool = False,
) -> str:
    """The module with accesses that the table may send to their lanes' places.

    `new_memory`: rows begin in memory that is added. `one_place`: all lanes go to the same place,
    which is what constant memory likes.
    """
    changes = Changes(module)
    count = sum(len(row.accesses) for row in rows)
    if new_memory:
        changes.outside[f".shared .align 128 .b8 {_NEW_ROW}[512];"] = None
    changes.outside[f".visible .const .align 16 .b8 {TABLE}[{max(16, _MASK.size * count)}];"] = None
    for kernel in module.kernels.values():
        lines: list[str] = []
        for row in rows:
            if row.kernel == kernel.name:
                lines += _write_row(changes, row, new_memory, one_place)
        if lines:
            changes.begin(kernel, lines)
    place = 0
    for row in rows:
        for number in row.accesses:
            _lead_to_row(changes, accesses[number], row, place)
            place += _MASK.size
    return changes.write()


def _write_row(changes: Changes, row: Row, new_memory: bool, one_place: bool) -> list[str]:
    """Statements that put a lane's place of a row into a register."""
    register = f"%profkit_r{row.number}"
    changes.registers[register] = "b32"
    lane = "0" if one_place else "%laneid"
    begin = f"mov.u32 {register}, {lane};"
    lines = [begin, f"mad.lo.s32 {register}, {register}, {row.width}, {row.base};"]
    if new_memory:
        changes.registers["%profkit_n"] = "b32"
        lines.append(f"mov.u32 %profkit_n, {_NEW_ROW};")
        lines.append(f"add.s32 {register}, {register}, %profkit_n;")
    return lines


def _lead_to_row(changes: Changes, access: Access, row: Row, place: int) -> None:
    """Let the table choose between an access's address and its row: bit by bit, in one instruction."""
    kernel = changes.module.kernels[access.kernel]
    mask, new, old = "%profkit_m", "%profkit_x", "%profkit_k"
    for name in (mask, new, old):
        changes.registers[name] = "b32"
    base = access.address.base
    is_wide = access.address.in_register and kernel.is_wide(base)
    lines = [f"cvt.u32.u64 {old}, {base};" if is_wide else f"mov.u32 {old}, {base};"]
    lines.append(f"ld.const.u32 {mask}, [{TABLE}+{place}];")
    lines.append(f"lop3.b32 {new}, {old}, %profkit_r{row.number}, {mask}, {_CHOOSE};")
    if is_wide:
        changes.registers["%profkit_w"] = "b64"
        lines.append(f"cvt.u64.u32 %profkit_w, {new};")
        new = "%profkit_w"
    changes.put_before(access.statement, lines)
    changes.replace(access.statement, _move_access(access, new))


# The first operand where the third one's bit is set, the second where it is not.
_CHOOSE = (0xF0 & 0xAA) | (0xCC & ~0xAA)


def fill_rows(rows: Sequence[Row], on: set[int]) -> bytes:
    """The table that sends the accesses `on` to their rows."""
    parts = []
    for row in rows:
        for number in row.accesses:
            parts.append(_MASK.pack(0 if number in on else (1 << 32) - 1))
    return b"".join(parts) or bytes(16)
