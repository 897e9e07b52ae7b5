"""Why did cp.async give 1.01x from v6a to v7a?"""

from __future__ import annotations

from arithmetic import L4, B, computed_l4

from profkit.evidence.claims import Answer, at_least, claim, decide, timed
from profkit.evidence.runs import Evidence

# On an L4, us: what a block takes for 512 keys, by the run at L = 2048 (9 rounds of blocks, 4 x 512
# keys each), and the time that was measured at L = 512.
PER_512_KEYS = {"v3": 873, "v5": 968, "v6a": 359, "v7a": 352}
MEASURED = {"v3": 1750, "v5": 1980, "v6a": 1177, "v7a": 1162}


@claim(who="document 004: 1177 us and 1162 us are the kernels' times at L = 512")
def times_are_the_kernels_own(_: Evidence) -> Answer:
    """What was timed at L = 512 is what the GPU took, not what the host took."""
    rounds = L4.rounds(B.heads * B.length // 64, 1)  # blocks of 64 rows, one fits on an SM
    over = {name: MEASURED[name] / (rounds * t) for name, t in PER_512_KEYS.items()}
    return decide(
        all(ratio < 1.1 for ratio in over.values()),
        f"{rounds} rounds of blocks predict "
        + ", ".join(
            f"{n} {rounds * t} us ({MEASURED[n]} measured)" for n, t in PER_512_KEYS.items()
        )
        + ": two fit, two sit on one plateau whatever the kernel, as the host's launch cost does",
        v6a_measured_over_predicted=over["v6a"],
        v7a_measured_over_predicted=over["v7a"],
    )


@claim(who="document 004: expected 1.3 to 1.7x", needs=["v2cv6a.B", "v2cv7a.B"])
def v7a_is_faster_by_1_3x(evidence: Evidence) -> Answer:
    """A producer warp with cp.async makes v6a at least 1.3 times faster."""
    found = timed(evidence, "v2cv6a.B", "v2cv7a.B")
    before, after = (evidence.load(v, "B").launch for v in ("v2cv6a", "v2cv7a"))
    return decide(
        at_least(found.speedup, 1.3),
        f"v7a against v6a: {found.sentence}; its asynchronous copies went from "
        f"{before['inst_async_copy']:.0f} to {after['inst_async_copy']:.0f} instructions",
        speedup=found.speedup.median,
        async_copies=after["inst_async_copy"],
        long_scoreboard_before=before["stall_long_scoreboard"],
        long_scoreboard_after=after["stall_long_scoreboard"],
        barrier_before=before["stall_barrier"],
        barrier_after=after["stall_barrier"],
    ).elsewhere(computed_l4(before, B), computed_l4(after, B))


@claim(who="document 004: the tensor cores outrun the memory that feeds them", needs=["v2cv6a.B"])
def v6a_waits_for_memory(evidence: Evidence) -> Answer:
    """v6a waits for its tiles to arrive from global memory."""
    run = evidence.load("v2cv6a", "B")
    launch, verdict = run.launch, run.diagnosis()
    return decide(
        verdict.limiter == "long_scoreboard",
        f"its warps spend {launch['stall_long_scoreboard']:.1%} of their time on global loads and "
        f"{launch['stall_short_scoreboard']:.1%} on shared memory and special functions; the "
        f"verdict is {verdict.bound} ({verdict.limiter})",
        stall_long_scoreboard=launch["stall_long_scoreboard"],
        stall_short_scoreboard=launch["stall_short_scoreboard"],
    )


@claim(who="the ladder: async2 is what v7a was meant to be", needs=["v2cv6b.B", "async2.B"])
def a_real_pipeline_hides_loads(evidence: Evidence) -> Answer:
    """A two-stage pipeline that waits for the right tile halves the time spent on global loads."""
    before, after = (evidence.load(v, "B").launch for v in ("v2cv6b", "async2"))
    share = [x["stall_long_scoreboard"] for x in (before, after)]
    found = timed(evidence, "v2cv6b.B", "async2.B")
    return decide(
        share[1] <= share[0] / 2,
        f"waiting for global loads goes from {share[0]:.1%} to {share[1]:.1%} of the warps' time; "
        f"the kernel is {found.sentence}",
        stall_long_scoreboard_before=share[0],
        stall_long_scoreboard_after=share[1],
        speedup=found.speedup.median,
    )


@claim(who="document 001: a third stage, at least 5 to 10 %", needs=["stage2.B", "stage4.B"])
def a_third_stage_helps(evidence: Evidence) -> Answer:
    """A third cp.async stage makes stage 2 at least 1.05 times faster."""
    found = timed(evidence, "stage2.B", "stage4.B")
    return decide(
        at_least(found.speedup, 1.05),
        f"stage 4 against stage 2: {found.sentence}",
        speedup=found.speedup.median,
    )
