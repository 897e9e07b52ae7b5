"""Counters under Nsight Compute's own names, as mappings or as a printed table  ->  our frame."""

from __future__ import annotations

import codecs
import csv
import hashlib
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from numbers import Real
from typing import TYPE_CHECKING, Any

from profkit.errors import ProfkitError
from profkit.files import BudgetSpent, ReadBudget, read_bytes
from profkit.reports.container import LAUNCH_KEPT, Status
from profkit.reports.frame import (
    Identity,
    ReportFile,
    ReportLaunches,
    Reports,
    drop_uncollected_columns,
    escape_non_utf8,
    identify_launch,
)
from profkit.reports.metrics import IDENTITY, INSTANCED, RAW_NAMES, evaluate_metrics
from profkit.reports.metrics.derive import get_factor_to_si

if TYPE_CHECKING:
    import pandas as pd

    from profkit.units import CellIndex, ClauseOrEmpty, LaunchIndex, NcuMetricName

RawLaunch = dict[str, Any]  # its name and counters, as `from_raw` takes them
TABLE_MOST = 256 << 20  # bytes of a table that ncu printed: 10,000 launches of a full set
# Keys of a row that are no counters: what the launch is called.
NAMES = ("kernel", "variant", "case")
DEVICE, MAJOR, MINOR = IDENTITY[:3]
_KERNEL = "Kernel Name"
_LAUNCH = "ID"
_LONG = ("Metric Name", "Metric Unit", "Metric Value")
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


def make_raw_frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Do `pk.from_raw`: return counters from anywhere, in the order of the rows, all metrics in SI.

    Names that profkit does not read are ignored.
    """
    launches = list(rows)
    part = make_report_of_raw_counters(
        launches, ReportFile("", None, "ok", "", len(launches), None)
    )
    if launches and not any(_read_counters_of_row(row, n) for n, row in enumerate(launches)):
        raise ProfkitError(
            "from_raw: none of the rows has a counter that profkit reads",
            "give Nsight Compute's own names, for example gpu__time_duration.sum",
        )
    return Reports((part,)).launches


def make_report_of_raw_counters(
    rows: Iterable[Mapping[str, Any]], file: ReportFile, budget: ReadBudget | None = None
) -> ReportLaunches:
    """Return the same as one file's share of a frame; a BudgetSpent of more launches than it has for."""
    identity: list[Identity] = []
    values: array[float] = array("d")
    for index, row in enumerate(rows):
        if budget:
            budget.spend_bytes(LAUNCH_KEPT)
        metrics = evaluate_metrics(_read_counters_of_row(row, index))
        kernel, variant, case = (_get_text_or_none(row, key, index) for key in NAMES)
        _get_text_or_none(row, IDENTITY[0], index)
        known = {}
        for name in IDENTITY:
            if row.get(name) not in (None, ""):
                known[name] = row[name]
        who = identify_launch(kernel, "kernel", known, (variant, case), (), metrics["time"])
        identity.append((file.path, index, *who, file.ncu_version))
        values.extend(metrics.values())
    collected, columns = drop_uncollected_columns(values, len(identity))
    return ReportLaunches(tuple(identity), collected, columns=columns, file=file)


def _read_counters_of_row(row: Mapping[str, Any], index: LaunchIndex) -> dict[NcuMetricName, float]:
    if not isinstance(row, Mapping):
        raise ProfkitError(
            f"from_raw: row {index} is a {type(row).__name__}, not a mapping",
            "give one mapping of metric names to values for each launch",
        )
    read = {}
    for name, value in row.items():
        is_known = str(name) in RAW_NAMES or str(name).partition("[")[0] in INSTANCED
        if value is None or not is_known:
            continue
        if not isinstance(value, Real):
            raise ProfkitError(
                f"from_raw: row {index}: {name} is {value!r}, not a number",
                "give values as Nsight Compute stores them; None for what was not collected",
            )
        if _fits_finite_float(value):
            read[str(name)] = float(value)
    return read


def _fits_finite_float(value: Any) -> bool:
    try:
        return isfinite(value)
    except OverflowError:  # a whole number that no float holds
        return False


def _get_text_or_none(row: Mapping[str, Any], key: str, index: LaunchIndex) -> str | None:
    value = row.get(key)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise ProfkitError(f"from_raw: row {index}: {key} is {value!r}, not a text")
    return escape_non_utf8(value)


