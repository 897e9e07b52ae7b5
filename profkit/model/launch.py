"""One launch: short metric names -> SI values, absent is never zero  ->  how busy each unit was.

Every function of a unit gives a share of its peak (of elapsed cycles), and raises NotCollected when
the report does not have what it needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import isnan, nan
from numbers import Real
from typing import TYPE_CHECKING, Any

from profkit.reports.figures import format_share
from profkit.reports.metrics.derive import SECTOR, UNITS

if TYPE_CHECKING:
    from profkit.units import (
        Clause,
        ClauseOrEmpty,
        FloatOrZero,
        FrameRow,
        MetricName,
        Share,
        ShareOrOne,
        ShareOrZero,
        UnitName,
    )


# No launch has 0 of these, nor less: what says so was damaged, or is of another program.
_POSITIVE = frozenset(
    {
        "time",
        "cycles",
        "sm_clock",
        "dram_clock",
        "sm_clock_max",
        "dram_clock_max",
        "l2_clock",
        "sm_count",
        "grid_size",
        "block_size",
        "threads",
        "waves",
        "max_warps",
        "l2_size",
        "threads_per_warp",
        "threads_per_warp_predicated",
        "instructions",
        "peak_dram",
        "peak_dram_device",
        "peak_l2",
        "peak_l1",
        "peak_fp32",
        "peak_fp64",
        "peak_fp16",
    }
)
_LEAST = 1e-30  # of what is positive, in SI: shorter than light takes through an atom's nucleus
_ORDINARY = 1e6  # up to here, nothing is looked up: a verdict asks for a hundred metrics
_MOST = {"share": 1e6, "s": 1e9, "Hz": 1e15}  # in SI, by unit; a share is 1 when something is full
_MOST_OF_ALL = 1e30  # of operations, bytes and counts


def is_impossible_value(metric: MetricName, value: float) -> bool:
    """Return whether no launch can have this value of a metric of the catalogue.

    Every one of them counts something, or is a time, a clock or a share: none is negative.
    """
    if _LEAST <= value <= _ORDINARY or metric not in UNITS:
        return False
    if value < _LEAST:
        return value < 0 or metric in _POSITIVE
    return value > _MOST.get(UNITS[metric], _MOST_OF_ALL)


class NotCollected(KeyError):
    """A rule asked for a metric that the report does not have, or of which no launch has the value.

    `found` is that impossible value; None where there is none at all.
    """

    def __init__(self, metric: str, found: float | None = None) -> None:
        super().__init__(metric)
        self.metric = metric
        self.found = found


class StrictLaunch(Mapping[str, float]):
    """One row of the frame as rules see it: indexing a metric that is NaN raises NotCollected.

    So does one that is impossible, a launch of 0 threads say: arithmetic with it means nothing.
    """

    def __init__(self, values: Mapping[str, float]) -> None:
        self._values = values
        self._checked: dict[str, float] = {}  # a verdict asks 3,600 times for some 150 metrics
        self._present: dict[str, list[str]] = {}  # and for the warp states 30 times
        self.unit_shares: dict[str, float] | None = (
            None  # of resources.py, which is asked for 26 times
        )

    def __getitem__(self, metric: str) -> float:
        if metric in self._checked:
            return self._checked[metric]
        value = self._values.get(metric)
        if value is None or isnan(value):
            raise NotCollected(metric)
        if is_impossible_value(metric, value):
            raise NotCollected(metric, value)
        self._checked[metric] = float(value)
        return self._checked[metric]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, metric: object) -> bool:
        if metric in self._checked:
            return True
        value = self._values.get(str(metric))
        return (
            value is not None and not isnan(value) and not is_impossible_value(str(metric), value)
        )

    def find_impossible_metrics(self) -> dict[MetricName, float]:
        """Return the metrics that were collected with a value that no launch has."""
        found = {}
        for name, value in self._values.items():
            if not _LEAST <= value <= _ORDINARY and is_impossible_value(name, value):
                found[name] = value
        return found

    def require_collected(self, *metrics: MetricName) -> None:
        """Raise NotCollected unless every one of these metrics was collected."""
        for metric in metrics:
            self[metric]

    def has_collected(self, *metrics: MetricName) -> bool:
        """Return whether all these metrics were collected."""
        return all(metric in self for metric in metrics)

    def sum_collected_metrics(self, metrics: Iterable[MetricName]) -> FloatOrZero:
        """Return the sum of those of these metrics that were collected; 0 where none was."""
        total = 0.0
        for metric in metrics:
            total += self.get(metric, 0.0)
        return total

    def list_metrics_with_prefix(self, prefix: str) -> list[MetricName]:
        """Return the collected metrics whose short name begins so."""
        known = self._present.get(prefix)
        if known is None:
            known = []
            for metric in self:
                if metric.startswith(prefix) and metric in self:
                    known.append(metric)
            self._present[prefix] = known
        return known


Launch = StrictLaunch  # what rules of one's own call it: pk.Launch


@dataclass(frozen=True)
class Missing:
    """Something not collected: the smallest Nsight Compute section that has it, and why."""

    section: str
    why: str


class Threshold(float):
    """A number that decides, and the reason why it is this one."""

    reason: str

    def __new__(cls, value: float, reason: str) -> Threshold:
        number = super().__new__(cls, value)
        number.reason = reason
        return number


_ENDS = (
    "Seconds in which no SM has work, measured on 430 launches as 1 - busiest: 1.4 to 2.7 us on H200, "
    "1.0 to 3.5 on 8.6, 8.9 and 12.0, 4.0 to 4.4 on B200. Where the busiest SM was not counted, idle "
    "time up to the most is assumed to be this, and the answer names the assumption."
)
ENDS = Threshold(1.5e-6, _ENDS)
ENDS_MOST = Threshold(5e-6, _ENDS)


@dataclass(frozen=True)
class Idleness:
    """Shares of the elapsed time: the one measure of idleness, without a border in microseconds."""

    average: float  # in which the average SM had work
    busiest: float  # in which the busiest SM had work; at least the average
    # The busiest SM was not counted (before ncu 2024.1): idle time as long as launches begin and end
    # is taken for that, the rest for SMs that finish before the busiest one.
    assumed: bool

    @property
    def share_without_any_work(self) -> Share:
        """Return the share of the time in which not even the busiest SM had work."""
        return 1 - self.busiest

    @property
    def spread(self) -> Share:
        """Return the share of the time in which the busiest SM had work and the average one had not."""
        return self.busiest - self.average


def measure_idleness(launch: StrictLaunch) -> Idleness:
    """Return the shares of the time in which the average and the busiest SM had work."""
    if "sm_active_max" in launch:
        busiest = min(1.0, launch["sm_active_max"])
        return Idleness(min(busiest, launch.get("sm_active", busiest)), busiest, assumed=False)
    if "sm_active" in launch:
        average = min(1.0, launch["sm_active"])
        return Idleness(average, _estimate_busiest_sm_active_share(launch, average), assumed=True)
    launch.require_collected("time")
    busiest = 1.0
    if launch["time"] > 0:
        busiest = 1 - min(1.0, ENDS / launch["time"])
    return Idleness(busiest, busiest, assumed=True)


def _estimate_busiest_sm_active_share(launch: StrictLaunch, average: Share) -> Share:
    """Return the busiest SM's share where only the average one was counted."""
    if launch.has_collected("grid_size", "sm_count") and launch["grid_size"] < launch["sm_count"]:
        return min(1.0, average * launch["sm_count"] / launch["grid_size"])  # the others had none
    time = launch.get("time", 0.0)
    return 1 - (min(1 - average, ENDS_MOST / time) if time > 0 else 0.0)


