"""A flipped bit of a report's structure changes no value that is read, or is told.

profkit checks the bytes, and NVIDIA's library reads them once more: what one of them takes for
something else must not pass. Bits of values are left out: another value is a value. All bits of a
report that is made of everything, some of each real one, and 200 with the library; `make fuzz` tries
on without end.
"""

from __future__ import annotations

import random
from array import array
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import zstandard

from profkit.errors import ProfkitError
from profkit.reports.container import check_report_bytes, split_report, sum_hashes_of_metric_names
from profkit.reports.contents import MAGIC
from profkit.reports.isolated import run_in_child_processes
from profkit.reports.reader import (
    join_and_judge_report,
    prepare_child,
    read_launch_batch,
    read_raw_frame,
    read_report_unless_large,
)
from tests.conftest import kinds, others
from tests.reports import flips, made
from tests.reports.child import in_a_child
from tests.sweeps import choose_count, take_part

__all__ = ["prepare_child"]  # a child calls it first

OPCODES = "sass__inst_executed_per_opcode"
NAMES = [*made.METRICS, OPCODES]
DRAWN = choose_count(150, 12)  # of each real report
WITH_LIBRARY = 200
# One of every kind that is committed, small ones first; and other people's, of every version.
REPORTS = [*sorted(kinds(), key=lambda path: path.stat().st_size)[:6], *others()]


def make_everything() -> bytes:
    """A report with every kind of part that is read, each launch with other values."""
    launches = []
    for n in range(2):
        metrics = {
            name: f"text {i}" if isinstance(value, str) else float(10 * i + n)
            for i, (name, value) in enumerate(made.METRICS.items())
        }
        launches.append(
            made.result(
                NAMES,
                metrics,
                instances={OPCODES: {"IMAD": 7.0 + n, "FFMA": 9.0}},
                ranges=["profkit:stage2:B", "inner"],
                rules=[made.rule("Title", "Message", 1, 17.0)],
            )
        )
    return made.report(launches, NAMES)


def read_bytes(path: Path) -> bytes:
    data = path.read_bytes()
    if data[: len(MAGIC)] == MAGIC:
        return data
    with zstandard.ZstdDecompressor().stream_reader(data) as plain:
        return plain.read()


