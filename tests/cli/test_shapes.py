"""A kept document of another shape is two lines that name it, whatever is wrong in it.

Everything that profkit keeps and reads again is swept: each place of a document is left out, or holds
something else. Either it is read, or refused: nothing else ends a verb, and nothing beside it is lost.
"""

from __future__ import annotations

import copy
import io
import json
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from profkit.errors import ProfkitError
from profkit.evidence.history import History, query_history
from profkit.program.change import compare_triages
from profkit.program.document import NAME, read_triage_document
from profkit.program.readers import store
from profkit.program.recorded import judge_recordings
from profkit.records.record import read_record
from profkit.reports.raw_counters import read_printed_table
from profkit.show.views.triage import show_compared_triages, show_triage
from tests.conftest import ROOT
from tests.found import find_files
from tests.sweeps import choose_count, take_part

pytestmark = pytest.mark.slow

TRACE = ROOT / "tests" / "program" / "data" / "copy_results_to_host.planted.json.gz"
HISTORY = ROOT / "artifacts" / "history"
GONE = object()
DEEP = 3000
# What may stand where something else should: as JSON, for some of it is none in Python.
OTHERS = (
    GONE,
    None,
    True,
    -1,
    0,
    1.5,
    10**400,
    float("nan"),
    float("inf"),
    "",
    "text",
    [],
    [[]],
    {},
    {"a": 1},
    "\ud800",
    [None],
    "9" * 5000,
    "DEEP",
)


def _places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something is in a document: each key, and the first two of each list."""
    yield path
    if isinstance(document, dict):
        for key, value in document.items():
            yield from _places(value, (*path, key))
    elif isinstance(document, list):
        for n, value in enumerate(document[:2]):
            yield from _places(value, (*path, n))


def _changed(document: Any, path: tuple[Any, ...], other: Any) -> str:
    """The document as JSON with something else at a place."""
    if not path:
        new = {} if other is GONE else other
    else:
        new = copy.deepcopy(document)
        holder = new
        for key in path[:-1]:
            holder = holder[key]
        if other is GONE:
            del holder[path[-1]]
        else:
            holder[path[-1]] = other
    text = json.dumps(new)
    return text.replace('"DEEP"', "[" * DEEP + "]" * DEEP)


def _shapes(document: Any) -> Iterator[str]:
    for path in _places(document):
        for other in OTHERS:
            yield _changed(document, path, other)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as `profkit triage -o` keeps one."""
    from typer.testing import CliRunner

    from profkit.cli.app import app

    folder = tmp_path_factory.mktemp("kept") / "a.triage"
    done = CliRunner().invoke(app, ["triage", str(TRACE), "-o", str(folder), "-q"])
    assert done.exit_code == 0, done.stderr
    return folder


@pytest.fixture
def other(kept: Path, tmp_path: Path) -> Path:
    """A copy of that folder, to be changed."""
    folder = tmp_path / "b.triage"
    shutil.copytree(kept, folder)
    return folder


def test_a_triage_of_any_shape(kept: Path, other: Path) -> None:
    document = json.loads((kept / NAME).read_bytes())
    whole = read_triage_document(kept)
    tried = refused = 0
    for text in take_part(_shapes(document), one_of=5):  # four of the 19 at each place
        (other / NAME).write_text(text, "utf-8")
        tried += 1
        found, refusal = _try(read_triage_document, other)
        if refusal:
            refused += 1
            assert str(other / NAME) in refusal.message
            assert refusal.hint
            continue
        for first, second in ((whole, found), (found, whole)):
            list(show_compared_triages(compare_triages(first, second)))
        list(show_triage(found))
        json.dumps(found, allow_nan=False)
    assert tried > 420
    assert tried / 2 < refused < tried


def test_a_triage_of_another_shape_through_the_verbs(run, kept: Path, other: Path) -> None:
    shapes = list(_shapes(json.loads((kept / NAME).read_bytes())))
    for text in random.Random(1).sample(shapes, choose_count(25, 9)):
        (other / NAME).write_text(text, "utf-8")
        for words in (
            ("compare", kept, other),
            ("compare", other, kept),
            ("report", other, "-o", other / "page.html"),
        ):
            done = run(*words)
            _is_answered(done, other / NAME, text)


