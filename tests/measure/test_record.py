import json
import os
from dataclasses import replace
from math import isnan
from pathlib import Path

import pytest

from profkit.errors import ProfkitError
from profkit.lab.measure import ladder
from profkit.lab.measure.bench import Times, summarize_times_as_json
from profkit.lab.measure.subjects import list_library_versions
from profkit.lab.measure.targets import (
    LabFolders,
    Measurements,
    Target,
    TargetRun,
    make_record_without_timing,
)
from profkit.lab.measure.variants.build import Build
from profkit.lab.measure.variants.problem import load_problem
from profkit.lab.measure.variants.variants import Variant
from profkit.records.header import VariantHeader
from profkit.records.parts import GpuState, RecordedSource, TimedSide, TimedSides, Timing
from profkit.records.record import Record, read_record, write_record


def test_a_record_comes_back_and_has_no_nan(tmp_path: Path) -> None:
    path = tmp_path / "a/v1.B.json"
    side = TimedSide(median=float("nan"), samples=(1.5, float("inf")))
    made = Record(
        variant="v1", case="B", timing=Timing(l2=TimedSides(warm=side)), made="today", path=path
    )
    write_record(path, made)
    assert "NaN" not in path.read_text()
    assert json.loads(path.read_text())["schema"] == "profkit.run/1"
    back = read_record(path)
    assert (back.variant, back.case, back.made, back.path) == ("v1", "B", "today", path)
    assert back.warm_samples[0] == 1.5
    assert isnan(back.warm_samples[1])
    assert back.timing.l2.warm.median is None
    assert list(path.parent.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.json"
    write_record(path, Record(variant="v1", case="B", made="1"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ProfkitError, match="No space left on device"):
        write_record(path, Record(variant="v1", case="B", made="2"))
    assert json.loads(path.read_text())["made"] == "1"
    assert list(tmp_path.iterdir()) == [path]


def test_stale() -> None:
    assert not Record(variant="v1", case="B", source=RecordedSource(sha256="a")).is_stale("a")
    assert Record(variant="v1", case="B", source=RecordedSource(sha256="a")).is_stale("b")
    assert Record(variant="v1", case="B").is_stale("b")


def test_an_interval_that_stays_wide_says_why() -> None:
    pytest.importorskip("profkit.evidence.stats")
    idle = GpuState()
    times = Times(
        *("v1", "B", (1e-5, 1.3e-5) * 20, (), 10, 1e-5, 2e-6, 2e-6, idle, idle),
        rounds_short="still wide after 240 rounds",
        session="s",
    )
    said = summarize_times_as_json(times)
    assert said["why_wide"] == "warm: wider than 1 %, still wide after 240 rounds"
    assert said["l2"]["cold"] is None
    assert said["l2"]["warm"]["low"] <= said["l2"]["warm"]["median"] <= said["l2"]["warm"]["high"]
    narrow = summarize_times_as_json(
        replace(times, warm=tuple(1e-5 + i * 1e-9 for i in range(5)) * 8)
    )
    assert narrow["why_wide"] == ""
    # Two levels, one after the other: 40 samples that are worth less than six.
    hanging = summarize_times_as_json(
        replace(times, warm=(1e-5,) * 20 + (1.3e-5,) * 20, rounds_short="")
    )
    assert hanging["why_wide"] == "warm: no interval, neighbouring samples are correlated"
    assert hanging["l2"]["warm"]["low"] is hanging["l2"]["warm"]["width"] is None
    few = summarize_times_as_json(replace(times, warm=(1e-5, 2e-5), cold=(1e-5,) * 40))
    assert few["why_wide"] == (
        "warm: no interval, 2 samples are too few; cold: no interval, all samples are equal"
    )


def built_as(**facts: str | None) -> ladder.CompiledVariant:
    """A build of v1 whose kernels are "s", for sm_90."""
    variant = Variant("v1", "x", Path("v1_x.cu"), VariantHeader("T"))
    known = {"sass": "s", "source": "new", "host": "h", **facts}
    return ladder.CompiledVariant(Build(variant, "90", "key", None, **known), None, ())


def test_the_same_machine_code_of_another_source_refreshes_a_record(tmp_path: Path) -> None:
    for name, sass in {"same": "s", "other": "t", "unread": None}.items():
        source = RecordedSource(sha256="old", sass=sass, host="h", arch="90")
        write_record(tmp_path / f"v1.{name}.json", Record(variant="v1", case=name, source=source))
    made = [built_as(), built_as(sass=None)]
    places = LabFolders(tmp_path, artifacts=tmp_path)
    assert [p.name for p in ladder.refresh_records_by_code(places, made).written] == [
        "v1.same.json"
    ]
    source = read_record(tmp_path / "v1.same.json").source
    assert (source.sha256, source.made_from) == ("new", "old")
    assert ladder.refresh_records_by_code(places, made).written == (), "it is fresh now"
    ladder.refresh_records_by_code(places, [built_as(source="newer")])
    source = read_record(tmp_path / "v1.same.json").source
    assert (source.sha256, source.made_from) == ("newer", "old"), "made with, not before"


@pytest.mark.parametrize("host", ["another", None])
def test_the_same_kernels_of_another_launcher_stay_stale(tmp_path: Path, host: str | None) -> None:
    path = tmp_path / "v1.B.json"
    source = RecordedSource(sha256="old", sass="s", host=host, arch="90")
    write_record(path, Record(variant="v1", case="B", source=source))
    text = path.read_text()
    found = ladder.refresh_records_by_code(LabFolders(tmp_path, artifacts=tmp_path), [built_as()])
    assert (found.written, found.unknown) == ((), (path,))
    assert path.read_text() == text
    assert (
        ladder.refresh_records_by_code(
            LabFolders(tmp_path, artifacts=tmp_path), [built_as(sass="t")]
        ).unknown
        == ()
    )


def test_a_record_of_todays_source_gets_its_launchers_hash(tmp_path: Path) -> None:
    path = tmp_path / "v1.B.json"
    source = RecordedSource(file="x/v1_x.cu", sha256="new", sass="s", arch="90")
    write_record(path, Record(variant="v1", case="B", header=VariantHeader("T"), source=source))
    lines = path.read_text().splitlines()
    places = LabFolders(tmp_path, artifacts=tmp_path)
    assert ladder.refresh_records_by_code(places, [built_as()]).written == (path,)
    assert [x for x in path.read_text().splitlines() if x not in lines] == ['  "host": "h",']
    assert ladder.refresh_records_by_code(places, [built_as(source="newer")]).written == (path,), (
        "it can follow"
    )
    assert ladder.refresh_records_by_code(
        places, [built_as(source="newest", host="i")]
    ).unknown == (path,)


def test_what_a_library_call_brought_is_in_its_record() -> None:
    assert list_library_versions("13.0", 91002) == {"cuda": "13.0", "cudnn": "9.10.2"}
    assert list_library_versions("11.8", 8907) == {"cuda": "11.8", "cudnn": "8.9.7"}
    assert list_library_versions(None, None) == {}
    problem = load_problem(Path("kernels/attention"))
    idle = GpuState()
    brought = {"cuda": "13.0", "cudnn": "9.10.2"}
    timed = Times("x", "B", (1e-5,), (), 1, 1e-5, 1e-6, 1e-6, idle, idle, brought=brought)
    measured = Measurements(times={("sdpa", "B"): timed, ("v1", "B"): replace(timed, brought={})})
    run = TargetRun(Target(problem, (), ("B",), ("sdpa",), Path()), {}, Path(), measured)
    said = make_record_without_timing(run, "sdpa", "B").to_json()["versions"]
    assert {k: said.get(k) for k in brought} == brought
    own = make_record_without_timing(run, "v1", "B").to_json()["versions"]
    assert not {*brought} & {*own}, "a kernel of ours runs neither"
