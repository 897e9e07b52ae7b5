"""What the library takes of a process: a few reports, and no more in one that lives for long."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path

import ncu_report  # noqa: F401 - else a process that has forked lets forks read all reports
import pytest

from profkit.diagnosis.launches import add_source_lines_and_explain_missing, judge_reports
from profkit.errors import OUT_OF_MEMORY, ProfkitError
from profkit.reports import cluster, cubin, hotlines, isolated, reader
from profkit.reports.isolated import InProcessReadBudget
from tests.conftest import ROOT, report_of
from tests.reports import made

NAMES = [*made.METRICS]


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def written(name: str) -> Path:
        path = tmp_path / name
        path.write_bytes(made.report((made.result(NAMES),), NAMES))
        return path

    return written


def test_a_process_reads_a_few_reports_itself_and_forks_read_the_others(
    write: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many calls with a report each are as many reports as one call with all of them."""
    monkeypatch.setattr(reader, "ROOM", InProcessReadBudget(files_left=2))
    in_forks: list[str] = []

    def each_report(_function: str, names: list[str], *_: object) -> list[tuple[str, object]]:
        in_forks.extend(names)
        return [(name, reader.read_report_unless_large(name)) for name in names]

    monkeypatch.setattr(cluster, "iterate_results_by_path", each_report)
    paths = [str(write(f"{n}.ncu-rep")) for n in range(4)]
    for path in paths:
        assert len(reader.read_report_files([path]).launches) == 1
    assert in_forks == paths[2:]
    missing = reader.read_report_files(["/no/such/report.ncu-rep"])
    assert missing.files[0].status == "unreadable"
    assert in_forks == paths[2:], "there is nothing to read"


def test_bytes_count_too() -> None:
    size = 1 << 20
    room = InProcessReadBudget(bytes_left=2 * size)
    assert [room.reserve_read_here(size) for _ in range(3)] == [True, True, False]
    room = InProcessReadBudget()
    room.forbid_reading_here()
    assert not room.reserve_read_here(1)
    assert room.reserve_read_here(0), "nothing to read"


COUNTED = """
import atexit, sys
from profkit.reports import hotlines

real, apart = hotlines.run_in_child_processes, []
hotlines.run_in_child_processes = lambda *asked: apart.append(asked) or real(*asked)
atexit.register(lambda: print(len(apart), file=sys.stderr))
report = sys.argv.pop()
"""
DIAGNOSE = "sys.argv = ['profkit', 'diagnose', report]; from profkit.cli import main; main()"
FRAME = "import profkit; print(profkit.lines(report))"


