"""The opcode that each 9-bit code stands for, as Nsight Compute's disassembler names it.

Read off the machine code and the text of every kernel in the reports at hand, 7.5 to 12.0; a code
that is not here makes decode answer None, and the library's text is read instead.
"""

from __future__ import annotations

OPCODES: dict[int, str] = {
    0x002: "MOV", 0x003: "P2R", 0x004: "R2P", 0x005: "CS2R", 0x007: "SEL", 0x008: "FSEL",
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
