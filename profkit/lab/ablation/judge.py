"""What was measured of a call  ->  what it waits for, or what is missing to say so.

A cause that a fix can take away comes first, if taking it away alone was worth it. What only bounds
what a fix could bring is never ranked with that: it says which part of the machine the call waits for.
Where neither does, counted instructions say whether a unit is full, and else it is said that this
cannot be told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import msgspec

from profkit.model.resources import BEGUN
from profkit.records.ablation import (
    WORTH,
    AblationRecord,
    AblationVerdict,
    LaunchOnlyTimes,
    MeasuredAblation,
    Refusal,
    read_ablations_by_rule,
)

if TYPE_CHECKING:
    from profkit.units import (
        AblationName,
        BytesPerSecond,
        Clause,
        Factor,
        Share,
        TextOrEmpty,
        UnitName,
    )


# What takes more away than any fix can has to be worth more before it is called the cause.
_BOUND_WORTH = 1.15
# Half of the warps take this much longer where they wait, and no longer where something is full.
_OCCUPANCY_MATTERS = 1.35
_FULL = 0.75  # of a unit's peak by counted instructions: kernels that fill one reach 0.8 to 0.95
_DRAM_FULL = 0.85  # of DRAM's peak, by the bytes that threads ask for: a plain stream reaches 0.9
_IDLE = 0.25  # of the SMs' time: more than the last wave of a dozen
_UNEVEN = 1.5  # the longest block over the median one
_SHORT = 3e-6  # seconds: starting a kernel takes one to two microseconds
_FEW_LANES = 0.65  # of a warp's lanes at work
_WIDE = 0.9  # a unit as wide as issuing is full with it: this share of what is issued is its own
_IN_CONFLICT = 1.5  # passes over the banks for each request that needs one
_ROUNDED = 0.5  # of the single-precision instructions, multiplications and additions kept apart
_ONE_WARP = 2.0  # the busiest warp of a block over their mean
_OF_TIME = 0.7  # of a warp's time that its longest chain of dependent instructions takes
_SCHEDULERS = 4  # of an SM
_IN_TURNS = 0.75  # of the time, that units which work in turns take together
_ITS_TURN = 0.25  # of the time: a unit that works less than that has no turn
_MOST = 1.1  # of a unit: counts are of PTX, and may say a little more than there is
_PRODUCTS = 0.25  # of the instructions are arithmetic in half precision: products are the work
_FROM_SHARED = 0.03  # of the instructions load the operands of products
_SHORT_LIFE = 5e-6  # seconds that a block lives: its begin and end take 1 to 2 of them
_AT_MOST_RATE = 0.97  # of the blocks a second that a GPU begins: launches at it differ by 2 %
_IN_PROPORTION = 1.6  # half of the warps take nearly twice as long

_LIMITERS = {
    "coalesced": ("memory", "dram"),
    "conflict-free": ("memory", "shared"),
    "atomics-spread": ("memory", "atomics"),
    "atomics-in-rows": ("memory", "shared"),
    "constants-uniform": ("memory", "constant"),
    "no-spills": ("memory", "l2"),
    "wide": ("memory", "dram"),
}
_OCCUPANCY = {
    "shared": "occupancy-shared",
    "registers": "occupancy-registers",
    "blocks": "occupancy-blocks",
}
_GONE = {
    "no-fences": ("latency", "membar"),
    "no-sleeps": ("latency", "sleeping"),
    "no-barriers": ("latency", "barrier"),
    "no-local-stores": ("memory", "l2"),
}
_JOINED = "joined", "joined-eight"
# What has a turn, and the compiler does not know how long it takes -> what warps wait for, and the rule.
_QUEUES = {
    "texture": ("tex_throttle", "tex-throttle"),
    "shared": ("mio_throttle", "mio-throttle"),
    "l1": ("lg_throttle", "lg-throttle"),
}


@dataclass(frozen=True)
class AblationsOfCall:
    """All that is known of a call."""

    seconds: float
    measured: Mapping[str, MeasuredAblation]
    refused: Mapping[str, Refusal]
    shape: LaunchOnlyTimes
    busy: Mapping[str, float]
    seen: Mapping[str, float]  # what the survey saw
    sms: int
    dram: float  # bytes per second at most

    def get_worthwhile_ablation(
        self, ablation: AblationName, least_gain: Factor = _BOUND_WORTH
    ) -> MeasuredAblation | None:
        """Return what an ablation measured; None where it is not worth so much, or was not measured."""
        row = self.measured.get(ablation)
        if row is None or row.gain < least_gain or (row.reachable and row.sure_gain < least_gain):
            return None
        return row

    def find_largest_gain(
        self, ablations: Iterable[AblationName], least_gain: Factor = WORTH
    ) -> MeasuredAblation | None:
        rows = [
            row for name in ablations if (row := self.get_worthwhile_ablation(name, least_gain))
        ]
        return max(rows, key=lambda row: row.gain, default=None)

    def sum_survey_counts(self, *names: str) -> float:
        """Return what the survey saw of some kinds; 0 where nothing."""
        return sum(self.seen.get(name, 0.0) for name in names)

    @property
    def is_latency_bound(self) -> bool:
        """Return whether it gets slower with half of its warps: then it waits, and nothing is full."""
        return (self.shape.half_occupancy or 0.0) >= _OCCUPANCY_MATTERS

    @property
    def half_occupancy_text(self) -> Clause:
        if self.shape.half_occupancy is None:
            return "there cannot be fewer warps"
        return f"half of the warps take {self.shape.half_occupancy:.2f} times as long"

    @property
    def occupancy_limiter_rule(self) -> TextOrEmpty:
        """Return the rule of what keeps half of the warps or more from an SM.

        Empty where nothing does.
        """
        occupancy = self.shape.occupancy
        if occupancy is None or occupancy > 0.5:
            return ""
        return _OCCUPANCY.get(self.shape.occupancy_limit, "")

    @property
    def has_one_warp_per_scheduler(self) -> bool:
        """Return whether each scheduler of an SM has one warp at most."""
        on_each = min(self.shape.blocks_per_sm, -(-self.shape.blocks // self.sms))
        return 0 < on_each * self.sum_survey_counts("warps") <= _SCHEDULERS

    @property
    def is_any_unit_full(self) -> bool:
        """Return whether counted instructions fill a unit."""
        return max(self.busy.values(), default=0.0) >= _FULL

    @property
    def asks_for_most_of_dram(self) -> bool:
        """Return whether threads ask for more bytes than most of what DRAM can carry."""
        moved = self.sum_survey_counts("stored_bytes", "loaded_bytes")
        return bool(self.dram) and moved / self.seconds >= _DRAM_FULL * self.dram


def add_ablation_verdict(
    record: AblationRecord, sm_count: int, dram_bytes_per_s: BytesPerSecond
) -> AblationRecord:
    """Return the record with its verdict; `sm_count` and `dram_bytes_per_s`, at most, are the GPU's."""
    case = AblationsOfCall(
        seconds=record.base,
        measured={row.ablation: row for row in record.measured},
        refused={refusal.ablation: refusal for refusal in record.refused},
        shape=record.shape,
        busy=record.busy,
        seen=record.seen,
        sms=sm_count,
        dram=dram_bytes_per_s,
    )
    return msgspec.structs.replace(record, verdict=decide_bound_by_ablations(case))