# How busy each unit was.

Row = Mapping[str, Any]
HALF = 0.5  # of the sectors that L2 looks up: then atomics are what it does
NEARLY_ALL = 0.95  # of L1TEX's busiest stage: then texture is what L1TEX does
MAINLY = 0.7  # of the LSU's data stage: then shared memory is what L1TEX does
WAVEFRONT = 0.9  # of the LSU's entry: then each wavefront is a request of its own
# The heavy half of the FMA pipe this much fuller than both on average: IMAD, which only it can do
# (twice as full when there is nothing else).
HEAVY = 1.6
LINKS = ("l2_to_xbar_busy", "xbar_to_l2_busy")


def measure_dram_busy(launch: StrictLaunch) -> Share:
    """Return DRAM's share of peak.

    Where ncu's own was not collected, of the bandwidth by the attributes.
    Then at least: where reads alone were counted, writes are missing.
    """
    if "dram_busy" in launch:
        return launch["dram_busy"]
    peak = launch.get("peak_dram", launch.get("peak_dram_device", 0.0))
    if peak <= 0:
        launch.require_collected("dram_busy")
    if "dram_rate" in launch:
        return launch["dram_rate"] / peak
    launch.require_collected("time")
    moved = launch["dram_bytes"] if "dram_bytes" in launch else launch["dram_read"]
    return moved / launch["time"] / peak


