"""Pipes and issue slots: which one is full, and which work need not be there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from profkit.diagnosis.rule import Hit, LaunchRule, Measure, launch
from profkit.diagnosis.rules.memory import (
    FEWER,
    describe_gain_of_leaving_out,
    make_fix_removing_redundant_work,
    make_fix_shrinking_work_of_full_unit,
    make_unit_rule,
)
from profkit.diagnosis.rules.occupancy import count_threads_per_warp
from profkit.diagnosis.rules.waits import compute_instruction_share, sum_stall_shares
from profkit.diagnosis.rules.waste import (
    make_best_coalesced_scenario,
    make_usual_coalesced_scenario,
)
from profkit.model.launch import (
    DIVISION,
    MASKED,
    OF_A_DIVISION,
    StrictLaunch,
    Threshold,
    compute_arithmetic_share,
    compute_division_share,
    compute_working_lanes,
    count_integer_divisions,
    get_masked_access_share,
    is_reduction_tree,
    is_split_by_branches,
    is_tile_mostly_masked_off,
    measure_sector_waste,
    measure_tensor_busy,
)
from profkit.model.resources import BY_LIMITER, COMPUTE, EVERY, measure_resource_use
from profkit.model.scenario import (
    ISSUING,
    MATH,
    MIO,
    NOTHING,
    ONCHIP,
    PER_INSTRUCTION,
    RELIEVED,
    Fix,
    Scenario,
    compute_amdahl_speedup,
)
from profkit.reports.figures import format_percent, format_share
from profkit.reports.metrics.warps import STATES, TRIPS

if TYPE_CHECKING:
    from profkit.units import Factor, Share, ShareOrOne, UnitName


DIVERGED = Threshold(24, "active threads of 32 below which divergence is worth more than the noise")
BLOCKS_OWN = Threshold(0.9, "of the threads that the block's size allows: then nothing diverged")
FUSED = Threshold(
    0.1,
    "FMA's share of the FP instructions from which the build fuses: nvcc and Triton fuse by "
    "themselves what has a partner, so what is left (differences, products of products) has none",
)
USED = Threshold(0.4, "share of peak below which saving instructions of a kind saves no time")
TAKE_TURNS = Threshold(0.8, "tensor + XU: together they leave little time in which neither works")
FROM_SHARED = Threshold(
    0.03, "share of shared-memory loads: products take their operands from tiles"
)
MATRIX_OPERATIONS = Threshold(
    0.25, "share of the instructions that products must have to be the work"
)
AROUND_EXP = Threshold(
    18,
    "instructions of a softmax to each of its exponentials: 18.4 fewer for each in the step on record "
    "that changed nothing else",
)
TRIPS_OF_EXP = Threshold(3, "results that a warp waits for: the score, its exponential, the store")
LINE = Threshold(1.1, "gain from which divergence is worth a line")
MATRIX = 0.125  # instructions left of a scalar product on tensor cores, and they are asynchronous
# Work that goes with the instructions that ask for it; matrix products are the problem's own.
_ASKED = (*ONCHIP, *(limiter for limiter in COMPUTE if limiter != "tensor"))


def _make_fix_removing_instructions(limiter: UnitName, share_that_stays: Share) -> Fix:
    """Return the fix of too many instructions, each of which takes its waits and units' work with it."""
    units = {**dict.fromkeys(_ASKED, FEWER), limiter: share_that_stays}
    typical = Scenario(units, dict.fromkeys(STATES, share_that_stays))

    def make_best(launch: StrictLaunch) -> Scenario:
        """Floating-point arithmetic stays: it is the problem's own, and so are its issue slots."""
        own = compute_arithmetic_share(launch) if "instructions" in launch else 0.0
        stays = dict.fromkeys((*ONCHIP, *PER_INSTRUCTION), 0.0) | {"issue": own}
        if count_integer_divisions(launch) > 0:
            stays["xu"] = _compute_xu_share_without_divisions(launch)
        return Scenario(stays, NOTHING)

    return Fix(
        "throughput",
        "Ceiling: only the floating-point instructions are left, until L2 or DRAM reaches its peak. "
        f"Expected: {format_percent(share_that_stays)} of the instructions are left, with their waits "
        "and their "
        "work on the SM",
        make_best,
        lambda _: typical,
    )


