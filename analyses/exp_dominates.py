"""Does the exponential dominate?"""

from __future__ import annotations

from arithmetic import L4, WARP, B

from profkit.evidence.claims import Answer, at_least, claim, decide, timed
from profkit.evidence.runs import Evidence

NEAR_PEAK = 0.6


@claim(who="document 001: third likely bottleneck, __expf")
def exps_take_the_time_on_an_l4(_: Evidence) -> Answer:
    """The exponentials that attention needs are a tenth of stage 2's 656 us on an L4."""
    useful = L4.floor(B)["exp"]
    return decide(
        useful > 65.6e-6,
        f"{B.exps / 1e6:.1f} M exponentials take {useful * 1e6:.1f} us; 32 times as many, one per "
        f"lane, {WARP * useful * 1e6:.0f} us",
        useful_us=useful * 1e6,
        redundant_us=WARP * useful * 1e6,
    )


def _redundancy(evidence: Evidence, variant: str) -> tuple[float, float]:
    """Exponentials done over needed (32 lanes of each instruction), and how busy XU is."""
    launch = evidence.load(variant, "B").launch
    return launch["inst_exp"] * WARP / B.exps, launch["xu_busy"]


@claim(who="document 001: the same, counted", needs=["stage2.B"])
def the_exp_unit_is_the_limit(evidence: Evidence) -> Answer:
    """The exponential unit is near its peak in stage 2."""
    times, busy = _redundancy(evidence, "stage2")
    return decide(
        busy >= NEAR_PEAK,
        f"the XU pipe is busy {busy:.1%} of the time, doing {times:.1f} times the exponentials "
        "that are needed",
        xu_busy=busy,
        redundancy=times,
    ).elsewhere(
        f"L4 (computed): as many exponentials take {times * L4.floor(B)['exp'] * 1e6:.1f} us there, "
        "with every XU at work"
    )


@claim(who="a reading of the sources: each lane of a warp does whole rows", needs=["v2cv6a.B"])
def every_lane_does_the_same_row(evidence: Evidence) -> Answer:
    """v6a computes each exponential about 32 times."""
    times, busy = _redundancy(evidence, "v2cv6a")
    return decide(
        times >= WARP / 2,
        f"it does {times:.1f} times the exponentials that are needed; XU is busy {busy:.1%}",
        redundancy=times,
        xu_busy=busy,
    )


@claim(who="the ladder: one edit", needs=["v2cv6a.B", "v2cv6b.B"])
def sharing_the_rows_pays(evidence: Evidence) -> Answer:
    """Sharing a row among the lanes makes v6a at least 3 times faster."""
    found = timed(evidence, "v2cv6a.B", "v2cv6b.B")
    before, after = (_redundancy(evidence, v)[0] for v in ("v2cv6a", "v2cv6b"))
    return decide(
        at_least(found.speedup, 3),
        f"v6b against v6a: {found.sentence}; exponentials over needed fall from {before:.1f} to "
        f"{after:.1f}",
        speedup=found.speedup.median,
        redundancy_before=before,
        redundancy_after=after,
    )
