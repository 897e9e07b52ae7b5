"""Schedulers and warp states."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING, Literal

from profkit.reports.metrics.derive import Metric, MetricFormula, RawMetricValues, parse_metrics

if TYPE_CHECKING:
    from profkit.units import NcuMetricName, StallState


# What warp states have in common: what the warp waits for, and what it would take to wait less.
Family = Literal[
    "loads", "stores", "mio", "fetch", "math", "chain", "barrier", "alone", "working", "unknown"
]
# Instructions that a warp waits for in long_scoreboard, and in the states of the MIO.
LOADS = ("inst_global_load", "inst_texture", "inst_async_copy")
TRIPS = ("inst_shared_load", "inst_shared_store", "inst_xu", "inst_shuffle")
_SECTORS = (
    "global_load_sectors",
    "global_store_sectors",
    "local_load_sectors",
    "local_store_sectors",
)
_WAVEFRONTS = ("shared_wavefronts",)


@dataclass(frozen=True, kw_only=True)
class WarpState:
    """A state of a warp: Nsight Compute's word for it, and what the model knows of it."""

    name: str  # in the per-issue ratio, and as a limiter
    waits_for: str = ""  # nothing where the warp works
    family: Family
    instructions: tuple[str, ...] = ()  # counts of those that a warp waits for in it
    data: tuple[str, ...] = ()  # counts of what these move
    sampled_as: str = ""  # in the names of samples, where that is another word


WARP_STATES = (
    WarpState(
        name="barrier",
        waits_for="the other warps of the block at a barrier",
        family="barrier",
        instructions=("inst_barrier",),
    ),
    WarpState(
        name="branch_resolving",
        waits_for="the targets of branches",
        family="fetch",
        instructions=("branches",),
    ),
    WarpState(name="dispatch_stall", waits_for="the dispatcher", family="math"),
    WarpState(
        name="drain",
        waits_for="outstanding stores before exit",
        family="stores",
        data=("global_store_sectors",),
    ),
    WarpState(
        name="gmma",
        waits_for="the warpgroup to arrive for wgmma",
        family="alone",
        sampled_as="warpgroup_arrive",
    ),
    WarpState(name="imc_miss", waits_for="immediate constants", family="fetch"),
    WarpState(
        name="lg_throttle",
        waits_for="room in the queue of global and local memory instructions",
        family="loads",
        instructions=LOADS,
        data=_SECTORS,
    ),
    WarpState(
        name="long_scoreboard",
        waits_for="data from global, local or texture memory",
        family="loads",
        instructions=LOADS,
        data=_SECTORS,
    ),
    WarpState(name="math_pipe_throttle", waits_for="a busy math pipe", family="math"),
    WarpState(
        name="membar",
        waits_for="a memory fence",
        family="stores",
        instructions=("inst_membar",),
    ),
    WarpState(
        name="mio_throttle",
        waits_for="room in the queue of shared memory and special functions",
        family="mio",
        instructions=TRIPS,
        data=_WAVEFRONTS,
    ),
    WarpState(name="misc", waits_for="other reasons", family="unknown"),
    WarpState(
        name="no_instruction",
        waits_for="instructions to be fetched",
        family="fetch",
        sampled_as="no_instructions",
    ),
    WarpState(name="not_selected", family="working"),
    WarpState(name="selected", family="working"),
    WarpState(
        name="short_scoreboard",
        waits_for="data from shared memory or special functions",
        family="mio",
        instructions=TRIPS,
        data=_WAVEFRONTS,
    ),
    WarpState(name="sleeping", waits_for="the end of a nanosleep", family="alone"),
    WarpState(
        name="tex_throttle",
        waits_for="room in the queue of texture instructions",
        family="stores",
    ),
    WarpState(name="wait", waits_for="the result of the previous instruction", family="chain"),
)
WARP_STATE = {state.name: state for state in WARP_STATES}


def list_states_of_families(*families: Family) -> tuple[StallState, ...]:
    """Return the names of the states of these families."""
    return tuple(state.name for state in WARP_STATES if state.family in families)


# What a warp in a state waits for.
WAITS = {state.name: state.waits_for for state in WARP_STATES if state.family != "working"}
MEANING = {state: f"waiting for {what}" for state, what in WAITS.items()}
MEANING |= {"not_selected": "ready while another warp is chosen", "selected": "issuing"}
MEANING = dict(sorted(MEANING.items()))
# State -> its word in the names of samples.
STATES = {state.name: state.sampled_as or state.name for state in WARP_STATES}
_RATIO = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
_SAMPLES = "smsp__pcsamp_warps_issue_stalled_{}"
_RATIOS = tuple(map(_RATIO.format, STATES))
# Raw name of the samples (one instance per instruction address) -> our word.
SAMPLES = {_SAMPLES.format(sample): state for state, sample in STATES.items()}
_SAMPLED = tuple(SAMPLES)


# Warp samples below which no share of them is one: at 100, a state of 30 % is 21 to 39 % (95 %).
FEWEST = 100


def _make_share(
    name: NcuMetricName, all_of: tuple[NcuMetricName, ...], text: str, fewest: float = 0
) -> MetricFormula:
    def compute_share(r: RawMetricValues) -> float:
        whole = 0.0
        for part in all_of:
            whole += max(r.get(part, 0.0), 0.0)
        if whole > 0 and whole >= fewest:
            return max(r[name], 0.0) / whole
        return nan

    return MetricFormula((name,), compute_share, text, all_of)


def _make_stall_metric(state: StallState, sampled: NcuMetricName, ratio: NcuMetricName) -> Metric:
    """Return the metric of a warp state, by ncu's ratio or else by its samples."""
    by_samples = f"{sampled} over all samples, of which {FEWEST} are needed"
    of_ratio = _make_share(ratio, _RATIOS, f"{ratio} over the sum of all states")
    of_samples = _make_share(sampled, _SAMPLED, by_samples, FEWEST)
    return Metric(
        name=f"stall_{state}",
        unit="share",
        meaning=f"Share of a resident warp's time in this state: {MEANING[state]}",
        section="WarpStateStats",
        sources=(of_ratio, of_samples),
    )


_STALLS = tuple(map(_make_stall_metric, SAMPLES.values(), SAMPLES, _RATIOS))
WARPS = _STALLS + parse_metrics(f"""
[SourceCounters]
warp_samples | count | Samples of warp states
  sum of those collected: {", ".join(SAMPLES)}
[WarpStateStats]
warp_latency | cycle | Cycles between two issues of one warp
  smsp__average_warp_latency_per_inst_issued.ratio
[SchedulerStats]
warps_per_scheduler | count | Warps resident per scheduler and active cycle
  smsp__warps_active.avg.per_cycle_active
eligible_warps | count | Warps ready to issue per scheduler and active cycle
  smsp__warps_eligible.avg.per_cycle_active
issue_rate | count | Warps issued per scheduler and active cycle
  smsp__issue_active.avg.per_cycle_active
""")
