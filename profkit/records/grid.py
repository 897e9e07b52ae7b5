"""A file of times over a grid of shapes  ->  its cells, each with its samples.

`profkit.grid/1`: JSON lines, the first about the file, each of the others about one shape:

    {"schema": "profkit.grid/1", "gpu": {"name": ...}, "against": ["sdpa-cudnn", ...]}
    {"at": {"S": 512, "BH": 8, "D": 64, "causal": false}, "warm": {"latev": [1.2e-5, ...], ...},
     "operations": 5.4e8, "bytes": 2.1e6}

Operations and bytes may be left out. Of `at` the first two are the rows and the columns of a picture,
the others tell pictures apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf, isfinite, nan
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, TypeGuard

from profkit.errors import ProfkitError
from profkit.files import read_json_or_toml_bytes
from profkit.records.store import JsonObject

if TYPE_CHECKING:
    from profkit.units import Seconds, TextOrEmpty


SCHEMA = "profkit.grid/1"
_AXES = 2


@dataclass(frozen=True)
class GridCell:
    """Samples in seconds of several programs at one place of a grid of shapes."""

    at: Mapping[str, float | str]  # axis -> its value there, rows and columns first
    # name -> seconds per call, in the order taken; only of what was timed in full
    warm: Mapping[str, tuple[float, ...]]
    ran: Mapping[str, str]  # name -> what it really was there, of something that chooses
    # name -> median of a short look, of what was too slow to be timed in full
    looked: Mapping[str, float] = field(default_factory=dict)
    operations: float = nan  # that the shape needs; NaN where the file does not say
    moved: float = nan  # bytes that it cannot avoid; NaN likewise

    @property
    def row_value(self) -> float | str:
        """Return the value of the first axis."""
        return next(iter(self.at.values()))

    @property
    def column_value(self) -> float | str:
        """Return the value of the second axis."""
        return list(self.at.values())[1]

    def find_fastest(
        self, names: frozenset[str], *, is_of_the_others: bool = False
    ) -> tuple[TextOrEmpty, Seconds]:
        """Return the fastest of these names, or of the others, and its median; else ("", inf)."""
        medians = dict(self.looked)
        for name, samples in self.warm.items():
            if samples:
                medians[name] = median(samples)
        fastest = ""
        least = inf
        for name, time in medians.items():
            is_asked_for = (name in names) != is_of_the_others
            if is_asked_for and time < least:
                fastest = name
                least = time
        return fastest, least


@dataclass(frozen=True)
class TimeGrid:
    """Times by shape, with the names of those to compare with."""

    gpu: str | None  # the GPU's name; None if the file does not say
    against: frozenset[str]  # names that the others are compared with
    cells: tuple[GridCell, ...]  # one per shape


def read_time_grid(path: Path) -> TimeGrid:
    """Read a file of times over a grid; a ProfkitError where it, or one of its lines, is none."""
    try:
        lines = read_json_or_toml_bytes(path).decode().splitlines()
    except (OSError, ValueError) as error:
        why = str(error)
        if isinstance(error, UnicodeDecodeError):
            why = "is not text"
        elif isinstance(error, OSError):
            why = str(error.strerror)
        raise ProfkitError(f"cannot read {path}: {why}") from error
    head, *rest = list(iterate_json_objects_of_lines(path, lines)) or [{}]
    if head.get("schema") != SCHEMA:
        hint = f'its first line must contain "schema": "{SCHEMA}"'
        raise ProfkitError(f"{path} is not a {SCHEMA} file", hint)
    gpu = get_object_or_empty(head, "gpu").get("name")
    if not isinstance(gpu, str):
        gpu = None
    against = head.get("against")
    if not isinstance(against, list):
        against = []
    cells = []
    for line_number, document in enumerate(rest, 2):
        cells.append(parse_grid_cell(path, line_number, document))
    return TimeGrid(gpu, frozenset(filter(_is_text, against)), tuple(cells))


def iterate_json_objects_of_lines(path: Path, json_lines: list[str]) -> Iterator[JsonObject]:
    """Yield the JSON object of each line; a ProfkitError that names a line that is none."""
    for number, line in enumerate(json_lines, 1):
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise ProfkitError(f"{path}, line {number}: not a JSON object", "remove the line")
        yield document


def get_object_or_empty(document: JsonObject, key: str) -> JsonObject:
    """Return the object of this key; an empty one where there is none."""
    held = document.get(key)
    return held if isinstance(held, dict) else {}


def parse_grid_cell(path: Path, line_number: int, document: JsonObject) -> GridCell:
    """Return the cell of a line; a ProfkitError that names the line where it is none."""
    axes = get_object_or_empty(document, "at")
    warm = document.get("warm")
    if not isinstance(warm, dict) or len(axes) < _AXES:
        hint = 'it needs "at" with two axes or more, and "warm" with samples by name'
        raise ProfkitError(f"{path}, line {line_number}: not a cell of a grid", hint)
    at: dict[str, float | str] = {}
    for axis, value in axes.items():
        at[axis] = value if isinstance(value, int | float) else str(value)
    samples = {}
    for name, times in warm.items():
        if isinstance(times, list):
            samples[name] = tuple(filter(_is_finite_positive_number, times))
    looked = {}
    for name, time in get_object_or_empty(document, "looked").items():
        if _is_finite_positive_number(time):
            looked[name] = time
    return GridCell(
        at=at,
        warm=samples,
        ran={name: str(it) for name, it in get_object_or_empty(document, "ran").items()},
        looked=looked,
        operations=_get_number_or_nan(document, "operations"),
        moved=_get_number_or_nan(document, "bytes"),
    )


def _get_number_or_nan(document: JsonObject, key: str) -> float:
    value = document.get(key)
    if _is_finite_positive_number(value):
        return float(value)
    return nan


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str)


def _is_finite_positive_number(value: Any) -> TypeGuard[float]:
    try:
        return isinstance(value, int | float) and isfinite(value) and value > 0
    except OverflowError:  # a whole number that no float holds
        return False
