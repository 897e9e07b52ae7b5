"""Accesses of global memory  ->  the change that sends some of them along shorter or straighter streams.

A stream is of all threads in order, each the next bytes, one width after the other, again from the
beginning when it has ended. It lies within what the same accesses touched anyway. Coalesced, L1 and L2
are one rewritten text with three tables.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from profkit.lab.ablation.accesses import Access
from profkit.lab.ablation.change import GLOBAL, Change, Code, make_line_tables
from profkit.lab.ablation.ptx import Changes
from profkit.lab.ablation.readdress import (
    TABLE,
    Span,
    add_table,
    merge_spans,
    replace_base_register,
)
from profkit.lab.ablation.survey import Survey

ROW = 512  # bytes of a warp's widest access: a stream is whole rows
_STREAM = struct.Struct("<II")  # length, step
_ACCESS = struct.Struct("<QQ")  # which bits of the original address stay, what is added instead
_KEEP = (1 << 64) - 1
_LONGEST = (1 << 32) - ROW
_GOLDEN = 0.6180339887  # of a length: steps that come back to no place soon


@dataclass(frozen=True)
class Stream:
    """Accesses of one kernel that go through the same bytes with the same width."""

    number: int
    kernel: str
    width: int
    accesses: tuple[Access, ...]
    base: int  # the first byte: a whole line
    length: int  # whole rows


@dataclass(frozen=True)
class Path:
    """How a stream is walked through: from where, how far, and in steps of how many bytes."""

    base: int
    length: int
    step: int
    cached: bool = False  # loads that pass by the L1 are made through it


Walk = Callable[[Stream], Path]
Paths = Mapping[int, Path]


def list_movable_accesses(code: Code) -> list[Access]:
    """Loads of global memory that decide nothing, and stores that nothing which decides reads."""
    movable = []
    for access in code.accesses:
        if access.why_unmovable or access.number not in code.anchored:
            continue
        if access.kind == "load" and not access.steers:
            movable.append(access)
        scattered = access.kind == "store" and code.is_scattered(access)
        if scattered and not code.is_read_to_steer(access):
            movable.append(access)
    return movable


def list_streamed(code: Code) -> list[Stream]:
    return find_streams(list_movable_accesses(code), code.survey)


def find_streams(accesses: Sequence[Access], survey: Survey, least: int = ROW) -> list[Stream]:
    """Group accesses of global memory by the bytes that they touch, `least` bytes or more."""
    spans = []
    for access in accesses:
        seen = survey.seen[access.number]
        if seen.requests:
            kind = (access.kernel, access.kind, access.width)
            spans.append(Span(kind, [access], seen.lowest, seen.highest - 1))
    streams: list[Stream] = []
    for span in merge_spans(spans, narrow=False):
        first = span.accesses[0]
        base = -(-span.low // ROW) * ROW
        length = min((span.last + 1 - base) // ROW * ROW, _LONGEST)
        if length >= least:
            accesses = tuple(span.accesses)
            streams.append(Stream(len(streams), first.kernel, first.width, accesses, base, length))
    return streams


def list_access_numbers(streams: Sequence[Stream]) -> set[int]:
    """The numbers of the accesses that have a stream."""
    numbers = set()
    for stream in streams:
        for access in stream.accesses:
            numbers.add(access.number)
    return numbers


def redirect_to_streams(
    code: Code,
    streams: Sequence[Stream],
    on: Sequence[Access],
    walk: Walk,
    changed: str,
    kept: str = "",
) -> Change:
    """Send the accesses `on` along their streams as `walk` says."""
    paths = {stream.number: walk(stream) for stream in streams}

    def fill_streams(numbers: set[int]) -> bytes:
        return _fill_table(streams, paths, numbers)

    return Change(
        text=_write_streams(code, streams, any(path.cached for path in paths.values())),
        table=fill_streams({access.number for access in on}),
        control=fill_streams(set()),
        changed=changed,
        kept=kept,
        lines=make_line_tables(code, on, fill_streams),
    )


def _fill_table(streams: Sequence[Stream], paths: Paths, on: set[int]) -> bytes:
    """The table that sends the accesses `on` along the paths of their streams."""
    of_streams, of_accesses = b"", b""
    for stream in streams:
        path, length, step = paths[stream.number], 1, 0
        for access in stream.accesses:
            stays, begin = _KEEP, 0
            if access.number in on:
                stays, begin = 0, (path.base - access.address.offset) % (1 << 64)
                length, step = path.length, path.step
            of_accesses += _ACCESS.pack(stays, begin)
        of_streams += _STREAM.pack(length, step)
    return of_streams + of_accesses


def _write_streams(code: Code, streams: Sequence[Stream], cached: bool) -> str:
    """The module with the accesses of the streams led by the table."""
    changes = Changes(code.module)
    place = _STREAM.size * len(streams)
    size = place + _ACCESS.size * sum(len(stream.accesses) for stream in streams)
    add_table(changes, size)
    for name, kernel in code.module.kernels.items():
        own = [stream for stream in streams if stream.kernel == name]
        if own:
            changes.insert_at_beginning(kernel, _write_beginning(changes, own))
    for stream in streams:
        for access in stream.accesses:
            _move_access(changes, access, stream, place, cached)
            place += _ACCESS.size
    return changes.write_module()


# The number of a thread in the whole grid, in %profkit_t.
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
"""
# Where a thread begins in a stream.
_BEGIN = """
mul.lo.u32 {at}, %profkit_t, {width};
ld.const.u32 %profkit_u, [{table}+{entry}];
rem.u32 {at}, {at}, %profkit_u;
"""
_AND_NOT = 0xF0 & ~0xCC  # for lop3: the first operand's bits that the second one has not
# The table chooses an access's address, and it is gone on in the stream behind it:
# (original & stays) + (where in the stream & ~stays) + begin, with the first or the others empty.
# Of a stream, some accesses may stay while others are led.
_LEAD = """
ld.const.u64 %profkit_m, [{table}+{place}];
ld.const.u64 %profkit_b, [{table}+{begin}];
cvt.u32.u64 %profkit_e, %profkit_m;
lop3.b32 %profkit_e, {at}, %profkit_e, 0, {and_not};
cvt.u64.u32 %profkit_x, %profkit_e;
and.b64 %profkit_k, %profkit_k, %profkit_m;
add.s64 %profkit_x, %profkit_x, %profkit_b;
add.s64 %profkit_x, %profkit_x, %profkit_k;
ld.const.u32 %profkit_l, [{table}+{entry}];
ld.const.u32 %profkit_d, [{table}+{step}];
add.u32 {at}, {at}, %profkit_d;
sub.u32 %profkit_l, {at}, %profkit_l;
min.u32 {at}, {at}, %profkit_l;
"""


