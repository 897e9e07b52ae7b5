"""Warps that wait: for what, and would more of them help?

A stall's gain: if warps never waited for it, the time between two issues of a warp would shrink by
its share, so the launch speeds up by 1 / (1 - share) at most, and never past the busiest resource.
To the share belongs what only happens because of the wait; see _accounts_for.
A wait that a full unit causes (see the queues in resources.py) is that unit's finding, not one of
these.
"""

from __future__ import annotations

from collections.abc import Callable

from profkit.diagnosis.machine.resources import uses
from profkit.diagnosis.rule import Hit, Launch, Rule, count, share
from profkit.diagnosis.rules.launch import capped
from profkit.reports.metrics.warps import MEANING

STALLED = 0.15  # share of the warps' time from which a stall is worth a line, or the leading one
CROWDED = 0.75  # theoretical occupancy above which more blocks hide little more
PER_PRODUCT = 2  # WARPGROUP instructions of one wgmma: an arrival before it, a wait behind it
IDLE_SCHEDULER = 0.25  # share of cycles without an eligible warp from which latency shows
_LIMITS = ("limit_registers", "limit_shared", "limit_warps", "limit_blocks")
# A block without shared memory is limited by the driver's 1 KB exactly where blocks are.
_EMPTY_BLOCKS = ("limit_shared", "limit_blocks")
LIMITERS = (
    "long_scoreboard", "short_scoreboard", "barrier", "wait", "membar", "sleeping",
    "no_instruction", "mio_throttle", "lg_throttle", "tex_throttle", "math_pipe_throttle",
    "branch_resolving", "dispatch_stall", "drain", "gmma", "imc_miss",
)  # fmt: skip


def stalls(launch: Launch) -> dict[str, float]:
    """Share of the warps' time in each state of waiting, largest first.

    Raises:
        NotCollected: no warp state was collected.
    """
    launch["stall_selected"]
    found = {s: launch[f"stall_{s}"] for s in LIMITERS if f"stall_{s}" in launch}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _queue_of(state: str, launch: Launch) -> str | None:
    """The near-full resource that this wait is the queue of."""
    for found in uses(launch):
        if found.near and state in found.resource.queue:
            return found.resource.limiter
    return None


def for_wgmma(launch: Launch) -> bool:
    """Whether the warps in state barrier wait for wgmma's results rather than for each other.

    9.0 books the wait for results (WARPGROUP.DEPBAR) as barrier. With an arrival and a wait to a
    product, twice as many WARPGROUP instructions as block barriers are as many waits as barriers.
    """
    waits = launch.get("inst_warpgroup", 0.0)
    return waits > 0 and waits >= PER_PRODUCT * launch.get("inst_barrier", 0.0)


def meaning(state: str, launch: Launch) -> str:
    """What a warp in this state is doing, in this launch."""
    if state == "barrier" and for_wgmma(launch):
        return "waiting for the results of wgmma, which ncu books as barrier"
    return MEANING[state]


def _accounts_for(state: str, launch: Launch) -> float:
    """Share of a warp's time that would go with a wait: its own, and what the wait causes.

    A warp that is ready but not selected stands behind others; where these hold the scheduler or its
    pipe for longer than the one cycle of their issue, the same part of its time is theirs. A jump
    takes its own issue with it, and the fetch of what it jumps to.
    """
    part = launch[f"stall_{state}"]
    if state in ("dispatch_stall", "math_pipe_throttle"):
        held = part / (part + launch["stall_selected"]) if part > 0 else 0.0
        part += held * launch.get("stall_not_selected", 0.0)
    elif state == "branch_resolving" and launch.known("branches", "instructions"):
        jumps = min(1.0, launch["branches"] / max(launch["instructions"], 1.0))
        own = launch["stall_selected"] + launch.get("stall_wait", 0.0)
        part += jumps * own + launch.get("stall_no_instruction", 0.0)
    return part


def _stall(state: str, wgmma: bool = False) -> Callable[[Launch], Hit | None]:
    def check(launch: Launch) -> Hit | None:
        found = stalls(launch)
        part = found.get(state, 0.0)
        leads = part > 0 and next(iter(found)) == state
        if (part < STALLED and not leads) or _queue_of(state, launch):
            return None
        if state == "barrier" and for_wgmma(launch) != wgmma:
            return None
        gain = 1 / (1 - min(_accounts_for(state, launch), 0.999))
        looked = (f"stall_{state}", "warp_latency", "warps_per_scheduler", "issue_busy")
        return Hit(
            f"{share(part)} of the warps' time goes to {meaning(state, launch)}",
            capped(launch, gain),
            (*looked, "inst_warpgroup", "inst_barrier") if wgmma else looked,
        )

    return check