def read_printed_table(path: str) -> ReportLaunches:
    """Return what `ncu --csv` printed as one file's share of a frame."""
    lost = ""
    status: Status = "unreadable"
    sha256 = None
    unread = ReportFile(path, None, "unreadable", "", 0, None)
    part = ReportLaunches(file=unread)
    try:
        content = read_bytes(path, TABLE_MOST)
        sha256 = hashlib.sha256(content).hexdigest()
        if content and not content.isspace():
            table = open_printed_table(lambda: _decode_lines(content), path)
            lost = table.loss_sentence
            budget = ReadBudget(len(content), spare=ReadBudget.DOCUMENT)
            part = make_report_of_raw_counters(table.iterate_launches(), unread, budget)
            nothing = "a header without launches"
        else:
            nothing = "0 bytes"
        if lost:
            status = "damaged"
        elif part.identity:
            status = "ok"
        else:
            status = "empty"
        message = lost or ("" if part.identity else nothing)
    except OSError as error:
        message = error.strerror or "cannot be read"
    except BudgetSpent as error:
        message = str(error)
    except ProfkitError as error:
        message = f"{error.message.removeprefix(f'{path}: ')}: {error.hint}"
    file = ReportFile(path, sha256, status, message, len(part.identity), None)
    return replace(part, file=file)


_PIECE = 1 << 20  # bytes of a table that are decoded at a time


def _decode_lines(content: bytes) -> Iterator[str]:
    """Yield the lines of a table; as one text a single letter would make it four times as large."""
    start = 0
    if content.startswith(codecs.BOM_UTF8):
        start = len(codecs.BOM_UTF8)
    while start < len(content):
        end = content.find(b"\n", start + _PIECE) + 1 or len(content)
        yield from content[start:end].decode("utf-8", "backslashreplace").splitlines()
        start = end


_HOW = "print it with: ncu --import REPORT --csv --page raw > FILE.csv"
_CELLS_MOST = 100_000  # of a row: a full set has 2,500


