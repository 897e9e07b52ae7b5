"""The text of a PTX module  ->  its kernels, statement by statement; changes  ->  the text with them.

What is not changed is kept letter for letter. A statement is known by its place in the text, and a
change is a piece of text that is put before, behind or in the place of one. Comments are blanked before
reading, so that places stay what they are.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from profkit.errors import ProfkitError

if TYPE_CHECKING:
    from profkit.units import (
        BasicBlockNumber,
        ByteCount,
        MangledName,
        PtxText,
        RegisterName,
        TextOrEmpty,
    )


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ENTRY = re.compile(r"(?:\.(?:visible|weak)\s+)*\.entry\s+([\w$%]+)")
_FUNCTION = re.compile(r"(?:\.(?:visible|weak|extern)\s+)*\.func\s+(?:\([^)]*\)\s*)?([\w$%]+)")
# What a kernel's body is made of, one after the other.
_PART = re.compile(
    r"""
      (?P<nothing> [\s{};]+ )
    | \.loc\s+ (?P<file> \d+) \s+ (?P<line> \d+) [^\n]*
    | (?P<label> [$%\w]+ ) \s* : (?!:)
    | (?P<declaration> \. [^;]* ; )
    | (?: @ (?P<negated> !?) \s* (?P<guard> [%$\w]+) \s+ )?
      (?P<opcode> [a-z][\w.:]* ) (?P<operands> [^;]* ) ;
    """,
    re.VERBOSE,
)
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"\n]*)"', re.MULTILINE)
_REGISTERS = re.compile(r"\.reg\s*\.(\w+)\s+([^;]*);")
_NAMES = re.compile(r"([%$\w]+)(?:<(\d+)>)?")
_WORD = re.compile(r"[\w$%]+")
# What an array holds at first, and what a function is also called: both may name functions.
_INITIAL = re.compile(r"=[^;]*;|\.alias\b[^;]*;")
_NAME = re.compile(r"%[\w$]+(?:\.[xyzw])?|[A-Za-z_$][\w$]*")
_ADDRESS = re.compile(r"\[\s*([%$\w]+)\s*(?:\+\s*(-?\s*\d+))?\s*\]")
_VARIABLE = re.compile(
    r"^[ \t]*((?:\.(?:visible|weak|extern|common)\s+)*)\.(global|const)\s[^;{(=]*?([\w$]+)\s*(?:\[|=|;)",
    re.MULTILINE,
)
_BITS = re.compile(r"[busf](8|16|32|64|128)|b?f16x2|bf(16)")
_ENDS_BLOCK = frozenset({"bra", "brx", "ret", "exit", "trap"})


@dataclass(frozen=True)
class PtxStatement:
    """One instruction. Operands are text, as they stand."""

    start: int  # its first letter, that of its guard where it has one
    end: int  # behind its semicolon
    guard: str  # the predicate's register; empty without one
    negated: bool  # whether it is done where the predicate is false
    opcode: str  # `ld.global.f32`
    operands: tuple[str, ...]
    line: tuple[int, int]  # the number of its source file, and the line there; zeros: not known
    block: int  # which basic block of its kernel

    @property
    def words(self) -> list[str]:
        return self.opcode.split(".")

    @property
    def condition(self) -> TextOrEmpty:
        """Return its guard as it is written: `@!%p1 `; empty without one."""
        if not self.guard:
            return ""
        return f"@{'!' * self.negated}{self.guard} "

    def list_addresses(self) -> list[Address]:
        """Return the operands that are places in memory, in order."""
        found = []
        for number, operand in enumerate(self.operands):
            match = _ADDRESS.fullmatch(operand)
            if match:
                offset = int((match[2] or "0").replace(" ", ""))
                found.append(Address(number, match[1], offset))
        return found


@dataclass(frozen=True)
class Address:
    operand: int  # which operand of its statement
    base: str  # a register or the name of a variable
    offset: int  # bytes

    @property
    def in_register(self) -> bool:
        return self.base.startswith("%")


@dataclass(frozen=True)
class PtxKernel:
    """One entry function, or a function that kernels call."""

    name: str
    is_entry: bool
    directives: str  # between its parameters and its body: `.maxntid 256, 1, 1`
    body: int  # behind its opening brace
    end: int  # its closing brace
    statements: tuple[PtxStatement, ...]
    basic_block_count: int
    types: dict[str, str] = field(repr=False)  # register -> its type, `b64`
    # label -> the basic block that begins there; none of those that stand in several scopes
    labels: dict[str, int] = field(repr=False)

    @functools.cached_property
    def writes(self) -> Counter[RegisterName]:
        """Register -> how many statements write it."""
        written: Counter[str] = Counter()
        for statement in self.statements:
            written.update(set(list_written_registers(statement)))
        return written

    def is_64_bit_register(self, register: RegisterName) -> bool:
        """Return whether a register holds 64 bits."""
        return self.types.get(register, "")[-2:] == "64"


@dataclass(frozen=True)
class PtxModule:
    text: str
    kernels: dict[str, PtxKernel]  # by name; functions too
    files: dict[int, str]  # number -> path of a source file
    variables: tuple[str, ...]  # names of global and constant arrays
    hidden: tuple[int, ...]  # where those begin that no other module may see

    @property
    def basic_block_count(self) -> int:
        """Return how many basic blocks all its kernels have."""
        return sum(kernel.basic_block_count for kernel in self.kernels.values())

    def iterate_statements_with_block_numbers(
        self,
    ) -> Iterator[tuple[BasicBlockNumber, PtxKernel, PtxStatement]]:
        """Yield each statement with the number of its basic block among all of them."""
        first = 0
        for kernel in self.kernels.values():
            for statement in kernel.statements:
                yield first + statement.block, kernel, statement
            first += kernel.basic_block_count


def keep_only_named_entries(text: PtxText, names: Collection[MangledName]) -> PtxText:
    """The text with the entries of these names only, and with the functions that they call.

    A library instantiates a template a hundred times: what is not launched need not be assembled, and
    what another entry calls says nothing of these.
    """
    blank = _blank_comments(text)
    bodies: dict[str, str] = {}
    places = []
    for match in [*_ENTRY.finditer(blank), *_FUNCTION.finditer(blank)]:
        opening = _find_start_of_body(blank, match.end())
        if opening is None:  # it is declared here, and written elsewhere
            end = blank.find(";", match.end())
            if end < 0:  # the text is cut
                end = len(blank)
        else:
            end = _find_closing_brace(blank, opening)
            bodies[match[1]] = blank[opening:end]
        places.append((match.start(), end + 1, match[1]))
    wanted = _follow_calls({*names, *_WORD.findall(" ".join(_INITIAL.findall(blank)))}, bodies)
    kept = []
    at = 0
    for start, end, name in sorted(places):
        if name not in wanted:
            kept.append(text[at:start])
            at = end
    return "".join([*kept, text[at:]])


def _follow_calls(names: set[str], bodies: Mapping[str, str]) -> set[str]:
    """Return these names, and all words of the functions' bodies that are reached from them."""
    reached: set[str] = set()
    mentioned = names
    while mentioned:
        reached |= mentioned
        called = [bodies[name] for name in mentioned & bodies.keys()]
        mentioned = set(_WORD.findall(" ".join(called))) - reached
    return reached