def measure_tensor_busy(launch: StrictLaunch) -> ShareOrZero:
    """Return how busy the tensor pipe is; 0 when no matrix instruction ran (HFMA2.MMA counts on it)."""
    if "inst_matrix" in launch and launch["inst_matrix"] == 0:
        return 0.0
    return launch["tensor_busy"]


def _compute_shares_of_fma_pipe_work(launch: StrictLaunch) -> tuple[Share, Share, Share]:
    """Return FP32, half and integer-multiply instructions on the FMA pipe, as shares of the three."""
    single = launch["inst_fp32"]
    half = launch["inst_half"]
    imad = launch["inst_imad"]
    whole = single + half + imad
    if whole == 0:
        return 0.0, 0.0, 0.0
    return single / whole, half / whole, imad / whole


def _measure_fuller_fma_half(launch: StrictLaunch) -> Share:
    """Return the fuller half of the FMA pipe: IMAD only goes to the heavy one."""
    return max(launch["fma_busy"], launch.get("fmaheavy_busy", 0.0))


def measure_fp32_busy(launch: StrictLaunch) -> ShareOrZero:
    """Return how busy the FMA pipe is when FP32 arithmetic is most of what runs on it."""
    if launch.has_collected("inst_fp32", "inst_half", "inst_imad"):
        single, half, imad = _compute_shares_of_fma_pipe_work(launch)
        if single >= max(half, imad):
            return launch["fma_busy"]
        return 0.0
    if "fp16_busy" in launch and launch["fp16_busy"] > 0.5 * launch["fma_busy"]:
        return 0.0
    # Without opcodes: a heavy half twice as full as the pipe's average means IMAD.
    if _measure_fuller_fma_half(launch) < HEAVY * launch["fma_busy"]:
        return launch["fma_busy"]
    return 0.0


def measure_integer_busy(launch: StrictLaunch) -> Share:
    """Return how busy the ALU is, or the FMA pipe when integer multiply-adds are most of its work."""
    alu = launch["alu_busy"]
    if "fma_busy" not in launch:
        return alu
    heavy = _measure_fuller_fma_half(launch)
    if launch.has_collected("inst_fp32", "inst_half", "inst_imad"):
        single, half, imad = _compute_shares_of_fma_pipe_work(launch)
        if imad > max(single, half):
            return max(alu, heavy)
        return alu
    if heavy >= HEAVY * launch["fma_busy"]:
        return max(alu, heavy)
    return alu


def measure_fp16_busy(launch: StrictLaunch) -> Share:
    """Return how busy half2 arithmetic keeps its own pipe, which from 8.6 on is the FMA pipe."""
    if not launch.has_collected("inst_fp32", "inst_half", "inst_imad"):
        return launch["fp16_busy"]
    single, half, imad = _compute_shares_of_fma_pipe_work(launch)
    if half > max(single, imad):
        return max(launch.get("fp16_busy", 0.0), launch["fma_busy"])
    # Not counted on some GPUs (8.6 and 9.0 of some versions): the opcodes say that it is not full.
    return launch.get("fp16_busy", 0.0)


def measure_shared_busy(launch: StrictLaunch) -> Share:
    """Return how busy the L1TEX data stage is where shared memory is most of it, else its own part."""
    busy = launch["shared_busy"]
    stage = launch.get("lsu_data_busy", busy)
    if busy >= MAINLY * stage:
        return max(busy, stage)
    return busy