def _is_answered(done: Any, name: Path, text: str) -> None:
    assert done.exception is None or isinstance(done.exception, SystemExit), text[:300]
    if done.exit_code == 2:
        first, second = done.stderr.splitlines()[:2]
        assert first.startswith(f"profkit: {name}"), done.stderr
        assert second.startswith("  ")


def test_the_head_of_a_timeline_of_any_shape(kept: Path, other: Path) -> None:
    head = json.loads((kept / store.HEAD).read_bytes())
    tried = 0
    for text in take_part(_shapes(head), one_of=3):
        (other / store.HEAD).write_text(text, "utf-8")
        tried += 1
        _try_timeline(other)
    assert tried > 70


def _try(call: Callable[..., Any], given: Any) -> tuple[Any, ProfkitError | None]:
    """What a function returns, and how it refuses."""
    try:
        return call(given), None
    except ProfkitError as error:
        return None, error


def _try_timeline(folder: Path) -> bool:
    """Judge a timeline; whether it was refused."""
    _, refusal = _try(judge_recordings, [folder])
    if refusal:
        assert str(folder) in refusal.message
        assert refusal.hint
    return bool(refusal)


def _columns(table: pa.Table) -> Iterator[pa.Table]:
    """A table with each column gone, or of something else; or the last one of its values."""
    count = len(table)
    deep = "[" * DEEP + "]" * DEEP
    kinds = [
        pa.array(["x"] * count),
        pa.array([deep] * count),
        pa.array([2**63 - 1] * count),
        pa.array([-(2**63)] * count),
        pa.array([0.5] * count),
        pa.array([float("nan")] * count),
        pa.nulls(count),
        pa.array([None] * count, pa.int64()),
        pa.array([True] * count),
        pa.array([[1, 2]] * count),
        pa.array([[0, -5, 2**40]] * count),
        pa.array([{"a": 1}] * count),
        pa.array([b"\xff"] * count),
        pa.array(["[1, {}]"] * count),
    ]  # a place for each kind that Parquet has
    for place, name in enumerate(table.column_names):
        yield table.remove_column(place)
        yield table.append_column(name, table.column(place))
        for values in kinds:
            yield table.set_column(place, name, values)
            if len(values) and values.type == table.column(place).type:
                mixed = [*table.column(place).to_pylist()[:-1], values[0].as_py()]
                yield table.set_column(place, name, pa.array(mixed, values.type))
    yield table.slice(0, 0)


@pytest.mark.parametrize("name", store.TABLES)
def test_a_table_of_a_timeline_of_any_columns(kept: Path, other: Path, name: str) -> None:
    path = other / f"{name}.parquet"
    table = parquet.read_table(kept / path.name)
    tried = refused = 0
    for changed in take_part(_columns(table), one_of=7):
        parquet.write_table(changed, path)
        tried += 1
        refused += _try_timeline(other)
    assert tried > 15
    assert refused > (tried / 3 if len(table) else 1)


def test_a_table_of_a_timeline_of_too_many_rows(kept: Path, other: Path) -> None:
    path = other / "spans.parquet"
    row = parquet.read_table(kept / path.name).slice(0, 1)
    parquet.write_table(pa.concat_tables([row] * 2000), path, compression="zstd")
    many = parquet.read_table(path)
    parquet.write_table(pa.concat_tables([many] * 100).combine_chunks(), path, compression="zstd")
    assert path.stat().st_size < 200_000
    with pytest.raises(ProfkitError, match=r"has more than [\d,]+ rows"):
        store.read_saved_timeline(other)


def _small_history(tmp_path: Path) -> Path:
    """A history with a few rows in each table."""
    folder = tmp_path / "history"
    for name in ("runs", "launches", "twins"):
        table = parquet.read_table(find_files(HISTORY / name, "*.parquet")[0]).slice(0, 6)
        (folder / name).mkdir(parents=True)
        parquet.write_table(table, folder / name / "good.parquet", compression="zstd")
    return folder


