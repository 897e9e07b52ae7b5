"""Which lines a finding names: every rule  ->  the counters that show where it happens.

The one table of it. A rule's first counter that the report has, and that is not zero, chooses the
lines; a rule without any happens at no line, such as a grid that is too small.
"""

from __future__ import annotations

NO_LINE: tuple[str, ...] = ()

# Waiting that more warps, or more independent work, would hide.
_HIDDEN = ("stalls",)
_MEMORY = ("sectors", "stalls memory")

LINES: dict[str, tuple[str, ...]] = {
    # The shape of the launch
    "grid-too-small": NO_LINE,
    "tail-effect": NO_LINE,
    "workload-imbalance": NO_LINE,
    "short-kernel": NO_LINE,
    # Levels of memory: who asks for most of it
    "dram-bandwidth": _MEMORY,
    "l2-bandwidth": _MEMORY,
    "low-l2-hit": _MEMORY,
    "l1-bandwidth": ("l1-requests", "wavefronts"),
    "shared-bandwidth": ("wavefronts", "stalls shared"),
    "texture-bandwidth": ("instructions texture",),
    "cache-resident": NO_LINE,
    # Accesses that cost more than they bring: what is too much
    "uncoalesced-access": ("excess-sectors",),
    "shared-bank-conflicts": ("excess-wavefronts",),
    "atomics-contention": ("instructions atomics",),
    "constant-divergence": ("instructions constant",),
    "register-spills": ("instructions local", "local-sectors"),
    "local-memory": ("instructions local", "local-sectors"),
    # Pipes: who fills them
    "tensor-pipe": ("instructions tensor",),
    "fp32-pipe": ("instructions fp32",),
    "fp64-pipe": ("instructions fp64",),
    "fp16-pipe": ("instructions fp16",),
    "int-pipe": ("instructions int",),
    "xu-pipe": ("instructions xu",),
    "issue-slots": ("instructions",),
    "tensor-idle": ("instructions fma",),
    "non-fused-math": ("instructions unfused",),
    "thread-divergence": ("divergent-branches", "lost-lanes"),
    "redundant-exp": ("instructions exponential",),
    "tensor-xu-serial": _HIDDEN,
    # Waiting: what for
    "long-scoreboard": ("stall long_scoreboard",),
    "short-scoreboard": ("stall short_scoreboard",),
    "barrier-wait": ("stall barrier",),
    "wgmma-wait": ("stall barrier",),
    "fixed-latency": ("stall wait",),
    "membar": ("stall membar",),
    "sleeping": ("stall sleeping",),
    "instruction-cache": ("stall no_instruction",),
    "constant-miss": ("stall imc_miss",),
    "mio-throttle": ("stall mio_throttle",),
    "lg-throttle": ("stall lg_throttle",),
    "tex-throttle": ("stall tex_throttle",),
    "math-throttle": ("stall math_pipe_throttle",),
    "branch-resolving": ("stall branch_resolving",),
    "dispatch-stall": ("stall dispatch_stall",),
    "store-drain": ("stall drain",),
    "gmma-wait": ("stall gmma",),
    "occupancy-registers": _HIDDEN,
    "occupancy-shared": _HIDDEN,
    "occupancy-blocks": _HIDDEN,
    # Doubts about the measurement
    "operations-mismatch": NO_LINE,
    "clocks-unsteady": NO_LINE,
    "replay-unsteady": NO_LINE,
}


def counters(rule: str) -> tuple[str, ...]:
    """The counters that choose a rule's lines, the best first; a rule of somebody's own has none."""
    return LINES.get(rule, NO_LINE)
