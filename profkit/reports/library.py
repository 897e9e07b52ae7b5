"""A report  ->  its launches as ncu_report gives them, all at once or some at a time.

The only module that imports ncu_report, and late: its library is 50 MB. It takes six times the bytes
of a report and never gives them back.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from profkit.files import temporary_folder
from profkit.records.record import Record, declared, record_beside, recorded_sha256
from profkit.reports import launch
from profkit.reports.container.container import Frames, Status, repair, split
from profkit.reports.frame import PLACES, Identity, Part, ReportFile, Rows, RuleRow
from profkit.reports.isolated import isolated, processors
from profkit.reports.metrics import evaluate

# A report with more bytes is read some launches at a time, by a child for each so many bytes: to
# start one takes as long as reading 16 MB.
LARGE = 6 << 20
_CHILD = 24 << 20
# A launch with one metric. At the first that it gives, the library makes tables of 100 MB, in 60 ms.
_SMALLEST = (
    b'NVR\0\2\0\0\0\x08\7\t\0\0\0"\3\n\1a\x10\1(-)\0\0\0\x08\1\x10\1\x18\1 \1*\x002\0:\0@\0J\0R\0Z\0'
    b"j\x0f\x08\0\x12\t\x19\0\0\0\0\0\0\xf0? \0z\0"
)


def prepare_child() -> None:
    """What a child does before its first file, for all the processes that it becomes."""
    import zstandard  # noqa: F401

    with temporary_folder() as folder:
        path = os.path.join(folder, "smallest.ncu-rep")
        with open(path, "wb") as out:
            out.write(_SMALLEST)
        for action in actions(path):
            action.metric_by_name("a")


def actions(path: str) -> Iterator[Any]:
    """The ncu_report actions of a file that is not damaged, over all its ranges."""
    if os.path.getsize(path):
        for launches in open_report(path):
            yield from launches


def open_report(path: str) -> Any:
    """The ncu_report context of a file, without libnvperf_host.

    That library gives the units and descriptions of metrics, which nobody asks for here, and takes
    0.1 s and 110 MB. It is not loaded when the folder given for it has none.
    """
    import ncu_report

    try:
        return ncu_report._ncu_report.load_report(path, "")
    except (AttributeError, TypeError):  # another version of ncu_report
        return ncu_report.load_report(path)


def report_rows(path: str, copy: str, record: Record | None, first: int = 0) -> Rows:
    """The launches in a copy of a report, numbered from `first`; the version of ncu is missing."""
    identity: list[Identity] = []
    values: array[float] = array("d")
    rules: list[RuleRow] = []
    for index, action in enumerate(actions(copy), first):
        metrics = evaluate(launch.raw_of_launch(action, action.metric_names()))
        who = launch.launch_identity(action, record, metrics["time"])
        identity.append((path, index, *who, None))
        values.extend(metrics.values())
        rules.extend((path, index, *rule) for rule in launch.rules(action.rule_results()))
    return Rows(identity, values.tobytes(), rules)


def part_from(
    path: str, frames: Frames, rows: Sequence[Rows], kernels: Sequence[str | None]
) -> Part:
    """What all rows of a report say together; kernels as the library gave them at first."""
    record = record_beside(path)
    identity = tuple((*row[:-1], frames.ncu_version) for some in rows for row in some.identity)
    values = array("d", b"".join(some.values for some in rows))
    for metric, number in declared(record, frames.launches).items() if identity else ():
        values[PLACES[metric]] = number
    rules = tuple(row for some in rows for row in some.rules)
    status, message = _verdict(frames, kernels, record)
    file = ReportFile(path, frames.sha256, status, message, len(identity), frames.ncu_version)
    return Part(identity, values.tobytes(), rules, file=file)


def read_large(path: str, size: int) -> Part:
    """Read a report some launches at a time, in children: memory does not grow with it."""
    return read_each_large([path], size)[0]


def read_each_large(paths: Sequence[str], size: int, jobs: int | None = None) -> list[Part]:
    """The same of several, of so many bytes: one set of children takes what they are split into."""
    owners: list[int] = []
    checked: list[Frames] = []

    def parts(path: str, folder: str) -> Iterator[tuple[Path, tuple[int, ...]]]:
        os.mkdir(folder)
        checked.append((yield from split(path, folder)))

    def copies(folder: str) -> Iterator[list[Any]]:
        for number, path in enumerate(paths):
            for copy, indices in parts(path, os.path.join(folder, str(number))):
                owners.append(number)
                yield [os.fspath(copy), path, indices[0]]

    most = children_for(size, jobs)
    with temporary_folder() as folder:
        answers = isolated(f"{__name__}:read_copy", copies(os.fspath(folder)), most, _died_in_copy)
    read = []
    for number, (path, frames) in enumerate(zip(paths, checked, strict=True)):
        own = [answer for owner, answer in zip(owners, answers, strict=True) if owner == number]
        kernels = [kernel for _, some in own for kernel in some]
        read.append(part_from(path, frames, [rows for rows, _ in own], kernels))
    return read


def read_copy(item: Sequence[Any]) -> tuple[Rows, list[str | None]]:
    """The launches of a file that split made, which goes, and the kernels that the library gave."""
    copy, path, first = item
    rows = report_rows(path, copy, record_beside(path), first)
    kernels = [row[2] for row in rows.identity]
    if None in kernels:  # as in read_part
        rows = replace(bare_copy(item)[0], rules=rows.rules)
    os.unlink(copy)
    return rows, kernels


def bare_copy(item: Sequence[Any]) -> tuple[Rows, list[str | None]]:
    """The same of only the metrics."""
    copy, path, first = item
    metrics_only = f"{copy}.metrics_only"
    repair(copy, metrics_only, metrics_only=True)
    rows = report_rows(path, metrics_only, record_beside(path), first)
    return rows, [None for _ in rows.identity]


def _died_in_copy(item: Sequence[Any], _why: str) -> Any:
    return isolated(f"{__name__}:bare_copy", [item], 1, lambda *_: (Rows(), []))[0]


def raw_large(path: str, frames: Frames, lost: Any) -> list[dict[str, float | str]]:
    """Raw name -> value of each launch of a large report; `lost` is what apart calls `died`."""
    with temporary_folder() as folder:
        copies = (os.fspath(copy) for copy, _ in split(path, folder, metrics_only=frames.risky))
        rows_of_copies = isolated(f"{__name__}:raw_copy", copies, children_for(frames.size), lost)
    return [row for some in rows_of_copies for row in some]


def raw_copy(copy: str) -> list[dict[str, float | str]]:
    """The same of a file that split made, which goes."""
    rows = [launch.scalars(action) for action in actions(copy)]
    os.unlink(copy)
    return rows


def children_for(size: int, jobs: int | None = None) -> int:
    """Processes that read a report of so many bytes at a time: at most `jobs`, or the processors."""
    return max(1, min(jobs or processors(), size // _CHILD))


def _verdict(
    frames: Frames, kernels: Sequence[str | None], record: Record | None
) -> tuple[Status, str]:
    """The status of a file from its bytes, from what the library gave, and from its record."""
    if frames.status == "damaged":
        return frames.status, frames.message
    if recorded_sha256(record) not in (None, frames.sha256):
        return "damaged", "not the file that the run record beside it names (sha256 differs)"
    if len(kernels) != frames.launches:
        return "damaged", f"{len(kernels)} of {frames.launches} launches can be read"
    for index, kernel in enumerate(kernels):
        if kernel is None:
            return "damaged", f"launch {index} is damaged"
    return frames.status, frames.message
