"""One launch as ncu_report gives it  ->  its identity and raw values; what was read  ->  the frame."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from math import isnan, nan
from typing import TYPE_CHECKING, Any, NamedTuple

from profkit.reports.container import Status
from profkit.reports.metrics import CATALOGUE, IDENTITY, INSTANCED, RAW_NAMES

if TYPE_CHECKING:
    import pandas as pd

    from profkit.records.record import Record
    from profkit.units import (
        CaseName,
        MetricName,
        NcuAction,
        NcuMetricName,
        RangeName,
        SecondsOrNan,
        VariantName,
    )

Dims = tuple[int, int, int]
# What identify() gives, in this order.
_NAMES = "kernel workload device cc grid block variant case nvtx status"
IDENTIFIED = tuple(_NAMES.split())
TextOrNone = str | None
Size = Dims | None
Identified = tuple[
    TextOrNone, str, TextOrNone, TextOrNone, Size, Size, TextOrNone, TextOrNone, TextOrNone, str
]  # in this order

# ncu_report's enums as numbers, so that this file does not import 50 MB of library.
_ERROR = 4  # MsgType.ERROR: a rule that failed; its text is a traceback, never advice
_SCOPES = {1: "local", 2: "global"}  # SpeedupType
_WORKLOADS = {0: "kernel", 1: "range", 2: "cmdlist", 3: "graph", 4: "subgrid"}  # WorkloadType
_LINK = re.compile(r"@(?:section|url|sass|source):[^@\n]*@")


def read_catalogued_metrics(
    action: NcuAction, raw_names: Iterable[NcuMetricName]
) -> dict[NcuMetricName, float]:
    """Return raw name -> value, in ncu's unit, of what the catalogue reads of an IAction.

    `raw_names` are the metrics it has (metric_names()); instances are "name[key]".
    """
    values: dict[str, float] = {}
    for name in RAW_NAMES.intersection(raw_names):
        metric = action.metric_by_name(name)
        # Asked first, because value() of a metric without a value is 0.
        if metric is not None and metric.has_value():
            values[name] = metric.as_double()
    for name in INSTANCED:
        metric = action.metric_by_name(name)
        if metric is not None and metric.has_correlation_ids():
            keys = metric.correlation_ids()
            for i in range(metric.num_instances()):
                values[f"{name}[{keys.as_string(i)}]"] = metric.as_double(i)
    return values


def read_scalar_metrics(action: NcuAction) -> dict[NcuMetricName, float | str]:
    """Return raw name -> value of every metric of a launch that has one of its own."""
    values: dict[str, float | str] = {}
    for name in action.metric_names():
        value = _read_metric_value_or_none(action, name)
        if escape_non_utf8(name) != name or value is None:
            continue
        values[name] = value if isinstance(value, str) else float(value)
    return values


def read_launch_identity(
    action: NcuAction, record: Record | None, duration_s: SecondsOrNan
) -> Identified:
    """Return IDENTIFIED of an IAction, the run record next to its report, its duration in s or NaN."""
    kernel = action.name(action.NameBase_DEMANGLED) or action.name()
    if kernel:
        kernel = escape_non_utf8(kernel)
    ranges = _read_nvtx_ranges(action)
    variant_and_case = _parse_marked_range(ranges)
    if variant_and_case is None and record is not None:
        variant_and_case = record.variant, record.case
    return identify_launch(
        kernel,
        workload=_WORKLOADS.get(action.workload_type(), "unknown"),
        values={name: _read_metric_value_or_none(action, name) for name in IDENTITY},
        variant_and_case=variant_and_case or (None, None),
        ranges=ranges,
        duration_s=duration_s,
    )


def identify_launch(
    kernel: str | None,
    workload: str,
    values: Mapping[str, Any],
    variant_and_case: tuple[str | None, str | None],
    ranges: Sequence[RangeName],
    duration_s: SecondsOrNan,
) -> Identified:
    """Return IDENTIFIED from the raw values of IDENTITY, variant and case, NVTX ranges."""
    device, major, minor, *dims = (values.get(name) for name in IDENTITY)
    if not isinstance(device, str):
        device = None
    version = _read_whole_number(major, _MOST_VERSION), _read_whole_number(minor, _MOST_VERSION)
    cc = None if None in version else f"{version[0]}.{version[1]}"
    grid = _read_dimensions(dims[:3])
    block = _read_dimensions(dims[3:])
    # A launch that ncu gave up on has no launch__* metrics, and a duration that is NaN or absent.
    failed = isnan(duration_s) and (grid is None or workload != "kernel")
    return (
        kernel,
        workload,
        device,
        cc,
        grid,
        block,
        *variant_and_case,
        "/".join(ranges) or None,
        "failed" if failed else "ok",
    )


class NvidiaAdvice(NamedTuple):
    """What a rule of NVIDIA's says of a launch."""

    rule: str
    title: str
    message: str  # without links
    speedup: float  # as a share: 0.17 is ncu's 17 %; NaN when it gives none
    scope: str  # "local": of the part that the rule looks at; "global", or ""


