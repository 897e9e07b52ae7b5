"""What was measured of a call  ->  what it waits for, or what is missing to say so.

A cause that a fix can take away comes first, if taking it away alone was worth it. What only bounds
what a fix could bring is never ranked with that: it says which part of the machine the call waits for.
Where neither does, counted instructions say whether a unit is full, and else it is said that this
cannot be told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from profkit.records.ablation import (
    AblationRecord,
    AblationVerdict,
    MeasuredAblation,
    Refusal,
    Shape,
    read_causes,
)

# Rounds differ by less than this; below, nobody would change a kernel for it.
_WORTH = 1.10
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
_IN_PROPORTION = 1.6  # half of the warps take nearly twice as long

_LIMITERS = {
    "coalesced": ("memory", "dram"),
    "conflict-free": ("memory", "shared"),
    "atomics-spread": ("memory", "atomics"),
    "atomics-in-rows": ("memory", "shared"),
    "constants-uniform": ("memory", "constant"),
    "no-spills": ("memory", "l2"),
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


@dataclass(frozen=True)
class Case:
    """All that is known of a call."""

    seconds: float
    measured: Mapping[str, MeasuredAblation]
    refused: Mapping[str, Refusal]
    shape: Shape
    busy: Mapping[str, float]
    seen: Mapping[str, float]  # what the survey saw
    sms: int
    dram: float  # bytes per second at most

    def gain(self, ablation: str) -> float:
        """Of an ablation; 1 where it was not measured."""
        row = self.measured.get(ablation)
        return row.gain if row else 1.0

    @property
    def waits(self) -> bool:
        """Whether it gets slower with half of its warps: then it waits, and nothing is full."""
        half = self.shape.half_occupancy
        return half is not None and half >= _OCCUPANCY_MATTERS

    @property
    def fills_dram(self) -> bool:
        """Whether threads ask for more bytes than most of what DRAM can carry."""
        moved = self.seen.get("stored_bytes", 0.0) + self.seen.get("loaded_bytes", 0.0)
        return bool(self.dram) and moved / self.seconds >= _DRAM_FULL * self.dram


def judge_record(record: AblationRecord, sms: int, dram: float) -> AblationRecord:
    """The record with its verdict; `sms` and `dram`, bytes per second at most, are the GPU's."""
    case = Case(
        seconds=record.base,
        measured={row.ablation: row for row in record.measured},
        refused={refusal.ablation: refusal for refusal in record.refused},
        shape=record.shape,
        busy=record.busy,
        seen=record.seen,
        sms=sms,
        dram=dram,
    )
    return msgspec.structs.replace(record, verdict=judge_case(case))


def judge_case(case: Case) -> AblationVerdict:
    steps = (
        _judge_shortness,
        _judge_grid,
        _judge_reachable,
        _judge_gone,
        _judge_units,
        _judge_loads,
        _judge_stores,
        _judge_warps,
        _judge_chains,
        _judge_occupancy,
        _judge_dependency,
        _judge_functions,
    )
    for step in steps:
        verdict = step(case)
        if verdict:
            return verdict
    return _say_unknown(case)


def _judge_shortness(case: Case) -> AblationVerdict | None:
    if case.seconds >= _SHORT:
        return None
    because = f"{case.seconds * 1e6:.1f} µs are little more than starting a kernel takes"
    return AblationVerdict("launch", "too_short", "short-kernel", because)


def _judge_grid(case: Case) -> AblationVerdict | None:
    shape = case.shape
    if shape.blocks < case.sms and (shape.idle is None or shape.idle > _IDLE):
        because = f"{shape.blocks} blocks for {case.sms} SMs"
        return AblationVerdict("launch", "grid_too_small", "grid-too-small", because)
    if shape.idle is None or shape.idle <= _IDLE:
        return None
    idle = f"SMs have no block for {shape.idle:.0%} of their time"
    if shape.longest_block and shape.longest_block > _UNEVEN:
        because = f"{idle}; the longest block takes {shape.longest_block:.1f} times the median"
        return AblationVerdict("launch", "imbalance", "workload-imbalance", because)
    because = f"{idle}, the last wave of {shape.blocks} blocks"
    return AblationVerdict("launch", "tail", "tail-effect", because)


def _judge_reachable(case: Case) -> AblationVerdict | None:
    rows = [row for row in case.measured.values() if row.ablation in _LIMITERS]
    reachable = [row for row in rows if row.gain >= _WORTH]
    if not reachable:
        return None
    best = max(reachable, key=lambda row: row.gain)
    bound, limiter = _LIMITERS[best.ablation]
    if best.ablation == "coalesced" and "hits-l2" not in case.measured:
        limiter = "l1" if "hits-l1" in case.measured and case.gain("hits-l1") < _WORTH else "l2"
    because = f"without {best.title} it takes {best.time * 1e6:.4g} µs: {best.gain:.2f}x, measured"
    return AblationVerdict(bound, limiter, best.rules[0], because, best.gain)


