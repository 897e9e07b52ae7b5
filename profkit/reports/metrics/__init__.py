"""The catalogue: every metric that profkit knows, said once.  raw ncu values -> short names in SI.

Raw names of Nsight Compute live in this folder only. One more metric is one more entry in the
METRICS of its file.
"""

from __future__ import annotations

from itertools import chain

from profkit.reports.metrics import (
    access,
    instructions,
    launch,
    memory,
    occupancy,
    peaks,
    pipes,
    warps,
)
from profkit.reports.metrics.derive import OPCODES, Metric, Raw, by_opcode

__all__ = ["OPCODES", "Metric"]

_FILES = (launch, occupancy, memory, access, pipes, instructions, warps, peaks)
_ALL = chain.from_iterable(file.METRICS for file in _FILES)
CATALOGUE: dict[str, Metric] = {metric.name: metric for metric in _ALL}
# Metric -> the file of this folder that it is in.
FAMILIES: dict[str, str] = {}
for _file in _FILES:
    FAMILIES |= dict.fromkeys((m.name for m in _file.METRICS), _file.__name__.rpartition(".")[2])
# What identifies a launch; read by the reader, not metrics of their own.
IDENTITY = (
    "device__attribute_display_name",
    "device__attribute_compute_capability_major",
    "device__attribute_compute_capability_minor",
    *(f"launch__grid_dim_{axis}" for axis in "xyz"),
    *(f"launch__block_dim_{axis}" for axis in "xyz"),
)
_SOURCES = chain.from_iterable(metric.sources for metric in CATALOGUE.values())
RAW_NAMES = frozenset(chain.from_iterable((*s.names, *s.optional) for s in _SOURCES))
INSTANCED: tuple[str, ...] = (OPCODES,)


def evaluate(raw: Raw) -> dict[str, float]:
    """Return short name -> SI value of one launch, NaN where it was not collected.

    `raw` has ncu's names and units, only of metrics that have a value; instances of the INSTANCED ones
    as "name[key]".
    """
    values = {**raw, **by_opcode(raw)}
    return {name: metric.of(values) for name, metric in CATALOGUE.items()}
