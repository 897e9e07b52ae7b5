"""Large reports are read some launches at a time: the same answers, in bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from profkit.errors import ProfkitError
from profkit.reports import container, hotlines, reader
from tests.conftest import ROOT
from tests.reports import made
from tests.reports.lines import hot_lines

NAMES = [*made.METRICS]
TIMED = "gpu__time_duration.sum"


@pytest.fixture
def several(tmp_path: Path) -> str:
    """Five launches that differ in name and time."""
    results = [
        made.result(NAMES, {**made.METRICS, TIMED: 100.0 * (n + 1)}, kernel=f"k{n}")
        for n in range(5)
    ]
    path = tmp_path / "several.ncu-rep"
    path.write_bytes(made.report(results, NAMES))
    return str(path)


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch a part."""
    monkeypatch.setattr(container, "PART", 1)


@pytest.fixture(scope="module")
def heavy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of 44 MB: a real one, its launches again and again."""
    packed = ROOT / "artifacts" / "probes" / "probes-1.ncu-repz"
    with zstandard.ZstdDecompressor().stream_reader(packed.read_bytes()) as plain:
        data = plain.read()
    path = tmp_path_factory.mktemp("heavy") / "heavy.ncu-rep"
    path.write_bytes(made.repeated(data, 45 << 20))
    return path


def test_in_parts_as_whole(several: str, in_parts: None) -> None:
    whole = reader.read_report_unless_large(several)
    assert isinstance(whole, reader.ReportLaunches)
    part = reader.read_large_reports([several], container.check_report_bytes(several).size)[0]
    assert (part.file, part.identity, part.values) == (whole.file, whole.identity, whole.values)
    assert repr(part.rules) == repr(whole.rules)
    assert [row[2] for row in part.identity] == [f"k{n}" for n in range(5)]


def test_many_small_launches_are_in_parts_too(tmp_path: Path) -> None:
    """Where it is read a launch takes some kB, however few bytes it has: 10,000 took 70 MB at once."""
    path = tmp_path / "many.ncu-rep"
    path.write_bytes(made.numbered(2500))
    parts = [len(indices) for _, indices in container.split_report(path, tmp_path)]
    assert sum(parts) == 2500
    assert max(parts) <= container.PART / container.LAUNCH + 1
    assert container.check_report_bytes(path).memory_weight > reader.LARGE > path.stat().st_size


@pytest.mark.parametrize("packed", [False, True])
def test_a_large_one_is_walked_once(
    several: str, packed: bool, in_parts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The walk that checks it is the one that splits it, and what it says is known from then on."""
    if packed:
        content = zstandard.compress(Path(several).read_bytes())
        several = f"{several}z"
        Path(several).write_bytes(content)
    whole = reader.read_report_files([several])
    container._walked.clear()
    walked = []
    steps = container._walk_frames
    monkeypatch.setattr(container, "_walk_frames", lambda *of: walked.append(of[0]) or steps(*of))
    monkeypatch.setattr(reader, "LARGE", 1)
    again = reader.read_report_files([several])
    assert (again.files, again.launches.equals(whole.launches)) == (whole.files, True)
    assert container.check_report_bytes(several).launches == 5
    assert walked == [several]


@pytest.mark.parametrize("how", ["whole", "cut", "overwritten", "packed", "no report", "empty"])
def test_split_says_what_check_says(several: str, tmp_path: Path, how: str) -> None:
    content = Path(several).read_bytes()
    path = tmp_path / "other.ncu-rep"
    path.write_bytes(
        {
            "whole": content,
            "cut": content[:-20],
            "no report": b"x" * 99,
            "empty": b"",
            "overwritten": content[:400] + b"\xff" * 9 + content[409:],
            "packed": zstandard.ZstdCompressor().compress(content),
        }[how]
    )
    checked = container.check_report_bytes(path)
    said = []

    def parts() -> Iterator[tuple[Path, tuple[int, ...]]]:
        said.append((yield from container.split_report(path, tmp_path)))

    found = [n for _, indices in parts() for n in indices]
    assert (said, said[0].size) == ([checked], checked.size)
    assert len(found) <= checked.launches
    assert bool(found) == (how in {"whole", "cut", "packed"})


