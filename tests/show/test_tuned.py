"""A finished search as text and pictures."""

import json
from pathlib import Path

import pandas as pd
import pytest

from profkit.errors import ProfkitError
from profkit.show import plots
from profkit.show.text.terminal import make_console, render_text
from profkit.show.views import measured as tuned


def trials(n: int) -> pd.DataFrame:
    sources = ["default", *["random"] * 3, "steer:grid-too-small", *["tpe"] * n][:n]
    return pd.DataFrame(
        {
            "number": range(n),
            "source": pd.array(sources, dtype="string"),
            "outcome": pd.array((["measured", "measured", "pruned"] * n)[:n], dtype="string"),
            "value": [1e-5 * (1 + (7 * i) % 5) for i in range(n)],
            "M": [16 << i % 3 for i in range(n)],
            "W": [1 + i % 2 for i in range(n)],
            "smem": [1024.0 * i for i in range(n)],
            "regs": [32.0 + i for i in range(n)],
            "occupancy": [0.25] * n,
            "became_incumbent": [i == 2 for i in range(n)],
            "confirmed_speedup": [1.2] * n,
            "confirmed_low": [1.1] * n,
            "confirmed_high": [1.3] * n,
            "bound": pd.array(["launch"] * n, dtype="string"),
            "limiter": pd.array(["grid_too_small"] * n, dtype="string"),
        }
    )


SAID = {
    "variant": "v3",
    "case": "B",
    "gpu": {"name": "H200"},
    "seconds": 61.0,
    "ended": "done",
    "distinct": 12,
    "outcomes": {"measured": 8, "refused": 4},
    "refused": {"spills": 4},
    "refused_by_arithmetic": {"M % W == 0": 9},
    "keep": True,
    "because": "1.3x faster than the defaults",
    "anchor": "sdpa",
    "champion": {
        "config": {"M": "32"},
        "number": 7,
        "source": "steer:grid-too-small",
        "name": "v3-32",
        "said": {},
    },
    "default": {
        "config": {"M": "64"},
        "number": 0,
        "name": "v3-64",
        "said": {
            "verdict": {"bound": "launch", "limiter": "grid_too_small", "because": "64 blocks"}
        },
    },
    "times": {
        n: {"warm": {"median": t, "low": t * 0.99, "high": t * 1.01}}
        for n, t in (("v3-32", 1e-5), ("v3-64", 1.3e-5), ("sdpa", 9e-6))
    },
    "comparison": {"sentence": "1.3x faster", "hedges_g": 3.2, "p_value": 0.02},
    "importances": {"M": 0.75},
    "steering": {"proposed": 3, "measured": 2, "incumbents": 1, "by_rule": {"grid-too-small": 3}},
}


def _told(search: dict) -> str:
    return render_text(tuned.show_ended_search(search), make_console(width=200))


def test_the_end_of_a_search_in_lines() -> None:
    text = _told(SAID)
    assert "12 distinct trials (8 measured, 4 refused) in 61.0 s; all of them." in text
    assert "ruled out before building: 9 (M % W == 0: 9)" in text
    assert "keep: 1.3x faster than the defaults" in text
    assert "-DM=32" in text
    assert "3 proposals (3 by grid-too-small), 2 measured, 1 became the incumbent" in text


def test_the_summary_holds_decision_path_and_pictures() -> None:
    text = tuned.write_search_summary(SAID, trials(12), ["history.png"])
    assert "**keep**: 1.3x faster" in text
    assert "1.3x faster; p = 0.02." in text
    assert "| 2 | random |" in text
    assert "1.200x (1.100 to 1.300)" in text
    assert "![history](history.png)" in text
    champion = {**SAID["champion"], "number": 0}
    fall = tuned.write_search_summary({**SAID, "keep": False, "champion": champion}, trials(3), [])
    assert "**fall back**" in fall
    assert "nothing was confirmed faster" in fall


@pytest.mark.parametrize("name", ["history", "resources"])
def test_pictures_of_a_search(name: str, tmp_path: Path) -> None:
    frame = trials(12)
    draw = {
        "history": lambda: plots.search_history(frame),
        "resources": lambda: plots.search_resources(frame),
    }
    assert plots.save(draw[name](), tmp_path / "x.png").stat().st_size > 5000


def test_the_committed_search_is_whole_and_draws(tmp_path: Path) -> None:
    folder = Path(__file__).parents[2] / "artifacts/tune/v3.B"
    kept = pd.read_parquet(folder / "history.parquet")
    macros = ["BLOCK_M", "BLOCK_N", "WARPS", "STAGES"]
    assert len(kept) == 60
    assert not kept.duplicated(macros).any()
    assert set(kept["outcome"]) <= {"measured", "pruned", "refused"}
    best = kept.loc[kept[kept["outcome"] == "measured"]["value"].idxmin()]
    champion = json.loads((folder / "v3-tuned.B.json").read_text())["tune"]
    assert {macro: str(best[macro]) for macro in macros} == champion["config"]
    assert champion["trials"] == 60
    assert plots.save(plots.search_history(kept), tmp_path / "x.png").is_file()


def test_nothing_to_draw_is_said() -> None:
    empty = trials(3).assign(value=float("nan"))
    for draw in (plots.search_history, plots.search_resources):
        with pytest.raises(ProfkitError, match="no trial of this search has a time"):
            draw(empty)


def test_hostile_names_stay_text() -> None:
    said = {**SAID, "variant": "[red]x[/red]\x1b[31m", "because": "<script>|\n# x"}
    assert "\x1b" not in _told(said)
    text = tuned.write_search_summary(said, trials(3), [])
    assert "<script>" not in text
