"""Reports  ->  one row per launch, NVIDIA's rule results, and the status of every file.

Launches are read all at once or some at a time. Nothing else imports ncu_report, and this late: its
library is 50 MB, takes six times the bytes of a report and never gives them back.
"""

from __future__ import annotations

import mmap
import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from profkit.errors import OUT_OF_MEMORY, ProfkitError, is_memory_limited
from profkit.files import (
    expand_home,
    get_file_size_or_zero,
    is_file,
    is_readable,
    is_utf8_path,
    make_temporary_folder,
    resolve_path,
    set_environment,
    write_bytes,
)
from profkit.records.paths import (
    NOT_THERE,
    expand_paths,
    is_csv_table,
    suggest_command_for_file,
    suggest_nearby_report,
)
from profkit.records.record import Record, get_declared_work, get_report_sha256, read_record_beside
from profkit.reports.container import (
    PART,
    ContainerVerdict,
    Status,
    check_report_bytes,
    split_report,
    sum_hashes_of_metric_names,
    write_readable_rest_of_report,
)
from profkit.reports.frame import (
    PLACES,
    Identity,
    LaunchBatch,
    ReportFile,
    ReportLaunches,
    Reports,
    RuleRow,
    drop_uncollected_columns,
    iterate_nvidia_advice,
    join_metric_values,
    read_catalogued_metrics,
    read_launch_identity,
    read_scalar_metrics,
)
from profkit.reports.isolated import (
    ROOM,
    choose_hint,
    count_processors_to_use,
    is_fault_of_file,
    run_in_child_processes,
)
from profkit.reports.metrics import evaluate_metrics

if TYPE_CHECKING:
    import pandas as pd

    from profkit.units import (
        ByteCount,
        ByteCountOrZero,
        Clause,
        ClauseOrEmpty,
        DaskClientOrExecutor,
        FilePath,
        KernelName,
        LaunchIndex,
        NcuAction,
        NcuReportContext,
    )

_SWELLS_READ = 6  # times the bytes of a report are taken by the library for it
_SPARE = 16 << 20  # bytes that it needs besides
_OF_A_PROCESS = 2 * PART  # bytes of a report for which another process reads
LARGE = 6 << 20  # a report with more bytes is read some launches at a time
_WITHOUT_LIBRARIES = os.path.dirname(__file__)  # a folder that has no library of NVIDIA's
# A launch with one metric: what the library makes at the first of all is made once for all children.
_SMALLEST = (
    b'NVR\0\2\0\0\0\x08\7\t\0\0\0"\3\n\1a\x10\1(-)\0\0\0\x08\1\x10\1\x18\1 \1*\x002\0:\0@\0J\0R\0Z\0'
    b"j\x0f\x08\0\x12\t\x19\0\0\0\0\0\0\xf0? \0z\0"
)


def prepare_child() -> None:
    """Do what a child does before its first file, for all the processes that it becomes."""
    import zstandard  # noqa: F401

    with _write_smallest_report() as path:
        for launches in open_report(path):
            for action in launches:
                action.metric_by_name("a")


