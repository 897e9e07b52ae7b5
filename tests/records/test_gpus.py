"""One table of GPUs: every reader takes what is known of the nearest that is no newer."""

from __future__ import annotations

from profkit.lab.measure.cuda.resources import LIMITS
from profkit.records import gpus


def test_what_is_said_to_be_measured_is_there_and_levels_rise() -> None:
    for row in gpus.read_gpu_table().values():
        assert all(getattr(row, column) is not None for column in row.measured)
        for gains in filter(None, (row.tensor, row.double)):
            assert list(gains) == sorted(gains)


def test_a_generation_that_no_row_is_of_is_unknown() -> None:
    assert gpus.find_nearest_of_generation((11, 0)) is None
    assert gpus.find_nearest_of_generation((9, 9)) is gpus.read_gpu_table()[9, 0]
    assert gpus.find_gpu_exactly("9.9") is None
    assert "72" not in LIMITS  # its SM is not known, its lanes are
    assert (
        gpus.find_pinned_copy_rate(None)
        == gpus.find_pinned_copy_rate((8, 9))
        < gpus.find_pinned_copy_rate((12, 0))
    )
