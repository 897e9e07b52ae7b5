"""The entry's table: made from the recorded grid, of today's rungs, the nearest for what is between."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

import pytest

from profkit.measure.variants import variants
from profkit.records.grid import read_grid
from tests.conftest import ROOT

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
    lines = [json.loads(x) for x in grid.RECORD.read_text("utf-8").splitlines()]
    kept = json.loads(grid.picks.TABLE.read_text("utf-8"))
    assert kept["fastest"] == grid.fastest(lines[1:]), AGAIN
    assert {*kept["fastest"]} == {str(s) for s in grid.picks.RECORDED}


def test_every_recorded_rung_is_the_one_of_today(grid: ModuleType) -> None:
    head = json.loads(grid.RECORD.read_text("utf-8").splitlines()[0])
    today = {v.id: v.source_hash for v in variants.find_variants(ROOT / "kernels", "attention")}
    picked = set(grid.picks.table().values())
    rungs = {x for x in picked if not x.startswith(grid.picks.LIBRARY)}
    assert {r: today[r] for r in rungs} == {r: head["variants"][r]["source"] for r in rungs}
    assert picked - rungs <= set(grid.BACKENDS)


def test_what_the_entry_is_held_to_is_what_was_asked_for(grid: ModuleType) -> None:
    shapes = grid.picks.GRID
    assert len(set(shapes)) == 60
    assert (min(s.rows for s in shapes), max(s.rows for s in shapes)) == (64, 8192)
    assert (min(s.heads for s in shapes), max(s.heads for s in shapes)) == (1, 256)
    assert {(s.D, s.causal) for s in shapes} == {(d, c) for d in (64, 128) for c in (False, True)}
    assert not {*grid.picks.OFF_GRID} & {*grid.picks.RECORDED}


def test_a_shape_between_takes_the_nearest(
    grid: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    picks = grid.picks
    known = {picks.Shape(64, 1, 64): "small", picks.Shape(1024, 64, 64): "large",
             picks.Shape(64, 1, 128): "wide", picks.Shape(64, 1, 64, True): "masked"}  # fmt: skip
    monkeypatch.setattr(picks, "table", lambda: known)
    picks.pick.cache_clear()
    try:
        for rows, heads, name in ((1, 1, "small"), (100, 4, "small"), (900, 20, "large")):
            assert picks.pick(picks.Shape(rows, heads, 64)) == name
        assert picks.pick(picks.Shape(900, 20, 128)) == "wide"
        assert picks.pick(picks.Shape(900, 20, 64, True)) == "masked"
        assert picks.pick(picks.Shape(900, 20, 96)) == "sdpa"
        assert picks.pick(picks.Shape(0, 20, 64)) == "sdpa"
    finally:
        picks.pick.cache_clear()


def test_the_entry_never_lost_more_than_three_per_cent(grid: ModuleType) -> None:
    """At the sixty shapes, against the fastest backend of the same process, by medians."""
    held = read_grid(grid.RECORD.with_name("held.jsonl"))
    ratios = {}
    for cell in held.cells:
        (_, ours), (_, best) = cell.fastest(held.against, without=True), cell.fastest(held.against)
        shape = picks_shape(grid, cell.at)
        ratios[shape] = best / ours
    assert {*grid.picks.GRID} <= {*ratios}
    assert min(ratios[s] for s in grid.picks.GRID) >= 0.97


def picks_shape(grid: ModuleType, at: dict) -> object:
    """The shape at a place of a grid's file."""
    return grid.picks.Shape(at["S"], at["BH"], at["D"], at["causal"])
