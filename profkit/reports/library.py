"""A report  ->  its launches as ncu_report gives them, all at once or some at a time.

The only module that imports ncu_report, and late: its library is 50 MB. It takes six times the bytes
of a report and never gives them back.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import Any

from profkit.files import temporary_folder
from profkit.records.record import Record, declared, record_beside, recorded_sha256
from profkit.reports import launch
from profkit.reports.container.container import PART, Frames, Status, check, repair, split
from profkit.reports.frame import PLACES, Identity, Part, ReportFile, Rows, RuleRow
from profkit.reports.isolated import isolated, processors
from profkit.reports.metrics import evaluate

LARGE = 6 << 20  # a report with more bytes is read some launches at a time
# A launch with one metric. At the first that it gives, the library makes tables of 100 MB, in 60 ms.
_SMALLEST = (
    b'NVR\0\2\0\0\0\x08\7\t\0\0\0"\3\n\1a\x10\1(-)\0\0\0\x08\1\x10\1\x18\1 \1*\x002\0:\0@\0J\0R\0Z\0'
    b"j\x0f\x08\0\x12\t\x19\0\0\0\0\0\0\xf0? \0z\0"
)


def prepare_child() -> None:
    """Do what a child does before its first file, for all the processes that it becomes."""
    import zstandard  # noqa: F401

    with temporary_folder() as folder:
        path = os.path.join(folder, "smallest.ncu-rep")
        with open(path, "wb") as out:
            out.write(_SMALLEST)
        for action in actions(path):
            action.metric_by_name("a")


def actions(path: str) -> Iterator[Any]:
    """Yield the ncu_report actions of a file that is not damaged, over all its ranges."""
    if os.path.getsize(path):
        for launches in open_report(path):
            yield from launches


def open_report(path: str) -> Any:
    """Return the ncu_report context of a file, without libnvperf_host.

    That library gives the units and descriptions of metrics, which nobody asks for here, and takes
    0.1 s and 110 MB. It is not loaded when the folder given for it has none.
    """
    import ncu_report

    try:
        return ncu_report._ncu_report.load_report(path, "")
    except (AttributeError, TypeError):  # another version of ncu_report
        return ncu_report.load_report(path)


@contextmanager
def openable(path: str, *, repaired: bool = False, metrics_only: bool = False) -> Iterator[str]:
    """Yield a file that the library reads: the report, or a copy of what is left of it."""
    if not (repaired or metrics_only):
        yield path
        return
    with temporary_folder() as folder:
        copy = os.path.join(folder, "left.ncu-rep")
        repair(path, copy, metrics_only)
        yield copy


def metric_rows(item: Sequence[Any]) -> Rows:
    """Return the launches of a report from only the metrics in a copy: see read_rows."""
    copy, path, first = item
    with openable(copy, metrics_only=True) as bare:
        return _rows(bare, path, first)


def read_rows(item: Sequence[Any]) -> tuple[Rows, list[str | None]]:
    """Return launches and the kernels that the library gave, of (a copy, the report, first number).

    The version of ncu is missing. The library gives nothing of a launch when a part of it is damaged,
    though not its names: then only the metrics are read.
    """
    rows = _rows(*item)
    kernels = [row[2] for row in rows.identity]
    if None in kernels:
        rows = replace(metric_rows(item), rules=rows.rules)
    return rows, kernels


def _rows(copy: str, path: str, first: int) -> Rows:
    record = record_beside(path)
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
    """Return what all rows of a report say together; kernels as the library gave them at first."""
    record = record_beside(path)
    read = chain.from_iterable(some.identity for some in rows)
    identity = tuple((*row[:-1], frames.ncu_version) for row in read)
    values = array("d", b"".join(some.values for some in rows))
    for metric, number in declared(record, frames.launches).items() if identity else ():
        values[PLACES[metric]] = number
    rules = tuple(chain.from_iterable(some.rules for some in rows))
    status, message = _verdict(frames, kernels, record)
    file = ReportFile(path, frames.sha256, status, message, len(identity), frames.ncu_version)
    return Part(identity, values.tobytes(), rules, file=file)


def read_large(paths: Sequence[str], size: int, jobs: int | None = None) -> list[Part]:
    """Read reports of so many bytes together in children, some launches at a time.

    Memory does not grow with them. One set of children takes what all are split into.
    """
    checked: list[Frames] = []
    owners: list[int] = []  # of each copy, the number of its report

    def copies(folder: str) -> Iterator[list[Any]]:
        for number, path in enumerate(paths):
            inside = os.path.join(folder, str(number))
            os.mkdir(inside)
            for copy, indices in split(path, inside):
                owners.append(number)
                yield [os.fspath(copy), path, indices[0]]
            checked.append(check(path))  # known from the split

    with temporary_folder() as folder:
        items = copies(os.fspath(folder))
        many = children_for(size, jobs)
        answers = isolated(f"{__name__}:read_rows", items, many, _died, remove_copy)
    read = []
    for number, (path, frames) in enumerate(zip(paths, checked, strict=True)):
        own = [answer for owner, answer in zip(owners, answers, strict=True) if owner == number]
        kernels = [*chain.from_iterable(some for _, some in own)]
        read.append(part_from(path, frames, [rows for rows, _ in own], kernels))
    return read


def _died(item: Sequence[Any], _why: str) -> tuple[Rows, list[str | None]]:
    rows: Rows = isolated(f"{__name__}:metric_rows", [item], 1, lambda *_: Rows())[0]
    return rows, [None for _ in rows.identity]


def remove_copy(item: Sequence[Any]) -> None:
    """Remove a file that split made, the first of an item, when it was read."""
    os.unlink(item[0])


def raw_rows(item: Sequence[str]) -> list[dict[str, float | str]]:
    """Return raw name -> value of each launch of (a file that the library reads,)."""
    return [launch.scalars(action) for action in actions(item[0])]


def children_for(size: int, jobs: int | None = None) -> int:
    """Return how many processes read a report of so many bytes: at most `jobs`, or the processors."""
    return max(1, min(jobs or processors(), size // PART))


def _verdict(
    frames: Frames, kernels: Sequence[str | None], record: Record | None
) -> tuple[Status, str]:
    """Return the status of a file from its bytes, from what the library gave, and from its record."""
    if frames.status == "damaged":
        return frames.status, frames.message
    if recorded_sha256(record) not in (None, frames.sha256):
        return "damaged", "not the file that the run record next to it names (sha256 differs)"
    if len(kernels) != frames.launches:
        return "damaged", f"{len(kernels)} of {frames.launches} launches can be read"
    for index, kernel in enumerate(kernels):
        if kernel is None:
            return "damaged", f"launch {index} is damaged"
    return frames.status, frames.message
