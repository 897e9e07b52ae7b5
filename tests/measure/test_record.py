import json
import os
from pathlib import Path

import pytest

from profkit.errors import ProfkitError
from profkit.measure import ladder
from profkit.measure.bench.summary import timing
from profkit.measure.targets import Places
from profkit.records import store as record


def test_a_record_comes_back_and_has_no_nan(tmp_path: Path) -> None:
    path = tmp_path / "a/v1.B.json"
    record.save(path, {"x": float("nan"), "y": (1.5, float("inf")), "p": Path("k.cu"), "n": None})
    assert "NaN" not in path.read_text()
    said = record.load(path)
    assert said == {"schema": "profkit.run/1", "x": None, "y": [1.5, None], "p": "k.cu", "n": None}
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "profkit.run/9"}'])
def test_what_is_no_record_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ProfkitError, match=r"x\.json"):
        record.load(path)


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.json"
    record.save(path, {"a": 1})

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ProfkitError, match="No space left on device"):
        record.save(path, {"a": 2})
    assert json.loads(path.read_text())["a"] == 1
    assert list(tmp_path.iterdir()) == [path]


def test_stale() -> None:
    assert not record.stale({"source": {"sha256": "a"}}, "a")
    assert record.stale({"source": {"sha256": "a"}}, "b")
    assert record.stale({"source": None}, "b")


def test_an_interval_that_stays_wide_says_why() -> None:
    pytest.importorskip("profkit.evidence.timing.stats")
    state = {"sm_clock": None, "memory_clock": None, "power": None, "temperature": None}
    times = {
        "warm": [1e-5, 1.3e-5] * 20,
        "cold": [],
        "rounds_short": "still wide after 240 rounds",
        "session": "s",
        "per_sample": 10,
        "eager": 1e-5,
        "host": 2e-6,
        "bare": 2e-6,
        "host_bound": False,
        "before": state,
        "after": state,
    }
    said = timing(times)
    assert said["why_wide"] == "warm: wider than 1%, still wide after 240 rounds"
    assert said["l2"]["cold"] is None
    assert said["l2"]["warm"]["low"] <= said["l2"]["warm"]["median"] <= said["l2"]["warm"]["high"]
    narrow = timing({**times, "warm": [1e-5 + i * 1e-9 for i in range(5)] * 8})
    assert narrow["why_wide"] == ""
    # Two levels, one after the other: 40 samples that are worth less than six.
    hanging = timing({**times, "warm": [1e-5] * 20 + [1.3e-5] * 20, "rounds_short": ""})
    assert hanging["why_wide"] == "warm: no interval, neighbouring samples hang together"
    assert hanging["l2"]["warm"]["low"] is hanging["l2"]["warm"]["width"] is None
    few = timing({**times, "warm": [1e-5, 2e-5], "cold": [1e-5] * 40})
    assert few["why_wide"] == (
        "warm: no interval, 2 samples are too few; cold: no interval, all samples are equal"
    )


def test_the_same_machine_code_of_another_source_refreshes_a_record(tmp_path: Path) -> None:
    source = {"sha256": "old", "sass": "s", "arch": "90"}
    for name, change in {"same": {}, "other": {"sass": "t"}, "unread": {"sass": None}}.items():
        said = {"variant": "v1", "case": name, "source": {**source, **change}}
        record.save(tmp_path / f"v1.{name}.json", said)
    summary = {"variant": "v1", "arch": "90", "sass": "s", "source": "new"}
    made = [ladder.Compiled([], summary, [], None)]
    made.append(ladder.Compiled([], {**summary, "sass": None}, [], None))
    places = Places(tmp_path, artifacts=tmp_path)
    assert [p.name for p in ladder.refresh(places, made)] == ["v1.same.json"]
    said = record.load(tmp_path / "v1.same.json")["source"]
    assert (said["sha256"], said["made_from"]) == ("new", "old")
    assert ladder.refresh(places, made) == [], "it is fresh now"
