"""What Nsight Compute's pages call a metric  ->  its name in the catalogue.

Labels as `ncu` prints them, in lower case; a label that has changed over versions stands here twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from profkit.units import RuleName


NCU_LABELS = {
    # GPU Speed Of Light Throughput
    "duration": "time",
    "elapsed cycles": "cycles",
    "sm frequency": "sm_clock",
    "dram frequency": "dram_clock",
    "sm active cycles": "sm_active",
    "memory throughput": "memory_busy",
    "memory [%]": "memory_busy",
    "compute (sm) throughput": "sm_busy",
    "compute (sm) [%]": "sm_busy",
    "sm [%]": "sm_busy",
    "dram throughput": "dram_busy",
    "l1/tex cache throughput": "l1_busy",
    "l2 cache throughput": "l2_busy",
    "l1 throughput": "l1_busy",
    "l2 throughput": "l2_busy",
    # Memory Workload Analysis
    "l1/tex hit rate": "l1_hit",
    "l2 hit rate": "l2_hit",
    # Compute Workload Analysis
    "executed ipc active": "ipc",
    "executed ipc elapsed": "ipc_elapsed",
    "issue slots busy": "issue_busy_active",
    "sm busy": "sm_busy",
    # Scheduler Statistics
    "active warps per scheduler": "warps_per_scheduler",
    "eligible warps per scheduler": "eligible_warps",
    "issued warp per scheduler": "issue_rate",
    "one or more eligible": "issue_busy_active",
    "no eligible": "issue_busy_active",  # what is left to 100 %
    # Warp State Statistics
    "warp cycles per issued instruction": "warp_latency",
    # Launch Statistics
    "grid size": "grid_size",
    "block size": "block_size",
    "cluster size": "cluster_size",
    "threads": "threads",
    "registers per thread": "registers",
    "static shared memory per block": "shared_static",
    "dynamic shared memory per block": "shared_dynamic",
    "driver shared memory per block": "shared_driver",
    "shared memory configuration size": "shared_config",
    "waves per sm": "waves",
    "# sms": "sm_count",
    # Occupancy
    "theoretical occupancy": "occupancy_limit",
    "achieved occupancy": "occupancy",
    "achieved active warps per sm": "warps_per_sm",
    "block limit registers": "limit_registers",
    "block limit shared mem": "limit_shared",
    "block limit warps": "limit_warps",
    "block limit sm": "limit_blocks",
    "block limit barriers": "limit_barriers",
}


# ncu's rules, as it names them beside its estimates, and the rules of profkit that answer them
# (docs/why/nvidia.md has each of their results).
NVIDIA_RULES = {
    "achievedoccupancy": ("workload-imbalance", "tail-effect", "short-blocks"),
    "fpinstructions": ("non-fused-math", "fp64-pipe"),
    "highpipeutilization": (
        "tensor-pipe",
        "fp32-pipe",
        "fp64-pipe",
        "fp16-pipe",
        "int-pipe",
        "xu-pipe",
    ),
    "issueslotutilization": ("issue-slots", "nothing-stands-out"),
    "memorycacheaccesspattern": ("uncoalesced-access", "narrow-accesses", "register-spills"),
    "occupancy": ("occupancy-registers", "occupancy-shared", "occupancy-blocks"),
    "launchconfiguration": ("grid-too-small", "tail-effect", "partial-warps", "barrier-wait"),
    "sharedmemoryconflicts": ("shared-bank-conflicts",),
    "solbottleneck": ("grid-too-small", "nothing-stands-out", "dram-bandwidth", "issue-slots"),
    "solfproofline": ("fp32-pipe", "fp64-pipe", "tensor-idle"),
    "theoreticaloccupancy": ("occupancy-registers", "occupancy-shared", "occupancy-blocks"),
    "threaddivergence": ("thread-divergence",),
    "uncoalescedglobalaccess": ("uncoalesced-access",),
    "uncoalescedsharedaccess": ("shared-bank-conflicts",),
    "workloadimbalance": ("workload-imbalance", "partial-warps"),
    "cpistall": (
        "long-scoreboard",
        "short-scoreboard",
        "barrier-wait",
        "fixed-latency",
        "math-throttle",
        "lg-throttle",
        "mio-throttle",
    ),
    # Titles of their results.
    "smallgrid": ("grid-too-small",),
    "taileffect": ("tail-effect",),
    "uncoalescedglobalaccesses": ("uncoalesced-access",),
    "uncoalescedsharedaccesses": ("shared-bank-conflicts",),
    "sharedloadbankconflicts": ("shared-bank-conflicts",),
    "sharedstorebankconflicts": ("shared-bank-conflicts",),
    "fp32nonfusedinstructions": ("non-fused-math",),
    "fp64nonfusedinstructions": ("non-fused-math",),
    "longscoreboardstalls": ("long-scoreboard",),
    "shortscoreboardstalls": ("short-scoreboard",),
    "barrierstalls": ("barrier-wait",),
    "mathpipethrottlestalls": ("math-throttle",),
    "lgthrottlestalls": ("lg-throttle",),
    "miothrottlestalls": ("mio-throttle",),
    "waitstalls": ("fixed-latency",),
    "occupancylimiters": ("occupancy-registers", "occupancy-shared", "occupancy-blocks"),
}


def find_rules_for_ncu_rule(name: str) -> tuple[RuleName, ...]:
    """Return the rules that answer one of ncu's rules or its title; none for another word.

    A word with two meanings (occupancy is a metric, too) keeps that of the catalogue.
    """
    return NVIDIA_RULES.get("".join(name.lower().split()), ())


def find_catalogue_name(name: str) -> str:
    """Return the catalogue's name of what ncu calls so; other names with - between their words."""
    words = " ".join(name.lower().split())
    return NCU_LABELS.get(words, words.replace(" ", "-"))
