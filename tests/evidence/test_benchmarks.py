"""The gate on results of nvbench, pytest-benchmark and Google Benchmark, in their own forms."""

from __future__ import annotations

import json
import random
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from profkit.errors import ProfkitError
from profkit.evidence.benchmarks import judge_benchmarks, read_benchmarks


def draw_times(median: float, seed: int, count: int = 200) -> list[float]:
    chance = random.Random(seed)
    return [median * (1 + chance.gauss(0, 0.01)) for _ in range(count)]


def write_pytest(path: Path, times: Sequence[float], cpu: str = "EPYC") -> Path:
    row = {"name": "test_sum", "fullname": "tests/test_a.py::test_sum", "params": None}
    content = {
        "machine_info": {"node": path.stem, "machine": "x86_64", "cpu": {"brand_raw": cpu}},
        "commit_info": {"id": "unknown"},
        "benchmarks": [{**row, "stats": {"min": min(times), "data": list(times)}}],
        "datetime": "2026-01-01T00:00:00",
        "version": "5.1.0",
    }
    path.write_text(json.dumps(content))
    return path


def write_google(path: Path, times: Sequence[float]) -> Path:
    rows: list[dict[str, Any]] = []
    for number, time in enumerate(times):
        row = {"name": "BM_sum/8", "run_name": "BM_sum/8", "run_type": "iteration"}
        row |= {"repetitions": len(times), "repetition_index": number, "threads": 1}
        rows.append({**row, "iterations": 9, "real_time": 1e6 * time, "time_unit": "us"})
    mean = {"name": "BM_sum/8_mean", "run_name": "BM_sum/8", "run_type": "aggregate"}
    rows.append({**mean, "aggregate_name": "mean", "real_time": 1e9, "time_unit": "us"})
    context = {"date": "2026-01-01", "host_name": path.stem, "num_cpus": 8, "mhz_per_cpu": 3000}
    path.write_text(json.dumps({"context": context, "benchmarks": rows}))
    return path


def write_nvbench(path: Path, times: Sequence[float], filename: str = "", size: int = 0) -> Path:
    folder = path.with_name(f"{path.name}-bin")
    folder.mkdir()
    (folder / "0.bin").write_bytes(array("f", times).tobytes())
    name = filename or f"{folder.name}/0.bin"
    values = [
        {"name": "filename", "type": "string", "value": name},
        {"name": "size", "type": "int64", "value": str(size or len(times))},
    ]
    state = {
        "name": "Device=0 BlockSize=2^8",
        "device": 0,
        "axis_values": [{"name": "BlockSize", "type": "int64", "value": "256"}],
        "summaries": [{"tag": "nv/json/bin:nv/cold/sample_times", "data": values}],
        "is_skipped": False,
    }
    skipped = {"name": "Device=0 BlockSize=2^9", "device": 0, "summaries": None, "is_skipped": True}
    content = {
        "meta": {"version": {"json": {"major": 1, "minor": 0, "patch": 0}}},
        "devices": [{"id": 0, "name": "NVIDIA H100"}],
        "benchmarks": [{"name": "copy", "index": 0, "states": [state, skipped]}],
    }
    path.write_text(json.dumps(content))
    return path


WRITERS = [write_pytest, write_google, write_nvbench]


@pytest.mark.parametrize("write", WRITERS)
def test_a_change_is_seen_and_noise_is_not(write: Any, tmp_path: Path) -> None:
    base = write(tmp_path / "base.json", draw_times(1e-3, 1))
    slow = write(tmp_path / "slow.json", draw_times(1.3e-3, 2))
    fast = write(tmp_path / "fast.json", draw_times(0.7e-3, 3))
    like = write(tmp_path / "like.json", draw_times(1e-3, 4))
    found = [judge_benchmarks(base, head) for head in (slow, fast, like)]
    answers = [report.subjects[0].answer for report in found]
    assert answers[:2] == ["slower", "faster"]
    assert answers[2] in ("same", "cannot tell")
    assert [report.status for report in found] == [1, 0, 0]
    assert found[0].subjects[0].time
    assert found[0].subjects[0].time.before.median == pytest.approx(1e-3, rel=0.01)
    assert len(found[0].subjects) == 1  # no aggregates, nothing that was skipped


