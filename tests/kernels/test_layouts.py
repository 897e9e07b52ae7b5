"""What the shared headers compute: banks, places, accumulator slots, and who loads what."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.kernels.emulated import EMULATOR, FLAGS, headers

pytestmark = pytest.mark.nvcc


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """What layouts.cpp prints, in words."""
    program = tmp_path_factory.mktemp("layouts") / "layouts"
    sources = (Path(__file__).with_name("layouts.cpp"), EMULATOR / "emulator.cpp")
    subprocess.run(["g++", *FLAGS, *headers(), "-o", program, *sources], check=True)
    said = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    return [line.split() for line in said.splitlines()]


def test_only_padding_and_the_chunk_swizzle_spread_eight_rows(lines: list[list[str]]) -> None:
    found = {(n, int(b)): int(w) for kind, n, b, w in (x for x in lines if x[0] == "wavefronts")}
    for width in (64, 128, 256):
        assert found["Padded", width] == 1
        assert found["Swizzled", width] == 1
    assert (found["Plain", 64], found["Plain", 128], found["Plain", 256]) == (4, 8, 8)
    # XOR of the row moves chunks between rows that have the same banks: nothing is gained.
    assert (found["RowXor", 128], found["RowXor", 256]) == (8, 8)


def test_a_layout_gives_each_byte_its_own_place(lines: list[list[str]]) -> None:
    places = [x for x in lines if x[0] == "places"]
    assert len(places) == 12
    assert all(x[3] == "1" for x in places)


def test_accumulator_slots_are_those_of_the_manual(lines: list[list[str]]) -> None:
    """PTX, mma.m16n8k16, C: row = l/4 (+ 8 for c2, c3), column = 2 (l % 4) + (i & 1)."""
    slots = [[int(n) for n in x[1:]] for x in lines if x[0] == "slot"]
    assert len(slots) == 128
    for lane, i, row, col in slots:
        group, in_group = lane >> 2, lane & 3
        assert row == (group if i < 2 else group + 8)
        assert col == in_group * 2 + (i & 1)
    assert len({(row, col) for _, _, row, col in slots}) == 128


def test_loaders_fill_what_threads_do_not_divide(lines: list[list[str]]) -> None:
    """192 threads and 2048 elements: the loader that truncated left rows 30 and 31 out."""
    covered = [x for x in lines if x[0] == "cover"]
    assert len(covered) == 5
    assert all(wrong == "0" for *_, wrong in covered)
