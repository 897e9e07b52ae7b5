"""SASS as text (an ncu report's, nvdisasm's, cuobjdump's)  ->  instructions.

Nsight Compute gives one instruction without its control fields; the disassemblers put the encoding
behind it in comments, two words for each instruction, from which the control fields are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from profkit.reports.sass.instruction import BYTES, Control, Instruction, control
from profkit.reports.sass.operands import registers, split_operands

_LINE = re.compile(
    r"\s*(?:/\*(?P<at>[0-9a-f]+)\*/\s*)?"
    r"(?:@(?P<guard>!?U?P(?:\d|T))\s+)?"
    r"(?P<opcode>[A-Z][A-Z0-9_]*)(?P<modifiers>(?:\.\w+)*)"
    r"(?P<operands>[^;/]*);?\s*(?:/\*.*)?"
)
_CODE = re.compile(r"/\*\s*0x([0-9a-f]{16})\s*\*/")
_TARGET = re.compile(r"(?:^|[\s,])(0x[0-9a-f]+)\s*$")
_GUARDED = re.compile(r"!?(U?P\d)")
_JUMPS = frozenset({"BRA", "BSSY", "CALL", "JMP"})
_LATENT = re.compile(r"SB(\d+)\s*(?:,\s*(0x[0-9a-f]+|\d+))?")


def parse_sass(line: str, pc: int) -> Instruction | None:
    """One instruction.

    Args:
        line: "@P0 LDG.E.128 R4, [R2.64]", with or without address, semicolon and encoding.
        pc: Its address.

    Returns:
        None for text that is no instruction (blank, "???", a label).
    """
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    opcode, operands = match["opcode"], match["operands"]
    modifiers = tuple(match["modifiers"].split(".")[1:])
    reads, writes = registers(opcode, modifiers, split_operands(operands))
    if match["guard"] and (guard := _GUARDED.fullmatch(match["guard"])):
        reads |= {guard[1]}
    target = _TARGET.search(operands) if opcode in _JUMPS else None
    return Instruction(
        pc=pc,
        opcode=opcode,
        modifiers=modifiers,
        guard=match["guard"],
        reads=reads,
        writes=writes,
        target=int(target[1], 16) if target else None,
        scoreboard=_scoreboard(operands) if opcode == "DEPBAR" else None,
        control=_control(line),
    )


def program(lines: Iterable[str], start: int) -> list[Instruction]:
    """The instructions of one function.

    Args:
        lines: One instruction each, in order; a line that holds only the second word of an
            encoding belongs to the one before.
        start: Address of the first one, where the text gives no addresses of its own.

    Returns:
        As far as the text is instructions; others leave a gap at their address.
    """
    instructions: list[Instruction] = []
    pc, joined = start, _joined(lines)
    for line in joined:
        address = re.match(r"\s*/\*([0-9a-f]{4,})\*/", line)
        at = start + int(address[1], 16) if address else pc
        instruction = parse_sass(line, at)
        if instruction is not None:
            instructions.append(instruction)
        pc = at + BYTES
    return instructions


def _joined(lines: Iterable[str]) -> list[str]:
    """Each instruction with the second word of its encoding, which has a line of its own."""
    joined: list[str] = []
    for line in lines:
        if joined and re.fullmatch(r"\s*/\*\s*0x[0-9a-f]{16}\s*\*/\s*", line):
            joined[-1] += line
        else:
            joined.append(line)
    return joined


def _control(line: str) -> Control | None:
    words = _CODE.findall(line)
    return control(int(words[1], 16)) if len(words) == 2 else None


def _scoreboard(operands: str) -> tuple[int, int] | None:
    match = _LATENT.search(operands)
    return (int(match[1]), int(match[2] or "0", 0)) if match else None
