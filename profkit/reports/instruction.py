"""One machine instruction: what its bits say, what its opcode does, and what is counted of it.

128 bits each since Volta: opcode in bits 0-8 with the form of its operands in 9-11, guard in 12-15,
control fields in 105-125. Registers are not read: with scoreboards they are not needed. A disassembler
is not, either.

What is counted has alternatives, newest names first: the first whose metrics the report has is taken,
so that a report of 2020 has lines too. Nothing collected is no counter, and never zero.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profkit.reports.metrics.warps import SAMPLES, STATES, list_states_of_families

if TYPE_CHECKING:
    from profkit.units import (
        Bits64,
        InstructionAddress,
        MachineCode,
        Opcode,
        RegisterNumber,
        ScoreboardNumber,
        TenTimesCapabilityOrZero,
        TextOrEmpty,
    )


BYTES = 16  # of an instruction, from Volta on
_NO_SCOREBOARD = 7


@dataclass(frozen=True, slots=True)
class Control:
    """What the compiler tells the scheduler with an instruction."""

    stall: int  # cycles until the next instruction of the warp may issue
    write: int | None  # the scoreboard (0-5) that is released when the result is there
    read: int | None  # the scoreboard that is released when the operands were read
    wait: int  # bit n is set when the instruction waits until scoreboard n is released

    def sets_scoreboard(self, scoreboard: ScoreboardNumber) -> bool:
        """Return whether the instruction holds this scoreboard until it is done."""
        return scoreboard in (self.write, self.read)


@dataclass(frozen=True, slots=True)
class Instruction:
    """A decoded SASS instruction at its address, and the scoreboard that it waits for or sets."""

    pc: int  # its address in bytes
    opcode: str  # LDG; without modifiers
    guard: str | None = None  # the predicate it runs under (P0, !P1)
    target: int | None = None  # address that it may jump to, where that is known
    scoreboard: tuple[int, int] | None = None  # of a DEPBAR: which, and how many may stay open
    control: Control = Control(0, None, None, 0)
    # Registers of a load or of integer arithmetic: those that it writes, and those that an address which
    # it makes or uses is made of. Of other instructions none is read.
    writes: tuple[int, ...] = ()
    reads: tuple[int, ...] = ()


def decode_control_fields(upper_half: Bits64) -> Control:
    """Return the control fields in the upper 64 bits of an instruction (Volta to Blackwell)."""
    stall_cycles = upper_half >> 41 & 0xF
    write = _read_scoreboard(upper_half >> 46)
    read = _read_scoreboard(upper_half >> 49)
    awaited_mask = upper_half >> 52 & 0x3F
    return Control(stall_cycles, write, read, awaited_mask)


def _read_scoreboard(bits: int) -> int | None:
    scoreboard = bits & 7
    if scoreboard == _NO_SCOREBOARD:
        return None
    return scoreboard


def split_into_set_of_opcodes(text: str) -> frozenset[Opcode]:
    """Return the opcodes of a text."""
    return frozenset(text.split())


# Answered by L1TEX: a warp that needs the answer is in long_scoreboard.
L1TEX = split_into_set_of_opcodes("""
    LD LDG LDL ATOM ATOMG RED REDG ST STG STL LDGSTS LDGDEPBAR TEX TLD TLD4 TMML TXD TXQ SULD SUST
    SUATOM SURED CCTL LDTM STTM UTMALDG UTMASTG UTMAREDG UTMAPF UBLKCP UBLKRED UBLKPF QSPC MATCH
    ARRIVES SYNCS UTMACMDFLUSH
""")
# Answered by the MIO: a warp that needs the answer is in short_scoreboard.
MIO = split_into_set_of_opcodes("""
    LDS LDSM STS STSM STAS ATOMS SHFL MUFU S2R S2UR LDC LDCU I2F F2I F2F FRND I2I POPC FLO BREV MOVM
    REDUX CREDUX R2UR VOTE VOTEU FCHK UPOPC UFLO AL2P B2R R2B IPA ISBERD PIXLD SYNCS ARRIVES DADD
    DMUL DFMA DSETP DMMA CS2UR ELECT UF2F UI2F UF2I
""")
# Copies that no register waits for: what waits is a counter of groups.
GROUPED = split_into_set_of_opcodes("LDGSTS")
STORES = split_into_set_of_opcodes(
    "ST STG STL STS RED REDG SUST SURED UTMASTG UTMAREDG UBLKRED ATOM ATOMG STAS"
)
TENSOR = split_into_set_of_opcodes("""
    HMMA IMMA BMMA DMMA QMMA OMMA HGMMA IGMMA BGMMA QGMMA UTCHMMA UTCIMMA UTCQMMA UTCOMMA UTCMXQMMA
