"""What could reusing the score buffer for P (stage 3A, 2 KB less) ever give?"""

from __future__ import annotations

from arithmetic import L4, RESERVED, B, computed_l4

from profkit.evidence.claims import Answer, at_least, claim, decide, timed
from profkit.evidence.runs import Evidence

STAGE2, STAGE3A, REGISTERS, THREADS = 37120, 35072, 80, 128  # the original's builds for an L4


@claim(who="document 001: stage 3A saves 2 KB of shared memory, +0.2 %")
def two_kilobytes_cross_a_step_on_an_l4(_: Evidence) -> Answer:
    """Two kilobytes less let one more block fit on an SM of an L4."""
    before, after = (L4.blocks(REGISTERS, shared, THREADS) for shared in (STAGE2, STAGE3A))
    needed = STAGE2 - (L4.shared // (before + 1) - RESERVED)
    return decide(
        after > before,
        f"{before} blocks fit before and {after} after; it takes {needed:,} B less for one more",
        before=before,
        after=after,
        bytes_to_the_step=needed,
    )


@claim(
    who="document 001: the same saving, on the GPU of the records", needs=["stage2.B", "stage3a.B"]
)
def it_crosses_a_step_here(evidence: Evidence) -> Answer:
    """Reusing the score buffer lets one more block fit on an SM of this GPU."""
    before, after = (evidence.load(v, "B").launch for v in ("stage2", "stage3a"))
    return decide(
        after["blocks_per_sm"] > before["blocks_per_sm"],
        f"{before['blocks_per_sm']:.0f} blocks fit before and {after['blocks_per_sm']:.0f} after; "
        f"the grid has {after['grid_size'] / after['sm_count']:.2f} blocks per SM, so no step "
        "could be used at this shape",
        before=before["blocks_per_sm"],
        after=after["blocks_per_sm"],
        shared_step=before["shared_step"],
    ).elsewhere(*(computed_l4(launch, B) for launch in (before, after)))


@claim(who="document 001: a valid negative", needs=["stage2.B", "stage3a.B"])
def it_changes_nothing(evidence: Evidence) -> Answer:
    """Reusing the score buffer changes the time by less than 2 %."""
    found = timed(evidence, "stage2.B", "stage3a.B")
    faster, slower = at_least(found.speedup, 1.02), at_least(found.speedup, 1 / 1.02)
    inside = True if faster is False and slower else None if None in (faster, slower) else False
    return decide(
        inside, f"stage 3A against stage 2: {found.sentence}", speedup=found.speedup.median
    )
