"""Accesses of global memory  ->  the change that sends some of them along shorter or straighter streams.

A stream is of all threads in order, each the next bytes, one width after the other, again from the
beginning when it has ended. It lies within what the same accesses touched anyway. Accesses of one basic
block go on together: what chooses their places is then done once, and hides less of what they cost.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from profkit.lab.ablation.accesses import PtxAccess
from profkit.lab.ablation.change import (
    GLOBAL,
    CodeChange,
    SurveyedCode,
    make_change_by_table,
    say_unchanged,
)
from profkit.lab.ablation.ptx import PtxEdits
from profkit.lab.ablation.readdress import (
    ALL_BITS,
    CHOOSE,
    TABLE,
    AddressSpan,
    add_control_table,
    merge_spans,
    replace_base_register,
)
from profkit.lab.ablation.survey import Survey

if TYPE_CHECKING:
    from profkit.units import AccessNumber, ByteCount, ClauseOrEmpty, PtxText


ROW = 512  # bytes of a warp's widest access: a stream is whole rows
_LONGEST = (1 << 32) - ROW
_GOLDEN = 0.6180339887  # of a length: steps that come back to no place soon
_WORD, _ADDED = 4, 8  # bytes of the table: a word, an address


@dataclass(frozen=True)
class AccessStream:
    """Accesses of one kernel that go through the same bytes with the same width."""

    kernel: str
    width: int
    accesses: tuple[PtxAccess, ...]
    base: int  # the first byte: a whole line
    length: int  # whole rows


@dataclass(frozen=True)
class AddressPath:
    """How a stream is walked through: from where, how far, and in steps of how many bytes."""

    base: int
    length: int
    step: int
    cached: bool = False  # loads that pass by the L1 are made through it


Walk = Callable[[AccessStream], AddressPath]


def find_streams_steering_nothing(code: SurveyedCode) -> list[AccessStream]:
    """Streams of loads of global memory that decide nothing, and of scattered stores like that."""
    movable = []
    for access in code.accesses:
        has_cause = access.kind == "load" or (access.kind == "store" and code.is_scattered(access))
        if (
            has_cause
            and access.number in code.anchored
            and code.can_be_moved_without_effect(access)
        ):
            movable.append(access)
    return group_accesses_into_streams(movable, code.survey)


def group_accesses_into_streams(
    accesses: Sequence[PtxAccess], survey: Survey, least_bytes: ByteCount = ROW
) -> list[AccessStream]:
    """Group accesses of global memory by the bytes that they touch, `least_bytes` bytes or more."""
    spans = []
    for access in accesses:
        seen = survey.seen[access.number]
        if seen.requests:
            kind = (access.kernel, access.kind, access.width)
            spans.append(AddressSpan(kind, [access], seen.lowest, seen.highest - 1))
    streams = []
    for span in merge_spans(spans, is_common_part=False):
        first = span.accesses[0]
        base = -(-span.low // ROW) * ROW
        length = min((span.last + 1 - base) // ROW * ROW, _LONGEST)
        if length >= least_bytes:
            accesses = tuple(span.accesses)
            streams.append(AccessStream(first.kernel, first.width, accesses, base, length))
    return streams


def list_access_numbers(streams: Sequence[AccessStream]) -> set[AccessNumber]:
    """Return the numbers of the accesses that have a stream."""
    numbers: set[int] = set()
    for stream in streams:
        numbers.update(access.number for access in stream.accesses)
    return numbers


@dataclass(frozen=True)
class Walked:
    """A stream and the way through it.

    Its accesses in one basic block take a turn: they lie a gap apart, from a place in the first bytes of
    the stream on, its room; and from turn to turn that place goes on by a step.
    """

    stream: AccessStream
    path: AddressPath
    places: dict[int, int]  # access -> bytes from where its turn begins
    room: int
    step: int


def assign_places_within_path(stream: AccessStream, path: AddressPath) -> Walked:
    """Place the accesses of each basic block so far from one another that all stay within the path."""
    turns = Counter(access.statement.block for access in stream.accesses)
    most = max(turns.values())
    gap = path.step
    if (most - 1) * gap > path.length - ROW:  # the last of a turn would be behind the end
        gap = path.length // 2 // most // ROW * ROW
    places = {}
    before: Counter[int] = Counter()
    for access in stream.accesses:
        places[access.number] = gap * before[access.statement.block]
        before[access.statement.block] += 1
    room = path.length - (most - 1) * gap
    step = most * path.step % room // ROW * ROW
    return Walked(stream, path, places, room, step or choose_walk_stride(room))


def redirect_to_streams(
    code: SurveyedCode,
    streams: Sequence[AccessStream],
    accesses_to_redirect: Sequence[PtxAccess],
    walk: Walk,
    changed_text: str,
    unchanged_text: str = "",
) -> CodeChange:
    """Send some accesses along their streams as `walk` says; the others are not touched."""
    walked = []
    for stream in streams:
        accesses = tuple(access for access in stream.accesses if access in accesses_to_redirect)
        if accesses:
            walked.append(
                assign_places_within_path(replace(stream, accesses=accesses), walk(stream))
            )
    lines: dict[str, int] = {}
    for access in accesses_to_redirect:
        lines.setdefault(code.write_source_line_label(access), len(lines))

    def fill_table(numbers: set[AccessNumber]) -> bytes:
        return _pack_stream_table(code, walked, lines, numbers)

    text = _write_module_with_streams(code, walked, lines)
    return make_change_by_table(
        code, text, accesses_to_redirect, fill_table, changed_text, unchanged_text
    )


def _pack_stream_table(
    code: SurveyedCode,
    walked: Sequence[Walked],
    row_by_source_line: Mapping[str, int],
    numbers: set[AccessNumber],
) -> bytes:
    """Return the table that sends the accesses `numbers` along their streams, and leaves the others.

    It has whether each line stays, and what is added for each access.
    """
    stays = [ALL_BITS] * len(row_by_source_line) + [0] * (len(row_by_source_line) % 2)
    added = []
    for one in walked:
        for access in one.stream.accesses:
            begin = 0
            if access.number in numbers:
                stays[row_by_source_line[code.write_source_line_label(access)]] = 0
                begin = one.path.base + one.places[access.number] - access.address.offset
            added.append(begin % (1 << 64))
    return struct.pack(f"<{len(stays)}I{len(added)}Q", *stays, *added)


def _write_module_with_streams(
    code: SurveyedCode, walked: Sequence[Walked], row_by_source_line: Mapping[str, int]
) -> PtxText:
    """Return the module with the accesses of the streams led by the table."""
    changes = PtxEdits(code.module)
    changes.add_registers("b64", "%profkit_x", "%profkit_b")
    changes.add_registers("b32", *(f"%profkit_{name}" for name in "tuvlekm"))
    added = _WORD * (len(row_by_source_line) + len(row_by_source_line) % 2)
    _write_start_addresses_of_threads(changes, walked)
    for number, one in enumerate(walked):
        begun = set()
        for access in one.stream.accesses:
            line = _WORD * row_by_source_line[code.write_source_line_label(access)]
            words = _name_stream_register_and_words(number, one) | {
                "stays": str(line),
                "added": str(added),
            }
            is_first = access.statement.block not in begun
            _make_stream_address_switchable(changes, access, words, is_first, one.path.cached)
            begun.add(access.statement.block)
            added += _ADDED
    add_control_table(changes, added)
    return changes.write_edited_module()


def _write_start_addresses_of_threads(changes: PtxEdits, walked: Sequence[Walked]) -> None:
    """Put each thread at its place of each stream of its kernel."""
    numbered: set[str] = set()  # kernels whose threads are
    for number, one in enumerate(walked):
        kernel = changes.module.kernels[one.stream.kernel]
        if kernel.name not in numbered:
            changes.insert_before(kernel.statements[0], _THREAD)
        numbered.add(kernel.name)
        changes.add_registers("b32", f"%profkit_s{number}")
        words = _name_stream_register_and_words(number, one)
        changes.insert_before(kernel.statements[0], _BEGIN.format(**words))


def _name_stream_register_and_words(number: int, walked_stream: Walked) -> dict[str, str]:
    """Return the register of a stream, and the numbers of its walk."""
    return {
        "at": f"%profkit_s{number}",
        "table": TABLE,
        "choose": str(CHOOSE),
        "width": str(walked_stream.stream.width),
        "room": str(walked_stream.room),
        "step": str(walked_stream.step),
    }


# The number of a thread in the whole grid, in %profkit_t.
_THREAD = """mov.u32 %profkit_t, %ctaid.z;
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
mad.lo.u32 %profkit_t, %profkit_t, %profkit_u, %profkit_v;"""
# Where a thread begins in a stream.
_BEGIN = """mul.lo.u32 {at}, %profkit_t, {width};
rem.u32 {at}, {at}, {room};"""
# Where its next turn begins.
_NEXT_TURN = """
add.u32 {at}, {at}, {step};
sub.u32 %profkit_l, {at}, {room};
min.u32 {at}, {at}, %profkit_l;
"""
# An access goes to its address where all bits of %profkit_m are set, and else to the turn's place; to
# either something is added. The same choice is made once for accesses from one register.
_LEAD = """mov.b64 {{%profkit_e, %profkit_k}}, %profkit_x;
ld.const.u32 %profkit_m, [{table}+{stays}];
lop3.b32 %profkit_e, %profkit_e, {at}, %profkit_m, {choose};
and.b32 %profkit_k, %profkit_k, %profkit_m;
mov.b64 %profkit_x, {{%profkit_e, %profkit_k}};
ld.const.u64 %profkit_b, [{table}+{added}];
add.s64 %profkit_x, %profkit_x, %profkit_b;"""


def _make_stream_address_switchable(
    changes: PtxEdits, access: PtxAccess, words: Mapping[str, str], is_first: bool, cached: bool
) -> None:
    """Let the table choose between an access's address and its place; `is_first` of its turn."""
    base = access.address.base
    take = "mov.u64"
    if access.address.in_register and not changes.module.kernels[access.kernel].is_64_bit_register(
        base
    ):
        take = "cvt.u64.u32"
    text = f"{take} %profkit_x, {base};\n{_LEAD}"
    if is_first:
        text = _NEXT_TURN + text
    changes.insert_before(access.statement, text.format(**words))
    replace_base_register(changes, access, "%profkit_x", cached)


