"""Accesses of shared memory  ->  which of them the assembler makes one wide access of, and how wide.

It does so where several in a row begin at a multiple of their bytes together, and where it can tell. An
address that a table chooses has to say that it is such a multiple, or each access is made alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from profkit.lab.ablation.accesses import PtxAccess
from profkit.lab.ablation.ptx import PtxKernel, PtxModule, PtxStatement
from profkit.lab.ablation.survey import Survey

if TYPE_CHECKING:
    from profkit.units import AccessNumber, ByteCount, ByteOffset, RegisterName


_WIDEST = 16  # bytes that a thread accesses at once
# An access with one of these words is made alone: other threads may see each of them.
_ALONE = frozenset("volatile relaxed acquire release mmio".split())


def find_widths_with_neighbours(
    module: PtxModule, accesses: Iterable[PtxAccess], survey: Survey
) -> dict[AccessNumber, ByteCount]:
    """Return access -> the bytes that it and its neighbours access at once, where it has any."""
    multiples = {
        name: find_alignments_of_offsets(kernel) for name, kernel in module.kernels.items()
    }
    groups: dict[tuple[str | int, ...], list[PtxAccess]] = {}
    for access in accesses:
        if not _ALONE.isdisjoint(access.statement.words):
            continue
        place = (access.kernel, access.statement.block, access.address.base)
        groups.setdefault((*place, access.kind, access.width), []).append(access)
    strides = {}
    for group in groups.values():
        offsets = {access.address.offset for access in group}
        for access in group:
            base = survey.seen[access.number].lowest - access.address.offset
            most = multiples[access.kernel].get(access.address.base, 1)
            # Of the variable that a register points into, what was seen says where it begins.
            most = min(most, _find_largest_power_of_two_divisor(base))
            stride = _find_width_with_neighbours(access, offsets, most)
            if stride > access.width:
                strides[access.number] = stride
    return strides


def _find_width_with_neighbours(
    access: PtxAccess, offsets: set[ByteOffset], most: ByteCount
) -> ByteCount:
    """Return the widest of the access alone and of it with those that fill a whole wider one."""
    stride = access.width
    while 2 * stride <= most:
        first = access.address.offset // (2 * stride) * 2 * stride
        if not offsets.issuperset(range(first, first + 2 * stride, access.width)):
            break
        stride *= 2
    return stride


def find_alignments_of_offsets(kernel: PtxKernel) -> dict[RegisterName, ByteCount]:
    """Register -> a power of two that it is a multiple of, but for where variables begin."""
    known: dict[str, int] = {}
    for statement in kernel.statements:
        to = statement.operands[0] if statement.operands else ""
        if kernel.writes[to] == 1 and not statement.guard:
            known[to] = _find_alignment_of_result(statement, known)
    return known


def _find_alignment_of_result(
    statement: PtxStatement, alignments: dict[RegisterName, ByteCount]
) -> ByteCount:
    words = statement.words
    operands = statement.operands[1:]
    given = [_find_alignment_of_operand(operand, alignments) for operand in operands]
    if words[0] in ("mov", "cvt", "cvta"):
        return given[0]
    if words[0] in ("add", "sub", "or"):
        return min(given)
    if words[0] == "and":
        return max(given)
    if words[0] == "shl" and operands[1].isdigit():
        return min(_WIDEST, given[0] << min(int(operands[1]), 8))
    if words[0] in ("mul", "mad") and "hi" not in words:
        return min(_WIDEST, given[0] * given[1], *given[2:])
    return 1


def _find_alignment_of_operand(
    operand: str, alignments: dict[RegisterName, ByteCount]
) -> ByteCount:
    if operand.lstrip("-").isdigit():
        return _find_largest_power_of_two_divisor(int(operand))
    if operand.startswith("%"):
        return alignments.get(operand, 1)
    return _WIDEST if operand.isidentifier() else 1


def _find_largest_power_of_two_divisor(number: int) -> int:
    """Return the largest power of two, 16 at most, that divides a number."""
    return min(_WIDEST, number & -number) if number else _WIDEST
