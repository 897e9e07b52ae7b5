"""A kernel's statements  ->  its accesses to memory, and which loads decide what the kernel does next.

What such a load reads has to stay what it is, or the kernel would do other work.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profkit.lab.ablation import ptx
from profkit.lab.ablation.ptx import Address, PtxKernel, PtxModule, PtxStatement
from profkit.lab.ablation.steering import Steering, find_what_steers_control_flow

if TYPE_CHECKING:
    from profkit.units import ByteCount, ByteOffset, ClauseOrEmpty, RegisterName, TextOrEmpty


_KINDS = {"ld": "load", "ldu": "load", "st": "store", "atom": "atomic", "red": "atomic"}
_MATRIX_ROW = 16  # bytes that a lane of ldmatrix or stmatrix says the place of
_SUMS = frozenset({"add.s32", "add.u32", "add.s64", "add.u64"})
_NUMBER = re.compile(r"-?\d+")
_LEAST = -(1 << 23)  # what an instruction can add to an address has 24 bits


@dataclass(frozen=True)
class PtxAccess:
    """One place of the code that reads or writes memory."""

    number: int  # among those of the module
    kernel: str
    statement: PtxStatement
    address: Address
    kind: str  # load, store or atomic
    space: str  # global, shared, const or generic
    width: int  # bytes of each thread
    steers: bool  # whether what it reads decides what the kernel does next
    called: bool  # whether it is in a function that kernels call

    @property
    def in_global(self) -> bool:
        return self.space in ("global", "generic")

    @property
    def why_unmovable(self) -> ClauseOrEmpty:
        """Return why its address cannot be another; empty where it can."""
        if self.called:
            return "it is in a function that is called"
        if self.statement.words[0] == "wmma":
            return "the hardware decides where a fragment of wmma is"
        if self.statement.opcode.startswith("cp.async.bulk"):
            return "the copy engine moves whole tiles"
        return ""


def find_memory_accesses(module: PtxModule) -> list[PtxAccess]:
    found: list[PtxAccess] = []
    for kernel in module.kernels.values():
        steering = find_what_steers_control_flow(kernel)
        sums = _find_register_offsets(kernel)
        for statement in kernel.statements:
            for kind, space, width, named in _iterate_accesses_of_statement(statement):
                address = _resolve_base_register(named, sums)
                steers = _is_affecting_control_flow(statement, kind, steering)
                found.append(
                    PtxAccess(
                        number=len(found),
                        kernel=kernel.name,
                        statement=statement,
                        address=address,
                        kind=kind,
                        space=space,
                        width=width,
                        steers=steers,
                        called=not kernel.is_entry,
                    )
                )
    return found


def _find_register_offsets(
    kernel: PtxKernel,
) -> dict[RegisterName, tuple[RegisterName, ByteOffset]]:
    """Return registers that are another one plus a number, where both get their values once only."""
    sums = {}
    written = kernel.writes
    for statement in kernel.statements:
        if statement.opcode not in _SUMS or statement.guard:
            continue
        to, base, number = statement.operands
        if _NUMBER.fullmatch(number) and written[to] == written[base] == 1:
            sums[to] = (base, int(number))
    return sums


def _resolve_base_register(
    address: Address, offset_by_register: Mapping[RegisterName, tuple[RegisterName, ByteOffset]]
) -> Address:
    """Return the same place from the register that its base is a number behind."""
    base = address.base
    offset = address.offset
    while base in offset_by_register:
        base, more = offset_by_register[base]
        offset += more
    if not _LEAST <= offset < -_LEAST:
        return address
    return Address(address.operand, base, offset)


def _iterate_accesses_of_statement(
    statement: PtxStatement,
) -> Iterator[tuple[str, str, ByteCount, Address]]:
    words = statement.words
    addresses = statement.list_addresses()
    if not addresses:
        return
    first = words[0]
    if first in _KINDS:
        space = _get_memory_space(words)
        if space:
            yield _KINDS[first], space, ptx.count_bytes_per_thread(statement), addresses[0]
    elif first in ("ldmatrix", "stmatrix"):
        if first == "ldmatrix":
            kind = "load"
        else:
            kind = "store"
        yield kind, _get_memory_space(words) or "generic", _MATRIX_ROW, addresses[0]
    elif first == "wmma" and words[1] in ("load", "store"):
        yield words[1], _get_memory_space(words) or "generic", _MATRIX_ROW, addresses[0]
    elif statement.opcode.startswith("cp.async.c") and len(addresses) == 2:
        width = statement.operands[2]
        if width.isdigit():
            yield "store", "shared", int(width), addresses[0]
            yield "load", "global", int(width), addresses[1]


def _get_memory_space(opcode_parts: list[str]) -> TextOrEmpty:
    """Return global, shared, const or generic; empty for memory that is a thread's own."""
    for word in opcode_parts:
        if word in ("global", "shared", "const") or word.startswith("shared::"):
            return word.partition("::")[0]
        if word in ("local", "param"):
            return ""
    return "generic"


def _is_affecting_control_flow(
    statement: PtxStatement, access_kind: str, steering: Steering
) -> bool:
    if statement.words[0] == "cp":
        return access_kind == "load" and "shared" in steering.memories
    return access_kind != "store" and steering.is_writing_steering_register(statement)