@dataclass
class PrintedTable:
    """What `ncu --csv --page raw` printed, read twice: for what only all of it says, then for launches.

    Two layouts. Wide: a launch a row, a column a metric, the units in the second row. Long: a metric a
    row (`--csv --metrics ...`, and the details page with `--print-metric-name name`). Versions add and
    drop columns in front, print units scaled (Gbyte/s) or not (`--print-units base`), numbers by the
    locale of the machine, and other programs' lines in between.
    """

    lines: Callable[[], Iterable[str]]  # of the file, from its beginning
    name: str  # of the table, in an error
    head: list[str] = field(default_factory=list)
    units: list[str] | None = None  # the row that says them
    whole: int = 0  # how many rows below the header have as many cells, the units' included
    below: int = 0  # how many rows there are in all
    is_cut: bool = False  # inside of its last cell
    has_comma: bool = False  # for a decimal point
    losses: int = 0
    first_loss: str = ""
    _last_line: str = ""
    _is_quoted: bool = False
    _cells: int = 0  # of the row that is being read

    @property
    def has_row_per_metric(self) -> bool:
        """Return whether it has a row for each metric rather than for each launch."""
        return set(_LONG) <= set(self.head)

    @property
    def loss_sentence(self) -> ClauseOrEmpty:
        """Return a clause on rows that are cut or have too many cells; "" when nothing is lost."""
        if self.losses > 1:
            return f"{self.first_loss} (and {self.losses - 1} more)"
        return self.first_loss

    def iterate_launches(self) -> Iterator[RawLaunch]:
        """Yield a mapping a launch, as `from_raw` takes it.

        A ProfkitError where the table has no names of metrics.
        """
        if self.has_row_per_metric:
            return self._read_metric_rows()
        if not any(_is_metric_name(column) for column in self.head):
            raise ProfkitError(f"{self.name}: no column is a metric", _HOW)
        return self._read_launch_rows()

    def check_all_rows_once(self) -> None:
        """Look at all of it once.

        A ProfkitError where it is no such table.
        """
        rows = self._parse_rows()
        for row in rows:
            if _LAUNCH in row[:1] and _KERNEL in row:
                self.head = row
                break
        else:
            raise ProfkitError(f"{self.name}: has no line with {_LAUNCH} and {_KERNEL}", _HOW)
        twice = _find_repeated_columns(self.head)
        numbers = self._list_number_columns()
        is_last_whole = False
        for row in rows:
            self.below += 1
            is_last_whole = False
            if len(row) != len(self.head):
                if _begins_like_table_row(row, self.head):
                    cells = f"{len(row)} cells, and the header {len(self.head)}"
                    self._count_loss(f"row {self.below} has {cells}")
                continue
            for first, place in twice:
                if row[first] != row[place]:
                    column = escape_non_utf8(self.head[place])
                    raise ProfkitError(f"{self.name}: has two columns {column}", _HOW)
            if row != self.head:
                is_last_whole = True
                self._count_row(row, numbers)
        if _is_truncated(self._last_line, is_quoted=self._is_quoted):
            self._count_loss(f"row {self.below} is cut in its last cell")
            self.is_cut = is_last_whole

    def _count_row(self, row: list[str], number_columns: list[int]) -> None:
        """Count a row; see whether it says units, or has a decimal comma and points in thousands."""
        self.whole += 1
        is_first = self.whole == 1
        if is_first and not self.has_row_per_metric and not row[0].strip():
            self.units = row
        elif not self.has_row_per_metric or _is_metric_name(row[self.head.index(_LONG[0])]):
            for place in number_columns:
                number = row[place].partition("(")[0].strip()
                self.has_comma = self.has_comma or _EUROPEAN.fullmatch(number) is not None

    def _list_number_columns(self) -> list[CellIndex]:
        """Return the places of a row's numbers."""
        if self.has_row_per_metric:
            return [self.head.index(_LONG[2])]
        return [n for n, column in enumerate(self.head) if _is_metric_name(column)]

    def _count_loss(self, loss: str) -> None:
        self.losses += 1
        self.first_loss = self.first_loss or loss

    def _iterate_table_lines(self) -> Iterator[str]:
        """Yield the lines without those of ncu and the program round them."""
        for line in self.lines():
            if line.startswith("=="):
                continue
            self._last_line = line
            self._is_quoted = self._is_quoted or line.startswith(f'"{_LAUNCH}"')
            self._cells += line.count(",")
            if self._cells > _CELLS_MOST:
                why = f"{self.name}: has a row of more than {_CELLS_MOST:,} cells"
                raise ProfkitError(why, _HOW)
            yield line

    def _parse_rows(self) -> Iterator[list[str]]:
        try:
            for row in csv.reader(self._iterate_table_lines()):
                self._cells = 0
                yield row
        except csv.Error as error:  # a field longer than anything that ncu prints
            why = f"{self.name}: no table that can be read: {error}"
            raise ProfkitError(why, _HOW) from error

    def _iterate_value_rows(self) -> Iterator[list[str]]:
        """Yield the rows with values: below the header, whole, without the units and what is cut."""
        is_below = False
        count = 0
        for row in self._parse_rows():
            if not is_below:
                is_below = row == self.head
                continue
            if len(row) != len(self.head) or row == self.head:
                continue
            count += 1
            if self.is_cut and count == self.whole:
                return
            if self.units is None or count > 1:
                yield row

    def _read_launch_rows(self) -> Iterator[RawLaunch]:
        units = dict(zip(self.head, self.units or (), strict=False))
        metrics = self._list_number_columns()
        for row in self._iterate_value_rows():
            cells = dict(zip(self.head, row, strict=True))
            launch = _make_raw_identity_of_cells(cells)
            for n in metrics:
                column = self.head[n]
                launch |= _parse_cell(column, row[n], units.get(column, ""), self.has_comma)
            yield launch

    def _read_metric_rows(self) -> Iterator[RawLaunch]:
        launches: dict[tuple[str, str], RawLaunch] = {}
        names: dict[str, str] = {}  # a name that many rows share is one
        for row in self._iterate_value_rows():
            cells = dict(zip(self.head, row, strict=True))
            metric, unit, value = (cells[column] for column in _LONG)
            if not _is_metric_name(metric):
                continue
            key = (cells.get("Process ID", ""), cells[_LAUNCH])
            launch = launches.get(key)
            if launch is None:
                launch = launches[key] = _make_raw_identity_of_cells(cells)
            for read, number in _parse_cell(metric, value, unit, self.has_comma).items():
                if launch.setdefault(names.setdefault(read, read), number) != number:
                    why = f"{self.name}: has two values of {escape_non_utf8(read)} for the launch"
                    raise ProfkitError(
                        f"{why} {escape_non_utf8(key[1])}",
                        "give each table as a file of its own",
                    )
        if not launches:
            raise ProfkitError(
                f"{self.name}: has labels, not names of metrics",
                f"{_HOW}, or with --print-metric-name name",
            )
        yield from launches.values()