def iterate_nvidia_advice(rule_results: Iterable[Any]) -> Iterator[NvidiaAdvice]:
    """Yield those of a launch's rule_results() that are advice."""
    for rule in rule_results:
        text = None
        if rule.has_rule_message():
            text = rule.rule_message()
        if text is None or text["type"] == _ERROR:
            continue
        speedup = nan
        scope = ""
        if rule.has_speedup_estimation():
            estimate = rule.speedup_estimation()
            speedup = estimate["speedup"] / 100
            scope = _SCOPES.get(estimate["type"], "")
        title = text["title"] or rule.name()
        message = _LINK.sub(_strip_link, text["message"])
        yield NvidiaAdvice(
            rule.rule_identifier(),
            escape_non_utf8(title),
            escape_non_utf8(message),
            speedup,
            scope,
        )


def _strip_link(link: re.Match[str]) -> str:
    """Return the text in @section:Id:text@, @url:text:address@, @sass:pc:text@ and @source:...@."""
    kind, *parts = link[0].strip("@").split(":")
    if kind == "url":
        return parts[0]
    return parts[-1]


def _read_metric_value_or_none(action: NcuAction, name: NcuMetricName) -> Any:
    metric = action.metric_by_name(name)
    value = None
    if metric is not None and metric.has_value():
        value = metric.value()
    if isinstance(value, str):
        return escape_non_utf8(value)
    return value


def escape_non_utf8(text: str) -> str:
    r"""Return a text of the library; bytes that are not UTF-8, which it gives as surrogates, as \xff."""
    if text.isascii():
        return text
    return text.encode(errors="surrogateescape").decode(errors="backslashreplace")


_MOST_VERSION = 999  # of a part of a compute capability
_MOST_BLOCKS = (1 << 31) - 1  # along a dimension of a grid: CUDA's limit


def _read_dimensions(dims: Sequence[Any]) -> Dims | None:
    """Return three launch dimensions as int: they are floats in reports of ncu up to 2024.2.

    None where one is none that CUDA launches: a text, 0, infinity.
    """
    x, y, z = (_read_whole_number(size, _MOST_BLOCKS) for size in dims)
    if x is None or y is None or z is None or 0 in (x, y, z):
        return None
    return x, y, z


