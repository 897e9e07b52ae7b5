"""Machine code out of reports: as the library's text says, for every instruction there is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from profkit.reports import cubin as images
from profkit.reports.cubin import read_line_tables
from profkit.reports.instruction import (
    BYTES,
    Instruction,
    decode_function,
    decode_opcode,
)
from profkit.reports.reader import iterate_actions
from tests.conftest import ROOT, kinds, others
from tests.sweeps import take_part

pytestmark = pytest.mark.forks

ARTIFACTS = ROOT / "artifacts"
# An instruction as the library disassembles it.
_LINE = re.compile(
    r"\s*(?:@(?P<guard>!?U?P[\dT])\s+)?(?P<opcode>[A-Z][A-Z0-9_]*)(?:\.\w+)*(?P<operands>[^;]*);?\s*"
)
_TARGET = re.compile(r"(?:^|[\s,])(0x[0-9a-f]+)\s*$")
_BOARD = re.compile(r"SB(\d+)\s*(?:,\s*(0x[0-9a-f]+|\d+))?")


def list_functions(path: Path) -> Iterator[tuple[list[str], images.Function, int]]:
    """Texts of each function that a report ran, once; the function, and ten times the capability."""
    known, seen = images.read_machine_code_of_report(path).functions, set[int]()
    for action in iterate_actions(str(path)):
        starts = action.metric_by_name("launch__function_pcs")
        major, minor = (
            action.metric_by_name(f"device__attribute_compute_capability_{part}").as_double()
            for part in ("major", "minor")
        )
        if starts is None:
            continue
        places = {starts.as_uint64(i) for i in range(starts.num_instances())}
        function = images.find_launched_function(
            known, action.name(action.NameBase_MANGLED), places
        )
        assert function is not None, path
        start = function.start
        assert start is not None
        if start in seen:
            continue
        seen.add(start)
        pcs = range(start, start + len(function.code), BYTES)
        yield [action.sass_by_pc(pc) or "" for pc in pcs], function, int(10 * major + minor)


def _decode(function: images.Function, capability: int) -> list[Instruction]:
    assert function.start is not None
    code = decode_function(function.code, function.start, capability)
    assert code is not None, f"an opcode of {function.name} is not known"
    return code


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", take_part([*kinds()[::3], *others()], one_of=6), ids=lambda path: path.name[:40]
)
def test_bits_say_what_the_text_says(path: Path) -> None:
    for texts, function, capability in list_functions(path):
        code = _decode(function, capability)
        if all(line.strip() in ("", "???") for line in texts):
            assert path.name.startswith("cc70")  # the library knows Volta no longer; the bits do
            assert {"LDG", "EXIT", "STG"} <= {x.opcode for x in code}
            continue
        for line, instruction in zip(texts, code, strict=True):
            parsed = _LINE.fullmatch(line)
            assert parsed is not None, line
            assert parsed["opcode"] == instruction.opcode, line
            guard = (parsed["guard"] or "").replace(
                "U", ""
            )  # whether it is uniform the bits tell not
            assert guard == (instruction.guard or ""), line
            board = _BOARD.search(line) if instruction.opcode == "DEPBAR" else None
            left = board and (int(board[1]), int(board[2] or "0", 0))
            assert left == instruction.scoreboard, line
            target = _TARGET.search(parsed["operands"])
            if instruction.opcode in ("BRA", "CALL") and instruction.target is not None:
                assert int(target[1] if target else "0", 16) == instruction.target, line


def test_functions_of_a_report() -> None:
    other, function = images.read_machine_code_of_report(ARTIFACTS / "stage2.B.ncu-rep").functions
    # Built beside it and never launched: the report does not say where it was.
    assert (other.name, other.start) == ("_Z6stage2ILi128EEv9Attention", None)
    assert function.name == "_Z6stage2ILi64EEv9Attention"
    assert function.start == 0x7F4B9F7A0000
    assert len(function.code) == 16_896
    code = decode_function(function.code, function.start, 90)
    assert code is not None
    assert [x.opcode for x in code[:3]] == ["LDC", "S2R", "LDC"]


def test_two_builds_of_one_kernel_are_told_apart_by_their_place() -> None:
    path = ARTIFACTS / "probes" / "probes-0.ncu-repz"
    known = images.read_machine_code_of_report(path).functions
    both = [f for f in known if f.name == "_Z11atomic_samePKfPfS1_"]
    assert sorted(len(f.code) for f in both) == [1024, 1152]
    for function in both:
        assert function.start is not None
        found = images.find_launched_function(known, function.name, {function.start})
        assert found is not None
        assert found.code == function.code
    assert (
        images.find_launched_function(known, "_Z11atomic_samePKfPfS1_", {0}) is None
    )  # which of them nobody can say
    assert images.find_launched_function(known, "nothing", {0}) is None


def test_unknown_opcode_is_no_answer() -> None:
    code = (0x1FF).to_bytes(16, "little")
    assert decode_function(code, 0, 90) is None
    assert decode_opcode(0x1FF, 90) is None
    hfma2, iadd = (decode_opcode(0x235, capability) for capability in (90, 120))
    assert (hfma2, iadd) == ("HFMA2", "IADD")


def test_no_report_has_no_functions(tmp_path: Path) -> None:
    for data in (b"", b"NVR\0", b"text that is no report", b"\x28\xb5\x2f\xfd damaged"):
        path = tmp_path / "x.ncu-rep"
        path.write_bytes(data)
        assert images.read_machine_code_of_report(path).functions == []
    assert images.read_machine_code_of_report(tmp_path / "missing.ncu-rep").functions == []


def test_cut_machine_code_is_skipped(tmp_path: Path) -> None:
    data = (ARTIFACTS / "stage2.B.ncu-rep").read_bytes()
    at = data.index(b"\x7fELF")
    path = tmp_path / "cut.ncu-rep"
    for broken in (
        data[: at + 5000],
        data[:at] + b"\0" * 64 + data[at + 64 :],
        data[: at + 40] + b"\xff" * 8 + data[at + 48 :],
    ):
        path.write_bytes(broken)
        assert images.read_machine_code_of_report(path).functions == []


def test_who_called_an_atomic() -> None:
    known = images.read_machine_code_of_report(ARTIFACTS / "probes" / "probes-0.ncu-repz").functions
    function = next(f for f in known if f.name.startswith("_Z16atomic_coalesced"))
    table = function.cubin.line_tables[function.name]
    stack = table.find_inlined_lines(0x170)  # the REDG
    assert [(Path(file).name, line) for file, line in stack] == [
        ("sm_20_atomic_functions.hpp", 84),
        ("atomic-coalesced_as_fast_as_stores.cu", 18),
    ]
    assert table.find_inlined_lines(-16) == []


def test_damaged_line_tables_give_what_they_can() -> None:
    known = images.read_machine_code_of_report(ARTIFACTS / "probes" / "probes-0.ncu-repz").functions
    function = known[0]
    section = function.cubin._read_content(".debug_line")
    for at in range(0, len(section), 7):
        damaged = section[:at] + b"\xff" + section[at + 1 :]
        assert set(read_line_tables(damaged, {})) == set()
    assert read_line_tables(section[:20], {}) == {}
