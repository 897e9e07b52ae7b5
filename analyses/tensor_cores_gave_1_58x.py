"""Why did tensor cores give 1.58x and not 6x?"""

from __future__ import annotations

from arithmetic import L4, B, computed_l4

from profkit.evidence.claims import Answer, at_least, claim, decide, timed
from profkit.evidence.runs import Evidence

GAIN = 504.2 / 318.4  # V1 to V2 on an L4, document 003
REPLACED = 0.20  # the share of V1's time that document 003 gives the matrix products
FASTER = 8  # how much faster it takes tensor cores to be, from the sparse rate


@claim(who="document 003: at most 1 + 0.20 x (8 - 1) = 1.4x, so 1.58x is above theory")
def amdahl_as_written(_: Evidence) -> Answer:
    """The products are a fifth of V1's time, so tensor cores could give 1.4x at most."""
    limit = 1 / (1 - REPLACED + REPLACED / FASTER)
    least = 1 - 1 / GAIN
    return decide(
        abs(limit - 1.4) < 0.05 and limit >= GAIN,
        f"the formula is not Amdahl's (and comes to {1 + REPLACED * (FASTER - 1):.1f}): his limit "
        f"is {limit:.2f}x, so {GAIN:.2f}x means that at least {least:.0%} of V1's time went into "
        "what was replaced",
        amdahl_limit=limit,
        measured=GAIN,
        least_share_replaced=least,
    )


@claim(who="document 003: above the theoretical maximum, thanks to occupancy")
def occupancy_rose_on_an_l4(_: Evidence) -> Answer:
    """V2 has a better occupancy than V1 on an L4."""
    v1, v2 = L4.blocks(109, 24960, 128), L4.blocks(127, 35712, 128)
    return decide(
        v2 > v1,
        f"by registers and shared memory V1 fits {v1} blocks per SM and V2 {v2}",
        v1_blocks=v1,
        v2_blocks=v2,
    )


@claim(who="document 002: priority 1, tensor cores, 6 to 8x", needs=["v1.B", "v2.B"])
def tensor_cores_give_6x(evidence: Evidence) -> Answer:
    """Moving both products to tensor cores makes the kernel at least 6 times faster."""
    found = timed(evidence, "v1.B", "v2.B")
    return decide(
        at_least(found.speedup, 6),
        f"V2 against V1: {found.sentence}",
        speedup=found.speedup.median,
        low=found.speedup.low,
        high=found.speedup.high,
    )


@claim(who="a recount of V2's instructions: matrix work is 2 % of its time", needs=["v2.B"])
def matrix_work_is_the_smaller_part(evidence: Evidence) -> Answer:
    """In V2 the tensor pipe is idle nine tenths of the time that the SMs are active."""
    run = evidence.load("v2", "B")
    launch, verdict = run.launch, run.diagnosis()
    busy = launch["tensor_busy_active"]
    return decide(
        busy < 0.1,
        f"the tensor pipe is busy {busy:.1%} of the active cycles; the verdict is {verdict.bound} "
        f"({verdict.limiter}): {verdict.because}",
        tensor_busy_active=busy,
        stall_barrier=launch["stall_barrier"],
        stall_short_scoreboard=launch["stall_short_scoreboard"],
    ).elsewhere(computed_l4(launch, B))


@claim(who="the design: what 6x takes is keeping S, P and O in registers", needs=["v2.B", "v3.B"])
def registers_give_the_rest(evidence: Evidence) -> Answer:
    """Keeping scores and output in registers gives more than the tensor cores did."""
    found = timed(evidence, "v2.B", "v3.B")
    before, after = (evidence.load(v, "B").launch["shared_wavefronts"] for v in ("v2", "v3"))
    return decide(
        at_least(found.speedup, GAIN),
        f"V3 against V2: {found.sentence}; shared-memory wavefronts fall {before / after:.1f}x",
        speedup=found.speedup.median,
        shared_wavefronts_before=before,
        shared_wavefronts_after=after,
    )