""")
# Family of opcodes -> which they are; each is the counter "instructions <family>".
FAMILIES = {
    "tensor": TENSOR,
    "fp32": split_into_set_of_opcodes("FFMA FADD FMUL FFMA32I FADD32I FMUL32I FFMA2 FADD2 FMUL2"),
    "fp64": split_into_set_of_opcodes("DFMA DADD DMUL DSETP DMNMX DMMA"),
    "fp16": split_into_set_of_opcodes("HFMA2 HADD2 HMUL2 HMNMX2 HSET2 HSETP2 HFMA2_32I HADD2_32I"),
    "int": split_into_set_of_opcodes("""
        IADD IADD3 IMAD IMUL ISETP LOP LOP3 SHF SHL SHR LEA IMNMX IABS VIADD VIMNMX VIADDMNMX
        VIMNMX3 PRMT SEL BMSK SGXT IDP IDP4A ISCADD VABSDIFF VABSDIFF4 IADD32I IMAD32I
    """),
    "xu": split_into_set_of_opcodes("MUFU I2F F2I F2F FRND POPC FLO BREV"),
    "exponential": split_into_set_of_opcodes("MUFU"),
    "atomics": split_into_set_of_opcodes("ATOM ATOMG ATOMS RED REDG SUATOM SURED UTMAREDG UBLKRED"),
    "texture": split_into_set_of_opcodes("TEX TLD TLD4 TMML TXD TXQ"),
    "constant": split_into_set_of_opcodes("LDC LDCU ULDC"),
    "local": split_into_set_of_opcodes("LDL STL"),
    "unfused": split_into_set_of_opcodes("FADD FMUL FADD32I FMUL32I DADD DMUL"),
    "branches": split_into_set_of_opcodes("BRA BRX BRXU JMP JMX JMXU CALL RET BSYNC BREAK"),
}
FAMILIES["fma"] = FAMILIES["fp32"] | FAMILIES["fp16"]
# Nothing falls through one of these when it runs without a predicate.
ENDS = split_into_set_of_opcodes("BRA BRX BRXU JMP JMX JMXU EXIT RET KILL RTT")
INDIRECT = split_into_set_of_opcodes("BRX BRXU JMX JMXU")

# Code (bits 0-8) and opcode.
_OPCODES = """
    002 MOV, 003 P2R, 004 R2P, 005 CS2R, 006 VOTE, 007 SEL, 008 FSEL, 009 FMNMX, 00a FSET,
    00b FSETP, 00c ISETP, 00f VIMNMX3, 010 IADD3, 011 LEA, 012 LOP3, 013 IABS, 016 PRMT,
    017 IMNMX, 019 SHF, 01a SGXT, 01c PLOP3, 020 FMUL, 021 FADD, 023 FFMA, 024 IMAD, 025 IMAD,
    027 IMAD, 028 DMUL, 029 DADD, 02a DSETP, 02b DFMA, 02d PREEXIT, 02e ACQBULK, 02f ELECT,
    030 HADD2, 031 HFMA2, 032 HMUL2, 033 HSET2, 036 VIADD, 037 IMMA, 039 I2IP, 03a MOVM, 03b LDSM,
    03c HMMA, 03e F2FP, 044 STSM, 045 I2FP, 046 VIADDMNMX, 048 VIMNMX, 04a UVIMNMX, 082 UMOV,
    086 VOTEU, 087 USEL, 08c UISETP, 090 UIADD3, 091 ULEA, 092 ULOP3, 096 UPRMT, 097 UIADD3,
    099 USHF, 09a USGXT, 0a4 UIMAD, 0a5 UIMAD, 0b9 ULDC, 0bb ULDC, 0ca R2UR, 100 FLO, 102 FCHK,
    104 F2F, 105 F2I, 106 I2F, 108 MUFU, 109 POPC, 110 F2F, 111 F2I, 112 I2F, 118 NOP, 119 S2R,
    11a DEPBAR, 11b ENDCOLLECTIVE, 11d BAR, 141 BSYNC, 142 BREAK, 143 CALL, 144 CALL, 145 BSSY,
    146 YIELD, 147 BRA, 148 WARPSYNC, 149 BRX, 14d EXIT, 14e LEPC, 150 RET, 155 BMOV, 15c BPT,
    15d NANOSLEEP, 160 TEX, 180 LD, 181 LDG, 182 LDC, 183 LDL, 184 LDS, 185 ST, 186 STG, 187 STL,
    188 STS, 189 SHFL, 18c ATOMS, 18d ATOMS, 18f CCTL, 192 MEMBAR, 1a6 REDG, 1a7 SYNCS, 1a8 ATOMG,
    1ac LDCU, 1ae LDGSTS, 1af LDGDEPBAR, 1b2 SYNCS, 1b4 UTMALDG, 1b5 UTMASTG, 1b7 UTMACMDFLUSH,
    1b9 UTMACCTL, 1ba UBLKCP, 1bc UBLKPF, 1bd STAS, 1c2 R2UR, 1c3 S2UR, 1c5 WARPGROUP, 1c6 FENCE,
    1c8 USETMAXREG, 1f0 HGMMA, 1f3 QGMMA
