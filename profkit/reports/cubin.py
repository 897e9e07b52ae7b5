"""A report's bytes  ->  the machine code of the functions in it, and who called what is inlined.

The library under ncu_report gives machine code only as text, and takes half a second to make ready
for the first line. A report holds the cubins themselves: field 4 of a source frame is an ELF image,
field 9 the address that each of its functions had.

The library gives the innermost line alone: of an atomicAdd that is a header of the toolkit. The line
table (.debug_line, DWARF 2) that nvcc writes says more: its extended opcode 0x90 names the row of the
caller.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.files import BudgetSpent, ReadBudget, open_regular_file
from profkit.reports.container import iterate_length_prefixed_frames
from profkit.reports.contents import MAGIC, open_decompressed
from profkit.reports.wire import BYTES, Malformed, iterate_fields, read_varint

if TYPE_CHECKING:
    from profkit.units import ByteCount, ByteOffset, InstructionAddress, MangledName


OffsetAndFunction = tuple[int, str]  # in .debug_line, of a function's address

ELF = b"\x7fELF\x02\x01"  # of 64 bits, little-endian
NOBITS = 8  # the kind of a section without bytes in the file
_CODE = ".text."
_COPY = 1
_ADVANCE_PC = 2
_ADVANCE_LINE = 3
_SET_FILE = 4
_CONST_ADD_PC = 8
_FIXED_ADVANCE_PC = 9
_END = 1
_SET_ADDRESS = 2
_INLINED = 0x90
_OLDEST, _NEWEST = 2, 4  # versions of the table that are read


_ROW = 160  # bytes that a row of a line table takes
_SPARE = (
    8 << 20
)  # of the budget, however few bytes of code there are: the library takes much beside it
# Bytes of line tables that are not looked into first. A row takes one of them, and 37 in the library.
_FEW_LINES = 1 << 20


@dataclass(frozen=True, slots=True)
class ElfSection:
    """A section of an ELF file."""

    name: str  # of it: `.text`
    kind: int
    flags: int
    start: int  # in the image
    size: int  # in memory, bytes
    info: int  # the section that relocations are for
    entry: int  # bytes of one entry; 0 without any
    image: bytes = field(repr=False)

    @property
    def content(self) -> bytes:
        """Return the section's bytes; none of one that takes no room in the file."""
        if self.kind == NOBITS:
            return b""
        return self.image[self.start : self.start + self.size]


def read_elf_sections(image: bytes, budget: ReadBudget | None = None) -> list[ElfSection]:
    """Return the sections of an image, in order; struct.error and the like if it ends too early."""
    budget = budget or ReadBudget(len(image))
    (table,) = struct.unpack_from("<Q", image, 40)
    size, count, names = struct.unpack_from("<HHH", image, 58)
    rows = []
    for n in range(count):
        rows.append(struct.unpack_from("<IIQQQQIIQQ", image, table + size * n))
    sections = []
    texts: dict[int, str] = {}  # by where they stand: a name that sections share is one
    for name, kind, flags, _address, at, size, _link, info, _align, entry in rows:
        if name not in texts:
            texts[name] = read_zero_terminated_text(image, rows[names][4] + name)
            budget.spend_bytes(len(texts[name]))
        text = texts[name]
        sections.append(ElfSection(text, kind, flags, at, size, info, entry, image))
    return sections


def read_zero_terminated_text(data: bytes, start: ByteOffset) -> str:
    """Return the zero-terminated text at an offset."""
    return data[start : data.index(b"\0", start)].decode("latin-1")


