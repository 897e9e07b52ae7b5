"""Accesses of shared or constant memory  ->  the change that sends each lane to its place of a row."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profkit.lab.ablation.accesses import PtxAccess
from profkit.lab.ablation.change import CodeChange, Refused, SurveyedCode, make_change_by_table
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
    from profkit.units import AccessNumber, ByteCount, PtxText, RegisterName


_NEW_ROW = "profkit_row"
_MASK = 4  # bytes: which bits of the original address stay, all or none
_LANES = 32


@dataclass(frozen=True)
class LaneRow:
    """Accesses of one kernel and width that are sent to one row: each lane to its own place of it."""

    accesses: tuple[PtxAccess, ...]
    width: int
    stride: int  # bytes from lane to lane: its width, or that of the access it is a part of
    base: int  # what the address register of lane 0 holds; each access adds its own offset
    new_memory: bool = False  # it begins in memory that is added
    one_place: bool = False  # all lanes go to the same place, which is what constant memory likes


def find_rows_within_touched_memory(
    accesses: Iterable[PtxAccess],
    survey: Survey,
    do_lanes_share_place: bool = False,
    stride_by_access: Mapping[AccessNumber, ByteCount] | None = None,
) -> list[LaneRow]:
    """Return rows within what each of their accesses touched.

    Accesses that touched too little have none.
    `stride_by_access`: of accesses that are made together with their neighbours.
    """
    spans = []
    for access in accesses:
        stride = (stride_by_access or {}).get(access.number, access.width)
        seen = survey.seen[access.number]
        length = _LANES * stride
        if do_lanes_share_place:
            length = access.width
        low = seen.lowest - access.address.offset
        last = seen.highest - length - access.address.offset
        if low <= last:
            spans.append(AddressSpan((access.kernel, access.width, stride), [access], low, last))
    rows = []
    for span in merge_spans(spans, is_common_part=True):
        width = span.accesses[0].width
        stride = int(span.kind[2])
        base = -(-span.low // stride) * stride  # a multiple of its stride, where there is room
        if base > span.last:
            base = span.low
        rows.append(
            LaneRow(tuple(span.accesses), width, stride, base, one_place=do_lanes_share_place)
        )
    return rows


def make_row_in_new_memory(access: PtxAccess) -> LaneRow:
    """Return a row of one access in memory of its own."""
    return LaneRow((access,), access.width, access.width, -access.address.offset, new_memory=True)


def list_accesses_of_rows(rows: Sequence[LaneRow]) -> list[PtxAccess]:
    return [access for row in rows for access in row.accesses]


def send_accesses_to_rows(
    code: SurveyedCode, rows: Sequence[LaneRow], changed_text: str, unchanged_text: str = ""
) -> CodeChange:
    """Send the accesses of the rows to their lanes' places."""
    led = list_accesses_of_rows(rows)
    if not led:
        raise Refused(
            "no-room",
            "the accesses touch fewer bytes than a row of all lanes takes",
            f"{_LANES} times the width of an access",
            "look at the line: so small an array is read by few lanes",
        )
    # Access -> its place in the table: one for all of a row, a line and a register. They are chosen
    # for together, so the choice is made once, where an assembler can see that.
    places: dict[tuple[int, str, str], int] = {}
    of_accesses = {}
    for number, row in enumerate(rows):
        for access in row.accesses:
            alike = (number, code.write_source_line_label(access), access.address.base)
            of_accesses[access.number] = places.setdefault(alike, len(places))

    def fill_table(numbers: set[AccessNumber]) -> bytes:
        masks = [ALL_BITS] * len(places)
        for number in numbers:
            masks[of_accesses[number]] = 0
        return struct.pack(f"<{len(masks)}I", *masks)

    text = _write_module_with_rows(code, rows, of_accesses)
    return make_change_by_table(code, text, led, fill_table, changed_text, unchanged_text)


def _write_module_with_rows(
    code: SurveyedCode, rows: Sequence[LaneRow], places: Mapping[AccessNumber, int]
) -> PtxText:
    """Return the module with accesses that the table may send to their lanes' places."""
    changes = PtxEdits(code.module)
    if rows[0].new_memory:
        changes.outside[f".shared .align 128 .b8 {_NEW_ROW}[512];"] = None
    add_control_table(changes, _MASK * (1 + max(places.values())))
    for number, row in enumerate(rows):
        _add_row_register(changes, row, f"%profkit_r{number}")
    for number, row in enumerate(rows):
        for access in row.accesses:
            place = _MASK * places[access.number]
            _make_row_address_switchable(changes, access, row.stride, f"%profkit_r{number}", place)
    return changes.write_edited_module()


def _add_row_register(changes: PtxEdits, row: LaneRow, register: RegisterName) -> None:
    """Put a lane's place of a row into a register, where the row's kernel begins."""
    changes.add_registers("b32", register)
    lane = "%laneid"
    if row.one_place:
        lane = "0"
    lines = f"mov.u32 {register}, {lane};\n"
    lines += f"mad.lo.s32 {register}, {register}, {row.stride}, {row.base};"
    if row.new_memory:
        changes.add_registers("b32", "%profkit_n")
        lines += f"\nmov.u32 %profkit_n, {_NEW_ROW};\nadd.s32 {register}, {register}, %profkit_n;"
    changes.insert_before(changes.module.kernels[row.accesses[0].kernel].statements[0], lines)


def _make_row_address_switchable(
    changes: PtxEdits, access: PtxAccess, stride: int, register: RegisterName, place: int
) -> None:
    """Let the table choose between an access's address and its row: bit by bit, in one instruction."""
    changes.add_registers("b32", "%profkit_m", "%profkit_x", "%profkit_k")
    base = access.address.base
    new = "%profkit_x"
    is_wide = access.address.in_register and changes.module.kernels[
        access.kernel
    ].is_64_bit_register(base)
    take = "mov.u32"
    if is_wide:
        take = "cvt.u32.u64"
    lines = f"""{take} %profkit_k, {base};
ld.const.u32 %profkit_m, [{TABLE}+{place}];
lop3.b32 {new}, %profkit_k, {register}, %profkit_m, {CHOOSE};"""
    if stride > access.width:  # this tells the assembler that neighbours are one wide access
        lines += f"\nand.b32 {new}, {new}, {-stride};"
    if is_wide:
        changes.add_registers("b64", "%profkit_w")
        lines += f"\ncvt.u64.u32 %profkit_w, {new};"
        new = "%profkit_w"
    changes.insert_before(access.statement, lines)
    replace_base_register(changes, access, new)
