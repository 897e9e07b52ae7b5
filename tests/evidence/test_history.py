"""The history: nothing lost, nothing twice, whatever wrote it; and what changed when."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from math import log, sqrt
from pathlib import Path

import numpy as np
import pytest

import profkit as pk
from profkit.cli.lab import read_code_hashes
from profkit.diagnosis.rules import BY_ID
from profkit.diagnosis.verdict import judge_launch
from profkit.errors import ProfkitError
from profkit.evidence.commits import (
    find_ci_commit,
    list_committed_records,
    resolve_commit_where_git_is,
)
from profkit.evidence.history import History, add_artifacts_to_history, query_history
from profkit.evidence.noise import (
    KnownSpreads,
    compare_consecutive_runs,
    estimate_spread_by_gpu,
    measure_aa_noise_by_gpu,
    widen_spread_for_few_runs,
)
from profkit.evidence.runs import Evidence
from profkit.evidence.samples import Spread
from profkit.evidence.tables import (
    HistoryLaunch,
    HistoryRun,
    HistoryTwin,
    iterate_launch_rows,
    list_schema_rows,
    make_arrow_schema_of_table,
    make_run_row,
    rank_commit_doubt,
)
from profkit.records.parts import Commit, RecordedGpu, TimedSide, TimedSides
from profkit.records.record import write_record
from profkit.records.store import make_json_safe
from tests.conftest import ROOT
from tests.copies import replace
from tests.evidence.made import row as frame_row
from tests.evidence.test_gate import changed, folder, made, timed
from tests.sweeps import take_part

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def row(median: float, seed: int, day: int, **facts) -> HistoryRun:
    """One run of v1 at B, measured on that day in a session of its own."""
    record = made("v1", median, seed, f"session {day}", made=f"2026-11-{day:02}T00:00:00+00:00")
    return replace(make_run_row(record, f"record {day}", f"commit {day}", "log"), **facts)


def test_adding_twice_adds_nothing(tmp_path: Path) -> None:
    artifacts = folder(tmp_path / "artifacts", made("v1"), made("v2"), made("sdpa", source=None))
    history = History(tmp_path / "history")
    first = add_artifacts_to_history(history, Evidence(artifacts), "abc", "option")
    assert (first.runs, first.launches, first.problems) == (3, 0, ())
    assert add_artifacts_to_history(history, Evidence(artifacts)).runs == 0
    rows, problems = history.list_runs()
    assert problems == []
    assert {r.subject for r in rows} == {"v1.B", "v2.B", "sdpa.B"}
    assert {(r.commit, r.commit_from) for r in rows} == {("abc", "option")}
    assert rows[0].low < rows[0].median < rows[0].high
    assert len(rows[0].samples) == 120


def test_the_commit_of_the_record_comes_first(tmp_path: Path) -> None:
    own = replace(made("v1"), git=Commit(commit="own", dirty=True))
    found = make_run_row(own, "sha", "said", "environment")
    assert (found.commit, found.commit_from, found.dirty) == ("own", "record", True)
    assert make_run_row(made("v1"), "sha", None, "environment").commit_from is None
    assert find_ci_commit({"GITHUB_SHA": "x", "PROFKIT_COMMIT": "y"}) == "y"
    assert find_ci_commit({}) is None


def test_two_writers_do_not_meet(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.append_rows([row(1e-5, 1, 1)])
    history.append_rows([row(1e-5, 2, 2)])
    history.append_rows([row(1e-5, 1, 1)])
    assert len(list((tmp_path / "runs").iterdir())) == 2
    assert [r.record for r in history.list_runs()[0]] == ["record 1", "record 2"]


def test_a_history_in_an_object_store(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    kept = History("memory://bucket/history")
    kept.append_rows([row(1e-5, 1, 1)])
    kept.append_rows([row(1e-5, 2, 2)])
    kept.append_rows([row(1e-5, 1, 1), twin("s", 1e-5, 1e-5)])
    store = fsspec.filesystem("memory")
    store.pipe_file("/bucket/history/runs/half.parquet", b"PAR1")
    rows, (problem,) = History("memory://bucket/history").list_runs()
    assert [r.record for r in rows] == ["record 1", "record 2"]
    assert "half.parquet: not readable" in problem.message
    assert not [f for f in store.find("/bucket") if not f.endswith(".parquet")]
    assert len(kept.list_aa_runs()[0]) == 1
    assert pk.history("memory://bucket/history", "twins").variant.tolist() == ["v1"]
    pytest.importorskip("duckdb")
    assert query_history(kept, "SELECT count(DISTINCT record) AS n FROM runs")[0].n[0] == 2
    history = History(f"file://{tmp_path}/h")
    history.append_rows([row(1e-5, 1, 1)])
    assert len(History(tmp_path / "h").list_runs()[0]) == 1, "the same folder by another name"


@pytest.mark.parametrize(("url", "why"), [("nowhere://x", "nowhere"), ("file:///proc/x", "proc")])
def test_a_place_that_cannot_be_is_said(url: str, why: str) -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(ProfkitError, match=why) as raised:
        History(url).append_rows([row(1e-5, 1, 1)])
    assert raised.value.hint


def test_half_a_file_is_named_and_nothing_else_is_lost(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.append_rows([row(1e-5, 1, 1)])
    (whole,) = (tmp_path / "runs").glob("*.parquet")
    (tmp_path / "runs" / "half.parquet").write_bytes(whole.read_bytes()[:500])
    rows, (problem,) = history.list_runs()
    assert len(rows) == 1
    assert "half.parquet: not readable" in problem.message


def test_a_page_that_asks_for_more_than_its_bytes_can_need_is_named(tmp_path: Path) -> None:
    """2 kB of Parquet may say that they have as many rows as they like, all equal."""
    history = History(tmp_path)
    history.append_rows([row(1e-5, 1, 1)])
    (whole,) = (tmp_path / "runs").glob("*.parquet")
    table = pq.read_table(whole)
    pq.write_table(table.take(pa.array([0] * 20_000)), tmp_path / "runs/0.parquet")
    rows, (problem,) = history.list_runs()
    assert len(rows) == 1
    assert "0.parquet: not readable (it asks for more memory than its bytes can need)" in str(
        problem
    )


def test_files_of_another_version_are_read(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    older = pa.table({"record": ["r0"], "variant": ["v1"], "case": ["B"], "median": [1.0]})
    newer = older.append_column("of tomorrow", pa.array([3])).set_column(0, "record", [["r9"]])
    pq.write_table(older, tmp_path / "runs" / "older.parquet")
    pq.write_table(newer, tmp_path / "runs" / "newer.parquet")
    rows, problems = History(tmp_path).list_runs()
    assert problems == []
    assert {(r.record, r.median, r.gpu, r.samples) for r in rows} == {
        ("r0", 1.0, None, ()),
        ("r9", 1.0, None, ()),
    }


def test_what_changed_when() -> None:
    runs = [
        row(1e-5, 1, 1),
        row(1e-5, 2, 2),  # the same machine code
        row(0.5e-5, 3, 3, sass="new"),
        row(0.5e-5, 4, 4, sass="newer"),
        row(0.5e-5, 5, 5, sass="newest", gpu_uuid="GPU-2"),
        row(0.5e-5, 6, 6, sass="last", gpu_uuid="GPU-2", samples=()),
    ]
    found = compare_consecutive_runs(runs)
    assert [s.answer for s in found] == [
        "first",
        "same code",
        "faster",
        "cannot tell",
        "other machine",
        "no time",
    ]
    assert found[2].run.commit == "commit 3"
    assert found[3].smallest_change > 0.02, "another process: 1 % assumed"
    assert json.loads(json.dumps(found[2].to_json(), allow_nan=False))["answer"] == "faster"


def test_what_is_odd_is_kept_and_said() -> None:
    """One commit measured twice with two answers, a new name, clocks and dates that jump."""
    twice = [row(1e-5, 1, 1), row(1.5e-5, 2, 2, commit="commit 1")]
    first, again = compare_consecutive_runs(twice)
    assert (first.note, again.answer) == (None, "same code")
    assert "identical machine code, but 1.50x slower" in again.note
    renamed = compare_consecutive_runs([*twice, row(1.5e-5, 3, 3, variant="newname")])
    assert [s.note for s in renamed if s.run.variant == "newname"] == ["the machine code of v1.B"]
    elsewhere = [
        row(1e-5, 1, 1),
        row(2e-5, 2, 2, gpu_uuid="GPU-2", sass="x"),
        row(0.5e-5, 3, 3, sass="y"),
    ]
    assert [s.answer for s in compare_consecutive_runs(elsewhere)] == [
        "first",
        "other machine",
        "faster",
    ]
    before, after = row(1e-5, 1, 1, sass="a"), row(1e-5, 2, 2, sass="b")
    halves = tuple(x * (1.2 if i < 60 else 1.0) for i, x in enumerate(after.samples))
    jumped = compare_consecutive_runs([before, replace(after, samples=halves)])[1]
    assert jumped.answer == "cannot tell", "clocks that change within a run"
    undated = [replace(r, made=None) for r in (before, after)]
    assert [s.answer for s in compare_consecutive_runs(undated)] == ["first", "cannot tell"]


def test_the_commit_is_that_of_the_code_where_its_hash_is_in_the_log(tmp_path: Path) -> None:
    """The code is committed, then its record, then other files: the record's commit is the code's."""
    from profkit.lab.measure.variants.variants import read_variant

    repository = tmp_path / "r"
    path = repository / "kernels" / "p" / "v1_words.cu"
    path.parent.mkdir(parents=True)
    path.write_text("/* The v1\n*/\nint code;\n")
    _git(repository, "init", "-q")
    _git(repository, "add", ".")
    _git(repository, "commit", "-qm", "code")
    record = made("v1", 1e-5, 1)
    source = replace(record.source, sha256=read_variant(path).source_hash)
    folder(repository / "artifacts", replace(record, source=source), made("v2", 1e-5, 2))
    _git(repository, "add", ".")
    _git(repository, "commit", "-qm", "records")
    log = subprocess.run(
        ["git", "log", "--format=%H"], cwd=repository, capture_output=True, text=True, check=True
    ).stdout.split()
    runs, problems = list_committed_records(repository / "artifacts", read_code_hashes)
    assert problems == []
    assert {r.variant: (r.commit, r.commit_from) for r in runs} == {
        "v1": (log[1], "source"),
        "v2": (log[0], "log"),
    }


def test_a_commit_that_is_found_afterwards_is_kept_beside_the_row_without(tmp_path: Path) -> None:
    """Rows are never changed: of one record's rows that with the surest commit counts, once."""
    pytest.importorskip("duckdb")
    kept, bare = History(tmp_path), row(1e-5, 1, 1, commit=None, commit_from=None)
    kept.append_rows([bare, row(2e-5, 2, 2)])
    later = [replace(bare, commit="f00", commit_from="log"), row(2e-5, 2, 2, commit="other")]
    assert [r.commit for r in kept.select_runs_to_add(later)] == ["f00"]
    kept.append_rows(kept.select_runs_to_add(later))
    kept.append_rows([replace(bare, commit="abc", commit_from="source")])
    assert [r.commit for r in kept.list_runs()[0]] == ["abc", "commit 2"]
    assert sorted(pk.history(tmp_path)["commit"]) == ["abc", "commit 2"]
    asked = query_history(kept, "SELECT commit FROM runs ORDER BY commit")[0]
    assert list(asked["commit"]) == ["abc", "commit 2"]
    kept.append_rows([HistoryLaunch("r", 0), HistoryLaunch("r", 1)])
    kept.append_rows([HistoryLaunch("r", 0)])
    assert query_history(kept, "SELECT count(*) AS n FROM launches")[0]["n"][0] == 2


