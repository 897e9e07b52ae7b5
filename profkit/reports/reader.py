"""Reports  ->  one row per launch, NVIDIA's rule results, and the status of every file.

The only module that imports ncu_report, and late: its library is 50 MB.
"""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import isnan, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profkit.errors import ProfkitError
from profkit.reports.container import (
    Frames,
    Status,
    check,
    digest,
    record_beside,
    recorded_sha256,
)
from profkit.reports.metrics import CATALOGUE, IDENTITY, INSTANCED, RAW_NAMES, evaluate
from profkit.reports.paths import expand
from profkit.reports.workers import apart, processors

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "report", "launch", "kernel", "workload", "device", "cc", "grid", "block",
    "variant", "case", "nvtx", "status", "ncu_version",
)  # fmt: skip
RULE_COLUMNS = ("report", "launch", "rule", "title", "message", "speedup", "scope")
# Up to so many files a child process costs more than reading them (it takes 0.2 s to start).
FEW = 8
_ERROR = 4  # MsgType.ERROR: a rule that failed, its text a traceback, never advice
_STRING = 2  # IMetric.ValueKind_STRING
_SCOPES = {1: "local", 2: "global"}  # SpeedupType
_WORKLOADS = {0: "kernel", 1: "range", 2: "cmdlist", 3: "graph", 4: "subgrid"}  # WorkloadType
_LINK = re.compile(r"@(section|url|sass|source):[^@\n]*@")


@dataclass(frozen=True)
class ReportFile:
    """One file and what could be read of it.

    Attributes:
        path: As it was given.
        sha256: Of the file, None when it cannot be read.
        status: ok; empty (0 bytes, or whole without a launch); damaged (something is lost, the
            rest is in the frame); unreadable (missing, no permission, not a report).
        message: What and why, empty when ok.
        launches: Launches that were read.
        ncu_version: The Nsight Compute that wrote it, None when not known.
    """

    path: str
    sha256: str | None
    status: Status
    message: str
    launches: int
    ncu_version: str | None


@dataclass(frozen=True)
class Reports:
    """Everything that was read.

    Attributes:
        files: In the order in which they were given.
        launches: One row per launch: COLUMNS, then every catalogue metric (SI, float, NaN).
        rules: One row per launch and NVIDIA rule result: RULE_COLUMNS.
    """

    files: tuple[ReportFile, ...]
    launches: pd.DataFrame
    rules: pd.DataFrame


@dataclass(frozen=True)
class Part:
    """One file's share of the frame, small enough to come back from a child process."""

    file: ReportFile
    identity: tuple[tuple[Any, ...], ...] = ()
    values: bytes = b""  # float64, launches x catalogue, row by row
    rules: tuple[tuple[Any, ...], ...] = ()


def load(patterns: str | Path | Iterable[str | Path]) -> pd.DataFrame:
    """Read reports into one row per launch.

    Args:
        patterns: Files, folders (recursively) and globs.

    Returns:
        Columns as in Reports.launches; attrs["reports"] is the tuple of ReportFile, where every
        file that is not ok says why.

    Raises:
        ProfkitError: Nothing matches, or no file could be read at all.
    """
    reports = read(expand(patterns))
    if all(file.status == "unreadable" for file in reports.files):
        file = reports.files[0]
        more = f" (and {len(reports.files) - 1} more)" if len(reports.files) > 1 else ""
        raise ProfkitError(f"{file.path}: {file.message}{more}", "give a report that ncu wrote")
    return reports.launches


def read(
    paths: Iterable[str | Path],
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Reports:
    """Read reports; a file that is damaged or crashes the native library stops no other.

    Args:
        paths: Files; see expand for folders and globs.
        jobs: Child processes for many files; the number of processors when None.
        progress: Called with (files done, files) after each file.

    Returns:
        What could be read of every file.
    """
    names = [os.fspath(path) for path in paths]
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, len(names))

    if len(names) > FEW:
        parts = apart(f"{__name__}:read_part", names, jobs or processors(), _died, step)
    else:
        parts = []
        for name in names:
            parts.append(_read_here(name))
            step()
    return _assemble(parts)


