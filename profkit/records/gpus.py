"""A compute capability  ->  what gpus.toml knows of it; absent is unknown."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from profkit.units import BytesPerSecond


T = TypeVar("T")
Capability = tuple[int, int]
Levels = tuple[float, float, float]  # low, expect, high


@dataclass(frozen=True)
class Gpu:
    """One row of the table; gpus.toml says what each column is."""

    fp32: int | None = None
    sm: tuple[int, int, int, int] | None = None
    tensor_ops: int | None = None
    card: tuple[str, int, int] | None = None
    stream: float | None = None
    half: float | None = None
    pinned: float | None = None
    tensor: Levels | None = None
    double: Levels | None = None
    measured: tuple[str, ...] = ()


@cache
def read_gpu_table() -> dict[Capability, Gpu]:
    """Return every row, the oldest first."""
    text = Path(__file__).with_name("gpus.toml").read_text("utf-8")
    rows = {}
    for name, row in tomllib.loads(text).items():
        major, _, minor = name.partition(".")
        columns: dict[str, Any] = {}
        for column, value in row.items():
            columns[column] = tuple(value) if isinstance(value, list) else value
        rows[int(major), int(minor)] = Gpu(**columns)
    return dict(sorted(rows.items()))


def find_gpu_exactly(cc: object) -> Gpu | None:
    """Return the row of a compute capability as a report names it, such as 9.0."""
    for known, row in read_gpu_table().items():
        if "{}.{}".format(*known) == cc:
            return row
    return None


def find_nearest_of_generation(capability: Capability | None) -> Gpu | None:
    """Return the row of the nearest compute capability of the same generation that is no newer."""
    if capability is None:
        return None
    generation = {}
    for known, row in read_gpu_table().items():
        if known[0] == capability[0]:
            generation[known] = row
    return find_newest_up_to(generation, capability)


def find_newest_up_to(rows: dict[Capability, T], cc: Capability | None) -> T | None:
    """Return the row of the newest compute capability that is not above this one; None without."""
    newest = None
    for known in sorted(rows):
        if cc and known <= cc:
            newest = rows[known]
    return newest


def get_gpu_column_by_capability(column: str) -> dict[Capability, Any]:
    """Return compute capability -> a column of gpus.toml, where it is filled in."""
    rows = {}
    for known, row in read_gpu_table().items():
        value = getattr(row, column)
        if value is not None:
            rows[known] = value
    return rows


def get_measured_levels(column: str, cc: Capability | None) -> Levels:
    """Return what the nearest GPU that is no newer gains; without one, what holds on every GPU."""
    rows = get_gpu_column_by_capability(column)
    low, expect, high = zip(*rows.values(), strict=True)
    return find_newest_up_to(rows, cc) or (min(low), min(expect), max(high))


def find_pinned_copy_rate(cc: Capability | None) -> BytesPerSecond:
    """Return bytes a second of a pinned copy, of the nearest GPU that is no newer, or the least."""
    rates = get_gpu_column_by_capability("pinned")
    return float(find_newest_up_to(rates, cc) or min(rates.values()))