def test_what_a_commit_is_called_becomes_its_hash(tmp_path: Path) -> None:
    folder(tmp_path / "artifacts", made("v1"))
    assert resolve_commit_where_git_is(tmp_path, "r17") == "r17", "no repository knows better"
    _git(tmp_path, "init", "-q")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "-qm", "x")
    assert len(resolve_commit_where_git_is(tmp_path, "HEAD")) == 40
    assert resolve_commit_where_git_is(tmp_path, "abcdef0") == "abcdef0", "of another repository"
    for word in ("HEAD~2", "--all", "no such"):
        with pytest.raises(ProfkitError, match="no commit of this repository"):
            resolve_commit_where_git_is(tmp_path, word)


def test_a_shallow_clone_says_that_it_is_one(tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    for number in range(2):
        folder(origin / "artifacts", made("v1", 1e-5, number))
        if number == 0:
            _git(origin, "init", "-q")
        _git(origin, "add", ".")
        _git(origin, "commit", "-qm", str(number))
    _git(tmp_path, "clone", "-q", "--depth", "1", f"file://{origin}", "clone")
    runs, (problem,) = list_committed_records(tmp_path / "clone" / "artifacts", read_code_hashes)
    assert len(runs) == 1
    assert "a shallow clone" in problem.message


def test_the_spread_of_a_machine_comes_from_what_it_measured_twice() -> None:
    medians = (1.0e-5, 1.03e-5, 0.97e-5, 1.0e-5)
    runs = [row(m, i, i + 1) for i, m in enumerate(medians)]
    spread = estimate_spread_by_gpu(runs)["GPU-1"]
    assert (spread.sigma, spread.dof) == (pytest.approx(0.0245, abs=0.003), 3)
    assert estimate_spread_by_gpu(runs[:2]) == {}, "one difference is no spread"
    assert estimate_spread_by_gpu([replace(r, sass=None) for r in runs]) == {}
    later = [row(1e-5, 8, 8, sass="x"), row(0.93e-5, 9, 9, sass="y")]
    quiet = [replace(r, median=1e-5 + i * 1e-9) for i, r in enumerate(runs * 5)]
    quiet = [replace(r, session=f"q{i}") for i, r in enumerate(quiet)]
    assert compare_consecutive_runs(later, estimate_spread_by_gpu(quiet))[1].answer == "faster"
    assert compare_consecutive_runs(later)[1].answer == "cannot tell", "3 % assumed"
    assert compare_consecutive_runs([*runs, *later])[-1].answer == "cannot tell", "2.5 % measured"


def twin(session: str, median: float, again: float, **facts) -> HistoryTwin:
    """An A/A run of v1 at B with a per mille of noise."""
    rng = np.random.default_rng(list(session.encode()))
    sides = [tuple(m * (1 + rng.exponential(0.001, 60))) for m in (median, again)]
    return HistoryTwin(
        session,
        "v1",
        "B",
        sass="a",
        gpu="H200",
        gpu_uuid="GPU-1",
        samples=sides[0],
        again=sides[1],
        **facts,
    )


def test_the_spread_of_a_machine_comes_from_its_a_a_runs(tmp_path: Path) -> None:
    kept = History(tmp_path)
    twins = [twin(f"s{i}", 1e-5 * (1 + 0.01 * (-1) ** i), 1e-5) for i in range(20)]
    kept.append_rows(twins[:10])
    kept.append_rows(twins[8:])
    found, problems = kept.list_aa_runs()
    assert (len(found), problems) == (20, []), "each once"
    spread = estimate_spread_by_gpu((), found)["GPU-1"]
    assert (spread.sigma, spread.dof) == (pytest.approx(0.0103, abs=0.0005), 19)
    assert widen_spread_for_few_runs(spread) / spread.sigma == pytest.approx(1.18, abs=0.01)
    assert widen_spread_for_few_runs(Spread(0.01, 3)) == pytest.approx(0.0393, abs=1e-3)
    quiet = [twin(f"q{i}", 1e-5, 1e-5, made=f"2026-11-22T1{i}:00:00+00:00") for i in range(9)]
    assert estimate_spread_by_gpu((), quiet)["GPU-1"].sigma == 0.0025, "one sitting is no week"
    days = [replace(t, made=f"2026-11-0{i + 1}T10:00:00+00:00") for i, t in enumerate(quiet)]
    assert estimate_spread_by_gpu((), days)["GPU-1"].sigma < 0.001
    (noise,) = measure_aa_noise_by_gpu(found)
    assert (noise.processes, noise.pairs, noise.rounds) == (20, 20, 60)
    assert noise.within == pytest.approx(0.01, abs=0.001)
    assert noise.gate_alarms == 20, "1 % apart in one process is no noise of a per mille"
    assert (
        measure_aa_noise_by_gpu([twin(f"t{i}", 1e-5, 1e-5) for i in range(20)])[0].gate_alarms == 0
    )
    assert json.loads(json.dumps(make_json_safe(noise), allow_nan=False))["gate_alarms"] == 20


def test_a_record_that_was_mended_is_no_second_measurement() -> None:
    first = row(1e-5, 1, 1)
    mended = replace(first, record="mended", commit="later")
    assert [s.run.record for s in compare_consecutive_runs([first, mended])] == ["record 1"]


def test_questions_in_sql(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    history = History(tmp_path)
    history.append_rows([row(1e-5, 1, 1), row(2e-5, 2, 2), HistoryLaunch("r", 0, "k", gain=2.0)])
    frame, problems = query_history(history, "SELECT count(*) AS n, max(median) AS most FROM runs")
    assert (problems, frame.n[0]) == ([], 2)
    assert frame.most[0] == pytest.approx(2e-5, rel=0.02)
    assert query_history(history, "SELECT kernel FROM launches")[0].kernel.tolist() == ["k"]
    with pytest.raises(ProfkitError, match="the question") as raised:
        query_history(history, "SELECT nothing FROM nowhere")
    assert "runs: record, variant" in raised.value.hint


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_csv('/etc/passwd')",
        "COPY runs TO 'x.csv'",
        "INSTALL httpfs",
        "SET enable_external_access=true",
    ],
)
def test_a_question_reaches_nothing_but_the_tables(tmp_path: Path, sql: str) -> None:
    pytest.importorskip("duckdb")
    with pytest.raises(ProfkitError):
        query_history(History(tmp_path), sql)