def _judge_gone(case: Case) -> AblationVerdict | None:
    rows = [case.measured[name] for name in _GONE if case.gain(name) >= _BOUND_WORTH]
    if not rows:
        return None
    best = max(rows, key=lambda row: row.gain)
    bound, limiter = _GONE[best.ablation]
    because = f"without {best.title} it takes {best.time * 1e6:.4g} µs ({best.gain:.2f}x at most)"
    return AblationVerdict(bound, limiter, best.rules[0], because)


def _judge_units(case: Case) -> AblationVerdict | None:
    """A unit that counted instructions fill. One that others need too is full because of them."""
    own = {unit: share for unit, share in case.busy.items() if unit != "issue"}
    unit = max(own, key=lambda name: own[name], default="issue")
    issued = case.busy.get("issue", 0.0)
    if issued >= _FULL and own.get(unit, 0.0) < _WIDE * issued:
        unit = "issue"
    share = case.busy.get(unit, 0.0)
    if share < _FULL:
        return None
    because = f"counted instructions keep {unit} busy for {min(share, 1.0):.0%} of the time"
    ways, requests = case.seen.get("shared_ways", 0.0), case.seen.get("shared_requests", 0.0)
    if unit == "shared" and ways > _IN_CONFLICT * requests:
        because += f", {ways / requests:.2g} passes over the banks for each that is needed"
        return AblationVerdict("memory", "shared", "shared-bank-conflicts", because)
    if unit in ("shared", "l1"):
        return AblationVerdict("memory", unit, f"{unit}-bandwidth", because)
    if unit == "fp32" and case.seen.get("fp32_rounded", 0.0) > _ROUNDED * case.seen.get(
        "fp32", 0.0
    ):
        because += ", by multiplications and additions that are kept apart"
        return AblationVerdict("compute", unit, "non-fused-math", because)
    if case.seen.get("lanes", 1.0) < _FEW_LANES:
        because += f", with {case.seen['lanes']:.0%} of the lanes at work"
        return AblationVerdict("compute", unit, "thread-divergence", because)
    causes: Mapping[str, str] = read_causes()["counted"]
    cause = next(rule for rule, counted in causes.items() if counted == unit)
    return AblationVerdict("compute", unit, cause, because)


def _judge_loads(case: Case) -> AblationVerdict | None:
    """What comes from DRAM or the L2: too many bytes, or too few loads in flight."""
    for name, limiter, rule in (
        ("hits-l2", "dram", "dram-bandwidth"),
        ("hits-l1", "l2", "l2-bandwidth"),
    ):
        gain = case.gain(name)
        if gain < _BOUND_WORTH:
            continue
        row = case.measured[name]
        because = f"without {row.title} it takes {row.time * 1e6:.4g} µs ({gain:.2f}x at most)"
        if limiter == "dram" and case.fills_dram:
            return AblationVerdict("memory", limiter, rule, because)
        if case.waits:
            return _judge_waiting(case, because)
        if case.shape.half_occupancy is not None:
            return AblationVerdict(
                "memory", limiter, rule, f"{because}; half of the warps are as fast"
            )
        return _judge_balance(case, because) or _judge_waiting(case, because)
    return None


def _judge_waiting(case: Case, because: str) -> AblationVerdict:
    half, rule = case.shape.half_occupancy, _OCCUPANCY.get(case.shape.occupancy_limit)
    slower = "there cannot be fewer warps"
    if half is not None:
        slower = f"half of the warps take {half:.2f} times as long"
    if rule and case.shape.occupancy is not None and case.shape.occupancy <= 0.5:
        because = f"{because}; {slower}, and {case.shape.occupancy:.0%} of the warps fit"
        return AblationVerdict("latency", "long_scoreboard", rule, because)
    return AblationVerdict("latency", "long_scoreboard", "long-scoreboard", f"{because}; {slower}")


def _judge_stores(case: Case) -> AblationVerdict | None:
    gain = case.gain("no-stores")
    if gain < _BOUND_WORTH:
        return None
    row = case.measured["no-stores"]
    because = f"without {row.title} it takes {row.time * 1e6:.4g} µs ({gain:.2f}x at most)"
    if case.fills_dram:
        return AblationVerdict("memory", "dram", "dram-bandwidth", because)
    if case.waits:
        return AblationVerdict("latency", "drain", "store-drain", because)
    return None


