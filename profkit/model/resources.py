"""One launch  ->  how close each resource of the machine is to what it can really reach.

Every number that decides "near its peak" is here, once, with its reason. A resource is near
when its share of peak passes `sure`; or when it passes `likely` and the warps queue for it: the
stalls that only a full unit causes take a share `queued` of their time. Between the two without a
queue the launch is waiting for latency, not for throughput.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf
from operator import itemgetter
from typing import TYPE_CHECKING, Literal

from profkit.model import launch as units
from profkit.model.launch import HOT_SLICE, NotCollected, StrictLaunch, Threshold
from profkit.reports.figures import format_share

if TYPE_CHECKING:
    from profkit.units import Clause, Cycles, Share, ShareOrZero, UnitName


Group = Literal["memory", "compute"]

# A unit can only work while its SM has warps. Up to this much idle time (launch, ramp, tail) the
# share of peak is taken of the time at work; beyond it, idleness itself is the finding.
IDLE_ALLOWED = 0.25
QUEUED_LOAD_CYCLES = Threshold(
    1500,
    "Unloaded DRAM latency is 500 to 900 cycles on every GPU since Volta (pointer-chase "
    "microbenchmarks: arXiv 1804.06826, 2402.13499). A load that waits twice as long is in a queue.",
)
# With this share of the warps resident, nearly all of them waiting for loads and this much of DRAM
# busy, the requests in flight are all that an SM can have: parallelism is not what is missing.
CROWDED = 0.7
READY = 0.65  # issue slots used from which warps that wait for a slot are enough of a sign
CROWDED_DRAM = 0.6
LOADING = 0.8  # "nearly all": with less than this, a fifth of the warps had something else to do
WIDE = 8  # sectors of a request (of 4 when each of 32 lanes asks for 4 bytes) that half fill it
THROTTLED = 0.2  # the LSU's own queue is full, or stores cannot leave: no latency looks like that
FOREMOST = 0.8  # a queue is the cause if no other wait is clearly longer than it
ALONE = 1.5  # ready warps say little of a half-used scheduler unless they outweigh all other waits
# Sectors at random places open a DRAM row for 64 bytes: 53 % of the pins' rate is what they get with
# everything in flight (gather-dram, H200), whatever else is fixed. DRAM fetching nearly two sectors
# for each that missed tells them from streams.
SCATTERED = 0.55
PAIRED = 1.8
# Share of writes among DRAM's bytes, and what the best stream on record with it got of the pins' rate:
# turning the bus around costs time. On an H200 and an H100 the same within a percent but for copies:
# 0.83 and 0.89.
MIXED = 0.90  # where the share of writes is not known: between the best and the worst of them
STREAMS = ((0.0, 0.94), (0.2, 0.92), (0.33, 0.91), (0.5, 0.86), (1.0, 0.875))
# SMs of a GPU -> blocks that it begins a second, at most: one launcher hands them out for all SMs. Nine
# launches of seven sources, of 16 to 128 threads a block, got 1.63 to 1.66e9 on an H100 and an H200,
# whatever they waited for besides; nothing on record says it of other GPUs.
BEGUN: Mapping[int, float] = {132: 1.66e9}
WORKING = ("selected", "not_selected")  # a warp in these states waits for no event


@dataclass
class Peak:
    """From where on a kind of unit is near its peak. One for all units that work alike."""

    sure: float  # share of peak (of the time at work) at which it is near whatever else shows
    likely: float  # share at which it is near if warps queue for it
    queued: float  # share of the warps' time in the states of its queue that counts as a queue
    reason: str
    group: Group = "memory"


# What holds each of these numbers, and how far each can move: tests/kernels/test_thresholds.py.

DRAM = Peak(
    0.75,
    0.45,
    0.5,
    "Refresh and read-write turns leave a copy 82 to 95 % of the pins' rate. Scattered sectors "
    "and TLB misses lower what can be reached, down to half; then loads queue.",
)
L2 = Peak(
    0.70,
    0.60,
    0.5,
    "Streams that remain in L2 reach 75 to 95 % of its slices and links: hashing fills slices "
    "unevenly.",
)
L1TEX = Peak(
    0.75,
    0.55,
    0.3,
    "Every stage of L1TEX takes one wavefront, sample or address a cycle and reaches 95 % and "
    "more: what is missing to that is ramp and the instructions between. A full one backs up into "
    "its queue; a third of the warps' time there is more than any other wait of such a launch.",
)
PIPE = Peak(
    0.75,
    0.60,
    0.15,
    "Independent instructions fill a pipe to 95 % and more. Warps that are throttled a little "
    "while it idles 40 % of the time ran into each other; from a seventh of their time on it is "
    "the pipe.",
    "compute",
)
ISSUE = Peak(
    0.70,
    0.55,
    0.2,
    "One instruction per cycle and scheduler. Ready warps that are not selected queue for it, but "
    "they are always some where there are many warps. Warps that depend on each other (barriers, "
    "tree loops) leave a scheduler empty now and then: kernels at 70 % became faster by as much "
    "as they had fewer instructions, whatever else they waited for.",
    "compute",
)


@dataclass(frozen=True, kw_only=True)
class Resource:
    """A unit that can be the bottleneck."""

    limiter: str  # the verdict's word
    rule: str  # names it when nothing more special explains it
    busy: Callable[
        [StrictLaunch], float
    ]  # share of its peak, of elapsed cycles; raises NotCollected
    peak: Peak
    # The largest share of its peak that any launch on record holds over its whole time (probes and
    # ladder on an H200, published streams elsewhere). Refresh and read-write turns take the rest of
    # DRAM, uneven hashing that of L2; pipes lose only ramp and end.
    reach: float
    queue: tuple[str, ...]  # warp states that a full unit causes
    work: tuple[str, ...]  # counts whose sum its work goes by

    @property
    def group(self) -> Group:
        """Return whether the unit computes or moves data."""
        return self.peak.group


@dataclass(frozen=True)
class ResourceUse:
    """A resource in one launch: its share of peak (elapsed), of the time at work; is it near?"""

    resource: Resource
    elapsed: float
    share: float
    near: bool

    def copy_with_scaled_share(self, factor: float, launch: StrictLaunch) -> ResourceUse:
        """Return the same with a share of peak that many times as large: would it be near?"""
        part = self.share * factor
        return replace(self, share=part, near=_is_near_peak(self.resource, part, launch))


_LOADS = ("long_scoreboard", "lg_throttle", "drain")
_SHARED = ("mio_throttle", "short_scoreboard")
_MATH = "math_pipe_throttle"
RESOURCES = (
    Resource(
        limiter="dram",
        rule="dram-bandwidth",
        busy=units.measure_dram_busy,
        peak=DRAM,
        reach=0.94,
        queue=_LOADS,
        work=("dram_bytes",),
    ),
    Resource(
        limiter="l2",
        rule="l2-bandwidth",
        busy=units.measure_l2_busy,
        peak=L2,
        reach=0.85,
        queue=_LOADS,
        work=("l2_bytes",),
    ),
    Resource(
        limiter="l1",
        rule="l1-bandwidth",
        busy=units.measure_l1_busy,
        peak=L1TEX,
        reach=0.97,
        queue=("lg_throttle",),
        work=(
            "global_load_sectors",
            "global_store_sectors",
            "shared_wavefronts",
            "local_load_sectors",
            "local_store_sectors",
        ),
    ),
    Resource(
        limiter="shared",
        rule="shared-bandwidth",
        busy=units.measure_shared_busy,
        peak=L1TEX,
        reach=0.97,
        queue=_SHARED,
        work=("shared_wavefronts",),
    ),
    Resource(
        limiter="texture",
        rule="texture-bandwidth",
        busy=itemgetter("texture_busy"),
        peak=L1TEX,
        reach=0.98,
        queue=("tex_throttle", "long_scoreboard"),
        work=("inst_texture",),
    ),
    Resource(
        limiter="constant",
        rule="constant-divergence",
        busy=itemgetter("constant_busy"),
        peak=L1TEX,
        reach=0.95,
        queue=("short_scoreboard", "mio_throttle"),
        work=("instructions",),
    ),
    Resource(
        limiter="atomics",
        rule="atomics-contention",
        busy=units.measure_atomics_busy,
        peak=L2,
        reach=0.95,
        queue=_LOADS,
        work=("l2_atomic_sectors",),
    ),
    Resource(
        limiter="tensor",
        rule="tensor-pipe",
        busy=units.measure_tensor_busy,
        peak=PIPE,
        reach=0.95,
        queue=(_MATH, "gmma"),
        work=("inst_matrix",),
    ),
    Resource(
        limiter="fp32",
        rule="fp32-pipe",
        busy=units.measure_fp32_busy,
        peak=PIPE,
        reach=0.97,
        queue=(_MATH,),
        work=("inst_fp32",),
    ),
    Resource(
        limiter="fp64",
        rule="fp64-pipe",
        busy=itemgetter("fp64_busy"),
        peak=PIPE,
        reach=0.97,
        queue=(_MATH, "tex_throttle"),  # small GPUs queue FP64 with textures
        work=("inst_fp64",),
    ),
    Resource(
        limiter="fp16",
        rule="fp16-pipe",
        busy=units.measure_fp16_busy,
        peak=PIPE,
        reach=0.95,
        queue=(_MATH,),
        work=("inst_half",),
    ),
    Resource(
        limiter="int",
        rule="int-pipe",
        busy=units.measure_integer_busy,
        peak=PIPE,
        reach=0.95,
        queue=(_MATH,),
        work=("instructions",),
    ),
    Resource(
        limiter="xu",
        rule="xu-pipe",
        busy=itemgetter("xu_busy"),
        peak=PIPE,
        reach=0.97,
        queue=(_MATH, *_SHARED),
        work=("inst_xu",),
    ),
    Resource(
        limiter="issue",
        rule="issue-slots",
        busy=itemgetter("issue_busy"),
        peak=ISSUE,
        reach=0.95,
        queue=("not_selected", _MATH, "dispatch_stall"),
        work=("instructions",),
    ),
)
BY_LIMITER = {resource.limiter: resource for resource in RESOURCES}
EVERY = tuple(BY_LIMITER)
COMPUTE = tuple(r.limiter for r in RESOURCES if r.group == "compute")
ENTRY, LINKS = "entry", "links"  # of L1TEX, and between it and L2: no limiter is called so
REACH: Mapping[str, float] = {r.limiter: r.reach for r in RESOURCES} | {LINKS: 0.90, ENTRY: 0.97}


def compute_floored_working_share(launch: StrictLaunch) -> Share:
    """Share of the time in which the average SM had work, floored at 1 - IDLE_ALLOWED."""
    active = launch.get("sm_active", 1.0)
    return min(1.0, max(active, 1 - IDLE_ALLOWED))


def compute_cycles_waited_per_load(launch: StrictLaunch) -> Cycles:
    """Return cycles that warps waited on L1TEX per load: latency x (1 when loads are single).

    Little's law read backwards: a lower bound of the loads' latency when several are in flight.
    """
    loads = launch["inst_global_load"] + launch["inst_async_copy"] + launch["inst_texture"]
    if loads <= 0:
        raise NotCollected("inst_global_load")
    waited = launch["stall_long_scoreboard"] * launch["warp_latency"] * launch["instructions"]
    return waited / loads


def measure_resource_use(resource: Resource, launch: StrictLaunch) -> ResourceUse | None:
    """Return how busy one resource was, or None when it was not collected."""
    try:
        elapsed = resource.busy(launch)
    except NotCollected:
        return None
    if elapsed <= 1:
        part = min(elapsed / compute_floored_working_share(launch), 1.0)
    else:
        part = elapsed
    return ResourceUse(resource, elapsed, part, _is_near_peak(resource, part, launch))


def _is_near_peak(resource: Resource, part: Share, launch: StrictLaunch) -> bool:
    peak = resource.peak
    if part >= peak.sure or part < peak.likely:
        return part >= peak.sure
    if not launch.list_metrics_with_prefix("stall_"):
        return part >= (peak.sure + peak.likely) / 2  # nothing says whether warps queue
    return _has_waiting_queue(resource, launch)


def list_resource_uses(launch: StrictLaunch) -> list[ResourceUse]:
    """Return every collected resource, busiest first (against what it can reach)."""
    found = []
    for resource in RESOURCES:
        use = measure_resource_use(resource, launch)
        if use is not None:
            found.append(use)
    return sorted(found, key=lambda use: -use.share / use.resource.peak.sure)


@dataclass(frozen=True)
class NextLimit:
    """What binds next."""

    limiter: str
    elapsed: float  # its share of peak, of elapsed cycles
    room: float  # how many times faster the launch is with it at what it can reach; inf when idle

    def say_as_clause(self, share_of_peak_now: Share) -> Clause:
        """Return it as a clause, behind a resource with this share of its peak."""
        if self.elapsed > share_of_peak_now:  # fuller is not the next: each can bind by itself
            return f"{self.limiter} is at {format_share(self.elapsed)}"
        return f"next is {self.limiter} at {format_share(self.elapsed)}"


def measure_busiest_full_l2_slice(launch: StrictLaunch) -> ShareOrZero:
    """Return how busy the busiest slice of L2 is where accesses to few addresses fill it; else 0.

    Where these are atomics, or may be, fixes of other causes need fewer of them: what is left is not
    known. In short launches slices are filled unevenly, and none is full.
    """
    if not launch.has_collected("l2_busy", "l2_busy_max") or not units.has_no_atomics(launch):
        return 0.0
    busiest = launch["l2_busy_max"]
    if busiest < L2.sure or busiest - launch["l2_busy"] < HOT_SLICE:
        return 0.0
    return busiest


def measure_unit_shares_of_peak(launch: StrictLaunch) -> dict[UnitName, Share]:
    """Return the share of its peak that each collected unit was at, of elapsed cycles."""
    if launch.unit_shares is None:
        launch.unit_shares = _measure_each_unit(launch)
    return dict(launch.unit_shares)


def _measure_each_unit(launch: StrictLaunch) -> dict[UnitName, Share]:
    shares = {}
    for resource in RESOURCES:
        use = measure_resource_use(resource, launch)
        if use is not None:
            shares[resource.limiter] = use.elapsed
    if "l2" in shares:
        shares["l2"] = max(shares["l2"], measure_busiest_full_l2_slice(launch))
    if "lsu_in_busy" in launch:
        shares[ENTRY] = launch["lsu_in_busy"]
    with suppress(NotCollected):
        shares[LINKS] = units.measure_crossbar_busy(launch)
    return shares


def compute_share_of_block_launch_rate(launch: StrictLaunch) -> Share | None:
    """Return the rate at which blocks began over the most that this GPU begins; None when not known."""
    if not launch.has_collected("grid_size", "time", "sm_count") or launch["sm_count"] not in BEGUN:
        return None
    return launch["grid_size"] / launch["time"] / BEGUN[int(launch["sm_count"])]


def find_busiest_resource_but(launch: StrictLaunch, *left_out_units: UnitName) -> NextLimit | None:
    """Return the busiest resource other than those: what binds when they no longer do.

    Without DRAM, L2 is only its links to the SMs: its other stages are busy filling from DRAM.
    """
    shares = measure_unit_shares_of_peak(launch)
    links = shares.pop(LINKS, None)
    if "dram" in left_out_units:
        shares.pop("l2", None)
        shares |= {} if links is None else {"l2": links}
    limits = []
    for unit, part in shares.items():
        most = SCATTERED if unit == "dram" and is_dram_access_scattered(launch) else 1.0
        if unit not in (*left_out_units, ENTRY):
            limits.append(NextLimit(unit, part, most / part if part > 0 else inf))
    return min(limits, key=lambda limit: limit.room, default=None)


def is_dram_access_scattered(launch: StrictLaunch) -> bool:
    """Return whether DRAM serves sectors at random places, which it cannot do at its full rate."""
    return units.compute_dram_bytes_per_l2_miss(launch) >= PAIRED


def find_attainable_share(unit: UnitName, launch: StrictLaunch) -> Share:
    """Return the share of its peak that a unit can get to in a launch with this access pattern."""
    if unit != "dram":
        return REACH[unit]
    return SCATTERED if is_dram_access_scattered(launch) else find_attainable_share_of_pins(launch)


def find_attainable_share_of_pins(launch: StrictLaunch) -> Share:
    """Share of the pins' rate that a stream with this part of writes gets, between what was measured."""
    if not launch.has_collected("dram_write", "dram_bytes") or launch["dram_bytes"] <= 0:
        return MIXED
    part = min(1.0, launch["dram_write"] / launch["dram_bytes"])
    for (few, before), (many, after) in pairwise(STREAMS):
        if part <= many:
            return before + (after - before) * (part - few) / (many - few)
    return STREAMS[-1][1]