def _blank_comments(text: str) -> PtxText:
    return _COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def _find_start_of_body(text_without_comments: str, offset: int) -> int | None:
    """Return where the body behind a name begins.

    None where it is declared here, and written elsewhere.
    """
    opening = text_without_comments.find("{", offset)
    if opening < 0 or ";" in text_without_comments[offset:opening]:
        return None
    return opening


def parse_ptx_module(text: PtxText) -> PtxModule:
    blank = _blank_comments(text)
    if ".version" not in blank:
        raise ProfkitError("this is not PTX: it has no .version", "nvcc -ptx writes it")
    kernels = {}
    for match in [*_ENTRY.finditer(blank), *_FUNCTION.finditer(blank)]:
        opening = _find_start_of_body(blank, match.end())
        if opening is None:
            continue
        between = blank[match.end() : opening]
        directives = between.rpartition(")")[2]
        is_entry = match.re is _ENTRY
        kernels[match[1]] = _parse_kernel(match[1], is_entry, directives, blank, opening)
    files = {int(number): path for number, path in _FILE.findall(text)}
    variables, hidden = _find_variables(blank, list(kernels.values()))
    return PtxModule(text, kernels, files, tuple(variables), tuple(hidden))


def _find_variables(
    text_without_comments: str, kernels: Sequence[PtxKernel]
) -> tuple[list[str], list[int]]:
    """Return the module's own variables, and where those begin that nobody else can see."""
    variables = []
    hidden = []
    for match in _VARIABLE.finditer(text_without_comments):
        if any(kernel.body <= match.start() < kernel.end for kernel in kernels):
            continue
        variables.append(match[3])
        if not match[1]:
            hidden.append(match.start(2) - 1)
    return variables, hidden


