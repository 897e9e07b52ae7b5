"""Is decoding as fast as its cache can be read?

One query a sequence: every key and value is used once (by each head of its group) and the arithmetic
is nothing. A kernel is good where it reads the cache at the rate of a copy, and that needs two things:
that the heads of a group share what they load, and that the whole machine reads. `copy` moves as many
bytes as the cache has, half read and half written; sdpa and flex are PyTorch's, told of the groups.
"""

from __future__ import annotations

from problems import all_of, answered_at, compared, on_l4, problem_bytes, share_of_copy

from profkit.evidence.claims import Answer, at_least, claim, decide, timed
from profkit.evidence.runs import Evidence

WHO = "the target set for this problem"
RUNGS = ("lanerow", "shared", "splitkv", "earlymerge")
BEST = RUNGS[-1]
MAIN = "16k-8"
CASES = (MAIN,)  # of those that were recorded


@claim(who=WHO, needs=[f"{BEST}.{MAIN}", f"copy.{MAIN}"])
def main_case_at_copy_speed(evidence: Evidence) -> Answer:
    """Eight sequences of 16k keys, 8:1: 85 % of the copy's rate or more."""
    return share_of_copy(evidence, RUNGS, MAIN, 0.85).elsewhere(on_l4("decode", MAIN))


@claim(who=WHO, needs=[f"{v}.{c}" for c in CASES for v in (BEST, "sdpa")])
def faster_than_sdpa(evidence: Evidence) -> Answer:
    """At every recorded case the fastest rung is faster than SDPA with enable_gqa."""
    return answered_at(CASES, lambda case: compared(evidence, "sdpa", RUNGS, case))


@claim(who=WHO, needs=[f"{v}.{c}" for c in CASES for v in (BEST, "flex")])
def faster_than_flex(evidence: Evidence) -> Answer:
    """At every recorded case the fastest rung is faster than compiled flex_attention with enable_gqa."""
    return answered_at(CASES, lambda case: compared(evidence, "flex", RUNGS, case))


@claim(who="header of shared", needs=[f"lanerow.{MAIN}", f"shared.{MAIN}"])
def a_group_shares_its_loads(evidence: Evidence) -> Answer:
    """With eight heads a group, shared loads take the bytes from L2 to the SMs to a fifth or less."""
    alone, shared = (evidence.load(v, MAIN).launch["l2_to_l1_bytes"] for v in ("lanerow", "shared"))
    return decide(
        shared <= 0.2 * alone,
        f"{alone / 1e6:.0f} MB to {shared / 1e6:.0f} MB; the cache has "
        f"{problem_bytes('decode', MAIN) / 1e6:.0f} MB",
        l2_to_l1_bytes=shared,
    )


@claim(who="header of splitkv", needs=[f"shared.{MAIN}", f"splitkv.{MAIN}"])
def splitting_fills_the_machine(evidence: Evidence) -> Answer:
    """32 blocks leave most of the machine idle; splits over keys are at least twice as fast."""
    found = timed(evidence, f"shared.{MAIN}", f"splitkv.{MAIN}")
    before, after = (evidence.load(v, MAIN) for v in ("shared", "splitkv"))
    idle = before.diagnosis()
    return decide(
        all_of((idle.limiter == "grid_too_small", at_least(found.speedup, 2.0))),
        f"{found.sentence}; profkit says {idle.label} of shared; SMs active "
        f"{before.launch['sm_active']:.0%} to {after.launch['sm_active']:.0%}",
        speedup=found.speedup.median,
    )


@claim(who="header of earlymerge", needs=[f"splitkv.{MAIN}", f"earlymerge.{MAIN}"])
def a_merge_that_waits_costs_less(evidence: Evidence) -> Answer:
    """A merge that is there when the last split ends saves 2 us or more of 70."""
    found = timed(evidence, f"splitkv.{MAIN}", f"earlymerge.{MAIN}")
    return decide(at_least(found.speedup, 1.03), found.sentence, speedup=found.speedup.median)


@claim(who="header of ringcache", needs=[f"earlymerge.{MAIN}", f"ringcache.{MAIN}"])
def copies_past_l1_move_whole_lines(evidence: Evidence) -> Answer:
    """With copies of 64 bytes of K past L1, K reaches the SMs twice: 1.45 times the bytes or more."""
    loads, copies = (evidence.load(v, MAIN).launch for v in ("earlymerge", "ringcache"))
    return decide(
        copies["l2_to_l1_bytes"] >= 1.45 * loads["l2_to_l1_bytes"]
        and copies["dram_read"] <= 1.05 * loads["dram_read"],
        f"DRAM {loads['dram_read'] / 1e6:.0f} to {copies['dram_read'] / 1e6:.0f} MB, L2 to L1 "
        f"{loads['l2_to_l1_bytes'] / 1e6:.0f} to {copies['l2_to_l1_bytes'] / 1e6:.0f} MB",
        l2_to_l1_bytes=copies["l2_to_l1_bytes"],
    )