def _occupancy(metric: str, what: str, step: str | None) -> Callable[[Launch], Hit | None]:
    def check(launch: Launch) -> Hit | None:
        blocks, limit = launch["blocks_per_sm"], launch[metric]
        others = [launch[m] for m in _LIMITS if m != metric and (m, metric) != _EMPTY_BLOCKS]
        if limit > blocks or limit >= min(others):
            return None
        occupancy = launch["occupancy_limit"]
        if occupancy >= CROWDED or launch["waves"] < 1:
            return None  # warps enough, or not enough blocks to fill even these places
        waiting = 1 - launch["issue_busy_active"]
        if waiting < IDLE_SCHEDULER or any(u.near for u in uses(launch)):
            return None
        gain = capped(launch, 1 / occupancy)
        text = f"{what}: {count(blocks, 'block')} per SM, "
        text += f"{share(occupancy)} occupancy"
        if step and step in launch:
            unit = "registers per thread" if "reg" in step else "bytes of shared memory per block"
            text += f"; {launch[step]:.0f} {unit} less admit one more"
        return Hit(
            f"{text}; schedulers have no ready warp {share(waiting)} of the time",
            gain,
            (metric, "occupancy_limit", "occupancy", "issue_busy_active", step or metric),
        )

    return check


def _rule(name: str, state: str, title: str, meaning: str, advice: str) -> Rule:
    other = "wait" if state != "wait" else "barrier"
    return Rule(
        name,
        title,
        meaning,
        advice,
        _stall(state),
        {f"stall_{state}": 0.6, f"stall_{other}": 0.1, "stall_selected": 0.1, "issue_busy": 0.1},
        {f"stall_{state}": 0.02, f"stall_{other}": 0.5, "stall_selected": 0.3, "issue_busy": 0.3},
        (state,),
    )


_FEW = {"blocks_per_sm": 2, "limit_registers": 9, "limit_shared": 9, "limit_warps": 9, "limit_blocks": 9,
        "occupancy_limit": 0.125, "waves": 8, "issue_busy_active": 0.2, "issue_busy": 0.2}  # fmt: skip
_HIDES = ("long_scoreboard", "short_scoreboard", "wait", "barrier", "imc_miss", "drain",
          "no_instruction", "branch_resolving")  # fmt: skip


def _occupancy_rule(name: str, metric: str, what: str, step: str | None, advice: str) -> Rule:
    return Rule(
        name,
        f"Few warps per SM because of {what}",
        "A scheduler hides the latency of one warp behind others. Here the block's "
        f"{what} leave so few warps per SM that often none is ready.",
        advice,
        _occupancy(metric, what.capitalize(), step),
        {**_FEW, metric: 2},
        {**_FEW, metric: 2, "occupancy_limit": 0.94},
        _HIDES,
    )


