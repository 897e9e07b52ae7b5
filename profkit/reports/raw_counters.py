"""Counters of launches under Nsight Compute's own names  ->  the frame that `load` gives."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from math import isfinite
from numbers import Real
from typing import TYPE_CHECKING, Any

from profkit.errors import ProfkitError
from profkit.reports.frame import Identity, Part, ReportFile, Reports
from profkit.reports.launch import clean, identify
from profkit.reports.metrics import IDENTITY, INSTANCED, RAW_NAMES, evaluate

if TYPE_CHECKING:
    import pandas as pd

# Keys of a row that are no counters: what the launch is called.
NAMES = ("kernel", "variant", "case")
_TEXTS = (*NAMES, IDENTITY[0])


def frame_from_raw(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Counters from anywhere as the frame that `load` gives.

    Args:
        rows: One mapping a launch: Nsight Compute's names to values in the units that it stores
            (%, ns, bytes), instances as "name[key]"; the demangled kernel under "kernel", and under
            "variant" and "case" what it is called. Names that profkit does not read are ignored;
            None and NaN mean not collected.

    Returns:
        Launches x columns as in `load`, in the order of the rows, all metrics in SI.

    Raises:
        ProfkitError: A row is no mapping, a counter is no number, or no row has a counter.
    """
    launches = list(rows)
    part = part_from_raw(launches, ReportFile("", None, "ok", "", len(launches), None))
    if launches and not any(_counters(row, n) for n, row in enumerate(launches)):
        raise ProfkitError(
            "from_raw: none of the rows has a counter that profkit reads",
            "give Nsight Compute's own names, for example gpu__time_duration.sum",
        )
    return Reports((part,)).launches


def part_from_raw(rows: Iterable[Mapping[str, Any]], file: ReportFile) -> Part:
    """The same as one file's share of a frame."""
    identity: list[Identity] = []
    values: array[float] = array("d")
    for index, row in enumerate(rows):
        metrics = evaluate(_counters(row, index))
        kernel, variant, case = (_text(row, key, index) for key in NAMES)
        _text(row, IDENTITY[0], index)
        who = identify(kernel, "kernel", _known(row), (variant, case), (), metrics["time"])
        identity.append((file.path, index, *who, file.ncu_version))
        values.extend(metrics.values())
    return Part(tuple(identity), values.tobytes(), file=file)


def _counters(row: Mapping[str, Any], index: int) -> dict[str, float]:
    """The values of a row that the catalogue reads."""
    if not isinstance(row, Mapping):
        raise ProfkitError(
            f"from_raw: row {index} is a {type(row).__name__}, not a mapping",
            "give one mapping of metric names to values for each launch",
        )
    read = {k: v for k, v in row.items() if _is_read(str(k)) and v is not None}
    for name, value in read.items():
        if not isinstance(value, Real):
            raise ProfkitError(
                f"from_raw: row {index}: {name} is {value!r}, not a number",
                "give values as Nsight Compute stores them; None for what was not collected",
            )
    return {str(k): float(v) for k, v in read.items() if isfinite(v)}


def _is_read(name: str) -> bool:
    return name in RAW_NAMES or name.partition("[")[0] in INSTANCED


def _known(row: Mapping[str, Any]) -> dict[str, Any]:
    """What identifies a launch, without what is not known."""
    return {name: row[name] for name in IDENTITY if row.get(name) not in (None, "")}


def _text(row: Mapping[str, Any], key: str, index: int) -> str | None:
    value = row.get(key)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise ProfkitError(f"from_raw: row {index}: {key} is {value!r}, not a text")
    return clean(value)
