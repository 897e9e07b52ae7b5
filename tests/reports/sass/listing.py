"""What a disassembler prints (nvdisasm, cuobjdump)  ->  instructions with their control fields.

It puts the encoding behind an instruction in comments, two words for each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from profkit.reports.sass.instruction import BYTES, Instruction, control
from profkit.reports.sass.text import parse_sass

_CODE = re.compile(r"/\*\s*0x([0-9a-f]{16})\s*\*/")


def parsed(line: str, pc: int) -> Instruction | None:
    """One instruction; its control fields are in the second word."""
    instruction, words = parse_sass(line, pc), _CODE.findall(line)
    if instruction is None or len(words) != 2:
        return instruction
    return replace(instruction, control=control(int(words[1], 16)))


def program(lines: Iterable[str], start: int) -> list[Instruction]:
    """The instructions of one function; text that is none leaves a gap at its address."""
    instructions: list[Instruction] = []
    pc, joined = start, _joined(lines)
    for line in joined:
        address = re.match(r"\s*/\*([0-9a-f]{4,})\*/", line)
        at = start + int(address[1], 16) if address else pc
        instruction = parsed(line, at)
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
