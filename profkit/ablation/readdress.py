"""Accesses and where they shall go  ->  a module in which a table, read at run time, says whether they do.

One piece of machine code serves the original addresses and every other choice of them: with the table
empty it does what the kernel did, at the price of the instructions that choose, and with the table filled
the same instructions go elsewhere. So the two differ in nothing but in where memory is touched.

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


def find_streams(
    accesses: Sequence[Access], survey: Survey, least: int = ROW
) -> list[Stream]:
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
                low, high = min(low, seen.lowest), max(high, seen.highest)
                groups[at] = (first, [*members, access], low, high)
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


def fill_table(streams: Sequence[Stream], paths: Mapping[int, Path], on: set[int], accesses: Sequence[Access]) -> bytes:
    """The table that sends the accesses `on` along the paths of their streams; none: where they went."""
    parts = []
    for stream in streams:
        path = paths.get(stream.number)
        walked = path is not None and not on.isdisjoint(stream.accesses)
        parts.append(_STREAM.pack(path.length, path.step) if path and walked else _STREAM.pack(1, 0))
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
_SHARED = struct.Struct("<II")  # which bits of the original address stay, what is added instead


def write_rows(
    module: Module,
    accesses: Sequence[Access],
    moved: Sequence[int],
    new_row: bool = False,
    one_place: bool = False,
) -> str:
    """The module with accesses of shared memory that the table may send to their lanes' places.

    `new_row`: in memory of their own, for those that touch less than a row. `one_place`: all lanes to
    the same place, which is what constant memory likes.
    """
    changes = Changes(module)
    if new_row:
        changes.outside[f".shared .align 128 .b8 {_NEW_ROW}[512];"] = None
    changes.outside[
        f".visible .const .align 16 .b8 {TABLE}[{max(16, _SHARED.size * len(moved))}];"
    ] = None
    for kernel in module.kernels.values():
        if any(accesses[number].kernel == kernel.name for number in moved):
            changes.registers["%profkit_lane"] = "b32"
            lane = "0" if one_place else "%laneid"
            changes.begin(kernel, [f"mov.u32 %profkit_lane, {lane};"])
    for row, number in enumerate(moved):
        _lead_row(changes, accesses[number], _SHARED.size * row, new_row)
    return changes.write()


def _lead_row(changes: Changes, access: Access, place: int, new_row: bool) -> None:
    kernel = changes.module.kernels[access.kernel]
    stays, begin, new, old = "%profkit_m", "%profkit_b", "%profkit_x", "%profkit_k"
    for name in (stays, begin, new, old):
        changes.registers[name] = "b32"
    base = access.address.base
    if access.address.in_register and kernel.is_wide(base):
        lines = [f"cvt.u32.u64 {old}, {base};"]
    else:
        lines = [f"mov.u32 {old}, {base};"]
    lines += [
        f"ld.const.u32 {stays}, [{TABLE}+{place}];",
        *_put_begin(access, begin, place, new_row),
        f"shl.b32 {new}, %profkit_lane, {access.width.bit_length() - 1};",
        f"add.u32 {new}, {new}, {begin};",
        f"xor.b32 {old}, {old}, {new};",
        f"and.b32 {old}, {old}, {stays};",
        f"xor.b32 {new}, {old}, {new};",
    ]
    if access.address.in_register and kernel.is_wide(base):
        wide = "%profkit_w"
        changes.registers[wide] = "b64"
        lines.append(f"cvt.u64.u32 {wide}, {new};")
        new = wide
    changes.put_before(access.statement, lines)
    changes.replace(access.statement, _move_access(access, new))


def _put_begin(access: Access, register: str, place: int, new_row: bool) -> list[str]:
    """Statements that put where a row begins into a register; the statement adds its offset to it."""
    if not new_row:
        return [f"ld.const.u32 {register}, [{TABLE}+{place + 4}];"]
    offset = access.address.offset
    return [f"mov.u32 {register}, {_NEW_ROW};", f"add.s32 {register}, {register}, {-offset};"]


def fill_rows(
    accesses: Sequence[Access], survey: Survey, moved: Sequence[int], on: set[int]
) -> bytes:
    """The table that sends the accesses `on` to rows within what they touched."""
    parts = []
    for number in moved:
        if number in on:
            lowest = find_row(accesses[number], survey)
            begin = (lowest - accesses[number].address.offset) % (1 << 32)
            parts.append(_SHARED.pack(0, begin))
        else:
            parts.append(_SHARED.pack((1 << 32) - 1, 0))
    return b"".join(parts) or bytes(16)


def find_row(access: Access, survey: Survey) -> int:
    """Where the row of an access begins, at a bank 0 where there is room for that."""
    seen, row = survey.seen[access.number], 32 * access.width
    aligned = -(-seen.lowest // 128) * 128
    return aligned if aligned + row <= seen.highest else seen.lowest


def fits_row(access: Access, survey: Survey) -> bool:
    """Whether an access touched as much as a row needs: then the row is within it."""
    return survey.seen[access.number].bytes >= 32 * access.width