def _read_whole_number(value: Any, largest: int) -> int | None:
    """Return a number as int; None for anything but a whole number from 0 to the most."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= largest or value != int(value):
        return None
    return int(value)


def _read_nvtx_ranges(action: NcuAction) -> list[RangeName]:
    """Return the push/pop ranges round a launch, outer to inner, of all domains."""
    state = action.nvtx_state()
    if state is None:
        return []
    ranges = (state.domain_by_id(index).push_pop_ranges() for index in state.domains())
    return [escape_non_utf8(name) for name in chain.from_iterable(ranges)]


def _parse_marked_range(ranges: Sequence[RangeName]) -> tuple[VariantName, CaseName | None] | None:
    """Return variant and case from a range named profkit:<variant>:<case>, the innermost one."""
    for name in reversed(ranges):
        mark, _, rest = name.partition(":")
        if mark == "profkit" and rest:
            variant, _, case = rest.partition(":")
            return variant, case or None
    return None


COLUMNS = ("report", "launch", *IDENTIFIED, "ncu_version")
# A row's share of them: Identified in between.
Identity = tuple[
    str,
    int,
    TextOrNone,
    str,
    TextOrNone,
    TextOrNone,
    Size,
    Size,
    TextOrNone,
    TextOrNone,
    TextOrNone,
    str,
    TextOrNone,
]
RULE_COLUMNS = ("report", "launch", "rule", "title", "message", "speedup", "scope")
RuleRow = tuple[str, int, str, str, str, float, str]


@dataclass(frozen=True)
class ReportFile:
    """A report that was asked for, and how much of it could be read."""

    path: str  # as the caller named it
    sha256: str | None  # of the file, None when it cannot be read, or much of it is behind damage
    # empty (0 bytes, or whole without a launch); damaged (something is lost, the rest is in the frame);
    # unreadable (missing, no permission, not a report).
    status: Status
    message: str  # what and why; of an ok one what ncu left out, mostly nothing
    launches: int  # that were read
    ncu_version: str | None  # the Nsight Compute that wrote it, None when not known


PLACES = {name: n for n, name in enumerate(CATALOGUE)}


@dataclass(frozen=True)
class LaunchBatch:
    """Some launches' share of the frame, small enough to come back from a child process."""

    identity: Sequence[Identity] = ()
    values: bytes = b""  # float64, launches x columns, row by row
    rules: Sequence[RuleRow] = ()
    counts: bytes = b""  # array of u32: how many metrics the library gave of each launch
    names: bytes = b""  # array of u32: what sum_hashes_of_metric_names says of their names
    columns: Sequence[int] = tuple(PLACES.values())  # the places of the values' metrics, ascending

    def __post_init__(self) -> None:
        """Refuse what no frame can be made of: a child's answer may be anything of these types."""
        numbers = [row[1] for row in self.identity] + [row[1] for row in self.rules]
        if len(self.values) != 8 * len(self.identity) * len(self.columns):
            raise ValueError("other values than launches")
        known = set(self.columns).intersection(PLACES.values())
        if list(self.columns) != sorted(known):
            raise ValueError("its columns are none")
        if numbers and not 0 <= min(numbers) <= max(numbers) < 1 << 32:
            raise ValueError("a launch's number is none")


@dataclass(frozen=True)
class ReportLaunches(LaunchBatch):
    """One report's launches, as rows of the frame."""

    file: ReportFile = field(kw_only=True)

    def iterate_launches(self) -> Iterator[dict[str, Any]]:
        """Yield each launch as one row, column -> value, metrics in SI units."""
        for identity, metrics in zip(self.identity, self.iterate_metric_rows(), strict=True):
            yield dict(zip(COLUMNS, identity, strict=True)) | metrics.to_dict()

    def iterate_metric_rows(self) -> Iterator[MetricRow]:
        """Yield each launch's metrics, which share one array."""
        values = memoryview(self.values).cast("d")
        names = list(CATALOGUE)
        offsets = {names[place]: n for n, place in enumerate(self.columns)}
        for launch in range(len(self.identity)):
            yield MetricRow(values, launch * len(offsets), offsets)


def drop_uncollected_columns(
    values: array[float], launch_count: int
) -> tuple[bytes, tuple[int, ...]]:
    """Return the values of launches x catalogue without the metrics that no launch has, and columns.

    A report of ten thousand launches with a few metrics each would take a hundred times its bytes.
    """
    columns = []
    for place in PLACES.values():
        if not all(map(isnan, values[place :: len(PLACES)])):
            columns.append(place)
    kept = array("d")
    for launch in range(launch_count):
        row = values[launch * len(PLACES) : (launch + 1) * len(PLACES)]
        kept.extend([row[place] for place in columns])
    return kept.tobytes(), tuple(columns)


def join_metric_values(
    parts: Sequence[LaunchBatch], more_columns: Iterable[int]
) -> tuple[array[float], tuple[int, ...]]:
    """Return the values of all parts together, and their columns: these of each part, and more."""
    all_columns = set(more_columns)
    for part in parts:
        all_columns.update(part.columns)
    columns = tuple(sorted(all_columns))
    joined = array("d")
    for part in parts:
        values = array("d", part.values)
        if tuple(part.columns) == columns:
            joined.extend(values)
            continue
        width = len(part.columns)
        for launch in range(len(part.identity)):
            own = dict(zip(part.columns, values[launch * width :], strict=False))
            joined.extend([own.get(place, nan) for place in columns])
    return joined, columns


