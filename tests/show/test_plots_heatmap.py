"""The heat map: each shape stands in its panel with its lead, and who is behind is said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.axes import Axes

from profkit.cli import main
from profkit.errors import ProfkitError
from profkit.records.grid import GridCell, TimeGrid
from profkit.show.plots import heatmap, roofline
from profkit.show.plots.bars import list_panels
from tests.conftest import ROOT


def _cell(s: int, bh: int, causal: bool, ours: float, lib: float) -> GridCell:
    at = {"S": s, "BH": bh, "D": 64, "causal": causal}
    return GridCell(at, {"ours": (ours,), "lib": (lib,)}, {"ours": "small<$x$>"} if causal else {})


GRID = TimeGrid(
    "NVIDIA H200",
    frozenset({"lib"}),
    (
        _cell(64, 1, False, 1e-6, 2e-6),
        _cell(512, 8, False, 3e-6, 2.7e-6),
        _cell(64, 8, True, 1e-6, 1.5e-6),
        _cell(2048, 1, True, 1.0, 1.02),
    ),
)


def _texts(ax: Axes) -> list[str]:
    return [t.get_text() for inner in ax.child_axes for t in inner.texts]


def test_panels_hold_what_shapes_share() -> None:
    full, causal = list_panels(GRID)
    assert (full.title, causal.title) == ("D 64, not causal", "D 64, causal")
    assert (full.rows, full.columns) == ((64, 512), (1, 8))
    assert full.leads[64, 1].ratio == pytest.approx(2)
    assert full.leads[512, 8].ratio == pytest.approx(0.9)
    assert causal.leads[64, 8].name == "small<$x$>"


def test_every_shape_is_drawn_and_who_is_behind_is_counted() -> None:
    ax = heatmap(GRID)
    assert sorted(_texts(ax)) == [
        "0.90x\nours",
        "1.02x\nsmall<$x$>",
        "1.50x\nsmall<$x$>",
        "2.00x\nours",
    ]
    assert ax.get_title(loc="left") == "The fastest at 4 shapes on NVIDIA H200"
    said = " ".join(t.get_text() for t in ax.texts).replace("\n", " ")
    assert "Behind by more than 3 %: 1 of 4" in said
    assert "Least 0.90x, most 2.00x" in said
    bold = [t.get_text() for i in ax.child_axes for t in i.texts if t.get_fontweight() == "bold"]
    assert bold == ["0.90x\nours"]


def test_a_grid_of_one_side_is_refused() -> None:
    with pytest.raises(
        ProfkitError, match="no shape of this grid has times for both sides"
    ) as caught:
        heatmap(TimeGrid(None, frozenset(), GRID.cells))
    assert "against" in caught.value.hint


def test_the_verb_draws_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [{"schema": "profkit.grid/1", "against": ["lib"]}]
    lines += [{"at": dict(c.at), "warm": c.warm} for c in GRID.cells]
    path = tmp_path / "times.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    monkeypatch.setattr(
        "sys.argv", ["profkit", "roofline", str(path), "-o", str(tmp_path / "h.svg")]
    )
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert "4 shapes" in capsys.readouterr().err
    assert (tmp_path / "h.svg").read_text().startswith("<?xml")


def _crowded(n: int) -> TimeGrid:
    cells = (_cell(64, bh, False, 1e-6, 2e-6) for bh in range(1, n + 1))
    return TimeGrid(None, frozenset({"lib"}), tuple(cells))


def test_letters_shrink_with_the_cells() -> None:
    sizes = [heatmap(_crowded(n)).child_axes[0].texts[0].get_fontsize() for n in (2, 18, 60)]
    assert sizes[0] > sizes[1] >= sizes[2] >= 5


ROOFS = {
    "device": "GPU",
    "kernel": "k",
    "grid": "1",
    "block": "1",
    "status": "ok",
    "time": 1e-3,
    "sm_clock": 1.5e9,
    "dram_clock": 3e9,
    "peak_dram": 1e12,
    "peak_l2": 4e12,
    "peak_l1": 1e13,
    "peak_fp32": 2e13,
    "fp32_rate": 1e12,
    "dram_rate": 2e11,
    "l2_rate": 4e11,
    "l1_rate": 9e11,
}


def _shapes(gpu: str) -> TimeGrid:
    cells = (replace(c, operations=1e9, moved=1e7) for c in GRID.cells)
    return replace(GRID, gpu=gpu, cells=tuple(cells))


def test_shapes_stand_in_a_roofline_by_the_work_they_need() -> None:
    ax = roofline(pd.DataFrame([ROOFS]), grid=_shapes("GPU"))
    drawn = [line for line in ax.get_lines() if line.get_marker() in {"D", "P"}]
    (full, causal) = [sorted(line.get_ydata()) for line in drawn]
    assert full == pytest.approx([1e9 / 3e-6, 1e9 / 1e-6])
    assert causal == pytest.approx([1e9, 1e9 / 1e-6])
    assert {x for line in drawn for x in line.get_xdata()} == {100.0}
    legend = {t.get_text() for t in ax.get_legend().get_texts()}
    assert {"shapes, D 64, not causal", "shapes, D 64, causal"} <= legend
    left, right = ax.get_xlim()
    low, high = ax.get_ylim()
    assert left < 100 < right
    assert low < 1e9 < 1e15 < high


def test_shapes_of_another_gpu_or_without_work_are_refused() -> None:
    runs = pd.DataFrame([ROOFS])
    with pytest.raises(ProfkitError, match=r"ran on GPU, but the grid on NVIDIA H200"):
        roofline(runs, grid=_shapes("NVIDIA H200"))
    with pytest.raises(ProfkitError, match="operations and bytes"):
        roofline(runs, grid=replace(GRID, gpu="GPU"))


def test_the_verb_draws_shapes_beside_launches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    report = str(ROOT / "artifacts" / "attention" / "A" / "champion.ncu-repz")
    grid, out = ROOT / "artifacts" / "attention" / "held.jsonl", tmp_path / "roof.svg"
    monkeypatch.setattr("sys.argv", ["profkit", "roofline", report, str(grid), "-o", str(out)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    shapes = len(grid.read_text("utf-8").splitlines()) - 1
    assert f"1 launch and {shapes} shapes" in capfd.readouterr().err
    assert out.stat().st_size > 10_000
