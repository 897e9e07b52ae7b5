"""Reports made in the test, read by the real library: rows, statuses, rules."""

from __future__ import annotations

import hashlib
import json
from math import isnan, nan
from pathlib import Path
from types import SimpleNamespace

import pytest
import zstandard

from profkit.errors import ProfkitError
from profkit.records.record import SCHEMA
from profkit.reports import cluster, frame, reader
from profkit.reports.frame import COLUMNS, RULE_COLUMNS
from profkit.reports.metrics import CATALOGUE, OPCODES
from tests.reports import made

NAMES = [*made.METRICS, OPCODES]


@pytest.fixture
def write(tmp_path: Path):
    """Results, or bytes -> the path of a report that holds them."""

    def written(*results: bytes, name: str = "made.ncu-rep", data: bytes | None = None) -> Path:
        path = tmp_path / name
        path.write_bytes(made.report(results or None, NAMES) if data is None else data)
        return path

    return written


def row(path: Path, launch: int = 0):
    return reader.read_report_files([path]).launches.iloc[launch]


def test_one_launch(write) -> None:
    path = write(made.result(NAMES))
    runs = reader.read_report_files([path]).launches
    assert list(runs.columns) == [*COLUMNS, *CATALOGUE]
    assert runs.iloc[0][list(COLUMNS)].to_dict() == {
        "report": str(path),
        "launch": 0,
        "kernel": "void scale<float>(float*, int)",
        "workload": "kernel",
        "device": "NVIDIA H200",
        "cc": "9.0",
        "grid": (132, 2, 1),
        "block": (128, 1, 1),
        "variant": None,
        "case": None,
        "nvtx": None,
        "status": "ok",
        "ncu_version": "2025.3.1.0",
    }
    assert runs.time[0] == pytest.approx(1.5e-6)
    assert runs[[name for name in CATALOGUE if "dram" in name]].isna().all(axis=None)
    assert runs.attrs["reports"][0].sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_dimensions_are_whole_numbers_though_old_reports_have_floats(write) -> None:
    old = {name: float(value) for name, value in made.SHAPE.items()}
    grid = row(write(made.result(NAMES, {**made.METRICS, **old}))).grid
    assert grid == (132, 2, 1)
    assert {type(size) for size in grid} == {int}


def test_some_name_where_there_is_no_demangled_one(write) -> None:
    assert row(write(made.result(NAMES, kernel=""))).kernel == "_Z5scale"


@pytest.mark.parametrize(
    "name", ["[red]bold[/red]", "\x1b[31mred\x1b[0m", "<script>", "two\nlines", "x" * 10_000, "ü→"]
)
def test_hostile_names_come_through_as_they_are(write, name: str) -> None:
    found = row(write(made.result(NAMES, kernel=name, ranges=[name])))
    assert (found.kernel, found.nvtx) == (name, name)


@pytest.mark.parametrize(
    "metrics", [made.DEVICE, {**made.DEVICE, "gpu__time_duration.sum": nan}], ids=["absent", "nan"]
)
def test_a_launch_that_ncu_gave_up_on(write, metrics) -> None:
    found = row(write(made.result(NAMES), made.result(NAMES, metrics)), 1)
    assert (found.status, found.grid, isnan(found.time)) == ("failed", None, True)


def test_metrics_only_is_no_failure(write) -> None:
    assert row(write(made.result(NAMES, {**made.DEVICE, **made.SHAPE}))).status == "ok"


def test_a_range_is_a_launch(write) -> None:
    data = made.report([made.range_result(NAMES, {**made.DEVICE, **made.TIME})], NAMES, counter=7)
    found = row(write(data=data))
    assert (found.workload, found.status, found.grid) == ("range", "ok", None)


@pytest.mark.parametrize(
    ("ranges", "variant", "case", "nvtx"),
    [
        (["train", "step"], None, None, "train/step"),
        (
            ["train", "profkit:stage2:A-causal"],
            "stage2",
            "A-causal",
            "train/profkit:stage2:A-causal",
        ),
        (["profkit:a:A", "profkit:b:B"], "b", "B", "profkit:a:A/profkit:b:B"),
        (["profkit:a"], "a", None, "profkit:a"),
        (["profkit:", "profkitten:a:b"], None, None, "profkit:/profkitten:a:b"),
    ],
)
def test_nvtx(write, ranges, variant, case, nvtx) -> None:
    found = row(write(made.result(NAMES, ranges=ranges)))
    assert (found.variant, found.case, found.nvtx) == (variant, case, nvtx)


