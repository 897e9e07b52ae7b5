"""Files of times over a grid: what they hold, and what is said of one that is none."""

from __future__ import annotations

import json
from math import isnan
from pathlib import Path
from typing import Any

import pytest

from profkit.errors import ProfkitError
from profkit.records.grid import read_time_grid

HEAD = {"schema": "profkit.grid/1", "gpu": {"name": "NVIDIA H200"}, "against": ["lib", 7]}
CELL = {
    "at": {"S": 64, "BH": 2, "causal": True},
    "ran": {"ours": "small"},
    "warm": {"ours": [1e-6, 3e-6, 2e-6], "lib": [4e-6], "none": []},
}


def _file(folder: Path, *lines: Any) -> Path:
    path = folder / "grid.jsonl"
    text = (x if isinstance(x, str) else json.dumps(x) for x in lines)
    path.write_text("\n".join(text))
    return path


def test_a_cell_has_its_place_and_its_samples(tmp_path: Path) -> None:
    grid = read_time_grid(_file(tmp_path, HEAD, CELL))
    assert (grid.gpu, grid.against) == ("NVIDIA H200", {"lib"})
    (cell,) = grid.cells
    assert (cell.row_value, cell.column_value) == (64, 2)
    assert cell.find_fastest(grid.against) == ("lib", 4e-6)
    assert cell.find_fastest(grid.against, is_of_the_others=True) == ("ours", 2e-6)
    assert cell.ran == {"ours": "small"}


def test_work_is_read_where_it_is_said(tmp_path: Path) -> None:
    said = {**CELL, "operations": 8, "bytes": "x"}
    with_work, without = read_time_grid(_file(tmp_path, HEAD, said, CELL)).cells
    assert with_work.operations == 8
    assert all(isnan(x) for x in (with_work.moved, without.operations, without.moved))


def test_samples_that_are_no_times_are_left_out(tmp_path: Path) -> None:
    odd = {**CELL, "warm": {"a": [None, "x", -1, 0, float("nan"), 5e-6], "b": 3}}
    (cell,) = read_time_grid(_file(tmp_path, HEAD, odd)).cells
    assert cell.warm == {"a": (5e-6,)}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ((), "not a profkit.grid/1 file"),
        (({"schema": "profkit.run/1"},), "not a profkit.grid/1 file"),
        ((HEAD, "{"), "line 2: not a JSON object"),
        ((HEAD, "[1]"), "line 2: not a JSON object"),
        ((HEAD, CELL, {"at": {"S": 1}, "warm": {}}), "line 3: not a cell of a grid"),
        ((HEAD, {"at": {"S": 1, "BH": 1}}), "line 2: not a cell of a grid"),
    ],
)
def test_what_is_no_grid_is_said_with_its_line(
    tmp_path: Path, lines: tuple[Any, ...], said: str
) -> None:
    with pytest.raises(ProfkitError, match=said) as caught:
        read_time_grid(_file(tmp_path, *lines))
    assert caught.value.hint


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProfkitError, match=r"nowhere\.jsonl: No such file"):
        read_time_grid(tmp_path / "nowhere.jsonl")
