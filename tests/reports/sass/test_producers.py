"""What an instruction waits for: with control fields exactly, from text alone as a slice."""

from __future__ import annotations

import pytest

from profkit.reports.sass.addresses import Program, producers
from profkit.reports.sass.instruction import Control, Instruction
from tests.reports.sass.listing import program


def _of(text: str, at: int, state: str = "long_scoreboard") -> list[str]:
    """Opcode and position of what the instruction at a position waits for."""
    code = Program(program([line.strip() for line in text.strip().splitlines()], 0))
    return [f"{x.opcode} {x.pc // 16}" for x in producers(code, at * 16, state)]


VOLTA = """
    LDG.E.64.SYS R4, [R2]
    LDG.E.SYS R6, [R8]
    IADD3 R9, R9, 0x1, RZ
    FADD R10, R5, 1
    FADD R11, R6, R10
"""
TURING = """
    LDS.U R4, [R2]
    MUFU.EX2 R5, R5
    LDG.E.SYS R6, [R8]
    FFMA R7, R4, R5, R6
"""
AMPERE = """
    LDGSTS.E.BYPASS.128 [R13], [R4.64]
    LDGDEPBAR
    LDGSTS.E.BYPASS.128 [R14], [R4.64+0x100]
    LDGDEPBAR
    DEPBAR.LE SB0, 0x1
    BAR.SYNC.DEFER_BLOCKING 0x0
    LDSM.16.M88.4 R8, [R13]
"""
HOPPER = """
    R2UR UR4, R2
    UTMALDG.2D [UR8], [UR4], desc[UR6]
    SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R4+URZ], R5
    @!P0 BRA 0x20
    HGMMA.64x64x16.F32 R24, gdesc[UR4], R24, gsb0
    WARPGROUP.DEPBAR.LE gsb0, 0x0
    STG.E desc[UR6][R2.64], R24
"""
BLACKWELL = """
    LDCU.64 UR4, c[0x0][0x358]
    LDG.E.128 R4, desc[UR4][R2.64]
    IADD3 R0, PT, PT, R0, 0x1, RZ
    STS.128 [R9+UR15], R4
"""


@pytest.mark.parametrize(
    ("code", "at", "state", "expected"),
    [
        (VOLTA, 3, "long_scoreboard", ["LDG 0"]),  # the upper half of a pair
        (VOLTA, 4, "long_scoreboard", ["LDG 1"]),
        (TURING, 3, "short_scoreboard", ["LDS 0", "MUFU 1"]),
        (TURING, 3, "long_scoreboard", ["LDG 2"]),
        (AMPERE, 4, "long_scoreboard", ["LDGSTS 0"]),  # the newest group may stay open
        (AMPERE, 6, "barrier", ["BAR 5"]),  # sampled behind the barrier
        (HOPPER, 3, "long_scoreboard", ["SYNCS 2"]),
        (HOPPER, 5, "barrier", ["HGMMA 4"]),  # ncu books the wait for wgmma as barrier
        (BLACKWELL, 3, "long_scoreboard", ["LDG 1"]),
        (BLACKWELL, 1, "short_scoreboard", ["LDCU 0"]),
    ],
)
def test_slices_of_text(code: str, at: int, state: str, expected: list[str]) -> None:
    assert _of(code, at, state) == expected


def test_fixed_latency_exits_fences_and_sleeps() -> None:
    code = """
        FADD R2, R2, R3
        FMUL R4, R2, R2
        STG.E.SYS [R6], R4
        MEMBAR.SC.GPU
        ERRBAR
        NANOSLEEP 0x64
        STG.E.SYS [R6+0x4], R4
        EXIT
        BRA 0x80
    """
    assert _of(code, 1, "wait") == ["FADD 0"]
    assert _of(code, 4, "membar") == ["MEMBAR 3"]
    assert _of(code, 6, "sleeping") == ["NANOSLEEP 5"]
    # A warp at its exit is sampled behind it; what the fence waited for has left.
    assert _of(code, 8, "drain") == ["STG 6"]


def test_across_blocks() -> None:
    code = """
        LDG.E.SYS R4, [R2]
        ISETP.GE.AND P0, PT, R0, R1, PT
        @P0 BRA 0x50
        LDG.E.SYS R4, [R2+0x100]
        BRA 0x50
        FADD R5, R4, R4
        IADD3 R0, R0, 0x1, RZ
        LDG.E.SYS R4, [R2+0x200]
        BRA 0x50
    """
    # Both sides of the branch, and the loop that comes round.
    assert _of(code, 5) == ["LDG 0", "LDG 3", "LDG 7"]


def test_a_loop_without_a_producer_ends() -> None:
    code = """
        IADD3 R0, R0, 0x1, RZ
        FADD R5, R4, R4
        BRA 0x0
    """
    assert _of(code, 1) == []


def test_what_is_overwritten_while_it_is_read() -> None:
    code = """
        STG.E.SYS [R6], R4
        IADD3 R4, R9, 0x1, RZ
    """
    assert _of(code, 1) == ["STG 0"]


def _made(*rows: tuple[str, int | None, int | None, tuple[int, ...]]) -> Program:
    return Program([
        Instruction(16 * n, opcode, control=Control(1, write, read, sum(1 << w for w in wait)))
        for n, (opcode, write, read, wait) in enumerate(rows)
    ])  # fmt: skip


def test_scoreboards_say_it_exactly() -> None:
    code = _made(
        ("LDG", 0, None, ()),  # waited for by the FADD at 2
        ("LDS", 1, None, ()),
        ("FADD", None, None, (0,)),
        ("LDG", 0, None, ()),
        ("MUFU", 0, None, ()),  # shares the scoreboard
        ("STG", None, 2, ()),
        ("FMUL", None, None, (0, 2)),
    )
    assert [x.pc // 16 for x in producers(code, 32, "long_scoreboard")] == [0]
    assert [x.pc // 16 for x in producers(code, 96, "long_scoreboard")] == [3, 5]
    assert [x.pc // 16 for x in producers(code, 96, "short_scoreboard")] == [4]
    assert [x.pc // 16 for x in producers(code, 96)] == [3, 4, 5]
    assert producers(code, 0, "long_scoreboard") == []
    assert producers(code, 8, "long_scoreboard") == []  # no instruction begins there
