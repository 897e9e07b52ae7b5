"""The catalogue: every metric that profkit knows, said once.  raw ncu values -> short names in SI.

Raw names of Nsight Compute live in this folder only. One more metric is one more entry in the text
of its family.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from profkit.reports.metrics.compute import INSTRUCTIONS, PEAKS, PIPES
from profkit.reports.metrics.derive import (
    OPCODES,
    Metric,
    RawMetricValues,
    count_instructions_by_opcode,
)
from profkit.reports.metrics.launch import LAUNCH, OCCUPANCY
from profkit.reports.metrics.memory import ACCESS, MEMORY
from profkit.reports.metrics.warps import WARPS

if TYPE_CHECKING:
    from profkit.units import MetricName


__all__ = ["OPCODES", "Metric"]

_FAMILIES = {
    "launch": LAUNCH,
    "occupancy": OCCUPANCY,
    "memory": MEMORY,
    "access": ACCESS,
    "pipes": PIPES,
    "instructions": INSTRUCTIONS,
    "warps": WARPS,
    "peaks": PEAKS,
}
CATALOGUE: dict[str, Metric] = {m.name: m for m in chain.from_iterable(_FAMILIES.values())}
FAMILIES: dict[str, str] = {}  # metric -> its family, which has a page
for _family, _members in _FAMILIES.items():
    FAMILIES |= dict.fromkeys((m.name for m in _members), _family)
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


def evaluate_metrics(raw: RawMetricValues) -> dict[MetricName, float]:
    """Return short name -> SI value of one launch, NaN where it was not collected.

    `raw` has ncu's names and units, only of metrics that have a value; instances of the INSTANCED ones
    as "name[key]".
    """
    values = {**raw, **count_instructions_by_opcode(raw)}
    return {name: metric.compute_from(values) for name, metric in CATALOGUE.items()}
