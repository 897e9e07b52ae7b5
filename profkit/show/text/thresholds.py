"""The name of a threshold in a rule's file  ->  the same as a quantity with its unit, in a sentence.

The reason beside each threshold says why it has its value; here is what is compared with it. A "{}" is
the value. A test holds the two lists to the same names.
"""

from __future__ import annotations

from typing import NamedTuple


class Quantity(NamedTuple):
    """What a threshold is compared with, and the unit of its value."""

    text: str
    unit: str = "share"


QUANTITIES = {
    "ATOMIC": Quantity("atomics are at least {} of L2's sectors"),
    "BEGINNING": Quantity("blocks begin at {} of the GPU's highest rate or more"),
    "BLOCKS_OWN": Quantity(
        "with {} of the threads that the block's size allows, nothing counts as diverged"
    ),
    "CROWDED": Quantity("a theoretical occupancy of {} or more hides enough latency"),
    "CYCLES": Quantity("an atomic on one word takes {} cycles at most", "count"),
    "DIVERGED": Quantity("fewer than {} of 32 threads are active on average", "count"),
    "DIVIDED": Quantity("integer divisions are at least {} of the instructions"),
    "EMPTY": Quantity("achieved occupancy is below {} of the theoretical one"),
    "ENDS": Quantity("starting and ending a launch takes about {}", "s"),
    "ENDS_MOST": Quantity("starting and ending a launch takes {} at most", "s"),
    "EVEN": Quantity("atomics that keep L2 {} busy on average are spread over its slices"),
    "FILLED": Quantity("fewer than {} of the SMs, or of the schedulers, have work"),
    "FROM_SHARED": Quantity("shared-memory loads are at least {} of the instructions"),
    "FUSED": Quantity("FMAs are fewer than {} of the floating-point instructions"),
    "GENERIC": Quantity("generic loads and stores are at least {} of the instructions"),
    "HIDES_LITTLE": Quantity("a scheduler has fewer than {} warps", "count"),
    "HOT_SLICE": Quantity("the busiest slice of L2 is busier than the others by at least {}"),
    "IDLE_LANES": Quantity("at least {} of the lanes have no thread"),
    "IDLE_SCHEDULER": Quantity("no warp is ready in at least {} of the cycles"),
    "IDLE_STATE": Quantity("a DRAM clock below {} of the highest has not been raised yet"),
    "LINE": Quantity("a fix that gains less than {} is not worth a line", "ratio"),
    "LOCAL": Quantity("at least {} of the instructions use local memory"),
    "MASKED": Quantity("at least {} of the global accesses are masked off for a whole warp"),
    "MATRIX_OPERATIONS": Quantity("multiply-adds of products are at least {} of the instructions"),
    "MISMATCH": Quantity("{} times as many operations are counted as declared", "count"),
    "MOVES": Quantity("register moves are at least {} of the instructions"),
    "OF_ACCESSES": Quantity("at least {} of what is predicated off are accesses"),
    "OUT_OF_RANGE": Quantity("a share of a whole is {} or more"),
    "PER_PRODUCT": Quantity("a wgmma comes with {} WARPGROUP instructions", "count"),
    "QUEUED_LOAD_CYCLES": Quantity("a load that takes {} cycles or more was in a queue", "count"),
    "REFETCHED": Quantity("DRAM moves {} times the bytes that the data has, or more", "count"),
    "ROUNDS": Quantity("the idlest SM has less than {} of the busiest one's work"),
    "SEES": Quantity(
        "a full level that would keep {} of its load without the waste is not relieved by a fix"
    ),
    "SEVERAL": Quantity("the grid has at least {} waves of blocks", "count"),
    "SHARED_ATOMIC": Quantity("shared-memory atomics are at least {} of the instructions"),
    "SHORT_LIFE": Quantity("a block lives for {} or less", "s"),
    "STALLED": Quantity("warps spend at least {} of their time in this wait"),
    "STEADY": Quantity("a clock is below {} of its highest"),
    "TAIL": Quantity("the last wave fills less than {} of its slots"),
    "TAKE_TURNS": Quantity("the tensor and XU pipes are busy {} of the time together"),
    "UNEQUAL": Quantity("the average SM is below {} of what waves of equal blocks would give"),
    "USED": Quantity("a pipe below {} of its peak is not relieved by fewer instructions"),
    "USED_ONCE": Quantity("a matrix instruction takes at least {} global loads", "count"),
    "WAITED": Quantity("no SM has work in at least {} of the time"),
    "WAITING": Quantity("warps spend at least {} of their time in the waits that it explains"),
    "WASTE": Quantity("at least {} of the wavefronts are conflicts"),
}
# The same word decides two things in two families of rules.
OF_A_FAMILY = {
    ("HIDDEN", "launch"): Quantity(
        "the busiest SM has {} times the work of the average one or more", "count"
    ),
    ("HIDDEN", "occupancy"): Quantity(
        "warps spend at least {} of their time in waits that other warps would hide"
    ),
}


def get_compared_quantity(name: str, family: str) -> Quantity | None:
    """Return what a threshold of a rule's file is compared with; `family`: the file's name."""
    return QUANTITIES.get(name) or OF_A_FAMILY.get((name, family))
