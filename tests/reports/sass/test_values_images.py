"""Line tables and ELF images assembled here, so that each field and each border has its value."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import pytest
import zstandard

from profkit.files import ReadBudget
from profkit.reports import cubin as images
from profkit.reports.cubin import Cubin, LineRow, LineTable, read_line_tables
from tests.reports import made

HEAD = 10  # bytes of a unit before its header's own fields: size, version, length


def _signed(number: int) -> bytes:
    out = b""
    while not -64 <= number < 64:
        out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
    return out + bytes([number & 0x7F])


def _unit(
    program: bytes,
    version: int = 2,
    *,
    step: int = 16,
    base: int = -3,
    span: int = 8,
    first: int = 10,
    lengths: bytes = b"\0\1\1\1\1\0\0\0\1",
) -> bytes:
    """A unit of .debug_line: two folders, three files, the program."""
    files = [("a.cu", 1), ("b.h", 2), ("c.cu", 0)]
    named = b"".join(
        name.encode() + b"\0" + made.varint(folder) + b"\x05\x06" for name, folder in files
    )
    operations = b"\1" if version >= 4 else b""
    fields = operations + struct.pack("<BBbBB", step, 1, base, span, first) + lengths
    header = fields + b"one\0two\0\0" + named + b"\0"
    body = struct.pack("<HI", version, len(header)) + header + program
    return struct.pack("<I", len(body)) + body


def _extended(opcode: int, data: bytes = b"") -> bytes:
    return b"\0" + made.varint(1 + len(data)) + bytes([opcode]) + data


def _address(number: int = 0) -> bytes:
    return _extended(2, struct.pack("<Q", number))


END = _extended(1)


def _start(unit: bytes, program: bytes) -> int:
    """Where the operand of the first address stands: what a relocation names."""
    return unit.index(program) + 3


def _rows(program: bytes, version: int = 2, **header: int | bytes) -> tuple[LineRow, ...]:
    whole = _address(0x4000) + program + END
    unit = _unit(whole, version, **header)  # type: ignore[arg-type]
    tables = read_line_tables(unit, {_start(unit, whole): "kernel"})
    assert list(tables) == ["kernel"]
    return tables["kernel"].rows


COPY = b"\1"


@pytest.mark.parametrize(
    ("program", "rows"),
    [
        (COPY, [LineRow(0, "one/a.cu", 1, 0)]),
        (b"\2\3" + COPY, [LineRow(48, "one/a.cu", 1, 0)]),  # three steps of 16 bytes
        (b"\2\x80\1" + COPY, [LineRow(2048, "one/a.cu", 1, 0)]),
        (b"\3" + _signed(100) + COPY, [LineRow(0, "one/a.cu", 101, 0)]),
        (
            b"\3" + _signed(300) + COPY + b"\3" + _signed(-299) + COPY,
            [LineRow(0, "one/a.cu", 301, 0), LineRow(0, "one/a.cu", 2, 0)],
        ),
        (b"\3" + _signed(63) + COPY, [LineRow(0, "one/a.cu", 64, 0)]),
        (b"\3" + _signed(64) + COPY, [LineRow(0, "one/a.cu", 65, 0)]),
        (b"\4\2" + COPY, [LineRow(0, "two/b.h", 1, 0)]),
        (b"\4\3" + COPY, [LineRow(0, "c.cu", 1, 0)]),
        (b"\4\4" + COPY, [LineRow(0, "", 1, 0)]),
        (b"\4\0" + COPY, [LineRow(0, "", 1, 0)]),
        (b"\5\x21" + COPY, [LineRow(0, "one/a.cu", 1, 0)]),  # a column is passed over
        (b"\6\7" + COPY, [LineRow(0, "one/a.cu", 1, 0)]),  # and what has no operands
        (b"\x08" + COPY, [LineRow((255 - 10) // 8 * 16, "one/a.cu", 1, 0)]),
        (b"\x09\x34\x12" + COPY, [LineRow(0x1234, "one/a.cu", 1, 0)]),
        # Special opcodes: 10 is the first; 8 lines to an address, from -3 on.
        (b"\x0a", [LineRow(0, "one/a.cu", -2, 0)]),
        (b"\x0d", [LineRow(0, "one/a.cu", 1, 0)]),
        (b"\x11", [LineRow(0, "one/a.cu", 5, 0)]),
        (b"\x12", [LineRow(16, "one/a.cu", -2, 0)]),
        (b"\xff", [LineRow(480, "one/a.cu", 3, 0)]),
        (
            COPY + _extended(0x90, b"\1\0") + b"\4\2" + b"\x0e",
            [LineRow(0, "one/a.cu", 1, 0), LineRow(0, "two/b.h", 2, 1)],
        ),
        (_extended(0x90, b"\x81\1") + COPY, [LineRow(0, "one/a.cu", 1, 129)]),
        (_extended(0x55, b"\1\2\3") + COPY, [LineRow(0, "one/a.cu", 1, 0)]),  # somebody else's
    ],
)
@pytest.mark.parametrize("version", [2, 3, 4])
def test_each_opcode_of_a_line_program(program: bytes, rows: list[LineRow], version: int) -> None:
    assert list(_rows(program, version)) == rows


def test_other_steps_and_lines() -> None:
    rows = _rows(b"\x0f" + b"\2\2" + COPY, step=4, base=0, span=4, first=10)
    assert list(rows) == [LineRow(4, "one/a.cu", 2, 0), LineRow(12, "one/a.cu", 2, 0)]
    # Fewer standard opcodes: from 9 on they are special.
    short = _rows(b"\x09", step=16, base=1, span=4, first=9, lengths=b"\0\1\1\1\1\0\0\0")
    assert list(short) == [LineRow(0, "one/a.cu", 2, 0)]
    # One more, whose operands are passed over.
    more = _rows(b"\x0a\x85\1\7" + COPY, first=11, lengths=b"\0\1\1\1\1\0\0\0\1\2")
    assert list(more) == [LineRow(0, "one/a.cu", 1, 0)]


@pytest.mark.parametrize("version", [1, 5, 6])
def test_other_versions_are_not_read(version: int) -> None:
    program = _address() + COPY + END
    unit = _unit(program, version)
    assert read_line_tables(unit, {_start(unit, program): "kernel"}) == {}


def test_units_and_functions_follow_each_other() -> None:
    one, two = _address() + b"\x0e" + END, _address(0) + b"\x0f" + END
    first, second = _unit(one + two), _unit(one)
    relocated = {
        _start(first, one): "f",
        _start(first, one + two) + len(one): "g",
        len(first) + _start(second, one): "h",
    }
    tables = read_line_tables(first + second, relocated)
    assert {name: [row.line for row in t.rows] for name, t in tables.items()} == {
        "f": [2],
        "g": [3],
        "h": [2],
    }
    # What is cut off costs only itself; a sequence that nobody names is nobody's.
    assert list(read_line_tables(first + second[:-5], relocated)) == ["f", "g"]
    assert read_line_tables(first, {}) == {}
    assert read_line_tables(first + b"\0" * 9, relocated).keys() == {"f", "g"}


def test_who_called_whom() -> None:
    rows = (
        LineRow(0, "a.cu", 10, 0),
        LineRow(16, "x.h", 5, 1),
        LineRow(32, "y.h", 7, 2),
        LineRow(48, "a.cu", 11, 9),
    )
    table = LineTable(rows)
    assert table.find_inlined_lines(-1) == []
    assert table.find_inlined_lines(0) == table.find_inlined_lines(15) == [("a.cu", 10)]
    assert table.find_inlined_lines(16) == [("x.h", 5), ("a.cu", 10)]
    assert table.find_inlined_lines(47) == [("y.h", 7), ("x.h", 5), ("a.cu", 10)]
    assert (
        table.find_inlined_lines(48) == table.find_inlined_lines(9999) == [("a.cu", 11)]
    )  # a caller that is no row
    round_ = (LineRow(0, "a", 1, 1),)
    assert LineTable(round_).find_inlined_lines(0) == [("a", 1)]  # its own caller: it ends
    last = (LineRow(0, "a", 1, 2), LineRow(16, "b", 2, 0))
    assert LineTable(last).find_inlined_lines(0) == [("a", 1), ("b", 2)]


def test_which_use_of_an_inlined_line_it_is() -> None:
    rows = (
        LineRow(0, "a.cu", 10, 0),
        LineRow(16, "load.h", 5, 1),  # load(), called at a.cu:10
        LineRow(32, "ptx.h", 7, 2),  # in it
        LineRow(48, "a.cu", 11, 0),
        LineRow(64, "load.h", 5, 4),
        LineRow(80, "ptx.h", 7, 5),
        LineRow(96, "once.h", 3, 1),
    )
    table = LineTable(rows)
    # Both come through load.h:5, which tells them apart no more than their own line does.
    assert table.find_distinguishing_call(table.find_inlined_lines(32)) == (
        "a.cu",
        10,
    )
    assert table.find_distinguishing_call(table.find_inlined_lines(80)) == (
        "a.cu",
        11,
    )
    assert (
        table.find_distinguishing_call(table.find_inlined_lines(96)) is None
    )  # there is no other use
    assert table.find_distinguishing_call(table.find_inlined_lines(0)) is None
    assert (
        LineTable((LineRow(0, "a", 1, 1),)).find_distinguishing_call([("a", 1), ("a", 1)]) is None
    )


# --- ELF


def _elf(sections: list[tuple[str, bytes]]) -> bytes:
    """A little-endian 64-bit image: its sections, their names the last of them."""
    names = b"\0"
    at = {}
    for name, _ in [*sections, (".shstrtab", b"")]:
        at[name] = len(names)
        names += name.encode() + b"\0"
    body, rows = b"", [struct.pack("<IIQQQQII", 0, 0, 0, 0, 0, 0, 0, 0) + bytes(16)]
    for name, data in [*sections, (".shstrtab", names)]:
        rows.append(
            struct.pack("<IIQQQQII", at[name], 1, 0, 0, 64 + len(body), len(data), 0, 0) + bytes(16)
        )
        body += data
    head = b"\x7fELF\x02\x01" + bytes(34) + struct.pack("<Q", 64 + len(body)) + bytes(10)
    head += struct.pack("<HHH", 64, len(rows), len(rows) - 1)
    return head.ljust(64, b"\0") + body + b"".join(rows)


LINES = _unit(_address() + b"\x0e" + END)


def _cubin(relocation: str = ".rela.debug_line", extra: bytes = b"") -> bytes:
    where = LINES.index(_address()) + 3
    entry = struct.pack("<QQ", where, 1 << 32 | 2)
    entry += struct.pack("<q", 0) if relocation.startswith(".rela") else b""
    symbols = bytes(24) + struct.pack("<IBBHQQ", 0, 3, 0, 1, 0, 0)
    return _elf(
        [
            (".text.kern", b"K" * 32),
            (".symtab", symbols),
            (".debug_line", LINES),
            (relocation, entry + extra),
            (".text.other", b"O" * 16),
        ]
    )


@pytest.mark.parametrize("relocation", [".rela.debug_line", ".rel.debug_line"])
@pytest.mark.parametrize("extra", [b"", b"\xff" * 15])
def test_sections_and_lines_of_a_cubin(relocation: str, extra: bytes) -> None:
    cubin = Cubin(_cubin(relocation, extra))
    assert [section.name for section in cubin.sections] == [
        "",
        ".text.kern",
        ".symtab",
        ".debug_line",
        relocation,
        ".text.other",
        ".shstrtab",
    ]
    assert cubin.functions == {1: "kern", 5: "other"}
    assert cubin.sections[1].content == b"K" * 32
    assert cubin.sections[5].content == b"O" * 16
    assert {name: t.rows for name, t in cubin.line_tables.items()} == {
        "kern": (LineRow(0, "one/a.cu", 2, 0),)
    }


def test_a_cubin_without_lines() -> None:
    assert Cubin(_elf([(".text.k", b"K")])).line_tables == {}
    broken = _elf(
        [
            (".text.k", b"K"),
            (".debug_line", LINES),
            (".symtab", b""),
            (".rela.debug_line", struct.pack("<QQq", 0, 5 << 32, 0)),
        ]
    )
    assert Cubin(broken).line_tables == {}


def _place(name: str, address: int) -> bytes:
    return made.field(1, name) + made.field(2, address)


def _source(image: bytes, *places: bytes) -> bytes:
    return (
        made.field(1, 1)
        + made.field(4, image)
        + b"".join(made.field(9, b"".join(made.field(1, p) for p in places)) for _ in [0] if places)
    )


def _report(*sources: bytes) -> bytes:
    return b"NVR\0" + b"".join(made.frame(data) for data in (made.field(1, 7), *sources))


def _functions(tmp_path: Path, data: bytes) -> list[tuple[str, int | None, bytes]]:
    path = tmp_path / "made.ncu-rep"
    path.write_bytes(data)
    return [(f.name, f.start, f.code) for f in images.read_machine_code_of_report(path).functions]


EVERY = [("kern", 0x500, b"K" * 32), ("other", None, b"O" * 16)]


def test_functions_and_their_addresses(tmp_path: Path) -> None:
    source = _source(_cubin(), _place("kern", 0x500), _place("elsewhere", 0x900))
    assert _functions(tmp_path, _report(source)) == EVERY
    assert _functions(tmp_path, _report(source, b"x" * 10_000, source)) == EVERY * 2
    assert _functions(tmp_path, zstandard.compress(_report(b"x" * 5000, source))) == EVERY
    assert _functions(tmp_path, b"NVX\0" + _report(source)[4:]) == []
    assert _functions(tmp_path, _report(source) + b"\1\0\0") == EVERY  # a size that is cut
    assert _functions(tmp_path, _report(_source(_cubin()))) == [
        ("kern", None, b"K" * 32),
        ("other", None, b"O" * 16),
    ]


def test_an_address_has_a_name_and_a_number(tmp_path: Path) -> None:
    for place in (made.field(1, "kern"), made.field(2, 7), made.field(1, 3) + made.field(2, 7)):
        found = _functions(tmp_path, _report(_source(_cubin(), place, _place("other", 9))))
        assert [start for _, start, _ in found] == [None, 9]
    whole = made.field(1, 1) + made.field(4, _cubin()) + made.field(9, made.field(2, 5))
    assert [start for _, start, _ in _functions(tmp_path, _report(whole))] == [None, None]


def test_images_far_in_and_of_other_kinds_are_passed_over(tmp_path: Path) -> None:
    late = made.field(2, b"x" * 80) + made.field(4, _cubin())
    assert _functions(tmp_path, _report(late)) == []  # an image begins in the first 64 bytes
    other = b"\x7fELF\x01\x01" + _cubin()[6:]  # of 32 bits
    assert _functions(tmp_path, _report(_source(other), _source(_cubin()))) != []
    assert len(_functions(tmp_path, _report(_source(other), _source(_cubin())))) == 2


def test_a_stream_that_cannot_seek_is_read_on(tmp_path: Path) -> None:
    big = b"x" * (3 << 20)
    data = _report(big, _source(_cubin()), big + b"y")
    path = tmp_path / "packed.ncu-repz"
    path.write_bytes(zstandard.compress(data))
    assert len(images.read_machine_code_of_report(path).functions) == 2  # of one image
    path.write_bytes(zstandard.compress(_report(_source(_cubin()), _source(_cubin()))))
    assert len(images.read_machine_code_of_report(path).functions) == 4


def test_which_function_a_launch_ran(tmp_path: Path) -> None:
    path = tmp_path / "made.ncu-rep"
    path.write_bytes(
        _report(
            _source(_cubin(), _place("kern", 0x500)),
            _source(_elf([(".text.kern", b"other build")])),
        )
    )
    known = images.read_machine_code_of_report(path).functions
    placed = images.find_launched_function(known, "kern", {0x500, 0x900})
    assert placed is not None
    assert (placed.start, placed.code) == (0x500, b"K" * 32)
    unplaced = images.find_launched_function(
        known, "kern", {0x900}
    )  # this one must be that without an address
    assert unplaced is not None
    assert (unplaced.start, unplaced.code) == (0x900, b"other build")
    assert images.find_launched_function(known, "kern", {0x900, 0x901}) is None
    assert images.find_launched_function(known, "kern", set()) is None
    two = [f for f in known if f.start is None and f.name == "kern"] * 2
    assert (
        images.find_launched_function(two, "kern", {0x900}) is not None
    )  # the same code twice is one
    mixed = [*two, *(f for f in known if f.name == "other")]
    assert images.find_launched_function(mixed, "kern", {1}) is not None


def test_rows_are_looked_up_by_address_and_callers_by_their_place_in_the_table() -> None:
    rows = (LineRow(64, "a.cu", 10, 0), LineRow(0, "x.h", 5, 1), LineRow(32, "b.cu", 7, 2))
    table = LineTable(rows)
    assert table.find_inlined_lines(0) == table.find_inlined_lines(31) == [("x.h", 5), ("a.cu", 10)]
    assert (
        table.find_inlined_lines(32)
        == table.find_inlined_lines(63)
        == [("b.cu", 7), ("x.h", 5), ("a.cu", 10)]
    )
    assert table.find_inlined_lines(64) == [("a.cu", 10)]
    assert LineTable(()).find_inlined_lines(0) == []


def test_a_section_without_bytes_in_the_file_has_no_content() -> None:
    data = bytearray(_elf([(".text.k", b"K" * 8), (".nv.shared.k", b"S" * 4)]))
    (table,) = struct.unpack_from("<Q", data, 40)
    fields = 8, 3, 64, 72, 1 << 30, 7, 24  # kind, flags, ..., bytes in memory, info, entry
    struct.pack_into("<IQ", data, table + 2 * 64 + 4, *fields[:2])
    struct.pack_into("<Q", data, table + 2 * 64 + 32, fields[4])
    struct.pack_into("<I", data, table + 2 * 64 + 44, fields[5])
    struct.pack_into("<Q", data, table + 2 * 64 + 56, fields[6])
    _, code, shared, _ = images.read_elf_sections(bytes(data))
    assert (code.content, code.kind, code.size) == (b"K" * 8, 1, 8)
    found = shared.name, shared.kind, shared.flags, shared.size, shared.info, shared.entry
    assert found == (".nv.shared.k", 8, 3, 1 << 30, 7, 24)
    assert shared.content == b""


def test_a_file_of_a_folder_that_is_not_listed_has_its_name_alone() -> None:
    program = _address() + b"\4\2" + COPY + END
    unit = _unit(program).replace(b"b.h\0\2", b"b.h\0\3")
    (row,) = read_line_tables(unit, {_start(unit, program): "kernel"})["kernel"].rows
    assert row.file == "b.h"


# --- what asks for more memory than its bytes


def _many_rows(image: bytes, count: int, row: bytes) -> bytes:
    """An image whose table of sections has this row many times, behind everything that it has."""
    size, held, names = struct.unpack_from("<HHH", image, 58)
    (table,) = struct.unpack_from("<Q", image, 40)
    rows = image[table : table + size * held]
    head = image[:40] + struct.pack("<Q", len(image)) + image[48:58]
    head += struct.pack("<HHH", size, held + count, names)
    return head + image[64:] + rows + row * count


def _row(name: int, at: int, size: int) -> bytes:
    return struct.pack("<IIQQQQII", name, 1, 0, 0, at, size, 0, 0) + bytes(16)


def _bombs() -> dict[str, bytes]:
    """Sections of one long name; sections that are each the whole image; rows of a line table."""
    long = _elf([(".text.k" + "n" * 100_000, b"K")])
    (table,) = struct.unpack_from("<Q", long, 40)
    name = struct.unpack_from("<I", long, table + 64)[0]
    short = _elf([(".text.k", b"K" * 100_000)])
    (table,) = struct.unpack_from("<Q", short, 40)
    kernel = struct.unpack_from("<I", short, table + 64)[0]
    return {
        "names": _many_rows(long, 2000, _row(name, 64, 1)),
        "copies": _many_rows(short, 2000, _row(kernel, 0, len(short))),
    }


@pytest.mark.parametrize("what", ["names", "copies"])
def test_sections_that_share_bytes_ask_for_no_more_than_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A name is one for all; of code they are left out, and the machine code behind them is not."""
    monkeypatch.setattr(images, "_SPARE", 1 << 20)
    bomb = made.field(4, _bombs()[what])
    good = made.field(4, _elf([(".text.good", b"G" * 16)]))
    path = tmp_path / "made.ncu-rep"
    path.write_bytes(_report(bomb, good))
    tracemalloc.start()
    code = images.read_machine_code_of_report(path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [f.name for f in code.functions][-1:] == ["good"]
    if what == "names":
        assert len({id(f.name) for f in code.functions[1:-1]}) == 1
    else:
        assert len(code.functions) < 50
        assert not code.has_bounded_lines, "nor is the library asked for its lines"
    assert most < 20 * len(bomb)


def test_rows_of_a_line_table_ask_for_no_more_than_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unit = _unit(_address() + b"\xf0" * 10_000 + END)
    where = {_start(unit, _address() + b"\xf0" * 10_000 + END): "k"}
    assert len(read_line_tables(unit, where)["k"].rows) == 10_000
    monkeypatch.setattr(ReadBudget, "SPARE", 1_000_000)
    assert read_line_tables(unit, where, ReadBudget(0)) == {}


@pytest.mark.parametrize("few", [True, False])
def test_the_library_is_asked_for_lines_where_a_table_is_short_or_was_walked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: bool
) -> None:
    """Of a byte of a table it makes a row of 37 bytes, and there is no end to that."""
    unit = _unit(_address() + b"\xf0" * 10_000 + END)
    image = _elf([(".text.k", b"K" * 16), (".debug_line", unit)])
    path = tmp_path / "made.ncu-rep"
    path.write_bytes(_report(made.field(4, image)))
    monkeypatch.setattr(images, "_SPARE", 100_000)
    if not few:
        monkeypatch.setattr(images, "_FEW_LINES", 1000)
    assert images.read_machine_code_of_report(path).has_bounded_lines == few