def test_a_large_one_has_children_for_every_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as there is work for: one more is a fork, and a part takes ten times as long."""
    monkeypatch.setattr(reader, "count_processors_to_use", lambda: 4)
    assert [reader.choose_process_count(size << 20) for size in (7, 17, 40, 900)] == [
        1,
        2,
        4,
        4,
    ]
    assert reader.choose_process_count(900 << 20, 1) == 1


def test_a_cut_one_gives_what_is_left(several: str, in_parts: None) -> None:
    content = Path(several).read_bytes()
    Path(several).write_bytes(content[:-20])
    part = reader.read_large_reports([several], container.check_report_bytes(several).size)[0]
    assert part.file.status == "damaged"
    assert [row[2] for row in part.identity][:4] == ["k0", "k1", "k2", "k3"]


def test_raw_in_parts(several: str, in_parts: None, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = reader.read_raw_frame(several)
    monkeypatch.setattr(reader, "LARGE", 1)
    assert reader.read_raw_frame(several).equals(whole)


def test_wanted_launches_only(several: str, in_parts: None, tmp_path: Path) -> None:
    made_ = list(container.split_report(several, tmp_path, {1, 3}))
    assert [indices for _, indices in made_] == [(1,), (3,)]
    assert [container.check_report_bytes(path).status for path, _ in made_] == ["ok", "ok"]


@pytest.mark.slow
def test_lines_of_a_large_one(heavy: Path) -> None:
    """The last repetition of a launch, from a part of the report, has the lines of the first."""
    small = heavy.with_name("small.ncu-rep")
    (copy, _), *_ = container.split_report(heavy, heavy.parent, {0}, code=True)
    copy.rename(small)
    assert small.stat().st_size < 8 << 20
    again = (
        container.check_report_bytes(heavy).launches // 3
    )  # its launches stand there three times
    first, last = hot_lines(small, 0), hot_lines(heavy, again)
    assert len(first)
    assert first.equals(last)


MEASURED = """
import resource, subprocess, sys
done = subprocess.run([sys.executable, "-m", "profkit", *sys.argv[1:]])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024, file=sys.stderr)
sys.exit(done.returncode)
"""


@pytest.mark.slow
@pytest.mark.slow
def test_memory_is_at_most_three_times_the_report_and_200_mb(heavy: Path) -> None:
    """Of the largest process; the library alone took six times the report."""
    command = [sys.executable, "-c", MEASURED, "diagnose", "--json", str(heavy)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    launches = json.loads(done.stdout)["launches"]
    assert len(launches) == container.check_report_bytes(heavy).launches == 120
    assert float(done.stderr.splitlines()[-1]) < 3 * heavy.stat().st_size + 200e6


@pytest.mark.slow
@pytest.mark.parametrize("part", [1, 1 << 20])
def test_lines_of_a_large_one_stand_in_the_order_of_the_requests(
    several: str, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each launch that is asked for is in one copy, with what else is asked of it."""
    monkeypatch.setattr(hotlines, "LARGE", 1)
    monkeypatch.setattr(container, "PART", part)
    asked = [
        hotlines.LinesRequest(several, n, {f"{n}": (), f"key {at}": ()})
        for at, n in enumerate((4, 0, 2, 4))
    ]
    answers = hotlines.answer_line_requests(asked)
    assert [[*of.counters] for of in answers] == [[*of.counters] for of in asked]


@pytest.mark.parametrize("launch", [-1, 5])
def test_launches_of_a_large_one_are_counted_from_0(
    several: str, launch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hotlines, "LARGE", 1)
    with pytest.raises(ProfkitError) as caught:
        hot_lines(several, launch)
    assert caught.value.message == f"{several}: has no launch {launch}"
    assert caught.value.hint == "launches are counted from 0"
