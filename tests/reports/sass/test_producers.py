"""What an instruction waits for: who holds the scoreboards that it waits for, on every way to it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from profkit.reports import addresses
from profkit.reports.addresses import DecodedFunction, LaunchedCode, find_awaited_instructions
from profkit.reports.cubin import Function
from profkit.reports.instruction import Control, Instruction

Row = tuple[str, int | None, int | None, tuple[int, ...]]


def _made(*rows: Row | str, **targets: int) -> DecodedFunction:
    """Opcode, scoreboards written and read, and waited for; _3=1: the one at 3 jumps to 1."""
    code = []
    for n, row in enumerate(rows):
        opcode, write, read, wait = (row, None, None, ()) if isinstance(row, str) else row
        target = 16 * targets[f"_{n}"] if f"_{n}" in targets else None
        guard = "P0" if opcode.startswith("P ") else None
        control = Control(1, write, read, sum(1 << w for w in wait))
        code.append(Instruction(16 * n, opcode.removeprefix("P "), guard, target, None, control))
    return DecodedFunction(code)


def _of(code: DecodedFunction, at: int, state: str = "long_scoreboard") -> list[str]:
    """Opcode and position of what the instruction at a position waits for."""
    return [f"{x.opcode} {x.pc // 16}" for x in find_awaited_instructions(code, at * 16, state)]


def test_fixed_latency_exits_fences_and_sleeps() -> None:
    code = _made("FADD", "FMUL", "STG", "MEMBAR", "ERRBAR", "NANOSLEEP", "STG", "EXIT", "BRA", _8=8)
    assert _of(code, 1, "wait") == ["FADD 0"]
    assert _of(code, 4, "membar") == ["MEMBAR 3"]
    assert _of(code, 6, "sleeping") == ["NANOSLEEP 5"]
    # A warp at its exit is sampled behind it; what the fence waited for has left.
    assert _of(code, 8, "drain") == ["STG 6"]


def test_across_blocks() -> None:
    load: Row = ("LDG", 0, None, ())
    use: Row = ("FADD", None, None, (0,))
    code = _made(load, "ISETP", "P BRA", load, "BRA", use, "IADD3", load, "BRA", _2=5, _4=5, _8=5)
    # Both sides of the branch, and the loop that comes round.
    assert _of(code, 5) == ["LDG 0", "LDG 3", "LDG 7"]


def test_a_loop_without_a_producer_ends() -> None:
    code = _made("IADD3", ("FADD", None, None, (0,)), "BRA", _2=0)
    assert _of(code, 1) == []


def test_what_is_overwritten_while_it_is_read() -> None:
    code = _made(("STG", None, 3, ()), ("IADD3", None, None, (3,)))
    assert _of(code, 1) == ["STG 0"]


def test_copies_are_waited_for_by_their_group() -> None:
    copy, close = "LDGSTS", ("LDGDEPBAR", 0, None, ())
    rows = _made(copy, close, copy, close).instructions
    wait = Instruction(64, "DEPBAR", scoreboard=(0, 1))
    assert _of(DecodedFunction([*rows, wait]), 4) == ["LDGSTS 0"]  # the newest group may stay open


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
    assert [x.pc // 16 for x in find_awaited_instructions(code, 32, "long_scoreboard")] == [0]
    assert [x.pc // 16 for x in find_awaited_instructions(code, 96, "long_scoreboard")] == [3, 5]
    assert [x.pc // 16 for x in find_awaited_instructions(code, 96, "short_scoreboard")] == [4]
    assert [x.pc // 16 for x in find_awaited_instructions(code, 96)] == [3, 4, 5]
    assert find_awaited_instructions(code, 0, "long_scoreboard") == []
    assert (
        find_awaited_instructions(code, 8, "long_scoreboard") == []
    )  # no instruction begins there


class _Launch:
    """As much of an action as knows two functions, at 0x1000 and 0x2000, and their text."""

    NameBase_MANGLED = 0
    texts: dict[int, str]

    def __init__(self, **texts: str) -> None:
        listed = {int(at[1:], 16): lines.split(", ") for at, lines in texts.items()}
        self.texts = {}
        for start, lines in listed.items():
            self.texts |= {start + 16 * n: line for n, line in enumerate(lines)}

    def name(self, _base: int) -> str:
        return "kernel"

    def metric_by_name(self, name: str) -> Any:
        if name == "launch__function_pcs":
            starts = [0x1000, 0x2000]
            return SimpleNamespace(num_instances=lambda: 2, as_uint64=starts.__getitem__)
        return SimpleNamespace(as_double=lambda: 7.0)

    def sass_by_pc(self, pc: int) -> str | None:
        return self.texts.get(pc)


def _bits(*codes: int) -> bytes:
    return b"".join(code.to_bytes(16, "little") for code in codes)


NOP, EXIT, MOV, UNKNOWN = 0x7918, 0x794D, 0x7202, 0x71FF


@pytest.mark.parametrize(
    ("text", "opcodes"),
    [
        ("MOV R1, NOP, EXIT", ["MOV", "NOP", "EXIT"]),
        ("@!P0 MOV.64 R1 ;, NOP ;, @UP3 EXIT ;", ["MOV", "NOP", "EXIT"]),
        ("???, ???, ???", ["", "", ""]),
    ],
)
def test_functions_without_an_address_are_placed_by_their_text(
    text: str, opcodes: list[str]
) -> None:
    """As reports before 2023.2 have them, of a kernel that calls another function."""
    launch = _Launch(x1000="NOP, EXIT", x2000=text)
    cubin: Any = None
    functions = [
        Function("kernel", None, _bits(MOV, NOP, EXIT), cubin),
        Function("called", None, _bits(NOP, EXIT), cubin),
    ]
    code = LaunchedCode(launch, lambda: functions)
    assert [code.get_opcode(0x2000 + 16 * n) for n in range(3)] == opcodes
    assert (code._find_function_start(0x2010), code._find_function_start(0x1000)) == (
        0x2000 if opcodes[0] else None,
        0x1000,
    )


def test_a_code_that_is_not_known_has_the_opcode_of_the_text() -> None:
    cubin: Any = None
    known = [Function("kernel", 0x1000, _bits(MOV, UNKNOWN, EXIT), cubin)]
    named = LaunchedCode(_Launch(x1000="MOV, @P1 NEWEST.X4 R2, EXIT"), lambda: known)
    assert [named.get_opcode(0x1000 + 16 * n) for n in range(3)] == [
        "MOV",
        "NEWEST",
        "EXIT",
    ]
    assert named.producers(0x1010, "wait") == [0x1000]
    without = LaunchedCode(_Launch(x1000="MOV, ???, EXIT"), lambda: known)
    assert [without.get_opcode(0x1000 + 16 * n) for n in range(3)] == ["MOV", "", "EXIT"]
    assert without.producers(0x1010, "wait") == []  # then nothing that follows would be sure


def test_a_walk_back_looks_at_so_many_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "BOUND", 4)
    load: Row = ("LDG", 0, None, ())
    use: Row = ("FADD", None, None, (0,))
    assert _of(_made(load, *["NOP"] * 3, use), 4) == ["LDG 0"]
    assert _of(_made(load, *["NOP"] * 4, use), 5) == []


def test_a_function_is_known_by_its_first_instructions() -> None:
    """To ask the library for the text of all would take as long as to read the report."""
    cubin: Any = None
    for same, opcode in ((8, "NOP"), (7, "EXIT")):
        texts = ", ".join(["NOP"] * same + ["EXIT"] * 4)
        launch = _Launch(x1000="MOV", x2000=texts)
        called = Function("called", None, _bits(*[NOP] * 10), cubin)
        code = LaunchedCode(launch, lambda: [called])  # noqa: B023
        assert code.get_opcode(0x2000 + 16 * 9) == opcode