def test_the_committed_artifacts_and_their_diagnoses(tmp_path: Path) -> None:
    history = History(tmp_path)
    evidence = Evidence(ROOT / "artifacts" / "attention" / "C-causal")
    added = add_artifacts_to_history(history, evidence)
    assert added.runs == len(evidence.list_names())
    assert added.launches >= added.runs
    again = add_artifacts_to_history(history, evidence)
    assert (again.runs, again.launches) == (0, 0)
    rows = history.read_table("launches")[0].to_pylist()
    assert all(r["bound"] and r["time"] > 0 for r in rows)
    reports = {r["report"] for r in rows}
    assert reports == {r.report for r in history.list_runs()[0]}


def _git(at: Path, *words: str) -> None:
    who = ("-c", "user.name=x", "-c", "user.email=x@example.com")
    subprocess.run(["git", *who, *words], cwd=at, check=True, capture_output=True)


def test_the_log_gives_every_version_its_commit(tmp_path: Path) -> None:
    repository = tmp_path / "r"
    first = made("v1", 1e-5, 1)
    folder(repository / "artifacts", first)
    _git(repository, "init", "-q")
    _git(repository, "add", ".")
    _git(repository, "commit", "-qm", "one")
    path = repository / "artifacts" / "p" / "B" / "v1.json"
    write_record(path, changed(first, 0.9e-5, 2))
    (repository / "artifacts" / "other.json").write_text("{}")
    _git(repository, "add", ".")
    _git(repository, "commit", "-qm", "two")
    write_record(path, replace(first, timing=timed(1.1e-5, 3, "uncommitted")))
    runs, problems = list_committed_records(repository / "artifacts", read_code_hashes)
    assert problems == []
    assert [r.commit_from for r in runs] == ["log", "log"]
    assert len({r.commit for r in runs}) == 2
    assert runs[1].sass == "other sass"
    with pytest.raises(ProfkitError, match="git in"):
        list_committed_records(tmp_path, read_code_hashes)


