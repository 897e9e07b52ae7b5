"""Does the time of block-sparse attention fall with the blocks?

A mask that leaves out nine blocks of ten saves nothing by itself: densemask multiplies everything. A
kernel that goes through a list of blocks does a tenth of the work, and then two things decide: how fast
a block is multiplied, and whether the machine ends at once, for a global row has thirteen times the
blocks of the others.
"""

from __future__ import annotations

from problems import all_of, compared, on_l4, problem

from profkit.evidence.claims import Answer, at_least, claim, decide, timed
from profkit.evidence.runs import Evidence

WHO = "the target set for this problem"
MAIN = "sparse89"


@claim(who=WHO, needs=[f"{v}.{MAIN}" for v in ("densemask", "skipblocks")])
def skipping_is_worth_its_blocks(evidence: Evidence) -> Answer:
    """At nine tenths sparse, going through the lists is at least five times as fast as masking."""
    found = timed(evidence, f"densemask.{MAIN}", f"skipblocks.{MAIN}")
    left = problem("blocksparse").get_case(MAIN).share()
    return decide(
        at_least(found.speedup, 5.0),
        f"{found.sentence}; {left:.1%} of the pairs are seen",
        speedup=found.speedup.median,
        seen=left,
    ).elsewhere(on_l4("blocksparse", MAIN))


@claim(who="header of skipblocks", needs=[f"skipblocks.{MAIN}"])
def the_long_rows_hold_it_back(evidence: Evidence) -> Answer:
    """What is left is imbalance: the tool names it first, and SMs are idle for a fifth or more."""
    run = evidence.load("skipblocks", MAIN)
    found, busy = run.diagnosis(), run.launch["sm_active"]
    named = found.top is not None and found.top.rule == "workload-imbalance"
    return decide(
        all_of((named, busy <= 0.8)),
        f"profkit says {found.label}; SMs work {busy:.1%} of the time",
        sm_active=busy,
    )


@claim(who="header of listwgmma", needs=[f"{v}.{MAIN}" for v in ("skipblocks", "listwgmma")])
def blocks_that_stay_mend_it(evidence: Evidence) -> Answer:
    """The warpgroup kernel is twice as fast or more, and imbalance is not what it waits for first."""
    found = timed(evidence, f"skipblocks.{MAIN}", f"listwgmma.{MAIN}")
    verdict = evidence.load("listwgmma", MAIN).diagnosis()
    first = verdict.top is not None and verdict.top.rule == "workload-imbalance"
    return decide(
        all_of((not first, at_least(found.speedup, 2.0))),
        f"{found.sentence}; profkit says {verdict.label}",
        speedup=found.speedup.median,
    )


@claim(who="header of longestfirst", needs=[f"{v}.{MAIN}" for v in ("listwgmma", "longestfirst")])
def order_of_the_rows_matters(evidence: Evidence) -> Answer:
    """With the longest rows first, SMs work 1.15 times as much of the time as in the lists' order."""
    before, after = (
        evidence.load(v, MAIN).launch["sm_active"] for v in ("listwgmma", "longestfirst")
    )
    found = timed(evidence, f"listwgmma.{MAIN}", f"longestfirst.{MAIN}")
    return decide(
        after / before >= 1.15,
        f"SMs work {before:.1%} and {after:.1%} of the time: each SM still has as many rows, 64 "
        f"of 132 one of 64 blocks; {found.sentence}",
        sm_active=after / before,
    )


@claim(who=WHO, needs=[f"{v}.{MAIN}" for v in ("longestfirst", "flex")])
def faster_than_flex(evidence: Evidence) -> Answer:
    """The fastest rung is faster than compiled flex_attention with its BlockMask."""
    holds, line = compared(evidence, "flex", ("listwgmma", "longestfirst"), MAIN)
    return decide(holds, line)
