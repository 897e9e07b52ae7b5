"""A folder of Parquet files  <->  the history: append only, atomic, safe with several writers.

    history/runs/<sha256>.parquet        one file an addition, named by what is in it; launches,
                                         reports and twins likewise
    s3://bucket/history/runs/...         in an object store, with fsspec and its package for it

The same rows make the same file, so adding twice adds nothing, two writers never meet, and git
merges by taking both sides' files. A file is there whole or not at all, and none is ever changed:
readers see only names that end in .parquet and begin with no dot. One that cannot be read is named
and left alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from fnmatch import fnmatchcase
from functools import cached_property
from io import BytesIO
from pathlib import Path, PurePosixPath
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, TypeVar

from profkit.errors import (
    ProfkitError,
    require_package,
    suggest_nearest_names,
    summarize_error_in_one_line,
)
from profkit.evidence import tables
from profkit.evidence.ablated import HistoryAblation, make_history_rows_of_ablation
from profkit.evidence.runs import Evidence, Run, read_unread_reports_of_runs
from profkit.evidence.tables import (
    HistoryLaunch,
    HistoryRow,
    HistoryRun,
    HistoryTwin,
)
from profkit.files import (
    ReadBudget,
    is_folder,
    list_folder_entries,
    measure_memory_left,
    measure_memory_taken,
    open_regular_file,
    write_bytes,
)
from profkit.records.paths import HISTORY
from profkit.records.record import get_report_sha256
from profkit.records.store import Read, compute_sha256_of_file
from profkit.reports.frame import list_frame_rows_as_dicts

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import pyarrow as pa
    import pyarrow.dataset as ds

    from profkit.units import (
        ByteCount,
        Clause,
        CommitHash,
        DuckDbConnection,
        FilePath,
        FileSystemOrNone,
        ParquetFile,
        Sha256,
        SqlText,
    )

    Named = str | Path | pd.DataFrame | pd.Series | Mapping[str, str] | list[str] | tuple[str, ...]

TableRow = TypeVar("TableRow", HistoryRun, HistoryTwin, HistoryAblation)
SECONDS_MOST = 120.0  # of processors, for a question: a busy machine takes longer by the clock
_LOOKS_APART = 0.1  # seconds between two looks at what a question has taken
MEMORY_MOST = 1_000_000_000  # bytes, for what DuckDB works with and for its answer
_BATCH = 4096  # rows of a file that are unpacked before their bytes are counted
ROWS_MOST = 100_000  # of an answer: the others are left out, and it says so
MEMORY_LEAST = 40 << 20  # bytes without which it answers nothing


@dataclass(frozen=True)
class AddedRows:
    """What an addition wrote: rows that were not there yet, and what could not be read."""

    runs: int
    launches: int
    problems: tuple[ProfkitError, ...] = ()


@dataclass(frozen=True)
class History:
    """What was measured over time: Parquet files in a folder, or below a URL."""

    root: Path | str  # the folder, or a URL that fsspec knows; it need not exist yet

    @cached_property
    def _open_store(self) -> tuple[FileSystemOrNone, FilePath]:
        """Return the file system of a URL, None for a folder of this machine, and the path in it."""
        url = str(self.root)
        if "://" not in url:
            return None, url
        with require_package("fsspec", f"{url}: a history there"):
            from fsspec.core import url_to_fs
        try:
            filesystem, path = url_to_fs(url)
        except ImportError as error:  # which package, it says itself
            raise ProfkitError(f"{url}: {error}", "install what it names") from error
        except ValueError as error:
            hint = "a folder, or a URL that fsspec knows: s3://bucket/history"
            raise ProfkitError(f"{url}: {error}", hint) from error
        return filesystem, path

    @contextmanager
    def _explain_unreachable(self) -> Iterator[None]:
        """Explain a place that cannot be reached or written."""
        try:
            yield
        except OSError as error:
            hint = "check that it exists and is writable"
            raise ProfkitError(
                f"{self.root}: {summarize_error_in_one_line(error)}", hint
            ) from error

    def _list_files(self, table: str) -> list[str]:
        """Return the table's files, sorted; none where there is no such folder yet."""
        store, path = self._open_store
        if store is None:
            files = []
            for file in list_folder_entries(Path(path) / table):
                if file.suffix == ".parquet" and file.name[0] != ".":
                    files.append(str(file))
            return files
        with self._explain_unreachable():
            store.invalidate_cache()
            return sorted(map(str, store.glob(f"{PurePosixPath(path) / table}/[!.]*.parquet")))

    def _write_parquet_file(self, table: str, name: str, content: bytes) -> None:
        store, path = self._open_store
        if store is None:
            write_bytes(Path(path) / table / f"{name}.parquet", content)
            return
        folder = PurePosixPath(path) / table
        part = f"{folder}/.{name}.{secrets.token_hex(4)}"
        with self._explain_unreachable():
            store.makedirs(str(folder), exist_ok=True)
            store.pipe_file(part, content)
            store.mv(part, f"{folder}/{name}.parquet")

    def read_table(self, table_name: str) -> Read[pa.Table]:
        """Return all rows of a table, and what is wrong with files that cannot be read.

        Each once: of the rows of one run record the one whose commit is surest.
        """
        every, problems = self.read_rows_of_all_files(table_name)
        best: dict[tuple[Any, ...], tuple[tuple[int, str], int]] = {}
        surest = []
        if table_name == "runs":
            surest = ["commit", "commit_from"]
        for n, row in enumerate(every.select([*tables.KEYS[table_name], *surest]).to_pylist()):
            key = tuple(row[column] for column in tables.KEYS[table_name])
            rank = tables.rank_commit_doubt(row.get("commit"), row.get("commit_from"))
            best[key] = min(best.get(key, (rank, n)), (rank, n))
        kept = sorted(n for _, n in best.values())
        return Read(every if len(kept) == len(every) else every.take(kept), problems)

    def read_rows_of_all_files(
        self, table_name: str, columns: Sequence[str] | None = None
    ) -> Read[pa.Table]:
        """Return the rows of a table's files, and what is wrong with those that cannot be read.

        Today's columns, or some of them: null where a file of another version has none.
        """
        with require_package("pyarrow", "the history"):
            import pyarrow as pa

        wanted = tables.make_arrow_schema_of_table(table_name)
        if columns is not None:
            wanted = pa.schema([wanted.field(column) for column in columns])
        parts = [wanted.empty_table()]
        problems = []
        budget = ReadBudget(0)  # of all files together
        for file in self._list_files(table_name):
            left = budget.left
            try:
                parts.append(self._read_wanted_columns(file, table_name, wanted, budget))
            except (OSError, ValueError, pa.ArrowException) as error:
                budget.left = left  # for the others
                problems.append(_make_read_error(file, error))
        return Read(pa.concat_tables(parts), problems)

    def _open_file(self, file: str) -> ParquetFile:
        """Return a file of a table, open: never a pipe with such a name, which would be waited for."""
        store, _ = self._open_store
        return open_regular_file(file) if store is None else BytesIO(store.cat_file(file))

    def _read_wanted_columns(
        self, file: str, name: str, wanted: pa.Schema, budget: ReadBudget | None = None
    ) -> pa.Table:
        """Return the wanted columns of a file, of their types; ValueError where it has others.

        Within a budget, of all files that are kept at the same time: a page of some bytes may say that
        it has millions of rows.
        """
        import pyarrow as pa

        with self._open_file(file) as opened:
            found = _read_parquet_file(opened, wanted.names, budget or ReadBudget(0))
        names = found.column_names
        columns = []
        for column in wanted:
            if column.name not in names:
                values = pa.nulls(len(found), column.type)
            else:
                values = found[column.name]
                if values.type != column.type:
                    raise ValueError(f"column {column.name} is {values.type}, not {column.type}")
            if column.name in tables.list_columns_never_null(name) and values.null_count:
                raise ValueError(f"column {column.name} is null in a row")
            columns.append(values)
        return pa.Table.from_arrays(columns, schema=wanted)

    def open_table_as_dataset(self, table_name: str) -> Read[ds.Dataset]:
        """Return a table as files that are read column by column when they are asked; and the bad ones.

        Today's columns: null where a file of another version has none.
        """
        with require_package("pyarrow", "the history"):
            import pyarrow as pa
            import pyarrow.dataset as ds

        wanted = tables.make_arrow_schema_of_table(table_name)
        good = []
        problems = []
        store, _ = self._open_store
        for file in self._list_files(table_name):
            try:
                self._read_wanted_columns(file, table_name, wanted)
                good.append(file)
            except (OSError, ValueError, pa.ArrowException) as error:
                problems.append(_make_read_error(file, error))
        if not good:
            return Read(ds.dataset(wanted.empty_table()), problems)
        dataset = ds.dataset(good, schema=wanted, format="parquet", filesystem=store)
        return Read(dataset, problems)

    def list_runs(self) -> Read[list[HistoryRun]]:
        """Return every run once, oldest first; those that do not say when come first."""
        table, problems = self.read_table("runs")
        rows = (_make_table_row(HistoryRun, plain) for plain in table.to_pylist())
        return Read(sorted(rows, key=lambda r: (r.made or "", r.subject)), problems)

    def select_runs_to_add(self, runs: Iterable[HistoryRun]) -> list[HistoryRun]:
        """Return those of some runs that are not here, or are here without the commit that they have."""
        commits = {}
        for run in self.list_runs().found:
            commits[run.record] = run.commit
        new = []
        for r in runs:
            if r.record not in commits or (r.commit and not commits[r.record]):
                new.append(r)
        return new

    def list_aa_runs(self) -> Read[list[HistoryTwin]]:
        """Return every A/A run once, in the order of their sessions' times."""
        table, problems = self.read_table("twins")
        rows = (_make_table_row(HistoryTwin, plain) for plain in table.to_pylist())
        return Read(sorted(rows, key=lambda r: (r.made or "", r.session)), problems)

    def list_ablations(self) -> Read[list[HistoryAblation]]:
        """Return what each cause of each run costs it, once."""
        table, problems = self.read_table("ablations")
        rows = [_make_table_row(HistoryAblation, plain) for plain in table.to_pylist()]
        return Read(rows, problems)

    def append_rows(self, rows: Iterable[HistoryRow]) -> None:
        """Write rows as one file a table; none where there are none."""
        by_table: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            name = next(name for name, kind in tables.TABLES.items() if isinstance(row, kind))
            by_table.setdefault(name, []).append(asdict(row))
        for name, listed in by_table.items():
            with require_package("pyarrow", "the history"):
                import pyarrow as pa
                import pyarrow.parquet as pq
            sha256 = hashlib.sha256(json.dumps(listed, sort_keys=True).encode()).hexdigest()
            schema = tables.make_arrow_schema_of_table(name).with_metadata(
                {"profkit": tables.SCHEMA}
            )
            into = BytesIO()
            pq.write_table(pa.Table.from_pylist(listed, schema=schema), into, compression="zstd")
            self._write_parquet_file(name, sha256, into.getvalue())