class Cubin:
    """An ELF file of machine code, with its line tables."""

    def __init__(self, image: bytes, budget: ReadBudget | None = None) -> None:
        self._budget = budget or ReadBudget(len(image))
        self.sections = read_elf_sections(image, self._budget)
        # Number of a section of code -> the mangled name of the function in it.
        self.functions: dict[int, str] = {}
        names: dict[
            str, str
        ] = {}  # of sections -> of functions: what sections share is one here too
        for number, section in enumerate(self.sections):
            if section.name.startswith(_CODE):
                if section.name not in names:
                    mangled = section.name.removeprefix(_CODE).encode("latin-1")
                    names[section.name] = mangled.decode(errors="replace")
                self.functions[number] = names[section.name]

    def _read_content(self, name: str) -> bytes:
        for section in self.sections:
            if section.name == name:
                return section.content
        return b""

    @cached_property
    def line_tables(self) -> dict[MangledName, LineTable]:
        """Return function -> line table; empty when it was built without -lineinfo."""
        try:
            functions = dict(self._iterate_relocated_functions())
        except struct.error:
            return {}
        return read_line_tables(self._read_content(".debug_line"), functions, self._budget)

    @property
    def line_table_bytes(self) -> ByteCount:
        """Return the size of its line table in bytes."""
        return len(self._read_content(".debug_line"))

    def has_bounded_lines(self) -> bool:
        """Return whether its line table, after those before it, is within the budget."""
        _ = self.line_tables
        return self._budget.left >= 0

    def _iterate_relocated_functions(self) -> Iterator[OffsetAndFunction]:
        """Yield offset in .debug_line of a function's address, and which function it is."""
        symbols = self._read_content(".symtab")
        for kind, size in ((".rela.debug_line", 24), (".rel.debug_line", 16)):
            table = self._read_content(kind)
            for at in range(0, len(table) - size + 1, size):
                offset, about = struct.unpack_from("<QQ", table, at)
                *_, number = struct.unpack_from("<IBBH", symbols, 24 * (about >> 32))
                if number in self.functions:
                    yield offset, self.functions[number]


SourceLine = tuple[str, int]  # a file, and the number of a line in it

DEEPEST = 64  # calls inlined into each other: more are damage
USES = 4_096  # rows of one line that are looked at


@dataclass(frozen=True, slots=True)
class LineRow:
    """A row of the table: the address where it begins, its line, the row (from 1) of its caller."""

    address: int
    file: str
    line: int
    caller: int


@dataclass(frozen=True)
class LineTable:
    """The rows of one function, in the order of the table."""

    rows: tuple[LineRow, ...]

    @cached_property
    def _ordered(self) -> list[LineRow]:
        return sorted(self.rows, key=lambda row: row.address)

    @cached_property
    def _by_line(self) -> dict[SourceLine, list[LineRow]]:
        rows: dict[SourceLine, list[LineRow]] = {}
        for row in self.rows:
            rows.setdefault((row.file, row.line), []).append(row)
        return rows

    def find_inlined_lines(self, offset: ByteOffset) -> list[SourceLine]:
        """Return the lines at an offset into the function, the innermost first."""
        at = bisect_right(self._ordered, offset, key=lambda row: row.address) - 1
        if at < 0:
            return []
        return self._list_inline_frames(self._ordered[at])

    def find_distinguishing_call(self, frames: Sequence[SourceLine]) -> SourceLine | None:
        """Return the call that tells this use of an inlined line from its others; None where it is one.

        It is the nearest frame that no other use comes through: a wrapper in a wrapper says nothing.
        """
        if len(frames) < 2:
            return None
        rows = self._by_line.get(frames[0], [])[:USES]
        uses = {tuple(self._list_inline_frames(row)) for row in rows}
        if len(uses) < 2:
            return None
        for depth in range(1, len(frames)):
            shared = tuple(frames[: depth + 1])
            same = [use for use in uses if use[: depth + 1] == shared]
            if len(same) == 1:
                return frames[depth]
        return None

    def _list_inline_frames(self, row: LineRow | None) -> list[SourceLine]:
        """Return the line of a row and of the calls that it is inlined from, the innermost first."""
        frames: list[SourceLine] = []
        while row is not None and len(frames) < min(len(self.rows), DEEPEST):
            frames.append((row.file, row.line))
            if 0 < row.caller <= len(self.rows):
                row = self.rows[row.caller - 1]
            else:
                row = None
        return frames


def read_line_tables(
    section: bytes,
    function_by_relocation_offset: dict[ByteOffset, MangledName],
    budget: ReadBudget | None = None,
) -> dict[MangledName, LineTable]:
    """Return function -> line table of a cubin's .debug_line.

    The functions are by the offset of their relocated address in the section. None for a version that
    is not known, or bytes that are no table.
    """
    tables: dict[str, LineTable] = {}
    budget = budget or ReadBudget(len(section))
    at = 0
    while at + 10 <= len(section):
        (size,) = struct.unpack_from("<I", section, at)
        stop = at + 4 + size
        try:
            tables |= _LineProgram(section, at, min(stop, len(section)), budget).run_line_program(
                function_by_relocation_offset
            )
        except (IndexError, ValueError, struct.error, Malformed):
            return tables
        at = stop
    return tables