# Integer divisions: many instructions for one operator.

DIVIDED = Threshold(
    0.2, "share of the instructions that integer divisions take, from which they are worth a line"
)
DIVISION_ADVICE = (
    "Divide less: make the divisor a power of two (shift and mask) or a constant of the build (a "
    "template parameter); take the indices from a grid of two or three dimensions; add a step to an "
    "index in place of dividing again; or multiply by a reciprocal that the host computes."
)
_DIVIDING = ("int", "issue", "xu", "math_pipe_throttle", "not_selected", "short_scoreboard", "wait")


def _has_many_divisions(launch: StrictLaunch) -> bool:
    return "instructions" in launch and compute_division_share(launch) >= DIVIDED


def _check_divisions(launch: StrictLaunch) -> Hit | None:
    if not _has_many_divisions(launch):
        return None
    return Hit(
        f"integer divisions take at least {format_share(compute_division_share(launch))} of the "
        "instructions: by a "
        f"value that the compiler does not know, each takes {DIVISION} and more",
        advice=DIVISION_ADVICE,
        explains=_DIVIDING,
    )


def _compute_xu_share_without_divisions(launch: StrictLaunch) -> Share:
    gone = OF_A_DIVISION * count_integer_divisions(launch)
    return max(0.0, 1 - gone / max(launch["inst_xu"], 1.0))


def _remove_divisions(launch: StrictLaunch) -> Scenario:
    """Their instructions go, and the waits for what they compute on the XU pipe."""
    stays = 1 - compute_division_share(launch)
    results = OF_A_DIVISION * count_integer_divisions(launch)
    awaited = 1 - min(1.0, results / max(launch.sum_collected_metrics(TRIPS), results))
    units = {"issue": stays, "int": stays, "xu": _compute_xu_share_without_divisions(launch)}
    return Scenario(units, dict.fromkeys((*ISSUING, *MATH), stays) | dict.fromkeys(MIO, awaited))


def _make_integer_rule() -> LaunchRule:
    """Return the rule of integer work: its pipe is full, or much of the work is divisions."""
    fewer = _make_fix_removing_instructions("int", FEWER)
    plain = make_unit_rule(
        unit="Integer pipe",
        limiter="int",
        metric="alu_busy",
        title="Too much integer arithmetic",
        meaning="Integer, logic and compare instructions (ALU) or integer multiply-adds (the "
        "heavy half of FMA) are issued whenever their pipe can take them; or much of the work is "
        "integer division, which the GPU has no instruction for.",
        advice="Hoist address arithmetic, use 32-bit indices, replace division by shifts or magic "
        "multiplication, unroll.",
        triton=(
            "Step pointers by a constant in the loop instead of computing offsets again, keep "
            "offsets in 32 bits, use tensor descriptors, mask the last tile only, and make what // "
            "and % divide by a tl.constexpr."
        ),
    )

    def check_integer_work(launch: StrictLaunch) -> Hit | None:
        return _check_divisions(launch) or plain.check(launch)

    def make_typical(launch: StrictLaunch) -> Scenario | None:
        if _has_many_divisions(launch) or fewer.typical is None:
            return _remove_divisions(launch)
        return fewer.typical(launch)

    opcodes = {"instructions": 1e7, "inst_exp": 3e5, "inst_xu": 9e5, "inst_imad": 3e6}
    return replace(
        plain,
        check=check_integer_work,
        looks=(*plain.looks, "inst_xu", "inst_exp", "inst_imad"),
        fires=(*plain.fires, {**opcodes, "inst_fp32": 1e5, "alu_busy": 0.5, "issue_busy": 0.8}),
        clear=(*plain.clear, {**opcodes, "inst_fp32": 2e6, "alu_busy": 0.5, "issue_busy": 0.8}),
        measures=(
            *plain.measures,
            Measure(
                of=compute_division_share,
                what="of the instructions are integer divisions",
                border=DIVIDED,
            ),
        ),
        fix=replace(
            fewer,
            formula=f"{fewer.formula}; integer divisions go, with the waits for them",
            typical=make_typical,
        ),
    )