def decide_bound_by_ablations(case: AblationsOfCall) -> AblationVerdict:
    """Return the first verdict that one of the steps comes to."""
    for step in (
        _judge_grid,
        _judge_reachable_gains,
        _judge_units_in_turns,
        _judge_unreachable_gains,
        _judge_full_unit,
        _judge_loads,
        _judge_stores,
        _judge_waits,
        _judge_dependent_instructions,
        _judge_short_blocks,
    ):
        for verdict in step(case):
            return verdict
    return _make_verdict_without_cause(case)


Verdicts = Iterator[AblationVerdict]


def _judge_grid(case: AblationsOfCall) -> Verdicts:
    """Judge too few blocks, or uneven ones, where no fix of other kind was measured to bring more."""
    shape = case.shape
    idle = case.shape.idle
    if case.seconds < _SHORT:
        because = f"{case.seconds * 1e6:.1f} µs are little more than starting a kernel takes"
        yield AblationVerdict("launch", "too_short", "short-kernel", because)
    best = case.find_largest_gain(_LIMITERS)
    if best and idle is not None and best.gain * (1 - idle) > 1:
        return  # with no SM idle at all, it would be less
    if shape.blocks < case.sms and (idle is None or idle > _IDLE):
        because = f"{shape.blocks} blocks for {case.sms} SMs"
        yield AblationVerdict("launch", "grid_too_small", "grid-too-small", because)
    if idle is None or idle <= _IDLE:
        return
    because = f"SMs have no block for {100 * idle:.0f} % of their time"
    if shape.longest_block and shape.longest_block > _UNEVEN:
        because += f"; the longest block takes {shape.longest_block:.1f} times the median"
        yield AblationVerdict("launch", "imbalance", "workload-imbalance", because)
    because += f", the last wave of {shape.blocks} blocks"
    yield AblationVerdict("launch", "tail", "tail-effect", because)


