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
    WORTH,
    AblationRecord,
    AblationVerdict,
    LaunchOnlyTimes,
    MeasuredAblation,
    Refusal,
    read_causes,
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
_AS_WARM = 1.02  # as long with a cold L2, within what two rounds differ by
_PRODUCTS = 0.25  # of the instructions are arithmetic in half precision: products are the work
_FROM_SHARED = 0.03  # of the instructions load the operands of products
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
# What has a turn, and the compiler does not know how long it takes -> what warps wait for, and the rule.
_QUEUES = {
    "texture": ("tex_throttle", "tex-throttle"),
    "shared": ("mio_throttle", "mio-throttle"),
    "l1": ("lg_throttle", "lg-throttle"),
}


@dataclass(frozen=True)
class AblatedCall:
    """All that is known of a call."""

    seconds: float
    measured: Mapping[str, MeasuredAblation]
    refused: Mapping[str, Refusal]
    shape: LaunchOnlyTimes
    busy: Mapping[str, float]
    seen: Mapping[str, float]  # what the survey saw
    sms: int
    dram: float  # bytes per second at most

    def find_ablation_worth(
        self, ablation: str, worth: float = _BOUND_WORTH
    ) -> MeasuredAblation | None:
        """What an ablation measured; None where it is not worth so much, or was not measured."""
        row = self.measured.get(ablation)
        if row is None:
            return None
        worth_of_it = row.gain
        if row.reachable:
            worth_of_it = row.sure_gain
        if worth_of_it < worth:
            return None
        return row

    def get_survey_count(self, name: str) -> float:
        """What the survey saw of a kind; 0 where nothing."""
        return self.seen.get(name, 0.0)

    @property
    def is_latency_bound(self) -> bool:
        """Whether it gets slower with half of its warps: then it waits, and nothing is full."""
        return (self.shape.half_occupancy or 0.0) >= _OCCUPANCY_MATTERS

    @property
    def half_occupancy_text(self) -> str:
        if self.shape.half_occupancy is None:
            return "there cannot be fewer warps"
        return f"half of the warps take {self.shape.half_occupancy:.2f} times as long"

    @property
    def occupancy_limiter_rule(self) -> str:
        """The rule of what keeps half of the warps or more from an SM; empty where nothing does."""
        occupancy = self.shape.occupancy
        if occupancy is None or occupancy > 0.5:
            return ""
        return _OCCUPANCY.get(self.shape.occupancy_limit, "")

    @property
    def occupancy_text(self) -> str:
        """How much of the warps that an SM holds fit, where something crowds others out."""
        if self.shape.occupancy is None:
            return "an unknown part"
        return f"{100 * self.shape.occupancy:.0f} %"

    @property
    def has_one_warp(self) -> bool:
        """Whether each scheduler of an SM has one warp at most."""
        on_each = min(self.shape.blocks_per_sm, -(-self.shape.blocks // self.sms))
        return 0 < on_each * self.get_survey_count("warps") <= _SCHEDULERS

    @property
    def is_full(self) -> bool:
        """Whether counted instructions fill a unit."""
        return max(self.busy.values(), default=0.0) >= _FULL

    @property
    def fills_dram(self) -> bool:
        """Whether threads ask for more bytes than most of what DRAM can carry."""
        moved = self.get_survey_count("stored_bytes") + self.get_survey_count("loaded_bytes")
        return bool(self.dram) and moved / self.seconds >= _DRAM_FULL * self.dram


def judge_record(record: AblationRecord, sms: int, dram: float) -> AblationRecord:
    """The record with its verdict; `sms` and `dram`, bytes per second at most, are the GPU's."""
    case = AblatedCall(
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


def judge_case(case: AblatedCall) -> AblationVerdict:
    steps = (
        _judge_short_kernel,
        _judge_grid,
        _judge_reachable_gains,
        _judge_tensor_cores,
        _judge_units_in_turns,
        _judge_removals,
        _judge_units,
        _judge_loads,
        _judge_stores,
        _judge_warps,
        _judge_chains,
        _judge_occupancy,
        _judge_dependency,
        _judge_slow_functions,
    )
    for step in steps:
        verdict = step(case)
        if verdict:
            return verdict
    return _say_unknown(case)


def _judge_short_kernel(case: AblatedCall) -> AblationVerdict | None:
    if case.seconds >= _SHORT:
        return None
    because = f"{case.seconds * 1e6:.1f} µs are little more than starting a kernel takes"
    return AblationVerdict("launch", "too_short", "short-kernel", because)


def _judge_grid(case: AblatedCall) -> AblationVerdict | None:
    """Too few blocks, or uneven ones; but not where a fix of other kind was measured to bring more."""
    shape = case.shape
    best = _find_largest_gain(case, _LIMITERS, WORTH)
    if best and shape.idle is not None and best.gain * (1 - shape.idle) > 1:
        return None  # with no SM idle at all, it would be less
    if shape.blocks < case.sms and (shape.idle is None or shape.idle > _IDLE):
        because = f"{shape.blocks} blocks for {case.sms} SMs"
        return AblationVerdict("launch", "grid_too_small", "grid-too-small", because)
    if shape.idle is None or shape.idle <= _IDLE:
        return None
    idle = f"SMs have no block for {100 * shape.idle:.0f} % of their time"
    if shape.longest_block and shape.longest_block > _UNEVEN:
        because = f"{idle}; the longest block takes {shape.longest_block:.1f} times the median"
        return AblationVerdict("launch", "imbalance", "workload-imbalance", because)
    because = f"{idle}, the last wave of {shape.blocks} blocks"
    return AblationVerdict("launch", "tail", "tail-effect", because)


def _say_time_without(row: MeasuredAblation) -> str:
    without = f"without {row.title} it takes {row.time * 1e6:.4g} µs"
    if row.reachable:
        return f"{without}: {row.gain:.2f}x, measured"
    return f"{without} ({row.gain:.2f}x at most)"


def _find_largest_gain(
    case: AblatedCall, limiters: Mapping[str, tuple[str, str]], worth: float
) -> MeasuredAblation | None:
    rows = [row for name in limiters if (row := case.find_ablation_worth(name, worth))]
    return max(rows, key=lambda row: row.gain, default=None)


def _judge_reachable_gains(case: AblatedCall) -> AblationVerdict | None:
    best = _find_largest_gain(case, _LIMITERS, WORTH)
    if best is None:
        return None
    if (
        best.ablation == "wide" and case.is_latency_bound
    ):  # wider loads are what waiting for loads is fixed by
        because = f"{_say_time_without(best)}; {case.half_occupancy_text}"
        return AblationVerdict("latency", "long_scoreboard", "long-scoreboard", because, best.gain)
    bound, limiter = _LIMITERS[best.ablation]
    if best.ablation == "coalesced" and "hits-l2" not in case.measured:
        limiter = "l2"
        if "hits-l1" in case.measured and not case.find_ablation_worth("hits-l1", WORTH):
            limiter = "l1"
    return AblationVerdict(bound, limiter, best.rules[0], _say_time_without(best), best.gain)


def _judge_tensor_cores(case: AblatedCall) -> AblationVerdict | None:
    """Products of tiles in half precision, and none of them on tensor cores."""
    half, from_shared = (
        case.get_survey_count("half_share"),
        case.get_survey_count("shared_load_share"),
    )
    is_product = half >= _PRODUCTS and from_shared >= _FROM_SHARED
    if not is_product or case.busy.get("tensor") or case.busy.get("fp16", 0.0) < 0.5:
        return None
    because = (
        f"{100 * half:.0f} % of the instructions are half-precision arithmetic on tiles in shared "
        "memory, and none is a matrix product of tensor cores"
    )
    return AblationVerdict("compute", "fp16", "tensor-idle", because)


def _judge_units_in_turns(case: AblatedCall) -> AblationVerdict | None:
    """Units that are each busy for a part of the time, and wait for one another in the rest."""
    turns = _find_units_in_turns(case)
    if len(turns) < 2 or case.is_full or not _IN_TURNS <= sum(turns.values()) <= _MOST:
        return None
    shares = " and ".join(f"{unit} {100 * share:.0f} %" for unit, share in turns.items())
    because = f"units work alternately: {shares} of the time"
    if {"xu", "tensor"} <= turns.keys():
        return AblationVerdict("latency", "wait", "tensor-xu-serial", because)
    if "texture" not in turns and case.has_one_warp:
        because += ", with one warp for each scheduler"
        return AblationVerdict("latency", "wait", "fixed-latency", because)
    for unit, (limiter, rule) in _QUEUES.items():
        if unit in turns:
            return AblationVerdict("latency", limiter, rule, because)
    return AblationVerdict("latency", "math_pipe_throttle", "math-throttle", because)


def _find_units_in_turns(case: AblatedCall) -> dict[str, float]:
    """Unit -> the share of the time that is its turn."""
    turns = {}
    for name, share in case.seen.items():
        if name.startswith("turns_") and share >= _ITS_TURN:
            turns[name.removeprefix("turns_")] = share
    functions = case.find_ablation_worth("cheap-functions")
    xu = case.busy.get("xu", 0.0)
    if functions and xu >= _ITS_TURN and 1 - 1 / functions.gain >= _OF_TIME * xu:
        turns["xu"] = xu  # nothing else was done in nearly all of that time
        tensor = case.busy.get("tensor", 0.0)
        if tensor >= _ITS_TURN:
            turns["tensor"] = tensor
    return turns


def _judge_removals(case: AblatedCall) -> AblationVerdict | None:
    best = _find_largest_gain(case, _GONE, _BOUND_WORTH)
    if best is None:
        return None
    return AblationVerdict(*_GONE[best.ablation], best.rules[0], _say_time_without(best))


def _judge_units(case: AblatedCall) -> AblationVerdict | None:
    """A unit that counted instructions fill. One that others need too is full because of them."""
    unit = _find_busiest(case.busy)
    share = case.busy.get(unit, 0.0)
    if share < _FULL:
        return None
    because = f"counted instructions keep {unit} busy for {100 * min(share, 1.0):.0f} % of the time"
    ways, requests = case.get_survey_count("shared_ways"), case.get_survey_count("shared_requests")
    if unit == "shared" and ways > _IN_CONFLICT * requests:
        because += f", {ways / requests:.2g} passes over the banks for each that is needed"
        return AblationVerdict("memory", "shared", "shared-bank-conflicts", because)
    if unit in ("shared", "l1", "texture"):
        return AblationVerdict("memory", unit, f"{unit}-bandwidth", because)
    if unit == "fp32" and case.get_survey_count("fp32_rounded") > _ROUNDED * case.get_survey_count(
        "fp32"
    ):
        because += ", by multiplications and additions that are kept apart"
        return AblationVerdict("compute", unit, "non-fused-math", because)
    if 0 < case.get_survey_count("lanes") < _FEW_LANES:
        because += f", with {100 * case.get_survey_count('lanes'):.0f} % of the lanes at work"
        return AblationVerdict("compute", unit, "thread-divergence", because)
    for rule, counted in read_causes()["counted"].items():
        if counted == unit:
            return AblationVerdict("compute", unit, rule, because)
    return None


def _find_busiest(busy: Mapping[str, float]) -> str:
    """The unit with the largest share; issuing, where no unit has nearly all of what is issued."""
    own = {unit: share for unit, share in busy.items() if unit != "issue"}
    unit = max(own, key=lambda name: own[name], default="issue")
    issued = busy.get("issue", 0.0)
    if issued >= _FULL and own.get(unit, 0.0) < _WIDE * issued:
        return "issue"
    return unit


def _judge_loads(case: AblatedCall) -> AblationVerdict | None:
    """What comes from DRAM or the L2: too many bytes, or too few loads in flight."""
    row, limiter, rule = case.find_ablation_worth("hits-l2"), "dram", "dram-bandwidth"
    if row is None:
        row, limiter, rule = case.find_ablation_worth("hits-l1"), "l2", "l2-bandwidth"
    if row is None:
        return None
    because = _say_time_without(row)
    if limiter == "dram" and case.fills_dram:
        return AblationVerdict("memory", limiter, rule, because)
    if case.is_latency_bound:
        return _judge_waiting(case, because)
    if case.shape.half_occupancy is not None:
        because += "; half of the warps are as fast"
        return AblationVerdict("memory", limiter, rule, because)
    return _judge_balance(case, because) or _judge_waiting(case, because)


def _judge_waiting(case: AblatedCall, because: str) -> AblationVerdict:
    because, rule = f"{because}; {case.half_occupancy_text}", "long-scoreboard"
    if case.occupancy_limiter_rule:
        rule = case.occupancy_limiter_rule
        because += f", and {case.occupancy_text} of the warps fit"
    return AblationVerdict("latency", "long_scoreboard", rule, because)


def _judge_stores(case: AblatedCall) -> AblationVerdict | None:
    row = case.find_ablation_worth("no-stores")
    if row and case.get_survey_count("stored_bytes") > case.dram * case.seconds:
        because = f"{_say_time_without(row)}; DRAM could not carry what is stored"
        return AblationVerdict("memory", "l2", "l2-bandwidth", because)
    if row and case.fills_dram:
        return AblationVerdict("memory", "dram", "dram-bandwidth", _say_time_without(row))
    if row and case.is_latency_bound:
        return AblationVerdict("latency", "drain", "store-drain", _say_time_without(row))
    return None


def _judge_warps(case: AblatedCall) -> AblationVerdict | None:
    """Warps that wait at a barrier for one that has more to do: taking it away saves nobody's work."""
    share, barriers = case.get_survey_count("busiest_warp"), case.get_survey_count("barriers")
    products = case.get_survey_count("warpgroup_products")
    if share < _ONE_WARP or not barriers + products:
        return None
    because = f"one warp of a block executes {share:.2g} times the mean, the others wait for it"
    if products > barriers:  # each begins when all four warps of its group are there
        return AblationVerdict("latency", "gmma", "gmma-wait", because)
    return AblationVerdict("latency", "barrier", "barrier-wait", because)


def _judge_chains(case: AblatedCall) -> AblationVerdict | None:
    """Loads whose values are the next addresses: they cannot be taken away, but they show."""
    if not case.is_latency_bound or case.is_full:
        return None
    refusal = case.refused.get("hits-l1")
    if case.get_survey_count("steering_loads") and refusal and refusal.code == "steers":
        because = f"every load decides the next address, and {case.half_occupancy_text}"
        return AblationVerdict("latency", "long_scoreboard", "long-scoreboard", because)
    if case.get_survey_count("steering_shared") and not case.get_survey_count("loaded_bytes"):
        because = f"loads of shared memory decide the next address, and {case.half_occupancy_text}"
        return AblationVerdict("latency", "short_scoreboard", "short-scoreboard", because)
    return None


def _judge_occupancy(case: AblatedCall) -> AblationVerdict | None:
    """More warps would help nearly in proportion, and something keeps them away."""
    if (case.shape.half_occupancy or 0.0) < _IN_PROPORTION or not case.occupancy_limiter_rule:
        return None
    because = f"{case.half_occupancy_text}, and {case.occupancy_text} of what an SM holds fit"
    return AblationVerdict("latency", "", case.occupancy_limiter_rule, because)


def _judge_dependency(case: AblatedCall) -> AblationVerdict | None:
    """A warp that waits for its own results: too few warps, or too little that is independent."""
    fixed = case.get_survey_count("chain_fixed")
    share = fixed + case.get_survey_count("chain_xu") + case.get_survey_count("chain_shared")
    if share < _OF_TIME or case.is_full:
        return None
    part = f"{100 * min(share, 1.0):.0f} %"
    because = f"one chain of dependent instructions takes {part} of a warp's time"
    if fixed >= share / 2:
        return AblationVerdict("latency", "wait", "fixed-latency", because)
    return AblationVerdict("latency", "short_scoreboard", "short-scoreboard", because)


def _judge_slow_functions(case: AblatedCall) -> AblationVerdict | None:
    """What no unit and no wait explains: instructions that faster functions would save."""
    row = case.find_ablation_worth("fast-math", WORTH)
    if row is None:
        return None
    return AblationVerdict("compute", "", row.rules[0], _say_time_without(row), row.gain)


def _judge_balance(case: AblatedCall, because: str) -> AblationVerdict | None:
    """Loads that count, and so few blocks on each SM that there cannot be fewer."""
    fitting, on_each = case.shape.blocks_per_sm, case.shape.blocks / case.sms
    if not fitting or on_each > fitting / 2:
        return None
    because += f"; {on_each:.2g} blocks for each SM, where {fitting} fit"
    return AblationVerdict("launch", "grid_too_small", "grid-too-small", because)


def _say_unknown(case: AblatedCall) -> AblationVerdict:
    best = max((row.gain for row in case.measured.values()), default=1.0)
    busiest = max(case.busy, key=lambda unit: case.busy[unit], default="")
    observed = f"no cause that can be removed separately gains more than {best:.2f}x"
    if busiest:
        observed += (
            f"; {busiest} is busiest, {100 * case.busy[busiest]:.0f} % by counted instructions"
        )
    refusals = [r for r in case.refused.values() if r.code != "nothing-to-take-away"]
    for refusal in refusals[:2]:
        observed += f"; {refusal.ablation}: {refusal.observed}"
    missing = Refusal(
        ablation="",
        code="cannot-tell",
        observed=observed,
        threshold=(
            f"{WORTH}x of what is reachable, {_BOUND_WORTH}x of a bound, {100 * _FULL:.0f} % of a "
            "unit"
        ),
        remedy="counters name the stall: profkit profile, where they may be read",
    )
    return AblationVerdict(_guess_bound(case), "", "", "cannot tell", missing=missing)


def _guess_bound(case: AblatedCall) -> str:
    """Which part of the machine it waits for, where the cause cannot be told."""
    if case.is_latency_bound:
        return "latency"
    if case.find_ablation_worth("no-memory"):
        return "memory"
    return "unknown"