_NOT_BYTES = tuple(set(EVERY) - {"dram", "l2", "l1"})

# Where a tree waits for its own instructions, they are of few threads each. Its waits at barriers and
# for shared memory are barrier-wait's; where issue slots are full, no counter says which instructions
# need not be there.
_STEPS = ("wait", "branch_resolving", "math_pipe_throttle")


def _count_lanes_with_thread(launch: StrictLaunch) -> float:
    return count_threads_per_warp(launch) if "block_size" in launch else 32.0


_SECTORS = ("dram", "l2", "l1", "long_scoreboard", "lg_throttle", "drain")  # what unused ones cost


def _check_divergence(launch: StrictLaunch) -> Hit | None:
    return (
        _check_split_accesses(launch)
        or _check_masked_tile(launch)
        or _check_diverged_paths(launch)
        or _check_reduction_tree_steps(launch)
    )


def _check_split_accesses(launch: StrictLaunch) -> Hit | None:
    if not is_split_by_branches(launch):
        return None
    threads = launch["threads_per_warp"]
    waste, _ = measure_sector_waste(launch)
    return Hit(
        f"branches split warps ({threads:.3g} of 32 threads are active), and both sides access the "
        f"same sectors one after the other: {format_share(waste)} of the sectors moved are unused",
        advice=_ACCESS_ONCE,
        explains=_SECTORS,
    )


def _check_masked_tile(launch: StrictLaunch) -> Hit | None:
    if not is_tile_mostly_masked_off(launch):
        return None
    return Hit(
        f"{format_share(get_masked_access_share(launch))} of the global accesses are masked off for "
        "all lanes "
        "of their warp, and what computes on their values runs all the same",
        advice=_FILL_TILES,
    )


def _check_diverged_paths(launch: StrictLaunch) -> Hit | None:
    threads = launch["threads_per_warp"]
    if threads >= DIVERGED or threads >= BLOCKS_OWN * _count_lanes_with_thread(launch):
        return None  # lanes that never had a thread are another rule's
    return Hit(f"{threads:.3g} of 32 threads are active per instruction")


def _check_reduction_tree_steps(launch: StrictLaunch) -> Hit | None:
    if launch["threads_per_warp"] < DIVERGED or not is_reduction_tree(launch):
        return None
    return Hit(
        f"{compute_working_lanes(launch):.3g} of 32 threads are active per instruction and the others "
        "are "
        "predicated off: each step of a tree leaves fewer threads with work",
        explains=_STEPS,
    )


_FILL_TILES = (
    "Make the block of a program as large as what it has to do: a power of two near the row's "
    "length, or a loop over smaller blocks that ends where the row ends."
)
_ACCESS_ONCE = (
    "Choose the value by a select (x ? a : b) and load or store it once behind the branch, with all "
    "lanes of the warp together."
)


def _count_active_lanes(launch: StrictLaunch) -> float:
    if is_reduction_tree(launch):
        return compute_working_lanes(launch)
    return launch["threads_per_warp"]


def _make_best_without_masked_work(launch: StrictLaunch) -> Scenario:
    """As much of all work goes as of the accesses, and no wait is certain to stay."""
    stays = 1 - get_masked_access_share(launch)
    return Scenario(dict.fromkeys((*COMPUTE, *ONCHIP), stays), NOTHING, keeps=stays)