def test_a_launcher_that_changed_is_no_same_code(tmp_path: Path) -> None:
    first = row(1e-5, 1, 1, host="h")
    runs = [
        first,
        row(1.1e-5, 2, 2, source="refactored", host="h"),
        row(1.1e-5, 3, 3, source="rewritten", host="i"),
        row(1.1e-5, 4, 4, source="of an older profkit"),
        row(1.1e-5, 5, 5, source="of an older profkit", launches=("k 264x1x1",)),
    ]
    wanted = ["first", "same code", *["cannot tell"] * 3]
    assert [s.answer for s in compare_consecutive_runs(runs)] == wanted
    History(tmp_path).append_rows(runs)
    assert [
        s.answer for s in compare_consecutive_runs(History(tmp_path).list_runs()[0])
    ] == wanted, "the columns are kept"
    for host, note in {"h": "the machine code of v1.B", "i": None}.items():
        other = replace(first, variant="v2", record="r", host=host, source="x", session="z")
        assert compare_consecutive_runs([first, other])[-1].note == note


def test_as_a_frame(tmp_path: Path) -> None:
    History(tmp_path).append_rows([row(1e-5, 1, 1), row(2e-5, 2, 2)])
    frame = pk.history(tmp_path)
    assert frame.variant.tolist() == ["v1", "v1"]
    assert frame["median"].between(0.9e-5, 2.1e-5).all()
    assert pk.history(tmp_path, "launches").empty
    variant, case = frame["variant"][0], frame["case"][0]
    for given in (
        variant,
        f"{variant}.{case}",
        f"{variant[:-1]}*",
        [variant],
        frame,
        frame.iloc[0],
        {"variant": variant, "case": case},
    ):
        found = pk.history(given, folder=tmp_path)
        assert set(found["variant"]) >= {variant}
        assert len(found) <= len(frame)
    only = pk.history(f"{variant}.{case}", folder=tmp_path)
    assert set(only["variant"] + "." + only["case"]) == {f"{variant}.{case}"}
    for given, says in (
        (f"{variant}x", f"{variant}x: not in the history"),
        (3, "int: does not name anything"),
        ([], "list: does not name anything"),
        (frame[["median"]], "DataFrame: does not name anything"),
        (str(tmp_path / "none"), "none: not a history"),
    ):
        with pytest.raises(ProfkitError, match=says):
            pk.history(given, folder=tmp_path)
    with pytest.raises(ProfkitError, match="the table reports knows no variants"):
        pk.history(variant, "reports", tmp_path)
    with pytest.raises(ProfkitError, match="no table 'findings'"):
        pk.history(tmp_path, "findings")