@contextmanager
def _write_smallest_report() -> Iterator[str]:
    """Yield a file with the smallest report: in memory, where the system knows such files."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("smallest"), "wb", buffering=0) as file:
            file.write(_SMALLEST)
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with make_temporary_folder() as folder:
            path = os.path.join(folder, "smallest.ncu-rep")
            write_bytes(path, _SMALLEST)
            yield path


def iterate_actions(path: FilePath) -> Iterator[NcuAction]:
    """Yield the ncu_report actions of a file that is not damaged, over all its ranges."""
    if not get_file_size_or_zero(path):
        return
    are_none = True
    for launches in open_report(path):
        are_none = False
        yield from launches
    if are_none:
        require_memory_for_report(path)


def require_memory_for_report(path: FilePath) -> None:
    """Raise a MemoryError where memory is limited, and no longer holds what a report takes.

    Without memory, the library gives nothing of a report, as it does of a damaged one.
    """
    if not is_memory_limited():
        return
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS  # what each of the limits counts
    try:
        mmap.mmap(-1, _SWELLS_READ * get_file_size_or_zero(path) + _SPARE, flags=private).close()
    except OSError as error:
        raise MemoryError from error


def open_report(path: FilePath) -> NcuReportContext:
    """Return the ncu_report context of a file, without libnvperf_host.

    That library gives the units and descriptions of metrics, which nobody asks for here, and takes
    0.05 s and 115 MB of each process. It is not loaded when the folder given for it has none; without
    a folder the system is asked, which finds it wherever CUDA is installed.

    A packed report is unpacked by the library, into a file in the folder for temporary files that
    stays where the process is killed. It gets a folder of ours, which goes as soon as the file is open.
    """
    if not path.endswith(".ncu-repz"):
        return _load_report_with_library(path)
    with make_temporary_folder() as folder, set_environment("TMPDIR", os.fspath(folder)):
        return _load_report_with_library(path)


def _load_report_with_library(path: FilePath) -> NcuReportContext:
    import ncu_report

    try:
        return ncu_report._ncu_report.load_report(path, _WITHOUT_LIBRARIES)
    except (AttributeError, TypeError):  # another version of ncu_report
        return ncu_report.load_report(path)


@contextmanager
def prepare_for_library(
    path: FilePath, *, repaired: bool = False, metrics_only: bool = False
) -> Iterator[str]:
    """Yield a file that the library reads: the report, or a copy of what is left of it.

    A name that is no UTF-8 is none that the library takes: it gets another one.
    """
    is_whole = not (repaired or metrics_only)
    if is_whole and is_utf8_path(path):
        yield path
        return
    with make_temporary_folder() as folder:
        copy = os.path.join(folder, f"left{Path(path).suffix if is_whole else '.ncu-rep'}")
        if is_whole:
            os.symlink(resolve_path(path), copy)
        else:
            write_readable_rest_of_report(path, copy, metrics_only)
        yield copy


class ReadBatch(NamedTuple):
    """Launches of a report, and the kernels that the library first named: None of a damaged launch."""

    rows: LaunchBatch
    kernels: list[str | None]


def read_launch_batch_metrics_only(item: Sequence[Any]) -> LaunchBatch:
    """Return the launches of a report from only the metrics in a copy: see read_launch_batch."""
    copy, path, first = item
    with prepare_for_library(copy, metrics_only=True) as bare:
        return _collect_launch_batch(bare, path, first)


def read_launch_batch(item: Sequence[Any]) -> ReadBatch:
    """Return the launches of (a copy, the report, first number).

    The version of ncu is missing. The library gives nothing of a launch when a part of it is damaged,
    though not its names: then only the metrics are read.
    """
    rows = _collect_launch_batch(*item)
    kernels = [row[2] for row in rows.identity]
    if None in kernels:
        require_memory_for_report(item[0])
        rows = replace(read_launch_batch_metrics_only(item), rules=rows.rules)
    return ReadBatch(rows, kernels)


def _collect_launch_batch(copy: str, path: FilePath, first: LaunchIndex) -> LaunchBatch:
    record = read_record_beside(path)
    identity: list[Identity] = []
    values: array[float] = array("d")
    rules: list[RuleRow] = []
    counts = array("I")
    digests = array("I")
    for index, action in enumerate(iterate_actions(copy), first):
        names = action.metric_names()
        counts.append(len(names))
        digests.append(sum_hashes_of_metric_names(names))
        metrics = evaluate_metrics(read_catalogued_metrics(action, names))
        who = read_launch_identity(action, record, metrics["time"])
        identity.append((path, index, *who, None))
        values.extend(metrics.values())
        rules.extend((path, index, *rule) for rule in iterate_nvidia_advice(action.rule_results()))
    collected, columns = drop_uncollected_columns(values, len(identity))
    return LaunchBatch(identity, collected, rules, counts.tobytes(), digests.tobytes(), columns)


def join_and_judge_report(
    path: FilePath,
    verdict: ContainerVerdict,
    rows: Sequence[LaunchBatch],
    kernels: Sequence[KernelName | None],
) -> ReportLaunches:
    """Return what all rows of a report say together; kernels as the library gave them at first."""
    record = read_record_beside(path)
    counts = b"".join(some.counts for some in rows)
    if not verdict.is_named:
        rows = ()
    read = chain.from_iterable(some.identity for some in rows)
    identity = tuple((*row[:-1], verdict.ncu_version) for row in read)
    said: dict[int, float] = {}
    if identity:
        said = _index_declared_work(record, verdict.launches)
    values, columns = join_metric_values(rows, said)
    for place, number in said.items():
        values[columns.index(place)] = number
    rules = tuple(chain.from_iterable(some.rules for some in rows))
    status, message = _judge_file_status(verdict, kernels, counts, record)
    if status != "damaged" and (why := _describe_metric_name_mismatch(verdict, rows)):
        status = "damaged"
        message = why
    file = ReportFile(path, verdict.sha256, status, message, len(identity), verdict.ncu_version)
    return ReportLaunches(identity, values.tobytes(), rules, columns=columns, file=file)


def _index_declared_work(record: Record | None, launches: int) -> dict[int, float]:
    """Return place among the metrics -> what a run record says that a launch has to do."""
    declared = get_declared_work(record, launches)
    return {PLACES[name]: number for name, number in declared.items()}


def _describe_metric_name_mismatch(
    verdict: ContainerVerdict, rows: Sequence[LaunchBatch]
) -> ClauseOrEmpty:
    """Return what is damaged where the library names a launch's metrics as the file does not."""
    given = b"".join(some.names for some in rows)
    pairs = zip(array("I", verdict.names), array("I", given), strict=False)
    for launch, (ours, theirs) in enumerate(pairs):
        if ours != theirs:
            why = "Nsight Compute's library gives its metrics other names than the file"
            return f"launch {launch} is damaged: {why}"
    return ""


