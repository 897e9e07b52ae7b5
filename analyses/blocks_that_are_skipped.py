"""Does the time of block-sparse attention fall with the blocks?

A mask that leaves out nine blocks of ten saves nothing by itself: densemask multiplies everything. A
kernel that goes through a list of blocks does a tenth of the work, and then two things decide: how fast
a block is multiplied, and whether the machine ends at once, for a global row has thirteen times the
blocks of the others.
"""

from __future__ import annotations

from problems import all_of, on_l4, problem

from profkit.evidence.claims import Answer, at_least, claim, decide, timed
from profkit.evidence.runs.runs import Evidence

WHO = "the target set for this problem"
MAIN = "sparse89"


@claim(who=WHO, needs=[f"{v}.{MAIN}" for v in ("densemask", "skipblocks")])
def skipping_is_worth_its_blocks(evidence: Evidence) -> Answer:
    """At nine tenths sparse, going through the lists is at least five times as fast as masking."""
    found = timed(evidence, f"densemask.{MAIN}", f"skipblocks.{MAIN}")
    left = problem("blocksparse").case(MAIN).share()
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