def measure_l1_busy(launch: StrictLaunch) -> ShareOrZero:
    """Return how busy L1TEX is, less what shared memory and texture alone explain."""
    busy = launch["l1_busy"]
    if "texture_busy" in launch and launch["texture_busy"] >= NEARLY_ALL * busy:
        return 0.0
    if "shared_busy" in launch and launch["shared_busy"] >= MAINLY * launch["lsu_data_busy"]:
        entry = launch.get("lsu_in_busy", 0.0)  # one request a wavefront: shared memory fills both
        if launch["shared_busy"] >= WAVEFRONT * entry:
            return 0.0
        return min(busy, entry)
    return busy


def compute_dram_bytes_per_l2_miss(launch: StrictLaunch) -> float:
    """Return bytes that DRAM reads for each byte that missed L2: 2 where it fetches sectors by pairs."""
    if not launch.has_collected("dram_read", "l2_read_hit", "l2_read_bytes"):
        return 1.0
    missed = (1 - launch["l2_read_hit"]) * launch["l2_read_bytes"]
    if missed > 0:
        return min(2.0, max(1.0, launch["dram_read"] / missed))
    return 1.0


def is_mostly_atomics(launch: StrictLaunch) -> bool:
    """Return whether atomics are at least half of what L2 looks up."""
    if not launch.has_collected("l2_atomic_sectors", "l2_sectors"):
        return False
    return launch["l2_atomic_sectors"] >= HALF * max(launch["l2_sectors"], 1)


def has_no_atomics(launch: StrictLaunch) -> bool:
    """Return whether no atomic of the launch reached L2; where none was counted, that is not known."""
    for metric in ("l2_atomic_sectors", "inst_atomic"):
        if metric in launch:
            return launch[metric] == 0
    return False


HOT_SLICE = Threshold(
    0.25,
    "of L2's peak, by which the busiest slice does more than the others: all access few addresses. "
    "One word takes an atomic every 3 to 4 cycles: a slice with a single hot word reads at least this.",
)


def measure_crossbar_busy(launch: StrictLaunch) -> Share:
    """Return how busy the crossbar of L1TEX and L2 is: what is left of L2 without DRAM behind it."""
    to_sms, from_sms = LINKS
    return max(launch[to_sms], launch[from_sms])


def measure_l2_busy(launch: StrictLaunch) -> ShareOrZero:
    """Return how busy L2 is without the fill; of stages that atomics fill, only the links count."""
    if not is_mostly_atomics(launch):
        return launch["l2_cache_busy"]
    if launch.has_collected(*LINKS):
        return measure_crossbar_busy(launch)
    return 0.0


def measure_atomics_busy(launch: StrictLaunch) -> Share:
    """Return how busy the L2 atomic unit is, or a stage behind the links when atomics are most of it."""
    busy = launch["l2_atomics_busy"]
    if not is_mostly_atomics(launch):
        return busy
    if not launch.has_collected(*LINKS):
        return max(busy, launch["l2_cache_busy"])
    return max(busy, launch.get("l2_tag_busy", 0.0), launch.get("l2_data_busy", 0.0))


def select_collected_metrics(launch: FrameRow) -> dict[MetricName, float]:
    """Return the collected metrics of a row, without its identity and without NaN."""
    collected = {}
    for name in launch:
        if name not in launch:  # a Launch also iterates over what was not collected
            continue
        value = launch[name]
        # Nearly all are float, and to ask an abstract class takes as long as the rest.
        if type(value) is not float and not isinstance(value, Real):
            continue
        number = float(value)
        if not isnan(number) and not is_impossible_value(name, number):
            collected[name] = number
    return collected


# Counters of different replay passes differ by a few per cent; beyond that a point above its roof
# is an error of the measurement and is said to be one.
TOLERANCE = 1.05
# Of a DRAM clock that is counted once where the attribute counts twice, by memory type: no slow one.
HALVES = 0.02


def compute_counted_share_of_duration(launch: FrameRow) -> ShareOrOne:
    """Return the part of a launch's duration in which its cycles were counted, 0 to 1.

    1 when nothing shows it.
    A clock in a report is counted cycles over the duration. A memory clock does not change within a
    launch: where DRAM seems slow, its cycles were counted in a part of the duration only (not in a
    launch's start and end, nor while another program had the GPU). The SM's were counted in the same
    part: in reports of six GPUs the SM clock so corrected is one and the same in all launches, the
    one that ncu locks. A pass may count the SM's cycles throughout, though (a T4 at its base clock and
    92.6 % of DRAM's): what goes by the SM clock is then too high by as much, so it still is a ceiling.
    Where the SM clock so corrected would exceed its maximum, the memory clock really was lower.
    """
    row = select_collected_metrics(launch)
    part = row.get("dram_clock", nan) / row.get("dram_clock_max", nan)
    if not 0 < part < 1 / TOLERANCE or "sm_clock" not in row or abs(part - 0.5) < HALVES:
        return 1.0
    if row["sm_clock"] / part > TOLERANCE * row.get("sm_clock_max", nan):
        return 1.0
    return part


