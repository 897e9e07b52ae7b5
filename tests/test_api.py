"""The public names: ten lines of a notebook."""

from __future__ import annotations

import pytest

import profkit as pk
from tests.conftest import ROOT


def test_the_names_are_there() -> None:
    assert set(pk.__all__) <= set(dir(pk))
    with pytest.raises(AttributeError, match="nothing"):
        pk.nothing  # noqa: B018


def test_ten_lines_of_a_notebook() -> None:
    runs = pk.load(str(ROOT / "artifacts" / "**" / "sdpa-flash*.ncu-rep*"))
    found = pk.diagnose(runs)
    worst = found.query("status == 'fires'").sort_values("gain", ascending=False)
    assert len(runs) >= 3
    assert set(runs["variant"]) == {"sdpa-flash"}
    assert worst["gain"].iloc[0] > 1
    assert "long-scoreboard" in str(pk.explain("long-scoreboard"))
    assert pk.explain("long-scoreboard")._repr_markdown_().startswith("## long-scoreboard")
    assert "gpu__time_duration.sum" in pk.raw(ROOT / "artifacts" / "copy.1GiB.ncu-rep").columns