def test_every_column_is_a_field() -> None:
    assert make_arrow_schema_of_table("runs").names[:3] == ["record", "variant", "case"]
    assert make_arrow_schema_of_table("runs").field("samples").type == pa.list_(pa.float64())


def test_writers_at_once_lose_and_double_nothing(tmp_path: Path) -> None:
    """Each writes what both have and one row of its own."""
    shared = [row(1e-3, seed, seed + 1) for seed in range(3)]

    def write(n: int) -> None:
        History(tmp_path).append_rows([*shared, row(2e-3, 10 + n, 20 + n)])

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    runs, problems = History(tmp_path).list_runs()
    assert (len(runs), problems) == (7, [])
    assert len({r.record for r in runs}) == 7
    assert not list(tmp_path.rglob("*.part*"))


WRITER = """
import os, signal, sys
from pathlib import Path
from profkit import files
from profkit.evidence.history import History
from tests.evidence.test_history import row

root, who, dies = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
for step in dies:  # killed on its way into this call of the system, or just out of it
    module, name, when = step.split(".")
    real = getattr(globals()[module], name)
    def last(*args, real=real, when=when, **named):
        if when == "after":
            real(*args, **named)
        os.kill(os.getpid(), signal.SIGKILL)
    setattr(globals()[module], name, last)
for n in range(1 if dies else 6):
    History(root).append_rows([row(1e-3, 0, 1000 * who + n)])
"""
READER = """
import sys
from pathlib import Path
from profkit.evidence.history import History, query_history
for _ in range(2):
    runs, problems = History(Path(sys.argv[1])).list_runs()
    asked, more = query_history(History(Path(sys.argv[1])), "SELECT count(*) AS n FROM runs")
    assert not problems + more, problems + more
    assert asked["n"][0] >= len(runs)
"""
STEPS = [f"os.{call}.{when}" for call in ("fsync", "replace") for when in ("before", "after")]


def _python(code: str, *words: object) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", code, *map(str, words)], cwd=ROOT)


@pytest.mark.slow
@pytest.mark.parametrize("step", take_part(STEPS, one_of=2))
def test_a_killed_writer_breaks_no_query_and_leaves_nothing(tmp_path: Path, step: str) -> None:
    History(tmp_path).append_rows([row(1e-3, 0, 1)])
    assert _python(WRITER, tmp_path, 1, step).wait(300) == -9
    runs, problems = History(tmp_path).list_runs()
    assert (len(runs) in (1, 2), problems) == (True, [])
    for left in tmp_path.rglob(".*"):
        os.utime(left, (0, 0))
    History(tmp_path).append_rows([row(1e-3, 2, 3)])
    assert not list(tmp_path.rglob(".*"))