def _read_parquet_file(
    opened: ParquetFile, wanted_columns: Sequence[str], budget: ReadBudget
) -> pa.Table:
    """Return what a file of Parquet has of the wanted columns; ValueError where it has one twice."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    budget.raise_limit(opened.seek(0, os.SEEK_END), is_packed=True)
    opened.seek(0)
    page = pq.ParquetFile(opened)
    held = page.schema_arrow.names
    if len(set(held)) < len(held):
        raise ValueError("it has a column twice")
    names = [column for column in wanted_columns if column in held]
    unpacked = 0
    for n in range(page.metadata.num_row_groups):
        unpacked += page.metadata.row_group(n).total_byte_size
    budget.spend_rows(page.metadata.num_rows, len(names), unpacked)
    batches = []
    for batch in page.iter_batches(batch_size=_BATCH, columns=names):
        budget.spend_bytes(batch.nbytes)
        batches.append(batch)
    schema = pa.schema([page.schema_arrow.field(column) for column in names])
    return pa.Table.from_batches(batches, schema)


def _make_read_error(file: str, error: Exception) -> ProfkitError:
    return ProfkitError(
        f"{file}: not readable ({summarize_error_in_one_line(error)})", "restore or remove it"
    )


def add_artifacts_to_history(
    history: History,
    evidence: Evidence,
    commit: CommitHash | None = None,
    commit_from: str | None = None,
) -> AddedRows:
    """Add what a folder of artifacts holds and the history does not.

    `commit`: of the code, for records that do not say. `commit_from`: "option" or "environment".
    """
    diagnosed = set(
        history.read_rows_of_all_files("launches", ["report"]).found["report"].to_pylist()
    )
    found, problems = evidence.load_all_usable_runs(are_counters_needed=False)
    read_unread_reports_of_runs(
        run for run in found if run.record and get_report_sha256(run.record) not in diagnosed
    )
    runs: list[HistoryRun] = []
    launches: list[HistoryLaunch] = []
    ablations: list[HistoryAblation] = []
    for run in found:
        if run.record is None:
            continue
        try:
            row = tables.make_run_row(
                run.record, compute_sha256_of_file(run.record.path), commit, commit_from
            )
            launches += _diagnose_new_report(run, row.report or run.sha256, diagnosed)
        except ProfkitError as problem:  # then nothing of this run is added
            problems.append(problem)
            continue
        runs.append(row)
        ablations += make_history_rows_of_ablation(run.record, row.record)
    runs = history.select_runs_to_add(runs)
    new = {run.record for run in runs}
    history.append_rows([*runs, *launches, *(row for row in ablations if row.record in new)])
    return AddedRows(len(runs), len(launches), tuple(problems))


def _diagnose_new_report(
    run: Run, report: str, sha256s_diagnosed: set[Sha256]
) -> list[HistoryLaunch]:
    """Return the launches of a run's report; none of a report that is diagnosed already."""
    if not run.report or not report or report in sha256s_diagnosed:
        return []
    return list(tables.iterate_launch_rows(list_frame_rows_as_dicts(run.launches), report))


