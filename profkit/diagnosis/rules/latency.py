"""Warps that wait: for what?

A stall's gain: if warps never waited for it, the time between two issues of a warp would shrink by
its share, so the launch speeds up by 1 / (1 - share) at most, and never past the busiest resource.
To the share belongs what only happens because of the wait; see _accounts_for.
A wait that a full unit causes (see the queues in resources.py) is that unit's finding, not one of
these.
"""

from __future__ import annotations

from collections.abc import Callable

from profkit.diagnosis.rule import Hit, Rule
from profkit.diagnosis.rules.gains import amdahl, capped
from profkit.model.launch import Launch
from profkit.model.resources import uses
from profkit.reports.figures import share
from profkit.reports.metrics.warps import MEANING

STALLED = 0.15  # share of the warps' time from which a stall is worth a line, or the leading one
PER_PRODUCT = 2  # WARPGROUP instructions of one wgmma: an arrival before it, a wait behind it
_WGMMA = "waiting for the results of wgmma, which ncu books as barrier"
LIMITERS = (
    "long_scoreboard", "short_scoreboard", "barrier", "wait", "membar", "sleeping",
    "no_instruction", "mio_throttle", "lg_throttle", "tex_throttle", "math_pipe_throttle",
    "branch_resolving", "dispatch_stall", "drain", "gmma", "imc_miss",
)  # fmt: skip


def stall_shares(launch: Launch) -> dict[str, float]:
    """Share of the warps' time in each state of waiting, largest first.

    Raises:
        NotCollected: no warp state was collected.
    """
    launch.need("stall_selected")
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
        return _WGMMA
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


def _for_warps(launch: Launch) -> bool:
    return not for_wgmma(launch)


def _stall(
    state: str,
    doing: str,
    applies: Callable[[Launch], bool] | None = None,
    also: tuple[str, ...] = (),
) -> Callable[[Launch], Hit | None]:
    """The question of one state; what decides in another's stands in none of its functions."""

    def check(launch: Launch) -> Hit | None:
        found = stall_shares(launch)
        part = found.get(state, 0.0)
        leads = part > 0 and next(iter(found)) == state
        if (part < STALLED and not leads) or _queue_of(state, launch):
            return None
        if applies and not applies(launch):
            return None
        gain = amdahl(_accounts_for(state, launch))
        looked = (f"stall_{state}", "warp_latency", "warps_per_scheduler", "issue_busy")
        return Hit(
            f"{share(part)} of the warps' time goes to {doing}",
            capped(launch, gain),
            (*looked, *also),
        )

    return check


def _rule(*, name: str, state: str, title: str, meaning: str, advice: str) -> Rule:
    other = "wait" if state != "wait" else "barrier"
    return Rule(
        id=name,
        title=title,
        meaning=meaning,
        advice=advice,
        check=_stall(state, MEANING[state], _for_warps if state == "barrier" else None),
        fires=(
            {
                f"stall_{state}": 0.6,
                f"stall_{other}": 0.1,
                "stall_selected": 0.1,
                "issue_busy": 0.1,
            },
        ),
        clear=(
            {
                f"stall_{state}": 0.02,
                f"stall_{other}": 0.5,
                "stall_selected": 0.3,
                "issue_busy": 0.3,
            },
        ),
        explains=(state,),
    )