def explain_why_cache_resident(
    launch: FrameRow, compulsory_bytes: float | None = None
) -> ClauseOrEmpty:
    """Return why the launch's data came from the caches and not from DRAM; "" when it did not.

    Then what DRAM moved says nothing of the launch, nor does its intensity at DRAM. With declared
    bytes the question has an answer: DRAM moved less than half of what had to move. Without them
    only the clear case is named: not a byte a thread came from DRAM, and L2 hit nearly always.
    Reuse in L2 or an idle DRAM alone is not residence: each byte may still have come from DRAM once.
    """
    row = select_collected_metrics(launch)
    compulsory_bytes = (
        row.get("declared_bytes", nan) if compulsory_bytes is None else compulsory_bytes
    )
    if "dram_bytes" not in row:
        return ""
    if compulsory_bytes > 0:
        part = row["dram_bytes"] / compulsory_bytes
        text = f"the data came from the caches: DRAM moved {format_share(part)} of the compulsory bytes"
        return text if part < 0.5 else ""
    if row.get("threads", 0) > 0:
        each = row["dram_bytes"] / row["threads"]
    else:
        each = nan
    if each < 1 and row.get("l2_hit", nan) > 0.9:
        hit = format_share(row["l2_hit"])
        return f"the data came from the caches: DRAM moved {each:.2g} bytes per thread, {hit} hit in L2"
    return ""


# Sectors that are wasted, and how busy each level would be without them.

# On the crossbar a store is a header and its sectors: 2 packets for a lone one, 5 for a line of four.
# Measured: 12.1 and 13.0 times less crossbar work for stores coalesced from 32 sectors to 4.
PACKETS = (5 / 4) / 2
_REQUESTS = ("global_load_requests", "global_store_requests")
_SECTORS = ("global_load_sectors", "global_store_sectors")
SINGLE = 2.5  # sectors a request of L2 from which most of them travel together


def measure_sector_waste(launch: StrictLaunch) -> tuple[Share, Clause]:
    """Share of the global accesses' sectors that coalesced ones would not need, and how it shows."""
    if "excess_sectors" in launch:
        waste = launch["excess_sectors"]
        return (
            waste,
            f"{format_share(waste)} of the sectors moved by global accesses are unused",
        )
    # 16 sectors is what 32 coalesced accesses of 16 bytes need: more cannot be coalesced.
    per = launch["global_load_sectors_per_request"]
    per = max(per, launch.get("global_store_sectors_per_request", 0.0))
    return max(0.0, 1 - 16 / per), (
        f"{per:.3g} sectors per request, where coalesced accesses need 16 at most"
    )


LANE_BYTES = 16  # the widest access of a lane
# One sector a request is a word that all lanes share as often as a byte each: not known to be narrow.
NOT_SHARED = 1.5
_ARITHMETIC = ("inst_fp32", "inst_fp64", "inst_half", "inst_matrix", "inst_xu")


def compute_bytes_per_lane_load(launch: StrictLaunch) -> float:
    """Return bytes that a lane asks for with one global load: 32 lanes share sectors of 32 bytes."""
    sectors = launch["global_load_sectors_per_request"]
    return min(float(LANE_BYTES), sectors * (1 - launch.get("excess_sectors", 0.0)))


def compute_arithmetic_share(launch: StrictLaunch) -> Share:
    """Share of the instructions that compute in floating point: the problem's own, however written."""
    own = launch.sum_collected_metrics(_ARITHMETIC)
    return min(1.0, own / max(launch["instructions"], 1.0))


