"""Machine code  ->  instructions with their control fields: no disassembler is asked.

128 bits each since Volta: opcode in bits 0-8 with the form of its operands in 9-11, guard in 12-15,
what the scheduler is told in 105-125. Registers are not read: with scoreboards, nobody needs them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from profkit.reports.sass.encodings import BY_FORM, OPCODES, RENAMED
from profkit.reports.sass.instruction import BYTES, Instruction, control

# Codes of jumps with an offset in them: BRA, BRA.U, CALL.REL. Others go where a register says, or
# (CALL.ABS) to an address that the loader fills in.
_JUMPS = frozenset({0x947, 0x547, 0x944})
_HOPPER = 90  # from here on a jump has eight bits more, in bits 16-23
_ALWAYS = 7  # the predicate PT


def decode(code: bytes, start: int, capability: int) -> list[Instruction] | None:
    """The instructions of one function.

    Args:
        code: Its machine code.
        start: Address of the first instruction.
        capability: Compute capability x 10: 75, 90, 120.

    Returns:
        None when an opcode is not known: then nothing that follows from them would be sure.
    """
    instructions = []
    for at, (low, high) in enumerate(struct.iter_unpack("<QQ", code[: len(code) // BYTES * BYTES])):
        opcode = name(low, capability)
        if opcode is None:
            return None
        pc = start + BYTES * at
        instructions.append(
            Instruction(
                pc=pc,
                opcode=opcode,
                guard=_guard(low),
                target=_target(low, high, pc, capability) if low & 0xFFF in _JUMPS else None,
                scoreboard=(low >> 44 & 7, low >> 38 & 0x3F) if opcode == "DEPBAR" else None,
                control=control(high),
            )
        )
    return instructions


def name(low: int, capability: int) -> str | None:
    """The opcode of an instruction by its lower 64 bits; None when it is not known."""
    form = low & 0xFFF
    if form in BY_FORM:
        return BY_FORM[form]
    for since, renamed in RENAMED:
        if capability >= since and form & 0x1FF in renamed:
            return renamed[form & 0x1FF]
    return OPCODES.get(form & 0x1FF)


def unknown_opcodes(code: bytes, capability: int) -> Iterator[int]:
    """The opcodes with their forms (12 bits) that have no name here."""
    for low, _ in struct.iter_unpack("<QQ", code[: len(code) // BYTES * BYTES]):
        if name(low, capability) is None:
            yield low & 0xFFF


def _guard(low: int) -> str | None:
    predicate = low >> 12 & 7
    if predicate == _ALWAYS:
        return "!PT" if low >> 15 & 1 else None
    return f"{'!' if low >> 15 & 1 else ''}P{predicate}"


def _target(low: int, high: int, pc: int, capability: int) -> int:
    offset = (low >> 34 | high << 30) & (1 << 48) - 1
    if offset >> 47:
        offset -= 1 << 48
    if capability >= _HOPPER:
        offset = offset << 8 | (low >> 16 & 0xFF)
    return pc + BYTES + 4 * offset
