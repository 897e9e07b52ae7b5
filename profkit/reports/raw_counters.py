"""Counters under Nsight Compute's own names, as mappings or as a printed table  ->  our frame."""

from __future__ import annotations

import csv
import hashlib
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import isfinite
from numbers import Real
from typing import TYPE_CHECKING, Any

from profkit.errors import ProfkitError
from profkit.files import read_bytes
from profkit.reports.container import Status
from profkit.reports.frame import (
    Identity,
    Part,
    ReportFile,
    Reports,
    clean,
    identify,
    keep_collected,
)
from profkit.reports.metrics import IDENTITY, INSTANCED, RAW_NAMES, evaluate
from profkit.reports.metrics.derive import scale

if TYPE_CHECKING:
    import pandas as pd

TABLE_MOST = 256 << 20  # bytes of a table that ncu printed: 10,000 launches of a full set
# Keys of a row that are no counters: what the launch is called.
NAMES = ("kernel", "variant", "case")
DEVICE, MAJOR, MINOR = IDENTITY[:3]
_KERNEL, _LAUNCH, _LONG = "Kernel Name", "ID", ("Metric Name", "Metric Unit", "Metric Value")
_SHAPES = {"Grid Size": IDENTITY[3:6], "Block Size": IDENTITY[6:9]}
_POWERS = {"n": -9, "u": -6, "m": -3, "k": 3, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15}
# Units that come with a prefix; any other word is what is counted (inst, sector, warp).
_SCALED = frozenset({"byte", "b", "second", "s", "hz", "cycle", "op"})
_NUMBER = re.compile(r"[-+]?[\d.,]+(?:[eE][-+]?\d+)?")
_INSTANCE = re.compile(r"\s*([^:;()]+):\s*([^;()]+?)\s*(?:;|$)")
# In these a comma is the decimal mark: two points, a comma behind a point, or not before 3 digits.
_EUROPEAN = re.compile(
    r"\d+\.\d{3}(?:\.\d{3})+(?:,\d+)?|\d+(?:\.\d{3})+,\d+|\d+,(?:\d{1,2}|\d{4,})"
)
_DIMENSIONS = re.compile(r"\(?\s*(\d{1,10}),\s*(\d{1,10}),\s*(\d{1,10})\s*\)?", re.ASCII)
_VERSION = re.compile(r"(\d{1,3})\.(\d{1,3})", re.ASCII)