def _register_tables(connection: DuckDbConnection, history: History) -> list[ProfkitError]:
    """Make views of the history's tables; return what is wrong with files that cannot be read."""
    problems: list[ProfkitError] = []
    for name in tables.TABLES:
        files, wrong = history.open_table_as_dataset(name)
        problems += wrong
        connection.register(f"{name}_files", files)
        connection.execute(_write_sql_of_distinct_view(name))
    return problems


def query_history(history: History, sql: SqlText) -> Read[pd.DataFrame]:
    """Ask the tables `runs`, `launches`, `reports`, `twins` and `ablations` with SQL (DuckDB).

    Of an answer with more than ROWS_MOST rows, a few more than these are given.
    A ProfkitError where DuckDB is not installed, does not understand the question, or found no end
    of it within SECONDS_MOST and MEMORY_MOST.
    """
    with require_package("duckdb", "a question in SQL"):
        import duckdb
    most = _compute_query_memory_limit()
    # Nothing but the tables and this memory: no files, no network, no extensions.
    limits = {"temp_directory": "", "memory_limit": f"{most}B", **_make_thread_limit_setting()}
    connection = duckdb.connect(":memory:", config={"enable_external_access": "false", **limits})
    try:
        with _limit_processor_time(connection):
            problems = _register_tables(connection, history)
            with _limit_further_memory(4 * most):
                return Read(_run_query(connection, sql, most), problems)
    except duckdb.InterruptException as error:
        raise _make_unfinished_query_error(
            f"stopped after {SECONDS_MOST:.0f} s of processor time"
        ) from error
    except (duckdb.OutOfMemoryException, MemoryError, SystemError) as error:
        # SystemError: what DuckDB's bindings make of a MemoryError of numpy's.
        if measure_memory_left() is not None:
            hint = "allow more: --max-memory, or ulimit -v; or ask for less"
            raise ProfkitError("the query needs more memory than allowed", hint) from error
        raise _make_unfinished_query_error(
            f"needs more than {_describe_size(most)} of memory"
        ) from error
    except duckdb.Error as error:
        known = "; ".join(
            f"{name}: {', '.join(tables.make_arrow_schema_of_table(name).names)}"
            for name in tables.TABLES
        )
        raise ProfkitError(f"the question: {str(error).splitlines()[0]}", known) from error
    finally:
        connection.close()