def _say_time_without(row: MeasuredAblation) -> Clause:
    without = f"without {row.title} it takes {row.time * 1e6:.4g} µs"
    if row.reachable:
        return f"{without}: {row.gain:.2f}x, measured"
    return f"{without} ({row.gain:.2f}x at most)"


def _judge_reachable_gains(case: AblationsOfCall) -> Verdicts:
    best = case.find_largest_gain(_LIMITERS)
    if best is None:
        return
    because = _say_time_without(best)
    # Wider loads are what waiting for loads is fixed by.
    if best.ablation == "wide" and case.is_latency_bound:
        because += f"; {case.half_occupancy_text}"
        yield AblationVerdict("latency", "long_scoreboard", "long-scoreboard", because, best.gain)
    bound, limiter = _LIMITERS[best.ablation]
    if best.ablation == "coalesced" and "hits-l2" not in case.measured:
        limiter = "l2"
        if "hits-l1" in case.measured and not case.get_worthwhile_ablation("hits-l1", WORTH):
            limiter = "l1"
    yield AblationVerdict(bound, limiter, best.rules[0], because, best.gain)


def _judge_units_in_turns(case: AblationsOfCall) -> Verdicts:
    """Judge units that are each busy for a part of the time, and wait for one another in the rest."""
    half = case.sum_survey_counts("half_share")
    on_tensor = case.busy.get("tensor")
    is_product = half >= _PRODUCTS and case.sum_survey_counts("shared_load_share") >= _FROM_SHARED
    if is_product and not on_tensor and case.busy.get("fp16", 0.0) >= 0.5:
        because = (
            f"{100 * half:.0f} % of the instructions are half-precision arithmetic on tiles in "
            "shared memory, and none is a matrix product of tensor cores"
        )
        yield AblationVerdict("compute", "fp16", "tensor-idle", because)
    turns = _find_units_in_turns(case)
    if len(turns) < 2 or case.is_any_unit_full or not _IN_TURNS <= sum(turns.values()) <= _MOST:
        return
    shares = " and ".join(f"{unit} {100 * share:.0f} %" for unit, share in turns.items())
    because = f"units work alternately: {shares} of the time"
    if {"xu", "tensor"} <= turns.keys():
        yield AblationVerdict("latency", "wait", "tensor-xu-serial", because)
    if "texture" not in turns and case.has_one_warp_per_scheduler:
        because += ", with one warp for each scheduler"
        yield AblationVerdict("latency", "wait", "fixed-latency", because)
    for unit, queue in _QUEUES.items():
        if unit in turns:
            yield AblationVerdict("latency", *queue, because)
    yield AblationVerdict("latency", "math_pipe_throttle", "math-throttle", because)


def _find_units_in_turns(case: AblationsOfCall) -> dict[UnitName, Share]:
    """Return unit -> the share of the time that is its turn."""
    turns = {}
    for name, share in case.seen.items():
        if name.startswith("turns_") and share >= _ITS_TURN:
            turns[name.removeprefix("turns_")] = share
    functions = case.get_worthwhile_ablation("cheap-functions")
    xu = case.busy.get("xu", 0.0)
    tensor = case.busy.get("tensor", 0.0)
    if functions and xu >= _ITS_TURN and 1 - 1 / functions.gain >= _OF_TIME * xu:
        turns["xu"] = xu  # nothing else was done in nearly all of that time
        if tensor >= _ITS_TURN:
            turns["tensor"] = tensor
    return turns


def _judge_unreachable_gains(case: AblationsOfCall) -> Verdicts:
    best = case.find_largest_gain(_GONE, _BOUND_WORTH)
    if best:
        yield AblationVerdict(*_GONE[best.ablation], best.rules[0], _say_time_without(best))