def test_the_run_record_beside_it(write) -> None:
    path = write(made.result(NAMES))
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    record = {"schema": SCHEMA, "variant": "v1", "case": "B", "report": {"sha256": sha256}}
    path.with_suffix(".json").write_text(json.dumps(record))
    reports = reader.read_report_files([path])
    assert reports.files[0].status == "ok"
    assert (reports.launches.variant[0], reports.launches.case[0]) == ("v1", "B")
    # An eighth of a double is nothing that the bytes themselves could tell.
    path.write_bytes(path.read_bytes().replace(made.field(3, 1500.0), made.field(3, 1501.0)))
    file = reader.read_report_files([path]).files[0]
    assert (file.status, "run record" in file.message, file.launches) == ("damaged", True, 1)


@pytest.mark.parametrize("record", ["", "[]", "{", '{"variant": 3, "report": []}', "\xff"])
def test_a_record_that_says_nothing(write, record: str) -> None:
    path = write(made.result(NAMES))
    path.with_suffix(".json").write_text(record, encoding="latin-1")
    file = reader.read_report_files([path]).files[0]
    assert (file.status, row(path).variant) == ("ok", None)


def test_instances_by_name(write) -> None:
    held = {OPCODES: {"HMMA.16816.F32": 3.0, "LDGSTS": 4.0, "EXIT": 1.0}}
    path = write(made.result(NAMES, {**made.METRICS, OPCODES: 8.0}, instances=held))
    (action,) = reader.iterate_actions(str(path))
    raw = frame.read_catalogued_metrics(action, action.metric_names())
    assert {k: v for k, v in raw.items() if OPCODES in k} == {
        OPCODES: 8.0,
        **{f"{OPCODES}[{key}]": value for key, value in held[OPCODES].items()},
    }


def test_rules_are_advice_not_errors(write) -> None:
    rules = [
        made.rule("Title", "see @section:X:That Section@, @url:the guide:https://x.y/z@", 2, 17.0),
        made.rule("", "Traceback (most recent call last)", 3),
        made.rule("", "plain", 1),
    ]
    found = reader.read_report_files([write(made.result(NAMES, rules=rules))]).rules
    assert list(found.columns) == list(RULE_COLUMNS)
    assert found.message.tolist() == ["see That Section, the guide", "plain"]
    assert found.title.tolist() == ["Title", "The Rule"]
    assert found.speedup[0] == pytest.approx(0.17)
    assert isnan(found.speedup[1])
    assert found.scope.tolist() == ["local", ""]