def compute_instructions_left_if_widest(launch: StrictLaunch) -> ShareOrOne:
    """Return the share of the instructions that stays at best if each lane moves 16 bytes at once.

    Loads, stores, their addresses and what steps from one to the next go; the arithmetic stays.
    """
    wide = compute_bytes_per_lane_load(launch)
    if wide < NOT_SHARED:
        return 1.0
    own = compute_arithmetic_share(launch)
    return own + (1 - own) * wide / LANE_BYTES


def is_narrow_stream(launch: StrictLaunch) -> bool:
    """Return whether each lane reads its own few bytes once, coalesced, and shares them with nobody.

    Then a lane can as well read 16 of them at once, and all but the arithmetic goes as the loads go.
    Values that lanes exchange or read again are kept on chip instead: where that was not counted,
    it is not known to be a stream.
    """
    if not launch.has_collected(
        "inst_global_load", "l1_hit", *_EXCHANGES
    ) or not has_narrow_neighbouring_accesses(launch):
        return False
    return (
        count_exchange_instructions(launch) < count_global_access_instructions(launch)
        and launch["l1_hit"] < READ_AGAIN
    )


def has_narrow_neighbouring_accesses(launch: StrictLaunch) -> bool:
    """Return whether neighbouring lanes read neighbouring values of 8 bytes or less."""
    return NOT_SHARED <= compute_bytes_per_lane_load(
        launch
    ) <= HALF_WIDE and not has_noticeable_sector_waste(launch)


def has_noticeable_sector_waste(launch: StrictLaunch) -> bool:
    """Return whether global accesses fetch so many sectors for nothing that it is worth a word."""
    return measure_sector_waste(launch)[0] >= UNUSED


PER_REQUEST = (
    4.2  # sectors that 32 lanes with four bytes each need, and a few accesses of other kinds
)
ALL_LANES = Threshold(
    31.5,
    "active threads of a warp on average, above which none is left out by a branch to speak of",
)


def is_split_by_branches(launch: StrictLaunch) -> bool:
    """Return whether sectors are fetched twice because lanes of a warp access them on two paths.

    No request spreads over more sectors than a warp's neighbouring values of four bytes do, so no layout
    is at fault: each path accesses its part of the same sectors.
    """
    if not launch.has_collected("threads_per_warp", "global_load_sectors_per_request"):
        return False
    per_load = launch["global_load_sectors_per_request"]
    widest = max(per_load, launch.get("global_store_sectors_per_request", 0.0))
    return (
        widest <= PER_REQUEST
        and launch["threads_per_warp"] < ALL_LANES
        and has_noticeable_sector_waste(launch)
    )


def estimate_instructions_left_if_wider(launch: StrictLaunch) -> Share:
    """Return the share of the instructions that is to be expected to stay with 16 bytes a lane.

    Of a stream what computes stays; of others all but the accesses that go and an address of each.
    """
    if is_narrow_stream(launch):
        return compute_instructions_left_if_widest(launch)
    gone = ADDRESSED * count_global_access_instructions(launch) / max(launch["instructions"], 1.0)
    return 1 - min(1.0, gone) * (1 - compute_bytes_per_lane_load(launch) / LANE_BYTES)


def count_global_access_instructions(launch: StrictLaunch) -> float:
    """Return the warp instructions that access global memory."""
    return launch.get("inst_global_load", 0.0) + launch.get("inst_global_store", 0.0)


MASKED = Threshold(
    0.3,
    "share of the global accesses that no lane makes, from which the mask costs more than a last tile",
)
OF_ACCESSES = Threshold(
    0.5,
    "of what is predicated off: with as much in accesses, what computes on their values is not",
)


def get_masked_access_share(launch: StrictLaunch) -> ShareOrZero:
    """Return the share of the global accesses that a warp executes with every lane masked off.

    An access that any lane makes is a request; one that none makes is an instruction and no more.
    """
    instructions = count_global_access_instructions(launch)
    if instructions <= 0 or not launch.has_collected("inst_global_load", "global_load_requests"):
        return 0.0
    return max(0.0, 1 - launch.sum_collected_metrics(_REQUESTS) / instructions)


def is_tile_mostly_masked_off(launch: StrictLaunch) -> bool:
    """Return whether a program computes on a tile of which its mask leaves a part out.

    Then the accesses are masked and the arithmetic is not, as Triton compiles it. A branch of CUDA has
    its arithmetic predicated off as well.
    """
    if "threads_per_warp_predicated" not in launch or "instructions" not in launch:
        return False
    masked = get_masked_access_share(launch)
    idle = 1 - compute_working_lanes(launch) / launch["threads_per_warp"]
    off = masked * count_global_access_instructions(launch) / launch["instructions"]
    return masked >= MASKED and off >= OF_ACCESSES * idle