def _parse_kernel(
    name: str, is_entry: bool, directives: str, text_without_comments: str, opening: int
) -> PtxKernel:
    end = _find_closing_brace(text_without_comments, opening)
    statements: list[PtxStatement] = []
    types: dict[str, str] = {}
    labels: dict[str, list[int]] = {}
    block = 0
    line = (0, 0)
    for part in _iterate_body_parts(text_without_comments, opening + 1, end):
        if part["line"]:
            line = (int(part["file"]), int(part["line"]))
        elif part["label"]:
            block += 1
            labels.setdefault(part["label"], []).append(block)
        elif part["declaration"]:
            _add_types_of_declared_registers(part["declaration"], types)
        elif part["opcode"]:
            statement = _parse_statement(part, line, block)
            statements.append(statement)
            block += statement.words[0] in _ENDS_BLOCK
    return PtxKernel(
        name=name,
        is_entry=is_entry,
        directives=directives,
        body=opening + 1,
        end=end,
        statements=tuple(statements),
        basic_block_count=block + 1,
        types=types,
        labels={label: places[0] for label, places in labels.items() if len(places) == 1},
    )


def _iterate_body_parts(
    text_without_comments: str, offset: int, end: int
) -> Iterator[re.Match[str]]:
    while offset < end:
        part = _PART.match(text_without_comments, offset, end)
        if part is None:
            words = " ".join(text_without_comments[offset : min(end, offset + 80)].split())
            raise ProfkitError(f"this PTX has a statement that is not understood: {words}")
        yield part
        offset = part.end()


def _parse_statement(
    part: re.Match[str], line: tuple[int, int], block: BasicBlockNumber
) -> PtxStatement:
    return PtxStatement(
        start=part.start(),
        end=part.end(),
        guard=part["guard"] or "",
        negated=bool(part["negated"]),
        opcode=part["opcode"],
        operands=tuple(_split_operands(part["operands"])),
        line=line,
        block=block,
    )


def _find_closing_brace(text_without_comments: str, opening: int) -> int:
    depth = 0
    for match in re.compile(r"[{}]").finditer(text_without_comments, opening):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return match.start()
    raise ProfkitError("this PTX ends within a kernel", "is the file whole?")


def _add_types_of_declared_registers(text: str, types: dict[RegisterName, str]) -> None:
    for kind, declared in _REGISTERS.findall(text):
        for name, several in _NAMES.findall(declared):
            types[name] = kind  # in the place of `%r<9>`, it is the name of none
            for number in range(int(several or 0)):
                types[f"{name}{number}"] = kind


# Commas between operands stand in no brackets.
_OPERAND = re.compile(r"(?:\([^)]*\)|\[(?:[^\[\]]|\[[^\]]*\])*\]|\{[^}]*\}|[^,(\[{])+")


def _split_operands(text: str) -> Iterator[str]:
    for match in _OPERAND.finditer(text):
        if match[0].strip():
            yield match[0].strip()


# Instructions whose first operand is read, not written.
_WRITES_NOTHING = frozenset(
    "st red bra brx bar barrier ret exit trap prefetch prefetchu cp fence membar mbarrier discard "
    "stmatrix griddepcontrol nanosleep wgmma tcgen05 setmaxnreg applypriority isspacep_ brkpt "
    "pmevent sust sured clusterlaunchcontrol".split()
)
# Those among them whose first operand is written all the same.
_WRITES_ITS_FIRST = re.compile(
    r"wgmma\.mma_async|mbarrier\.(test_wait|try_wait)|(bar|barrier)\.(\w+\.)*red\b"
)


