"""Machine code bit by bit: opcodes, guards, targets, control fields."""

from __future__ import annotations

import pytest

from profkit.reports import instruction as machine
from profkit.reports.addresses import DecodedFunction, find_awaited_instructions
from profkit.reports.instruction import (
    BY_FORM,
    OPCODES,
    Control,
    Instruction,
    decode_control_fields,
)

# Twelve bits of an instruction (opcode and form of its operands) -> what the library's text says,
# one of each, out of reports of 7.5 to 12.0.
SEEN = """
202 MOV, 803 P2R, 804 R2P, 805 CS2R, 806 VOTE, 207 SEL, 208 FSEL, 209 FMNMX, c0a FSET, 20b FSETP,
20c ISETP, 210 IADD3, 211 LEA, 212 LOP3, 213 IABS, 816 PRMT, 217 IMNMX, 219 SHF,
81a SGXT, 81c PLOP3, 220 FMUL, 221 FADD, 223 FFMA, 224 IMAD, 225 IMAD, 227 IMAD,
228 DMUL, 229 DADD, 22a DSETP, 22b DFMA, 82d PREEXIT, 82e ACQBULK, 82f ELECT,
230 HADD2, 431 HFMA2, 232 HMUL2, 836 VIADD, 237 IMMA, 239 I2IP, 23a MOVM, 83b LDSM,
23c HMMA, 23e F2FP, 844 STSM, 245 I2FP, 246 VIADDMNMX, 248 VIMNMX, 84a UVIMNMX,
882 UMOV, 886 VOTEU, 287 USEL, 28c UISETP, 290 UIADD3, 291 ULEA, 292 ULOP3, 896 UPRMT,
897 UIADD3, 299 USHF, 2a4 UIMAD, 2a5 UIMAD, ab9 ULDC, abb ULDC, 2ca R2UR, 300 FLO,
302 FCHK, b04 F2F, 305 F2I, 306 I2F, 308 MUFU, 309 POPC, 310 F2F, 311 F2I, 312 I2F,
918 NOP, 919 S2R, 91a DEPBAR, 91b ENDCOLLECTIVE, 51d BAR, 941 BSYNC, 942 BREAK,
343 CALL, 944 CALL, 945 BSSY, 946 YIELD, 547 BRA, 348 WARPSYNC, 94d EXIT, 94e LEPC,
950 RET, 355 BMOV, 95c BPT, 95d NANOSLEEP, 980 LD, 381 LDG, b82 LDC, 983 LDL, 984 LDS,
385 ST, 386 STG, 387 STL, 388 STS, 389 SHFL, 38c ATOMS, 98f CCTL, 992 MEMBAR,
5a7 SYNCS, 3a8 ATOMG, 7ac LDCU, fae LDGSTS, 9af LDGDEPBAR, 5b2 SYNCS, 3b4 UTMALDG,
3b5 UTMASTG, 9b7 UTMACMDFLUSH, 9b9 UTMACCTL, 3ba UBLKCP, dbd STAS, 3c2 R2UR, 9c3 S2UR,
9c5 WARPGROUP, 3c6 FENCE, 9c8 USETMAXREG, 9f0 HGMMA, 9ab ERRBAR, 5ab CGAERRBAR,
9c7 UCGABAR_ARV, dc7 UCGABAR_WAIT, 20f VIMNMX3, 89a USGXT, 3bc UBLKPF, 9f3 QGMMA
"""
# In the table from the probes and the corpus, in no report at hand under a form of its own.
RARE = "033 HSET2, 149 BRX, 160 TEX, 18d ATOMS, 1a6 REDG"


def test_every_opcode_has_the_code_that_reports_give_it() -> None:
    known = dict(pair.split() for pair in f"{SEEN}, {RARE}".replace("\n", " ").split(", "))
    for code, name in known.items():
        assert machine.decode_opcode(int(code, 16), 90) == name, code
    short = {int(code, 16) & 0x1FF for code in known if int(code, 16) not in BY_FORM}
    assert short == set(OPCODES)


@pytest.mark.parametrize(
    ("capability", "name"),
    [(70, "HFMA2"), (90, "HFMA2"), (99, "HFMA2"), (100, "IADD"), (120, "IADD")],
)
def test_a_code_that_became_another_instruction(capability: int, name: str) -> None:
    assert machine.decode_opcode(0x435, capability) == name


# --- jumps, guards, control fields: (lower word, upper word, address, capability) out of reports