HALF_WIDE = Threshold(
    8.5, "bytes of a lane from which wider accesses save half of the instructions at most"
)
UNUSED = Threshold(0.2, "share of sectors below which coalescing gains less than the noise")
READ_AGAIN = Threshold(
    0.35,
    "L1's hits from which values are read more than once; those of a stream share a sector at most",
)
ADDRESSED = 2  # instructions of an access: itself and the one that makes its address
_EXCHANGES = ("inst_shared_load", "inst_shared_store", "inst_shuffle", "inst_barrier")


def count_exchange_instructions(launch: StrictLaunch) -> float:
    """Return the warp instructions by which threads of a block exchange values."""
    return launch.sum_collected_metrics(_EXCHANGES)


# A 32-bit integer division or remainder by a value that the compiler does not know: nvcc 13.0 makes 17
# and 18 instructions of unsigned ones and 22 and 24 of signed ones, the same for 8.0, 9.0 and 10.0, and
# at least as many for 7.5. In each are one MUFU.RCP, two conversions and four or more IMAD. A divisor
# that stays in a loop has its reciprocal taken before it, so the instructions are a lower bound.
DIVISION = 17
OF_A_DIVISION = 3  # instructions on the XU pipe: the reciprocal and two conversions
ROUNDED = 0.05  # of the conversions, which other code may have as well
_IMAD_OF_A_DIVISION = 4
FLOATS = Threshold(
    2,
    "FP32 instructions to a special function from which it may be the floats' own: a byte that is "
    "converted, scaled and put through exp has four",
)


def count_integer_divisions(launch: StrictLaunch) -> FloatOrZero:
    """Return the warp instructions that are integer divisions, at least; 0 where opcodes show none.

    Each special function has two conversions to itself then, and there is little else to convert.
    """
    special = launch.get("inst_exp", 0.0)
    if special <= 0 or not launch.has_collected("inst_xu", "inst_imad", "inst_fp32"):
        return 0.0
    conversions = launch["inst_xu"] - special
    if abs(conversions - 2 * special) > 2 * ROUNDED * special:
        return 0.0
    if launch["inst_fp32"] >= FLOATS * special:
        return 0.0
    if launch["inst_imad"] < _IMAD_OF_A_DIVISION * special:
        return 0.0
    return special


def compute_division_share(launch: StrictLaunch) -> Share:
    """Return the share of the instructions that integer divisions take, at least."""
    return min(1.0, DIVISION * count_integer_divisions(launch) / max(launch["instructions"], 1.0))


# A tree over the threads of a block (a sum, a scan): after every few accesses to shared memory a
# barrier, and at each step fewer lanes have something to do. On record: 6 to 31 instructions of a warp
# to a barrier and 15 to 25 of 32 lanes at work in trees; transposes and tiles have all lanes at work,
# or hundreds of instructions to a barrier.
STEP = Threshold(32, "instructions of a warp from one barrier to the next, at most, in a tree")
AT_WORK = Threshold(0.8, "of a warp's lanes at work, on average, at most, in a tree")


def compute_working_lanes(launch: StrictLaunch) -> float:
    """Return the threads of a warp that an instruction works for, those predicated off left out."""
    lanes = launch["threads_per_warp"]
    return min(lanes, launch.get("threads_per_warp_predicated", lanes))


def is_reduction_tree(launch: StrictLaunch) -> bool:
    """Return whether the threads of a block combine values step by step, with ever fewer lanes."""
    if not launch.has_collected(
        "inst_barrier", "inst_shared_load", "instructions", "threads_per_warp"
    ):
        return False
    barriers = launch["inst_barrier"]
    if barriers <= 0 or launch["inst_shared_load"] <= 0:
        return False
    short_steps = launch["instructions"] <= STEP * barriers
    return short_steps and compute_working_lanes(launch) <= AT_WORK * 32