class _LineProgram:
    def __init__(
        self, data: bytes, start: ByteOffset, stop: ByteOffset, budget: ReadBudget
    ) -> None:
        self._data = data
        self._stop = stop
        self._budget = budget
        self._at: int
        version, length = struct.unpack_from("<HI", data, start + 4)
        if not _OLDEST <= version <= _NEWEST:
            raise ValueError(version)
        self._at = start + 10 + (version >= 4)  # 4 has the operations of an instruction, too
        self._step, _, base, self._range, self._first = struct.unpack_from("<BBbBB", data, self._at)
        self._base = base
        self._lengths = data[self._at + 5 : self._at + 4 + self._first]
        self._at += 4 + self._first
        self._files = self._read_files()
        self._at = start + 10 + length

    def _read_files(self) -> list[str]:
        folders = list(iter(self._read_zero_terminated_text, ""))
        files = []
        while name := self._read_zero_terminated_text():
            folder = self._read_leb128_number()
            _ = self._read_leb128_number()
            _ = self._read_leb128_number()
            if 0 < folder <= len(folders):
                path = f"{folders[folder - 1]}/{name}"
            else:
                path = name
            self._budget.spend_bytes(len(path))
            files.append(path)
        return files

    def _read_zero_terminated_text(self) -> str:
        end = self._data.index(b"\0", self._at)
        start = self._at
        self._at = end + 1
        return self._data[start:end].decode("utf-8", "replace")

    def _read_leb128_number(self, *, signed: bool = False) -> int:
        start = self._at
        value, self._at = read_varint(self._data, start)
        bits = 7 * (self._at - start)
        if signed and value >> bits - 1:
            return value - (1 << bits)
        return value

    def run_line_program(
        self, function_by_relocation_offset: dict[ByteOffset, MangledName]
    ) -> dict[MangledName, LineTable]:
        """Run the program; rows are numbered from the beginning of their function."""
        tables: dict[str, LineTable] = {}
        self._reset_row()
        while self._at < self._stop:
            opcode = self._data[self._at]
            self._at += 1
            if opcode >= self._first:
                self._address += (opcode - self._first) // self._range * self._step
                self._line += self._base + (opcode - self._first) % self._range
                self._add_row()
            elif opcode:
                self._run_standard_opcode(opcode)
            elif self._run_extended_opcode(function_by_relocation_offset) and self._function:
                tables[self._function] = LineTable(tuple(self._rows))
                self._reset_row()
        return tables

    def _reset_row(self) -> None:
        self._address = 0
        self._line = 1
        self._file = 1
        self._caller = 0
        self._rows: list[LineRow] = []
        self._function = ""

    def _add_row(self) -> None:
        file = ""
        if 0 < self._file <= len(self._files):
            file = self._files[self._file - 1]
        self._budget.spend_bytes(_ROW)
        self._rows.append(LineRow(self._address, file, self._line, self._caller))

    def _run_standard_opcode(self, opcode: int) -> None:
        if opcode == _COPY:
            self._add_row()
        elif opcode == _ADVANCE_PC:
            self._address += self._read_leb128_number() * self._step
        elif opcode == _ADVANCE_LINE:
            self._line += self._read_leb128_number(signed=True)
        elif opcode == _SET_FILE:
            self._file = self._read_leb128_number()
        elif opcode == _CONST_ADD_PC:
            self._address += (255 - self._first) // self._range * self._step
        elif opcode == _FIXED_ADVANCE_PC:
            self._address += struct.unpack_from("<H", self._data, self._at)[0]
            self._at += 2
        else:
            for _ in range(self._lengths[opcode - 1]):
                self._read_leb128_number()

    def _run_extended_opcode(
        self, function_by_relocation_offset: dict[ByteOffset, MangledName]
    ) -> bool:
        """Run an extended opcode; whether it ends a sequence."""
        size = self._read_leb128_number()
        start = self._at
        opcode: int = self._data[start]
        self._at += 1
        if opcode == _SET_ADDRESS:
            self._function = function_by_relocation_offset.get(self._at, "")
            self._address = 0
        elif opcode == _INLINED:
            self._caller = self._read_leb128_number()
        self._at = start + size
        return opcode == _END


