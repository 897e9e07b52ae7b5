"""The table of floors leaves each program out of what it is judged by."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tools import left_out


def make_program(name: str, floor: float, came: float) -> Any:
    return SimpleNamespace(
        name=name,
        drafts=[SimpleNamespace(floor="run", rule="layout")],
        compute_ms_saved_at_floor=lambda _: floor,
        case=SimpleNamespace(
            hosts=SimpleNamespace(step_ms_without_recorder=SimpleNamespace(expect=10.0))
        ),
        truth={"category": "layout", "planted_ms": came, "mended_ms": 0.0},
        saved=came,
    )


def test_a_program_is_left_out_of_its_own_fit() -> None:
    read = [make_program("a", 1.0, 1.0), make_program("b", 1.0, 1.0), make_program("c", 1.0, 5.0)]
    assert left_out.fit_shares(read, "c")["run"] == (1.0, 1.0, 1.0)
    assert left_out.fit_shares(read)["run"].high > 1.0


def test_a_floor_that_saves_next_to_nothing_tells_nothing() -> None:
    read = [make_program("a", 0.1, 5.0), make_program("b", 1.0, 1.0)]
    assert left_out.fit_shares(read)["run"] == (1.0, 1.0, 1.0)


def test_quantiles_are_between_their_neighbours() -> None:
    assert left_out.find_quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert left_out.find_quantile([0.0, 10.0], 0.9) == pytest.approx(9.0)