def compute_tree_step_share(launch: StrictLaunch) -> Share:
    """Return the share of the instructions that a tree's steps are: accesses, addresses, barriers."""
    own = launch["inst_shared_load"] + launch.get("inst_shared_store", 0.0) + launch["inst_barrier"]
    return min(1.0, ADDRESSED * own / max(launch["instructions"], 1.0))


def _compute_waste_behind_l1(launch: StrictLaunch, waste: Share) -> Share:
    """Share of the sectors behind L1 that are wasted: what L1 serves again costs nothing there."""
    if not launch.has_collected(*_SECTORS, "l2_read_bytes", "l2_write_bytes"):
        return waste
    needed = (1 - waste) * launch.sum_collected_metrics(_SECTORS)
    moved = (launch["l2_read_bytes"] + launch["l2_write_bytes"]) / SECTOR
    if moved > 0:
        return min(waste, max(0.0, 1 - needed / moved))
    return waste


def _estimate_scatter_costs(launch: StrictLaunch) -> tuple[float, float]:
    """Return what scattered sectors cost beyond themselves: at DRAM (1 to 2), at the L2 tags (1 to 4).

    DRAM fetches 64 bytes at a time, and L2 looks up a line of 4 sectors at once.
    """
    lines = 1.0
    if "l2_sectors_per_request" in launch:
        lines = min(4.0, max(1.0, 4 / max(launch["l2_sectors_per_request"], 1.0)))
    return compute_dram_bytes_per_l2_miss(launch), lines


def _compute_l1_work_left(launch: StrictLaunch, keep: Share) -> Share:
    """Share of L1's work that stays: it looks up and serves a line at a time, not a sector."""
    if not launch.has_collected("global_tag_requests", *_REQUESTS, *_SECTORS):
        return keep
    needed = max(
        launch.sum_collected_metrics(_REQUESTS), keep * launch.sum_collected_metrics(_SECTORS) / 4
    )
    return min(keep, needed / max(launch["global_tag_requests"], needed, 1.0))


def _compute_stored_sectors_left(launch: StrictLaunch, keep: Share) -> Share:
    """Share of the stored sectors that stays if as much of the waste as can be is the stores'."""
    if not launch.has_collected("global_load_sectors", "global_store_sectors_per_request"):
        return keep
    loads = launch["global_load_sectors"]
    stores = launch["global_store_sectors"]
    least = min(keep, 4 / max(launch["global_store_sectors_per_request"], 4.0))
    scattered = launch.get("l2_sectors_per_request", 4.0) < SINGLE
    packets = PACKETS if scattered else 1.0
    return packets * max((keep * (loads + stores) - loads) / max(stores, 1.0), least)


def _compute_useful_part_of_dram_bytes(launch: StrictLaunch, keep: Share) -> ShareOrZero:
    """Share of DRAM's bytes that is useful whatever the accesses look like; 0 when not known.

    What the warps asked for crosses DRAM at least once as far as DRAM moved it: sectors whose parts
    are used one after the other (an array of structures) are not read twice.
    """
    if not launch.has_collected(*_SECTORS, "dram_bytes") or launch["dram_bytes"] <= 0:
        return 0.0
    asked = keep * launch.sum_collected_metrics(_SECTORS) * SECTOR
    return float(min(1.0, asked / launch["dram_bytes"]))


def compute_unit_shares_if_coalesced(launch: StrictLaunch, waste: Share) -> dict[UnitName, Share]:
    """Share of peak that each level would need in today's time if no sector were wasted."""
    keep = 1 - waste
    behind = 1 - _compute_waste_behind_l1(launch, waste)
    pairs, lines = _estimate_scatter_costs(launch)
    busy = {}
    if "dram_busy" in launch:
        useful = max(behind / pairs, _compute_useful_part_of_dram_bytes(launch, keep))
        busy["dram"] = launch["dram_busy"] * useful
    if launch.has_collected("l2_tag_busy", "l2_to_xbar_busy", "xbar_to_l2_busy"):
        stores_left = min(behind, _compute_stored_sectors_left(launch, keep))
        busy["l2"] = max(
            launch["l2_tag_busy"] * (behind / lines),
            launch["l2_to_xbar_busy"] * behind,
            launch["xbar_to_l2_busy"] * stores_left,
        )
    if "l1_busy" in launch:
        busy["l1"] = launch["l1_busy"] * _compute_l1_work_left(launch, keep)
    return busy