@pytest.mark.slow
def test_every_file_has_its_status_and_the_others_go_on(write, tmp_path: Path) -> None:
    good = write(made.result(NAMES))
    data = good.read_bytes()
    paths = [
        write(data=b"", name="zero.ncu-rep"),
        write(data=b"root:x:0:0\n", name="passwd.ncu-rep"),
        write(data=data[:-10], name="cut.ncu-rep"),
        tmp_path / "gone.ncu-rep",
        tmp_path,
        write(data=zstandard.compress(data), name="packed.ncu-repz"),
        write(data=zstandard.compress(data), name="packed.ncu-rep"),
        good,
    ]
    statuses = ["empty", "unreadable", "damaged", "unreadable", "unreadable", "ok", "ok", "ok"]
    for many in (paths, paths * 2):  # in this process, and in children
        files = reader.read_report_files(many).files
        assert [file.path for file in files] == [str(path) for path in many]
        assert [file.status for file in files] == statuses * (len(many) // len(paths))
        assert all(file.message for file in files if file.status != "ok")
        assert [file.launches for file in files[-3:]] == [1, 1, 1]
    assert reader.load_reports([str(path) for path in paths]).attrs["reports"][0].status == "empty"


def test_nothing_readable_is_an_error(tmp_path: Path, write) -> None:
    with pytest.raises(ProfkitError, match=r"gone\.ncu-rep: no such file"):
        reader.load_reports(tmp_path / "gone.ncu-rep")
    write(data=b"text", name="a.ncu-rep")
    write(data=b"text", name="b.ncu-rep")
    with pytest.raises(ProfkitError, match="and 1 more"):
        reader.load_reports(tmp_path)


def test_an_empty_report_has_the_columns(write) -> None:
    runs = reader.load_reports(write(data=b""))
    assert (len(runs), list(runs.columns)) == (0, [*COLUMNS, *CATALOGUE])


def test_what_is_left_of_a_damaged_report(write) -> None:
    rules = [made.rule("T", "M", 2)]
    good, other = made.result(NAMES, rules=rules), made.result(NAMES, kernel="other")
    section = made.field(2, "GPU Speed Of Light Throughput")
    # The section of launch 1 is overwritten: the library would give nothing of this launch.
    bad = other.replace(section, b"\xff" * len(section))
    reports = reader.read_report_files([write(good, bad, good)])
    assert reports.files[0].status == "damaged"
    assert reports.launches.kernel.tolist()[1] == "other"
    assert reports.launches.time.notna().all()
    assert reports.rules.launch.tolist() == [0, 2]
    # A metric of launch 1 is overwritten: the others of it are read.
    time = made.field(2, made.metric_value(1500.0))
    bad = other.replace(time, time[:2] + b"\x77" * (len(time) - 2))
    reports = reader.read_report_files([write(good, bad, good)])
    assert reports.files[0].message.startswith("launch 1 is damaged")
    assert reports.launches.time.notna().tolist() == [True, False, True]
    assert reports.launches.device.tolist() == ["NVIDIA H200"] * 3


@pytest.mark.slow
def test_a_crash_of_the_library_takes_one_file(write, tmp_path: Path, monkeypatch) -> None:
    for n in range(10):
        write(made.result(NAMES), name=f"{n}.ncu-rep")
    write(made.result(NAMES), name="5.culprit.ncu-rep")
    real, crashing = (
        f"{reader.__name__}:read_report_unless_large",
        "tests.reports.crashing:read_report_unless_large",
    )
    isolated = cluster.iterate_results_of_child_processes
    monkeypatch.setattr(
        cluster,
        "iterate_results_of_child_processes",
        lambda f, *rest: isolated(crashing if f == real else f, *rest),
    )
    seen: list[tuple[int, int]] = []
    paths = sorted(tmp_path.iterdir())
    reports = reader.read_report_files(paths, jobs=2, progress=lambda *at: seen.append(at))
    assert [file.status for file in reports.files].count("ok") == 10
    (culprit,) = [file for file in reports.files if file.status != "ok"]
    assert (culprit.path, culprit.status) == (str(tmp_path / "5.culprit.ncu-rep"), "damaged")
    assert "SIGSEGV" in culprit.message
    assert len(reports.launches) == 11  # what is left of the culprit is all of it
    assert seen == [(n, 11) for n in range(1, 12)]


def test_raw(write) -> None:
    frame = reader.read_raw_frame(write(made.result(NAMES), made.result(NAMES, made.DEVICE)))
    assert frame.index.name == "launch"
    assert frame["gpu__time_duration.sum"].tolist()[0] == 1500.0
    assert isnan(frame["gpu__time_duration.sum"][1])
    assert frame["device__attribute_display_name"].tolist() == ["NVIDIA H200"] * 2
    assert OPCODES not in frame  # has instances, no value
    cut = write(data=made.report([made.result(NAMES)] * 2, NAMES)[:-5], name="cut.ncu-rep")
    assert len(reader.read_raw_frame(cut)) == 2
    with pytest.raises(ProfkitError, match="not an Nsight Compute report"):
        reader.read_raw_frame(write(data=b"text", name="text.ncu-rep"))


def test_a_name_that_is_not_utf_8_is_escaped_and_keeps_its_launch(write) -> None:
    odd = made.result(NAMES, kernel=b"k\xfc\xff(int)", rules=[made.rule("T", "advice", 1)])
    path = write(made.result(NAMES), odd)
    found = reader.read_report_files([path])
    assert list(found.launches.kernel) == ["void scale<float>(float*, int)", r"k\xfc\xff(int)"]
    assert list(found.launches.time) == [pytest.approx(1.5e-6)] * 2
    assert list(found.rules.launch) == [1]
    (file,) = found.files
    assert (file.status, file.message) == ("damaged", "launch 1 has a name that is not UTF-8")


def test_such_a_name_is_kept_of_a_launch_that_is_damaged_too(write) -> None:
    path = write(made.result(NAMES, kernel=b"k\xff", extra=made.field(21, b"\xff")))
    (kernel,) = reader.read_report_files([path]).launches.kernel
    assert kernel == r"k\xff"


@pytest.mark.parametrize(
    ("cut", "limited", "child"),
    [(0, False, False), (5, False, True), (0, True, True), (None, True, False)],
)
def test_what_may_take_its_process_with_it_is_read_in_a_child(
    write, monkeypatch, cut: int | None, limited: bool, child: bool
) -> None:
    """A damaged report, and where memory is limited any; a table needs no library."""
    if cut is None:
        table = b"ID,Kernel Name,gpu__time_duration.sum\n0,k,1500\n"
        path = write(data=table, name="made.csv")
    else:
        data = made.report([made.result(NAMES)] * 2, NAMES)
        path = write(data=data[: len(data) - cut])
    called: list[str] = []

    def isolated(function: str, items: list[str], *_):
        called.append(function)
        return [reader.read_report_unless_large(item) for item in items]

    monkeypatch.setattr(reader, "run_in_child_processes", isolated)
    monkeypatch.setattr(reader, "is_memory_limited", lambda: limited)
    (file,) = reader.read_report_files([path]).files
    assert (file.status, file.launches) == ("damaged" if cut else "ok", 1 if cut is None else 2)
    assert called == [f"{reader.__name__}:read_report_unless_large"] * child


def test_few_small_reports_are_read_here_and_others_in_as_many_children_as_there_are_files(
    write, monkeypatch
) -> None:
    called: list[tuple[int, int]] = []

    def each_report(_function, names, _died, _client, most):
        called.append((len(names), most))
        return [(name, reader.read_report_unless_large(name)) for name in names]

    monkeypatch.setattr(cluster, "iterate_results_by_path", each_report)
    monkeypatch.setattr(reader, "count_processors_to_use", lambda: 20)
    paths = [write(made.result(NAMES), name=f"{n}.ncu-rep") for n in range(9)]
    for some, jobs in (
        (paths[:8], None),
        (paths, None),
        (paths, 3),
        ([*paths[:8], paths[0]], None),
    ):
        assert len(reader.read_report_files(some, jobs=jobs).launches) == len(some)
    assert called == [(9, 9), (9, 3)]  # the same file twice is one
    called.clear()
    packed = write(data=zstandard.compress(paths[0].read_bytes()), name="packed.ncu-repz")
    weight = paths[0].stat().st_size + 20 * packed.stat().st_size  # so large it may become
    for much in (weight, weight - 1):
        monkeypatch.setattr(reader, "MUCH", much)
        assert len(reader.read_report_files([paths[0], packed]).launches) == 2
    assert called == [(2, 2)]


def test_a_launch_that_the_library_does_not_give_is_missed(write, monkeypatch) -> None:
    path = write(made.result(NAMES), made.result(NAMES), made.result(NAMES))
    real = reader.iterate_actions
    monkeypatch.setattr(reader, "iterate_actions", lambda of: list(real(of))[:2])
    (file,) = reader.read_report_files([path]).files
    assert (file.status, file.launches) == ("damaged", 2)
    assert file.message == "2 of 3 launches can be read"


@pytest.mark.parametrize("cut", [0, 5])
def test_raw_values_of_a_damaged_report_are_read_in_a_child(write, monkeypatch, cut: int) -> None:
    data = made.report([made.result(NAMES)] * 2, NAMES)
    path = write(data=data[: len(data) - cut])
    called: list[str] = []

    def isolated(function: str, items, *_):
        called.append(function)
        return [reader.read_raw_rows(item) for item in items]

    monkeypatch.setattr(reader, "run_in_child_processes", isolated)
    assert len(reader.read_raw_frame(path)) == 2
    assert called == [f"{reader.__name__}:read_raw_rows"] * bool(cut)


def test_launches_are_counted_over_all_ranges_of_a_report(write, monkeypatch) -> None:
    path = write(made.result(NAMES))
    groups = [
        SimpleNamespace(num_actions=lambda n=n: n, action_by_idx=lambda i, n=n: (n, i))
        for n in (2, 0, 3)
    ]
    monkeypatch.setattr(reader, "open_report", lambda _path: groups)
    with reader.open_report_actions(path) as action:
        assert [action(n) for n in range(5)] == [(2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]
        for n in (-1, 5):
            with pytest.raises(ProfkitError, match=f"has no launch {n}"):
                action(n)


@pytest.mark.parametrize("limited", [False, True])
def test_a_large_packed_report_is_unpacked_in_a_child_where_memory_is_limited(
    write, monkeypatch, limited: bool
) -> None:
    path = write(data=zstandard.compress(made.report()), name="packed.ncu-repz")
    part = reader.read_report_unless_large(str(path))
    called: list[str] = []
    monkeypatch.setattr(reader, "is_memory_limited", lambda: limited)
    monkeypatch.setattr(reader, "LARGE", 1)
    monkeypatch.setattr(reader, "MUCH", 1)
    monkeypatch.setattr(
        cluster,
        "iterate_results_by_path",
        lambda _f, names, *_: called.extend(names) or [(names[0], part)],
    )
    monkeypatch.setattr(reader, "read_large_reports", lambda names, *_: [part for _ in names])
    assert reader.read_report_files([path]).files == (part.file,)
    assert called == [str(path)] * limited
