"""The comment at the top of a .cu file  ->  title, free text and keys.

The contract is the header itself: the first line is the title in every table, then free text,
then `key: value` pairs, several to a line if you like. A key that nobody knows is free text unless
it is nearly a known one, which is a mistake that must not pass in silence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from itertools import product

from profkit.errors import ProfkitError

KEYS: dict[str, str] = {
    "after": "the variant that this one changes, by id",
    "fixes": "rules that fire for `after` and are clear for this one",
    "fixes-not": "rules that this variant was meant to clear and provably does not",
    "moves": "what the counters will do against `after`: stall_barrier<0.5x inst_matrix>2x",
    "moves-not": "what they were to do and provably do not",
    "case": "the case that fixes and moves speak of; without it, every case",
    "flags": "further nvcc flags",
    "arch": "80+ (that or newer), 90a (exactly that), or a list: 80,89",
    "tune": "tunable macros and their values: BLOCK_M=16,32,64 STAGES=2,3",
    "where": "what tunables must satisfy: BLOCK_M % (16 * WARPS) == 0, STAGES > 1",
    "takes": "what a block takes: threads=32*WARPS smem=256*BLOCK_M (bytes), or any other name",
    "steer": "which way a rule asks a tunable to go: grid-too-small=BLOCK_M- barrier-wait=WARPS-",
    "watch": "metrics that a better choice of tunables moves, and which way: stall_barrier- sm_active+",
    "budget": "what ptxas may use at most: regs=128 smem=64K spills=0 stack=0",
    "inputs": "the grid that the inputs lie on, for formats narrower than fp16: e4m3",
    "twin": "what differs from it in one thing only: a variant, or `yes` for -DPROFKIT_TWIN",
    "output": "what a kernel without a reference must give: finite, or as its twin: same, close",
    "also": "rules that must fire on it beside its cause",
    "tolerance": "how close a kernel and its twin must be, in norm",
    "relieves": "what the twin does instead",
    "bound": "what this kernel is bound by, where that is known by construction",
    "limiter": "the limiter that goes with the bound",
    "cause": "the rule that must be named first on it",
    "declares": "what the workload needs, as metric=number: declared_bytes=1073741824",
    "caught-by": "the check that must catch it, for kernels that are wrong on purpose",
}

_COMMENT = re.compile(r"\A\s*(?:/\*(?P<block>.*?)\*/|(?P<lines>(?:[ \t]*//[^\n]*\n?)+))", re.S)
_KEY = re.compile(r"(?:^|(?<=\s))([a-z][a-z-]*):(?=\s|$)")
_SIZE = {"": 1, "K": 1024, "M": 1024 * 1024}


@dataclass(frozen=True)
class Budget:
    """The most that ptxas may use for one kernel function; None where nothing was promised.

    Attributes:
        regs: Registers per thread.
        smem: Shared memory per block in bytes, static and dynamic together.
        spills: Bytes of spill stores and loads together.
        stack: Bytes of stack frame per thread.
    """

    regs: int | None = None
    smem: int | None = None
    spills: int | None = None
    stack: int | None = None


@dataclass(frozen=True)
class Header:
    """What one header says: see KEYS for the keys."""

    title: str
    text: str
    keys: Mapping[str, str] = field(default_factory=dict)


def parse(source: str, name: str) -> Header:
    """Read the leading comment of a source file.

    Args:
        source: The whole file.
        name: What to call the file in an error.
    """
    found = _COMMENT.match(source)
    if not found:
        raise ProfkitError(
            f"{name} has no header",
            "begin the file with a comment: its first line is the title in every table",
        )
    lines = _comment_lines(found)
    if not lines:
        raise ProfkitError(f"{name} has an empty header", "its first line is the title")
    text: list[str] = []
    keys: dict[str, str] = {}
    for line in lines[1:]:
        pairs = _pairs(line, name)
        for key, value in pairs:
            keys[key] = f"{keys[key]} {value}".strip() if key in keys else value
        if not pairs:
            text.append(line)
    return Header(lines[0].strip(), "\n".join(text).strip(), keys)


def _comment_lines(found: re.Match[str]) -> list[str]:
    if found["block"] is not None:
        raw = [re.sub(r"^\s*\*(?=\s|$)", "", line) for line in found["block"].splitlines()]
    else:
        raw = [re.sub(r"^\s*//", "", line) for line in found["lines"].splitlines()]
    lines = [line.strip() for line in raw]
    while lines and not lines[0]:
        lines.pop(0)
    return lines


def _pairs(line: str, name: str) -> list[tuple[str, str]]:
    """The (key, value) pairs of one line; none if the line is free text."""
    first = _KEY.match(line)
    if not first:
        return []
    if first[1] not in KEYS:
        near = get_close_matches(first[1], KEYS, n=1, cutoff=0.75)
        if not near:
            return []
        raise ProfkitError(
            f"{name}: unknown key '{first[1]}:' in the header",
            f"did you mean '{near[0]}:' ({KEYS[near[0]]})?",
        )
    starts = [first]
    for other in _KEY.finditer(line, first.end()):
        gap = len(line[: other.start()]) - len(line[: other.start()].rstrip())
        near = get_close_matches(other[1], KEYS, n=1, cutoff=0.75)
        if other[1] in KEYS:
            starts.append(other)
        elif near and gap >= 2:  # two blanks part pairs; one blank is inside a value
            raise ProfkitError(
                f"{name}: unknown key '{other[1]}:' in the header",
                f"did you mean '{near[0]}:' ({KEYS[near[0]]})?",
            )
    ends = [*(s.start() for s in starts[1:]), len(line)]
    return [(s[1], line[s.end() : end].strip()) for s, end in zip(starts, ends, strict=True)]


def words(value: str) -> tuple[str, ...]:
    """A list of ids, parted by commas or blanks; `-`, an en dash and `none` are empty."""
    return tuple(w for w in re.split(r"[,\s]+", value) if w and w not in ("-", "–", "none"))


def budget(value: str, name: str) -> Budget:
    """`regs=128 smem=64K spills=0 stack=0`  ->  Budget, in registers and bytes."""
    known = [f.name for f in fields(Budget)]
    got: dict[str, int] = {}
    for word in words(value):
        part = re.fullmatch(r"([a-z]+)=(\d+)([KM]?)", word)
        if not part or part[1] not in known:
            raise ProfkitError(
                f"{name}: cannot read '{word}' in 'budget:'",
                f"write e.g. regs=128 smem=64K spills=0 stack=0 (known: {', '.join(known)})",
            )
        got[part[1]] = int(part[2]) * _SIZE[part[3]]
    return Budget(**got)


def tune(value: str, name: str) -> dict[str, tuple[str, ...]]:
    """`BLOCK_M=16,32 STAGES=2,3`  ->  macro -> values, the first of which is the default."""
    got: dict[str, tuple[str, ...]] = {}
    for word in value.replace(";", " ").split():
        macro, equals, values = word.partition("=")
        options = tuple(v for v in values.split(",") if v)
        if not equals or not options or not re.fullmatch(r"[A-Za-z_]\w*", macro, re.ASCII):
            raise ProfkitError(
                f"{name}: cannot read '{word}' in 'tune:'", "write e.g. BLOCK_M=16,32,64"
            )
        got[macro] = options
    return got


def combinations(tunables: Mapping[str, tuple[str, ...]]) -> list[dict[str, str]]:
    """Every choice of one value per macro, the defaults first."""
    return [dict(zip(tunables, values, strict=True)) for values in product(*tunables.values())]


def target(spec: str | None, arch: str, name: str) -> str | None:
    """The compile target for an architecture, or None if the header rules it out.

    Args:
        spec: The `arch:` key: `80+`, `90a`, `80,89`; None allows everything.
        arch: What is asked for: `90`, or `90a`.
        name: What to call the file in an error.

    Returns:
        `90`, or `90a` where the header asks for the architecture-specific features of arch.
    """
    if not spec:
        return arch
    number = int(arch.rstrip("af"))
    for word in words(spec):
        part = re.fullmatch(r"(?:sm_)?(\d+)([af]?)(\+?)", word)
        if not part:
            raise ProfkitError(f"{name}: cannot read '{word}' in 'arch:'", KEYS["arch"])
        if (part[3] and number >= int(part[1])) or number == int(part[1]):
            return f"{number}{part[2]}" if number == int(part[1]) else str(number)
    return None
