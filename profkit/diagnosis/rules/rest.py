"""What is said when no other rule fires: how far the busiest unit is from full, and what is missing."""

from __future__ import annotations

from profkit.diagnosis.rule import Hit, Rule, examples
from profkit.model.estimate import Fix
from profkit.model.launch import Launch
from profkit.model.resources import uses
from profkit.model.scenario import NOTHING, Scenario
from profkit.reports.figures import share


def _nothing(values: Launch) -> Hit | None:
    usages = sorted(uses(values), key=lambda u: -u.elapsed)
    if not usages:
        values.need("issue_busy")
    if any(u.near for u in usages):
        return None
    full = " and ".join(f"{u.resource.limiter} {share(u.elapsed)}" for u in usages[:2])
    text = f"no unit is near its peak ({full}) and no rule finds why"
    if "stall_selected" not in values:
        text += ": what the warps wait for was not collected"
    looked = ("occupancy", "occupancy_limit", "issue_busy", "sm_active")
    return Hit(text, looked=tuple(m for m in looked if m in values))


RULES = (
    Rule(
        id="nothing-stands-out",
        title="Nothing is full and nothing else is known",
        meaning="The launch fills the machine, no unit is near its peak and no other rule fires: "
        "most often because warp states, access patterns or opcodes were not collected (ncu's "
        "basic set has none of them).",
        advice="Profile again with ncu --set full (or --section WarpStateStats --section "
        "SourceCounters --section MemoryWorkloadAnalysis_Tables); until then: more loads in flight "
        "per warp, and fewer bytes through the busiest unit.",
        check=_nothing,
        otherwise=True,
        fix=Fix(best=lambda _: Scenario(waits=NOTHING)),
        fires=examples(
            "issue_busy=0.13 dram_busy=0.44 sm_active=0.98 waves=482.0",
            "dram_busy=0.52",
        ),
        clear=examples(
            "issue_busy=0.13 dram_busy=0.84 sm_active=0.98 waves=482.0",
            "issue_busy=0.1 dram_busy=0.1 stall_selected=0.1 stall_long_scoreboard=0.8",
        ),
    ),
)