def _write_beginning(changes: Changes, streams: Sequence[Stream]) -> list[str]:
    """Statements that put each thread at its place of each stream."""
    changes.add_registers("b32", "%profkit_t", "%profkit_u", "%profkit_v")
    text = _THREAD.strip()
    for stream in streams:
        at, entry = f"%profkit_s{stream.number}", _STREAM.size * stream.number
        changes.add_registers("b32", at)
        text += _BEGIN.rstrip().format(at=at, width=stream.width, table=TABLE, entry=entry)
    return text.split("\n")


def _move_access(
    changes: Changes, access: Access, stream: Stream, place: int, cached: bool
) -> None:
    changes.add_registers("b64", "%profkit_x", "%profkit_m", "%profkit_b", "%profkit_k")
    changes.add_registers("b32", "%profkit_l", "%profkit_d", "%profkit_e")
    base, is_narrow = access.address.base, False
    if access.address.in_register:
        is_narrow = not changes.module.kernels[access.kernel].is_wide(base)
    if is_narrow:
        take = "cvt.u64.u32"
    else:
        take = "mov.u64"
    entry = _STREAM.size * stream.number
    lines = _LEAD.format(
        at=f"%profkit_s{stream.number}",
        and_not=_AND_NOT,
        table=TABLE,
        place=place,
        begin=place + 8,
        entry=entry,
        step=entry + 4,
    )
    lines = f"{take} %profkit_k, {base};{lines.rstrip()}"
    changes.insert_before(access.statement, lines.split("\n"))
    replace_base_register(changes, access, "%profkit_x", cached)


def make_full_walk(code: Code) -> Walk:
    """In order through everything that was touched."""

    def walk_whole(stream: Stream) -> Path:
        step = code.threads[stream.kernel] * stream.width % stream.length // ROW * ROW
        return Path(stream.base, stream.length, step or choose_walk_stride(stream.length))

    return walk_whole


def make_window_walk(size: int, cached: bool = False) -> Walk:
    """Back and forth in the first bytes of a stream: `size` of them, whole rows."""

    def walk_within(stream: Stream) -> Path:
        length = max(ROW, min(size, stream.length) // ROW * ROW)
        return Path(stream.base, length, choose_walk_stride(length), cached)

    return walk_within


def choose_walk_stride(length: int) -> int:
    """A step, in whole rows, that comes back to the same bytes late."""
    return int(length * _GOLDEN) // ROW * ROW


def say_unmoved_loads(code: Code) -> str:
    """How many loads of global memory stay where they are, and why."""
    steering = unmovable = apart = 0
    for access in code.list_executed(GLOBAL, ("load",)):
        if access.steers:
            steering += 1
        elif access.why_unmovable:
            unmovable += 1
        elif access.number not in code.anchored:
            apart += 1
    words = []
    if steering:
        words.append(f"{steering} that decide a branch or an address stay")
    if unmovable:
        words.append(f"{unmovable} whose place the hardware decides stay")
    if apart:
        words.append(f"{apart} that go through several allocations stay")
    return ", ".join(words)