def _has_waiting_queue(resource: Resource, launch: StrictLaunch) -> bool:
    """Return whether the warps queue for this resource rather than wait for something else."""
    waiting = 0.0
    longest_other = 0.0
    others = 0.0
    for name in launch.list_metrics_with_prefix("stall_"):
        state = name.removeprefix("stall_")
        if state in resource.queue:
            waiting += launch[name]
        elif state not in WORKING:
            others += launch[name]
            longest_other = max(longest_other, launch[name])
    if waiting < resource.peak.queued:
        return False
    if resource.queue == BY_LIMITER["dram"].queue:
        return _is_queue_of_loads(resource, launch)
    if resource.limiter == "issue" and launch["issue_busy"] < READY:
        # Ready warps that are not issued explain a half-used scheduler only if little else happens.
        return waiting >= ALONE * others
    return waiting >= FOREMOST * longest_other


def _is_full_of_requests(launch: StrictLaunch) -> bool:
    """Return whether as many requests are in flight as an SM can have, and wide ones."""
    if launch["dram_busy"] < CROWDED_DRAM or launch.get("occupancy", 0.0) < CROWDED:
        return False
    wide = launch.get("global_load_sectors_per_request", inf) >= WIDE
    return wide and launch["stall_long_scoreboard"] >= LOADING


def _is_queue_of_loads(resource: Resource, launch: StrictLaunch) -> bool:
    """Return whether waits for loads are a queue: then more warps would not help."""
    if resource.limiter == "l2" and launch.get("dram_busy", 0.0) >= launch["l2_cache_busy"]:
        return False  # the stream that L2 passes on queues for DRAM
    if launch.get("stall_lg_throttle", 0.0) + launch.get("stall_drain", 0.0) >= THROTTLED:
        return True
    if resource.limiter == "dram" and _is_full_of_requests(launch):
        return True
    try:
        return compute_cycles_waited_per_load(launch) >= QUEUED_LOAD_CYCLES
    except NotCollected:
        return False