"""
OPCODES: dict[int, str] = {}
for _pair in _OPCODES.split(","):
    _code, _opcode = _pair.split()
    OPCODES[int(_code, 16)] = _opcode
# Codes whose form of operands (bits 9-11) makes them another instruction.
BY_FORM: dict[int, str] = {
    0x9AB: "ERRBAR",
    0x5AB: "CGAERRBAR",
    0x9C7: "UCGABAR_ARV",
    0xDC7: "UCGABAR_WAIT",
}
# (since this capability, codes that it gave to another instruction), the newest first.
RENAMED: tuple[tuple[int, dict[int, str]], ...] = ((100, {0x035: "IADD"}), (0, {0x035: "HFMA2"}))


# Codes of jumps with an offset in them: BRA, BRA.U, CALL.REL. Others go where a register says, or
# (CALL.ABS) to an address that the loader fills in.
_JUMPS = frozenset({0x947, 0x547, 0x944})
_HOPPER = 90  # from here on a jump has eight bits more, in bits 16-23
_ALWAYS = 7  # the predicate PT


def decode_function(
    code: MachineCode,
    first_address: InstructionAddress,
    capability: TenTimesCapabilityOrZero,
    name_unknown_opcode: Callable[[InstructionAddress], TextOrEmpty] = lambda _: "",
) -> list[Instruction] | None:
    """Return the instructions of a function's machine code.

    `first_address` is that of the first one, `capability` ten times the compute capability (75, 120),
    `name_unknown_opcode` gives the opcode at an address where the code is not known. None where it
    gives none: then nothing that follows from them would be sure.
    """
    instructions = []
    whole = code[: len(code) // BYTES * BYTES]
    for position, (low, high) in enumerate(struct.iter_unpack("<QQ", whole)):
        pc = first_address + BYTES * position
        opcode = decode_opcode(low, capability) or name_unknown_opcode(pc)
        if not opcode:
            return None
        target = scoreboard = None
        if low & 0xFFF in _JUMPS:
            target = _read_target(low, high, pc, capability)
        if opcode == "DEPBAR":
            scoreboard = (low >> 44 & 7, low >> 38 & 0x3F)
        instructions.append(
            Instruction(
                pc=pc,
                opcode=opcode,
                guard=read_guard(low),
                target=target,
                scoreboard=scoreboard,
                control=decode_control_fields(high),
                writes=_list_written_registers(low, high, opcode),
                reads=_list_read_registers(low, high, opcode),
            )
        )
    return instructions


# Loads from memory, whose result may be an index.
LOADED = split_into_set_of_opcodes("LD LDG LDL LDS")
# What addresses are made with.
ADDRESSING = FAMILIES["int"] - split_into_set_of_opcodes("ISETP") | split_into_set_of_opcodes(
    "MOV"
)  # that sets a predicate
_ZERO = 255  # the register RZ
_WIDE = 0x025  # IMAD.WIDE writes two registers, and adds two
_ALL_REGISTERS = 1  # the form of operands in which the second is a register, too
_WORDS = {5: 2, 6: 4}  # size field of a load -> registers that it writes, else one


def _list_written_registers(
    lower_half: Bits64, upper_half: Bits64, opcode: Opcode
) -> tuple[RegisterNumber, ...]:
    """Return the registers that a load or an instruction of integers writes."""
    first = lower_half >> 16 & 0xFF
    if first == _ZERO:
        return ()
    if opcode in LOADED:
        return tuple(range(first, first + _WORDS.get(upper_half >> 9 & 7, 1)))
    if opcode not in ADDRESSING:
        return ()
    if lower_half & 0x1FF == _WIDE:
        return (first, first + 1)
    return (first,)


def _list_read_registers(
    lower_half: Bits64, upper_half: Bits64, opcode: Opcode
) -> tuple[RegisterNumber, ...]:
    """Return the registers of a load's address, or of the operands of an instruction of integers."""
    first = lower_half >> 24 & 0xFF
    if opcode in LOADED:
        if first != _ZERO:
            return (first,)
        return ()
    if opcode not in ADDRESSING:
        return ()
    operands = [first, upper_half & 0xFF]
    if lower_half >> 9 & 7 == _ALL_REGISTERS:
        operands.append(lower_half >> 32 & 0xFF)
    return tuple(register for register in operands if register != _ZERO)