def _judge_full_unit(case: AblationsOfCall) -> Verdicts:
    """Judge a unit that counted instructions fill; one that others need is full because of them."""
    unit = _find_busiest_unit(case.busy)
    share = case.busy.get(unit, 0.0)
    lanes = case.sum_survey_counts("lanes")
    if share < _FULL:
        return
    because = f"counted instructions keep {unit} busy for {100 * min(share, 1.0):.0f} % of the time"
    ways = case.sum_survey_counts("shared_ways")
    requests = case.sum_survey_counts("shared_requests")
    if unit == "shared" and ways > _IN_CONFLICT * requests:
        because += f", {ways / requests:.2g} passes over the banks for each that is needed"
        yield AblationVerdict("memory", "shared", "shared-bank-conflicts", because)
    if unit in ("shared", "l1", "texture"):
        yield AblationVerdict("memory", unit, f"{unit}-bandwidth", because)
    if unit == "fp32" and case.sum_survey_counts(
        "fp32_rounded"
    ) > _ROUNDED * case.sum_survey_counts("fp32"):
        because += ", by multiplications and additions that are kept apart"
        yield AblationVerdict("compute", unit, "non-fused-math", because)
    if 0 < lanes < _FEW_LANES:
        because += f", with {100 * lanes:.0f} % of the lanes at work"
        yield AblationVerdict("compute", unit, "thread-divergence", because)
    for rule, counted in read_ablations_by_rule()["counted"].items():
        if counted == unit:
            yield AblationVerdict("compute", unit, rule, because)


def _find_busiest_unit(busy: Mapping[UnitName, Share]) -> UnitName:
    """Return the unit with the largest share.

    Issuing, where no unit has nearly all of what is issued.
    """
    own = {unit: share for unit, share in busy.items() if unit != "issue"}
    unit = max(own, key=lambda name: own[name], default="issue")
    issued = busy.get("issue", 0.0)
    if issued >= _FULL and own.get(unit, 0.0) < _WIDE * issued:
        return "issue"
    return unit


def _judge_loads(case: AblationsOfCall) -> Verdicts:
    """Judge what comes from DRAM or the L2: too many bytes, or too few loads in flight."""
    row = case.get_worthwhile_ablation("hits-l2")
    limiter = "dram"
    if row is None:
        row = case.get_worthwhile_ablation("hits-l1")
        limiter = "l2"
    if row is None:
        return
    because = _say_time_without(row)
    rule = f"{limiter}-bandwidth"
    shape = case.shape
    if limiter == "dram" and case.asks_for_most_of_dram:
        yield AblationVerdict("memory", limiter, rule, because)
    if not case.is_latency_bound and shape.half_occupancy is not None:
        because += "; half of the warps are as fast"
        yield AblationVerdict("memory", limiter, rule, because)
    # Loads that count, and so few blocks on each SM that there cannot be fewer.
    on_each = shape.blocks / case.sms
    if not case.is_latency_bound and 2 * on_each <= shape.blocks_per_sm:
        because += f"; {on_each:.2g} blocks for each SM, where {shape.blocks_per_sm} fit"
        yield AblationVerdict("launch", "grid_too_small", "grid-too-small", because)
    because += f"; {case.half_occupancy_text}"
    rule = case.occupancy_limiter_rule
    if rule:
        because += f", and {100 * (shape.occupancy or 0.0):.0f} % of the warps fit"
    yield AblationVerdict("latency", "long_scoreboard", rule or "long-scoreboard", because)


def _judge_stores(case: AblationsOfCall) -> Verdicts:
    row = case.get_worthwhile_ablation("no-stores")
    if row is None:
        return
    because = _say_time_without(row)
    if case.sum_survey_counts("stored_bytes") > case.dram * case.seconds:
        because += "; DRAM could not carry what is stored"
        yield AblationVerdict("memory", "l2", "l2-bandwidth", because)
    if case.asks_for_most_of_dram:
        yield AblationVerdict("memory", "dram", "dram-bandwidth", because)
    if case.is_latency_bound:
        yield AblationVerdict("latency", "drain", "store-drain", because)


