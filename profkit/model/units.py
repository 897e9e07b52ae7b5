"""One launch  ->  how busy each unit of the machine was, as a share of its peak (elapsed cycles).

Every function of a unit raises NotCollected when the report does not have what it needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan, nan
from numbers import Real
from typing import Any

from profkit.model.launch import Launch
from profkit.reports.figures import share

Row = Mapping[str, Any]
HALF = 0.5  # of the sectors that L2 looks up: then atomics are what it does
NEARLY_ALL = 0.95  # of L1TEX's busiest stage: then texture is what L1TEX does
MAINLY = 0.7  # of the LSU's data stage: then shared memory is what L1TEX does
WAVEFRONT = 0.9  # of the LSU's entry: then each wavefront is a request of its own
# The heavy half of the FMA pipe this much fuller than both on average: IMAD, which only it can do
# (twice as full when there is nothing else).
HEAVY = 1.6
LINKS = ("l2_to_xbar_busy", "xbar_to_l2_busy")


def dram(launch: Launch) -> float:
    """DRAM's share of peak; where ncu's own was not collected, of the bandwidth by the attributes.

    Then at least: where reads alone were counted, writes are missing.
    """
    if "dram_busy" in launch:
        return launch["dram_busy"]
    peak = launch.get("peak_dram", launch.get("peak_dram_device", 0.0))
    if peak <= 0:
        launch.need("dram_busy")
    if "dram_rate" in launch:
        return launch["dram_rate"] / peak
    launch.need("time")
    moved = launch["dram_bytes"] if "dram_bytes" in launch else launch["dram_read"]
    return moved / launch["time"] / peak


def tensor(launch: Launch) -> float:
    """Tensor pipe; nothing when no matrix instruction ran (HFMA2.MMA counts on the pipe)."""
    if "inst_matrix" in launch and launch["inst_matrix"] == 0:
        return 0.0
    return launch["tensor_busy"]


def _mix(launch: Launch) -> tuple[float, float, float]:
    """FP32, half and integer-multiply warp instructions on the FMA pipe, as shares of the three."""
    counts = [launch[f"inst_{kind}"] for kind in ("fp32", "half", "imad")]
    whole = sum(counts)
    single, half, imad = (c / whole if whole else 0.0 for c in counts)
    return single, half, imad


def _fma_heavy(launch: Launch) -> float:
    """The fuller half of the FMA pipe: IMAD only goes to the heavy one."""
    return max(launch["fma_busy"], launch.get("fmaheavy_busy", 0.0))


def fp32_busy(launch: Launch) -> float:
    """FMA pipe when FP32 arithmetic is most of what runs on it."""
    if launch.known("inst_fp32", "inst_half", "inst_imad"):
        single, half, imad = _mix(launch)
        return launch["fma_busy"] if single >= max(half, imad) else 0.0
    if "fp16_busy" in launch and launch["fp16_busy"] > 0.5 * launch["fma_busy"]:
        return 0.0
    # Without opcodes: a heavy half twice as full as the pipe's average means IMAD.
    return launch["fma_busy"] if _fma_heavy(launch) < HEAVY * launch["fma_busy"] else 0.0


def integer(launch: Launch) -> float:
    """ALU, or the FMA pipe when integer multiply-adds are most of what runs on it."""
    alu = launch["alu_busy"]
    if "fma_busy" not in launch:
        return alu
    heavy = _fma_heavy(launch)
    if launch.known("inst_fp32", "inst_half", "inst_imad"):
        single, half, imad = _mix(launch)
        return max(alu, heavy) if imad > max(single, half) else alu
    return max(alu, heavy) if heavy >= HEAVY * launch["fma_busy"] else alu


def fp16(launch: Launch) -> float:
    """half2 arithmetic: its own pipe before 8.6, the FMA pipe from 8.6 on."""
    if not launch.known("inst_fp32", "inst_half", "inst_imad"):
        return launch["fp16_busy"]
    single, half, imad = _mix(launch)
    if half > max(single, imad):
        return max(launch.get("fp16_busy", 0.0), launch["fma_busy"])
    # Not counted on some GPUs (8.6 and 9.0 of some versions): the opcodes say that it is not full.
    return launch.get("fp16_busy", 0.0)


def shared(launch: Launch) -> float:
    """The L1TEX data stage where shared memory is most of what goes through it, else its own part."""
    busy = launch["shared_busy"]
    stage = launch.get("lsu_data_busy", busy)
    return max(busy, stage) if busy >= MAINLY * stage else busy


def l1(launch: Launch) -> float:
    """L1TEX less what shared memory and texture alone explain."""
    busy = launch["l1_busy"]
    if "texture_busy" in launch and launch["texture_busy"] >= NEARLY_ALL * busy:
        return 0.0
    if "shared_busy" in launch and launch["shared_busy"] >= MAINLY * launch["lsu_data_busy"]:
        entry = launch.get("lsu_in_busy", 0.0)  # one request a wavefront: shared memory fills both
        return 0.0 if launch["shared_busy"] >= WAVEFRONT * entry else min(busy, entry)
    return busy


def fetched(launch: Launch) -> float:
    """Bytes that DRAM reads for each byte that missed L2: 2 where it fetches sectors by pairs."""
    if not launch.known("dram_read", "l2_read_hit", "l2_read_bytes"):
        return 1.0
    missed = (1 - launch["l2_read_hit"]) * launch["l2_read_bytes"]
    return min(2.0, max(1.0, launch["dram_read"] / missed)) if missed > 0 else 1.0


def mostly_atomics(launch: Launch) -> bool:
    """Whether atomics are at least half of what L2 looks up."""
    if not launch.known("l2_atomic_sectors", "l2_sectors"):
        return False
    return launch["l2_atomic_sectors"] >= HALF * max(launch["l2_sectors"], 1)


def links(launch: Launch) -> float:
    """The crossbar between L1TEX and L2, both ways: what is left of L2 without DRAM behind it."""
    return max(launch[name] for name in LINKS)


def l2(launch: Launch) -> float:
    """L2 stages without the fill; of those that atomics fill, only the links that bring them."""
    if not mostly_atomics(launch):
        return launch["l2_cache_busy"]
    return links(launch) if launch.known(*LINKS) else 0.0


def atomics_busy(launch: Launch) -> float:
    """The L2 atomic unit, or a stage behind the links when atomics are most of its work."""
    busy = launch["l2_atomics_busy"]
    if not mostly_atomics(launch):
        return busy
    if not launch.known(*LINKS):
        return max(busy, launch["l2_cache_busy"])
    return max(busy, launch.get("l2_tag_busy", 0.0), launch.get("l2_data_busy", 0.0))


def collected_metrics(launch: Row) -> dict[str, float]:
    """The collected metrics of a row, without its identity and without NaN."""
    pairs = ((name, launch[name]) for name in launch if name in launch)
    # Nearly all are float, and to ask an abstract class takes as long as the rest.
    numbers = ((n, v) for n, v in pairs if type(v) is float or isinstance(v, Real))
    return {n: float(v) for n, v in numbers if not isnan(v)}


def cache_resident(launch: Row, compulsory: float | None = None) -> str:
    """Why the launch's data came from the caches and not from DRAM; "" when it did not.

    Then what DRAM moved says nothing of the launch, nor does its intensity at DRAM. With declared
    bytes the question has an answer: DRAM moved less than half of what had to move. Without them
    only the clear case is named: not a byte a thread came from DRAM, and L2 hit nearly always.
    Reuse in L2 or an idle DRAM alone is not residence: each byte may still have come from DRAM once.
    """
    row = collected_metrics(launch)
    compulsory = row.get("declared_bytes", nan) if compulsory is None else compulsory
    if "dram_bytes" not in row:
        return ""
    if compulsory > 0:
        part = row["dram_bytes"] / compulsory
        text = f"cache-resident: DRAM moved {share(part)} of the compulsory bytes"
        return text if part < 0.5 else ""
    each = row["dram_bytes"] / row["threads"] if row.get("threads", 0) > 0 else nan
    if each < 1 and row.get("l2_hit", nan) > 0.9:
        hit = share(row["l2_hit"])
        return f"cache-resident: DRAM moved {each:.2g} bytes a thread, {hit} hit in L2"
    return ""
