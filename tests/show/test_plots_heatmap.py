"""The heat map: each shape stands in its panel with its lead, and who is behind is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from matplotlib.axes import Axes

from profkit.cli import main
from profkit.errors import ProfkitError
from profkit.records.grid import GridCell, TimeGrid
from profkit.show.charts.heatmap import panels
from profkit.show.plots import heatmap


def _cell(s: int, bh: int, causal: bool, ours: float, lib: float) -> GridCell:
    at = {"S": s, "BH": bh, "D": 64, "causal": causal}
    return GridCell(at, {"ours": (ours,), "lib": (lib,)}, {"ours": "small<$x$>"} if causal else {})


GRID = TimeGrid(
    "NVIDIA H200",
    frozenset({"lib"}),
    (_cell(64, 1, False, 1e-6, 2e-6), _cell(512, 8, False, 3e-6, 2.7e-6),
     _cell(64, 8, True, 1e-6, 1.5e-6), _cell(2048, 1, True, 1.0, 1.02)),
)  # fmt: skip


def _texts(ax: Axes) -> list[str]:
    return [t.get_text() for inner in ax.child_axes for t in inner.texts]


def test_panels_hold_what_shapes_share() -> None:
    full, causal = panels(GRID)
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
        ProfkitError, match="no shape of this grid has times of both sides"
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
        "sys.argv", ["profkit", "heatmap", str(path), "-o", str(tmp_path / "h.svg")]
    )
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert "4 shapes" in capsys.readouterr().err
    assert (tmp_path / "h.svg").read_text().startswith("<?xml")