def _judge_warps(case: Case) -> AblationVerdict | None:
    """Warps that wait at a barrier for one that has more to do: taking it away saves nobody's work."""
    share, barriers = case.seen.get("busiest_warp", 1.0), case.seen.get("barriers", 0.0)
    products = case.seen.get("warpgroup_products", 0.0)
    if share < _ONE_WARP or not barriers + products:
        return None
    because = f"one warp of a block executes {share:.2g} times the mean, the others wait for it"
    if products > barriers:  # each begins when all four warps of its group are there
        return AblationVerdict("latency", "gmma", "gmma-wait", because)
    return AblationVerdict("latency", "barrier", "barrier-wait", because)


def _judge_dependency(case: Case) -> AblationVerdict | None:
    """A warp that waits for its own results: too few warps, or too little that is independent."""
    parts = {name: case.seen.get(f"chain_{name}", 0.0) for name in ("fixed", "xu", "shared")}
    share = sum(parts.values())
    if share < _OF_TIME or max(case.busy.values(), default=0.0) >= _FULL:
        return None
    because = f"one chain of dependent instructions takes {min(share, 1.0):.0%} of a warp's time"
    if parts["fixed"] >= share / 2:
        return AblationVerdict("latency", "wait", "fixed-latency", because)
    return AblationVerdict("latency", "short_scoreboard", "short-scoreboard", because)


def _judge_occupancy(case: Case) -> AblationVerdict | None:
    """More warps would help nearly in proportion, and something keeps them away."""
    half, rule = case.shape.half_occupancy, _OCCUPANCY.get(case.shape.occupancy_limit)
    few = case.shape.occupancy is not None and case.shape.occupancy <= 0.5
    if half is None or half < _IN_PROPORTION or not rule or not few:
        return None
    because = f"half of the warps take {half:.2f} times as long, and "
    because += f"{case.shape.occupancy:.0%} of what an SM holds fit"
    return AblationVerdict("latency", "", rule, because)


def _judge_functions(case: Case) -> AblationVerdict | None:
    """What no unit and no wait explains: instructions that faster functions would save."""
    row = case.measured.get("fast-math")
    if row is None or row.gain < _WORTH:
        return None
    because = f"with fast math it takes {row.time * 1e6:.4g} µs: {row.gain:.2f}x, measured"
    return AblationVerdict("compute", "", row.rules[0], because, row.gain)


def _judge_chains(case: Case) -> AblationVerdict | None:
    """Loads whose values are the next addresses: they cannot be taken away, but they show."""
    if not case.waits or max(case.busy.values(), default=0.0) >= _FULL:
        return None
    slower = f"half of the warps take {case.shape.half_occupancy:.2f} times as long"
    if case.seen.get("steering_loads") and _has_no_other_loads(case):
        because = f"every load decides the next address, and {slower}"
        return AblationVerdict("latency", "long_scoreboard", "long-scoreboard", because)
    if case.seen.get("steering_shared") and not case.seen.get("loaded_bytes"):
        because = f"loads of shared memory decide the next address, and {slower}"
        return AblationVerdict("latency", "short_scoreboard", "short-scoreboard", because)
    return None


def _has_no_other_loads(case: Case) -> bool:
    refusal = case.refused.get("hits-l1")
    return refusal is not None and refusal.code == "steers"


def _judge_balance(case: Case, because: str) -> AblationVerdict | None:
    """Loads that count, and so few blocks on each SM that there cannot be fewer."""
    shape = case.shape
    on_each = shape.blocks / case.sms
    if not shape.blocks_per_sm or on_each > shape.blocks_per_sm / 2:
        return None
    because += f"; {on_each:.2g} blocks for each SM, where {shape.blocks_per_sm} fit"
    return AblationVerdict("launch", "grid_too_small", "grid-too-small", because)


def _say_unknown(case: Case) -> AblationVerdict:
    best = max((row.gain for row in case.measured.values()), default=1.0)
    refusals = [r for r in case.refused.values() if r.code != "nothing-to-take-away"]
    busiest = max(case.busy, key=lambda unit: case.busy[unit], default="")
    observed = f"nothing that could be taken away alone brings more than {best:.2f}x"
    if busiest:
        observed += f"; {busiest} is busiest, {case.busy[busiest]:.0%} by counted instructions"
    for refusal in refusals[:2]:
        observed += f"; {refusal.ablation}: {refusal.observed}"
    missing = Refusal(
        ablation="",
        code="cannot-tell",
        observed=observed,
        threshold=f"{_WORTH}x of what is reachable, {_BOUND_WORTH}x of a bound, {_FULL:.0%} of a unit",
        remedy="counters name the stall: profkit profile, where they may be read",
    )
    bound = "latency" if case.waits else "unknown"
    return AblationVerdict(bound, "", "", "cannot tell", missing=missing)