def read_large_reports(
    paths: Sequence[str], total_bytes: ByteCount, jobs: int | None = None
) -> list[ReportLaunches]:
    """Read reports of so many bytes together in children, some launches at a time.

    Memory does not grow with them. One set of children takes what all are split into.
    """
    with make_temporary_folder() as folder:
        split = _ReportSplitter(paths, os.fspath(folder))
        many = choose_process_count(total_bytes, jobs)
        copies = split.iterate_copies()
        answers = run_in_child_processes(
            f"{__name__}:read_launch_batch",
            copies,
            many,
            split.read_metrics_after_crash,
            remove_copy,
        )
    by_report: list[list[ReadBatch]] = [[] for _ in paths]
    for owner, answer in zip(split.owners, answers, strict=True):
        by_report[owner].append(answer)
    read = []
    for path, own in zip(paths, by_report, strict=True):
        if path in split.unread:
            read.append(_make_unread_report(path, split.unread[path]))
        else:
            read.append(_join_batches_of_report(path, split.checked[path], own))
    return read


class _ReportSplitter:
    """Reports that are read as copies of some of their launches each."""

    def __init__(self, paths: Sequence[str], folder: str) -> None:
        self.paths = paths
        self.folder = folder  # for the copies
        self.checked: dict[str, ContainerVerdict] = {}
        self.owners: list[int] = []  # of each copy, the number of its report
        self.unread: dict[str, str] = {}  # report -> why it is not read, which says nothing of it

    def iterate_copies(self) -> Iterator[list[Any]]:
        """Yield [copy, report, number of its first launch], while the children read."""
        for number, path in enumerate(self.paths):
            inside = os.path.join(self.folder, str(number))
            os.mkdir(inside)
            try:
                for copy, indices in split_report(path, inside):
                    self.owners.append(number)
                    yield [os.fspath(copy), path, indices[0]]
            except MemoryError:
                if not is_memory_limited():
                    raise
                self.unread[path] = OUT_OF_MEMORY
            else:
                self.checked[path] = check_report_bytes(path)  # known from the split

    def read_metrics_after_crash(self, item: Sequence[Any], why: Clause) -> ReadBatch:
        """Return the metrics of a copy that crashed the library, without names of its kernels."""
        if is_fault_of_file(why):
            rows = run_in_child_processes(
                f"{__name__}:read_launch_batch_metrics_only", [item], 1, self._note_why_unread
            )[0]
        else:
            rows = self._note_why_unread(item, why)
        return ReadBatch(rows, [None for _ in rows.identity])

    def _note_why_unread(self, item: Sequence[Any], why: Clause) -> LaunchBatch:
        if not is_fault_of_file(why):
            self.unread[item[1]] = why
        return LaunchBatch()


def _join_batches_of_report(
    path: FilePath, verdict: ContainerVerdict, pieces: Sequence[ReadBatch]
) -> ReportLaunches:
    """Return what the pieces of a report say together."""
    rows = []
    kernels = []
    for piece in pieces:
        rows.append(piece.rows)
        kernels += piece.kernels
    return join_and_judge_report(path, verdict, rows, kernels)


