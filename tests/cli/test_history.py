"""profkit history as a user types them."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from profkit.errors import ProfkitError
from profkit.records.parts import Commit
from tests.conftest import ROOT
from tests.evidence.test_gate import changed, folder, made
from tests.sweeps import choose_count

pytest.importorskip("pyarrow")


@pytest.fixture
def kept(run, tmp_path: Path) -> Path:
    """A history of v1, which became twice as fast."""
    before = made("v1", 1e-5, 1, "a", made="2026-11-01T00:00:00+00:00")
    after = changed(before, 0.5e-5, 2, "b", made="2026-11-02T00:00:00+00:00")
    for number, record in enumerate((before, after)):
        artifacts = folder(tmp_path / str(number), record)
        added = run(
            "history",
            "--add",
            "--artifacts",
            artifacts,
            "--history",
            tmp_path / "h",
            "--commit",
            f"commit{number}",
        )
        assert added.exit_code == 0
        assert "1 runs and 0 launches added" in added.stderr
    return tmp_path / "h"


def test_what_changed_when(run, kept: Path) -> None:
    shown = run("history", "v1", "--history", kept)
    assert shown.exit_code == 0
    first, second = [x for x in shown.stdout.splitlines() if "NVIDIA H200" in x]
    assert "commit0" in first
    assert "2x" in second
    assert "faster" in second
    document = json.loads(run("history", "v1.B", "--history", kept, "--json").stdout)
    assert [s["answer"] for s in document["steps"]] == ["first", "faster"]
    assert run("history", "v9", "--history", kept).exit_code == 2


def test_questions(run, kept: Path) -> None:
    pytest.importorskip("duckdb")
    sql = "SELECT variant, count(*) AS n FROM runs GROUP BY variant"
    assert json.loads(run("query", sql, "--history", kept, "--json").stdout)["rows"] == [
        {"variant": "v1", "n": 2}
    ]
    assert "v1" in run("query", sql, "--history", kept).stdout
    wrong = run("query", "SELECT x", "--history", kept)
    assert wrong.exit_code == 2
    assert "the question:" in wrong.stderr


@pytest.mark.parametrize("sql", ["", "   ", ";", " ; ;", " -- nothing", "/* nothing */ ;", "\n"])
def test_no_question_is_said(run, kept: Path, sql: str) -> None:
    pytest.importorskip("duckdb")
    asked = run("query", sql, "--history", kept)
    assert asked.exit_code == 2
    assert asked.stderr.startswith("profkit: the query is empty\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    "sql",
    [
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t",
        "SELECT count(*) FROM range(1000000) a, range(1000000000) b WHERE a.range < b.range",
        "SELECT * FROM range(1000000000000)",
        "SELECT len(list(x)) FROM range(3000000000) t(x)",
        "SELECT list(range(3000000000))",
        "SELECT x, repeat('x', 100000) FROM range(1000000) t(x)",
    ],
)
def test_a_question_without_end_ends(run, kept: Path, sql: str, monkeypatch) -> None:
    """By the time or by the memory, whichever it meets first; both are said."""
    pytest.importorskip("duckdb")
    from profkit.evidence import history

    monkeypatch.setattr(history, "SECONDS_MOST", choose_count(10, 3) / 10)
    monkeypatch.setattr(history, "MEMORY_MOST", 100_000_000)
    began = time.monotonic()
    asked = run("query", sql, "--history", kept)
    assert time.monotonic() - began < 300
    assert asked.exit_code == 2, asked.output
    first, hint = asked.stderr.splitlines()
    ends = "stopped after [01] s|needs more than 0.1 GB|is larger than 0.1 GB|the answer is cut"
    assert re.search(ends, first), first
    assert "ask for less" in hint


@pytest.mark.parametrize(("seconds", "status"), [(60.0, 0), (-1.0, 2)])
def test_a_question_has_seconds_of_processors_and_not_of_a_clock(
    run, kept: Path, monkeypatch, seconds: float, status: int
) -> None:
    """By the clock a busy machine ended questions that had hardly begun."""
    pytest.importorskip("duckdb")
    from profkit.evidence import history

    clock = itertools.count(0, 1000)
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(history, "SECONDS_MOST", seconds)
    monkeypatch.setattr(history, "_LOOKS_APART", 0.001)
    question = "SELECT count(*) AS n FROM range(100000000) WHERE range % 7 < 3"
    asked = run("query", question, "--history", kept)
    assert asked.exit_code == status, asked.output
    assert status == 0 or "stopped after -1 s of processor time" in asked.stderr


@pytest.mark.parametrize("is_at_work", [True, False])
def test_a_fork_that_stands_still_is_ended_and_one_at_work_is_not(
    monkeypatch, is_at_work: bool
) -> None:
    """DuckDB's threads waited for each other, for ever, where memory was limited."""
    from profkit.cli.verbs import query

    monkeypatch.setattr(query, "_PAUSE", 0.05)
    monkeypatch.setattr(query, "_STILL_MOST", 40)
    parent = os.getpid()
    with (
        contextlib.nullcontext()
        if is_at_work
        else pytest.raises(ProfkitError, match="does not come to an end")
    ):
        status = query._start_fork_and_wait()
        if os.getpid() == parent:
            assert status == 7
            return
        until = time.process_time() + 2.5
        while time.process_time() < until or not is_at_work:
            time.sleep(0 if is_at_work else 1)
        os._exit(7)


