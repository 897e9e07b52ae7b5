"""Accesses of shared or constant memory  ->  the change that sends each lane to its place of a row."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from profkit.lab.ablation.accesses import PtxAccess
from profkit.lab.ablation.change import CodeChange, Refused, SurveyedCode, make_line_tables
from profkit.lab.ablation.ptx import PtxEdits
from profkit.lab.ablation.readdress import (
    TABLE,
    AddressSpan,
    add_table,
    merge_spans,
    replace_base_register,
)
from profkit.lab.ablation.survey import Survey

_NEW_ROW = "profkit_row"
_MASK = 4  # bytes: which bits of the original address stay, all or none
_ALL = (1 << 32) - 1
_LANES = 32


@dataclass(frozen=True)
class LaneRow:
    """Accesses of one kernel and width that are sent to one row: each lane to its own place of it."""

    number: int
    kernel: str
    width: int
    accesses: tuple[PtxAccess, ...]
    base: int  # what the address register of lane 0 holds; each access adds its own offset
    stride: int  # bytes from lane to lane: its width, or that of the access it is a part of


def find_rows(
    accesses: Iterable[PtxAccess],
    survey: Survey,
    one_place: bool = False,
    strides: Mapping[int, int] | None = None,
) -> list[LaneRow]:
    """Rows within what each of their accesses touched; accesses that touched too little have none.

    `strides`: of accesses that are made together with their neighbours.
    """
    spans = []
    for access in accesses:
        stride = (strides or {}).get(access.number, access.width)
        seen, kind = survey.seen[access.number], (access.kernel, access.width, stride)
        if one_place:
            length = access.width
        else:
            length = _LANES * stride
        low = seen.lowest - access.address.offset
        last = seen.highest - length - access.address.offset
        if low <= last:
            spans.append(AddressSpan(kind, [access], low, last))
    return [_make_row(number, span) for number, span in enumerate(merge_spans(spans, narrow=True))]


def _make_row(number: int, span: AddressSpan) -> LaneRow:
    """A row that begins at a multiple of its stride, where there is room."""
    first, stride = span.accesses[0], int(span.kind[2])
    base = -(-span.low // stride) * stride
    if base > span.last:
        base = span.low
    return LaneRow(number, first.kernel, first.width, tuple(span.accesses), base, stride)


def make_new_rows(accesses: Iterable[PtxAccess]) -> list[LaneRow]:
    """Rows in memory of their own, one for each access."""
    rows: list[LaneRow] = []
    for access in accesses:
        base = -access.address.offset
        rows.append(LaneRow(len(rows), access.kernel, access.width, (access,), base, access.width))
    return rows


def list_accesses_of_rows(rows: Sequence[LaneRow]) -> list[PtxAccess]:
    accesses = []
    for row in rows:
        for access in row.accesses:
            accesses.append(access)
    return accesses


def send_accesses_to_rows(
    code: SurveyedCode,
    rows: Sequence[LaneRow],
    changed: str,
    kept: str = "",
    new_memory: bool = False,
    one_place: bool = False,
) -> CodeChange:
    """Send the accesses of the rows to their lanes' places.

    `new_memory`: rows begin in memory that is added. `one_place`: all lanes go to the same place,
    which is what constant memory likes.
    """
    led = list_accesses_of_rows(rows)
    if not led:
        raise Refused(
            "no-room",
            "the accesses touch fewer bytes than a row of all lanes takes",
            f"{_LANES} times the width of an access",
            "look at the line: so small an array is read by few lanes",
        )

    places = _assign_table_places(code, rows)

    def fill_rows(numbers: set[int]) -> bytes:
        return _fill_table(places, numbers)

    return CodeChange(
        text=_write_module_with_rows(code, rows, places, new_memory, one_place),
        table=fill_rows({access.number for access in led}),
        control=fill_rows(set()),
        changed=changed,
        kept=kept,
        lines=make_line_tables(code, led, fill_rows),
    )


def _assign_table_places(code: SurveyedCode, rows: Sequence[LaneRow]) -> dict[int, int]:
    """Access -> its place in the table: one for all of a row, a line and a register.

    They are chosen for together, so the choice is made once, where an assembler can see that.
    """
    places: dict[tuple[int, str, str], int] = {}
    of_accesses = {}
    for row in rows:
        for access in row.accesses:
            alike = (row.number, code.name_source_line(access), access.address.base)
            of_accesses[access.number] = places.setdefault(alike, _MASK * len(places))
    return of_accesses


def _fill_table(places: Mapping[int, int], on: set[int]) -> bytes:
    masks = [_ALL] * (1 + max(places.values()) // _MASK)
    for number in on:
        masks[places[number] // _MASK] = 0
    return struct.pack(f"<{len(masks)}I", *masks)


def _write_module_with_rows(
    code: SurveyedCode,
    rows: Sequence[LaneRow],
    places: Mapping[int, int],
    new_memory: bool,
    one_place: bool,
) -> str:
    """The module with accesses that the table may send to their lanes' places."""
    changes = PtxEdits(code.module)
    if new_memory:
        changes.outside[f".shared .align 128 .b8 {_NEW_ROW}[512];"] = None
    add_table(changes, _MASK + max(places.values()))
    for kernel in code.module.kernels.values():
        lines: list[str] = []
        for row in rows:
            if row.kernel == kernel.name:
                lines += _write_row_address(changes, row, new_memory, one_place)
        if lines:
            changes.insert_at_beginning(kernel, lines)
    for row in rows:
        for access in row.accesses:
            _move_access(changes, access, row, places[access.number])
    return changes.write_edited_module()


