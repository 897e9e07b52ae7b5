"""SASS as text, as ncu_report disassembles it  ->  instructions, without control fields."""

from __future__ import annotations

import re
from collections.abc import Iterator

from profkit.reports.sass.instruction import Instruction, opcode_set

_REGISTER = re.compile(r"\b(UR|R)(\d+)\b(?:\.(64))?")
_PREDICATE = re.compile(r"\b(UP|P)(\d)\b")
_BARRIER = re.compile(r"\bB(\d+)\b")
_PREDICATES = tuple(f"P{n}" for n in range(7))
_DESTINATION = re.compile(r"(?:(?:UR|R)(?:\d+|Z)|UP\d|P\d|U?PT|URZ|B\d+|PR)(?:\.\w+)*")
_IS_PREDICATE = re.compile(r"U?P(?:\d|T)")

# They write no register; all their operands are read.
_NO_RESULT = opcode_set("""
    ST STG STS STL STSM STAS STTM RED REDG SUST SURED BRA BRX BRXU JMP JMX CALL RET EXIT BAR MEMBAR
    FENCE NOP WARPSYNC BSYNC BREAK DEPBAR LDGDEPBAR LDGSTS NANOSLEEP CCTL CCTLL ERRBAR CGAERRBAR
    UTMALDG UTMASTG UTMAREDG UTMAPF UTMACCTL UTMACMDFLUSH UBLKCP UBLKRED UBLKPF WARPGROUP
    ENDCOLLECTIVE YIELD BPT KILL ARRIVES UCGABAR_ARV UCGABAR_WAIT ACQBULK PREEXIT RPCMOV R2B UTCBAR
    UTCCP UTCHMMA UTCIMMA UTCQMMA UTCOMMA UTCATOMSWS
""")
# Two predicates come first, all others of theirs are read.
_TWO_PREDICATES = opcode_set("ISETP FSETP DSETP HSETP2 UISETP PLOP3 UPLOP3 PSETP UFSETP")
# A predicate may come before the register that they write.
_PREDICATE_FIRST = opcode_set("""
    LOP3 ULOP3 SHFL ATOM ATOMG ATOMS R2UR ELECT MATCH VOTE VOTEU LD LDG LDL LDS TEX TLD TLD4 SULD
    SUATOM REDUX
""")
_DOUBLE = opcode_set("DFMA DADD DMUL DMNMX DSETP")
_TEXTURE = opcode_set("TEX TLD TLD4 TXD TMML SULD")
_CONVERSIONS = opcode_set("F2F I2F F2I FRND")
# Their last modifier is how many registers they move: .4, .x32.
_MATRICES = opcode_set("LDSM STSM LDTM STTM")
# Registers of (A, B, C and D) by opcode and shape.
_SHAPES = """
    HMMA.884 2 2 8, HMMA.1688 2 1 4, HMMA.16816 4 2 4, HMMA.16832 4 2 4, IMMA.8816 1 1 2,
    IMMA.8832 1 1 2, IMMA.16816 2 1 4, IMMA.16832 4 2 4, IMMA.16864 4 2 4, BMMA.88128 1 1 2,
    BMMA.168128 2 1 4, BMMA.168256 4 2 4, DMMA.884 2 2 4, DMMA.1684 4 2 8, DMMA.1688 8 4 8,
    DMMA.16816 16 8 8, QMMA.16832 4 2 4, OMMA.16864 4 2 4
"""
_MATRIX = {shape: tuple(map(int, counts)) for shape, *counts in map(str.split, _SHAPES.split(","))}


def split_operands(text: str) -> list[str]:
    """Return the operands between the commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        if letter in "[({":
            depth += 1
        elif letter in "])}":
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    rest = text[start:].strip()
    return [*parts, rest] if rest else parts


def registers(
    opcode: str, modifiers: tuple[str, ...], operands: list[str]
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the registers (R4, UR6, P0, UP1, B0) that are read and that are written.

    RZ, URZ and PT hold nothing and are in neither.
    """
    results = _results(opcode, operands)
    writes: set[str] = set()
    for at in range(results):
        writes.update(_named(operands[at], _width(opcode, modifiers, at, results)))
    reads: set[str] = set()
    for at, operand in enumerate(operands[results:], results):
        reads.update(_named(operand, _width(opcode, modifiers, at, results)))
    if "PR" in operands:
        (writes if operands[0] == "PR" else reads).update(_PREDICATES)
    return frozenset(reads), frozenset(writes)


