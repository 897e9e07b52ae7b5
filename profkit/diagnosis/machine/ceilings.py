"""One launch  ->  the ceilings of the machine that it ran on, at the clocks that it ran at.

Every ceiling comes from the report; from the device attributes, and marked so, when those are all
there is; never from a list of cards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan, nan
from typing import Literal

from profkit.diagnosis.machine.units import Row, collected_metrics
from profkit.reports.metrics.peaks import TENSOR_TYPES

Values = Mapping[str, float]
Level = Literal["dram", "l2", "l1"]
LEVELS: tuple[Level, ...] = ("dram", "l2", "l1")
SCALAR = ("fp32", "fp64", "fp16")
FAMILIES = (*SCALAR, *(f"tensor_{kind}" for kind in TENSOR_TYPES))

_CLOCK = {"dram": "dram_clock", "l2": "l2_clock"}  # the others run at the SM clock
# FP32 results per cycle and SM by compute capability: table "Throughput of Native Arithmetic
# Instructions" of the CUDA C++ Programming Guide. Only for reports without the measured peak.
_FP32_PER_SM = {"7.0": 64, "7.2": 64, "7.5": 64, "8.0": 64, "8.6": 128, "8.9": 128, "9.0": 128,
                "10.0": 128, "12.0": 128}  # fmt: skip


@dataclass(frozen=True)
class Ceiling:
    """A roof of the machine.

    Attributes:
        name: A level (dram, l2, l1) or a precision (fp32, fp64, fp16, tensor_fp16, ...).
        value: byte/s of a level, op/s of a precision (a fused multiply-add is two operations).
        clock: The clock it holds at in Hz, NaN when the report does not say.
        source: "report": the peak that ncu gives, at the measured clock; "device attributes":
            worked out from what the driver says of the device.
    """

    name: str
    value: float
    clock: float
    source: Literal["report", "device attributes"]

    @property
    def memory(self) -> bool:
        """Whether it is a bandwidth."""
        return self.name in LEVELS


def ceilings(launch: Row) -> tuple[Ceiling, ...]:
    """The roofs: memory levels from the outside in, then precisions.

    Args:
        launch: A row of the frame; `cc` is read for the one ceiling that needs it.

    Returns:
        Those that the report has, and of the device attributes only those that it has not.
    """
    row = collected_metrics(launch)
    roofs = []
    for name in (*LEVELS, *FAMILIES):
        if row.get(f"peak_{name}", 0) > 0:
            clock = row.get(_CLOCK.get(name, "sm_clock"), nan)
            roofs.append(Ceiling(name, row[f"peak_{name}"], clock, "report"))
        elif (device := _from_attributes(name, row, launch.get("cc"))) is not None:
            roofs.append(device)
    return tuple(roofs)


def _from_attributes(name: str, row: Values, cc: object) -> Ceiling | None:
    if name == "dram" and row.get("peak_dram_device", 0) > 0:
        clock = row.get("dram_clock_max", nan)
        return Ceiling(name, row["peak_dram_device"], clock, "device attributes")
    if name == "fp32" and cc in _FP32_PER_SM and "sm_count" in row:
        clock = row.get("sm_clock", row.get("sm_clock_max", nan))
        value = row["sm_count"] * _FP32_PER_SM[str(cc)] * 2 * clock
        return None if isnan(value) else Ceiling(name, value, clock, "device attributes")
    return None