def _read_here(path: str) -> Part:
    """Read one file in this process, unless it is damaged and might crash it."""
    frames = check(path)
    if frames.status == "damaged":
        return apart(f"{__name__}:read_part", [path], 1, _died)[0]  # type: ignore[no-any-return]
    return read_part(path, frames)


def _died(path: str, why: str) -> Part:
    message = f"Nsight Compute's library crashed reading it ({why})"
    return Part(ReportFile(path, digest(path), "damaged", message, 0, check(path).ncu_version))


def read_part(path: str, frames: Frames | None = None) -> Part:
    """Read one report in this process.

    Args:
        path: The file.
        frames: Its frame check when it was made already.

    Returns:
        Its launches, and its status: damaged too when the library gives fewer launches than the
        frames announce, or the file is not the one that the run record beside it names.
    """
    frames = frames or check(path)
    if frames.status == "unreadable":
        return Part(ReportFile(path, None, "unreadable", frames.message, 0, None))
    record = record_beside(path)
    identity: list[tuple[Any, ...]] = []
    values: array[float] = array("d")
    rules: list[tuple[Any, ...]] = []
    with ThreadPoolExecutor(1) as pool:  # hashing releases the GIL: it runs beside the reading
        hashing = pool.submit(digest, path)
        for index, action in enumerate(_actions(path, frames)):
            metrics = evaluate(_raw(action))
            who = _identity(action, record, metrics["time"])
            identity.append((path, index, *who, frames.ncu_version))
            values.extend(metrics.values())
            rules.extend((path, index, *rule) for rule in _rules(action))
        sha256 = hashing.result()
    status, message = _verdict(frames, len(identity), sha256, record)
    file = ReportFile(path, sha256, status, message, len(identity), frames.ncu_version)
    return Part(file, tuple(identity), values.tobytes(), tuple(rules))


def _verdict(
    frames: Frames, launches: int, sha256: str | None, record: Mapping[str, Any]
) -> tuple[Status, str]:
    if frames.status in ("ok", "empty") and recorded_sha256(record) not in (None, sha256):
        return "damaged", "not the file that the run record beside it names (sha256 differs)"
    if frames.status == "ok" and launches != frames.launches:
        return "damaged", f"{launches} of {frames.launches} launches could be read"
    return frames.status, frames.message


def raw(path: str | Path) -> pd.DataFrame:
    """Every scalar metric of a report under ncu's own name and in ncu's own unit.

    Args:
        path: One report.

    Returns:
        Launches x raw names; numbers as float, texts as str, NaN where a launch has no value.

    Raises:
        ProfkitError: The file cannot be read at all.
    """
    import pandas as pd

    frames = check(path)
    if frames.status == "unreadable":
        raise ProfkitError(f"{path}: {frames.message}", "give a report that ncu wrote")
    if frames.status == "damaged":
        rows = apart(f"{__name__}:raw_rows", [os.fspath(path)], 1, lambda _path, _why: [])[0]
    else:
        rows = raw_rows(os.fspath(path))
    return pd.DataFrame(rows, index=pd.RangeIndex(len(rows), name="launch"))


def raw_rows(path: str) -> list[dict[str, float | str]]:
    """Raw name -> value of each launch, of all metrics that have one."""
    return [
        {
            name: metric.as_string() if metric.kind() == _STRING else metric.as_double()
            for name in action.metric_names()
            if (metric := action.metric_by_name(name)) is not None and metric.has_value()
        }
        for action in _actions(path, check(path))
    ]


def _actions(path: str, frames: Frames) -> Iterator[Any]:
    """The ncu_report actions of a file, over all its ranges."""
    if frames.status == "empty":
        return
    import ncu_report

    for launches in ncu_report.load_report(path):
        yield from launches


def _raw(action: Any) -> dict[str, float]:
    """What the catalogue reads of one launch: raw name -> value, only where there is one."""
    values: dict[str, float] = {}
    by_name = action.metric_by_name
    for name in RAW_NAMES:
        metric = by_name(name)
        # Asked first, because value() of a metric without a value is 0.
        if metric is not None and metric.has_value():
            values[name] = metric.as_double()
    for name in INSTANCED:
        metric = by_name(name)
        if metric is not None and metric.has_correlation_ids():
            keys = metric.correlation_ids()
            for i in range(metric.num_instances()):
                values[f"{name}[{keys.as_string(i)}]"] = metric.as_double(i)
    return values