@pytest.mark.parametrize("name", ["runs", "launches", "twins"])
def test_a_file_of_the_history_of_any_columns(tmp_path: Path, name: str) -> None:
    """It is named, and the others' rows are all there."""
    folder = _small_history(tmp_path)
    whole = History(folder).read_table(name)[0]
    odd = folder / name / "zz.parquet"
    table = parquet.read_table(folder / name / "good.parquet").slice(0, 2)
    tried = refused = 0
    for changed in take_part(_columns(table), one_of=23):
        parquet.write_table(changed, odd)
        tried += 1
        refused += _try_history(folder, name, odd, whole)
        if tried % 20 == 1:
            _ask_history(folder, name, odd, whole)
    assert tried > 4
    assert refused > tried / 2


def _try_history(folder: Path, name: str, odd: Path, whole: pa.Table) -> bool:
    """Read a table of a history; whether one of its files was refused: that one, and no other."""
    history = History(folder)
    found, problems = history.read_table(name)
    if name == "runs":
        history.list_runs()
    elif name == "twins":
        history.list_aa_runs()
    _is_only_of(odd, problems)
    assert not problems or found.equals(whole)
    return bool(problems)


def _ask_history(folder: Path, name: str, odd: Path, whole: pa.Table) -> None:
    answer, problems = query_history(History(folder), f"SELECT count(*) AS n FROM {name}")
    _is_only_of(odd, problems)
    assert not problems or answer["n"][0] == len(whole)


def _is_only_of(odd: Path, problems: list[ProfkitError]) -> None:
    assert len(problems) <= 1
    for problem in problems:
        assert str(odd) in problem.message


def test_a_damaged_file_of_the_history(run, tmp_path: Path) -> None:
    folder = _small_history(tmp_path)
    whole = History(folder).read_table("runs")[0]
    odd = folder / "runs" / "zz.parquet"
    content = (folder / "runs" / "good.parquet").read_bytes()
    chance = random.Random(3)
    damaged = []
    for _ in take_part(range(60), one_of=10):
        at = chance.randrange(len(content))
        damaged.append(
            content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :]
        )
        damaged.append(content[:at])
    refused = 0
    for n, data in enumerate(damaged):
        odd.write_bytes(data)
        refused += _try_history(folder, "runs", odd, whole)
        if n % 10 == 0:
            _ask_history(folder, "runs", odd, whole)
    assert refused > len(damaged) / 2
    odd.write_bytes(content[:-400])
    done = run("history", "--history", folder)
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert f"profkit: {odd}: not readable" in done.stderr


# --- tables that ncu printed

HEAD = ["ID", "Process ID", "Kernel Name", "gpu__time_duration.sum", "launch__grid_size"]
UNITS = ["", "", "", "ns", ""]


def _printed(rows: list[list[str]]) -> str:
    return "".join(",".join(f'"{cell}"' for cell in row) + "\n" for row in rows)


def _launches(count: int) -> list[list[str]]:
    return [[str(n), "77", f"k{n}", f"{1000 + n}", "12"] for n in range(count)]


def _read_csv(path: Path, text: str) -> Any:
    path.write_text(text, "utf-8")
    return read_printed_table(str(path))


def test_a_table_that_is_cut_anywhere(tmp_path: Path) -> None:
    """Said, but for a cut between two rows: nothing says how many there should be."""
    text = _printed([HEAD, UNITS, *_launches(4)])
    path = tmp_path / "x.csv"
    begin = text.index('"0"')
    silent = []
    for cut in range(begin, len(text)):
        part = _read_csv(path, text[:cut])
        between = text[cut - 1] == "\n" or text[cut] == "\n"
        if part.file.status == "ok" and not between:
            silent.append(text[:cut][-30:])
        times = [row["time"] for row in part.iterate_launches()]
        assert times == pytest.approx([(1000 + n) * 1e-9 for n in range(len(times))])
    assert silent == []


@pytest.mark.parametrize("row", range(4))
@pytest.mark.parametrize("more", [-2, -1, 1, 3])
def test_a_row_of_another_length(tmp_path: Path, row: int, more: int) -> None:
    rows = _launches(4)
    rows[row] = rows[row][:more] if more < 0 else rows[row] + ["1"] * more
    part = _read_csv(tmp_path / "x.csv", _printed([HEAD, UNITS, *rows]))
    assert part.file.status == "damaged"
    assert f"row {row + 2} has {5 + more} cells, and the header 5" in part.file.message
    assert len(part.identity) == 3