def list_written_registers(statement: PtxStatement) -> list[RegisterName]:
    """Return the registers that a statement writes."""
    if not statement.operands or statement.opcode.startswith("wmma.store"):
        return []
    is_written = statement.words[0] not in _WRITES_NOTHING
    if is_written or _WRITES_ITS_FIRST.match(statement.opcode):
        return _NAME.findall(statement.operands[0])
    return []


def list_value_registers(statement: PtxStatement) -> list[RegisterName]:
    """Return the registers that a statement reads as values: not its guard, not those of addresses."""
    first = 1 if list_written_registers(statement) else 0
    if statement.words[0] == "wgmma":
        first = 0
    names = []
    for operand in statement.operands[first:]:
        if not operand.startswith("["):
            names += _NAME.findall(operand)
    return names


def list_address_registers(statement: PtxStatement) -> list[RegisterName]:
    """Return the registers that say where in memory a statement works."""
    names = []
    for operand in statement.operands:
        if operand.startswith("["):
            names += _NAME.findall(operand)
    return names


def count_bytes_per_thread(statement: PtxStatement) -> ByteCount:
    """Return how many bytes each thread of a load, store or atomic moves."""
    size = 4
    times = 1
    for word in statement.words:
        if _BITS.fullmatch(word):
            size = count_bytes_of_type(word)
        if word in ("v2", "v4", "v8"):
            times = int(word[1:])
    return size * times


def count_bytes_of_type(word: str) -> int:
    """Return the bytes of a value of a type: `b64`, `f16x2`."""
    match = _BITS.fullmatch(word)
    return int((match and (match[1] or match[2])) or 32) // 8


@dataclass
class PtxEdits:
    """What is to be put where in a module's text."""

    module: PtxModule
    pieces: list[tuple[int, int, str]] = field(default_factory=list)  # (from, to, text)
    registers: dict[str, str] = field(default_factory=dict)  # name -> type, `b64`
    outside: dict[str, None] = field(default_factory=dict)  # declarations in front of all kernels

    def add_registers(self, register_type: str, *names: RegisterName) -> None:
        """Have registers of a type in all kernels."""
        for name in names:
            self.registers[name] = register_type

    def insert_before(self, statement: PtxStatement, lines: PtxText) -> None:
        """Put statements, one a line, before one of the kernel's own."""
        text = lines.replace("\n", "\n\t")
        self.pieces.append((statement.start, statement.start, f"{text}\n\t"))

    def replace_statement(self, statement: PtxStatement, text: PtxText) -> None:
        self.pieces.append((statement.start, statement.end, text))

    def require_min_blocks(self, kernel: PtxKernel, threads: int, blocks: int) -> None:
        """Let as many blocks of so many threads fit on an SM, whatever registers that leaves."""
        if ".maxnreg" in kernel.directives or ".minnctapersm" in kernel.directives:
            return
        lines = [f".minnctapersm {blocks}\n"]
        if ".maxntid" not in kernel.directives and ".reqntid" not in kernel.directives:
            lines.insert(0, f".maxntid {threads}, 1, 1\n")
        opening = kernel.body - 1
        self.pieces.append((opening, opening, "".join(lines)))

    def write_edited_module(self) -> PtxText:
        """Return the module's text with all edits in it."""
        text = self.module.text
        pieces = list(self.pieces)
        declared = "".join(f"\n\t.reg .{kind} {name};" for name, kind in self.registers.items())
        for kernel in self.module.kernels.values():
            pieces.append((kernel.body, kernel.body, declared))
        head = re.search(r"\.address_size\s+\d+[^\n]*", text)
        if head is None:
            raise ProfkitError("this PTX has no .address_size", "nvcc and Triton write one")
        pieces += [(at, at, ".visible ") for at in self.module.hidden]
        before = "".join(f"\n{line}" for line in self.outside)
        pieces.append((head.end(), head.end(), before))
        pieces.sort(key=lambda piece: (piece[0], piece[1]))  # stable: in the order they were given
        parts = []
        at = 0
        for start, end, new in pieces:
            parts += [text[at:start], new]
            at = end
        return "".join([*parts, text[at:]])


def write_statement(statement: PtxStatement, guard: str, operands: Sequence[str]) -> PtxText:
    return f"{guard}{statement.opcode} {', '.join(operands)};"