def open_printed_table(read_lines: Callable[[], Iterable[str]], file_name: str) -> PrintedTable:
    """Return a table that was looked at once; `file_name` is its own in an error."""
    table = PrintedTable(read_lines, file_name)
    table.check_all_rows_once()
    return table


def _find_repeated_columns(head: Sequence[str]) -> list[tuple[CellIndex, CellIndex]]:
    """Return the places of columns that are there twice: of other values none is surely right."""
    places: dict[str, int] = {}
    twice = []
    for place, column in enumerate(head):
        first = places.setdefault(column, place)
        if first != place:
            twice.append((first, place))
    return twice


def _begins_like_table_row(row: Sequence[str], head: Sequence[str]) -> bool:
    """Return whether a row of another length begins as a row of the table: with a launch's number."""
    is_table = len(head) > 1
    return is_table and bool(row) and row[0].isascii() and row[0].isdigit()


def _is_truncated(line: str, *, is_quoted: bool) -> bool:
    """Return whether the last line ends inside of a cell, or before one where ncu quotes them all."""
    is_open = line.count('"') % 2 == 1
    return is_open or (is_quoted and line.startswith('"') and not line.rstrip().endswith('"'))


def _is_metric_name(column: str) -> bool:
    """Return whether it is a metric's name: columns in front and labels have no double underscore."""
    return "__" in column or column in RAW_NAMES


def _make_raw_identity_of_cells(cells: Mapping[str, str]) -> RawLaunch:
    """Return what the columns in front say of a launch, under the raw names that reports have it by."""
    launch: RawLaunch = {"kernel": cells[_KERNEL]}
    for column, names in _SHAPES.items():
        if (sizes := _DIMENSIONS.fullmatch(cells.get(column, "").strip())) is not None:
            launch |= dict(zip(names, map(int, sizes.groups()), strict=True))
    if (version := _VERSION.fullmatch(cells.get("CC", ""))) is not None:
        launch |= {MAJOR: int(version[1]), MINOR: int(version[2])}
    device = cells.get("Device", "")
    if device and not device.isdigit():  # a number is its place in the machine, not its name
        launch[DEVICE] = device
    return launch


def _parse_cell(metric: NcuMetricName, text: str, unit: str, has_decimal_comma: bool) -> RawLaunch:
    """Return a cell as raw values: its number, and the instances that follow it in parentheses."""
    if metric == DEVICE:
        if text:
            return {metric: text}
        return {}
    whole, _, inner = text.partition("(")
    # Of times and frequencies ncu stores another unit than SI.
    is_scaled = "/" not in unit and _split_prefix(unit)[0] in ("second", "s", "hz")
    factor = _get_factor_of_printed_unit(unit) / (get_factor_to_si(metric) if is_scaled else 1.0)
    value = _parse_number_of_locale(whole, has_decimal_comma)
    if value is None:
        out = {}
    else:
        out = {metric: value * factor}
    for key, instance in _INSTANCE.findall(inner.rstrip(") ")):
        if (part := _parse_number_of_locale(instance, has_decimal_comma)) is not None:
            out[f"{metric}[{key.strip()}]"] = part * factor
    return out


def _parse_number_of_locale(text: str, has_decimal_comma: bool) -> float | None:
    """Return a number by the table's locale; None for "n/a", a text or nothing."""
    text = text.strip().replace("\u202f", "").replace("\xa0", "")
    if not _NUMBER.fullmatch(text):
        return None
    if has_decimal_comma:
        text = text.replace(".", "").replace(",", ".")
    else:
        text = text.replace(",", "")
    try:
        return float(text)
    except ValueError:
        return None


def _get_factor_of_printed_unit(unit: str) -> float:
    """Return the factor from a printed unit to SI: 1e9 for Gbyte/second, 1e-6 for usecond, 1 for %."""
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
