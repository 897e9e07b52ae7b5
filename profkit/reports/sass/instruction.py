"""One machine instruction as text.py and machine.py read it, and what its opcode does."""

from __future__ import annotations

from dataclasses import dataclass

BYTES = 16  # of an instruction, from Volta on


@dataclass(frozen=True, slots=True)
class Control:
    """What the compiler tells the scheduler beside an instruction.

    Attributes:
        stall: Cycles until the next instruction of the warp may issue.
        write: The scoreboard (0-5) that is released when the result is there; None if none is.
        read: The scoreboard that is released when the operands were read; None if none is.
        wait: Bit n is set when the instruction waits until scoreboard n is released.
    """

    stall: int
    write: int | None
    read: int | None
    wait: int

    def sets(self, scoreboard: int) -> bool:
        """Whether the instruction holds this scoreboard until it is done."""
        return scoreboard in (self.write, self.read)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
        pc: Its address in bytes.
        opcode: LDG; without modifiers.
        modifiers: ("E", "128"); none when read from bits.
        guard: The predicate it runs under (P0, !UP1), None when it always runs.
        reads: Registers it reads: R4, UR6, P0, UP1, B0; empty when read from bits.
        writes: Registers it writes, likewise.
        target: Address that it may jump to; None when it does not, or when that is not known.
        scoreboard: Of a DEPBAR: the scoreboard that it waits for and how many may stay open.
        control: None when read from text that has none.
    """

    pc: int
    opcode: str
    modifiers: tuple[str, ...] = ()
    guard: str | None = None
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    target: int | None = None
    scoreboard: tuple[int, int] | None = None
    control: Control | None = None


def control(high: int) -> Control:
    """The control fields out of the upper 64 bits of an instruction (Volta to Blackwell)."""
    write, read = high >> 46 & 7, high >> 49 & 7
    return Control(
        stall=high >> 41 & 0xF,
        write=None if write == 7 else write,
        read=None if read == 7 else read,
        wait=high >> 52 & 0x3F,
    )


# Answered by L1TEX: a warp that needs the answer is in long_scoreboard.
L1TEX = frozenset({
    "LD", "LDG", "LDL", "ATOM", "ATOMG", "RED", "REDG", "ST", "STG", "STL", "LDGSTS", "LDGDEPBAR",
    "TEX", "TLD", "TLD4", "TMML", "TXD", "TXQ", "SULD", "SUST", "SUATOM", "SURED", "CCTL", "LDTM",
    "STTM", "UTMALDG", "UTMASTG", "UTMAREDG", "UTMAPF", "UBLKCP", "UBLKRED", "UBLKPF", "QSPC", "MATCH",
    "ARRIVES", "SYNCS", "UTMACMDFLUSH",
})  # fmt: skip
# Answered by the MIO: a warp that needs the answer is in short_scoreboard.
MIO = frozenset({
    "LDS", "LDSM", "STS", "STSM", "STAS", "ATOMS", "SHFL", "MUFU", "S2R", "S2UR", "LDC", "LDCU",
    "I2F", "F2I", "F2F", "FRND", "I2I", "POPC", "FLO", "BREV", "MOVM", "REDUX", "CREDUX", "R2UR", "VOTE",
    "VOTEU", "FCHK", "UPOPC", "UFLO", "AL2P", "B2R", "R2B", "IPA", "ISBERD", "PIXLD", "SYNCS",
    "ARRIVES", "DADD", "DMUL", "DFMA", "DSETP", "DMMA", "CS2UR", "ELECT", "UF2F", "UI2F", "UF2I",
})  # fmt: skip
# Copies that no register waits for: what waits is a counter of groups.
GROUPED = frozenset({"LDGSTS"})
STORES = frozenset({
    "ST", "STG", "STL", "STS", "RED", "REDG", "SUST", "SURED", "UTMASTG", "UTMAREDG", "UBLKRED",
    "ATOM", "ATOMG", "STAS",
})  # fmt: skip
ATOMICS = frozenset(
    {"ATOM", "ATOMG", "ATOMS", "RED", "REDG", "SUATOM", "SURED", "UTMAREDG", "UBLKRED"}
)
LOCAL = frozenset({"LDL", "STL"})
TEXTURE = frozenset({"TEX", "TLD", "TLD4", "TMML", "TXD", "TXQ"})
CONSTANT = frozenset({"LDC", "LDCU", "ULDC"})
TENSOR = frozenset({
    "HMMA", "IMMA", "BMMA", "DMMA", "QMMA", "OMMA", "HGMMA", "IGMMA", "BGMMA", "QGMMA", "UTCHMMA",
    "UTCIMMA", "UTCQMMA", "UTCOMMA", "UTCMXQMMA",
})  # fmt: skip
FP32 = frozenset(
    {"FFMA", "FADD", "FMUL", "FFMA32I", "FADD32I", "FMUL32I", "FFMA2", "FADD2", "FMUL2"}
)
UNFUSED = frozenset({"FADD", "FMUL", "FADD32I", "FMUL32I", "DADD", "DMUL"})
FP64 = frozenset({"DFMA", "DADD", "DMUL", "DSETP", "DMNMX", "DMMA"})
FP16 = frozenset({"HFMA2", "HADD2", "HMUL2", "HMNMX2", "HSET2", "HSETP2", "HFMA2_32I", "HADD2_32I"})
INTEGER = frozenset({
    "IADD", "IADD3", "IMAD", "IMUL", "ISETP", "LOP", "LOP3", "SHF", "SHL", "SHR", "LEA", "IMNMX",
    "IABS", "VIADD", "VIMNMX", "VIADDMNMX", "VIMNMX3", "PRMT", "SEL", "BMSK", "SGXT", "IDP", "IDP4A",
    "ISCADD", "VABSDIFF", "VABSDIFF4", "IADD32I", "IMAD32I",
})  # fmt: skip
XU = frozenset({"MUFU", "I2F", "F2I", "F2F", "FRND", "POPC", "FLO", "BREV"})
EXPONENTIAL = frozenset({"MUFU"})
BRANCHES = frozenset({"BRA", "BRX", "BRXU", "JMP", "JMX", "JMXU", "CALL", "RET", "BSYNC", "BREAK"})
# Nothing falls through one of these when it runs without a predicate.
ENDS = frozenset({"BRA", "BRX", "BRXU", "JMP", "JMX", "JMXU", "EXIT", "RET", "KILL", "RTT"})
INDIRECT = frozenset({"BRX", "BRXU", "JMX", "JMXU"})