class MetricRow(Mapping[str, float]):
    """The metrics of one launch by their short names, NaN where not collected.

    A tenth of a dict, which counts where there are a hundred thousand launches.
    """

    __slots__ = ("_offsets", "_start", "_values")

    def __init__(self, values: memoryview[float], start: int, offsets: Mapping[str, int]) -> None:
        """Take a launch's values of those of all, and where each metric's is; others have none."""
        self._values = values
        self._start = start
        self._offsets = offsets

    def __getitem__(self, name: str) -> float:
        offset = self._offsets.get(name)
        if offset is not None:
            return self._values[self._start + offset]
        if name in PLACES:
            return nan
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(CATALOGUE)

    def __len__(self) -> int:
        return len(CATALOGUE)

    def to_dict(self) -> dict[MetricName, float]:
        """Return the same as a dict, which is faster where all are looked at."""
        metrics = dict.fromkeys(CATALOGUE, nan)
        own = self._values[self._start : self._start + len(self._offsets)]
        metrics.update(zip(self._offsets, own, strict=True))
        return metrics


@dataclass(frozen=True)
class Reports:
    """Everything that was read. The frames are made when they are asked for: pandas takes 0.2 s."""

    parts: tuple[ReportLaunches, ...]  # one per file, in the order of the paths

    @property
    def files(self) -> tuple[ReportFile, ...]:
        """Return the reports with their status, in the order that they were asked for."""
        return tuple(part.file for part in self.parts)

    @cached_property
    def launches(self) -> pd.DataFrame:
        """Return one row per launch: COLUMNS, then every catalogue metric (SI, float, NaN)."""
        import numpy as np
        import pandas as pd

        rows = [*chain.from_iterable(part.identity for part in self.parts)]
        launches = pd.DataFrame(rows, columns=list(COLUMNS), dtype=object)
        # astype() of one column would take longer than all the rest.
        launches["launch"] = np.array([row[1] for row in rows], dtype=np.int64)
        values = np.full((len(rows), len(CATALOGUE)), nan)
        first = 0
        for part in self.parts:
            own = np.frombuffer(part.values).reshape(len(part.identity), len(part.columns))
            values[first : first + len(own), list(part.columns)] = own
            first += len(own)
        metrics = pd.DataFrame(values, columns=list(CATALOGUE), copy=False)
        launches = pd.concat([launches, metrics], axis=1)
        launches.attrs["reports"] = self.files
        return launches

    @cached_property
    def rules(self) -> pd.DataFrame:
        """Return one row per launch and NVIDIA rule result: RULE_COLUMNS; speedup is a share."""
        import numpy as np
        import pandas as pd

        rows = [*chain.from_iterable(part.rules for part in self.parts)]
        rules = pd.DataFrame(rows, columns=list(RULE_COLUMNS), dtype=object)
        rules["launch"] = np.array([row[1] for row in rows], dtype=np.int64)
        rules["speedup"] = np.array([row[5] for row in rows], dtype=np.float64)
        return rules


def drop_file_status_attribute(launches: pd.DataFrame) -> pd.DataFrame:
    """Return the frame without the files' status, which pandas copies with every column looked at."""
    launches = launches.copy(deep=False)
    launches.attrs = {}
    return launches


class FrameRow(Mapping[str, Any]):
    """A row of a frame as a mapping that copies nothing: as a dict each takes 15 kB."""

    __slots__ = ("_at", "_columns")

    def __init__(self, columns: Mapping[str, Any], at: int) -> None:
        """Take the columns by their names, each as what gives plain values, and the row's place."""
        self._columns = columns
        self._at = at

    def __getitem__(self, name: str) -> Any:
        return self._columns[name][self._at]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def make_row_views(launches: pd.DataFrame) -> list[FrameRow]:
    """Return the rows of a frame that is large, or of which little is looked at."""
    columns: dict[str, Any] = {}
    for at, name in enumerate(launches.columns):
        held = launches.iloc[:, at]
        if str(held.dtype) in ("float64", "int64"):
            numbers: Any = held.to_numpy()
            columns[str(name)] = memoryview(numbers)  # gives numbers of Python, not of numpy
        else:
            columns[str(name)] = held.tolist()
    return [FrameRow(columns, at) for at in range(len(launches))]


def list_frame_rows_as_dicts(launches: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows as plain mappings; to_dict takes twenty times as long, a column at a time."""
    names = [str(name) for name in launches.columns]
    rows = launches.astype(object).to_numpy().tolist()
    return [dict(zip(names, row, strict=True)) for row in rows]
