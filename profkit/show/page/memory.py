"""One launch  ->  the memory hierarchy and the occupancy as a page shows them: texts and shares.

Each level says how busy it was, what it moved and what hit; what was not collected says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, nan
from typing import Any

from profkit.reports import figures
from profkit.reports.metrics import CATALOGUE
from profkit.reports.metrics.derive import SECTOR
from profkit.show.numbers import LIMITS, next_block
from profkit.show.text import words

Values = Mapping[str, float]


@dataclass(frozen=True)
class Fact:
    """A metric as text, with what it means; `share` is its value where it is one of 1."""

    name: str
    text: str
    meaning: str
    share: float | None = None


@dataclass(frozen=True)
class Level:
    """A level of the memory hierarchy."""

    name: str
    busy: Fact | None  # how near its peak it was
    facts: tuple[Fact, ...]  # hit rates, bandwidth
    down: str = ""  # what went from here towards the SMs: reads
    up: str = ""  # what came from the SMs: writes


def fact(values: Values, name: str, label: str) -> Fact:
    """A metric of the catalogue under a label."""
    value, metric = values.get(name, nan), CATALOGUE[name]
    shown = value if metric.unit == "share" and isfinite(value) else None
    return Fact(label, words.metric(name, value), f"{name}: {metric.meaning}", shown)


def levels(values: Values) -> list[Level]:
    """SM to DRAM; a level that a launch did not use (shared memory, host memory) is left out."""
    return [
        Level(
            "L1TEX",
            fact(values, "l1_busy", "busy"),
            (fact(values, "l1_hit", "hit rate"), _rate(values, "l1")),
            down=_bytes(_moved(values, "l1_rate")),
            up=_bytes(SECTOR * _sum(values, "global_store_sectors", "local_store_sectors")),
        ),
        Level(
            "L2",
            fact(values, "l2_cache_busy", "busy"),
            (
                fact(values, "l2_hit", "hit rate"),
                fact(values, "l2_read_hit", "of reads"),
                _rate(values, "l2"),
            ),
            down=_bytes(_first(values, "l2_to_l1_bytes", "l2_read_bytes")),
            up=_bytes(_first(values, "l1_to_l2_bytes", "l2_write_bytes")),
        ),
        Level(
            "DRAM",
            fact(values, "dram_busy", "busy"),
            (_rate(values, "dram"),),
            down=_bytes(values.get("dram_read", nan)),
            up=_bytes(values.get("dram_write", nan)),
        ),
    ]


def beside(values: Values) -> list[Fact]:
    """What else moved: shared memory, local memory, host memory, and what had to move at all."""
    labels = (
        ("shared_busy", "shared memory busy"),
        ("shared_ld_conflicts", "bank conflicts per load wavefront"),
        ("shared_st_conflicts", "bank conflicts per store wavefront"),
        ("local_bytes", "local memory"),
        ("excess_sectors", "sectors that coalesced accesses would not need"),
        ("global_load_sectors_per_request", "sectors per global load"),
        ("global_store_sectors_per_request", "sectors per global store"),
        ("sysmem_sectors", "sectors from host memory"),
        ("declared_bytes", "compulsory bytes of the workload"),
        ("dram_clock", "DRAM clock"),
    )
    return [fact(values, n, label) for n, label in labels if values.get(n, nan) > 0]


def _rate(values: Values, level: str) -> Fact:
    """Bandwidth and its share of the peak that the report gives."""
    rate, peak = values.get(f"{level}_rate", nan), values.get(f"peak_{level}", nan)
    text = figures.quantity(rate, "byte/s")
    around = values.get("inst_async_copy", 0.0) + values.get("inst_texture", 0.0)
    if level == "l1" and rate == 0 and around > 0:
        # ncu's L1 bytes are what goes back to registers: "0 B/s" beside a busy unit misleads.
        return Fact("bandwidth", "passed by: async copies and textures", "")
    meaning = f"{level}_rate: {CATALOGUE[f'{level}_rate'].meaning}"
    if rate >= 0 and peak > 0:
        return Fact("bandwidth", f"{text} of {figures.quantity(peak, 'byte/s')}", meaning)
    return Fact("bandwidth", text, meaning)


def _moved(values: Values, rate: str) -> float:
    return values.get(rate, nan) * values.get("time", nan)


def _sum(values: Values, *names: str) -> float:
    return sum(values.get(name, nan) for name in names)


def _first(values: Values, *names: str) -> float:
    return next((v for n in names if isfinite(v := values.get(n, nan))), nan)


def _bytes(value: float) -> str:
    return figures.quantity(value, "byte")


@dataclass(frozen=True)
class Limiter:
    """What an SM holds by one resource: blocks, whether it decides, what one more block needs."""

    name: str
    blocks: str
    decides: bool
    needs: str


def occupancy_facts(values: Values) -> dict[str, Any]:
    """Achieved and theoretical occupancy, every limiter, and the step to one more block."""
    row = {name: value for name, value in values.items() if isfinite(value)}
    blocks = {name: row[name] for name in LIMITS if name in row}
    least = min(blocks.values(), default=nan)
    shown = (
        ("warps_per_sm", "warps per SM"),
        ("max_warps", "of at most"),
        ("registers", "registers per thread"),
        ("shared_block", "shared memory per block"),
        ("waves", "waves"),
        ("sm_clock", "SM clock"),
    )
    return {
        "achieved": fact(values, "occupancy", "achieved"),
        "theoretical": fact(values, "occupancy_limit", "theoretical"),
        "facts": [fact(values, n, label) for n, label in shown],
        "limiters": [
            Limiter(name.removeprefix("limit_"), words.metric(name, n), n == least,
                    _needs(name, row))
            for name, n in blocks.items()
        ],
        "step": next_block(row, blocks, least) if blocks else "",
    }  # fmt: skip


def _needs(limiter: str, row: dict[str, float]) -> str:
    """What one more block by this limiter alone needs, where that can be said."""
    if limiter == "limit_registers" and row.get("registers_step", 0) > 0:
        return f"{row['registers_step']:.0f} registers per thread less"
    if limiter == "limit_shared" and row.get("shared_step", 0) > 0:
        return f"{words.metric('shared_step', row['shared_step'])} per block less"
    return ""
