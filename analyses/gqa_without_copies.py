"""What do copies of K and V cost a prefill with grouped queries?

Eight query heads read one key head. A kernel that does not know of groups is given K and V eight times
over; the same kernel with its heads mapped needs no copy. expand and mapped are one kernel either way,
groupwgmma the fastest kernel of the problem attention, mapped; sdpa is told of the groups (enable_gqa),
sdpa-expanded is given copies.
"""

from __future__ import annotations

from problems import answered_at, compared, on_l4

from profkit.evidence.claims import Answer, at_least, claim, decide, timed
from profkit.evidence.runs import Evidence

WHO = "the target set for this problem"
RUNGS = ("mapped", "groupwgmma")
MAIN = "2k-8to1"
CASES = (MAIN,)  # of those that were recorded


@claim(who="header of mapped", needs=[f"{v}.{c}" for c in CASES for v in ("expand", "mapped")])
def mapping_is_faster_than_copying(evidence: Evidence) -> Answer:
    """At every recorded case the mapped kernel is faster than the same one behind the copies."""
    return answered_at(CASES, lambda case: compared(evidence, "expand", ("mapped",), case))


@claim(who="header of mapped", needs=[f"expand.{MAIN}", f"mapped.{MAIN}"])
def copies_are_bytes(evidence: Evidence) -> Answer:
    """Without the copies DRAM moves less than half the bytes."""
    copied, mapped = (evidence.load(v, MAIN).total("dram_bytes") for v in ("expand", "mapped"))
    return decide(
        mapped < 0.5 * copied,
        f"{copied / 1e6:.0f} MB to {mapped / 1e6:.0f} MB",
        dram_bytes=mapped,
    )


@claim(who="header of groupwgmma", needs=[f"mapped.{MAIN}", f"groupwgmma.{MAIN}"])
def wgmma_pays_here_too(evidence: Evidence) -> Answer:
    """The warpgroup kernel is at least 1.5 times as fast as the one on mma.sync."""
    found = timed(evidence, f"mapped.{MAIN}", f"groupwgmma.{MAIN}")
    return decide(
        at_least(found.speedup, 1.5), found.sentence, speedup=found.speedup.median
    ).elsewhere(on_l4("gqa", MAIN))


@claim(who=WHO, needs=[f"{v}.{c}" for c in CASES for v in ("groupwgmma", "sdpa-expanded")])
def faster_than_sdpa_with_copies(evidence: Evidence) -> Answer:
    """At every recorded case the fastest rung is faster than SDPA behind repeat_interleave."""
    return answered_at(CASES, lambda case: compared(evidence, "sdpa-expanded", RUNGS, case))


@claim(who=WHO, needs=[f"{v}.{c}" for c in CASES for v in ("groupwgmma", "sdpa")])
def faster_than_sdpa_told_of_groups(evidence: Evidence) -> Answer:
    """At every recorded case the fastest rung is faster than SDPA with enable_gqa."""
    return answered_at(CASES, lambda case: compared(evidence, "sdpa", RUNGS, case))
