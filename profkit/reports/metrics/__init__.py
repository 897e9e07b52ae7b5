"""The catalogue: every metric that profkit knows, said once.  raw ncu values -> short names in SI.

Raw names of Nsight Compute live in this folder only. One more metric is one more entry in the
METRICS of its file.
"""

from __future__ import annotations

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
from profkit.reports.metrics.derive import OPCODES, Metric, Raw, Source

_FILES = (launch, occupancy, memory, access, pipes, instructions, warps, peaks)
CATALOGUE: dict[str, Metric] = {metric.name: metric for file in _FILES for metric in file.METRICS}
# Metric -> the file of this folder that it stands in.
FAMILIES: dict[str, str] = {
    metric.name: file.__name__.rpartition(".")[2] for file in _FILES for metric in file.METRICS
}
# What identifies a launch; read by the reader, not metrics of their own.
IDENTITY = (
    "device__attribute_display_name",
    "device__attribute_compute_capability_major",
    "device__attribute_compute_capability_minor",
    *(f"launch__{what}_dim_{axis}" for what in ("grid", "block") for axis in "xyz"),
)
RAW_NAMES: frozenset[str] = frozenset(
    name for metric in CATALOGUE.values() for s in metric.sources for name in s.names + s.optional
)
INSTANCED: tuple[str, ...] = (OPCODES,)


def evaluate(raw: Raw) -> dict[str, float]:
    """Every catalogue metric of one launch.

    Args:
        raw: Raw ncu name -> value in ncu's unit, only of metrics that have a value; instances of
            the INSTANCED ones as "name[key]".

    Returns:
        Short name -> SI value, NaN where it was not collected.
    """
    return {name: metric.of(raw) for name, metric in CATALOGUE.items()}


__all__ = [
    "CATALOGUE",
    "FAMILIES",
    "IDENTITY",
    "INSTANCED",
    "OPCODES",
    "RAW_NAMES",
    "Metric",
    "Raw",
    "Source",
    "evaluate",
]
