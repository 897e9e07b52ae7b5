"""An instruction's operands by its bits are those of its text, in every report there is."""

from __future__ import annotations

import re
import struct
from collections import Counter
from pathlib import Path

import pytest

from profkit.reports.instruction import decode_opcode
from profkit.reports.lanes import SassStatement, parse_sass_statement
from profkit.reports.operands import READERS, bound_written_registers, decode_statement
from tests.conftest import ROOT, kinds, others
from tests.reports.sass.test_machine import list_functions
from tests.sweeps import take_part

pytestmark = pytest.mark.forks

# Modifiers that change what an instruction does with its operands, or how many bytes it moves.
SAID = set("X HI WIDE L R S32 S64 U64 SX32 64 128 U8 S8 U16 S16 16 2 4 M88 MT88".split())


def make_comparable(statement: SassStatement) -> tuple[object, ...]:
    """Return a statement's parts, without the many ways to write a number or an address."""
    said = {name for name in statement.modifiers if name in SAID}
    if "HI" in said and statement.opcode.endswith("IMAD") and "U32" in statement.modifiers:
        said.add("U32")  # only the upper half of a product depends on it
    operands: tuple[object, ...] = ()
    if statement.opcode != "LDGSTS":  # nothing is said of where it copies from and to
        operands = tuple(map(make_operand_comparable, statement.operands))
    guard = statement.guard.replace("U", "")  # whether it is uniform the bits tell not
    return guard, statement.opcode, said, operands, statement.writes


def make_operand_comparable(operand: str) -> object:
    if re.fullmatch(r"-?0x[0-9a-f]+", operand):
        return int(operand, 16) % (1 << 32)
    if operand.startswith("["):
        terms = operand.strip("[]").split("+")
        return [make_operand_comparable(term) for term in terms if term not in ("RZ", "URZ", "")]
    return operand.replace("[RZ]", "[0x0]")


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    take_part([*kinds(), *others()], one_of=9, first=1),
    ids=lambda path: path.name[:40],
)
def test_bits_say_what_the_text_says(path: Path) -> None:
    read = Counter[bool]()
    for texts, function, capability in list_functions(path):
        for text, (low, high) in zip(texts, struct.iter_unpack("<QQ", function.code), strict=True):
            opcode = decode_opcode(low, capability)
            if text.strip() in ("", "???") or opcode is None:
                continue
            expected = parse_sass_statement(text)
            kind, most = bound_written_registers(opcode)
            assert len(expected.writes) <= most, text
            assert all(register.startswith(kind) for register in expected.writes), text
            if kind == "R":
                assert not any(register.startswith("U") for register in expected.writes), text
            got = decode_statement(struct.pack("<QQ", low, high), opcode, capability)
            if opcode in READERS:
                read[got is not None] += 1
            if got is not None:
                assert make_comparable(got) == make_comparable(expected), text
    assert read[True] >= 2 * read[False], read


@pytest.mark.parametrize(
    ("bits", "opcode"),
    [
        ((0x9, 0x0), "FFMA"),  # an opcode of which nothing is read
        ((0x40802_7C10, 0x1 << 28), "IADD3"),  # a bit that no instruction has had
        ((0xB7919, 0x3900), "S2R"),  # lanes below this one: no number of a thread
        ((0x408047297, 0xFFFE03F), "UIADD3"),  # of pairs of registers
        ((0x20D7FAE, 0xB981814), "LDGSTS"),  # of Blackwell, whose size is somewhere else
    ],
)
def test_what_is_not_known_is_left_to_the_text(bits: tuple[int, int], opcode: str) -> None:
    capability = 120 if opcode == "LDGSTS" else 90
    assert decode_statement(struct.pack("<QQ", *bits), opcode, capability) is None


def test_a_report_with_conflicts_needs_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's first text takes 0.3 s: as long as all of diagnose without lines."""
    from profkit.reports.addresses import LaunchedCode
    from profkit.reports.hotlines import answer_requests_of_report

    def refuse(_: LaunchedCode, pc: int) -> str:
        raise AssertionError(f"the text of {pc:#x} was asked for")

    monkeypatch.setattr(LaunchedCode, "disassemble_instruction", refuse)
    path = str(ROOT / "artifacts" / "stage2.B.ncu-rep")
    request = {"report": path, "launch": 0, "counters": {"rule": ("excess-wavefronts",)}}
    (answer,) = answer_requests_of_report([path, [request]])
    assert answer.layouts["rule"].found