def _identity(action: Any, record: Mapping[str, Any], time: float) -> tuple[Any, ...]:
    """The identity columns of one launch, from kernel to status."""
    device, major, minor, *dims = (_value(action, name) for name in IDENTITY)
    cc = None if major is None or minor is None else f"{int(major)}.{int(minor)}"
    grid, block = _triple(dims[:3]), _triple(dims[3:])
    workload = _WORKLOADS.get(action.workload_type(), "unknown")
    nvtx = _nvtx(action)
    variant, case = _marked(nvtx) or (_text(record, "variant"), _text(record, "case"))
    # A launch that ncu gave up on has no launch__* metrics, and a duration that is NaN or absent.
    failed = isnan(time) and (grid is None or workload != "kernel")
    return (
        action.name(action.NameBase_DEMANGLED) or action.name(), workload, device, cc, grid, block,
        variant, case, "/".join(nvtx) or None, "failed" if failed else "ok",
    )  # fmt: skip


def _value(action: Any, name: str) -> Any:
    metric = action.metric_by_name(name)
    return metric.value() if metric is not None and metric.has_value() else None


def _triple(dims: Sequence[float | None]) -> tuple[int, int, int] | None:
    """Three launch dimensions as int: they are floats in reports of ncu up to 2024.2."""
    x, y, z = dims
    return None if x is None or y is None or z is None else (int(x), int(y), int(z))


def _text(record: Mapping[str, Any], key: str) -> str | None:
    value = record.get(key)
    return value if isinstance(value, str) else None


def _nvtx(action: Any) -> list[str]:
    """The push/pop ranges round a launch, outer to inner, of all domains."""
    state = action.nvtx_state()
    if state is None:
        return []
    domains = (state.domain_by_id(index) for index in state.domains())
    return [name for domain in domains for name in domain.push_pop_ranges()]


def _marked(nvtx: Iterable[str]) -> tuple[str, str | None] | None:
    """Variant and case from a range named profkit:<variant>:<case>, the innermost one."""
    for name in reversed(list(nvtx)):
        mark, _, rest = name.partition(":")
        if mark == "profkit" and rest:
            variant, _, case = rest.partition(":")
            return variant, case or None
    return None


def _rules(action: Any) -> Iterator[tuple[str, str, str, float, str]]:
    """NVIDIA's rule results of one launch: rule, title, message, speedup, scope."""
    for rule in action.rule_results():
        said = rule.rule_message() if rule.has_rule_message() else None
        if said is None or said["type"] == _ERROR:
            continue
        speedup, scope = nan, ""
        if rule.has_speedup_estimation():
            estimate = rule.speedup_estimation()
            speedup, scope = estimate["speedup"] / 100, _SCOPES.get(estimate["type"], "")
        title = said["title"] or rule.name()
        yield rule.rule_identifier(), title, _LINK.sub(_plain, said["message"]), speedup, scope


def _plain(link: re.Match[str]) -> str:
    """@section:Id:text@, @url:text:address@, @sass:pc:text@ and @source:file:line:text@ -> text."""
    kind, *parts = link[0].strip("@").split(":")
    return parts[0] if kind == "url" else parts[-1]


def _assemble(parts: Sequence[Part]) -> Reports:
    """One frame out of the parts of all files."""
    import numpy as np
    import pandas as pd

    files = tuple(part.file for part in parts)
    identity = pd.DataFrame(
        [row for part in parts for row in part.identity], columns=list(COLUMNS), dtype=object
    ).astype({"launch": "int64"})
    values = np.frombuffer(b"".join(part.values for part in parts))
    metrics = pd.DataFrame(values.reshape(len(identity), len(CATALOGUE)), columns=list(CATALOGUE))
    launches = pd.concat([identity, metrics], axis=1)
    launches.attrs["reports"] = files
    rules = pd.DataFrame(
        [row for part in parts for row in part.rules], columns=list(RULE_COLUMNS)
    ).astype({"speedup": "float64"})
    return Reports(files, launches, rules)
