"""Is occupancy limited by 96 registers?"""

from __future__ import annotations

from arithmetic import L4

from profkit.evidence.claims import Answer, claim, decide
from profkit.evidence.runs import Evidence

REGISTERS, SHARED, THREADS = 96, 37120, 128  # stage 2 on main, built for an L4


@claim(who="document 001: second likely bottleneck, occupancy limited by 96 registers")
def registers_limit_stage2_on_an_l4(_: Evidence) -> Answer:
    """On an L4 the registers of stage 2 limit how many blocks fit on an SM."""
    registers = L4.blocks_by_registers(REGISTERS, THREADS)
    shared = L4.blocks_by_shared(SHARED)
    return decide(
        registers < shared,
        f"96 registers allow {registers} blocks per SM, {SHARED:,} B of shared memory {shared}",
        by_registers=registers,
        by_shared_memory=shared,
    )


@claim(who="document 004: about 2 blocks per SM, 50 to 60 % occupancy")
def two_blocks_of_v6a_fit_on_an_l4(_: Evidence) -> Answer:
    """Two blocks of v6a fit on an SM of an L4."""
    blocks = L4.blocks(59, 71168, 256)
    rounds = L4.rounds(64, blocks)
    return decide(
        blocks >= 2,
        f"71,168 B of shared memory allow {blocks}; 64 blocks on 58 SMs then take {rounds} rounds, "
        f"the second with {64 - 58 * blocks} blocks",
        blocks=blocks,
        rounds=rounds,
    )


@claim(who="the original's profile of a library kernel: 9.28 % of 33.3 %, blamed on registers")
def nine_percent_is_a_register_limit(_: Evidence) -> Answer:
    """An achieved occupancy of 9.28 % there is caused by registers."""
    by_grid = 64 * 4 / (L4.sms * L4.warps)  # 64 blocks of 4 warps
    return decide(
        by_grid > 0.15,
        f"64 blocks of 4 warps on 58 SMs of 48 are {by_grid:.1%}: the grid has no more",
        grid_occupancy=by_grid,
    )


@claim(who="document 001: the same, counted on the GPU of the records", needs=["stage2.B"])
def registers_limit_stage2_here(evidence: Evidence) -> Answer:
    """On this GPU the registers of stage 2 limit its occupancy."""
    launch = evidence.load("stage2", "B").launch
    limits = {x: launch[f"limit_{x}"] for x in ("registers", "shared", "warps", "blocks")}
    resident = launch["grid_size"] / launch["sm_count"]
    first = min(limits, key=lambda x: limits[x])
    return decide(
        first == "registers" and resident > limits["registers"],
        f"blocks per SM by {', '.join(f'{k} {v:.0f}' for k, v in limits.items())}; the grid has "
        f"{resident:.2f} per SM; achieved occupancy {launch['occupancy']:.1%}",
        **{f"limit_{k}": v for k, v in limits.items()},
        occupancy=launch["occupancy"],
    ).elsewhere(
        f"L4 (computed): {L4.blocks_by_registers(launch['registers'], launch['block_size'])} blocks "
        "by registers, "
        f"{L4.blocks_by_shared(launch['shared_static'] + launch['shared_dynamic'])} by shared memory"
    )
