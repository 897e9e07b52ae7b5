"""A report  ->  its launches as ncu_report gives them, all at once or some at a time.

The only module that imports ncu_report, and late: its library is 50 MB. It takes six times the bytes
of a report and never gives them back.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from profkit.files import temporary_folder
from profkit.records.record import Record, declared, record_beside, recorded_sha256
from profkit.reports import launch
from profkit.reports.container.container import Frames, Status, repair, split
from profkit.reports.frame import Identity, Part, ReportFile, Rows, RuleRow
from profkit.reports.isolated import isolated, processors
from profkit.reports.metrics import evaluate

# A report with more bytes is read some launches at a time, by so many children that they take no
# more than three times its bytes.
LARGE = 6 << 20
_CHILD = 400 << 20  # bytes that a child takes at most


def prepare_child() -> None:
    """What a child does before its first file, for all the processes that it becomes."""
    import ncu_report  # noqa: F401


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


def report_rows(
    path: str, copy: str, frames: Frames, record: Record | None, first: int = 0
) -> Rows:
    """The launches in a copy of a report, numbered from `first`."""
    work = declared(record, frames.launches)
    identity: list[Identity] = []
    values: array[float] = array("d")
    rules: list[RuleRow] = []
    for index, action in enumerate(actions(copy), first):
        metrics = evaluate(launch.raw_of_launch(action, action.metric_names())) | work
        who = launch.launch_identity(action, record, metrics["time"])
        identity.append((path, index, *who, frames.ncu_version))
        values.extend(metrics.values())
        rules.extend((path, index, *rule) for rule in launch.rules(action.rule_results()))
    return Rows(identity, values.tobytes(), rules)


def part_from(
    path: str,
    frames: Frames,
    rows: Sequence[Rows],
    kernels: Sequence[str | None],
    record: Record | None,
) -> Part:
    """What all rows of a report say together; kernels as the library gave them at first."""
    identity = tuple(row for some in rows for row in some.identity)
    status, message = _verdict(frames, kernels, record)
    file = ReportFile(path, frames.sha256, status, message, len(identity), frames.ncu_version)
    values = b"".join(some.values for some in rows)
    return Part(identity, values, tuple(row for some in rows for row in some.rules), file=file)


def read_large(path: str, frames: Frames) -> Part:
    """Read a report some launches at a time, in children: memory does not grow with it."""
    return read_each_large([(path, frames)])[0]


def read_each_large(files: Sequence[tuple[str, Frames]]) -> list[Part]:
    """The same of several: one set of children takes what all of them are split into."""
    owners: list[int] = []

    def copies(folder: str) -> Iterator[list[Any]]:
        for number, (path, frames) in enumerate(files):
            into = os.path.join(folder, str(number))
            os.mkdir(into)
            for copy, indices in split(path, into):
                owners.append(number)
                about = frames.launches, frames.ncu_version
                yield [os.fspath(copy), path, indices[0], *about]

    jobs = children_for(sum(frames.size for _, frames in files))
    with temporary_folder() as folder:
        answers = isolated(f"{__name__}:read_copy", copies(os.fspath(folder)), jobs, _died_in_copy)
    parts = []
    for number, (path, frames) in enumerate(files):
        own = [answer for owner, answer in zip(owners, answers, strict=True) if owner == number]
        kernels = [kernel for _, some in own for kernel in some]
        rows = [rows for rows, _ in own]
        parts.append(part_from(path, frames, rows, kernels, record_beside(path)))
    return parts


def read_copy(item: Sequence[Any]) -> tuple[Rows, list[str | None]]:
    """The launches of a file that split made, which goes, and the kernels that the library gave."""
    rows = _copied(item, item[0])
    kernels = [row[2] for row in rows.identity]
    if None in kernels:  # as in read_part
        rows = replace(bare_copy(item)[0], rules=rows.rules)
    os.unlink(item[0])
    return rows, kernels


def bare_copy(item: Sequence[Any]) -> tuple[Rows, list[str | None]]:
    """The same of only the metrics."""
    metrics_only = f"{item[0]}.metrics_only"
    repair(item[0], metrics_only, metrics_only=True)
    rows = _copied(item, metrics_only)
    return rows, [None for _ in rows.identity]


def _copied(item: Sequence[Any], copy: str) -> Rows:
    _, path, first, *about = item
    return report_rows(path, copy, Frames("ok", "", *about), record_beside(path), first)


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


def children_for(size: int) -> int:
    """Processes that may read a report of so many bytes at a time."""
    return max(1, min(processors(), 3 * size // _CHILD))


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
