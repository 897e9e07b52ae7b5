"""The whole search on a stand-in machine: propose, build, gate, time, profile, steer, decide."""

import json

import pandas as pd
import pytest

from profkit.records.record import read_record

from .conftest import Bench


@pytest.mark.slow
def test_the_whole_loop(knob: Bench) -> None:
    said = json.loads(knob.tune("--trials", "12", "--json").stdout)
    assert said["distinct"] == 12
    assert said["ended"] == "done"
    assert said["refused_by_arithmetic"] == {
        "TILE % WARPS == 0": 6,
        "shared memory of a block": 6,
    }
    assert said["keep"]
    assert said["comparison"]["answer"] == "faster"
    assert said["champion"]["config"]["TILE"] == "2"
    history = pd.read_parquet(knob.out / "history.parquet")
    measured = history[history["outcome"] == "measured"]
    assert not history.duplicated(["TILE", "WARPS", "MODE"]).any()
    assert measured["value"].notna().all()
    assert measured["time"].min() < measured["time"].iloc[0]
    for name in ("history.png", "resources.png", "knob-tuned.B.json"):
        assert (knob.out / name).stat().st_size > 1000
    record = read_record(knob.out / "knob-tuned.B.json")
    assert (record.variant, record.header.after, record.correct) == ("knob-tuned", "knob", True)
    assert len(record.warm_samples) >= 100
    assert "-DTILE=2" in (knob.out / "profile_summary.md").read_text()