@pytest.mark.parametrize(
    ("low", "high", "pc", "capability", "guard", "target"),
    [
        (0xFFFFFFFC00688947, 0x000FEA000383FFFF, 0x7FD7977A0640, 90, "!P0", 0x7FD7977A03F0),
        (0x0000000000989947, 0x000FEA0003800000, 0x7FD7977A0740, 90, "!P1", 0x7FD7977A09B0),
        (0x0000001400DC8947, 0x000FEA0003800000, 0x7FD7977A09C0, 90, "!P0", 0x7FD7977A2140),
        (0x00000010008C4947, 0x000FEA0003800000, 0x7FD7977A0ED0, 90, "P4", 0x7FD7977A2110),
        # Before 9.0 bits 16 to 23 are no part of the offset: 0x40 bytes on, and back to itself.
        (0x0000004000FF7947, 0x000FC00003800000, 0x1000, 86, None, 0x1050),
        (0xFFFFFFF000007947, 0x000FC0000383FFFF, 0x1000, 75, None, 0x1000),
        (0x0000004000FF7547, 0x000FC00003800000, 0x1000, 86, None, 0x1050),
        (0x0000004000FF7944, 0x000FC00003800000, 0x1000, 86, None, 0x1050),
        (0x0000004000FFF94D, 0x000FC00003800000, 0x1000, 86, "!PT", None),
        (0x000000400000694D, 0x000FC00003800000, 0x1000, 86, "P6", None),
    ],
)
def test_guard_and_target(low, high, pc, capability, guard, target) -> None:
    code = low.to_bytes(8, "little") + high.to_bytes(8, "little")
    (instruction,) = machine.decode_function(code, pc, capability) or []
    assert (instruction.pc, instruction.guard, instruction.target) == (pc, guard, target)


def _code(*lows: int) -> bytes:
    return b"".join(low.to_bytes(16, "little") for low in lows)


def test_instructions_are_16_bytes_apart_and_a_rest_is_none() -> None:
    code = machine.decode_function(_code(0x7918, 0x7918, 0x794D) + b"\x18\x79", 0x100, 90)
    assert [(x.pc, x.opcode, x.guard) for x in code or ()] == [
        (0x100, "NOP", None),
        (0x110, "NOP", None),
        (0x120, "EXIT", None),
    ]
    assert [machine.decode_opcode(low, 90) for low in (0x7918, 0x71FF, 0x7FFF)] == [
        "NOP",
        None,
        None,
    ]


@pytest.mark.parametrize(("board", "left"), [(0, 0), (5, 1), (7, 63), (2, 32)])
def test_the_scoreboard_of_a_depbar(board: int, left: int) -> None:
    (found,) = machine.decode_function(_code(0x791A | board << 44 | left << 38), 0, 90) or []
    assert found.scoreboard == (board, left)
    (other,) = machine.decode_function(_code(0x7918 | board << 44 | left << 38), 0, 90) or []
    assert other.scoreboard is None


@pytest.mark.parametrize(
    ("high", "expected"),
    [
        (0x000EA2000C1E1900, Control(1, 2, None, 0)),
        (0x004FCA0000000000, Control(5, None, None, 0b100)),
        (0, Control(0, 0, 0, 0)),
        ((1 << 64) - 1, Control(15, None, None, 63)),
        (6 << 46 | 5 << 49 | 33 << 52 | 9 << 41, Control(9, 6, 5, 33)),
        (1 << 45, Control(0, 0, 0, 0)),  # yield: no number of cycles
    ],
)
def test_control_fields(high: int, expected: Control) -> None:
    assert decode_control_fields(high) == expected


def test_who_holds_a_scoreboard() -> None:
    fields = Control(1, 2, 5, 0)
    assert [n for n in range(8) if fields.sets_scoreboard(n)] == [2, 5]
    assert not any(Control(1, None, None, 63).sets_scoreboard(n) for n in range(8))


# --- flow and producers


def _made(*opcodes: str, **targets: int) -> DecodedFunction:
    """A P before an opcode: it runs under a predicate; _3=1: the one at 3 jumps to 1."""
    return DecodedFunction(
        [
            Instruction(
                16 * n,
                name.removeprefix("P "),
                guard="P0" if name.startswith("P ") else None,
                target=16 * targets[f"_{n}"] if f"_{n}" in targets else None,
            )
            for n, name in enumerate(opcodes)
        ]
    )