def _make_typical_without_masked_work(launch: StrictLaunch) -> Scenario:
    """As much of the work goes as of the accesses. Masked loads bring nothing to wait for."""
    stays = 1 - get_masked_access_share(launch)
    waits = dict.fromkeys((*ISSUING, *MATH, *MIO), stays)
    return Scenario(dict.fromkeys((*COMPUTE, *ONCHIP), stays), waits)


def _make_divergence_fix() -> Fix:
    """All lanes active do the same in fewer instructions; the bytes that they ask for stay.

    Where branches split the accesses to a sector, sectors go instead; of a masked tile the instructions
    on what is masked.
    """
    fewer = make_fix_removing_redundant_work(
        lambda launch: _count_lanes_with_thread(launch) / _count_active_lanes(launch),
        *_NOT_BYTES,
        formula=describe_gain_of_leaving_out("the instructions with idle lanes"),
    )

    def make_best(launch: StrictLaunch) -> Scenario:
        if is_split_by_branches(launch) or fewer.best is None:
            return make_best_coalesced_scenario(launch)
        if is_tile_mostly_masked_off(launch):
            return _make_best_without_masked_work(launch)
        return fewer.best(launch)

    def make_typical(launch: StrictLaunch) -> Scenario | None:
        if is_split_by_branches(launch) or fewer.typical is None:
            return make_usual_coalesced_scenario(launch)
        if is_tile_mostly_masked_off(launch):
            return _make_typical_without_masked_work(launch)
        return fewer.typical(launch)

    return replace(fewer, best=make_best, typical=make_typical)


def _check_unfused_arithmetic(launch: StrictLaunch) -> Hit | None:
    fused = launch["fp32_fused"]
    found = measure_resource_use(BY_LIMITER["fp32"], launch)
    busy = max(found.share if found else 0.0, launch["issue_busy"])
    part = launch["inst_fp32"] / max(launch["instructions"], 1)
    if fused >= FUSED or busy < USED or part < 0.2:
        return None
    if launch.get("fp32_fusable", 1.0) < FUSED:
        return None  # sums or products alone: a multiply without an add has no partner
    return Hit(
        f"{format_share(1 - fused)} of the FP32 instructions are single adds and multiplies "
        f"({format_share(part)} of all instructions are FP32)"
    )


def _compute_scalar_product_share(launch: StrictLaunch) -> Share:
    """Share of the instructions that are products off the tensor cores, if none is on them."""
    if launch["inst_matrix"] > 0:
        return 0.0
    instructions = max(launch["instructions"], 1)
    return max(launch["inst_half"], launch["inst_ffma"]) / instructions


def _compute_unfused_share(launch: StrictLaunch) -> Share:
    """Share of the FP32 instructions that are single and may have a partner."""
    if launch.get("fp32_fusable", 1.0) < FUSED:
        return 0.0
    return 1 - launch["fp32_fused"]


def _compute_idle_lane_share(launch: StrictLaunch) -> Share:
    """Share of a warp's threads without work, of those that the block's size allows."""
    return max(0.0, 1 - _count_active_lanes(launch) / _count_lanes_with_thread(launch))


def _check_tensor_idle(launch: StrictLaunch) -> Hit | None:
    if launch["inst_matrix"] > 0:
        return None
    instructions = max(launch["instructions"], 1)
    half = launch["inst_half"] / instructions
    operands = launch["inst_shared_load"] / instructions
    if half >= MATRIX_OPERATIONS and operands >= FROM_SHARED:
        return Hit(
            f"{format_share(half)} of the instructions are half-precision arithmetic on tiles in shared "
            "memory, and none is a matrix instruction"
        )
    if "declared_operations" in launch and launch["inst_ffma"] / instructions >= MATRIX_OPERATIONS:
        done = 64 * launch["inst_ffma"] / launch["declared_operations"]
        if done >= 0.5:
            return Hit(
                f"scalar FMAs do {format_share(min(done, 1.0))} of the declared operations, and matrix "
                "instructions do none"
            )
    return None