def test_the_clock_counts_where_the_system_does_not_say_what_a_process_takes(monkeypatch) -> None:
    """Not known is no standing still: a question at work was to be ended after a minute of looks."""
    from profkit.cli.verbs import query
    from profkit.files import measure_processor_time

    assert measure_processor_time(2**22 + 1) is None  # above the largest number of a process
    monkeypatch.setattr(query, "SECONDS_MOST", 0.05)
    monkeypatch.setattr(query, "_STILL_MOST", 3)
    looks = 0
    for _ in query._watch_processor_time(2**22 + 1):
        time.sleep(0.005)
        looks += 1
    assert looks > 4


@pytest.mark.parametrize(("form", "shown"), [("--markdown", 10_000), ("--json", 100_000)])
def test_an_answer_that_nobody_reads_is_cut_and_says_so(
    run, kept: Path, monkeypatch, form: str, shown: int
) -> None:
    """Two million rows took two minutes to print."""
    pytest.importorskip("duckdb")
    from profkit.cli.verbs import query
    from profkit.evidence import history

    monkeypatch.setattr(query, "ROWS_SHOWN", shown // 100)
    monkeypatch.setattr(history, "ROWS_MOST", shown // 100)
    asked = run("query", "SELECT * FROM range(2000000)", "--history", kept, form)
    assert asked.exit_code == 2
    assert asked.stderr.startswith(f"profkit: the answer is cut: its first {shown // 100:,} rows\n")
    if form == "--json":
        assert len(json.loads(asked.stdout)["rows"]) == shown // 100
    else:
        assert asked.stdout.count("\n") == shown // 100 + 2


@pytest.mark.slow
@pytest.mark.parametrize(("memory", "status"), [("100M", 2), ("200M", 2), ("400M", 0)])
def test_a_question_ends_in_words_however_little_memory_there_is(
    kept: Path, memory: str, status: int
) -> None:
    """400 MB: DuckDB's threads waited for each other, for ever; 200: a crash."""
    pytest.importorskip("duckdb")
    question = ["query", "SELECT count(*) AS n FROM runs", "--history", str(kept)]
    command = [sys.executable, "-m", "profkit", "--max-memory", memory, *question]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    assert done.stdout.split() == ["n", "2"] * (status == 0)
    assert status == 0 or re.search("memory|threads may be started", done.stderr)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [(), ("SELECT 1",), ("--json",), ("SELECT 1", "--json")])
@pytest.mark.parametrize("package", ["duckdb", "pyarrow"])
def test_what_is_not_installed_is_named(run, kept: Path, monkeypatch, package, words) -> None:
    for module in [m for m in sys.modules if m.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    asked = run("query", *words, "--history", kept)
    if package == "duckdb" and "SELECT 1" not in words:
        assert asked.exit_code == 0, "the tables are known without it"
        return
    assert asked.exit_code == 2, asked.exception
    assert re.search(rf"needs {package} \(profkit\[\w+\]\), which is not installed", asked.stderr)
    assert "pip install 'profkit[" in asked.stderr


def test_a_picture_and_a_part_of_a_page(run, kept: Path, tmp_path: Path) -> None:
    drawn = run("history", "v1", "--history", kept, "-o", tmp_path / "h.png")
    assert drawn.exit_code == 0
    assert (tmp_path / "h.png").read_bytes().startswith(b"\x89PNG")
    report = ROOT / "artifacts" / "stage2.B.ncu-rep"
    page = tmp_path / "page.html"
    assert run("report", report, kept, "-o", page).exit_code == 0
    text = page.read_text()
    assert 'id="history-1"' in text
    assert "<h3>v1.B</h3>" in text
    assert run("report", kept, "-o", tmp_path / "alone.html").exit_code == 0


def test_a_dirty_tree_and_an_odd_time_are_said(run, tmp_path: Path) -> None:
    for number, median in enumerate((1e-5, 1.5e-5)):
        record = made(
            "v1",
            median,
            number,
            f"s{number}",
            made=f"2026-11-0{number + 1}T00:00:00+00:00",
            git=Commit(commit="abc", dirty=number == 1),
        )
        kept = tmp_path / str(number)
        run("history", "--add", "--artifacts", folder(kept, record), "--history", tmp_path / "h")
    shown = run("history", "v1", "--history", tmp_path / "h").stdout
    assert "abc *" in shown
    assert "files differed from the commit" in shown
    assert "identical machine" in " ".join(shown.split())


def test_the_schema_is_told(run) -> None:
    document = json.loads(run("query", "--json").stdout)
    assert document["schema"] == "profkit.history/1"
    tables = {row["table"] for row in document["columns"]}
    assert tables == {"runs", "launches", "reports", "twins", "ablations"}
    keys = [(r["table"], r["column"]) for r in document["columns"] if r["key"]]
    assert ("runs", "record") in keys
    assert "samples" in run("query").stdout
