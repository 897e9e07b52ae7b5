"""Does residual plus norm, fused, run at the speed of a copy?

x and r are read, y and h written: a kernel that does it in one pass has to move what a copy of as many
bytes moves, and the arithmetic hides behind that. `copy` is PyTorch's copy_ of that size, in turns with
the rungs; `separate` and `compile` are PyTorch's addition and norm, as they are and compiled.
"""

from __future__ import annotations

from problems import all_of, answered_at, compared, fastest, on_l4, share_of_copy

from profkit.evidence.claims import Answer, at_least, claim, decide, timed
from profkit.evidence.runs import Evidence

WHO = "the target set for this problem"
RUNGS = ("onepass", "ring", "warprow", "widerow", "tritonln")
MIDDLE = "LN4096"
CASES = (MIDDLE,)  # of those that were recorded


@claim(who=WHO, needs=[f"onepass.{MIDDLE}", f"copy.{MIDDLE}"])
def middle_rows_at_copy_speed(evidence: Evidence) -> Answer:
    """Rows of 4096: the fastest rung moves its bytes at 90 % of a copy's rate or more."""
    return share_of_copy(evidence, RUNGS, MIDDLE, 0.9).elsewhere(on_l4("layernorm", MIDDLE))


@claim(who=WHO, needs=[f"{v}.{c}" for c in CASES for v in ("onepass", "separate", "compile")])
def faster_than_pytorch(evidence: Evidence) -> Answer:
    """At every recorded case the fastest rung beats add and norm, and keeps up with compiled."""

    def against(case: str) -> tuple[bool | None, str]:
        apart, line = compared(evidence, "separate", RUNGS, case)
        compiled, other = compared(evidence, "compile", RUNGS, case, 0.98)
        return all_of((apart, compiled)), f"{line}, {other.rpartition(' ')[0].split()[-1]} compile"

    return answered_at(CASES, against)


@claim(who="header of widerow", needs=[f"{v}.{MIDDLE}" for v in ("onepass", "widerow", "copy")])
def wide_loads_are_what_was_missing(evidence: Evidence) -> Answer:
    """Loads of 16 bytes for four of four bring the CUDA rungs to 90 % of a copy's rate."""
    found = timed(evidence, f"onepass.{MIDDLE}", f"widerow.{MIDDLE}")
    near = timed(evidence, f"copy.{MIDDLE}", f"widerow.{MIDDLE}").speedup
    return decide(
        all_of((at_least(found.speedup, 1.1), at_least(near, 0.9))),
        f"{found.sentence}; widerow moves its bytes at {near.median:.1%} of the copy's rate",
        speedup=found.speedup.median,
        share=near.median,
    )


@claim(who="header of tritonln", needs=[f"tritonln.{MIDDLE}", f"onepass.{MIDDLE}"])
def triton_is_as_fast(evidence: Evidence) -> Answer:
    """The Triton rung takes at most a tenth longer than the fastest CUDA rung at rows of 4096."""
    ours = fastest(evidence, RUNGS[:-1], MIDDLE)
    found = timed(evidence, f"{ours}.{MIDDLE}", f"tritonln.{MIDDLE}")
    return decide(
        at_least(found.speedup, 1 / 1.1),
        f"tritonln against {ours}: {found.sentence}",
        speedup=found.speedup.median,
    )