def _write_row_address(
    changes: PtxEdits, row: LaneRow, new_memory: bool, one_place: bool
) -> list[str]:
    """Statements that put a lane's place of a row into a register."""
    register = f"%profkit_r{row.number}"
    changes.add_registers("b32", register)
    if one_place:
        lane = "0"
    else:
        lane = "%laneid"
    begin = f"mov.u32 {register}, {lane};"
    lines = [begin, f"mad.lo.s32 {register}, {register}, {row.stride}, {row.base};"]
    if new_memory:
        changes.add_registers("b32", "%profkit_n")
        lines.append(f"mov.u32 %profkit_n, {_NEW_ROW};")
        lines.append(f"add.s32 {register}, {register}, %profkit_n;")
    return lines


# The first operand where the third one's bit is set, the second where it is not.
_CHOOSE = (0xF0 & 0xAA) | (0xCC & ~0xAA)


def _move_access(changes: PtxEdits, access: PtxAccess, row: LaneRow, place: int) -> None:
    """Let the table choose between an access's address and its row: bit by bit, in one instruction."""
    changes.add_registers("b32", "%profkit_m", "%profkit_x", "%profkit_k")
    base, new = access.address.base, "%profkit_x"
    kernel = changes.module.kernels[access.kernel]
    is_wide = access.address.in_register and kernel.is_wide(base)
    if is_wide:
        take = "cvt.u32.u64"
    else:
        take = "mov.u32"
    lines = [
        f"{take} %profkit_k, {base};",
        f"ld.const.u32 %profkit_m, [{TABLE}+{place}];",
        f"lop3.b32 {new}, %profkit_k, %profkit_r{row.number}, %profkit_m, {_CHOOSE};",
    ]
    if row.stride > access.width:  # this tells the assembler that neighbours are one wide access
        lines.append(f"and.b32 {new}, {new}, {-row.stride};")
    if is_wide:
        changes.add_registers("b64", "%profkit_w")
        lines.append(f"cvt.u64.u32 %profkit_w, {new};")
        new = "%profkit_w"
    changes.insert_before(access.statement, lines)
    replace_base_register(changes, access, new)
