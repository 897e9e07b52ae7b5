"""What does the gap of 38x between v6a and SDPA consist of?"""

from __future__ import annotations

from itertools import pairwise
from math import log

from arithmetic import B, computed_l4

from profkit.evidence.claims import Answer, at_least, claim, decide, timed
from profkit.evidence.runs import Evidence

# Each does one thing that the one before does not.
STEPS = {
    "v2cv6a": "",
    "v2cv6b": "lanes share a row instead of repeating it",
    "async2": "loads run ahead",
    "stage3b": "scores stay in registers",
    "exp2fold": "scale folded into exp2",
    "splitk": "keys split over warps, the grid fills the machine",
}
LAST = "sdpa"
CHAIN = [f"{v}.B" for v in STEPS]


@claim(who="document 004: 1177 us against 31 us, 38x")
def the_gap_is_38x(_: Evidence) -> Answer:
    """On the device v6a is 38 times slower than SDPA on an L4."""
    wall, device = 1177 / 31, 717 / 15.4
    return decide(
        abs(device / wall - 1) < 0.1,
        f"{wall:.0f}x is wall time of both with the host's share; by the wave model and the "
        f"profiler's device time it is 717 us against 15.4 us, {device:.0f}x",
        wall=wall,
        device=device,
    )


@claim(
    who="document 004: the gap is one of algorithm, 22x of it out of reach",
    needs=[*CHAIN, f"{LAST}.B"],
)
def the_gap_is_algorithmic(evidence: Evidence) -> Answer:
    """Steps within the same algorithm close less than half of the gap (in factors) to SDPA."""
    steps = {b: timed(evidence, a, b).speedup.median for a, b in pairwise(CHAIN)}
    whole = timed(evidence, CHAIN[0], f"{LAST}.B").speedup.median
    closed = timed(evidence, CHAIN[0], CHAIN[-1]).speedup.median
    share = log(closed) / log(whole)
    said = ", ".join(f"{STEPS[b.split('.')[0]]} {x:.2f}x" for b, x in steps.items())
    return decide(
        share < 0.5,
        f"v6a is {whole:.1f}x slower than SDPA here; {said}: together {closed:.1f}x, {share:.0%} "
        "of the gap, in one and the same algorithm",
        gap=whole,
        closed=closed,
        **{b.split(".")[0]: x for b, x in steps.items()},
    ).elsewhere(*(computed_l4(evidence.load(v, "B").launch, B) for v in ("v2cv6a", "splitk")))


@claim(who="document 001: 656 us is about 16x faster than SDPA", needs=["stage2.B", "sdpa.B"])
def stage2_beats_sdpa(evidence: Evidence) -> Answer:
    """Stage 2 is faster than SDPA."""
    found = timed(evidence, f"{LAST}.B", "stage2.B")
    return decide(
        at_least(found.speedup, 1),
        f"against SDPA it is {found.sentence}",
        speedup=found.speedup.median,
    )


@claim(who="document 002: priority 1 to 3 bring 0.8 to 1.2x SDPA", needs=["champion.B", "sdpa.B"])
def sdpa_can_be_beaten(evidence: Evidence) -> Answer:
    """The ladder ends faster than SDPA."""
    found = timed(evidence, f"{LAST}.B", "champion.B")
    return decide(
        at_least(found.speedup, 1),
        f"against SDPA it is {found.sentence}",
        speedup=found.speedup.median,
    )
