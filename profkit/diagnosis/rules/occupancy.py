"""Few warps: what keeps an SM from having more of them, and would more help?"""

from __future__ import annotations

from collections.abc import Callable

from profkit.diagnosis.rule import Hit, Rule, examples
from profkit.diagnosis.rules.waits import stalled
from profkit.model.estimate import Fix
from profkit.model.launch import Launch, Threshold
from profkit.model.resources import uses
from profkit.model.scenario import Scenario
from profkit.reports.figures import counted, share

CROWDED = Threshold(0.75, "theoretical occupancy above which more blocks hide little more")
HIDDEN = Threshold(0.25, "share of the warps' time in waits that other warps would hide")
IDLE_SCHEDULER = Threshold(
    0.25, "share of cycles without an eligible warp from which latency shows"
)
# Waits that other warps hide; throttles are queues, which more warps make longer.
HIDES = tuple(
    "long_scoreboard short_scoreboard wait barrier imc_miss drain no_instruction "
    "branch_resolving".split()
)
_LIMITS = ("limit_registers", "limit_shared", "limit_warps", "limit_blocks")
# A block without shared memory is limited by the driver's 1 KB exactly where blocks are.
_EMPTY_BLOCKS = ("limit_shared", "limit_blocks")


def _issuing(launch: Launch) -> float:
    """Share of the SMs' active cycles in which a scheduler issued; basic sets have it of all cycles."""
    if "issue_busy_active" in launch:
        return launch["issue_busy_active"]
    launch.need("issue_busy_active" if "issue_busy" not in launch else "sm_active")
    return min(1.0, launch["issue_busy"] / max(launch["sm_active"], 1e-9))


def _occupancy(metric: str, what: str, step: str | None) -> Callable[[Launch], Hit | None]:
    def check(launch: Launch) -> Hit | None:
        blocks, limit = launch["blocks_per_sm"], launch[metric]
        others = [launch[m] for m in _LIMITS if m != metric and (m, metric) != _EMPTY_BLOCKS]
        if limit > blocks or limit >= min(others):
            return None
        occupancy = launch["occupancy_limit"]
        if occupancy >= CROWDED or launch["waves"] < 1:
            return None  # warps enough, or not enough blocks to fill even these places
        waiting = 1 - _issuing(launch)
        if waiting < IDLE_SCHEDULER or any(u.near for u in uses(launch)):
            return None
        if "stall_selected" in launch and stalled(launch, *HIDES) < HIDDEN:
            return None  # more warps would wait in the same queue
        text = f"{what}: {counted(blocks, 'block')} per SM, "
        text += f"{share(occupancy)} occupancy"
        if step and step in launch:
            unit = "registers per thread" if "reg" in step else "bytes of shared memory per block"
            text += f"; {launch[step]:.0f} {unit} less admit one more"
        return Hit(f"{text}; schedulers have no ready warp {share(waiting)} of the time")

    return check


def _more_warps(launch: Launch) -> Scenario:
    return Scenario(places=1 / launch["occupancy_limit"])


_FEW = examples(
    "blocks_per_sm=2 limit_registers=9 limit_shared=9 limit_warps=9 limit_blocks=9 "
    "occupancy_limit=0.125 waves=8 issue_busy_active=0.2 issue_busy=0.2"
)[0]


def _occupancy_rule(*, name: str, metric: str, what: str, step: str | None, advice: str) -> Rule:
    return Rule(
        id=name,
        title=f"Few warps per SM because of {what}",
        meaning="A scheduler hides the latency of one warp behind others. Here the block's "
        f"{what} leave so few warps per SM that often none is ready.",
        advice=advice,
        check=_occupancy(metric, what.capitalize(), step),
        looks=f"{metric} occupancy_limit occupancy issue_busy_active issue_busy {step or metric}",
        fires=({**_FEW, metric: 2},),
        clear=({**_FEW, metric: 2, "occupancy_limit": 0.94},),
        explains=HIDES,
        lines=("stalls",),  # waiting that more warps, or more independent work, would hide
        fix=Fix(
            "places",
            "bound and expected: as many warps as an SM holds, up to the fullest unit",
            _more_warps,
            _more_warps,
        ),
    )


RULES = (
    _occupancy_rule(
        name="occupancy-registers",
        metric="limit_registers",
        what="registers",
        step="registers_step",
        advice="Launch bounds or -maxrregcount down to the step, smaller tiles per thread; or "
        "more independent work per warp instead.",
    ),
    _occupancy_rule(
        name="occupancy-shared",
        metric="limit_shared",
        what="shared memory",
        step="shared_step",
        advice="Smaller tiles or fewer stages down to the step, scratch reused; or more warps in "
        "the block.",
    ),
    _occupancy_rule(
        name="occupancy-blocks",
        metric="limit_blocks",
        what="small blocks",
        step=None,
        advice="Larger blocks: an SM holds 16 to 32 blocks however small they are.",
    ),
)