def test_lines_of_the_program_between_are_no_rows(tmp_path: Path) -> None:
    lines = _printed([HEAD, UNITS, *_launches(3)]).splitlines(keepends=True)
    lines[3:3] = ["==PROF== Profiling k1: 0%\n", "hello, world\n", "loss=0.5, step=3\n", "\n"]
    part = _read_csv(tmp_path / "x.csv", "".join(lines))
    assert (part.file.status, len(part.identity)) == ("ok", 3)


def test_a_column_that_is_there_often(tmp_path: Path) -> None:
    """The same each time is the same; else nothing says which is right."""
    for others, status in ((False, "ok"), (True, "unreadable")):
        head = HEAD + [HEAD[3]] * 1000
        rows = [[*row, *[str(n * others or row[3]) for n in range(1000)]] for row in _launches(2)]
        units = UNITS + ["ns"] * 1000
        part = _read_csv(tmp_path / "x.csv", _printed([head, units, *rows]))
        assert part.file.status == status, part.file.message
    assert "two columns gpu__time_duration.sum" in part.file.message


def test_two_tables_in_one_file_give_no_launch_two_values(tmp_path: Path) -> None:
    head = ["ID", "Process ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value"]
    rows = [["0", "7", "k", "gpu__time_duration.sum", "ns", value] for value in ("1000", "2000")]
    part = _read_csv(tmp_path / "x.csv", _printed([head, rows[0], rows[0]]))
    assert (part.file.status, len(part.identity)) == ("ok", 1)
    part = _read_csv(tmp_path / "x.csv", _printed([head, *rows]))
    assert part.file.status == "unreadable"
    assert "two values of gpu__time_duration.sum" in part.file.message


# --- what is beside an export of Nsight Systems


def _export(path: Path) -> None:
    from tools import fuzz

    path.write_bytes(fuzz._base())


def test_an_export_with_a_log_beside_it_is_refused(run, tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    _export(path)
    assert run("triage", path).exit_code == 0
    base = sqlite3.connect(path)
    base.execute("PRAGMA journal_mode=WAL")
    base.execute("PRAGMA wal_autocheckpoint=0")
    base.execute("INSERT INTO StringIds VALUES (7777, 'more')")
    base.commit()
    done = run("triage", path)
    assert (done.exit_code, done.stdout) == (2, "")
    first, second = done.stderr.splitlines()
    assert first.startswith(
        f"profkit: {path}: some of its rows are still in x.sqlite-wal next to it"
    )
    assert "wal_checkpoint" in second
    base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert run("triage", path).exit_code == 0  # an empty one holds nothing
    base.close()


def test_an_export_that_is_still_being_written_is_refused(run, tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    _export(path)
    base = sqlite3.connect(path, isolation_level=None)
    base.execute("PRAGMA cache_size=1")
    base.execute("BEGIN")
    for n in range(3000):
        base.execute("INSERT INTO StringIds VALUES (?, ?)", (9000 + n, "name" * 50))
    journal = path.with_name("x.sqlite-journal")
    hot = journal.read_bytes()
    done = run("triage", path)
    assert done.exit_code == 2
    assert "did not finish" in done.stderr.splitlines()[0]
    base.execute("ROLLBACK")
    base.close()
    assert run("triage", path).exit_code == 0
    journal.write_bytes(bytes(len(hot)))  # as PRAGMA journal_mode=PERSIST leaves one
    assert run("triage", path).exit_code == 0


# --- run records


def test_a_run_record_of_any_shape(tmp_path: Path) -> None:
    """What is of another kind in it is not known; what is no record is refused."""
    whole = ROOT / "artifacts" / "sdpa-cudnn.C.json"
    path = tmp_path / "x.json"
    tried = 0
    for text in take_part(_shapes(json.loads(whole.read_bytes())), one_of=3):
        path.write_text(text, "utf-8")
        tried += 1
        record, refusal = _try(read_record, path)
        if refusal:
            assert str(path) in refusal.message
        else:
            record.to_json()
    assert tried > 330


def test_the_others_are_what_json_can_hold() -> None:
    assert json.loads(_changed({"a": 1}, ("a",), GONE)) == {}
    assert io.StringIO(_changed({"a": 1}, ("a",), "DEEP")).read().count("[") == DEEP
