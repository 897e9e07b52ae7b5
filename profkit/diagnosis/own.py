"""A row of a frame  ->  all that a rule of one's own may index: metrics, other columns, raw counters."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from profkit.errors import ProfkitError


class OwnColumns(Mapping[str, float]):
    """What a rule of one's own may index besides metrics: the row's numbers, then raw counters.

    The report is read when the first name is asked for that the row has not.
    """

    def __init__(self, row: Mapping[str, Any]) -> None:
        self._row = row

    def __getitem__(self, name: str) -> float:
        value = self._row.get(name)
        if value is None and "__" in name:  # as all of Nsight Compute's names have
            value = (
                _raw_counters(str(self._row.get("report")))
                .get(self._row.get("launch", 0), {})
                .get(name)
            )
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise KeyError(name)
        return float(value)

    def __iter__(self) -> Iterator[str]:
        return iter([name for name, value in self._row.items() if isinstance(value, int | float)])

    def __len__(self) -> int:
        return len(list(iter(self)))


@lru_cache(maxsize=4)
def _raw_counters(report: str) -> dict[int, dict[str, Any]]:
    """Launch -> raw name -> value of a report; nothing where it is not there any more."""
    from profkit.reports.reader import raw_frame

    if not os.path.isfile(report):
        return {}
    try:
        rows = raw_frame(report).to_dict("records")
    except ProfkitError:
        return {}
    return {n: {str(name): value for name, value in row.items()} for n, row in enumerate(rows)}
