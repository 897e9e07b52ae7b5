"""What is said last: that no other rule fires, and what of the measurement to doubt."""

from __future__ import annotations

from profkit.diagnosis.rule import Hit, LaunchRule, launch
from profkit.model.launch import HALVES, StrictLaunch, Threshold, compute_counted_share_of_duration
from profkit.model.resources import list_resource_uses
from profkit.model.scenario import NOTHING, Fix, Scenario
from profkit.reports import figures
from profkit.reports.figures import format_share


def _check_no_cause_found(values: StrictLaunch) -> Hit | None:
    usages = sorted(list_resource_uses(values), key=lambda u: -u.elapsed)
    if not usages:
        values.require_collected("issue_busy")
    if any(u.near for u in usages):
        return None
    full = " and ".join(f"{u.resource.limiter} {format_share(u.elapsed)}" for u in usages[:2])
    text = f"no unit is near its peak ({full}) and no rule finds why"
    if "stall_selected" not in values:
        text += ": what the warps wait for was not collected"
    looked = ("occupancy", "occupancy_limit", "issue_busy", "sm_active")
    return Hit(text, looked=tuple(m for m in looked if m in values))


OUT_OF_RANGE = Threshold(
    figures.OUT_OF_RANGE,
    "a share above 1 by more than rounding: passes that did not see the same",
)
STEADY = Threshold(
    0.9, "clock over the highest clock below which times do not compare with free-running ones"
)
IDLE_STATE = Threshold(
    0.45, "DRAM's clock over its highest, below which it has not been raised yet"
)
MISMATCH = Threshold(1.1, "counted over declared operations: padding and tails remain below")


def _check_declared_operations(launch: StrictLaunch) -> Hit | None:
    declared = launch["declared_operations"]
    counted = launch["tensor_ops"]
    scalar = launch["fp32_rate"] * launch["time"]
    if counted > MISMATCH * declared and declared > 0:
        return Hit(
            f"{counted / declared:.3g} times the declared operations ran on the tensor cores"
        )
    if counted + scalar < declared / MISMATCH:
        return Hit(
            f"only {format_share((counted + scalar) / declared)} of the declared operations were "
            "counted: "
            "another launch does the rest, or the declaration is wrong"
        )
    return None


def _check_clocks(launch: StrictLaunch) -> Hit | None:
    sm, memory = (launch[f"{u}_clock"] / launch[f"{u}_clock_max"] for u in ("sm", "dram"))
    if "time" in launch and launch["time"] < 5e-6:
        return None  # a few thousand cycles do not measure a clock
    said_sm = f"the SM clock was {_say_clock(launch, 'sm')}"
    said_memory = f"the DRAM clock was {_say_clock(launch, 'dram')}"
    part = compute_counted_share_of_duration(launch)
    if part < 1:
        highest = f"{launch['sm_clock'] / part / 1e6:,.0f} MHz"
        return Hit(
            f"the DRAM counters cover only {format_share(part)} of the run: {said_memory}, but it runs "
            "at one "
            f"clock; rates over the duration are too low by as much; {said_sm}, and if it was counted "
            f"for as long, it ran at {highest}"
        )
    is_memory_slow = memory < STEADY and abs(memory - 0.5) >= HALVES
    if is_memory_slow and sm >= STEADY:
        if memory < IDLE_STATE:
            return Hit(f"{said_memory}, as the GPU had not left its idle state")
        return Hit(f"{said_memory}, so the memory ran slower than it can: {said_sm}")
    if sm >= STEADY:
        return None
    return Hit(
        f"{said_sm}: ncu locks it by default, or a power limit lowered it; times compare within this "
        f"report only, and peaks are those at the measured clocks; {said_memory}"
    )


def _say_clock(launch: StrictLaunch, unit: str) -> str:
    """Return the clock of "sm" or "dram" beside the highest: "585 of 1,590 MHz (36.8 %)"."""
    now = launch[f"{unit}_clock"]
    most = launch[f"{unit}_clock_max"]
    return f"{now / 1e6:,.0f} of {most / 1e6:,.0f} MHz ({format_share(now / most)})"