def test_where_control_comes_from() -> None:
    code = _made("NOP", "P BRA", "NOP", "BRA", "NOP", "EXIT", "NOP", _1=4, _3=0)
    assert {n: code.before.get(n, []) for n in range(7)} == {
        0: [3],
        1: [0],
        2: [1],
        3: [2],
        4: [1],
        5: [4],
        6: [],
    }
    assert code.index == {16 * n: n for n in range(7)}
    assert _made("P EXIT", "NOP").before[1] == [0]


def test_an_indirect_jump_goes_where_nothing_else_leads() -> None:
    code = _made("NOP", "BRX", "NOP", "BRA", "NOP", "NOP", _3=5)
    before = {n: sorted(code.before.get(n, [])) for n in range(6)}
    assert before == {0: [], 1: [0], 2: [1], 3: [2], 4: [1], 5: [3, 4]}
    assert _made("BRX", "NOP").before[1] == [0]


def _found(code: DecodedFunction, at: int, state: str) -> list[int]:
    return [x.pc // 16 for x in find_awaited_instructions(code, 16 * at, state)]


def test_a_fixed_latency_is_none_of_a_load_s_and_a_full_pipe_awaits_no_result() -> None:
    assert _found(_made("FADD", "FMUL"), 1, "wait") == [0]
    assert _found(_made("LDS", "FMUL"), 1, "wait") == []
    assert _found(_made("MUFU", "FMUL"), 1, "wait") == []
    assert _found(_made("FADD", "FMUL"), 1, "math_pipe_throttle") == []


def test_barriers_and_wgmma() -> None:
    code = _made("HGMMA", "WARPGROUP", "NOP", "BAR", "NOP", "WARPGROUP", "STG")
    assert _found(code, 1, "barrier") == [0]  # the wait itself: the products before it
    assert _found(code, 2, "barrier") == [0]
    assert _found(code, 4, "barrier") == [3]
    assert _found(code, 6, "gmma") == [0]
    assert _found(_made("NOP", "WARPGROUP"), 1, "gmma") == [1]  # no product: it waits for itself
    assert _found(_made("BAR", "P BRA", "WARPGROUP", "NOP", _1=3), 3, "barrier") == [0, 2]


def test_exits_look_back_to_a_fence() -> None:
    code = _made("STG", "MEMBAR", "STG", "REDG", "LDG", "EXIT", "NOP")
    assert _found(code, 5, "drain") == [2, 3]
    assert _found(code, 6, "drain") == [2, 3]  # sampled behind the exit
    assert _found(code, 0, "drain") == []
    assert _found(_made("STG", "ERRBAR", "EXIT"), 2, "drain") == []


def _scheduled(*rows: tuple[str, int | None, int | None, tuple[int, ...]]) -> DecodedFunction:
    return DecodedFunction(
        [
            Instruction(16 * n, opcode, control=Control(1, write, read, sum(1 << w for w in wait)))
            for n, (opcode, write, read, wait) in enumerate(rows)
        ]
    )


def test_every_scoreboard_from_0_to_5() -> None:
    loads = [("LDG", n, None, ()) for n in range(6)]
    code = _scheduled(
        *loads, *[("FADD", None, None, (n,)) for n in range(6)], ("STG", None, None, (0, 5))
    )
    assert [_found(code, 6 + n, "long_scoreboard") for n in range(6)] == [[n] for n in range(6)]
    # At 12 both were waited for before: nobody can still hold them but who is behind that.
    assert _found(code, 12, "long_scoreboard") == []


def test_a_depbar_leaves_the_newest_open() -> None:
    wait = Instruction(64, "DEPBAR", scoreboard=(0, 2), control=Control(1, None, None, 0))
    rows = [Instruction(16 * n, "LDG", control=Control(1, 0, None, 0)) for n in range(4)]
    behind = Instruction(80, "FADD", control=Control(1, None, None, 0))
    code = DecodedFunction([*rows, wait, behind])
    assert _found(code, 4, "long_scoreboard") == [0, 1]
    assert _found(code, 5, "long_scoreboard") == [0, 1]  # it waits for nothing else
    all_open = Instruction(64, "DEPBAR", scoreboard=(0, 9), control=Control(1, None, None, 0))
    assert _found(DecodedFunction([*rows, all_open]), 4, "long_scoreboard") == [0, 1, 2, 3]


def test_other_units_answer_where_the_right_one_does_not() -> None:
    code = _scheduled(("MUFU", 0, None, ()), ("FADD", None, None, (0,)))
    assert _found(code, 1, "long_scoreboard") == [0]
    assert _found(code, 1, "short_scoreboard") == [0]
