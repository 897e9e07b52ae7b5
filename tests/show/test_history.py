"""The history as a picture and as a part of the page: steps, intervals, machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit.errors import ProfkitError
from profkit.evidence.noise import compare_consecutive_runs
from profkit.show import plots
from profkit.show.numbers import group_history_points
from profkit.show.page import make_history_section
from tests.evidence.test_history import row

pytest.importorskip("pyarrow")


@pytest.fixture
def found():
    """Measured six times: the third is twice as fast, the fifth on another machine."""
    runs = [
        row(1e-5, 1, 1),
        row(1e-5, 2, 2),
        row(0.5e-5, 3, 3, sass="new"),
        row(0.5e-5, 4, 4, sass="newer"),
        row(0.3e-5, 5, 5, sass="newest", gpu_uuid="GPU-2"),
        row(0.3e-5, 6, 6, sass="last", gpu_uuid="GPU-2"),
    ]
    return compare_consecutive_runs(runs)


def test_points_know_machine_interval_and_whether_it_was_real(found) -> None:
    (points,) = group_history_points(found).values()
    assert [p.real for p in points] == [False, False, True, False, False, False]
    assert [p.machine for p in points] == ["NVIDIA H200 1"] * 4 + ["NVIDIA H200 2"] * 2
    assert all(p.low <= p.median <= p.high for p in points)
    assert points[2].told == "2026-11-03, commit 3, NVIDIA H200 1, faster, 2x"


def test_the_picture(found, tmp_path: Path) -> None:
    ax = plots.history_steps(found)
    texts = [t.get_text() for t in ax.texts]
    assert "commit 3 2x" in texts
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["NVIDIA H200 1", "NVIDIA H200 2"]
    assert plots.save(ax, tmp_path / "h.svg").stat().st_size > 1000
    with pytest.raises(ProfkitError, match="no run in this history has a time"):
        plots.history_steps([])


def test_the_part_of_the_page_escapes_and_names(found) -> None:
    class Run:
        variant, case = "v1", "B"

    from dataclasses import replace

    from msgspec import structs

    hostile = [
        structs.replace(s, run=replace(s.run, gpu="<script>", commit="<b>x</b>")) for s in found
    ]
    part = make_history_section("h", hostile, [Run()])
    (chart,) = part["charts"].values()
    text = str(chart)
    assert "<script>" not in text
    assert "<b>" not in text
    assert "&lt;script&gt; 1" in text
    assert [name for _, name in part["machines"]] == ["<script> 1", "<script> 2"]
    assert text.count("<circle") == 6
    assert text.count("<line") == 6 + 2 * 4, "no line across machines"
    Run.variant = "of another problem"
    assert len(make_history_section("h", found, [Run()])["charts"]) == 1