def _check_replay_consistency(launch: StrictLaunch) -> Hit | None:
    launch.require_collected("time")
    bad = []
    for name in ("l2_hit", "l1_hit", "occupancy", "sm_active_max", "sm_active"):
        if name in launch and launch[name] > OUT_OF_RANGE:
            bad.append(f"{name} {format_share(launch[name])}")
    if launch.has_collected("occupancy", "occupancy_limit") and (
        launch["occupancy"] > OUT_OF_RANGE * launch["occupancy_limit"]
    ):
        bad.append(
            f"achieved occupancy {format_share(launch['occupancy'])} over the theoretical "
            f"{format_share(launch['occupancy_limit'])}"
        )
    if not bad:
        return None
    return Hit(
        f"out of range: {', '.join(bad)}; ncu's {launch.get('replay_passes', 1):.0f} passes saw "
        "different runs"
    )


RULES = (
    LaunchRule(
        id="nothing-stands-out",
        title="No unit is full, and the counters that would explain it are missing",
        meaning="The launch fills the machine, no unit is near its peak and no other rule fires: "
        "most often because warp states, access patterns or opcodes were not collected (ncu's "
        "basic set has none of them).",
        advice=(
            "Profile again with ncu --set full (or --section WarpStateStats --section "
            "SourceCounters --section MemoryWorkloadAnalysis_Tables); until then, keep more loads "
            "in flight per warp and move fewer bytes through the busiest unit."
        ),
        check=_check_no_cause_found,
        otherwise=True,
        fix=Fix(best=lambda _: Scenario(waits=NOTHING)),
        fires=(
            launch(issue_busy=0.13, dram_busy=0.44, sm_active=0.98, waves=482.0),
            launch(dram_busy=0.52),
        ),
        clear=(
            launch(issue_busy=0.13, dram_busy=0.84, sm_active=0.98, waves=482.0),
            launch(issue_busy=0.1, dram_busy=0.1, stall_selected=0.1, stall_long_scoreboard=0.8),
        ),
    ),
    LaunchRule(
        id="operations-mismatch",
        title="Counted operations are not the workload's",
        meaning="The problem says how many operations it needs. Far more means redundant or "
        "padded work; far fewer means that this launch is not the whole workload.",
        advice="Look for masked tiles computed in full, recomputation, or other launches.",
        check=_check_declared_operations,
        looks=("declared_operations", "tensor_ops", "fp32_rate", "time"),
        fires=(launch(declared_operations=1e9, tensor_ops=2e9, fp32_rate=0.0, time=1e-5),),
        clear=(launch(declared_operations=1e9, tensor_ops=1.05e9, fp32_rate=0.0, time=1e-5),),
    ),
    LaunchRule(
        id="clocks-unsteady",
        title="The clocks were below the GPU's maximum",
        meaning="Durations scale with the clock. ncu's default locks the SM clock to its base; a "
        "hot or power-limited GPU lowers it by itself.",
        advice=(
            "Compare durations only within one report; profile with --clock-control none and warm "
            "up for times that are valid outside ncu."
        ),
        note=True,
        check=_check_clocks,
        looks=("sm_clock", "sm_clock_max", "dram_clock", "dram_clock_max"),
        fires=(
            launch(
                sm_clock=0.8e9,
                sm_clock_max=2.04e9,
                dram_clock=6.2e9,
                dram_clock_max=6.25e9,
                time=1e-4,
            ),
        ),
        clear=(
            launch(
                sm_clock=1.97e9,
                sm_clock_max=1.98e9,
                dram_clock=3.2e9,
                dram_clock_max=3.2e9,
                time=1e-4,
            ),
        ),
    ),
    LaunchRule(
        id="replay-unsteady",
        title="The passes disagree",
        meaning="ncu runs a launch once per group of counters and combines them. When a share "
        "leaves its range, the runs differed: short launches, data-dependent work, contention.",
        advice="Measure a longer launch; use fewer metrics (fewer passes); fix random seeds.",
        note=True,
        check=_check_replay_consistency,
        looks=(
            "l2_hit",
            "l1_hit",
            "occupancy",
            "occupancy_limit",
            "sm_active_max",
            "replay_passes",
        ),
        fires=(launch(time=4e-6, l2_hit=1.08, replay_passes=38),),
        clear=(launch(time=4e-4, l2_hit=0.93, replay_passes=38),),
    ),
)
