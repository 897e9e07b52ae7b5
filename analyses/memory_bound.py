"""Are these kernels memory-bound, at 179.8 GB/s and 60 % of the DRAM bandwidth?"""

from __future__ import annotations

from arithmetic import L4, B, V, computed_l4

from profkit.evidence.claims import Answer, claim, decide
from profkit.evidence.runs import Evidence

V2_TIME = 318.4e-6  # document 003, on an L4
CLAIMED = 179.8e9  # bytes/s, documents 000 and 003
CLAIMED_RATE = 0.47e12  # operations/s, beside it
TILE = 32  # query rows of a block in V1 and V2


@claim(who="documents 000 and 003: 179.8 GB/s, 60 % of an L4's 300 GB/s")
def claimed_bandwidth(_: Evidence) -> Answer:
    """V2 reads and writes DRAM at 179.8 GB/s."""
    needed = V.bytes / V2_TIME
    # All that its blocks ask of L2: K and V once per block, Q and O once.
    blocks = V.batch * V.heads * V.length // TILE
    asked = blocks * (2 * V.length + 2 * TILE) * V.dim * 2 / V2_TIME
    return decide(
        asked >= CLAIMED,
        f"{V.bytes / 1e6:.2f} MB in {V2_TIME * 1e6:.1f} us are {needed / 1e9:.1f} GB/s, "
        f"{needed / L4.dram:.1%} of the peak; even everything that its blocks ask of L2 would be "
        f"{asked / 1e9:.0f} GB/s",
        compulsory_gb_per_s=needed / 1e9,
        asked_of_l2_gb_per_s=asked / 1e9,
    )


@claim(who="document 003: 179.8 GB/s and 0.47 TFLOP/s of one kernel")
def claimed_pair_fits_the_shape(_: Evidence) -> Answer:
    """The claimed bandwidth and the claimed operations belong to one run of this shape."""
    implied = CLAIMED_RATE / CLAIMED
    return decide(
        0.5 < implied / V.intensity < 2,
        f"together they are {implied:.1f} operations per byte, the shape has {V.intensity:.0f}",
        implied=implied,
        intensity=V.intensity,
    )


def _dram_bound(evidence: Evidence, variant: str) -> Answer:
    run = evidence.load(variant, "B")
    launch, verdict = run.launch, run.diagnosis()
    return decide(
        verdict.bound == "memory" and verdict.limiter == "dram",
        f"DRAM is busy {launch['dram_busy']:.1%} of the time; the verdict is {verdict.bound}"
        f" ({verdict.limiter}): {verdict.because}",
        dram_busy=launch["dram_busy"],
        l2_hit=launch["l2_hit"],
        memory_busy=launch["memory_busy"],
    ).elsewhere(computed_l4(launch, B))


@claim(who="document 003: bound by memory, not by compute", needs=["v1.B"])
def v1_is_dram_bound(evidence: Evidence) -> Answer:
    """V1 is limited by DRAM bandwidth."""
    return _dram_bound(evidence, "v1")


@claim(who="document 003: bound by memory, not by compute", needs=["v2.B"])
def v2_is_dram_bound(evidence: Evidence) -> Answer:
    """V2 is limited by DRAM bandwidth."""
    return _dram_bound(evidence, "v2")


@claim(who="document 001: HBM bandwidth first among the likely bottlenecks", needs=["stage2.B"])
def stage2_is_dram_bound(evidence: Evidence) -> Answer:
    """Stage 2 is limited by DRAM bandwidth."""
    return _dram_bound(evidence, "stage2")


@claim(who="the original's profile of a scalar kernel: memory throughput 92.6 %", needs=["v1.B"])
def memory_throughput_is_dram(evidence: Evidence) -> Answer:
    """A high memory throughput means that DRAM is the limit."""
    launch = evidence.load("v1", "B").launch
    return decide(
        launch["dram_busy"] > 0.5 * launch["memory_busy"],
        f"memory throughput is {launch['memory_busy']:.1%} with DRAM at {launch['dram_busy']:.1%}: "
        f"it includes L1TEX, which is at {launch['l1_busy']:.1%}",
        memory_busy=launch["memory_busy"],
        dram_busy=launch["dram_busy"],
        l1_busy=launch["l1_busy"],
    )


@claim(who="the ladder: three kernels with S and P in global memory", needs=["unfused.C"])
def unfused_is_dram_bound(evidence: Evidence) -> Answer:
    """Attention whose scores go through global memory is limited by DRAM at a large shape."""
    run = evidence.load("unfused", "C")
    time = run.total("time")
    pairs = zip(run.usable["dram_busy"], run.usable["time"], strict=True)
    share = sum(float(busy) * float(t) for busy, t in pairs) / time
    return decide(
        share > 0.5,
        f"DRAM is busy {share:.1%} of the {time * 1e6:.0f} us of its {len(run.usable)} launches",
        dram_busy=share,
    )