def decode_opcode(lower_half: Bits64, capability: TenTimesCapabilityOrZero) -> Opcode | None:
    """Return the opcode in the lower 64 bits of an instruction; None when it is not known."""
    form = lower_half & 0xFFF
    if form in BY_FORM:
        return BY_FORM[form]
    for since, renamed in RENAMED:
        if capability >= since and form & 0x1FF in renamed:
            return renamed[form & 0x1FF]
    return OPCODES.get(form & 0x1FF)


def read_guard(lower_half: Bits64) -> str | None:
    """Return the predicate that an instruction runs under; None without."""
    number = lower_half >> 12 & 7
    predicate = "PT" if number == _ALWAYS else f"P{number}"
    is_negated = lower_half >> 15 & 1
    if is_negated:
        return f"!{predicate}"
    if number == _ALWAYS:
        return None
    return predicate


def _read_target(
    lower_half: Bits64,
    upper_half: Bits64,
    pc: InstructionAddress,
    capability: TenTimesCapabilityOrZero,
) -> InstructionAddress:
    offset = (lower_half >> 34 | upper_half << 30) & (1 << 48) - 1
    if offset >> 47:
        offset -= 1 << 48
    if capability >= _HOPPER:
        offset = offset << 8 | (lower_half >> 16 & 0xFF)
    return pc + BYTES + 4 * offset


# Raw metric -> factor: the value of an instruction is the sum of factor x value.
Terms = dict[str, float]

_WARP = 32.0
_EXECUTED = "inst_executed"
# A warp in these states waits for memory of any kind, or for room to ask for it.
MEMORY = list_states_of_families("loads", "stores", "mio")
ACTIVE = ("selected", "not_selected")  # the warp was issuing, or could have
RAW_SAMPLES = {state: raw for raw, state in SAMPLES.items()}


@dataclass(frozen=True)
class Counter:
    """A counter with a value for each instruction, under the names that ncu has given it."""

    meaning: str  # what is counted, in the plural
    alternatives: tuple[Terms, ...] = ()  # of raw metrics with one instance per instruction address
    opcodes: frozenset[str] = frozenset()  # only at these; at all when empty
    # Warp states whose samples are counted instead, each laid to what is waited for.
    states: tuple[str, ...] = ()


def _list_alternatives(*names: str) -> tuple[Terms, ...]:
    return tuple({name: 1.0} for name in names)


def _list_excess_terms(new: str, old: str) -> tuple[Terms, ...]:
    """Return something beyond the ideal: as derived by ncu, or the difference, under both names."""
    terms: list[Terms] = []
    for name in (new, old):
        derived = {f"derived__{name}_excessive": 1.0}
        difference = {name: 1.0, f"{name}_ideal": -1.0}
        terms += [derived, difference]
    return tuple(terms)


_SECTORS = ("memory_l2_theoretical_sectors_global", "memory_l2_sectors_global")
_WAVEFRONTS = ("memory_l1_wavefronts_shared", "memory_l1_sectors_shared")
_LOCAL = ("memory_l2_theoretical_sectors_local", "memory_l2_sectors_local")
_LANES = tuple({_EXECUTED: _WARP, f"thread_{_EXECUTED}{kind}": -1.0} for kind in ("_true", ""))
_WAITING = tuple(s for s in STATES if s not in ACTIVE)

COUNTERS: dict[str, Counter] = {
    "sectors": Counter("L2 sectors of global memory", _list_alternatives(*_SECTORS)),
    "excess-sectors": Counter("L2 sectors beyond the ideal", _list_excess_terms(*_SECTORS)),
    "l1-requests": Counter("L1 tag requests", _list_alternatives("memory_l1_tag_requests_global")),
    "wavefronts": Counter("shared-memory wavefronts", _list_alternatives(*_WAVEFRONTS)),
    "excess-wavefronts": Counter(
        "shared-memory wavefronts beyond the ideal", _list_excess_terms(*_WAVEFRONTS)
    ),
    "local-sectors": Counter("L2 sectors of local memory", _list_alternatives(*_LOCAL)),
    "divergent-branches": Counter(
        "branches at which threads part",
        _list_alternatives("smsp__branch_targets_threads_divergent"),
    ),
    "lost-lanes": Counter("lanes without work", _LANES),
    "instructions": Counter("executed instructions", _list_alternatives(_EXECUTED)),
    **{
        f"instructions {family}": Counter(
            f"executed {family} instructions", _list_alternatives(_EXECUTED), opcodes=names
        )
        for family, names in FAMILIES.items()
    },
    **{f"stall {state}": Counter(f"samples in {state}", states=(state,)) for state in STATES},
    "stalls shared": Counter(
        "samples of warps that wait for shared memory", states=("short_scoreboard", "mio_throttle")
    ),
    "stalls memory": Counter("samples of warps that wait for memory", states=MEMORY),
    "stalls": Counter("samples of waiting warps", states=_WAITING),
}