def _judge_waits(case: AblationsOfCall) -> Verdicts:
    """Return waits that cannot be taken away, but that show."""
    # Warps that wait at a barrier for one that has more to do: without it nobody's work is less.
    share = case.sum_survey_counts("busiest_warp")
    barriers = case.sum_survey_counts("barriers")
    products = case.sum_survey_counts("warpgroup_products")
    if share >= _ONE_WARP and barriers + products:
        because = f"one warp of a block executes {share:.2g} times the mean, the others wait for it"
        if products > barriers:  # each begins when all four warps of its group are there
            yield AblationVerdict("latency", "gmma", "gmma-wait", because)
        yield AblationVerdict("latency", "barrier", "barrier-wait", because)
    # Loads whose values are the next addresses.
    refusal = case.refused.get("hits-l1")
    waits = case.half_occupancy_text
    decide = case.sum_survey_counts("steering_loads") and refusal and refusal.code == "steers"
    if case.is_latency_bound and not case.is_any_unit_full and decide:
        because = f"every load decides the next address, and {waits}"
        yield AblationVerdict("latency", "long_scoreboard", "long-scoreboard", because)
    # More warps would help nearly in proportion, and something keeps them away.
    rule = case.occupancy_limiter_rule
    if (case.shape.half_occupancy or 0.0) >= _IN_PROPORTION and rule:
        fit = f"{100 * (case.shape.occupancy or 0.0):.0f} % of what an SM holds fit"
        yield AblationVerdict("latency", "", rule, f"{waits}, and {fit}")


def _judge_dependent_instructions(case: AblationsOfCall) -> Verdicts:
    """Judge a warp that waits for its own results: too few warps, or too little that is independent."""
    fixed = case.sum_survey_counts("chain_fixed")
    share = case.sum_survey_counts("chain_fixed", "chain_xu", "chain_shared")
    if share >= _OF_TIME and not case.is_any_unit_full:
        part = f"{100 * min(share, 1.0):.0f} %"
        because = f"one chain of dependent instructions takes {part} of a warp's time"
        if fixed >= share / 2:
            yield AblationVerdict("latency", "wait", "fixed-latency", because)
        yield AblationVerdict("latency", "short_scoreboard", "short-scoreboard", because)
    # What no unit and no wait explains: instructions that faster functions would save.
    row = case.get_worthwhile_ablation("fast-math", WORTH)
    if row:
        yield AblationVerdict("compute", "", row.rules[0], _say_time_without(row), row.gain)


def _judge_short_blocks(case: AblationsOfCall) -> Verdicts:
    """Judge blocks that each do too little, where nothing else is known to be waited for."""
    row = case.find_largest_gain(_JOINED)
    gain = None
    said = []
    at_once = case.sms * case.shape.blocks_per_sm
    if at_once * case.seconds > _SHORT_LIFE * case.shape.blocks:
        return
    share = case.shape.blocks / case.seconds / BEGUN.get(case.sms, inf)
    if share >= _AT_MOST_RATE:
        percent = 100 * min(share, 1)
        said.append(f"blocks begin at {percent:.0f} % of the rate at which this GPU begins any")
    if row:
        gain = row.gain
        said.append(_say_time_without(row))
    if said:
        yield AblationVerdict("latency", "", "short-blocks", "; ".join(said), gain)


def _make_verdict_without_cause(case: AblationsOfCall) -> AblationVerdict:
    best = max((row.gain for row in case.measured.values()), default=1.0)
    observed = f"no cause that can be removed separately gains more than {best:.2f}x"
    busiest = max(case.busy, key=lambda unit: case.busy[unit], default="")
    if busiest:
        share = f"{100 * case.busy[busiest]:.0f} % by counted instructions"
        observed += f"; {busiest} is busiest, {share}"
    refusals = [r for r in case.refused.values() if r.code != "nothing-to-take-away"]
    for refusal in refusals[:2]:
        observed += f"; {refusal.ablation}: {refusal.observed}"
    worth = f"{WORTH}x of what is reachable, {_BOUND_WORTH}x of a bound"
    missing = Refusal(
        ablation="",
        code="cannot-tell",
        observed=observed,
        threshold=f"{worth}, {100 * _FULL:.0f} % of a unit",
        remedy="counters name the stall: profkit profile, where they may be read",
    )
    bound = "unknown"
    if case.get_worthwhile_ablation("no-memory"):
        bound = "memory"
    if case.is_latency_bound:
        bound = "latency"
    return AblationVerdict(bound, "", "", "cannot tell", missing=missing)