def _compute_query_memory_limit() -> ByteCount:
    """Return how many bytes a question may take, and as many its answer."""
    with require_package("pyarrow", "the history"):
        import pyarrow.dataset
        import pyarrow.parquet  # noqa: F401 - what they take is taken before it is asked what is left

    left = measure_memory_left()
    if left is None:
        return MEMORY_MOST
    # DuckDB takes some for its tables and its thread before it counts.
    most = min(MEMORY_MOST, left // 4)
    if most < MEMORY_LEAST:
        more = (4 * MEMORY_LEAST - left) / 1e6
        hint = f"allow {more:.0f} MB more: --max-memory, or ulimit -v"
        raise ProfkitError("the SQL query ran out of memory", hint)
    return most


def _make_thread_limit_setting() -> dict[str, str]:
    """Return DuckDB's setting of one thread where memory is limited: each takes some for itself.

    Without memory for one of several, the others wait for it for ever.
    """
    if measure_memory_left() is None:
        return {}
    import pyarrow as pa

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    return {"threads": "1"}


def _describe_size(size_bytes: int) -> str:
    if size_bytes >= MEMORY_MOST:
        return f"{size_bytes / 1e9:g} GB"
    return f"{size_bytes / 1e6:.0f} MB"


def _run_query(
    connection: duckdb.DuckDBPyConnection, sql: SqlText, most_bytes: ByteCount
) -> pd.DataFrame:
    import pandas as pd

    if connection.execute(sql) is None:
        raise ProfkitError("the query is empty", "SELECT variant, median FROM runs")
    parts = [connection.fetch_df_chunk()]
    size = 0
    while len(parts[-1]) and sum(map(len, parts)) <= ROWS_MOST:
        size += int(parts[-1].memory_usage(deep=True).sum())
        if size > most_bytes:
            raise _make_unfinished_query_error(
                f"its answer is larger than {_describe_size(most_bytes)}"
            )
        parts.append(connection.fetch_df_chunk())
    if len(parts) > 1:
        return pd.concat(parts, ignore_index=True)
    return parts[0]


@contextmanager
def _limit_processor_time(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Interrupt DuckDB once this process, with all its threads, has taken SECONDS_MOST more.

    Again at each look: an interrupt that comes between two steps of a question is lost.
    """
    until = time.process_time() + SECONDS_MOST
    ended = Event()

    def interrupt_when_late() -> None:
        while not ended.wait(_LOOKS_APART):
            if time.process_time() > until:
                connection.interrupt()

    watch = Thread(target=interrupt_when_late, daemon=True)
    watch.start()
    try:
        yield
    finally:
        ended.set()
        watch.join()


@contextmanager
def _limit_further_memory(more_bytes: ByteCount) -> Iterator[None]:
    """Hold this process to so much memory more: DuckDB's own limit leaves out what one value takes."""
    import resource

    used = measure_memory_taken()
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if not used:
        yield
        return
    known = (x for x in (soft, hard) if x != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_DATA, (min([used + more_bytes, *known]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _make_unfinished_query_error(why: Clause) -> ProfkitError:
    return ProfkitError(f"the question: {why}", "ask for less: WHERE, GROUP BY or LIMIT")


def _write_sql_of_distinct_view(name: str) -> SqlText:
    """Return the view of a table in which a row that stands in several files stands once."""
    surest = f"ORDER BY list_position({list(tables.ORIGINS)}, commit_from) NULLS LAST, commit"
    keys = ", ".join(f'"{key}"' for key in tables.KEYS[name])
    window = f"PARTITION BY {keys} {surest if name == 'runs' else ''}"
    chosen = f"QUALIFY row_number() OVER ({window}) = 1"
    return f"CREATE VIEW {name} AS SELECT * FROM {name}_files {chosen}"  # noqa: S608 - our names


def _make_table_row(kind: type[TableRow], plain: dict[str, Any]) -> TableRow:
    """Return a row of a table, with its lists as tuples; a list that a file does not have is empty."""
    lists = {}
    for f in fields(kind):
        if f.default == ():
            lists[f.name] = tuple(plain[f.name] or ())
    return kind(**{**plain, **lists})


TAKES = (
    "give a history folder, a variant (champion, champion.B, stage*), a list of these, or a frame "
    "or row with a variant"
)


def history(
    given: Named = HISTORY, table: str = "runs", folder: str | Path = HISTORY
) -> pd.DataFrame:
    """Return the history as a frame.

    `given`: all of a history: its folder, or a URL that fsspec knows. Or of `folder` what is named:
    a variant, with its case or a pattern ("champion", "champion.B", "stage*"), a list of these, or
    a frame or row with `variant` and perhaps `case`. `table`: "runs", one row a measurement;
    "launches", one row a diagnosed launch; "reports", one row a file that was read; "twins", one
    row an A/A comparison; or "ablations", one row a cause that was removed. `folder`: the history
    that names are looked up in.

    Returns:
        A frame; times in seconds, clocks in Hz, null where not known. Of "runs": record, variant,
        case, problem, report, commit, commit_from, dirty, made, source, sass, correct, gpu, gpu_uuid,
        driver, nvcc, ncu, torch, session, samples, median, low, high (95 % interval), sm_clock. Of
        "launches": report, launch, kernel, variant, case, gpu, time, bound, limiter, cause, gain,
        findings. profkit.evidence.tables says what each is. Files that cannot be read are left
        out; `profkit history` names them.

    Raises:
        ProfkitError: There is no such table, folder or variant.
    """
    if table not in tables.TABLES:
        raise ProfkitError(f"no table {table!r}", f"one of {', '.join(tables.TABLES)}")
    text = ""
    if isinstance(given, str):
        text = given
    whole = isinstance(given, Path) or "/" in text or os.sep in text or is_folder(text)
    if whole:
        place = given
    else:
        place = folder
    frame: pd.DataFrame = _open_existing_history(place).read_table(table).found.to_pandas()
    if whole:
        return frame
    return _select_rows_of_subjects(frame, given, table)


def _open_existing_history(place: object) -> History:
    if not isinstance(place, str | Path):
        raise ProfkitError(f"{type(place).__name__}: no folder of a history", TAKES)
    if "://" not in str(place) and not is_folder(place):
        raise ProfkitError(
            f"{place}: not a history", "profkit history --add --history DIR begins one"
        )
    return History(place)


def _select_rows_of_subjects(frame: pd.DataFrame, given: object, table: str) -> pd.DataFrame:
    if "variant" not in frame:
        raise ProfkitError(f"the table {table} knows no variants", "pk.history(folder, table)")
    subjects = frame["variant"].astype(str) + "." + frame["case"].astype(str)
    wanted: set[str] = set()
    for name in _list_subject_names(given):
        fits = set()
        for x in subjects:
            if name in (x, x.partition(".")[0]) or fnmatchcase(x, name):
                fits.add(x)
        if not fits:
            known = sorted({*subjects, *frame["variant"].astype(str)})
            hint = suggest_nearest_names(name, known, "pk.history() has all of them")
            raise ProfkitError(f"{name}: not in the history", hint)
        wanted |= fits
    return frame[subjects.isin(wanted)].reset_index(drop=True)


def _list_subject_names(given: object) -> list[str]:
    """Return variants, with their case where there is one."""
    import pandas as pd

    if isinstance(given, str):
        return [given]
    if isinstance(given, pd.Series | Mapping):
        given = pd.DataFrame([dict(given)])
    if isinstance(given, pd.DataFrame) and "variant" in given:
        rows = given.reindex(columns=["variant", "case"]).dropna(subset=["variant"])
        pairs = rows.drop_duplicates().itertuples(index=False)
        names = []
        for v, c in pairs:
            names.append(v if pd.isna(c) else f"{v}.{c}")
        return names
    if isinstance(given, list | tuple) and given and all(isinstance(x, str) for x in given):
        return list(given)
    raise ProfkitError(f"{type(given).__name__}: does not name anything in a history", TAKES)
