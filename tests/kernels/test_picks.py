"""The entry's table: made from the recorded grid, of today's rungs, the nearest for what is between."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from profkit.lab.measure.variants import variants
from profkit.records.grid import read_time_grid
from tests.conftest import ROOT

pytestmark = pytest.mark.slow

AGAIN = "the table is old: python tools/attention_grid.py table"


@pytest.fixture(scope="module")
def grid() -> Iterator[ModuleType]:
    """tools/attention_grid.py, which is not in a package."""
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        yield import_module("attention_grid")
    finally:
        sys.path.remove(str(ROOT / "tools"))


def test_the_table_is_what_the_records_say(grid: ModuleType) -> None:
    head, lines = grid.recorded()
    kept, times = json.loads(grid.picks.TABLE.read_text("utf-8")), grid.times_at(lines)
    assert kept["fastest"] == grid.fastest(times), AGAIN
    assert {*kept["fastest"]} >= {str(s) for s in grid.picks.RECORDED}
    assert set(kept["laws"]) == {"D64", "D64-causal", "D128", "D128-causal"}
    laws = grid.laws({s: at for s, at in times.items() if s.D == 64}, head["gpu"]["sms"])["D64"]
    for name, law in kept["laws"]["D64"].items():
        assert law["tiling"] == laws[name]["tiling"], AGAIN
        assert law["cost"] == pytest.approx(laws[name]["cost"], rel=1e-3), AGAIN
        assert law["times"] == laws[name]["times"], AGAIN


def test_every_recorded_rung_is_the_one_of_today(grid: ModuleType) -> None:
    today = {v.id: v.source_hash for v in variants.read_all_variants(ROOT / "kernels", "attention")}
    rungs = grid.picks.rungs()
    for path in filter(Path.exists, grid.RECORDS):
        said = json.loads(path.read_text("utf-8").splitlines()[0])["variants"]
        assert {r: today[r] for r in rungs} == {r: said[r]["source"] for r in rungs}
    assert set(grid.picks.table().values()) - rungs <= set(grid.BACKENDS)


def test_what_the_entry_is_held_to_is_what_was_asked_for(grid: ModuleType) -> None:
    shapes = grid.picks.GRID
    assert len(set(shapes)) == 60
    assert (min(s.rows for s in shapes), max(s.rows for s in shapes)) == (64, 8192)
    assert (min(s.heads for s in shapes), max(s.heads for s in shapes)) == (1, 256)
    assert {(s.D, s.causal) for s in shapes} == {(d, c) for d in (64, 128) for c in (False, True)}
    recorded = {*grid.picks.RECORDED, *grid.picks.FINER}
    assert not {*grid.picks.OFF_GRID, *grid.picks.NEVER} & recorded
    assert len({*grid.picks.NEVER}) == 20


def test_a_law_is_found_again_from_its_times(grid: ModuleType) -> None:
    """Times that go with rounds of 192 rows over 132 blocks, at shapes that do not all tell it."""
    shapes = [grid.picks.Shape(s, h, 64) for s in (64, 192, 384, 1024, 1500) for h in (1, 30, 150)]
    true = grid.picks.Tiling(192, 132, 128)

    def seconds(shape: object) -> float:
        call, rounds, steps = true.work(shape)
        return 2e-6 * call + 3e-6 * rounds + 1e-6 * steps

    law = grid.law_of({s: seconds(s) for s in shapes}, 132)
    assert law.tiling == true
    assert law.cost == pytest.approx((2e-6, 3e-6, 1e-6))
    new = grid.picks.Shape(700, 70, 64)  # 280 tiles: three rounds
    assert law.seconds(new) == pytest.approx(seconds(new))


def test_a_shape_between_takes_what_its_law_says(
    grid: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of 128 rows needs a second round from 133 tiles on, one of 256 rows does not yet."""
    picks = grid.picks
    at = [picks.Shape(128, h, 64) for h in (1, 64, 132, 264)]

    def law(rows: int, cost: float) -> object:
        tiling = picks.Tiling(rows, 132, 64)
        times = {s: cost * tiling.work(s)[1] for s in at}
        return picks.Law(tiling, (0, cost, 0), times, dict.fromkeys(at, 0.0))

    known = {"low": law(128, 1.0), "tall": law(256, 1.5)}
    monkeypatch.setattr(
        picks, "laws", lambda d, causal: known if (d, causal) == (64, False) else {}
    )
    monkeypatch.setattr(picks, "table", lambda: {picks.Shape(64, 1, 64): "recorded"})
    picks.pick.cache_clear()
    try:
        for rows, heads, name in ((128, 100, "low"), (256, 66, "low"), (256, 100, "tall")):
            assert picks.pick(picks.Shape(rows, heads, 64)) == name
        assert picks.pick(picks.Shape(64, 1, 64)) == "recorded"
        assert picks.pick(picks.Shape(900, 20, 96)) == "sdpa"
        assert picks.pick(picks.Shape(0, 20, 64)) == "sdpa"
    finally:
        picks.pick.cache_clear()


def test_the_entry_never_lost_more_than_three_per_cent(grid: ModuleType) -> None:
    """At the sixty shapes and at those between, against the fastest backend of the same process."""
    held = read_time_grid(grid.RECORD.with_name("held.jsonl"))
    ratios = {}
    for cell in held.cells:
        (_, ours), (_, best) = (
            cell.find_fastest(held.against, is_of_the_others=True),
            cell.find_fastest(held.against),
        )
        shape = picks_shape(grid, cell.at)
        ratios[shape] = best / ours
    shapes = (*grid.picks.GRID, *grid.picks.OFF_GRID)
    assert {*shapes, *grid.picks.NEVER} <= {*ratios}
    assert min(ratios.values()) >= 0.97


def picks_shape(grid: ModuleType, at: dict) -> object:
    """The shape at a place of a grid's file."""
    return grid.picks.Shape(at["S"], at["BH"], at["D"], at["causal"])