@pytest.mark.parametrize(("code", "apart"), [(DIAGNOSE, 0), (FRAME, 1)])
def test_only_a_verb_writes_text_in_its_own_process(code: str, apart: int) -> None:
    """Another process may fork afterwards, and the fork would wait for the library's thread."""
    command = [sys.executable, "-c", COUNTED + code, str(report_of("stage2", "B"))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "ptx.cuh" in done.stdout
    assert done.stderr.split()[-1] == str(apart)


@pytest.mark.parametrize("room", [0, 1])
def test_raw_values_and_lines_are_read_in_forks_without_room(
    monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    called: list[str] = []
    for module in (reader, hotlines):
        monkeypatch.setattr(module, "ROOM", InProcessReadBudget(files_left=room))
        real = module.run_in_child_processes

        def isolated(function: str, *rest: object, real: Callable = real) -> object:
            called.append(function.partition(":")[2])
            return real(function, *rest)

        monkeypatch.setattr(module, "run_in_child_processes", isolated)
    report = report_of("stage2", "B")
    assert len(reader.read_raw_frame(report)) == 1
    hotlines.answer_line_requests(
        [hotlines.LinesRequest(str(report), 0, {"rule": ("excess-sectors",)})]
    )
    assert called == ["read_raw_rows", "answer_requests_of_report"] * (not room)


# In one process, as each verb is one: what of these asks for many reports lets forks read them all.
OF_MANY = """
import sys
from typer.testing import CliRunner
from profkit.cli.app import app
from profkit.reports.isolated import ROOM
for words in (
    ["ladder", "--case", "2k-8to1", "--brief"],
    ["claims", "analyses/target_5us.py"],
    ["history", "--add", "--artifacts", "artifacts/gqa", "--history", sys.argv[1]],
):
    ROOM.__init__()
    done = CliRunner().invoke(app, words)
    assert done.stdout and not isinstance(done.exception, Exception), (words, done.exception)
    assert ROOM.files_left == 0 and "ncu_report" not in sys.modules, words
"""


def test_verbs_of_many_reports_let_forks_read_them(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", OF_MANY, tmp_path / "kept"], cwd=ROOT, check=True)


@pytest.mark.parametrize("strict", [True, False])
def test_code_over_its_budget_is_refused_where_lines_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, strict: bool
) -> None:
    """Without a number of lines the report is diagnosed without them, as one with damaged code is."""
    monkeypatch.setattr(cubin, "_SPARE", -(1 << 30))
    report = str(report_of("stage2", "B"))
    requests = [hotlines.LinesRequest(report, 0, {"rule": ("excess-sectors",)})]
    if strict:
        with pytest.raises(ProfkitError, match="asks for more memory than its bytes can need"):
            hotlines.answer_line_requests(requests)
    else:
        (answer,) = hotlines.answer_line_requests(requests, is_unread_code_an_error=False)
        assert all(line.file is None for line in answer.counters["rule"])


@pytest.mark.parametrize("lines_follow", [True, False])
def test_launches_are_read_where_their_lines_will_be(
    write: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, lines_follow: bool
) -> None:
    """The library takes 120 MB of each process that opens it first: here and in a fork it is twice."""
    here: list[str] = []
    monkeypatch.setattr(reader, "ROOM", InProcessReadBudget())
    real = reader.read_report_unless_large

    @wraps(real)
    def read_report_unless_large(path: str) -> object:
        here.append(path)
        return real(path)

    monkeypatch.setattr(reader, "read_report_unless_large", read_report_unless_large)
    path = str(write("x.ncu-rep"))
    assert len(reader.read_report_files([path], lines_follow=lines_follow).launches) == 1
    assert here == [path] * (not lines_follow), "no record vouches for it: its lines are for a fork"
    recorded = str(report_of("stage2", "B"))
    assert len(reader.read_report_files([recorded], lines_follow=lines_follow).launches) == 1
    assert here[-1] == recorded


def test_the_library_is_not_opened_beside_forks_that_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "_SERVERS", {(os.getpid(),): None})
    monkeypatch.delitem(sys.modules, "ncu_report", raising=False)
    assert not InProcessReadBudget().reserve_read_here(1)
    monkeypatch.setitem(sys.modules, "ncu_report", object())
    assert InProcessReadBudget().reserve_read_here(1)


def test_the_library_of_units_is_not_looked_for(tmp_path: Path) -> None:
    """Where CUDA is installed it takes 115 MB of each process that reads, for what nobody asks."""
    read = (
        "import sys, profkit.reports.reader as r; r.prepare_child(); "
        "r.read_report_unless_large(sys.argv[1])"
    )
    subprocess.run(
        [sys.executable, "-c", read, report_of("stage2", "B")],
        env={**os.environ, "LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": str(tmp_path / "loaded")},
        check=True,
    )
    loaded = "".join(file.read_text("utf-8", "replace") for file in tmp_path.iterdir())
    assert "find library=" in loaded, "the loader says what it looks for"
    assert "nvperf" not in loaded


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("where", ["at the start", "in a fork"])
def test_without_memory_only_source_lines_are_lost(
    monkeypatch: pytest.MonkeyPatch, where: str, strict: bool
) -> None:
    """It ended the command, also where launches had been read."""

    def run_out(_function: str, items: list, _jobs: int, died: Callable, *_: object) -> list:
        if where == "in a fork":
            return [died(item, OUT_OF_MEMORY) for item in items]
        raise ProfkitError(OUT_OF_MEMORY, "allow more")

    monkeypatch.setattr(hotlines, "run_in_child_processes", run_out)
    monkeypatch.setattr(hotlines, "ROOM", InProcessReadBudget(files_left=0))
    report = str(report_of("stage2", "B"))
    requests = [hotlines.LinesRequest(report, 0, {"rule": ("excess-sectors",)}, sampled=2)]
    for _ in range(2):
        (answer,) = hotlines.answer_line_requests(requests, is_unread_code_an_error=strict)
        assert (answer.counters, answer.sampled, answer.unread) == ({}, (), OUT_OF_MEMORY)
        monkeypatch.setattr(hotlines, "LARGE", 1)  # the next time in parts
    monkeypatch.setattr(hotlines, "run_in_child_processes", None)
    judged = judge_reports(reader.read_report_files([report]))
    monkeypatch.setattr(hotlines, "run_in_child_processes", run_out)
    lined, notes = add_source_lines_and_explain_missing(judged)
    assert notes == [f"{report}: without source lines: out of memory"]
    assert [run.diagnosis.bound for run in lined] == [run.diagnosis.bound for run in judged]
