"""SASS as text, of every architecture since Volta: what each instruction reads and writes."""

from __future__ import annotations

import pytest

from profkit.reports.sass.text import parse_sass
from tests.reports.sass.listing import program

# (text as ncu or a disassembler prints it, registers read, registers written)
INSTRUCTIONS = {
    "Volta": (
        ("LDG.E.128.SYS R4, [R2]", "R2", "R4 R5 R6 R7"),
        ("@!P0 STG.E.64.SYS [R8+0x10], R6", "P0 R8 R6 R7", ""),
        ("HMMA.884.F32.F32.STEP0 R8, R2.reuse.COL, R4.ROW, R8", "R2 R3 R4 R5 R8 R9 R10 R11 R12 R13 "
         "R14 R15", "R8 R9 R10 R11 R12 R13 R14 R15"),
        ("ATOM.E.ADD.F64.RN.STRONG.GPU P1, RZ, [R2], R6", "R2 R6", "P1"),
        ("IMAD.WIDE R2, R0, R3, c[0x0][0x160]", "R0 R3", "R2 R3"),
        ("IADD3.X R5, R1, R7, RZ, P0, !PT", "R1 R7 P0", "R5"),
        ("DFMA R4, R6, R8, -R10", "R6 R7 R8 R9 R10 R11", "R4 R5"),
    ),
    "Turing": (
        ("ISETP.GE.U32.AND P0, PT, R6, c[0x0][0x178], PT", "R6", "P0"),
        ("LDSM.16.M88.4 R8, [R3+0x400]", "R3", "R8 R9 R10 R11"),
        ("HMMA.1688.F32 R4, R8, R10, R4", "R8 R9 R10 R4 R5 R6 R7", "R4 R5 R6 R7"),
        ("IMMA.8816.S8.S8.SAT R4, R2.ROW, R3.COL, R4", "R2 R3 R4 R5", "R4 R5"),
        ("TEX.SCR.LL RZ, R4, R2, R8, R6, 0x0, 2D, 0x1", "R2 R3 R8 R9 R6 R7", "R4 R5"),
        ("SHFL.BFLY PT, R5, R4, 0x10, 0x1f", "R4", "R5"),
        ("S2UR UR4, SR_CTAID.X", "", "UR4"),
    ),
    "Ampere": (
        ("LDGSTS.E.BYPASS.128 [R13], [R4.64]", "R13 R4 R5", ""),
        ("LDG.E R2, [R2.64+UR4]", "R2 R3 UR4", "R2"),
        ("HMMA.16816.F32.BF16 R4, R8, R12, RZ", "R8 R9 R10 R11 R12 R13", "R4 R5 R6 R7"),
        ("F2F.F64.F32 R4, R6", "R6", "R4 R5"),
        ("I2F.F64 R4, R6", "R6", "R4 R5"),
        ("ULDC.64 UR18, c[0x0][0x118]", "", "UR18 UR19"),
        ("PLOP3.LUT P0, PT, P1, P2, PT, 0x80, 0x0", "P1 P2", "P0"),
        ("P2R R4, PR, RZ, 0x7f", "P0 P1 P2 P3 P4 P5 P6", "R4"),
        ("R2P PR, R4, 0x7f", "R4", "P0 P1 P2 P3 P4 P5 P6"),
    ),
    "Hopper": (
        ("HGMMA.64x64x16.F32 R24, gdesc[UR4], R24, !UPT, gsb0", "UR4 UR5 R24 R25 R26 R27",
         " ".join(f"R{n}" for n in range(24, 56))),
        ("@P1 UTMALDG.2D [UR8], [UR4], desc[UR6]", "P1 UR8 UR4 UR6 UR7", ""),
        ("SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R4+URZ], R5", "R4 R5", "P0"),
        ("SYNCS.EXCH.64 URZ, [UR6+0x8], UR4", "UR6 UR4 UR5", ""),
        ("R2UR UR5, R3", "R3", "UR5"),
        ("@P2 R2UR.OR P0, UR4, R6", "P2 R6", "P0 UR4"),
        ("STG.E.64 desc[UR20][R4.64], R6", "UR20 UR21 R4 R5 R6 R7", ""),
        ("UIADD3 UR7, UP0, UR4, UR8, URZ", "UR4 UR8", "UR7 UP0"),
        ("WARPGROUP.DEPBAR.LE gsb0, 0x0", "", ""),
        ("ELECT P6, URZ, PT", "", "P6"),
    ),
    "Blackwell": (
        ("LDCU.128 UR8, c[0x0][0x390]", "", "UR8 UR9 UR10 UR11"),
        ("IADD.64 R2, R2, UR18", "R2 R3 UR18 UR19", "R2 R3"),
        ("IADD3 R6, P1, PT, R0, UR12, RZ", "R0 UR12", "R6 P1"),
        ("UIMAD.WIDE UR6, UR18, 0x2, UR8", "UR18 UR8 UR9", "UR6 UR7"),
        ("LDTM.x16 R4, tmem[UR4]", "UR4", " ".join(f"R{n}" for n in range(4, 20))),
        ("STS.128 [R9+UR15], RZ", "R9 UR15", ""),
        ("@!PT LDS RZ, [RZ]", "", ""),
        ("BSYNC.RECONVERGENT B1", "B1", ""),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "reads", "writes"),
    [case for cases in INSTRUCTIONS.values() for case in cases],
    ids=lambda value: value[:30],
)
def test_registers(text: str, reads: str, writes: str) -> None:
    instruction = parse_sass(f"      {text}", 0x100)
    assert instruction is not None
    assert instruction.reads == set(reads.split())
    assert instruction.writes == set(writes.split())


def test_what_is_no_instruction() -> None:
    for text in ("", "???", ".L_x_0:", "  ", "//## File", "@P0"):
        assert parse_sass(text, 0) is None


def test_jumps_and_waits() -> None:
    jump = parse_sass("@!P0  BRA 0x7b891776ac90", 0x7B891776AFA0)
    assert jump is not None
    assert (jump.opcode, jump.guard, jump.target) == ("BRA", "!P0", 0x7B891776AC90)
    labelled = parse_sass("      BRA `(.L_x_0) 0x7b25ef03e6f0", 0)
    assert labelled is not None
    assert labelled.target == 0x7B25EF03E6F0
    wait = parse_sass("DEPBAR.LE SB5, 0xa", 0)
    assert wait is not None
    assert wait.scoreboard == (5, 10)
    assert parse_sass("LDG.E R2, [R2.64+0x7f0]", 0).target is None  # type: ignore[union-attr]


def test_with_control_words() -> None:
    # As cuobjdump prints sm_90: the second word of an encoding stands in a line of its own.
    lines = [
        "        /*0090*/                   LDG.E R2, desc[UR4][R2.64] ;  /* 0x0000000402027981 */",
        "                                                                 /* 0x000ea2000c1e1900 */",
        "        /*00a0*/                   FADD R5, R2, R3 ;             /* 0x0000000302057221 */",
        "                                                                 /* 0x004fca0000000000 */",
    ]
    load, add = program(lines, 0x1000)
    assert (load.pc, add.pc) == (0x1090, 0x10A0)
    assert load.control is not None
    assert add.control is not None
    assert (load.control.write, load.control.read, load.control.wait) == (2, None, 0)
    assert (add.control.wait, add.control.write, add.control.stall) == (1 << 2, None, 5)


def test_without_addresses() -> None:
    code = program(["MOV R1, c[0x0][0x28]", "???", "EXIT"], 0x40)
    assert [(x.pc, x.opcode) for x in code] == [(0x40, "MOV"), (0x60, "EXIT")]
