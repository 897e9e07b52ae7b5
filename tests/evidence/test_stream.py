"""Reports by the thousand: each a row, whatever becomes of file or worker; a few in memory."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

import profkit as pk
from profkit.errors import ProfkitError
from profkit.evidence import stream
from profkit.evidence.history import History
from profkit.evidence.stream import add_new_reports_to_history
from profkit.reports import cluster
from profkit.reports.cluster import (
    connect_to_dask_scheduler,
    iterate_results_by_path,
    require_executor,
)
from tests.conftest import ROOT

pytest.importorskip("pyarrow")
REPORT = ROOT / "artifacts" / "scalar.B.ncu-rep"


@pytest.fixture
def reports(tmp_path: Path) -> list[str]:
    """Twelve copies of a report, one of them half, one no report and one of no bytes."""
    names = []
    for number in range(12):
        path = tmp_path / "runs" / f"{number:02}.ncu-rep"
        path.parent.mkdir(exist_ok=True)
        shutil.copy(REPORT, path)
        names.append(str(path))
    Path(names[3]).write_bytes(REPORT.read_bytes()[:-9000])
    Path(names[7]).write_bytes(b"no report")
    Path(names[9]).write_bytes(b"")
    return names


def states(kept: History) -> dict[str, str]:
    rows = kept.read_table("reports")[0].to_pylist()
    return {Path(row["path"]).stem: row["status"] for row in rows}


EXPECTED = {f"{n:02}": "ok" for n in range(12)} | {
    "03": "damaged",
    "07": "unreadable",
    "09": "empty",
}


@pytest.mark.slow
def test_every_file_is_a_row_and_none_is_read_twice(tmp_path: Path, reports: list[str]) -> None:
    kept = History(tmp_path / "h")
    done = add_new_reports_to_history(reports, kept)
    assert (done.reports, done.known, len(done.not_ok)) == (12, 0, 3)
    assert done.launches >= 9
    assert states(kept) == EXPECTED
    assert {r["bound"] for r in kept.read_table("launches")[0].to_pylist()} == {"launch"}
    again = add_new_reports_to_history(reports, kept)
    assert (again.reports, again.known) == (0, 12)
    shutil.copy(REPORT, reports[7])
    assert add_new_reports_to_history(reports, kept).reports == 1


@pytest.mark.slow
@pytest.mark.parametrize("pool", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_on_an_executor(tmp_path: Path, reports: list[str], pool) -> None:
    kept = History(tmp_path / "h")
    with pool(2) as client:
        done = add_new_reports_to_history(reports, kept, client)
        frame = pk.load(reports, client=client)
    assert (done.reports, len(done.not_ok)) == (12, 3)
    assert states(kept) == EXPECTED
    assert list(frame["report"]) == list(pk.load(reports)["report"])


READ = cluster.run_chunk_in_child


def kill_once(function: str, chunk: list[str], died: str):
    """A worker that is killed at its first task, as on a node that goes away."""
    mark = Path(chunk[0]).parent / "killed"
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return READ(function, chunk, died)


@pytest.mark.slow
def test_a_killed_worker_loses_nothing(
    tmp_path: Path, reports: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool of concurrent.futures is broken then: what it does not take is read here."""
    monkeypatch.setattr(cluster, "run_chunk_in_child", kill_once)
    kept = History(tmp_path / "h")
    with ProcessPoolExecutor(1) as client:
        done = add_new_reports_to_history(reports, kept, client)
    assert (tmp_path / "runs" / "killed").exists()
    assert (done.reports, states(kept)) == (12, EXPECTED)


@pytest.mark.slow
def test_what_was_written_stays_when_the_reader_is_killed(
    tmp_path: Path, reports: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "BATCH", 4)

    def stop(done: int) -> None:
        if done == 6:
            raise KeyboardInterrupt

    kept = History(tmp_path / "h")
    with pytest.raises(KeyboardInterrupt):
        add_new_reports_to_history(reports, kept, progress=stop)
    assert len(states(kept)) == 6
    assert add_new_reports_to_history(reports, kept).known == 6
    assert states(kept) == EXPECTED


@pytest.mark.slow
def test_a_report_that_kills_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As tests/reports/crashing.py's reports do: what is left of it, and the others are whole."""
    paths = []
    for name in ("a", "b"):
        paths.append(str(shutil.copy(REPORT, tmp_path / f"{name}.ncu-rep")))
    report, launches = stream.make_history_rows_after_reader_crash(paths[0], "it crashed")
    assert (report.status, report.message) == ("damaged", "it crashed")
    assert launches, "the metrics alone could be read"
    assert (
        stream.make_history_rows_after_reader_crash(str(tmp_path / "gone"), "it crashed")[
            0
        ].launches
        == 0
    )


def test_results_do_not_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = 0

    def paths():
        nonlocal given
        for number in range(4000):
            given += 1
            yield str(number)

    class Now:
        """An executor that does a task when it is given."""

        def submit(self, call, *words):
            from concurrent.futures import Future

            future: Future = Future()
            future.set_result([(path, 0) for path in words[1]])
            return future

    taken = iterate_results_by_path("builtins:len", paths(), "builtins:len", Now())
    for _ in range(100):
        next(taken)
    assert given <= 100 + 64 * (max(8, 2 * (os.cpu_count() or 1)) + 1)


def test_clients_that_are_none() -> None:
    with pytest.raises(ProfkitError, match="a str takes no tasks"):
        require_executor("tcp://host")
    pytest.importorskip("distributed")
    with pytest.raises(ProfkitError, match="--on tcp"):
        connect_to_dask_scheduler("tcp://127.0.0.1:1")


@pytest.mark.slow
@pytest.mark.slow
def test_on_a_dask_cluster(tmp_path: Path, reports: list[str]) -> None:
    distributed = pytest.importorskip("distributed")
    kept = History(tmp_path / "h")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options) as local, distributed.Client(local) as client:
        assert add_new_reports_to_history(reports, kept, client).reports == 12
        assert len(pk.load(reports, client=client)) >= 9
    assert states(kept) == EXPECTED


@pytest.mark.slow
def test_the_verb_streams(tmp_path: Path, reports: list[str]) -> None:
    words = ("diagnose", tmp_path / "runs", "--history", tmp_path / "h", "--json")
    done = subprocess.run(
        [sys.executable, "-m", "profkit", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, "three could not be read whole"
    answer = json.loads(done.stdout)
    assert (answer["reports"], len(answer["not_ok"])) == (12, 3)
    assert "07.ncu-rep: unreadable" in done.stderr
    assert "12 reports and" in done.stderr
