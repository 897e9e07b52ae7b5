"""One launch  ->  the machine's ceilings, and where the launch is under them.

The hierarchical roofline: one intensity per memory level (operations over the bytes which that
level moved), one achieved rate, and a roof at each intensity: the lower one of the arithmetic's
peak and intensity x bandwidth.

A launch is a row of the frame: a mapping of short metric names to SI values, with its identity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isnan, nan
from typing import TYPE_CHECKING, Literal

from profkit.model.launch import (
    TOLERANCE,
    Missing,
    compute_counted_share_of_duration,
    explain_why_cache_resident,
    select_collected_metrics,
)
from profkit.records.gpus import find_gpu_exactly
from profkit.reports.metrics import CATALOGUE
from profkit.reports.metrics.compute import TENSOR_TYPES

if TYPE_CHECKING:
    from profkit.units import (
        BytesPerSecond,
        ClauseOrEmpty,
        FloatOrNan,
        FrameRow,
        MetricValues,
        OperationsPerSecond,
        Share,
    )


Values = Mapping[str, float]
Level = Literal["dram", "l2", "l1"]
LEVELS: tuple[Level, ...] = ("dram", "l2", "l1")
SCALAR = ("fp32", "fp64", "fp16")
FAMILIES = (*SCALAR, *(f"tensor_{kind}" for kind in TENSOR_TYPES))

Place = Literal["dram", "l2", "l1", "workload"]


_CLOCK = {"dram": "dram_clock", "l2": "l2_clock"}  # the others run at the SM clock


@dataclass(frozen=True)
class Ceiling:
    """A roof of the machine: of a level (dram, l2, l1) or a precision (fp32, tensor_fp16, ...)."""

    name: str
    value: float  # byte/s of a level, op/s of a precision (a fused multiply-add is two operations)
    clock: float  # that it holds at in Hz, NaN when the report does not say
    # the peak that ncu gives, at the measured clock; or worked out from what the driver says
    source: Literal["report", "device attributes"]

    @property
    def is_memory(self) -> bool:
        """Return whether it is a bandwidth."""
        return self.name in LEVELS


def list_ceilings(launch: FrameRow) -> tuple[Ceiling, ...]:
    """Return the roofs: memory levels from the outside in, then precisions.

    Those that the report has, and of the device attributes only those that it has not; `cc` is read
    for the one ceiling that needs it. Clocks and peaks hold for the part of the launch that was counted.
    """
    row = select_collected_metrics(launch)
    part = compute_counted_share_of_duration(row)
    roofs = []
    for name in (*LEVELS, *FAMILIES):
        if row.get(f"peak_{name}", 0) > 0:
            clock = row.get(_CLOCK.get(name, "sm_clock"), nan)
            roofs.append(Ceiling(name, row[f"peak_{name}"] / part, clock / part, "report"))
        elif (device := _make_ceiling_from_attributes(name, row, launch.get("cc"))) is not None:
            roofs.append(device)
    return tuple(roofs)


def _make_ceiling_from_attributes(name: str, row: MetricValues, cc: object) -> Ceiling | None:
    if name == "dram" and row.get("peak_dram_device", 0) > 0:
        clock = row.get("dram_clock_max", nan)
        return Ceiling(name, row["peak_dram_device"], clock, "device attributes")
    gpu = None
    if name == "fp32":
        gpu = find_gpu_exactly(cc)
    if gpu and gpu.fp32 and "sm_count" in row:
        clock = row.get("sm_clock", nan) / compute_counted_share_of_duration(row)
        if isnan(clock):
            clock = row.get("sm_clock_max", nan)
        value = row["sm_count"] * gpu.fp32 * 2 * clock
        if isnan(value):
            return None
        return Ceiling(name, value, clock, "device attributes")
    return None


@dataclass(frozen=True)
class RooflinePoint:
    """Where a launch is by the bytes of one level."""

    level: Place  # "workload": the declared operations over the compulsory bytes
    family: str  # the precision whose operations are counted; "" when no arithmetic ran
    intensity: float  # operations per byte; 0 for a launch without floating-point arithmetic
    rate: float  # operations per second
    moved: float  # bytes per second at the level
    attainable: float  # the roof over this intensity in op/s; NaN when not known
    roof: str  # name of the ceiling that is this roof; "" when not known
    # Rate over roof; where no arithmetic ran the share of the level's bandwidth, which is what the
    # quotient tends to. NaN when not known.
    share: float
    note: str = ""  # why the point is no position of the launch; "" for a good one

    @property
    def is_above_roof(self) -> bool:
        """Return whether it lies above its roof by more than passes of one launch differ."""
        return self.share > TOLERANCE


def list_precisions_dominant_first(launch: FrameRow) -> tuple[str, ...]:
    """Return the precisions in which arithmetic ran, the dominant one first.

    The tensor type with most operations leads when the tensor cores did most of them; else the
    precision that came nearest to its own peak (a pipe with 1/64 of the rate can bind with few
    operations).
    """
    row = select_collected_metrics(launch)
    rates = {}
    scalar = 0.0
    matrix = 0.0
    for family in FAMILIES:
        rate = _measure_arithmetic_rate(row, family)
        if not rate > 0:
            continue
        rates[family] = rate
        if family in SCALAR:
            scalar += rate
        else:
            matrix += rate

    def rank_family(family: str) -> tuple[bool, float]:
        first = matrix >= scalar and family not in SCALAR
        peak = row.get(f"peak_{family}", nan)
        if first or isnan(peak):
            return first, rates[family]
        return first, rates[family] / peak

    return tuple(sorted(rates, key=rank_family, reverse=True))


def list_roofline_points(
    launch: FrameRow,
    declared_operations: float | None = None,
    compulsory_bytes: float | None = None,
) -> tuple[RooflinePoint, ...]:
    """Return the launch's points in its dominant precision: one per level, then the workload's.

    None where something was not collected: `missing` says what. `declared_operations` are what the
    workload needs (`declared_operations` when None), `compulsory_bytes` the bytes that it cannot avoid:
    each input read once, each output written once (`declared_bytes` when None).
    """
    row = select_collected_metrics(launch)
    roof = {}
    for ceiling in list_ceilings(launch):
        roof[ceiling.name] = ceiling.value
    if declared_operations is None:
        declared_operations = row.get("declared_operations", nan)
    if compulsory_bytes is None:
        compulsory_bytes = row.get("declared_bytes", nan)
    ran = list_precisions_dominant_first(launch)
    family = ""
    if ran:
        family = ran[0]
    placed = []
    if not _find_uncounted_arithmetic(row):
        rate = 0.0
        if family:
            rate = _measure_arithmetic_rate(row, family)
        for level in LEVELS:
            moved = _measure_bytes_rate(row, level)
            if moved > 0:
                point = _make_roofline_point(level, family, rate, moved, roof)
                placed.append(
                    replace(point, note=_explain_no_position(row, level, compulsory_bytes))
                )
    if declared_operations > 0 and compulsory_bytes > 0 and row.get("time", 0) > 0:
        rate = declared_operations / row["time"]
        moved = compulsory_bytes / row["time"]
        placed.append(_make_roofline_point("workload", family, rate, moved, roof))
    return tuple(placed)


def _make_roofline_point(
    level: Place,
    family: str,
    operations_per_second: OperationsPerSecond,
    bytes_per_second: BytesPerSecond,
    ceilings: Mapping[str, float],
) -> RooflinePoint:
    memory: str = level
    if level == "workload":
        memory = "dram"
    bandwidth = ceilings.get(memory, nan)
    peak = ceilings.get(family, nan)
    intensity = operations_per_second / bytes_per_second
    slope = intensity * bandwidth
    of_memory = bytes_per_second / bandwidth
    of_arithmetic = operations_per_second / peak
    if isnan(peak):
        under = memory
        share = of_memory
        attainable = slope
    elif isnan(slope):
        under = family
        share = of_arithmetic
        attainable = peak
    elif of_memory >= of_arithmetic:
        under = memory
        share = of_memory
        attainable = min(slope, peak)
    else:
        under = family
        share = of_arithmetic
        attainable = min(slope, peak)
    if isnan(share):
        under = ""
    return RooflinePoint(
        level, family, intensity, operations_per_second, bytes_per_second, attainable, under, share
    )


def _explain_no_position(row: MetricValues, level: Level, compulsory: float) -> ClauseOrEmpty:
    """Return why the intensity at this level is no position; "" when it is one."""
    if level == "dram":
        return explain_why_cache_resident(row, compulsory)
    around = row.get("inst_async_copy", 0) + row.get("inst_texture", 0)
    if level == "l1" and around > 0 and row.get("l1_rate", nan) < 0.5 * row.get("l2_rate", nan):
        # ncu's L1 bytes are what the LSU writes back to registers from global and local memory.
        return "L1 bypassed: asynchronous copies go to shared memory, textures take another path"
    return ""


def find_nearest_roof(launch: FrameRow) -> tuple[str, Share] | None:
    """Return the ceiling that the launch comes nearest to, and its share of it; None when not known."""
    best = None
    for point in list_roofline_points(launch):
        if point.level == "workload" or not point.roof:
            continue
        if best is None or point.share > best.share:
            best = point
    if best is None:
        return None
    return best.roof, best.share


def list_missing_metrics(launch: FrameRow) -> tuple[Missing, ...]:
    """Return what to collect for the points that are not there: the section (none can help when "")."""
    row = select_collected_metrics(launch)
    if launch.get("status") == "failed":
        return (Missing("", "the launch failed under ncu"),)
    if "time" not in row:
        return (Missing(CATALOGUE["time"].section, "its duration was not collected"),)
    if (lack := _find_uncounted_arithmetic(row)) is not None:
        return (lack,)
    sections: dict[str, list[str]] = {}
    for level in LEVELS:
        for what, metric in (("bytes", f"{level}_rate"), ("peak", f"peak_{level}")):
            if metric not in row:
                sections.setdefault(CATALOGUE[metric].section, []).append(f"{level.upper()} {what}")
    missing = []
    for section, lacking in sections.items():
        missing.append(Missing(section, f"no {', '.join(lacking)}"))
    return tuple(missing)


def _find_uncounted_arithmetic(row: MetricValues) -> Missing | None:
    """Return arithmetic that ran but was not counted: a point without it would be a wrong one."""
    matrix = row.get("inst_matrix", nan)
    # Without the opcodes 5 % of the pipe decide: HFMA2.MMA alone shows up to 3.7 %.
    if "tensor_ops" not in row and (
        matrix > 0 or (isnan(matrix) and row.get("tensor_busy", 0) > 0.05)
    ):
        return Missing(
            CATALOGUE["tensor_ops"].section, "matrix operations ran but were not counted"
        )
    # A few HFMA2 load constants in any kernel: 1 % of the instructions is arithmetic.
    scalar = max(row.get("inst_fp32", 0), 0.01 * row.get("instructions", 0))
    if "fp16_rate" not in row and row.get("inst_half", 0) > scalar:
        return Missing(CATALOGUE["fp16_rate"].section, "half-precision operations not counted")
    for family in FAMILIES:
        if not isnan(_measure_arithmetic_rate(row, family)):
            return None
    return Missing(CATALOGUE["fp32_rate"].section, "floating-point operations not counted")


def _measure_arithmetic_rate(row: MetricValues, family: str) -> FloatOrNan:
    """Return operations per second in one precision; NaN when not counted."""
    if family in SCALAR:
        return row.get(f"{family}_rate", nan)
    operations = row.get(f"tensor_ops_{family.removeprefix('tensor_')}", nan)
    time = row.get("time")
    if time:
        return operations / time
    return nan


def _measure_bytes_rate(row: MetricValues, level: Level) -> FloatOrNan:
    """Return bytes per second at a level; NaN when not collected."""
    if level == "dram" and "dram_rate" not in row and {"dram_bytes", "time"} <= row.keys():
        return row["dram_bytes"] / row["time"]
    return row.get(f"{level}_rate", nan)