def _check_redundant_exponentials(launch: StrictLaunch) -> Hit | None:
    again = count_exps_per_useful_exp(launch)
    if again < 2:
        return None
    return Hit(f"{again:.3g} exponentials are computed for each useful one")


def _check_pipes_taking_turns(launch: StrictLaunch) -> Hit | None:
    launch.require_collected("xu_busy", "tensor_busy")
    xu = launch["xu_busy"]
    matrix = measure_tensor_busy(launch)
    if min(xu, matrix) < 0.25 or xu + matrix < TAKE_TURNS:
        return None
    return Hit(
        f"the tensor pipe works {format_share(matrix)} and the XU pipe (exp) {format_share(xu)} of the "
        "time, "
        f"{format_share(xu + matrix)} together: they take turns"
    )


# What fixing it brings.


def _estimate_gain_of_fused_multiply_add(launch: StrictLaunch) -> Factor:
    """At best every single add finds a single multiply, and one instruction of each pair goes."""
    part = launch["inst_fp32"] / max(launch["instructions"], 1)
    pairs = min(0.5 * (1 - launch["fp32_fused"]), launch.get("fp32_fusable", 1.0))
    return compute_amdahl_speedup(pairs * part)


def _move_to_tensor_cores(launch: StrictLaunch) -> Scenario:
    scalar = max(
        compute_instruction_share(launch, "inst_half"),
        compute_instruction_share(launch, "inst_ffma"),
    )
    stays = 1 - scalar * (1 - MATRIX)
    units = dict.fromkeys(("fp16", "fp32", "issue"), stays)
    return Scenario(units, dict.fromkeys((*ISSUING, *MATH), stays))


def count_exps_per_useful_exp(launch: StrictLaunch) -> float:
    """Return how many exponentials were computed for each one declared as useful."""
    useful = launch["declared_exps"]
    if useful > 0:
        return 32 * launch["inst_exp"] / useful
    return 1.0


def _compute_time_share_around_exponentials(launch: StrictLaunch) -> ShareOrOne:
    """Share of the time that exponentials hold, with the instructions around them and their waits.

    What else is in the launch was computed once and is not less where they are fewer.
    """
    if not launch.has_collected("inst_exp", "instructions"):
        return 1.0
    own = min(1.0, AROUND_EXP * launch["inst_exp"] / max(launch["instructions"], 1.0))
    if "stall_selected" not in launch:
        return own
    trips = launch.sum_collected_metrics(TRIPS)
    of_trips = min(1.0, TRIPS_OF_EXP * launch["inst_exp"] / max(trips, launch["inst_exp"], 1.0))
    issued = sum_stall_shares(launch, *ISSUING, *MATH)
    awaited = sum_stall_shares(launch, *MIO)
    held = own * issued + of_trips * awaited
    barrier = sum_stall_shares(launch, "barrier")  # warps wait there for those that compute
    others = max(1 - barrier, issued + awaited)
    return min(1.0, held / others)


def _estimate_gain_of_overlapping_pipes(launch: StrictLaunch) -> Factor:
    xu = launch["xu_busy"]
    matrix = measure_tensor_busy(launch)
    return (xu + matrix) / max(xu, matrix)


_MASKED_TILE = launch(
    threads_per_warp=32.0,
    instructions=1e7,
    inst_global_load=5e5,
    global_load_requests=1e5,
    issue_busy=0.8,
    sm_active=0.98,
)
_MATH = ("issue", "fp32", "fp64", "fp16", "int", "xu", "math_pipe_throttle", "wait")