@pytest.mark.slow
def test_any_number_of_writers_and_readers_with_kills_between(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    History(tmp_path).append_rows([row(1e-3, 0, 1)])
    writers = [_python(WRITER, tmp_path, who) for who in range(1, 4)]
    dying = _python(WRITER, tmp_path, 5, STEPS[2])
    reader = _python(READER, tmp_path)
    assert dying.wait(120) == -9
    killed = writers.pop()
    killed.kill()
    assert killed.wait(120) in (-9, 0)
    assert [w.wait(120) for w in (*writers, reader)] == [0, 0, 0]
    runs, problems = History(tmp_path).list_runs()
    assert problems == []
    assert len({r.record for r in runs}) >= 1 + 2 * 6


def test_what_an_older_profkit_left_is_read_by_nobody(tmp_path: Path) -> None:
    History(tmp_path).append_rows([row(1e-3, 0, 1)])
    (tmp_path / "runs" / f".ab.{'0a' * 8}.part.parquet").write_bytes(b"PAR1")
    runs, problems = History(tmp_path).list_runs()
    assert (len(runs), problems) == (1, [])


def test_a_pipe_among_the_tables_is_named_and_not_waited_for(tmp_path: Path) -> None:
    History(tmp_path).append_rows([row(1e-3, 0, 1)])
    os.mkfifo(tmp_path / "runs" / "x.parquet")
    runs, (problem,) = History(tmp_path).list_runs()
    assert len(runs) == 1
    assert "x.parquet" in problem.message


SUREST = [
    ("b", "record"),
    ("b", "option"),
    ("b", "environment"),
    ("b", "source"),
    ("a", "log"),
    ("b", "log"),
    (None, None),
]


@pytest.mark.parametrize("swapped", [False, True])
def test_of_two_commits_of_one_record_the_surer_counts(tmp_path: Path, swapped: bool) -> None:
    """In a frame and in SQL: its own, then what somebody said, then what the log makes likely."""
    pytest.importorskip("duckdb")
    kept, pairs = History(tmp_path), list(pairwise(SUREST))
    for n, pair in enumerate(pairs):
        for commit, origin in reversed(pair) if swapped else pair:
            kept.append_rows([row(1e-5, 1, n + 1, commit=commit, commit_from=origin)])
    surest = [pair[0] for pair in pairs]
    assert [(r.commit, r.commit_from) for r in kept.list_runs()[0]] == surest
    asked = query_history(kept, "SELECT commit, commit_from FROM runs ORDER BY record")[0]
    assert [tuple(x) for x in asked.itertuples(index=False)] == surest
    assert (
        rank_commit_doubt(None, "record")
        == rank_commit_doubt("", "of tomorrow")
        == rank_commit_doubt(None, None)
    )
    assert rank_commit_doubt("a", "log") < rank_commit_doubt("a", "of tomorrow")


def test_a_row_has_what_its_record_says_and_null_for_the_rest() -> None:
    bare = replace(made("v1"), gpu=RecordedGpu(name="", uuid="GPU-1"), timing=None, check=None)
    found = make_run_row(bare, "sha", "", "option")
    assert (found.gpu, found.gpu_uuid, found.driver, found.correct) == (None, "GPU-1", None, None)
    assert (found.commit, found.commit_from, found.made, found.samples) == (None, None, None, ())
    assert (found.median, found.low, found.high) == (None, None, None)
    assert found.launches == ("k 132x1x1 128x1x1 0 0 64 4",)
    few = make_run_row(made("v1", timing=timed(1e-5, 1, "s", 3)), "sha", "abc", "option")
    assert (few.commit, few.commit_from, few.session) == ("abc", "option", "s")
    assert (len(few.samples), few.median > 0, few.low, few.high) == (3, True, None, None)
    broken = replace(
        few.timed,
        timing=replace(
            few.timed.timing, l2=TimedSides(warm=TimedSide(samples=(1e-5, float("nan"))))
        ),
    )
    lost = make_run_row(broken, "sha", None, None)
    assert (lost.samples, lost.median) == ((), None), "samples that are no times"
    assert (few.timed.warm_samples, few.timed.gpu.uuid, few.subject) == (
        few.samples,
        "GPU-1",
        "v1.B",
    )


def test_launches_that_ncu_finished_are_rows_with_their_dearest_finding() -> None:
    rule = BY_ID["long-scoreboard"]
    listed = [
        frame_row("v1", launch=3, **rule.fires[0]),
        frame_row("v1", status="failed", launch=4),
        frame_row(None, None, launch=5, time=float("nan")),
    ]
    first, last = iterate_launch_rows(listed, "sha")
    assert (first.report, first.launch, first.variant, first.time) == ("sha", 3, "v1", 1e-4)
    firing = {f.rule: f.gain for f in judge_launch(listed[0]).findings if f.status == "fires"}
    assert set(first.findings) == set(firing)
    assert rule.id in firing
    assert first.gain == max(g for g in firing.values() if g is not None)
    assert (last.launch, last.variant, last.time) == (5, None, None)


def test_the_columns_say_their_types_and_which_of_them_name_a_row() -> None:
    rows = list_schema_rows()
    assert {
        r["table"]: [k["column"] for k in rows if k["table"] == r["table"] and k["key"]]
        for r in rows
    } == {
        "runs": ["record"],
        "launches": ["report", "launch"],
        "reports": ["path", "report"],
        "twins": ["session", "variant", "case"],
        "ablations": ["record", "ablation"],
    }
    types = {(r["table"], r["column"]): r["type"] for r in rows}
    assert [types["runs", c] for c in ("median", "dirty", "flags")] == [
        "double",
        "bool",
        "list<item: string>",
    ]
    assert types["launches", "launch"] == "int64"


def test_runs_and_twins_come_oldest_first_and_the_undated_before(tmp_path: Path) -> None:
    kept = History(tmp_path)
    kept.append_rows([row(1e-5, 2, 2), row(1e-5, 1, 1), row(1e-5, 3, 3, made=None)])
    kept.append_rows([row(1e-5, 1, 1, record="other", variant="a")])
    assert [(r.variant, r.record) for r in kept.list_runs()[0]] == [
        ("v1", "record 3"),
        ("a", "other"),
        ("v1", "record 1"),
        ("v1", "record 2"),
    ]
    kept.append_rows(
        [twin(s, 1e-5, 1e-5, made=at) for s, at in (("c", "2"), ("b", "1"), ("a", "1"))]
    )
    kept.append_rows([twin("z", 1e-5, 1e-5)])
    assert [t.session for t in kept.list_aa_runs()[0]] == ["z", "a", "b", "c"]


def test_what_a_history_does_not_know_yet(tmp_path: Path) -> None:
    kept = History(tmp_path)
    kept.append_rows([row(1e-5, 1, 1, commit=None), row(1e-5, 2, 2)])
    asked = [
        row(1e-5, 1, 1, commit=None),
        row(1e-5, 1, 1),
        row(1e-5, 2, 2, commit=None),
        row(1e-5, 3, 3, commit=None),
    ]
    assert [(r.record, r.commit) for r in kept.select_runs_to_add(asked)] == [
        ("record 1", "commit 1"),
        ("record 3", None),
    ]


@pytest.mark.parametrize(("hours", "least"), [(0, True), (19.9, True), (20, False), (48, False)])
def test_processes_of_one_sitting_differ_by_less_than_those_of_two_days(hours, least) -> None:
    first = datetime(2026, 11, 1, tzinfo=UTC)
    dates = [first, first, first + timedelta(hours=hours)]
    runs = [row(1e-5 * (1 + i * 1e-4), i, i + 1, made=d.isoformat()) for i, d in enumerate(dates)]
    runs = [replace(r, median=1e-5 * (1 + i * 1e-4)) for i, r in enumerate(runs)]
    spread = estimate_spread_by_gpu(runs)["GPU-1"]
    assert spread.dof == 2
    assert spread.sigma == (0.0025 if least else pytest.approx(1e-4, rel=0.01))
    assert estimate_spread_by_gpu(runs, least_in_one_sitting=0.0)["GPU-1"].sigma == pytest.approx(
        1e-4, rel=0.01
    )
    wide = [replace(r, median=1e-5 * (1 + i * 0.1)) for i, r in enumerate(runs)]
    assert estimate_spread_by_gpu(wide)["GPU-1"].sigma > 0.09, "what was measured, where it is more"
    undated = [replace(r, made="some day") for r in runs]
    assert estimate_spread_by_gpu(undated)["GPU-1"].sigma == 0.0025, (
        "when is not known: one sitting"
    )


def test_only_one_machine_code_at_one_case_on_one_gpu_shows_what_processes_differ_by() -> None:
    runs = [row(m, i, i + 1) for i, m in enumerate((1.0e-5, 1.1e-5, 0.9e-5))]
    assert estimate_spread_by_gpu(runs)["GPU-1"].dof == 2
    for facts in (
        {"case": "C"},
        {"sass": "other"},
        {"gpu_uuid": "GPU-2"},
        {"gpu_uuid": None},
        {"session": None},
        {"session": runs[0].session},
        {"median": None},
    ):
        assert estimate_spread_by_gpu([*runs[:2], replace(runs[2], **facts)]) == {}, facts
    two = [replace(r, gpu_uuid="GPU-2", median=1e-5) for r in runs]
    assert {u: s.sigma > 0.05 for u, s in estimate_spread_by_gpu([*runs, *two]).items()} == {
        "GPU-1": True,
        "GPU-2": False,
    }


def test_noise_is_told_gpu_by_gpu_of_whole_pairs() -> None:
    uneven = replace(twin("u", 1e-5, 1e-5), again=(1e-5,))
    other = [
        replace(
            twin(f"o{i}", 1e-5, 1.001e-5),
            gpu="A100",
            gpu_uuid="GPU-0",
            **(
                {
                    "samples": twin("o0", 1e-5, 1e-5).samples[:50],
                    "again": twin("o1", 1e-5, 1e-5).again[:50],
                }
                if i
                else {}
            ),
        )
        for i in range(2)
    ]
    mine = [twin("a", 1e-5, 2e-5), replace(twin("a", 1e-5, 1e-5), case="C")]
    empty = replace(twin("e", 1e-5, 1e-5), samples=(), again=())
    found = measure_aa_noise_by_gpu([*mine, uneven, empty, *other])
    assert [(m.gpu, m.gpu_uuid, m.pairs, m.processes, m.rounds) for m in found] == [
        ("A100", "GPU-0", 2, 2, 50),
        ("H200", "GPU-1", 2, 1, 60),
    ]
    assert (found[1].between, found[1].between_degrees) == (None, None)
    assert found[1].within == pytest.approx(log(2) / sqrt(2), rel=0.01)
    assert (found[1].compare_alarms, found[1].gate_alarms) == (1, 1)
    unnamed = measure_aa_noise_by_gpu([replace(t, gpu=None, gpu_uuid=None) for t in mine])
    assert [(m.gpu, m.gpu_uuid) for m in unnamed] == [("", "")]


def test_a_history_that_is_not_there_or_half_broken_knows_less_and_says_why(tmp_path: Path) -> None:
    assert KnownSpreads(tmp_path / "none")("GPU-1") is None
    kept = History(tmp_path / "h")
    kept.append_rows([row(m, i, i + 1) for i, m in enumerate((1.0e-5, 1.1e-5, 0.9e-5))])
    (tmp_path / "h" / "runs" / "half.parquet").write_bytes(b"PAR1")
    known = KnownSpreads(tmp_path / "h").read_history()
    assert ["half.parquet" in p.message for p in known.problems] == [True]
    assert known("GPU-2") is None
    plain_spread = estimate_spread_by_gpu(kept.list_runs()[0])["GPU-1"]
    assert known("GPU-1") == widen_spread_for_few_runs(plain_spread, 0.05)
    assert (
        KnownSpreads(tmp_path / "h", 0.001)("GPU-1")
        == widen_spread_for_few_runs(plain_spread)
        > known("GPU-1")
    )
    assert widen_spread_for_few_runs(Spread(0.01)) == 0.01, "an assumption is not widened"


def test_the_latest_run_before_on_the_same_gpu_is_compared_with() -> None:
    on = {"gpu_uuid": None, "gpu": "H200"}
    runs = [
        row(1e-5, 1, 1, **on),
        row(2e-5, 2, 2, sass="b", **on),
        row(1e-5, 3, 3, sass="c", gpu_uuid=None, gpu="L4"),
        row(1e-5, 4, 4, sass="d", **on),
    ]
    assert [s.answer for s in compare_consecutive_runs(runs, {})] == [
        "first",
        "slower",
        "other machine",
        "faster",
    ]
    moved = [runs[0], replace(runs[2], sass=runs[0].sass)]
    assert [s.answer for s in compare_consecutive_runs(moved)] == ["first", "same code"]
    untimed = [replace(r, samples=()) for r in (runs[0], replace(runs[1], sass=runs[0].sass))]
    assert [s.answer for s in compare_consecutive_runs(untimed)] == ["first", "same code"]
    for side in (0, 1):
        half = [replace(r, samples=r.samples if i == side else ()) for i, r in enumerate(runs[:2])]
        found = compare_consecutive_runs(half)[1]
        assert (found.answer, found.time, found.smallest_change) == ("no time", None, None)
    few = [replace(r, samples=r.samples[:3]) for r in runs[:2]]
    assert (
        compare_consecutive_runs(few)[1].answer,
        compare_consecutive_runs(few)[1].smallest_change,
    ) == ("cannot tell", None)
    undated = [replace(r, made=None, session="s") for r in runs[:2]]
    assert len(compare_consecutive_runs(undated)) == 2, (
        "of two without a date nobody knows that they are one"
    )
    other = [row(1e-5, 1, 1, variant="b"), row(1e-5, 2, 2, variant="a", sass="x")]
    assert [s.run.variant for s in compare_consecutive_runs(other)] == ["a", "b"], (
        "subject by subject"
    )


def test_a_table_by_names_of_frames_with_and_without_cases(tmp_path: Path) -> None:
    kept = History(tmp_path)
    kept.append_rows([row(1e-5, 1, 1), row(1e-5, 2, 2, case="C"), row(1e-5, 3, 3, variant="v10")])

    def found(given) -> list[str]:
        frame = pk.history(given, folder=tmp_path)
        assert list(frame.index) == list(range(len(frame)))
        return sorted(frame["variant"] + "." + frame["case"])

    assert found("v1") == ["v1.B", "v1.C"]
    assert found("v1*") == ["v1.B", "v1.C", "v10.B"]
    assert found(["v1.C", "v10"]) == ["v1.C", "v10.B"]
    assert found(("v1.B",)) == ["v1.B"]
    assert found({"variant": "v1", "case": None}) == ["v1.B", "v1.C"]
    for given in ([], [1], ["v1", 1], {"case": "B"}):
        with pytest.raises(ProfkitError, match="does not name anything in a history"):
            found(given)
    with pytest.raises(ProfkitError, match="v2: not in the history") as raised:
        found("v2")
    assert raised.value.hint == "there are: v1, v1.B, v1.C, v10, v10.B"
    with pytest.raises(ProfkitError, match="no/folder: not a history"):
        pk.history("no/folder", folder=tmp_path)
    with pytest.raises(ProfkitError, match="int: no folder of a history"):
        pk.history("v1", folder=3)


@pytest.mark.parametrize(
    ("sql", "says"), [("", "the query is empty"), ("-- x", "the query is empty")]
)
def test_a_question_without_one_is_said(tmp_path: Path, sql: str, says: str) -> None:
    pytest.importorskip("duckdb")
    with pytest.raises(ProfkitError, match=says):
        query_history(History(tmp_path), sql)


def test_an_answer_too_large_is_stopped_and_one_without_rows_has_its_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("duckdb")
    kept = History(tmp_path)
    none, problems = query_history(kept, "SELECT record, median FROM runs")
    assert (list(none.columns), len(none), problems) == (["record", "median"], 0, [])
    many = query_history(kept, "SELECT range AS n FROM range(5000)")[0]
    assert many["n"].tolist() == list(range(5000))
    monkeypatch.setattr("profkit.evidence.history.MEMORY_MOST", 30_000_000)
    with pytest.raises(ProfkitError, match=r"larger than 0\.03 GB") as raised:
        query_history(kept, "SELECT repeat('x', 2000) AS n FROM range(20000)")
    assert raised.value.hint == "ask for less: WHERE, GROUP BY or LIMIT"