_LIMIT = 256 << 20  # bytes that are looked into: the largest cubin seen is 14 MB
_IMAGE = 4
_PLACES = 9
_NAME = 1
_ADDRESS = 2


@dataclass(frozen=True)
class Function:
    """A kernel or a function that it calls, with its code and start address."""

    name: str  # mangled
    # Address of its first instruction; None where the report does not say it (before 2023.2): then it
    # is known by its name alone.
    start: int | None
    code: bytes
    cubin: Cubin = field(repr=False)  # the image it is in


@dataclass(frozen=True)
class ReportCode:
    """The machine code of a report."""

    functions: list[Function]
    is_bounded: bool  # whether what it asks for is within what its bytes can need

    @cached_property
    def has_bounded_lines(self) -> bool:
        """Return whether the library may be asked for lines: it has no bound of its own."""
        if not self.is_bounded:
            return False
        cubins = {id(function.cubin): function.cubin for function in self.functions}.values()
        if sum(cubin.line_table_bytes for cubin in cubins) <= _FEW_LINES:
            return True
        return all(cubin.has_bounded_lines() for cubin in cubins)


def read_machine_code_of_report(path: str | Path) -> ReportCode:
    """Read the machine code of a report, as far as it can be read; never an error."""
    known: list[Function] = []
    budget = ReadBudget(0, spare=_SPARE)
    is_bounded = True
    for frame in _iterate_source_frames(path):
        budget.raise_limit(len(frame))
        left = budget.left
        try:
            known += list(_read_functions(frame, budget))
        except (Malformed, struct.error, ValueError, IndexError, OverflowError) as error:
            # Nothing is kept of it: the frame check says that it is damaged, if it is.
            budget.left = left
            is_bounded = is_bounded and not isinstance(error, BudgetSpent)
    return ReportCode(known, is_bounded)


def find_launched_function(
    functions: list[Function],
    mangled_name: MangledName,
    called_addresses: Collection[InstructionAddress],
) -> Function | None:
    """Return a kernel, with its start, by its mangled name and the addresses of all that it calls.

    None when the report has no code of it, or cannot tell which it ran.
    """
    placed = []
    without_address = []
    for function in functions:
        if function.name == mangled_name:
            if function.start is None:
                without_address.append(function)
            elif function.start in called_addresses:
                placed.append(function)
    if len(called_addresses) == 1 and not placed:  # no address in the report: this one must be it
        (address,) = called_addresses
        placed = [replace(function, start=address) for function in without_address]
    if len({function.code for function in placed}) == 1:
        return placed[0]
    return None


def _iterate_source_frames(path: str | Path) -> Iterator[bytes]:
    with (
        suppress(OSError, Malformed),
        open_regular_file(path) as file,
        open_decompressed(file) as plain,
    ):
        if plain.read(len(MAGIC)) == MAGIC:
            for x in iterate_length_prefixed_frames(plain, _LIMIT):
                if ELF[:4] in x[:64]:
                    yield x


def _read_functions(frame: bytes, budget: ReadBudget) -> Iterator[Function]:
    image = b""
    places = {}
    for number, wire, start, stop in iterate_fields(frame, 0, len(frame)):
        if wire == BYTES and number == _IMAGE:
            image = frame[start:stop]
        elif wire == BYTES and number == _PLACES:
            places = dict(_list_named_addresses(frame, start, stop))
    if not image.startswith(ELF):
        return
    cubin = Cubin(image, budget)
    for number, name in cubin.functions.items():
        budget.spend_bytes(cubin.sections[number].size)
        yield Function(name, places.get(name), cubin.sections[number].content, cubin)


def _list_named_addresses(
    frame: bytes, start: ByteOffset, stop: ByteOffset
) -> Iterator[tuple[MangledName, InstructionAddress]]:
    for _, wire, begin, end in iterate_fields(frame, start, stop):
        if wire != BYTES:
            continue
        values = {n: (w, a, b) for n, w, a, b in iterate_fields(frame, begin, end)}
        if _NAME in values and _ADDRESS in values and values[_NAME][0] == BYTES:
            _, a, b = values[_NAME]
            yield frame[a:b].decode("utf-8", "replace"), values[_ADDRESS][1]