RULES = (
    make_unit_rule(
        unit="Tensor pipe",
        limiter="tensor",
        metric="tensor_busy",
        title="Tensor cores near their peak",
        meaning="The tensor pipe is busy most of the time: the matrix product is as fast as this "
        "data type and instruction allow.",
        advice=(
            "Use a narrower type, sparsity, or fewer operations; on 9.0, replace mma.sync by wgmma."
        ),
        triton=(
            "Use a narrower type for tl.dot (8 bits), or fewer operations: skip tiles that are "
            "masked out."
        ),
        own_work=True,
    ),
    make_unit_rule(
        unit="FMA pipe (FP32)",
        limiter="fp32",
        metric="fma_busy",
        title="FMA pipe near its peak on FP32",
        meaning="FP32 arithmetic is issued on nearly every cycle that the pipe can take.",
        advice="Use fewer or fused operations, half2, or tensor cores where precision allows.",
        triton=(
            "Do products of matrices with tl.dot, compute outside the loop what does not change "
            "in it, and skip tiles that are masked out."
        ),
        fix=make_fix_shrinking_work_of_full_unit("fp32", RELIEVED, "issue"),
        own_work=True,
    ),
    make_unit_rule(
        unit="FP64 pipe",
        limiter="fp64",
        metric="fp64_busy",
        title="FP64 pipe near its peak",
        meaning="FP64 arithmetic is issued whenever the pipe can take it. Most GPUs have 1/32 or "
        "1/64 of the FP32 rate (P100, V100, A100 and H100 half of it): literals without an f are a "
        "common cause.",
        advice="Use FP32 where precision allows; matrix products have FP64 tensor cores on data-centre "
        "GPUs from 8.0 on.",
        triton=(
            "Look for float64 among tensors and scalar arguments, and cast it at the load: "
            ".to(tl.float32)."
        ),
    ),
    make_unit_rule(
        unit="FP16 pipe",
        limiter="fp16",
        metric="fp16_busy",
        title="Half-precision pipe near its peak",
        meaning="half2 arithmetic is issued on nearly every cycle that its pipe can take.",
        advice="Use tensor cores for matrix work; convert less.",
        triton=(
            "Use tl.dot for products of matrices; convert less: .to(tl.float32) once, after "
            "tl.load."
        ),
        fix=make_fix_shrinking_work_of_full_unit("fp16", RELIEVED, "issue"),
    ),
    _make_integer_rule(),
    make_unit_rule(
        unit="XU pipe",
        limiter="xu",
        metric="xu_busy",
        title="XU pipe near its peak",
        meaning="exp, log, sin, reciprocal and int-float conversions run at 16 lanes per cycle and "
        "SM, an eighth of the FMA rate.",
        advice=(
            "Use fewer special functions: one ex2 per value, a polynomial on the FMA pipe for "
            "part of them, approximations, no conversions in the loop."
        ),
        triton=(
            "Use fewer special functions: tl.exp2 with the scale folded in, one division a row "
            "and products with it, no conversions in the loop."
        ),
    ),
    make_unit_rule(
        unit="Issue slots",
        limiter="issue",
        metric="issue_busy",
        more_metrics=("ipc", "instructions"),
        title="Issue slots near their peak",
        meaning="A scheduler issues one instruction per cycle. It is full though no single pipe is: "
        "the kernel has too many instructions.",
        advice=(
            "Execute fewer instructions: move address arithmetic out of loops, unroll them, use "
            "wider accesses and packed arithmetic (half2)."
        ),
        triton=(
            "Execute fewer instructions per element: use wider loads, index arithmetic outside "
            "the loop, tl.exp2 with the scale folded in, a BLOCK as a constexpr so that loops "
            "unroll."
        ),
        lines=("instructions",),
        fix=_make_fix_removing_instructions("issue", FEWER),
        clear=(launch(issue_busy=0.3, sm_active=0.98),),
    ),
    LaunchRule(
        id="tensor-idle",
        title="Matrix work off the tensor cores",
        meaning="The tensor cores do a half-precision matrix product 8 to 16 times faster than "
        "the FMA pipe, and no matrix instruction ran.",
        advice="Use mma.sync, wgmma, WMMA or a library for matrix products.",
        triton=("Use tl.dot for products of matrices: each side of its operands at least 16."),
        check=_check_tensor_idle,
        looks=("inst_matrix", "inst_half", "inst_ffma", "tensor_busy", "declared_operations"),
        lines=("instructions fma",),
        measures=(
            Measure(
                of=_compute_scalar_product_share,
                what="of the instructions are scalar products",
                border=MATRIX_OPERATIONS,
            ),
        ),
        less_work=True,
        fix=Fix(
            "instructions",
            "No ceiling is known. Expected: an eighth of the product's scalar instructions is left",
            typical=_move_to_tensor_cores,
        ),
        fires=(
            launch(
                inst_matrix=0,
                inst_half=6e6,
                instructions=1e7,
                inst_shared_load=6e5,
                inst_ffma=0,
                issue_busy=0.7,
            ),
        ),
        clear=(
            launch(
                inst_matrix=1.5e6, inst_half=0, instructions=7e7, inst_shared_load=1e4, inst_ffma=0
            ),
        ),
        explains=("fp16", "fp32", "issue"),
    ),
    LaunchRule(
        id="non-fused-math",
        title="Adds and multiplies that could be fused",
        meaning="A fused multiply-add does both in one instruction; separate ones take two.",
        advice="Write a * b + c so that the compiler may contract it, fold scales into FMAs, "
        "check -fmad and __fmul_rn.",
        triton=(
            "Write a * b + c in one expression, or tl.fma(a, b, c); leave enable_fp_fusion on."
        ),
        check=_check_unfused_arithmetic,
        looks=("fp32_fused", "fp32_fusable", "inst_fp32", "instructions", "fma_busy", "issue_busy"),
        lines=("instructions unfused",),
        measures=(
            Measure(
                of=_compute_unfused_share,
                what="of the FP32 instructions are single",
                border=1 - FUSED,
            ),
        ),
        fix=make_fix_removing_redundant_work(
            _estimate_gain_of_fused_multiply_add,
            *EVERY,
            formula=describe_gain_of_leaving_out("the separate multiplies and adds"),
        ),
        less_work=True,
        fires=(
            launch(fp32_fused=0.0, inst_fp32=8e6, instructions=1e7, fma_busy=0.9, issue_busy=0.9),
        ),
        clear=(
            launch(fp32_fused=1.0, inst_fp32=8e6, instructions=1e7, fma_busy=0.9, issue_busy=0.9),
            launch(
                fp32_fused=0.0,
                fp32_fusable=0.01,
                inst_fp32=8e6,
                instructions=1e7,
                fma_busy=0.9,
                issue_busy=0.9,
            ),
            launch(fp32_fused=0.42, inst_fp32=8e6, instructions=1e7, fma_busy=0.5, issue_busy=0.7),
        ),
        explains=("fp32", "issue", "math_pipe_throttle"),
    ),
    LaunchRule(
        id="thread-divergence",
        title="Few threads of a warp are active",
        meaning=(
            "Threads of a warp that take different paths run one path after another; an "
            "instruction with 4 active threads costs as much as one with 32."
        ),
        advice=(
            "Sort or regroup the work so that a warp takes one path; select instead of branching; "
            "give idle lanes other elements."
        ),
        triton=(
            "Use a BLOCK that the row fills: a mask that is mostly false, and a BLOCK rounded far "
            "up to a power of two, leave lanes without work."
        ),
        check=_check_divergence,
        looks=(
            "threads_per_warp",
            "threads_per_warp_predicated",
            "branch_uniform",
            "inst_global_load",
            "global_load_requests",
        ),
        lines=("divergent-branches", "lost-lanes"),
        measures=(
            Measure(
                of=_compute_idle_lane_share,
                what="of a warp's threads are idle",
                border=1 - DIVERGED / 32,
            ),
            Measure(
                of=get_masked_access_share,
                what="of the global accesses are masked off",
                border=MASKED,
            ),
        ),
        least=LINE,
        fix=_make_divergence_fix(),
        less_work=True,
        fires=(
            launch(threads_per_warp=4.0, issue_busy=0.8, sm_active=0.98),
            # Each of two branches stores its lanes' part of a line.
            launch(
                threads_per_warp=29.6,
                global_load_sectors_per_request=4.0,
                global_store_sectors_per_request=3.99,
                excess_sectors=0.26,
                l2_tag_busy=0.7,
                l2_to_xbar_busy=0.2,
                xbar_to_l2_busy=0.4,
                l2_cache_busy=0.7,
                sm_active=0.98,
            ),
            {**_MASKED_TILE, "threads_per_warp_predicated": 30.4},
        ),
        clear=(
            launch(threads_per_warp=31.9, issue_busy=0.8, sm_active=0.98),
            # A branch whose arithmetic is predicated off with its loads.
            {**_MASKED_TILE, "threads_per_warp_predicated": 25.0},
        ),
        explains=(
            *_MATH,
            "short_scoreboard",
            "mio_throttle",
            "shared",
            "barrier",
            "branch_resolving",
            "long_scoreboard",
            "l1",
        ),
    ),
    LaunchRule(
        id="redundant-exp",
        title="Exponentials computed more than once",
        meaning="The problem says how many exponentials it needs; the launch executed several "
        "times that, for example every lane of a warp the same row.",
        advice="Spread a row over the lanes of a warp and combine with shuffles.",
        triton=("Compute tl.exp once per element, and keep it for the sum and for what is stored."),
        check=_check_redundant_exponentials,
        looks=("inst_exp", "declared_exps", "xu_busy"),
        lines=("instructions exponential",),
        measures=(
            Measure(
                of=count_exps_per_useful_exp,
                what="exponentials for each useful one",
                unit="ratio",
                border=2,
            ),
        ),
        # Work done again is done on every pipe again.
        fix=make_fix_removing_redundant_work(
            count_exps_per_useful_exp,
            *COMPUTE,
            compute_time_share=_compute_time_share_around_exponentials,
            formula="Ceiling: time falls in proportion to the exponentials, until the next unit reaches "
            f"its peak. Expected: the same for the time that they and {AROUND_EXP:.0f} instructions "
            "around each take, if they fill a pipe; if not, the square root of it",
        ),
        less_work=True,
        fires=(launch(declared_exps=2.1e6, inst_exp=2.1e6, xu_busy=0.3),),
        clear=(launch(declared_exps=2.1e6, inst_exp=7e4, xu_busy=0.3),),
        explains=("xu", "issue", "short_scoreboard", "wait"),
    ),
    LaunchRule(
        id="tensor-xu-serial",
        title="Tensor cores and exponentials take turns",
        meaning="Softmax between two matrix products: when each warp computes, exponentiates and "
        "computes again, tensor and XU pipe idle in turn although neither is full.",
        advice=(
            "Run two warpgroups in opposite phase (ping-pong), or overlap the exponentials of one "
            "block with the products of the next; compute part of the exponentials as polynomials "
            "on the FMA pipe."
        ),
        triton=(
            "Take two tiles in one program, so that the exponentials of one run during the tl.dot "
            "of the other; use tl.exp2; warp_specialize=True in tl.range where the GPU has it."
        ),
        check=_check_pipes_taking_turns,
        looks=("tensor_busy", "xu_busy", "inst_exp", "inst_matrix"),
        lines=("stalls",),
        fix=make_fix_removing_redundant_work(
            _estimate_gain_of_overlapping_pipes,
            "tensor",
            "xu",
            formula=describe_gain_of_leaving_out("the turns of the two pipes"),
        ),
        fires=(launch(tensor_busy=0.47, xu_busy=0.49, inst_matrix=1.5e6),),
        clear=(launch(tensor_busy=0.90, xu_busy=0.02, inst_matrix=1.5e6),),
        explains=("wait", "barrier", "math_pipe_throttle", "gmma", "short_scoreboard"),
    ),
)
