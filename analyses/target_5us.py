"""Is the target of less than 5 us possible?"""

from __future__ import annotations

from arithmetic import L4, B

from profkit.evidence.claims import Answer, claim, decide
from profkit.evidence.runs import Evidence
from profkit.evidence.stats import estimate_median

TARGET = 5e-6


@claim(who="document 001: the goal on an L4, from 656 us")
def five_microseconds_on_an_l4(_: Evidence) -> Answer:
    """The kernel can run in less than 5 us on an L4."""
    floor = L4.floor(B)
    return decide(
        max(floor.values()) < TARGET,
        f"reading Q, K, V and writing O once takes {floor['dram'] * 1e6:.1f} us at 300 GB/s; with "
        f"everything in L2 the products alone are {floor['tensor'] / TARGET:.0%} of the tensor "
        "peak at 5 us, before any launch cost",
        dram_floor_us=floor["dram"] * 1e6,
        tensor_floor_us=floor["tensor"] * 1e6,
        exp_floor_us=floor["exp"] * 1e6,
    )


@claim(who="document 001: 131x and 30x remaining, in one header")
def thirty_times_remain(_: Evidence) -> Answer:
    """Thirty times faster is what is missing from 656 us to 5 us."""
    factor = 656e-6 / TARGET
    return decide(abs(factor - 30) < 3, f"656 us / 5 us is {factor:.0f}x", factor=factor)


@claim(who="document 001: the same goal, on the GPU of the records", needs=["champion.B"])
def five_microseconds_on_this_gpu(evidence: Evidence) -> Answer:
    """The fastest clean kernel of the ladder runs in less than 5 us on the GPU of the records."""
    time = estimate_median(evidence.load("champion", "B").samples)
    return decide(
        None if time.low < TARGET <= time.high else time.high < TARGET,
        f"it takes {time.median * 1e6:.2f} us ({time.low * 1e6:.2f} to {time.high * 1e6:.2f}), "
        "with a warm L2 in a replayed graph",
        time=time.median,
    ).elsewhere(f"L4 (computed): never below {max(L4.floor(B).values()) * 1e6:.1f} us, cold")
