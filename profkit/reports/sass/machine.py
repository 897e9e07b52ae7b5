"""Machine code  ->  instructions with their control fields: no disassembler is asked.

128 bits each since Volta: opcode in bits 0-8 with the form of its operands in 9-11, guard in 12-15,
what the scheduler is told in 105-125. Registers are not read: with scoreboards, nobody needs them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from profkit.reports.sass.instruction import BYTES, Instruction, control

OPCODES: dict[int, str] = {
    0x002: "MOV", 0x003: "P2R", 0x004: "R2P", 0x005: "CS2R", 0x006: "VOTE", 0x007: "SEL", 0x008: "FSEL",
    0x009: "FMNMX", 0x00a: "FSET", 0x00b: "FSETP", 0x00c: "ISETP", 0x010: "IADD3", 0x011: "LEA",
    0x012: "LOP3", 0x013: "IABS", 0x016: "PRMT", 0x017: "IMNMX", 0x019: "SHF", 0x01a: "SGXT",
    0x01c: "PLOP3", 0x020: "FMUL", 0x021: "FADD", 0x023: "FFMA", 0x024: "IMAD", 0x025: "IMAD",
    0x027: "IMAD", 0x028: "DMUL", 0x029: "DADD", 0x02a: "DSETP", 0x02b: "DFMA", 0x02d: "PREEXIT",
    0x02e: "ACQBULK", 0x02f: "ELECT", 0x030: "HADD2", 0x031: "HFMA2", 0x032: "HMUL2",
    0x033: "HSET2", 0x036: "VIADD", 0x037: "IMMA", 0x039: "I2IP", 0x03a: "MOVM", 0x03b: "LDSM",
    0x03c: "HMMA", 0x03e: "F2FP", 0x044: "STSM", 0x045: "I2FP", 0x046: "VIADDMNMX", 0x048: "VIMNMX",
    0x04a: "UVIMNMX", 0x082: "UMOV", 0x086: "VOTEU", 0x087: "USEL", 0x08c: "UISETP",
    0x090: "UIADD3", 0x091: "ULEA", 0x092: "ULOP3", 0x096: "UPRMT", 0x097: "UIADD3", 0x099: "USHF",
    0x0a4: "UIMAD", 0x0a5: "UIMAD", 0x0b9: "ULDC", 0x0bb: "ULDC", 0x0ca: "R2UR", 0x100: "FLO",
    0x102: "FCHK", 0x104: "F2F", 0x105: "F2I", 0x106: "I2F", 0x108: "MUFU", 0x109: "POPC",
    0x110: "F2F", 0x111: "F2I", 0x112: "I2F", 0x118: "NOP", 0x119: "S2R", 0x11a: "DEPBAR",
    0x11b: "ENDCOLLECTIVE", 0x11d: "BAR", 0x141: "BSYNC", 0x142: "BREAK", 0x143: "CALL",
    0x144: "CALL", 0x145: "BSSY", 0x146: "YIELD", 0x147: "BRA", 0x148: "WARPSYNC", 0x149: "BRX",
    0x14d: "EXIT", 0x14e: "LEPC", 0x150: "RET", 0x155: "BMOV", 0x15c: "BPT", 0x15d: "NANOSLEEP",
    0x160: "TEX", 0x180: "LD", 0x181: "LDG", 0x182: "LDC", 0x183: "LDL", 0x184: "LDS", 0x185: "ST",
    0x186: "STG", 0x187: "STL", 0x188: "STS", 0x189: "SHFL", 0x18c: "ATOMS", 0x18d: "ATOMS",
    0x18f: "CCTL", 0x192: "MEMBAR", 0x1a6: "REDG", 0x1a7: "SYNCS", 0x1a8: "ATOMG", 0x1ac: "LDCU",
    0x1ae: "LDGSTS", 0x1af: "LDGDEPBAR", 0x1b2: "SYNCS", 0x1b4: "UTMALDG", 0x1b5: "UTMASTG",
    0x1b7: "UTMACMDFLUSH", 0x1b9: "UTMACCTL", 0x1ba: "UBLKCP", 0x1bd: "STAS", 0x1c2: "R2UR",
    0x1c3: "S2UR", 0x1c5: "WARPGROUP", 0x1c6: "FENCE", 0x1c8: "USETMAXREG", 0x1f0: "HGMMA",
}  # fmt: skip
# Codes whose form of operands (bits 9-11) makes them another instruction.
BY_FORM: dict[int, str] = {
    0x9AB: "ERRBAR", 0x5AB: "CGAERRBAR", 0x9C7: "UCGABAR_ARV", 0xDC7: "UCGABAR_WAIT",
}  # fmt: skip
# (since this capability, codes that it gave to another instruction), the newest first.
RENAMED: tuple[tuple[int, dict[int, str]], ...] = ((100, {0x035: "IADD"}), (0, {0x035: "HFMA2"}))


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