RULES = (
    _rule("long-scoreboard", "long_scoreboard", "Waiting for global, local or texture data",
          "The next instruction needs a value that L1TEX has not delivered, and neither DRAM nor a "
          "cache is near its peak: it is latency, not bandwidth.",
          "More loads in flight: unroll, prefetch into registers, cp.async or TMA into shared "
          "memory several tiles ahead; more warps; shorter chains of dependent loads."),
    _rule("short-scoreboard", "short_scoreboard", "Waiting for shared memory or special functions",
          "The next instruction needs the result of a shared-memory access, a shuffle or a special "
          "function: 20 to 40 cycles each, in a chain.",
          "Independent work between the access and its use, results kept in registers, fewer round "
          "trips through shared memory."),
    _rule("barrier-wait", "barrier", "Waiting at block barriers",
          "Warps that arrive early wait for the last one: unequal work, or too many barriers.",
          "Fewer barriers (double buffering), named barriers or warp-level syncs for those who "
          "need them, equal work per warp, more blocks per SM to fill the gap."),
    _rule("fixed-latency", "wait", "Waiting for the previous instruction",
          "A dependent instruction waits the 4 to 6 cycles (matrix instructions: about 30) of the "
          "one before: the chain is serial and there are too few warps to fill it.",
          "Independent accumulators (unroll and interleave chains), more warps."),
    _rule("membar", "membar", "Waiting at memory fences",
          "A fence waits until all earlier writes of the thread are visible.",
          "Fewer or narrower fences (block scope), release/acquire operations instead of full "
          "fences, one thread per block."),
    _rule("sleeping", "sleeping", "Asleep", "The warps executed nanosleep and wait for it to end.",
          "Shorter or no sleeps: wait on an mbarrier instead of polling."),
    _rule("instruction-cache", "no_instruction", "Waiting for instructions",
          "The next instruction is not in the instruction cache: code too large for it, far jumps, "
          "or a cold start.",
          "Unroll less, split rarely used paths out, keep the hot loop under the instruction cache "
          "(about 128 KB at the SM's second level)."),
    _rule("constant-miss", "imc_miss", "Waiting for immediate constants",
          "An instruction's constant operand (kernel parameters, literals) missed the constant "
          "cache; typical of the first instructions of short launches.",
          "Nothing in a short launch; otherwise fewer distinct constants, parameters in registers."),
    _rule("mio-throttle", "mio_throttle", "The MIO queue is full",
          "Shared-memory, shuffle and special-function instructions are issued faster than their "
          "queue empties, though no unit behind it is near its peak.",
          "Fewer, wider shared-memory accesses; arithmetic between them."),
    _rule("lg-throttle", "lg_throttle", "The queue of global and local accesses is full",
          "Loads and stores are issued in bursts longer than the LSU's queue.",
          "Fewer, wider accesses; spread them; avoid local memory."),
    _rule("tex-throttle", "tex_throttle", "The texture queue is full",
          "Texture (and, on small GPUs, FP64) instructions are issued faster than they are taken.",
          "Fewer texture instructions, plain loads where no filtering is needed."),
    _rule("math-throttle", "math_pipe_throttle", "Waiting for a math pipe",
          "Warps are ready at the same time for the same pipe, though on average it is not full.",
          "Interleave work for other pipes; stagger the warps."),
    _rule("branch-resolving", "branch_resolving", "Waiting for branches",
          "Jumps whose target is being computed: short loop bodies, many branches.",
          "Unroll, use predication or selects."),
    _rule("dispatch-stall", "dispatch_stall", "The dispatcher holds warps back",
          "An instruction was chosen but its operands or the pipe conflicted (register banks, wgmma "
          "operands).",
          "Let the compiler reschedule (fewer operands per instruction, other unrolling)."),
    _rule("store-drain", "drain", "Waiting at the end for stores",
          "Warps at their exit wait until their stores have left the SM.",
          "Store earlier, coalesce the stores, longer-lived blocks."),
    _rule("gmma-wait", "gmma", "Waiting for the warpgroup",
          "wgmma needs the registers of a whole warpgroup: warps wait for the others to arrive.",
          "Equal work in the four warps before the wgmma; deeper asynchronous wgmma pipelines."),
    Rule(
        "wgmma-wait",
        "Waiting for wgmma's results",
        "wgmma runs beside the warps that start it, and WARPGROUP.DEPBAR waits until its results are "
        "there. Nsight Compute books that wait as barrier: no block barrier need be near.",
        "More products in flight before the wait (wait for all but the last), larger tiles per "
        "product, a second warpgroup that computes while the first waits.",
        _stall("barrier", wgmma=True),
        {"stall_barrier": 0.6, "stall_wait": 0.1, "stall_selected": 0.1, "issue_busy": 0.1,
         "inst_warpgroup": 2e6, "inst_barrier": 500},
        {"stall_barrier": 0.6, "stall_wait": 0.1, "stall_selected": 0.1, "issue_busy": 0.1,
         "inst_warpgroup": 2e3, "inst_barrier": 3e3},
        ("barrier",),
    ),
    _occupancy_rule("occupancy-registers", "limit_registers", "registers", "registers_step",
                    "Launch bounds or -maxrregcount down to the step, smaller tiles per thread; or "
                    "more independent work per warp instead."),
    _occupancy_rule("occupancy-shared", "limit_shared", "shared memory", "shared_step",
                    "Smaller tiles or fewer stages down to the step, scratch reused; or more warps "
                    "in the block."),
    _occupancy_rule("occupancy-blocks", "limit_blocks", "small blocks", None,
                    "Larger blocks: an SM holds 16 to 32 blocks however small they are."),
)  # fmt: skip

__all__ = ["LIMITERS", "RULES", "meaning", "stalls"]