def test_an_older_nvbench_names_its_file_from_where_it_ran(tmp_path: Path) -> None:
    times = draw_times(1e-3, 1, 20)
    path = write_nvbench(tmp_path / "r.json", times, "out/r.json-bin/0.bin")
    (run,) = read_benchmarks(path).runs.values()
    assert run.samples == pytest.approx(times)


@pytest.mark.parametrize("name", ["/etc/hostname", "../../etc/hostname", "r.json-bin/1.bin"])
def test_samples_lie_beside_the_result_or_are_refused(name: str, tmp_path: Path) -> None:
    path = write_nvbench(tmp_path / "r.json", [1e-3], name)
    with pytest.raises(ProfkitError, match="no such file of samples next to it"):
        read_benchmarks(path)


def test_a_cut_file_of_samples_is_refused(tmp_path: Path) -> None:
    path = write_nvbench(tmp_path / "r.json", [1e-3, 1e-3], size=3)
    with pytest.raises(ProfkitError, match="2 samples, not 3"):
        read_benchmarks(path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "not a benchmark's result"),
        ("[]", "not a benchmark's result"),
        ('{"context": {}, "benchmarks": [{"name": 3}]}', r"benchmarks\[0\].name"),
        ('{"devices": 3, "benchmarks": []}', "devices"),
    ],
)
def test_what_is_no_result_is_named(content: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(ProfkitError, match=says) as wrong:
        judge_benchmarks(path, path)
    assert "x.json" in wrong.value.message
    assert wrong.value.hint


def test_two_tools_machines_and_no_samples_are_no_comparison(tmp_path: Path) -> None:
    times = draw_times(1e-3, 1)
    base = write_pytest(tmp_path / "base.json", times)
    with pytest.raises(ProfkitError, match=r"of pytest-benchmark, .* of Google Benchmark"):
        judge_benchmarks(base, write_google(tmp_path / "google.json", times))
    other = write_pytest(tmp_path / "other.json", draw_times(2e-3, 2), cpu="Xeon")
    (subject,) = judge_benchmarks(base, other).subjects
    assert (subject.answer, subject.cause) == ("cannot tell", "machine")
    content = json.loads(base.read_text())
    del content["benchmarks"][0]["stats"]["data"]
    (tmp_path / "bare.json").write_text(json.dumps(content))
    report = judge_benchmarks(base, tmp_path / "bare.json")
    assert report.subjects[0].answer == "no time"
    assert "--benchmark-json" in report.subjects[0].because
    assert report.status == 2


def test_a_run_that_failed_in_head_is_no_smaller_sample(tmp_path: Path) -> None:
    """It would be judged by the runs that did not fail, and pass."""
    base = write_google(tmp_path / "base.json", draw_times(1e-3, 1, 20))
    head = write_google(tmp_path / "head.json", draw_times(1e-3, 2, 20))
    content = json.loads(head.read_text())
    content["benchmarks"][3] |= {"error_occurred": True, "error_message": "wrong sum"}
    head.write_text(json.dumps(content))
    (subject,) = judge_benchmarks(base, head).subjects
    assert (subject.answer, subject.because) == ("no time", "1 of its runs failed in HEAD")


def test_a_unit_that_is_not_known_is_refused(tmp_path: Path) -> None:
    file = write_google(tmp_path / "base.json", draw_times(1e-3, 1, 3))
    file.write_text(file.read_text().replace('"us"', '"cycles"'))
    with pytest.raises(ProfkitError, match="no such time_unit: cycles"):
        read_benchmarks(file)


def test_a_machine_that_one_result_does_not_name(tmp_path: Path) -> None:
    base = write_google(tmp_path / "base.json", draw_times(1e-3, 1, 20))
    head = write_google(tmp_path / "head.json", draw_times(1e-3, 2, 20))
    head.write_text(head.read_text().replace('"num_cpus": 8, ', ""))
    (subject,) = judge_benchmarks(base, head).subjects
    assert subject.answer == "cannot tell"
    assert subject.because == "measured on 8 processors, then on an unknown machine"
