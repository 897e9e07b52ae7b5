"""A frame of launches  ->  groups of alike ones, each with a name as short as tells them apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profkit.errors import ProfkitError
from profkit.model.units import collected_metrics
from profkit.reports.frame import frame_rows
from profkit.show.numbers import Row
from profkit.show.text.names import middle, short

if TYPE_CHECKING:
    import pandas as pd

LONGEST = 30  # characters of a kernel name that still reads beside a bar


def records(runs: pd.DataFrame | pd.Series[Any]) -> list[Row]:
    """The rows of a frame (or the one row of a Series) as mappings.

    Raises:
        ProfkitError: There is none.
    """
    import pandas as pd

    frame = runs.to_frame().T if isinstance(runs, pd.Series) else runs
    rows = frame_rows(frame)
    if not rows:
        raise ProfkitError("no launches to draw", "the frame is empty: look at the query before it")
    return [*rows]


def one_device(rows: Sequence[Row]) -> str:
    """The device that all launches ran on.

    Raises:
        ProfkitError: There are several: their ceilings do not belong in one picture.
    """
    devices = sorted({str(row["device"]) for row in rows if isinstance(row.get("device"), str)})
    if len(devices) > 1:
        raise ProfkitError(
            f"launches of {len(devices)} devices in one roofline: {', '.join(devices)}",
            f"draw one device at a time: runs[runs.device == {devices[0]!r}]",
        )
    return devices[0] if devices else "unknown device"


@dataclass(frozen=True)
class AlikeLaunches:
    """Launches of one kernel with one shape: drawn alike, named once."""

    name: str  # as short as tells the groups apart; "x3" behind it for three launches
    rows: tuple[Row, ...]  # the launches, longest-running first


def alike_groups(rows: Sequence[Row]) -> list[AlikeLaunches]:
    """The launches by variant, case, kernel and shape, in the order of their first ones."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        same = ("variant", "case", "kernel", "grid", "block", "device")
        groups.setdefault(tuple(str(row.get(key)) for key in same), []).append(row)
    ordered = [sorted(group, key=lambda r: -_time(r)) for group in groups.values()]
    named = names([group[0] for group in ordered])
    return [
        AlikeLaunches(f"{name} ×{len(group)}" if len(group) > 1 else name, tuple(group))
        for name, group in zip(named, ordered, strict=True)
    ]


def _time(row: Row) -> float:
    return collected_metrics(row).get("time", 0.0)


def names(rows: Sequence[Row]) -> list[str]:
    """What each launch is called in a picture: as short as tells them apart."""
    pairs = {(r.get("variant"), r.get("case")) for r in rows if isinstance(r.get("variant"), str)}
    often = Counter(variant for variant, _ in pairs)
    full = [_base(row, with_case=often[row.get("variant")] > 1) for row in rows]
    for more in (_kernel_of, _launch_of, _report_of):
        alike = Counter(full)
        full = [
            f"{name} {more(row)}" if alike[name] > 1 and name != more(row) else name
            for name, row in zip(full, rows, strict=True)
        ]
    return full


def _base(row: Row, with_case: bool) -> str:
    variant, case = row.get("variant"), row.get("case")
    if not isinstance(variant, str):
        return _kernel_of(row)
    return middle(f"{variant} {case}" if with_case and isinstance(case, str) else variant, LONGEST)


def _kernel_of(row: Row) -> str:
    return short(str(row.get("kernel", "kernel")), LONGEST)


def _launch_of(row: Row) -> str:
    return f"#{row.get('launch', '?')}"


def _report_of(row: Row) -> str:
    return middle(Path(str(row.get("report", ""))).stem, LONGEST)