def _results(opcode: str, operands: list[str]) -> int:
    """Return how many of the operands, from the first one on, are written."""
    if opcode in _NO_RESULT or not operands or not _DESTINATION.fullmatch(operands[0]):
        return 0
    if opcode in _TWO_PREDICATES:
        return 2
    count, first = 1, bool(_IS_PREDICATE.fullmatch(operands[0]))
    if opcode in _TEXTURE and not first:
        return 2
    if first:
        more = len(operands) > 2 and opcode in _PREDICATE_FIRST
        return 2 if more and _DESTINATION.fullmatch(operands[1]) else 1
    # Carries out and flags come after the register: R4, P0, PT, ...
    while count < min(3, len(operands) - 1) and _IS_PREDICATE.fullmatch(operands[count]):
        count += 1
    return count


def _named(operand: str, width: int) -> Iterator[str]:
    """Yield names of the registers of one operand; one in brackets has its own width."""
    inside = "[" in operand
    for kind, number, wide in _REGISTER.findall(operand):
        count = width
        if inside:
            described = operand.startswith("desc[") and kind == "UR"
            count = 2 if wide or described or operand.startswith("gdesc[") else 1
        for n in range(int(number), int(number) + count):
            yield f"{kind}{n}"
    for kind, number in _PREDICATE.findall(operand):
        yield f"{kind}{number}"
    for number in _BARRIER.findall(operand) if operand[:1] == "B" else ():
        yield f"B{number}"


def _width(opcode: str, modifiers: tuple[str, ...], at: int, results: int) -> int:
    """Return 32-bit registers of the operand at a position."""
    width = 1
    if opcode.endswith("MMA"):
        width = _matrix(opcode, modifiers, at)
    elif opcode in _MATRICES:
        last = modifiers[-1].lstrip("x") if modifiers else ""
        width = int(last) if last.isdigit() and int(last) <= 128 else 1
    elif opcode in _TEXTURE | _DOUBLE:
        width = 2
    elif opcode == "CS2R":
        width = 1 if "32" in modifiers else 2
    elif opcode in ("IMAD", "UIMAD") and "WIDE" in modifiers:
        width = 2 if at < results or at == results + 2 else 1
    elif opcode in _CONVERSIONS:
        width = _converted(modifiers, at < results)
    elif opcode != "MUFU":  # .RCP64H and .RSQ64H read and write a half
        width = next((int(m) // 32 for m in modifiers if m in ("64", "96", "128", "256")), 1)
    return width


def _converted(modifiers: tuple[str, ...], result: bool) -> int:
    """F2F.F64.F32 writes 64 bits and reads 32."""
    kinds = [m for m in modifiers if re.fullmatch(r"[FUS](8|16|32|64)", m)]
    if not kinds:
        return 1
    kind = kinds[0] if result else kinds[-1] if len(kinds) > 1 else ""
    return 2 if kind.endswith("64") else 1


def _matrix(opcode: str, modifiers: tuple[str, ...], at: int) -> int:
    if opcode.endswith("GMMA"):  # 64xNxK over the 128 threads of a warpgroup
        n = re.match(r"\d+x(\d+)", modifiers[0] if modifiers else "")
        halves = 2 if "F16" in modifiers[1:] and "F32" not in modifiers else 1
        return max(1, int(n[1]) // (2 * halves)) if n and at == 0 else 4
    a, b, c = _MATRIX.get(f"{opcode}.{modifiers[0] if modifiers else ''}", (4, 4, 4))
    if "F16" in modifiers and "F32" not in modifiers:
        c //= 2
    return (c, a, b, c)[at] if at < 4 else 1


_LINE = re.compile(
    r"\s*(?:/\*(?P<at>[0-9a-f]+)\*/\s*)?"
    r"(?:@(?P<guard>!?U?P(?:\d|T))\s+)?"
    r"(?P<opcode>[A-Z][A-Z0-9_]*)(?P<modifiers>(?:\.\w+)*)"
    r"(?P<operands>[^;/]*);?\s*(?:/\*.*)?"
)
_TARGET = re.compile(r"(?:^|[\s,])(0x[0-9a-f]+)\s*$")
_GUARDED = re.compile(r"!?(U?P\d)")
_JUMPS = opcode_set("BRA BSSY CALL JMP")
_LATENT = re.compile(r"SB(\d+)\s*(?:,\s*(0x[0-9a-f]+|\d+))?")


def parse_sass(line: str, pc: int) -> Instruction | None:
    """Return an instruction of a text like "@P0 LDG.E.128 R4, [R2.64]"; None for any other text."""
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
    )


def _scoreboard(operands: str) -> tuple[int, int] | None:
    match = _LATENT.search(operands)
    return (int(match[1]), int(match[2] or "0", 0)) if match else None