RULES = (
    _rule(
        name="long-scoreboard",
        state="long_scoreboard",
        title="Waiting for global, local or texture data",
        meaning=(
            "The next instruction needs a value that L1TEX has not delivered, and neither DRAM nor "
            "a cache is near its peak: it is latency, not bandwidth."
        ),
        advice=(
            "More loads in flight: unroll, prefetch into registers, cp.async or TMA into shared "
            "memory several tiles ahead; more warps; shorter chains of dependent loads."
        ),
    ),
    _rule(
        name="short-scoreboard",
        state="short_scoreboard",
        title="Waiting for shared memory or special functions",
        meaning=(
            "The next instruction needs the result of a shared-memory access, a shuffle or a "
            "special function: 20 to 40 cycles each, in a chain."
        ),
        advice=(
            "Independent work between the access and its use, results kept in registers, fewer "
            "round trips through shared memory."
        ),
    ),
    _rule(
        name="barrier-wait",
        state="barrier",
        title="Waiting at block barriers",
        meaning=(
            "Warps that arrive early wait for the last one: unequal work, or too many barriers."
        ),
        advice=(
            "Fewer barriers (double buffering), named barriers or warp-level syncs for those who "
            "need them, equal work per warp, more blocks per SM to fill the gap."
        ),
    ),
    _rule(
        name="fixed-latency",
        state="wait",
        title="Waiting for the previous instruction",
        meaning=(
            "A dependent instruction waits the 4 to 6 cycles (matrix instructions: about 30) of "
            "the one before: the chain is serial and there are too few warps to fill it."
        ),
        advice="Independent accumulators (unroll and interleave chains), more warps.",
    ),
    _rule(
        name="membar",
        state="membar",
        title="Waiting at memory fences",
        meaning="A fence waits until all earlier writes of the thread are visible.",
        advice=(
            "Fewer or narrower fences (block scope), release/acquire operations instead of full "
            "fences, one thread per block."
        ),
    ),
    _rule(
        name="sleeping",
        state="sleeping",
        title="Asleep",
        meaning="The warps executed nanosleep and wait for it to end.",
        advice="Shorter or no sleeps: wait on an mbarrier instead of polling.",
    ),
    _rule(
        name="instruction-cache",
        state="no_instruction",
        title="Waiting for instructions",
        meaning=(
            "The next instruction is not in the instruction cache: code too large for it, far "
            "jumps, or a cold start."
        ),
        advice=(
            "Unroll less, split rarely used paths out, keep the hot loop under the instruction "
            "cache (about 128 KB at the SM's second level)."
        ),
    ),
    _rule(
        name="constant-miss",
        state="imc_miss",
        title="Waiting for immediate constants",
        meaning=(
            "An instruction's constant operand (kernel parameters, literals) missed the constant "
            "cache; typical of the first instructions of short launches."
        ),
        advice=(
            "Nothing in a short launch; otherwise fewer distinct constants, parameters in "
            "registers."
        ),
    ),
    _rule(
        name="mio-throttle",
        state="mio_throttle",
        title="The MIO queue is full",
        meaning=(
            "Shared-memory, shuffle and special-function instructions are issued faster than their "
            "queue empties, though no unit behind it is near its peak."
        ),
        advice="Fewer, wider shared-memory accesses; arithmetic between them.",
    ),
    _rule(
        name="lg-throttle",
        state="lg_throttle",
        title="The queue of global and local accesses is full",
        meaning="Loads and stores are issued in bursts longer than the LSU's queue.",
        advice="Fewer, wider accesses; spread them; avoid local memory.",
    ),
    _rule(
        name="tex-throttle",
        state="tex_throttle",
        title="The texture queue is full",
        meaning=(
            "Texture (and, on small GPUs, FP64) instructions are issued faster than they are taken."
        ),
        advice="Fewer texture instructions, plain loads where no filtering is needed.",
    ),
    _rule(
        name="math-throttle",
        state="math_pipe_throttle",
        title="Waiting for a math pipe",
        meaning=(
            "Warps are ready at the same time for the same pipe, though on average it is not full."
        ),
        advice="Interleave work for other pipes; stagger the warps.",
    ),
    _rule(
        name="branch-resolving",
        state="branch_resolving",
        title="Waiting for branches",
        meaning="Jumps whose target is being computed: short loop bodies, many branches.",
        advice="Unroll, use predication or selects.",
    ),
    _rule(
        name="dispatch-stall",
        state="dispatch_stall",
        title="The dispatcher holds warps back",
        meaning=(
            "An instruction was chosen but its operands or the pipe conflicted (register banks, "
            "wgmma operands)."
        ),
        advice="Let the compiler reschedule (fewer operands per instruction, other unrolling).",
    ),
    _rule(
        name="store-drain",
        state="drain",
        title="Waiting at the end for stores",
        meaning="Warps at their exit wait until their stores have left the SM.",
        advice="Store earlier, coalesce the stores, longer-lived blocks.",
    ),
    _rule(
        name="gmma-wait",
        state="gmma",
        title="Waiting for the warpgroup",
        meaning=(
            "wgmma needs the registers of a whole warpgroup: warps wait for the others to arrive."
        ),
        advice=(
            "Equal work in the four warps before the wgmma; deeper asynchronous wgmma pipelines."
        ),
    ),
    Rule(
        id="wgmma-wait",
        title="Waiting for wgmma's results",
        meaning=(
            "wgmma runs beside the warps that start it, and WARPGROUP.DEPBAR waits until its "
            "results are there. Nsight Compute books that wait as barrier: no block barrier need "
            "be near."
        ),
        advice=(
            "More products in flight before the wait (wait for all but the last), larger tiles per "
            "product, a second warpgroup that computes while the first waits."
        ),
        check=_stall("barrier", _WGMMA, for_wgmma, ("inst_warpgroup", "inst_barrier")),
        fires=(
            {
                "stall_barrier": 0.6,
                "stall_wait": 0.1,
                "stall_selected": 0.1,
                "issue_busy": 0.1,
                "inst_warpgroup": 2e6,
                "inst_barrier": 500,
            },
        ),
        clear=(
            {
                "stall_barrier": 0.6,
                "stall_wait": 0.1,
                "stall_selected": 0.1,
                "issue_busy": 0.1,
                "inst_warpgroup": 2e3,
                "inst_barrier": 3e3,
            },
        ),
        explains=("barrier",),
    ),
)
