"""Schedulers and warp states."""

from __future__ import annotations

from math import nan

from profkit.reports.metrics.derive import Metric, Raw, Source, metrics

# Nsight Compute's warp states, by the word of the per-issue ratio, which is our limiter's; and what a
# warp in it waits for.
WAITS = {
    "barrier": "the other warps of the block at a barrier",
    "branch_resolving": "the targets of branches",
    "dispatch_stall": "the dispatcher",
    "drain": "outstanding stores before exit",
    "gmma": "the warpgroup to arrive for wgmma",
    "imc_miss": "immediate constants",
    "lg_throttle": "room in the queue of global and local memory instructions",
    "long_scoreboard": "data from global, local or texture memory",
    "math_pipe_throttle": "a busy math pipe",
    "membar": "a memory fence",
    "mio_throttle": "room in the queue of shared memory and special functions",
    "misc": "other reasons",
    "no_instruction": "instructions to be fetched",
    "short_scoreboard": "data from shared memory or special functions",
    "sleeping": "the end of a nanosleep",
    "tex_throttle": "room in the queue of texture instructions",
    "wait": "the result of the instruction before",
}
MEANING = {state: f"waiting for {what}" for state, what in WAITS.items()}
MEANING |= {"not_selected": "ready while another warp is chosen", "selected": "issuing"}
MEANING = dict(sorted(MEANING.items()))
# State -> its word in the names of samples.
STATES = {state: state for state in MEANING}
STATES |= {"gmma": "warpgroup_arrive", "no_instruction": "no_instructions"}
_RATIO = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
_SAMPLES = "smsp__pcsamp_warps_issue_stalled_{}"
_RATIOS = tuple(map(_RATIO.format, STATES))
# Raw name of the samples (one instance per instruction address) -> our word.
SAMPLES = {_SAMPLES.format(sample): state for state, sample in STATES.items()}
_SAMPLED = tuple(SAMPLES)


# Warp samples below which no share of them is one: at 100, a state of 30 % is 21 to 39 % (95 %).
FEWEST = 100


def _share(name: str, all_of: tuple[str, ...], text: str, fewest: float = 0) -> Source:
    def value(r: Raw) -> float:
        whole = sum(max(r[n], 0.0) for n in all_of if n in r)
        return max(r[name], 0.0) / whole if whole > 0 and whole >= fewest else nan

    return Source((name,), value, text, all_of)


_STALLS = tuple(
    Metric(
        f"stall_{state}",
        "share",
        f"Share of a resident warp's time in this state: {MEANING[state]}",
        "WarpStateStats",
        (
            _share(ratio, _RATIOS, f"{ratio} over the sum of all states"),
            _share(
                sampled,
                _SAMPLED,
                f"{sampled} over all samples, of which {FEWEST} are needed",
                FEWEST,
            ),
        ),
    )
    for (sampled, state), ratio in zip(SAMPLES.items(), _RATIOS, strict=True)
)
WARPS = _STALLS + metrics(f"""
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