def count_silent(data: bytes, bits: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the bits after which nothing is told and something else is read."""
    whole, expected = flips.checked(data), flips.read(data)
    silent = []
    for at, bit in bits:
        flipped = flips.flip(data, at, bit)
        found = flips.checked(flipped)
        if (found.status, found.message) != (whole.status, whole.message):
            assert found.message
        elif flips.read(flipped) != expected:
            silent.append((at, bit))
    return silent


def test_every_bit_of_a_report_ofmake_everything() -> None:
    data = make_everything()
    assert flips.checked(data).message == ""
    bits = [(at, bit) for at in flips.places(data) for bit in range(8)]
    assert len(bits) > 3000
    assert count_silent(data, bits) == []


@pytest.mark.slow
@pytest.mark.parametrize("path", take_part(REPORTS, one_of=2), ids=lambda path: path.name[:40])
def test_some_bits_of_every_kind_of_report(path: Path) -> None:
    data = read_bytes(path)
    places = flips.places(data)
    chance = random.Random(path.name)
    bits = [(chance.choice(places), chance.randrange(8)) for _ in range(DRAWN)]
    assert count_silent(data, bits) == []


@cache
def _values(path: str) -> Any:
    part = read_report_unless_large(path)
    return part.identity, part.values, part.rules


def read_flipped(item: list[Any]) -> list[Any]:
    """In a child: flip a bit of a copy, read it; what is told of it, and whether it reads the same."""
    original, copy, at, bit = item
    Path(copy).write_bytes(flips.flip(Path(original).read_bytes(), at, bit))
    part = read_report_unless_large(copy)
    Path(copy).unlink()
    identity, values, rules = _values(original)
    same = [row[1:] for row in part.identity] == [row[1:] for row in identity]
    same = same and part.values == values
    same = same and [row[1:] for row in part.rules] == [row[1:] for row in rules]
    return [part.file.status, part.file.message, same]


@pytest.mark.slow
@in_a_child
def test_bits_drawn_by_lot_as_the_library_reads_them(tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.mktemp("flips")
    small = sorted(kinds(), key=lambda path: path.stat().st_size)[:3]
    small += [path for path in others() if path.stat().st_size < 200_000]
    chance = random.Random(7)
    items = []
    for path in small:
        data = read_bytes(path)
        original = folder / f"{path.stem}.ncu-rep"
        original.write_bytes(data)
        places = flips.places(data)
        for _ in range(WITH_LIBRARY // len(small) + 1):
            copy = folder / f"flipped-{len(items)}.ncu-rep"
            items.append([str(original), str(copy), chance.choice(places), chance.randrange(8)])
    assert len(items) >= WITH_LIBRARY
    function = "tests.reports.test_flips:read_flipped"
    found = run_in_child_processes(function, items, 1, lambda _item, why: ["died", why, False])
    silent, died = [], []
    for item, (status, message, same) in zip(items, found, strict=True):
        if not same and status == "ok" and not message:
            silent.append(item)
        if status == "died":
            died.append(item)
    assert silent == []
    # What the check has seen is read in a child of its own; what it has not may not end the process.
    for original, _, at, bit in died:
        assert flips.checked(flips.flip(Path(original).read_bytes(), at, bit)).risky


def test_what_is_strange_is_a_note_where_a_newer_ncu_wrote_it(tmp_path: Path) -> None:
    """It is read all the same, in parts too: the version is behind the launch that is strange."""
    strange = made.result([*made.METRICS], extra=made.field(77, 1))
    path = tmp_path / "x.ncu-rep"
    for version, status, kept in (
        ("2031.1.0.0 (build 1)", "ok", True),
        (made.VERSION, "damaged", False),
    ):
        data = made.report([strange, strange], version=version)
        path.write_bytes(data)
        frames = check_report_bytes(path)
        assert frames.status == status
        assert "does not write" in frames.message
        assert "field 77 of KernelResult" in frames.message
        for copy, indices in split_report(path, tmp_path):
            assert indices == (0, 1)
            assert (made.field(77, 1) in copy.read_bytes()) is kept


def test_no_launch_is_read_under_names_that_are_damaged(tmp_path: Path) -> None:
    """Nothing says then which value is which; the other parts of profkit refuse the file."""
    data = made.report()
    table = b"".join(made.field(1, name) for name in made.METRICS)
    at = data.index(table)
    path = tmp_path / "x.ncu-rep"
    path.write_bytes(flips.flip(data, at, 4))
    part = read_report_unless_large(str(path))
    assert (part.file.status, part.file.launches, part.values) == ("damaged", 0, b"")
    assert part.file.message == "the names of metrics are damaged"
    with pytest.raises(ProfkitError, match="the names of metrics are damaged"):
        read_raw_frame(path)


def test_the_library_gives_as_many_metrics_as_the_walk_has_counted_under_the_same_names(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.ncu-rep"
    path.write_bytes(made.report())
    frames = check_report_bytes(path)
    one_more = array("I", [len(made.METRICS) + 1]).tobytes()
    rows, kernels = read_launch_batch([str(path), str(path), 0])
    whole = join_and_judge_report(str(path), frames, [rows], kernels)
    assert (whole.file.status, whole.file.message) == ("ok", "")
    other = join_and_judge_report(str(path), replace(frames, metrics=one_more), [rows], kernels)
    assert other.file.status == "damaged"
    assert "Nsight Compute's library gives" in other.file.message
    renamed = array("I", [sum_hashes_of_metric_names([*made.METRICS][1:])]).tobytes()
    assert (
        frames.names == array("I", [sum_hashes_of_metric_names(made.METRICS)]).tobytes() != renamed
    )
    other = join_and_judge_report(str(path), replace(frames, names=renamed), [rows], kernels)
    assert other.file.status == "damaged"
    assert other.file.message.endswith("gives its metrics other names than the file")
