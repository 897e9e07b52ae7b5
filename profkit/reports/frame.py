"""What was read of each file  ->  the frame: one row per launch, and all files' statuses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

from profkit.reports.container.container import Status
from profkit.reports.launch import IDENTIFIED, Size, Text
from profkit.reports.metrics import CATALOGUE

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("report", "launch", *IDENTIFIED, "ncu_version")
# A row's share of them: Identified in between.
Identity = tuple[str, int, Text, str, Text, Text, Size, Size, Text, Text, Text, str, Text]
RULE_COLUMNS = ("report", "launch", "rule", "title", "message", "speedup", "scope")
RuleRow = tuple[str, int, str, str, str, float, str]


@dataclass(frozen=True)
class ReportFile:
    path: str  # as the caller named it
    sha256: str | None  # of the file, None when it cannot be read
    # empty (0 bytes, or whole without a launch); damaged (something is lost, the rest is in the frame);
    # unreadable (missing, no permission, not a report).
    status: Status
    message: str  # what and why; of an ok one what ncu left out, mostly nothing
    launches: int  # that were read
    ncu_version: str | None  # the Nsight Compute that wrote it, None when not known


@dataclass(frozen=True)
class Rows:
    """Some launches' share of the frame, small enough to come back from a child process."""

    identity: Sequence[Identity] = ()
    values: bytes = b""  # float64, launches x catalogue, row by row
    rules: Sequence[RuleRow] = ()

    def __post_init__(self) -> None:
        """Refuse what no frame can be made of: a child's answer may be anything of these types."""
        numbers = [row[1] for row in self.identity] + [row[1] for row in self.rules]
        if len(self.values) != 8 * len(self.identity) * len(CATALOGUE):
            raise ValueError("other values than launches")
        if numbers and not 0 <= min(numbers) <= max(numbers) < 1 << 32:
            raise ValueError("a launch's number is none")


@dataclass(frozen=True)
class Part(Rows):
    file: ReportFile = field(kw_only=True)

    def launches(self) -> Iterator[dict[str, Any]]:
        for identity, metrics in zip(self.identity, self.metrics(), strict=True):
            yield dict(zip(COLUMNS, identity, strict=True)) | metrics.to_dict()

    def metrics(self) -> Iterator[MetricRow]:
        values = memoryview(self.values).cast("d")
        for n in range(0, len(values), len(CATALOGUE)):
            yield MetricRow(values[n : n + len(CATALOGUE)])


PLACES = {name: n for n, name in enumerate(CATALOGUE)}


class MetricRow(Mapping[str, float]):
    """The metrics of one launch by their short names, NaN where not collected.

    A tenth of a dict, which counts where there are a hundred thousand launches.
    """

    __slots__ = ("_values",)

    def __init__(self, values: memoryview[float]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> float:
        return self._values[PLACES[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(CATALOGUE)

    def __len__(self) -> int:
        return len(CATALOGUE)

    def to_dict(self) -> dict[str, float]:
        """Return the same as a dict, which is faster where all are looked at."""
        return dict(zip(CATALOGUE, self._values, strict=True))


@dataclass(frozen=True)
class Reports:
    """Everything that was read. The frames are made when they are asked for: pandas takes 0.2 s."""

    parts: tuple[Part, ...]  # one per file, in the order of the paths

    @property
    def files(self) -> tuple[ReportFile, ...]:
        return tuple(part.file for part in self.parts)

    @cached_property
    def launches(self) -> pd.DataFrame:
        """One row per launch: COLUMNS, then every catalogue metric (SI, float, NaN)."""
        import numpy as np
        import pandas as pd

        rows = [*chain.from_iterable(part.identity for part in self.parts)]
        launches = pd.DataFrame(rows, columns=list(COLUMNS), dtype=object)
        # astype() of one column would take longer than all the rest.
        launches["launch"] = np.array([row[1] for row in rows], dtype=np.int64)
        values = np.frombuffer(b"".join(part.values for part in self.parts))
        metrics = pd.DataFrame(values.reshape(len(rows), len(CATALOGUE)), columns=list(CATALOGUE))
        launches = pd.concat([launches, metrics], axis=1)
        launches.attrs["reports"] = self.files
        return launches

    @cached_property
    def rules(self) -> pd.DataFrame:
        """One row per launch and NVIDIA rule result: RULE_COLUMNS; speedup is a share."""
        import numpy as np
        import pandas as pd

        rows = [*chain.from_iterable(part.rules for part in self.parts)]
        rules = pd.DataFrame(rows, columns=list(RULE_COLUMNS), dtype=object)
        rules["launch"] = np.array([row[1] for row in rows], dtype=np.int64)
        rules["speedup"] = np.array([row[5] for row in rows], dtype=np.float64)
        return rules


def without_attrs(launches: pd.DataFrame) -> pd.DataFrame:
    """Return the frame without the files' status, which pandas copies with every column looked at."""
    launches = launches.copy(deep=False)
    launches.attrs = {}
    return launches


def frame_rows(launches: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows as plain mappings; of a frame with attrs to_dict takes ten times as long."""
    rows = without_attrs(launches).to_dict("records")
    return [{str(key): value for key, value in row.items()} for row in rows]