def frame_from_raw(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Do `pk.from_raw`: return counters from anywhere, in the order of the rows, all metrics in SI.

    Names that profkit does not read are ignored.
    """
    launches = list(rows)
    part = part_from_raw(launches, ReportFile("", None, "ok", "", len(launches), None))
    if launches and not any(_read_counters(row, n) for n, row in enumerate(launches)):
        raise ProfkitError(
            "from_raw: none of the rows has a counter that profkit reads",
            "give Nsight Compute's own names, for example gpu__time_duration.sum",
        )
    return Reports((part,)).launches


def part_from_raw(rows: Iterable[Mapping[str, Any]], file: ReportFile) -> Part:
    """Return the same as one file's share of a frame."""
    identity: list[Identity] = []
    values: array[float] = array("d")
    for index, row in enumerate(rows):
        metrics = evaluate(_read_counters(row, index))
        kernel, variant, case = (_read_text(row, key, index) for key in NAMES)
        _read_text(row, IDENTITY[0], index)
        known = {}
        for name in IDENTITY:
            if row.get(name) not in (None, ""):
                known[name] = row[name]
        who = identify(kernel, "kernel", known, (variant, case), (), metrics["time"])
        identity.append((file.path, index, *who, file.ncu_version))
        values.extend(metrics.values())
    collected, columns = keep_collected(values, len(identity))
    return Part(tuple(identity), collected, columns=columns, file=file)


def _read_counters(row: Mapping[str, Any], index: int) -> dict[str, float]:
    if not isinstance(row, Mapping):
        raise ProfkitError(
            f"from_raw: row {index} is a {type(row).__name__}, not a mapping",
            "give one mapping of metric names to values for each launch",
        )
    read = {
        k: v
        for k, v in row.items()
        if v is not None and (str(k) in RAW_NAMES or str(k).partition("[")[0] in INSTANCED)
    }
    for name, value in read.items():
        if not isinstance(value, Real):
            raise ProfkitError(
                f"from_raw: row {index}: {name} is {value!r}, not a number",
                "give values as Nsight Compute stores them; None for what was not collected",
            )
    return {str(k): float(v) for k, v in read.items() if _is_finite(v)}


def _is_finite(value: Any) -> bool:
    try:
        return isfinite(value)
    except OverflowError:  # a whole number that no float holds
        return False


def _read_text(row: Mapping[str, Any], key: str, index: int) -> str | None:
    value = row.get(key)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise ProfkitError(f"from_raw: row {index}: {key} is {value!r}, not a text")
    return clean(value)


def read_table(path: str) -> Part:
    """Return what `ncu --csv` printed as one file's share of a frame."""
    content = None
    rows: list[dict[str, Any]] = []
    lost = ""
    status: Status = "unreadable"
    try:
        content = read_bytes(path, TABLE_MOST)
        if content.strip():
            rows, lost = read_printed(content.decode("utf-8-sig", "backslashreplace"), path)
        status = "damaged" if lost else "ok" if rows else "empty"
        nothing = "a header without launches" if content.strip() else "0 bytes"
        message = lost or ("" if rows else nothing)
    except OSError as error:
        message = error.strerror or "cannot be read"
    except ProfkitError as error:
        message = f"{error.message.removeprefix(f'{path}: ')}: {error.hint}"
    if content is None:
        sha256 = None
    else:
        sha256 = hashlib.sha256(content).hexdigest()
    return part_from_raw(rows, ReportFile(path, sha256, status, message, len(rows), None))


def table_rows(text: str, name: str) -> list[dict[str, Any]]:
    """Return the launches that read_printed finds."""
    return read_printed(text, name)[0]


def read_printed(text: str, name: str) -> tuple[list[dict[str, Any]], str]:
    """Return a mapping a launch, as `from_raw` takes it, of what `ncu --csv --page raw` printed.

    And what is lost of it, mostly nothing: a row that is cut, or has more cells than the header.

    Two layouts. Wide: a launch a row, a column a metric, the units in the second row. Long: a metric a
    row (`--csv --metrics ...`, and the details page with `--print-metric-name name`). Versions add and
    drop columns in front, print units scaled (Gbyte/s) or not (`--print-units base`), numbers by the
    locale of the machine, and other programs' lines in between. `name` is the table's in an error: it is
    no such table, or a page without metric names.
    """
    head, rows, lost = _read_rows(text, name)
    if set(_LONG) <= set(head):
        return list(_read_long(head, rows, name)), lost
    if not any(_is_metric(column) for column in head):
        raise ProfkitError(f"{name}: no column is a metric", _HOW)
    return list(_read_wide(head, rows)), lost


_HOW = "print it with: ncu --import REPORT --csv --page raw > FILE.csv"


def _read_rows(text: str, name: str) -> tuple[list[str], list[list[str]], str]:
    """Return header, rows and what is lost, without the lines of ncu and the program round them."""
    lines = [line for line in text.splitlines() if not line.startswith("==")]
    try:
        rows = list(csv.reader(lines))
    except csv.Error as error:  # a field longer than anything that ncu prints
        raise ProfkitError(f"{name}: no table that can be read: {error}", _HOW) from error
    at = next((n for n, row in enumerate(rows) if _LAUNCH in row[:1] and _KERNEL in row), None)
    if at is None:
        raise ProfkitError(f"{name}: has no line with {_LAUNCH} and {_KERNEL}", _HOW)
    head = rows[at]
    below = rows[at + 1 :]
    _verify_columns(head, below, name)
    kept, lost = _keep_whole(head, below)
    is_quoted = any(line.startswith(f'"{_LAUNCH}"') for line in lines)
    if _is_cut(lines[-1], is_quoted=is_quoted):
        lost.append(f"row {len(below)} is cut in its last cell")
        if kept and kept[-1] is rows[-1]:
            kept.pop()
    return head, kept, _say_lost(lost)


def _keep_whole(
    head: Sequence[str], rows: Sequence[list[str]]
) -> tuple[list[list[str]], list[str]]:
    """Return the rows that have as many cells as the header, and what is lost of others."""
    kept = []
    lost = []
    for number, row in enumerate(rows, 1):
        if len(row) != len(head):
            if _is_of_table(row, head):
                lost.append(f"row {number} has {len(row)} cells, and the header {len(head)}")
        elif row != head:
            kept.append(row)
    return kept, lost


def _say_lost(lost: Sequence[str]) -> str:
    if not lost:
        return ""
    more = ""
    if len(lost) > 1:
        more = f" (and {len(lost) - 1} more)"
    return lost[0] + more


def _is_of_table(row: Sequence[str], head: Sequence[str]) -> bool:
    """Return whether a row of another length begins as a row of the table: with a launch's number."""
    return bool(row) and len(head) > 1 and row[0].isascii() and row[0].isdigit()


def _is_cut(line: str, *, is_quoted: bool) -> bool:
    """Return whether the last line ends inside of a cell, or before one where ncu quotes them all."""
    is_open = line.count('"') % 2 == 1
    return is_open or (is_quoted and line.startswith('"') and not line.rstrip().endswith('"'))


def _verify_columns(head: Sequence[str], rows: Sequence[Sequence[str]], name: str) -> None:
    """Refuse a column that is there twice, with other values: nothing says which is right."""
    places: dict[str, int] = {}
    for place, column in enumerate(head):
        first = places.setdefault(column, place)
        if first == place:
            continue
        for row in rows:
            if len(row) == len(head) and row[first] != row[place]:
                raise ProfkitError(f"{name}: has two columns {clean(column)}", _HOW)


def _read_wide(head: Sequence[str], rows: list[list[str]]) -> Iterator[dict[str, Any]]:
    first = rows[0] if rows else []
    with_units = bool(first) and not first[0].strip()
    units = dict(zip(head, first, strict=True)) if with_units else {}
    body = rows[1:] if with_units else rows
    metrics = [n for n, column in enumerate(head) if _is_metric(column)]
    comma = _decimal_comma(chain.from_iterable(map(row.__getitem__, metrics) for row in body))
    for row in body:
        cells = dict(zip(head, row, strict=True))
        launch = _read_identity(cells)
        for n in metrics:
            launch |= _read_values(head[n], row[n], units.get(head[n], ""), comma)
        yield launch


def _read_long(head: Sequence[str], rows: list[list[str]], name: str) -> Iterator[dict[str, Any]]:
    cells = [dict(zip(head, row, strict=True)) for row in rows]
    metrics = [c for c in cells if _is_metric(c["Metric Name"])]
    if not metrics:
        raise ProfkitError(
            f"{name}: has labels, not names of metrics", f"{_HOW}, or with --print-metric-name name"
        )
    comma = _decimal_comma(c["Metric Value"] for c in metrics)
    launches: dict[tuple[str, str], dict[str, Any]] = {}
    for c in metrics:
        key = (c.get("Process ID", ""), c[_LAUNCH])
        metric, unit, value = (c[column] for column in _LONG)
        launch = launches.setdefault(key, _read_identity(c))
        for read, number in _read_values(metric, value, unit, comma).items():
            if launch.setdefault(read, number) != number:
                twice = f"{name}: has two values of {clean(read)} for the launch {clean(key[1])}"
                raise ProfkitError(twice, "give each table as a file of its own")
    yield from launches.values()


def _is_metric(column: str) -> bool:
    """Return whether it is a metric's name: columns in front and labels have no double underscore."""
    return "__" in column or column in RAW_NAMES


def _read_identity(cells: Mapping[str, str]) -> dict[str, Any]:
    """Return what the columns in front say of a launch, under the raw names that reports have it by."""
    launch: dict[str, Any] = {"kernel": cells[_KERNEL]}
    for column, names in _SHAPES.items():
        if (sizes := _DIMENSIONS.fullmatch(cells.get(column, "").strip())) is not None:
            launch |= dict(zip(names, map(int, sizes.groups()), strict=True))
    if (version := _VERSION.fullmatch(cells.get("CC", ""))) is not None:
        launch |= {MAJOR: int(version[1]), MINOR: int(version[2])}
    device = cells.get("Device", "")
    if device and not device.isdigit():  # a number is its place in the machine, not its name
        launch[DEVICE] = device
    return launch


def _read_values(metric: str, text: str, unit: str, comma: bool) -> dict[str, Any]:
    """Return a cell as raw values: its number, and the instances that follow it in parentheses."""
    if metric == DEVICE:
        return {metric: text} if text else {}
    whole, _, inner = text.partition("(")
    # Of times and frequencies ncu stores another unit than SI.
    is_scaled = "/" not in unit and _split_prefix(unit)[0] in ("second", "s", "hz")
    factor = _scale_unit(unit) / (scale(metric) if is_scaled else 1.0)
    value = _read_number(whole, comma)
    out = {} if value is None else {metric: value * factor}
    for key, instance in _INSTANCE.findall(inner.rstrip(") ")):
        if (part := _read_number(instance, comma)) is not None:
            out[f"{metric}[{key.strip()}]"] = part * factor
    return out


def _decimal_comma(cells: Iterable[str]) -> bool:
    """Return whether the numbers of a table have a decimal comma and points between thousands."""
    return any(_EUROPEAN.fullmatch(cell.partition("(")[0].strip()) for cell in cells)


def _read_number(text: str, comma: bool) -> float | None:
    """Return a number by the table's locale; None for "n/a", a text or nothing."""
    text = text.strip().replace("\u202f", "").replace("\xa0", "")
    if not _NUMBER.fullmatch(text):
        return None
    if comma:
        text = text.replace(".", "").replace(",", ".")
    else:
        text = text.replace(",", "")
    try:
        return float(text)
    except ValueError:
        return None


def _scale_unit(unit: str) -> float:
    """From a printed unit to SI: Gbyte/second is 1e9, usecond 1e-6, cycle/nsecond 1e9, % is 1."""
    above, _, below = unit.partition("/")
    return _split_prefix(above)[1] / (_split_prefix(below)[1] if below else 1.0)


def _split_prefix(unit: str) -> tuple[str, float]:
    """Return a unit without its prefix, and the prefix as a factor."""
    unit = unit.strip()
    lower = unit.lower()
    if lower in _SCALED or not unit:
        return lower, 1.0
    if lower[1:] in _SCALED and unit[0] in _POWERS:
        return lower[1:], float(f"1e{_POWERS[unit[0]]}")
    return lower, 1.0