def remove_copy(item: Sequence[Any]) -> None:
    """Remove the copy that an item was read from."""
    os.unlink(item[0])


def read_raw_rows(item: Sequence[str]) -> list[dict[str, float | str]]:
    """Return raw name -> value of each launch of (a file that the library reads,)."""
    return [read_scalar_metrics(action) for action in iterate_actions(item[0])]


def choose_process_count(total_bytes: ByteCount, jobs: int | None = None) -> int:
    """Return how many processes read a report of so many bytes: at most `jobs`, or the processors."""
    return max(1, min(jobs or count_processors_to_use(), total_bytes // _OF_A_PROCESS))


def _judge_file_status(
    verdict: ContainerVerdict,
    kernels: Sequence[KernelName | None],
    counts: bytes,
    record: Record | None,
) -> tuple[Status, ClauseOrEmpty]:
    """Return the status of a file from its bytes, from what the library gave, and from its record."""
    if verdict.status == "damaged":
        return verdict.status, verdict.message
    if get_report_sha256(record) not in (None, verdict.sha256):
        return "damaged", "not the file that the run record next to it names (sha256 differs)"
    if len(kernels) != verdict.launches:
        return "damaged", f"{len(kernels)} of {verdict.launches} launches can be read"
    for index, kernel in enumerate(kernels):
        if kernel is None:
            return "damaged", f"launch {index} is damaged"
    held = array("I", verdict.metrics)
    for index, (ours, theirs) in enumerate(zip(held, array("I", counts), strict=True)):
        if ours != theirs:
            given = f"it holds {ours} metrics, and Nsight Compute's library gives {theirs}"
            return "damaged", f"launch {index} is damaged: {given}"
    return verdict.status, verdict.message


__all__ = ["ReportFile", "Reports", "expand_paths", "iterate_actions", "prepare_child"]

# Up to so many files of so many bytes are read here, while there is room for them in this process: a
# child takes 0.1 s to start. More are not: one might crash, and its memory is never given back.
FEW = 8
MUCH = 16 << 20
_SWELLS = 20  # times, at most, that a compressed report becomes larger


def load_reports(
    patterns: str | Path | Iterable[str | Path], client: DaskClientOrExecutor = None
) -> pd.DataFrame:
    """Do `pk.load`: read files, folders (recursively) and globs into one row per launch."""
    return read_reports_or_raise(expand_paths(patterns), client).launches


def read_reports_or_raise(
    paths: Sequence[str | Path], client: DaskClientOrExecutor = None
) -> Reports:
    """Read reports, or raise a ProfkitError where none of them can be read."""
    reports = read_report_files(paths, client=client)
    if all(file.status == "unreadable" for file in reports.files):
        more = ""
        if len(reports.files) > 1:
            more = f" (and {len(reports.files) - 1} more)"
        raise _make_unreadable_error(reports.files[0].path, reports.files[0].message + more)
    return reports


def read_report_files(
    paths: Iterable[str | Path],
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    client: DaskClientOrExecutor = None,
    *,
    lines_follow: bool = False,
) -> Reports:
    """Read reports; a file that is damaged or crashes the native library stops no other.

    `jobs`: child processes for many files; the number of processors when None. `progress` is called
    with (files done, files) after each file. `client`: a Dask client or an executor that reads them.
    `lines_follow`: their source lines will be asked for. Those of a file that no record vouches for
    are read in a fork, and then the launches are, too: each process that opens the library first
    takes 20 MB for it.
    """
    names = [os.fspath(path) for path in paths]
    known: dict[str, ReportLaunches] = {}
    for name, part in _read_small_first(names, jobs, client, lines_follow=lines_follow):
        known[name] = part
        if progress:
            progress(len(known), len(names))
    if known and all(part.file.message == OUT_OF_MEMORY for part in known.values()):
        raise _make_unreadable_error(names[0], OUT_OF_MEMORY)
    return Reports(tuple(known[name] for name in names))


def _read_small_first(
    names: Sequence[str],
    jobs: int | None,
    client: DaskClientOrExecutor | None,
    *,
    lines_follow: bool,
) -> Iterator[tuple[FilePath, ReportLaunches]]:
    """Yield each file with its part as it is done, and large ones together at the end."""
    # A file that is large even when it is packed is not walked first to learn that.
    large: dict[str, int] = {}
    for name in () if client else names:
        if _get_report_size(name) > LARGE:
            large[name] = estimate_unpacked_size(name)
    small = [name for name in dict.fromkeys(names) if name not in large]
    for name, part in _read_each_file(
        small, jobs, client, lines_follow and is_any_report_unrecorded(small)
    ):
        if isinstance(part, ContainerVerdict):
            large[name] = part.memory_weight
        else:
            yield name, part
    if large:
        yield from zip(large, read_large_reports([*large], sum(large.values()), jobs), strict=True)


def is_named_by_record(path: FilePath) -> bool:
    """Return whether the run record next to a report names these very bytes."""
    recorded = get_report_sha256(read_record_beside(path))
    return recorded is not None and recorded == check_report_bytes(path).sha256


def is_any_report_unrecorded(paths: Iterable[str]) -> bool:
    """Return whether no run record vouches for one of some reports."""
    return any(not is_csv_table(path) and not is_named_by_record(path) for path in paths)


def _read_each_file(
    names: list[str],
    jobs: int | None,
    client: DaskClientOrExecutor | None,
    is_read_in_forks: bool,
) -> Iterator[tuple[FilePath, ReportLaunches | ContainerVerdict]]:
    """Yield each file with its part as it is done; of a large one only what the check says.

    `is_read_in_forks`: in forks, however few there are.
    """
    size = sum(estimate_unpacked_size(name) for name in names if not is_csv_table(name))
    are_few = len(names) <= FEW and size <= MUCH and ROOM.may_read_here(size)
    if client is not None or not are_few or (is_read_in_forks and size):
        from profkit.reports.cluster import iterate_results_by_path

        most = min(jobs or count_processors_to_use(), len(names))
        yield from iterate_results_by_path(
            f"{__name__}:read_report_unless_large",
            names,
            f"{__name__}:recover_metrics_after_crash",
            client,
            most,
        )
    else:
        for name in names:
            yield name, _read_in_process_if_safe(name)


def _get_report_size(path: FilePath) -> ByteCountOrZero:
    """Return the size of a report's file in bytes; 0 where it cannot be read.

    0 of a compressed one, too, where memory is limited: a child unpacks it first, and may run out.
    """
    is_unpacked_in_child = path.endswith(".ncu-repz") and is_memory_limited()
    if is_csv_table(path) or is_unpacked_in_child:
        return 0
    try:
        if is_file(path) and is_readable(path):
            return get_file_size_or_zero(path)
        return 0
    except ProfkitError:
        return 0


def read_raw_frame(path: str | Path) -> pd.DataFrame:
    """Return every scalar metric of a report under ncu's own name and in ncu's own unit.

    Launches x raw names; numbers as float, texts as str, NaN where a launch has no value. A
    ProfkitError of a file that cannot be read at all.
    """
    import pandas as pd

    path = os.fspath(expand_home(path))
    frames = check_report_bytes(path)
    if frames.status == "unreadable" or not frames.is_named:
        raise _make_unreadable_error(path, frames.message)

    def raise_unreadable(_item: Any, why: Clause) -> None:
        raise _make_unreadable_error(path, why)

    if frames.memory_weight > LARGE or frames.risky or not _may_read_in_process(frames):
        with make_temporary_folder() as folder:
            parts = split_report(path, folder, metrics_only=frames.risky)
            copies = ([os.fspath(copy)] for copy, _ in parts)
            many = choose_process_count(frames.memory_weight)
            read = run_in_child_processes(
                f"{__name__}:read_raw_rows", copies, many, raise_unreadable, remove_copy
            )
        rows = [*chain.from_iterable(read)]
    else:
        with prepare_for_library(path, repaired=frames.wrong_suffix) as copy:
            rows = read_raw_rows([copy])
    return pd.DataFrame(rows, index=pd.RangeIndex(len(rows), name="launch"))


@contextmanager
def open_report_actions(path: str | Path) -> Iterator[Callable[[LaunchIndex], NcuAction]]:
    """Yield a function from the index of a launch to its ncu_report action, good within the `with`.

    A ProfkitError where the file cannot be read; from the function: where it has no such launch.
    """
    path = os.fspath(expand_home(path))
    frames = check_report_bytes(path)
    if frames.status == "unreadable" or not frames.is_named:
        raise _make_unreadable_error(path, frames.message)
    with prepare_for_library(
        path, repaired=frames.wrong_suffix, metrics_only=frames.risky
    ) as source:
        groups = []
        if frames.launches:
            groups = list(open_report(source))

        def find_action(index: LaunchIndex) -> NcuAction:
            left = index
            for group in groups:
                if 0 <= left < group.num_actions():
                    return group.action_by_idx(left)
                left -= group.num_actions()
            if 0 <= index < frames.launches:
                require_memory_for_report(source)
            raise ProfkitError(f"{path}: has no launch {index}", "launches are counted from 0")

        yield find_action


def read_report_unless_large(path: str) -> ReportLaunches | ContainerVerdict:
    """Read one report in this process; of a large one only what the check says.

    It is damaged, too, when the library gives less than the file holds, or when the file is not the
    one that the run record next to it names.
    """
    if is_csv_table(path):
        from profkit.reports.raw_counters import read_printed_table

        return read_printed_table(path)
    frames = check_report_bytes(path)
    if frames.status == "unreadable":
        return ReportLaunches(
            file=ReportFile(path, frames.sha256, "unreadable", frames.message, 0, None)
        )
    if frames.memory_weight > LARGE:
        return frames
    with prepare_for_library(
        path, repaired=frames.status == "damaged" or frames.wrong_suffix
    ) as copy:
        rows, kernels = read_launch_batch([copy, path, 0])
    return join_and_judge_report(path, frames, [rows], kernels)


def read_metrics_only(path: str) -> ReportLaunches:
    """Read only the metrics of a report: it crashed a child otherwise."""
    rows = read_launch_batch_metrics_only([path, path, 0])
    return join_and_judge_report(
        path, check_report_bytes(path), [rows], [row[2] for row in rows.identity]
    )


def estimate_unpacked_size(path: FilePath) -> ByteCountOrZero:
    """Return the bytes of a report when it is not compressed, about; 0 when it cannot be opened."""
    try:
        return get_file_size_or_zero(path) * (_SWELLS if path.endswith(".ncu-repz") else 1)
    except ProfkitError:
        return 0


def _read_in_process_if_safe(path: FilePath) -> ReportLaunches | ContainerVerdict:
    if is_csv_table(path):
        frames = None
    else:
        frames = check_report_bytes(path)
    # Without memory, the library takes its process with it.
    is_small = frames is not None and frames.memory_weight <= LARGE
    if (
        frames
        and is_small
        and (frames.risky or is_memory_limited() or not _may_read_in_process(frames))
    ):
        function_path = f"{__name__}:read_report_unless_large"
        parts: list[ReportLaunches] = run_in_child_processes(
            function_path, [path], 1, recover_metrics_after_crash
        )
        return parts[0]
    return read_report_unless_large(path)


def _may_read_in_process(verdict: ContainerVerdict) -> bool:
    """Return whether a report may be read in this process: where there is nothing to read, too."""
    return not verdict.launches or ROOM.reserve_read_here(verdict.size)


def recover_metrics_after_crash(path: str, why_child_died: str) -> ReportLaunches:
    """Read only the metrics of a file that a child died of, and say so."""
    if not is_fault_of_file(why_child_died):
        return _make_unread_report(path, why_child_died)
    part: ReportLaunches = run_in_child_processes(
        f"{__name__}:read_metrics_only", [path], 1, _make_unread_report
    )[0]
    if part.file.status in ("damaged", "unreadable"):
        return part
    return replace(part, file=replace(part.file, status="damaged", message=why_child_died))


def _make_unread_report(path: FilePath, why: Clause) -> ReportLaunches:
    if why == OUT_OF_MEMORY:  # walking it here may take as much
        return ReportLaunches(file=ReportFile(path, None, "unreadable", why, 0, None))
    frames = check_report_bytes(path)
    status: Status
    if is_fault_of_file(why):
        status = "damaged"
    else:
        status = "unreadable"
    return ReportLaunches(file=ReportFile(path, frames.sha256, status, why, 0, frames.ncu_version))


def _make_unreadable_error(path: FilePath, why: Clause) -> ProfkitError:
    if why.startswith(NOT_THERE):
        return ProfkitError(f"{path}: no such file", suggest_nearby_report(Path(path)))
    otherwise = "give a .ncu-rep file that ncu wrote"
    if other := suggest_command_for_file(path, "diagnose"):
        otherwise = f"it is {other.meaning}: {other.command}"
    hint = choose_hint(why, hint_about_file=otherwise)
    return ProfkitError(f"{path}: {why}", hint)