def make_full_walk(code: SurveyedCode) -> Walk:
    """Return a walk in order through everything that was touched."""

    def walk_whole(stream: AccessStream) -> AddressPath:
        step = code.threads[stream.kernel] * stream.width % stream.length // ROW * ROW
        return AddressPath(stream.base, stream.length, step or choose_walk_stride(stream.length))

    return walk_whole


def make_window_walk(size_bytes: ByteCount, cached: bool = False) -> Walk:
    """Return a walk back and forth in the first `size_bytes` bytes of a stream, whole rows."""

    def walk_within(stream: AccessStream) -> AddressPath:
        length = max(ROW, min(size_bytes, stream.length) // ROW * ROW)
        return AddressPath(stream.base, length, choose_walk_stride(length), cached)

    return walk_within


def choose_walk_stride(length_bytes: ByteCount) -> ByteCount:
    """Return a step, in whole rows, that comes back to the same bytes late."""
    return int(length_bytes * _GOLDEN) // ROW * ROW


def say_unmoved_loads(code: SurveyedCode) -> ClauseOrEmpty:
    """Say how many loads of global memory stay where they are, and why."""
    counted: Counter[str] = Counter()
    for access in code.list_executed_accesses(GLOBAL, ("load",)):
        if access.steers:
            counted["that decide a branch or an address"] += 1
        elif access.why_unmovable:
            counted["whose place the hardware decides"] += 1
        elif access.number not in code.anchored:
            counted["that go through several allocations"] += 1
    return ", ".join(say_unchanged(counted[why], why) for why in sorted(counted))
